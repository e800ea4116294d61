/* Overview: what the hardware counted, the energy, CUDA graphs, and the ops whose work is unknown or estimated. */
"use strict";

Object.assign(flopscope.overview, {
    counted(devices, of) {
        const { format, draw } = flopscope;
        const known = (value, scale) => (format.known(value) ? scale * value : null);
        const doc = "Of device memory, in the whole profile: at the rate of the part that was counted.";
        const columns = [
            ["<Device", (one) => flopscope.page.device(one.device)],
            ["Read", "bytes:whole_read", doc],
            ["Written", "bytes:whole_written", doc],
            ["Mean", (one) => format.byteRate(known(one.tbytes_per_s, 1e12)), "Of the time that was counted."],
            ["SM active", "percent:sm_active", "Share of the cycles in which multiprocessors had a warp."],
            ["Tensor active", "percent:tensor_active", "Share of the cycles in which tensor cores worked."],
            ["Counted", (one) => format.percent(known(one.share, 100)), "Share of the device's work, by time."],
        ];
        return draw.table(devices, columns, `What the hardware counted${of}`);
    },

    energy(devices, of) {
        const { element: el, format, draw } = flopscope;
        const columns = [
            ["<Device", "text:device"],
            ["Energy", (one) => format.unit(one.joules, "J")],
            ["Mean power", (one) => format.unit(one.watts, "W")],
            ["GFLOP/J", "number:gflop_per_joule", "FLOPs of the model; of one device only."],
        ];
        const missing = devices.filter((one) => one.missing);
        return el(
            "div",
            {},
            draw.table(devices, columns, `Energy of the devices${of}`),
            missing.map((one) => el("p", { class: "note", text: `${one.device}: ${one.missing}` })),
        );
    },

    /* The ops with the longest times. */
    ops(records, count, caption) {
        const { element: el, format, draw } = flopscope,
            MOST = 12;
        const columns = [
            ["<Op", (record) => draw.link(record.name, record.row, "overview")],
            ["Time", "time:time"],
        ];
        const left = count - Math.min(records.length, MOST);
        return el(
            "div",
            {},
            draw.table(records.slice(0, MOST), columns, caption),
            left > 0 && el("p", { class: "note", text: `and ${format.count(left)} more` }),
        );
    },

    misfits(records, count, of) {
        const { element: el, format, draw } = flopscope;
        const columns = [
            ["<Op", (one) => draw.link(one.name, one.row, "overview")],
            ["<Called with", (one) => draw.cut(one.seen, "mono")],
            ["<The rule expects", (one) => draw.cut(one.expected, "mono")],
        ];
        const table = draw.table(records, columns, `Ops of another version than their rules${of}`);
        const left = count - records.length;
        return el("div", {}, table, left > 0 && el("p", { class: "note", text: `and ${format.count(left)} more` }));
    },

    graphs(counts, unseen, of) {
        const { format, draw } = flopscope;
        const facts = [
            ...counts.map(([text, count]) => [text, format.count(count)]),
            ...(unseen > 0 ? [["time of kernels whose capture was not seen", format.time(unseen)]] : []),
        ];
        const columns = [
            ["<Of them", ([text]) => text],
            ["Number", ([, value]) => value],
        ];
        return draw.table(facts, columns, `Replays of CUDA graphs${of}`);
    },

    /* Both, each with its heading, where something was counted. */
    hardware({ counted }, of) {
        const { overview } = flopscope;
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
    coverage({ coverage, graphs }, of) {
        const { overview } = flopscope;
        const listed = (key, title, note, caption) => [
            coverage[key].length,
            title,
            note,
            () => overview.ops(coverage[key], coverage[`${key}_count`], `${caption}${of}`),
        ];
        return overview.titled([
            [
                graphs.length || coverage.unseen_graphs > 0,
                "CUDA graphs",
                "",
                () => overview.graphs(graphs, coverage.unseen_graphs, of),
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
