"""Schedules of profiles: which steps to record, as in torch.profiler."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum
from typing import Any

from flopscope.support.package import warn_user

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
