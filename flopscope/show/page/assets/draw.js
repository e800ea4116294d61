/* Parts that several sections draw: bars, chips, small tables, cards. Texts are set as text, never as markup. */
"use strict";

flopscope.draw = (() => {
    const el = flopscope.element;

    /* A bar of a share from 0 to 1, beginning at ``from``. */
    function bar(share, name, from = 0) {
        const clamp = (value) => Math.min(Math.max(Number.isFinite(value) ? value : 0, 0), 1);
        const start = clamp(from);
        return el("span", {
            class: `fill ${name || ""}`,
            style: { left: `${100 * start}%`, width: `${100 * Math.min(clamp(share), 1 - start)}%` },
        });
    }

    const track = (...bars) => el("span", { class: "track", "aria-hidden": "true" }, bars);

    /* What bounds a row: a swatch and its name. */
    function bound(name) {
        if (!name || name === "unknown") {
            return el("span", {
                class: "unknown",
                text: flopscope.format.MISSING,
                title: flopscope.page.bounds.unknown,
            });
        }
        return el(
            "span",
            { class: "bound", title: flopscope.page.bounds[name] },
            el("i", { class: `swatch bound-${name}` }),
            name,
        );
    }

    /* A text that is cut where it does not fit, with the whole text in its title. */
    const cut = (text, name) => el("span", { class: `cut ${name || ""}`, title: text, text });

    /* A name that selects a row of the page. */
    function link(text, row, source) {
        if (row === null || row === undefined || row < 0) return cut(text, "plain");
        return el("button", {
            class: "link cut",
            type: "button",
            title: text,
            text,
            on: { click: () => flopscope.page.select(row, { source }) },
        });
    }

    /* A button that acts; ``more``: other attributes. */
    const button = (text, act, more = {}) =>
        el("button", { type: "button", class: "button", text, ...more, on: { click: act } });

    /* A small table: columns {title, doc, text(record) or cell(record), left}. */
    function table(records, columns, caption) {
        const head = columns.map((column) =>
            el(column.title ? "th" : "td", {
                scope: column.title ? "col" : null,
                class: column.left ? "left" : "",
                title: column.doc,
                text: column.title,
            }),
        );
        const body = records.map((record) =>
            el(
                "tr",
                {},
                columns.map((column) => {
                    const cell = el("td", { class: column.left ? "left" : "" });
                    const content = column.cell ? column.cell(record) : column.text(record);
                    if (content === flopscope.format.MISSING) {
                        cell.title = column.missing || "Not known for this profile.";
                        cell.classList.add("unknown");
                    }
                    cell.append(content);
                    return cell;
                }),
            ),
        );
        return el(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
            el(
                "table",
                { class: "small" },
                caption && el("caption", { class: "unseen", text: caption }),
                el("thead", {}, el("tr", {}, head)),
                el("tbody", {}, body),
            ),
        );
    }

    const heading = (text, note) =>
        el("div", { class: "heading" }, el("h3", { text }), note && el("span", { class: "note", text: note }));

    /* What words mean, [[word, meaning]], to open. */
    const words = (title, pairs) =>
        el(
            "details",
            { class: "words" },
            el("summary", { text: title }),
            el(
                "dl",
                {},
                pairs.map(([word, text]) => el("div", {}, el("dt", { text: word }), el("dd", { text }))),
            ),
        );

    /* A number with a label below a heading. */
    function tile(label, text, doc) {
        return el(
            "div",
            { class: "tile", title: doc },
            el("span", { class: "label", text: label }),
            el("span", { class: `value${text === flopscope.format.MISSING ? " unknown" : ""}`, text }),
        );
    }

    return { bar, track, bound, button, cut, link, table, heading, tile, words };
})();
