"""The section Devices: utilization, counters, energy, launches, streams, collectives and CUDA graphs, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flopscope.read.load import GRAPH_COUNTS, unmatched_graphs
from flopscope.show.page.encode import Columns, text_table
from flopscope.show.page.profile import Profile
from flopscope.show.summarize import Section, device_sections, energy_section
from flopscope.support.columns import Rows
from flopscope.support.units import percent_text, short_time_text


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the tables that summary() prints, and those of streams and graphs; None without device work."""
    if not source.core.devices - {"cpu"}:
        return None
    sections: dict[str, Section] = {
        **device_sections(source.core, source.counted),
        "Energy in J, W": energy_section(source.results.energy, source.analysis),
        "Streams": _streams(source),
        "CUDA graphs": _graphs(source),
    }
    return {"notes": [], "tables": [text_table(title, parts) for title, parts in sections.items() if parts]}


def _streams(source: Profile) -> Section:
    """Return what each stream did, and each device as a whole."""
    counts, times = ("kernels", "copies"), ("busy", "overlapped", "communication", "exposed_communication")
    found = source.streams
    rows = [["stream", "kernels", "copies", "busy", "overlapped", "share", "communication", "exposed", "share"]]
    for i, (device, stream) in enumerate(zip(found["device"], found["stream"], strict=True)):
        busy, overlapped, communication, exposed = (short_time_text(found[name][i]) for name in times)
        name = f"{source.core.device_name(device)} {'all streams' if stream is None else f'stream {stream}'}"
        shown = [name, *(f"{found[count][i]:.0f}" for count in counts), busy, overlapped]
        share, alone = (percent_text(found[part][i]) for part in ("overlapped_pct", "exposed_pct"))
        rows.append([*shown, share, communication, exposed, alone])
    return [Rows(rows), "overlapped: another stream of the device worked too; exposed: no other kernel ran"]


def _graphs(source: Profile) -> Section:
    """Return the counts of Trace.graphs with what they mean; empty without launches of graphs."""
    counts = _graph_counts(source)
    shown = [(text, str(counts[name])) for name, text in GRAPH_COUNTS.items() if counts[name] or name == "matched"]
    return [Rows([("of them", "number"), *shown])] if counts["launches"] else []


def graph_notes(source: Profile) -> Iterator[str]:
    """Yield which launches of graphs lack the ops of their capture, unless the notes of the table say it."""
    counts = _graph_counts(source)
    if counts["launches"] and not source.rows.coverage().get("unseen_graphs") and (text := unmatched_graphs(counts)):
        yield f"CUDA graphs: {text}. Give the traces of the capture: load_trace(…, captures=…) or --captures."


def _graph_counts(source: Profile) -> dict[str, int]:
    """Return Trace.graphs, with 0 for what it lacks."""
    return {name: source.results.graphs.get(name, 0) for name in GRAPH_COUNTS}
