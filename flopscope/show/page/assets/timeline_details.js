/* What the timeline says of the selected event, and of what is below the pointer. */
"use strict";

Object.assign(flopscope.TimelineView.prototype, {
    /* What is below the pointer, as the title of the canvas. */
    point(event) {
        if (event.buttons) return;
        const block = this.blockAt(event),
            { track } = this.rowAt(event) || {},
            time = this.timeAt(event),
            half = (0.5 * this.ratio) / this.scale;
        const facts = track
            ? flopscope.timelineCounters.facts(track, time - half, time + half)
            : block < 0
              ? []
              : this.facts(block);
        this.canvas.title = facts
            .slice(0, 5)
            .map(([name, value]) => `${name} ${value.slice(0, 300)}`.trim())
            .join("\n");
    },

    /* Texts of a block: [name, value], its own name first. */
    facts(block) {
        const { timeline, page } = this,
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
        if (this.selected < 0) {
            this.details.replaceChildren(
                el("p.note", "Click an event for its details, or press Enter and then comma and full stop."),
            );
            return;
        }
        const facts = this.facts(this.selected),
            row = this.timeline.rowOf(this.selected);
        const buttons = [draw.button("Zoom to it", () => this.fit(), { title: "F" })];
        if (this.arrows.length) {
            buttons.push(
                draw.button(
                    this.timeline.laneOf(this.selected).role === "work" ? "Go to its launch" : "Go to its work",
                    () => this.jump(),
                    { title: "L" },
                ),
            );
        }
        if (this.timeline.laneOf(this.selected).role === "idle" && this.timeline.link[this.selected] > 0) {
            const next = this.timeline.link[this.selected] - 1;
            buttons.push(
                draw.button("Go to the work that ended it", () => {
                    this.choose(next);
                    this.showBlock(next, 0);
                }),
            );
        }
        this.details.replaceChildren(
            el("div.timeline-chosen", el("h3.cut", { title: facts[0][1], text: facts[0][1] }), ...buttons),
            el(
                "dl",
                facts
                    .slice(1)
                    .map(([name, value]) =>
                        el(
                            "div",
                            el("dt", name),
                            el(
                                "dd.cut",
                                { title: value },
                                name === "Op" && row >= 0 ? draw.link(value, row, "timeline-details") : value,
                            ),
                        ),
                    ),
            ),
        );
    },
});
