"""profile(): what ran, for how long, and what it was worth."""

from __future__ import annotations

import functools
import os
import secrets
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, TypeVar, cast

from ._core import Profiler, record_into
from .capture import TIMERS, Recipe, Timer, start_core, warn_of_losses, warn_user
from .results import Results
from .schedule import ProfilerAction, ProfilerActivity, action_at, activities_named

__all__ = ["profile"]

# The profile in progress, under RUNNING, by a weak reference: one that an interrupt in `with profile():` left nobody to
# stop ends when it is collected. One dict, for its setdefault() is atomic, where the end of `with lock:` may be
# interrupted before the lock is released.
RUNNING = "running"
_current: dict[str, weakref.ref[profile]] = {}

Method = TypeVar("Method", bound=Callable[..., Any])


def running() -> profile | None:
    """The profile in progress."""
    held = _current.get(RUNNING)
    return None if held is None else held()


def _forget(held: weakref.ref[profile]) -> bool:
    """Let another profile run. False where this one does not, or where another thread has been faster."""
    return _current.get(RUNNING) is held and _current.pop(RUNNING, None) is held


def _ended_by_failure(method: Method) -> Method:
    """What fails, an interrupt too, ends the profile: its last cycle stays readable and another profile may start."""

    @functools.wraps(method)
    def guarded(self: profile, *given: Any) -> Any:
        try:
            return method(self, *given)
        except BaseException as problem:
            self._give_up(problem)
            raise

    return cast("Method", guarded)


class profile(Results):
    """Record what runs, on all threads, while the ``with`` block runs or between ``start()`` and ``stop()``.

    The arguments and methods are torch.profiler.profile's, so that it can take its place:

    activities: of ``ProfilerActivity.CPU`` (ops, ranges, Python calls) and ``.CUDA`` (kernels, copies, API calls);
        torch's own are taken too. None: both, as far as there is a GPU.
    schedule: a function of the step's number that says what to do, as ``flopscope.schedule(…)`` makes it. Without, all
        is recorded. With one, ``step()`` goes on to the next step, and each recorded step is an event "ProfilerStep#N".
    on_trace_ready: called with the profile at the end of each recorded cycle, also of one that leaving the block cuts
        short. What the profile gives is of that cycle then, and until the next one begins to record. A handler that
        raises ends the profile; its exception passes.
    record_shapes: keep input shapes for the table.
    profile_memory: record what tensors take and give back.
    with_stack: record Python calls, for ``group_by_stack_n`` and ``export_stacks``.
    timer: who tells the device times. "auto": CUPTI, or, with a warning, CUDA events around flopscope's own ops where
        there is none; "cupti": RuntimeError instead; "event": CUDA events.
    record_api_calls: False leaves CUDA's API calls out, which costs less; kernels then belong to no op.

    custom_trace_id_callback: gives each cycle its trace id, a string, when it begins; without, ids are random.

    Taken for torch's sake: ``with_flops`` (FLOPs are always counted), ``with_modules``, ``experimental_config``,
    ``post_processing_timeout_s`` and, without a schedule, ``acc_events``. Raises ValueError for what cannot be:
    ``acc_events`` with a schedule, ``execution_trace_observer``, ``use_cuda``. Of other libraries' ops, torch's among
    them, what they do on the GPU is seen, and of the host the CUDA API calls: no "aten::" rows, and no ranges of
    ``torch.profiler.record_function``; name parts of the program with ``flopscope.record_function``.

    Only one profile runs at a time: RuntimeError otherwise. One that was stopped may start again and records anew, its
    steps counted on. An exception inside the block ends the profile and leaves its table readable; so does one, Ctrl-C
    too, that interrupts start(), step() or stop(). A profile that nobody holds any longer ends. In the child of a fork
    the profile records nothing; ``step()`` and ``stop()`` do nothing there, and the results are the parent's.
    """

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
    ) -> None:
        super().__init__()  # its core is the latest cycle's, perhaps still recording
        _refuse(acc_events and schedule is not None, _NO_ACCUMULATION)
        _refuse(execution_trace_observer is not None, _NO_OBSERVER)
        _refuse(use_cuda is not None, f"use_cuda={use_cuda}: {_NO_USE_CUDA}")
        _refuse(timer not in TIMERS, f"timer is one of {', '.join(map(repr, TIMERS))}, not {timer!r}")
        _check_functions(
            schedule=schedule, on_trace_ready=on_trace_ready, custom_trace_id_callback=custom_trace_id_callback
        )
        self.activities = activities_named(activities)
        _refuse(timer == "cupti" and ProfilerActivity.CUDA not in self.activities, _NO_CUDA_TO_TIME)
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.custom_trace_id_callback = custom_trace_id_callback
        self.timer = timer
        self.record_api_calls = record_api_calls
        self.step_num = 0
        """Number of the step that runs: 0, and 1 more with each ``step()``."""
        self.current_action = self._action_of(0)
        """What the profile does in this step."""
        self._recipe = Recipe(
            activities=self.activities,
            asked_for_cuda=activities is not None,
            timer=timer,
            profile_memory=profile_memory,
            with_stack=with_stack,
            api_calls=record_api_calls,
        )
        self._live: Profiler | None = None  # what records now, for the results or only to warm up
        self._step: int | None = None  # the event of the step that runs
        self._state = "not started"

    # Running ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, with step 0 or the one that ``stop()`` left off. RuntimeError if a profile is running."""
        if not self._start():
            which = "this profile is" if running() is self else "a profile is"
            raise RuntimeError(f"{which} in progress already; stop it before starting another")

    def stop(self) -> None:
        """End: save what is being recorded, hand it to on_trace_ready, wait for the devices.

        RuntimeError if it is not running, or if a device failed.
        """
        if self._state == "forked":
            return
        if not self._stop():
            raise RuntimeError("this profile is not running: it was never started, or stopped before")

    def step(self) -> None:
        """End this step of the program and begin the next. RuntimeError if the profile is not running.

        Where the schedule ends a cycle with this step, on_trace_ready is called from here. Without a schedule only
        ``step_num`` changes.
        """
        if self._state == "forked":
            return
        if running() is not self:
            raise RuntimeError(f"step() of a profile that is not running: it is {self._state}")
        self._step_on(self._action_of(self.step_num + 1))

    def __enter__(self) -> profile:
        self.start()
        return self

    @_ended_by_failure
    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def __del__(self) -> None:
        if getattr(self, "_live", None) is not None:  # interrupted, or forgotten
            with suppress(RuntimeError):
                self._save()

    @_ended_by_failure
    def _start(self) -> bool:
        """False where a profile runs."""
        held = weakref.ref(self, _forget)
        if _current.setdefault(RUNNING, held) is not held:
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
        """False where it does not run."""
        if not self._release():  # now: on_trace_ready may start another
            return False
        self._state = "stopped"
        self._end_step()
        self._transit(self.current_action, None)
        return True

    def _release(self) -> bool:
        held = _current.get(RUNNING)
        return held is not None and held() is self and _forget(held)

    def _give_up(self, problem: BaseException) -> None:
        if self._release() or self._live is not None:
            self._state = f"stopped, by {type(problem).__name__} at step {self.step_num}"
            self._save()

    def _new_trace_id(self) -> str:
        if self.custom_trace_id_callback is None:
            return secrets.token_hex(16).upper()
        given = self.custom_trace_id_callback()
        if not isinstance(given, str):
            raise TypeError(f"custom_trace_id_callback gives a string, not {given!r}")
        return given

    def _action_of(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else action_at(self.schedule, step)

    def _transit(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        if (before, after) in _WRONG:
            warn_user(f"Incorrect schedule: {before.name} followed by {after and after.name}")
        for act in _BETWEEN.get((before, after), (*_LEAVE[before], *_ENTER[after])):
            act(self)

    # What a transition is made of -------------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        if running() is self and self._live is None:  # on_trace_ready may have stopped it
            self._trace_id = self._new_trace_id()
            _, self._timing = start_core(self._recipe, self._hold)

    def _hold(self, core: Profiler) -> None:
        self._live = core

    def _record(self) -> None:
        self._warm_up()
        self._keep(self._live)

    def _forget_warm_up(self) -> None:
        if self._live is not None:
            self._live.restart()
        self._keep(self._live)

    def _keep(self, core: Profiler | None) -> None:
        """What this one records from now on are the results, ranges too."""
        if core is not None:
            self._core = core.store
            record_into(core)

    def _save(self) -> None:
        """Stop what records; again, where that was interrupted. A warm-up's events are nobody's results."""
        core = self._live
        if core is not None:
            try:
                if core.running:
                    record_into(None)
                    core.stop()
            finally:
                if not core.running:
                    self._live = None
            warn_of_losses(core)

    def _save_and_hand_over(self) -> None:
        if self._live is None:  # on_trace_ready has stopped the profile, which has been handed over with that
            return
        self._save()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _begin_step(self) -> None:
        if self.schedule is not None and self._live is not None and self._live.store is self._core:
            self._step = self._live.begin_range(f"ProfilerStep#{self.step_num}", True)

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None and self._live is not None:
            self._live.end_range(step)

    def _abandon(self) -> None:
        """In the child of a fork: the parent goes on with the profile."""
        record_into(None)
        self._live = self._core = None
        self._state = "forked"

    # Results ----------------------------------------------------------------------------------------------------------

    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Let ``callback`` give the trace ids of the cycles that begin from now on; None: random ones."""
        _check_functions(callback=callback)
        self.custom_trace_id_callback = callback

    def _why_nothing(self) -> str:
        if self._state == "forked":
            return "this is the child of a fork, and the profile is its parent's"
        if self._state == "not started":
            return "the profile was not started; use it in a `with` block, or call start() and stop()"
        return f"the schedule has recorded no step up to step {self.step_num}; call step() after each of the program's"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a profile cannot be copied or pickled; its results can: key_averages(), or a file of export_chrome_trace()"
        )

    def __repr__(self) -> str:
        return f"<flopscope.profile: {self._state}, {len(self)} events>"


# What is done between the action of one step and that of the next, or None at the end of the profile: what leaving the
# one takes and then what entering the other does, but for these pairs.
_Acts = tuple[Callable[[profile], None], ...]
_LEAVE: dict[ProfilerAction, _Acts] = {
    ProfilerAction.NONE: (),
    ProfilerAction.WARMUP: (profile._save,),
    ProfilerAction.RECORD: (profile._save,),
    ProfilerAction.RECORD_AND_SAVE: (profile._save_and_hand_over,),
}
_ENTER: dict[ProfilerAction | None, _Acts] = {
    ProfilerAction.NONE: (),
    ProfilerAction.WARMUP: (profile._warm_up,),
    ProfilerAction.RECORD: (profile._record,),
    ProfilerAction.RECORD_AND_SAVE: (profile._record,),
    None: (),
}
_BETWEEN: dict[tuple[ProfilerAction, ProfilerAction | None], _Acts] = {
    (ProfilerAction.WARMUP, ProfilerAction.WARMUP): (),
    (ProfilerAction.WARMUP, ProfilerAction.RECORD): (profile._forget_warm_up,),
    (ProfilerAction.WARMUP, ProfilerAction.RECORD_AND_SAVE): (profile._forget_warm_up,),
    (ProfilerAction.RECORD, ProfilerAction.RECORD): (),
    (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE): (),
    (ProfilerAction.RECORD, None): (profile._save_and_hand_over,),
}
_WRONG = {
    (ProfilerAction.WARMUP, ProfilerAction.NONE),
    (ProfilerAction.RECORD, ProfilerAction.NONE),
    (ProfilerAction.RECORD, ProfilerAction.WARMUP),
}

_NO_ACCUMULATION = (
    "acc_events=True with a schedule: each cycle has its own events; gather key_averages() of each in on_trace_ready, "
    "or profile without a schedule"
)
_NO_OBSERVER = "execution_trace_observer: execution traces are torch's; take them with torch.profiler.profile"
_NO_USE_CUDA = "name what to record by activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
_NO_CUDA_TO_TIME = 'timer="cupti" times the work of CUDA; add ProfilerActivity.CUDA to the activities'


def _refuse(wrong: object, message: str) -> None:
    if wrong:
        raise ValueError(message)


def _check_functions(**given: object) -> None:
    for name, function in given.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} is a function, not {function!r}")


def _forget_in_child() -> None:
    """The profile is the parent's."""
    prof = running()
    if prof is not None:
        prof._abandon()
    _current.clear()


os.register_at_fork(after_in_child=_forget_in_child)
