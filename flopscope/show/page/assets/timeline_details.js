/* What the timeline says of the selected event, and of a part of the time. */
"use strict";

Object.assign(flopscope.TimelineView.prototype, {
    point(event) {
        if (event.buttons) return;
        const block = this.blockAt(event);
        if (block !== this.hover) {
            this.hover = block;
            this.draw();
        }
        const { track } = this.rowAt(event) || {},
            time = this.timeAt(event),
            half = (0.5 * this.ratio) / this.scale;
        this.tip.hidden = block < 0 && !track;
        if (this.tip.hidden) return;
        const el = flopscope.element,
            facts = track ? flopscope.timelineCounters.facts(track, time - half, time + half) : this.facts(block);
        this.tip.replaceChildren(
            el("b", { text: facts[0][1].slice(0, 300) }),
            ...facts.slice(1, 5).map(([name, value]) => el("span", { text: `${name} ${value}` })),
        );
        const box = this.element.getBoundingClientRect(),
            wide = this.tip.offsetWidth;
        const x = Math.min(event.clientX - box.left + 14, box.width - wide - 4);
        this.tip.style.left = `${Math.max(x, 0)}px`;
        this.tip.style.top = `${event.clientY - box.top + 18}px`;
    },

    unpoint() {
        this.tip.hidden = true;
        if (this.hover < 0) return;
        this.hover = -1;
        this.draw();
    },

    /* Texts of a block: [name, value], its own name first. */
    facts(block) {
        const { timeline, page } = this,
            { format } = flopscope,
            { text } = flopscope.timeAxis;
        const lane = timeline.laneOf(block),
            several = timeline.count && timeline.count[block] > 1;
        const facts = [
            [
                "",
                several
                    ? `${format.count(timeline.count[block])} events, the longest: ${timeline.nameOf(block)}`
                    : timeline.nameOf(block),
            ],
        ];
        facts.push(["Duration", text(timeline.duration[block])]);
        if (several) facts.push(["Busy", text(timeline.busy[block])]);
        facts.push(["Start", text(timeline.start[block])]);
        const where =
            lane.device >= 0
                ? `${flopscope.page.unit(lane.device)}${lane.id !== null ? `, stream ${lane.id}` : ""}`
                : lane.id !== null
                  ? `thread ${lane.id}`
                  : "across threads";
        facts.push(["On", `${lane.part ? `${lane.part}, ` : ""}${where}`]);
        if (lane.role === "idle") return facts;
        const label = timeline.label[block] - 1,
            launch = label >= 0 ? timeline.labels.launch(label) : null;
        facts.push(["Kind", timeline.labels.kind(label)]);
        if (launch) {
            facts.push(
                ["Grid", launch.grid],
                ["Block", `${launch.block} threads`],
                ["Registers", `${launch.registers} a thread`],
            );
            if (launch.shared) facts.push(["Shared memory", format.bytes(launch.shared)]);
            if (launch.graph) facts.push(["CUDA graph", String(launch.graph)]);
        }
        const bytes = timeline.bytesOf(block);
        if (bytes) {
            facts.push(
                ["Bytes", format.bytes(bytes)],
                ["Rate", format.byteRate((bytes / timeline.duration[block]) * 1e9)],
            );
        }
        if (timeline.link[block] > 0 && lane.role === "work") {
            const call = timeline.link[block] - 1;
            facts.push(
                ["Launched by", timeline.nameOf(call)],
                ["After the launch began", text(timeline.start[block] - timeline.start[call])],
            );
        }
        const row = timeline.rowOf(block);
        if (row >= 0 && page.rows) facts.push(...this.factsOfRow(row));
        return facts;
    },

    factsOfRow(row) {
        const { rows } = this.page,
            { format } = flopscope,
            calls = rows.get("count", row) || 1;
        const facts = [["Op", rows.get("key", row) || ""]];
        const add = (name, value, text) => {
            if (format.known(value)) facts.push([name, text(value)]);
        };
        if (rows.get("input_shapes", row)) facts.push(["Shapes", rows.get("input_shapes", row)]);
        if (rows.get("input_dtypes", row)) facts.push(["Dtypes", rows.get("input_dtypes", row)]);
        add("FLOPs a call", rows.get("flops", row) / calls, format.flops);
        add("Bytes a call", rows.get("bytes_total_moved", row) / calls, format.bytes);
        add("Rate of the op", rows.get("tflops_per_s", row) * 1e12, format.flopRate);
        add("Bandwidth of the op", rows.get("gbytes_per_s", row) * 1e9, format.byteRate);
        add("Of the roofline", rows.get("pct_roofline", row), format.percent);
        const bound = rows.get("bound", row);
        if (bound && bound !== "unknown") facts.push(["Bound", bound]);
        return facts;
    },

    showDetails() {
        const el = flopscope.element;
        if (this.range) {
            this.details.replaceChildren(...this.rangeDetails());
            return;
        }
        if (this.selected < 0) {
            this.details.replaceChildren(
                el("p", {
                    class: "note",
                    text: "Click an event for its details, or press Enter and then comma and full stop.",
                }),
            );
            return;
        }
        const facts = this.facts(this.selected),
            row = this.timeline.rowOf(this.selected);
        const buttons = [flopscope.draw.button("Zoom to it", () => this.fit(), { title: "F" })];
        if (this.arrows.length) {
            buttons.push(
                flopscope.draw.button(
                    this.timeline.laneOf(this.selected).role === "work" ? "Go to its launch" : "Go to its work",
                    () => this.jump(),
                    { title: "L" },
                ),
            );
        }
        if (this.timeline.laneOf(this.selected).role === "idle" && this.timeline.link[this.selected] > 0) {
            const next = this.timeline.link[this.selected] - 1;
            buttons.push(
                flopscope.draw.button("Go to the work that ended it", () => {
                    this.choose(next);
                    this.showBlock(next, 0);
                }),
            );
        }
        this.details.replaceChildren(
            el(
                "div",
                { class: "timeline-chosen" },
                el("h3", { class: "cut", title: facts[0][1], text: facts[0][1] }),
                ...buttons,
            ),
            el(
                "dl",
                {},
                facts
                    .slice(1)
                    .map(([name, value]) =>
                        el(
                            "div",
                            {},
                            el("dt", { text: name }),
                            el(
                                "dd",
                                { class: "cut", title: value },
                                name === "Op" && row >= 0 ? flopscope.draw.link(value, row, "timeline-details") : value,
                            ),
                        ),
                    ),
            ),
        );
    },

    rangeDetails() {
        const el = flopscope.element,
            { format } = flopscope,
            { text } = flopscope.timeAxis,
            { timeline } = this;
        const { from, to } = this.range,
            length = to - from,
            sums = timeline.sums(from, to);
        const share = (time) => format.percent((100 * time) / length);
        const nameOf = (lane) => {
            const thread = lane.id !== null ? `thread ${lane.id}` : "across threads";
            const place = lane.device >= 0 ? flopscope.page.unit(lane.device) : thread;
            return `${lane.part ? `${lane.part}, ` : ""}${place}`;
        };
        const order = new Map(this.groups.flatMap((group) => group.lanes).map((lane, i) => [lane.index, i]));
        const lanes = sums.lanes
            .filter((one) => one.busy > 0 && one.lane.role !== "overhead")
            .sort((a, b) => order.get(a.lane.index) - order.get(b.lane.index));
        const busy = lanes
            .map((one) => ({
                ...one,
                name:
                    one.lane.role === "idle"
                        ? `${nameOf(one.lane)}, idle: ${timeline.causes[one.lane.depth]}`
                        : `${nameOf(one.lane)}` +
                          `${one.lane.device >= 0 && one.lane.id !== null ? `, stream ${one.lane.id}` : ""}` +
                          `${one.lane.role === "annotation" ? ", ranges" : ""}`,
            }))
            .slice(0, 24);
        return [
            el(
                "div",
                { class: "timeline-chosen" },
                el("h3", { text: `${text(length)}, from ${text(from)} to ${text(to)}` }),
                flopscope.draw.button("Zoom to it", () => this.fit(), { title: "F" }),
                flopscope.draw.button("Clear", () => this.clear(), { title: "Esc" }),
            ),
            el(
                "div",
                { class: "timeline-sums" },
                flopscope.draw.table(
                    busy,
                    [
                        ["<Lane", "text:name"],
                        ["Time", (one) => text(one.busy)],
                        ["Of the range", (one) => share(one.busy)],
                        ["Events", "count:blocks"],
                    ],
                    "Busy and idle times of the range",
                ),
                sums.labels.length
                    ? flopscope.draw.table(
                          sums.labels.slice(0, 8),
                          [
                              ["<Device work", (one) => flopscope.draw.link(one.name, one.row, "timeline-details")],
                              ["Time", (one) => text(one.time)],
                              ["Of the range", (one) => share(one.time)],
                              ["Count", "count:count"],
                          ],
                          "Device work of the range",
                      )
                    : "",
                flopscope.timelineCounters.ofRange(timeline, from, to),
            ),
        ];
    },
});
