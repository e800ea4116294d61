/* The section Timeline: lanes of events to zoom, pan, search and select in. */
"use strict";

flopscope.TimelineView = class {
    constructor(element, data, page, timeline) {
        Object.assign(this, { element, data, page, timeline });
        this.draw = flopscope.perFrame(() => {
            if (flopscope.isPrinting) this.measure(); // paper has another width
            this.paint();
        });
        this.painter = new flopscope.TimelinePainter(timeline);
        this.groups = flopscope.timelineRows.groups(timeline);
        const margin = 0.01 * (timeline.end - timeline.begin);
        this.whole = { from: timeline.begin - margin, to: timeline.end + margin };
        this.view = { ...this.whole };
        this.selected = -1;
        this.hover = -1;
        this.range = null; // a chosen part of the time
        this.query = "";
        this.matching = null; // labels that match the search, or the chosen row
        this.mode = this.knownBounds() ? "bound" : "name";
        this.frames = 0;
        this.build();
        this.paintColors();
        this.layOut();
        this.listen();
        this.sayLegend();
        this.showDetails();
    }

    /* Whether the bounds of some of the work are known. */
    knownBounds() {
        const { rows } = this.page;
        if (!rows) return false;
        const known = (row) => rows.get("bound", row) !== null && rows.get("bound", row) !== "unknown";
        let own = 0,
            all = 0;
        for (let row = 0; row < rows.count; row++) {
            if (rows.kind(row) !== "op") continue;
            const time = rows.get(rows.hasDevice ? "self_device_time_total" : "self_cpu_time_total", row) || 0;
            all += time;
            if (known(row)) own += time;
        }
        return own > 0.1 * all;
    }

    /* Elements ----------------------------------------------------------------------------------------------------- */

    build() {
        const el = flopscope.element;
        const button = (text, title, click, name) =>
            el("button", {
                type: "button",
                class: `button ${name || ""}`,
                text,
                title,
                "aria-label": title,
                on: { click },
            });
        this.search = el("input", {
            type: "search",
            class: "timeline-search",
            placeholder: "Search names",
            "aria-label": "Search the names of events",
            on: {
                input: () => this.find(this.search.value),
                keydown: (event) => {
                    if (event.key === "Enter") {
                        event.preventDefault();
                        this.step(event.shiftKey);
                    }
                },
            },
        });
        this.found = el("span", { class: "note", role: "status" });
        this.modes = el(
            "select",
            {
                class: "timeline-mode",
                "aria-label": "Colours by",
                on: {
                    change: () => {
                        this.mode = this.modes.value;
                        this.paintColors();
                        this.sayLegend();
                        this.draw();
                    },
                },
            },
            flopscope.timelineColors.MODES.map(([value, text]) =>
                el("option", { value, text: `Colours by ${text}`, selected: value === this.mode }),
            ),
        );
        this.toolbar = el(
            "div",
            { class: "timeline-tools" },
            this.search,
            button("‹", "Previous match (Shift+Enter)", () => this.step(true)),
            button("›", "Next match (Enter)", () => this.step(false)),
            this.found,
            el("span", { class: "space" }),
            this.modes,
            button("−", "Zoom out (S, −)", () => this.zoom(1.6)),
            button("+", "Zoom in (W, +)", () => this.zoom(1 / 1.6)),
            button("Whole", "Show all of the time (0)", () => this.show(this.whole)),
        );
        this.map = el("canvas", { class: "timeline-map", "aria-hidden": "true" });
        this.axis = el("canvas", { class: "timeline-axis", "aria-hidden": "true" });
        this.canvas = el("canvas", { class: "timeline-canvas" });
        this.labels = el("div", { class: "timeline-labels" });
        this.body = el("div", { class: "timeline-body" }, this.labels, this.canvas);
        this.scroller = el(
            "div",
            {
                class: "timeline-scroll",
                tabindex: "0",
                role: "application",
                "aria-label":
                    "Timeline. W and S zoom, A and D move, comma and full stop select the previous and next " +
                    "event, L follows a launch.",
            },
            this.body,
        );
        this.tip = el("div", { class: "timeline-tip", hidden: true });
        this.details = el("div", { class: "timeline-details", "aria-live": "polite" });
        this.legend = el("div", { class: "timeline-legend" });
        this.element.replaceChildren(
            this.notes(),
            this.toolbar,
            el("div", { class: "timeline-head" }, this.map, this.axis),
            this.scroller,
            el("p", {
                class: "note timeline-hint",
                text:
                    "Drag moves, Ctrl + wheel or W and S zoom, Shift + drag sums a part of the time, a double " +
                    "click zooms to an event.",
            }),
            this.legend,
            this.details,
            this.tip,
        );
    }

    notes() {
        const el = flopscope.element,
            { facts } = this.timeline,
            { count, plural } = flopscope.format;
        const lines = [];
        const text = flopscope.timeAxis.text;
        if (facts.merged_ns > 0) {
            lines.push(
                `${count(facts.events)} events are drawn as ${count(facts.blocks)} blocks: in a lane, neighbours ` +
                    `shorter than ${text(facts.merged_ns)} within ${text(facts.merged_ns)} of time are one block of ` +
                    `their summed time, because a page holds about ${count(facts.limit)}. ` +
                    "Search finds a block by its longest event.",
            );
        }
        if (facts.places_left_out) {
            lines.push(
                `${plural(facts.places_left_out, "device or thread", "devices and threads")} with the fewest events ${
                    facts.places_left_out === 1 ? "is" : "are"
                } not drawn: ${plural(facts.events_left_out, "event")}.`,
            );
        }
        if (facts.names_left_out) {
            lines.push(
                `${plural(facts.names_left_out, "name")} with the least time ` +
                    `${facts.names_left_out === 1 ? "is" : "are"} not in this page: their events are drawn as ` +
                    `“(another name)”.`,
            );
        }
        if (facts.unplaced) {
            lines.push(
                `${plural(facts.unplaced, "event")} without a start ${facts.unplaced === 1 ? "is" : "are"} not drawn.`,
            );
        }
        if (facts.deep) {
            lines.push(
                `${plural(facts.deep, "event")} nested or overlapping too deeply ` +
                    `${facts.deep === 1 ? "is" : "are"} not drawn.`,
            );
        }
        if (facts.open) {
            lines.push(
                `${plural(facts.open, "event")} had not ended and ${facts.open === 1 ? "is" : "are"} drawn ` +
                    `until the last known time.`,
            );
        }
        const devices = new Set(
            this.timeline.lanes.filter((lane) => lane.device >= 0).map((lane) => `${lane.part}|${lane.device}`),
        );
        lines.push(...flopscope.timelineCounters.notes(this.timeline.counters, this.timeline.tracks, devices));
        return el(
            "div",
            { class: "timeline-notes" },
            lines.map((line) => el("p", { class: "notice", text: line })),
        );
    }

    paintColors() {
        const { timeline, page, mode } = this;
        const colors = flopscope.timelineColors;
        this.paper = colors.named("paper");
        this.ink = colors.named("text");
        const dark = !colors.bright(this.paper);
        const { rows } = page;
        const categories = new Map(),
            unknown = colors.boundColor("unknown"),
            known = new Map(page.data.categories.map((one) => [one.name, one]));
        const colorOfRow = (row, name) => {
            if (mode === "name") return colors.nameColor(name, this.paper, this.ink);
            if (row < 0 || !rows) return unknown;
            if (mode === "bound") return colors.boundColor(rows.get("bound", row) || "unknown");
            const category = rows.get("category", row) || "other";
            if (!categories.has(category)) {
                categories.set(category, colors.categoryColor(known.get(category), this.ink));
            }
            return categories.get(category);
        };
        const quiet = (color) => colors.mix(color, this.paper, dark ? 0.78 : 0.82);
        const rowColors = [],
            labelColors = [];
        for (let row = 0; rows && row < rows.count; row++) rowColors.push(colorOfRow(row, rows.get("key", row) || ""));
        // How pale what bounds do not tell apart is
        const plain = { runtime: 0.45, frame: 0.7, range: 0.3, step: 0.3, op: 0.45, sync: 0.3 };
        for (let label = 0; label < timeline.labels.count; label++) {
            const color = colorOfRow(timeline.labels.row(label), timeline.labels.name(label));
            const pale = color === unknown ? plain[timeline.labels.kind(label)] || 0 : 0;
            labelColors.push(pale ? colors.mix(color, this.paper, pale) : color);
        }
        this.categories = categories;
        this.rgb = { row: rowColors, label: labelColors };
        const table = (list, change) =>
            Uint32Array.from([0, ...list.map((one) => colors.pixel(change ? change(one) : one))]);
        this.rowPixels = table(rowColors);
        this.labelPixels = table(labelColors);
        this.quietRows = table(rowColors, quiet);
        this.quietLabels = table(labelColors, quiet);
        this.idlePixels = timeline.parts.map((part) => {
            const color = colors.idleColor(part);
            return [
                colors.pixel(color),
                colors.pixel(colors.mix(color, this.paper, 0.55)),
                ["host", "sync", "data"].indexOf(part),
            ];
        });
        this.trackPixels = new Map(
            timeline.tracks.map((track) => {
                const color = flopscope.timelineCounters.seriesOf(track);
                return [track, [colors.pixel(color), colors.pixel(colors.mix(color, this.paper, 0.55))]];
            }),
        );
        this.mapImage = null;
        this.lineColor = colors.mix(this.paper, this.ink, 0.12);
        this.stripe = colors.mix(this.paper, this.ink, 0.035);
    }

    /* The colour of a block as a pixel: by name its own, else that of the op to which it belongs. */
    colorOf(block) {
        const { row, label } = this.timeline;
        const own = this.mode === "name" || row[block] === 0;
        if (this.matching && !this.matches(block)) {
            return own ? this.quietLabels[label[block]] : this.quietRows[row[block]];
        }
        return own ? this.labelPixels[label[block]] : this.rowPixels[row[block]];
    }

    rgbOf(block) {
        const { row, label } = this.timeline;
        return this.mode === "name" || row[block] === 0
            ? this.rgb.label[label[block] - 1]
            : this.rgb.row[row[block] - 1];
    }

    matches(block) {
        const { labels, row } = this.matching;
        if (labels && labels[this.timeline.label[block]]) return true;
        return row >= 0 && this.timeline.row[block] === row + 1;
    }

    sayLegend() {
        const el = flopscope.element,
            { timeline } = this,
            colors = flopscope.timelineColors;
        const swatch = (color, text, title) =>
            el(
                "span",
                { class: "timeline-key", title },
                el("i", { class: "timeline-swatch", style: { background: colors.css(color) } }),
                text,
            );
        const items = [];
        if (this.mode === "bound") {
            const { rows } = this.page;
            const seen = new Set(
                rows ? Array.from({ length: rows.count }, (_, row) => rows.get("bound", row) || "unknown") : [],
            );
            items.push(
                "Bound of the op:",
                ...colors.BOUNDS.filter((bound) => seen.has(bound)).map((bound) =>
                    swatch(colors.boundColor(bound), bound, this.page.bounds[bound]),
                ),
            );
        } else if (this.mode === "category") {
            items.push(
                "Category of the op:",
                ...this.page.data.categories
                    .filter(({ name }) => this.categories.has(name))
                    .map(({ name }) => swatch(this.categories.get(name), name)),
            );
        }
        const idle = new Set(timeline.lanes.filter((lane) => lane.role === "idle").map((lane) => lane.depth));
        if (idle.size) {
            items.push(
                "Idle because of:",
                ...timeline.causes.map((cause, i) =>
                    idle.has(i)
                        ? el(
                              "span",
                              { class: "timeline-key" },
                              el("i", { class: `timeline-swatch part-${timeline.parts[i]}` }),
                              cause,
                          )
                        : "",
                ),
            );
        }
        items.push(
            el("span", {
                class: "note",
                text:
                    "Where blocks are narrower than a pixel, the height is the share of the time that the lane " +
                    "is busy.",
            }),
        );
        this.legend.replaceChildren(
            ...items.filter(Boolean).map((item) => (typeof item === "string" ? el("b", { text: item }) : item)),
        );
    }

    layOut() {
        const el = flopscope.element;
        const { rows, height } = flopscope.timelineRows.place(this.groups);
        this.rows = rows;
        this.labels.replaceChildren(
            ...rows.map((row) => {
                const style = { top: `${row.y}px`, height: `${row.height}px` };
                if (row.role !== "group") {
                    return el("div", { class: `timeline-label ${row.role}`, style, text: row.label, title: row.label });
                }
                const { group } = row;
                return el(
                    "button",
                    {
                        type: "button",
                        class: "timeline-group",
                        style,
                        "aria-expanded": String(group.open),
                        title: `${group.title}${group.model ? `, ${group.model}` : ""}`,
                        on: {
                            click: () => {
                                group.open = !group.open;
                                this.layOut();
                                this.labels
                                    .querySelectorAll(".timeline-group")
                                    [this.groups.indexOf(group)].focus({ preventScroll: true });
                            },
                        },
                    },
                    el("span", { class: "timeline-arrow", text: group.open ? "▾" : "▸", "aria-hidden": "true" }),
                    el("span", { class: "cut", text: group.title }),
                    group.model ? el("span", { class: "note cut", text: group.model.replace(/^NVIDIA /, "") }) : "",
                );
            }),
        );
        this.body.style.height = `${height}px`;
        this.measure();
        this.draw();
    }

    measure() {
        const total = this.body.offsetHeight || parseFloat(this.body.style.height);
        const most = Math.max(240, Math.round(0.62 * window.innerHeight));
        this.scroller.style.height = `${Math.min(total, most) + 2}px`;
        const ratio = Math.min(window.devicePixelRatio || 1, 3);
        const gutter = this.labels.offsetWidth;
        const width = Math.max(this.scroller.clientWidth - gutter, 100),
            height = Math.max(this.scroller.clientHeight, 60);
        this.ratio = ratio;
        this.width = width;
        const size = (canvas, w, h) => {
            canvas.style.width = `${w}px`;
            canvas.style.height = `${h}px`;
            canvas.width = Math.round(w * ratio);
            canvas.height = Math.round(h * ratio);
        };
        size(this.canvas, width, height);
        size(this.axis, width, 40);
        size(this.map, width, 44);
        for (const canvas of [this.axis, this.map]) canvas.style.marginLeft = `${gutter}px`;
        this.painter.resize(this.canvas.width, this.canvas.height, ratio);
        this.mapImage = null;
    }

    /* Drawing ------------------------------------------------------------------------------------------------------ */

    paint() {
        this.frames++;
        const scale = this.canvas.width / (this.view.to - this.view.from);
        this.scale = scale; // device pixels per ns
        this.paintLanes();
        this.paintAxis();
        this.paintMap();
    }

    x(time) {
        return (time - this.view.from) * this.scale;
    }

    paintLanes() {
        const { painter, ratio } = this;
        const { pixel } = flopscope.colors;
        const view = { from: this.view.from, scale: this.scale };
        const top = this.scroller.scrollTop;
        painter.texts = [];
        painter.pale = pixel(flopscope.colors.mix(this.paper, this.ink, 0.07));
        painter.pixels.fill(pixel(this.paper));
        let last = -1;
        this.eachStep((step) => {
            const x = Math.round(this.x(step.begin));
            if ((step.end - step.begin) * this.scale < 6 * ratio) return; // lines that close would be an area
            if (x !== last && x >= 0) painter.column(x, 0, painter.height, pixel(this.lineColor));
            last = x;
        });
        const shown = this.rows.filter((row) => row.y + row.height > top && row.y < top + this.canvas.height / ratio);
        for (const row of shown) {
            const y0 = Math.round((row.y - top) * ratio),
                y1 = Math.round((row.y + row.height - top) * ratio);
            if (row.role === "group") {
                painter.rect(0, y0, painter.width, y0 + 1, pixel(this.lineColor));
                painter.rect(0, y0 + 1, painter.width, y1, pixel(this.stripe));
            }
            if (row.role === "counter") {
                painter.track(
                    row.track,
                    y0 + Math.round(3 * ratio),
                    y1 - Math.round(ratio),
                    view,
                    this.trackPixels.get(row.track),
                );
            } else if (row.role === "idle") painter.idle(row.lanes, y0 + ratio, y1 - ratio, view, this.idlePixels);
            else {
                for (const lane of row.lanes) {
                    const inset = Math.round((row.role === "group" ? 4 : 1) * ratio);
                    if (lane.role === "idle") painter.idle([lane], y0 + inset, y1 - inset, view, this.idlePixels);
                    else painter.lane(lane, y0 + inset, y1 - inset, view, (block) => this.colorOf(block), 30 * ratio);
                }
            }
        }
        const context = this.canvas.getContext("2d", { alpha: false });
        context.putImageData(painter.image, 0, 0);
        this.paintTexts(context);
        this.paintMarks(context, shown);
    }

    /* Call for each step in view. */
    eachStep(call) {
        const { steps } = this.timeline;
        let low = 0,
            high = steps.length;
        while (low < high) {
            const middle = (low + high) >>> 1;
            if (steps[middle].end < this.view.from) low = middle + 1;
            else high = middle;
        }
        for (; low < steps.length && steps[low].begin <= this.view.to; low++) call(steps[low], low);
    }

    paintTexts(context) {
        const { ratio, timeline } = this;
        const { bright } = flopscope.colors;
        const most = 500;
        let texts = this.painter.texts;
        if (texts.length > most) texts = [...texts].sort((a, b) => b.width - a.width).slice(0, most);
        context.font = `${Math.round(11 * ratio)}px system-ui, sans-serif`;
        context.textBaseline = "middle";
        this.letter = this.letter || context.measureText("abcdefghijklmnop_:0123").width / 22 / ratio;
        for (const { index, x, y, width, height, several } of texts) {
            if (height < 11 * ratio) continue;
            const pad = 4 * ratio,
                letters = Math.floor((width - 2 * pad) / (this.letter * ratio));
            let text = timeline.shortName(index);
            if (timeline.count && timeline.count[index] > 1) text = `${timeline.count[index]} events, longest ${text}`;
            if (text.length > letters) text = letters > 2 ? `${text.slice(0, letters - 1)}…` : "";
            if (!text) continue;
            const quiet = this.matching && !this.matches(index);
            const color = quiet
                ? flopscope.colors.mix(this.paper, this.ink, 0.45)
                : bright(this.rgbOf(index))
                  ? [0, 0, 0]
                  : [255, 255, 255];
            context.fillStyle = flopscope.colors.css(several ? this.ink : color);
            if (several) {
                context.strokeStyle = flopscope.colors.css(this.paper);
                context.lineWidth = 3 * ratio;
                context.strokeText(text, x + pad, y + height / 2 + 0.5 * ratio);
            }
            context.fillText(text, x + pad, y + height / 2 + 0.5 * ratio);
        }
    }

    rowOfLane(lane) {
        return (
            this.rows.find((row) => row.role !== "group" && row.lanes.includes(lane)) ||
            this.rows.find((row) => row.role === "group" && row.group.lanes.includes(lane))
        );
    }

    /* Where a block is on the canvas, in device pixels; null if its group is not there. */
    place(block) {
        const { timeline, ratio } = this;
        const row = this.rowOfLane(timeline.laneOf(block));
        if (!row) return null;
        const y = (row.y - this.scroller.scrollTop) * ratio;
        return {
            x0: this.x(timeline.start[block]),
            x1: this.x(timeline.start[block] + timeline.duration[block]),
            y0: y,
            y1: y + row.height * ratio,
        };
    }

    paintMarks(context) {
        const { ratio } = this;
        const { css } = flopscope.colors;
        const outline = (block, width) => {
            const at = this.place(block);
            if (!at) return;
            const x0 = Math.max(at.x0, -10),
                x1 = Math.min(Math.max(at.x1, at.x0 + 2 * ratio), this.canvas.width + 10);
            if (x1 < 0 || x0 > this.canvas.width) return;
            context.lineWidth = width * ratio;
            context.strokeStyle = css(this.ink);
            context.strokeRect(x0 - ratio, at.y0 + 0.5 * ratio, x1 - x0 + 2 * ratio, at.y1 - at.y0 - ratio);
        };
        if (this.range) {
            const x0 = this.x(this.range.from),
                x1 = this.x(this.range.to);
            context.fillStyle = css(this.ink);
            context.globalAlpha = 0.1;
            context.fillRect(x0, 0, x1 - x0, this.canvas.height);
            context.globalAlpha = 1;
            context.fillRect(x0, 0, ratio, this.canvas.height);
            context.fillRect(x1, 0, ratio, this.canvas.height);
        }
        if (this.hover >= 0 && this.hover !== this.selected) outline(this.hover, 1);
        if (this.selected < 0) return;
        outline(this.selected, 2);
        for (const [from, to] of this.arrows) this.arrow(context, from, to);
    }

    arrow(context, from, to) {
        const a = this.place(from),
            b = this.place(to),
            { ratio } = this;
        if (!a || !b) return;
        const x0 = a.x0,
            y0 = a.y0 < b.y0 ? a.y1 : a.y0,
            x1 = b.x0,
            y1 = a.y0 < b.y0 ? b.y0 : b.y1;
        if (Math.max(x0, x1) < -2000 || Math.min(x0, x1) > this.canvas.width + 2000) return;
        const bend = Math.max(24 * ratio, Math.abs(y1 - y0) / 3) * Math.sign(y1 - y0);
        context.strokeStyle = context.fillStyle = flopscope.colors.css(this.ink);
        for (const [color, width] of [
            [flopscope.colors.css(this.paper), 4],
            [flopscope.colors.css(this.ink), 1.6],
        ]) {
            context.strokeStyle = color;
            context.lineWidth = width * ratio;
            context.beginPath();
            context.moveTo(x0, y0);
            context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
            context.stroke();
        }
        const size = 5 * ratio,
            down = Math.sign(y1 - y0);
        context.beginPath();
        context.moveTo(x1, y1);
        context.lineTo(x1 - size, y1 - down * 1.6 * size);
        context.lineTo(x1 + size, y1 - down * 1.6 * size);
        context.fill();
    }

    paintAxis() {
        const { ratio, axis } = this;
        const { css, mix } = flopscope.colors;
        const context = axis.getContext("2d", { alpha: false });
        context.fillStyle = css(this.paper);
        context.fillRect(0, 0, axis.width, axis.height);
        context.font = `${Math.round(11 * ratio)}px system-ui, sans-serif`;
        context.textBaseline = "middle";
        const half = Math.round(18 * ratio);
        this.eachStep((step, i) => {
            const x0 = Math.max(this.x(step.begin), -1),
                x1 = Math.min(this.x(step.end), axis.width + 1);
            if (x1 < 0 || x0 > axis.width || x1 - x0 < 1) return;
            context.fillStyle = css(mix(this.paper, this.ink, i % 2 ? 0.16 : 0.09));
            context.fillRect(x0, 0, x1 - x0 - 1, half - 2);
            const text = step.name;
            if (context.measureText(text).width + 8 * ratio > x1 - x0) return;
            context.fillStyle = css(this.ink);
            context.textAlign = "left";
            context.fillText(text, x0 + 4 * ratio, half / 2);
        });
        context.fillStyle = css(mix(this.paper, this.ink, 0.75));
        const steps = flopscope.timeAxis.ticks(this.view.from, this.view.to, (110 * ratio) / this.scale);
        for (const tick of steps) {
            const x = Math.round(this.x(tick.time));
            context.fillRect(x, half, 1, axis.height - half);
            const fits = x + 4 * ratio + context.measureText(tick.text).width < axis.width;
            context.textAlign = fits ? "left" : "right"; // whole at the right edge, too
            context.fillText(tick.text, x + (fits ? 4 : -4) * ratio, half + 9 * ratio);
        }
        context.fillRect(0, axis.height - 1, axis.width, 1);
    }

    /* The whole recording: the busy share of each device, or of the threads; and the part that is in view. */
    paintMap() {
        const { map, ratio, timeline } = this;
        const { css, mix, pixel } = flopscope.colors;
        if (!this.mapImage) {
            const painter = new flopscope.TimelinePainter(timeline);
            painter.resize(map.width, map.height, ratio);
            painter.pixels.fill(pixel(mix(this.paper, this.ink, 0.04)));
            const devices = this.groups.filter((group) => group.rank === 0);
            const groups = (
                devices.length ? devices : this.groups.filter((group) => group.summary[0].role !== "idle")
            ).slice(0, Math.max(1, Math.floor(map.height / (4 * ratio))));
            const view = { from: this.whole.from, scale: map.width / (this.whole.to - this.whole.from) };
            const each = map.height / groups.length;
            groups.forEach((group, i) => {
                const y0 = Math.round(i * each + ratio),
                    y1 = Math.round((i + 1) * each - ratio);
                const idle = group.lanes.filter((lane) => lane.role === "idle"),
                    split = idle.length && y1 - y0 > 12 * ratio ? Math.round((y1 - y0) * 0.3) : 0;
                for (const lane of group.summary) {
                    if (lane.role !== "idle") {
                        painter.lane(lane, y0, y1 - split, view, (block) => this.colorOf(block), 0);
                    }
                }
                if (split) painter.idle(idle, y1 - split + ratio, y1, view, this.idlePixels);
            });
            this.mapImage = painter.image;
        }
        const context = map.getContext("2d", { alpha: false });
        context.putImageData(this.mapImage, 0, 0);
        const part = (time) => ((time - this.whole.from) / (this.whole.to - this.whole.from)) * map.width;
        const x0 = part(this.view.from),
            x1 = Math.max(part(this.view.to), x0 + 2 * ratio);
        context.fillStyle = css(this.paper);
        context.globalAlpha = 0.6;
        context.fillRect(0, 0, x0, map.height);
        context.fillRect(x1, 0, map.width - x1, map.height);
        context.globalAlpha = 1;
        context.strokeStyle = css(this.ink);
        context.lineWidth = 1.5 * ratio;
        context.strokeRect(x0, ratio, x1 - x0, map.height - 2 * ratio);
    }
};
