import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import test from "node:test";
import { load, plain } from "./load.mjs";

const DATA = { strings: ["aten::mm", "aten::add", "gemm"], bounds: {}, device_type: "cuda", rows: null };

/* The bytes of typed arrays, each at a multiple of 8, and where each begins. */
function pack(...arrays) {
    const offsets = [];
    const parts = [];
    let size = 0;
    for (const array of arrays) {
        offsets.push(size);
        const bytes = Buffer.from(array.buffer, array.byteOffset, array.byteLength);
        parts.push(bytes, Buffer.alloc(-bytes.length & 7));
        size += bytes.length + (-bytes.length & 7);
    }
    return { bytes: Buffer.concat(parts), offsets };
}

test("columns of each type are read from their place in a blob", async () => {
    const arrays = {
        f8: Float64Array.of(0.1, NaN, -1e300),
        f4: Float32Array.of(0.5, -2),
        i4: Int32Array.of(-5, 7),
        u4: Uint32Array.of(4e9),
        u2: Uint16Array.of(65535, 1),
        u1: Uint8Array.of(255, 0, 3),
    };
    const { bytes, offsets } = pack(...Object.values(arrays));
    const flopscope = load([], [Buffer.from("another"), bytes]);
    const page = new flopscope.Page(DATA);
    let i = 0;
    for (const [type, array] of Object.entries(arrays)) {
        const read = await page.column({ type, length: array.length, blob: 1, offset: offsets[i++] });
        assert.deepEqual([...read], [...array], type);
        assert.equal(read.BYTES_PER_ELEMENT, array.BYTES_PER_ELEMENT);
    }
});

test("a column of one value has no blob, and null is NaN", async () => {
    const page = new (load([]).Page)(DATA);
    assert.deepEqual([...(await page.column({ type: "u1", length: 3, fill: 7 }))], [7, 7, 7]);
    assert.deepEqual([...(await page.column({ type: "f8", length: 2, fill: null }))], [NaN, NaN]);
    assert.deepEqual([...(await page.column({ type: "f8", length: 0, fill: 0 }))], []);
});

test("a table has numbers, texts, what is unknown, and the kernels of a row", async () => {
    const { bytes, offsets } = pack(
        Int32Array.of(1, -1),
        Float64Array.of(3, NaN),
        Uint8Array.of(0, 2),
        Uint8Array.of(0, 0, 2),
        Float64Array.of(9, 4),
    );
    const at = (i, type, length) => ({ type, length, blob: 0, offset: offsets[i] });
    const rows = {
        count: 2,
        described: [
            { name: "key", type: "text", group: "Op" },
            { name: "flops", type: "float64", group: "Work" },
            { name: "stack", type: "text", group: "Op" },
        ],
        groups: ["Work", "Op", "Time"],
        columns: { key: at(0, "i4", 2), flops: at(1, "f8", 2), kind: at(2, "u1", 2) },
        kernels: {
            begin: at(3, "u1", 3),
            time: at(4, "f8", 2),
            name: { type: "u1", length: 2, fill: 2 },
            count: { type: "u1", length: 2, fill: 5 },
        },
    };
    const page = new (load([], [bytes]).Page)({ ...DATA, rows });
    const table = await page.ready;
    assert.deepEqual([table.get("key", 0), table.get("key", 1)], ["aten::add", null]);
    assert.deepEqual([table.get("flops", 0), table.get("flops", 1)], [3, NaN]);
    assert.deepEqual([table.get("stack", 0), table.get("bytes_read", 0)], [null, NaN]);
    assert.deepEqual([table.kind(0), table.kind(1)], ["op", "range"]);
    assert.deepEqual(plain(table.kernels(0)), []);
    assert.deepEqual(plain(table.kernels(1)), [
        { name: "gemm", count: 5, time: 9 },
        { name: "gemm", count: 5, time: 4 },
    ]);
    const groups = table.groups(["flops"]).map(([title, columns]) => [title, columns.map((one) => one.name)]);
    assert.deepEqual(plain(groups), [["Op", ["key", "stack"]]]);
});

test("listeners hear of a selection once", () => {
    const page = new (load([]).Page)(DATA);
    const heard = [];
    page.onSelect((row) => heard.push(row));
    for (const row of [3, 3, -1, null, undefined, 0]) page.select(row);
    assert.deepEqual(heard, [3, null, 0]);
});
