/* The names of a roofline's ops with the most time. A name covers no mark, no other name and no roof: where there is
   no room beside its mark it moves away and a line leads to it, and one that finds no room is left out. */
"use strict";

flopscope.rooflineNames = (() => {
    const MOST = 12,
        LONGEST = 32,
        HIGH = 13; // names; characters; px of a line of text
    const DISTANCES = [0, 12, 26, 42, 60, 80];
    const NEAR = 90; // px in which a second op of the same name gets no name of its own
    const context = document.createElement("canvas").getContext("2d");

    const widthOf = (text) => {
        context.font =
            "11.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', Cantarell, sans-serif";
        return context.measureText(text).width + 2;
    };
    const meet = (a, b) => a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1;

    /* The places of a name ``wide`` px around a mark, the nearest first: right, left, above, below, and between. */
    function* places(x, y, radius, wide) {
        for (const distance of DISTANCES) {
            const r = radius + 4 + distance,
                slant = 0.75 * r,
                half = HIGH / 2;
            const corners = [
                [r, -half],
                [-r - wide, -half],
                [-wide / 2, -r - HIGH],
                [-wide / 2, r],
                [slant, -slant - HIGH],
                [slant, slant],
                [-slant - wide, -slant - HIGH],
                [-slant - wide, slant],
            ];
            for (const [dx, dy] of corners) {
                yield { x0: x + dx, x1: x + dx + wide, y0: y + dy, y1: y + dy + HIGH, distance };
            }
        }
    }

    /* The line from a mark to a name that has moved away, from edge to edge. */
    function leader(x, y, radius, box) {
        const toX = Math.min(Math.max(x, box.x0), box.x1),
            toY = Math.min(Math.max(y, box.y0), box.y1);
        const length = Math.hypot(toX - x, toY - y) || 1,
            share = (radius + 1) / length;
        return { x1: x + (toX - x) * share, y1: y + (toY - y) * share, x2: toX, y2: toY };
    }

    /* Place the names of ``marks`` {name, x, y, radius, time}, all in px. ``taken``: boxes that stay free; ``frame``:
       of the plot. Return {name, box, leader or null} of those with room. */
    function place(marks, taken, frame) {
        const boxes = [
            ...taken,
            ...marks.map(({ x, y, radius }) => {
                const r = 0.9 * radius;
                return { x0: x - r, x1: x + r, y0: y - r, y1: y + r };
            }),
        ];
        const placed = [];
        for (const mark of [...marks].sort((a, b) => b.time - a.time).slice(0, MOST)) {
            const name = mark.name.length > LONGEST ? `${mark.name.slice(0, LONGEST - 1)}…` : mark.name;
            if (placed.some((one) => one.name === name && Math.hypot(one.x - mark.x, one.y - mark.y) < NEAR)) continue;
            for (const box of places(mark.x, mark.y, mark.radius, widthOf(name))) {
                const inside =
                    box.x0 >= frame.left + 2 &&
                    box.x1 <= frame.right - 2 &&
                    box.y0 >= frame.top + 2 &&
                    box.y1 <= frame.bottom - 2;
                if (!inside || boxes.some((one) => meet(one, box))) continue;
                boxes.push(box);
                placed.push({
                    name,
                    box,
                    x: mark.x,
                    y: mark.y,
                    leader: box.distance > 0 ? leader(mark.x, mark.y, mark.radius, box) : null,
                });
                break;
            }
        }
        return placed;
    }

    return { place };
})();
