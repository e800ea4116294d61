/* What the timeline draws: lanes, marks, arrows and the axis. */
"use strict";

Object.assign(flopscope.TimelineView.prototype, {
    paint() {
        this.frames++;
        const scale = this.canvas.width / (this.view.to - this.view.from);
        this.scale = scale; // device pixels per ns
        this.paintLanes();
        this.paintAxis();
    },

    x(time) {
        return (time - this.view.from) * this.scale;
    },

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
    },

    /* Call for each step in view. */
    eachStep(call) {
        const { steps } = this.timeline;
        let i = flopscope.firstWhere(0, steps.length, (place) => steps[place].end >= this.view.from);
        for (; i < steps.length && steps[i].begin <= this.view.to; i++) call(steps[i], i);
    },

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
    },

    rowOfLane(lane) {
        return (
            this.rows.find((row) => row.role !== "group" && row.lanes.includes(lane)) ||
            this.rows.find((row) => row.role === "group" && row.group.lanes.includes(lane))
        );
    },

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
    },

    paintMarks(context) {
        const { ratio } = this;
        const { css } = flopscope.colors;
        const at = this.selected < 0 ? null : this.place(this.selected);
        if (!at) return;
        const x0 = Math.max(at.x0, -10),
            x1 = Math.min(Math.max(at.x1, at.x0 + 2 * ratio), this.canvas.width + 10);
        if (x1 >= 0 && x0 <= this.canvas.width) {
            context.lineWidth = 2 * ratio;
            context.strokeStyle = css(this.ink);
            context.strokeRect(x0 - ratio, at.y0 + 0.5 * ratio, x1 - x0 + 2 * ratio, at.y1 - at.y0 - ratio);
        }
        for (const [from, to] of this.arrows) this.arrow(context, from, to);
    },

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
    },

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
    },
});
