"""What changed between two runs, by name, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from flopscope.results.changes import Cause, Change, Launches, Moved, Replaced, Scale, scaled
from flopscope.results.matching import ComparisonRow, Side, sum_of

LEAST = 0.05
"""Share of the time of a row; a smaller change has no cause."""
SAME_LENGTH = 0.05
"""Runs without steps have the same length if their numbers of calls differ by less."""
SECOND = 0.3
"""A second cause is stated if it explains this part of the change."""
WORK: tuple[Literal["flops", "bytes"], ...] = ("flops", "bytes")
MOST_PAIRS = 100_000
"""Pairs of shapes of one name that are compared with each other."""


def scale_of(rows: Iterable[ComparisonRow], steps: tuple[int, int]) -> Scale:
    """Return what times refer to. steps: the number of each run, 0 if it has none."""
    if all(steps):
        return Scale("step", *steps)
    both = [(row.b.count / row.a.count, row.a.time) for row in rows if row.a and row.b and row.a.count and row.a.time]
    half = math.fsum(time for _, time in both) / 2
    for ratio, time in sorted(both):
        half -= time
        if half <= 0:
            return Scale("run" if abs(ratio - 1) <= SAME_LENGTH else "call")
    return Scale("run")


def changes_of(rows: Iterable[ComparisonRow], scale: Scale) -> list[Change]:
    """Group rows by name: those with the largest difference first, rows of one run last, none without time."""
    groups: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        timed = ComparisonRow(row.name, *(side if side and side.time > 0 else None for side in (row.a, row.b)))
        if timed.a or timed.b:
            groups.setdefault(row.name, []).append(timed)
    found = [_change(name, _paired(group, scale), scale) for name, group in groups.items()]
    return sorted(found, key=order)


def order(change: Change) -> tuple[bool, float]:
    """The order of changes: those of both runs first, then the largest difference."""
    return not change.matched, -abs(change.difference)


def _change(name: str, rows: list[ComparisonRow], scale: Scale) -> Change:
    a, b = _sums(name, rows)
    shaped = [row for row in rows if row.input_shapes] if len(rows) > 1 or any(row.differs for row in rows) else []
    parts = [change_of(replace(row, name=shapes_text(row)), scale) for row in shaped]
    return replace(change_of(ComparisonRow(name, a, b), scale), rows=rows, parts=parts)


def change_of(row: ComparisonRow, scale: Scale) -> Change:
    """Return a row as a change."""
    cause: Cause = "only a" if row.a else "only b"
    facts: list[list[Moved]] = []
    if row.a and row.b:
        cause = "same" if row.a.time == row.b.time else "time"
        if row.a.time > 0 and row.b.time > 0:  # else the total of a run without rows
            cause, facts = _cause(row.a, row.b, scale)
    return Change(row.name, row.a, row.b, [row], scale, cause, facts)


def shapes_text(row: ComparisonRow) -> str:
    """Return the shapes of a row as text; where they differ, both dimensions: ``[[8, 10→12]]``."""
    a, b = (side.input_shapes if side else [] for side in (row.a, row.b))
    if not (row.a and row.b and row.differs):
        return str(a or b)
    common = min(len(a), len(b))
    return _both(a[:common], b[:common])


def _both(a: object, b: object) -> str:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        return f"[{', '.join(_both(x, y) for x, y in zip(a, b, strict=True))}]"
    return str(a) if a == b else f"{a}→{b}"


def _sums(name: str, rows: Sequence[ComparisonRow]) -> tuple[Side | None, Side | None]:
    sides = [[side for row in rows if (side := getattr(row, which))] for which in "ab"]
    a, b = (sum_of(name, of) if of else None for of in sides)
    return a, b


def replacement(
    a: Sequence[Change], b: Sequence[Change], scale: Scale, noun: str, launches: Launches | None = None
) -> Change:
    """Return the changes that replaced each other as one.

    noun: what they are. launches: what became of the launches, if one run has CUDA graphs.
    """
    members = sorted({id(change): change for change in (*a, *b)}.values(), key=lambda change: -abs(change.difference))
    rows = [row for change in members for row in change.rows]
    names = [
        [(change.name, getattr(change, calls)) for change in sorted(side, key=lambda change: change.matched)]
        for side, calls in ((a, "calls_a"), (b, "calls_b"))
    ]
    facts = Replaced(names[0], names[1], noun, launches)
    return Change("", *_sums("", rows), rows, scale, "replaced", facts, parts=members)


# Causes ---------------------------------------------------------------------------------------------------------------


def _cause(a: Side, b: Side, scale: Scale) -> tuple[Cause, list[list[Moved]]]:
    """Return the cause of the difference of two sides with time, and the numbers behind it."""
    per_call = scale.per == "call"
    calls = 1.0 if per_call else (b.count / scale.b) / (a.count / scale.a) if a.count and b.count else 1.0
    time = (b.time / max(b.count, 1)) / (a.time / max(a.count, 1)) * calls
    if abs(time - 1) < LEAST:
        return "same", []
    work = _work_ratio(a, b)
    parts: list[tuple[Cause, float, list[Moved]]] = [
        ("calls", math.log(calls), [Moved("calls", a.count / scale.a, b.count / scale.b)])
    ]
    if math.isnan(work):
        parts.append(("time", math.log(time / calls), [_times(a, b)]))
    else:
        parts.append(("work", math.log(work), _work(a, b)))
        parts.append(("rate", math.log(time / calls / work), _rates(a, b)))
    whole = math.log(time)
    parts.sort(key=lambda part: -part[1] * math.copysign(1, whole))
    facts = [found for number, (_, value, found) in enumerate(parts) if number == 0 or value / whole > SECOND]
    return parts[0][0], [found for found in facts if found]


def _known(values: Iterable[float]) -> bool:
    """Return whether no value is 0 or NaN; min() alone may miss NaN."""
    return all(value > 0 for value in values)


def _work_ratio(a: Side, b: Side) -> float:
    """Return the work of a call of b by that of a: of the least time by the peaks, else of FLOPs or bytes; else NaN."""
    least = [side.pct_roofline * side.rated_time for side in (a, b)]
    for done in (least if a.unit == b.unit else (0, 0), (a.flops, b.flops), (a.bytes, b.bytes)):
        if _known(done):
            return (done[1] / b.count) / (done[0] / a.count)
    return math.nan


def _work(a: Side, b: Side) -> list[Moved]:
    """Return the work of a call whose ratio differs more, of FLOPs and bytes; both if they differ alike."""
    known = [kind for kind in WORK if _known((getattr(a, kind), getattr(b, kind)))]
    found = [Moved(kind, getattr(a, kind) / a.count, getattr(b, kind) / b.count) for kind in known]
    ratios = [abs(math.log(one.b / one.a)) for one in found]
    return [one for one, ratio in zip(found, ratios, strict=True) if ratio == max(ratios)]


def _rates(a: Side, b: Side) -> list[Moved]:
    found = [Moved("unit", a.unit, b.unit)] if a.unit != b.unit and a.unit and b.unit else []
    if _known((a.pct_roofline, b.pct_roofline)):
        found.append(Moved("share", a.pct_roofline, b.pct_roofline))
    return found or [_times(a, b)]


def _times(a: Side, b: Side) -> Moved:
    return Moved("time", *(side.time / max(side.count, 1) for side in (a, b)))


# Shapes ---------------------------------------------------------------------------------------------------------------


def _paired(rows: list[ComparisonRow], scale: Scale) -> list[ComparisonRow]:
    """Pair rows of a name whose shapes only one run has, if few dimensions differ; the largest difference first."""
    left = [row.a for row in rows if row.a and not row.b]
    right = [row.b for row in rows if row.b and not row.a]
    found = [row for row in rows if row.a and row.b]
    if len(left) * len(right) > MOST_PAIRS:
        left, right, found = [], [], rows
    near = sorted(
        (distance, i, j)
        for i, x in enumerate(left)
        for j, y in enumerate(right)
        if (distance := _distance(x.input_shapes, y.input_shapes)) < math.inf
    )
    used: tuple[set[int], set[int]] = set(), set()
    for _, i, j in near:
        if i not in used[0] and j not in used[1]:
            used[0].add(i)
            used[1].add(j)
            found.append(ComparisonRow(rows[0].name, left[i], right[j]))
    found += [ComparisonRow(rows[0].name, side, None) for i, side in enumerate(left) if i not in used[0]]
    found += [ComparisonRow(rows[0].name, None, side) for j, side in enumerate(right) if j not in used[1]]
    return sorted(found, key=lambda row: -abs(scaled(row.b, scale, scale.b) - scaled(row.a, scale, scale.a)))


def _distance(a: Any, b: Any) -> float:
    """Return how unlike two lists of shapes are: infinite if ranks differ or more than half of the dimensions do."""
    common = min(len(a), len(b))
    if max(len(a), len(b)) > common + 1:
        return math.inf
    a, b = a[:common], b[:common]
    x, y = flat(a), flat(b)
    if not all(isinstance(dim, int) for dim in (*x, *y)):  # of a DataFrame
        return math.inf
    if not x or [*map(_rank, a)] != [*map(_rank, b)] or len(x) != len(y):
        return math.inf
    unlike = [abs(math.log(max(p, 1) / max(q, 1))) for p, q in zip(x, y, strict=True) if p != q]
    return len(unlike) + min(sum(unlike) / 100, 0.99) if 2 * len(unlike) <= len(x) else math.inf


def _rank(shape: Any) -> Any:
    return [_rank(part) for part in shape] if isinstance(shape, list | tuple) else 0


def flat(shapes: Any) -> list[int]:
    """Return the dimensions of shapes, which are numbers in nested lists."""
    return [dim for part in shapes for dim in (flat(part) if isinstance(part, list | tuple) else [part])]
