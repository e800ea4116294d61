/* The section Memory: allocated and reserved over time, the peak, and who allocates and holds it. */
"use strict";

flopscope.MemoryCurve = class {
    constructor(device, columns, page) {
        Object.assign(this, { device, page, ...columns });
        const { time } = this;
        for (let i = 1; i < time.length; i++) time[i] += time[i - 1];
        const last = time[time.length - 1],
            margin = Math.max((last - time[0]) * 0.01, 500);
        this.whole = { from: time[0] - margin, to: last + margin };
        this.view = { ...this.whole };
        this.hasReserved = this.showsReserved = this.reserved.some((value) => value >= 0);
        this.draw = flopscope.perFrame(() => this.paint());
        this.build();
    }

    build() {
        const el = flopscope.element;
        this.canvas = el("canvas", { class: "memory-canvas" });
        this.plot = el(
            "div",
            {
                class: "memory-plot",
                tabindex: "0",
                role: "application",
                "aria-label": `Memory of ${this.device.name} over time. W and S zoom, A and D move, 0 shows all.`,
            },
            this.canvas,
        );
        this.tip = el("div", { class: "timeline-tip", hidden: true });
        this.element = el("div", { class: "memory-curve" }, this.plot, this.tip);
        this.plot.addEventListener("pointermove", (event) => this.point(event));
        this.plot.addEventListener("pointerleave", () => {
            this.tip.hidden = true;
            this.cursor = -1;
            this.draw();
        });
        this.plot.addEventListener("pointerdown", (event) => this.press(event));
        this.plot.addEventListener("dblclick", () => this.show(this.whole));
        this.plot.addEventListener(
            "wheel",
            (event) => {
                if (!event.ctrlKey && !event.metaKey) return;
                event.preventDefault();
                this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 160), this.timeAt(event));
            },
            { passive: false },
        );
        this.plot.addEventListener("keydown", (event) => this.key(event));
        this.cursor = -1;
        new ResizeObserver(() => this.draw()).observe(this.plot);
        flopscope.onTheme(() => this.paint()); // at once: the page may be about to be printed
        const size = (width) => {
            this.element.style.width = width;
            this.paint();
        };
        flopscope.onPrint(
            () => size(`${flopscope.PAPER}px`),
            () => size(""),
        );
    }

    /* A button that hides what is reserved, and shows what is allocated on the whole height. */
    reservedButton() {
        const button = flopscope.element(
            "button",
            {
                type: "button",
                class: "roofline-key",
                "aria-pressed": "true",
                title: "Show or hide what is reserved",
                on: {
                    click: () => {
                        this.showsReserved = !this.showsReserved;
                        button.setAttribute("aria-pressed", String(this.showsReserved));
                        this.draw();
                    },
                },
            },
            flopscope.element("i", { class: "memory-line reserved" }),
            "reserved",
        );
        return button;
    }

    show({ from, to }) {
        const size = Math.min(Math.max(to - from, 100), this.whole.to - this.whole.from);
        const begin = Math.min(Math.max((from + to - size) / 2, this.whole.from), this.whole.to - size);
        this.view = { from: begin, to: begin + size };
        this.draw();
    }

    zoom(factor, around) {
        const { from, to } = this.view,
            still = around === undefined ? (from + to) / 2 : around;
        this.show({ from: still - (still - from) * factor, to: still + (to - still) * factor });
    }

    key(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const pan = (share) => {
            const shift = share * (this.view.to - this.view.from);
            this.show({ from: this.view.from + shift, to: this.view.to + shift });
        };
        const actions = {
            w: () => this.zoom(1 / 1.4),
            s: () => this.zoom(1.4),
            a: () => pan(-0.15),
            d: () => pan(0.15),
            ArrowLeft: () => pan(-0.15),
            ArrowRight: () => pan(0.15),
            "+": () => this.zoom(1 / 1.4),
            "=": () => this.zoom(1 / 1.4),
            "-": () => this.zoom(1.4),
            0: () => this.show(this.whole),
        };
        const action = actions[event.key] || actions[event.key.toLowerCase()];
        if (!action) return;
        event.preventDefault();
        action();
    }

    /* The first point after a time. */
    after(time) {
        let low = 0,
            high = this.time.length;
        while (low < high) {
            const middle = (low + high) >>> 1;
            if (this.time[middle] <= time) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    timeAt(event) {
        const box = this.plot.getBoundingClientRect();
        return (
            this.view.from +
            ((event.clientX - box.left - this.left) / (this.right - this.left)) * (this.view.to - this.view.from)
        );
    }

    paint() {
        const ratio = Math.min(window.devicePixelRatio || 1, 3),
            width = Math.max(this.plot.clientWidth, 200),
            height = 240;
        const { canvas } = this,
            { mix, css, named } = flopscope.colors,
            { format } = flopscope;
        if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
            canvas.width = Math.round(width * ratio);
            canvas.height = Math.round(height * ratio);
            canvas.style.width = `${width}px`;
            canvas.style.height = `${height}px`;
        }
        const paper = named("paper"),
            ink = named("text"),
            blue = named("series-1"),
            grey = mix(paper, ink, 0.45);
        const context = canvas.getContext("2d", { alpha: false });
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.fillStyle = css(paper);
        context.fillRect(0, 0, width, height);
        this.left = 76;
        this.right = width - 10;
        const top = 12,
            bottom = height - 26,
            { from, to } = this.view;
        const most =
            Math.max(this.device.peak.allocated, (this.showsReserved && this.device.peak_reserved) || 0, 1) * 1.06;
        const x = (time) => this.left + ((time - from) / (to - from)) * (this.right - this.left),
            y = (bytes) => bottom - (bytes / most) * (bottom - top);
        context.font = "11.5px system-ui, sans-serif";
        context.textBaseline = "middle";
        context.textAlign = "right";
        const unit = 1024 ** Math.floor(Math.log(most) / Math.log(1024)),
            step = flopscope.timeAxis.roundStep(most / unit / 5) * unit;
        for (let value = 0; value <= most; value += step) {
            context.fillStyle = css(mix(paper, ink, 0.1));
            context.fillRect(this.left, Math.round(y(value)), this.right - this.left, 1);
            context.fillStyle = css(mix(paper, ink, 0.7));
            context.fillText(value === 0 ? "0" : format.bytes(value), this.left - 8, y(value));
        }
        context.textAlign = "left";
        for (const tick of flopscope.timeAxis.ticks(from, to, (110 * (to - from)) / (this.right - this.left))) {
            context.fillStyle = css(mix(paper, ink, 0.1));
            context.fillRect(Math.round(x(tick.time)), top, 1, bottom - top);
            context.fillStyle = css(mix(paper, ink, 0.7));
            const fits = x(tick.time) + 3 + context.measureText(tick.text).width < width;
            context.textAlign = fits ? "left" : "right"; // whole at the right edge, too
            context.fillText(tick.text, x(tick.time) + (fits ? 3 : -3), bottom + 12);
        }
        context.save();
        context.beginPath();
        context.rect(this.left, 0, this.right - this.left, height);
        context.clip();
        this.trace(context, this.allocated, x, y, ratio, (path) => {
            const area = new Path2D(path);
            area.lineTo(this.edge, y(0));
            area.lineTo(x(Math.max(this.time[0], from)), y(0));
            context.globalAlpha = 0.18;
            context.fillStyle = css(blue);
            context.fill(area);
            context.globalAlpha = 1;
            context.strokeStyle = css(blue);
            context.lineWidth = 1.4;
            context.stroke(path);
        });
        if (this.showsReserved) {
            this.trace(context, this.reserved, x, y, ratio, (path) => {
                context.setLineDash([6, 3]);
                context.strokeStyle = css(grey);
                context.lineWidth = 1.4;
                context.stroke(path);
                context.setLineDash([]);
            });
        }
        this.paintPeak(context, x, y, ink, paper);
        if (this.cursor >= 0) {
            context.fillStyle = css(ink);
            context.fillRect(Math.round(x(this.time[this.cursor])), top, 1, bottom - top);
        }
        if (this.choice) {
            context.globalAlpha = 0.12;
            context.fillStyle = css(ink);
            context.fillRect(x(this.choice.from), top, x(this.choice.to) - x(this.choice.from), bottom - top);
            context.globalAlpha = 1;
        }
        context.restore();
    }

    /* A curve of steps: within each pixel from its first value over the least and the largest to the last. */
    trace(context, values, x, y, ratio, stroke) {
        const { time } = this,
            { from, to } = this.view,
            path = new Path2D();
        let i = Math.max(this.after(from) - 1, 0),
            before = values[i],
            begun = false;
        const end = Math.min(this.after(to) + 1, time.length);
        for (; i < end;) {
            const at = Math.round(x(time[i]) * ratio);
            let low = Infinity,
                high = -Infinity,
                last = values[i];
            for (; i < end && Math.round(x(time[i]) * ratio) === at; i++) {
                if (values[i] < low) low = values[i];
                if (values[i] > high) high = values[i];
                last = values[i];
            }
            if (!Number.isFinite(last)) continue;
            const place = at / ratio;
            if (begun) path.lineTo(place, y(before));
            else path.moveTo(place, y(last));
            begun = true;
            if (high > low) {
                path.lineTo(place, y(low));
                path.lineTo(place, y(high));
            }
            path.lineTo(place, y(last));
            before = last;
        }
        if (!begun) return;
        this.edge = end === time.length ? x(time[time.length - 1]) : this.right;
        path.lineTo(this.edge, y(before));
        stroke(path);
    }

    paintPeak(context, x, y, ink, paper) {
        const { peak } = this.device,
            { css } = flopscope.colors,
            place = x(peak.time),
            high = y(peak.allocated);
        if (place < this.left || place > this.right) return;
        const name = peak.row >= 0 && this.page.rows ? this.page.rows.get("key", peak.row) : "";
        const text =
            `peak ${flopscope.format.bytes(peak.allocated)}` +
            `${name ? `, ${name.length > 40 ? `${name.slice(0, 39)}…` : name}` : ""}`;
        context.font = "600 11.5px system-ui, sans-serif";
        const wide = context.measureText(text).width,
            left = place + wide + 14 > this.right;
        const edge = left && place - 8 - wide < this.left; // it fits on neither side
        context.strokeStyle = css(paper);
        context.lineWidth = 3;
        context.textAlign = left && !edge ? "right" : "left";
        const below = high < 24 ? high + 14 : high - 9,
            at = edge ? this.left + 4 : place + (left ? -8 : 8);
        const room = this.right - this.left - 8;
        context.strokeText(text, at, below, room);
        context.fillStyle = css(ink);
        context.fillText(text, at, below, room);
        context.beginPath();
        context.arc(place, high, 4, 0, 2 * Math.PI);
        context.fill();
    }

    point(event) {
        if (event.buttons) return;
        const at = this.after(this.timeAt(event)) - 1,
            el = flopscope.element,
            { format } = flopscope;
        this.cursor = at;
        this.tip.hidden = at < 0;
        this.draw();
        if (at < 0) return;
        const row = this.row[at],
            lines = [`${format.bytes(this.allocated[at])} allocated`];
        if (this.reserved[at] >= 0) lines.push(`${format.bytes(this.reserved[at])} reserved`);
        if (at > 0) {
            lines.push(
                `${this.allocated[at] >= this.allocated[at - 1] ? "+" : "−"}` +
                    `${format.bytes(Math.abs(this.allocated[at] - this.allocated[at - 1]))} at ` +
                    `${flopscope.timeAxis.text(this.time[at])}`,
            );
        }
        if (row >= 0 && this.page.rows) lines.push(`in ${(this.page.rows.get("key", row) || "").slice(0, 200)}`);
        this.tip.replaceChildren(el("b", { text: lines[0] }), ...lines.slice(1).map((text) => el("span", { text })));
        const box = this.element.getBoundingClientRect();
        this.tip.style.left =
            `${Math.max(Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 4), 0)}` + `px`;
        this.tip.style.top = `${event.clientY - box.top + 16}px`;
    }

    press(event) {
        if (event.button !== 0) return;
        const began = this.timeAt(event),
            x = event.clientX;
        const move = (now) => {
            const time = this.timeAt(now);
            this.choice =
                Math.abs(now.clientX - x) < 5 ? null : { from: Math.min(began, time), to: Math.max(began, time) };
            this.draw();
        };
        const end = (now) => {
            window.removeEventListener("pointermove", move);
            window.removeEventListener("pointerup", end);
            move(now);
            if (this.choice) this.show(this.choice);
            else {
                const at = this.after(began) - 1;
                if (at >= 0 && this.row[at] >= 0) this.page.select(this.row[at], { source: "memory" });
            }
            this.choice = null;
            this.draw();
        };
        window.addEventListener("pointermove", move);
        window.addEventListener("pointerup", end);
    }
};

flopscope.section("memory", {
    title: "Memory",
    async mount(element, data, page) {
        const el = flopscope.element,
            { format, draw } = flopscope;
        element.classList.add("memory");
        const load = async (from, names) =>
            Object.fromEntries(
                await Promise.all(
                    names.filter((name) => from[name]).map(async (name) => [name, await page.column(from[name])]),
                ),
            );
        flopscope.memoryCurves = [];
        for (const device of data.devices) {
            const columns = await load(device.curve, ["time", "allocated", "reserved", "row"]);
            columns.time = Float64Array.from(columns.time);
            const curve = new flopscope.MemoryCurve(device, columns, page),
                rows = await load(device, ["rows", "allocated", "freed", "allocations", "held"]);
            flopscope.memoryCurves.push(curve);
            const model = device.model >= 0 ? page.strings[device.model] : "";
            const tiles = [
                draw.tile(
                    "Peak allocated",
                    format.bytes(device.peak.allocated),
                    "The most that was allocated at one time.",
                ),
                draw.tile(
                    "Peak reserved",
                    format.bytes(device.peak_reserved),
                    device.peak_reserved === null
                        ? "Not recorded."
                        : "The most that the allocator held, in use or not.",
                ),
                draw.tile("At the beginning", format.bytes(device.first), "After the first recorded change."),
                draw.tile("At the end", format.bytes(device.last), "After the last recorded change."),
                draw.tile("Changes", format.count(device.changes), "Allocations and frees."),
            ];
            element.append(
                draw.heading(
                    [device.name, model].filter(Boolean).join(" · "),
                    device.recorded
                        ? "as the allocator recorded it"
                        : "sums of the recorded changes: what was allocated before them is unknown and counts " +
                              "as the least that is possible",
                ),
                el("div", { class: "tiles" }, tiles),
                curve.element,
                el(
                    "p",
                    { class: "note memory-key" },
                    el("i", { class: "memory-line" }),
                    " allocated ",
                    curve.hasReserved ? curve.reservedButton() : "· reserved was not recorded ",
                    "· drag zooms to a part of the time, Ctrl + wheel or W and S zoom, a double click shows all",
                ),
                device.curve.left_out
                    ? el("p", {
                          class: "note",
                          text:
                              `Of ${format.count(device.changes)} changes, the least and the largest of each ` +
                              `part of the time are drawn.`,
                      })
                    : "",
                flopscope.memoryTables(device, rows, page),
            );
        }
        if (data.unplaced) {
            element.append(
                el("p", {
                    class: "notice",
                    text:
                        `${format.plural(data.unplaced, "change")} of memory without a time ` +
                        `${data.unplaced === 1 ? "is" : "are"} left out.`,
                }),
            );
        }
    },
});
