/* Lists of records that may be long: only the rows in view are in the document. Sorting, filtering, the arrow keys, rows
   that belong to others and open below them. */
"use strict";

/* Add a list to an element.

   options: ``label`` of the list; ``count`` of its records; ``columns``, each with ``title``, ``width`` in px, ``text(i)``
   of record i, and where useful ``value(i)`` to sort by, ``left``, ``doc``, ``cell(i)`` for an element, ``bar(i)`` for a bar
   behind the number, from 0 to 1, ``missing``, why a value may be unknown, and ``magnitude`` to sort without the sign;
   ``sort`` [column, "descending", "ascending" or "magnitude"]; ``height`` in
   px; ``filter(i)`` for the text to search; ``parent(i)`` of record i, -1 for none; ``select(i)`` when a row is chosen.

   Returns an object with ``show(i)``, which brings a record into view and marks it. */
flopscope.list = function (parent, options) {
    const { element: el, format } = flopscope;
    const HEIGHT = 27;
    const HEAD = 32;
    const BEYOND = 8; // rows outside of the view that are kept
    const PRINTED = 60;
    const { columns, count } = options;
    const state = { sort: options.sort || [-1, "none"], query: "", open: new Set(), at: -1, selected: -1, order: [] };
    const children = new Map();
    if (options.parent) {
        for (let i = 0; i < count; i++) {
            const above = options.parent(i);
            if (above >= 0) children.set(above, [...(children.get(above) || []), i]);
        }
    }

    const widths = columns.map((column, i) => (i === 0 ? `minmax(${column.width}px, 1fr)` : `${column.width}px`)).join(" ");
    const lines = el("div", { class: "lines", role: "rowgroup" });
    const space = el("div", { class: "space" }, lines);
    const heads = columns.map((column, number) => el("div", {
        role: "columnheader", class: `${number === 0 ? "first " : ""}${column.left ? "left" : ""}`,
    }, el("button", { type: "button", tabindex: "-1", title: column.doc || column.title, text: column.title, on: {
        click: () => sortBy(number),
    } })));
    const grid = el("div", {
        class: "grid list", role: options.parent ? "treegrid" : "grid", tabindex: "0", "aria-label": options.label,
        "aria-colcount": columns.length, style: { "--widths": widths, "height": `${options.height || 420}px` },
    }, el("div", { role: "rowgroup" }, el("div", { class: "row header", role: "row" }, heads)), space);
    const shown = el("span", { class: "count", "aria-live": "polite" });
    const box = el("div", { class: "listbox" });
    if (options.filter) {
        box.append(el("div", { class: "controls" }, el("label", {}, "Filter", el("input", {
            type: "search", placeholder: options.placeholder || "part of a name", on: {
                input: (event) => {
                    state.query = event.target.value.toLowerCase();
                    arrange();
                },
            },
        })), shown));
    }
    const printed = el("div", { class: "printed" });
    box.append(grid, printed);
    parent.append(box);

    const valueOf = (column, i) => (column.value ? column.value(i) : column.text(i));
    const compare = (a, b) => {
        const [number, direction] = state.sort;
        if (number < 0) return a - b;
        const [x, y] = [valueOf(columns[number], a), valueOf(columns[number], b)];
        const unknown = (one) => one === null || one === undefined || one === "" || Number.isNaN(one);
        if (unknown(x) || unknown(y)) return unknown(x) - unknown(y) || a - b; // last in both directions
        if (direction === "magnitude") return Math.abs(y) - Math.abs(x) || a - b;
        const order = typeof x === "string" ? x.localeCompare(y) : x - y;
        return (direction === "ascending" ? order : -order) || a - b;
    };

    /* Which records are shown, in which order. */
    function arrange() {
        const fits = (i) => !state.query || options.filter(i).toLowerCase().includes(state.query);
        const roots = [];
        for (let i = 0; i < count; i++) {
            if (options.parent && options.parent(i) >= 0) continue;
            if (fits(i) || (children.get(i) || []).some(fits)) roots.push(i);
        }
        roots.sort(compare);
        state.order = roots.flatMap((i) => [i, ...(state.open.has(i) ? [...children.get(i)].sort(compare) : [])]);
        state.at = Math.min(state.at, state.order.length - 1);
        heads.forEach((head, number) => {
            const direction = state.sort[0] === number ? state.sort[1] : "";
            if (direction) head.setAttribute("aria-sort", direction === "magnitude" ? "other" : direction);
            else head.removeAttribute("aria-sort");
            const arrow = { ascending: " ▲", descending: " ▼", magnitude: " ◆" }[direction] || "";
            head.firstChild.textContent = `${columns[number].title}${arrow}`;
        });
        grid.setAttribute("aria-rowcount", state.order.length + 1);
        space.style.height = `${state.order.length * HEIGHT}px`;
        grid.style.height = `${Math.min(options.height || 420, state.order.length * HEIGHT + HEAD + 18)}px`;
        shown.textContent = roots.length === rootCount ? format.plural(rootCount, options.noun || "row")
            : `${format.count(roots.length)} of ${format.plural(rootCount, options.noun || "row")}`;
        draw();
    }
    const rootCount = options.parent ? Array.from({ length: count }, (_, i) => options.parent(i)).filter((one) => one < 0).length : count;

    function sortBy(number) {
        const numeric = typeof valueOf(columns[number], 0) === "number";
        const directions = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
        if (columns[number].magnitude) directions.unshift("magnitude");
        const next = state.sort[0] === number ? directions.indexOf(state.sort[1]) + 1 : 0;
        state.sort = [number, directions[next % directions.length]];
        arrange();
        flopscope.announce(`Sorted by ${columns[number].title}, ${state.sort[1]}`);
    }

    function cellOf(column, i, number) {
        const cell = el("div", { class: `cell ${number === 0 ? "first" : ""} ${column.left ? "left" : ""}`, role: "gridcell" });
        if (number === 0 && children.has(i)) {
            const open = state.open.has(i);
            cell.append(el("button", {
                type: "button", class: "open", tabindex: "-1", text: open ? "▼" : "▶", "aria-label": open ? "Close" : "Open",
                on: { click: (event) => { event.stopPropagation(); toggle(i); } },
            }));
        } else if (number === 0 && options.parent) {
            cell.append(el("span", { class: options.parent(i) >= 0 ? "indent" : "no-open" }));
        }
        if (column.bar) {
            const share = column.bar(i);
            if (share > 0) cell.append(el("span", { class: `behind ${column.barClass || ""}`, style: { "width": `${100 * Math.min(share, 1)}%` } }));
        }
        const text = column.text(i);
        if (text === format.MISSING) {
            cell.classList.add("unknown");
            cell.title = column.missing || "Unknown: it was not recorded.";
        } else if (text && text.length > 12) {
            cell.title = text;
        }
        cell.append(column.cell ? column.cell(i) : el("span", { class: number === 0 ? "front cut" : "front", text: text || "" }));
        return cell;
    }

    function lineOf(place) {
        const i = state.order[place];
        const line = el("div", {
            class: `row line ${place === state.at ? "is-at" : ""}`, role: "row", id: `${base}-${place}`,
            "aria-rowindex": place + 2, "aria-selected": state.selected === i ? "true" : "false",
            on: { click: () => choose(place) },
        }, columns.map((column, number) => cellOf(column, i, number)));
        if (options.parent) line.setAttribute("aria-level", options.parent(i) >= 0 ? 2 : 1);
        if (children.has(i)) line.setAttribute("aria-expanded", state.open.has(i));
        return line;
    }
    flopscope.list.made = (flopscope.list.made || 0) + 1;
    const base = `list-${flopscope.list.made}`;

    function draw() {
        const from = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - BEYOND);
        const to = Math.min(state.order.length, Math.ceil((grid.scrollTop + grid.clientHeight) / HEIGHT) + BEYOND);
        lines.replaceChildren(...Array.from({ length: to - from }, (_, k) => lineOf(from + k)));
        lines.style.transform = `translateY(${from * HEIGHT}px)`;
        if (!state.order.length) lines.replaceChildren(el("div", { role: "row" }, el("div", { class: "nothing", role: "gridcell", text: "No row fits the filter." })));
        if (state.at >= from && state.at < to) grid.setAttribute("aria-activedescendant", `${base}-${state.at}`);
        else grid.removeAttribute("aria-activedescendant");
    }

    function toggle(i) {
        if (!children.has(i)) return;
        if (!state.open.delete(i)) state.open.add(i);
        arrange();
    }

    function goTo(place) {
        state.at = Math.max(0, Math.min(place, state.order.length - 1));
        const top = state.at * HEIGHT;
        if (top < grid.scrollTop) grid.scrollTop = top;
        else if (top + HEIGHT > grid.scrollTop + grid.clientHeight - HEAD) grid.scrollTop = top + HEIGHT - grid.clientHeight + HEAD;
        draw();
    }

    function choose(place) {
        state.at = place;
        state.selected = state.order[place];
        draw();
        if (options.select) options.select(state.selected);
    }

    grid.addEventListener("keydown", (event) => {
        if (event.target !== grid || event.ctrlKey || event.metaKey || event.altKey) return;
        const page = Math.max(1, Math.floor((grid.clientHeight - HEAD) / HEIGHT) - 1);
        const moves = {
            ArrowDown: state.at + 1, ArrowUp: state.at - 1, PageDown: state.at + page, PageUp: state.at - page,
            Home: 0, End: state.order.length - 1,
        };
        const i = state.order[state.at];
        if (event.key in moves) goTo(moves[event.key]);
        else if (event.key === "ArrowRight" && children.has(i) && !state.open.has(i)) toggle(i);
        else if (event.key === "ArrowLeft" && state.open.has(i)) toggle(i);
        else if ((event.key === "Enter" || event.key === " ") && state.at >= 0) choose(state.at);
        else return;
        event.preventDefault();
    });
    let waiting = false;
    grid.addEventListener("scroll", () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
            waiting = false;
            draw();
        });
    }, { passive: true });
    new ResizeObserver(draw).observe(grid);

    /* On paper: the first rows as a plain table, and how many there are. */
    flopscope.onPrint(() => {
        const rows = state.order.slice(0, PRINTED);
        const left = state.order.length - rows.length;
        printed.replaceChildren(flopscope.draw.table(rows, columns.map((column) => ({
            title: column.title, left: column.left, text: (i) => column.text(i) || "",
        })), options.label), left > 0 ? el("p", { class: "note", text: `${format.count(left)} more rows are not printed.` }) : "");
    }, () => printed.replaceChildren());

    arrange();
    return {
        show(i) {
            state.selected = i;
            const place = state.order.indexOf(i);
            if (place >= 0) goTo(place);
        },
    };
};
