/* The section on ranks: a heat map of ranks and steps, who waits for whom, and a row for each rank. All of it is drawn
   from columns, so that thousands of ranks are as quick as eight. */
"use strict";

{
    const el = (...parts) => flopscope.element(...parts);
    const RAMP = ["#00224e", "#233d6e", "#4b5a74", "#6f737a", "#96907a", "#c0ae6b", "#fee838"]; // cividis
    const LEFT = 120;
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

    const limits = (values) => {
        let [low, high] = [Infinity, -Infinity];
        for (const value of values) {
            if (value < low) low = value;
            if (value > high) high = value;
        }
        return low <= high ? [low, high] : [0, 0];
    };

    /* The heat map and the bars below it, on one canvas: a column of px shows the largest of the ranks in it. */
    class HeatMap {
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
            this.canvas.setAttribute("aria-label", `${this.facts.label(metric)} of ${size}, from ${ends[0]} to ${ends[1]}. `
                + "Arrow keys move, Enter chooses a rank.");
            this.draw();
        }

        layout() {
            const width = Math.max(this.box.clientWidth, 300);
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
                const [first, last] = [Math.floor((row * steps) / area.rows), Math.floor(((row + 1) * steps) / area.rows)];
                for (let k = 0; k < columns; k++) {
                    const value = this.largest(from(k), from(k + 1), first, last);
                    context.fillStyle = Number.isNaN(value) ? unknown : `rgb(${colourOf((value - this.low) / span).join(",")})`;
                    const wide = Math.max(x(k + 1) - x(k) - gap, 0.75);
                    context.fillRect(x(k), TOP + row * area.line, wide, Math.max(area.line - (area.line > 6 ? 1 : 0), 1));
                }
            }
            context.fillStyle = flopscope.color("text-soft");
            context.textAlign = "right";
            context.textBaseline = "middle";
            const every = Math.ceil(15 / area.line) || 1;
            for (let row = 0; row < area.rows; row += every) {
                const name = this.facts.stepNames[Math.floor((row * steps) / area.rows)] || "all";
                const text = name.length > 16 ? `…${name.slice(-15)}` : name;
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
                context.fillRect(x(k), bottom - high, Math.max(x(k + 1) - x(k) - (area.perRank > 8 ? 1 : 0), 0.75), high);
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
                context.strokeRect(LEFT + this.chosen * area.perRank - 1, TOP - 1, wide, area.height - TOP - AXIS + 2);
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
            const lines = [`rank ${facts.rank[place]}${name ? `, ${name}` : ""}`,
                `${facts.label(this.metric)}: ${format.time(this.cells[place * facts.steps + step])}`];
            for (const strip of facts.strips) lines.push(`${strip.title}: ${format.time(strip.values[place])}`);
            lines.push(facts.source(place));
            return lines;
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
                return [Math.floor((x - LEFT) / this.area.perRank), Math.floor((row * this.facts.steps) / this.area.rows), x];
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
                    ArrowRight: [place + far, step], ArrowLeft: [place - far, step],
                    ArrowDown: [place, step + 1], ArrowUp: [place, step - 1],
                    Home: [0, step], End: [this.facts.count - 1, step],
                };
                if (event.key in moves) this.point(...moves[event.key], true);
                else if (event.key === "Enter") this.choose(this.at[0]);
                else return;
                event.preventDefault();
            });
        }
    }

    async function loadFacts(data, page) {
        const load = async (references) => Object.fromEntries(await Promise.all(
            Object.entries(references || {}).map(async ([name, reference]) => [name, await page.column(reference)])));
        const facts = { count: data.count, stepNames: data.steps, steps: Math.max(data.steps.length, 1) };
        [facts.rank, facts.labels, facts.devices, facts.time] = await Promise.all(
            [data.rank, data.label, data.device, data.time].map((reference) => page.column(reference)));
        facts.cells = await load(data.cells);
        facts.parts = await load(data.parts);
        facts.waits = data.waits ? await load(data.waits) : null;
        facts.source = (place) => page.strings[facts.labels[place]] || "";
        facts.device = (place) => page.strings[facts.devices[place]] || "";
        const total = data.steps.length ? "Time of the step" : "Time";
        facts.label = (metric) => (metric === "total" ? total : data.part_labels[metric]);
        facts.strips = facts.waits ? [
            { title: "Waited for others", values: facts.waits.waited, colour: "series-1" },
            { title: "Others waited for it", values: facts.waits.awaited, colour: "series-2" },
        ] : [];
        return facts;
    }

    /* What differs most between ranks and steps. Ranks that wait for each other have steps of one length. */
    function telling(facts) {
        const range = (name) => limits(facts.cells[name]).reduce((low, high) => high - low);
        return Object.keys(facts.cells).reduce((best, name) => (range(name) > range(best) ? name : best));
    }

    function rankList(parent, facts, data, choose) {
        const { format } = flopscope;
        const missing = data.why || "The rank's collectives match those of no other rank.";
        const number = (title, width, values, print, more = {}) => ({
            title, width, value: (i) => values[i], text: (i) => print(values[i]), missing, ...more,
        });
        const time = (title, values, more = {}) => {
            const most = limits(values)[1];
            return number(title, 112, values, format.time, { share: (i) => (most > 0 ? values[i] / most : 0), ...more });
        };
        const { waits } = facts;
        const columns = [
            number("Rank", 80, facts.rank, String),
            time(data.steps.length ? "A step" : "Time", facts.time, { missing: "No step of it was recorded." }),
        ];
        if (waits) {
            columns.push(
                time("Others waited", waits.awaited, {
                    width: 142, bar: "warm", doc: "Time that other ranks waited for this one.",
                }),
                time("Waited", waits.waited, { doc: "Time that it waited for the last rank of its collectives." }),
                number("Of its time", 96, waits.waited_pct, format.percent, {
                    doc: "Waited, in percent of the time of its matched collectives.",
                }),
                number("Came last", 92, waits.times_last, format.count),
                number("Collectives", 98, waits.collectives, format.count, { doc: "Matched with those of other ranks." }),
                number("Unmatched", 98, waits.unmatched, format.count),
                number("Clock", 100, waits.clock_offset, format.time, { doc: "Its clock minus that of the first rank." }),
                number("± Clock", 90, waits.clock_uncertainty, format.time, {
                    doc: "Standard error of the offset.",
                }));
        }
        for (const [name, values] of Object.entries(facts.parts)) {
            const doc = "Part of the accounting, mean of the steps.";
            columns.push(time(data.part_labels[name], values, { width: 178, doc, missing: "No step of it was recorded." }));
        }
        columns.push({ title: "Device", width: 150, left: true, text: facts.device },
            { title: "Source", width: 280, left: true, text: facts.source });
        return flopscope.list(parent, {
            label: "Ranks", noun: "rank", count: facts.count, columns, sort: waits ? [2, true] : [0, false], height: 480,
            placeholder: "rank, device, file", select: choose,
            filter: (i) => `${facts.rank[i]} ${facts.device(i)} ${facts.source(i)}`,
        });
    }

    flopscope.section("ranks", {
        title: "Ranks",

        async mount(element, data, page) {
            const { draw, format } = flopscope;
            const facts = await loadFacts(data, page);
            if (data.why) element.append(el("p", { class: "notice", text: data.why }));
            for (const text of data.notes) element.append(el("p", { class: "notice", text }));
            if (data.findings.length) {
                element.append(draw.heading("What is slow", data.findings_left_out
                    ? `the largest cost first; ${format.count(data.findings_left_out)} more are not listed` : "the largest cost first"));
                element.append(el("ol", { class: "findings" }, data.findings.map((text) => el("li", { text: format.sentence(text) }))));
            }
            element.append(draw.heading("Ranks and steps", data.steps_left_out
                ? `the first ${format.count(facts.steps)} steps; ${format.count(data.steps_left_out)} more are not drawn` : ""));
            const metrics = el("select", { on: { change: (event) => map.show(event.target.value) } },
                Object.keys(data.cells).map((name) => el("option", { value: name, text: facts.label(name) })));
            metrics.value = telling(facts);
            element.append(el("div", { class: "controls" }, el("label", {}, "Colour", metrics)));
            let list = null;
            const choose = (place) => {
                map.setChosen(place);
                list.show(place);
                flopscope.announce(`Rank ${facts.rank[place]} is chosen`);
            };
            const map = new HeatMap(element, facts, metrics.value, choose);
            element.append(draw.heading("Each rank", "times are means of a step; waits are sums over the profile"));
            list = rankList(element, facts, data, (place) => map.setChosen(place));
            await flopscope.rankTables(element, data, page);
        },
    });
}
