"""PyTorch's annotations of graph nodes: the files ``kernel_annotations_*.json`` beside a trace.

The program writes them from ``torch.cuda._graph_annotations.get_kernel_annotations()``, and PyTorch's
``_annotate_cuda_graph_trace`` puts them into a trace: an object whose members are the ids of nodes, each with a list of
annotations, which are objects such as {"name": "attention", "stream": 20} or, in older files, texts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from flopscope.support.safe import printable

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
