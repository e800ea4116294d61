/* The section on ranks: one rank beside the others, what else is slow, and a row for each rank. It opens on the rank
   that is slow. */
"use strict";

{
    const LEAST = 0.005; // of a step: smaller parts are not compared

    async function loadFacts(data, page) {
        const { rank, time, where } = await page.load(data, ["rank", "time", "where"]);
        return {
            ...{ count: data.count, opened: data.opened.place, rank, time },
            parts: await page.load(data.parts),
            others: await page.load(data.others),
            where: (place) => page.strings[where[place]] || "",
            label: (part) => data.part_labels[part],
        };
    }

    /* The parts of one rank's time beside those of the others, first what it has most more of than they. */
    function beside(facts, place) {
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
        if (!rows.length) return el("p.empty", "No time of this rank is recorded.");
        const who = `rank ${facts.rank[place]}`;
        return draw.beside(
            rows.map((row) => ({ ...row, times: [row.own, row.others], difference: more(row) })),
            [who, "others", "difference"],
            `Parts of the time of ${who}${alone ? "" : " and of the others"}`,
            alone,
        );
    }

    /* The findings from the second on: the headline of the page is the first. */
    function furtherFindings(data, choose, rankOf) {
        const left = data.findings_left_out ? `; ${format.count(data.findings_left_out)} more are not listed` : "";
        const further = data.findings.slice(1);
        return !further.length
            ? []
            : [
                  draw.heading("What else is slow", `the largest cost first${left}`),
                  el(
                      "ol.findings",
                      { start: "2" },
                      further.map((one) =>
                          el(
                              "li",
                              one.what,
                              " ",
                              el("span.note", one.action),
                              " ",
                              one.place < 0
                                  ? ""
                                  : el("button.link", {
                                        on: { click: () => choose(one.place) },
                                        text: `Show rank ${rankOf(one.place)}`,
                                    }),
                          ),
                      ),
                  ),
              ];
    }

    const UNITS = {
        rank: (value) => (format.known(value) ? String(value) : format.MISSING),
        "×": (value) => (format.known(value) ? `${value.toFixed(2)}×` : format.MISSING),
    };

    /* Add the list of all ranks. A column without a unit has texts, one without a bar's class no bars. */
    async function rankList(parent, data, page, select) {
        const { where, device, label, rank, time } = data;
        const values = await page.load({ where, device, label, rank, time, ...data.own, ...data.waits, ...data.parts });
        const read = (name, i) => page.strings[values[name][i]] || "";
        const columns = data.columns.map(({ name, title, unit, doc, missing, bar }) => {
            if (unit === null) return { title, width: 160, left: true, text: (i) => read(name, i) || format.MISSING };
            const most = bar === null ? 0 : values[name].reduce((a, b) => (b > a ? b : a), 0);
            return {
                title,
                doc,
                missing,
                width: Math.max(92, 8 * title.length + 32),
                value: (i) => values[name][i],
                text: (i) => (UNITS[unit] || ((value) => format.unit(value, unit)))(values[name][i]),
                ...(most > 0 ? { share: (i) => Math.max(values[name][i], 0) / most, bar } : {}),
            };
        });
        return flopscope.list(parent, {
            label: "Ranks",
            noun: "rank",
            count: Object.values(values)[0].length,
            columns,
            sort: [data.columns.findIndex(({ name }) => name === data.sort), true],
            height: 480,
            filter: (i) =>
                columns
                    .filter(({ left }) => left)
                    .map((column) => column.text(i))
                    .join(" "),
            select,
        });
    }

    flopscope.section("ranks", {
        title: "Ranks",

        async mount(element, data, page) {
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
                element.append(el("p.todo", el("strong", "What to do: "), data.findings[0].action));
            }
            const [title, parts] = [el("div"), el("div")];
            element.append(title, parts);
            element.append(...furtherFindings(data, choose, (place) => facts.rank[place]));
            element.append(...draw.notes([data.why, ...data.notes].filter(Boolean)));
            element.append(draw.heading("Each rank", "parts are means of a step; waits are sums over the profile"));
            list = await rankList(element, data, page, choose);
            show(facts.opened);
            list.show(facts.opened);
            for (const table of data.tables) element.append(...draw.texts(table));
        },
    });
}
