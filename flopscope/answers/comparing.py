"""Comparisons of two runs: the rows of both, and what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flopscope.answers.analysis import Analysis, analysis_of
from flopscope.answers.differences import (
    STEP,
    Key,
    Piece,
    change_of,
    changes_of,
    matched,
    order,
    replacement,
    replacements,
    scale_of,
    sums_of,
    total_of,
)
from flopscope.answers.pieces import Step
from flopscope.answers.verdict import Whole, launches_of, middle_step, sentences, unrecorded, whole_of
from flopscope.results.comparison import By, Change, Comparison, ComparisonRow, Scale, Side
from flopscope.results.results import Results, usual_peaks_of
from flopscope.results.table import EventTable
from flopscope.support.core_facts import WORK
from flopscope.support.device import STORED
from flopscope.support.peaks import stated_peaks
from flopscope.support.safe import printable
from flopscope.support.suggest import suggesting

if TYPE_CHECKING:
    import pandas


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
    x, y = runs = [Run.of(run, name, kind, source) for run, name in zip((a, b), names, strict=True)]
    for run in runs:
        if by == "shape" and not run.has_shapes:
            raise ValueError(
                f'by="shape": {printable(run.name)} has no input shapes; record them with record_shapes=True and group '
                'by them, or compare by="name"'
            )
    chosen: By = by or ("shape" if all(run.has_shapes for run in runs) else "name")
    rows = matched(x.sides(chosen), y.sides(chosen))
    rows.sort(key=lambda row: -max((side.time for side in (row.a, row.b) if side is not None), default=0.0))
    scale = scale_of(rows, (x.steps, y.steps))
    changes = _with_replacements(changes_of(rows, scale), scale, rows, x, y, kind)
    wholes = x.whole(scale), y.whole(scale)
    sums = [total_of([side for row in rows if (side := getattr(row, which))]) for which in "ab"]
    return Comparison(
        rows,
        names,
        chosen,
        (x.on_device, y.on_device),
        changes,
        scale.per,
        time=(math.nan if wholes[0] is None else wholes[0].time, math.nan if wholes[1] is None else wholes[1].time),
        unrecorded=unrecorded(*wholes),
        verdict=list(sentences(changes, scale, (x.analysis, y.analysis), wholes)),
        scale=scale,
        every_shape=by == "shape",
        parts=({} if wholes[0] is None else wholes[0].parts, {} if wholes[1] is None else wholes[1].parts),
        profiles=(x.results, y.results),
        peaks=source,
        total_change=change_of(ComparisonRow("total", sums[0], sums[1]), scale),
    )


def _with_replacements(
    found: list[Change], scale: Scale, rows: list[ComparisonRow], a: Run, b: Run, kind: str
) -> list[Change]:
    """Join the changes of ops that replaced each other, which only profiles and traces show."""
    by_cause = {cause: {change.name for change in found if change.cause == cause} for cause in ("only a", "only b")}
    if a.analysis is None or b.analysis is None or not all(by_cause.values()):
        return found
    by_name = {change.name: change for change in found}
    launches = launches_of(a.analysis, b.analysis) if kind == "op" else ""
    if launches:
        pairs = [(by_cause["only a"], by_cause["only b"])]
    else:
        names = [{side.key: row.name for row in rows if (side := getattr(row, which)) is not None} for which in "ab"]
        pieces = [
            [replace(piece, name=keys.get(piece.name, piece.name)) for piece in run.pieces(kind == "kernel")]
            for run, keys in zip((a, b), names, strict=True)
        ]
        both = {change.name for change in found if change.matched}
        fewer = {name for name in both if by_name[name].calls_b < by_name[name].calls_a}
        pairs = replacements(pieces[0], pieces[1], both, fewer)
    joined: set[str] = set()
    groups = []
    for old, new in pairs:
        members = [sorted((by_name[n] for n in side if n in by_name), key=order) for side in (old, new)]
        if all(members):
            groups.append(replacement(members[0], members[1], scale, kind, launches))
            joined |= old | new
    return sorted([*groups, *(change for change in found if change.name not in joined)], key=order)


# The runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
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
    def of(cls, run: Any, name: str, kind: str, peaks: str) -> Run:
        results = run if isinstance(run, Results) else None
        analysis = None
        if results is not None:
            run = results.key_averages(group_by_input_shape=True, peaks=peaks)
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
            steps = sum(int(r["count"]) for r in rows if r["key"] == STEP and r["device_type"] == "cpu")
        return cls(name, chosen, on_device, any(row["input_shapes"] for row in rows), steps, results, analysis)

    def whole(self, scale: Scale) -> Whole | None:
        """Return the time of the run, None if it is unknown."""
        return None if self.analysis is None else whole_of(self.analysis, scale.per)

    def pieces(self, by_kernel: bool) -> list[Piece]:
        """Return the device work of one step in the order of its launches."""
        if self.analysis is None or not self.analysis.steps:
            return []
        return _pieces_of(self.analysis, self.analysis.steps[middle_step(self.analysis)], by_kernel)

    def sides(self, by: By) -> dict[Key, Side]:
        """Return a side for each name, or name and shapes; rows with the same key are summed."""
        groups: dict[Key, list[Side]] = {}
        for row in self.rows:
            shapes = [shape for shape in row["input_shapes"] if shape] if by == "shape" else []  # without scalars
            groups.setdefault((row["key"], str(shapes)), []).append(self._side(row, shapes))
        return sums_of(groups)

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


# One step -------------------------------------------------------------------------------------------------------------

MOST_PIECES = 4000
"""Pieces of a step; of longer steps, only the first pieces are aligned."""
OWN_RANGES = ("ProfilerStep", "Torch-Compiled Region", "TorchDynamo", "## Call Compiled", "Pregraph", "AOTDispatcher")
"""First words of ranges that torch opens itself, which do not name a part of the program."""
MODULE = "nn.Module: "


def _pieces_of(analysis: Analysis, step: Step, by_kernel: bool) -> list[Piece]:
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
