"""What changes gain: the recorded steps are replayed with them (csrc/replay)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope import _core
from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding
from flopscope.answers.pieces import Gap, Op

MOST_WORKS = 20_000
"""Of the steps that are replayed: few are like many, and each change takes a replay."""
MANY, MOSTLY = 8, 0.8
"""Waits a step between which one op runs and nothing else: so many, and that share of all. One op for all can replace
both, as for the norms of gradients."""
FITS = 1.2
"""Times the step without recording, up to which the replay is said to take as long."""
ALL, PACING = 1e6, 0.97
"""ns of an event, more than any costs; and the share of a step that the devices take by themselves who set its pace."""
LEAST = 1e-9
"""µs, so that nothing is divided by 0."""
Granted = Sequence[tuple[Op | Gap, float]]


class Replayed:
    """The steps of a profile, replayed as they are without recording, with the changes that were taken so far."""

    def __init__(self, analysis: Analysis) -> None:
        each = sum(op.count for op in analysis.ops) or 1.0
        steps = analysis.alike[-max(round(MOST_WORKS / each), 1) :]
        begins, lasted = (np.array([step[at] for step in steps], dtype=np.int64) for at in (3, 4))
        steps_of = (begins, begins + lasted) if analysis.on_device else (begins[:0], begins[:0])
        self._analysis, self._replay, self._steps = analysis, _core.Replay(analysis.core, *steps_of), len(steps)
        self.usable = self._replay.usable and len(analysis.works["event"]) > 0
        """Whether the replay gives the recorded time."""
        if not self.usable:
            return
        replay, works, cells = self._replay, analysis.works, analysis.cells
        bare = 1000 * analysis.unobserved / max(len(analysis.devices), 1)
        self._event_ns = self._cost_of_events(bare)
        places = np.searchsorted(works["event"], replay.work_event).clip(0, len(works["event"]) - 1)
        self._rows, self._row_of = np.unique(_keys(works, places), return_inverse=True)
        self._place = {row: place for place, row in enumerate(self._rows.tolist())}
        keys = zip(cells["op"].tolist(), _keys(cells, np.s_[:]).tolist(), strict=True)
        self._of_op = {number: self._place[key] for number, key in keys if key in self._place}
        self._of_call = self._rows_of_calls()
        share = max(analysis.unobserved_share("host"), LEAST)
        host = (replay.call_gap + replay.call_own).clip(0) * share / 1000 / len(steps)
        self._left = np.zeros((2, len(self._rows)))
        """By row, µs a step of the device's work and of the host before its launches that no change has taken."""
        self._left[1] = np.bincount(self._of_call, host, len(self._rows))
        self._launch = self._left[1].sum() * len(steps) / max(np.count_nonzero(np.bincount(replay.work_call)), 1)
        for op in (*analysis.ops, *analysis.tried):
            if op.number in self._of_op:
                self._left[0][self._of_op[op.number]] += op.time
        self._work, self._host = np.ones(len(self._row_of)), np.ones(len(self._of_call))
        self._gone = np.zeros(len(self._of_call), dtype=np.uint8)
        self._waiting = [replay.kinds.index(kind) for kind in ("copy", "stream", "event", "device")]
        self._waits_of = cache(self._waits)
        self._now = self._first = replay.run(event_ns=self._event_ns)
        # A single step also has the latency of its first launch; what takes much longer is not that step.
        self._whole = min(self._now, bare) if self._now < FITS * bare else self._now

    def _cost_of_events(self, bare: float) -> float:
        """Return the ns that recording an event cost the host, of a step that takes ``bare`` ns without it.

        Where devices set the pace, that step does not tell. Those after a recording do, which began without work, or
        else it is estimated, unless the host would then set the pace.
        """
        analysis, replay = self._analysis, self._replay
        fitted, least = replay.fit(bare), replay.run(event_ns=ALL)
        if fitted is not None and least < PACING * bare:
            return fitted
        drained = 1000 * analysis.bare.drained if analysis.bare is not None else math.nan
        known = replay.fit(drained, True) if drained < PACING * bare else None
        if known is None:
            events = sum(sum(step.events.values()) for step in analysis.alike[-self._steps :]) / self._steps
            known = 1000 * analysis.recording.host / max(events, 1.0)
        return known if fitted is None or replay.run(event_ns=known) < least / PACING else fitted

    def _rows_of_calls(self) -> npt.NDArray[np.intp]:
        """Return for each call the row of the work that it launches, or that its thread launches next."""
        replay = self._replay
        rows = np.full(len(replay.call_event), -1)
        rows[replay.work_call[::-1]] = self._row_of[::-1]
        order = np.argsort(replay.call_sequence, kind="stable")
        launching = np.flatnonzero(rows[order] >= 0)
        following = np.searchsorted(launching, np.arange(len(order))).clip(0, max(len(launching) - 1, 0))
        rows[order] = rows[order][launching[following]] if len(launching) else 0
        return rows

    def gain(self, finding: Finding, claims: Granted, *, take: bool = False) -> float:
        """Return the share of the step that a change gains, after those taken: the claimed times of the device's work
        and of the host before its launches go, and so do its waits; infinite if that is unknown. take: it is taken."""
        if not self.usable:
            return math.inf
        spent, gone, before = np.zeros_like(self._left), self._gone.copy(), np.ones(len(self._of_call))
        everywhere = 0.0
        for source, time in claims:
            if isinstance(source, Op):
                if source.number in self._of_op:
                    spent[0][self._of_op[source.number]] += time
            elif finding.ends_waits and source.wait >= 0:
                calls, without = self._waits_of(source)
                gone[calls] = 1
                before *= without
            elif finding.ends_waits:
                continue  # what would only come earlier does so in the replay
            elif source.row in self._place:
                spent[1][self._place[source.row]] += time
            else:
                everywhere += time
        for op, count in finding.adds:
            if op.number in self._of_op:
                spent[1][self._of_op[op.number]] -= count * self._launch
        # Of no known row: the host is so much faster everywhere.
        spent[1] += everywhere * self._left[1] / max(self._left[1].sum(), LEAST)
        # What is left of each, so that changes multiply.
        kept = 1 - (spent / np.maximum(self._left, LEAST**2)).clip(None, 1)
        kept[1][[self._of_op[op.number] for op in finding.removed if op.number in self._of_op]] = 0
        works, hosts = self._work * kept[0][self._row_of], self._host * kept[1][self._of_call] * before
        ns = self._run(works, hosts, gone)
        share = max((self._now - ns) / self._whole, 0.0) if self._whole > 0 else 0.0
        if take:
            self._work, self._host, self._gone, self._now = works, hosts, gone, ns
            self._left *= kept
        return share

    @property
    def share(self) -> float:
        """The part of a step that is left after the changes that were taken."""
        return max(1 - (self._first - self._now) / self._whole, 0.0) if self._whole > 0 else 1.0

    def scale(self, works: Mapping[int, float], host_us: float | None) -> None:
        """Take a change of the time of each op's work by a factor, by op number; host_us: what the host takes for a
        piece of work, by itself."""
        factors = np.ones(len(self._rows))
        for number, factor in works.items():
            if number in self._of_op:
                factors[self._of_op[number]] = factor
        self._work = self._work * factors[self._row_of]
        if host_us is not None:
            host = self._run(np.zeros_like(self._work), self._host, self._gone) * self._steps
            self._host = self._host * (1000 * host_us * len(self._work) / max(host, LEAST))
        self._now = self._run(self._work, self._host, self._gone)

    def _run(self, works: Any, hosts: Any, gone: Any) -> float:
        return self._replay.run(work_factor=works, host_factor=hosts, gone=gone, event_ns=self._event_ns)

    def _waits(self, gap: Gap) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        """Return the calls in the outermost ops in which the host waits as it does before an idle time, and the factors
        of the host's time before each call without these ops. Outside of ops, the waiting calls alone go. In a loop of
        one op and a wait, the launches of the op go, too."""
        replay, cells, columns = self._replay, self._analysis.gap_cells, self._analysis.events[0]
        events = cells["wait"][self._analysis.gap_numbers == gap.number]
        waiting = replay.call_event[np.isin(replay.call_kind, self._waiting)]
        around, names = self._outermost(waiting), columns["name"]
        alike = np.isin(names[around], names[self._outermost(events[events >= 0])])
        ops = np.unique(around[alike])
        if not len(ops):
            return ops, np.ones(len(self._of_call))
        borders = columns["start"][ops][:, None] + np.stack([0 * ops, columns["duration"][ops]], axis=1) - replay.begin
        covered = np.append(0, np.cumsum(borders[:, 1] - borders[:, 0])).repeat(2)[1:-1]
        ends = replay.call_begin
        gaps = np.stack([ends - replay.call_gap.clip(1), ends, ends + 1])  # how much of these the ops cover
        at = np.interp(gaps, borders.ravel(), covered)
        within, left = at[2] > at[1], 1 - (at[1] - at[0]) / (gaps[1] - gaps[0])
        # What runs between two of these ops: in a loop, one op, the same in most rounds.
        known = replay.call_event[:-1] < len(names)  # the end of a thread is no event
        calls = np.flatnonzero(~within[:-1] & known)
        outer, rounds = self._outermost(replay.call_event[calls]), np.cumsum(within)[calls]
        first, times = np.unique(rounds[np.unique(outer, return_index=True)[1]], return_counts=True)
        single = np.isin(rounds, first[times == 1])
        kind, count = np.unique(names[outer[single]], return_counts=True)
        loops = single & (names[outer] == (kind[count.argmax()] if len(kind) else -1))
        turns = len(np.unique(rounds[loops]))
        if turns >= MANY * self._steps and turns >= MOSTLY * len(ops):
            within[calls[loops]], left[calls[loops]] = True, 0.0
        return np.flatnonzero(within), left

    def _outermost(self, events: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the outermost ops around events, or themselves."""
        columns, _, kinds, _ = self._analysis.events
        found, around, op = events.copy(), columns["parent"][events], kinds.index("op")
        while (inside := around >= 0).any():
            found = np.where(inside & (columns["kind"][around] == op), around, found)
            around = np.where(inside, columns["parent"][around], -1)
        return found


def _keys(of: Mapping[str, Any], places: Any) -> npt.NDArray[np.int64]:
    """Return the rows of works or cells; of those without an op, that of the kernel, below 0."""
    row, kernel = of["row"][places], of["kernel"][places]
    return np.asarray(np.where(row < 0, -2 - kernel, row), dtype=np.int64)
