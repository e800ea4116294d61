/* The lists of ranks: of each rank, of hosts, process groups and collectives. Their columns come with the data. */
"use strict";

flopscope.rankTables = (() => {
    const { format } = flopscope;
    const UNITS = {
        rank: (value) => (format.known(value) ? String(value) : format.MISSING),
        "×": (value) => (format.known(value) ? `${value.toFixed(2)}×` : format.MISSING),
    };

    /* Add a list. listed: {label, noun, several, columns, sort, height}, a column being {name, title, unit (null of a
       text), doc, missing, bar (null: none, or its class)}; texts and numbers: references to columns by their names. */
    async function list(parent, listed, texts, numbers, page, select) {
        const values = {};
        for (const [name, one] of Object.entries({ ...texts, ...numbers })) values[name] = await page.column(one);
        const read = (name, i) => page.strings[values[name][i]] || "";
        const columns = listed.columns.map(({ name, title, unit, doc, missing, bar }) => {
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
            label: listed.label,
            noun: listed.noun,
            several: listed.several,
            count: Object.values(values)[0].length,
            columns,
            sort: [listed.columns.findIndex(({ name }) => name === listed.sort), true],
            height: listed.height,
            filter: (i) =>
                columns
                    .filter(({ left }) => left)
                    .map((column) => column.text(i))
                    .join(" "),
            select,
        });
    }

    async function all(parent, data, page) {
        for (const table of data.tables) {
            const shown = Object.values(table.numbers)[0].length;
            const some =
                shown < table.rows
                    ? `${format.count(shown)} of ${format.plural(table.rows, table.noun, table.several)}`
                    : "";
            parent.append(flopscope.draw.heading(table.label, [table.note, some].filter(Boolean).join("; ")));
            await list(parent, { ...table, height: 300 }, table.texts, table.numbers, page);
        }
    }

    return { list, all };
})();
