"""flopscope.torch.profile where programs expect torch's: put in its place, and its single events.

The oracle is torch.profiler.profile on the same program.
"""

import importlib
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import TRACES

import flopscope as fs

torch = pytest.importorskip("torch")
ft = pytest.importorskip("flopscope.torch")

CPU = [torch.profiler.ProfilerActivity.CPU]
THEIRS = torch.profiler.profile
UNLIKE = {"id", "thread", "fwd_thread", "python_id", "python_parent_id", "external_id", "linked_correlation_id"}


def program(step: Any = None, steps: int = 1) -> None:
    with torch.random.fork_rng():
        model = torch.nn.Linear(8, 4)
        for _ in range(steps):
            with torch.profiler.record_function("forward"):
                loss = model(torch.ones(2, 8)).sum()
            loss.backward()
            if step is not None:
                step()


# In torch's place -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [["profiler"], ["profiler", "profiler.profiler"]])
def test_it_takes_the_place_of_torchs_class(places: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for place in places:
        monkeypatch.setattr(f"torch.{place}.profile", ft.profile)
    with torch.profiler.profile(activities=CPU, schedule=torch.profiler.schedule(wait=1, warmup=1, active=2)) as prof:
        program(prof.step, 4)
    assert type(prof) is ft.profile and isinstance(prof, THEIRS)
    assert {row.key for row in prof.key_averages(peaks="none")} >= {"forward", "aten::addmm", "ProfilerStep*"}
    assert ft.profile.__mro__[1] is THEIRS
    with THEIRS(activities=CPU) as theirs:
        program()
    assert len(ft.from_profile(theirs)) > 0


@pytest.mark.parametrize("stranger", [ft.profile, lambda **_: None], ids=["ours", "a function"])
def test_it_is_imported_while_another_is_in_torchs_place(stranger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler, "profile", stranger)
    monkeypatch.delitem(sys.modules, "flopscope.torch")
    again = importlib.import_module("flopscope.torch")
    assert again is not ft and again.profile.__mro__[1] is THEIRS
    with again.profile(activities=CPU) as prof:
        program()
    assert len(prof) > 0


# Single events --------------------------------------------------------------------------------------------------------


def told(event: Any) -> dict[str, Any]:
    """Return what a FunctionEvent tells, without what differs between two runs."""
    names = {name for name in vars(event) if not name.startswith("_")} - UNLIKE
    said = {name: getattr(event, name) for name in names - {"time_range", "cpu_parent", "cpu_children"}}
    said["stack"] = [entry.split(": ")[-1].split(" at 0x")[0] for entry in event.stack or ()]
    said["name"] = event.name.split(" at 0x")[0]
    said["inside"] = [child.name.split(" at 0x")[0] for child in event.cpu_children]
    said["times"] = event.cpu_time > 0, event.time_range.elapsed_us() >= event.self_cpu_time_total
    return said


@pytest.mark.parametrize("options", [{}, {"record_shapes": True, "profile_memory": True, "with_flops": True}], ids=str)
def test_single_events_are_those_of_torch(options: dict[str, Any], tmp_path: Path) -> None:
    lists = []
    for kind in (THEIRS, THEIRS, ft.profile):  # the first run initialises
        with kind(activities=CPU, **options) as prof:
            program()
        lists.append(prof.events())
    _, theirs, ours = lists
    first = [min(e.sequence_nr for e in events if e.sequence_nr >= 0) for events in (theirs, ours)]
    for expected, event in zip(theirs, ours, strict=True):
        a, b = told(expected), told(event)
        for said, start in zip((a, b), first, strict=True):
            said["sequence_nr"] -= start if said["sequence_nr"] >= 0 else 0
        assert a == b
    assert type(ours) is type(theirs)
    if "with_flops" not in options:  # torch's table of single events fails with it
        assert ours.table().count("\n") == theirs.table().count("\n")
    for by in ({}, {"group_by_input_shapes": True}):
        a, b = ([(row.key, row.count) for row in each.key_averages(**by)] for each in (ours, theirs))
        assert a == b
    assert ours.total_average().count == theirs.total_average().count and ours.self_cpu_time_total > 0
    ours.export_chrome_trace(str(tmp_path / "events.json"))
    written = [event["name"] for event in json.loads((tmp_path / "events.json").read_text())]
    assert written == [event.trace_name for event in theirs if event.trace_name is not None]


def test_single_events_have_flops_where_shapes_are_recorded() -> None:
    with ft.profile(activities=CPU, record_shapes=True) as prof:
        for n in (8, 8, 16):
            torch.mm(torch.ones(4, 8), torch.ones(8, n))
    for _ in range(2):
        assert [e.flops for e in prof.events() if e.name == "aten::mm"] == [2 * 4 * 8 * n for n in (8, 8, 16)]


def test_the_sum_of_all_rows_is_that_of_torch() -> None:
    with ft.profile(activities=CPU, record_shapes=True, profile_memory=True, with_flops=True) as prof:
        program()
    theirs, ours = THEIRS.key_averages(prof).total_average(), prof.key_averages(peaks="none").total_average()
    assert ours.key == theirs.key == "Total" and ours.count == theirs.count
    for name in ("cpu_time_total", "self_cpu_time_total", "cpu_time"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=0.005 * ours.count)
    for name in ("cpu_memory_usage", "self_cpu_memory_usage", "device_time_total", "self_device_time_total"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.flops > 0


def test_the_sum_of_rows_counts_device_work_once() -> None:
    table = fs.load_trace(TRACES / "tutorial_optimised.json.gz").key_averages(peaks="none")
    total = table.total_average()
    assert total.self_device_time_total == pytest.approx(table.self_device_time_total) and total.device_time_total > 0
    assert total.self_device_time_total == pytest.approx(total.device_time_total) and not math.isnan(total.flops)


def test_rows_are_selected_by_torchs_device_types() -> None:
    with ft.profile(activities=CPU) as prof:
        program()
    kinds, row = torch.autograd.DeviceType, prof.key_averages(peaks="none")[0]
    assert row.device_type == kinds.CPU and row.device_type == "cpu" and row.device_type != kinds.CUDA
    assert row.device_type != "cuda" and {"cpu": 1}[row.device_type] == 1 and row.device_type != 0


# What frameworks use --------------------------------------------------------------------------------------------------


def test_observers_metadata_and_handlers(tmp_path: Path) -> None:
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "observed.json"))
    ready = torch.profiler.tensorboard_trace_handler(str(tmp_path / "logs"), "worker")
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    options = {"execution_trace_observer": observer, "on_trace_ready": ready, "experimental_config": config}
    prof = ft.profile(activities=CPU, with_stack=True, **options)
    prof.preset_metadata_json("before", '{"a": 1}')
    with prof:
        program()
        prof.add_metadata_json("Framework", '"mine"')
    (file,) = (tmp_path / "logs").iterdir()
    trace = json.loads(file.read_text())
    assert trace["before"] == {"a": 1} and trace["Framework"] == "mine"
    assert "aten::addmm" in (tmp_path / "observed.json").read_text()
    assert prof.profiler.total_average().count == len(prof.events()) and prof.step_num == 0
    prof.events().export_stacks(str(tmp_path / "theirs.txt"), "self_cpu_time_total")
    prof.export_stacks(str(tmp_path / "ours.txt"), "self_cpu_time_total")
    assert "test_torch_dropin.py" in (tmp_path / "theirs.txt").read_text()
    assert "aten::" in (tmp_path / "ours.txt").read_text()


def test_without_post_processing_there_are_tables_and_no_single_events() -> None:
    try:
        config = torch._C._profiler._ExperimentalConfig(trace_only=True)
    except TypeError:
        pytest.skip(f"torch {torch.__version__} has no trace_only")
    with ft.profile(activities=CPU, experimental_config=config) as prof:
        program()
    with pytest.raises(RuntimeError, match="trace_only"):
        prof.events()
    assert "aten::addmm" in {row.key for row in prof.key_averages(peaks="none")}


def test_rows_of_overloads_are_those_of_torch() -> None:
    try:
        config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
    except TypeError:
        pytest.skip(f"torch {torch.__version__} records no overloads")
    with ft.profile(activities=CPU, experimental_config=config, record_shapes=True) as prof:
        torch.add(torch.ones(3), torch.ones(3)).sum()  # aten::sum calls aten::sum.dim_IntList alone
        torch.add(torch.ones(3), 5, out=torch.empty(3))
        program()
    for options in ({}, {"group_by_overload_name": True}, {"group_by_input_shape": True}):
        ours, theirs = prof.key_averages(peaks="none", **options), THEIRS.key_averages(prof, **options)
        a, b = (Counter((row.key, row.overload_name, row.count) for row in rows) for rows in (ours, theirs))
        assert a == b and ("Overload Name" in ours.table()) == ("group_by_overload_name" in options)
    assert {row.overload_name for row in prof.key_averages(group_by_overload_name=True) if row.key == "aten::add"} == {
        "Tensor",
        "out",
    }
    assert sum(row.flops for row in prof.key_averages(peaks="none") if row.key == "aten::add") == 3 + 3
