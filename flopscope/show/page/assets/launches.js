/* Launches: how the host keeps up with the devices, which ops launch most, and what each stream did. */
"use strict";

flopscope.section("launches", {
    title: "Launches",
    mount(body, data, page) {
        const { element: el, format, draw } = flopscope;
        for (const warning of data.warnings) body.append(el("p", { class: "notice", text: warning }));
        if (data.window) {
            body.append(el("p", { class: "note", text: `Launches and streams are those of ${data.window}.` }));
        }
        const known = data.devices.filter((device) => device.launches > 0);
        if (known.length) {
            const time = (title, name, doc) => ({ title, doc, text: (record) => format.time(record[name]) });
            body.append(
                draw.table(
                    known,
                    [
                        { title: "Device", left: true, text: (record) => page.device(record.device) },
                        {
                            title: "Launches",
                            doc: "API calls that launched kernels; for a CUDA graph, one.",
                            text: (record) => format.count(record.launches),
                        },
                        {
                            title: "Kernels",
                            doc: "Kernels whose API call was recorded.",
                            text: (record) => format.count(record.kernels),
                        },
                        time("Call, median", "call_time_median", "Duration of the call on the host."),
                        time("Delay, least", "delay_min", "From the start of the call to the start of its kernel."),
                        time("Delay, median", "delay_median", "From the start of the call to the start of its kernel."),
                        time("Delay, 95%", "delay_p95", "95th percentile of the delays."),
                        time("Delay, most", "delay_max", "Longest delay."),
                        {
                            title: "Queue, mean",
                            doc: "Earlier launches whose kernel had not started when a call began.",
                            text: (record) => `${format.number(record.queue_mean)} launches`,
                        },
                        {
                            title: "Queue, most",
                            doc: "Longest queue.",
                            text: (record) =>
                                `${format.count(record.queue_max)} ${record.queue_max === 1 ? "launch" : "launches"}`,
                        },
                        {
                            title: "Late",
                            doc:
                                "Launches onto a stream whose work had ended before the call returned: the " +
                                "device waited for the host.",
                            text: (record) => format.percent(record.launch_bound_pct),
                        },
                        time(
                            "Idle before late launches",
                            "idle_lost",
                            "Time in which the device was idle until work that was launched late had arrived.",
                        ),
                    ],
                    "Launches of each device",
                ),
            );
            body.append(
                el("p", {
                    class: "note",
                    text:
                        "Late: launches onto a stream whose work had ended before the call returned, so that the " +
                        "device waited for the host. A long queue means that the host is ahead; short delays and " +
                        "late launches, that it is not.",
                }),
            );
        } else {
            body.append(el("p", { class: "empty", text: "No API call that launched a kernel was recorded." }));
        }
        if (data.ops.length) {
            body.append(draw.heading("Ops that launch most", data.steps ? "in all steps" : "in the profile"));
            const most = data.ops[0].count;
            const list = draw.table(
                data.ops.slice(0, 20),
                [
                    {
                        title: "Op",
                        left: true,
                        cell: (record) => draw.link(page.rows.get("key", record.row), record.row, "launches"),
                    },
                    {
                        title: "Shapes",
                        left: true,
                        cell: (record) => draw.cut(page.rows.get("input_shapes", record.row) || "", "mono"),
                    },
                    { title: "Calls", text: (record) => format.count(page.rows.get("count", record.row)) },
                    {
                        title: "Launched work",
                        doc: "Kernels, copies and fills.",
                        text: (record) => format.count(record.count),
                    },
                    {
                        title: "",
                        cell: (record) =>
                            el(
                                "span",
                                { class: "track wide", "aria-hidden": "true" },
                                draw.bar(record.count / most, "gain"),
                            ),
                    },
                    { title: "Device time of each", text: (record) => format.time(record.time) },
                    { title: "Bound", left: true, cell: (record) => draw.bound(page.rows.get("bound", record.row)) },
                ],
                "Ops that launch most",
            );
            body.append(list);
            const left = Math.max(data.ops.length - 20, 0) + data.ops_left_out;
            if (left) {
                body.append(
                    el("p", { class: "note", text: `${format.count(left)} other rows launch work; Ops lists all.` }),
                );
            }
        }
        if (data.streams.length) {
            body.append(draw.heading("Streams", "of each device, and the device as a whole"));
            const time = (title, name, doc) => ({ title, doc, text: (record) => format.time(record[name]) });
            const share = (title, name, doc) => ({ title, doc, text: (record) => format.percent(record[name]) });
            body.append(
                draw.table(
                    data.streams,
                    [
                        {
                            title: "Stream",
                            left: true,
                            text: (record) =>
                                `${page.device(record.device)} ` +
                                `${record.stream === null ? "all streams" : `stream ${record.stream}`}`,
                        },
                        { title: "Kernels", text: (record) => format.count(record.kernels) },
                        { title: "Copies", doc: "Copies and fills.", text: (record) => format.count(record.copies) },
                        time("Busy", "busy", "Time in which the stream worked; overlaps count once."),
                        time(
                            "Overlapped",
                            "overlapped",
                            "Part of the busy time in which another stream of the device worked too.",
                        ),
                        share("of busy", "overlapped_pct", "Share of the busy time."),
                        time("Communication", "communication", "Time in which a communication kernel ran."),
                        time(
                            "Exposed",
                            "exposed_communication",
                            "Part of the communication in which no other kernel ran on the device.",
                        ),
                        share("of communication", "exposed_pct", "Share of the communication."),
                    ],
                    "Streams",
                ),
            );
        }
    },
});
