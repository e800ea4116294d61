"""prof.events(): single events, compared with the events that were appended."""

import math
from typing import Any

import pytest

import flopscope as fs
from flopscope import _core
from flopscope.results.events import EventList


def example_events() -> EventList:
    """Return a step with a range that contains a launch and a Python call with an op; the window begins at 1000 ns."""
    core = _core.Store()
    _core._set_window(core, 1000, 100_000)
    host: dict[str, Any] = {"thread": 77}
    step = _core._append(core, "step", "ProfilerStep#3", 2000, 50_000, **host)
    outer = _core._append(core, "range", "outer", 3000, 20_000, parent=step, **host)
    _core._append(core, "runtime", "cudaLaunchKernel", 4000, 1000, parent=outer, correlation=9, **host)
    call = _core._append(core, "frame", "a.py(1): f", 6000, 9000, parent=outer, **host)
    op = _core._append(core, "op", "op", 7000, 2000, parent=call, **host)
    _core._append(core, "kernel", "k", 5000, 3000, launcher=outer, correlation=9, device=1, stream=13)
    _core._append(core, "memcpy", "copy", 9000, 500, launcher=op, device=1, stream=13, bytes=64)
    _core._append(core, "range", "outer", 5000, 4500, launcher=outer, device=1, stream=13)
    _core._append(core, "op", "open", 60_000, None, **host)
    return EventList(core)


def test_events_have_names_kinds_devices_relatives_and_times() -> None:
    step, outer, call, frame, op, kernel, copy, on_device, open_ = example_events()
    assert [event.name for event in (step, outer, call)] == ["ProfilerStep#3", "outer", "cudaLaunchKernel"]
    assert [event.kind for event in (step, call, frame, copy)] == ["step", "runtime", "frame", "memcpy"]
    assert step.key == step.name and step.time_range == (1.0, 51.0) and step.time_range.elapsed_us() == 50
    assert (outer.device_type, outer.device_index, outer.thread) == ("cpu", -1, 77)
    assert (kernel.device_type, kernel.device_index, kernel.thread) == ("cuda", 1, 13)
    assert on_device.device_type == "cuda" and on_device.is_user_annotation and outer.is_user_annotation
    assert frame.is_python_function and not op.is_python_function and not kernel.is_user_annotation
    assert call.correlation == kernel.correlation == 9 and op.correlation == -1
    assert copy.nbytes == 64 and kernel.nbytes == 0
    assert step.cpu_parent is None and outer.cpu_parent == step and op.cpu_parent == frame
    assert outer.cpu_children == [call, frame] and frame.cpu_children == [op] and op.cpu_children == []
    assert outer.kernels == [kernel] and op.kernels == [copy] and step.kernels == call.kernels == []
    assert kernel.launcher == outer == on_device.launcher and outer.launcher is None and open_.cpu_parent is None
    # Times of events include their children and kernels.
    assert (step.cpu_time_total, step.self_cpu_time_total) == (50, 30)
    assert (outer.cpu_time_total, outer.self_cpu_time_total) == (20, 20 - 1 - 2)  # the Python call is part of the range
    assert (frame.cpu_time_total, frame.self_cpu_time_total) == (9, 7)
    assert [event.device_time_total for event in (step, outer, call, op, kernel, copy)] == [3.5, 3.5, 0, 0.5, 3, 0.5]
    assert [event.self_device_time_total for event in (step, outer, op, kernel)] == [0, 3, 0.5, 3]
    assert kernel.cpu_time_total == 0 and on_device.self_device_time_total == 4.5
    assert math.isnan(open_.time_range.end) and math.isnan(open_.cpu_time_total) and open_.time_range.start == 59


def test_a_list_of_events_is_a_sequence() -> None:
    events = example_events()
    assert len(events) == 9 and [event.id for event in events] == list(range(9))
    assert events[-1] == events[8] != events[7] and events[1:3] == [events[1], events[2]] and events[4] in events
    assert len({*events, *events}) == 9 and repr(events) == "<EventList: 9 events>"
    assert repr(events[5]) == "<Event 5: kernel 'k', 4.000 to 7.000us, cuda:1 stream 13>"
    with pytest.raises(IndexError, match="event 9 is out of range: the profile has 9 events"):
        events[9]


def test_events_become_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = example_events().to_pandas()
    assert list(frame) == [
        *("name", "kind", "device_type", "device", "thread", "start", "duration", "bytes", "parent", "launcher"),
        "correlation",
    ]
    kernel = {"name": "k", "kind": "kernel", "device_type": "cuda", "device": 1, "thread": 13, "start": 4.0,
              "duration": 3.0, "bytes": 0, "parent": -1, "launcher": 1, "correlation": 9}  # fmt: skip
    assert frame.iloc[5].to_dict() == kernel and pandas.isna(frame["duration"]).tolist() == [False] * 8 + [True]
    assert EventList(_core.Store()).to_pandas().empty


def test_a_profiles_events_add_up_to_its_table() -> None:
    x = fs.ones((64, 64))
    with fs.profile(with_stack=True, profile_memory=True) as prof:
        for _ in range(3):
            with fs.record_function("outer"):
                fs.sin(x)
                fs.mul_(x, 2.0)
    events = prof.events()
    assert len(events) == len(prof)
    for row in prof.key_averages(peaks="none"):
        mine = [event for event in events if event.name == row.key]
        assert len(mine) == row.count and row.key in ("outer", "flopscope::sin", "flopscope::mul_")
        for name in ("cpu_time_total", "self_cpu_time_total"):
            assert sum(getattr(event, name) for event in mine) == pytest.approx(getattr(row, name)), name
    memory = sum(event.nbytes for event in events if event.kind == "memory")
    assert memory == 0 and any(event.nbytes == 4 * 64 * 64 for event in events if event.kind == "memory")


def test_stacks_exclude_calls_of_the_profile_itself() -> None:
    plan = fs.schedule(wait=0, warmup=1, active=2, repeat=1)
    with fs.profile(with_stack=True, schedule=plan) as prof:
        for _ in range(3):
            prof.step()
    names = {event.name.split(": ")[-1] for event in prof.events() if event.is_python_function}
    assert names.isdisjoint({"__hash__", "__get__", "__members__", "__getitem__", "name"})
