"""When to record: the actions of a step and schedules of them, as in torch.profiler."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

__all__ = ["ProfilerAction", "action_at", "schedule"]


class ProfilerAction(Enum):
    """What a profile does during a step."""

    NONE = 0
    """nothing"""
    WARMUP = 1
    """record, so that the costs of starting to record are over, and throw it away"""
    RECORD = 2
    """record"""
    RECORD_AND_SAVE = 3
    """record; the step ends a cycle, and what was recorded is handed over"""

    __hash__ = object.__hash__  # Enum's is a Python call, which a profile with stacks would show at each step


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A schedule for ``profile()``, with the meaning of torch.profiler.schedule's.

    After ``skip_first`` steps come cycles of ``wait`` steps of NONE, ``warmup`` of WARMUP, ``active - 1`` of RECORD and
    one of RECORD_AND_SAVE; ``repeat`` cycles, or without end for 0. ``skip_first_wait`` other than 0 leaves the first
    cycle's wait out.

    Returns a function of a step's number (0 …). Raises TypeError for what is no integer, and ValueError for
    ``active`` < 1, another number < 0, or a step < 0. Warns where there is no warm-up: the first events of a cycle are
    slow then.
    """
    wait, warmup, active = (_integer(n, v) for n, v in (("wait", wait), ("warmup", warmup), ("active", active)))
    repeat, skip_first = _integer("repeat", repeat), _integer("skip_first", skip_first)
    skip_first_wait = _integer("skip_first_wait", skip_first_wait)
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError(
            f"no such schedule: wait={wait} (at least 0), warmup={warmup} (at least 0), active={active} (at least 1), "
            f"repeat={repeat} (at least 0), skip_first={skip_first} (at least 0)"
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    cycle = wait + warmup + active
    ahead = wait if skip_first_wait else 0

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
        raise TypeError(f"{name} of a schedule is a number of steps, not {value!r}") from None


def action_at(plan: Callable[[int], Any], step: int) -> ProfilerAction:
    """What a schedule, ours or torch's or the user's own, says of a step.

    Raises TypeError for an answer that is no action, ValueError for one that a schedule cannot give.
    """
    given = plan(step)
    if isinstance(given, ProfilerAction):
        return given
    name = getattr(given, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"the schedule says {given!r} of step {step}, which is no ProfilerAction")
    if name not in ProfilerAction.__members__:
        raise ValueError(f"the schedule says {name} of step {step}; one of {', '.join(ProfilerAction.__members__)}")
    return ProfilerAction[name]
