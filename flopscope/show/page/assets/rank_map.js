/* The heat map of ranks and steps, with bars of how long each waited. It is drawn from columns, so that thousands of
   ranks are as quick as eight. */
"use strict";

{
    const el = (...parts) => flopscope.element(...parts);
    const RAMP = ["#00224e", "#233d6e", "#4b5a74", "#6f737a", "#96907a", "#c0ae6b", "#fee838"]; // cividis
    const LEFT = 76; // px for the names of the steps
    const RIGHT = 16;
    const GAP = 26;
    const STRIP = 54; // px of a strip of bars
    const AXIS = 34;
    const TOP = 8;

    const colours = RAMP.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));

    function colourOf(share) {
        const place = Math.max(0, Math.min(share, 1)) * (colours.length - 1);
        const below = Math.min(Math.floor(place), colours.length - 2);
        return colours[below].map((one, k) => Math.round(one + (colours[below + 1][k] - one) * (place - below)));
    }

    /* The least and the largest of the known values. */
    const limits = (values) => {
        let [low, high] = [Infinity, -Infinity];
        for (const value of values) {
            if (value < low) low = value;
            if (value > high) high = value;
        }
        return low <= high ? [low, high] : [0, 0];
    };

    /* The heat map and the bars below it, on one canvas: a column of px shows the largest of the ranks in it.
       ``choose`` is called with the place of a rank that is clicked. */
    flopscope.RankMap = class {
        static limits = limits;

        constructor(parent, facts, metric, choose) {
            this.facts = facts;
            this.choose = choose;
            this.at = [0, 0]; // place of the rank, and step
            this.chosen = -1;
            this.metric = "total";
            this.canvas = el("canvas", { tabindex: "0", role: "img" });
            this.tip = el("div", { class: "tip", hidden: true });
            this.box = el("div", { class: "chart heat" }, this.canvas, this.tip);
            this.scale = el("div", { class: "ramp" });
            parent.append(this.scale, this.box);
            this.listen();
            new ResizeObserver(() => this.draw()).observe(this.box);
            flopscope.onTheme(() => this.draw());
            this.show(metric);
        }

        show(metric) {
            this.metric = metric;
            this.cells = this.facts.cells[metric];
            [this.low, this.high] = limits(this.cells);
            const { format } = flopscope;
            const ramp = el("canvas", { width: 200, height: 10, "aria-hidden": "true" });
            const context = ramp.getContext("2d");
            for (let x = 0; x < 200; x++) {
                context.fillStyle = `rgb(${colourOf(x / 199).join(",")})`;
                context.fillRect(x, 0, 1, 10);
            }
            const ends = [this.low, this.high].map(format.time);
            this.scale.replaceChildren(el("span", { text: ends[0] }), ramp, el("span", { text: ends[1] }));
            const size = `${this.facts.count} ranks and ${format.plural(this.facts.steps, "step")}`;
            this.canvas.setAttribute(
                "aria-label",
                `${this.facts.label(metric)} of ${size}, from ${ends[0]} to ${ends[1]}. ` +
                    "Arrow keys move, Enter chooses a rank.",
            );
            this.draw();
        }

        layout() {
            const width = Math.max(this.box.clientWidth, 240);
            const { steps, count } = this.facts;
            const line = Math.max(2, Math.min(24, Math.floor(300 / steps)));
            const rows = Math.min(steps, Math.floor(320 / line));
            const height = TOP + rows * line + this.facts.strips.length * (STRIP + GAP) + AXIS;
            return { width, height, line, rows, right: width - RIGHT, perRank: (width - LEFT - RIGHT) / count };
        }

        /* The largest known value of some ranks and steps. */
        largest(from, to, first, last) {
            let most = NaN;
            for (let rank = from; rank < to; rank++) {
                for (let step = first; step < last; step++) {
                    const value = this.cells[rank * this.facts.steps + step];
                    if (!(value <= most)) most = Number.isNaN(value) ? most : value;
                }
            }
            return most;
        }

        /* Draw all: what stays the same while the pointer moves on a canvas of its own. */
        draw() {
            const { facts } = this;
            const area = this.layout();
            this.area = area;
            this.ratio = window.devicePixelRatio || 1;
            this.still = document.createElement("canvas");
            for (const canvas of [this.canvas, this.still]) {
                canvas.width = Math.round(area.width * this.ratio);
                canvas.height = Math.round(area.height * this.ratio);
            }
            this.canvas.style.width = `${area.width}px`;
            this.canvas.style.height = `${area.height}px`;
            const context = this.still.getContext("2d");
            context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
            context.font = "12px system-ui, sans-serif";
            this.drawCells(context, area);
            let y = TOP + area.rows * area.line + GAP;
            for (const strip of facts.strips) {
                this.drawStrip(context, area, strip, y);
                y += STRIP + GAP;
            }
            this.drawAxis(context, area, y - GAP + 4);
            this.mark();
        }

        /* Draw the marks of the rank that is chosen and of the cell that is pointed at above the rest. */
        mark() {
            const context = this.canvas.getContext("2d");
            context.setTransform(1, 0, 0, 1, 0, 0);
            context.clearRect(0, 0, this.canvas.width, this.canvas.height);
            context.drawImage(this.still, 0, 0);
            context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
            this.drawMarks(context, this.area);
        }

        columnsOf(area) {
            const { count } = this.facts;
            const columns = Math.min(count, Math.floor(area.right - LEFT));
            const wide = (area.right - LEFT) / columns;
            return { columns, from: (k) => Math.floor((k * count) / columns), x: (k) => LEFT + k * wide };
        }

        drawCells(context, area) {
            const { steps } = this.facts;
            const { columns, from, x } = this.columnsOf(area);
            const span = this.high - this.low || 1;
            const unknown = flopscope.color("sunken");
            const gap = area.perRank > 8 ? 1 : 0;
            for (let row = 0; row < area.rows; row++) {
                const [first, last] = [
                    Math.floor((row * steps) / area.rows),
                    Math.floor(((row + 1) * steps) / area.rows),
                ];
                for (let k = 0; k < columns; k++) {
                    const value = this.largest(from(k), from(k + 1), first, last);
                    context.fillStyle = Number.isNaN(value)
                        ? unknown
                        : `rgb(${colourOf((value - this.low) / span).join(",")})`;
                    const wide = Math.max(x(k + 1) - x(k) - gap, 0.75);
                    context.fillRect(
                        x(k),
                        TOP + row * area.line,
                        wide,
                        Math.max(area.line - (area.line > 6 ? 1 : 0), 1),
                    );
                }
            }
            context.fillStyle = flopscope.color("text-soft");
            context.textAlign = "right";
            context.textBaseline = "middle";
            const every = Math.ceil(15 / area.line) || 1;
            for (let row = 0; row < area.rows; row += every) {
                const name = (this.facts.stepNames[Math.floor((row * steps) / area.rows)] || "all").replace(
                    /^ProfilerStep#/,
                    "step ",
                );
                const text = name.length > 10 ? `…${name.slice(-9)}` : name;
                context.fillText(text, LEFT - 8, TOP + row * area.line + area.line / 2, LEFT - 12);
            }
        }

        drawStrip(context, area, strip, top) {
            const { columns, from, x } = this.columnsOf(area);
            const most = limits(strip.values)[1];
            const bottom = top + STRIP;
            context.textAlign = "left";
            context.textBaseline = "alphabetic";
            context.fillStyle = flopscope.color("text-soft");
            context.fillText(`${strip.title}: at most ${flopscope.format.time(most)}`, LEFT, top - 5);
            context.fillStyle = flopscope.color(strip.colour);
            for (let k = 0; k < columns && most > 0; k++) {
                let value = 0;
                for (let rank = from(k); rank < from(k + 1); rank++) value = Math.max(value, strip.values[rank] || 0);
                const high = (value / most) * STRIP;
                context.fillRect(
                    x(k),
                    bottom - high,
                    Math.max(x(k + 1) - x(k) - (area.perRank > 8 ? 1 : 0), 0.75),
                    high,
                );
            }
            context.fillStyle = flopscope.color("line-strong");
            context.fillRect(LEFT, bottom, area.right - LEFT, 1);
        }

        drawAxis(context, area, top) {
            const { count } = this.facts;
            context.fillStyle = flopscope.color("text-soft");
            context.textBaseline = "top";
            context.textAlign = "center";
            let every = 1;
            while (every * area.perRank < 44) every *= 2;
            for (let place = 0; place < count; place += every) {
                context.fillText(String(this.facts.rank[place]), LEFT + (place + 0.5) * area.perRank, top);
            }
            context.textAlign = "right";
            context.fillText("rank", LEFT - 8, top);
        }

        drawMarks(context, area) {
            const wide = Math.max(area.perRank, 2) + 1;
            if (this.chosen >= 0) {
                context.strokeStyle = flopscope.color("accent");
                context.lineWidth = 2;
                const x = LEFT + this.chosen * area.perRank - 1;
                const cells = area.rows * area.line;
                context.strokeRect(x, TOP - 1, wide, cells + 1);
                this.facts.strips.forEach((_, i) =>
                    context.strokeRect(x, TOP + cells + GAP + i * (STRIP + GAP) - 1, wide, STRIP + 1),
                );
            }
            if (this.pointed) {
                const [place, step] = this.at;
                context.strokeStyle = flopscope.color("text");
                context.lineWidth = 1.5;
                const row = Math.floor((step * area.rows) / this.facts.steps);
                context.strokeRect(LEFT + place * area.perRank - 1, TOP + row * area.line - 1, wide, area.line + 1);
            }
        }

        text() {
            const [place, step] = this.at;
            const { facts } = this;
            const { format } = flopscope;
            const name = facts.stepNames[step];
            const lines = [
                `rank ${facts.rank[place]}${name ? `, ${name}` : ""}`,
                `${facts.label(this.metric)}: ${format.time(this.cells[place * facts.steps + step])}`,
            ];
            for (const strip of facts.strips) lines.push(`${strip.title}: ${format.time(strip.values[place])}`);
            lines.push(facts.where(place), facts.source(place));
            return lines.filter(Boolean);
        }

        point(place, step, announce) {
            const { facts } = this;
            this.at = [Math.max(0, Math.min(place, facts.count - 1)), Math.max(0, Math.min(step, facts.steps - 1))];
            this.pointed = true;
            this.mark();
            const lines = this.text();
            this.tip.textContent = lines.join("\n");
            this.tip.hidden = false;
            const x = LEFT + this.at[0] * this.area.perRank;
            this.tip.style.left = `${Math.max(0, Math.min(x + 14, this.area.width - this.tip.offsetWidth))}px`;
            this.tip.style.top = `${TOP + this.area.rows * this.area.line + 6}px`;
            if (announce) flopscope.announce(lines.join(", "));
        }

        leave() {
            this.pointed = false;
            this.tip.hidden = true;
            this.mark();
        }

        setChosen(place) {
            this.chosen = place;
            this.mark();
        }

        listen() {
            const placeOf = (event) => {
                const box = this.canvas.getBoundingClientRect();
                const [x, y] = [event.clientX - box.left, event.clientY - box.top];
                const row = Math.max(0, Math.min(Math.floor((y - TOP) / this.area.line), this.area.rows - 1));
                return [
                    Math.floor((x - LEFT) / this.area.perRank),
                    Math.floor((row * this.facts.steps) / this.area.rows),
                    x,
                ];
            };
            this.canvas.addEventListener("pointermove", (event) => {
                const [place, step, x] = placeOf(event);
                if (x < LEFT || place >= this.facts.count) this.leave();
                else this.point(place, step, false);
            });
            this.canvas.addEventListener("pointerleave", () => this.leave());
            this.canvas.addEventListener("blur", () => this.leave());
            this.canvas.addEventListener("click", (event) => {
                const [place, , x] = placeOf(event);
                if (x >= LEFT && place < this.facts.count) this.choose(place);
            });
            this.canvas.addEventListener("keydown", (event) => {
                const [place, step] = this.at;
                const far = event.shiftKey ? Math.max(1, Math.round(this.facts.count / 16)) : 1;
                const moves = {
                    ArrowRight: [place + far, step],
                    ArrowLeft: [place - far, step],
                    ArrowDown: [place, step + 1],
                    ArrowUp: [place, step - 1],
                    Home: [0, step],
                    End: [this.facts.count - 1, step],
                };
                if (event.key in moves) this.point(...moves[event.key], true);
                else if (event.key === "Enter") this.choose(this.at[0]);
                else return;
                event.preventDefault();
            });
        }
    };
}
