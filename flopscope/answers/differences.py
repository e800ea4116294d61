"""What changed between two runs by name: which rows belong together, what explains each change, what replaced what.

Two runs may name the same work differently. The device work of one step of each is aligned by name: where names differ
between the same neighbours, those of one run replaced those of the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flopscope.results.categories import OTHER, category_of, short_names, sums_of_groups
from flopscope.results.comparison import Cause, Change, ComparisonRow, Scale, Side, scaled
from flopscope.support.columns import cut_end
from flopscope.support.units import bytes_text, count_text, percent_text, plural, short_time_text

Key = tuple[str, str]  # name with namespace, shapes

NAMESPACES = ("flopscope::", "aten::")
LEAST = 0.05
"""Share of the time of a row; a smaller change has no cause."""
SAME_LENGTH = 0.05
"""Runs without steps have the same length if their numbers of calls differ by less."""
SECOND = 0.3
"""A second cause is stated if it explains this part of the change."""
MOST_ALIKE = 300
"""Shapes of one name with which each of the other run is compared: the longest."""


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
    shaped = [row for row in rows if row.input_shapes] if len(rows) > 1 or any(row.differs for row in rows) else []
    parts = [change_of(replace(row, name=shapes_text(row)), scale) for row in shaped]
    return replace(change_of(ComparisonRow(name, *_sums(name, rows)), scale), rows=rows, parts=parts)


def change_of(row: ComparisonRow, scale: Scale) -> Change:
    cause: Cause = "only a" if row.a else "only b"
    why = ""
    if row.a and row.b:
        cause = "same" if row.a.time == row.b.time else "time"
        if row.a.time > 0 and row.b.time > 0:  # else the total of a run without rows
            cause, why = _cause(row.a, row.b, scale)
    return Change(row.name, row.a, row.b, [row], scale, cause, why)


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
    a, b = ([side for row in rows if (side := getattr(row, which))] for which in "ab")
    return sum_of(name, a) if a else None, sum_of(name, b) if b else None


# Causes ---------------------------------------------------------------------------------------------------------------


def _cause(a: Side, b: Side, scale: Scale) -> tuple[Cause, str]:
    """Return the cause of the difference of two sides with time, and the numbers behind it."""
    per_call = scale.per == "call"
    calls = 1.0 if per_call else (b.count / scale.b) / (a.count / scale.a) if a.count and b.count else 1.0
    time = (b.time / max(b.count, 1)) / (a.time / max(a.count, 1)) * calls
    if abs(time - 1) < LEAST:
        return "same", ""
    work = _work_ratio(a, b)
    of_calls = math.log(calls), calls_text(a.count / scale.a, b.count / scale.b)
    parts: list[tuple[Cause, float, str]] = [("calls", *of_calls)]
    if math.isnan(work):
        parts.append(("time", math.log(time / calls), _times(a, b)))
    else:
        parts += [("work", math.log(work), _work(a, b)), ("rate", math.log(time / calls / work), _rates(a, b))]
    whole = math.log(time)
    parts.sort(key=lambda part: -part[1] * math.copysign(1, whole))
    texts = [text for place, (_, value, text) in enumerate(parts) if place == 0 or value / whole > SECOND]
    return parts[0][0], "; ".join(filter(None, texts))


def calls_text(a: float, b: float, noun: str = "call", nouns: str | None = None) -> str:
    """Return the number of calls before and after: "12 → 4 calls"."""
    return f"{a:.4g} → {plural(b, noun, nouns)}"


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


def _work(a: Side, b: Side) -> str:
    """Return the work of a call whose ratio differs more, of FLOPs and bytes; either if they differ alike."""
    found = []
    for x, y, text in ((a.flops, b.flops, _flops), (a.bytes, b.bytes, bytes_text)):
        if _known((x, y)):
            before, after = x / a.count, y / b.count
            found.append((abs(math.log(after / before)), f"{text(before)} → {text(after)} a call"))
    return max(found, default=(0.0, ""))[1]


def _flops(value: float) -> str:
    return f"{count_text(value)}{' ' if value < 1000 else ''}FLOPs"


def _rates(a: Side, b: Side) -> str:
    found = [f"{a.unit} → {b.unit}"] if a.unit != b.unit and a.unit and b.unit else []
    if _known((a.pct_roofline, b.pct_roofline)):
        found.append(f"{percent_text(a.pct_roofline)} → {percent_text(b.pct_roofline)} of roofline")
    return ", ".join(found) or _times(a, b)


def _times(a: Side, b: Side) -> str:
    x, y = (short_time_text(side.time / max(side.count, 1)) for side in (a, b))
    return f"{x} → {y} a call"


# Shapes ---------------------------------------------------------------------------------------------------------------


def _paired(rows: list[ComparisonRow], scale: Scale) -> list[ComparisonRow]:
    """Pair rows of a name whose shapes only one run has, if few dimensions differ; the largest difference first."""
    left = [row.a for row in rows if row.a and not row.b]
    right = [row.b for row in rows if row.b and not row.a]
    found = [row for row in rows if row.a and row.b]
    for side in left:
        alike = ((_unlike(side.input_shapes, other.input_shapes), i) for i, other in enumerate(right[:MOST_ALIKE]))
        nearest = min(((unlike, i) for unlike, i in alike if unlike), default=None)
        found.append(ComparisonRow(rows[0].name, side, right.pop(nearest[1]) if nearest else None))
    found += [ComparisonRow(rows[0].name, None, side) for side in right]
    return sorted(found, key=lambda row: -abs(scaled(row.b, scale, scale.b) - scaled(row.a, scale, scale.a)))


DIMENSION = re.compile(r"\d+")


def _unlike(a: Sequence[Any], b: Sequence[Any]) -> tuple[int, float] | None:
    """Return how many dimensions of two lists of shapes differ, and how much; None if ranks or most of them do."""
    common = min(len(a), len(b))
    x, y = str([*a[:common]]), str([*b[:common]])
    if max(len(a), len(b)) > common + 1 or DIMENSION.sub("", x) != DIMENSION.sub("", y):
        return None
    sizes = [(int(p), int(q)) for p, q in zip(DIMENSION.findall(x), DIMENSION.findall(y), strict=True)]
    unlike = [abs(math.log(max(p, 1) / max(q, 1))) for p, q in sizes if p != q]
    return (len(unlike), sum(unlike)) if sizes and 2 * len(unlike) <= len(sizes) else None


# Matching -------------------------------------------------------------------------------------------------------------


def sum_of(name: str, sides: Sequence[Side], whole: bool = False) -> Side:
    """Return the sum of several sides. whole: as for sums_of()."""
    return sums_of({(name, ""): sides}, whole)[name, ""]


_SUMMED = {name: name for name in ("count", "flops", "pct_roofline")}
_SUMMED |= {"time": "self_cpu_time_total", "bytes": "bytes_total_moved", "rated_time": "roofline_time"}
"""The values of sides, and the columns of tables that are summed in the same way."""


def sums_of(groups: Mapping[Key, Sequence[Side]], whole: bool = False) -> dict[Key, Side]:
    """Return the sum of each group of sides. whole: the sides are all of a run, so ranges have no work if ops have."""
    parts = [side for sides in groups.values() for side in sides]
    numbers = [number for number, sides in enumerate(groups.values()) for _ in sides]
    columns: dict[str, list[Any]] = {name: [getattr(side, of) for side in parts] for of, name in _SUMMED.items()}
    columns["headroom"] = [0.0] * len(parts)  # rated_time is roofline_time + headroom
    columns["is_user_annotation"] = [whole and side.is_range for side in parts]
    sums = sums_of_groups(columns, numbers, [-1] * len(groups))
    return {
        key: Side(
            key[0],
            **{of: sums[name][number] for of, name in _SUMMED.items()},
            input_shapes=sides[0].input_shapes if sides else [],
            is_range=any(side.is_range for side in sides),
            unit=max(((side.time, side.unit) for side in sides if side.unit), default=(0.0, None))[1],
        )
        for number, (key, sides) in enumerate(groups.items())
    }


def bare(name: str) -> str:
    return next((name.removeprefix(space) for space in NAMESPACES if name.startswith(space)), name)


def matched(a: dict[Key, Side], b: dict[Key, Side]) -> list[ComparisonRow]:
    """Match equal names first, then names without their namespace."""
    left, right, rows = dict(a), dict(b), []

    def match(key: Key, other: Key) -> None:
        rows.append(ComparisonRow(bare(key[0]), left.pop(key), right.pop(other)))

    for key in [key for key in a if key in b]:
        match(key, key)
    unspaced = {(bare(name), shapes): (name, shapes) for name, shapes in right}
    for key in list(left):
        same = unspaced.get((bare(key[0]), key[1]))
        if same is not None and same in right:
            match(key, same)
    rows += [ComparisonRow(bare(side.key), side, None) for side in left.values()]
    rows += [ComparisonRow(bare(side.key), None, side) for side in right.values()]
    return rows


# What replaced what ---------------------------------------------------------------------------------------------------

STEP = "ProfilerStep*"
"""The row of kernels that belong to no op, such as those of a CUDA graph."""
FUSED = "triton_"
FUSIBLE = ("pointwise", "reduction", "normalisation")
NAMES_SHOWN, NAME = 4, 40


def replacement(a: Sequence[Change], b: Sequence[Change], scale: Scale, noun: str, launches: str = "") -> Change:
    """Return the changes that replaced each other as one, which is named by what replaced what.

    noun: what they are. launches: what became of the launches, if one run has CUDA graphs.
    """
    members = sorted({id(change): change for change in (*a, *b)}.values(), key=lambda change: -abs(change.difference))
    rows = [row for change in members for row in change.rows]
    before, after = (sorted(side, key=lambda change: change.matched) for side in (a, b))
    runs = [(change.name, change.calls_a) for change in before], [(change.name, change.calls_b) for change in after]
    name = " → ".join(_counted(run, noun) for run in runs)
    why = launches or " → ".join(map(_names, runs))
    return Change(name, *_sums("", rows), rows, scale, "replaced", why, parts=members)


def _counted(members: Sequence[tuple[str, float]], noun: str) -> str:
    """Return how many ops these are: "9 ops", "2 fused kernels and 1 op", "a CUDA graph"."""
    if all(name == STEP for name, _ in members):
        return "a CUDA graph"
    fused = sum(calls for name, calls in members if name.startswith(FUSED))
    rest = sum(calls for _, calls in members) - fused
    return " and ".join([*([plural(fused, "fused kernel")] if fused else []), *([plural(rest, noun)] if rest else [])])


def _names(members: Sequence[tuple[str, float]]) -> str:
    names = [short_names([name])[name] for name, _ in members[:NAMES_SHOWN]]
    more = ["…"] if len(members) > NAMES_SHOWN else []
    return ", ".join([*(cut_end(name, NAME) for name in names), *more])


def replacements(a: Sequence[str], b: Sequence[str], matched: set[str]) -> list[tuple[set[str], set[str]]]:
    """Return the sets of names of a with those of b that replaced them: at the same place, or by their kind of work.

    a, b: the names of the pieces of work in their order. matched: the names that both runs have.
    """
    from difflib import SequenceMatcher

    groups: list[tuple[set[str], set[str]]] = []

    def join(old: set[str], new: set[str]) -> None:
        near = [group for group in groups if group[0] & old or group[1] & new]
        whole = (old.union(*(group[0] for group in near)), new.union(*(group[1] for group in near)))
        groups[:] = [*(group for group in groups if group not in near), whole]

    for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        old, new = set(a[i1:i2]) - matched, set(b[j1:j2]) - matched
        if tag == "replace" and old and new:
            join(old, new)
    kinds = {kind for kind in map(_kind, {*a, *b} - matched) if kind}
    for kind in sorted(kinds):
        alone = [{name for name in {*run} - matched if _kind(name) == kind} for run in (a, b)]
        more = [names.difference(*(group[side] for group in groups)) for side, names in enumerate(alone)]
        if all(alone) and any(more):
            join(more[0] or {min(alone[0])}, more[1] or {min(alone[1])})
    return groups


def _kind(name: str) -> str:
    """Return what fused kernels can replace as one kind, and the category of others; "" if it says little."""
    category = category_of(name)
    return "" if category in (OTHER, "copies") else "fusible" if category in FUSIBLE else category
