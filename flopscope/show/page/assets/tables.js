/* Sections that are tables of texts, made by Python: Lines, and Devices with what summary() prints. */
"use strict";

for (const [name, title] of [
    ["lines", "Lines"],
    ["devices", "Devices"],
]) {
    flopscope.section(name, {
        title,
        mount(body, data) {
            body.append(...data.notes.map((text) => el("p.note", text)));
            for (const table of data.tables) body.append(...draw.texts(table, name === "lines" ? "mono whole" : ""));
        },
    });
}
