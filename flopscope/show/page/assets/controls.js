/* The controls above the rows of Ops: filter, kinds, categories, groupings and columns. */
"use strict";

Object.assign(flopscope.Ops.prototype, {
    controls() {
        this.input = el("input", {
            type: "search",
            id: "filter",
            placeholder: "Filter names, shapes, … ( / )",
            "aria-label": "Filter rows by text",
            spellcheck: "false",
            autocomplete: "off",
            on: { input: () => this.change({ filter: this.input.value }) },
        });
        this.input.addEventListener("keydown", (event) => {
            if (event.key === "Enter" || event.key === "ArrowDown") {
                event.preventDefault();
                this.grid.element.focus();
            }
        });
        const kinds = [
            ["op", "Ops"],
            ["kernel", "Device work"],
            ["range", "Ranges"],
            ["all", "All"],
        ];
        const present = new Set(this.page.rows.columns.kind);
        const shown = kinds.filter(([kind], i) => kind === "all" || present.has(i));
        this.kinds = el(
            "div.segments",
            { role: "group", "aria-label": "Kind of row" },
            shown.map(([kind, title]) =>
                el("button", { "data-kind": kind, on: { click: () => this.change({ kind }) }, text: title }),
            ),
        );
        const categories = [
            ...new Set(Array.from({ length: this.page.rows.count }, (_, i) => this.page.rows.get("category", i))),
        ]
            .filter(Boolean)
            .sort();
        this.categories = el(
            "select",
            { id: "category", on: { change: () => this.change({ category: this.categories.value }) } },
            el("option", { value: "", text: "all" }),
            categories.map((one) => el("option", { value: one, text: one })),
        );
        this.groups = el(
            "select",
            { id: "group", on: { change: () => this.change({ id: this.groups.value }) } },
            [...this.groupings.values()]
                .filter((one) => !one.hidden)
                .map((one) => el("option", { value: one.id, text: one.title })),
        );
        this.count = el("span.count", { role: "status" });
        const bar = el(
            "div.controls",
            this.input,
            this.kinds,
            el("label", "Category", this.categories),
            el("label", "Group by", this.groups),
            this.menu(),
            this.count,
        );
        this.fill();
        return bar;
    },

    /* Show what the reader chose, and keep it in the address. */
    async change(chosen) {
        Object.assign(this, chosen);
        this.fill();
        await this.show();
        this.remember();
        this.grid.element.scrollTop = 0;
    },

    /* Show the state in the controls. */
    fill() {
        this.input.value = this.filter;
        this.categories.value = this.category;
        this.groups.value = this.id;
        for (const button of this.kinds.children) {
            button.setAttribute("aria-pressed", String(button.dataset.kind === this.kind));
        }
    },

    async restore(state) {
        if (![...state.keys()].length) return;
        this.filter = state.get("filter") || "";
        this.category = state.get("category") || "";
        this.kind = ["op", "kernel", "range", "all"].includes(state.get("kind")) ? state.get("kind") : this.data.kind;
        if (this.groupings.has(state.get("group"))) this.id = state.get("group");
        const sort = state.get("sort");
        if (sort) this.sort = { name: sort.replace(/^-/, ""), down: !sort.startsWith("-") };
        this.fill();
        await this.show();
    },

    menu() {
        const panel = el("div.panel", { id: "columns-panel", hidden: true });
        const button = el("button.button", {
            "aria-expanded": "false",
            "aria-controls": "columns-panel",
            text: "Columns ▾",
        });
        const set = (isOpen) => {
            panel.hidden = !isOpen;
            button.setAttribute("aria-expanded", String(isOpen));
            if (isOpen) this.fillMenu(panel);
        };
        button.addEventListener("click", () => set(panel.hidden));
        const menu = el("div.menu", button, panel);
        document.addEventListener("click", (event) => {
            if (!menu.contains(event.target)) set(false);
        });
        menu.addEventListener("keydown", (event) => {
            if (event.key === "Escape" && !panel.hidden) {
                event.preventDefault();
                set(false);
                button.focus();
            }
        });
        return menu;
    },

    fillMenu(panel) {
        const shown = new Set(this.visible().map((column) => column.name));
        const change = (name, isShown) => {
            const names = this.visible()
                .map((column) => column.name)
                .filter((one) => one !== "key" && one !== name);
            this.chosen = isShown ? [...names, name] : names;
            this.refresh();
        };
        panel.replaceChildren(
            draw.button("The usual columns", () => {
                this.chosen = null;
                this.refresh();
                this.fillMenu(panel);
            }),
            ...this.grouping.table.groups(["key"]).map(([title, columns]) =>
                el(
                    "fieldset",
                    el("legend", title),
                    columns.map((column) => {
                        const box = el("input", {
                            type: "checkbox",
                            on: { change: () => change(column.name, box.checked) },
                        });
                        box.checked = shown.has(column.name);
                        return el(
                            "label",
                            box,
                            el(
                                "span",
                                el("span", {
                                    class: this.tells(column) ? "" : "unknown",
                                    text: `${column.header}${this.tells(column) ? "" : " (empty)"}`,
                                }),
                                el(
                                    "span.note",
                                    ` ${column.doc}` +
                                        `${column.unit && column.unit !== "calls" ? `, in ${column.unit}` : ""}`,
                                ),
                            ),
                        );
                    }),
                ),
            ),
        );
    },
});
