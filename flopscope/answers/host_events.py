"""What the host did: calls of a name by step, which calls waited for a device, and what passed while a device idled."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import Analysis

__all__ = [
    "Activity",
    "Wait",
    "calls_in_work",
    "calls_of",
    "has_stacks",
    "idle_in_calls",
    "idle_of_calls",
    "own_streams",
    "spent_while_idle",
    "waits_of",
]

SHOWN = ("op", "range", "frame", "runtime")
"""Kinds of events that say what the host did."""
OTHERWISE = re.compile(r"DataLoader|enumerate\(DataPipe\)|\(dynamo_timed\)|Module ?Load|LibraryLoad")
"""Ranges and calls whose idle time has a cause of its own in the accounting."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
WAITING = re.compile(r"Synchronize|Memcpy")
SEEN = 10_000
"""ns by which the clocks of host and device may disagree about the end of the work that a call waited for."""
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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


def calls_of(analysis: Analysis, names: Collection[str]) -> tuple[Ints, Ints]:
    """Return for each call on the host of these names, in order, the index of its step, -1 if none, and its ns."""
    at, duration = _times_of(analysis, names)
    return _step_of(analysis, at), duration


def _times_of(analysis: Analysis, names: Collection[str]) -> tuple[Ints, Ints]:
    """Return the starts of the calls on the host of these names, in order, and their durations."""
    columns, texts, _, missing = analysis.events
    wanted = [i for i, text in enumerate(texts) if text in names]
    here = np.isin(columns["name"], wanted) & (columns["on_device"] == 0) & (columns["start"] != missing)
    at, duration = columns["start"][here], columns["duration"][here]
    order = np.argsort(at, kind="stable")
    return at[order], np.maximum(duration[order], 0)


def _step_of(analysis: Analysis, at: Ints) -> Ints:
    begins = np.array([step.begin for step in analysis.steps], dtype=np.int64)
    ends = np.array([step.end for step in analysis.steps], dtype=np.int64)
    if not len(begins):
        return np.full(len(at), -1, dtype=np.int64)
    place = np.searchsorted(begins, at, side="right") - 1
    return np.where((place >= 0) & (at < ends[place]), place, -1)


def has_stacks(analysis: Analysis) -> bool:
    """Return whether lines of the program, or ranges other than the steps' own, were recorded."""
    columns, texts, kinds, _ = analysis.events
    here = np.isin(columns["kind"], [kinds.index("range"), kinds.index("frame")]) & (columns["on_device"] == 0)
    return any(not texts[name].startswith("ProfilerStep") for name in np.unique(columns["name"][here]).tolist())


# Waits and work -------------------------------------------------------------------------------------------------------


def _known(analysis: Analysis) -> Bools:
    columns, _, _, missing = analysis.events
    return np.asarray((columns["start"] != missing) & (columns["duration"] != missing))


def waits_of(analysis: Analysis) -> list[Wait]:
    """Return the calls in which the host waited until work of a device had ended, the most frequent first.

    A call that may wait did so if work ended while it lasted.
    """
    columns, texts, kinds, _ = analysis.events
    known, end = _known(analysis), columns["start"] + np.maximum(columns["duration"], 0)
    named = [i for i, text in enumerate(texts) if WAITING.search(text)]
    calls = np.flatnonzero((columns["kind"] == kinds.index("runtime")) & np.isin(columns["name"], named) & known)
    ends = np.sort(end[(columns["on_device"] == 1) & known])
    first = np.searchsorted(ends, columns["start"][calls])
    calls = calls[first < np.searchsorted(ends, end[calls] + SEEN, side="right")]
    calls = calls[_step_of(analysis, columns["start"][calls]) >= analysis.apart]
    timing = [i for i, text in enumerate(texts) if text.endswith("EventElapsedTime")]
    tuning = {_ops_around(analysis, event)[:1] for event in np.flatnonzero(np.isin(columns["name"], timing)).tolist()}
    sums: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for event in calls.tolist():
        key = texts[int(columns["name"][event])], _ops_around(analysis, event)
        one = sums.setdefault(key, [0, 0.0])
        one[0] += 1
        one[1] += max(int(columns["duration"][event]), 0) * analysis.scale
    found = (Wait(*key, int(count), time, bool(key[1]) and key[1][:1] in tuning) for key, (count, time) in sums.items())
    return sorted(found, key=lambda one: -one.calls)


def _ops_around(analysis: Analysis, event: int) -> tuple[str, ...]:
    """Return the names of the ops around an event, innermost first."""
    columns, texts, kinds, _ = analysis.events
    names, op = [], kinds.index("op")
    while (event := int(columns["parent"][event])) >= 0:
        if columns["kind"][event] == op:
            names.append(texts[int(columns["name"][event])])
    return tuple(names)


def own_streams(analysis: Analysis, name: str) -> bool:
    """Return whether most copies of a name ran on streams on which nothing computes."""
    columns, texts, kinds, _ = analysis.events
    streams = columns["device"] * (1 << 32) + columns["resource"]
    computing = np.unique(streams[(columns["on_device"] == 1) & (columns["kind"] == kinds.index("kernel"))])
    copies = (columns["on_device"] == 1) & np.isin(columns["name"], [i for i, t in enumerate(texts) if t == name])
    return bool(len(computing) and copies.any() and np.mean(np.isin(streams[copies], computing)) < 0.5)


def calls_in_work(analysis: Analysis, names: Collection[str], parts: int) -> list[int]:
    """Return the number of calls of these names in each of equal parts of the time from the first to the last work."""
    columns = analysis.events[0]
    work = (columns["on_device"] == 1) & _known(analysis)
    if not work.any():
        return [0] * parts
    at, _ = _times_of(analysis, names)
    edges = np.linspace(columns["start"][work].min(), columns["start"][work].max() + 1, parts + 1)
    return [int(count) for count in np.histogram(at, edges)[0]]


def _working(analysis: Analysis) -> dict[int, tuple[Ints, Ints]]:
    """Return the starts and ends of all work by device, in order of start; ops are the work of a CPU, -1."""
    columns, texts, kinds, _ = analysis.events
    known, end = _known(analysis), columns["start"] + np.maximum(columns["duration"], 0)
    works = (columns["on_device"] == 1) & known
    if not analysis.on_device:
        loading = [i for i, text in enumerate(texts) if "DataLoader" in text]
        works = (columns["kind"] == kinds.index("op")) & known & ~np.isin(columns["name"], loading)
    found = {}
    for device in np.unique(columns["device"][works]).tolist():
        here = np.flatnonzero(works & (columns["device"] == device))
        here = here[np.argsort(columns["start"][here], kind="stable")]
        found[device] = columns["start"][here], end[here]
    return found


def idle_of_calls(analysis: Analysis, names: Collection[str]) -> tuple[list[float], float]:
    """Return the idle µs of the devices within each call of these names, and within calls that no work follows.

    Only calls in steps that are alike; of a profile without steps, only what lies between its first and last work.
    """
    at, duration = _times_of(analysis, names)
    each, unused = np.zeros(len(at)), np.zeros(len(at), dtype=bool)
    for begin, end in _working(analysis).values():
        busy, spent = _running(list(zip(begin.tolist(), end.tolist(), strict=True)))
        first, last = (begin[0], begin[-1]) if not analysis.has_steps else (at.min(initial=begin[0]), None)
        low = np.maximum(at, first)
        high = at + duration if last is None else np.minimum(at + duration, last)
        over = _between(busy, spent)
        each += np.maximum(high - low, 0) - np.where(high > low, over(low, high), 0)
        unused |= at >= begin[-1]
    wanted = _step_of(analysis, at) >= analysis.apart
    return (each[wanted & ~unused] / 1000).tolist(), float(each[wanted & unused].sum() / 1000)


def _between(at: Ints, spent: Ints) -> Callable[[Ints, Ints], npt.NDArray[np.float64]]:
    """Return a function from intervals to the time within them that the result of _running() has."""
    base = at[0] if len(at) else 0
    places = (at - base).astype(np.float64)  # of a clock's ns, a double would round off some

    def over(begin: Ints, end: Ints) -> npt.NDArray[np.float64]:
        if not len(places):
            return np.zeros(len(begin))
        ends = (np.interp((one - base).astype(np.float64), places, spent) for one in (begin, end))
        before, after = ends
        return np.asarray(after - before)

    return over


# Idle times -----------------------------------------------------------------------------------------------------------


class Idle(NamedTuple):
    """Times from when a device had nothing to do to the call that launched its next work. Arrays; ns."""

    begin: Ints
    end: Ints
    call: Ints
    """The event."""


def _idle_times(analysis: Analysis) -> Idle:
    """Return the idle times in the steps that are alike that ended with work whose call was late."""
    columns, _, kinds, _ = analysis.events
    start, known = columns["start"], _known(analysis)
    end = start + np.maximum(columns["duration"], 0)
    calls = np.flatnonzero((columns["kind"] == kinds.index("runtime")) & known & (columns["correlation"] >= 0))
    calls = calls[np.argsort(columns["correlation"][calls], kind="stable")]
    numbers = columns["correlation"][calls]
    found = [Idle(*(np.zeros(0, dtype=np.int64) for _ in range(3)))]
    for device in np.unique(columns["device"][columns["on_device"] == 1]):
        work = np.flatnonzero((columns["on_device"] == 1) & known & (columns["device"] == device))
        work = work[np.argsort(start[work], kind="stable")]
        if not len(work) or not len(calls):
            continue
        first = analysis.steps[0].begin if analysis.has_steps else start[work[0]]  # before it are the edges
        free = np.concatenate([[first], np.maximum(np.maximum.accumulate(end[work])[:-1], first)])
        place = np.minimum(np.searchsorted(numbers, columns["correlation"][work]), len(calls) - 1)
        call = calls[place]
        late = (numbers[place] == columns["correlation"][work]) & (start[call] > free) & (start[work] > free)
        late &= _step_of(analysis, free) >= analysis.apart
        found.append(Idle(free[late], np.minimum(start[call], start[work])[late], call[late]))
    return Idle(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _op_names(analysis: Analysis, events: Ints) -> Ints:
    """Return the name of the innermost op around each event, as its number; -1: none."""
    columns, _, kinds, _ = analysis.events
    at, op = events.copy(), kinds.index("op")
    while (left := (at >= 0) & (columns["kind"][at] != op)).any():
        at[left] = columns["parent"][at[left]]
    return np.where(at >= 0, columns["name"][at], -1)


def idle_in_calls(analysis: Analysis, names: Collection[str]) -> dict[str, float]:
    """Return the idle µs per step in which calls of these names ran, by the op that launched next ("": none)."""
    at, duration = _times_of(analysis, names)
    if not len(at):
        return {}
    idle = _idle_times(analysis)
    times = _between(*_running(list(zip(at.tolist(), (at + duration).tolist(), strict=True))))(idle.begin, idle.end)
    sums: dict[str, float] = {}
    for name, time in zip(_op_names(analysis, idle.call).tolist(), times.tolist(), strict=True):
        if time > 0:
            key = analysis.events[1][name] if name >= 0 else ""
            sums[key] = sums.get(key, 0.0) + time * analysis.scale
    return sums


def spent_while_idle(analysis: Analysis, least: float, ops: Collection[str]) -> list[Activity]:
    """Return what the threads that launch were in during idle times of more than ``least`` µs, the longest first.

    Of an idle time counts what passed before the call that ended it, in one of ``ops``, without what has a cause of its
    own in the accounting: compiling, loading code or data, the profiler's work.
    """
    columns, texts, kinds, _ = analysis.events
    start, end, known = columns["start"], columns["start"] + np.maximum(columns["duration"], 0), _known(analysis)
    on_host = (columns["on_device"] == 0) & known
    for _ in range(CLIPPED):  # of clocks that are not exact, a child may end after its parent
        inner = np.flatnonzero(columns["parent"] >= 0)
        later = inner[end[inner] > end[columns["parent"][inner]]]
        if not len(later):
            break
        end[later] = end[columns["parent"][later]]
    busy, sums = (
        _launching(columns) | (columns["kind"] == kinds.index("runtime")),
        dict[tuple[str, bool], list[float]](),
    )
    shown = np.isin(columns["kind"], [kinds.index(kind) for kind in SHOWN if kind in kinds])
    for thread, idle in _long_times(analysis, on_host, end, least, ops).items():
        over = _between(*_running(idle))
        here = np.flatnonzero(on_host & (columns["resource"] == thread))
        own = np.zeros(len(start))
        own[here] = times = over(start[here], np.maximum(end[here], start[here]))
        inner = columns["parent"][here]
        inside = inner >= 0
        np.subtract.at(own, inner[inside], times[inside])
        for event in here[shown[here] & (own[here] > 0)].tolist():
            name = ADDRESS.sub("", texts[int(columns["name"][event])])
            entry = sums.setdefault((name, bool(busy[event])), [0.0, 0.0])
            entry[0] += own[event]
            entry[1] += 1
    count = max(len(analysis.alike), 1)
    found = (
        Activity(name, float(time) * analysis.scale, calls / count, launches)
        for (name, launches), (time, calls) in sums.items()
    )
    return sorted(found, key=lambda one: -one.time)


CLIPPED = 64
"""Levels of events within each other."""


def _launching(columns: dict[str, Ints]) -> Bools:
    """Return for each event whether it, or one within it, launched work."""
    found = np.zeros(len(columns["start"]), dtype=bool)
    events = np.unique(columns["launcher"][columns["on_device"] == 1])
    while len(events := events[(events >= 0) & ~found[events]]):
        found[events] = True
        events = np.unique(columns["parent"][events])
    return found


def _long_times(
    analysis: Analysis, on_host: Bools, end: Ints, least: float, ops: Collection[str]
) -> dict[int, list[tuple[int, int]]]:
    """Return the long idle times, (begin, end) in ns, by the thread that launched the work after them."""
    columns, texts, kinds, _ = analysis.events
    named = [i for i, text in enumerate(texts) if OTHERWISE.search(text)]
    apart = np.isin(columns["name"], named) & np.isin(columns["kind"], [kinds.index(k) for k in SHOWN if k != "frame"])
    other = np.flatnonzero((apart | (columns["kind"] == kinds.index("overhead"))) & on_host)
    taken = sorted(zip(columns["start"][other].tolist(), end[other].tolist(), strict=True))
    idle, found = _idle_times(analysis), dict[int, list[tuple[int, int]]]()
    long = np.flatnonzero(idle.end - idle.begin > 1000 * least)
    for place, name in zip(long.tolist(), _op_names(analysis, idle.call[long]).tolist(), strict=True):
        if (texts[name] if name >= 0 else "") not in ops:
            continue
        left = _without(int(idle.begin[place]), int(idle.end[place]), taken)
        if sum(after - before for before, after in left) > 1000 * least:
            found.setdefault(int(columns["resource"][idle.call[place]]), []).extend(left)
    return found


def _without(begin: int, end: int, taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is left of a time without others, which are sorted."""
    left = []
    for first, last in taken:
        if first >= end:
            break
        if first > begin:
            left.append((begin, first))
        begin = max(begin, last)
    return [*left, (begin, end)] if begin < end else left


def _running(idle: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Return instants and the ns of the intervals up to each; what overlaps counts once."""
    at: list[int] = []
    spent = [0]
    for begin, end in sorted(idle):
        begin = max(begin, at[-1]) if at else begin
        if end > begin:
            at += [begin, end]
            spent += [spent[-1] + end - begin] * 2
    return np.array(at, dtype=np.int64), np.array(spent[:-1], dtype=np.int64)
