/* The events of the timeline: lanes of blocks that do not overlap, in columns; searches by time.

   lane after lane   start │ duration │ label │ row of the op │ link        ns since the recording began
   prefix            busy time of the lane's blocks before this one          the busy share of any pixel in O(log n)
   tops              the longest block of each 32, and of each 32 of those   the colour of any pixel
*/
"use strict";

flopscope.Timeline = class {
    static async load(data, page) {
        const timeline = new flopscope.Timeline();
        const { label, row, link, count } = await page.load(data, ["label", "row", "link", "count"]);
        Object.assign(timeline, {
            page,
            label,
            row,
            count,
            facts: data.facts,
            causes: data.idle_labels,
            parts: data.idle_parts,
        });
        timeline.length = label.length;
        timeline.lanes = timeline.lanesOf(data.lanes);
        timeline.start = await timeline.startsOf(data.start);
        timeline.duration = await timeline.amountsOf(data.duration);
        timeline.busy = data.busy ? await timeline.amountsOf(data.busy) : timeline.duration;
        timeline.link = new Uint32Array(link.length); // block + 1; 0: none
        for (let i = 0, sum = 0; i < link.length; i++) timeline.link[i] = sum = (sum + link[i]) >>> 0;
        timeline.prefix = timeline.prefixes();
        timeline.tops = timeline.longest();
        timeline.labels = await timeline.labelsOf(data.labels);
        await timeline.loadRest(data);
        const memory = page.data.sections.memory ? page.data.sections.memory.tracks : [];
        timeline.tracks = await flopscope.timelineCounters.load([...data.counters.tracks, ...memory], page);
        timeline.counters = data.counters;
        timeline.extent();
        return timeline;
    }

    lanesOf(listed) {
        let first = 0;
        return listed.map((lane, index) => {
            const own = { ...lane, index, first, end: first + lane.count };
            own.part = lane.part >= 0 ? this.page.strings[lane.part] : "";
            own.model = lane.model >= 0 ? this.page.strings[lane.model] : "";
            first += lane.count;
            return own;
        });
    }

    async amountsOf(encoded) {
        const { values, large, apart } = await this.page.load(encoded);
        const amounts = Float64Array.from(values);
        for (let i = 0; i < large.length; i++) amounts[large[i]] = apart[i];
        return amounts;
    }

    async startsOf(encoded) {
        const starts = await this.amountsOf(encoded);
        for (const lane of this.lanes) {
            for (let i = lane.first + 1; i < lane.end; i++) starts[i] += starts[i - 1];
        }
        return starts;
    }

    prefixes() {
        const prefix = new Float64Array(this.length);
        for (const lane of this.lanes) {
            let sum = 0;
            for (let i = lane.first; i < lane.end; i++) {
                prefix[i] = sum;
                sum += this.busy[i];
            }
            lane.busy = sum;
        }
        return prefix;
    }

    /* The longest block of each 32, and of each 32 of those. */
    longest() {
        const { duration } = this;
        const fine = new Uint32Array(Math.ceil(this.length / 32));
        for (let i = 0; i < this.length; i++) {
            const at = i >>> 5;
            if ((i & 31) === 0 || duration[i] > duration[fine[at]]) fine[at] = i;
        }
        const coarse = new Uint32Array(Math.ceil(fine.length / 32));
        for (let i = 0; i < fine.length; i++) {
            const at = i >>> 5;
            if ((i & 31) === 0 || duration[fine[i]] > duration[coarse[at]]) coarse[at] = fine[i];
        }
        return [fine, coarse];
    }

    async labelsOf(described) {
        const { page } = this;
        const parts = ["kind", "name", "short", "row", "launch"];
        const { kind, name, short, row, launch } = await page.load(described, parts);
        return {
            count: kind.length,
            kind: (label) => described.kinds[kind[label]],
            name: (label) => (name[label] < 0 ? described.kinds[kind[label]] : page.strings[name[label]]),
            short: (label) => (short[label] < 0 ? described.kinds[kind[label]] : page.strings[short[label]]),
            row: (label) => row[label],
            launch: (label) => (launch[label] < 0 ? null : described.launches[launch[label]]),
        };
    }

    async loadRest(data) {
        this.bytes = await this.page.load(data.bytes);
        const { name, begin, end } = await this.page.load(data.steps);
        const text = (i) => this.page.strings[name[i]] || "step";
        this.steps = Array.from(begin, (from, i) => ({ name: text(i), begin: from, end: end[i] }));
    }

    extent() {
        let begin = Infinity,
            end = -Infinity;
        for (const lane of this.lanes) {
            begin = Math.min(begin, this.start[lane.first]);
            end = Math.max(end, this.start[lane.end - 1] + this.duration[lane.end - 1]);
        }
        this.begin = begin;
        this.end = end > begin ? end : begin + 1000;
    }

    /* The first block of [from, to) that begins at a time or later. */
    lower(from, to, time) {
        const { start } = this;
        while (from < to) {
            const middle = (from + to) >>> 1;
            if (start[middle] < time) from = middle + 1;
            else to = middle;
        }
        return from;
    }

    /* The same, near `from`: the blocks of a pixel are close to those of the pixel before it. */
    gallop(from, to, time) {
        const { start } = this;
        let step = 1;
        while (from + step < to && start[from + step] < time) step *= 2;
        return this.lower(from + (step >>> 1), Math.min(from + step + 1, to), time);
    }

    /* The first block of a lane that ends after a time. */
    firstAfter(lane, time) {
        const next = this.lower(lane.first, lane.end, time);
        return next > lane.first && this.start[next - 1] + this.duration[next - 1] > time ? next - 1 : next;
    }

    /* The block of a lane at a time, or within `slack` of it; -1: none. */
    at(lane, time, slack) {
        const next = this.firstAfter(lane, time);
        if (next < lane.end && this.start[next] <= time) return next;
        let best = -1,
            least = slack;
        for (const i of [next - 1, next]) {
            if (i < lane.first || i >= lane.end) continue;
            const distance = i === next ? this.start[i] - time : time - this.start[i] - this.duration[i];
            if (distance <= least) {
                best = i;
                least = distance;
            }
        }
        return best;
    }

    /* The busy time of a lane before a time; `next` is the first block that begins at it or later. */
    busyUntil(lane, next, time) {
        if (next === lane.first) return 0;
        const last = next - 1,
            inside = time - this.start[last];
        const part = inside >= this.duration[last] ? 1 : this.duration[last] > 0 ? inside / this.duration[last] : 1;
        return this.prefix[last] + part * this.busy[last];
    }

    /* The longest block of [from, to), which is not empty. */
    top(from, to) {
        const {
            duration,
            tops: [fine, coarse],
        } = this;
        let best = from;
        const look = (i) => {
            if (duration[i] > duration[best]) best = i;
        };
        let i = from;
        while (i < to) {
            if ((i & 1023) === 0 && i + 1024 <= to) {
                look(coarse[i >>> 10]);
                i += 1024;
            } else if ((i & 31) === 0 && i + 32 <= to) {
                look(fine[i >>> 5]);
                i += 32;
            } else {
                look(i);
                i++;
            }
        }
        return best;
    }

    laneOf(block) {
        return this.lanes[flopscope.firstWhere(0, this.lanes.length, (i) => this.lanes[i].end > block)];
    }

    nameOf(block) {
        const lane = this.laneOf(block);
        if (lane.role === "idle") return `idle: ${this.causes[lane.depth]}`;
        return this.label[block] > 0 ? this.labels.name(this.label[block] - 1) : "";
    }

    shortName(block) {
        return this.label[block] > 0 ? this.labels.short(this.label[block] - 1) : this.nameOf(block);
    }

    /* The row of the op of a block: that of the op to which device work belongs, or its own; -1: none. */
    rowOf(block) {
        if (this.row[block] > 0) return this.row[block] - 1;
        return this.label[block] > 0 ? this.labels.row(this.label[block] - 1) : -1;
    }

    bytesOf(block) {
        const { places, values } = this.bytes;
        const at = flopscope.firstWhere(0, places.length, (i) => places[i] >= block);
        return places[at] === block ? values[at] : 0;
    }

    /* The work that a host block launched, itself or within it: at most `most` blocks. */
    launchedBy(block, most) {
        const host = this.laneOf(block),
            from = this.start[block],
            to = from + this.duration[block],
            found = [];
        for (const lane of this.lanes) {
            if (lane.role !== "work") continue;
            for (let i = lane.first; i < lane.end && found.length < most; i++) {
                const call = this.link[i] - 1;
                if (call < 0 || this.start[call] < from || this.start[call] > to) continue;
                const around = this.laneOf(call);
                if (
                    call === block ||
                    (around.id === host.id && around.part === host.part && around.depth > host.depth)
                ) {
                    found.push(i);
                }
            }
        }
        return found;
    }

    /* The next block after one (or before it) in time that `matches`, over the lanes in the given order; -1: none. */
    next(lanes, block, matches, backwards) {
        const from = block >= 0 ? this.start[block] : backwards ? Infinity : -Infinity;
        const place = new Map(lanes.map((lane, i) => [lane.index, i]));
        const rank = block >= 0 ? (place.get(this.laneOf(block).index) ?? -1) : -1;
        let best = -1,
            bestRank = 0;
        lanes.forEach((lane, order) => {
            let i = this.lower(lane.first, lane.end, from);
            if (backwards) {
                while (i < lane.end && this.start[i] === from && order < rank) i++;
                for (i -= 1; i >= lane.first && !matches(i, lane); i--);
                if (i < lane.first) return;
                if (
                    best < 0 ||
                    this.start[i] > this.start[best] ||
                    (this.start[i] === this.start[best] && order > bestRank)
                ) {
                    [best, bestRank] = [i, order];
                }
            } else {
                while (i < lane.end && this.start[i] === from && order <= rank) i++;
                while (i < lane.end && !matches(i, lane)) i++;
                if (i === lane.end) return;
                if (
                    best < 0 ||
                    this.start[i] < this.start[best] ||
                    (this.start[i] === this.start[best] && order < bestRank)
                ) {
                    [best, bestRank] = [i, order];
                }
            }
        });
        return best;
    }
};
