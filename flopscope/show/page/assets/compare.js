/* The section on a comparison: the times of both runs, the parts that explain the difference, what changed by name, and
   the overviews of both. */
"use strict";

{
    const ratio = (value) => (format.known(value) ? `${value.toPrecision(3)}×` : format.MISSING);

    const PER = { step: "a step", run: "the run", call: "a call" };

    function tiles(data) {
        const [a, b] = data.time;
        const what = data.per === "step" ? "Of the step with the median time." : "Of the whole run.";
        const shown = [
            draw.tile(`a: ${data.names[0]}`, format.time(a), what),
            draw.tile(`b: ${data.names[1]}`, format.time(b), what),
            draw.tile(
                "b − a",
                format.known(a) && format.known(b) ? format.signed(b - a) : format.MISSING,
                `Of ${PER[data.per]}.`,
            ),
            draw.tile("a / b", a > 0 && b > 0 ? ratio(a / b) : format.MISSING, "How many times as fast b is."),
        ];
        const [x, y] = data.unrecorded;
        if (format.known(x) && format.known(y) && (x !== a || y !== b)) {
            shown.push(
                draw.tile(
                    "Without recording",
                    `${format.time(x)} → ${format.time(y)}`,
                    "Estimated: the time less what recording delayed it by.",
                ),
            );
        }
        return el("div.tiles", shown);
    }

    /* Each part of the accounting of both runs, the largest difference first. */
    function parts(data) {
        const rows = [...data.parts].sort((x, y) => Math.abs(y.b - y.a) - Math.abs(x.b - x.a));
        return draw.beside(
            rows.map((part) => ({ ...part, times: [part.a, part.b], difference: part.b - part.a })),
            ["a, above", "b, below", "b − a"],
            "Parts of the time of both runs",
        );
    }

    async function bothSteps(element, data, page) {
        if (!data.steps.every(Boolean)) return;
        const labels = Object.fromEntries(data.parts.map((part) => [part.name, part.label]));
        const runs = await Promise.all(
            data.steps.map(async (run) => {
                const names = await page.column(run.names);
                const loaded = Object.entries(await page.load(run.parts));
                return Array.from(names, (name, i) => ({
                    label: page.strings[name] || "",
                    total: loaded.reduce((sum, [, column]) => sum + (column[i] || 0), 0),
                    parts: Object.fromEntries(loaded.map(([part, column]) => [part, column[i]])),
                }));
            }),
        );
        const most = Math.max(...runs.flat().map(({ total }) => total));
        element.append(draw.heading("Each step", "both runs on one scale; point at a bar for its parts"));
        const side = (listed, i) => {
            const name = `${"ab"[i]}: ${data.names[i]}`,
                left = data.steps[i].count - listed.length;
            return el(
                "div",
                el("p.note", name),
                draw.steps(listed, labels, most, `Steps of ${name}`),
                left > 0 && el("p.note", `${format.count(left)} more steps are not drawn.`),
            );
        };
        element.append(el("div.sides", runs.map(side)));
    }

    async function changes(element, data, page) {
        const rows = data.changes;
        const texts = await page.load(rows, ["name", "cause", "why", "unit_a", "unit_b"]);
        const parent = await page.column(rows.parent);
        const numbers = await page.load(rows.numbers);
        const text = (name, i) => (texts[name][i] < 0 ? "" : page.strings[texts[name][i]]);
        const per =
            data.per === "step"
                ? "times and calls of a step"
                : data.per === "call"
                  ? "times of a call"
                  : "times of the whole runs";
        const kind =
            data.on_device[0] === data.on_device[1]
                ? `own ${data.on_device[0] ? "device" : "host"} times`
                : `own ${data.on_device[0] ? "device" : "host"} times of a, own ` +
                  `${data.on_device[1] ? "device" : "host"} times of b`;
        const left = rows.left_out ? `; ${format.count(rows.left_out)} rows more are left out` : "";
        element.append(draw.heading("What changed", `${per}; ${kind}${left}`));
        if (!rows.count) {
            element.append(el("p.empty", "Neither run has rows with time."));
            return;
        }
        let most = 0;
        for (let i = 0; i < rows.count; i++) {
            if (parent[i] >= 0) continue;
            most = Math.max(most, numbers.time_a[i] || 0, numbers.time_b[i] || 0);
        }
        const gone = (which) => `${which} has no such row, or it is unknown.`;
        const number = (title, key, print, more = {}) => ({
            title,
            width: 88,
            value: (i) => numbers[key][i],
            text: (i) => print(numbers[key][i]),
            missing: gone(key.endsWith("_a") ? "a" : "b"),
            ...more,
        });
        // Means over the steps
        const calls = (value) => (Number.isInteger(value) ? format.count(value) : format.number(value));
        const bar = (key) => ({ share: (i) => (most > 0 ? numbers[key][i] / most : 0) });
        const of = (title, key, print) =>
            ["a", "b"].map((which) => number(`${title} ${which}`, `${key}_${which}`, print, { width: 100 }));
        const chosen = el("p.chosen", { "aria-live": "polite", text: "Choose a row to read why it changed." });
        const describe = (i) =>
            [
                `${text("name", i)}: ${format.time(numbers.time_a[i])} → ${format.time(numbers.time_b[i])} ` +
                    `(${format.signed(numbers.difference[i])})`,
                `${text("cause", i)}${text("why", i) ? `: ${text("why", i)}` : ""}`,
            ].join("; ");
        flopscope.list(element, {
            select: (i) => {
                chosen.textContent = describe(i);
            },
            label: "What changed, by name",
            noun: "name",
            count: rows.count,
            height: 560,
            sort: [3, true],
            placeholder: "name, shape, cause",
            parent: (i) => parent[i],
            filter: (i) => `${text("name", i)} ${text("cause", i)} ${text("why", i)}`,
            columns: [
                { title: "Name", width: 240, left: true, text: (i) => text("name", i) || "(no name)" },
                number("a", "time_a", format.time, { ...bar("time_a"), width: 100 }),
                number("b", "time_b", format.time, { ...bar("time_b"), width: 100 }),
                number("b − a", "difference", format.signed, { width: 96, magnitude: true }),
                number("a / b", "ratio", ratio, {
                    width: 92,
                    doc: "How many times as fast b is.",
                    missing: "Only one run has it, or one took no time.",
                }),
                number("Calls a", "calls_a", calls, { width: 76 }),
                number("Calls b", "calls_b", calls, { width: 76 }),
                { title: "Cause", width: 86, left: true, text: (i) => text("cause", i) },
                { title: "Why", width: 320, left: true, text: (i) => text("why", i) },
                number("Roof a", "pct_roofline_a", format.percent, { doc: "Of the roofline." }),
                number("Roof b", "pct_roofline_b", format.percent, { doc: "Of the roofline." }),
                ...of("FLOPs", "flops", format.flops),
                ...of("Bytes", "bytes", format.bytes),
                {
                    title: "Unit a",
                    width: 104,
                    left: true,
                    text: (i) => text("unit_a", i) || format.MISSING,
                    missing: gone("a"),
                },
                {
                    title: "Unit b",
                    width: 104,
                    left: true,
                    text: (i) => text("unit_b", i) || format.MISSING,
                    missing: gone("b"),
                },
            ],
        });
        element.append(chosen);
    }

    async function overviews(element, data, page) {
        if (!data.overviews.some(Boolean)) return;
        element.append(
            draw.heading("Each run alone", "its accounting, advice and what it recorded; savings are of a mean step"),
        );
        const sides = el("div.sides");
        element.append(sides);
        for (const [i, overview] of data.overviews.entries()) {
            if (!overview) continue;
            const body = el("div.body");
            sides.append(el("details", { open: true }, el("summary", `${"ab"[i]}: ${data.names[i]}`), body));
            await flopscope.sections.get("overview").mount(body, overview, page, `${"ab"[i]}: ${data.names[i]}`);
        }
    }

    flopscope.section("compare", {
        title: "Compare",

        async mount(element, data, page) {
            element.append(tiles(data));
            for (const text of data.verdict.slice(1)) {
                element.append(el("p.sentence", text));
            }
            if (data.parts.length) {
                const what = data.per === "step" ? "the step with the median time of each run" : "the whole runs";
                element.append(draw.heading("Where the difference is", what));
                element.append(parts(data));
            }
            await bothSteps(element, data, page);
            await changes(element, data, page);
            await overviews(element, data, page);
        },
    });
}
