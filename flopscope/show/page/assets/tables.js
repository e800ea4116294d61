/* Sections that are tables of texts, made by Python: Lines, and Devices with what summary() prints. */
"use strict";

for (const [name, title] of [
    ["lines", "Lines"],
    ["devices", "Devices"],
]) {
    flopscope.section(name, {
        title,
        mount(body, data) {
            const { element: el, draw } = flopscope;
            const note = (text) => el("p", { class: "note", text });
            body.append(...data.notes.map(note));
            /* left: how many columns are names, aligned at the left. */
            for (const { title: heading, rows, left, notes } of data.tables) {
                const [head, ...records] = rows;
                const columns = head.map((text, i) => [
                    i < left ? `<${text}` : text,
                    (record) => (i < left ? draw.cut(record[i], name === "lines" ? "mono" : "") : record[i]),
                ]);
                body.append(draw.heading(heading), draw.table(records, columns, heading), note(notes));
            }
        },
    });
}
