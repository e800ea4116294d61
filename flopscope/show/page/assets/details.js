/* The details of a row: every column with its unit, the kernels, the stack, and the advice that rests on the row. */
"use strict";

{
    const MOST = 30; // kernels that are listed

    flopscope.details = {
        make(rows, row, page, finest, close) {
            const get = (name) => rows.get(name, row);
            const bound = get("bound") && get("bound") !== "unknown" ? get("bound") : "";
            const reason = rows.columns.why ? page.data.reasons[rows.columns.why[row]][1] : "";
            const kind = { op: "op of the host", kernel: "work of a device", range: "range" }[rows.kind(row)];
            const why = bound ? `${bound}: ${page.bounds[bound]}` : reason;
            const parts = [
                el("button.tool.close", {
                    title: "Close (Esc)",
                    "aria-label": "Close the details",
                    on: { click: close },
                    text: "✕",
                }),
                el("h3", get("key") || "(no name)"),
                el("p.note", [kind, get("category")].filter(Boolean).join(" · ")),
                why && el("p.note", why),
                get("pct_roofline") > 100 && el("p.note", format.OVER),
            ];
            for (const { one, number } of flopscope.details.advice(finest, page)) {
                parts.push(
                    el(
                        "p",
                        el("a", { href: "#overview", text: `Advice ${number}. ${one.action}` }),
                        ` ${one.saves} ${format.time(one.saving_us)} (${format.percent(one.saving_pct)}): `,
                        one.reason,
                    ),
                );
            }
            const kernels = rows.kernels(row);
            if (kernels.length) {
                const columns = [
                    ["<Kernel", (one) => draw.cut(one.name, "mono")],
                    ["Time", "time:time"],
                    ["Launches", "count:count"],
                ];
                parts.push(draw.table(kernels.slice(0, MOST), columns, `Kernels of ${get("key")}`));
                if (kernels.length > MOST) {
                    const left = `and ${format.count(kernels.length - MOST)} more, below the row in the table`;
                    parts.push(el("p.note", left));
                }
            }
            for (const [title, columns] of rows.groups(["key"])) {
                const isKnown = ({ name, type }) => (type === "text" ? get(name) : format.known(get(name)));
                const known = columns.filter(isKnown);
                if (!known.length) continue;
                parts.push(
                    el("h4", title),
                    el(
                        "dl.values",
                        (known.some((column) => column.type === "text") ? known : columns).flatMap((column) => {
                            const value = get(column.name);
                            const text = column.type === "text" ? value : format.unit(value, column.unit);
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
            return format.known(value)
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
}
