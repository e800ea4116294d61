/* The colours of the page: light or dark, as the system's unless one is chosen. It runs in the head, before anything is
   painted. data-theme: what is chosen; data-colors: what that means now, for the style sheet. */
"use strict";

const flopscopeTheme = (() => {
    const root = document.documentElement,
        system = matchMedia("(prefers-color-scheme: dark)"),
        listeners = [];
    const set = (name) => {
        root.dataset.theme = name;
        root.dataset.colors = name === "auto" ? (system.matches ? "dark" : "light") : name;
        for (const listener of listeners) listener();
    };
    system.addEventListener("change", () => set(root.dataset.theme));
    set("auto");
    return { set, listeners };
})();
