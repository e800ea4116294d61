import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const flopscope = load(["format.js", "ops.js"]);
const STRINGS = ["aten::mm", "aten::add", "64x32 32x50257", "8x8 8x8"];

/* Rows of ops as the section has them, without its elements. Rows 0 to 3; `below`: the shapes of rows 0 and 1. */
function section(columns, sort) {
    const table = new flopscope.Table(
        {
            count: 4,
            described: [
                { name: "key", type: "text" },
                { name: "headroom", type: "float64" },
            ],
        },
        { strings: STRINGS },
    );
    table.columns = columns;
    const shapes = { columns: { input_shapes: Int32Array.of(2, 3, 3) } };
    const groupings = new Map([
        ["name", { table, children: { of: "shape" }, begin: [0, 2, 3, 3, 3], below: Int32Array.of(0, 1, 2) }],
        ["shape", { table: shapes }],
    ]);
    return Object.assign(Object.create(flopscope.Ops.prototype), {
        ...{ page: { strings: STRINGS }, data: { sort: "self_device_time_total" }, groupings, id: "name", sort },
        ...{ kind: "op", tells: () => true, isSum: () => false },
    });
}

const ALL = () => [0, 1, 2, 3];

test("numbers sort both ways with the unknown last, and equal ones stay in order", () => {
    const columns = { flops: Float64Array.of(NaN, 2, 9, 2) };
    const sorted = (down) => {
        const ops = section(columns, { name: "flops", down });
        return [...ops.sorted(ops.grouping.table, ALL())];
    };
    assert.deepEqual(sorted(true), [2, 1, 3, 0]);
    assert.deepEqual(sorted(false), [1, 3, 2, 0]);
});

test("texts begin with A when a column is first chosen, and rows without one come last", () => {
    const ops = section({ key: Int32Array.of(0, -1, 1, 0) }, { name: "key", down: true });
    assert.deepEqual([...ops.sorted(ops.grouping.table, ALL())], [2, 0, 3, 1]);
    ops.sort.down = false;
    assert.deepEqual([...ops.sorted(ops.grouping.table, ALL())], [0, 3, 2, 1]);
});

test("the usual order is what could be gained: headroom, time where it is unknown, and no time last", () => {
    const ops = section(
        {
            self_device_time_total: Float64Array.of(5, 7, 0, 9),
            headroom: Float64Array.of(2, NaN, 100, -1),
            self_cpu_time_total: Float64Array.of(1, 1, 1, 1),
        },
        { name: "usual", down: true },
    );
    assert.deepEqual([...ops.sorted(ops.grouping.table, ALL())], [1, 0, 3, 2]);
});

test("all words of the filter occur in a row, or in one below it together with the row", () => {
    const ops = section({ key: Int32Array.of(0, 1, 0, -1) }, { name: "usual", down: true });
    const found = (filter) => ALL().filter((row) => ops.matches("name", row, filter.split(" ").filter(Boolean)));
    assert.deepEqual(found(""), [0, 1, 2, 3]);
    assert.deepEqual(found("mm"), [0, 2]);
    assert.deepEqual(found("mm 50257"), [0]);
    assert.deepEqual(found("8x8"), [0, 1]);
    assert.deepEqual(found("add 50257"), []);
});
