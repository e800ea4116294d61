/* The tables of the section Memory. */
"use strict";

/* Who allocates, and who holds what is allocated at the peak: by op and by category. */
flopscope.memoryTables = (device, columns, page) => {
    const el = flopscope.element,
        { format, draw } = flopscope;
    const records = Array.from(columns.rows, (row, i) => ({
        row,
        name: row >= 0 && page.rows ? page.rows.get("key", row) || "" : "(outside of ops)",
        shapes: row >= 0 && page.rows ? page.rows.get("input_shapes", row) || "" : "",
        category: row >= 0 && page.rows ? page.rows.get("category", row) || "other" : "(outside of ops)",
        allocated: columns.allocated[i],
        freed: columns.freed[i],
        allocations: columns.allocations[i],
        held: columns.held ? columns.held[i] : NaN,
    }));
    const shareOf = (value) => format.percent((100 * value) / device.peak.allocated);
    const held = columns.held
        ? [
              {
                  title: "Held at the peak",
                  doc: "Allocated by it and in use at the peak.",
                  text: (one) => format.bytes(one.held),
              },
              { title: "Of the peak", text: (one) => shareOf(one.held) },
          ]
        : [];
    const sums = [
        ...held,
        { title: "Allocated", doc: "The sum of its allocations.", text: (one) => format.bytes(one.allocated) },
        { title: "Freed", text: (one) => format.bytes(one.freed) },
        { title: "Allocations", text: (one) => format.count(one.allocations) },
    ];
    const categories = new Map();
    for (const one of records) {
        const sum = categories.get(one.category) || {
            category: one.category,
            allocated: 0,
            freed: 0,
            allocations: 0,
            held: columns.held ? 0 : NaN,
        };
        for (const name of ["allocated", "freed", "allocations", "held"]) sum[name] += one[name];
        categories.set(one.category, sum);
    }
    const byCategory = [...categories.values()].sort(
        (a, b) => (columns.held ? b.held - a.held : 0) || b.allocated - a.allocated,
    );
    if (device.held_before > 0) {
        byCategory.push({
            category: "(before the recording)",
            held: device.held_before,
            allocated: NaN,
            freed: NaN,
            allocations: NaN,
        });
    }
    const shown = records.slice(0, 12),
        body = el("div", {});
    const fill = (list) =>
        body.replaceChildren(
            draw.table(
                list,
                [
                    { title: "Op", left: true, cell: (one) => draw.link(one.name, one.row, "memory") },
                    ...(records.some((one) => one.shapes)
                        ? [{ title: "Shapes", left: true, cell: (one) => draw.cut(one.shapes) }]
                        : []),
                    ...sums,
                ],
                `Memory of ${device.name} by op`,
            ),
        );
    fill(shown);
    const more =
        records.length > shown.length
            ? flopscope.draw.button(`Show all ${format.count(records.length)}`, () => {
                  fill(records);
                  more.remove();
              })
            : "";
    return el(
        "div",
        { class: "memory-tables" },
        el(
            "div",
            {},
            draw.heading("By category"),
            draw.table(
                byCategory,
                [{ title: "Category", left: true, text: (one) => one.category }, ...sums],
                `Memory of ${device.name} by category`,
            ),
        ),
        el(
            "div",
            {},
            draw.heading(
                "By op",
                device.left_out_rows ? `${format.count(device.left_out_rows)} with less are left out` : "",
            ),
            body,
            more,
        ),
    );
};
