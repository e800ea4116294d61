"""Which steps of a program ``flopscope run`` records: the first, later a few that have settled. All others are timed.

    start, warm-up            timed            5 steps        timed, to the end
    ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓|  |  |  |  |  |  |  |▓▓|▓▓|▓▓|▓▓|▓▓|  |  |  |  |  |  |

What was recorded at the start is kept until the later steps are there. Long steps that come again and again, as those
with an evaluation, are no part of it: one of each kind is recorded by itself. The processes of a distributed program
decide by the number of steps alone, so that all record the same, and no long one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

from flopscope._core import SteadyGrowth, StepTimes
from flopscope.record.profile import profile
from flopscope.results.head import LONG
from flopscope.support.process import available_memory, private_growth
from flopscope.support.statistics import median
from flopscope.support.units import memory_text


class Window(NamedTuple):
    """The part of a program to record: [begin, end) in steps or in seconds, counted from 0."""

    unit: str = ""
    """ "steps" or "seconds"; "": the whole program """
    begin: float = 0.0
    end: float = math.inf

    def __str__(self) -> str:
        return f"--{self.unit} {self.begin:g}:{'' if math.isinf(self.end) else f'{self.end:g}'}"


FIRST_STEPS, FIRST_TIME, FEW_STEPS, LONG_TIME = 10, 0.5, 3, 10.0
"""The first recording lasts for so many steps and s, or for a few long ones; one with fewer than these is replaced."""
LARGE, MOST = 48 << 20, 10
"""Bytes of torch's records, of about 120,000 ops, with which a recording ends before that: its end takes torch 1 s. And
times these, with which it ends amid a step."""
LATER_STEPS, LATER_TIME, SHARE = 5, 0.1, 0.05
"""Steps and s of the later recording, and the part of the time so far that it may cost."""
SETTLED, ALIKE, SURELY = 10, 0.1, 200
"""Steps that are compared with as many before them, by what share the medians may differ, and steps after which a
program is no longer waited for to settle."""
OF_RANKS = (FIRST_STEPS, 40, 40 + LATER_STEPS)
"""Numbers of steps at which the processes of a distributed program end the first recording, begin and end the next."""
NEVER = (1 << 63) - 1
"""The number of a step that does not come."""
AGAIN, SHORT, MORE = 1.0, 0.1, 4.0
"""s from the end of a recording without steps to the next, twice as long each time; the share of the time of the one
before that it must last to be kept; and times its size, if it turns out that something else grew."""
TRIES, KINDS = 2, 3
"""Recordings that give way to the next one because a long step came among the others; and kinds of long steps, each
LONG times as long as the one before, of which one is recorded."""
WEIGHTY, HALFWAY = 0.05, 2 / LONG
"""The part of all time that long steps must have for one to be recorded; and the share of LONG times the usual step
that it must last there: a wait is not slowed by being recorded."""
ENDED, OUTLASTED = 5.0, 4.0
"""s without a step, and times the time of all steps so far, after which those were a warm-up, as of a CUDA graph."""


class Kept(NamedTuple):
    """A recording, the times of its steps, and when it began and ended."""

    prof: Any
    times: list[float]
    begin: float
    end: float


class Windows:
    """Decides when recordings begin and end. ``of_ranks``: by the number of steps alone."""

    def __init__(self, of_ranks: bool = False, clock: Callable[[], float] = monotonic) -> None:
        self.times = StepTimes() if clock is monotonic else StepTimes(clock)
        self._clock = clock
        self.of_ranks = of_ranks
        self._count = 0
        self._began = self._since = math.nan  # of this one; when its first step, or the last one, ended
        self._first = self._latest = math.nan  # when the first step ended, and the latest
        # s that ending the later one takes and µs of a recorded step, by the first; µs of one that nothing recorded
        self._cost = self._slow = self._usual = math.nan
        self._due, self._wait = math.inf, AGAIN  # when the next one without steps begins, and after how long
        self._large, self._rate = float(LARGE), 0.0  # bytes of records in a recorded s
        self._tries = 0
        self._seen: list[int] = []  # the numbers of the latest long steps
        self.is_over = False
        """Steps are only timed from now on, but for a long one."""
        self.kept: Kept | None = None
        """The recording to be reported."""
        self.long: list[Kept] = []
        """Those of long steps, the shortest first."""
        self._replaced = 0  # steps of recordings that are not kept
        self.is_part = False  # a recording has ended before the program

    def begin(self) -> None:
        self._began, self._since = self._clock(), math.nan
        self.times.begin()

    def end(self, prof: Any, took: float, is_last: bool = False) -> None:
        """A recording has ended, which took so many s; is_last: with the program. Keep it, or the one before."""
        self.is_part |= not is_last
        now, before = self._clock(), self.kept
        found = Kept(prof, self.times.end(), self._began, now - took)
        steps = len(found.times)
        if self.is_over and not self.times.is_off:
            return self._end_long(found)
        if self._is_long(found.times) and self._tries < TRIES and not (is_last or self.of_ranks):
            self._tries, self._replaced, self._since = self._tries + 1, self._replaced + steps, now
            return
        known = 0 if before is None or self.have_steps_ended else len(before.times)
        long = before is None or now - self._began >= SHORT * (before.end - before.begin)
        if steps >= min(FEW_STEPS, known) and (steps or long):
            self.kept = found
            self._replaced += 0 if before is None else len(before.times)
        else:
            self._replaced += steps
        if steps and math.isnan(self._cost):
            self._cost = took * min(LATER_STEPS / steps, 1.0)
            self._slow = median(found.times[-SETTLED:])
        elif steps >= FEW_STEPS:
            self.is_over = True
            if self.times.kept and not self.of_ranks and not isinstance(prof, profile):  # of which one is passed on
                self._usual = median(self.times.bare())
                self.times.long_from = LONG * self._usual
        self._since = now
        self._due, self._wait = now + max(self._wait, took / SHARE), 2 * self._wait

    def give_up(self) -> None:
        """The program records itself: nothing is known of steps from now on."""
        self.is_over = self.times.is_off = True

    def step(self, count: int, nbytes: float) -> bool:
        """A step has ended. Return whether to begin or to end a recording.

        count: of the steps that have ended. nbytes: of the records, about.
        """
        self._count, self._latest = count, self._clock()
        if self.is_over:
            return self._seek_long(count)
        if math.isnan(self._first):
            self._first = self._latest
        self.times.step(count)
        if self.of_ranks:
            return self._count in OF_RANKS
        if not self.times.is_recording:
            return self._has_settled()
        if math.isnan(self._since):
            self._since = self._clock()
        lasted, steps = self._clock() - self._since, self.times.recorded_count
        self._rate = max(self._rate, nbytes / (self._latest - self._began))
        if self.kept is not None and len(self.kept.times) >= FEW_STEPS:
            if self._tries < TRIES and self._is_long([self.times.latest]):
                return True
            return steps >= LATER_STEPS and (lasted >= LATER_TIME or nbytes >= LARGE or self._tries > 0)
        if steps >= FEW_STEPS and (lasted >= LONG_TIME or nbytes >= LARGE):
            return True
        return (steps >= FIRST_STEPS and lasted >= FIRST_TIME) or (steps > 0 and nbytes >= MOST * LARGE)

    def look(self, nbytes: float, expects_steps: bool) -> bool:
        """Return whether to begin or to end a recording amid whatever runs. expects_steps: some may end soon."""
        if self.is_over or self.of_ranks:
            return False
        has_steps = not self.have_steps_ended and self._count > 0
        if not self.times.is_recording:
            return not has_steps and self._clock() >= self._due
        few = has_steps and self.times.recorded_count < FEW_STEPS  # or else there are enough of them
        return nbytes >= (MOST * LARGE if few or (expects_steps and not self._count) else self._large)

    @property
    def have_steps_ended(self) -> bool:
        """Whether what the program does has no steps any more."""
        if self.is_over or self.of_ranks or not self._count:
            return False
        return self._clock() - self._latest > max(ENDED, OUTLASTED * (self._latest - self._first))

    def was_nothing(self) -> None:
        """A recording has ended for its size, with few ops: data of the program has grown. The next may grow more."""
        self._large *= MORE
        self._due = 0.0

    def _has_settled(self) -> bool:
        """Return whether the steps have settled that are only timed, and a recording of some costs little."""
        if math.isnan(self._cost):
            return self.kept is not None  # no step was recorded, and this is the first
        times, count = self.times, self.times.kept
        if count < 2 * SETTLED:
            return False
        cost = self._cost + LATER_STEPS * max(self._slow - median(times.bare(0, SETTLED)), 0.0) / 1e6
        if self._clock() - self._since < cost / SHARE:
            return False
        before, last = (median(times.bare(count - back, count - back + SETTLED)) for back in (2 * SETTLED, SETTLED))
        return times.bare_count >= SURELY or abs(last - before) <= ALIKE * before

    # A long step ----------------------------------------------------------------------------------------------------

    def _is_long(self, times: Sequence[float], share: float = 1.0) -> bool:
        """Return whether one of some recorded steps is, or lasts this share of what long ones do."""
        return max(times, default=0.0) >= share * LONG * self._slow

    def _seek_long(self, count: int) -> bool:
        """A step has ended that was long, awaited or recorded. Return whether to begin or to end a recording.

        A long step is foreseen where twice as many steps came from one to the next. It is recorded with the one before
        and the one after, if that costs little.
        """
        times = self.times
        if count >= times.awaited:
            over = count > times.awaited + 2
            if over and not times.is_recording:  # none could begin
                times.awaited, times.long_from = NEVER, math.inf
            return times.is_recording == over
        slower = self._slow / self._usual
        self._seen = [*self._seen[-2:], count]
        periods = [later - before for before, later in pairwise(self._seen)]
        if len(periods) < 2 or periods[0] != periods[1]:
            return False
        took, mean = times.latest / 1e6, (self._latest - self._first) / count
        nbytes = self._rate * slower * took
        cost = (slower - 1) * took + nbytes / LARGE  # it takes torch 1 s to end a large one
        may_cost = SHARE * (self._latest - self._first)
        if took >= WEIGHTY * periods[0] * mean and nbytes <= LARGE and took <= LONG_TIME and cost <= may_cost:
            times.awaited = count + periods[0] - 2
        return False

    def _end_long(self, found: Kept) -> None:
        """Keep the recording of a long step, if it is that; then look for longer ones."""
        times, self._seen = self.times, []
        self._replaced += len(found.times)
        more = self._is_long(found.times, HALFWAY * times.long_from / LONG / self._usual)
        self.long += [found] if more else []
        longer = LONG * max(found.times) * self._usual / self._slow if more else math.inf
        times.awaited, times.long_from = NEVER, longer if len(self.long) < KINDS else math.inf

    def facts(self, began: float, kind: str, of: str, count: int) -> dict[str, Any] | None:
        """Return what is known of the program's steps, as RunSteps; None without a recording.

        began: when the program did. kind, of: what ends a step. count: of all steps. Those of a warm-up have no kind.
        """
        kept, times, replaced = self.kept, self.times, self._replaced
        if kept is None:
            return None
        if self.have_steps_ended:
            kind, of, times, replaced, kept = "", "", StepTimes(), 0, kept._replace(times=[])
        return {
            "kind": kind,
            "of": of,
            "steps": count,
            "bare": times.bare(),
            "bare_steps": times.bare_count,
            "replaced": replaced,
            "drained": times.drained,
            "recorded": median(kept.times) if kept.times else None,
            "recorded_from_s": kept.begin - began if self.is_part else None,
            "recorded_to_s": kept.end - began,
            "lasted_s": self._clock() - began,
            "slowest": times.slowest,
            "recorded_long": [max(one.times) for one in self.long],
        }


# How large a recording is ---------------------------------------------------------------------------------------------

HALF, AT_END = 0.5, 5.0
"""The share of the memory that was available at its start which it may take; what it takes while its results are
written, in multiples of what it takes while it runs."""
TORCHS_AT_END = 11.0
"""The same of torch's profiler: docs/running.md."""
AS_TORCHS = 3.0
"""Bytes that torch's profiler takes, of one of flopscope's: LARGE is as many launches."""


class Records:
    """What a profile that has just begun records. steady: s after which growth of a process is called steady."""

    def __init__(self, prof: Any, steady: float) -> None:
        self._prof, self._available = prof, available_memory()
        self._growth = None if isinstance(prof, profile) else SteadyGrowth(steady)
        self.nbytes = 0.0  # at the last look; of torch an estimate, or what it would be
        self.look()  # growth counts from here

    def look(self) -> str:
        """Return why it must end, as its end would take half of the memory that was available; "" if it need not."""
        core, growth = self._prof._core, self._growth
        if growth is not None:
            self.nbytes, factor = growth.look(monotonic(), private_growth()), TORCHS_AT_END
        else:
            self.nbytes, factor = 0.0 if core is None else AS_TORCHS * core.nbytes, AT_END / AS_TORCHS
        taken = factor * self.nbytes  # what is read again, and torch's own events
        if self._available is None or taken < HALF * self._available:
            return ""
        how = "" if growth is None else ", by the growth of this process"
        return (
            f"the recording would take about {memory_text(int(taken))} of memory at its end{how}, more than half of "
            f"the {memory_text(self._available)} that were free at its start"
        )
