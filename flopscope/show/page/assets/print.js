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
    const prepared = new Set();
    let theme = null;

    const prepare = () => {
        for (const printer of flopscope.printers) {
            if (prepared.has(printer)) continue;
            prepared.add(printer);
            printer[0]();
        }
    };

    /* The browser's menu prints without asking: what was not in view yet is drawn now. It needs no more than promises
       that are fulfilled, as all data is inflated soon after the page has opened, and those go on before anything is
       printed. */
    window.addEventListener("beforeprint", async () => {
        if (theme !== null) return;
        theme = document.documentElement.dataset.theme;
        flopscope.isPrinting = true;
        // So that pictures are drawn for the paper
        Object.assign(main.style, { width: `${flopscope.PAPER}px`, padding: "0" });
        flopscopeTheme.set("light");
        prepare();
        await flopscope.preparePrint();
        if (flopscope.isPrinting) prepare();
    });

    window.addEventListener("afterprint", () => {
        if (theme === null) return;
        flopscope.isPrinting = false;
        Object.assign(main.style, { width: "", padding: "" });
        flopscopeTheme.set(theme);
        theme = null;
        for (const [, after] of prepared) after();
        prepared.clear();
    });

    document.addEventListener("keydown", (event) => {
        if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) {
            return;
        }
        event.preventDefault();
        flopscope.print();
    });
}
