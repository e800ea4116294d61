/* The shell of the page: data, sections, selection, theme, keyboard. Sections register themselves; start.js begins.

   flopscope.section(id, {title, mount(element, data, page)})   registers a section of the page
   flopscope.page                                               data, columns, rows and the selection
   el, format, draw                                             elements, texts with units, parts of sections
*/
"use strict";

const flopscope = {
    sections: new Map(),

    section(id, description) {
        flopscope.sections.set(id, description);
    },
};

/* Elements ------------------------------------------------------------------------------------------------------- */

/* Make an element: its tag, with classes as in "p.note"; properties by name, if there are any ("class" in place of
   those of the tag, "text", "on" for listeners, else attributes); and children: elements, texts, arrays of them. */
function el(tag, ...children) {
    const [kind, ...classes] = tag.split(".");
    const properties = children[0] && children[0].constructor === Object ? children.shift() : {};
    const element = document.createElement(kind);
    if (classes.length) element.className = classes.join(" ");
    for (const [name, value] of Object.entries(properties)) {
        if (value === undefined || value === null || value === false) continue;
        if (name === "text") element.textContent = value;
        else if (name === "class") element.className = value;
        else if (name === "on") {
            for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
        } else if (name === "style") {
            for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
        } else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
        if (child !== null && child !== undefined && child !== false) element.append(child);
    }
    return element;
}

/* Data ----------------------------------------------------------------------------------------------------------- */

flopscope.ARRAYS = {
    f8: Float64Array,
    f4: Float32Array,
    i4: Int32Array,
    u4: Uint32Array,
    u2: Uint16Array,
    u1: Uint8Array,
};

/* A table of the page: columns that are loaded at once. */
flopscope.Table = class {
    constructor(description, page) {
        this.page = page;
        this.count = description.count;
        this.described = description.described;
        this.groupTitles = description.groups;
        this.byName = new Map(this.described.map((column) => [column.name, column]));
        this.references = description.columns;
        this.kernelReferences = description.kernels;
        this.totals = description.totals;
        this.hasDevice = description.has_device;
        this.columns = {};
        this.kernelColumns = null;
    }

    async load() {
        this.columns = await this.page.load(this.references);
        if (this.kernelReferences) this.kernelColumns = await this.page.load(this.kernelReferences);
        return this;
    }

    isText(name) {
        const column = this.byName.get(name);
        return column !== undefined && column.type === "text";
    }

    /* The described columns by their groups, [[title, columns]], without those of some names. */
    groups(without) {
        const columns = this.described.filter((column) => !without.includes(column.name));
        return this.groupTitles
            .map((title) => [title, columns.filter((column) => column.group === title)])
            .filter(([, found]) => found.length);
    }

    /* The value of a column in a row: a number (NaN where unknown), or a text (null where there is none). */
    get(name, row) {
        const values = this.columns[name];
        if (values === undefined) return this.isText(name) ? null : NaN;
        const value = values[row];
        return this.isText(name) ? (value < 0 ? null : this.page.strings[value]) : value;
    }

    kind(row) {
        return ["op", "kernel", "range"][this.columns.kind[row]];
    }

    /* The kernels of a row, longest first: name, count and µs. */
    kernels(row) {
        const from = this.kernelColumns;
        if (!from) return [];
        const found = [];
        for (let i = from.begin[row]; i < from.begin[row + 1]; i++) {
            found.push({ name: this.page.strings[from.name[i]], count: from.count[i], time: from.time[i] });
        }
        return found;
    }
};

flopscope.Page = class {
    constructor(data) {
        this.data = data;
        this.strings = data.strings;
        this.bounds = data.bounds; // what each means
        this.deviceType = data.device_type;
        this.blobs = new Map(); // the inflated ones
        this.rows = data.rows ? new flopscope.Table(data.rows, this) : null;
        this.ready = this.rows ? this.rows.load() : Promise.resolve(null); // sections are mounted after it
        this.selected = null;
        this.details = {};
        this.listeners = [];
        this.mounted = new Map();
    }

    /* What a device is called: "GPU 0", or "MTIA 0" where the device is none. */
    unit(index) {
        return `${["cuda", "xpu"].includes(this.deviceType) ? "GPU" : this.deviceType.toUpperCase()} ${index}`;
    }

    /* The bytes of a blob, which is inflated when a column of it is first asked for. */
    blob(number) {
        if (!this.blobs.has(number)) this.blobs.set(number, this.inflate(number));
        return this.blobs.get(number);
    }

    /* Inflate all blobs, one after the other while the page is idle, so that the browser can print what was not in
       view: it waits for no data then. */
    async inflateAll() {
        const idle = window.requestIdleCallback || ((call) => setTimeout(call, 50));
        for (const element of document.querySelectorAll("script[data-blob]")) {
            await new Promise((done) => {
                idle(done);
            });
            await this.blob(Number(element.dataset.blob));
        }
    }

    async inflate(number) {
        const element = document.querySelector(`script[data-blob="${number}"]`);
        const text = atob(element.textContent);
        element.textContent = ""; // its memory is free now
        const bytes = new Uint8Array(text.length);
        for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
        return new Response(stream).arrayBuffer();
    }

    /* Return the numbers of a column, a typed array. */
    async column(reference) {
        const Type = flopscope.ARRAYS[reference.type];
        if (!("blob" in reference)) {
            return new Type(reference.length).fill(reference.fill === null ? NaN : reference.fill);
        }
        return new Type(await this.blob(reference.blob), reference.offset, reference.length);
    }

    /* Return columns of a record by their names; null for those that it has none of. */
    async load(record, names = Object.keys(record)) {
        const found = await Promise.all(names.map((name) => record[name] && this.column(record[name])));
        return Object.fromEntries(names.map((name, i) => [name, found[i] || null]));
    }

    /* Select a row of the page's table, or nothing with null. ``details`` may name the event and where the choice was
       made: {event, source}. */
    select(row, details = {}) {
        const chosen = row === null || row === undefined || row < 0 ? null : row;
        if (chosen === this.selected && details.event === this.details.event) return;
        this.selected = chosen;
        this.details = details;
        for (const listener of this.listeners) listener(chosen, details);
    }

    onSelect(listener) {
        this.listeners.push(listener);
    }
};

/* Return a function that has ``draw`` called in the next frame, once for all its calls before it. */
flopscope.perFrame = function (draw) {
    let pending = false;
    return () => {
        if (!pending) {
            pending = true;
            requestAnimationFrame(() => {
                pending = false;
                draw();
            });
        }
    };
};

/* Sort items by a value of each, a number or a text; those whose value is unknown are last in both directions. */
flopscope.sortBy = function (items, valueOf, down) {
    const values = new Map(items.map((item) => [item, valueOf(item)]));
    const UNKNOWN = new Set([null, undefined, "", NaN, format.MISSING]);
    return items.sort((a, b) => {
        const [x, y] = [values.get(a), values.get(b)];
        if (UNKNOWN.has(x) || UNKNOWN.has(y)) return UNKNOWN.has(x) - UNKNOWN.has(y);
        const order = x < y ? -1 : x > y ? 1 : 0;
        return down ? -order : order;
    });
};

/* The first whole number from ``low`` on, or ``high``, for which ``holds`` is true, as it is for all above it. */
flopscope.firstWhere = function (low, high, holds) {
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (holds(middle)) high = middle;
        else low = middle + 1;
    }
    return low;
};

/* The value of a CSS variable: flopscope.color("bound-compute"). */
flopscope.color = function (name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
};

flopscope.announce = function (text) {
    document.getElementById("announce").textContent = text;
};

/* Address: #section?key=value ------------------------------------------------------------------------------------ */

flopscope.address = {
    /* Return the section and the state of the address. */
    read() {
        const [id, query] = decodeURI(location.hash.slice(1)).split("?");
        return { id, state: new URLSearchParams(query || "") };
    },

    /* Replace the address by that of a section with a state; empty values are left out. */
    write(id, state) {
        const query = new URLSearchParams();
        for (const [key, value] of Object.entries(state)) if (value) query.set(key, value);
        const text = query.toString();
        try {
            history.replaceState(null, "", `#${id}${text ? `?${text}` : ""}`);
        } catch {
            // Some browsers refuse this for files; the address then keeps its state.
        }
    },
};
