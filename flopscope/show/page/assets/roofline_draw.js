/* What the roofline draws: axes, roofs, marks, their names and the legend. */
"use strict";

Object.assign(flopscope.Roofline.prototype, {
    svg(tag, attributes, ...children) {
        const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [name, value] of Object.entries(attributes || {})) {
            if (value !== undefined) node.setAttribute(name, value);
        }
        node.append(...children);
        return node;
    },

    /* The outline of a mark; each bound has a shape of its own, all of about the same area. */
    shape(bound, x, y, r) {
        const corners = flopscope.page.data.outlines[bound];
        if (!corners.length) return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
        return `M${corners.map(([a, b]) => `${(x + r * a).toFixed(1)} ${(y + r * b).toFixed(1)}`).join("L")}Z`;
    },

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
    },

    grid(view) {
        const { svg } = this,
            { left, right, top, bottom } = this.box,
            group = svg("g", { class: "roofline-grid" });
        const scale = this.whole.y1 < 12.3 ? [9, "GFLOP/s"] : [12, "TFLOP/s"];
        const text = (power, digit) =>
            power >= -3 && power <= 5
                ? power < 0
                    ? (digit * 10 ** power).toFixed(-power)
                    : (digit * 10 ** power).toLocaleString("en-US")
                : `${digit}e${power}`;
        const ticks = (low, high, draw) => {
            const many = high - low > 1.2;
            for (let power = Math.floor(low); power <= high; power++) {
                for (let digit = 1; digit < 10; digit++) {
                    const at = power + Math.log10(digit);
                    if (at >= low && at <= high) {
                        draw(
                            at,
                            digit === 1,
                            digit === 1 || (!many && (digit === 2 || digit === 5)) ? (p) => text(p, digit) : null,
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
    },

    text(content, x, y, anchor, name) {
        const node = this.svg("text", { x, y, "text-anchor": anchor, class: name });
        node.textContent = content;
        return node;
    },

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
        for (const [source, rate] of own.slopes.flatMap((slope) => Object.entries(slope.rates))) {
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
        for (const slope of own.slopes) this.nameSlope(texts, view, slope, highest);
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
    },

    /* The text of a sloped roof, along its upper line where it is in view. */
    nameSlope(texts, view, { label, rates }, highest) {
        const [source, rate] = Object.entries(rates).reduce((a, b) => (b[1] > a[1] ? b : a)),
            { left, right, top, bottom } = this.box;
        const slope = Math.log10(rate),
            end = Math.min(highest[source] ? Math.log10(highest[source] / rate) : view.x1, view.x1, view.y1 - slope);
        const begin = Math.max(view.x0, view.y0 - slope);
        if (end <= begin) return;
        const angle = Math.atan2(this.y(end + slope) - this.y(begin + slope), this.x(end) - this.x(begin));
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
    },

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
    },

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
    },

    sayLegend() {
        const el = flopscope.element,
            present = [...new Set(this.marks.map((mark) => mark.bound))];
        const order = Object.keys(flopscope.page.bounds);
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
    },
});
