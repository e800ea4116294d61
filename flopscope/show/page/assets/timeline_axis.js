/* Time axes: round steps, and their texts. */
"use strict";

flopscope.timeAxis = (() => {
    const UNITS = [
        ["s", 1e9],
        ["ms", 1e6],
        ["µs", 1e3],
        ["ns", 1],
    ];

    /* The least round step of 1, 2 or 5 times a power of ten that is at least `least`. */
    function roundStep(least) {
        const power = 10 ** Math.floor(Math.log10(least));
        return power * ([1, 2, 5].find((one) => one * power >= least * 0.9999) || 10);
    }

    /* Ticks between two times in ns, at least `least` ns apart: {time, text}. */
    function ticks(from, to, least) {
        const step = roundStep(Math.max(least, 1e-3));
        const unit =
            UNITS.find(([, size]) => Math.max(Math.abs(from), Math.abs(to)) >= size && step >= size * 1e-3) || UNITS[3];
        const decimals = Math.max(0, -Math.floor(Math.log10(step / unit[1]) + 1e-9));
        const found = [];
        for (let k = Math.ceil(from / step); k * step <= to && found.length < 200; k++) {
            const value = (k * step) / unit[1] || 0; // no -0
            const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
            const text = `${value.toLocaleString("en-US", digits)}${format.SPACE}${unit[0]}`;
            found.push({ time: k * step, text });
        }
        return found;
    }

    /* A duration or a time in ns with enough digits to tell neighbours apart. */
    function text(ns) {
        const size = Math.abs(ns);
        const [unit, scale] = UNITS.find(([, one]) => size >= one) || UNITS[3];
        return (
            `${(ns / scale).toLocaleString("en-US", { maximumFractionDigits: scale === 1 ? 0 : 3 })}` +
            `${format.SPACE}${unit}`
        );
    }

    return { ticks, text, roundStep };
})();
