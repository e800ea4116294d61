/* Overview: what the hardware counted, the energy, CUDA graphs, and the ops whose work is unknown or estimated. */
"use strict";

Object.assign(flopscope.overview, {
    counted(devices, of) {
        const { format, draw } = flopscope;
        const share = (value) => format.percent(value);
        return draw.table(
            devices,
            [
                { title: "Device", left: true, text: (one) => flopscope.page.device(one.device) },
                {
                    title: "Read",
                    doc: "Of device memory, in the whole profile: at the rate of the part that was counted.",
                    text: (one) => format.bytes(one.whole_read),
                },
                {
                    title: "Written",
                    doc: "Of device memory, in the whole profile: at the rate of the part that was counted.",
                    text: (one) => format.bytes(one.whole_written),
                },
                {
                    title: "Mean",
                    doc: "Of the time that was counted.",
                    text: (one) => format.byteRate(format.known(one.tbytes_per_s) ? one.tbytes_per_s * 1e12 : null),
                },
                {
                    title: "SM active",
                    doc: "Share of the cycles in which multiprocessors had a warp.",
                    text: (one) => share(one.sm_active),
                },
                {
                    title: "Tensor active",
                    doc: "Share of the cycles in which tensor cores worked.",
                    text: (one) => share(one.tensor_active),
                },
                {
                    title: "Counted",
                    doc: "Share of the device's work, by time.",
                    text: (one) => share(format.known(one.share) ? 100 * one.share : null),
                },
            ],
            `What the hardware counted${of}`,
        );
    },

    energy(devices, of) {
        const { element: el, format, draw } = flopscope;
        const missing = devices.filter((one) => one.missing);
        const table = draw.table(
            devices,
            [
                { title: "Device", left: true, text: (one) => one.device },
                { title: "Energy", text: (one) => format.unit(one.joules, "J") },
                { title: "Mean power", text: (one) => format.unit(one.watts, "W") },
                {
                    title: "GFLOP/J",
                    doc: "FLOPs of the model; of one device only.",
                    text: (one) => format.number(one.gflop_per_joule),
                },
            ],
            `Energy of the devices${of}`,
        );
        return el(
            "div",
            {},
            table,
            missing.map((one) => el("p", { class: "note", text: `${one.device}: ${one.missing}` })),
        );
    },

    /* A list of ops with their times, the longest first. */
    ops(records, count, caption) {
        const { element: el, format, draw } = flopscope,
            MOST = 12;
        const list = el(
            "div",
            { class: "pairs", role: "list", "aria-label": caption },
            records
                .slice(0, MOST)
                .map((record) =>
                    el(
                        "div",
                        { role: "listitem" },
                        draw.link(record.name, record.row, "overview"),
                        el("span", { class: "num", text: format.time(record.time) }),
                    ),
                ),
        );
        const left = count - Math.min(records.length, MOST);
        return el("div", {}, list, left > 0 && el("p", { class: "note", text: `and ${format.count(left)} more` }));
    },

    misfits(records, count, of) {
        const { element: el, format, draw } = flopscope;
        const table = draw.table(
            records,
            [
                { title: "Op", left: true, cell: (one) => draw.link(one.name, one.row, "overview") },
                { title: "Called with", left: true, cell: (one) => draw.cut(one.seen, "mono") },
                { title: "The rule expects", left: true, cell: (one) => draw.cut(one.expected, "mono") },
            ],
            `Ops of another version than their rules${of}`,
        );
        const left = count - records.length;
        return el("div", {}, table, left > 0 && el("p", { class: "note", text: `and ${format.count(left)} more` }));
    },

    graphs(counts, unseen) {
        const { element: el, format } = flopscope;
        const facts = [
            ...counts.map(([text, count]) => [text, format.count(count)]),
            ...(unseen > 0 ? [["time of kernels whose capture was not seen", format.time(unseen)]] : []),
        ];
        return el(
            "div",
            { class: "pairs", role: "list", "aria-label": "Replays of CUDA graphs" },
            facts.map(([text, value]) =>
                el("div", { role: "listitem" }, el("span", { text }), el("span", { class: "num", text: value })),
            ),
        );
    },

    /* Both, each with its heading, where something was counted. */
    hardware({ counted }, name) {
        const { overview } = flopscope,
            of = name ? ` of ${name}` : "";
        return overview.titled([
            [
                counted.devices.length,
                "Counted",
                "by the hardware, over the whole profile",
                () => overview.counted(counted.devices, of),
            ],
            [
                counted.energy.length,
                "Energy",
                "of the whole profile, idle power included",
                () => overview.energy(counted.energy, of),
            ],
        ]);
    },

    /* The lists of what is unknown or estimated, each with its heading, where there are any. */
    coverage({ coverage, graphs }, name) {
        const { overview } = flopscope,
            of = name ? ` of ${name}` : "";
        const listed = (key, title, note, caption) => [
            coverage[key].length,
            title,
            note,
            () => overview.ops(coverage[key], coverage[`${key}_count`], caption),
        ];
        return overview.titled([
            [
                graphs.length || coverage.unseen_graphs > 0,
                "CUDA graphs",
                "",
                () => overview.graphs(graphs, coverage.unseen_graphs),
            ],
            listed("unmodelled", "Not modelled", "time whose bytes no rule knows", "Ops whose work no rule models"),
            listed(
                "estimated",
                "Estimated",
                "time whose work is a bound or an estimate",
                "Ops whose work is a bound or an estimate",
            ),
            listed(
                "estimated_flops",
                "Estimated FLOPs",
                "of generated kernels, from the ops in their names",
                "Ops whose FLOPs are an estimate",
            ),
            [
                coverage.misfits.length,
                "Another version",
                "called with other arguments than the rule expects",
                () => overview.misfits(coverage.misfits, coverage.misfits_count, of),
            ],
        ]);
    },

    titled: (parts) =>
        parts.flatMap(([there, title, note, make]) => (there ? [flopscope.draw.heading(title, note), make()] : [])),
});
