/* Parts that several sections draw: bars, chips, small tables, cards. Texts are set as text, never as markup. */
"use strict";

const draw = (() => {
    /* A bar of a share from 0 to 1, beginning at ``from``. */
    function bar(share, name, from = 0) {
        const clamp = (value) => Math.min(Math.max(Number.isFinite(value) ? value : 0, 0), 1);
        const start = clamp(from);
        return el("span", {
            class: `fill ${name || ""}`,
            style: { left: `${100 * start}%`, width: `${100 * Math.min(clamp(share), 1 - start)}%` },
        });
    }

    const track = (...bars) => el("span.track", { "aria-hidden": "true" }, bars);

    /* What bounds a row: a swatch and its name. */
    function bound(name) {
        if (!name || name === "unknown") {
            return el("span.unknown", { title: flopscope.page.bounds.unknown, text: format.MISSING });
        }
        return el(
            "span.bound",
            { title: flopscope.page.bounds[name] },
            el("i", { class: `swatch bound-${name}` }),
            name,
        );
    }

    /* The name of a row, cut before its end, where ops differ, as a backward does; kernels end with their arguments. */
    const END = 10;
    const ends = (text) =>
        text.length > 2 * END && !text.endsWith(")")
            ? el("span.cut.ends", el("span", text.slice(0, -END)), text.slice(-END))
            : cut(text);
    /* A text that is cut where it does not fit, with the whole text in its title. */
    const cut = (text, name) => el("span", { class: `cut ${name || ""}`, title: text, text });

    /* A name that selects a row of the page. */
    function link(text, row, source) {
        if (row === null || row === undefined || row < 0) return cut(text, "plain");
        return el("button.link.cut", {
            title: text,
            on: { click: () => flopscope.page.select(row, { source }) },
            text,
        });
    }

    /* A button that acts; ``more``: other attributes. */
    const button = (text, act, more = {}) => el("button.button", { ...more, on: { click: act }, text });

    /* What a column shows of a record: a function, or "format:field" for a text of format. */
    function shown(what) {
        if (typeof what === "function") return what;
        const [name, field] = what.split(":");
        return (record) => (name === "text" ? record[field] : format[name](record[field]));
    }

    /* A small table. Columns: [title, what it shows, doc, why a value may be missing]; "<" begins the title of one that
       is aligned at the left; one of bars has none. */
    function table(records, columns, caption) {
        const listed = columns.map(([title, what, doc, missing]) => ({
            title: title.replace(/^</, ""),
            place: title.startsWith("<") ? "left" : title ? "" : "bars",
            show: shown(what),
            doc,
            missing,
        }));
        const head = listed.map(({ title, place, doc }) =>
            el(title ? "th" : "td", { scope: title ? "col" : null, class: place, title: doc, text: title }),
        );
        const body = records.map((record) =>
            el(
                "tr",
                listed.map(({ place, show, missing }) => {
                    const content = show(record);
                    if (content !== format.MISSING) return el("td", { class: place }, content);
                    const title = missing || "Not known for this profile.";
                    return el("td", { class: `${place} unknown`, title, text: content });
                }),
            ),
        );
        return el(
            "div.scroll",
            { tabindex: "0", role: "region", "aria-label": caption },
            el("table.small", caption && el("caption.unseen", caption), el("thead", el("tr", head)), el("tbody", body)),
        );
    }

    /* A table of texts with its heading and notes, as Python made it; name: the class of its names. */
    function texts({ title, rows: [head, ...records], left, notes }, name) {
        const columns = head.map((text, i) =>
            i < left ? [`<${text}`, (record) => cut(record[i], name)] : [text, (record) => record[i]],
        );
        return [heading(title), table(records, columns, title), el("p.note", notes)];
    }

    const heading = (text, note) => el("div.heading", el("h3", text), note && el("span.note", note));

    /* Sentences in a list with a heading; nothing without any. */
    const notes = (texts) =>
        texts.length
            ? [
                  heading("Notes"),
                  el(
                      "ul.notes",
                      texts.map((text) => el("li", text)),
                  ),
              ]
            : [];

    /* The name of a part of the time, with its colour; ``note``: what it means. */
    const part = (name, label, note) =>
        el(
            "span.name",
            name && el("i", { class: `swatch part-${name}` }),
            el("span", label, note && el("span.note", note)),
        );

    /* What words mean, [[word, meaning]], to open. */
    const words = (title, pairs) =>
        el(
            "details.words",
            el("summary", title),
            el(
                "dl",
                pairs.map(([word, text]) => el("div", el("dt", word), el("dd", text))),
            ),
        );

    /* A number with a label below a heading. */
    function tile(label, text, doc) {
        return el(
            "div.tile",
            { title: doc },
            el("span.label", label),
            el("span", { class: `value${text === format.MISSING ? " unknown" : ""}`, text }),
        );
    }

    /* A table of stacked bars, one for each step, all on one scale. steps: {label, total, parts, note}, parts the times
       by name; labels: of the parts; most: the longest total. */
    function steps(listed, labels, most, caption) {
        const stack = ({ total, parts }) =>
            el(
                "span.stack",
                { style: { width: `${(100 * total) / most}%` } },
                Object.keys(parts)
                    .filter((name) => parts[name] > 0)
                    .map((name) =>
                        el("span", {
                            class: `part-${name}`,
                            style: { flex: `${parts[name]} 1 0` },
                            title:
                                `${labels[name] || name}: ${format.time(parts[name])}, ` +
                                `${format.percent((100 * parts[name]) / total)}`,
                        }),
                    ),
            );
        const columns = [
            ["<Step", ({ label }) => cut(label)],
            ["", stack],
            ["Time", "time:total"],
            ...(listed.some(({ note }) => note) ? [["MFU", "text:note"]] : []),
        ];
        return el("div.steps", table(listed, columns, caption));
    }

    /* Parts of the time of two things, one bar above the other, with their times and the difference.
       rows: {name, label, times, difference}; with ``alone`` only the first is there. */
    function beside(rows, heads, caption, alone = false) {
        const most = Math.max(...rows.flatMap((row) => row.times.map((time) => time || 0)), 1e-9);
        const bars = ({ name, times }) =>
            (alone ? times.slice(0, 1) : times).map((time, i) =>
                track(bar(time / most, `part-${name}${i ? " pale" : ""}`)),
            );
        const numbers = [
            [heads[0], (row) => format.time(row.times[0])],
            [heads[1], (row) => format.time(row.times[1])],
            [heads[2], (row) => format.signed(row.difference)],
        ];
        const columns = [
            ["<Part", (row) => part(row.name, row.label)],
            ["", (row) => el("span.both", bars(row))],
            ...(alone ? numbers.slice(0, 1) : numbers),
        ];
        return el("div.beside", table(rows, columns, caption));
    }

    return {
        bar,
        track,
        bound,
        button,
        cut,
        ends,
        link,
        table,
        heading,
        notes,
        tile,
        part,
        texts,
        words,
        steps,
        beside,
    };
})();
flopscope.draw = draw;
