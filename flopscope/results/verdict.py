"""Three sentences about two runs: the time of a step, what changed most and why, and what remains."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flopscope.answers.accounting import part_times
from flopscope.answers.analysis import PARTS, WORK_PARTS, Analysis
from flopscope.answers.findings import plural
from flopscope.results.changes import Change, Scale, flat
from flopscope.results.replaced import middle_step
from flopscope.support.parts import parts_of
from flopscope.support.units import percent_text, ratio_text, short_time_text

__all__ = ["Whole", "full_name", "launch_text", "sentences", "unrecorded", "whole_of"]

LEAST = 0.01
"""Share of the longer step below which a difference is not mentioned."""
FEWER = 0.02
NEXT = 0.25
"""Further changes are mentioned if they are at least this part of the largest: of ops, and of idle time."""
CHANGES_SHOWN = 3
SIZES_SHOWN = 2
GONE = 0.05
"""Idle time that fell to this part of what it was is gone."""
LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:Module)?Launch(?:Cooperative)?Kernel")
GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
TELLING_KERNEL = re.compile(r"(?:nchwToNhwc|nhwcToNchw|nchwAddPadding|nhwcAddPadding)\w*|Memcpy \w+ \([^)]*\)")
"""Kernels by which cuDNN converts between memory formats, and copies, by the kind of memory."""
RUNTIME = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*")


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


def _idle_names(on_device: bool) -> list[tuple[str, str]]:
    """Return the parts of idle time, and what a comparison calls them."""
    return [(part, row.change) for part, row in parts_of(on_device).items() if row.change]


def unrecorded(a: Whole | None, b: Whole | None) -> tuple[float, float]:
    """Return the times without recording: estimated if recording delayed a run by more than 1 %, else as recorded."""
    x, y = (math.nan if w is None else w.time if math.isnan(w.unobserved) else w.unobserved for w in (a, b))
    return x, y


def launch_text(a: Analysis, b: Analysis) -> str:
    """Return what became of the launches if only one run launches CUDA graphs, else ""."""
    graphs, kernels = ([_calls(run, pattern) for run in (a, b)] for pattern in (GRAPH_LAUNCH, LAUNCH))
    if bool(graphs[0]) == bool(graphs[1]):
        return ""
    texts = []
    for graph, kernel in zip(graphs, kernels, strict=True):
        parts = [plural(kernel, "kernel launch", "kernel launches")] if kernel else []
        parts += [f"{_count(graph)} cudaGraphLaunch"] if graph else []
        texts.append(" and ".join(parts))
    return " → ".join(texts)


def _calls(run: Analysis, pattern: re.Pattern[str]) -> float:
    counts = zip(run.columns["key"], run.columns["device_type"], run.columns["count"], strict=True)
    return sum(int(count) for key, where, count in counts if where == "cpu" and pattern.match(key)) / run.step_count


def _count(value: float) -> str:
    return f"{value:.4g}"


# The sentences --------------------------------------------------------------------------------------------------------


def sentences(changes: Sequence[Change], scale: Scale, analyses: tuple[Analysis | None, Analysis | None]) -> list[str]:
    """Return the three sentences; fewer if the runs cannot be compared as a whole."""
    a, b = analyses
    wholes = [whole_of(run, scale.per) if run is not None else None for run in analyses]
    if a is None or b is None or wholes[0] is None or wholes[1] is None:
        times = math.fsum(c.time_a for c in changes), math.fsum(c.time_b for c in changes)
        first, phrases, whole_b = _tables(times, scale), _phrases(changes, times), None
    else:
        times, whole_b = (wholes[0].time, wholes[1].time), wholes[1]
        first = _total(wholes[0], wholes[1], scale, a.on_device and b.on_device)
        idle = _idle(wholes[0], wholes[1], a, b)
        phrases = _phrases(changes, times, idle, _details(a, b))
    if scale.per == "call":
        first = "The runs differ in length and at least one has no steps, so times are those of a call."
        return [first, *_second(phrases)]
    rest = _remaining(changes, times[1], whole_b, b)
    return [first, *_second(phrases), *rest]


def _per(scale: Scale) -> str:
    return "A step" if scale.per == "step" else "The run"


def _tables(times: tuple[float, float], scale: Scale) -> str:
    texts = [short_time_text(time) for time in times]
    return f"The ops of {_per(scale).lower()} take {texts[0]} in a and {texts[1]} in b: {_ratio(*times)}."


def _ratio(a: float, b: float) -> str:
    if not (a > 0 and b > 0):
        return "no ratio"
    if abs(a / b - 1) < LEAST:
        return "the same within 1%"
    return f"b is {ratio_text(a / b)} as fast" if a > b else f"b takes {ratio_text(b / a)} as long"


def _total(a: Whole, b: Whole, scale: Scale, on_device: bool) -> str:
    """Return the sentence on the time of a step, and which parts of it explain the difference."""
    text = f"{_per(scale)} takes {short_time_text(a.time)} in a and {short_time_text(b.time)} in b: "
    text += _ratio(a.time, b.time)
    difference, least = b.time - a.time, LEAST * max(a.time, b.time)
    work = [part for part in WORK_PARTS if part != "launch"]
    kinds = {"device work" if on_device else "ops": work, "launches of short kernels": ["launch"]}
    kinds |= {name: [part] for part, name in _idle_names(on_device)}
    moved = {name: sum(b.parts[part] - a.parts[part] for part in parts) for name, parts in kinds.items()}
    shown = sorted((name for name in moved if abs(moved[name]) > least), key=lambda name: -abs(moved[name]))
    if abs(difference) > least and shown:
        text += "; " + ", ".join(f"{name} {_signed(moved[name])}" for name in shown)
    if not (math.isnan(a.unobserved) and math.isnan(b.unobserved)):
        x, y = unrecorded(a, b)
        text += f"; without recording, about {short_time_text(x)} and {short_time_text(y)}: {_ratio(x, y)}"
    return text + "."


def _signed(time: float) -> str:
    return f"{'+' if time > 0 else '-' if time < 0 else ''}{short_time_text(abs(time))}"


# What changed ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Phrase:
    change: float
    """Change of the time of b, in µs."""
    text: str


def _second(phrases: Sequence[_Phrase]) -> list[str]:
    if not phrases:
        return ["No op, kernel or cause of idle time changed by more than 1% of the time."]
    return ["What changed most: " + "; ".join(phrase.text for phrase in phrases) + "."]


def _phrases(
    changes: Sequence[Change],
    times: tuple[float, float],
    idle: Sequence[_Phrase] = (),
    detail: Callable[[Change], str] = lambda change: "",
) -> list[_Phrase]:
    """Return what changed most, of ops and of idle time: first what explains the difference of the whole."""
    whole, difference = max(times), times[1] - times[0]
    found = []
    for change in changes:
        if change.difference:
            found.append(_Phrase(change.difference, _change_text(change, detail(change))))
    found = [phrase for group in (idle, found) for phrase in _largest(group, LEAST * whole)]
    against = abs(difference) > LEAST * whole
    found.sort(key=lambda phrase: (against and phrase.change * difference < 0, -abs(phrase.change)))
    return found[:CHANGES_SHOWN]


def _largest(phrases: Sequence[_Phrase], least: float) -> list[_Phrase]:
    """Return the phrases whose change is above ``least`` and not small compared with the largest."""
    largest = max((abs(phrase.change) for phrase in phrases), default=0.0)
    return [phrase for phrase in phrases if abs(phrase.change) > least and abs(phrase.change) >= NEXT * largest]


def _change_text(change: Change, detail: str) -> str:
    before, after = short_time_text(change.time_a), short_time_text(change.time_b)
    name = full_name(change)
    if change.cause == "only a":
        return f"{name} is gone ({before}, {plural(change.calls_a, 'call')})"
    if change.cause == "only b":
        return f"{name} is new ({after}, {plural(change.calls_b, 'call')})"
    a_call = " a call" if change.scale.per == "call" else ""
    why = "; ".join(text for text in (change.why, _sizes_text(change), detail) if text)
    return f"{name} {before} → {after}{a_call}{f' ({why})' if why else ''}"


def full_name(change: Change) -> str:
    """Return the name with its namespace if it is the same in both runs."""
    keys = {side.key for row in change.rows for side in (row.a, row.b) if side}
    return keys.pop() if len(keys) == 1 and change.cause != "replaced" else change.name


def _sizes_text(change: Change) -> str:
    """Return the dimensions that differ between the runs if they are few: "sizes 50257 → 50304"."""
    if change.cause == "replaced":
        return ""
    sizes: dict[str, None] = {}
    for row in change.rows:
        if row.a and row.b:
            dims = zip(flat(row.a.input_shapes), flat(row.b.input_shapes), strict=False)
            sizes |= {f"{x} → {y}": None for x, y in dims if x != y}
    return f"sizes {', '.join(sizes)}" if 0 < len(sizes) <= SIZES_SHOWN else ""


def _details(a: Analysis, b: Analysis) -> Callable[[Change], str]:
    """Return a function that names the conversions and copies that the op of a change launches in one run only."""
    times = [_telling_times(run) for run in (a, b)]

    def detail(change: Change) -> str:
        texts = []
        for time, other, word in ((times[0], times[1], "gone"), (times[1], times[0], "new")):
            keys = {side.key for row in change.rows for side in (row.a, row.b) if side}
            mine = {kernel: t for (key, kernel), t in time.items() if key in keys and (key, kernel) not in other}
            if mine:
                kernel = max(mine, key=lambda name: mine[name])
                texts.append(f"{kernel} {word}: {short_time_text(sum(mine.values()))}")
        return ", ".join(texts)

    return detail


def _telling_times(run: Analysis) -> dict[tuple[str, str], float]:
    times: dict[tuple[str, str], float] = {}
    for op in run.ops:
        for kernel in op.kernels:
            found = TELLING_KERNEL.search(kernel.name)
            if found:
                times[op.key, found[0]] = times.get((op.key, found[0]), 0.0) + kernel.time
    return times


def _idle(a: Whole, b: Whole, runs_a: Analysis, runs_b: Analysis) -> list[_Phrase]:
    """Return a phrase for each cause of idle time."""
    phrases = []
    on_device = runs_a.on_device and runs_b.on_device
    for part, name in _idle_names(on_device):
        before, after = a.parts[part], b.parts[part]
        if abs(after - before) <= LEAST * max(a.time, b.time):
            continue
        why = {"sync": _waits, "host": _launches}.get(part, lambda x, y: "")(runs_a, runs_b) if on_device else ""
        if after < GONE * before:
            text = f"{name} went away ({short_time_text(before)} → {short_time_text(after)}{f'; {why}' if why else ''})"
        else:
            text = f"{name} {short_time_text(before)} → {short_time_text(after)}{f' ({why})' if why else ''}"
        phrases.append(_Phrase(after - before, text))
    return phrases


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
    calls = [run.row_sum(name, "count") for run in (a, b)]
    return f"{_count(calls[0])} → {plural(calls[1], 'call')} of {name}"


def _launches(a: Analysis, b: Analysis) -> str:
    text = launch_text(a, b)
    if text:
        return text
    calls = [_calls(run, LAUNCH) for run in (a, b)]
    texts = []
    if max(calls) and abs(calls[1] - calls[0]) > FEWER * max(calls):
        texts.append(f"{_count(calls[0])} → {plural(calls[1], 'kernel launch', 'kernel launches')}")
    return ", ".join([*texts, *_runtime_calls(a, b)])


def _runtime_calls(a: Analysis, b: Analysis) -> list[str]:
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
    return [f"{_count(before)} → {plural(after, 'call')} of {key}"] if time > LEAST * max(a.total, b.total) else []


# What remains ---------------------------------------------------------------------------------------------------------


def _remaining(changes: Sequence[Change], time: float, whole: Whole | None, run: Analysis | None) -> list[str]:
    """Return the sentence on the largest part of the time of b, an op or a cause of idle time."""
    found: list[tuple[float, str]] = []
    for change in changes:
        if change.b is not None:
            share = change.b.pct_roofline
            replaced = change.cause == "replaced"
            name = change.name.partition(" → ")[2] if replaced else full_name(change)
            note = "" if math.isnan(share) else f", at {percent_text(share)} of the roofline"
            calls = "" if replaced else f" in {plural(change.calls_b, 'call')}"
            found.append((change.time_b, f"{name}, {short_time_text(change.time_b)}{calls}{note}"))
    if whole is not None and run is not None:
        for part, name in _idle_names(run.on_device):
            found.append((whole.parts[part], f"{name}, {short_time_text(whole.parts[part])}"))
    largest = max(found, default=(0.0, ""))
    if not largest[0] or not time:
        return []
    return [f"The largest remaining part of b: {largest[1]} ({percent_text(100 * largest[0] / time)} of the time)."]
