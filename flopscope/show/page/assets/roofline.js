/* The section Roofline: of each device a picture of its ops below the roofs, whose marks select their rows. */
"use strict";

{
    /* The picture: a click or Enter selects the row of a mark; left and right step through the marks by time. */
    function picture(device, page) {
        const svg = document.importNode(
            new DOMParser().parseFromString(device.svg, "image/svg+xml").documentElement,
            true,
        );
        const marks = [...svg.querySelectorAll("[data-row]")];
        let at = -1;
        const show = () => {
            marks.forEach((mark, i) => {
                mark.classList.toggle("is-at", i === at);
                mark.classList.toggle("selected", Number(mark.dataset.row) === page.selected);
            });
        };
        const choose = (mark) => page.select(mark ? Number(mark.dataset.row) : null, { source: "roofline" });
        svg.setAttribute("tabindex", "0");
        svg.setAttribute("role", "application");
        svg.setAttribute(
            "aria-label",
            `Roofline of ${device.name}: ${marks.length} marks. Left and right step through them by time, ` +
                "Enter selects.",
        );
        svg.addEventListener("click", (event) => choose(event.target.closest("[data-row]")));
        svg.addEventListener("keydown", (event) => {
            const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
            if (event.key === "Enter" && marks[at]) choose(marks[at]);
            else if (by && marks.length) {
                at = Math.max(at + by, 0) % marks.length;
                show();
                flopscope.announce(marks[at].querySelector("title").textContent);
            } else return;
            event.preventDefault();
        });
        page.onSelect(show);
        return svg;
    }

    function notes(device, page) {
        const lines = device.bounds.length ? [] : ["No op has known FLOPs and bytes, so nothing is drawn."];
        for (const one of device.left_out.filter(({ rows }) => rows)) {
            const names = one.names.map((name) => page.strings[name].slice(0, 40)).join(", ");
            lines.push(
                `Not shown: ${format.plural(one.rows, "row")} ${one.why}, ` +
                    `${format.percent((100 * one.time) / device.total)} of the time: ` +
                    `${names}${one.more ? `, and ${one.more} more` : ""}.`,
            );
        }
        if (!device.has_roofs) lines.push("No roofs: the peaks are unknown.");
        if (device.has_strip) {
            lines.push(
                "Rows in the strip at the left move data and do no FLOPs, or an unknown number of them: " +
                    "their distance to the memory roof is that of their bandwidth.",
            );
        }
        if (device.bounds.length) {
            lines.push(
                "The area of a mark is its share of the time; those with less than 0.1% of it may lie beyond the " +
                    "axes. " +
                    "Solid roofs are measured, dashed ones are of the datasheet.",
            );
        }
        const meanings = device.bounds.map((bound) => [bound, page.bounds[bound]]);
        return [
            ...lines.map((text) => el("p.note", text)),
            meanings.length ? draw.words("What the bounds mean", meanings) : "",
        ];
    }

    flopscope.section("roofline", {
        title: "Roofline",
        mount(body, data, page) {
            data.devices.forEach((device, i) => {
                const title = [device.name, device.model].filter(Boolean).join(" · ");
                const legend = el("p.legend", device.bounds.map(draw.bound));
                const shown = device.bounds.length ? [legend, picture(device, page)] : [];
                const all = el("div.roofline", shown, notes(device, page));
                body.append(
                    data.devices.length > 1
                        ? el("details.device", { open: i === 0 }, el("summary", title), all)
                        : el("div", el("p.note", title), all),
                );
            });
        },
    });
}
