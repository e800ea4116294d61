import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { format, timeAxis } = load(["format.js", "timeline_axis.js"]);

/* Hold a function against the texts of numbers, written with a plain space. */
const check = (write, texts) => {
    for (const [value, text] of texts) assert.equal(write(value).replaceAll("\u202f", " "), text, String(value));
};
const UNKNOWN = [
    [NaN, "–"],
    [null, "–"],
    [undefined, "–"],
    [Infinity, "–"],
];

test("times have three digits and the prefix that fits", () => {
    check(format.time, [
        [0, "0 µs"],
        [4e-6, "0 µs"],
        [0.0123, "12.3 ns"],
        [1, "1.00 µs"],
        [9.996, "10.0 µs"],
        [99.96, "100 µs"],
        [999.4, "999 µs"],
        [999.6, "1.00 ms"],
        [-1234.5, "-1.23 ms"],
        [5.5e6, "5.50 s"],
        ...UNKNOWN,
    ]);
});

test("bytes are binary, rates and FLOPs decimal", () => {
    check(format.bytes, [[0, "0 B"], [1023, "1023 B"], [1024, "1.00 KiB"], [3 * 2 ** 29, "1.50 GiB"], ...UNKNOWN]);
    check(format.byteRate, [
        [4.655e12, "4.66 TB/s"],
        [0, "0 B/s"],
    ]);
    check(format.flops, [
        [2 * 8192 ** 3, "1.10 TFLOP"],
        [999.9, "1.00 kFLOP"],
    ]);
    check(format.flopRate, [
        [5e10, "50.0 GFLOP/s"],
        [3e21, "3000 EFLOP/s"],
    ]);
});

test("shares have one digit, and a small one is not 0", () => {
    check(format.percent, [
        [0, "0.0%"],
        [0.04, "<0.1%"],
        [-0.04, ">−0.1%"],
        [0.05, "0.1%"],
        [98.449, "98.4%"],
        [104.2, "104.2%"],
        ...UNKNOWN,
    ]);
});

test("a number is written in the unit of its column", () => {
    const cases = [
        [1.5, "µs", "1.50 µs"],
        [2048, "bytes", "2.00 KiB"],
        [12.5, "TFLOP/s", "12.5 TFLOP/s"],
        [900, "GB/s", "900 GB/s"],
        [0.125, "FLOP/byte", "0.125 FLOP/B"],
        [1234567, "calls", "1,234,567"],
        [3, "", "3"],
        [0.5, "", "0.500"],
        [1500, "J", "1,500 J"],
        [2.5e-4, "J", "2.50e-4 J"],
    ];
    for (const [value, unit, text] of cases) check((one) => format.unit(one, unit), [[value, text]]);
    check((value) => format.unit(value, "µs"), UNKNOWN);
});

test("one is singular, and a mean below 100 keeps its fraction", () => {
    const step = (value) => format.plural(value, "step");
    check(step, [
        [0, "0 steps"],
        [1, "1 step"],
        [1.5, "1.50 steps"],
        [1200, "1,200 steps"],
        [NaN, "– steps"],
    ]);
    assert.equal(format.plural(2, "branch", "branches"), "2 branches");
});

test("a rate is over its peak where its share is above 100 %", () => {
    const shares = { pct_peak_flops: 101, pct_peak_bandwidth: 100, pct_roofline: NaN };
    const over = ["tflops_per_s", "pct_peak_flops", "gbytes_per_s", "pct_roofline", "headroom"].filter((name) =>
        format.isOver(name, (share) => shares[share]),
    );
    assert.deepEqual(over, ["tflops_per_s", "pct_peak_flops"]);
});

test("the step of an axis is 1, 2 or 5 times a power of ten", () => {
    for (const [least, step] of [
        [1, 1],
        [1.1, 2],
        [2.1, 5],
        [5.1, 10],
        [0.03, 0.05],
        [700, 1000],
    ]) {
        assert.ok(Math.abs(timeAxis.roundStep(least) / step - 1) < 1e-12, String(least));
    }
});

test("ticks are multiples of the step with as many digits as they need", () => {
    const ticks = timeAxis.ticks(-3e6, 2e6, 1.4e6);
    assert.deepEqual([...ticks.map((tick) => tick.time)], [-2e6, 0, 2e6]);
    check(
        (i) => ticks[i].text,
        [
            [0, "-2 ms"],
            [1, "0 ms"],
            [2, "2 ms"],
        ],
    );
    check(timeAxis.text, [
        [12, "12 ns"],
        [1234, "1.234 µs"],
        [2.5e9, "2.5 s"],
    ]);
});
