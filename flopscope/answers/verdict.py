"""The verdict on two runs: the time of a step, what changed most and why, and what remains."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from flopscope.answers.accounting import part_times
from flopscope.answers.analysis import PARTS, WORK_PARTS, Analysis
from flopscope.answers.differences import flat
from flopscope.answers.replaced import middle_step
from flopscope.results.changes import Change, Launches, Scale
from flopscope.support.parts import parts_of

LEAST = 0.01
"""Share of the longer step below which a difference is not mentioned."""
FEWER = 0.02
NEXT = 0.25
"""Further changes are mentioned if they are at least this part of the largest: of ops, and of idle time."""
CHANGES_SHOWN = 3
SIZES_SHOWN = 2
LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:Module)?Launch(?:Cooperative)?Kernel")
GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
TELLING_KERNEL = re.compile(r"(?:nchwToNhwc|nhwcToNchw|nchwAddPadding|nhwcAddPadding)\w*|Memcpy \w+ \([^)]*\)")
"""Kernels by which cuDNN converts between memory formats, and copies, by the kind of memory."""
RUNTIME = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")
IDLE = {known: tuple(part for part, row in parts_of(known).items() if row.change) for known in (True, False)}
"""Parts of the accounting in which a device, or a program on the CPU, idles."""


@dataclass(frozen=True)
class Whole:
    """The time of a run in µs: of the step with the median time, or of all steps, or of a profile without steps."""

    time: float
    """Mean of the devices, if there are several."""
    parts: Mapping[str, float]
    """As in Results.accounting()."""
    unobserved: float
    """Estimated time without recording, of a step the mean; NaN if recording did not delay it."""


def whole_of(analysis: Analysis, per: str) -> Whole | None:
    """Return the time of a run, None if it has no steps or work. per: as in Scale; "step" for that of one step."""
    if not analysis.steps or not analysis.devices:
        return None
    devices = len(analysis.devices)
    numbers = [middle_step(analysis)] if per == "step" else list(range(len(analysis.steps)))
    parts = part_times(analysis)[:, numbers].sum(axis=(0, 1), dtype=float) / (1000 * devices)
    time = sum(analysis.steps[number].end - analysis.steps[number].begin for number in numbers) / 1000
    delayed = analysis.on_device and analysis.is_delayed
    unobserved = analysis.unobserved * len(numbers) / devices if delayed else math.nan
    return Whole(time, dict(zip(PARTS, map(float, parts), strict=True)), unobserved)


def unrecorded(a: Whole | None, b: Whole | None) -> tuple[float, float]:
    """Return the times without recording: estimated if recording delayed a run by more than 1 %, else as recorded."""
    x, y = (math.nan if w is None else w.time if math.isnan(w.unobserved) else w.unobserved for w in (a, b))
    return x, y


class Calls(NamedTuple):
    """Calls of a name per step; of launches of kernels, without a name."""

    a: float
    b: float
    of: str = ""


class ChangedIdle(NamedTuple):
    """Idle time of both runs."""

    part: str
    a: float
    b: float
    calls: Launches | Sequence[Calls] = ()
    """What explains it."""

    @property
    def difference(self) -> float:
        """Change of the time in µs."""
        return self.b - self.a


class ChangedOp(NamedTuple):
    """A change with what the traces show of it."""

    change: Change
    sizes: Sequence[tuple[int, int]]
    """Dimensions that differ, if they are few."""
    gone: Sequence[tuple[str, float]]
    """The conversion or copy that the op launched in run a only, and the time of all of them."""
    new: Sequence[tuple[str, float]]
    """The same of run b."""


@dataclass(frozen=True)
class Verdict:
    """What the sentences about two runs say."""

    scale: Scale
    times: tuple[float, float]
    """Of the runs, in µs; of tables, of their ops."""
    wholes: tuple[Whole, Whole] | None
    """None of tables."""
    on_device: tuple[bool, bool]
    """Whether the idle time of both runs, and that of b, is that of a device."""
    moved: Mapping[str, float]
    """The parts of the time that explain the difference, the largest first: "work", "launch" or a part in IDLE."""
    changed: Sequence[ChangedIdle | ChangedOp]
    """What changed most."""
    rest: Change | tuple[str, float] | None
    """The largest part of the time of b, a change or a part in IDLE."""


def verdict_of(
    changes: Sequence[Change],
    scale: Scale,
    runs: tuple[Analysis | None, Analysis | None],
    wholes: tuple[Whole | None, Whole | None],
) -> Verdict:
    """Judge two runs by their changes, and by the times of both if they are known."""
    (a, b), (x, y) = runs, wholes
    if a is None or b is None or x is None or y is None:
        times = math.fsum(one.time_a for one in changes), math.fsum(one.time_b for one in changes)
        found = [_changed_op(one, {}, {}) for one in _most(changes, [], times) if isinstance(one, Change)]
        return Verdict(scale, times, None, (False, False), {}, found, _largest(changes, {}))
    times, on_device = (x.time, y.time), a.on_device and b.on_device
    idle = [ChangedIdle(part, x.parts[part], y.parts[part]) for part in IDLE[on_device]]
    telling = [_telling_times(run) for run in (a, b)]
    why = {"sync": _waits, "host": _launches} if on_device else {}
    shown: list[ChangedIdle | ChangedOp] = []
    for one in _most(changes, idle, times):
        if isinstance(one, Change):
            shown.append(_changed_op(one, *telling))
        else:
            shown.append(one._replace(calls=why[one.part](a, b) if one.part in why else ()))
    rest = _largest(changes, {part: y.parts[part] for part in IDLE[b.on_device]})
    return Verdict(scale, times, (x, y), (on_device, b.on_device), _moved(x, y, on_device), shown, rest)


def launches_of(a: Analysis, b: Analysis) -> Launches | None:
    """Return what became of the launches if only one run launches CUDA graphs."""
    kernels, graphs = ([_calls(run, pattern) for run in (a, b)] for pattern in (LAUNCH, GRAPH_LAUNCH))
    return Launches(kernels, graphs) if bool(graphs[0]) != bool(graphs[1]) else None


def _calls(run: Analysis, pattern: re.Pattern[str]) -> float:
    counts = zip(run.columns["key"], run.columns["device_type"], run.columns["count"], strict=True)
    return sum(int(count) for key, where, count in counts if where == "cpu" and pattern.match(key)) / run.step_count


def _moved(a: Whole, b: Whole, on_device: bool) -> dict[str, float]:
    """Return the parts of a step that explain the difference."""
    least = LEAST * max(a.time, b.time)
    if abs(b.time - a.time) <= least:
        return {}
    work = [part for part in WORK_PARTS if part != "launch"]
    kinds = {"work": work, **{part: [part] for part in ("launch", *IDLE[on_device])}}
    moved = {name: sum(b.parts[part] - a.parts[part] for part in parts) for name, parts in kinds.items()}
    return {name: time for name, time in sorted(moved.items(), key=lambda one: -abs(one[1])) if abs(time) > least}


# What changed ---------------------------------------------------------------------------------------------------------

Differing = TypeVar("Differing", Change, ChangedIdle)


def _most(
    changes: Sequence[Change], idle: Sequence[ChangedIdle], times: tuple[float, float]
) -> list[Change | ChangedIdle]:
    """Return what changed most, of ops and of idle time: first what explains the difference of the whole."""
    least, difference = LEAST * max(times), times[1] - times[0]
    found: list[Change | ChangedIdle] = [*_large(idle, least), *_large(changes, least)]
    against = abs(difference) > least
    found.sort(key=lambda one: (against and one.difference * difference < 0, -abs(one.difference)))
    return found[:CHANGES_SHOWN]


def _large(found: Sequence[Differing], least: float) -> list[Differing]:
    """Return those whose difference is above ``least`` and not small compared with the largest."""
    largest = max((abs(one.difference) for one in found), default=0.0)
    return [one for one in found if abs(one.difference) > least and abs(one.difference) >= NEXT * largest]


def _sizes(change: Change) -> list[tuple[int, int]]:
    """Return the dimensions that differ between the runs, if they are few."""
    rows = [] if change.cause == "replaced" else [(row.a, row.b) for row in change.rows if row.a and row.b]
    dims = (zip(flat(a.input_shapes), flat(b.input_shapes), strict=False) for a, b in rows)
    sizes = list(dict.fromkeys((x, y) for pairs in dims for x, y in pairs if x != y))
    return sizes if len(sizes) <= SIZES_SHOWN else []


Times = Mapping[tuple[str, str], float]


def _changed_op(change: Change, a: Times, b: Times) -> ChangedOp:
    """Return a change with the conversions and copies that its op launches in one run only."""
    keys = {side.key for row in change.rows for side in (row.a, row.b) if side}

    def only_in(time: Times, other: Times) -> list[tuple[str, float]]:
        mine = {kernel: t for (key, kernel), t in time.items() if key in keys and (key, kernel) not in other}
        return [(max(mine, key=lambda name: mine[name]), sum(mine.values()))] if mine else []

    return ChangedOp(change, _sizes(change), only_in(a, b), only_in(b, a))


def _telling_times(run: Analysis) -> Times:
    times: dict[tuple[str, str], float] = {}
    for op in run.ops:
        for kernel in op.kernels:
            if found := TELLING_KERNEL.search(kernel.name):
                times[op.key, found[0]] = times.get((op.key, found[0]), 0.0) + kernel.time
    return times


def _waits(a: Analysis, b: Analysis) -> list[Calls]:
    """Return the calls of the op whose waits cost most, before and after."""
    waits: dict[str, list[float]] = {}
    for side, run in enumerate((a, b)):
        for gap in run.gaps:
            if gap.cause == "sync" and gap.wait >= 0:
                waits.setdefault(run.op_around(gap.wait), [0.0, 0.0])[side] += gap.time
    if not waits:
        return []
    name = max(waits, key=lambda op: abs(waits[op][1] - waits[op][0]))
    return [Calls(a.row_sum(name, "count"), b.row_sum(name, "count"), name)]


def _launches(a: Analysis, b: Analysis) -> Launches | list[Calls]:
    if found := launches_of(a, b):
        return found
    calls = Calls(_calls(a, LAUNCH), _calls(b, LAUNCH))
    fewer = abs(calls.b - calls.a) > FEWER * max(calls.a, calls.b)
    return [*([calls] if fewer else []), *_runtime_calls(a, b)]


def _runtime_calls(a: Analysis, b: Analysis) -> list[Calls]:
    """Return the other function of the driver whose time changed most with its number of calls, such as cudaMalloc."""
    found: dict[str, list[float]] = {}
    for side, run in enumerate((a, b)):
        columns = (run.columns[name] for name in ("key", "device_type", "count", "self_cpu_time_total"))
        for key, where, count, time in zip(*columns, strict=True):
            if where == "cpu" and RUNTIME.fullmatch(key) and not (LAUNCH.match(key) or GRAPH_LAUNCH.match(key)):
                entry = found.setdefault(key, [0.0] * 4)
                entry[side] += int(count) / run.step_count
                entry[2 + side] += float(time) / run.step_count
    moved = [(abs(t1 - t0), key, n0, n1) for key, (n0, n1, t0, t1) in found.items() if (t1 - t0) * (n1 - n0) > 0]
    time, key, before, after = max(moved, default=(0.0, "", 0.0, 0.0))
    return [Calls(before, after, key)] if time > LEAST * max(a.total, b.total) else []


# What remains ---------------------------------------------------------------------------------------------------------


def _largest(changes: Iterable[Change], idle: Mapping[str, float]) -> Change | tuple[str, float] | None:
    """Return the largest part of the time of b, an op or idle time."""
    found: list[tuple[float, Change | tuple[str, float]]] = [(one.time_b, one) for one in changes if one.b is not None]
    found += [(time, (part, time)) for part, time in idle.items()]
    time, largest = max(found, key=lambda one: one[0], default=(0.0, None))
    return largest if time else None
