/* The section on ranks: one rank beside the others, what else is slow, and a row for each rank. It opens on the rank
   that is slow. */
"use strict";

{
    const el = (...parts) => flopscope.element(...parts);
    const largest = (values) => values.reduce((most, value) => (value > most ? value : most), 0);
    const LEAST = 0.005; // of a step: smaller parts are not compared

    async function loadFacts(data, page) {
        const load = async (references) =>
            Object.fromEntries(
                await Promise.all(
                    Object.entries(references || {}).map(async ([name, reference]) => [
                        name,
                        await page.column(reference),
                    ]),
                ),
            );
        const facts = { count: data.count, opened: data.opened.place };
        let texts;
        [facts.rank, facts.time, ...texts] = await Promise.all(
            [data.rank, data.time, data.label, data.device, data.where].map((reference) => page.column(reference)),
        );
        [facts.source, facts.device, facts.where] = texts.map((column) => (place) => page.strings[column[place]] || "");
        [facts.parts, facts.others, facts.own] = await Promise.all([data.parts, data.others, data.own].map(load));
        facts.waits = data.waits ? await load(data.waits) : null;
        facts.time_of = data.has_steps ? "A step" : "The recording";
        facts.label = (part) => data.part_labels[part];
        return facts;
    }

    /* The parts of one rank's time beside those of the others, first what it has most more of than they. */
    function beside(facts, place) {
        const { format } = flopscope;
        const total = facts.time[place];
        const rows = Object.keys(facts.parts)
            .map((name) => ({
                name,
                label: facts.label(name),
                own: facts.parts[name][place],
                others: facts.others[name][place],
            }))
            .filter((row) => Math.max(row.own || 0, row.others || 0) > LEAST * total);
        const more = (row) => row.own - row.others;
        const alone = !rows.some((row) => format.known(row.others));
        rows.sort((a, b) => (alone ? b.own - a.own : more(b) - more(a)));
        if (!rows.length) return el("p", { class: "empty", text: "No time of this rank is recorded." });
        const who = `rank ${facts.rank[place]}`;
        return flopscope.draw.beside(
            rows.map((row) => ({ ...row, times: [row.own, row.others], difference: more(row) })),
            [who, "others", "difference"],
            `Parts of the time of ${who}${alone ? "" : " and of the others"}`,
            alone,
        );
    }

    function rankList(parent, facts, data, choose) {
        const { format } = flopscope;
        const missing = data.why || "The rank's collectives match those of no other rank.";
        const number = (title, width, values, print, more = {}) => ({
            title,
            width,
            value: (i) => values[i],
            text: (i) => print(values[i]),
            missing,
            ...more,
        });
        const time = (title, values, more = {}) => {
            const most = largest(values);
            return number(title, 112, values, format.time, {
                share: (i) => (most > 0 ? Math.max(values[i], 0) / most : 0),
                ...more,
            });
        };
        const ratio = (value) => (format.known(value) ? `${value.toFixed(2)}×` : format.MISSING);
        const { waits, own } = facts;
        const alone = "No other rank recorded this step of the same program.";
        const columns = [
            number("Rank", 72, facts.rank, String),
            time(facts.time_of, facts.time, { missing: "No step of it was recorded." }),
            time("Own work", own.own, {
                missing: "No step of it was recorded.",
                doc: "Median of the steps, without the time in which it only communicated.",
            }),
            time("Beyond others", own.excess, {
                width: 136,
                bar: "warm",
                missing: alone,
                doc: "Median of the steps: own work less the median of the other ranks that run the same program.",
            }),
            number("Slowness", 90, own.slowness, ratio, {
                missing: "No kernels of the same shapes ran on other ranks.",
                doc: "Time of its kernels over that of the same kernels and shapes on the other ranks.",
            }),
        ];
        if (waits) {
            columns.push(
                time("Others waited", waits.awaited, {
                    width: 142,
                    bar: "warm",
                    doc: "Time that other ranks waited for this one, also where it was late because it waited itself.",
                }),
                time("Waited", waits.waited, { doc: "Time that it waited for the last rank of its collectives." }),
                number("Of its time", 96, waits.waited_pct, format.percent, {
                    doc: "Waited, in percent of the time of its matched collectives.",
                }),
                number("Came last", 92, waits.times_last, format.count),
                number("Collectives", 98, waits.collectives, format.count, {
                    doc: "Matched with those of other ranks.",
                }),
                number("Unmatched", 98, waits.unmatched, format.count),
                number("Clock", 100, waits.clock_offset, format.time, {
                    doc: "Its clock minus that of the first rank.",
                }),
                number("± Clock", 90, waits.clock_uncertainty, format.time, { doc: "Standard error of the offset." }),
            );
        }
        for (const [name, values] of Object.entries(facts.parts)) {
            const doc = "Part of the accounting, mean of the steps.";
            columns.push(time(facts.label(name), values, { width: 178, doc, missing: "No step of it was recorded." }));
        }
        columns.push(
            number("Memory", 100, own.memory_peak, format.bytes, {
                missing: "Memory was not recorded.",
                doc: "Bytes allocated at the peak.",
            }),
            { title: "Where", width: 130, left: true, text: facts.where },
            { title: "Device", width: 150, left: true, text: facts.device },
            { title: "Source", width: 280, left: true, text: facts.source },
        );
        const sort = own.excess.some(Number.isFinite) ? 3 : waits ? 5 : 1;
        return flopscope.list(parent, {
            label: "Ranks",
            noun: "rank",
            count: facts.count,
            columns,
            sort: [sort, true],
            height: 480,
            placeholder: "rank, host, device, file",
            select: choose,
            filter: (i) => `${facts.rank[i]} ${facts.where(i)} ${facts.device(i)} ${facts.source(i)}`,
        });
    }

    /* The findings from the second on: the headline of the page is the first. */
    function furtherFindings(data, choose, rankOf) {
        const { format, draw } = flopscope;
        const left = data.findings_left_out ? `; ${format.count(data.findings_left_out)} more are not listed` : "";
        const further = data.findings.slice(1);
        return !further.length
            ? []
            : [
                  draw.heading("What else is slow", `the largest cost first${left}`),
                  el(
                      "ol",
                      { class: "findings", start: "2" },
                      further.map((one) =>
                          el(
                              "li",
                              {},
                              one.what,
                              " ",
                              el("span", { class: "note", text: one.action }),
                              " ",
                              one.place < 0
                                  ? ""
                                  : el("button", {
                                        class: "link",
                                        type: "button",
                                        text: `Show rank ${rankOf(one.place)}`,
                                        on: { click: () => choose(one.place) },
                                    }),
                          ),
                      ),
                  ),
              ];
    }

    flopscope.section("ranks", {
        title: "Ranks",

        async mount(element, data, page) {
            const { draw } = flopscope;
            const facts = await loadFacts(data, page);
            let list = null;
            const show = (place) => {
                const many = facts.count > 1;
                title.replaceChildren(
                    draw.heading(
                        `Rank ${facts.rank[place]}${many ? " beside the others" : ""}`,
                        [
                            place === facts.opened && many && !data.findings.length ? data.opened.why : "",
                            facts.where(place),
                            `${data.has_steps ? "means of a step" : "times of the recording"}` +
                                `${many ? ", below them the others' medians" : ""}`,
                        ]
                            .filter(Boolean)
                            .join("; "),
                    ),
                );
                parts.replaceChildren(beside(facts, place));
            };
            const choose = (place) => {
                show(place);
                list.show(place);
                flopscope.announce(`Rank ${facts.rank[place]} is chosen`);
                flopscope.address.write("ranks", place === facts.opened ? {} : { rank: facts.rank[place] });
            };
            this.restore = (state) => {
                const place = state.has("rank") ? facts.rank.findIndex((one) => String(one) === state.get("rank")) : -1;
                if (place >= 0) choose(place);
            };
            if (data.findings.length) {
                element.append(
                    el("p", { class: "todo" }, el("strong", { text: "What to do: " }), data.findings[0].action),
                );
            }
            const [title, parts] = [el("div", {}), el("div", {})];
            element.append(title, parts);
            element.append(...furtherFindings(data, choose, (place) => facts.rank[place]));
            const notes = [data.why, ...data.notes].filter(Boolean);
            if (notes.length) {
                element.append(
                    draw.heading("Notes"),
                    el(
                        "ul",
                        { class: "notes" },
                        notes.map((text) => el("li", { text })),
                    ),
                );
            }
            element.append(draw.heading("Each rank", "parts are means of a step; waits are sums over the profile"));
            list = rankList(element, facts, data, choose);
            show(facts.opened);
            list.show(facts.opened);
            await flopscope.rankTables(element, data, page);
        },
    });
}
