/* Charts of few marks, as SVG that takes its colours from the style sheet: axes with units, marks that can be pointed
   at or walked through with the arrow keys, and a text for each mark. Larger pictures are drawn on canvases. */
{
    const SVG = "http://www.w3.org/2000/svg";
    const MARGIN = { top: 14, right: 30, bottom: 40, left: 64 };
    const TIMES = [
        [1e6, "s"],
        [1e3, "ms"],
        [1, "µs"],
        [1e-3, "ns"],
    ]; // in µs
    const REACH = 30; // px from the pointer within which a mark is pointed at

    const make = (tag, attributes = {}, parent = null, text = "") => {
        const element = document.createElementNS(SVG, tag);
        for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
        if (text) element.textContent = text;
        if (parent) parent.append(element);
        return element;
    };

    /* The values of an axis between two limits: 1, 2 or 5 times a power of ten; on a log axis, powers. */
    const ticksOf = (axis, low, high, most) => {
        if (axis.log) {
            const base = axis.kind === "bytes" ? 2 : 10;
            const from = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
            const to = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
            let step = Math.max(1, Math.ceil((to - from + 1) / most));
            if (base === 2 && step > 1) step = Math.ceil(step / 2) * 2;
            const ticks = [];
            if (base === 10 && 3 * (to - from + 1) <= most) {
                for (let power = from - 1; power <= to; power++) {
                    ticks.push(...[1, 2, 5].map((one) => one * 10 ** power));
                }
                return ticks.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
            }
            for (let power = from; power <= to; power += step) ticks.push(base ** power);
            return ticks;
        }
        const span = high - low || 1;
        let step = 10 ** Math.floor(Math.log10(span / most));
        step *= [1, 2, 5, 10].find((factor) => span / (step * factor) <= most) || 10;
        if (axis.whole) step = Math.max(1, Math.round(step));
        const ticks = [];
        for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number++) {
            ticks.push(number * step);
        }
        return ticks;
    };

    /* The unit of an axis of a kind, with the factor to it and the text of a tick. */
    const unitOf = (axis, high) => {
        const plain = (value) => Number(value.toPrecision(12)).toLocaleString("en-US", { maximumFractionDigits: 9 });
        if (axis.kind === "time") {
            const [size, unit] = TIMES.find(([limit]) => Math.abs(high) >= limit) || TIMES[3];
            return {
                unit: axis.log ? "" : unit,
                text: axis.log ? flopscope.format.time : (value) => plain(value / size),
            };
        }
        if (axis.kind === "bytes") return { unit: "", text: flopscope.format.bytes };
        if (axis.kind === "flops/s") return { unit: "", text: (value) => flopscope.format.flopRate(value) };
        return { unit: axis.unit || "", text: axis.log ? (value) => flopscope.format.number(value) : plain };
    };

    const scaleOf = (axis, from, to) => {
        let [low, high] = axis.domain;
        if (axis.log) {
            low = Math.max(low, Number.MIN_VALUE);
            if (!(high > low)) [low, high] = [low / 2, low * 2];
            const [a, b] = [Math.log(low), Math.log(high)];
            const place = (value) => from + ((Math.log(Math.max(value, Number.MIN_VALUE)) - a) / (b - a)) * (to - from);
            return { low, high, place };
        }
        if (!(high > low)) [low, high] = [low - (Math.abs(low) || 1) / 2, low + (Math.abs(low) || 1) / 2];
        return { low, high, place: (value) => from + ((value - low) / (high - low)) * (to - from) };
    };

    const drawAxes = (area, options) => {
        const { svg, height, left, right, top, bottom } = area;
        const frame = make("g", { class: "axes", "aria-hidden": "true" }, svg);
        const xUnit = unitOf(options.x, area.sx.high);
        const yUnit = unitOf(options.y, area.sy.high);
        const withUnit = (axis, unit) => (unit.unit ? `${axis.label}, ${unit.unit}` : axis.label);
        for (const value of ticksOf(options.x, area.sx.low, area.sx.high, Math.max(2, (right - left) / 80))) {
            const x = area.x(value);
            make("line", { class: "tick", x1: x, x2: x, y1: top, y2: bottom }, frame);
            make("text", { x, y: bottom + 15, "text-anchor": "middle" }, frame, xUnit.text(value));
        }
        for (const value of ticksOf(options.y, area.sy.low, area.sy.high, Math.max(2, (bottom - top) / 36))) {
            const y = area.y(value);
            make("line", { class: "tick", x1: left, x2: right, y1: y, y2: y }, frame);
            make("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, frame, yUnit.text(value));
        }
        make("line", { class: "edge", x1: left, x2: right, y1: bottom, y2: bottom }, frame);
        const centred = { class: "label", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" };
        make("text", centred, frame, withUnit(options.x, xUnit));
        const y = (top + bottom) / 2;
        const turned = { class: "label", x: 12, y, "text-anchor": "middle", transform: `rotate(-90 12 ${y})` };
        make("text", turned, frame, withUnit(options.y, yUnit));
        return frame;
    };

    /* Let the pointer and the arrow keys walk through the marks. */
    const listen = (svg, tip, state) => {
        const show = (mark, announce) => {
            state.current = mark;
            tip.hidden = !mark;
            state.ring.setAttribute("visibility", mark ? "visible" : "hidden");
            if (!mark) return;
            tip.textContent = mark.text;
            state.ring.setAttribute("cx", mark.x);
            state.ring.setAttribute("cy", mark.y);
            const room = svg.clientWidth - tip.offsetWidth;
            tip.style.left = `${Math.max(0, Math.min(mark.x + 12, room))}px`;
            tip.style.top = `${Math.max(0, mark.y - tip.offsetHeight - 10)}px`;
            if (announce) flopscope.announce(mark.text.replaceAll("\n", ", "));
        };
        svg.addEventListener("pointermove", (event) => {
            const box = svg.getBoundingClientRect();
            const [x, y] = [event.clientX - box.left, event.clientY - box.top];
            let best = null;
            let least = REACH;
            for (const mark of state.marks) {
                const far = mark.column ? Math.abs(mark.x - x) : Math.hypot(mark.x - x, mark.y - y);
                if (far < least) [best, least] = [mark, far];
            }
            show(best, false);
        });
        svg.addEventListener("pointerleave", () => show(null, false));
        svg.addEventListener("blur", () => show(null, false));
        svg.addEventListener("click", () => state.current && state.current.select && state.current.select());
        svg.addEventListener("keydown", (event) => {
            if (!state.marks.length) return;
            const place = state.marks.indexOf(state.current);
            const moves = {
                ArrowRight: place + 1,
                ArrowLeft: place < 0 ? 0 : place - 1,
                Home: 0,
                End: state.marks.length - 1,
            };
            if (event.key in moves) {
                show(state.marks[Math.max(0, Math.min(moves[event.key], state.marks.length - 1))], true);
            } else if (event.key === "Enter" && state.current && state.current.select) {
                state.current.select();
            } else if (event.key === "Escape" && state.current) {
                show(null, false);
            } else {
                return;
            }
            event.preventDefault();
            event.stopPropagation();
        });
    };

    /* Draw a chart into an element, and again when its width changes.

       options: ``label``, what a screen reader says; ``height`` in px; ``x`` and ``y``, the axes, each with ``label``,
       ``domain`` [low, high], and ``kind`` ("time" in µs, "bytes", "flops/s") or ``unit``, ``log``, ``whole``;
       ``draw``, which is called with an area: ``x(value)`` and ``y(value)`` in px, ``add(tag, attributes, text)``, and
       ``mark(x, y, text, select)``, which registers what can be pointed at. */
    flopscope.chart = (parent, options) => {
        const box = document.createElement("div");
        box.className = "chart";
        const tip = document.createElement("div");
        tip.className = "tip";
        tip.hidden = true;
        const svg = make("svg", { role: "img", "aria-label": options.label, tabindex: 0, height: options.height });
        box.append(svg, tip);
        parent.append(box);
        const state = { marks: [], current: null, ring: null };
        const margin = { ...MARGIN, ...options.margin };

        const draw = () => {
            const width = Math.max(box.clientWidth, 240);
            const height = options.height;
            svg.replaceChildren();
            svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
            svg.setAttribute("width", width);
            state.marks = [];
            const area = { svg, width, height, left: margin.left, right: width - margin.right };
            Object.assign(area, { top: margin.top, bottom: height - margin.bottom });
            area.sx = scaleOf(options.x, area.left, area.right);
            area.sy = scaleOf(options.y, area.bottom, area.top);
            area.x = area.sx.place;
            area.y = area.sy.place;
            drawAxes(area, options);
            const plot = make("g", { class: "plot" }, svg);
            area.add = (tag, attributes, text = "") => make(tag, attributes, plot, text);
            area.mark = (x, y, text, select = null, column = false) => state.marks.push({ x, y, text, select, column });
            options.draw(area);
            state.marks.sort((a, b) => a.x - b.x);
            state.ring = make("circle", { class: "ring", r: 7, visibility: "hidden" }, svg);
            tip.hidden = true;
        };
        listen(svg, tip, state);
        draw();
        flopscope.onPrint(draw, draw);
        let last = box.clientWidth;
        new ResizeObserver(() => {
            if (box.clientWidth !== last && box.clientWidth > 0) {
                last = box.clientWidth;
                draw();
            }
        }).observe(box);
        return { box, redraw: draw };
    };

    /* A legend: pairs of a class that colours the swatch, and a text. */
    flopscope.legend = (parent, entries) => {
        const list = document.createElement("ul");
        list.className = "legend";
        for (const [name, text] of entries) {
            const item = document.createElement("li");
            const swatch = document.createElement("span");
            swatch.className = `swatch ${name}`;
            item.append(swatch, text);
            list.append(item);
        }
        parent.append(list);
        return list;
    };
}
