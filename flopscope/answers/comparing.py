"""Comparisons of two runs: their rows, what changed, and the verdict in three sentences.

The sentences state the time of a step, what changed most and why, and what remains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from flopscope.answers.accounting import part_times
from flopscope.answers.analysis import PARTS, WORK_PARTS, Analysis, analysis_of
from flopscope.answers.differences import (
    DIMENSION,
    STEP,
    Key,
    calls_text,
    change_of,
    changes_of,
    matched,
    order,
    replacement,
    replacements,
    scale_of,
    sum_of,
    sums_of,
)
from flopscope.results.comparison import By, Change, Comparison, ComparisonRow, Scale, Side
from flopscope.results.results import Results, usual_peaks_of
from flopscope.results.table import EventTable
from flopscope.support.core_facts import WORK, parts_of
from flopscope.support.device import STORED
from flopscope.support.peaks import stated_peaks
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, plural, ratio_text, short_time_text

if TYPE_CHECKING:
    import pandas


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
        Names match without their namespace, so that flopscope::add matches aten::add.
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
    wholes = whole_of(x.analysis, scale.per), whole_of(y.analysis, scale.per)
    sums = [sum_of("total", [side for row in rows if (side := getattr(row, which))], whole=True) for which in "ab"]
    return Comparison(
        rows,
        names,
        chosen,
        (x.on_device, y.on_device),
        changes,
        scale.per,
        **{name: tuple(getattr(whole, name) for whole in wholes) for name in ("time", "unrecorded", "parts")},
        verdict=list(sentences(changes, scale, (x.analysis, y.analysis), wholes)),
        every_shape=by == "shape",
        profiles=(x.results, y.results),
        peaks=source,
        total_change=change_of(ComparisonRow("total", *sums), scale),
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
    pairs = [(by_cause["only a"], by_cause["only b"])]
    if not launches:
        pieces = []
        for which, analysis in (("a", a.analysis), ("b", b.analysis)):
            names = {side.key: row.name for row in rows if (side := getattr(row, which)) is not None}
            pieces.append([names.get(name, name) for name in _work_of(analysis, kind == "kernel")])
        pairs = replacements(pieces[0], pieces[1], {change.name for change in found if change.matched})
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
            columns = (run.columns[name] for name in names)
            rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        elif hasattr(run, "to_dict") and hasattr(run, "columns"):
            rows = _frame_rows(run, name)
        else:
            raise TypeError(f"{name} must be a profile, a trace, its key_averages() or a DataFrame of it, not {run!r}")
        on_device = any(row["self_device_time_total"] > 0 for row in rows)
        ops = [row for row in rows if row["device_type"] == "cpu"]
        works = [row for row in rows if row["device_type"] != "cpu" and not row["is_user_annotation"]]
        steps = sum(int(row["count"]) for row in ops if row["key"] == STEP)
        if analysis is not None:
            steps = len(analysis.steps) if analysis.has_steps else 0
        chosen = ops if kind == "op" else works
        return cls(name, chosen, on_device, any(row["input_shapes"] for row in rows), steps, results, analysis)

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
        is_range, unit = bool(row["is_user_annotation"]), row["unit"] if isinstance(row["unit"], str) else None
        return Side(row["key"], int(row["count"]), _number(time), flops, moved, share, shapes, rated, is_range, unit)


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


# Time, and the order of work in a step ------------------------------------------------------------------------------

MOST_PIECES = 4000
"""Pieces of a step; of longer steps, only the first pieces are aligned."""


def _work_of(analysis: Analysis, by_kernel: bool) -> list[str]:
    """Return the names of the device work of one step in its order: of its kernels, or of what launched them."""
    if not analysis.steps:
        return []
    columns, names, kinds, _ = analysis.events
    step, start = analysis.steps[middle_step(analysis)], columns["start"]
    is_work = np.isin(columns["kind"], [kinds.index(kind) for kind in WORK]) & (columns["launcher"] >= 0)
    work = np.flatnonzero(is_work & (start >= step.begin) & (start < step.end))
    work = work[np.argsort(start[work], kind="stable")][:MOST_PIECES]
    events = work if by_kernel else columns["launcher"][work]
    of_graphs = columns["kind"][events] == kinds.index("step")  # no op launched it
    found = zip(columns["name"][events].tolist(), of_graphs.tolist(), strict=True)
    return [STEP if of_graph else names[number] if number >= 0 else "" for number, of_graph in found]


class Whole(NamedTuple):
    """The time of a run in µs: of the step with the median time, or of all steps, or of a profile without steps."""

    time: float = math.nan
    """Mean of the devices, if there are several; NaN if the run is a table or has no work."""
    parts: Mapping[str, float] = MappingProxyType({})
    """As in Results.accounting()."""
    unrecorded: float = math.nan
    """Estimated time without recording if that delayed it by more than 1 %, of a step the mean; else ``time``."""


def whole_of(analysis: Analysis | None, per: str) -> Whole:
    """Return the time of a run. per: as in Scale; "step" for that of one step."""
    if analysis is None or not analysis.steps or not analysis.devices:
        return Whole()
    devices = len(analysis.devices)
    numbers = [middle_step(analysis)] if per == "step" else list(range(len(analysis.steps)))
    parts = part_times(analysis)[:, numbers].sum(axis=(0, 1), dtype=float) / (1000 * devices)
    time = sum(analysis.steps[number].end - analysis.steps[number].begin for number in numbers) / 1000
    delayed = analysis.is_delayed and (analysis.on_device or analysis.bare is not None)
    unrecorded = analysis.unobserved * len(numbers) / devices if delayed else time
    return Whole(time, dict(zip(PARTS, map(float, parts), strict=True)), unrecorded)


def middle_step(analysis: Analysis) -> int:
    """Return the index of the step with the median time; the shorter one of two. The first step often is no example."""
    steps = analysis.steps
    order = sorted(range(len(steps)), key=lambda i: steps[i].end - steps[i].begin)
    return order[(len(order) - 1) // 2]


# The verdict ----------------------------------------------------------------------------------------------------------

LEAST = 0.01
"""Share of the longer step below which a difference is not mentioned."""
FEWER = 0.02
NEXT = 0.25
"""Further changes are mentioned if they are at least this part of the largest: of ops, and of idle time."""
GONE = 0.05
"""Idle time that fell to this part of what it was is gone."""
CHANGES_SHOWN = 3
SIZES_SHOWN = 2
LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:Module)?Launch(?:Cooperative)?Kernel")
GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
IDLE = {known: tuple(part for part, row in parts_of(known).items() if row.change) for known in (True, False)}
"""Parts of the accounting in which a device, or a program on the CPU, idles."""


Told = tuple[float, Callable[[], str]]
"""A change of a time in µs, and what returns its text."""


def sentences(
    changes: Sequence[Change], scale: Scale, runs: tuple[Analysis | None, Analysis | None], wholes: tuple[Whole, Whole]
) -> Iterator[str]:
    """Yield three sentences; fewer if the runs cannot be compared as a whole."""
    (a, b), (x, y) = runs, wholes
    idle: list[Told]
    whose = "A step" if scale.per == "step" else "The run"
    if a is None or b is None or not (x.parts and y.parts):  # of tables: their ops
        times = math.fsum(one.time_a for one in changes), math.fsum(one.time_b for one in changes)
        head = f"The ops of {whose.lower()} take {_times_text(times)}"
        idle, rest = [], _largest(changes, {})
    else:
        times, on_device = (x.time, y.time), a.on_device and b.on_device
        head = f"{whose} takes {_times_text(times)}{_explained(x, y, on_device)}"
        pairs = {part: (x.parts[part], y.parts[part]) for part in IDLE[on_device]}
        idle = [(q - p, partial(_idle_text, part, p, q, a, b, on_device)) for part, (p, q) in pairs.items()]
        names = _part_names(b.on_device)
        rest = _largest(changes, {names[part]: y.parts[part] for part in IDLE[b.on_device]})
    changed = _most([(one.difference, partial(_op_text, one)) for one in changes], idle, times)
    unequal = "The runs differ in length and at least one has no steps, so times are those of a call."
    yield unequal if scale.per == "call" else f"{head}."
    nothing = "No op, kernel or cause of idle time changed by more than 1% of the time."
    yield f"What changed most: {'; '.join(changed)}." if changed else nothing
    if rest is not None and times[1] and scale.per != "call":
        text, time = rest
        yield f"The largest remaining part of b: {text} ({percent_text(100 * time / times[1])} of the time)."


def _times_text(times: tuple[float, float]) -> str:
    a, b = map(short_time_text, times)
    return f"{a} in a and {b} in b: {_ratio(*times)}"


def _ratio(a: float, b: float) -> str:
    if not (a > 0 and b > 0):
        return "no ratio"
    if abs(a / b - 1) < LEAST:
        return "the same within 1%"
    return f"b is {ratio_text(a / b)} as fast" if a > b else f"b takes {ratio_text(b / a)} as long"


def _explained(a: Whole, b: Whole, on_device: bool) -> str:
    """Return which parts of the time explain the difference, and the times without recording."""
    names = _part_names(on_device)
    moved = _moved(a, b, on_device)
    signed = {part: f"{'+' if time > 0 else '-'}{short_time_text(abs(time))}" for part, time in moved.items()}
    text = "; " * bool(signed) + ", ".join(f"{names[part]} {time}" for part, time in signed.items())
    x, y = a.unrecorded, b.unrecorded
    if (x, y) == (a.time, b.time):
        return text
    return f"{text}; without recording, about {short_time_text(x)} and {short_time_text(y)}: {_ratio(x, y)}"


def _moved(a: Whole, b: Whole, on_device: bool) -> dict[str, float]:
    """Return the parts of a step that explain the difference."""
    least = LEAST * max(a.time, b.time)
    if abs(b.time - a.time) <= least:
        return {}
    work = [part for part in WORK_PARTS if part not in ("launch", *IDLE[on_device])]
    kinds = {"work": work, **{part: [part] for part in ("launch", *IDLE[on_device])}}
    moved = {name: sum(b.parts[part] - a.parts[part] for part in parts) for name, parts in kinds.items()}
    return {name: time for name, time in sorted(moved.items(), key=lambda one: -abs(one[1])) if abs(time) > least}


def _part_names(on_device: bool) -> dict[str, str]:
    """Return what the parts of the time of a run are called: device work, launches and each cause of idleness."""
    work = {"work": "device work" if on_device else "ops", "launch": "launches of short kernels"}
    return work | {part: row.change for part, row in parts_of(on_device).items() if row.change}


# What changed ---------------------------------------------------------------------------------------------------------


def _most(ops: Sequence[Told], idle: Sequence[Told], times: tuple[float, float]) -> list[str]:
    """Return what changed most, of ops and of idle time: first what explains the difference of the whole."""
    least, difference = LEAST * max(times), times[1] - times[0]
    found = []
    for some in (idle, ops):  # of each, what is not small compared with the largest
        largest = max((abs(time) for time, _ in some), default=0.0)
        found += [(time, text) for time, text in some if abs(time) > least and abs(time) >= NEXT * largest]
    against = abs(difference) > least
    found.sort(key=lambda one: (against and one[0] * difference < 0, -abs(one[0])))
    return [text() for _, text in found[:CHANGES_SHOWN]]


def _op_text(change: Change) -> str:
    before, after = short_time_text(change.time_a), short_time_text(change.time_b)
    name = _full_name(change)
    if change.cause == "only a":
        return f"{name} is gone ({before}, {plural(change.calls_a, 'call')})"
    if change.cause == "only b":
        return f"{name} is new ({after}, {plural(change.calls_b, 'call')})"
    a_call = " a call" if change.scale.per == "call" else ""
    why = "; ".join(filter(None, (change.why, _sizes(change))))
    return f"{name} {before} → {after}{a_call}{f' ({why})' if why else ''}"


def _full_name(change: Change) -> str:
    """Return the name with its namespace if it is the same in both runs."""
    keys = {side.key for row in change.rows for side in (row.a, row.b) if side}
    return keys.pop() if len(keys) == 1 and change.cause != "replaced" else change.name


def _sizes(change: Change) -> str:
    """Return the dimensions that differ between the runs, if they are few, as text."""
    rows = [] if change.cause == "replaced" else [(row.a, row.b) for row in change.rows if row.a and row.b]
    dims = ([DIMENSION.findall(str(side.input_shapes)) for side in pair] for pair in rows)
    sizes = list(dict.fromkeys((x, y) for a, b in dims for x, y in zip(a, b, strict=False) if x != y))
    return f"sizes {', '.join(f'{x} → {y}' for x, y in sizes)}" if 0 < len(sizes) <= SIZES_SHOWN else ""


def _idle_text(part: str, before: float, after: float, a: Analysis, b: Analysis, on_device: bool) -> str:
    name, times = _part_names(on_device)[part], f"{short_time_text(before)} → {short_time_text(after)}"
    explain = {"sync": _waits, "host": _launches}.get(part) if on_device else None
    why = explain(a, b) if explain else ""
    if after < GONE * before:
        return f"{name} went away ({times}{f'; {why}' if why else ''})"
    return f"{name} {times}{f' ({why})' if why else ''}"


def _waits(a: Analysis, b: Analysis) -> str:
    """Return the calls of the op whose waits cost most, before and after."""
    waits: dict[str, list[float]] = {}
    for side, run in enumerate((a, b)):
        for gap in run.gaps_of("sync"):
            if gap.wait >= 0:
                waits.setdefault(run.op_around(gap.wait), [0.0, 0.0])[side] += gap.time
    if not waits:
        return ""
    name = max(waits, key=lambda op: abs(waits[op][1] - waits[op][0]))
    return f"{calls_text(a.row_sum(name, 'count'), b.row_sum(name, 'count'))} of {name}"


def _launches(a: Analysis, b: Analysis) -> str:
    """Return how many launches there were, if that changed."""
    x, y = _calls(a, LAUNCH), _calls(b, LAUNCH)
    changed = calls_text(x, y, "kernel launch", "kernel launches") if abs(y - x) > FEWER * max(x, y) else ""
    return launches_of(a, b) or changed


def launches_of(a: Analysis, b: Analysis) -> str:
    """Return what became of the launches if only one run launches CUDA graphs: "120 kernel launches → 1
    cudaGraphLaunch"; else ""."""
    kernels, graphs = ([_calls(run, pattern) for run in (a, b)] for pattern in (LAUNCH, GRAPH_LAUNCH))
    if bool(graphs[0]) == bool(graphs[1]):
        return ""
    texts = []
    for launches, replays in zip(kernels, graphs, strict=True):
        parts = [plural(launches, "kernel launch", "kernel launches")] if launches else []
        texts.append(" and ".join([*parts, *([f"{replays:.4g} cudaGraphLaunch"] if replays else [])]))
    return " → ".join(texts)


def _calls(run: Analysis, pattern: re.Pattern[str]) -> float:
    counts = run.rows("key", "device_type", "count")
    return sum(int(count) for key, where, count in counts if where == "cpu" and pattern.match(key)) / run.step_count


# What remains ---------------------------------------------------------------------------------------------------------


def _largest(changes: Sequence[Change], idle: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the largest part of the time of b as text, and its time: an op, or idle time by what it is called."""
    op = max((one for one in changes if one.b is not None), key=lambda one: one.time_b, default=None)
    part = max(idle, key=lambda name: idle[name], default="")
    if op is not None and op.time_b and op.time_b >= idle.get(part, 0.0):
        return _remaining(op), op.time_b
    return (f"{part}, {short_time_text(idle[part])}", idle[part]) if idle.get(part) else None


def _remaining(change: Change) -> str:
    replaced = change.cause == "replaced"
    name = change.name.partition(" → ")[2] if replaced else _full_name(change)
    calls = "" if replaced else f" in {plural(change.calls_b, 'call')}"
    share = math.nan if change.b is None else change.b.pct_roofline
    note = "" if math.isnan(share) else f", at {percent_text(share)} of the roofline"
    return f"{name}, {short_time_text(change.time_b)}{calls}{note}"
