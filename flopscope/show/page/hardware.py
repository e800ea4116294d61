"""What the Overview shows of counters, energy, CUDA graphs and coverage, and of the devices and profilers of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flopscope.answers.counted import Counted, used
from flopscope.read.graphs import GRAPH_COUNTS, unmatched_graphs
from flopscope.support.units import bytes_text, number_text

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

MOST_OPS = 50
"""Rows of each list of ops."""

_PROFILERS = {
    "nsys": "Nsight Systems",
    "xplane": "XLA's profiler",
    "rocpd": "rocprofv3 (rocpd)",
    "rocprof": "rocprofv3",
}
_MOST_TEXT = 300  # characters of a fact from a file


def counted(source: Profile) -> dict[str, Any]:
    """Return what the devices counted over the profile, as summary() prints it, and the energy that they used."""
    flops = source.main.analysis.columns["flops"] if source.results.energy else []
    found = Counted(source.core)
    return {
        "hfu": found.hfu(source.accounting).percent,
        "devices": [
            asdict(total) | {name: getattr(total, name) for name in ("tbytes_per_s", "whole_read", "whole_written")}
            for total in found.totals()
        ],
        "energy": [asdict(one) for one in used(source.results.energy, flops)],
    }


def coverage(found: Mapping[str, Any], row_of: Callable[[str], int]) -> dict[str, Any]:
    """Return the shares of known work, and the ops whose work is unknown or estimated: the longest, and their number.

    row_of: returns the row of an op's name in the page.
    """
    lists: dict[str, Any] = {}
    for name in ("unmodelled", "estimated", "estimated_flops"):
        ops = found.get(name, [])
        lists[name] = [{"name": op, "time": time, "row": row_of(op)} for op, time in ops[:MOST_OPS]]
        lists[f"{name}_count"] = len(ops)
    misfits = found.get("misfits", {})
    listed = [
        {"name": op, "row": row_of(op), "seen": seen, "expected": expected}
        for op, (seen, expected) in list(misfits.items())[:MOST_OPS]
    ]
    return {
        "bytes": found["bytes"],
        "flops": found["flops"],
        **lists,
        "misfits": listed,
        "misfits_count": len(misfits),
        "unseen_graphs": found.get("unseen_graphs"),
    }


def graphs(source: Profile) -> list[tuple[str, int]]:
    """Return the counts of Trace.graphs, of all windows, with what they mean; empty without launches of graphs."""
    sums = _graph_counts(source)
    if not sums["launches"]:
        return []
    return [(text, sums[name]) for name, text in GRAPH_COUNTS.items() if sums[name] or name in ("launches", "matched")]


def graph_notes(source: Profile) -> Iterator[str]:
    """Yield which launches of graphs lack the ops of their capture, unless the notes of the table say it."""
    counts = _graph_counts(source)
    if counts["launches"] and not source.rows.coverage().get("unseen_graphs") and (text := unmatched_graphs(counts)):
        yield f"CUDA graphs: {text}. Give the traces of the capture: load_trace(…, captures=…) or --captures."


def _graph_counts(source: Profile) -> dict[str, int]:
    counts = [getattr(window.results, "graphs", {}) for window in source.windows]
    return {name: sum(one.get(name, 0) for one in counts) for name in GRAPH_COUNTS}


def sizes(source: Profile) -> dict[str, str]:
    """Return multiprocessors, memory, bandwidth, clock and L2 of each device that a file describes."""
    metadata = getattr(source.results, "metadata", None)
    entries = metadata.get("deviceProperties") if isinstance(metadata, dict) else None
    found = {}
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            parts = [text(number) for name, text in _SIZES.items() if (number := _count(entry.get(name)))]
            if parts:
                found[f"{source.core.device_type}:{entry['id']}"] = ", ".join(parts)
    return found


_SIZES: Mapping[str, Callable[[int], str]] = {
    "numSms": lambda count: f"{count:,} multiprocessors",
    "totalGlobalMem": bytes_text,
    "memoryBandwidth": lambda rate: f"{number_text(rate / 1e9)} GB/s",
    "clockRate": lambda rate: f"{number_text(rate / 1e9)} GHz",
    "l2CacheSize": lambda size: f"L2 of {bytes_text(size)}",
}


def _count(value: object) -> int:
    """Return a positive integer of a file, or 0 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else 0


def profiler(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield which profiler recorded a file and the program that it ran, unless it was torch's."""
    for key, name in _PROFILERS.items():
        facts = metadata.get(key)
        if isinstance(facts, dict):
            yield "Recorded by", f"{name} {facts.get('version') or ''}"[:_MOST_TEXT].strip()
            if facts.get("command"):
                yield "Command", str(facts["command"])[:_MOST_TEXT]
