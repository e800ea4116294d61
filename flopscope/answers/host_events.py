"""What the host did: calls of a name by step, and where the host was while a device idled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import Analysis

__all__ = ["Activity", "calls_of", "spent_while_idle"]

SHOWN = ("op", "range", "frame", "runtime")
"""Kinds of events that say what the host did."""
Ints = npt.NDArray[np.int64]


class Activity(NamedTuple):
    """An op, a range, a line or an API call of the host."""

    name: str
    time: float
    """µs per step, without that of others within it."""
    calls: float
    """Per step, as many as were in such a time."""
    launches: bool
    """Whether it launched work, which must stay on its thread; a line's own time counts as its own work."""


def calls_of(analysis: Analysis, names: Collection[str]) -> tuple[Ints, Ints]:
    """Return for each call on the host of these names, in order, the index of its step, -1 if none, and its ns."""
    columns, texts, _, missing = analysis.core.events()
    wanted = [i for i, text in enumerate(texts) if text in names]
    here = np.isin(columns["name"], wanted) & (columns["on_device"] == 0) & (columns["start"] != missing)
    at, duration = columns["start"][here], columns["duration"][here]
    order = np.argsort(at, kind="stable")
    return _step_of(analysis, at[order]), np.maximum(duration[order], 0)


def _step_of(analysis: Analysis, at: Ints) -> Ints:
    begins = np.array([step.begin for step in analysis.steps], dtype=np.int64)
    ends = np.array([step.end for step in analysis.steps], dtype=np.int64)
    if not len(begins):
        return np.full(len(at), -1, dtype=np.int64)
    place = np.searchsorted(begins, at, side="right") - 1
    return np.where((place >= 0) & (at < ends[place]), place, -1)


def spent_while_idle(analysis: Analysis, least: float) -> list[Activity]:
    """Return what the threads that launch were in during idle times of more than ``least`` µs, the longest first.

    Of an idle time counts what passed before the call that ended it.
    """
    columns, texts, kinds, missing = analysis.core.events()
    start, duration = columns["start"], np.maximum(columns["duration"], 0)
    known = (start != missing) & (columns["duration"] != missing)
    on_host = (columns["on_device"] == 0) & known
    busy, sums = _launching(columns), dict[tuple[int, bool], list[float]]()
    busy &= columns["kind"] != kinds.index("frame")
    busy |= columns["kind"] == kinds.index("runtime")
    shown = np.isin(columns["kind"], [kinds.index(kind) for kind in SHOWN if kind in kinds])
    for thread, idle in _idle_times(analysis, columns, known, kinds, least).items():
        at, spent = _running(idle)
        here = np.flatnonzero(on_host & (columns["resource"] == thread))
        begin = (start[here] - at[0]).astype(np.float64)  # of a clock's ns, a double would round off some
        at = (at - at[0]).astype(np.float64)
        over = np.interp(begin + duration[here], at, spent) - np.interp(begin, at, spent)
        own = np.zeros(len(start))
        own[here] = over
        inner = columns["parent"][here]
        inside = inner >= 0
        np.subtract.at(own, inner[inside], over[inside])
        for event in here[shown[here] & (own[here] > 0)].tolist():
            entry = sums.setdefault((int(columns["name"][event]), bool(busy[event])), [0.0, 0.0])
            entry[0] += own[event]
            entry[1] += 1
    steps = analysis.step_count
    found = (
        Activity(texts[name], float(time) / 1000 / steps, calls / steps, launches)
        for (name, launches), (time, calls) in sums.items()
    )
    return sorted(found, key=lambda one: -one.time)


def _launching(columns: dict[str, Ints]) -> npt.NDArray[np.bool_]:
    """Return for each event whether it, or one within it, launched work."""
    found = np.zeros(len(columns["start"]), dtype=bool)
    events = np.unique(columns["launcher"][columns["on_device"] == 1])
    while len(events := events[(events >= 0) & ~found[events]]):
        found[events] = True
        events = np.unique(columns["parent"][events])
    return found


def _idle_times(
    analysis: Analysis, columns: dict[str, Ints], known: npt.NDArray[np.bool_], kinds: Sequence[str], least: float
) -> dict[int, list[tuple[int, int]]]:
    """Return the idle times, (begin, end) in ns, by the thread that launched the work after them."""
    start, end = columns["start"], columns["start"] + np.maximum(columns["duration"], 0)
    calls = np.flatnonzero((columns["kind"] == kinds.index("runtime")) & known & (columns["correlation"] >= 0))
    call_of = dict(zip(columns["correlation"][calls].tolist(), calls.tolist(), strict=True))
    found: dict[int, list[tuple[int, int]]] = {}
    for device in np.unique(columns["device"][columns["on_device"] == 1]):
        work = np.flatnonzero((columns["on_device"] == 1) & known & (columns["device"] == device))
        work = work[np.argsort(start[work], kind="stable")]
        first = analysis.steps[0].begin if analysis.has_steps else start[work[0]]  # before it are the edges
        free = np.concatenate([[first], np.maximum(np.maximum.accumulate(end[work])[:-1], first)])
        long = np.flatnonzero(start[work] - free > 1000 * least)
        inside = _step_of(analysis, free[long]) >= 0
        for place in long[inside].tolist():
            call = call_of.get(int(columns["correlation"][work[place]]))
            if call is not None and start[call] > free[place]:
                span = int(free[place]), int(min(start[call], start[work[place]]))
                found.setdefault(int(columns["resource"][call]), []).append(span)
    return found


def _running(idle: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Return instants and the idle ns up to each; idle times of several devices count once."""
    at: list[int] = []
    spent = [0]
    for begin, end in sorted(idle):
        begin = max(begin, at[-1]) if at else begin
        if end > begin:
            at += [begin, end]
            spent += [spent[-1] + end - begin] * 2
    return np.array(at, dtype=np.int64), np.array(spent[:-1], dtype=np.int64)
