/* Paper: all sections, in light colours. */
"use strict";

{
    let theme = null;

    /* The browser's menu prints without asking: what was not in view yet is drawn now. It needs no more than promises
       that are fulfilled, as all data is inflated soon after the page has opened, and those go on before anything is
       printed. */
    window.addEventListener("beforeprint", () => {
        theme = theme || document.documentElement.dataset.theme;
        flopscopeTheme.set("light");
        flopscope.page.mountAll();
    });

    window.addEventListener("afterprint", () => {
        flopscopeTheme.set(theme);
        theme = null;
    });
}
