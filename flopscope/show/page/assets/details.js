/* The details of a row: every column with its unit, the kernels, the stack, and the advice that rests on the row. */
"use strict";

flopscope.details = {
    make(table, row, page, finest, close) {
        const { element: el, format, draw } = flopscope;
        const rows = table;
        const get = (name) => rows.get(name, row);
        const parts = [];
        parts.push(
            el("button", {
                type: "button",
                class: "tool close",
                text: "✕",
                title: "Close (Esc)",
                "aria-label": "Close the details",
                on: { click: close },
            }),
        );
        parts.push(el("h3", { text: get("key") || "(no name)" }));
        const bound = get("bound");
        parts.push(
            el(
                "p",
                { class: "note" },
                `${{ op: "op of the host", kernel: "work of a device", range: "range" }[rows.kind(row)]}`,
                get("category") ? ` · ${get("category")}` : "",
                bound && bound !== "unknown" ? " · " : "",
                bound && bound !== "unknown" ? draw.bound(bound) : "",
            ),
        );
        const why =
            bound && bound !== "unknown"
                ? page.bounds[bound]
                : rows.columns.why
                  ? page.data.reasons[rows.columns.why[row]][1]
                  : "";
        if (why) parts.push(el("p", { class: "note", text: bound && bound !== "unknown" ? `${bound}: ${why}` : why }));
        const share = get("pct_roofline"),
            least = get("roofline_time"),
            room = get("headroom");
        if (format.known(share)) {
            parts.push(
                el(
                    "div",
                    { class: "roof" },
                    draw.track(draw.bar(share / 100, bound && bound !== "unknown" ? `bound-${bound}` : "gain")),
                    el(
                        "div",
                        { class: "legend" },
                        el("span", { text: `${format.percent(share)} of the roofline` }),
                        el("span", { text: `${format.time(least)} of ${format.time(least + room)}` }),
                    ),
                ),
            );
            if (share > 100) parts.push(el("p", { class: "note", text: flopscope.format.OVER }));
        }
        for (const name of ["input_shapes", "input_dtypes", "stack"]) {
            const text = get(name);
            if (text) parts.push(el("h4", { text: rows.byName.get(name).header }), el("p", { class: "long", text }));
        }
        const advice = flopscope.details.advice(finest, page);
        if (advice.length) {
            parts.push(
                el("h4", { text: "Advice" }),
                advice.map(({ one, number }) =>
                    el(
                        "p",
                        {},
                        el("a", { href: "#overview", text: `${number}. ${one.action}` }),
                        ` saves about ${format.time(one.saving_us)} (${format.percent(one.saving_pct)}): ${one.reason}`,
                    ),
                ),
            );
        }
        const kernels = rows.kernels(row);
        if (kernels.length) {
            parts.push(el("h4", { text: `Kernels (${format.count(kernels.length)})` }));
            parts.push(
                el(
                    "div",
                    { class: "kernels", role: "list" },
                    kernels
                        .slice(0, 30)
                        .map((one) =>
                            el(
                                "div",
                                { role: "listitem" },
                                draw.cut(one.name, "mono"),
                                el("span", { class: "num", text: format.time(one.time) }),
                                el("span", { class: "num note", text: `${format.count(one.count)} ×` }),
                            ),
                        ),
                ),
            );
            if (kernels.length > 30) {
                parts.push(
                    el("p", {
                        class: "note",
                        text: `and ${format.count(kernels.length - 30)} more; the table lists them below the row`,
                    }),
                );
            }
        }
        for (const [title, columns] of rows.groups(["key", "input_shapes", "input_dtypes", "stack"])) {
            const known = columns.filter((column) =>
                column.type === "text" ? get(column.name) : format.known(get(column.name)),
            );
            const list = title === "Identity" || title === "Group" ? known : columns;
            if (!known.length) continue;
            parts.push(
                el("h4", { text: title }),
                el(
                    "dl",
                    { class: "values" },
                    list.flatMap((column) => {
                        const value = get(column.name);
                        const text = column.type === "text" ? value || format.MISSING : format.unit(value, column.unit);
                        return [
                            el("dt", { title: column.doc, text: column.header }),
                            el("dd", {
                                class: text === format.MISSING ? "unknown" : "",
                                title: flopscope.details.exact(column, value, rows, row),
                                text,
                            }),
                        ];
                    }),
                ),
            );
        }
        return parts;
    },

    /* All digits of a number, with its unit, for the title. */
    exact(column, value, table, row) {
        if (column.type === "text") return value;
        return flopscope.format.known(value)
            ? `${value} ${column.unit}`.trim()
            : flopscope.details.missing(table, column.name, row);
    },

    /* Why a number of a row is unknown: limits, work and rates for the reason that the row has, the others as not
       recorded. */
    missing(table, name, row) {
        const column = table.byName.get(name),
            reason = table.columns.why ? flopscope.page.data.reasons[table.columns.why[row]][1] : "";
        return reason && column && ["Roofline", "Work", "Rates"].includes(column.group)
            ? reason
            : "Unknown: it was not recorded, or does not apply.";
    },

    advice(row, page) {
        const overview = page.data.sections.overview;
        if (row === null || row < 0 || !overview) return [];
        return overview.advice
            .map((one, i) => ({ one, number: i + 1 }))
            .filter(({ one }) => one.evidence.some((entry) => entry.row === row));
    },
};
