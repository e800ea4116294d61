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

    /* Texts of a block: [name, value], its own name first; of what is not known there are none. */
    facts(block) {
        const { timeline } = this,
            { text } = flopscope.timeAxis,
            { device, id, part, role } = timeline.laneOf(block);
        const several = timeline.count && timeline.count[block] > 1,
            own = timeline.nameOf(block);
        const where =
            device >= 0
                ? `${flopscope.page.unit(device)}${id !== null ? `, stream ${id}` : ""}`
                : id !== null
                  ? `thread ${id}`
                  : "across threads";
        const name = several ? `${format.count(timeline.count[block])} events, the longest: ${own}` : own;
        const known = [
            ["Duration", text(timeline.duration[block])],
            ["Busy", several && text(timeline.busy[block])],
            ["Start", text(timeline.start[block])],
            ["On", `${part ? `${part}, ` : ""}${where}`],
            ...(role === "idle" ? [] : this.factsOfWork(block, role === "work")),
        ];
        return [["", name], ...known.filter(([, value]) => value)];
    },

    factsOfWork(block, isOfDevice) {
        const { timeline, page } = this;
        const label = timeline.label[block] - 1,
            launch = (label >= 0 && timeline.labels.launch(label)) || {},
            bytes = timeline.bytesOf(block),
            call = isOfDevice ? timeline.link[block] - 1 : -1,
            row = timeline.rowOf(block);
        const late = timeline.start[block] - timeline.start[call];
        return [
            ["Kind", timeline.labels.kind(label)],
            ["Grid", launch.grid],
            ["Block", launch.block && `${launch.block} threads`],
            ["Registers", "registers" in launch && `${launch.registers} a thread`],
            ["Shared memory", launch.shared && format.bytes(launch.shared)],
            ["CUDA graph", launch.graph && String(launch.graph)],
            ["Bytes", bytes && format.bytes(bytes)],
            ["Rate", bytes && format.byteRate((bytes / timeline.duration[block]) * 1e9)],
            ["Launched by", call >= 0 && timeline.nameOf(call)],
            ["After the launch began", call >= 0 && flopscope.timeAxis.text(late)],
            ...(row >= 0 && page.rows ? this.factsOfRow(row) : []),
        ];
    },

    factsOfRow(row) {
        const { rows } = this.page,
            calls = rows.get("count", row) || 1,
            bound = rows.get("bound", row);
        const text = (name, scale, print) => {
            const value = rows.get(name, row) * scale;
            return format.known(value) && print(value);
        };
        return [
            ["Op", rows.get("key", row)],
            ["Shapes", rows.get("input_shapes", row)],
            ["Dtypes", rows.get("input_dtypes", row)],
            ["FLOPs a call", text("flops", 1 / calls, format.flops)],
            ["Bytes a call", text("bytes_total_moved", 1 / calls, format.bytes)],
            ["Rate of the op", text("tflops_per_s", 1e12, format.flopRate)],
            ["Bandwidth of the op", text("gbytes_per_s", 1e9, format.byteRate)],
            ["Of the roofline", text("pct_roofline", 1, format.percent)],
            ["Bound", bound !== "unknown" && bound],
        ];
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
