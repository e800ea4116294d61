/* Paper: all sections, in light colours, with what the screen scrolls cut to its first rows. */
"use strict";

flopscope.printers = [];
flopscope.isPrinting = false;
flopscope.PAPER = 690; // px: the width of A4 and of letter paper within the margins

/* Call ``before`` when the page is about to be printed, and ``after`` when it was. */
flopscope.onPrint = function (before, after) {
    flopscope.printers.push([before, after]);
};

/* Draw all sections, which takes time that a browser does not wait for once it prints. */
flopscope.preparePrint = async function () {
    await flopscope.page.ready;
    await flopscope.page.mountAll();
};

flopscope.print = async function () {
    await flopscope.preparePrint();
    window.print();
};

{
    const main = document.getElementById("main");
    let theme = null;

    const recolour = (name) => {
        document.documentElement.dataset.theme = name;
        for (const listener of flopscope.page.themeListeners) listener();
    };

    window.addEventListener("beforeprint", () => {
        if (theme !== null) return;
        theme = document.documentElement.dataset.theme;
        flopscope.isPrinting = true;
        Object.assign(main.style, { width: `${flopscope.PAPER}px`, padding: "0" }); // so that pictures are drawn for the paper
        recolour("light");
        for (const [before] of flopscope.printers) before();
    });

    window.addEventListener("afterprint", () => {
        if (theme === null) return;
        flopscope.isPrinting = false;
        Object.assign(main.style, { width: "", padding: "" });
        recolour(theme);
        theme = null;
        for (const [, after] of flopscope.printers) after();
    });

    document.addEventListener("keydown", (event) => {
        if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
        event.preventDefault();
        flopscope.print();
    });
}
