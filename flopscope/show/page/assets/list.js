/* Lists of records that may be long: a grid with sorting, a filter, and records that open below others. */
"use strict";

/* Add a list to an element.

   options: ``label`` of the list; ``noun`` of a record; ``count`` of its records; ``columns``, each with ``title``,
   ``width`` in px, ``text(i)`` of record i, and where useful ``value(i)`` to sort by, ``left``, ``doc``, ``share(i)``
   of a bar behind the number, from 0 to 1, ``bar``, its class, ``missing``, why a value may be unknown, and
   ``magnitude`` to sort without the sign; ``sort`` [column, down]; ``height`` in px; ``filter(i)``, the text to search;
   ``parent(i)`` of record i, -1 for none; ``select(i)`` when a record is chosen.

   Returns an object with ``show(i)``, which brings a record into view and marks it. */
flopscope.list = function (parent, options) {
    const HEAD = 34;
    const { count } = options;
    const columns = options.columns.map((column, name) => ({ ...column, name, left: column.left || name === 0 }));
    const sort = { name: options.sort ? options.sort[0] : null, down: options.sort ? options.sort[1] : true };
    const opened = new Set();
    const children = new Map();
    const roots = [];
    let query = "";
    for (let i = 0; i < count; i++) {
        const above = options.parent ? options.parent(i) : -1;
        if (above < 0) roots.push(i);
        else if (children.has(above)) children.get(above).push(i);
        else children.set(above, [i]);
    }

    const valueOf = (column, i) => {
        const value = column.value ? column.value(i) : column.text(i);
        return column.magnitude ? Math.abs(value) : value;
    };
    const sorted = (records) =>
        sort.name === null ? records : flopscope.sortBy(records, (i) => valueOf(columns[sort.name], i), sort.down);

    const lineOf = (i, depth) => ({
        key: i,
        depth,
        kind: depth ? "part" : "record",
        open: children.has(i) ? opened.has(i) : undefined,
    });

    function cellOf(line, column) {
        const i = line.key;
        const text = column.text(i) || "";
        const cell = { text, title: text.length > 10 ? text : undefined, bar: column.bar };
        if (column.share) cell.share = column.share(i);
        if (text === format.MISSING) {
            cell.name = "unknown";
            cell.title = column.missing || "Unknown: it was not recorded.";
        }
        return cell;
    }

    function arrange() {
        const fits = (i) => !query || options.filter(i).toLowerCase().includes(query);
        const found = sorted(roots.filter((i) => fits(i) || (children.get(i) || []).some(fits)));
        const lines = [];
        for (const i of found) {
            lines.push(lineOf(i, 0));
            if (opened.has(i)) for (const child of sorted([...children.get(i)])) lines.push(lineOf(child, 1));
        }
        grid.setColumns(columns, sort);
        grid.element.style.height =
            `${Math.min(options.height || 420, Math.max(lines.length, 2) * grid.height + HEAD + 18)}` + `px`;
        grid.setLines(lines, "No row fits the filter.");
        const all = format.plural(roots.length, options.noun);
        shown.textContent = found.length === roots.length ? all : `${format.count(found.length)} of ${all}`;
    }

    function choose(i) {
        grid.setSelected([i]);
        if (options.select) options.select(i);
    }

    flopscope.lists = (flopscope.lists || 0) + 1;
    const shown = el("span.count", { "aria-live": "polite" });
    const grid = new flopscope.Grid({
        label: options.label,
        id: `list${flopscope.lists}`,
        flat: !children.size,
        cell: cellOf,
        onSort(name) {
            const starts = columns[name].magnitude || typeof valueOf(columns[name], roots[0]) === "number";
            sort.down = sort.name === name ? !sort.down : starts;
            sort.name = name;
            arrange();
            flopscope.announce(`Sorted by ${columns[name].title}, ${sort.down ? "descending" : "ascending"}`);
        },
        onSelect: (line) => choose(line.key),
        onToggle(line) {
            if (!opened.delete(line.key)) opened.add(line.key);
            arrange();
        },
    });
    grid.element.classList.add("list");
    parent.append(
        el(
            "div.listbox",
            options.filter &&
                el(
                    "div.controls",
                    el(
                        "label",
                        "Filter",
                        el("input", {
                            type: "search",
                            placeholder: options.placeholder,
                            on: {
                                input: (event) => {
                                    query = event.target.value.toLowerCase();
                                    arrange();
                                },
                            },
                        }),
                    ),
                    shown,
                ),
            grid.element,
        ),
    );

    arrange();
    return {
        show(i) {
            grid.setSelected([i]);
            grid.move(grid.lines.findIndex((line) => line.key === i));
        },
    };
};
