/* A table of any number of lines, of which only those in view are elements. It draws; whoever owns it makes the lines.

   new flopscope.Grid({label, id, flat (no line opens), fits (whether the height follows the lines), cell(line, column),
   onSort(name), onSelect(line), onToggle(line)})
   A line: {key, depth, open (undefined: nothing to open), kind}. A column: {name, title, doc, width, left}. The first
   column stays in view and takes the width that is left. A cell: {text, title, share of the bar behind it,
   bar (its class), name (the cell's class), swatch}. */
"use strict";

flopscope.Grid = class {
    constructor(options) {
        this.options = options;
        this.height = 27;
        this.lines = [];
        this.columns = [];
        this.sort = { name: null, down: true };
        this.at = -1;
        this.selected = new Set();
        this.header = el("div.row.header", { role: "row", "aria-rowindex": "1" });
        this.body = el("div.lines", { role: "rowgroup" });
        this.space = el("div.space", { role: "presentation" }, this.body);
        this.nothing = el("p.nothing", { hidden: true });
        this.element = el(
            "div.grid",
            {
                role: "treegrid",
                tabindex: "0",
                "aria-label": options.label,
                on: {
                    scroll: flopscope.perFrame(() => this.draw()),
                    keydown: (event) => this.key(event),
                    focus: () => {
                        // not by the pointer: a row that is drawn anew while it is pressed gets no click
                        if (this.at < 0 && this.lines.length && this.element.matches(":focus-visible")) {
                            this.move(0, false);
                        }
                    },
                },
            },
            el("div.head-group", { role: "rowgroup" }, this.header),
            this.space,
            this.nothing,
        );
        this.body.addEventListener("click", (event) => this.click(event));
        new ResizeObserver(() => requestAnimationFrame(() => this.layout())).observe(this.element);
    }

    setColumns(columns, sort) {
        this.columns = columns;
        this.sort = sort;
        this.header.replaceChildren(
            ...columns.map((column, i) => {
                const isSorted = column.name === sort.name;
                const mark = isSorted ? (sort.down ? " ↓" : " ↑") : "";
                return el(
                    "div",
                    {
                        role: "columnheader",
                        class: `${i === 0 ? "first " : ""}${column.left ? "left" : ""}`,
                        "aria-colindex": String(i + 1),
                        "aria-sort": isSorted ? (sort.down ? "descending" : "ascending") : undefined,
                    },
                    el("button", {
                        title: column.doc,
                        on: { click: () => this.options.onSort(column.name) },
                        text: `${column.title}${mark}`,
                    }),
                );
            }),
        );
        this.element.setAttribute("aria-colcount", String(columns.length));
        this.layout();
    }

    setLines(lines, nothing) {
        const key = this.at >= 0 && this.lines[this.at] ? this.lines[this.at].key : null;
        this.lines = lines;
        this.at = key === null ? -1 : lines.findIndex((line) => line.key === key);
        this.space.style.height = `${lines.length * this.height}px`;
        if (this.options.fits) {
            this.element.style.height = `min(72vh, ${Math.max(lines.length * this.height, 64) + 50}px)`;
        }
        this.element.setAttribute("aria-rowcount", String(lines.length + 1));
        this.nothing.hidden = lines.length > 0;
        this.nothing.textContent = nothing || "No rows.";
        this.draw();
    }

    /* Mark the lines with these keys as selected. */
    setSelected(keys) {
        this.selected = new Set(keys);
        this.draw();
    }

    layout() {
        const [, ...others] = this.columns;
        const fixed = others.reduce((sum, column) => sum + column.width, 0);
        const least = this.columns.length
            ? Math.min(this.columns[0].width, Math.round(0.5 * this.element.clientWidth))
            : 0; // on a phone, too
        const first = Math.max(least, this.element.clientWidth - fixed);
        this.element.style.setProperty(
            "--widths",
            [first, ...others.map((column) => column.width)].map((width) => `${width}px`).join(" "),
        );
        this.space.style.minWidth = `${first + fixed}px`;
        this.draw();
    }

    draw() {
        const from = Math.max(0, Math.floor((this.element.scrollTop - 32) / this.height) - 6);
        const until = Math.min(
            this.lines.length,
            from + Math.ceil((this.element.clientHeight || 600) / this.height) + 14,
        );
        const rows = [];
        for (let i = from; i < until; i++) {
            const line = this.lines[i];
            const cells = this.columns.map((column, k) => {
                const cell = this.options.cell(line, column);
                const properties = {
                    class: `cell ${k === 0 ? "first " : ""}${column.left ? "left " : ""}${cell.name || ""}`,
                    role: k === 0 ? "rowheader" : "gridcell",
                    "aria-colindex": String(k + 1),
                    title: cell.title,
                };
                if (k === 0) {
                    const toggle = this.options.flat
                        ? ""
                        : line.open === undefined
                          ? el("span.open")
                          : el("button.open", {
                                tabindex: "-1",
                                "aria-label": line.open ? "Close" : "Open",
                                text: line.open ? "▼" : "▶",
                            });
                    if (toggle) toggle.style.marginLeft = `${14 * line.depth}px`;
                    return el(
                        "div",
                        properties,
                        toggle,
                        cell.swatch && el("i", { class: `swatch ${cell.swatch}` }),
                        draw.ends(cell.text),
                    );
                }
                const share = Number.isFinite(cell.share) && cell.share > 0 ? Math.min(cell.share, 1) : 0;
                return el(
                    "div",
                    properties,
                    share > 0 &&
                        el("span", {
                            class: `behind ${cell.bar || ""}`,
                            style: { width: `calc(${(100 * share).toFixed(2)}% - 4px)` },
                        }),
                    cell.swatch && el("i", { class: `swatch ${cell.swatch}` }),
                    el("span.front", cell.text),
                );
            });
            rows.push(
                el(
                    "div",
                    {
                        class: `row line is-${line.kind}${i === this.at ? " is-at" : ""}`,
                        role: "row",
                        id: `${this.options.id}-${i}`,
                        "aria-rowindex": String(i + 2),
                        "aria-level": String(line.depth + 1),
                        "aria-selected": String(this.selected.has(line.key)),
                        "aria-expanded": line.open === undefined ? undefined : String(line.open),
                    },
                    cells,
                ),
            );
        }
        this.body.style.transform = `translateY(${from * this.height}px)`;
        this.body.replaceChildren(...rows);
        const isDrawn = this.at >= from && this.at < until;
        if (isDrawn) this.element.setAttribute("aria-activedescendant", `${this.options.id}-${this.at}`);
        else this.element.removeAttribute("aria-activedescendant");
    }

    lineOf(event) {
        const row = event.target.closest(".line");
        return row ? Number(row.id.slice(this.options.id.length + 1)) : -1;
    }

    click(event) {
        const i = this.lineOf(event);
        if (i < 0) return;
        this.at = i;
        if (event.target.closest("button.open")) this.options.onToggle(this.lines[i]);
        else this.options.onSelect(this.lines[i]);
        this.draw();
    }

    move(i, scroll = true) {
        this.at = Math.min(Math.max(i, 0), this.lines.length - 1);
        if (scroll) this.reveal(this.at);
        this.draw();
    }

    /* Scroll so that a line is in view; in the middle if it was out of it and ``center`` is set. */
    reveal(i, center = false) {
        if (i < 0) return;
        const box = this.element;
        const top = i * this.height,
            bottom = top + this.height;
        const view = box.clientHeight - 34;
        if (top >= box.scrollTop && bottom <= box.scrollTop + view) return;
        if (center) box.scrollTop = Math.max(0, top - view / 2);
        else box.scrollTop = top < box.scrollTop ? top : bottom - view;
    }

    key(event) {
        if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
        const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 2);
        const line = this.lines[this.at];
        const moves = {
            ArrowDown: this.at + 1,
            ArrowUp: this.at - 1,
            PageDown: this.at + page,
            PageUp: this.at - page,
            Home: 0,
            End: this.lines.length - 1,
        };
        if (event.key in moves) this.move(moves[event.key]);
        else if (event.key === "ArrowRight" && line && line.open === false) this.options.onToggle(line);
        else if (event.key === "ArrowRight" && line && line.open) this.move(this.at + 1);
        else if (event.key === "ArrowLeft" && line && line.open) this.options.onToggle(line);
        else if (event.key === "ArrowLeft" && line && line.depth > 0) {
            let above = this.at;
            while (above > 0 && this.lines[above].depth >= line.depth) above--;
            this.move(above);
        } else if ((event.key === "Enter" || event.key === " ") && line) this.options.onSelect(line);
        else return;
        event.preventDefault();
    }
};
