"""Comparisons of two runs row by row, such as before and after a change, or flopscope and torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from flopscope.results.categories import known_sum, only_ranges_have_work, share_of_all
from flopscope.results.results import Results
from flopscope.results.table import EventTable
from flopscope.support.safe import printable, write_csv
from flopscope.views import comparison as view

if TYPE_CHECKING:
    import pandas

__all__ = ["Comparison", "ComparisonRow", "Side", "compare"]

By = Literal["name", "shape"]

# torch ops that do the work of a flopscope op under another name, because the torch op of the same name calls them.
# If none of them ran, a name matches itself.
ALSO = {
    "matmul": ("mm", "bmm"),
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


@dataclass(frozen=True)
class ComparisonRow:
    """A row of one run or both; ``a`` or ``b`` is None if that run has no such row."""

    name: str
    a: Side | None
    b: Side | None

    @property
    def ratio(self) -> float:
        """Time of a divided by time of b, below 1 if a is faster; NaN if one is missing or took no time."""
        return _ratio(self.a.time, self.b.time) if self.a and self.b else math.nan

    @property
    def ratio_per_call(self) -> float:
        """The ratio of the mean times per call."""
        if not (self.a and self.b and self.a.count and self.b.count):
            return math.nan
        return _ratio(self.a.time / self.a.count, self.b.time / self.b.count)

    @property
    def input_shapes(self) -> list[Any]:
        """The input shapes of both runs; [] if rows are matched by name."""
        side = self.a or self.b
        return side.input_shapes if side else []


@dataclass(frozen=True)
class Comparison:
    """A comparison of two runs: an iterable of rows, the longest first, including those of one run only."""

    rows: list[ComparisonRow]
    names: tuple[str, str]
    """Names of the runs, "a" and "b" by default."""
    by: By
    on_device: tuple[bool, bool]
    """For each run, whether its times are device times; otherwise they are host times."""

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total(self) -> ComparisonRow:
        """The sum of all rows of each run; unknown FLOPs and bytes are left out.

        Work that the program states for a range is the work of the ops in it, so it counts only if no op's is known.
        """
        return ComparisonRow("total", _total(self._sides("a")), _total(self._sides("b")))

    def unmatched(self, which: Literal["a", "b"]) -> list[ComparisonRow]:
        """Return the rows that only one run has."""
        other = "b" if which == "a" else "a"
        return [row for row in self.rows if getattr(row, other) is None]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row with the columns of to_pandas(); missing and unknown values are None."""
        records = []
        for row in self.rows:
            record: dict[str, Any] = {"name": row.name, "input_shapes": row.input_shapes}
            for column in ("key", "count", "time", "flops", "bytes", "pct_roofline"):
                for which in "ab":
                    value = getattr(getattr(row, which), column, None)
                    record[f"{column}_{which}"] = None if isinstance(value, float) and math.isnan(value) else value
            for column in ("ratio", "ratio_per_call"):
                value = getattr(row, column)
                record[column] = None if math.isnan(value) else value
            records.append(record)
        return records

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per row of the comparison.

        The columns are name, input_shapes; for each run, with the suffix _a or _b, key, count, time (µs), flops, bytes,
        pct_roofline; then ratio (a / b) and ratio_per_call. Raises ImportError without pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas; to_dicts() does not") from error
        records = self.to_dicts()
        frame = pandas.DataFrame(records)
        return frame.astype({name: float for name in frame if str(name).startswith(_NUMBERS)})

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the columns of to_pandas() as CSV; unknown values are empty, shapes are JSON, no cell is a formula."""
        records = self.to_dicts()
        write_csv(path, records[0] if records else [], (record.values() for record in records))

    def table(self, row_limit: int = 30) -> str:
        """Return ``row_limit`` rows (-1 for all) as text of at most 120 columns."""
        return view.text(self, row_limit)

    def _repr_html_(self) -> str:
        return view.html(self)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        alone = [len(self.unmatched("a")), len(self.unmatched("b"))]
        names = printable(" and ".join(self.names))
        return f"<Comparison of {names}: {len(self)} rows, {alone[0]} only in a, {alone[1]} only in b>"

    def _sides(self, which: str) -> list[Side]:
        return [side for row in self.rows if (side := getattr(row, which)) is not None]


_NUMBERS = ("count", "time", "flops", "bytes", "pct", "ratio")


def compare(
    a: Results | EventTable | pandas.DataFrame,
    b: Results | EventTable | pandas.DataFrame,
    *,
    by: By | None = None,
    kind: Literal["op", "kernel"] = "op",
    names: tuple[str, str] = ("a", "b"),
    peaks: Literal["measured", "datasheet", "none"] | None = None,
) -> Comparison:
    """Compare two runs row by row: self times and their ratio, calls, FLOPs, bytes and share of the roofline.

    a, b: a profile, a trace, the key_averages() of one, or a DataFrame of those.
    by: match rows by "name", or by "shape": by name and input shapes. The default is "shape" if both runs have shapes.
        Names match without their namespace, so that flopscope::add matches aten::add; ops whose work torch does under
        another name match that name, such as "matmul" and "mm".
    kind: "op" for ops and ranges, with the kernels that they launched; "kernel" for the work on devices.
    names: names of the runs in the table.
    peaks: base of the shares of profiles and traces, see key_averages(); tables and DataFrames keep their shares. The
        default is "measured", or "datasheet" if one of the runs is a loaded trace.

    Raises ValueError for by="shape" if a run has no shapes, and for unknown options.
    """
    if by not in (None, "name", "shape"):
        raise ValueError(f'by must be "name", "shape" or None; got {by!r}')
    if kind not in ("op", "kernel"):
        raise ValueError(f'kind must be "op" or "kernel"; got {kind!r}')
    if peaks not in (None, "measured", "datasheet", "none"):
        raise ValueError(f'peaks must be "measured", "datasheet", "none" or None; got {peaks!r}')
    recorded = any(isinstance(run, Results) and run._usual_peaks == "datasheet" for run in (a, b))
    source = peaks or ("datasheet" if recorded else "measured")
    runs = [_Run.of(run, name, kind, source) for run, name in zip((a, b), names, strict=True)]
    for run in runs:
        if by == "shape" and not run.has_shapes:
            raise ValueError(
                f'by="shape": {run.name} has no input shapes; record them with record_shapes=True and group by them, '
                'or compare by="name"'
            )
    chosen: By = by or ("shape" if all(run.has_shapes for run in runs) else "name")
    rows = _matched(*(run.sides(chosen) for run in runs))
    rows.sort(key=lambda row: -max((side.time for side in (row.a, row.b) if side is not None), default=0.0))
    return Comparison(rows, names, chosen, (runs[0].on_device, runs[1].on_device))


# The runs -------------------------------------------------------------------------------------------------------------

_Key = tuple[str, str]  # name with namespace, shapes


@dataclass(frozen=True)
class _Run:
    """The rows of a run to compare, as dicts of the columns of a table."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    on_device: bool
    has_shapes: bool

    @classmethod
    def of(cls, run: Any, name: str, kind: str, peaks: str) -> _Run:
        if isinstance(run, Results):
            run = run.key_averages(group_by_input_shape=True, peaks=peaks)
        rows: Sequence[Mapping[str, Any]]
        if isinstance(run, EventTable):
            names = ("key", "device_type", "is_user_annotation", "count", "input_shapes", *_READ)
            rows = [
                dict(zip(names, values, strict=True)) for values in zip(*(run.columns[n] for n in names), strict=True)
            ]
        elif hasattr(run, "to_dict") and hasattr(run, "columns"):
            rows = _frame_rows(run, name)
        else:
            raise TypeError(f"{name} must be a profile, a trace, its key_averages() or a DataFrame of it, not {run!r}")
        on_device = any(row["self_device_time_total"] > 0 for row in rows)
        where = "cpu" if kind == "op" else "cuda"
        chosen = [r for r in rows if r["device_type"] == where and not (kind == "kernel" and r["is_user_annotation"])]
        return cls(name, chosen, on_device, any(row["input_shapes"] for row in rows))

    def sides(self, by: By) -> dict[_Key, Side]:
        """Return a side for each name, or name and shapes; rows with the same key are summed."""
        groups: dict[_Key, list[Side]] = {}
        for row in self.rows:
            shapes = [shape for shape in row["input_shapes"] if shape] if by == "shape" else []  # without scalars
            groups.setdefault((row["key"], str(shapes)), []).append(self._side(row, shapes))
        return {key: _sum(key[0], sides) for key, sides in groups.items()}

    def _side(self, row: Mapping[str, Any], shapes: list[Any]) -> Side:
        time = row["self_device_time_total" if self.on_device else "self_cpu_time_total"]
        flops, moved, share = (_number(row[name]) for name in ("flops", "bytes_total_moved", "pct_roofline"))
        rated = _number(row["roofline_time"]) + _number(row["headroom"])
        return Side(
            row["key"],
            int(row["count"]),
            _number(time),
            flops,
            moved,
            share,
            shapes,
            rated,
            bool(row["is_user_annotation"]),
        )


_READ = (
    *("self_cpu_time_total", "self_device_time_total", "flops", "bytes_total_moved"),
    *("pct_roofline", "roofline_time", "headroom"),
)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _frame_rows(frame: Any, name: str) -> list[Mapping[str, Any]]:
    missing = {"key", "count", *_READ} - set(frame.columns)
    if missing:
        raise ValueError(f"{name} is not a DataFrame of key_averages(): it has no columns {', '.join(sorted(missing))}")
    usual = {"device_type": "cpu", "is_user_annotation": False, "input_shapes": []}
    return [{**usual, **row} for row in frame.to_dict("records")]


def _sum(name: str, sides: Iterable[Side]) -> Side:
    """Return the sum of several sides."""
    parts = list(sides)
    return Side(
        name,
        sum(side.count for side in parts),
        math.fsum(side.time for side in parts),
        known_sum(side.flops for side in parts),
        known_sum(side.bytes for side in parts),
        share_of_all((side.pct_roofline, side.rated_time) for side in parts),
        parts[0].input_shapes if parts else [],
        known_sum(side.rated_time for side in parts),
        any(side.is_range for side in parts),
    )


def _total(sides: Iterable[Side]) -> Side:
    """Return the sum of all sides of a run."""
    parts = list(sides)
    if not only_ranges_have_work((side.is_range, side.flops, side.bytes) for side in parts):
        nan = math.nan
        parts = [
            replace(side, flops=nan, bytes=nan, pct_roofline=nan, rated_time=nan) if side.is_range else side
            for side in parts
        ]
    return _sum("total", parts)


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


# Matching -------------------------------------------------------------------------------------------------------------


def _bare(name: str) -> str:
    return next((name.removeprefix(space) for space in NAMESPACES if name.startswith(space)), name)


def _matched(a: dict[_Key, Side], b: dict[_Key, Side]) -> list[ComparisonRow]:
    """Match equal names first, then torch's other names of the same work, then names without their namespace."""
    left, right, rows = dict(a), dict(b), []

    def match(key: _Key, other: _Key) -> None:
        rows.append(ComparisonRow(_bare(key[0]), left.pop(key), right.pop(other)))

    for key in [key for key in a if key in b]:
        match(key, key)
    for key, other in _other_names(left, right):
        match(key, other)
    for other, key in _other_names(right, left):
        match(key, other)
    unspaced = {(_bare(name), shapes): (name, shapes) for name, shapes in right}
    for key in list(left):
        same = unspaced.get((_bare(key[0]), key[1]))
        if same is not None and same in right:
            match(key, same)
    rows += [ComparisonRow(_bare(side.key), side, None) for side in left.values()]
    rows += [ComparisonRow(_bare(side.key), None, side) for side in right.values()]
    return rows


def _other_names(ours: Mapping[_Key, Side], theirs: Mapping[_Key, Side]) -> Iterator[tuple[_Key, _Key]]:
    """Yield keys of flopscope's ops with those of the torch ops that do the same work, each at most once."""
    used: set[_Key] = set()
    for name, shapes in list(ours):
        if name.startswith("flopscope::"):
            for other in ALSO.get(_bare(name), ()):
                key = (f"aten::{other}", shapes)
                if key in theirs and key not in used:
                    used.add(key)
                    yield (name, shapes), key
                    break
