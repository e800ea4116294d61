/* Launches: how the host keeps up with the devices, which ops launch most, and what each stream did. */
"use strict";

{
    const { format, draw } = flopscope;
    const el = (...parts) => flopscope.element(...parts);
    const note = (text) => el("p", { class: "note", text });
    const DELAY = "From the start of the call to the start of its kernel.";
    const MOST = 20; // ops that are listed

    const deviceColumns = (page) => [
        ["<Device", (one) => page.device(one.device)],
        ["Launches", "count:launches", "API calls that launched kernels; for a CUDA graph, one."],
        ["Kernels", "count:kernels", "Kernels whose API call was recorded."],
        ["Call, median", "time:call_time_median", "Duration of the call on the host."],
        ["Delay, least", "time:delay_min", DELAY],
        ["Delay, median", "time:delay_median", DELAY],
        ["Delay, 95%", "time:delay_p95", "95th percentile of the delays."],
        ["Delay, most", "time:delay_max", "Longest delay."],
        [
            "Queue, mean",
            (one) => `${format.number(one.queue_mean)} launches`,
            "Earlier launches whose kernel had not started when a call began.",
        ],
        ["Queue, most", (one) => format.plural(one.queue_max, "launch", "launches"), "Longest queue."],
        [
            "Late",
            "percent:launch_bound_pct",
            "Launches onto a stream whose work had ended before the call returned: the device waited for the host.",
        ],
        [
            "Idle before late launches",
            "time:idle_lost",
            "Time in which the device was idle until work that was launched late had arrived.",
        ],
    ];

    const opColumns = ({ rows }, most) => [
        ["<Op", (one) => draw.link(rows.get("key", one.row), one.row, "launches")],
        ["<Shapes", (one) => draw.cut(rows.get("input_shapes", one.row) || "", "mono")],
        ["Calls", (one) => format.count(rows.get("count", one.row))],
        ["Launched work", "count:count", "Kernels, copies and fills."],
        ["", (one) => draw.track(draw.bar(one.count / most, "gain"))],
        ["Device time of each", "time:time"],
        ["<Bound", (one) => draw.bound(rows.get("bound", one.row))],
    ];

    const streamColumns = (page) => [
        [
            "<Stream",
            ({ device, stream }) => `${page.device(device)} ${stream === null ? "all streams" : `stream ${stream}`}`,
        ],
        ["Kernels", "count:kernels"],
        ["Copies", "count:copies", "Copies and fills."],
        ["Busy", "time:busy", "Time in which the stream worked; overlaps count once."],
        ["Overlapped", "time:overlapped", "Part of the busy time in which another stream of the device worked too."],
        ["of busy", "percent:overlapped_pct", "Share of the busy time."],
        ["Communication", "time:communication", "Time in which a communication kernel ran."],
        [
            "Exposed",
            "time:exposed_communication",
            "Part of the communication in which no other kernel ran on the device.",
        ],
        ["of communication", "percent:exposed_pct", "Share of the communication."],
    ];

    flopscope.section("launches", {
        title: "Launches",
        mount(body, data, page) {
            for (const warning of data.warnings) body.append(el("p", { class: "notice", text: warning }));
            if (data.window) body.append(note(`Launches and streams are those of ${data.window}.`));
            const known = data.devices.filter((device) => device.launches > 0);
            if (known.length) {
                body.append(
                    draw.table(known, deviceColumns(page), "Launches of each device"),
                    note(
                        "Late: launches onto a stream whose work had ended before the call returned, so that the " +
                            "device waited for the host. A long queue means that the host is ahead; short delays " +
                            "and late launches, that it is not.",
                    ),
                );
            } else {
                body.append(el("p", { class: "empty", text: "No API call that launched a kernel was recorded." }));
            }
            if (data.ops.length) {
                const columns = opColumns(page, data.ops[0].count);
                body.append(
                    draw.heading("Ops that launch most", data.steps ? "in all steps" : "in the profile"),
                    draw.table(data.ops.slice(0, MOST), columns, "Ops that launch most"),
                );
                const left = Math.max(data.ops.length - MOST, 0) + data.ops_left_out;
                if (left) body.append(note(`${format.count(left)} other rows launch work; Ops lists all.`));
            }
            if (data.streams.length) {
                body.append(
                    draw.heading("Streams", "of each device, and the device as a whole"),
                    draw.table(data.streams, streamColumns(page), "Streams"),
                );
            }
        },
    });
}
