"""Comparisons of two runs row by row, such as before and after a change, or flopscope and torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from flopscope.hardware.device import STORED
from flopscope.hardware.peaks import stated_peaks
from flopscope.results.matching import ComparisonRow, Key, Side, matched, sum_of, total_of
from flopscope.results.results import Results, usual_peaks_of
from flopscope.results.table import EventTable
from flopscope.support import upward
from flopscope.support.safe import printable, write_csv
from flopscope.support.suggest import suggesting

if TYPE_CHECKING:
    import pandas

    from flopscope.answers.analysis import Analysis
    from flopscope.results.changes import Change, Per, Scale
    from flopscope.results.replaced import Piece
    from flopscope.results.verdict import Whole

__all__ = ["Comparison", "ComparisonRow", "Side", "compare"]

By = Literal["name", "shape"]


@dataclass(frozen=True)
@suggesting
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
    """What changed, by name: those of both runs first, the largest difference in time first, none without time.

    Each has ``name``, ``time_a`` and ``time_b`` (µs), ``calls_a`` and ``calls_b``, ``difference`` (b minus a, µs),
    ``cause`` ("calls", "work", "rate", "time", "replaced", "only a", "only b" or "same"), ``why`` (the numbers behind
    it, as text) and ``parts``: the same by shape. Ops that replaced each other, such as by torch.compile, are one
    change, whose parts are the ops.
    """
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
    scale: Scale | None = None
    """The numbers of steps by which ``changes`` divides."""
    every_shape: bool = False
    """Whether the table shows all shapes, not only those that differ: set by compare(by="shape")."""
    parts: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})
    """For each run, the parts of ``time`` by their names in Results.accounting(), in µs; of several devices the mean.
    Empty for tables and DataFrames."""
    profiles: tuple[Results | None, Results | None] = field(default=(None, None), repr=False, compare=False)
    """The runs, None for tables and DataFrames."""
    peaks: str = "measured"
    """The base of the shares, as in compare()."""

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
        return ComparisonRow("total", total_of(self._sides("a")), total_of(self._sides("b")))

    @property
    def total_change(self) -> Change:
        """The total as a change, of a step if ``per`` is "step"."""
        from flopscope.results.changes import Scale, total_of_changes

        return total_of_changes(self.total, self.scale or Scale("run"))

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

    def to_json(self) -> dict[str, Any]:
        """Return all as a dict of values that JSON can hold; unknown numbers are None.

        "per", "time", "unrecorded" and "slowdown_pct" as the attributes; "verdict", the sentences; "changes", a dict
        for each, with its times (µs), calls, cause and why; "rows" as to_dicts().
        """
        changes = [
            {
                **{"name": change.name, "time_a": change.time_a, "time_b": change.time_b},
                **{"calls_a": change.calls_a, "calls_b": change.calls_b, "cause": change.cause, "why": change.why},
            }
            for change in self.changes
        ]
        slower = self.slowdown_pct
        return {
            "per": self.per,
            "time": [None if math.isnan(time) else time for time in self.time],
            "unrecorded": [None if math.isnan(time) else time for time in self.unrecorded],
            "slowdown_pct": None if math.isnan(slower) else slower,
            "verdict": self.verdict,
            "changes": changes,
            "rows": self.to_dicts(),
        }

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

    def table(self, row_limit: int = 30, *, width: int | None = None, wide: bool = False) -> str:
        """Return ``row_limit`` changes (-1 for all) and the verdict as text.

        width: columns of the text; by default those of the terminal, or 100 if the output is no terminal.
        wide: show FLOPs, bytes and roofline of both runs, and names and reasons in full, however wide that is.
        """
        return upward.rooms.comparison_text(self, row_limit, width, wide)

    def write_report(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write one HTML page that opens from disk: both runs side by side, what changed, and their overviews.

        title: of the page; by default the names of the runs. An existing file is replaced only by a complete page.
        Raises OSError if the file cannot be written.
        """
        upward.rooms.write_comparison(self, path, title)

    def _repr_html_(self) -> str:
        return upward.rooms.comparison_html(self)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        alone = [len(self.unmatched("a")), len(self.unmatched("b"))]
        names = printable(" and ".join(self.names))
        return f"<Comparison of {names}: {len(self)} rows, {alone[0]} only in a, {alone[1]} only in b>"

    def _sides(self, which: str) -> list[Side]:
        return [side for row in self.rows if (side := getattr(row, which)) is not None]


_NUMBERS = ("count", "time", "flops", "bytes", "pct", "ratio")


@suggesting
def compare(
    a: Results | EventTable | pandas.DataFrame,
    b: Results | EventTable | pandas.DataFrame,
    *,
    by: By | None = None,
    kind: Literal["op", "kernel"] = "op",
    names: tuple[str, str] = ("a", "b"),
    peaks: str | None = None,
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
    if peaks not in (None, "measured", "datasheet", "none") and stated_peaks(str(peaks)) is None:
        raise ValueError(f'peaks must be "measured", "datasheet", "none", rates or None; got {peaks!r}')
    usual = {usual_peaks_of(run) for run in (a, b) if isinstance(run, Results)}
    source = peaks or next((source for source in ("datasheet", STORED) if source in usual), "measured")
    runs = [_Run.of(run, name, kind, source) for run, name in zip((a, b), names, strict=True)]
    for run in runs:
        if by == "shape" and not run.has_shapes:
            raise ValueError(
                f'by="shape": {printable(run.name)} has no input shapes; record them with record_shapes=True and group '
                'by them, or compare by="name"'
            )
    chosen: By = by or ("shape" if all(run.has_shapes for run in runs) else "name")
    rows = matched(*(run.sides(chosen) for run in runs))
    rows.sort(key=lambda row: -max((side.time for side in (row.a, row.b) if side is not None), default=0.0))
    on_device = runs[0].on_device, runs[1].on_device
    comparison = Comparison(
        rows,
        names,
        chosen,
        on_device,
        every_shape=by == "shape",
        profiles=(runs[0].results, runs[1].results),
        peaks=source,
    )
    return _judged(comparison, runs[0], runs[1], kind)


def _judged(comparison: Comparison, a: _Run, b: _Run, kind: str) -> Comparison:
    """Add what changed and the verdict."""
    from flopscope.results import changes, verdict

    scale = changes.scale_of(comparison.rows, (a.steps, b.steps))
    analyses = a.analysis, b.analysis
    found = _with_replacements(changes.changes_of(comparison.rows, scale), scale, comparison.rows, a, b, kind)
    wholes = [verdict.whole_of(run, scale.per) if run is not None else None for run in analyses]
    return replace(
        comparison,
        changes=found,
        per=scale.per,
        scale=scale,
        time=(_time(wholes[0]), _time(wholes[1])),
        parts=({} if wholes[0] is None else wholes[0].parts, {} if wholes[1] is None else wholes[1].parts),
        unrecorded=verdict.unrecorded(wholes[0], wholes[1]),
        verdict=verdict.sentences(found, scale, analyses),
    )


def _time(whole: Whole | None) -> float:
    return math.nan if whole is None else whole.time


def _with_replacements(
    found: list[Change], scale: Scale, rows: list[ComparisonRow], a: _Run, b: _Run, kind: str
) -> list[Change]:
    """Join the changes of ops that replaced each other, which only profiles and traces show."""
    from flopscope.results import changes, replaced, verdict

    if a.analysis is None or b.analysis is None or {"only a", "only b"} - {change.cause for change in found}:
        return found
    names = [{side.key: row.name for row in rows if (side := getattr(row, which)) is not None} for which in ("a", "b")]
    pieces = [
        [replace(piece, name=keys.get(piece.name, piece.name)) for piece in run.pieces(kind == "kernel")]
        for run, keys in zip((a, b), names, strict=True)
    ]
    launches = verdict.launch_text(a.analysis, b.analysis) if kind == "op" else ""
    by_name = {change.name: change for change in found}
    both = {change.name for change in found if change.matched}
    fewer = {name for name in both if by_name[name].calls_b < by_name[name].calls_a}
    if launches:
        alone = [{change.name for change in found if change.cause == cause} for cause in ("only a", "only b")]
        pairs = [(alone[0], alone[1])]
    else:
        pairs = replaced.replacements(pieces[0], pieces[1], both, fewer)
    joined: set[str] = set()
    groups = []
    for old, new in pairs:
        members = [sorted((by_name[n] for n in side if n in by_name), key=changes.order) for side in (old, new)]
        if all(members):
            groups.append(changes.replacement(members[0], members[1], scale, kind, launches))
            joined |= old | new
    return sorted([*groups, *(change for change in found if change.name not in joined)], key=changes.order)


# The runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """The rows of a run to compare, as dicts of the columns of a table."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    on_device: bool
    has_shapes: bool
    steps: int
    """Their number, 0 if the program marked none."""
    results: Results | None
    analysis: Analysis | None

    @classmethod
    def of(cls, run: Any, name: str, kind: str, peaks: str) -> _Run:
        results = run if isinstance(run, Results) else None
        analysis = None
        if results is not None:
            run = results.key_averages(group_by_input_shape=True, peaks=peaks)
            from flopscope.answers.analysis import analysis_of

            analysis = analysis_of(results, "comparison", peaks)
        rows: Sequence[Mapping[str, Any]]
        if isinstance(run, EventTable):
            names = ("key", "device_type", "is_user_annotation", "count", "input_shapes", "unit", *_READ)
            rows = [
                dict(zip(names, values, strict=True)) for values in zip(*(run.columns[n] for n in names), strict=True)
            ]
        elif hasattr(run, "to_dict") and hasattr(run, "columns"):
            rows = _frame_rows(run, name)
        else:
            raise TypeError(f"{name} must be a profile, a trace, its key_averages() or a DataFrame of it, not {run!r}")
        on_device = any(row["self_device_time_total"] > 0 for row in rows)
        if kind == "op":
            chosen = [r for r in rows if r["device_type"] == "cpu"]
        else:
            chosen = [r for r in rows if r["device_type"] != "cpu" and not r["is_user_annotation"]]
        if analysis is not None:
            steps = len(analysis.steps) if analysis.has_steps else 0
        else:
            steps = sum(int(r["count"]) for r in rows if r["key"] == STEPS and r["device_type"] == "cpu")
        return cls(name, chosen, on_device, any(row["input_shapes"] for row in rows), steps, results, analysis)

    def pieces(self, by_kernel: bool) -> list[Piece]:
        """Return the device work of one step in the order of its launches."""
        from flopscope.results.replaced import middle_step, pieces_of

        if self.results is None or self.analysis is None or not self.analysis.steps:
            return []
        return pieces_of(Results.events(self.results), self.analysis.steps[middle_step(self.analysis)], by_kernel)

    def sides(self, by: By) -> dict[Key, Side]:
        """Return a side for each name, or name and shapes; rows with the same key are summed."""
        groups: dict[Key, list[Side]] = {}
        for row in self.rows:
            shapes = [shape for shape in row["input_shapes"] if shape] if by == "shape" else []  # without scalars
            groups.setdefault((row["key"], str(shapes)), []).append(self._side(row, shapes))
        return {key: sum_of(key[0], sides) for key, sides in groups.items()}

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
            row["unit"] if isinstance(row["unit"], str) else None,
        )


STEPS = "ProfilerStep*"
_READ = (
    *("self_cpu_time_total", "self_device_time_total", "flops", "bytes_total_moved"),
    *("pct_roofline", "roofline_time", "headroom"),
)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _frame_rows(frame: Any, name: str) -> list[Mapping[str, Any]]:
    missing = {"key", "count", *_READ} - set(frame.columns)
    if missing:
        what = printable(name)
        raise ValueError(f"{what} is not a DataFrame of key_averages(): it has no columns {', '.join(sorted(missing))}")
    usual = {"device_type": "cpu", "is_user_annotation": False, "input_shapes": [], "unit": None}
    return [{**usual, **row} for row in frame.to_dict("records")]
