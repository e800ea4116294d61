"""The rows of two runs, and which row of one belongs to which of the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flopscope.results.categories import sums_of_groups

Key = tuple[str, str]  # name with namespace, shapes

# torch ops that do the work of a flopscope op under another name, because the torch op of the same name calls them.
# If none of them ran, a name matches itself.
ALSO = {
    "matmul": ("mm", "bmm"),
    "norm": ("linalg_vector_norm",),
    "softmax": ("_softmax",),
    "log_softmax": ("_log_softmax",),
    "layer_norm": ("native_layer_norm",),
    "rms_norm": ("_fused_rms_norm",),
    "ones": ("fill_",),
    "zeros": ("zero_", "fill_"),
    "full": ("fill_",),
    "rand": ("uniform_",),
    "randn": ("normal_",),
    "cast": ("copy_",),
    "copy": ("clone", "copy_"),
}
NAMESPACES = ("flopscope::", "aten::")


@dataclass(frozen=True)
class Side:
    """One run's values of a row. Work is that of all calls, NaN if unknown."""

    key: str
    """Name in this run, such as "aten::add"."""
    count: int
    time: float
    """Self time of all calls in µs: device time if the run used a device, else host time."""
    flops: float
    bytes: float
    pct_roofline: float
    input_shapes: list[Any] = field(default_factory=list)
    rated_time: float = math.nan
    """Time in µs that pct_roofline refers to."""
    is_range: bool = False
    """Whether the row is a range named by the program, whose work is that of the ops in it."""
    unit: str | None = None
    """The compute unit that did the FLOPs, such as "fp32" or "bf16_tensor"; that of the longest time."""


@dataclass(frozen=True)
class ComparisonRow:
    """A row of one run or both; ``a`` or ``b`` is None if that run has no such row."""

    name: str
    a: Side | None
    b: Side | None

    @property
    def ratio(self) -> float:
        """Time of a divided by time of b, below 1 if a is faster; NaN if one is missing or took no time."""
        return ratio_of(self.a.time, self.b.time) if self.a and self.b else math.nan

    @property
    def ratio_per_call(self) -> float:
        """The ratio of the mean times per call."""
        if not (self.a and self.b and self.a.count and self.b.count):
            return math.nan
        return ratio_of(self.a.time / self.a.count, self.b.time / self.b.count)

    @property
    def differs(self) -> bool:
        """Whether only one run has the row, or with other shapes."""
        return not (self.a and self.b) or unlike(self.a.input_shapes, self.b.input_shapes)

    @property
    def input_shapes(self) -> list[Any]:
        """The input shapes of both runs; [] if rows are matched by name."""
        side = self.a or self.b
        return side.input_shapes if side else []


def unlike(a: list[Any], b: list[Any]) -> bool:
    """Whether shapes differ, except that one call may list its output last, as ``mm.out`` does."""
    common = min(len(a), len(b))
    return a[:common] != b[:common] or (not common and a != b)


def sum_of(name: str, sides: Sequence[Side]) -> Side:
    """Return the sum of several sides."""
    return sums_of({(name, ""): sides})[name, ""]


def total_of(sides: Sequence[Side]) -> Side:
    """Return the sum of all sides of a run."""
    return sums_of({("total", ""): sides}, whole=True)["total", ""]


_SUMMED = {
    "count": "count",
    "time": "self_cpu_time_total",
    "flops": "flops",
    "bytes": "bytes_total_moved",
    "pct_roofline": "pct_roofline",
    "rated_time": "roofline_time",
}
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


def ratio_of(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


# Matching -------------------------------------------------------------------------------------------------------------


def bare(name: str) -> str:
    return next((name.removeprefix(space) for space in NAMESPACES if name.startswith(space)), name)


def matched(a: dict[Key, Side], b: dict[Key, Side]) -> list[ComparisonRow]:
    """Match equal names first, then torch's other names of the same work, then names without their namespace."""
    left, right, rows = dict(a), dict(b), []

    def match(key: Key, other: Key) -> None:
        rows.append(ComparisonRow(bare(key[0]), left.pop(key), right.pop(other)))

    for key in [key for key in a if key in b]:
        match(key, key)
    for key, other in _other_names(left, right):
        match(key, other)
    for other, key in _other_names(right, left):
        match(key, other)
    unspaced = {(bare(name), shapes): (name, shapes) for name, shapes in right}
    for key in list(left):
        same = unspaced.get((bare(key[0]), key[1]))
        if same is not None and same in right:
            match(key, same)
    rows += [ComparisonRow(bare(side.key), side, None) for side in left.values()]
    rows += [ComparisonRow(bare(side.key), None, side) for side in right.values()]
    return rows


def _other_names(ours: Mapping[Key, Side], theirs: Mapping[Key, Side]) -> Iterator[tuple[Key, Key]]:
    """Yield keys of flopscope's ops with those of the torch ops that do the same work, each at most once."""
    used: set[Key] = set()
    for name, shapes in list(ours):
        if name.startswith("flopscope::"):
            for other in ALSO.get(bare(name), ()):
                key = (f"aten::{other}", shapes)
                if key in theirs and key not in used:
                    used.add(key)
                    yield (name, shapes), key
                    break
