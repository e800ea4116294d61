"""schedule(): the action at each step; activities and actions of flopscope and of torch."""

from __future__ import annotations

import itertools
import warnings
from enum import Enum
from typing import Any

import pytest
from helpers.schedules import NONE, RECORD, SAVE, WARMUP, plans, quiet
from hypothesis import given, settings

import flopscope as fs
from flopscope.record.schedules import action_at
from flopscope.support.capture import activities_named


def expected_actions(
    count: int, *, wait: int, warmup: int, active: int, repeat: int, skip_first: int, skip_first_wait: int
) -> list[fs.ProfilerAction]:
    """Return the first ``count`` actions of a schedule, built from its definition."""
    work = [WARMUP] * warmup + [RECORD] * (active - 1) + [SAVE]
    actions = [NONE] * skip_first + [NONE] * (0 if skip_first_wait else wait) + work
    for _ in range(repeat - 1 if repeat else count):
        actions += [NONE] * wait + work
    return list(itertools.islice(itertools.chain(actions, itertools.repeat(NONE)), count))


@settings(deadline=None)
@given(plans)
def test_a_schedule_repeats_its_cycle(plan: dict[str, int]) -> None:
    action_of = quiet(fs.schedule, **plan)
    assert [action_of(step) for step in range(60)] == expected_actions(60, **plan)


@settings(deadline=None)
@given(plans)
def test_schedules_equal_those_of_torch(plan: dict[str, int]) -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    ours, torchs = quiet(fs.schedule, **plan), quiet(torch_profiler.schedule, **plan)
    assert [ours(step).name for step in range(60)] == [torchs(step).name for step in range(60)]
    assert [action_at(torchs, step) for step in range(60)] == [ours(step) for step in range(60)]


THREE = {"wait": 1, "warmup": 1, "active": 1}
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({name: -2}, rf"{name}=-2 \(at least 0\)") for name in ("wait", "warmup", "repeat", "skip_first")),
    ({"active": 0}, r"active=0 \(at least 1\)"),
    *(
        ({name: value}, rf"{name} of a schedule.*{value!r}")
        for name in ("wait", "skip_first_wait")
        for value in (1.5, "2")
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_refused_numbers_of_steps_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fs.schedule(**{**THREE, **arguments})
    with pytest.raises(TypeError, match="active"):
        fs.schedule(wait=1, warmup=1)  # type: ignore[call-arg]


def test_a_schedule_without_warmup_causes_a_warning() -> None:
    with pytest.warns(UserWarning, match="warmup"):
        fs.schedule(wait=1, warmup=0, active=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.schedule(wait=0, warmup=1, active=1)


def test_negative_steps_are_rejected() -> None:
    with pytest.raises(ValueError, match="no step -1"):
        fs.schedule(wait=0, warmup=1, active=1)(-1)


# Activities and actions of torch --------------------------------------------------------------------------------------


class Foreign(Enum):
    """An enum like those of torch, with some names that flopscope does not have."""

    CPU = 0
    CUDA = 1
    XPU = 2
    RECORD = 3
    DEVICE_STOPPED = 4


def test_activities_are_matched_by_name() -> None:
    cpu, cuda = fs.ProfilerActivity.CPU, fs.ProfilerActivity.CUDA
    assert activities_named(None) == {cpu, cuda}
    assert activities_named([cpu]) == activities_named((Foreign.CPU,)) == {cpu}
    assert activities_named({cuda}) == activities_named(iter([Foreign.CUDA])) == {cuda}
    assert activities_named([Foreign.CUDA, cpu]) == {cpu, cuda}


def test_activities_of_torch_are_accepted() -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    theirs = torch_profiler.ProfilerActivity
    assert activities_named([theirs.CPU, theirs.CUDA]) == set(fs.ProfilerActivity)
    with pytest.raises(ValueError, match="XPU"):
        activities_named([theirs.XPU])


@pytest.mark.parametrize(
    ("activities", "error", "message"),
    [
        ([], ValueError, r"activities=\[\] records nothing"),
        ([Foreign.CPU, fs.ProfilerActivity.CPU], ValueError, "CPU more than once"),
        ([Foreign.XPU], ValueError, "XPU is unsupported; flopscope records CPU and CUDA"),
        (fs.ProfilerActivity.CPU, TypeError, "must be a list"),
        ("CPU", TypeError, "must be a list"),
        (["cuda"], TypeError, "'cuda' is not an activity"),
        ([{Foreign.CUDA: ["GPU_MEMCPY"]}], TypeError, r"GPU_MEMCPY.*record_api_calls=False"),
    ],
)
def test_invalid_activities_are_named(activities: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        activities_named(activities)


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (Foreign.DEVICE_STOPPED, ValueError, "returned DEVICE_STOPPED for step 3"),
        (None, TypeError, "returned None for step 3"),
        (2, TypeError, "returned 2 for step 3"),
    ],
)
def test_an_invalid_action_of_a_schedule_is_named(action: Any, error: type[Exception], message: str) -> None:
    assert action_at(lambda step: Foreign.RECORD, 3) is RECORD
    with pytest.raises(error, match=message):
        action_at(lambda step: action, 3)
