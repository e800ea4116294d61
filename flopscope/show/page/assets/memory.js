/* The section Memory: the peak, and who allocates and holds the memory of each device. The timeline draws it. */
"use strict";

{
    const peakOf = ({ peak }, page) =>
        peak.row >= 0 && page.rows ? `, in ${(page.rows.get("key", peak.row) || "").slice(0, 200)}` : "";

    /* Who allocates, and who holds what is allocated at the peak: by op. */
    function tables(device, columns, page) {
        const records = Array.from(columns.rows, (row, i) => ({
            row,
            name: row >= 0 && page.rows ? page.rows.get("key", row) || "" : "(outside of ops)",
            shapes: row >= 0 && page.rows ? page.rows.get("input_shapes", row) || "" : "",
            allocated: columns.allocated[i],
            freed: columns.freed[i],
            allocations: columns.allocations[i],
            held: columns.held ? columns.held[i] : NaN,
        }));
        const held = columns.held
            ? [
                  ["Held at the peak", "bytes:held", "Allocated by it and in use at the peak."],
                  ["Of the peak", (one) => format.percent((100 * one.held) / device.peak.allocated)],
              ]
            : [];
        const sums = [
            ...held,
            ["Allocated", "bytes:allocated", "The sum of its allocations."],
            ["Freed", "bytes:freed"],
            ["Allocations", "count:allocations"],
        ];
        const byOp = [
            ["<Op", (one) => draw.link(one.name, one.row, "memory")],
            ...(records.some((one) => one.shapes) ? [["<Shapes", (one) => draw.cut(one.shapes)]] : []),
            ...sums,
        ];
        return [
            draw.heading(
                "By op",
                device.left_out_rows ? `${format.count(device.left_out_rows)} with less are left out` : "",
            ),
            el("div.high", draw.table(records, byOp, `Memory of ${device.name} by op`)),
        ];
    }

    flopscope.section("memory", {
        title: "Memory",
        async mount(element, data, page) {
            element.classList.add("memory");
            for (const device of data.devices) {
                const rows = await page.load(device, ["rows", "allocated", "freed", "allocations", "held"]);
                const model = device.model >= 0 ? page.strings[device.model] : "";
                const tiles = [
                    draw.tile(
                        "Peak allocated",
                        format.bytes(device.peak.allocated),
                        `The most that was allocated at one time${peakOf(device, page)}.`,
                    ),
                    draw.tile(
                        "Peak reserved",
                        format.bytes(device.peak_reserved),
                        device.peak_reserved === null
                            ? "Not recorded."
                            : "The most that the allocator held, in use or not.",
                    ),
                    draw.tile("At the beginning", format.bytes(device.first), "After the first recorded change."),
                    draw.tile("At the end", format.bytes(device.last), "After the last recorded change."),
                    ...(device.held_before > 0
                        ? [
                              draw.tile(
                                  "From before",
                                  format.bytes(device.held_before),
                                  "In use at the peak, and allocated before the recording.",
                              ),
                          ]
                        : []),
                    draw.tile("Changes", format.count(device.changes), "Allocations and frees."),
                ];
                element.append(
                    draw.heading(
                        [device.name, model].filter(Boolean).join(" · "),
                        device.recorded
                            ? "as the allocator recorded it"
                            : "sums of the recorded changes: what was allocated before them is unknown and counts " +
                                  "as the least that is possible",
                    ),
                    el("div.tiles", tiles),
                    ...tables(device, rows, page),
                );
            }
            if (data.unplaced) {
                element.append(
                    el(
                        "p.notice",
                        `${format.plural(data.unplaced, "change")} of memory without a time ` +
                            `${data.unplaced === 1 ? "is" : "are"} left out.`,
                    ),
                );
            }
        },
    });
}
