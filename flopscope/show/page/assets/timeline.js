/* The section Timeline: lanes of events to zoom, pan, search and select in. */
"use strict";

flopscope.TimelineView = class {
    constructor(element, data, page, timeline) {
        Object.assign(this, { element, data, page, timeline });
        this.draw = flopscope.perFrame(() => this.paint());
        this.painter = new flopscope.TimelinePainter(timeline);
        this.groups = flopscope.timelineRows.groups(timeline);
        const margin = 0.01 * (timeline.end - timeline.begin);
        this.whole = { from: timeline.begin - margin, to: timeline.end + margin };
        this.view = { ...this.whole };
        this.selected = -1;
        this.query = "";
        this.matching = null; // labels that match the search, or the chosen row
        this.byBound = this.knownBounds(); // the colours of blocks; else they are by name
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
        const button = (text, title, click, name) =>
            el("button", { class: `button ${name || ""}`, title, "aria-label": title, on: { click }, text });
        this.search = el("input.timeline-search", {
            type: "search",
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
        this.found = el("span.note", { role: "status" });
        this.toolbar = el(
            "div.controls.timeline-tools",
            this.search,
            button("‹", "Previous match (Shift+Enter)", () => this.step(true)),
            button("›", "Next match (Enter)", () => this.step(false)),
            this.found,
            el("span.space"),
            button("−", "Zoom out (S)", () => this.zoom(1.6)),
            button("+", "Zoom in (W)", () => this.zoom(1 / 1.6)),
            button("Whole", "Show all of the time (0)", () => this.show(this.whole)),
        );
        this.axis = el("canvas.timeline-axis", { "aria-hidden": "true" });
        this.canvas = el("canvas.timeline-canvas");
        this.labels = el("div.timeline-labels");
        this.body = el("div.timeline-body", this.labels, this.canvas);
        this.scroller = el(
            "div.timeline-scroll",
            {
                tabindex: "0",
                role: "application",
                "aria-label":
                    "Timeline. W and S zoom, A and D move, comma and full stop select the previous and next " +
                    "event, L follows a launch.",
            },
            this.body,
        );
        this.details = el("div.timeline-details", { "aria-live": "polite" });
        this.legend = el("div.timeline-legend");
        this.element.replaceChildren(
            this.notes(),
            this.toolbar,
            el("div.timeline-head", this.axis),
            this.scroller,
            el(
                "p.note.timeline-hint",
                "Drag moves, Ctrl + wheel or W and S zoom. With the focus here, A and D move, comma and full " +
                    "stop select the neighbours, L goes from work to its launch and back, F zooms to the " +
                    "selection, 0 shows all.",
            ),
            this.legend,
            this.details,
        );
    }

    notes() {
        const { facts } = this.timeline,
            { count, plural } = format;
        const text = flopscope.timeAxis.text(facts.merged_ns),
            are = (number) => (number === 1 ? "is" : "are");
        const lines = [
            facts.merged_ns > 0 &&
                `${count(facts.events)} events are drawn as ${count(facts.blocks)} blocks: in a lane, neighbours ` +
                    `shorter than ${text} within ${text} of time are one block of their summed time, because a page ` +
                    `holds about ${count(facts.limit)}. Search finds a block by its longest event.`,
            facts.places_left_out > 0 &&
                `${plural(facts.places_left_out, "device or thread", "devices and threads")} with the fewest events ` +
                    `${are(facts.places_left_out)} not drawn: ${plural(facts.events_left_out, "event")}.`,
            facts.names_left_out > 0 &&
                `${plural(facts.names_left_out, "name")} with the least time ${are(facts.names_left_out)} not in ` +
                    "this page: their events are drawn as “(another name)”.",
            facts.unplaced > 0 &&
                `${plural(facts.unplaced, "event")} without a start ${are(facts.unplaced)} not drawn.`,
            facts.deep > 0 &&
                `${plural(facts.deep, "event")} nested or overlapping too deeply ${are(facts.deep)} not drawn.`,
            facts.open > 0 &&
                `${plural(facts.open, "event")} had not ended and ${are(facts.open)} drawn until the last known time.`,
        ].filter(Boolean);
        const devices = new Set(
            this.timeline.lanes.filter((lane) => lane.device >= 0).map((lane) => `${lane.part}|${lane.device}`),
        );
        lines.push(...flopscope.timelineCounters.notes(this.timeline.counters, this.timeline.tracks, devices));
        return el(
            "div.timeline-notes",
            lines.map((line) => el("p.notice", line)),
        );
    }

    paintColors() {
        const { timeline, page } = this;
        const colors = flopscope.colors,
            { boundColor, idleColor, nameColor } = flopscope.timelineColors;
        this.paper = colors.named("paper");
        this.ink = colors.named("text");
        const dark = !colors.bright(this.paper);
        const { rows } = page;
        const unknown = boundColor("unknown");
        const colorOfRow = (row, name) => {
            if (!this.byBound) return nameColor(name, this.paper, this.ink);
            return row < 0 ? unknown : boundColor(rows.get("bound", row) || "unknown");
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
        this.rgb = { row: rowColors, label: labelColors };
        const table = (list, change) =>
            Uint32Array.from([0, ...list.map((one) => colors.pixel(change ? change(one) : one))]);
        this.rowPixels = table(rowColors);
        this.labelPixels = table(labelColors);
        this.quietRows = table(rowColors, quiet);
        this.quietLabels = table(labelColors, quiet);
        this.idlePixels = timeline.parts.map((part) => {
            const color = idleColor(part);
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
        this.lineColor = colors.mix(this.paper, this.ink, 0.12);
        this.stripe = colors.mix(this.paper, this.ink, 0.035);
    }

    /* The colour of a block as a pixel: by name its own, else that of the op to which it belongs. */
    colorOf(block) {
        const { row, label } = this.timeline;
        const own = !this.byBound || row[block] === 0;
        if (this.matching && !this.matches(block)) {
            return own ? this.quietLabels[label[block]] : this.quietRows[row[block]];
        }
        return own ? this.labelPixels[label[block]] : this.rowPixels[row[block]];
    }

    rgbOf(block) {
        const { row, label } = this.timeline;
        return !this.byBound || row[block] === 0 ? this.rgb.label[label[block] - 1] : this.rgb.row[row[block] - 1];
    }

    matches(block) {
        const { labels, row } = this.matching;
        if (labels && labels[this.timeline.label[block]]) return true;
        return row >= 0 && this.timeline.row[block] === row + 1;
    }

    sayLegend() {
        const { timeline } = this;
        const swatch = (name, text, title) =>
            el("span.timeline-key", { title }, el("i", { class: `timeline-swatch ${name}` }), text);
        const items = [];
        if (this.byBound) {
            const { rows } = this.page;
            const seen = new Set(Array.from({ length: rows.count }, (_, row) => rows.get("bound", row) || "unknown"));
            items.push(
                "Bound of the op:",
                ...Object.entries(this.page.bounds)
                    .filter(([bound]) => seen.has(bound))
                    .map(([bound, meaning]) => swatch(`bound-${bound}`, bound, meaning)),
            );
        }
        const idle = new Set(timeline.lanes.filter((lane) => lane.role === "idle").map((lane) => lane.depth));
        if (idle.size) {
            items.push(
                "Idle because of:",
                ...timeline.causes.map((cause, i) => (idle.has(i) ? swatch(`part-${timeline.parts[i]}`, cause) : "")),
            );
        }
        items.push(
            el(
                "span.note",
                "Where blocks are narrower than a pixel, the height is the share of the time that the lane " +
                    "is busy.",
            ),
        );
        this.legend.replaceChildren(
            ...items.filter(Boolean).map((item) => (typeof item === "string" ? el("b", item) : item)),
        );
    }

    layOut() {
        const { rows, height } = flopscope.timelineRows.place(this.groups);
        this.rows = rows;
        this.labels.replaceChildren(
            ...rows.map((row) => {
                const style = { top: `${row.y}px`, height: `${row.height}px` };
                if (row.role !== "group") {
                    return el("div", { class: `timeline-label ${row.role}`, style, title: row.label, text: row.label });
                }
                const { group } = row;
                return el(
                    "button.timeline-group",
                    {
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
                    el("span.timeline-arrow", { "aria-hidden": "true", text: group.open ? "▾" : "▸" }),
                    el("span.cut", group.title),
                    group.model ? el("span.note.cut", group.model.replace(/^NVIDIA /, "")) : "",
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
        this.axis.style.marginLeft = `${gutter}px`;
        this.painter.resize(this.canvas.width, this.canvas.height, ratio);
    }
};
