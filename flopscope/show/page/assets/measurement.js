/* The section on measurements: the samples and their distribution, the mark below its roofs, the settings; of two
   functions the ratios; of a sweep times and rates over the working set. */
"use strict";

{
    const el = (...parts) => flopscope.element(...parts);
    const BINS = 60;
    const MOST_DOTS = 2000;
    const DASHES = { datasheet: "6 4", measured: "" };

    const quantile = (sorted, share) => sorted[Math.min(Math.floor(share * sorted.length), sorted.length - 1)];

    /* What an axis shows of samples: all but those far away, which would squeeze the others; how many these are. */
    function rangeOf(values) {
        const sorted = Float64Array.from(values).sort();
        const [q1, q3] = [quantile(sorted, 0.25), quantile(sorted, 0.75)];
        const far = 8 * Math.max(q3 - q1, 0.002 * q3);
        const near = sorted.filter((value) => value >= q1 - far && value <= q3 + far);
        const [low, high] = [near[0], near[near.length - 1]];
        const room = (high - low || high || 1) * 0.04;
        return { domain: [low - room, high + room], beyond: sorted.length - near.length, sorted };
    }

    /* A time with four digits, in the unit of another one. */
    function fine(us, like = us) {
        const { format } = flopscope;
        if (!format.known(us)) return format.MISSING;
        const [size, unit] = [
            [1e6, "s"],
            [1e3, "ms"],
            [1, "µs"],
            [1e-3, "ns"],
        ].find(([one]) => Math.abs(like) >= one) || [1e-3, "ns"];
        return `${(us / size).toPrecision(4)}${format.SPACE}${unit}`;
    }

    function histogram(parent, values, options) {
        const { domain, beyond, sorted } = rangeOf(values);
        const width = (domain[1] - domain[0]) / BINS;
        const bins = Array.from({ length: BINS }, () => 0);
        for (const value of sorted) {
            if (value >= domain[0] && value <= domain[1]) {
                bins[Math.min(Math.floor((value - domain[0]) / width), BINS - 1)]++;
            }
        }
        const text = options.text;
        const chart = {
            label:
                `${options.title}: ${sorted.length} from ${text(sorted[0])} to ${text(sorted[sorted.length - 1])}, ` +
                `median ${text(options.median)}`,
            height: 220,
            x: { ...options.axis, domain },
            y: { label: options.what, domain: [0, Math.max(...bins) * 1.08], whole: true },
            draw(area) {
                const [low, high] = options.ci;
                if (high >= low) {
                    const x = area.x(Math.max(low, domain[0]));
                    const to = area.x(Math.min(high, domain[1]));
                    area.add("rect", {
                        class: "interval",
                        x,
                        width: Math.max(to - x, 1),
                        y: area.top,
                        height: area.bottom - area.top,
                    });
                }
                for (const [from, to, name] of options.bands || []) {
                    const x = area.x(Math.max(from, domain[0]));
                    const end = area.x(Math.min(to, domain[1]));
                    if (end > x) {
                        area.add("rect", {
                            class: name,
                            x,
                            width: end - x,
                            y: area.top,
                            height: area.bottom - area.top,
                        });
                    }
                }
                bins.forEach((count, i) => {
                    if (!count) return;
                    const x = area.x(domain[0] + i * width);
                    const y = area.y(count);
                    const to = area.x(domain[0] + (i + 1) * width);
                    area.add("rect", {
                        class: "column series-1",
                        x: x + 0.5,
                        y,
                        width: Math.max(to - x - 1, 1),
                        height: area.bottom - y,
                    });
                    const range = `${text(domain[0] + i * width)} to ${text(domain[0] + (i + 1) * width)}`;
                    area.mark(
                        (x + to) / 2,
                        y,
                        `${range}\n${flopscope.format.count(count)} ${options.what.toLowerCase()}`,
                        null,
                        true,
                    );
                });
                const x = area.x(options.median);
                area.add("line", { class: "median", x1: x, x2: x, y1: area.top, y2: area.bottom });
                area.add("text", { class: "label", x: x + 5, y: area.top + 11 }, `median ${text(options.median)}`);
            },
        };
        parent.append(
            flopscope.draw.heading(options.title, `${options.note}${beyond ? `; not drawn: ${beyond} far away` : ""}`),
        );
        flopscope.chart(parent, chart);
    }

    /* The samples in their order, which shows drift and disturbances; with the clock, where it was read. */
    function inOrder(parent, values, options) {
        const { domain, beyond } = rangeOf(values);
        const step = Math.max(1, Math.ceil(values.length / MOST_DOTS));
        parent.append(
            flopscope.draw.heading(
                options.title,
                [beyond && `not drawn: ${beyond} far away`, step > 1 && `every ${step}th is drawn`]
                    .filter(Boolean)
                    .join("; "),
            ),
        );
        flopscope.chart(parent, {
            label: `${options.title}, ${values.length} of them`,
            height: 180,
            x: { label: "Number", domain: [0, Math.max(values.length - 1, 1)], whole: true },
            y: { ...options.axis, domain },
            draw(area) {
                for (let i = 0; i < values.length; i += step) {
                    if (!(values[i] >= domain[0] && values[i] <= domain[1])) continue;
                    const [x, y] = [area.x(i), area.y(values[i])];
                    area.add("circle", { class: "dot series-1", cx: x, cy: y, r: 2 });
                    if (values.length <= MOST_DOTS) area.mark(x, y, `${i + 1}: ${options.text(values[i], i)}`);
                }
                const y = area.y(options.median);
                area.add("line", { class: "median", x1: area.left, x2: area.right, y1: y, y2: y });
            },
        });
    }

    /* The roof of the memory and those of the units, from one source of peaks. */
    function drawRoof(area, roof, named) {
        const { format } = flopscope;
        const line = (x1, y1, x2, y2) =>
            area.add("line", {
                class: "roof",
                "stroke-dasharray": DASHES[roof.source] || "",
                x1: area.x(x1),
                y1: area.y(y1),
                x2: area.x(x2),
                y2: area.y(y2),
            });
        const name = (x, y, text, anchor) =>
            named && area.add("text", { class: "label", x, y, "text-anchor": anchor }, text);
        const [low, high] = [area.sx.low, area.sx.high];
        const flat = Object.entries(roof.flops);
        if (roof.bandwidth) {
            const from = Math.max(low, area.sy.low / roof.bandwidth);
            const top = flat.length ? Math.max(...flat.map(([, flops]) => flops)) : area.sy.high;
            const to = Math.min(top / roof.bandwidth, high);
            line(from, from * roof.bandwidth, to, to * roof.bandwidth);
            const y = Math.min(area.y(from * roof.bandwidth) + 4, area.bottom - 4);
            name(area.x(from) + 26, y, `memory ${format.byteRate(roof.bandwidth)}`, "start");
        }
        for (const [unit, flops] of flat) {
            line(roof.bandwidth ? Math.max(flops / roof.bandwidth, low) : low, flops, high, flops);
            name(area.right - 4, area.y(flops) - 5, `${unit} ${format.flopRate(flops)}`, "end");
        }
    }

    /* Roofs and marks on log axes. */
    function roofline(parent, data) {
        const { format } = flopscope;
        const { marks, roofs, unmarked } = data;
        const rated = (mark) => `${mark.name} at ${format.intensity(mark.intensity)}, ${format.flopRate(mark.flops)}`;
        const flat = roofs.flatMap((roof) =>
            Object.entries(roof.flops).map(([unit, flops]) => ({ ...roof, unit, flops })),
        );
        const ridges = flat.filter((roof) => roof.bandwidth).map((roof) => roof.flops / roof.bandwidth);
        const intensities = [...marks.map((mark) => mark.intensity), ...ridges];
        const rates = [...marks.map((mark) => mark.flops), ...flat.map((roof) => roof.flops)];
        const x = [Math.min(...intensities) / 8, Math.max(...intensities) * 8];
        const y = [Math.min(...marks.map((mark) => mark.flops)) / 8, Math.max(...rates) * 2];
        parent.append(
            flopscope.draw.heading(
                "Roofline",
                [
                    roofs
                        .map((roof) => (roof.source === "measured" ? "solid: measured peaks" : "dashed: datasheet"))
                        .join("; "),
                    ...(unmarked ? [`${unmarked} without FLOPs or of unknown work are not drawn`] : []),
                ].join("; "),
            ),
        );
        flopscope.legend(
            parent,
            [...new Set(marks.map((mark) => mark.bound))].map((bound) => [`bound-${bound}`, `bound: ${bound}`]),
        );
        flopscope.chart(parent, {
            label: `Roofline: ${marks.slice(0, 3).map(rated).join("; ")}`,
            height: 320,
            margin: { left: 112 },
            x: { label: "Arithmetic intensity, FLOP/B", log: true, domain: x },
            y: { label: "Rate", kind: "flops/s", log: true, domain: y },
            draw(area) {
                for (const roof of roofs) drawRoof(area, roof, roof === roofs[0]);
                for (const mark of marks) {
                    const [cx, cy] = [area.x(mark.intensity), area.y(mark.flops)];
                    area.add("circle", { class: `mark bound-${mark.bound}`, cx, cy, r: marks.length > 1 ? 5 : 7 });
                    area.mark(
                        cx,
                        cy,
                        [
                            rated(mark),
                            format.time(mark.time),
                            `${format.percent(mark.pct_roofline)} of the roofline; bound: ${mark.bound}`,
                        ].join("\n"),
                    );
                }
            },
        });
    }

    const facts = (entries) =>
        el(
            "dl",
            { class: "facts" },
            entries.flatMap(([name, text]) => [el("dt", { text: name }), el("dd", { text })]),
        );

    const notesOf = (notes) =>
        notes.length
            ? [
                  flopscope.draw.heading("Notes"),
                  el(
                      "ul",
                      { class: "notes" },
                      notes.map((text) => el("li", { text })),
                  ),
              ]
            : [];

    async function one(element, data, page) {
        const { format, draw } = flopscope;
        const times = await page.column(data.samples.time);
        const clocks = data.samples.clock ? await page.column(data.samples.clock) : null;
        const { statistics } = data;
        const ends = data.ci.map((one) => fine(one, statistics.median));
        const interval = format.known(data.ci[0]) ? ends.join(" to ") : format.MISSING;
        const share = data.shares.find((row) => format.known(row.pct_roofline));
        element.append(
            el(
                "div",
                { class: "tiles" },
                draw.tile("Median", fine(statistics.median), "Of the samples."),
                draw.tile("95% interval", interval, "Of the median, by bootstrap."),
                draw.tile(
                    "At the limit",
                    format.time(statistics.roofline_time),
                    "The least time that the peaks allow.",
                ),
                draw.tile(
                    "Of the roofline",
                    share ? format.percent(share.pct_roofline) : format.MISSING,
                    share && `By the ${share.source} peaks.`,
                ),
                draw.tile(
                    "Samples",
                    `${format.count(statistics.n)}${statistics.batch > 1 ? ` of ${statistics.batch} calls` : ""}`,
                    `${statistics.discarded} were discarded because the clock was throttled; ` +
                        `${statistics.outliers} are outliers.`,
                ),
            ),
        );
        if (times.length) {
            const axis = { label: "Time of a call", kind: "time" };
            histogram(element, times, {
                title: "Distribution of the samples",
                what: "Samples",
                axis,
                ci: data.ci,
                median: statistics.median,
                text: (value) => fine(value, statistics.median),
                note: "shaded: the interval of the median",
            });
            inOrder(element, times, {
                title: "Samples in their order",
                axis,
                median: statistics.median,
                text(value, i) {
                    const clock = clocks && format.known(clocks[i]) ? ` at ${format.count(clocks[i])} MHz` : "";
                    return `${fine(value, statistics.median)}${clock}`;
                },
            });
        }
        if (data.roofline) roofline(element, data.roofline);
        if (data.shares.length) {
            element.append(
                draw.heading("Shares of the peaks"),
                draw.table(
                    data.shares,
                    [
                        { title: "Peaks", left: true, text: (row) => row.source },
                        { title: "Roofline", text: (row) => format.percent(row.pct_roofline) },
                        { title: "FLOP/s", text: (row) => format.percent(row.pct_peak_flops) },
                        { title: "Bandwidth", text: (row) => format.percent(row.pct_peak_bandwidth) },
                    ],
                    "Shares of the peaks",
                ),
            );
        }
        element.append(draw.heading("Facts and settings"), facts(data.facts), ...notesOf(data.notes));
    }

    async function two(element, data, page) {
        const { format, draw } = flopscope;
        const ratios = await page.column(data.ratios);
        const text = (value) => `${value.toPrecision(4)}×`;
        element.append(
            el(
                "div",
                { class: "tiles" },
                draw.tile(
                    "Ratio of the times",
                    text(data.ratio),
                    "Median of the rounds: above 1, the first takes longer.",
                ),
                draw.tile("99% interval", `${text(data.ci[0])} to ${text(data.ci[1])}`, "Of the ratio, by bootstrap."),
                draw.tile(data.names[0], format.time(data.medians[0]), "Median."),
                draw.tile(data.names[1], format.time(data.medians[1]), "Median."),
                draw.tile("Rounds", format.count(data.rounds), "Each times both once."),
            ),
        );
        const axis = { label: `Time of ${data.names[0]} / time of ${data.names[1]}` };
        const margin = [1 / (1 + data.margin), 1 + data.margin, "margin"];
        if (ratios.length) {
            histogram(element, ratios, {
                title: "Distribution of the ratios",
                what: "Rounds",
                axis,
                ci: data.ci,
                median: data.ratio,
                text,
                bands: [margin],
                note:
                    `shaded: the interval of the median; grey: the same, within ` +
                    `${(100 * data.margin).toPrecision(2)} %`,
            });
            inOrder(element, ratios, {
                title: "Rounds in their order",
                axis: { label: "Ratio" },
                median: data.ratio,
                text,
            });
        }
        element.append(...notesOf(data.notes));
    }

    function sweepChart(parent, rows, data, options) {
        const drawn = rows.filter((row) => row.working_set_bytes > 0 && options.value(row) > 0);
        if (!drawn.length) return;
        const sizes = drawn.map((row) => row.working_set_bytes);
        const values = drawn.map(options.value);
        const low = options.axis.log ? Math.min(...values) / 1.6 : 0;
        parent.append(flopscope.draw.heading(options.title, options.note || ""));
        flopscope.chart(parent, {
            label: `${options.title} over the working set, ${drawn.length} sizes`,
            height: 240,
            margin: { left: 84 },
            x: {
                label: "Working set",
                kind: "bytes",
                log: true,
                domain: [Math.min(...sizes) / 1.4, Math.max(...sizes) * 1.4],
            },
            y: {
                ...options.axis,
                domain: [low, Math.max(...values, options.least || 0) * (options.axis.log ? 1.6 : 1.08)],
            },
            draw(area) {
                for (const [name, size] of Object.entries(data.caches)) {
                    const x = area.x(size);
                    if (!(x > area.left && x < area.right)) continue;
                    area.add("line", { class: "limit", x1: x, x2: x, y1: area.top, y2: area.bottom });
                    area.add(
                        "text",
                        { class: "label", x: x + 4, y: area.top + 10 },
                        `${name} ${flopscope.format.bytes(size)}`,
                    );
                }
                data.dtypes.forEach((dtype, i) => {
                    const line = drawn.filter((row) => row.dtype === dtype);
                    const points = line
                        .map((row) => `${area.x(row.working_set_bytes)},${area.y(options.value(row))}`)
                        .join(" ");
                    area.add("polyline", { class: `line series-${1 + (i % 6)}`, points });
                    for (const row of line) {
                        const [cx, cy] = [area.x(row.working_set_bytes), area.y(options.value(row))];
                        area.add("circle", { class: `mark bound-${row.bound}`, cx, cy, r: 4.5 });
                        area.mark(
                            cx,
                            cy,
                            `${row.shape}, ${dtype}\n${options.text(options.value(row))}; bound: ${row.bound}`,
                        );
                    }
                });
            },
        });
    }

    async function sweep(element, data, page) {
        const { format, draw } = flopscope;
        const columns = {};
        await Promise.all(
            [...Object.entries(data.numbers), ...Object.entries(data.texts)].map(async ([name, reference]) => {
                columns[name] = await page.column(reference);
            }),
        );
        const text = (name, i) => (columns[name][i] < 0 ? "" : page.strings[columns[name][i]]);
        const rows = Array.from({ length: data.count }, (_, i) => ({
            ...Object.fromEntries(Object.keys(data.numbers).map((name) => [name, columns[name][i]])),
            ...Object.fromEntries(Object.keys(data.texts).map((name) => [name, text(name, i)])),
        }));
        const bounds = [...new Set(rows.map((row) => row.bound))];
        flopscope.legend(element, [
            ...(data.dtypes.length > 1 ? data.dtypes.map((dtype, i) => [`series-${1 + (i % 6)}`, dtype]) : []),
            ...bounds.map((bound) => [`bound-${bound}`, `bound: ${bound}`]),
        ]);
        sweepChart(element, rows, data, {
            title: "Time of a call",
            axis: { label: "Time", kind: "time", log: true },
            value: (row) => row.median,
            text: format.time,
        });
        sweepChart(element, rows, data, {
            title: "Bandwidth",
            axis: { label: "Bandwidth, GB/s" },
            value: (row) => row.gbytes_per_s,
            text: (value) => format.byteRate(value * 1e9),
        });
        sweepChart(element, rows, data, {
            title: "Share of the roofline",
            axis: { label: "Of the roofline, %" },
            value: (row) => row.pct_roofline,
            text: format.percent,
            least: 100,
        });
        if (data.roofline) roofline(element, data.roofline);
        element.append(
            draw.heading("Sizes"),
            draw.table(
                rows,
                [
                    { title: "dtype", left: true, text: (row) => row.dtype },
                    { title: "Shape", left: true, text: (row) => row.shape },
                    { title: "Working set", text: (row) => format.bytes(row.working_set_bytes) },
                    { title: "Median", text: (row) => format.time(row.median) },
                    {
                        title: "95% interval",
                        text: (row) =>
                            format.known(row.ci_low)
                                ? `${format.time(row.ci_low)} to ${format.time(row.ci_high)}`
                                : format.MISSING,
                    },
                    { title: "Bandwidth", text: (row) => format.byteRate(row.gbytes_per_s * 1e9) },
                    { title: "FLOP rate", text: (row) => format.flopRate(row.tflops_per_s * 1e12) },
                    { title: "Intensity", text: (row) => format.intensity(row.arithmetic_intensity) },
                    { title: "Of the roofline", text: (row) => format.percent(row.pct_roofline) },
                    { title: "Bound", left: true, cell: (row) => draw.bound(row.bound) },
                    { title: "Note", left: true, cell: (row) => draw.cut(row.note) },
                ],
                "Sizes and dtypes of the sweep",
            ),
            ...notesOf(data.notes),
        );
    }

    flopscope.section("measurement", {
        title: "Measurement",
        mount: (element, data, page) => ({ measurement: one, times: two, sweep })[data.kind](element, data, page),
    });
}
