import assert from "node:assert/strict";
import test from "node:test";
import { load, random } from "./load.mjs";

const flopscope = load(["format.js", "timeline_model.js"]);

/* A timeline of lanes with blocks [start, duration] in their order; each block is busy for its whole duration. */
function timelineOf(lanes) {
    const timeline = new flopscope.Timeline();
    const blocks = lanes.flat();
    const listed = lanes.map((lane) => ({ count: lane.length, part: -1, model: -1, role: "work", depth: 0 }));
    Object.assign(timeline, {
        page: { strings: [] },
        length: blocks.length,
        start: Float64Array.from(blocks, ([start]) => start),
        duration: Float64Array.from(blocks, ([, duration]) => duration),
    });
    timeline.busy = timeline.duration;
    timeline.lanes = timeline.lanesOf(listed);
    timeline.prefix = timeline.prefixes();
    timeline.tops = timeline.longest();
    timeline.extent();
    return timeline;
}

/* Lanes of blocks that do not overlap, some of them without a duration or without a gap. */
function lanesOf(next, counts) {
    return counts.map((count) => {
        let time = Math.floor(next() * 100);
        return Array.from({ length: count }, () => {
            const block = [time, Math.floor(next() ** 4 * 1000)]; // few are long
            time += Math.max(1, block[1]) + Math.max(0, Math.floor(next() * 12) - 4);
            return block;
        });
    });
}

const next = random(7);
const LANES = lanesOf(next, [1, 40, 3000]);
const TIMELINE = timelineOf(LANES);
const TIMES = Array.from({ length: 200 }, (_, i) => next() * (i % 2 ? 7e5 : 1e4) - 100);
TIMES.push(
    ...LANES.flat()
        .filter((_, i) => i % 20 === 0)
        .map(([start]) => start),
);

test("a block is found by the time at which it runs", () => {
    for (const lane of TIMELINE.lanes) {
        const blocks = LANES[lane.index];
        for (const time of TIMES) {
            const inside = blocks.findIndex(
                ([start, duration]) => time === start || (start < time && time < start + duration),
            );
            assert.equal(TIMELINE.at(lane, time, -1), inside < 0 ? -1 : lane.first + inside);
            const later = blocks.filter(([start]) => start < time).length;
            assert.equal(TIMELINE.lower(lane.first, lane.end, time), lane.first + later);
            const from = lane.first + Math.floor(later / 2);
            assert.equal(TIMELINE.gallop(from, lane.end, time), TIMELINE.lower(from, lane.end, time));
        }
    }
});

test("busy times between two times are exact", () => {
    for (const lane of TIMELINE.lanes) {
        const until = (time) => TIMELINE.busyUntil(lane, TIMELINE.lower(lane.first, lane.end, time), time);
        for (let i = 1; i < TIMES.length; i++) {
            const [from, to] = [TIMES[i - 1], TIMES[i]].sort((a, b) => a - b);
            const expected = LANES[lane.index].reduce(
                (sum, [start, duration]) => sum + Math.max(0, Math.min(start + duration, to) - Math.max(start, from)),
                0,
            );
            assert.ok(Math.abs(until(to) - until(from) - expected) < 1e-6);
        }
    }
});

test("the longest block of any range is found, the first of equal ones within a part", () => {
    const { length, duration } = TIMELINE;
    for (let i = 0; i < 300; i++) {
        const from = Math.floor(next() * length);
        const to = from + 1 + Math.floor(next() * (length - from));
        const most = Math.max(...duration.subarray(from, to));
        const top = TIMELINE.top(from, to);
        assert.ok(top >= from && top < to);
        assert.equal(duration[top], most);
    }
});

test("each block knows its lane", () => {
    for (const lane of TIMELINE.lanes) {
        for (const block of [lane.first, lane.end - 1]) assert.equal(TIMELINE.laneOf(block), lane);
    }
    const ends = LANES.flat().map(([start, duration]) => start + duration);
    assert.equal(TIMELINE.begin, Math.min(...LANES.flat().map(([start]) => start)));
    assert.equal(TIMELINE.end, Math.max(...ends));
});

test("starts are decoded from differences, of each lane anew, and large ones stand apart", async () => {
    const timeline = timelineOf([
        [
            [0, 1],
            [0, 1],
        ],
        [[0, 1]],
    ]);
    timeline.page = { load: async (columns) => columns };
    const encoded = { values: Uint8Array.of(10, 255, 3), large: Uint8Array.of(1), apart: Float64Array.of(5e9) };
    assert.deepEqual([...(await timeline.amountsOf(encoded))], [10, 5e9, 3]);
    assert.deepEqual([...(await timeline.startsOf(encoded))], [10, 5e9 + 10, 3]);
});
