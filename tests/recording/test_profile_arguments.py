"""The arguments of profile(): compatibility with torch, and the source of device times, with CUDA capture mocked."""

import copy
import importlib
import inspect
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.profiled import counts, table_of

import flopscope as fs
from flopscope.support import capture

CPU, CUDA = fs.ProfilerActivity.CPU, fs.ProfilerActivity.CUDA


pytestmark = pytest.mark.filterwarnings("error")


# As torch.profiler.profile --------------------------------------------------------------------------------------------


def test_every_argument_of_torch_is_accepted() -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    theirs = inspect.signature(torch_profiler.profile.__init__).parameters
    ours = inspect.signature(fs.profile.__init__).parameters
    assert set(theirs) <= set(ours) and all(ours[name].kind is theirs[name].kind for name in theirs)
    assert all(ours[name].default == theirs[name].default for name in theirs)


def test_methods_have_the_arguments_of_torch() -> None:
    torch_profiler = pytest.importorskip("torch.profiler")
    torch = importlib.import_module("flopscope.torch")
    only_torchs = {"cuda_graph_annotations", "graph_lanes", "default_stream"}  # of annotations that torch records
    for name in (
        *("start", "stop", "step", "key_averages", "events", "export_chrome_trace", "export_stacks"),
        *("add_metadata", "add_metadata_json", "preset_metadata_json"),
        "get_trace_id",
    ):
        theirs = list(inspect.signature(getattr(torch_profiler.profile, name)).parameters)
        ours = [list(inspect.signature(getattr(each, name)).parameters) for each in (fs.profile, torch.profile)]
        assert ours[1][: len(theirs)] == theirs, name
        theirs = [each for each in theirs if each not in only_torchs]
        assert ours[0][: len(theirs)] == theirs, name


def test_arguments_without_effect_are_accepted(x: fs.Tensor) -> None:
    with fs.profile(
        with_flops=False,
        with_modules=True,
        experimental_config=object(),
        acc_events=True,
        post_processing_timeout_s=3.0,
    ) as prof:
        fs.sin(x)
    assert table_of(prof)[0].flops == 64, "FLOPs are always counted"
    assert counts(prof) == {row.key: row.count for row in prof.key_averages(False, 0, True, peaks="none")}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"acc_events": True, "schedule": lambda n: fs.ProfilerAction.RECORD}, ValueError, "collect key_averages"),
        ({"execution_trace_observer": object()}, ValueError, r"torch\.profiler\.profile"),
        ({"use_cuda": True}, ValueError, "use_cuda=True: .*activities="),
        ({"use_cuda": False}, ValueError, "use_cuda=False"),
        ({"timer": "cuda"}, ValueError, "'auto', 'cupti', 'event', not 'cuda'"),
        ({"timer": "cupti", "activities": [CPU]}, ValueError, r"add ProfilerActivity\.CUDA"),
        ({"schedule": 3}, TypeError, "schedule must be a function, not 3"),
        ({"on_trace_ready": "trace.json"}, TypeError, "on_trace_ready must be a function, not 'trace.json'"),
        ({"custom_trace_id_callback": str}, ValueError, "trace ids are random"),
        ({"counters": "yes"}, ValueError, 'True, False or "require"'),
        ({"counters": True, "counter_interval_us": 0.5}, ValueError, "1 µs to 1 s"),
        ({"counter_interval_us": 5}, ValueError, "needs counters=True"),
        ({"counters": True, "counter_interval_us": "5"}, TypeError, "number of µs"),
        ({"counters": "require", "activities": [CPU]}, ValueError, "counts CUDA work"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fs.profile(**arguments)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda prof: prof.key_averages(include_python_functions=True), "=True: Python functions have no rows"),
        (lambda prof: prof.key_averages(group_by_stack_n=3), r"group_by_stack_n=3.*with_stack=True"),
        (lambda prof: prof.export_stacks("stacks.txt"), "with_stack=True"),
    ],
)
def test_results_that_were_not_recorded_are_refused(ask: Any, message: str, x: fs.Tensor) -> None:
    with fs.profile() as prof:
        fs.sin(x)
    with pytest.raises(ValueError, match=message):
        ask(prof)


def test_each_cycle_has_a_trace_id(tmp_path: Path) -> None:
    seen: list[tuple[str | None, str]] = []

    def read(prof: fs.profile) -> None:
        for _ in range(2):  # repeated exports have the same id
            prof.export_chrome_trace(tmp_path / "t.json")
            seen.append((prof.get_trace_id(), json.loads((tmp_path / "t.json").read_text())["trace_id"]))

    assert fs.profile().get_trace_id() is None
    with fs.profile(schedule=fs.schedule(wait=0, warmup=1, active=1), on_trace_ready=read) as prof:
        for _ in range(4):
            prof.step()
    ids = [one for pair in seen for one in pair]
    assert len(set(ids[:4])) == len(set(ids[4:])) == 1 and len(set(ids)) == 2
    assert all(re.fullmatch("[0-9A-F]{32}", one or "") for one in ids)


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_profile_is_not_copied_but_its_table_is(copying: Any, x: fs.Tensor) -> None:
    with fs.profile() as prof:
        fs.sin(x)
    with pytest.raises(TypeError, match=r"its results can: key_averages\(\)"):
        copying(prof)
    table = prof.key_averages(peaks="none")
    assert pickle.loads(pickle.dumps(table)).to_dicts() == table.to_dicts()


# Activities and timers ------------------------------------------------------------------------------------------------


class Machine:
    """A simulated machine: whether CUPTI loads, a GPU is present, and flopscope is built with CUDA."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cupti = self.device = self.native = True
        self.recorders: list[dict[str, Any]] = []
        self.refusal: str | None = None
        core = fs._core
        real = core.Profiler
        machine = self

        class Recorder:
            """A recorder that wraps a real one without CUDA."""

            def __init__(self, **options: bool) -> None:
                machine.recorders.append({**options})
                self.captures = options.pop("cupti", False)
                options.pop("api_calls", None)
                self.real = real(**{**options, "event_times": False})

            def start(self) -> None:
                if self.captures and machine.refusal:
                    raise RuntimeError(machine.refusal)
                self.real.start()

            def __getattr__(self, name: str) -> Any:
                return getattr(self.real, name)

        def load_cupti(path: str | None) -> None:
            if not self.cupti:
                raise RuntimeError("CUPTI could not be loaded: pip install nvidia-cuda-cupti")

        def count() -> int:
            if not self.native:
                raise RuntimeError("CUDA is not built into this flopscope")
            return int(self.device)

        for name, value in (
            ("Profiler", Recorder),
            ("load_driver", lambda: None),
            ("load_cupti", load_cupti),
            ("cuda_is_here", lambda: self.device),
            ("cuda_device_count", count),
        ):
            monkeypatch.setattr(core, name, value)
        monkeypatch.setattr("flopscope.support.package.find_library", lambda name: "/lib/libcupti.so.13")
        monkeypatch.setattr("flopscope.record.profile.record_into", lambda core: None)
        monkeypatch.setattr(capture, "may_evict", lambda: False)

    def profile(self, **arguments: Any) -> fs.profile:
        capture.why_no_cupti.cache_clear()
        capture._why_no_events.cache_clear()
        self.recorders.clear()
        with fs.profile(**arguments) as prof:
            fs.sin(fs.ones((8, 8)))
        return prof


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    yield Machine(monkeypatch)
    capture.why_no_cupti.cache_clear()
    capture._why_no_events.cache_clear()


def test_an_early_capture_does_not_initialize_cuda(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def initializes() -> Any:
        raise AssertionError("CUDA is left to the program")

    for name in ("cuda_is_here", "cuda_device_count"):
        monkeypatch.setattr(fs._core, name, initializes)
    recipe = replace(fs.profile()._recipe, early=True)
    core, timing = capture.start_core(recipe, lambda core: None)
    capture.stop_core(core)
    assert timing == "cupti" and machine.recorders[-1]["cupti"]
    machine.cupti = False
    with pytest.warns(UserWarning, match="CUPTI.*none are recorded"):
        core, timing = capture.start_core(recipe, lambda core: None)
    capture.stop_core(core)
    assert timing == "cpu" and "cupti" not in machine.recorders[-1]


PLAIN = {"profile_memory": False, "ops": True, "event_times": False, "nvtx": True}
CUPTI = {**PLAIN, "cupti": True, "may_share": False, "api_calls": True}


@pytest.mark.parametrize(
    ("arguments", "timing", "options"),
    [
        ({}, "cupti", CUPTI),
        (
            {"record_api_calls": False, "activities": [CUDA], "profile_memory": True},
            "cupti",
            {**CUPTI, "api_calls": False, "ops": False, "profile_memory": True},
        ),
        ({"timer": "event"}, "event", {**PLAIN, "event_times": True}),
        ({"timer": "event", "activities": [CUDA]}, "event", {**PLAIN, "event_times": True}),  # ops carry the times
        ({"activities": [CPU]}, "cpu", PLAIN),  # CUDA is not loaded
    ],
)
def test_options_set_timers(machine: Machine, arguments: dict[str, Any], timing: str, options: dict[str, Any]) -> None:
    for machine.native in (True, timing != "cupti"):  # CUPTI needs no flopscope that is built with CUDA
        prof = machine.profile(**arguments)
        assert prof.timing_source == timing and machine.recorders == [options]
        assert prof.activities == set(arguments.get("activities", (CPU, CUDA)))


def test_without_cupti_events_are_used_and_a_warning_gives_the_reason(machine: Machine) -> None:
    machine.cupti = False
    with pytest.warns(UserWarning, match=r"CUPTI.*pip install nvidia-cuda-cupti.*CUDA events") as caught:
        prof = machine.profile()
    assert prof.timing_source == "event" and len(caught) == 1 and caught[0].filename == __file__ and len(prof) == 2
    with pytest.raises(RuntimeError, match=r'timer="cupti" is unavailable: CUPTI could not be loaded'):
        machine.profile(timer="cupti")
    machine.native = False
    with pytest.warns(UserWarning, match="CUPTI.*none are recorded"):
        prof = machine.profile()
    assert prof.timing_source == "cpu" and len(prof) == 2


@pytest.mark.parametrize("cupti", [True, False])
def test_without_a_gpu_the_cpu_is_profiled(machine: Machine, cupti: bool) -> None:
    machine.cupti, machine.device = cupti, False
    prof = machine.profile()
    assert prof.timing_source == "cpu" and len(prof) == 2 and machine.profile(activities=[CPU]).timing_source == "cpu"
    with pytest.warns(UserWarning, match="CUDA is not profiled: (there is no CUDA device|CUPTI could not)"):
        prof = machine.profile(activities=[CPU, CUDA])
    assert prof.timing_source == "cpu" and len(prof) == 2
    with pytest.warns(UserWarning, match="CUDA is not profiled"):
        assert len(machine.profile(activities=[CUDA])) == 0, "without the CPU, ops are not recorded"
    with pytest.raises(RuntimeError, match='timer="cupti" is unavailable'):
        machine.profile(timer="cupti")
