/* The section on communication: what the collectives cost, their bandwidth by size, and every call. */
"use strict";

{
    const el = (...parts) => flopscope.element(...parts);
    const MOST_DOTS = 3000; // calls that are drawn one by one
    const GBPS = 1e9;

    const kindClass = (kinds, name) => `series-${1 + (kinds.indexOf(name) % 6)}`;

    const bandwidth = (value) => flopscope.format.byteRate(value * GBPS);

    /* One mark for each size of a kind, at the median; a line leads to the fastest call. */
    function drawSizes(area, data, kinds, calls) {
        const { format } = flopscope;
        for (let i = 0; calls && i < calls.count; i++) {
            const [size, bus] = [calls.message_bytes[i], calls.bus_gbytes_per_s[i]];
            if (!(size > 0 && bus > 0)) continue;
            const name = kindClass(kinds, calls.text("collective", i));
            area.add("circle", { class: `dot ${name}`, cx: area.x(size), cy: area.y(bus), r: 2 });
        }
        for (const row of data.sizes) {
            if (!(row.message_bytes > 0 && row.bus_median > 0)) continue;
            const [x, y] = [area.x(row.message_bytes), area.y(row.bus_median)];
            const name = kindClass(kinds, row.collective);
            area.add("line", { class: `range ${name}`, x1: x, x2: x, y1: y, y2: area.y(row.bus_max) });
            area.add("circle", { class: `mark ${name}`, cx: x, cy: y, r: 5 });
            area.mark(
                x,
                y,
                [
                    `${row.collective} of ${format.bytes(row.message_bytes)}`,
                    format.plural(row.calls, "call"),
                    `${bandwidth(row.bus_median)} bus bandwidth (median), ${bandwidth(row.bus_max)} at most`,
                ].join("\n"),
            );
        }
    }

    function sizesChart(parent, data, kinds, calls) {
        const marked = data.sizes.filter((row) => row.message_bytes > 0 && row.bus_median > 0);
        if (!marked.length) {
            parent.append(
                el("p", { class: "note", text: "No call has both a size and a bandwidth, so none can be drawn." }),
            );
            return;
        }
        const sizes = marked.map((row) => row.message_bytes);
        const most = Math.max(...marked.map((row) => row.bus_max));
        flopscope.legend(
            parent,
            kinds.map((name) => [kindClass(kinds, name), name]),
        );
        flopscope.chart(parent, {
            label: `Bus bandwidth over message size: ${marked.length} sizes, at most ${bandwidth(most)}`,
            height: 280,
            x: {
                label: "Message size",
                kind: "bytes",
                log: true,
                domain: [Math.min(...sizes) / 1.5, Math.max(...sizes) * 1.5],
            },
            y: { label: "Bus bandwidth, GB/s", domain: [0, most * 1.05] },
            draw: (area) => drawSizes(area, data, kinds, calls.count <= MOST_DOTS ? calls : null),
        });
    }

    const share = (exposed, time, pct) =>
        el(
            "span",
            { class: "barcell" },
            flopscope.draw.track(flopscope.draw.bar(time ? exposed / time : 0, "exposed")),
            flopscope.format.percent(pct),
        );

    function kindsTable(data) {
        const { format, draw } = flopscope;
        return draw.table(
            data.sizes,
            [
                { title: "Collective", left: true, text: (row) => row.collective },
                {
                    title: "Message",
                    text: (row) => format.bytes(row.message_bytes),
                    missing: "The size was not recorded.",
                },
                { title: "Calls", text: (row) => format.count(row.calls) },
                {
                    title: "Time",
                    text: (row) => format.time(row.time),
                    doc: "Of all calls, with the wait for other ranks.",
                },
                { title: "Time a call", text: (row) => format.time(row.time / row.calls), doc: "Mean." },
                {
                    title: "Exposed",
                    text: (row) => format.time(row.exposed),
                    doc: "During which no computation ran on the device.",
                },
                { title: "Exposed share", cell: (row) => share(row.exposed, row.time, row.exposed_pct) },
                { title: "Bus, median", text: (row) => bandwidth(row.bus_median), doc: "Over the time with the wait." },
                { title: "Bus, most", text: (row) => bandwidth(row.bus_max) },
            ],
            "Collectives by kind and message size",
        );
    }

    /* The columns of all calls, with texts by name. */
    async function loadCalls(data, page) {
        const calls = { count: data.shown };
        await Promise.all(
            Object.entries(data.calls).map(async ([name, reference]) => {
                calls[name] = await page.column(reference);
            }),
        );
        calls.text = (name, row) => (calls[name][row] < 0 ? null : page.strings[calls[name][row]]);
        return calls;
    }

    /* The rows of the page's table by the names of kernels. */
    function rowsOfKernels(page) {
        const rows = new Map();
        for (let row = 0; page.rows && row < page.rows.count; row++) {
            if (page.rows.kind(row) === "kernel" && !rows.has(page.rows.get("key", row))) {
                rows.set(page.rows.get("key", row), row);
            }
        }
        return rows;
    }

    function callsTable(parent, calls, page) {
        const rows = rowsOfKernels(page);
        const { format } = flopscope;
        const longest = calls.duration.reduce((most, one) => Math.max(most, one), 0);
        const number = (title, name, text, more = {}) => ({
            title,
            width: 100,
            value: (i) => calls[name][i],
            text: (i) => text(calls[name][i]),
            ...more,
        });
        flopscope.list(parent, {
            label: "Calls of collectives",
            noun: "call",
            count: calls.count,
            height: 360,
            sort: [1, false],
            placeholder: "kind, name, group, kernel",
            select: (i) =>
                page.select(rows.has(calls.text("kernel", i)) ? rows.get(calls.text("kernel", i)) : null, {
                    source: "communication",
                }),
            filter: (i) =>
                ["collective", "name", "group", "dtype", "kernel"].map((name) => calls.text(name, i) || "").join(" "),
            columns: [
                { title: "Collective", width: 120, left: true, text: (i) => calls.text("collective", i) },
                number("Start", "start", format.time, { doc: "Since the profile began." }),
                number("Message", "message_bytes", format.bytes, { missing: "The size was not recorded." }),
                number("Time", "duration", format.time, {
                    share: (i) => calls.duration[i] / longest,
                    doc: "With the wait for other ranks.",
                }),
                number("Exposed", "exposed", format.time, { share: (i) => calls.exposed[i] / longest, bar: "exposed" }),
                number("Bus", "bus_gbytes_per_s", bandwidth, { width: 110, doc: "Over the time with the wait." }),
                number("Algorithm", "algorithm_gbytes_per_s", bandwidth, { width: 110, doc: "Message by time." }),
                { title: "dtype", width: 90, left: true, text: (i) => calls.text("dtype", i) || format.MISSING },
                { title: "Group", width: 80, left: true, text: (i) => calls.text("group", i) || format.MISSING },
                number("Ranks", "group_size", format.count, { width: 70, doc: "Of the group." }),
                number("Sequence", "sequence", format.count, { width: 90, doc: "Of the call in its group." }),
                number("Device", "device", (value) => page.device(value), { width: 80 }),
                number("Stream", "stream", (value) => (format.known(value) ? String(value) : format.MISSING), {
                    width: 80,
                }),
                { title: "Kernel", width: 320, left: true, text: (i) => calls.text("kernel", i) || format.MISSING },
            ],
        });
    }

    flopscope.section("communication", {
        title: "Communication",

        async mount(element, data, page) {
            const { format, draw } = flopscope;
            const calls = await loadCalls(data, page);
            const kinds = [...new Set(data.sizes.map((row) => row.collective))];
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
                draw.heading("Bandwidth by message size", "marks: medians; lines: to the fastest call; dots: calls"),
            );
            sizesChart(element, data, kinds, calls);
            element.append(
                draw.heading("By kind and size", "times of all steps and devices, with the wait for other ranks"),
            );
            element.append(kindsTable(data));
            if (data.sizes_left_out) {
                const left = `${format.plural(data.sizes_left_out, "more size")}, with less time, are not listed.`;
                element.append(el("p", { class: "note", text: left }));
            }
            const left = data.count - data.shown;
            element.append(
                draw.heading(
                    "Calls",
                    left ? `the first ${format.count(data.shown)} of ${format.count(data.count)}` : "",
                ),
            );
            callsTable(element, calls, page);
        },
    });
}
