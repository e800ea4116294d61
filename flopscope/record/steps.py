"""The steps of the program that ``flopscope run`` profiles: those it marks, those of torch's optimizers, or else the
calls of the module that it calls most; and which of them it records: the first, later a few that have settled. All
others are timed.

    start, warm-up            timed            5 steps        timed, to the end
    ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓|  |  |  |  |  |  |  |▓▓|▓▓|▓▓|▓▓|▓▓|  |  |  |  |  |  |

What was recorded at the start is kept until the later steps are there. The processes of a distributed program decide
by the number of steps alone, so that all record the same.

Schedules say which steps a profile records, as in torch.profiler.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from enum import Enum
from time import monotonic
from typing import Any, NamedTuple

from flopscope._core import StepTimes
from flopscope.support.package import warn_user
from flopscope.support.statistics import median


class Window(NamedTuple):
    """The part of a program to record: [begin, end) in steps or in seconds, counted from 0."""

    unit: str = ""
    """ "steps" or "seconds"; "": the whole program """
    begin: float = 0.0
    end: float = math.inf

    def __str__(self) -> str:
        return f"--{self.unit} {self.begin:g}:{'' if math.isinf(self.end) else f'{self.end:g}'}"


_counter: StepCounter | None = None


def step() -> None:
    """Mark the end of a step of the program, for ``flopscope run``; without it, do nothing.

    Call it at the end of each iteration of the program's main loop. Without such calls, a step ends with each
    ``step()`` of a torch optimizer; the first call of this function replaces those.
    """
    if _counter is not None:
        _counter.marked()


class StepCounter:
    """The number of completed steps, and functions that are called: with it when a step ends, and at the first sign of
    a step to come."""

    def __init__(self, ended: Callable[[int], object], expected: Callable[[], object]) -> None:
        self.count = 0
        self.kind = ""
        """What ends a step: "optimizer", "forward" or "flopscope.step()"."""
        self._ended = ended
        self._expected = expected
        self._marks = False  # the program calls step()
        self._depth = 0  # of optimizers whose step() calls that of another

    def listen(self) -> None:
        """Count the calls of ``step()`` from now on."""
        global _counter
        _counter = self

    def leave(self) -> None:
        """Ignore all further steps."""
        global _counter
        if _counter is self:
            _counter = None
        self._marks = True
        self._ended = self._expected = bool

    def marked(self) -> None:
        """End a step that the program marks."""
        if not self._marks:
            self._marks = True
            self.count = 0  # without the optimizer's steps of the same iteration
        self._end("flopscope.step()")

    def passed(self) -> None:
        """End a pass of a program that marks nothing."""
        if self.kind in ("", "forward"):
            self._end("forward")

    def _end(self, kind: str) -> None:
        self.count, self.kind = self.count + 1, kind
        self._ended(self.count)

    def count_optimizers(self, torch: Any) -> None:
        """Count the steps of torch's optimizers that are created from now on. The creation of the first is the sign of
        a step to come. What is captured into a CUDA graph is not a step yet.

        A step ends after its range "Optimizer.step#…", which a global post hook of torch's would still be inside.
        """
        optimizer = torch.optim.Optimizer
        hook_of = optimizer.profile_hook_step

        @functools.wraps(hook_of)
        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            hooked = hook_of(function)
            self._expected()

            @functools.wraps(function)
            def wrapper(*arguments: Any, **options: Any) -> Any:
                self._depth += 1
                try:
                    result = hooked(*arguments, **options)
                finally:
                    self._depth -= 1
                self._optimized(torch.cuda)
                return result

            return wrapper

        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def _optimized(self, cuda: Any) -> None:
        captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
        if self._depth == 0 and not self._marks and not captured:
            self._end("optimizer")

    _optimized._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile leaves it out


# Passes of a program that marks no steps ------------------------------------------------------------------------------

LEAST, MOST_CALLS, SEARCHED = 3, 0.5, 50
"""Looks at which a module was called, and its share of those at which any was, from which on its calls are counted; and
looks in quick succession until then."""
REPEATS = 3
"""The call of it with which it is said to repeat."""


class Forward:
    """Finds the module by looking at what the main thread calls, and calls ``passed`` from the third call on."""

    def __init__(self, torch: Any, passed: Callable[[], object]) -> None:
        self._torch, self._passed = torch, passed
        self._seen: Counter[int] = Counter()
        self._modules: dict[int, weakref.ref[Any]] = {}
        self._watched = 0  # its id
        self._restore: Callable[[], object] = bool
        self.name = ""
        """The class of the module, once it repeats."""

    @property
    def is_close(self) -> bool:
        """Whether some module was called, but none is counted: each further look leaves fewer passes uncounted."""
        return bool(self._seen) and not self._watched and self._seen.total() < SEARCHED

    def look(self) -> None:
        """See which module the main thread calls, and count the calls of that which was seen most."""
        code = self._torch.nn.Module._call_impl.__code__
        frame, outermost = sys._current_frames().get(threading.main_thread().ident or 0), None
        while frame is not None:
            outermost = frame if frame.f_code is code else outermost
            frame = frame.f_back
        module = None if outermost is None else outermost.f_locals.get("self")
        if module is None:
            return
        self._seen[id(module)] += 1
        self._modules[id(module)] = weakref.ref(module)
        (most, count), *_ = self._seen.most_common(1)
        if most != self._watched and count >= max(LEAST, MOST_CALLS * self._seen.total()):
            self._restore()
            self._watched = most
            self._watch(self._modules[most]())

    def _watch(self, module: Any) -> None:
        """Count the calls of a module, at a cost of half a µs each."""
        kind, calls = type(module), 0
        forward = getattr(kind, "forward", None)
        if module is None or forward is None or "forward" in vars(module):  # compiled, or changed by the program
            return
        compiles, target, own = self._torch.compiler.is_compiling, weakref.ref(module), vars(kind).get("forward")

        @functools.wraps(forward)
        def counted(of: Any, *arguments: Any, **options: Any) -> Any:
            result = forward(of, *arguments, **options)
            if not compiles() and of is target():
                nonlocal calls
                calls += 1
                if calls >= REPEATS:
                    self.name = kind.__name__
                    self._passed()
            return result

        def restore() -> None:
            if vars(kind).get("forward") is counted:
                if own is None:
                    del kind.forward
                else:
                    kind.forward = own

        kind.forward, self._restore = counted, restore

    def leave(self) -> None:
        """Count no longer."""
        self._restore()
        self._restore = bool


# Which steps are recorded ---------------------------------------------------------------------------------------------


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
AGAIN, SHORT, MORE = 1.0, 0.1, 4.0
"""s from the end of a recording without steps to the next, twice as long each time; the share of the time of the one
before that it must last to be kept; and times its size, if it turns out that something else grew."""
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
        self._of_ranks = of_ranks
        self._count = 0
        self._began = self._since = math.nan  # of this one; when its first step, or the last one, ended
        self._first = self._latest = math.nan  # when the first step ended, and the latest
        self._cost = self._slow = math.nan  # s that ending the later one takes, µs of a recorded step; by the first
        self._due, self._wait = math.inf, AGAIN  # when the next one without steps begins, and after how long
        self._large = float(LARGE)
        self.is_over = False
        """Steps are only timed from now on."""
        self.kept: Kept | None = None
        """The recording to be reported."""
        self._replaced = 0  # steps of recordings that are not kept
        self.is_part = False  # a recording has ended before the program

    def begin(self) -> None:
        """A recording has begun."""
        self._began, self._since = self._clock(), math.nan
        self.times.begin()

    def end(self, prof: Any, took: float, is_last: bool = False) -> None:
        """A recording has ended, which took so many s; is_last: with the program. Keep it, or the one before."""
        self.is_part |= not is_last
        now, before = self._clock(), self.kept
        found = Kept(prof, self.times.end(), self._began, now - took)
        steps = len(found.times)
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
        if math.isnan(self._first):
            self._first = self._latest
        self.times.step(count)
        if self._of_ranks:
            return self._count in OF_RANKS
        if not self.times.is_recording:
            return self._has_settled()
        if math.isnan(self._since):
            self._since = self._clock()
        lasted, steps = self._clock() - self._since, self.times.recorded_count
        if self.kept is not None and len(self.kept.times) >= FEW_STEPS:
            return steps >= LATER_STEPS and (lasted >= LATER_TIME or nbytes >= LARGE)
        if steps >= FEW_STEPS and (lasted >= LONG_TIME or nbytes >= LARGE):
            return True
        return (steps >= FIRST_STEPS and lasted >= FIRST_TIME) or (steps > 0 and nbytes >= MOST * LARGE)

    def look(self, nbytes: float, expects_steps: bool) -> bool:
        """Return whether to begin or to end a recording amid whatever runs. expects_steps: some may end soon."""
        if self.is_over or self._of_ranks:
            return False
        has_steps = not self.have_steps_ended and self._count > 0
        if not self.times.is_recording:
            return not has_steps and self._clock() >= self._due
        few = has_steps and self.times.recorded_count < FEW_STEPS  # or else there are enough of them
        return nbytes >= (MOST * LARGE if few or (expects_steps and not self._count) else self._large)

    @property
    def have_steps_ended(self) -> bool:
        """Whether what the program does has no steps any more."""
        if self.is_over or self._of_ranks or not self._count:
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

    def facts(self, began: float, kind: str, of: str, count: int) -> dict[str, Any] | None:
        """Return what is known of the program's steps, as RunSteps; None if torch was not recorded.

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
        }


# Schedules of profiles, as in torch.profiler --------------------------------------------------------------------------

NO_ACCUMULATION = (
    "acc_events=True is unsupported with a schedule, because each cycle has its own events; collect key_averages() in "
    "on_trace_ready, or profile without a schedule"
)


class ProfilerAction(Enum):
    """The action of a profile during one step."""

    NONE = 0
    """nothing"""
    WARMUP = 1
    """record and discard, so that the cost of starting to record is not part of the results"""
    RECORD = 2
    """record"""
    RECORD_AND_SAVE = 3
    """record; at the end of the step, which ends a cycle, deliver the results"""

    __hash__ = object.__hash__  # Enum's is a Python function, which a profile with stacks would record at each step


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a schedule for ``profile()``, with the same meaning as torch.profiler.schedule.

    After ``skip_first`` steps come cycles of ``wait`` steps of NONE, ``warmup`` of WARMUP, ``active - 1`` of RECORD and
    one of RECORD_AND_SAVE: ``repeat`` cycles, or unlimited cycles for 0. If ``skip_first_wait`` is not 0, the first
    cycle has no wait.

    The schedule is a function of the step number, from 0. Raise TypeError for arguments that are not integers, and
    ValueError for ``active`` < 1, another argument < 0, or a step < 0. Warn if ``warmup`` is 0, because the first
    events of a cycle are then slow.
    """
    wait, warmup, active = _integer("wait", wait), _integer("warmup", warmup), _integer("active", active)
    repeat, skip_first = _integer("repeat", repeat), _integer("skip_first", skip_first)
    ahead = wait if _integer("skip_first_wait", skip_first_wait) else 0
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(
            f"invalid schedule: wait={wait} (at least 0), warmup={warmup} (at least 0), active={active} (at least 1), "
            f"repeat={repeat} (at least 0), skip_first={skip_first} (at least 0)"
        )
    if warmup == 0:
        warn_user("Profiler won't be using warmup, this can skew profiler results")
    cycle = wait + warmup + active

    def action_of(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"steps are numbered from 0; there is no step {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        done, at = divmod(step - skip_first + ahead, cycle)
        if (repeat and done >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action_of


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} of a schedule must be a number of steps, not {value!r}") from None


def action_at(plan: Callable[[int], Any], step: int) -> ProfilerAction:
    """Return the action of a step in a schedule of flopscope, of torch or of the user.

    Raise TypeError if the schedule returns something other than an action, ValueError for an unknown action.
    """
    action = plan(step)
    if isinstance(action, ProfilerAction):
        return action
    name = getattr(action, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"the schedule returned {action!r} for step {step}, which is not a ProfilerAction")
    if name not in ProfilerAction.__members__:
        actions = ", ".join(ProfilerAction.__members__)
        raise ValueError(f"the schedule returned {name} for step {step}; it must return one of {actions}")
    return ProfilerAction[name]
