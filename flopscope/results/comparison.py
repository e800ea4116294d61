"""Comparisons of two runs row by row, such as before and after a change, or flopscope and torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from flopscope.results.columns import DEVICE
from flopscope.support import upward
from flopscope.support.documents import Document, Field, columns, plain, record, rows
from flopscope.support.safe import printable, write_csv

if TYPE_CHECKING:
    import pandas

    from flopscope.results.results import Results

By = Literal["name", "shape"]
Per = Literal["step", "call", "run"]
Cause = Literal["calls", "work", "rate", "time", "replaced", "only a", "only b", "same"]

_UNTIMED = "one of the runs has no time"
_ABSENT = "the run has no such row, or the value is unknown"
_PER = "of a step, of a call or of the run, as `per` says"
CHANGE = (
    *columns("name$"),
    *columns("time_a time_b", "µs", time_a=_PER, time_b=_PER),
    *columns("calls_a calls_b cause$ why$", calls_a=_PER, calls_b=_PER),
)
COMPARISON_ROWS = (
    *columns("name$"),
    Field("input_shapes", "any", doc="[] if rows are matched by name"),
    *columns("key_a$ key_b$ count_a# count_b# time_a:µs time_b:µs", why=_ABSENT, key_a="`key` in tables of a"),
    *columns("flops_a flops_b bytes_a bytes_b pct_roofline_a pct_roofline_b", why=_ABSENT),
    *columns("ratio ratio_per_call", why="a run has no such row, or no time", ratio="time of a / time of b"),
)
_OF_ROWS = "a row for each name and shape, times and work of the whole run; the longest first"
COMPARISON = Document(
    "comparison",
    "what changed between two runs, a and b",
    (
        record("device", (record("a", DEVICE.fields), record("b", DEVICE.fields)), optional=True),
        *columns("files@", optional=True, files="the traces of a, then those of b"),
        *columns("names@ by$ per$", by="what rows are matched by", per='"step", "call" or "run"'),
        Field("time", "numbers", "µs", "of a and b", _UNTIMED),
        Field("unrecorded", "numbers", "µs", "the same without the time that recording took", _UNTIMED),
        *columns("slowdown_pct", why="the runs differ in length and have no steps, or one has no time"),
        *columns("verdict@", verdict="sentences"),
        rows("changes", CHANGE, "by name, the largest difference first"),
        rows("rows", COMPARISON_ROWS, _OF_ROWS),
    ),
)


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
        return _ratio(self.a.time, self.b.time) if self.a and self.b else math.nan

    @property
    def ratio_per_call(self) -> float:
        """The ratio of the mean times per call."""
        if not (self.a and self.b and self.a.count and self.b.count):
            return math.nan
        return _ratio(self.a.time / self.a.count, self.b.time / self.b.count)

    @property
    def differs(self) -> bool:
        """Whether only one run has the row, or with other shapes."""
        return not (self.a and self.b) or _unlike(self.a.input_shapes, self.b.input_shapes)

    @property
    def input_shapes(self) -> list[Any]:
        """The input shapes of both runs; [] if rows are matched by name."""
        side = self.a or self.b
        return side.input_shapes if side else []


def _unlike(a: list[Any], b: list[Any]) -> bool:
    """Whether shapes differ, except that one call may list its output last, as ``mm.out`` does."""
    common = min(len(a), len(b))
    return a[:common] != b[:common] or (not common and a != b)


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


@dataclass(frozen=True)
class Scale:
    """What times and calls refer to, and the numbers of steps that the sums of each run are divided by."""

    per: Per
    a: int = 1
    b: int = 1


@dataclass(frozen=True)
class Change(ComparisonRow):
    """A name of one run or both, or ops of run a and those of run b that replaced them.

    ``a`` and ``b`` are the sums of the rows, not scaled; None for a run that has none with time.
    """

    rows: list[ComparisonRow]
    """By shape. Shapes that only one run has are paired with similar ones; the ops of a replacement are not paired."""
    scale: Scale
    cause: Cause
    """What explains most of the difference.

    "calls": their number. "work": FLOPs or bytes of a call. "rate": the same work at another speed. "time": the time of
    a call, whose work is unknown. "replaced": other ops or kernels do the work. "only a", "only b": one run has it.
    "same": the times differ by less than 5 %.
    """
    why: str = ""
    """The numbers behind ``cause`` as text; of several causes those of each."""
    parts: list[Change] = field(default_factory=list)
    """The same by shape, or the ops that replaced each other; the largest difference first."""

    @property
    def time_a(self) -> float:
        """Time in µs of run a: of a step, of a call or of the run; 0 if it has none."""
        return scaled(self.a, self.scale, self.scale.a)

    @property
    def time_b(self) -> float:
        """The same of run b."""
        return scaled(self.b, self.scale, self.scale.b)

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


def scaled(side: Side | None, scale: Scale, steps: int) -> float:
    if side is None:
        return 0.0
    return side.time / max(side.count if scale.per == "call" else steps, 1)


@dataclass(frozen=True)
class Comparison:
    """A comparison of two runs: an iterable of rows, the longest first, including rows that only one run has."""

    rows: list[ComparisonRow]
    """A row for each name and shape, the longest time first; to_dicts() has their columns."""
    names: tuple[str, str]
    """Names of the runs, "a" and "b" by default."""
    by: By
    """What rows are matched by: "name" or "shape"."""
    on_device: tuple[bool, bool]
    """For each run, whether its times are device times; otherwise they are host times."""
    changes: list[Change] = field(default_factory=list)
    """What changed, by name: those of both runs first, the largest difference in time first, none without time. Ops
    that replaced each other, such as by torch.compile, are one change, whose parts are the ops."""
    per: Per = "run"
    """What the times and calls of ``changes`` refer to.

    "step" if both runs have steps, "call" if they have not and differ in length, else "run".
    """
    time: tuple[float, float] = (math.nan, math.nan)
    """Time of each run in µs: of its step with the median time, or of the whole run if ``per`` is not "step"; NaN for
    tables and DataFrames, which have the times of ops only."""
    unrecorded: tuple[float, float] = (math.nan, math.nan)
    """The same without recording: an estimate where recording delayed the device by more than 1 %, else ``time``."""
    verdict: list[str] = field(default_factory=list)
    """Three sentences: the time before and after, what changed most and why, and what the largest remaining part is."""
    every_shape: bool = False
    """Whether the table shows all shapes, not only those that differ: set by compare(by="shape")."""
    parts: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})
    """For each run, the parts of ``time`` by their names in Results.accounting(), in µs; of several devices the mean.
    Empty for tables and DataFrames."""
    profiles: tuple[Results | None, Results | None] = field(default=(None, None), repr=False, compare=False)
    """The runs, None for tables and DataFrames."""
    peaks: str = "measured"
    """The base of the shares, as in compare()."""
    total_change: Change = field(kw_only=True)
    """The total as a change, of a step if ``per`` is "step"."""

    @property
    def slowdown_pct(self) -> float:
        """Percent by which b takes more time than a, below 0 if it takes less; NaN if the times cannot be compared.

        The times are those of ``unrecorded``, because recording delays a program with many short ops more than others.
        A test of performance is ``assert fs.compare(before, after).slowdown_pct < 5``.
        """
        a, b = self.unrecorded
        return 100 * (b / a - 1) if self.per != "call" and a > 0 else math.nan

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total(self) -> ComparisonRow:
        """The sum of all rows of each run; unknown FLOPs and bytes are left out.

        The stated work of a range is the work of its ops, so it counts only if the work of no op is known.
        """
        return ComparisonRow("total", self.total_change.a, self.total_change.b)

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
                record |= {f"{column}_{which}": plain(getattr(getattr(row, which), column, None)) for which in "ab"}
            records.append({**record, "ratio": plain(row.ratio), "ratio_per_call": plain(row.ratio_per_call)})
        return records

    def to_dict(self, **more: Any) -> dict[str, Any]:
        """Return the times, the verdict, what changed and the rows as a document for JSON: see docs/json.md.

        more: fields that a comparison lacks: "device" and "files", as ``flopscope compare --json`` writes them.
        """
        changes = [{field.name: getattr(change, field.name) for field in CHANGE} for change in self.changes]
        names = ("names", "by", "per", "time", "unrecorded", "slowdown_pct", "verdict")
        own = {name: getattr(self, name) for name in names}
        return COMPARISON.of({**own, "changes": changes, "rows": self.to_dicts(), **more})

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per row of the comparison.

        The columns are name, input_shapes; for each run, with the suffix _a or _b, key, count, time (µs), flops, bytes,
        pct_roofline; then ratio (a / b) and ratio_per_call.
        """
        import pandas

        frame = pandas.DataFrame(self.to_dicts())
        return frame.astype({name: float for name in frame if str(name).startswith(_NUMBERS)})

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the columns of to_pandas() as CSV; unknown values are empty, shapes are JSON, no cell is a formula."""
        records = self.to_dicts()
        write_csv(path, records[0] if records else [], (record.values() for record in records))

    def table(self, row_limit: int = 30, *, width: int | None = None, wide: bool = False) -> str:
        """Return ``row_limit`` changes (-1 for all) and the verdict as text.

        width: columns of the text; by default those of the terminal, or 100 if the output is no terminal.
        wide: show FLOPs, bytes and roofline of both runs, and names and reasons in full, however wide that is.
        """
        return upward.rooms.comparison.text(self, row_limit, width, wide)

    def write_report(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write one HTML page that opens from disk: both runs side by side, what changed, and their overviews.

        title: of the page; by default the names of the runs. An existing file is replaced only by a complete page.
        Raises OSError if the file cannot be written.
        """
        upward.rooms.write_comparison(self, path, title)

    def _repr_html_(self) -> str:
        return upward.rooms.comparison.html(self)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        alone = [len(self.unmatched("a")), len(self.unmatched("b"))]
        names = printable(" and ".join(self.names))
        return f"<Comparison of {names}: {len(self)} rows, {alone[0]} only in a, {alone[1]} only in b>"


_NUMBERS = ("count", "time", "flops", "bytes", "pct", "ratio")
