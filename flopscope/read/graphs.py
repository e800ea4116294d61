"""Graphs of recorded traces: the ops of the capture for the kernels of a replay."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

Source: TypeAlias = "str | os.PathLike[str]"

GRAPH_COUNTS = {
    "launches": "launches of graphs",
    "works": "kernels, copies and fills that they ran",
    "graphs": "captured graphs",
    "matched": "works whose node of a capture is known",
    "owned": "works that belong to an op of the capture",
    "tied": "launches whose graph was logged as it was launched",
    "unseen": "launches that match no captured graph",
    "ambiguous": "launches that match several captured graphs of different ops",
}
"""What the counts of Trace.graphs mean."""


def describe(counts: Mapping[str, int]) -> str:
    """Return what of the replays could not be joined to the captures, as a clause; "" if nothing."""
    if not counts["launches"]:
        return "the trace has no graph launches with recorded kernels, so the captures were not used"
    if not counts["graphs"]:
        return "the captures have no graph: no call begins a capture in them"
    return unmatched_graphs(counts)


def unmatched_graphs(counts: Mapping[str, int]) -> str:
    """Return what of the launches of graphs could not be joined to captured graphs, as a clause; "" if nothing."""
    missing = counts["works"] - counts["matched"]
    if not missing:
        return ""
    parts = {
        "match no captured graph": counts["unseen"],
        "match several captured graphs of different ops": counts["ambiguous"],
    }
    why = " and ".join(f"{count:,} {what}" for what, count in parts.items() if count)
    launches = f"of {counts['launches']:,} graph launches {why}; " if why else ""
    return f"{launches}{missing:,} of {counts['works']:,} kernels, copies and fills of graphs have no captured op"
