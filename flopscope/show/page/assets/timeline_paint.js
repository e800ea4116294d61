/* Painting of the timeline into an array of pixels: a million blocks at any zoom in a few ms.

   A block that is wide enough is a rectangle. Narrower ones share columns of one pixel: the height is the share of the
   pixel's time in which the lane was busy, and the colour that of the longest block in it. */
"use strict";

flopscope.TimelinePainter = class {
    constructor(timeline) {
        this.timeline = timeline;
        this.texts = []; // of the blocks that are wide enough: block, x, y, width, height
        this.width = this.height = 0;
        this.pale = 0; // the pixel behind blocks of several events
    }

    resize(width, height, unit) {
        this.unit = Math.max(Math.round(unit), 1); // device pixels of a CSS pixel
        if (width === this.width && height === this.height) return;
        this.width = width;
        this.height = height;
        this.image = new ImageData(width, height);
        this.pixels = new Uint32Array(this.image.data.buffer);
    }

    rect(x0, y0, x1, y1, color) {
        const { pixels, width } = this;
        const from = Math.max(x0, 0),
            to = Math.min(x1, width),
            end = Math.min(y1, this.height);
        if (from >= to) return;
        for (let y = Math.max(y0, 0); y < end; y++) pixels.fill(color, y * width + from, y * width + to);
    }

    /* A column of one pixel, from `y0` to below `y1`. */
    column(x, y0, y1, color) {
        const { pixels, width } = this;
        if (x < 0 || x >= width) return;
        const end = Math.min(y1, this.height) * width + x;
        for (let at = Math.max(y0, 0) * width + x; at < end; at += width) pixels[at] = color;
    }

    /* The same, hatched as the parts of the time in the waterfall (style.css): pattern is -1 for a plain colour. */
    hatched(x, y0, y1, [strong, soft, pattern]) {
        const { pixels, width, unit } = this;
        if (x < 0 || x >= width) return;
        if (pattern < 0) {
            this.column(x, y0, y1, strong);
            return;
        }
        const size = 6 * unit,
            slope = [1, -1, 0][pattern],
            thick = [2, 2, 3][pattern] * unit;
        for (let y = Math.max(y0, 0), end = Math.min(y1, this.height); y < end; y++) {
            const at = (((x + slope * y) % size) + size) % size;
            pixels[y * width + x] = at < thick ? strong : soft;
        }
    }

    /* Paint a lane: view is {from, scale} in ns and pixels per ns; colorOf(block) a pixel; wide: the least width in
       pixels of a block with a text, 0 for none. */
    lane(lane, y0, y1, view, colorOf, wide) {
        const { timeline } = this;
        const { start, duration, busy } = timeline;
        const { from, scale } = view;
        const to = from + this.width / scale,
            least = 1.5 / scale,
            high = y1 - y0;
        let i = timeline.firstAfter(lane, from);
        while (i < lane.end && start[i] < to) {
            if (duration[i] >= least) {
                this.block(
                    i,
                    y0,
                    y1,
                    (start[i] - from) * scale,
                    (start[i] + duration[i] - from) * scale,
                    busy[i] / duration[i],
                    colorOf(i),
                    wide,
                );
                i++;
                continue;
            }
            const x = Math.floor((start[i] - from) * scale),
                begin = from + x / scale,
                end = from + (x + 1) / scale;
            let next = timeline.gallop(i, lane.end, end);
            if (next === i) next = i + 1; // the rounding of times at high zoom
            const done = timeline.busyUntil(lane, next, end) - timeline.busyUntil(lane, i, begin);
            const tall = Math.max(Math.round(Math.min(done * scale, 1) * high), Math.min(2, high));
            const last = next - 1,
                apart = last > i && duration[last] >= least; // it reaches beyond the pixel
            this.column(x, y1 - tall, y1, colorOf(timeline.top(i, apart ? last : next)));
            i = apart ? last : next;
        }
    }

    block(index, y0, y1, left, right, share, color, wide) {
        const x0 = Math.round(Math.max(left, -2)),
            x1 = Math.max(Math.round(Math.min(right, this.width + 2)), x0 + 1);
        const gap = right - left >= 4 ? 1 : 0; // between neighbours
        const top = share < 0.999 ? Math.min(y1 - Math.round(share * (y1 - y0)), y1 - 2) : y0;
        if (top > y0) this.rect(x0, y0, x1 - gap, top, this.pale); // several events: the height is their share
        this.rect(x0, top, x1 - gap, y1, color);
        const shown = Math.min(x1, this.width) - Math.max(x0, 0);
        if (wide > 0 && shown >= wide) {
            this.texts.push({ index, x: Math.max(x0, 0), y: y0, width: shown, height: y1 - y0, several: top > y0 });
        }
    }

    /* Paint the idle times of a device: the shares of the causes in each pixel, one above the other. */
    idle(lanes, y0, y1, view, colors) {
        const { timeline } = this;
        const { from, scale } = view;
        const high = y1 - y0,
            cursors = lanes.map((lane) => timeline.lower(lane.first, lane.end, from));
        const before = lanes.map((lane, k) => timeline.busyUntil(lane, cursors[k], from));
        for (let x = 0; x < this.width; x++) {
            const end = from + (x + 1) / scale;
            let sum = 0,
                y = y1;
            for (let k = 0; k < lanes.length; k++) {
                const next = timeline.gallop(cursors[k], lanes[k].end, end);
                const until = timeline.busyUntil(lanes[k], next, end),
                    share = (until - before[k]) * scale;
                cursors[k] = next;
                before[k] = until;
                if (share <= 0) continue;
                sum += share;
                const top = y1 - Math.max(Math.round(Math.min(sum, 1) * high), 1);
                this.hatched(x, top, y, colors[lanes[k].depth]);
                y = Math.min(y, top);
            }
        }
    }
};
