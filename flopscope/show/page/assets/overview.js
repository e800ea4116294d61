/* Overview: numbers, the accounting of the whole and of each step, advice, what was recorded and what is missing. */
"use strict";

flopscope.overview = {
    /* The waterfall: one stacked bar, and below it each part where it stands in the bar. */
    accounting(data, steps, of) {
        const { whole, per, parts } = data;
        const shown = parts.filter((part) => whole[part.name] > 0);
        const total = {
            name: draw.part("", steps ? `a step${data.of ? `, ${data.of}` : ""}` : "the profile"),
            bar: "",
            time: whole.total / per,
            share: 1,
        };
        let from = 0;
        const rows = shown.map((part) => {
            const share = whole[part.name] / whole.total;
            const bar = draw.track(draw.bar(share, `part-${part.name}`, from));
            from += share;
            return { name: draw.part(part.name, part.label, part.means), bar, time: whole[part.name] / per, share };
        });
        const columns = [
            ["<Part", "text:name"],
            ["", "text:bar"],
            ["Time", "time:time"],
            ["Share", (row) => format.percent(100 * row.share)],
        ];
        const stack = shown.map((part) => {
            const share = whole[part.name] / whole.total;
            return el("span", {
                class: `part-${part.name}`,
                style: { flex: `${share} 1 0` },
                title: `${part.label}: ${format.time(whole[part.name] / per)}, ${format.percent(100 * share)}`,
            });
        });
        return el(
            "div.accounting",
            el("div.stack", { "aria-hidden": "true" }, stack),
            el("div.parts", draw.table([total, ...rows], columns, `Parts of the time${of}`)),
            draw.words(
                "What the parts mean",
                shown.map((part) => [part.label, part.doc]),
            ),
        );
    },

    /* A stacked bar for each device and step, all on one scale. */
    async steps(data, page, of) {
        const MOST = 400;
        const columns = await page.load(data.columns);
        const ofStep = Array.from({ length: data.count - 1 }, (_, i) => i); // the last row is the whole
        if (ofStep.length < 2) return null;
        const most = ofStep.reduce((largest, i) => Math.max(largest, columns.total[i]), 0);
        const listed = ofStep.slice(0, MOST).map((i) => ({
            label: [columns.device, columns.step]
                .map((column) => (column[i] < 0 ? "" : page.strings[column[i]]))
                .filter(Boolean)
                .join(" · "),
            total: columns.total[i],
            parts: Object.fromEntries(data.parts.map((part) => [part.name, columns[part.name][i]])),
            note:
                columns.ideal[i] > 0 && format.known(columns.mfu[i]) && data.bounds.mfu !== null
                    ? `${data.bounds.mfu && "≥ "}${format.percent(columns.mfu[i])}`
                    : "",
        }));
        const labels = Object.fromEntries(data.parts.map((part) => [part.name, part.label]));
        const left = ofStep.length - MOST;
        return el(
            "div",
            draw.steps(listed, labels, most, `Time of each step${of}`),
            left > 0 && el("p.note", `${format.count(left)} more are not drawn; prof.accounting() has all.`),
        );
    },

    advice(rows, perStep, of) {
        const OPEN = 3; // pieces that are shown; the evidence of the first is open
        const cards = rows.map((row, i) =>
            this.card(row, i + 1, perStep, Math.max(...rows.map((one) => one.saving_pct)), of),
        );
        const left = rows.length - OPEN;
        return el(
            "div",
            el("div.advice", cards.slice(0, OPEN)),
            left > 0 &&
                el(
                    "details.more",
                    el("summary", `${format.count(left)} more, which ${left > 1 ? "save" : "saves"} less`),
                    el("div.advice", cards.slice(OPEN)),
                ),
        );
    },

    /* A piece of advice: what to do, what it saves, why, and the rows that it rests on. */
    card(row, number, perStep, most, of) {
        const FEW = 3; // rows of evidence that are open
        const columns = [
            ["<Op", (entry) => draw.link(entry.op, entry.row, "advice")],
            ["<Shapes", (entry) => draw.cut(entry.shapes, "mono")],
            ["Time", "time:time"],
            ["Calls", (entry) => (entry.calls ? format.count(entry.calls) : "")],
        ];
        const list = (entries, what) =>
            el("div.evidence", draw.table(entries, columns, `${what} of advice ${number}${of}`));
        const lines = row.evidence;
        const few = number > 1 ? 0 : lines.length > FEW + 1 ? FEW : lines.length;
        const evidence = [
            few > 0 && list(lines.slice(0, few), "Evidence"),
            few < lines.length &&
                el(
                    "details",
                    el("summary", `${format.plural(lines.length - few, few ? "more row" : "row")}`),
                    list(lines.slice(few), few ? "More evidence" : "Evidence"),
                ),
        ];
        return el(
            "article.card",
            { "aria-label": `Advice ${number}: ${row.action}` },
            el(
                "div.top",
                el("span.action", `${number}. ${row.action}`),
                el(
                    "span.saves",
                    `${row.saves} ${format.time(row.saving_us)}${perStep ? " a step" : ""} · ` +
                        `${format.percent(row.saving_pct)}`,
                ),
            ),
            draw.track(draw.bar(row.saving_pct / Math.max(most, 1e-9), "gain")),
            el("p", row.reason),
            row.where && el("p.where.cut.mono", { title: row.where, text: `at ${row.where}` }),
            evidence,
        );
    },

    /* The ops with the most to gain, or with the most time: name, a bar of its time and the part beyond its limit. */
    largest(rows, of) {
        const most = Math.max(...rows.map((row) => row.time), 1e-9);
        const bars = (row) => {
            const room = format.known(row.headroom) ? row.headroom : 0;
            const kind = row.bound && row.bound !== "unknown" ? `bound-${row.bound}` : "gain";
            return draw.track(
                draw.bar(row.time / most, "spent"),
                draw.bar(room / most, kind, (row.time - room) / most),
            );
        };
        const gain = (row) => {
            const [word, why] = flopscope.page.data.reasons[row.why];
            return format.known(row.headroom) ? format.time(row.headroom) : el("span", { title: why, text: word });
        };
        const columns = [
            ["<Op", (row) => draw.link(row.name, row.row, "overview")],
            ["", bars],
            ["Time", "time:time"],
            ...(rows.some((row) => format.known(row.headroom)) ? [["To gain", gain]] : []),
        ];
        return el("div.largest", draw.table(rows, columns, `Largest ops${of}`));
    },

    tiles(data) {
        const tiles = [];
        const add = (label, text, doc) => tiles.push(draw.tile(label, text, doc));
        const share = (value) => format.percent(format.known(value) ? 100 * value : null);
        if (data.accounting && data.accounting.whole) {
            const { whole, per, bounds, of, of_short: short, devices } = data.accounting;
            const several = devices > 1 ? `, ${devices} devices` : "";
            const means = [of && of[0].toUpperCase() + of.slice(1), several && "summed over the devices"];
            /* At least so much, where a part of the work is unknown; nothing where most of it is. */
            const bounded = (name, text) =>
                bounds[name] === null || bounds.ideal === null ? format.MISSING : `${bounds[name] && "≥ "}${text}`;
            const limited = (name) => bounded(name, format.percent(whole[name]));
            add(
                `${data.steps ? "Step" : "Time"}${of ? `, ${short}` : ""}${several}`,
                format.time(whole.total / per),
                `${means.filter(Boolean).join(", ") || "From the first event to the last"}.`,
            );
            if (data.recording.is_delayed) {
                const doc = "Estimated: the time less what recording delayed it by.";
                add("Without recording", format.time(data.recording.unobserved), doc);
            }
            if (data.recording.recorded) {
                const doc = "Median of the steps that were recorded, which takes time.";
                add("Recorded step", format.time(data.recording.recorded), doc);
            }
            const ideal = bounded("ideal", format.time(whole.ideal / per));
            add("At the limits", ideal, "Least time that the peaks allow for the work.");
            add("MFU", limited("mfu"), "Time of the FLOPs at the peaks of their units, in percent of the time.");
            add("MBU", limited("mbu"), "Time of the bytes at the peak bandwidth, in percent of the time.");
        }
        if (format.known(data.hfu)) {
            const doc = "Counted: share of the cycles in which tensor cores worked, over the same time as MFU.";
            add("HFU", format.percent(data.hfu), doc);
        }
        add("Bytes known", share(data.coverage.bytes), "Share of the time of the work whose bytes are known.");
        add("FLOPs known", share(data.coverage.flops), "Share of the time of the work whose FLOPs are known.");
        return el("div.tiles", tiles);
    },

    /* What the profile may hold, whether it does, and what brings it. */
    features(missing, of) {
        const there = ({ present }) =>
            present === null
                ? el("span.note", "– none")
                : el("span", { class: present ? "yes" : "no", text: present ? "✓ yes" : "✗ no" });
        const brings = (one) =>
            one.present === null
                ? "the program used no GPU, as far as was recorded"
                : one.present
                  ? one.brings
                  : [`${one.brings}: `, el(one.is_code ? "code" : "span", { text: one.option })];
        const columns = [
            ["<Part", "text:what"],
            ["<Recorded", there],
            ["<What it brings", (one) => el("span", brings(one))],
        ];
        return el("div.features", draw.table(missing, columns, `What was recorded${of}`));
    },
};

flopscope.section("overview", {
    title: "Overview",
    early: true,
    async mount(body, data, page, name) {
        const { overview } = flopscope;
        const append = (...children) => body.append(...children.filter(Boolean)),
            of = name ? ` of ${name}` : "";
        append(overview.tiles(data));
        const first = el("div"),
            beside = el("div");
        append(el("div.split", first, beside));
        first.append(draw.heading("What to change first", "by estimated gain; no time is claimed twice"));
        if (data.advice.length) first.append(overview.advice(data.advice, data.steps > 0, of));
        else {
            first.append(
                el("p.empty", "Nothing was found that saves at least 1% of the time."),
                ...data.unjudged.map((text) => el("p.notice", text)),
            );
        }
        if (data.largest.rows.length) {
            beside.append(draw.heading(data.largest.title, data.largest.note), overview.largest(data.largest.rows, of));
        }
        if (data.accounting) {
            append(
                draw.heading(
                    "Where the time goes",
                    data.steps
                        ? "per step; every instant of each device belongs to one part"
                        : "every instant of each device belongs to one part",
                ),
            );
            append(overview.accounting(data.accounting, data.steps, of));
            const steps = await overview.steps(data.accounting, page, of);
            if (steps) append(draw.heading("Each step", "on one scale; point at a bar for its parts"), steps);
        } else {
            append(el("p.empty", "There is no time to account for: no op and no work of a device was recorded."));
        }
        const left = el("div"),
            right = el("div");
        append(el("div.split", left, right));
        left.append(draw.heading("What was recorded", "and what further options would bring"));
        left.append(overview.features(data.missing, of));
        left.append(...draw.notes(data.notes));
        right.append(
            draw.heading("Program"),
            el(
                "dl.facts",
                data.facts.map(([label, text]) => [el("dt", label), el("dd", text)]),
            ),
        );
    },
});
