/* The rows of the timeline: lanes in groups that fold, one group for each device, each thread and what has neither. */
"use strict";

flopscope.timelineRows = (() => {
    const HEIGHTS = { group: 24, work: 18, idle: 16, annotation: 16, wait: 14, host: 16, overhead: 14 }; // CSS pixels
    const ORDER = ["idle", "work", "annotation", "wait", "host", "overhead"];
    const MOST_OPEN = 12; // groups that are open at first

    /* The group of a lane: its title, and its rank among the groups of a process. */
    function groupOf(lane) {
        const { part, device, role, id } = lane;
        const [rank, own] =
            device >= 0
                ? [0, flopscope.page.unit(device)]
                : role === "idle"
                  ? [1, "CPU"]
                  : id === null
                    ? [3, "Across threads"]
                    : [2, `Thread ${id}`];
        return { part, rank, title: part ? `${part} · ${own}` : own, model: lane.model, lanes: [] };
    }

    /* The text of a row: of the first lane of each stream, and of what is special. */
    function labelOf(lane) {
        if (lane.role === "idle") return "idle, by cause";
        if (lane.role === "work") {
            return lane.depth > 0 ? "overlapping" : lane.id === null ? "device work" : `stream ${lane.id}`;
        }
        if (lane.depth > 0) return "";
        return {
            annotation: lane.id === null ? "ranges" : `ranges, stream ${lane.id}`,
            wait: "waits",
            host: "",
            overhead: "overhead",
        }[lane.role];
    }

    /* Groups of rows, devices first; a row has a lane, those of all windows of a process, or the idle times of a
       device. */
    function groups(timeline) {
        const found = new Map();
        for (const lane of timeline.lanes) {
            const group = groupOf(lane);
            if (!found.has(group.title)) found.set(group.title, group);
            found.get(group.title).lanes.push(lane);
        }
        const listed = [...found.values()];
        for (const group of listed) {
            group.lanes.sort(
                (a, b) =>
                    ORDER.indexOf(a.role) - ORDER.indexOf(b.role) ||
                    (a.role === "idle" ? 0 : Number(a.id || 0) - Number(b.id || 0)) ||
                    a.depth - b.depth,
            );
            group.count = group.lanes.reduce((sum, lane) => sum + lane.count, 0);
            const { device } = group.lanes[0];
            group.rows = rowsOf(group);
            if (device >= 0) group.rows.push(...flopscope.timelineCounters.rows(timeline, group, device));
            const work = group.lanes.filter((lane) => lane.role === "work"),
                host = group.lanes.filter((lane) => lane.role !== "idle").slice(0, 1);
            // Painted over each other
            group.summary = work.length ? work.sort((a, b) => b.busy - a.busy) : host.length ? host : group.lanes;
            group.steps = group.rank === 2 && group.lanes.some((lane) => hasStep(timeline, lane));
        }
        const parts = [...new Set(listed.map((group) => group.part))];
        const place = new Map(parts.map((part, i) => [part, i]));
        listed.sort(
            (a, b) =>
                (a.rank > 0) - (b.rank > 0) ||
                place.get(a.part) - place.get(b.part) ||
                a.rank - b.rank ||
                (a.rank === 0 ? a.lanes[0].device - b.lanes[0].device : b.steps - a.steps || b.count - a.count),
        );
        const host = listed.find((group) => group.rank > 0);
        if (host) host.rows.push(...flopscope.timelineCounters.rows(timeline, host, -1));
        // Of the only process, or of the rank that comes first
        const first = listed.filter((group) => group.part === parts[0]);
        for (const group of listed) group.open = listed.length <= MOST_OPEN;
        first.forEach((group, i) => {
            group.open ||= i < MOST_OPEN / 2 || group.count > 0.2 * timeline.length;
        });
        return listed;
    }

    /* Whether one of the first blocks is a step: the thread of the training loop comes first. */
    function hasStep(timeline, lane) {
        for (let i = lane.first; i < Math.min(lane.end, lane.first + 256); i++) {
            if (timeline.label[i] > 0 && timeline.labels.kind(timeline.label[i] - 1) === "step") return true;
        }
        return false;
    }

    function rowsOf(group) {
        const idle = group.lanes.filter((lane) => lane.role === "idle");
        const rows = idle.length ? [{ role: "idle", lanes: idle, label: labelOf(idle[0]), height: HEIGHTS.idle }] : [];
        for (const lane of group.lanes) {
            if (lane.role === "idle") continue;
            rows.push({ role: lane.role, lanes: [lane], label: labelOf(lane), height: HEIGHTS[lane.role] });
        }
        return rows;
    }

    /* Place the rows of all groups below each other; returns them with their y, and the height of all. */
    function place(listed) {
        const rows = [];
        let y = 0;
        for (const group of listed) {
            rows.push({
                role: "group",
                group,
                lanes: group.open ? [] : group.summary,
                y,
                height: HEIGHTS.group,
                label: group.title,
            });
            y += HEIGHTS.group;
            if (group.open) {
                for (const row of group.rows) {
                    rows.push({ ...row, group, y });
                    y += row.height;
                }
                y += 4;
            }
        }
        return { rows, height: y };
    }

    return { groups, place };
})();

/* The colours of blocks: by what bounds their op, or by their name; and of idle times. */
flopscope.timelineColors = (() => {
    const SERIES = 7;
    const { named, mix } = flopscope.colors;

    const boundColor = (bound) => named(`bound-${bound in flopscope.page.bounds ? bound : "unknown"}`);
    const idleColor = (part) => named(`part-${part}`);

    function hash(text) {
        let sum = 7;
        for (let i = 0; i < text.length; i++) sum = (Math.imul(sum, 31) + text.charCodeAt(i)) >>> 0;
        return sum;
    }

    /* One of 21: the series, and lighter and darker shades of each. */
    function nameColor(name, paper, ink) {
        const number = hash(name),
            color = named(`series-${(number % SERIES) + 1}`);
        const shade = Math.floor(number / SERIES) % 3;
        return shade === 0 ? color : mix(color, shade === 1 ? paper : ink, 0.35);
    }

    return { boundColor, idleColor, nameColor };
})();
