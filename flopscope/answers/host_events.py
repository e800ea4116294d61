"""What the host did: calls of a name by step, which calls waited for a device, and what passed while a device idled."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import Analysis
from flopscope.answers.lines import Lines, lines_of
from flopscope.results.categories import COLLECTION
from flopscope.support.statistics import distinct

OTHERWISE = re.compile(
    r"gloo:|mpi:|DataLoader|enumerate\(DataPipe\)|\(dynamo_timed\)|\(JAX (?:tracing|lowering)\)|\(XLA compilation\)|"
    r"Module ?Load|LibraryLoad"
)
"""Ranges and calls whose idle time has a cause of its own in the accounting."""
COLLECTIVE = re.compile("gloo:|mpi:")
"""Begins the names of collectives of the CPUs, as torch records them from the call to the end."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
WAITING = re.compile(r"Synchronize|Memcpy")
Ints = npt.NDArray[np.int64]


class Activity(NamedTuple):
    """An op, a range, a line or an API call of the host."""

    name: str
    time: float
    """µs per step, without that of others within it."""
    calls: float
    """Per step, as many as were in such a time."""
    launches: bool
    """Whether it, or something within it, launched work, which must stay on its thread."""


class Wait(NamedTuple):
    """Calls of one name, within the same ops, that waited for a device."""

    call: str
    ops: tuple[str, ...]
    """Ops around it, innermost first."""
    calls: int
    """In the steps that are alike."""
    time: float
    """µs per step."""
    tunes: bool
    """Whether the op around it measures kernels with events, to choose the fastest."""


def _flags(analysis: Analysis, wanted: Callable[[str], object]) -> bytes:
    """Return a byte for each name of the events: 1 for those that are wanted."""
    return bytes(map(bool, map(wanted, analysis.names)))


def calls_named(
    analysis: Analysis, wanted: Callable[[str], object], asked: Literal["", "waiting", "growing"] = ""
) -> dict[str, Ints]:
    """Return the host's events of these names, in order of start: csrc/accounting/late.h."""
    return analysis.core.named_calls(_flags(analysis, wanted), asked)


def steps_of(analysis: Analysis, starts: Ints) -> Ints:
    """Return the index of the step in which each time lies, -1 if in none."""
    begins, ends = (np.array([getattr(step, name) for step in analysis.steps], np.int64) for name in ("begin", "end"))
    at = np.searchsorted(begins, starts, side="right") - 1
    return np.asarray(np.where((at >= 0) & (starts < np.append(ends, 0)[at]), at, -1), dtype=np.int64)


def calls_of(analysis: Analysis, names: Collection[str]) -> tuple[Ints, Ints]:
    """Return for each call on the host of these names, in order, the index of its step, -1 if none, and its ns."""
    calls = calls_named(analysis, names.__contains__)
    return steps_of(analysis, calls["start"]), calls["duration"]


def sampled_lines(analysis: Analysis, least: float = 0.0) -> Lines:
    """Return the sampled lines, with the idle times of the steps that are alike that last more than ``least`` µs."""
    return lines_of(analysis.core, analysis.apart, int(1000 * least))


def has_stacks(analysis: Analysis) -> bool:
    """Return whether lines of the program, or ranges other than the steps' own, were recorded or sampled."""
    columns, texts, kinds, _ = analysis.events
    here = np.isin(columns["kind"], [kinds.index("range"), kinds.index("frame")]) & (columns["on_device"] == 0)
    return bool(analysis.once(sampled_lines).lines) or any(
        not texts[name].startswith(("ProfilerStep", COLLECTION)) for name in distinct(columns["name"][here]).tolist()
    )


def waits_of(analysis: Analysis) -> list[Wait]:
    """Return the calls in which the host waited until work of a device had ended, the most frequent first.

    A call that may wait did so if work ended while it lasted.
    """
    calls = calls_named(analysis, WAITING.search, "waiting")
    timing = calls_named(analysis, lambda text: text.endswith("EventElapsedTime"))["event"]
    tuning = {_ops_around(analysis, one)[:1] for one in analysis.calls_alike(timing, around=True)[0].tolist()} - {()}
    sums: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    chosen = steps_of(analysis, calls["start"]) >= analysis.apart
    first, counts, groups = analysis.calls_alike(calls["event"][chosen], around=True)
    times = np.bincount(groups, calls["duration"][chosen], len(first)).astype(np.int64).tolist()
    for event, count, time in zip(first.tolist(), counts.tolist(), times, strict=True):
        one = sums.setdefault((analysis.enclosing(event)[0][1], _ops_around(analysis, event)), [0, 0])
        one[0] += count
        one[1] += time
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return [Wait(*of, count, time * analysis.scale, of[1][:1] in tuning) for of, (count, time) in ordered]


def _ops_around(analysis: Analysis, event: int) -> tuple[str, ...]:
    """Return the names of the ops around an event, innermost first."""
    return tuple(name for kind, name in analysis.enclosing(event)[1:] if kind == "op")


def outermost(analysis: Analysis, wanted: Callable[[str], object]) -> Ints:
    """Return the host's events of these names within no other such, by thread and start."""
    columns, texts, *_ = analysis.events
    named = np.array([*map(bool, map(wanted, texts)), False])[columns["name"]] & (columns["on_device"] == 0)
    events = np.flatnonzero(named & ~np.append(named, False)[columns["parent"]])
    return events[np.lexsort((columns["start"][events], columns["resource"][events]))]


def own_streams(analysis: Analysis, name: str) -> bool:
    """Return whether most copies of a name ran on streams on which nothing computes."""
    columns, texts, kinds, _ = analysis.events
    streams = columns["device"] * (1 << 32) + columns["resource"]
    computing = distinct(streams[(columns["on_device"] == 1) & (columns["kind"] == kinds.index("kernel"))])
    copies = (columns["on_device"] == 1) & np.isin(columns["name"], [i for i, t in enumerate(texts) if t == name])
    return bool(len(computing) and copies.any() and np.mean(np.isin(streams[copies], computing)) < 0.5)


def calls_in_work(analysis: Analysis, names: Collection[str], parts: int) -> list[int]:
    """Return the number of calls of these names in each of equal parts of the time from the first to the last work."""
    begins = calls_named(analysis, names.__contains__)["start"]
    columns, _, _, missing = analysis.events
    work = (columns["on_device"] == 1) & (columns["start"] != missing) & (columns["duration"] != missing)
    if not len(begins) or not work.any():
        return [0] * parts
    edges = np.linspace(columns["start"][work].min(), columns["start"][work].max() + 1, parts + 1)
    return [int(count) for count in np.histogram(begins, edges)[0]]


def idle_of_calls(analysis: Analysis, names: Collection[str]) -> tuple[list[float], float]:
    """Return the idle µs of the devices within each call of these names, and within calls that no work follows.

    Only calls in steps that are alike; of a profile without steps, only what lies between its first and last work.
    """
    calls = analysis.core.named_calls(_flags(analysis, names.__contains__), "device" if analysis.on_device else "cpu")
    alike, unused = steps_of(analysis, calls["start"]) >= analysis.apart, calls["unused"] == 1
    return (calls["idle"][alike & ~unused] / 1000).tolist(), float(calls["idle"][alike & unused].sum() / 1000)


def causes_of(analysis: Analysis, part: str) -> Mapping[str, float]:
    """Return the idle time of a part by the label of its cause, µs per step; that of collectives by their names."""
    times, total = dict(analysis.causes_of(part)), analysis.idle("collective")
    if part == "communication" and total > 0:
        names = [name for name in analysis.names if COLLECTIVE.match(name)]
        found = {name: sum(each) + unused for name in names for each, unused in [idle_of_calls(analysis, [name])]}
        whole = max(sum(found.values()) * analysis.scale * 1000, total)  # of two at once, each has a part of the time
        times = {name: 1000 * analysis.scale * time * total / whole for name, time in found.items()}
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def idle_in_calls(analysis: Analysis, names: Collection[str]) -> dict[str, float]:
    """Return the idle µs per step in which calls of these names ran, by the op that launched next ("": none)."""
    found = analysis.core.late_within(analysis.apart, _flags(analysis, names.__contains__))
    texts = [analysis.names[name] if name >= 0 else "" for name in found["name"].tolist()]
    return dict(zip(texts, (found["time"] * analysis.scale).tolist(), strict=True))


def spent_while_idle(analysis: Analysis, least: float, ops: Collection[str]) -> list[Activity]:
    """Return what the threads that launch were in during idle times of more than ``least`` µs, the longest first.

    Of an idle time counts what passed before the call that ended it, in one of ``ops``, without what has a cause of its
    own in the accounting: compiling, loading code or data, the profiler's work.
    """
    wanted = _flags(analysis, ops.__contains__) + bytes(["" in ops])
    found = analysis.core.late_spent(analysis.apart, int(1000 * least), wanted, _flags(analysis, OTHERWISE.search))
    sums: dict[tuple[str, bool], list[float]] = {}
    for name, launches, time, calls in zip(*(values.tolist() for values in found.values()), strict=True):
        entry = sums.setdefault((ADDRESS.sub("", analysis.names[name]), bool(launches)), [0, 0])
        entry[0] += time
        entry[1] += calls
    count = max(len(analysis.alike), 1)
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return [Activity(name, time * analysis.scale, calls / count, has) for (name, has), (time, calls) in ordered]
