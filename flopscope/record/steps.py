"""The steps of the program that ``flopscope run`` profiles: those it marks, those of torch's optimizers, or else the
calls of the module or the jitted function that it repeats. Schedules say which steps a profile records, as in
torch.profiler.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flopscope.support.imports import replace
from flopscope.support.package import warn_user

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
        """What ends a step: "optimizer", "forward", "jax" or "flopscope.step()"."""
        self.finders: list[Forward | Jitted] = []
        """Of passes, once torch or JAX is imported."""
        self._ended = ended
        self._expected = expected
        self.expects = False
        """Whether the program has created an optimizer."""
        self._marks = False  # the program calls step()
        self._depth = 0  # of optimizers whose step() calls that of another
        self._last = 0  # id of the optimizer whose step() ends a step; at first, of the first one
        self._in_turn = False  # it is known to be the last of several
        self._since: Counter[int] = Counter()  # calls of step() of others since then, by id, the latest last

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

    def passed(self, kind: str) -> None:
        """End a pass of a program that marks nothing."""
        if self.kind in ("", kind):
            self._end(kind)

    @property
    def name(self) -> str:
        """What is called in each pass; "" if that does not end steps."""
        return next((finder.name for finder in self.finders if finder.kind == self.kind), "")

    @property
    def next_look(self) -> float:
        """In how many s to look for passes next; 0: there is nothing to find."""
        return CLOSE if any(finder.is_close for finder in self.finders) else INTERVAL if self.finders else 0.0

    def look(self) -> None:
        """See what the program calls most: passes, if it marks no steps."""
        for finder in () if self.expects or self.count else self.finders:
            finder.look()

    def _end(self, kind: str) -> None:
        self.count, self.kind = self.count + 1, kind
        self._ended(self.count)

    def count_optimizers(self, torch: Any) -> None:
        """Count the steps of torch's optimizers that are created from now on. The creation of the first is the sign of
        a step to come. What is captured into a CUDA graph is not a step yet. Of several in turn, as those of two models
        or one for each parameter, the last one ends a step.

        A step ends after its range "Optimizer.step#…", which a global post hook of torch's would still be inside.
        """
        optimizer = torch.optim.Optimizer
        hook_of = optimizer.profile_hook_step

        @functools.wraps(hook_of)
        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            hooked, self.expects = hook_of(function), True
            for finder in self.finders:
                finder.leave()
            self._expected()

            @functools.wraps(function)
            def wrapper(*arguments: Any, **options: Any) -> Any:
                self._depth += 1
                try:
                    result = hooked(*arguments, **options)
                finally:
                    self._depth -= 1
                self._optimized(id(arguments[0]) if arguments else 0, torch.cuda)
                return result

            return wrapper

        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def _optimized(self, of: int, cuda: Any) -> None:
        captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
        if self._depth == 0 and not self._marks and not captured and self._ends(of):
            self._end("optimizer")

    def _ends(self, of: int) -> bool:
        """Return whether the step() of an optimizer ends a step of the program."""
        others = self._since
        self._last = self._last or of
        if of != self._last:
            others[of] = calls = others.pop(of, 0) + 1
            if calls < ALONE:
                return False
            self._last = of  # the one before steps no more
        elif others and not self._in_turn:  # from here on, the last of a turn
            self._last, self._in_turn = next(reversed(others)), True
            others.clear()
            return False
        others.clear()
        return True

    _optimized._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile leaves it out


ALONE = 32
"""Calls of step() of an optimizer without one of that which ended the steps, from which on it ends them."""

# Passes of a program that marks no steps ------------------------------------------------------------------------------

LEAST, MOST_CALLS, SEARCHED = 3, 0.5, 50
"""Looks at which a module was called, and its share of those at which any was, from which on its calls are counted; and
looks in quick succession until then."""
REPEATS = 3
"""The call of it with which it is said to repeat."""
INTERVAL, CLOSE = 0.02, 0.003
"""s from one look to the next, and where a module was called that may repeat."""


class Forward:
    """Finds the module by looking at what the main thread calls, and calls ``passed`` from the third call on."""

    kind = "forward"

    def __init__(self, torch: Any, passed: Callable[[str], object]) -> None:
        self._torch, self._passed = torch, passed
        self._seen: Counter[int] = Counter()
        self._modules: dict[int, weakref.ref[Any]] = {}
        self._watched = 0  # its id
        self.leave: Callable[[], object] = bool
        """Counts no longer."""
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
            self.leave()
            self._watched = most
            self._watch(self._modules[most]())

    def _watch(self, module: Any) -> None:
        """Count the calls of a module, at a cost of half a µs each."""
        kind, calls = type(module), 0
        forward = getattr(kind, "forward", None)
        if module is None or forward is None or "forward" in vars(module):  # compiled, or changed by the program
            return
        compiles, target = self._torch.compiler.is_compiling, weakref.ref(module)

        @functools.wraps(forward)
        def counted(of: Any, *arguments: Any, **options: Any) -> Any:
            result = forward(of, *arguments, **options)
            if not compiles() and of is target():
                nonlocal calls
                calls += 1
                if calls >= REPEATS:
                    self.name = kind.__name__
                    self._passed(self.kind)
            return result

        self.leave = replace(kind, "forward", counted)


class Jitted:
    """Finds the function that the program has given to ``jax.jit`` and that takes the most time, and calls ``passed``
    after each of its calls from then on, but for those that compile it.

    JAX calls a hook after each call of what is compiled, for its check of NaN; where it has none, or needs it for
    that, there are no passes. As JAX returns before the devices end, the time of a function is that around its calls.
    Of those with half of the most time, that which is called least repeats with the loop.
    """

    kind, is_close = "jax", False

    def __init__(self, passed: Callable[[str], object]) -> None:
        self._passed = passed
        self._seen: dict[int, _Function] = {}  # by id
        self._before, self._calls, self._looked, self._looks = _Function(""), 0, 0, 0
        self._last = math.nan  # when a function of the program returned
        self.name = ""
        """The function, once it is found."""
        self._hook: Any = getattr(sys.modules.get("jax._src.api"), "_post_hook_state", None)
        self._hooked: Callable[..., None] = self._called
        if self._hook is not None and self._hook.value is None:
            self._hook.set_global(self._hooked)

    def leave(self) -> None:
        if self._hook is not None and self._hook.value == self._hooked:
            self._hook.set_global(None)

    def look(self) -> None:
        """See which function takes the most time, and count its calls once that has been so for some looks."""
        calls = self._calls
        if self.name or calls == self._looked:
            return
        self._looked = calls
        found = [(key, one) for key, one in [*self._seen.items()] if one.calls > 0 and 2 * one.last >= calls]
        most = max(one.time for _, one in found)
        key, chosen = min((pair for pair in found if pair[1].time >= most / 2), key=lambda pair: pair[1].calls)
        if chosen.calls < REPEATS:
            return
        self._looks, chosen.looks = self._looks + 1, chosen.looks + 1
        if chosen.looks >= max(LEAST, MOST_CALLS * self._looks) and self._hook.value == self._hooked:
            self.name, passed, kind = chosen.name, self._passed, self.kind

            def counted(function: Any, arguments: Any, options: Any, result: Any) -> None:
                if id(function) == key:
                    passed(kind)

            self._hooked = counted
            self._hook.set_global(counted)

    def _called(self, function: Any, arguments: Any, options: Any, result: Any) -> None:
        one = self._seen.get(id(function))
        if one is None:
            ours = str(getattr(function, "__module__", "jax")).partition(".")[0] not in ("jax", "jaxlib")
            one = self._seen[id(function)] = _Function(getattr(function, "__name__", "function") if ours else "")
        if one.name:  # else one of JAX's own
            now = time.monotonic()
            around = now - self._last if self._calls else 0.0
            self._before.time += around
            one.time += around
            self._calls += 1
            one.calls, one.last = one.calls + 1, self._calls
            self._before, self._last = one, now


@dataclass
class _Function:
    """A compiled function: its calls, the latest as which of all; s around them; looks at which it was the one."""

    name: str
    calls: int = 0
    last: int = 0
    time: float = 0.0
    looks: int = 0


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
