/* Colours as numbers: of the style sheet's variables, mixed, and as pixels. */
"use strict";

flopscope.colors = (() => {
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const known = new Map();

    /* A CSS colour as [r, g, b]. */
    function parse(text) {
        if (!known.has(text)) {
            probe.fillStyle = "#888888";
            probe.fillStyle = text;
            probe.fillRect(0, 0, 1, 1);
            known.set(text, Array.from(probe.getImageData(0, 0, 1, 1).data.slice(0, 3)));
        }
        return known.get(text);
    }

    /* The same as a pixel of an ImageData. */
    const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    const mix = (a, b, share) => a.map((one, i) => Math.round(one * (1 - share) + b[i] * share));
    const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
    const bright = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140;
    const named = (name) => parse(flopscope.color(name));
    return { parse, pixel, mix, css, bright, named };
})();
