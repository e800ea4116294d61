/* The section Roofline: ops as marks on log axes below the roofs of their device, to hover, select, zoom and filter. */
"use strict";

flopscope.Roofline = class {
    constructor(element, data, page, columns) {
        Object.assign(this, { element, data, page, columns });
        this.hidden = new Set(); // bounds
        this.words = [];
        this.device = 0;
        this.view = null; // {x0, x1, y0, y1} in powers of ten; null: all
        this.current = -1;
        this.build();
        this.take();
        this.render();
        new ResizeObserver(() => {
            if (this.plot.clientWidth !== this.width) this.render();
        }).observe(this.plot);
        flopscope.onTheme(() => this.render());
        page.onSelect(() => this.markSelected());
        document.addEventListener("input", (event) => {
            if (event.target.id !== "filter") return;
            this.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
            this.render();
        });
    }

    build() {
        const el = flopscope.element,
            { data, page } = this;
        const names = data.devices.map(
            (device) => `${device.name}${device.model >= 0 ? ` · ${page.strings[device.model]}` : ""}`,
        );
        this.select = el(
            "select",
            {
                class: "timeline-mode",
                "aria-label": "Device",
                on: {
                    change: () => {
                        this.device = Number(this.select.value);
                        this.view = null;
                        this.take();
                        this.render();
                    },
                },
            },
            names.map((text, i) => el("option", { value: i, text })),
        );
        this.reset = flopscope.draw.button("Whole", () => this.show(null), {
            title: "Show all marks (0)",
            hidden: true,
        });
        this.legend = el("div", { class: "roofline-legend", role: "group", "aria-label": "Bounds" });
        this.plot = el("div", {
            class: "roofline-plot",
            tabindex: "0",
            role: "application",
            "aria-label":
                "Roofline. Left and right step through the ops by time, Enter selects, + and − zoom, 0 shows all.",
        });
        this.tip = el("div", { class: "timeline-tip", hidden: true });
        this.notes = el("div", { class: "roofline-notes" });
        this.element.replaceChildren(
            el(
                "div",
                { class: "timeline-tools" },
                names.length > 1 ? this.select : el("span", { class: "note", text: names[0] }),
                this.legend,
                el("span", { class: "space" }),
                this.reset,
            ),
            this.plot,
            this.notes,
            this.tip,
        );
        this.plot.addEventListener("keydown", (event) => this.key(event));
        this.plot.addEventListener("pointerdown", (event) => this.press(event));
        this.plot.addEventListener("dblclick", () => this.show(null));
        this.plot.addEventListener(
            "wheel",
            (event) => {
                if (!event.ctrlKey && !event.metaKey) return;
                event.preventDefault();
                this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.at(event));
            },
            { passive: false },
        );
    }

    /* Take the marks of the chosen device: places in powers of ten. */
    take() {
        const { rows } = this.page,
            own = this.data.devices[this.device],
            [list, times] = this.columns[this.device];
        this.own = own;
        const most = Math.max(...times, 1e-9);
        this.marks = Array.from(list, (row, i) => ({
            row,
            time: times[i],
            x: Math.log10(rows.get("arithmetic_intensity", row)),
            y: Math.log10(rows.get("tflops_per_s", row) * 1e12),
            bound: rows.get("bound", row) || "unknown",
            radius: Math.max(Math.sqrt(times[i] / most) * 17, 3.2),
        }));
        const moving = this.marks.filter((mark) => !(rows.get("flops", mark.row) > 0));
        this.total = own.total;
        this.plot.hidden = !this.marks.length;
        const relevant = this.marks.filter((mark) => mark.time >= 0.001 * own.total);
        const shown = (relevant.length ? relevant : this.marks).filter((mark) => !moving.includes(mark));
        const xs = shown.map((mark) => mark.x),
            ys = shown.map((mark) => mark.y);
        for (const roof of own.roofs) {
            for (const ridge of Object.values(roof.ridges)) xs.push(Math.log10(ridge));
            for (const rate of Object.values(roof.rates)) ys.push(Math.log10(rate));
        }
        if (!xs.length) xs.push(-1, 1);
        this.placeMoving(moving, Math.min(...xs) - 0.5);
        ys.push(...moving.filter((mark) => mark.time >= 0.01 * own.total || !shown.length).map((mark) => mark.y));
        if (!ys.length) ys.push(9, 12);
        const y1 = Math.max(...ys);
        this.whole = {
            x0: moving.length ? this.strip.from : Math.min(...xs) - 0.5,
            x1: Math.max(...xs) + 0.8,
            y0: Math.min(Math.min(...ys), y1 - 2) - 0.45,
            y1: y1 + 0.45,
        };
        this.sayNotes();
    }

    /* Place what moves data without FLOPs in a strip at the left: as far below the roof of the memory as its bandwidth
       is. */
    placeMoving(moving, end) {
        const WIDE = 1.2; // powers of ten
        this.strip = moving.length ? { from: end - WIDE, to: end } : null;
        moving.forEach((mark, i) => {
            mark.rate = this.page.rows.get("gbytes_per_s", mark.row) * 1e9;
            mark.x = end - WIDE * (0.5 - 0.3 * [0, 1, -1, 0.5, -0.5][i % 5]);
            mark.y = Math.log10(mark.rate) + mark.x;
        });
    }

    sayNotes() {
        const el = flopscope.element,
            { format } = flopscope,
            { own, page } = this;
        const lines = this.marks.length ? [] : ["No op has known FLOPs and bytes, so nothing is drawn."];
        lines.push(
            ...own.left_out
                .filter((one) => one.rows)
                .map((one) => {
                    const names = one.names
                        .map((name) => page.strings[name])
                        .map((name) => (name.length > 40 ? `${name.slice(0, 39)}…` : name))
                        .join(", ");
                    return (
                        `Not shown: ${format.plural(one.rows, "row")} ${one.why}, ` +
                        `${format.percent((100 * one.time) / own.total)} of the time: ` +
                        `${names}${one.more ? `, and ${one.more} more` : ""}.`
                    );
                }),
        );
        if (!own.roofs.length && !own.slopes.length) lines.push("No roofs: the peaks are unknown.");
        if (this.strip) {
            lines.push(
                "Rows in the strip at the left move data and do no FLOPs, or an unknown number of them: " +
                    "their distance to the memory roof is that of their bandwidth.",
            );
        }
        if (this.marks.length) {
            lines.push(
                "The area of a mark is its share of the time. Solid roofs are measured, dashed ones are of " +
                    "the datasheet. Drag zooms to a part, Ctrl + wheel zooms, a double click shows all.",
            );
        }
        const bounds = [...new Set(this.marks.map((mark) => mark.bound))];
        this.notes.replaceChildren(
            ...lines.map((text) => el("p", { class: "note", text })),
            bounds.length
                ? flopscope.draw.words(
                      "What the bounds mean",
                      bounds.map((bound) => [bound, page.bounds[bound]]),
                  )
                : "",
        );
    }

    passes(mark) {
        if (this.hidden.has(mark.bound)) return false;
        if (!this.words.length) return true;
        const text = (
            `${this.page.rows.get("key", mark.row)} ${this.page.rows.get("input_shapes", mark.row) || ""} ` +
            `${this.page.rows.get("category", mark.row) || ""}`
        ).toLowerCase();
        return this.words.every((word) => text.includes(word));
    }

    /* Interaction -------------------------------------------------------------------------------------------------- */

    facts(mark) {
        const { rows } = this.page,
            { format } = flopscope;
        const texts = [rows.get("key", mark.row) || ""],
            shapes = rows.get("input_shapes", mark.row);
        if (shapes) texts.push(shapes);
        texts.push(
            `${format.time(mark.time)}, ${format.percent((100 * mark.time) / this.total)} of the time, ` +
                `${format.plural(rows.get("count", mark.row), "call")}`,
        );
        texts.push(
            mark.rate
                ? `${format.byteRate(mark.rate)}, ${rows.get("flops", mark.row) === 0 ? "no" : "unknown"} FLOPs`
                : `${format.intensity(10 ** mark.x)}, ${format.flopRate(10 ** mark.y)}`,
        );
        const share = rows.get("pct_roofline", mark.row),
            l2 = rows.get("pct_peak_l2", mark.row);
        if (format.known(l2)) {
            const rate = format.byteRate(rows.get("l2_gbytes_per_s", mark.row) * 1e9);
            texts.push(`${rate} from the L2, ${format.percent(l2)} of its peak`);
        }
        texts.push(
            `${format.known(share) ? `${format.percent(share)} of the roofline, ` : ""}` +
                `${mark.bound === "unknown" ? "bound unknown" : `${mark.bound}-bound`}` +
                `${rows.get("unit", mark.row) ? `, ${rows.get("unit", mark.row)}` : ""}`,
        );
        return texts;
    }

    hover(mark, event) {
        const el = flopscope.element,
            [name, ...others] = this.facts(mark);
        this.tip.replaceChildren(
            el("b", { text: name.slice(0, 300) }),
            ...others.map((text) => el("span", { text: text.slice(0, 300) })),
        );
        this.tip.hidden = false;
        const box = this.element.getBoundingClientRect(),
            picture = this.plot.getBoundingClientRect();
        const x = event ? event.clientX - box.left : this.x(mark.x) + picture.left - box.left,
            y = event ? event.clientY - box.top : this.y(mark.y) + picture.top - box.top;
        this.tip.style.left = `${Math.max(Math.min(x + 14, box.width - this.tip.offsetWidth - 4), 0)}px`;
        this.tip.style.top = `${y + 18}px`;
    }

    markSelected() {
        if (!this.marks.length) return;
        const mark = this.shown && this.shown.find((one) => one.row === this.page.selected);
        this.ring.setAttribute(
            "d",
            mark ? this.shape(mark.bound, this.x(mark.x), this.y(mark.y), mark.radius + 4) : "",
        );
        this.picture.classList.toggle("has-selected", Boolean(mark));
        for (const one of this.marks) if (one.node) one.node.classList.toggle("selected", one === mark);
    }

    at(event) {
        const box = this.plot.getBoundingClientRect(),
            view = this.view || this.whole,
            { left, right, top, bottom } = this.box;
        return {
            x: view.x0 + ((event.clientX - box.left - left) / (right - left)) * (view.x1 - view.x0),
            y: view.y1 - ((event.clientY - box.top - top) / (bottom - top)) * (view.y1 - view.y0),
        };
    }

    show(view) {
        this.view = view;
        this.render();
    }

    zoom(factor, { x, y }) {
        const { x0, x1, y0, y1 } = this.view || this.whole,
            { whole } = this;
        const view = {
            x0: x - (x - x0) * factor,
            x1: x + (x1 - x) * factor,
            y0: y - (y - y0) * factor,
            y1: y + (y1 - y) * factor,
        };
        const wide = view.x1 - view.x0 >= whole.x1 - whole.x0;
        this.show(wide ? null : view.x1 - view.x0 < 0.05 ? this.view : view);
    }

    press(event) {
        if (event.button !== 0) return;
        const began = { x: event.clientX, y: event.clientY, at: this.at(event) };
        const frame = this.svg("rect", { class: "roofline-choice", width: 0, height: 0 });
        this.picture.append(frame);
        const box = this.plot.getBoundingClientRect();
        const move = (now) => {
            frame.setAttribute("x", Math.min(began.x, now.clientX) - box.left);
            frame.setAttribute("y", Math.min(began.y, now.clientY) - box.top);
            frame.setAttribute("width", Math.abs(now.clientX - began.x));
            frame.setAttribute("height", Math.abs(now.clientY - began.y));
        };
        const end = (now) => {
            window.removeEventListener("pointermove", move);
            window.removeEventListener("pointerup", end);
            frame.remove();
            if (Math.hypot(now.clientX - began.x, now.clientY - began.y) < 6) {
                const mark = this.shown.find((one) => one.node === event.target);
                this.page.select(mark ? mark.row : null, { source: "roofline" });
                return;
            }
            const a = began.at,
                b = this.at(now);
            const view = {
                x0: Math.min(a.x, b.x),
                x1: Math.max(a.x, b.x),
                y0: Math.min(a.y, b.y),
                y1: Math.max(a.y, b.y),
            };
            if (view.x1 - view.x0 > 0.02 && view.y1 - view.y0 > 0.02) this.show(view);
        };
        window.addEventListener("pointermove", move);
        window.addEventListener("pointerup", end);
    }

    key(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const middle = () => {
            const { x0, x1, y0, y1 } = this.view || this.whole;
            return { x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
        };
        const step = (by) => {
            if (!this.shown.length) return;
            this.current = Math.max(this.current + by, 0) % this.shown.length;
            const mark = this.shown[this.current];
            this.cursor.setAttribute("d", this.shape("memory", this.x(mark.x), this.y(mark.y), mark.radius + 8));
            this.hover(mark, null);
            flopscope.announce(this.facts(mark).join(", "));
        };
        const actions = {
            ArrowRight: () => step(1),
            ArrowLeft: () => step(-1),
            "+": () => this.zoom(1 / 1.3, middle()),
            "=": () => this.zoom(1 / 1.3, middle()),
            "-": () => this.zoom(1.3, middle()),
            0: () => this.show(null),
            Enter: () => {
                if (this.shown[this.current]) this.page.select(this.shown[this.current].row, { source: "roofline" });
            },
        };
        if (!actions[event.key]) return;
        event.preventDefault();
        actions[event.key]();
    }
};

flopscope.section("roofline", {
    title: "Roofline",
    async mount(element, data, page) {
        const columns = await Promise.all(
            data.devices.map((device) => Promise.all([page.column(device.rows), page.column(device.times)])),
        );
        element.classList.add("roofline");
        flopscope.rooflineView = new flopscope.Roofline(element, data, page, columns);
    },
});
