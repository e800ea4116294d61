"""profile(): record which ops and kernels ran, their times and their work."""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from flopscope._core import Profiler, record_into
from flopscope.record.counters import (
    Counters,
    CountersWish,
    LateCounters,
    Stalls,
    check_counters,
    stop_stalls,
    try_stalls,
    why_no_counters,
)
from flopscope.record.steps import NO_ACCUMULATION, ProfilerAction, action_at
from flopscope.record.triton_launches import LAUNCHES
from flopscope.results.results import Results
from flopscope.support.capture import (
    TIMERS,
    ProfilerActivity,
    Recipe,
    Timer,
    activities_named,
    start_core,
    warn_of_losses,
)
from flopscope.support.hints import HINTS, TORCH_ON_CPU, Hints
from flopscope.support.package import warn_user

if TYPE_CHECKING:
    from typing_extensions import Self

    from flopscope.record.jax_modules import JaxModules
    from flopscope.record.stack_samples import StackSamples

# The profile in progress, under RUNNING, as a weak reference: if an interrupt in `with profile():` leaves no reference
# to a profile, it ends when it is collected. A dict is used because its setdefault() is atomic, whereas the end of
# `with lock:` may be interrupted before the lock is released.
RUNNING = "running"
_current: dict[str, weakref.ref[profile]] = {}

_NONE, _WARM_UP, _RECORD, _SAVE = ProfilerAction
Method = TypeVar("Method", bound=Callable[..., Any])


def running() -> profile | None:
    """Return the profile in progress, or None."""
    reference = _current.get(RUNNING)
    return None if reference is None else reference()


_background: Callable[[str], object] | None = None


def set_background(give_way: Callable[[str], object]) -> None:
    """Set the function that ends the recording of an unchanged program, given what takes its place."""
    global _background
    _background = give_way


def make_way(what: str) -> None:
    """End the recording of an unchanged program before ``what`` begins."""
    if _background is not None:
        _background(what)


def _forget(reference: weakref.ref[profile]) -> bool:
    """Allow another profile to run. Return False if this one is not running or another thread was faster."""
    return _current.get(RUNNING) is reference and _current.pop(RUNNING, None) is reference


def _ended_by_failure(method: Method) -> Method:
    """End the profile if the method raises or is interrupted; its last cycle stays readable, and another may start."""

    @functools.wraps(method)
    def guarded(self: profile, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except BaseException as problem:
            self._give_up(problem)
            raise

    return cast("Method", guarded)


class profile(Results):
    """A recording of what runs on all threads, in a ``with`` block or between ``start()`` and ``stop()``.

    The arguments and methods are those of torch.profiler.profile, so that it is a drop-in replacement:

    activities: a list of ``ProfilerActivity.CPU`` (ops, ranges, Python calls) and ``.CUDA`` (kernels, copies, API
        calls); torch's activities are accepted too. None means both, or only CPU if there is no GPU.
    schedule: a function that returns the action of a step number, such as the result of ``flopscope.schedule(…)``. By
        default everything is recorded. With a schedule, ``step()`` begins the next step, and each recorded step is an
        event "ProfilerStep#N".
    on_trace_ready: called with the profile at the end of each recorded cycle, even if the block ends before the cycle
        does. The results are those of this cycle until the next one begins to record. An exception in the handler ends
        the profile and propagates.
    record_shapes: record input shapes for the table.
    profile_memory: record allocations and deallocations of tensors.
    with_stack: record Python calls, for ``group_by_stack_n`` and ``export_stacks``.
    timer: the source of device times. "auto": CUPTI, or, with a warning, CUDA events around flopscope's own ops if
        CUPTI is unavailable; "cupti": CUPTI, or RuntimeError if it is unavailable; "event": CUDA events.
    record_api_calls: False excludes CUDA API calls, which reduces the overhead; kernels are then attributed to no op.

    counters: True also counts what the GPU did, through CUPTI's PM sampling, at next to no cost: DRAM traffic,
        activity of multiprocessors and tensor cores, L2, NVLink and PCIe, as columns of the table and in
        ``counter_timeline()``. Where counters are unavailable, a warning says why, and the profile has none;
        "require" raises RuntimeError instead.
    counter_interval_us: µs between samples, 1 to 1e6. None: 2.5 µs for 0.1 s; if the profile goes on, 100 µs and more,
        with windows of 2.5 µs and pauses in between. 100: all of a profile of any length.

    stalls: True samples at which lines of kernels the warps of a GPU wait, and for what, for ``stalls()``. It slows a
        program by a sixth or so. CUPTI records no kernels meanwhile, so the profile has none, nor counters.

    sample_stacks: True also samples where the Python threads are, every one to ten milliseconds, at less than 2 % of
        the time: ``lines()`` and ``summary()`` show the lines that took the time, and those that a device waited for.

    Accepted for compatibility with torch and ignored: ``with_flops`` (FLOPs are always counted), ``with_modules``,
    ``experimental_config``, ``post_processing_timeout_s`` and, without a schedule, ``acc_events``. Unsupported, and
    rejected with ValueError: ``acc_events`` with a schedule, ``execution_trace_observer``, ``use_cuda``,
    ``custom_trace_id_callback``. For the ops of other libraries, including torch, the profile records their work on the
    GPU and their CUDA API calls, but no "aten::" rows and no ranges of ``torch.profiler.record_function``; use
    ``flopscope.record_function`` to name parts of the program.

    Only one profile can run at a time; starting another raises RuntimeError. A stopped profile may be started again: it
    makes a new recording and continues its step numbers. An exception in the block ends the profile, and its results
    stay readable; so does an exception, including Ctrl-C, that interrupts start(), step() or stop(). A profile without
    references ends. In a forked child process the profile records nothing, ``step()`` and ``stop()`` do nothing, and
    the results belong to the parent.
    """

    _hints: Hints | None = None

    @property
    def hints(self) -> Hints:
        """What to record so that more is known."""
        empty = "torch" in sys.modules and not len(self)
        return self._hints or (HINTS._replace(said=(TORCH_ON_CPU,)) if empty else HINTS)

    @hints.setter
    def hints(self, hints: Hints) -> None:
        self._hints = hints

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: object = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        timer: Timer = "auto",
        record_api_calls: bool = True,
        counters: CountersWish = False,
        counter_interval_us: float | None = None,
        sample_stacks: bool = False,
        stalls: bool = False,
    ) -> None:
        super().__init__()
        _refuse(acc_events and schedule is not None, NO_ACCUMULATION)
        _refuse(execution_trace_observer is not None, _NO_OBSERVER)
        _refuse(use_cuda is not None, f"use_cuda={use_cuda}: {_NO_USE_CUDA}")
        _refuse(timer not in TIMERS, f"timer must be one of {', '.join(map(repr, TIMERS))}, not {timer!r}")
        _refuse(custom_trace_id_callback is not None, "custom_trace_id_callback is unsupported: trace ids are random")
        for name, function in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, not {function!r}")
        interval_ns = check_counters(counters, counter_interval_us)
        self.activities = activities_named(activities)
        _refuse(counters == "require" and ProfilerActivity.CUDA not in self.activities, _NO_CUDA_TO_COUNT)
        _refuse(timer == "cupti" and ProfilerActivity.CUDA not in self.activities, _NO_CUDA_TO_TIME)
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules = with_flops, with_modules
        self.timer, self.record_api_calls = timer, record_api_calls
        self.counters, self._interval_ns = counters, interval_ns
        _refuse(stalls and (counters or timer == "cupti"), _STALLS_ALONE)
        self._counters: Counters | None = None  # that count now
        self._wants_stalls = stalls
        self._sampling = False  # instructions, now
        self._stalls: Stalls | None = None
        self._counters_refused = False
        self.sample_stacks = sample_stacks
        self._stacks: StackSamples | None = None  # that are taken now
        self.step_num = 0
        """Number of the current step, from 0; each ``step()`` increments it."""
        self.current_action = self._action_of(0)
        """The action of the current step."""
        self._recipe = Recipe(
            activities=self.activities - {ProfilerActivity.CUDA} if stalls else self.activities,
            asked_for_cuda=activities is not None,
            timer=timer,
            profile_memory=profile_memory,
            with_stack=with_stack,
            api_calls=record_api_calls,
        )
        self._live: Profiler | None = None  # the recorder that is running, for results or to warm up
        self._step: int | None = None  # the event of the current step
        self._counted_from = 0
        self._jax: JaxModules | None = None  # what is known of JAX, if it is in use
        self._state = "not started"

    # Running ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the profile, at step 0 or where ``stop()`` ended. Raise RuntimeError if a profile is running."""
        if not self._start():
            which = "this profile is" if running() is self else "a profile is"
            raise RuntimeError(f"{which} in progress already; stop it before starting another")

    def stop(self) -> None:
        """Stop the profile: wait for the devices, save what was recorded and call on_trace_ready.

        Raise RuntimeError if the profile is not running or a device failed.
        """
        if self._state == "forked":
            return
        if not self._stop():
            raise RuntimeError("this profile is not running: it was never started or was already stopped")

    def step(self) -> None:
        """End the current step and begin the next. Raise RuntimeError if the profile is not running.

        If the step ends a cycle of the schedule, call on_trace_ready. Without a schedule, only ``step_num`` changes.
        """
        if self._state == "forked":
            return
        if running() is not self:
            raise RuntimeError(f"step() of a profile that is not running: it is {self._state}")
        self._step_on(self._action_of(self.step_num + 1))

    def __enter__(self) -> Self:
        self.start()
        return self

    @_ended_by_failure
    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def __del__(self) -> None:
        if getattr(self, "_live", None) is not None:  # interrupted, or never stopped
            with suppress(RuntimeError):
                self._save()

    @_ended_by_failure
    def _start(self) -> bool:
        """Start, and return whether no other profile was running."""
        make_way("flopscope.profile")
        reference = weakref.ref(self, _forget)
        if _current.setdefault(RUNNING, reference) is not reference:
            return False
        self._state = "running"
        self._transit(ProfilerAction.NONE, self.current_action)
        self._begin_step()
        return True

    @_ended_by_failure
    def _step_on(self, action: ProfilerAction) -> None:
        self._end_step()
        before, self.current_action = self.current_action, action
        self.step_num += 1
        self._transit(before, action)
        self._begin_step()

    @_ended_by_failure
    def _stop(self) -> bool:
        """Stop, and return whether the profile was running."""
        if not self._release():  # first, because on_trace_ready may start another profile
            return False
        self._state = "stopped"
        self._end_step()
        self._transit(self.current_action, None)
        return True

    def _release(self) -> bool:
        reference = _current.get(RUNNING)
        return reference is not None and reference() is self and _forget(reference)

    def _give_up(self, problem: BaseException) -> None:
        if self._release() or self._live is not None:
            self._state = f"stopped, by {type(problem).__name__} at step {self.step_num}"
            self._save()

    def _action_of(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else action_at(self.schedule, step)

    def _transit(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        """Do what lies between the action of one step and that of the next, None: the end of the profile."""
        if before in (_WARM_UP, _RECORD) and after in (_NONE, _WARM_UP) and before is not after:
            warn_user(f"Incorrect schedule: {before.name} followed by {after.name}")
        records = after in (_RECORD, _SAVE)
        if before is _WARM_UP and records:
            self._record(restarts=True)
        elif before is after is _WARM_UP or (before is _RECORD and records):
            return  # it goes on
        else:
            hands_over = before is _SAVE or (before is _RECORD and after is None)
            # Without a recorder, on_trace_ready has stopped the profile, which called it for the results.
            if before is not _NONE and not (hands_over and self._live is None):
                self._save()
                if hands_over and self.on_trace_ready is not None:
                    self.on_trace_ready(self)
            if records:
                self._record()
            elif after is _WARM_UP:
                self._warm_up()

    # Actions of transitions -------------------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        if running() is self and self._live is None:  # on_trace_ready may have stopped the profile
            self._trace_id = os.urandom(16).hex().upper()
            if "jax" in sys.modules:
                from flopscope.record.jax_modules import begin

                self._jax = begin(running, self._jax)
            _, self._timing = start_core(self._recipe, functools.partial(setattr, self, "_live"))

    def _record(self, restarts: bool = False) -> None:
        """Record from now on. restarts: what was recorded so far is a warm-up."""
        self._warm_up()
        self._sample()
        if (self._count() or restarts) and self._live is not None:
            self._live.restart()  # starting the counters is not part of the profile
        self._keep(self._live)

    def _count(self) -> bool:
        """Start the counters, if they are wanted, and return whether they count."""
        if self._wants_stalls and self._live is not None and not self._sampling:
            self._sampling = try_stalls(warn_user)
            return self._sampling
        if not self.counters or self._live is None or self._counters is not None:
            return False
        kind = LateCounters if self._recipe.early else Counters
        counters = kind(self.counters, self._interval_ns, begins_live=self._is_of_program)
        if self._timing != "cupti":
            self._counters_refused = True
            why = None if self._recipe.early else why_no_counters()
            return counters.refuse(why or "CUPTI records no kernels to count for")
        self._counters = counters if counters.start() else None
        self._counted_from = time.monotonic_ns()
        return self._counters is not None

    def stalls(self) -> Stalls:
        """Return what the warps of kernels waited for, and at which lines. RuntimeError: that was not sampled."""
        if self._stalls is None:
            raise RuntimeError("no instructions were sampled: profile(stalls=True) does, on a GPU in use at its start")
        return self._stalls

    def _sample(self) -> None:
        if self.sample_stacks and self._live is not None and self._stacks is None:
            from flopscope.record.stack_samples import StackSamples

            stacks = StackSamples()
            self._stacks = stacks if stacks.start() else None

    def _keep(self, core: Profiler | None) -> None:
        """Make the later events of a recorder, including ranges, the results."""
        if core is not None:
            self._core = core.store
            record_into(core)
            LAUNCHES.begin(self)

    def _save(self) -> None:
        """Stop the recorder, or finish stopping it after an interrupt. The events of a warm-up are not results."""
        core, counters, stacks = self._live, self._counters, self._stacks
        sampling, self._sampling = self._sampling, False
        if sampling:
            self._stalls = stop_stalls(warn_user)
        if core is not None:
            try:
                if stacks is not None:
                    stacks.stop()
                if core.running:
                    record_into(None)
                    LAUNCHES.end(self)
                    if counters is not None:
                        counters.stop()
                    core.stop()
            finally:
                if not core.running:
                    self._live = self._counters = self._stacks = None
            if counters is not None:
                counters.pour(core.store, self._counted_from)
                self._energy, self._counters_refused = counters.energy, counters.refused
            if stacks is not None:
                stacks.pour(core.store)
            if "jax" in sys.modules:
                from flopscope.record.jax_modules import tie_to_jax

                self.hlo = tie_to_jax(core.store, self._jax)
                self.with_stack = self.with_stack or bool(self.hlo.get("instructions"))
            warn_of_losses(core)

    def _begin_step(self) -> None:
        if self.schedule is not None and self._live is not None and self._live.store is self._core:
            self._step = self._live.begin_range(f"ProfilerStep#{self.step_num}", True)

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None and self._live is not None:
            self._live.end_range(step)

    def _why_nothing(self) -> str:
        if self._state == "forked":
            return "this is the child of a fork, and the profile belongs to its parent"
        if self._state == "not started":
            return "the profile was not started; use it in a `with` block, or call start() and stop()"
        return f"the schedule has recorded no step up to step {self.step_num}; call step() at the end of each step"

    def __repr__(self) -> str:
        return f"<flopscope.profile: {self._state}, {len(self)} events>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a profile cannot be copied or pickled; its results can: key_averages()")


_NO_OBSERVER = "execution_trace_observer is unsupported; record execution traces with torch.profiler.profile"
_NO_USE_CUDA = "select what to record by activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_NO_CUDA_TO_TIME = 'timer="cupti" measures CUDA work; add ProfilerActivity.CUDA to the activities'
_STALLS_ALONE = 'stalls=True excludes counters=True and timer="cupti": CUPTI samples instructions alone'
_NO_CUDA_TO_COUNT = 'counters="require" counts CUDA work; add ProfilerActivity.CUDA to the activities'


def _refuse(wrong: object, message: str) -> None:
    if wrong:
        raise ValueError(message)


def _forget_in_child() -> None:
    """Leave the running profile to the parent process, which continues it."""
    if (prof := running()) is not None:
        record_into(None)
        LAUNCHES.end(prof)
        prof._live = prof._core = prof._counters = None
        prof._state = "forked"
    _current.clear()


os.register_at_fork(after_in_child=_forget_in_child)
