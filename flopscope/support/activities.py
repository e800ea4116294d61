"""The activities that a profile records, as in torch.profiler."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any


class ProfilerActivity(Enum):
    """A kind of activity to record: the host's ops, ranges and Python calls, or the work of CUDA devices."""

    CPU = 0
    CUDA = 1


def activities_named(activities: Iterable[Any] | None) -> frozenset[ProfilerActivity]:
    """Return the activities of ``profile(activities=…)``: flopscope's, or torch's by their names; None means all.

    Raise ValueError for an empty list and for a repeated or unsupported activity, TypeError for other objects.
    """
    if activities is None:
        return frozenset(ProfilerActivity)
    if not isinstance(activities, Iterable) or isinstance(activities, (str, bytes)):
        raise TypeError(
            f"activities must be a list like [ProfilerActivity.CPU, ProfilerActivity.CUDA], not {activities!r}"
        )
    named = [_activity(item) for item in activities]
    if not named:
        raise ValueError("activities=[] records nothing; omit it to record all, or name ProfilerActivity.CPU or .CUDA")
    if len(set(named)) < len(named):
        raise ValueError(f"activities names {next(a for a in named if named.count(a) > 1).name} more than once")
    return frozenset(named)


def _activity(item: Any) -> ProfilerActivity:
    if isinstance(item, dict):
        raise TypeError(
            f"activities={item!r}: parts of an activity cannot be selected; name the activity, and exclude CUDA's API "
            "calls with record_api_calls=False"
        )
    name = getattr(item, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{item!r} is not an activity; use ProfilerActivity.CPU and ProfilerActivity.CUDA")
    if name not in ProfilerActivity.__members__:
        raise ValueError(f"the activity {name} is unsupported; flopscope records CPU and CUDA")
    return ProfilerActivity[name]
