/* The section on communication: what the collectives cost, and their bandwidth by size. */
"use strict";

{
    const el = (...parts) => flopscope.element(...parts);
    const GBPS = 1e9;

    const bandwidth = (value) => flopscope.format.byteRate(value * GBPS);

    const KINDS = [
        ["<Collective", "text:collective"],
        ["Message", "bytes:message_bytes", "", "The size was not recorded."],
        ["Calls", "count:calls"],
        ["Time", "time:time", "Of all calls, with the wait for other ranks."],
        ["Time a call", (row) => flopscope.format.time(row.time / row.calls), "Mean."],
        ["Exposed", "time:exposed", "During which no computation ran on the device."],
        ["Exposed share", "percent:exposed_pct", "Of the time."],
        ["Bus, median", (row) => bandwidth(row.bus_median), "Over the time with the wait."],
        ["Bus, most", (row) => bandwidth(row.bus_max)],
    ];

    flopscope.section("communication", {
        title: "Communication",

        mount(element, data) {
            const { format, draw } = flopscope;
            const per = data.steps ? " a step" : "";
            const divisor = (data.steps || 1) * data.devices;
            element.append(
                el(
                    "div",
                    { class: "tiles" },
                    draw.tile(
                        "Collectives",
                        format.count(data.count),
                        "Communication kernels of all devices and steps.",
                    ),
                    draw.tile(`Time in them${per}`, format.time(data.time / divisor), "With the wait for other ranks."),
                    draw.tile(
                        `Exposed${per}`,
                        format.time(data.exposed / divisor),
                        "During which no computation ran on the device.",
                    ),
                    draw.tile(
                        "Exposed share of the time",
                        format.percent(data.exposed_pct_of_total),
                        "Of the time of the steps.",
                    ),
                ),
            );
            element.append(
                draw.heading("By kind and size", "times of all steps and devices, with the wait for other ranks"),
            );
            element.append(draw.table(data.sizes, KINDS, "Collectives by kind and message size"));
            if (data.sizes_left_out) {
                const left = `${format.plural(data.sizes_left_out, "more size")}, with less time, are not listed.`;
                element.append(el("p", { class: "note", text: left }));
            }
        },
    });
}
