/* Tried: changes that were tried on a program, what was predicted and measured of each, and what to write into it. */
"use strict";

flopscope.section("tried", {
    title: "Changes",
    mount(body, data) {
        const { element: el, draw } = flopscope;
        const columns = (titles, left = [0, titles.length - 1]) =>
            titles.map((title, at) => ({ title, left: left.includes(at), text: (record) => record[at] }));
        if (data.rows.length) {
            body.append(draw.table(data.rows, columns(data.header), "Changes that were tried"));
            body.append(el("p", { class: "note", text: data.explained }));
        } else {
            body.append(el("p", { class: "empty", text: "No change applies." }));
        }
        for (const text of data.reasons) body.append(el("p", { class: "note", text }));
        if (data.together.length) {
            body.append(draw.heading("Together", "each on top of those above it that are faster"));
            const titles = ["change", "measured", "interval", "verdict"];
            body.append(draw.table(data.together, columns(titles), "Changes on top of others"));
        }
        if (data.lines.length) {
            body.append(draw.heading("Lines for the program", ""));
            const lines = el("pre", { text: data.lines.join("\n") });
            const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Lines for the program" };
            body.append(el("div", region, lines));
        }
        if (data.edits.length) {
            body.append(draw.heading("Advice that needs an edit", "with its estimate"));
            body.append(draw.table(data.edits, columns(["advice", "estimate", "where"]), "Advice that was not tried"));
        }
        if (data.effects.length) {
            body.append(draw.heading("What each change is", ""));
            const rows = data.effects.map((one) => [one.name, one.what, one.effect]);
            const titles = columns(["change", "what", "may change"], [0, 1, 2]);
            body.append(draw.table(rows, titles, "What each change may change"));
        }
        for (const text of data.notes) body.append(el("p", { class: "notice", text }));
    },
});
