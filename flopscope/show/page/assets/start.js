/* The start of the page: navigation, sections that are mounted when they come into view, theme, keyboard, selection. */
"use strict";

flopscope.start = async function () {
    if (typeof DecompressionStream === "undefined") {
        document
            .getElementById("sections")
            .append(el("p.notice", "This browser cannot inflate the page's data: use one of 2023 or later."));
        return;
    }
    const page = new flopscope.Page(JSON.parse(document.getElementById("data").textContent));
    flopscope.page = page;
    const root = document.documentElement;
    const nav = document.getElementById("nav");
    const main = document.getElementById("sections");
    const ids = Object.keys(page.data.sections).filter((id) => flopscope.sections.has(id));
    const links = new Map();

    /* Sections */
    const elements = new Map();
    for (const id of ids) {
        const { title } = flopscope.sections.get(id);
        const link = el("a", { href: `#${id}`, text: title });
        links.set(id, link);
        nav.append(link);
        const body = el("div.body", { "aria-busy": "true" });
        const section = el(
            "section.section",
            { id, tabindex: "-1", "aria-labelledby": `title-${id}` },
            el("h2", { id: `title-${id}`, text: title }),
            body,
        );
        elements.set(id, section);
        main.append(section);
    }
    page.mount = async function (id) {
        if (!page.mounted.has(id)) {
            const description = flopscope.sections.get(id);
            const body = elements.get(id).querySelector(".body");
            page.mounted.set(
                id,
                (async () => {
                    if (!description.early) await page.ready;
                    try {
                        await description.mount(body, page.data.sections[id], page);
                    } catch (problem) {
                        body.replaceChildren(el("p.notice", `This section could not be drawn: ${problem.message}`));
                        throw problem;
                    } finally {
                        body.removeAttribute("aria-busy");
                    }
                })(),
            );
        }
        return page.mounted.get(id);
    };
    page.mountAll = () => Promise.all(ids.map((id) => page.mount(id)));

    /* Which section is in view: the last one that begins above the line where a visited one begins, below the bar. */
    const bar = document.getElementById("bar");
    let visited = null;
    const mark = () => {
        const line = bar.offsetHeight + 12;
        root.style.scrollPaddingTop = `${line}px`;
        const begun = ids.filter((id) => elements.get(id).getBoundingClientRect().top < line + 2);
        let current = begun.length ? begun[begun.length - 1] : ids[0];
        const end = window.innerHeight + window.scrollY >= root.scrollHeight - 2;
        if (end && window.scrollY > 0) {
            const last = ids.slice(ids.indexOf(current)); // none of them can come up to the line
            current = last.includes(visited) ? visited : ids[ids.length - 1];
        }
        for (const [id, link] of links) {
            if (id === current) link.setAttribute("aria-current", "true");
            else link.removeAttribute("aria-current");
        }
    };
    const near = new IntersectionObserver(
        (entries) => {
            for (const entry of entries) if (entry.isIntersecting) page.mount(entry.target.id);
        },
        { rootMargin: "600px" },
    );
    const grown = new ResizeObserver(mark);
    window.addEventListener("scroll", mark, { passive: true });

    page.visit = async function (id, focus = true) {
        if (!elements.has(id)) return;
        await Promise.all(ids.slice(0, ids.indexOf(id) + 1).map(page.mount)); // those above it move it
        visited = id;
        elements.get(id).scrollIntoView({ block: "start" });
        mark();
        if (focus) elements.get(id).focus({ preventScroll: true });
    };
    const follow = () => {
        const { id, state } = flopscope.address.read();
        if (!elements.has(id)) return;
        page.visit(id).then(() => {
            const description = flopscope.sections.get(id);
            if (description.restore) description.restore(state);
        });
    };
    window.addEventListener("hashchange", follow);

    /* Theme */
    const themes = ["auto", "light", "dark"];
    const theme = el("button.tool", { id: "theme" });
    const nameTheme = () => {
        const name = root.dataset.theme;
        theme.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
        theme.title = `Colours: ${{ auto: "those of the system", light: "light", dark: "dark" }[name]}`;
        theme.setAttribute("aria-label", theme.title);
    };
    const nextTheme = () => flopscopeTheme.set(themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length]);
    theme.addEventListener("click", nextTheme);
    flopscopeTheme.listeners.push(nameTheme);
    nameTheme();
    document.getElementById("tools").append(theme);

    /* Keys */
    document.addEventListener("keydown", async (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
        const typing = event.target.closest && event.target.closest("input, textarea, select");
        if (event.key === "Escape") {
            if (typing) typing.blur();
            else page.select(null);
        } else if (event.key === "/" && !typing) {
            event.preventDefault();
            if (elements.has("ops")) await page.visit("ops", false);
            const box = document.querySelector("#filter, .listbox input[type=search]");
            if (box) box.focus();
        }
    });

    /* The selection, in words */
    const shown = document.getElementById("selection");
    page.onSelect((row, details) => {
        shown.hidden = row === null;
        document.body.classList.toggle("has-selection", row !== null);
        if (row === null) {
            flopscope.announce("Nothing is selected.");
            return;
        }
        const text = flopscope.describe(row, page);
        flopscope.announce(`Selected: ${text.join(", ")}`);
        shown.replaceChildren(
            el("span.what.cut", { title: text[0], text: text[0] }),
            details.note ? el("span.note", details.note) : "",
            ...text.slice(1).map((part) => el("span.cut", { title: part, text: part })),
            el("span.space"),
            elements.has("ops") && details.source !== "ops" ? draw.button("Show in Ops", () => page.visit("ops")) : "",
            draw.button("Clear", () => page.select(null), { title: "Esc" }),
        );
    });

    for (const section of elements.values()) {
        near.observe(section);
        grown.observe(section);
    }
    follow();
    await page.ready;
    root.dataset.ready = "true";
    await page.inflateAll();
    root.dataset.inflated = "true";
};

/* What a row is, in a few texts: name, shapes, time, share of the roofline, bound. */
flopscope.describe = function (row, page) {
    const { rows } = page;
    const texts = [rows.get("key", row) || "(no name)"];
    const shapes = rows.get("input_shapes", row);
    if (shapes) texts.push(shapes);
    const device = rows.get("self_device_time_total", row);
    texts.push(
        rows.hasDevice && device > 0
            ? `${format.time(device)} device`
            : `${format.time(rows.get("self_cpu_time_total", row))} host`,
    );
    texts.push(format.plural(rows.get("count", row), "call"));
    const share = rows.get("pct_roofline", row);
    if (format.known(share)) texts.push(`${format.percent(share)} of the roofline`);
    const bound = rows.get("bound", row);
    if (bound && bound !== "unknown") texts.push(`bound: ${bound}`);
    return texts;
};

flopscope.start();
