/* Lines: where the program was, by line, as sampled stacks have it. */
"use strict";

flopscope.section("lines", {
    title: "Lines",
    mount(body, data) {
        const { element: el, format, draw } = flopscope;
        const waited = data.on_device ? "Device waited" : "No op ran";
        const doc = data.on_device
            ? "Time in which a device had nothing to do until this thread launched again, and the thread was " +
              "in this line."
            : "Time in which no op ran, and the thread was in this line.";
        for (const group of data.groups) {
            body.append(draw.heading(`${group.title[0].toUpperCase()}${group.title.slice(1)}`));
            body.append(
                draw.table(
                    group.lines,
                    [
                        { title: "Time", text: (record) => format.time(record.time) },
                        { title: "Share", text: (record) => format.percent((100 * record.time) / group.total) },
                        {
                            title: "",
                            cell: (record) =>
                                el(
                                    "span",
                                    { class: "track wide", "aria-hidden": "true" },
                                    draw.bar(record.time / group.lines[0].time, "gain"),
                                ),
                        },
                        { title: "Line", left: true, cell: (record) => draw.cut(record.line, "mono") },
                        {
                            title: "Within it",
                            left: true,
                            doc: "The line of a library that ran, in what the line called.",
                            cell: (record) => draw.cut(record.inside, "mono"),
                        },
                        {
                            title: "CPU time",
                            doc: "The rest is waiting, in a call or for a processor.",
                            text: (record) => format.time(record.cpu),
                        },
                        ...(data.waits ? [{ title: waited, doc, text: (record) => format.time(record.waited) }] : []),
                    ],
                    group.title,
                ),
            );
            if (group.more) {
                body.append(
                    el("p", {
                        class: "note",
                        text: `${format.plural(group.more, "other line")} with less time; lines() has all.`,
                    }),
                );
            }
        }
        body.append(
            el("p", {
                class: "note",
                text:
                    `Python stacks were sampled in the whole recording. A line of the program also has the time ` +
                    `of what it called.${data.waits ? ` ${waited}: in the steps that are alike.` : ""}`,
            }),
        );
    },
});
