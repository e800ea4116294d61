"""schedule(): what a profile does at each step; activities and actions, ours and torch's."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.hardware.activities import activities_named
from flopscope.sources.schedules import action_at

NONE, WARMUP, RECORD, SAVE = fs.ProfilerAction
few = st.integers(0, 4)
plans = st.fixed_dictionaries(
    {"wait": few, "warmup": few, "active": st.integers(1, 4), "repeat": few, "skip_first": few, "skip_first_wait": few}
)


def quiet(make: Callable[..., Any], **plan: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(**plan)


def restated(
    count: int, *, wait: int, warmup: int, active: int, repeat: int, skip_first: int, skip_first_wait: int
) -> list[fs.ProfilerAction]:
    """The first actions of a schedule, one after the other."""
    work = [WARMUP] * warmup + [RECORD] * (active - 1) + [SAVE]
    actions = [NONE] * skip_first + [NONE] * (0 if skip_first_wait else wait) + work
    for _ in range(repeat - 1 if repeat else count):
        actions += [NONE] * wait + work
    return list(itertools.islice(itertools.chain(actions, itertools.repeat(NONE)), count))


@settings(deadline=None)
@given(plans)
def test_a_schedule_is_its_cycles_one_after_the_other(plan: dict[str, int]) -> None:
    action_of = quiet(fs.schedule, **plan)
    assert [action_of(step) for step in range(60)] == restated(60, **plan)


@settings(deadline=None)
@given(plans)
def test_schedules_are_torchs(plan: dict[str, int]) -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    ours, torchs = quiet(fs.schedule, **plan), quiet(torch_profiler.schedule, **plan)
    assert [ours(step).name for step in range(60)] == [torchs(step).name for step in range(60)]
    assert [action_at(torchs, step) for step in range(60)] == [ours(step) for step in range(60)]


@pytest.mark.parametrize(
    "wrong", [{"wait": -1}, {"warmup": -2}, {"active": 0}, {"active": -1}, {"repeat": -1}, {"skip_first": -7}]
)
def test_numbers_that_make_no_schedule_are_named(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name}={value} \(at least {int(name == 'active')}\)"):
        fs.schedule(**{"wait": 1, "warmup": 1, "active": 1, **wrong})


@pytest.mark.parametrize("name", ["wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait"])
def test_numbers_of_steps_are_integers(name: str) -> None:
    for value in (1.5, "2", None):
        with pytest.raises(TypeError, match=rf"{name} of a schedule.*{value!r}"):
            fs.schedule(**{"wait": 1, "warmup": 1, "active": 1, name: value})


def test_arguments_are_keywords_and_three_are_needed() -> None:
    with pytest.raises(TypeError):
        fs.schedule(1, 1, 1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="active"):
        fs.schedule(wait=1, warmup=1)  # type: ignore[call-arg]


def test_no_warm_up_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="warmup"):
        fs.schedule(wait=1, warmup=0, active=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fs.schedule(wait=0, warmup=1, active=1)


def test_there_is_no_step_before_0() -> None:
    with pytest.raises(ValueError, match="no step -1"):
        fs.schedule(wait=0, warmup=1, active=1)(-1)


# What profile() takes from others -------------------------------------------------------------------------------------


class Foreign(Enum):
    """As torch's enums look: names that are ours, and some that are not."""

    CPU = 0
    CUDA = 1
    XPU = 2
    RECORD = 3
    DEVICE_STOPPED = 4


def test_activities_are_known_by_their_names() -> None:
    cpu, cuda = fs.ProfilerActivity.CPU, fs.ProfilerActivity.CUDA
    assert activities_named(None) == {cpu, cuda}
    assert activities_named([cpu]) == activities_named((Foreign.CPU,)) == {cpu}
    assert activities_named({cuda}) == activities_named(iter([Foreign.CUDA])) == {cuda}
    assert activities_named([Foreign.CUDA, cpu]) == {cpu, cuda}


def test_torchs_activities_are_taken() -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    theirs = torch_profiler.ProfilerActivity
    assert activities_named([theirs.CPU, theirs.CUDA]) == set(fs.ProfilerActivity)
    with pytest.raises(ValueError, match="XPU"):
        activities_named([theirs.XPU])


@pytest.mark.parametrize(
    ("given", "error", "said"),
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
def test_what_is_no_activity_is_named(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        activities_named(given)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Foreign.DEVICE_STOPPED, ValueError, "returned DEVICE_STOPPED for step 3"),
        (None, TypeError, "returned None for step 3"),
        (2, TypeError, "returned 2 for step 3"),
    ],
)
def test_an_answer_of_a_schedule_that_is_no_action_is_named(answer: Any, error: type[Exception], said: str) -> None:
    assert action_at(lambda step: Foreign.RECORD, 3) is RECORD
    with pytest.raises(error, match=said):
        action_at(lambda step: answer, 3)
