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
        this.reset = el("button", {
            type: "button",
            class: "button",
            text: "Whole",
            title: "Show all marks (0)",
            hidden: true,
            on: { click: () => this.show(null) },
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
        const moving = this.marks.filter((mark) => rows.get("flops", mark.row) === 0);
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
        if (!own.roofs.length && !own.memory) lines.push("No roofs: the peaks are unknown.");
        if (this.strip) {
            lines.push(
                "Rows in the strip at the left move data and do no FLOPs: their distance to the memory roof " +
                    "is that of their bandwidth.",
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

    /* Drawing ------------------------------------------------------------------------------------------------------ */

    svg(tag, attributes, ...children) {
        const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [name, value] of Object.entries(attributes || {})) {
            if (value !== undefined) node.setAttribute(name, value);
        }
        node.append(...children);
        return node;
    }

    /* The outline of a mark; each bound has a shape of its own, all of the same area. */
    shape(bound, x, y, r) {
        const s = r * 0.886,
            t = r * 1.3;
        const path = (...points) =>
            `M${points.map(([a, b]) => `${(x + a).toFixed(1)} ${(y + b).toFixed(1)}`).join("L")}Z`;
        if (bound === "compute") return path([-s, -s], [s, -s], [s, s], [-s, s]);
        if (bound === "cache") return path([0, -t], [t, 0], [0, t], [-t, 0]);
        if (bound === "launch") return path([0, -t], [t * 1.1, t * 0.75], [-t * 1.1, t * 0.75]);
        if (bound === "inefficient") return path([-t, 0], [t * 0.75, t * 1.1], [t * 0.75, -t * 1.1]);
        if (bound === "latency") return path([0, t], [t * 1.1, -t * 0.75], [-t * 1.1, -t * 0.75]);
        if (bound === "memory") return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
        const a = t * 0.35,
            b = t;
        return path(
            [-a, -b],
            [a, -b],
            [a, -a],
            [b, -a],
            [b, a],
            [a, a],
            [a, b],
            [-a, b],
            [-a, a],
            [-b, a],
            [-b, -a],
            [-a, -a],
        );
    }

    render() {
        const { svg } = flopscope.Roofline.prototype;
        if (!this.marks.length) {
            this.plot.replaceChildren();
            this.legend.replaceChildren();
            this.shown = [];
            return;
        }
        this.width = Math.max(this.plot.clientWidth, 360);
        this.height = Math.round(Math.min(Math.max(this.width * 0.46, 340), 560));
        this.box = { left: 62, right: this.width - 12, top: 10, bottom: this.height - 44 };
        const view = this.view || this.whole,
            { left, right, top, bottom } = this.box;
        this.x = (value) => left + ((value - view.x0) / (view.x1 - view.x0)) * (right - left);
        this.y = (value) => bottom - ((value - view.y0) / (view.y1 - view.y0)) * (bottom - top);
        this.reset.hidden = !this.view;
        const inside = svg("g", { "clip-path": "url(#roofline-clip)" });
        this.picture = svg(
            "svg",
            {
                width: this.width,
                height: this.height,
                viewBox: `0 0 ${this.width} ${this.height}`,
                role: "img",
                "aria-label": `${this.marks.length} ops by arithmetic intensity and rate`,
            },
            svg(
                "defs",
                {},
                svg(
                    "clipPath",
                    { id: "roofline-clip" },
                    svg("rect", { x: left, y: top, width: right - left, height: bottom - top }),
                ),
            ),
            this.grid(view),
            inside,
        );
        this.taken = [];
        const roofLabels = this.drawRoofs(inside, view);
        const shown = this.marks.filter((mark) => this.passes(mark));
        this.shown = shown.filter(
            (mark) => mark.x >= view.x0 && mark.x <= view.x1 && mark.y >= view.y0 && mark.y <= view.y1,
        );
        for (const mark of [...this.shown].sort((a, b) => b.radius - a.radius)) inside.append(this.drawMark(mark));
        inside.append(roofLabels, this.drawNames());
        this.ring = svg("path", { class: "roofline-ring", d: "" });
        this.cursor = svg("path", { class: "roofline-cursor", d: "" });
        inside.append(this.ring, this.cursor);
        this.plot.replaceChildren(this.picture);
        this.sayLegend();
        this.markSelected();
    }

    grid(view) {
        const { svg } = this,
            { left, right, top, bottom } = this.box,
            group = svg("g", { class: "roofline-grid" });
        const scale = this.whole.y1 < 12.3 ? [9, "GFLOP/s"] : [12, "TFLOP/s"];
        const text = (power) =>
            power >= -3 && power <= 5
                ? power < 0
                    ? (10 ** power).toFixed(-power)
                    : (10 ** power).toLocaleString("en-US")
                : `1e${power}`;
        const ticks = (low, high, draw) => {
            const many = high - low > 1.2;
            for (let power = Math.floor(low); power <= high; power++) {
                for (let digit = 1; digit < 10; digit++) {
                    const at = power + Math.log10(digit);
                    if (at >= low && at <= high) {
                        draw(
                            at,
                            digit === 1,
                            digit === 1
                                ? text
                                : !many && (digit === 2 || digit === 5)
                                  ? (p) => text(p).replace("1", String(digit))
                                  : null,
                            power,
                        );
                    }
                }
            }
        };
        const { strip } = this,
            edge = strip ? this.x(strip.to) : left;
        if (strip && edge > left) {
            group.append(
                svg("rect", {
                    x: left,
                    y: top,
                    width: Math.min(edge, right) - left,
                    height: bottom - top,
                    class: "strip",
                }),
            );
            const middle = Math.max((Math.max(this.x(strip.from), left) + edge) / 2, left + 4);
            group.append(this.text("no FLOPs", middle, bottom + 15, "middle"));
        }
        ticks(view.x0, view.x1, (at, major, label, power) => {
            const x = this.x(at);
            if (x < edge) return;
            group.append(svg("line", { x1: x, x2: x, y1: top, y2: bottom, class: major ? "major" : "minor" }));
            // Whole at the edge
            if (label) group.append(this.text(label(power), Math.min(x, this.width - 18), bottom + 15, "middle"));
        });
        ticks(view.y0, view.y1, (at, major, label, power) => {
            const y = this.y(at);
            group.append(svg("line", { x1: left, x2: right, y1: y, y2: y, class: major ? "major" : "minor" }));
            if (label) group.append(this.text(label(power - scale[0]), left - 7, y + 4, "end"));
        });
        group.append(svg("rect", { x: left, y: top, width: right - left, height: bottom - top, class: "frame" }));
        group.append(
            this.text("arithmetic intensity (FLOP/byte)", (left + right) / 2, this.height - 8, "middle", "title"),
        );
        const name = this.text(`rate (${scale[1]})`, 0, 0, "middle", "title");
        name.setAttribute("transform", `translate(13 ${(top + bottom) / 2}) rotate(-90)`);
        group.append(name);
        return group;
    }

    text(content, x, y, anchor, name) {
        const node = this.svg("text", { x, y, "text-anchor": anchor, class: name });
        node.textContent = content;
        return node;
    }

    /* Roofs, and their texts at the right, apart from each other; returns the texts, which lie above the marks. */
    drawRoofs(inside, view) {
        const { svg, own } = this,
            { right, top, bottom } = this.box,
            texts = svg("g", { class: "roofline-names" });
        const highest = {};
        for (const roof of own.roofs) {
            for (const [source, rate] of Object.entries(roof.rates)) {
                highest[source] = Math.max(highest[source] || 0, rate);
            }
        }
        for (const roof of own.roofs) {
            for (const [source, rate] of Object.entries(roof.rates)) {
                const from = source in roof.ridges ? Math.log10(roof.ridges[source]) : view.x0,
                    y = this.y(Math.log10(rate));
                if (this.x(from) < right) {
                    inside.append(
                        svg("line", {
                            x1: Math.max(this.x(from), -10),
                            x2: right,
                            y1: y,
                            y2: y,
                            class: `roof ${source}`,
                        }),
                    );
                    this.taken.push({ x0: this.x(from), x1: right, y0: y - 1, y1: y + 1 });
                }
            }
        }
        const memory = own.memory ? Object.entries(own.memory.rates) : [];
        for (const [source, rate] of memory) {
            const end = highest[source] ? Math.min(Math.log10(highest[source] / rate), view.x1) : view.x1;
            const at = (x) => [this.x(x), this.y(x + Math.log10(rate))];
            const [x1, y1] = at(view.x0),
                [x2, y2] = at(end);
            inside.append(svg("line", { x1, y1, x2, y2, class: `roof ${source}` }));
            for (let k = 0; k <= 100; k++) {
                const x = x1 + (k / 100) * (x2 - x1),
                    y = y1 + (k / 100) * (y2 - y1),
                    half = (x2 - x1) / 200;
                this.taken.push({ x0: x - half, x1: x + half, y0: y - 2, y1: y + 2 });
            }
        }
        if (memory.length) this.nameSlope(texts, view, memory, highest);
        const levels = own.roofs
            .map((roof) => ({ label: roof.label, y: this.y(Math.log10(Math.max(...Object.values(roof.rates)))) - 5 }))
            .filter((one) => one.y > top && one.y < bottom)
            .sort((a, b) => a.y - b.y);
        let last = -Infinity;
        for (const level of levels) {
            const y = Math.max(level.y, last + 14, top + 11);
            last = y;
            texts.append(this.text(level.label, right - 6, y, "end"));
            this.taken.push({ x0: right - 6 - 6.1 * level.label.length, x1: right, y0: y - 11, y1: y + 3 });
        }
        return texts;
    }

    /* The text of the memory roof, along its upper line where it is in view. */
    nameSlope(texts, view, memory, highest) {
        const [source, rate] = memory.reduce((a, b) => (b[1] > a[1] ? b : a)),
            { left, right, top, bottom } = this.box;
        const slope = Math.log10(rate),
            end = Math.min(highest[source] ? Math.log10(highest[source] / rate) : view.x1, view.x1, view.y1 - slope);
        const begin = Math.max(view.x0, view.y0 - slope);
        if (end <= begin) return;
        const angle = Math.atan2(this.y(end + slope) - this.y(begin + slope), this.x(end) - this.x(begin)),
            label = this.own.memory.label;
        const length = Math.hypot(this.y(end + slope) - this.y(begin + slope), this.x(end) - this.x(begin)),
            wide = 6.1 * label.length + 16;
        if (length < wide) return;
        const share = 0.5 + Math.min(0.25, (length - wide) / length / 2);
        const x = this.x(begin) + (this.x(end) - this.x(begin)) * share,
            y = this.y(begin + slope) + (this.y(end + slope) - this.y(begin + slope)) * share;
        const text = this.text(label, 0, 0, "middle");
        text.setAttribute(
            "transform",
            `translate(${x + 7 * Math.sin(angle)} ${y - 7 * Math.cos(angle)}) rotate(${(angle * 180) / Math.PI})`,
        );
        texts.append(text);
        for (let k = -8; k <= 8; k++) {
            const along = (k / 16) * wide,
                cx = x + along * Math.cos(angle) + 7 * Math.sin(angle),
                cy = y + along * Math.sin(angle) - 7 * Math.cos(angle);
            if (cx > left && cx < right && cy > top && cy < bottom) {
                this.taken.push({ x0: cx - 8, x1: cx + 8, y0: cy - 10, y1: cy + 4 });
            }
        }
    }

    drawMark(mark) {
        const node = this.svg("path", {
            d: this.shape(mark.bound, this.x(mark.x), this.y(mark.y), mark.radius),
            class: `mark bound-${mark.bound}`,
        });
        node.addEventListener("pointerenter", (event) => this.hover(mark, event));
        node.addEventListener("pointerleave", () => {
            this.tip.hidden = true;
        });
        mark.node = node;
        return node;
    }

    drawNames() {
        const group = this.svg("g", { class: "roofline-names" });
        const marks = this.shown.map((mark) => ({
            name: (this.page.rows.get("key", mark.row) || "").replace(/^(aten|flopscope)::/, ""),
            x: this.x(mark.x),
            y: this.y(mark.y),
            radius: mark.radius,
            time: mark.time,
        }));
        for (const { name, box, leader } of flopscope.rooflineNames.place(marks, this.taken, this.box)) {
            if (leader) group.append(this.svg("line", leader));
            group.append(this.text(name, box.x0 + 1, box.y1 - 3, "start"));
        }
        return group;
    }

    sayLegend() {
        const el = flopscope.element,
            present = [...new Set(this.marks.map((mark) => mark.bound))];
        const order = flopscope.timelineColors.BOUNDS;
        this.legend.replaceChildren(
            ...order
                .filter((bound) => present.includes(bound))
                .map((bound) => {
                    const icon = this.svg(
                        "svg",
                        { width: 16, height: 16, "aria-hidden": "true" },
                        this.svg("path", { d: this.shape(bound, 8, 8, 5), class: `mark bound-${bound}` }),
                    );
                    return el(
                        "button",
                        {
                            type: "button",
                            class: "roofline-key",
                            "aria-pressed": String(!this.hidden.has(bound)),
                            title: `${bound}: ${flopscope.page.bounds[bound]}. Shows or hides these ops`,
                            on: {
                                click: () => {
                                    if (!this.hidden.delete(bound)) this.hidden.add(bound);
                                    this.render();
                                    this.legend
                                        .querySelectorAll("button")
                                        [order.filter((one) => present.includes(one)).indexOf(bound)].focus();
                                },
                            },
                        },
                        icon,
                        bound === "unknown" ? "bound unknown" : bound,
                    );
                }),
        );
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
                ? `${format.byteRate(mark.rate)}, no FLOPs`
                : `${format.intensity(10 ** mark.x)}, ${format.flopRate(10 ** mark.y)}`,
        );
        const share = rows.get("pct_roofline", mark.row);
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
