"""The verdict on two runs in three sentences: the time of a step, what changed most and why, and what remains."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from flopscope.answers.accounting import part_times
from flopscope.answers.analysis import PARTS, WORK_PARTS, Analysis
from flopscope.answers.differences import calls_text, flat
from flopscope.results.comparison import Change, Scale
from flopscope.support.core_facts import parts_of
from flopscope.support.units import percent_text, plural, ratio_text, short_time_text


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
TELLING_KERNEL = re.compile(r"(?:nchwToNhwc|nhwcToNchw|nchwAddPadding|nhwcAddPadding)\w*|Memcpy \w+ \([^)]*\)")
"""Kernels by which cuDNN converts between memory formats, and copies, by the kind of memory."""
RUNTIME = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")
IDLE = {known: tuple(part for part, row in parts_of(known).items() if row.change) for known in (True, False)}
"""Parts of the accounting in which a device, or a program on the CPU, idles."""


@dataclass(frozen=True)
class Idle:
    """Idle time of both runs in µs, by its part of the accounting."""

    part: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        """Change of the time in µs."""
        return self.b - self.a


def sentences(
    changes: Sequence[Change],
    scale: Scale,
    runs: tuple[Analysis | None, Analysis | None],
    wholes: tuple[Whole | None, Whole | None],
) -> Iterator[str]:
    """Yield three sentences; fewer if the runs cannot be compared as a whole."""
    (a, b), (x, y) = runs, wholes
    whose = "A step" if scale.per == "step" else "The run"
    if a is None or b is None or x is None or y is None:  # of tables: their ops
        times = math.fsum(one.time_a for one in changes), math.fsum(one.time_b for one in changes)
        head = f"The ops of {whose.lower()} take {_times_text(times)}"
        changed = [_op_text(one, {}, {}) for one in _most(changes, [], times) if isinstance(one, Change)]
        rest = _largest(changes, {})
    else:
        times, on_device = (x.time, y.time), a.on_device and b.on_device
        head = f"{whose} takes {_times_text(times)}{_explained(x, y, on_device)}"
        idle = [Idle(part, x.parts[part], y.parts[part]) for part in IDLE[on_device]]
        telling = [_telling_times(run) for run in (a, b)]
        changed = [
            _op_text(one, *telling) if isinstance(one, Change) else _idle_text(one, a, b, on_device)
            for one in _most(changes, idle, times)
        ]
        names = _part_names(b.on_device)
        rest = _largest(changes, {names[part]: y.parts[part] for part in IDLE[b.on_device]})
    if scale.per == "call":
        yield "The runs differ in length and at least one has no steps, so times are those of a call."
    else:
        yield f"{head}."
    if changed:
        yield f"What changed most: {'; '.join(changed)}."
    else:
        yield "No op, kernel or cause of idle time changed by more than 1% of the time."
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
    if math.isnan(a.unobserved) and math.isnan(b.unobserved):
        return text
    x, y = unrecorded(a, b)
    return f"{text}; without recording, about {short_time_text(x)} and {short_time_text(y)}: {_ratio(x, y)}"


def _moved(a: Whole, b: Whole, on_device: bool) -> dict[str, float]:
    """Return the parts of a step that explain the difference."""
    least = LEAST * max(a.time, b.time)
    if abs(b.time - a.time) <= least:
        return {}
    work = [part for part in WORK_PARTS if part != "launch"]
    kinds = {"work": work, **{part: [part] for part in ("launch", *IDLE[on_device])}}
    moved = {name: sum(b.parts[part] - a.parts[part] for part in parts) for name, parts in kinds.items()}
    return {name: time for name, time in sorted(moved.items(), key=lambda one: -abs(one[1])) if abs(time) > least}


def _part_names(on_device: bool) -> dict[str, str]:
    """Return what the parts of the time of a run are called: device work, launches and each cause of idleness."""
    work = {"work": "device work" if on_device else "ops", "launch": "launches of short kernels"}
    return work | {part: row.change for part, row in parts_of(on_device).items() if row.change}


# What changed ---------------------------------------------------------------------------------------------------------

Differing = TypeVar("Differing", Change, Idle)


def _most(changes: Sequence[Change], idle: Sequence[Idle], times: tuple[float, float]) -> list[Change | Idle]:
    """Return what changed most, of ops and of idle time: first what explains the difference of the whole."""
    least, difference = LEAST * max(times), times[1] - times[0]
    found: list[Change | Idle] = [*_large(idle, least), *_large(changes, least)]
    against = abs(difference) > least
    found.sort(key=lambda one: (against and one.difference * difference < 0, -abs(one.difference)))
    return found[:CHANGES_SHOWN]


def _large(found: Sequence[Differing], least: float) -> list[Differing]:
    """Return those whose difference is above ``least`` and not small compared with the largest."""
    largest = max((abs(one.difference) for one in found), default=0.0)
    return [one for one in found if abs(one.difference) > least and abs(one.difference) >= NEXT * largest]


Times = Mapping[tuple[str, str], float]


def _op_text(change: Change, a: Times, b: Times) -> str:
    """Return a change as text. a, b: the times of telling kernels; those that one run only has are named."""
    before, after = short_time_text(change.time_a), short_time_text(change.time_b)
    name = _full_name(change)
    if change.cause == "only a":
        return f"{name} is gone ({before}, {plural(change.calls_a, 'call')})"
    if change.cause == "only b":
        return f"{name} is new ({after}, {plural(change.calls_b, 'call')})"
    a_call = " a call" if change.scale.per == "call" else ""
    kernels = ", ".join(filter(None, (_only_in(a, b, change, "gone"), _only_in(b, a, change, "new"))))
    why = "; ".join(filter(None, (change.why, _sizes(change), kernels)))
    return f"{name} {before} → {after}{a_call}{f' ({why})' if why else ''}"


def _only_in(times: Times, other: Times, change: Change, word: str) -> str:
    """Return the conversions and copies that an op launches in one run only, by the longest; "" for none."""
    keys = _keys(change)
    mine = {kernel: t for (key, kernel), t in times.items() if key in keys and (key, kernel) not in other}
    longest = max(mine, key=lambda name: mine[name], default="")
    return f"{longest} {word}: {short_time_text(sum(mine.values()))}" if mine else ""


def _keys(change: Change) -> set[str]:
    return {side.key for row in change.rows for side in (row.a, row.b) if side}


def _full_name(change: Change) -> str:
    """Return the name with its namespace if it is the same in both runs."""
    keys = _keys(change)
    return keys.pop() if len(keys) == 1 and change.cause != "replaced" else change.name


def _sizes(change: Change) -> str:
    """Return the dimensions that differ between the runs, if they are few, as text."""
    rows = [] if change.cause == "replaced" else [(row.a, row.b) for row in change.rows if row.a and row.b]
    dims = (zip(flat(a.input_shapes), flat(b.input_shapes), strict=False) for a, b in rows)
    sizes = list(dict.fromkeys((x, y) for pairs in dims for x, y in pairs if x != y))
    return f"sizes {', '.join(f'{x} → {y}' for x, y in sizes)}" if 0 < len(sizes) <= SIZES_SHOWN else ""


def _telling_times(run: Analysis) -> Times:
    times: dict[tuple[str, str], float] = {}
    for op in run.ops:
        for kernel in op.kernels:
            if found := TELLING_KERNEL.search(kernel.name):
                times[op.key, found[0]] = times.get((op.key, found[0]), 0.0) + kernel.time
    return times


def _idle_text(of: Idle, a: Analysis, b: Analysis, on_device: bool) -> str:
    name, times = _part_names(on_device)[of.part], f"{short_time_text(of.a)} → {short_time_text(of.b)}"
    why = {"sync": _waits, "host": _launches}[of.part](a, b) if on_device and of.part in ("sync", "host") else ""
    if of.b < GONE * of.a:
        return f"{name} went away ({times}{f'; {why}' if why else ''})"
    return f"{name} {times}{f' ({why})' if why else ''}"


def _waits(a: Analysis, b: Analysis) -> str:
    """Return the calls of the op whose waits cost most, before and after."""
    waits: dict[str, list[float]] = {}
    for side, run in enumerate((a, b)):
        for gap in run.gaps:
            if gap.cause == "sync" and gap.wait >= 0:
                waits.setdefault(run.op_around(gap.wait), [0.0, 0.0])[side] += gap.time
    if not waits:
        return ""
    name = max(waits, key=lambda op: abs(waits[op][1] - waits[op][0]))
    return f"{calls_text(a.row_sum(name, 'count'), b.row_sum(name, 'count'))} of {name}"


def _launches(a: Analysis, b: Analysis) -> str:
    """Return how many launches there were, and the calls of the driver whose time changed most."""
    if found := launches_of(a, b):
        return found
    x, y = _calls(a, LAUNCH), _calls(b, LAUNCH)
    fewer = abs(y - x) > FEWER * max(x, y)
    launches = calls_text(x, y, "kernel launch", "kernel launches") if fewer else ""
    return ", ".join(filter(None, (launches, _runtime_calls(a, b))))


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
    counts = zip(run.columns["key"], run.columns["device_type"], run.columns["count"], strict=True)
    return sum(int(count) for key, where, count in counts if where == "cpu" and pattern.match(key)) / run.step_count


def _runtime_calls(a: Analysis, b: Analysis) -> str:
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
    return f"{calls_text(before, after)} of {key}" if time > LEAST * max(a.total, b.total) else ""


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
