"""Which ops of one run do the work of which ops of another: by the ranges or modules around them, or by their order.

The device work of one step of each run is aligned by name. Where names differ between the same neighbours, those of one
run replaced those of the other; ranges and modules that both runs have divide such a stretch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.pieces import Step
from flopscope.results.categories import OTHER, category_of
from flopscope.support.core_values import WORK

STEP = "ProfilerStep*"
MOST_PIECES = 4000
"""Pieces of a step; of longer steps, only the first pieces are aligned."""
OWN_RANGES = ("ProfilerStep", "Torch-Compiled Region", "TorchDynamo", "## Call Compiled", "Pregraph", "AOTDispatcher")
"""First words of ranges that torch opens itself, which do not name a part of the program."""
FUSIBLE = ("pointwise", "reduction", "normalisation")
MODULE = "nn.Module: "


@dataclass(frozen=True)
class Piece:
    """A piece of device work: the name of its row, and the ranges and modules around its launch, outermost first."""

    name: str
    around: tuple[str, ...] = ()


def middle_step(analysis: Analysis) -> int:
    """Return the index of the step with the median time; the shorter one of two. The first step often is no example."""
    steps = analysis.steps
    order = sorted(range(len(steps)), key=lambda i: steps[i].end - steps[i].begin)
    return order[(len(order) - 1) // 2]


def pieces_of(analysis: Analysis, step: Step, by_kernel: bool) -> list[Piece]:
    """Return the device work launched in a step, in the order of the launches."""
    columns, names, kinds, _ = analysis.events
    is_work = np.isin(columns["kind"], [kinds.index(kind) for kind in WORK]) & (columns["launcher"] >= 0)
    work = np.flatnonzero(is_work)
    launched = columns["start"][columns["launcher"][work]]
    begin, end = _span(analysis, step)
    inside = (launched >= begin) & (launched < end)
    work, launched = work[inside], launched[inside]
    order = np.lexsort((columns["start"][work], launched))[:MOST_PIECES]
    steps = columns["kind"] == kinds.index("step")

    def name_of(event: int) -> str:
        number = columns["name"][event]
        return STEP if steps[event] else names[number] if number >= 0 else ""

    @cache
    def around(event: int) -> tuple[str, ...]:
        outward = analysis.enclosing(event)
        return tuple(name for kind, name in reversed(outward) if _is_part(kind, name))

    pairs = ((event, int(columns["launcher"][event])) for event in work[order].tolist())
    return [Piece(name_of(event if by_kernel else launcher), around(launcher)) for event, launcher in pairs]


def _is_part(kind: str, name: str) -> bool:
    """Return whether what encloses a launch names a part of the program."""
    return (kind == "range" and not name.startswith(OWN_RANGES)) or name.startswith(MODULE)


def _span(analysis: Analysis, step: Step) -> tuple[float, float]:
    """Return when the step began and ended on the host, in ns; of a profile without steps, always."""
    columns, names, kinds, unknown = analysis.events
    for event in np.flatnonzero((columns["kind"] == kinds.index("step")) & (columns["on_device"] == 0)).tolist():
        if names[columns["name"][event]] == step.name:
            begin, duration = int(columns["start"][event]), int(columns["duration"][event])
            return begin, math.inf if duration == unknown else begin + duration
    return -math.inf, math.inf


def replacements(
    a: Sequence[Piece], b: Sequence[Piece], matched: set[str], fewer: set[str]
) -> list[tuple[set[str], set[str]]]:
    """Return the sets of names of a with those of b that replaced them.

    matched: the names that both runs have. fewer: those of them with fewer calls in b. They join a set if most of their
    work was replaced.
    """
    from difflib import SequenceMatcher

    left, right = ([piece.name for piece in pieces] for pieces in (a, b))
    shared = {name for piece in a for name in piece.around} & {name for piece in b for name in piece.around}
    groups = _Groups()
    partly: dict[str, list[tuple[str, str]]] = {}
    lost: Counter[str] = Counter()
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "replace":
            continue
        for old, new in _parts(a[i1:i2], b[j1:j2], shared):
            ours = {name for name in old if name not in matched}
            theirs = {name for name in new if name not in matched}
            if theirs and old:
                first = ("b", min(theirs))
                for name in ours:
                    groups.join(("a", name), first)
                for name in theirs:
                    groups.join(("b", name), first)
                for name in old:
                    if name in matched:
                        lost[name] += 1
                        partly.setdefault(name, []).append(first)
    counts = Counter(left)
    for name in sorted(fewer):
        if name in partly and 2 * lost[name] >= counts[name]:
            place = Counter(map(groups.root, partly[name])).most_common(1)[0][0]
            groups.join(("a", name), place)
            groups.join(("b", name), place)
    _join_rest(groups, a, b, shared, matched)
    return groups.pairs()


def _join_rest(groups: _Groups, a: Sequence[Piece], b: Sequence[Piece], shared: set[str], matched: set[str]) -> None:
    """Join names without a counterpart at their place: by the range around them, else by their kind of work."""
    alone = {
        (run, piece.name): (_place(piece, shared), _kind(piece.name))
        for run, pieces in (("a", a), ("b", b))
        for piece in pieces
        if piece.name not in matched
    }
    for number in (0, 1):
        paired = {(run, name) for pair in groups.pairs() for run, side in zip("ab", pair, strict=True) for name in side}
        for item in sorted(alone.keys() - paired):
            at = alone[item][number]
            other = [one for one in alone if one[0] != item[0] and alone[one][number] == at]
            if at and other:
                groups.join(item, min(other, key=lambda one: (one not in paired, one)))


def _kind(name: str) -> str:
    """Return what fused kernels can replace as one kind, and the category of others; "" if it says little."""
    category = category_of(name)
    return "" if category in (OTHER, "copies") else "fusible" if category in FUSIBLE else category


def _place(piece: Piece, shared: set[str]) -> str:
    return next((name for name in reversed(piece.around) if name in shared), "")


def _parts(a: Sequence[Piece], b: Sequence[Piece], shared: set[str]) -> list[tuple[list[str], list[str]]]:
    """Divide the pieces of a stretch by the innermost range or module that both runs have."""
    common = {_place(piece, shared) for piece in a} & {_place(piece, shared) for piece in b}
    parts: dict[str | None, tuple[list[str], list[str]]] = {}
    for side, pieces in enumerate((a, b)):
        for piece in pieces:
            place = _place(piece, shared)
            where = place if place in common else None
            parts.setdefault(where, ([], []))[side].append(piece.name)
    return [part for part in parts.values() if all(part)]


class _Groups:
    """Disjoint sets of (run, name)."""

    def __init__(self) -> None:
        self._parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(self, item: tuple[str, str]) -> tuple[str, str]:
        while (parent := self._parent.setdefault(item, item)) != item:
            item = parent
        return item

    def join(self, x: tuple[str, str], y: tuple[str, str]) -> None:
        self._parent[self.root(x)] = self.root(y)

    def pairs(self) -> list[tuple[set[str], set[str]]]:
        found: dict[Any, tuple[set[str], set[str]]] = {}
        for item in self._parent:
            found.setdefault(self.root(item), (set(), set()))["ab".index(item[0])].add(item[1])
        return [pair for pair in found.values() if all(pair)]
