/* The columns of Ops: which are shown, their cells and their texts. */
"use strict";

Object.assign(flopscope.Ops.prototype, {
    visible() {
        const { table } = this.grouping;
        const usual = [
            ...["step", "stream", "line", "module", "stack"].filter(
                (name) => table.byName.has(name) && this.id !== "module",
            ),
            "input_shapes",
            ...(this.id === "dtype" ? ["input_dtypes"] : []),
            ...(this.id === "module" ? ["module_calls", "device_time_total"] : []),
            "count",
            "self_device_time_total",
            "headroom",
            "pct_roofline",
            "bound",
            "tflops_per_s",
            "gbytes_per_s",
            "self_cpu_time_total",
        ];
        const wanted = this.chosen || usual.filter((name) => name !== "input_shapes" || this.id === "shape");
        const shown = table.described.filter(
            (column) => column.name !== "key" && wanted.includes(column.name) && (this.chosen || this.tells(column)),
        );
        shown.sort((a, b) => wanted.indexOf(a.name) - wanted.indexOf(b.name));
        const widths = {
            input_shapes: 240,
            input_dtypes: 170,
            stack: 280,
            line: 260,
            module: 220,
            step: 130,
            stream: 120,
            category: 130,
            bound: 108,
            count: 68,
            pct_roofline: 82,
            unit: 110,
            tflops_per_s: 118,
            gbytes_per_s: 84,
            self_cpu_time_total: 92,
            self_device_time_total: 114,
            headroom: 104,
        };
        return [
            {
                name: "key",
                title: this.id === "category" ? "Category" : this.id === "module" ? "Module" : "Name",
                doc: table.byName.get("key").doc,
                width: 222,
                left: true,
            },
            ...shown.map((column) => ({
                name: column.name,
                title: column.header,
                doc: `${column.name}: ${column.doc}${column.unit ? `, in ${column.unit}` : ""}`,
                width: widths[column.name] || Math.max(92, 8 * column.header.length + 24),
                left: column.type === "text",
                unit: column.unit,
            })),
        ];
    },

    /* Whether a column of the table has a value other than zero or unknown. */
    tells(column) {
        const { table } = this.grouping;
        this.told = this.told || new Map();
        const key = `${this.id}:${column.name}`;
        if (!this.told.has(key)) {
            const values = table.columns[column.name];
            const test =
                column.type === "text"
                    ? (value) => value >= 0 && this.page.strings[value] !== "" && this.page.strings[value] !== "unknown"
                    : (value) => value === value && value !== 0;
            this.told.set(key, Boolean(values) && values.some(test));
        }
        return this.told.get(key);
    },

    most(table, name) {
        table.most = table.most || new Map();
        if (!table.most.has(name)) {
            let most = 0;
            for (const value of table.columns[name]) if (value > most) most = value;
            table.most.set(name, most);
        }
        return table.most.get(name);
    },

    share(table, name, value) {
        if (name in table.totals) return value / table.totals[name];
        if (name.startsWith("pct_")) return value / 100;
        return name === "headroom" || name.endsWith("time_total") ? value / this.most(table, name) : NaN;
    },

    cell(line, column) {
        const { table } = this.groupings.get(line.id);
        const { name } = column;
        if (line.kind === "kernel") {
            if (name === "key") return { text: line.kernel.name, title: line.kernel.name, name: "mono" };
            if (name === "count") return { text: format.count(line.kernel.count) };
            if (name === "self_device_time_total") return { text: format.time(line.kernel.time) };
            return { text: "" };
        }
        const value = table.get(name, line.row);
        if (name === "bound") {
            const title = flopscope.page.bounds[value || "unknown"];
            const [word, why] = this.why(table, line.row);
            return value && value !== "unknown"
                ? { text: ` ${value}`, swatch: `bound-${value}`, title: `${value}: ${title}` }
                : { text: word || format.MISSING, name: "unknown", title: why || title };
        }
        if (table.isText(name)) {
            let text = value || "";
            if (name === "key" && line.id === "shape" && line.depth > 0) {
                text = table.get("input_shapes", line.row) || "(no shapes)";
            }
            if (name === "stack") return { text: text.split("\n")[0], title: value };
            return {
                text: text || (name === "key" ? "(no name)" : format.MISSING),
                title: text,
                name: name === "key" || name.startsWith("input_") ? "mono" : text ? "" : "unknown",
            };
        }
        const known = format.known(value);
        const missing = known ? undefined : flopscope.details.missing(table, name, line.row);
        const unit = table.byName.has(name) ? table.byName.get(name).unit : column.unit;
        const text = format.unit(value, unit);
        const over = format.isOver(name, (share) => (table.byName.has(share) ? table.get(share, line.row) : NaN))
            ? "*"
            : "";
        return {
            text: `${text}${over}`,
            share: known ? this.share(table, name, value) : NaN,
            name: !known || value === 0 ? "unknown" : "",
            title: missing || (over ? format.OVER : `${value} ${unit || ""}`),
        };
    },

    /* Why the limit of a row is unknown, in a few words and in a sentence; empty where it is known. */
    why(table, row) {
        if (this.isSum() && table === this.grouping.table) {
            return ["some of it", "The limits of some of its ops are unknown."];
        }
        return this.page.data.reasons[table.columns.why[row]];
    },
});
