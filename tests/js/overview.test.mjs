import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const flopscope = load(["format.js", "draw.js", "overview.js"]);
flopscope.draw.tile = (title, value, doc) => ({ title, value, doc });

/* The first tile of an overview whose profile took 300 ms in 3 steps, or as `accounting` has it. */
function time(accounting, steps, tile = 0) {
    const whole = { total: 3e5, ideal: 0, mfu: null, mbu: null };
    const data = {
        steps,
        accounting: { whole, per: 3, devices: 1, bounds: { ideal: null, mfu: null, mbu: null }, ...accounting },
        recording: { is_delayed: false },
        hfu: null,
        coverage: { bytes: 1, flops: 1 },
    };
    return flopscope.overview.tiles(data).children[tile];
}

test("limits are lower ones where a part of the work is unknown, and missing where most is", () => {
    const whole = { total: 3e5, ideal: 3e4, mfu: 8, mbu: null };
    const bounds = { ideal: "at least ", mfu: "at least ", mbu: null };
    const tile = (place) => time({ whole, bounds, of: "" }, 3, place).value;
    const { SPACE, MISSING } = flopscope.format;
    assert.deepEqual([1, 2, 3].map(tile), [`≥ 10.0${SPACE}ms`, `≥ ${flopscope.format.percent(8)}`, MISSING]);
    bounds.ideal = bounds.mfu = null;
    assert.deepEqual([1, 2, 3].map(tile), [MISSING, MISSING, MISSING]);
    assert.equal(time({ whole, bounds: { ideal: "", mfu: "", mbu: null }, of: "" }, 3, 1).value, `10.0${SPACE}ms`);
});

test("the tile of the time says which steps it is of", () => {
    const tile = time({ of: "mean of 3 of 5 steps", of_short: "mean of 3 of 5" }, 5);
    assert.equal(tile.title, "Step, mean of 3 of 5");
    assert.equal(tile.value, `100${flopscope.format.SPACE}ms`);
    assert.equal(tile.doc, "Mean of 3 of 5 steps.");
});

test("without steps it is the time of all devices", () => {
    const tile = time({ of: "", of_short: "", devices: 2, per: 1 }, 0);
    assert.equal(tile.title, "Time, 2 devices");
    assert.equal(tile.doc, "summed over the devices.");
    assert.equal(time({ of: "", of_short: "", per: 1 }, 0).doc, "From the first event to the last.");
});
