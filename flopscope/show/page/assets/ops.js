/* Ops: the rows, grouped, filtered, sorted and opened; columns to choose. */
"use strict";

flopscope.Ops = class {
    constructor(body, data, page) {
        this.body = body;
        this.data = data;
        this.page = page;
        this.groupings = new Map(
            data.groupings.map((one) => [
                one.id,
                { ...one, table: one.table ? new flopscope.Table(one.table, page) : page.rows },
            ]),
        );
        this.kind = data.kind;
        this.category = "";
        this.filter = "";
        this.sort = { name: "usual", down: true }; // that of the command line's tables: what could be gained first
        this.open = new Set();
        this.chosen = null; // columns that the reader chose
        this.current = null; // the line whose details are shown: {id, row}
        this.id = "name";
    }

    get grouping() {
        return this.groupings.get(this.id);
    }

    async mount() {
        this.grid = new flopscope.Grid({
            label: "Ops",
            id: "ops-row",
            fits: true,
            cell: (line, column) => this.cell(line, column),
            onSort: (name) => this.setSort(name),
            onSelect: (line) => this.select(line),
            onToggle: (line) => this.toggle(line),
        });
        this.details = el("aside.details", {
            hidden: true,
            tabindex: "0",
            "aria-label": "Details of the selected row",
        });
        this.split = el("div.rows-and-details", this.grid.element, this.details);
        this.notes = el("p.note");
        this.body.append(this.controls(), this.split, this.notes, this.glossary());
        this.page.onSelect((row, details) => this.follow(row, details));
        await this.show();
        if (this.page.selected !== null) this.follow(this.page.selected, this.page.details);
    }

    /* What the words in the cells mean: those of the usual columns, and the bounds. */
    glossary() {
        const { byName } = this.page.rows,
            columns = ["self_device_time_total", "headroom", "pct_roofline", "bound"].filter((name) =>
                byName.has(name),
            );
        return draw.words("What the words mean", [
            ...columns.map((name) => [byName.get(name).header, byName.get(name).doc]),
            ...Object.entries(this.page.bounds),
            ...this.page.data.reasons.slice(1),
        ]);
    }

    /* Load what the grouping needs, then draw it. */
    async show() {
        const load = async (id) => {
            const one = this.groupings.get(id);
            if (one.loaded) return;
            if (one.table !== this.page.rows) await one.table.load();
            if (one.names) one.nameRows = await this.page.column(one.names);
            if (one.depth) one.depths = await this.page.column(one.depth);
            if (one.children) {
                one.begin = await this.page.column(one.children.begin);
                one.below = await this.page.column(one.children.rows);
                await load(one.children.of);
            }
            one.loaded = true;
        };
        await load("shape");
        await load("name");
        await load(this.id);
        const { table } = this.grouping;
        if (!table.byName.has(this.sort.name)) this.sort = { name: "usual", down: true };
        this.kinds.hidden = this.isSum();
        this.categories.parentElement.hidden = this.isSum();
        this.refresh();
    }

    isSum() {
        return this.id === "category" || this.id === "module";
    }

    /* Lines ------------------------------------------------------------------------------------------------------ */

    refresh() {
        this.grid.setColumns(this.visible(), { name: this.sortedBy(), down: this.sort.down });
        const lines = this.lines();
        this.grid.setLines(
            lines,
            this.grouping.table.count
                ? "No row matches: change the filter, the kind or the category."
                : "Nothing was recorded.",
        );
        this.mark();
        const total = this.grouping.table.count;
        this.count.textContent =
            this.top === total
                ? format.plural(total, "row")
                : `${format.count(this.top)} of ${format.plural(total, "row")}`;
        const left = this.grouping.left_out;
        const notes = [];
        if (left) {
            notes.push(
                `The page holds the ${format.count(total)} rows with the most time of this grouping; ` +
                    `${format.count(left.rows)} others have ${format.time(left.device_time)} of device time and ` +
                    `${format.time(left.host_time)} of host time. key_averages() has all.`,
            );
        }
        if (this.data.no_op > 0.001 * this.page.rows.totals.self_device_time_total && this.kind === "op") {
            notes.push(
                `${format.time(this.data.no_op)} of device time belong to no op, such as replayed graphs: ` +
                    `the kind “Device work” lists all kernels.`,
            );
        }
        if (this.sort.name === "usual" && this.sortedBy() === "headroom") {
            notes.push(
                "The order is that of what could be gained: the headroom, or the time where the limit is unknown.",
            );
        }
        notes.push(...this.unrated());
        this.notes.textContent = notes.join(" ");
    }

    /* Why limits are unknown, with the share of the time of the rows that are listed; reasons of the largest come
       first. */
    unrated() {
        const { table } = this.grouping,
            times = new Map();
        if (this.isSum() || !table.columns.why) return [];
        let whole = 0;
        for (const line of this.grid.lines) {
            if (line.kind !== "row" || line.depth > 0) continue;
            const time = table.get(this.data.sort, line.row),
                why = Number.isNaN(table.get("headroom", line.row)) ? table.columns.why[line.row] : 0;
            whole += time;
            times.set(why, (times.get(why) || 0) + time);
        }
        return [...times]
            .filter(([why, time]) => why > 0 && time > 0.01 * whole)
            .sort((a, b) => b[1] - a[1])
            .map(([why, time]) => [format.percent((100 * time) / whole), ...this.page.data.reasons[why]])
            .map(
                ([share, word, text]) =>
                    `The limit is unknown for ${share} of the time listed (${word}): ` +
                    `${text[0].toLowerCase()}${text.slice(1)}`,
            );
    }

    /* Keep what the reader chose in the address. */
    remember() {
        flopscope.address.write("ops", {
            group: this.id === "name" ? "" : this.id,
            filter: this.filter,
            kind: this.kind === this.data.kind ? "" : this.kind,
            category: this.category,
            sort: this.sort.name === "usual" ? "" : `${this.sort.down ? "" : "-"}${this.sort.name}`,
        });
    }

    /* Whether a row is of the chosen kind and category. */
    isChosen(table, row) {
        if (this.isSum()) return true;
        const wanted = { op: 0, kernel: 1, range: 2 }[this.kind];
        if (wanted !== undefined && table.columns.kind[row] !== wanted) return false;
        return !this.category || table.get("category", row) === this.category;
    }

    /* The texts of a row itself, in lower case: names, groups and shapes; where a grouping has no shapes, all those of
       the name. */
    textOf(id, row) {
        const one = this.groupings.get(id),
            { table } = one;
        one.texts = one.texts || [];
        if (one.texts[row] === undefined) {
            const columns = [
                "key",
                "input_shapes",
                "input_dtypes",
                "category",
                "step",
                "stream",
                "line",
                "module",
                "stack",
            ].map((name) => table.columns[name]);
            const names = this.groupings.get("name"),
                name = id !== "shape" && one.nameRows && names.begin ? one.nameRows[row] : -1,
                ofName = name < 0 ? [] : names.below.subarray(names.begin[name], names.begin[name + 1]);
            const found = columns.filter(Boolean).map((values) => values[row]);
            for (const shape of ofName) found.push(this.page.rows.columns.input_shapes[shape]);
            one.texts[row] = found
                .filter((value) => value >= 0)
                .map((value) => this.page.strings[value])
                .join("\n")
                .toLowerCase();
        }
        return one.texts[row];
    }

    /* Whether all words occur in a row, with what stands around it, or in one of those that stand below it. */
    matches(id, row, words, around = "") {
        if (!words.length) return true;
        const text = `${around}\n${this.textOf(id, row)}`;
        if (words.every((word) => text.includes(word))) return true;
        const one = this.groupings.get(id);
        if (!one.begin) return false;
        for (let i = one.begin[row]; i < one.begin[row + 1]; i++) {
            if (this.matches(one.children.of, one.below[i], words, text)) return true;
        }
        return false;
    }

    /* The column that the rows are sorted by. */
    sortedBy() {
        if (this.sort.name !== "usual") return this.sort.name;
        if (this.id === "module") return this.data.sort.replace("self_", "");
        return (this.kind === "all" && !this.isSum()) || !this.tells(this.grouping.table.byName.get("headroom"))
            ? this.data.sort
            : "headroom";
    }

    /* What could be gained of a row: its headroom, or its time where the limit is unknown. What took no time comes
       last, also after rows beyond their limit, whose headroom is below 0. */
    gain(table, row) {
        const time = table.get(this.data.sort, row),
            headroom = table.get("headroom", row);
        return !time ? -Infinity : Number.isNaN(headroom) ? time : headroom;
    }

    sorted(table, rows) {
        const name = this.sortedBy();
        if (this.sort.name === "usual" && name === "headroom") {
            flopscope.sortBy(rows, (row) => table.get("self_cpu_time_total", row), true);
            return flopscope.sortBy(rows, (row) => this.gain(table, row), true);
        }
        if (!table.columns[name]) return rows;
        // Texts begin with A
        return flopscope.sortBy(rows, (row) => table.get(name, row), this.sort.down !== table.isText(name));
    }

    lines() {
        const { grouping } = this;
        const { table } = grouping;
        const words = (this.words = this.filter.toLowerCase().split(/\s+/).filter(Boolean));
        const lines = [];
        if (grouping.depths && !words.length) {
            this.tree(lines);
            this.top = table.count;
            return lines;
        }
        const rows = [];
        for (let row = 0; row < table.count; row++) {
            if (this.isChosen(table, row) && this.matches(this.id, row, words)) rows.push(row);
        }
        this.top = rows.length;
        for (const row of this.sorted(table, rows)) this.add(lines, this.id, row, 0, "");
        return lines;
    }

    /* The tree of modules: the submodules of each sorted, and the ops of each below it. */
    tree(lines) {
        const { table, depths } = this.grouping;
        const below = new Map();
        const path = [];
        for (let row = 0; row < table.count; row++) {
            path.length = depths[row];
            const around = path.length ? path[path.length - 1] : -1;
            if (!below.has(around)) below.set(around, []);
            below.get(around).push(row);
            path.push(row);
        }
        if (!this.started) {
            this.started = true;
            for (const row of below.get(-1) || []) this.open.add(`module:${row}`);
        }
        const left = this.sorted(table, [...(below.get(-1) || [])]).reverse();
        while (left.length) {
            const row = left.pop();
            const inside = below.get(row) || [];
            const key = `module:${row}`;
            const ops = this.under("module", row);
            const isOpen = this.open.has(key);
            lines.push({
                key,
                id: "module",
                row,
                depth: depths[row],
                kind: "row",
                open: inside.length || ops.length ? isOpen : undefined,
            });
            if (!isOpen) continue;
            const own = [];
            for (const one of ops) this.add(own, this.grouping.children.of, one, depths[row] + 1, `${key}/`);
            lines.push(...own);
            left.push(...this.sorted(table, [...inside]).reverse());
        }
    }

    /* The rows of the grouping below, in the order of the table; none if it is only the row itself. */
    under(id, row) {
        const one = this.groupings.get(id);
        if (!one.begin) return [];
        const rows = Array.from(one.below.subarray(one.begin[row], one.begin[row + 1]));
        if (id === "name" && rows.length < 2) return [];
        return this.sorted(this.groupings.get(one.children.of).table, rows);
    }

    /* Add the line of a row, and what is open below it. A row that the filter finds by those below it is open at
       first, and shows only these; texts: of the rows around it. */
    add(lines, id, row, depth, around, texts = "") {
        const { table } = this.groupings.get(id),
            words = this.words || [];
        const key = `${around}${id}:${row}`;
        const text = words.length ? `${texts}\n${this.textOf(id, row)}` : "";
        const isWhole = words.every((word) => text.includes(word));
        const inside = this.under(id, row),
            { of } = this.groupings.get(id).children || {};
        const below = isWhole ? inside : inside.filter((one) => this.matches(of, one, words, text));
        const kernels = below.length ? [] : table.kernels(row);
        const isOpen = this.open.has(key) !== (!isWhole && below.length > 0);
        lines.push({ key, id, row, depth, kind: "row", open: below.length || kernels.length ? isOpen : undefined });
        if (!isOpen) return;
        for (const one of below) this.add(lines, of, one, depth + 1, `${key}/`, text);
        kernels.forEach((kernel, i) =>
            lines.push({ key: `${key}/kernel:${i}`, id, row, depth: depth + 1, kind: "kernel", kernel }),
        );
    }

    toggle(line) {
        if (this.open.has(line.key)) this.open.delete(line.key);
        else this.open.add(line.key);
        this.refresh();
    }

    setSort(name) {
        this.sort = { name, down: this.sortedBy() === name ? !this.sort.down : true };
        this.refresh();
        this.remember();
    }

    /* Selection -------------------------------------------------------------------------------------------------- */

    /* The row of the page's table that a line stands for: of a name, that with the most time; -1 for sums. */
    finest(id, row) {
        if (id === "shape") return row;
        const one = this.groupings.get(id);
        const name = id === "name" ? row : one.nameRows ? one.nameRows[row] : -1;
        const names = this.groupings.get("name");
        if (name < 0) return -1;
        if (!names.begin) return name; // no shapes: the rows of the page are the names
        return names.begin[name + 1] > names.begin[name] ? names.below[names.begin[name]] : -1;
    }

    select(line) {
        const isSame = this.current && this.current.key === line.key;
        if (isSame) return;
        this.current = { key: line.key, id: line.id, row: line.row };
        const row = this.finest(line.id, line.row);
        const shapes = line.id === "name" ? this.under("name", line.row).length : 0;
        const note = shapes ? `of ${format.plural(shapes, "shape")}, the one with the most time:` : "";
        this.page.select(row < 0 ? null : row, { source: "ops", line: line.key, note });
        this.showDetails();
        this.mark();
    }

    /* Show what was selected elsewhere. */
    follow(row, details) {
        if (details.source === "ops") return;
        if (row === null) {
            this.current = null;
        } else {
            const find = () => this.grid.lines.findIndex((line) => line.kind === "row" && this.stands(line, row));
            let i = find();
            if (i < 0 && (this.filter || this.category || this.kind !== "all") && !this.isSum()) {
                this.filter = this.category = "";
                this.kind = "all";
                this.fill();
                this.refresh();
                i = find();
            }
            const line = this.grid.lines[i];
            if (line && line.id === "name" && line.open === false && this.under("name", line.row).length) {
                // its shapes
                this.open.add(line.key);
                this.refresh();
                i = find();
            }
            this.current = { key: i < 0 ? null : this.grid.lines[i].key, id: "shape", row };
            this.grid.at = i;
            this.grid.reveal(i, true);
        }
        this.showDetails();
        this.mark();
    }

    stands(line, row) {
        if (line.id === "shape") return line.row === row;
        const shape = this.groupings.get("shape");
        const name = this.groupings.get("name").begin ? shape.nameRows[row] : row;
        if (line.id === "name") return line.row === name && !(line.open && this.under("name", line.row).length);
        const one = this.groupings.get(line.id);
        return one.nameRows ? one.nameRows[line.row] === name : false;
    }

    mark() {
        this.grid.setSelected(this.current && this.current.key ? [this.current.key] : []);
    }

    showDetails() {
        const { current } = this;
        this.details.hidden = current === null;
        this.split.classList.toggle("has-details", current !== null);
        if (current === null) return;
        const close = () => {
            this.current = null;
            this.page.select(null);
            this.showDetails();
            this.mark();
            this.grid.element.focus({ preventScroll: true });
        };
        const { table } = this.groupings.get(current.id);
        this.details.replaceChildren(
            ...flopscope.details
                .make(table, current.row, this.page, this.finest(current.id, current.row), close)
                .flat(Infinity)
                .filter(Boolean),
        );
        this.details.scrollTop = 0;
    }
};

flopscope.section("ops", {
    title: "Ops",
    async mount(body, data, page) {
        flopscope.ops = new flopscope.Ops(body, data, page);
        await flopscope.ops.mount();
    },
    restore(state) {
        flopscope.ops.restore(state);
    },
});
