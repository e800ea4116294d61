/* Texts of numbers with their units, as in flopscope's tables (flopscope/support/units.py). Unknown is "–". */
"use strict";

const format = (() => {
    const MISSING = "–";
    const SPACE = "\u202f"; // narrow, and no line breaks at it

    const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

    /* Three significant digits. */
    function digits(value) {
        const size = Math.abs(value);
        return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
    }

    function prefixed(value, unit, steps) {
        if (!known(value)) return MISSING;
        if (value === 0) return `0${SPACE}${unit(steps[steps.length - 1][0])}`;
        const size = Math.abs(value);
        const [name, scale] = steps.find(([, one]) => size >= 0.9995 * one) || steps[steps.length - 1];
        return `${digits(value / scale)}${SPACE}${unit(name)}`;
    }

    const TIMES = [
        ["s", 1e6],
        ["ms", 1e3],
        ["µs", 1],
        ["ns", 1e-3],
    ];
    const SI = [
        ["E", 1e18],
        ["P", 1e15],
        ["T", 1e12],
        ["G", 1e9],
        ["M", 1e6],
        ["k", 1e3],
        ["", 1],
    ];
    const BINARY = [
        ["TiB", 2 ** 40],
        ["GiB", 2 ** 30],
        ["MiB", 2 ** 20],
        ["KiB", 2 ** 10],
        ["B", 1],
    ];

    /* Sums of times may miss 0 by a rounding error. */
    const time = (us) => (known(us) && Math.abs(us) < 5e-6 ? `0${SPACE}µs` : prefixed(us, (name) => name, TIMES));

    const signed = (us) => (known(us) && us !== 0 ? `${us > 0 ? "+" : "−"}${time(Math.abs(us))}` : time(us));

    function bytes(count) {
        if (known(count) && Math.abs(count) < 1024) return `${Math.round(count)}${SPACE}B`;
        return prefixed(count, (name) => name, BINARY);
    }

    const scaled = (unit) => (value) => prefixed(value, (name) => `${name}${unit}`, SI);
    const flops = scaled("FLOP");
    const flopRate = scaled("FLOP/s");
    const byteRate = scaled("B/s");

    function percent(value) {
        if (!known(value)) return MISSING;
        return `${value !== 0 && Math.abs(value) < 0.05 ? (value < 0 ? ">−0.1" : "<0.1") : value.toFixed(1)}%`;
    }

    const OVER =
        "More than the peak: the data sat in cache, the clock was higher than when the peak was measured, or " +
        "a work rule is wrong.";
    const PEAKS = { gbytes_per_s: "pct_peak_bandwidth", tflops_per_s: "pct_peak_flops" };

    /* Whether a share or a rate is over its peak; get(name) is the share of that name. */
    const isOver = (name, get) => (name.startsWith("pct_") || name in PEAKS) && get(PEAKS[name] || name) > 100;

    const count = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : MISSING);

    function number(value) {
        if (!known(value)) return MISSING;
        if (value === 0) return "0";
        const size = Math.abs(value);
        if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
        return size >= 1000 ? count(value) : value.toPrecision(3);
    }

    const intensity = (value) => (known(value) ? `${number(value)}${SPACE}FLOP/B` : MISSING);

    const BY_UNIT = {
        µs: time,
        bytes,
        FLOP: flops,
        "%": percent,
        calls: count,
        "FLOP/byte": intensity,
        "TFLOP/s": (value) => flopRate(value * 1e12),
        "GB/s": (value) => byteRate(value * 1e9),
    };

    /* The text of a number in a unit of flopscope's columns. */
    function unit(value, name) {
        if (!known(value)) return MISSING;
        if (BY_UNIT[name]) return BY_UNIT[name](value);
        return name ? `${number(value)}${SPACE}${name}` : Number.isInteger(value) ? count(value) : number(value);
    }

    /* "1 step", "12 steps". */
    const plural = (value, singular, several) =>
        `${known(value) && value < 100 && !Number.isInteger(value) ? number(value) : count(value)} ${
            value === 1 ? singular : several || `${singular}s`
        }`;

    return {
        MISSING,
        SPACE,
        OVER,
        known,
        isOver,
        time,
        signed,
        bytes,
        flops,
        flopRate,
        byteRate,
        percent,
        count,
        number,
        unit,
        plural,
    };
})();
flopscope.format = format;
