"""Graphs of recorded traces: the ops of the capture for the kernels of a replay."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from flopscope.support.safe import printable

Source: TypeAlias = "str | os.PathLike[str]"

GRAPH_COUNTS = {
    "launches": "launches of graphs",
    "works": "kernels, copies and fills that they ran",
    "graphs": "captured graphs",
    "matched": "works whose node of a capture is known",
    "owned": "works that belong to an op of the capture",
    "tied": "launches whose graph was logged as it was launched",
    "annotated": "works whose node has a name in kernel_annotations_*.json",
    "unseen": "launches that match no captured graph",
    "ambiguous": "launches that match several captured graphs of different ops",
}
"""What the counts of Trace.graphs mean."""


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


# PyTorch's annotations of graph nodes ---------------------------------------------------------------------------------
#
# The program writes kernel_annotations_*.json from torch.cuda._graph_annotations.get_kernel_annotations(), and
# PyTorch's _annotate_cuda_graph_trace puts it into a trace: an object whose members are the ids of nodes, each with a
# list of annotations, which are objects such as {"name": "attention", "stream": 20} or, in older files, texts.

_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"\d+"\s*:\s*[\[{"]|\}\s*$)')
_RANK = re.compile(r"rank(\d+)")


def is_annotations(start: bytes) -> bool:
    """Return whether a file that begins so has annotations of graph nodes."""
    return _START.match(start) is not None


def read_annotations(path: str) -> dict[int, str]:
    """Return the names that nodes were given, by the nodes' ids; nodes without a name are left out.

    Of several names, the last counts, as in PyTorch. Raise ValueError, naming the file and the node, for anything else
    than annotations.
    """
    with open(path, encoding="utf-8-sig") as file:
        try:
            content = json.load(file)
        except ValueError as problem:
            raise ValueError(printable(f"{path}: these annotations of graph nodes are not JSON: {problem}")) from None
    names: dict[int, str] = {}
    for node, given in content.items():
        if not node.isdecimal() or int(node) >= 1 << 64 or not isinstance(given, list):
            raise ValueError(
                printable(
                    f"{path}: a member of the annotations must be the id of a graph node with a list, not "
                    f"{node!r}: {str(given)[:80]}"
                )
            )
        for annotation in given:
            members = annotation.items() if isinstance(annotation, dict) else [("name", annotation)]
            for key, value in members:
                if key in ("name", "str") and str(value):  # "str" in older files
                    names[int(node)] = str(value)
    return names


def merged(paths: Iterable[str], rank: int | None) -> dict[int, str]:
    """Return the annotations of files, without those of other ranks.

    Raise ValueError if the files are of several ranks and that of the trace is unknown, as each rank has its own ids.
    """
    files = list(paths)
    ranks = {path: int(match[1]) for path in files if (match := _RANK.search(os.path.basename(path)))}
    if len({*ranks.values()}) > 1 and rank is None:
        raise ValueError(
            printable(
                f"annotations of several ranks, and the trace does not name its own: give one of {', '.join(files)}"
            )
        )
    names: dict[int, str] = {}
    for path in files:
        if rank is None or ranks.get(path, rank) == rank:
            names |= read_annotations(path)
    return names
