/* What the timeline does: zoom, pan, select and search. */
"use strict";

Object.assign(flopscope.TimelineView.prototype, {
    listen() {
        const { canvas, scroller } = this;
        scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
        scroller.addEventListener("scroll", () => this.draw(), { passive: true });
        scroller.addEventListener("keydown", (event) => this.key(event));
        canvas.addEventListener("pointerdown", (event) => this.press(event));
        canvas.addEventListener("pointermove", (event) => this.point(event));
        new ResizeObserver(() => {
            this.measure();
            this.paint(); // in this frame: a canvas is empty after its size changed
        }).observe(this.element);
        flopscopeTheme.listeners.push(() => {
            this.paintColors();
            this.sayLegend();
            this.paint(); // at once: the page may be about to be printed
        });
        this.page.onSelect((row, details) => this.follow(row, details));
    },

    timeAt(event) {
        const box = this.canvas.getBoundingClientRect();
        return this.view.from + ((event.clientX - box.left) / box.width) * (this.view.to - this.view.from);
    },

    rowAt(event) {
        const y = event.clientY - this.canvas.getBoundingClientRect().top + this.scroller.scrollTop;
        return this.rows.find((one) => y >= one.y && y < one.y + one.height);
    },

    blockAt(event) {
        const time = this.timeAt(event),
            row = this.rowAt(event);
        if (!row) return -1;
        const slack = (3 * this.ratio) / this.scale;
        for (const near of [0, slack]) {
            for (const lane of row.lanes) {
                const block = this.timeline.at(lane, time, near);
                if (block >= 0) return block;
            }
        }
        return -1;
    },

    /* The view ----------------------------------------------------------------------------------------------------- */

    show({ from, to }) {
        const whole = this.whole.to - this.whole.from,
            middle = (from + to) / 2;
        const size = Math.min(Math.max(to - from, 20), whole); // at least 20 ns
        const begin = Math.min(Math.max(middle - size / 2, this.whole.from), this.whole.to - size);
        this.view = { from: begin, to: begin + size };
        this.draw();
        this.remember();
    },

    /* Keep the view and the selected event in the address, once they rest. */
    remember() {
        clearTimeout(this.remembering);
        this.remembering = setTimeout(() => {
            const { from, to } = this.view,
                all = from <= this.whole.from && to >= this.whole.to;
            const view = all ? {} : { from: Math.round(from), to: Math.round(to) };
            flopscope.address.write("timeline", { ...view, event: this.selected < 0 ? "" : String(this.selected) });
        }, 400);
    },

    restore(state) {
        const from = Number(state.get("from")),
            to = Number(state.get("to"));
        if (state.has("from") && to > from) this.show({ from, to });
        const event = state.has("event") ? Number(state.get("event")) : -1;
        if (!Number.isInteger(event) || event < 0 || event >= this.timeline.length) return;
        this.choose(event);
        this.showBlock(event, 0);
    },

    zoom(factor, around) {
        const { from, to } = this.view;
        const still = around === undefined ? this.middle() : around;
        this.show({ from: still - (still - from) * factor, to: still + (to - still) * factor });
    },

    /* Keys zoom around the selected event while it is in view. */
    middle() {
        const { from, to } = this.view;
        if (this.selected >= 0) {
            const at = this.timeline.start[this.selected] + this.timeline.duration[this.selected] / 2;
            if (at > from && at < to) return at;
        }
        return (from + to) / 2;
    },

    pan(share) {
        const size = this.view.to - this.view.from;
        this.show({ from: this.view.from + share * size, to: this.view.to + share * size });
    },

    wheel(event) {
        const lines = event.deltaMode === 1 ? 16 : 1;
        if (event.ctrlKey || event.metaKey) {
            event.preventDefault();
            this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * lines)) / 160), this.timeAt(event));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
            event.preventDefault();
            this.pan((lines * (event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX)) / this.width);
        }
    },

    /* Show a block in the middle; `share`: of the width that it takes, 0 keeps the zoom unless the block is wider. */
    showBlock(block, share) {
        const from = this.timeline.start[block],
            size = Math.max(this.timeline.duration[block], 10);
        const width = share > 0 ? size / share : Math.max(this.view.to - this.view.from, size * 1.2);
        const inside = from >= this.view.from && from + size <= this.view.to;
        if (share > 0 || !inside) this.show({ from: from + size / 2 - width / 2, to: from + size / 2 + width / 2 });
        const lane = this.timeline.laneOf(block);
        const group = this.groups.find((one) => one.lanes.includes(lane));
        if (!group.open && !group.summary.includes(lane)) {
            group.open = true;
            this.layOut();
        }
        const row = this.rowOfLane(lane),
            top = this.scroller.scrollTop,
            high = this.scroller.clientHeight;
        if (row.y < top) this.scroller.scrollTop = Math.max(row.y - 30, 0);
        else if (row.y + row.height > top + high) this.scroller.scrollTop = row.y + row.height - high + 30;
    },

    /* Pointer and keys --------------------------------------------------------------------------------------------- */

    press(event) {
        if (event.button !== 0) return;
        event.preventDefault();
        this.scroller.focus({ preventScroll: true });
        const began = { x: event.clientX, y: event.clientY, top: this.scroller.scrollTop, ...this.view };
        const { target } = event,
            over = new AbortController();
        let moved = false;
        const move = (now) => {
            const dx = now.clientX - began.x,
                dy = now.clientY - began.y;
            moved = moved || Math.hypot(dx, dy) > 4;
            if (!moved) return;
            this.canvas.classList.add("dragged");
            const shift = (-dx / this.width) * (began.to - began.from);
            this.scroller.scrollTop = began.top - dy;
            this.show({ from: began.from + shift, to: began.to + shift });
        };
        const end = (now) => {
            over.abort();
            this.canvas.classList.remove("dragged");
            if (!moved) this.choose(this.blockAt(now));
        };
        target.setPointerCapture(event.pointerId);
        const listen = (kind, act) => target.addEventListener(kind, act, { signal: over.signal });
        listen("pointermove", move);
        listen("pointerup", end);
        listen("pointercancel", end);
    },

    key(event) {
        if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.scroller) return;
        const actions = {
            w: () => this.zoom(1 / 1.4),
            s: () => this.zoom(1.4),
            a: () => this.pan(-0.15),
            d: () => this.pan(0.15),
            0: () => this.show(this.whole),
            ArrowLeft: () => this.pan(-0.15),
            ArrowRight: () => this.pan(0.15),
            ArrowUp: () => {
                this.scroller.scrollTop -= 40;
            },
            ArrowDown: () => {
                this.scroller.scrollTop += 40;
            },
            ",": () => this.neighbour(-1),
            ".": () => this.neighbour(1),
            l: () => this.jump(),
            f: () => this.fit(),
            Enter: () => this.neighbour(0),
            Escape: () => this.clear(),
        };
        const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
        if (!action) return;
        event.preventDefault();
        action();
    },

    clear() {
        this.selected = -1;
        this.arrows = [];
        this.search.value = "";
        this.query = "";
        this.found.textContent = "";
        this.matching = null;
        this.page.select(null);
        this.showDetails();
        this.draw();
        this.remember();
    },

    fit() {
        if (this.selected >= 0) this.showBlock(this.selected, 0.6);
    },

    /* Select the next block of the lane; with 0 the longest of the first lane in view, if none is selected. */
    neighbour(by) {
        const { timeline } = this;
        if (this.selected < 0) {
            const row = this.rows.find(
                (one) => one.lanes.some((lane) => lane.role !== "idle") && one.y >= this.scroller.scrollTop,
            );
            if (!row) return;
            const lane = row.lanes.find((one) => one.role !== "idle");
            const from = timeline.firstAfter(lane, this.view.from),
                to = timeline.lower(from, lane.end, this.view.to);
            if (to > from) this.choose(timeline.top(from, to));
            return;
        }
        const lane = timeline.laneOf(this.selected),
            next = this.selected + by;
        if (next < lane.first || next >= lane.end) return;
        this.choose(next);
        this.showBlock(next, 0);
    },

    /* Go from device work to its launch, and from a launch to the work. */
    jump() {
        if (this.selected < 0 || !this.arrows.length) return;
        const [from, to] = this.arrows[0];
        const next = to === this.selected ? from : to;
        this.choose(next);
        this.showBlock(next, 0);
    },

    /* Selection ---------------------------------------------------------------------------------------------------- */

    choose(block) {
        this.mark(block);
        this.remember();
        if (block < 0) {
            this.page.select(null);
            return;
        }
        const row = this.timeline.rowOf(block);
        this.page.select(row >= 0 ? row : null, { event: block, source: "timeline" });
        flopscope.announce(
            this.facts(block)
                .map(([name, value]) => (name ? `${name} ${value}` : value))
                .slice(0, 5)
                .join(", "),
        );
    },

    mark(block) {
        const { timeline } = this;
        this.selected = block;
        this.arrows = [];
        if (block >= 0) {
            const lane = timeline.laneOf(block);
            if (lane.role === "host") {
                this.arrows = timeline.launchedBy(block, 64).map((work) => [timeline.link[work] - 1, work]);
            }
            if (timeline.link[block] > 0 && lane.role !== "idle") {
                this.arrows.unshift([timeline.link[block] - 1, block]);
            }
        }
        if (!this.query) this.matching = null;
        this.showDetails();
        this.draw();
    },

    /* Another section selected a row: show its blocks, and leave the others pale. */
    follow(row, details) {
        if (details.source === "timeline" && details.event !== undefined) return;
        if (details.event !== undefined && details.event >= 0 && details.event < this.timeline.length) {
            this.mark(details.event);
            this.showBlock(details.event, 0);
            return;
        }
        this.selected = -1;
        this.arrows = [];
        if (flopscope.address.read().id === "timeline") this.remember();
        this.matching =
            row === null ? null : { row, labels: this.labelsWhere((label) => this.timeline.labels.row(label) === row) };
        this.showDetails();
        this.draw();
    },

    labelsWhere(test) {
        const { labels } = this.timeline,
            found = new Uint8Array(labels.count + 1);
        for (let label = 0; label < labels.count; label++) found[label + 1] = test(label) ? 1 : 0;
        return found;
    },

    /* Search ------------------------------------------------------------------------------------------------------- */

    find(text) {
        this.query = text.trim().toLowerCase();
        if (!this.query) {
            this.matching = null;
            this.found.textContent = "";
        } else {
            const { timeline } = this;
            const labels = this.labelsWhere((label) => timeline.labels.name(label).toLowerCase().includes(this.query));
            this.matching = { row: -1, labels };
            let count = 0;
            for (let i = 0; i < timeline.length; i++) {
                if (labels[timeline.label[i]]) count += timeline.count ? timeline.count[i] : 1;
            }
            this.found.textContent = `${format.plural(count, "event")}`;
        }
        this.draw();
    },

    step(backwards) {
        if (!this.matching) return;
        const lanes = this.groups.flatMap((group) => group.lanes).filter((lane) => lane.role !== "idle");
        const test = (block) => this.matches(block);
        let next = this.timeline.next(lanes, this.selected, test, backwards);
        if (next < 0) next = this.timeline.next(lanes, -1, test, backwards); // around the end
        if (next < 0) return;
        const { matching } = this;
        this.choose(next);
        this.matching = matching;
        this.showBlock(next, 0);
    },
});

flopscope.section("timeline", {
    title: "Timeline",
    restore(state) {
        flopscope.timelineView.restore(state);
    },
    async mount(element, data, page) {
        const timeline = await flopscope.Timeline.load(data, page);
        element.classList.add("timeline");
        flopscope.timelineView = new flopscope.TimelineView(element, data, page, timeline);
    },
});
