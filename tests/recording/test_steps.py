"""Profiles with a schedule: its actions, the recorded steps, and the calls of the handler."""

import json
import warnings
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from helpers.profiled import counts, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.record.steps import action_at
from flopscope.support.capture import activities_named

STEP = "ProfilerStep"
NONE, WARMUP, RECORD, SAVE = fs.ProfilerAction
few = st.integers(0, 4)
plans = st.fixed_dictionaries(
    {"wait": few, "warmup": few, "active": st.integers(1, 4), "repeat": few, "skip_first": few, "skip_first_wait": few}
)


def quiet(make: Callable[..., Any], **plan: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(**plan)


def run(plan: Callable[[int], Any], steps: int, handler: Callable[[fs.profile], object] | None = None) -> fs.profile:
    """Profile a program whose step n is an op in a range "work n"."""
    x = fs.ones((4,))
    with fs.profile(schedule=plan, on_trace_ready=handler) as prof:
        for n in range(steps):
            with fs.record_function(f"work {n}"):
                fs.sin(x)
            prof.step()
    return prof


def cycles_of(actions: list[Any]) -> list[list[int]]:
    """Return the steps of each recorded cycle; the last may be incomplete."""
    cycles: list[list[int]] = []
    open_cycle: list[int] = []
    for step, action in enumerate(actions):
        if action in (RECORD, SAVE):
            open_cycle.append(step)
        if action is SAVE:
            cycles.append(open_cycle)
            open_cycle = []
    return [*cycles, open_cycle] if open_cycle else cycles


def recorded_in(prof: fs.profile) -> tuple[set[int], int, int]:
    """Return the numbers of the recorded "work" ranges, the count of steps, and the count of ops."""
    rows = counts(prof)
    works = {int(name.removeprefix("work ")) for name in rows if name.startswith("work ")}
    assert all(rows[f"work {n}"] == 1 for n in works)
    steps = sum(count for name, count in rows.items() if name.startswith(STEP))
    return works, steps, rows.get("flopscope::sin", 0)


@settings(deadline=None, max_examples=60)
@given(plans, st.integers(0, 15))
def test_the_handler_gets_each_cycle_with_its_own_events(plan: dict[str, int], steps: int) -> None:
    action_of = quiet(fs.schedule, **plan)
    seen: list[tuple[set[int], int, int]] = []
    prof = run(action_of, steps, lambda prof: seen.append(recorded_in(prof)))
    cycles = cycles_of([action_of(n) for n in range(steps + 1)])  # the block ends in step `steps`, before its work
    expected = [({n for n in cycle if n < steps}, len(cycle), sum(n < steps for n in cycle)) for cycle in cycles]
    assert seen == expected
    if cycles:
        assert recorded_in(prof) == expected[-1], "the last cycle stays readable"
    else:
        with pytest.raises(RuntimeError, match=rf"no table: the schedule has recorded no step up to step {steps}"):
            prof.key_averages()
    assert prof.step_num == steps and prof.current_action is action_of(steps)


def test_a_step_encloses_the_ranges_of_its_thread() -> None:
    rows = {row.key: row for row in table_of(run(fs.schedule(wait=0, warmup=1, active=1), 2))}
    (step,) = (row for name, row in rows.items() if name.startswith(STEP))
    assert step.is_user_annotation and step.flops_total == 4 and step.top_level and not rows["work 1"].top_level


def test_without_a_schedule_steps_are_not_events() -> None:
    x = fs.ones((4,))
    seen: list[dict[str, int]] = []
    with fs.profile(on_trace_ready=lambda prof: seen.append(counts(prof))) as prof:
        for _ in range(3):
            fs.sin(x)
            prof.step()
        assert seen == [] and prof.step_num == 3 and prof.current_action is RECORD
    assert seen == [{"flopscope::sin": 3}] == [counts(prof)]


@pytest.mark.parametrize(
    ("actions", "message", "cycles"),
    [
        ([WARMUP, NONE, NONE], "WARMUP followed by NONE", []),
        ([RECORD, NONE, NONE], "RECORD followed by NONE", []),
        ([RECORD, WARMUP, SAVE, NONE], "RECORD followed by WARMUP", [{2}]),
    ],
)
def test_schedules_that_interrupt_a_cycle_cause_a_warning(actions: list[Any], message: str, cycles: list[Any]) -> None:
    seen: list[set[int]] = []
    with pytest.warns(UserWarning, match=f"Incorrect schedule: {message}") as caught:
        prof = run(actions.__getitem__, len(actions) - 1, lambda prof: seen.append(recorded_in(prof)[0]))
    assert seen == cycles and caught[0].filename == __file__
    if actions[0] is RECORD and not cycles:
        assert recorded_in(prof)[0] == {0}, "the interrupted cycle is readable"


def test_an_invalid_action_changes_nothing() -> None:
    answers: dict[int, Any] = {0: RECORD, 1: "record"}
    with fs.profile(schedule=lambda n: answers.get(n, RECORD)) as prof:
        fs.ones(())
        with pytest.raises(TypeError, match="'record' for step 1"):
            prof.step()
        assert prof.step_num == 0 and prof.current_action is RECORD
        fs.zeros(())
    assert {"flopscope::ones", "flopscope::zeros"} <= set(counts(prof))
    with pytest.raises(TypeError, match="returned 7 for step 0"):
        fs.profile(schedule=lambda n: 7)


# Ranges across cycles -------------------------------------------------------------------------------------------------


def test_a_range_that_began_before_the_cycle_is_not_part_of_it() -> None:
    plan = fs.schedule(wait=1, warmup=1, active=1)
    early = [fs.record_function(f"early {n}") for n in range(3)]
    x = fs.ones((4,))
    with fs.profile(schedule=plan) as prof:
        for n in range(3):
            early[n].__enter__()
            if n < 2:
                prof.step()
        with fs.record_function("inside"):
            early[0].__exit__(None, None, None)
            early[1].__exit__(None, None, None)
            fs.sin(x)
        early[2].__exit__(None, None, None)
        prof.step()
    rows = {row.key: row for row in table_of(prof)}
    assert {"early 2", "inside", "flopscope::sin"} < set(rows) and "early 0" not in rows and "early 1" not in rows
    assert rows["inside"].flops_total == rows["early 2"].flops_total == 4


def test_a_range_that_is_open_at_the_end_of_a_cycle_ends_there() -> None:
    plan = quiet(fs.schedule, wait=0, warmup=0, active=1)
    seen: list[dict[str, int]] = []
    with fs.profile(schedule=plan, on_trace_ready=lambda prof: seen.append(counts(prof))) as prof:
        with fs.record_function("over"):
            prof.step()
        fs.ones(())
    assert "over" in seen[0] and "flopscope::ones" not in seen[0]
    assert "over" not in seen[1] and "flopscope::ones" in seen[1] and len(seen) == 2


# Handlers -------------------------------------------------------------------------------------------------------------


def test_an_exception_of_a_handler_ends_the_profile_and_propagates() -> None:
    calls: list[int] = []

    def handler(prof: fs.profile) -> None:
        calls.append(prof.step_num)
        raise OSError("disk full")

    plan = quiet(fs.schedule, wait=0, warmup=0, active=1)
    prof = fs.profile(schedule=plan, on_trace_ready=handler)
    with pytest.raises(OSError, match="disk full"), prof:
        fs.ones(())
        prof.step()
    assert calls == [1] and "flopscope::ones" in counts(prof)
    with pytest.raises(RuntimeError, match="not running: it is stopped, by OSError at step 1"):
        prof.step()
    with fs.profile() as after:
        fs.zeros(())
    assert counts(after) == {"flopscope::zeros": 1}


@pytest.mark.parametrize("again", [False, True])
def test_a_handler_can_stop_and_restart_the_profile(again: bool) -> None:
    seen: list[set[int]] = []

    def handler(prof: fs.profile) -> None:
        seen.append(recorded_in(prof)[0])
        if len(seen) == 1:
            prof.stop()
            if again:
                prof.start()

    prof = fs.profile(schedule=quiet(fs.schedule, wait=0, warmup=0, active=1), on_trace_ready=handler)
    with prof:
        for n in range(2):
            with fs.record_function(f"work {n}"):
                pass
            if n == 0 or again:
                prof.step()
    assert seen == ([{0}, {1}, set()] if again else [{0}])
    with fs.profile() as after:
        pass
    assert len(after) == 0


def test_a_cycle_is_readable_while_the_next_one_warms_up() -> None:
    prof = fs.profile(schedule=fs.schedule(wait=0, warmup=2, active=1))
    with prof:
        for n in range(4):
            assert repr(prof).startswith("<flopscope.profile: running")
            if n == 2:
                with pytest.raises(RuntimeError, match="still running"):
                    prof.key_averages()
            fs.full((n + 1,), 0.0)
            prof.step()
        assert prof.current_action is WARMUP and table_of(prof)[-1].key == "flopscope::full"
        assert table_of(prof)[-1].bytes_total_moved == 3 * 4


@pytest.mark.parametrize("library", ["flopscope", "torch.profiler"])
def test_trace_handlers_write_a_file_for_each_cycle(library: str, tmp_path: Path) -> None:
    module = pytest.importorskip(library)
    make = module.trace_handler if library == "flopscope" else module.tensorboard_trace_handler
    handler = make(str(tmp_path / "traces"), worker_name="worker")
    run(fs.schedule(wait=0, warmup=1, active=2, repeat=2), 7, handler)
    files = sorted((tmp_path / "traces").iterdir(), key=lambda path: int(path.name.split(".")[1]))
    assert len(files) == 2 and all(path.name.startswith("worker.") for path in files)
    names = [{event.get("name") for event in json.loads(path.read_text())["traceEvents"]} for path in files]
    assert {"work 1", "work 2", "ProfilerStep#1"} <= names[0] and "work 4" not in names[0]
    assert {"work 4", "work 5", "ProfilerStep#5"} <= names[1] and "work 1" not in names[1]


# Starting and stopping ------------------------------------------------------------------------------------------------


def test_a_step_needs_a_running_profile() -> None:
    prof = fs.profile(schedule=fs.schedule(wait=5, warmup=1, active=1))
    with pytest.raises(RuntimeError, match="it is not started"):
        prof.step()
    with prof:
        prof.step()
    with pytest.raises(RuntimeError, match="it is stopped"):
        prof.step()
    assert prof.step_num == 1


def test_an_exception_in_the_block_still_calls_the_handler() -> None:
    seen: list[dict[str, int]] = []
    plan = quiet(fs.schedule, wait=0, warmup=0, active=3)
    prof = fs.profile(schedule=plan, on_trace_ready=lambda prof: seen.append(counts(prof)))
    with pytest.raises(ZeroDivisionError), prof:
        fs.ones(())
        raise ZeroDivisionError
    assert len(seen) == 1 and "flopscope::ones" in seen[0]


def test_a_restarted_profile_continues_its_step_numbers() -> None:
    seen: list[tuple[int, set[int]]] = []
    plan = quiet(fs.schedule, wait=1, warmup=0, active=2)
    prof = fs.profile(schedule=plan, on_trace_ready=lambda prof: seen.append((prof.step_num, recorded_in(prof)[0])))
    for _ in range(2):
        with prof:
            for _ in range(2):
                with fs.record_function(f"work {prof.step_num}"):
                    pass
                prof.step()
    # The first block ends in step 2, inside the cycle of steps 1 and 2. The second ends in step 4, inside the next one.
    assert seen == [(2, {1}), (3, {2}), (4, set())]


@pytest.mark.filterwarnings("error")
def test_a_core_that_cannot_start_leaves_the_profile_stopped() -> None:
    plan = fs.schedule(wait=1, warmup=1, active=1)
    rival = fs._core.Profiler()
    with fs.profile(schedule=plan) as prof:
        rival.start()
        with pytest.raises(RuntimeError, match="in progress"):
            prof.step()
        assert "stopped, by RuntimeError at step 1" in repr(prof)
    rival.stop()
    with fs.profile() as after:
        fs.ones(())
    assert counts(after) == {"flopscope::ones": 1}


# Schedules ------------------------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="no step -1"):
        fs.schedule(**THREE)(-1)


@pytest.mark.filterwarnings("error")
def test_a_schedule_without_warmup_causes_a_warning() -> None:
    with pytest.warns(UserWarning, match="warmup"):
        fs.schedule(wait=1, warmup=0, active=1)
    fs.schedule(wait=0, warmup=1, active=1)


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
    assert activities_named([Foreign.CUDA, cpu, Foreign.CPU]) == {cpu, cuda}


@pytest.mark.parametrize(
    ("activities", "error", "message"),
    [
        ([], ValueError, r"activities=\[\] records nothing"),
        ([Foreign.XPU], ValueError, "XPU is unsupported; flopscope records CPU and CUDA"),
        (fs.ProfilerActivity.CPU, TypeError, "must be a list"),
        ("CPU", TypeError, "must be a list"),
        (["cuda"], TypeError, "'cuda' is not an activity"),
        ([{Foreign.CUDA: ["GPU_MEMCPY"]}], TypeError, r"GPU_MEMCPY.*is not an activity"),
    ],
)
def test_invalid_activities_are_named(activities: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        activities_named(activities)
