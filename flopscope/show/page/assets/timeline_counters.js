/* The tracks of hardware counters and of memory: one row each, below the streams of their device; memory of the CPU
   below the thread that comes first. */
"use strict";

flopscope.timelineCounters = (() => {
    const HEIGHT = 30; // CSS pixels
    const SERIES = {
        ...{ dram_bytes_read: 1, dram_bytes_written: 6, sm_active: 3, tensor_active: 2 },
        ...{ memory_allocated: 1, memory_reserved: 7 },
    };

    /* The text of a value in the unit of its track. */
    const text = (track, value) => format.unit(value, track.unit);

    async function load(tracks, page) {
        return Promise.all(
            tracks.map(async (one) => {
                const names = ["start", "duration", "mean", "low", "high"];
                const { start, duration, mean, low, high } = await page.load(one, names);
                const begin = Float64Array.from(start);
                for (let i = 1; i < begin.length; i++) begin[i] += begin[i - 1];
                const [name, label, unit] = [one.name, one.label, one.unit].map((place) => page.strings[place]);
                return {
                    name,
                    label,
                    unit,
                    device: one.device,
                    part: one.part >= 0 ? page.strings[one.part] : "",
                    samples: one.samples,
                    top: one.top > 0 ? one.top : 1,
                    start: begin,
                    duration,
                    mean,
                    low: low || mean,
                    high: high || mean,
                    merged: Boolean(low),
                };
            }),
        );
    }

    /* The rows of a device in a group; -1: of the CPU. */
    function rows(timeline, group, device) {
        return timeline.tracks
            .filter((track) => track.device === device && track.part === group.part)
            .map((track) => ({
                role: "counter",
                lanes: [],
                track,
                label: `${track.label}, to ${text(track, track.top)}`,
                height: HEIGHT,
            }));
    }

    /* The first sample that ends after a time. */
    function firstAfter(track, time) {
        const { start, duration } = track;
        return flopscope.firstWhere(0, start.length, (i) => start[i] + duration[i] > time);
    }

    /* The mean of a part of the time, with the least and the largest of its samples; null where nothing was counted. */
    function over(track, from, to) {
        const { start, duration, mean } = track;
        let sum = 0,
            time = 0,
            low = Infinity,
            high = -Infinity;
        for (let i = firstAfter(track, from); i < start.length && start[i] < to; i++) {
            const part = Math.min(start[i] + duration[i], to) - Math.max(start[i], from);
            sum += part * mean[i];
            time += part;
            low = Math.min(low, track.low[i]);
            high = Math.max(high, track.high[i]);
        }
        return time > 0 ? { mean: sum / time, low, high } : null;
    }

    /* What a track counted at a time, to the width of a pixel: [name, value], its own name first. */
    function facts(track, from, to) {
        const found = over(track, from, to),
            named = [["", track.label]];
        if (!found) return [...named, ["Here", "not counted"]];
        if (found.high > found.low) {
            return [
                ...named,
                ["Mean", text(track, found.mean)],
                ["Least", text(track, found.low)],
                ["Largest", text(track, found.high)],
            ];
        }
        return [...named, ["Counted", text(track, found.mean)]];
    }

    /* What the page says about its tracks. */
    function notes(data, tracks, devices) {
        const lines = [],
            { count, plural } = format;
        const merged = tracks.filter((track) => track.merged);
        if (merged.length) {
            const samples = merged.reduce((sum, one) => sum + one.samples, 0);
            lines.push(
                `Of ${count(samples)} samples of counters, those that begin in the same one of ${count(data.limit)} ` +
                    "equal parts of the time of their track are drawn as one: their mean, and pale their largest.",
            );
        }
        if (data.left_out) {
            lines.push(
                `${plural(data.left_out, "more counter")} ${data.left_out === 1 ? "is" : "are"} not drawn; ` +
                    `prof.counter_timeline() has all.`,
            );
        }
        const unused = new Set(
            tracks
                .filter((track) => track.device >= 0 && !devices.has(`${track.part}|${track.device}`))
                .map((track) => flopscope.page.unit(track.device)),
        );
        if (unused.size) {
            lines.push(`The counters of ${[...unused].join(", ")}, which ran no recorded work, are not drawn.`);
        }
        return lines;
    }

    const seriesOf = (track) => flopscope.colors.named(`series-${SERIES[track.name] || 7}`);

    return { load, rows, firstAfter, facts, notes, seriesOf };
})();

/* Paint a track: in each pixel its mean, and pale above it the largest. Time that was not counted is left blank. */
flopscope.TimelinePainter.prototype.track = function (track, y0, y1, view, [strong, soft]) {
    const { start, duration, mean, high, top } = track,
        { from, scale } = view;
    const heightOf = (value) => Math.round(Math.min(Math.max(value / top, 0), 1) * (y1 - y0));
    let i = flopscope.timelineCounters.firstAfter(track, from);
    for (let x = 0; x < this.width && i < start.length; x++) {
        const begin = from + x / scale,
            end = from + (x + 1) / scale;
        let sum = 0,
            time = 0,
            most = -Infinity;
        for (; ; i++) {
            if (i >= start.length || start[i] >= end) break;
            const part = Math.min(start[i] + duration[i], end) - Math.max(start[i], begin);
            if (part > 0) {
                sum += part * mean[i];
                time += part;
                most = Math.max(most, high[i]);
            }
            if (start[i] + duration[i] > end) break; // the next pixel has the rest
        }
        if (time <= 0) continue;
        const tall = Math.max(heightOf(sum / time), this.unit);
        this.column(x, y1 - Math.max(heightOf(most), tall), y1 - tall, soft);
        this.column(x, y1 - tall, y1, strong);
    }
};
