"""Graphs of recorded traces: the ops of the capture for the kernels of a replay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from flopscope import _core
from flopscope.support.safe import printable
from flopscope.support.warn import warn_user

__all__ = ["GRAPH_COUNTS", "Source", "describe", "join", "sources_of", "unmatched_graphs", "warn_of_unmatched"]

Source: TypeAlias = "str | os.PathLike[str]"


GRAPH_COUNTS = {
    "launches": "launches of graphs",
    "works": "kernels, copies and fills that they ran",
    "graphs": "captured graphs",
    "matched": "works whose node of a capture is known",
    "owned": "works that belong to an op of the capture",
    "estimated": "works whose op was inferred from the same kernel elsewhere",
    "tied": "launches whose graph was logged as it was launched",
    "annotated": "works whose node has a name in kernel_annotations_*.json",
    "unseen": "launches that match no captured graph",
    "ambiguous": "launches that match several captured graphs of different ops",
}
"""What the counts of Trace.graphs mean."""


def join(
    core: _core.Store, captures: Iterable[_core.Store], names: dict[int, str], *, watched: bool = False
) -> dict[str, int]:
    """Give the kernels of replayed graphs in ``core`` the ops that launched them at the capture. Return counts.

    names: of nodes, by their ids, which become ranges around their work.
    watched: use what watch_graphs() saw in this process too. Kernels that no capture knows get the op of the same
    kernel with the same grid elsewhere, marked as estimated.
    """
    return core.join_replays(tuple(captures), watched, names)


def describe(counts: Mapping[str, int], captures: int, names: int) -> str:
    """Return what of the replays could not be joined to the captures, as a clause; "" if nothing.

    ``captures`` and ``names`` are the numbers of traces of captures, and of named nodes, that were given.
    """
    if not counts["launches"]:
        return "the trace has no graph launches with recorded kernels, so the captures were not used"
    if names and not counts["annotated"]:
        return f"none of the {names:,} annotated nodes has work in the trace; annotations are of one run and rank"
    if names and not captures:
        return ""
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


def warn_of_unmatched(name: str, counts: Mapping[str, int], captures: int, names: int) -> None:
    """Issue a UserWarning if some kernels of graphs could not be joined."""
    if text := describe(counts, captures, names):
        warn_user(printable(f"{name}: captures: {text}"))


def sources_of(captures: Any) -> list[Source]:
    """Return a list of the files, folders and patterns that were given as captures."""
    if isinstance(captures, (str, os.PathLike)):
        return [captures]
    return list(captures)
