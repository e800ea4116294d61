/* The page's scripts without a browser: load("format.js", "shell.js") runs them in a context of their own, as the page
   does, and returns its `flopscope`. Of a browser there is only what the models need. */
import { readFileSync } from "node:fs";
import vm from "node:vm";
import { deflateSync } from "node:zlib";

const PAGE = new URL("../../flopscope/show/page/assets/", import.meta.url);

/* blobs: the bytes of each; they stand in the document as in a page, compressed and in base64. */
export function load(names, blobs = []) {
    const elements = new Map(
        blobs.map((bytes, i) => [
            `script[data-blob="${i}"]`,
            { textContent: deflateSync(bytes).toString("base64"), dataset: { blob: String(i) } },
        ]),
    );
    const getContext = () => ({ measureText: (text) => ({ width: 6 * text.length }) });
    const createElement = () => {
        const children = [];
        return { getContext, children, append: (child) => children.push(child) };
    };
    const document = { querySelector: (selector) => elements.get(selector), createElement };
    const context = vm.createContext({ document, atob, Blob, DecompressionStream, Response, URLSearchParams });
    const scripts = ["shell.js", ...names].map((name) => readFileSync(new URL(name, PAGE), "utf8"));
    return vm.runInContext(`${scripts.join("\n")}\nflopscope`, context);
}

/* Values of another context have other prototypes; this gives them those of the test. */
export const plain = (value) => JSON.parse(JSON.stringify(value));

/* Numbers from 0 to 1, the same each time (a linear congruential generator; Numerical Recipes, 7.1). */
export function random(seed) {
    let state = seed;
    return () => (state = (1664525 * state + 1013904223) % 2 ** 32) / 2 ** 32;
}
