/* Devices: tables of texts, as summary() prints them: utilization, counters, launches, streams, collectives. */
"use strict";

flopscope.section("devices", {
    title: "Devices",
    mount(body, data) {
        const { element: el, draw } = flopscope;
        if (data.window) body.append(el("p", { class: "note", text: `These are numbers of ${data.window}.` }));
        for (const { title, rows, notes } of data.tables) {
            const [head, ...records] = rows;
            const columns = head.map((text, i) => [i ? text : `<${text}`, (record) => record[i]]);
            body.append(
                draw.heading(title),
                draw.table(records, columns, title),
                el("p", { class: "note", text: notes }),
            );
        }
    },
});
