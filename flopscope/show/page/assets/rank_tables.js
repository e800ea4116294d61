/* The tables below the ranks: hosts, process groups, collectives by size, and the single calls that waited longest. */
"use strict";

flopscope.rankTables = (() => {
    const { format } = flopscope;
    const bandwidth = (value) => format.byteRate(value * 1e9);
    const plain = (value) => (format.known(value) ? String(value) : format.MISSING);
    const ratio = (value) => (format.known(value) ? `${value.toFixed(2)}×` : format.MISSING);
    const count = (title, name, more) => ({ title, name, print: format.count, width: 90, ...more });
    const time = (title, name, doc, more) => ({ title, name, print: format.time, doc, ...more });
    const text = (title, name, width = 140) => ({ title, name, width });

    /* The tables in their order: ``sort`` is the column by which they are sorted at first. */
    const TABLES = {
        hosts: {
            title: "Hosts",
            note: () => "sums over the ranks of a host",
            noun: "host",
            sort: 2,
            height: 260,
            placeholder: "host",
            columns: () => [
                text("Host", "host", 160),
                count("Ranks", "ranks"),
                time("Others waited", "awaited", "Time that other ranks waited for ranks of this host.", {
                    share: true,
                    bar: "warm",
                    width: 142,
                }),
                time("Waited", "waited", "Time that its ranks waited for the last rank of their collectives.", {
                    share: true,
                }),
                count("Came last", "times_last"),
                time(
                    "Own work",
                    "own",
                    "Median of its ranks: a step without the time in which the rank only communicated.",
                ),
                time("Communication", "communication", "Median of its ranks: nothing else ran.", { width: 136 }),
                {
                    title: "Slowness",
                    name: "slowness",
                    print: ratio,
                    width: 90,
                    doc: "Median of its ranks: time of their kernels over that of the same kernels elsewhere.",
                },
                { title: "First rank", name: "first_rank", print: plain, width: 90 },
            ],
        },
        groups: {
            title: "Process groups",
            note: () => "sums over the members",
            noun: "group",
            sort: 2,
            height: 260,
            placeholder: "group, members",
            columns: () => [
                text("Group", "group", 120),
                count("Ranks", "ranks", { doc: "Members with a trace." }),
                time("Waited", "waited", "Time that members waited for the last one.", { share: true }),
                {
                    title: "Of its time",
                    name: "waited_pct",
                    print: format.percent,
                    width: 100,
                    doc: "Waited, in percent of the time of its calls.",
                },
                count("Calls", "calls", { doc: "Matched calls." }),
                {
                    title: "Most often last",
                    name: "most_last",
                    print: (value) => (format.known(value) ? `rank ${value}` : format.MISSING),
                    width: 136,
                },
                count("Times last", "times_last", { width: 100, doc: "How often that rank came last." }),
                time("Waited for it", "awaited", "Time that the others waited for that rank.", {
                    share: true,
                    bar: "warm",
                    width: 130,
                }),
                text("Members", "members", 260),
            ],
        },
        sizes: {
            title: "Collectives by size",
            noun: "kind and size",
            several: "kinds and sizes",
            sort: 11,
            height: 300,
            note: (data) =>
                `times of a member${data.has_steps ? " in a step" : ""}; groups of equally many ranks and ` +
                `hosts are one row`,
            placeholder: "kind",
            columns: () => [
                text("Collective", "collective", 130),
                {
                    title: "From",
                    name: "bytes_from",
                    print: format.bytes,
                    width: 100,
                    doc: "Least size of a message; the largest is below twice that.",
                },
                count("Groups", "groups", { width: 80 }),
                count("Ranks", "ranks", { width: 80, doc: "Of each group." }),
                count("Hosts", "hosts", { width: 80, doc: "Of each group." }),
                count("Calls", "calls"),
                time("Skew", "skew_median", "From the first start to the last: median of the calls."),
                time("95%", "skew_p95", "Skew that 95% of the calls do not exceed."),
                time("± Skew", "skew_uncertainty", "Standard error, that of the clocks.", { width: 90 }),
                time("Transfer", "transfer_median", "From the last start to the end: median of the calls."),
                {
                    title: "Bus",
                    name: "bus_gbytes_per_s",
                    print: bandwidth,
                    width: 120,
                    doc: "Median over the transfer, so without the wait.",
                },
                time("Exposed", "exposed", "Nothing computed.", { share: true, bar: "exposed" }),
                time("Waited", "waited", "For the last member.", { share: true }),
                time("Time", "time", "With the wait.", { share: true }),
            ],
        },
        collectives: {
            title: "Largest waits in single collectives",
            note: () => "",
            noun: "matched collective",
            sort: 1,
            height: 300,
            label: "Collectives with the largest skews",
            placeholder: "kind, group",
            columns: () => [
                text("Collective", "collective"),
                time("Skew", "skew", "From the first rank's start to the last rank's.", { share: true }),
                time("± Skew", "skew_uncertainty", "Standard error, that of the clocks.", { width: 90 }),
                { title: "Last rank", name: "straggler", print: plain },
                time("Transfer", "transfer", "From the last start to the end."),
                {
                    title: "Bus",
                    name: "bus_gbytes_per_s",
                    print: bandwidth,
                    width: 120,
                    doc: "Over the transfer, so without the wait.",
                },
                { title: "Message", name: "message_bytes", print: format.bytes },
                count("Ranks", "count", { width: 80 }),
                time("Start", "start", "Since the first collective began."),
                count("Number", "number", { doc: "Sequence number, or its occurrence." }),
                text("Group", "group", 100),
            ],
        },
    };

    async function show(parent, look, data, reference, page) {
        const [texts, numbers] = [{}, {}];
        for (const [name, one] of Object.entries(reference.texts)) texts[name] = await page.column(one);
        for (const [name, one] of Object.entries(reference.numbers)) numbers[name] = await page.column(one);
        const read = (name, i) => page.strings[texts[name][i]] || "";
        const shown = Object.values(numbers)[0].length;
        const some =
            shown < reference.rows
                ? `${format.count(shown)} of ${format.plural(reference.rows, look.noun, look.several)}`
                : "";
        const note = [look.note(data), some].filter(Boolean).join("; ");
        parent.append(flopscope.draw.heading(look.title, note));
        const columns = look.columns().map(({ title, name, width = 112, print, share, ...more }) => {
            if (texts[name]) return { title, width, left: true, text: (i) => read(name, i) || format.MISSING };
            const values = numbers[name];
            const most = share ? values.reduce((a, b) => (b > a ? b : a), 0) : 0;
            return {
                title,
                width,
                value: (i) => values[i],
                text: (i) => print(values[i]),
                missing: "Unknown for these calls.",
                ...(most > 0 ? { share: (i) => values[i] / most } : {}),
                ...more,
            };
        });
        flopscope.list(parent, {
            label: look.label || look.title,
            noun: look.noun,
            several: look.several,
            count: shown,
            columns,
            sort: [look.sort, true],
            height: look.height,
            placeholder: look.placeholder,
            filter: (i) =>
                Object.keys(texts)
                    .map((name) => read(name, i))
                    .join(" "),
        });
    }

    return async (parent, data, page) => {
        for (const [name, look] of Object.entries(TABLES)) {
            if (data.tables[name]) await show(parent, look, data, data.tables[name], page);
        }
    };
})();
