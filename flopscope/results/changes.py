"""What changed between two runs, by name: calls, work, speed, or ops that others replaced.

Times and calls are those of a step if both runs have steps, of a call if they differ in length, else of the whole run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flopscope.results.matching import ComparisonRow, Side, sum_of
from flopscope.support.kernel_names import short_names
from flopscope.support.units import bytes_text, count_text, percent_text, plural, short_time_text

__all__ = ["Change", "Per", "Scale", "changes_of", "flat", "order", "replacement", "scale_of", "total_of_changes"]

Per = Literal["step", "call", "run"]
Cause = Literal["calls", "work", "rate", "time", "replaced", "only a", "only b", "same"]

LEAST = 0.05
"""Share of the time of a row; a smaller change has no cause."""
SAME_LENGTH = 0.05
"""Runs without steps have the same length if their numbers of calls differ by less."""
SECOND = 0.3
"""A second cause is stated if it explains this part of the change."""
NAMES_SHOWN, NAME = 4, 40
MOST_PAIRS = 100_000
"""Pairs of shapes of one name that are compared with each other."""


@dataclass(frozen=True)
class Scale:
    """What times and calls refer to, and the numbers of steps that the sums of each run are divided by."""

    per: Per
    a: int = 1
    b: int = 1


@dataclass(frozen=True)
class Change:
    """A name of one run or both, or ops of run a and those of run b that replaced them."""

    name: str
    a: Side | None
    """The sum of the rows of run a, not scaled; None if it has none with time."""
    b: Side | None
    rows: list[ComparisonRow]
    """By shape. Shapes that only one run has are paired with similar ones; the ops of a replacement are not paired."""
    scale: Scale
    cause: Cause
    """What explains most of the difference.

    "calls": their number. "work": FLOPs or bytes of a call. "rate": the same work at another speed. "time": the time of
    a call, whose work is unknown. "replaced": other ops or kernels do the work. "only a", "only b": one run has it.
    "same": the times differ by less than 5 %.
    """
    why: str
    """The numbers behind ``cause``, as text."""
    parts: list[Change] = field(default_factory=list)
    """The same by shape, or the ops that replaced each other; the largest difference first."""

    @property
    def differs(self) -> bool:
        """Whether the runs have other shapes, or only one has this; true of the ops of a replacement."""
        return not (self.a and self.b) or _unlike(self.a.input_shapes, self.b.input_shapes)

    @property
    def time_a(self) -> float:
        """Time in µs of run a: of a step, of a call or of the run; 0 if it has none."""
        return _scaled(self.a, self.scale, self.scale.a)

    @property
    def time_b(self) -> float:
        """The same of run b."""
        return _scaled(self.b, self.scale, self.scale.b)

    @property
    def calls_a(self) -> float:
        """Calls of run a, of a step or of the run."""
        return self.a.count / self.scale.a if self.a else 0.0

    @property
    def calls_b(self) -> float:
        """The same of run b."""
        return self.b.count / self.scale.b if self.b else 0.0

    @property
    def difference(self) -> float:
        """Time of b minus time of a in µs; if times are those of a call, times the calls of run a."""
        calls = self.a.count if self.a and self.scale.per == "call" else 1
        return (self.time_b - self.time_a) * calls

    @property
    def matched(self) -> bool:
        """Whether both runs have it."""
        return self.a is not None and self.b is not None


def _scaled(side: Side | None, scale: Scale, steps: int) -> float:
    if side is None:
        return 0.0
    return side.time / max(side.count if scale.per == "call" else steps, 1)


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
    shaped = [row for row in rows if row.input_shapes] if len(rows) > 1 or any(map(_differ, rows)) else []
    parts = [_of_sides(shapes_text(row), row.a, row.b, [row], scale) for row in shaped]
    return replace(_of_sides(name, a, b, rows, scale), parts=parts)


def _of_sides(name: str, a: Side | None, b: Side | None, rows: list[ComparisonRow], scale: Scale) -> Change:
    if a is None or b is None:
        return Change(name, a, b, rows, scale, "only a" if a else "only b", "")
    if not (a.time > 0 and b.time > 0):  # the total of a run without rows
        return Change(name, a, b, rows, scale, "same" if a.time == b.time else "time", "")
    return Change(name, a, b, rows, scale, *_cause(a, b, scale))


def total_of_changes(total: ComparisonRow, scale: Scale) -> Change:
    """Return the sum of all rows as a change."""
    return _of_sides("total", total.a, total.b, [total], scale)


def _differ(row: ComparisonRow) -> bool:
    return not (row.a and row.b) or _unlike(row.a.input_shapes, row.b.input_shapes)


def _unlike(a: list[Any], b: list[Any]) -> bool:
    """Whether shapes differ, except that one call may list its output last, as ``mm.out`` does."""
    common = min(len(a), len(b))
    return a[:common] != b[:common] or (not common and a != b)


def shapes_text(row: ComparisonRow) -> str:
    """Return the shapes of a row as text; where they differ, both dimensions: ``[[8, 10→12]]``."""
    a, b = (side.input_shapes if side else [] for side in (row.a, row.b))
    if not (row.a and row.b and _unlike(a, b)):
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


def replacement(a: Sequence[Change], b: Sequence[Change], scale: Scale, noun: str, launches: str = "") -> Change:
    """Return the changes that replaced each other as one.

    noun: what they are. launches: what became of the launches, if one run has CUDA graphs.
    """
    members = sorted({id(change): change for change in (*a, *b)}.values(), key=lambda change: -abs(change.difference))
    rows = [row for change in members for row in change.rows]
    left, right = _sums("", rows)
    calls = [[change.calls_a for change in a], [change.calls_b for change in b]]
    texts = [_counted(list(zip(side, of, strict=True)), noun) for side, of in zip((a, b), calls, strict=True)]
    why = launches or " → ".join(_names(side) for side in (a, b))
    return Change(" → ".join(texts), left, right, rows, scale, "replaced", why, members)


def _counted(changes: Sequence[tuple[Change, float]], noun: str) -> str:
    """Return how many ops these are: "9 ops", "2 fused kernels and 1 op", "a CUDA graph"."""
    if all(change.name == STEP for change, _ in changes):
        return "a CUDA graph"
    fused = sum(calls for change, calls in changes if change.name.startswith(FUSED))
    rest = sum(calls for change, calls in changes) - fused
    texts = [plural(fused, "fused kernel")] if fused else []
    return " and ".join([*texts, *([plural(rest, noun)] if rest else [])])


def _names(changes: Sequence[Change]) -> str:
    """Return the names as text, those of one run first."""
    names = [_short(change.name) for change in sorted(changes, key=lambda change: change.matched)]
    return ", ".join([*names[:NAMES_SHOWN], *(["…"] if len(names) > NAMES_SHOWN else [])])


def _short(name: str) -> str:
    name = short_names([name])[name]
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


FUSED = ("triton_",)
STEP = "ProfilerStep*"
"""The row of kernels that belong to no op, such as those of a CUDA graph."""


# Causes ---------------------------------------------------------------------------------------------------------------


def _cause(a: Side, b: Side, scale: Scale) -> tuple[Cause, str]:
    """Return the cause of the difference of two sides with time, and the numbers behind it."""
    per_call = scale.per == "call"
    calls = 1.0 if per_call else (b.count / scale.b) / (a.count / scale.a) if a.count and b.count else 1.0
    time = (b.time / max(b.count, 1)) / (a.time / max(a.count, 1)) * calls
    if abs(time - 1) < LEAST:
        return "same", ""
    work = _work_ratio(a, b)
    parts: list[tuple[Cause, float, Callable[[], str]]] = [
        ("calls", math.log(calls), lambda: f"{_number(a.count / scale.a)} → {plural(b.count / scale.b, 'call')}")
    ]
    if math.isnan(work):
        parts.append(("time", math.log(time / calls), lambda: f"{_per_call(a)} → {_per_call(b)} a call"))
    else:
        parts.append(("work", math.log(work), lambda: _work_text(a, b)))
        parts.append(("rate", math.log(time / calls / work), lambda: _rate_text(a, b)))
    whole = math.log(time)
    parts.sort(key=lambda part: -part[1] * math.copysign(1, whole))
    texts = [text() for number, (_, value, text) in enumerate(parts) if number == 0 or value / whole > SECOND]
    return parts[0][0], "; ".join(text for text in texts if text)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _per_call(side: Side) -> str:
    return short_time_text(side.time / max(side.count, 1))


def _known(values: Iterable[float]) -> bool:
    """Return whether no value is 0 or NaN; min() alone may miss NaN."""
    return all(value > 0 for value in values)


def _work_ratio(a: Side, b: Side) -> float:
    """Return the work of a call of b by that of a: of the least time by the peaks, else of FLOPs or bytes; else NaN."""
    least = [side.pct_roofline * side.rated_time for side in (a, b)]
    if a.unit == b.unit and _known(least):
        return (least[1] / b.count) / (least[0] / a.count)
    for done in ((a.flops, b.flops), (a.bytes, b.bytes)):
        if _known(done):
            return (done[1] / b.count) / (done[0] / a.count)
    return math.nan


def _work_text(a: Side, b: Side) -> str:
    """Return the work of a call whose ratio differs more, of FLOPs and bytes."""
    texts = []
    for x, y, text in (
        (a.flops, b.flops, lambda v: f"{count_text(v)}{' ' if v < 1000 else ''}FLOPs"),
        (a.bytes, b.bytes, bytes_text),
    ):
        if _known((x, y)):
            before, after = x / a.count, y / b.count
            texts.append((abs(math.log(after / before)), f"{text(before)} → {text(after)} a call"))
    return max(texts)[1] if texts else ""


def _rate_text(a: Side, b: Side) -> str:
    parts = [f"{a.unit} → {b.unit}"] if a.unit != b.unit and a.unit and b.unit else []
    if _known((a.pct_roofline, b.pct_roofline)):
        parts.append(f"{percent_text(a.pct_roofline)} → {percent_text(b.pct_roofline)} of roofline")
    return ", ".join(parts) or f"{_per_call(a)} → {_per_call(b)} a call"


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
    return sorted(found, key=lambda row: -abs(_scaled(row.b, scale, scale.b) - _scaled(row.a, scale, scale.a)))


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
