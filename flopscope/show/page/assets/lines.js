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
                        ["Time", "time:time"],
                        ["Share", (one) => format.percent((100 * one.time) / group.total)],
                        ["", (one) => draw.track(draw.bar(one.time / group.lines[0].time, "gain"))],
                        ["<Line", (one) => draw.cut(one.line, "mono")],
                        [
                            "<Within it",
                            (one) => draw.cut(one.inside, "mono"),
                            "The line of a library that ran, in what the line called.",
                        ],
                        ["CPU time", "time:cpu", "The rest is waiting, in a call or for a processor."],
                        ...(data.waits ? [[waited, "time:waited", doc]] : []),
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
