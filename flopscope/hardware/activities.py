"""What to record: the activities, as in torch.profiler."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

__all__ = ["ProfilerActivity", "activities_named"]


class ProfilerActivity(Enum):
    """What a profile records: the ops, ranges and Python calls of the host, or the work of CUDA devices."""

    CPU = 0
    CUDA = 1


def activities_named(given: Iterable[Any] | None) -> frozenset[ProfilerActivity]:
    """The activities of ``profile(activities=…)``: ours, or torch's by their names; None means all.

    Raises ValueError for none at all, a repeated or an unknown one, TypeError for what is no activity.
    """
    if given is None:
        return frozenset(ProfilerActivity)
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise TypeError(f"activities is a list like [ProfilerActivity.CPU, ProfilerActivity.CUDA], not {given!r}")
    named = [_activity(item) for item in given]
    if not named:
        raise ValueError("activities=[] records nothing; leave it out for all, or name ProfilerActivity.CPU or .CUDA")
    if len(set(named)) < len(named):
        raise ValueError(f"activities names {next(a for a in named if named.count(a) > 1).name} more than once")
    return frozenset(named)


def _activity(given: Any) -> ProfilerActivity:
    if isinstance(given, dict):
        raise TypeError(
            f"activities={given!r}: parts of an activity cannot be chosen; name the activity, and leave CUDA's API "
            "calls out with record_api_calls=False"
        )
    name = getattr(given, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{given!r} is no activity: those are ProfilerActivity.CPU and ProfilerActivity.CUDA")
    if name not in ProfilerActivity.__members__:
        raise ValueError(f"cannot record the activity {name}: only CPU and CUDA")
    return ProfilerActivity[name]
