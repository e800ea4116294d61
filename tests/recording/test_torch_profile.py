"""flopscope.torch: live profiles collected by torch.profiler, compared with torch's rows of the same recording."""

import gc
import gzip
import inspect
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs
from flopscope.read.load import read
from flopscope.record import kineto_text as module

torch = pytest.importorskip("torch")
ft = pytest.importorskip("flopscope.torch")

TIMES = ("self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total")
MEMORY = ("self_cpu_memory_usage", "cpu_memory_usage")
CPU = [torch.profiler.ProfilerActivity.CPU]


def train(steps: int = 1, step: Any = None) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        with torch.profiler.record_function("forward"):
            loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step is not None:
            step()


def same_rows(ours: fs.EventTable, theirs: Any, shapes: bool) -> None:
    def key(row: Any) -> tuple[Any, ...]:
        return row.key, bool(row.is_user_annotation), str(row.input_shapes) if shapes else ""

    actual, expected = {key(row): row for row in ours}, {key(row): row for row in theirs}
    assert actual.keys() == expected.keys() and len(actual) == len(ours)
    for name, row in expected.items():
        assert actual[name].count == row.count, name
        for time in TIMES:
            assert abs(getattr(actual[name], time) - getattr(row, time)) <= 0.005 * row.count + 1e-6, (name, time)
        for memory in MEMORY:
            assert getattr(actual[name], memory) == getattr(row, memory), (name, memory)


@pytest.mark.parametrize("shapes", [False, True])
def test_rows_equal_the_rows_of_torch(shapes: bool) -> None:
    with ft.profile(activities=CPU, record_shapes=True, profile_memory=True) as prof:
        train(3)
    ours = prof.key_averages(group_by_input_shape=shapes, peaks="none")
    same_rows(ours, super(ft.profile, prof).key_averages(group_by_input_shape=shapes), shapes)
    assert prof.coverage()["bytes"] > 0.5 and any(row.flops > 0 for row in ours)


def test_the_text_equals_that_of_torch_except_flops() -> None:
    with ft.profile(activities=CPU) as prof:
        train()
    theirs = super(ft.profile, prof).key_averages().table(row_limit=-1).splitlines()
    ours = prof.key_averages(peaks="none").table(row_limit=-1, roofline=False).splitlines()
    differ = [pair for pair in zip(ours, theirs, strict=True) if pair[0].rstrip() != pair[1].rstrip()]
    assert len(differ) <= len(theirs) // 20, differ[:3]


PLANS = {
    "flopscope": fs.schedule(wait=1, warmup=1, active=2, repeat=2),
    "torch": torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2),
    "own": lambda step: fs.ProfilerAction(min(step % 4, 2) + (step % 4 == 3)) if step < 8 else fs.ProfilerAction.NONE,
}


@pytest.mark.parametrize("profile", [ft.profile, fs.profile, torch.profiler.profile], ids=["ours", "native", "torch"])
@pytest.mark.parametrize("plan", PLANS)
def test_every_schedule_works_under_every_profile(profile: Any, plan: str) -> None:
    if profile is torch.profiler.profile and plan != "torch":
        pytest.skip("torch does not accept actions of other libraries")
    ready: list[tuple[int, list[str]]] = []

    def hand_over(prof: Any) -> None:
        ready.append((prof.step_num, [row.key for row in prof.key_averages() if row.key == "one step"]))

    with profile(activities=CPU, schedule=PLANS[plan], on_trace_ready=hand_over) as prof:
        for _ in range(10):
            with (fs if profile is fs.profile else torch.profiler).record_function("one step"):
                torch.ones(4, 4) @ torch.ones(4, 4)
            prof.step()
    assert ready == [(4, ["one step"]), (8, ["one step"])]


def exported(folder: Path) -> Any:
    with torch.profiler.profile(activities=CPU) as prof:
        train()
    prof.export_chrome_trace(str(folder / "a.json"))
    return prof


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda _: ft.profile(activities=CPU, schedule=3), TypeError, "schedule must be a function, not 3"),
        (lambda _: ft.profile(activities=CPU, schedule=lambda n: "R"), TypeError, "schedule returned 'R' for step 0"),
        (lambda _: ft.profile(schedule=len, acc_events=True), ValueError, "acc_events=True is unsupported with"),
        (lambda _: ft.from_profile(7), TypeError, "not 7"),
        (lambda _: ft.from_profile(torch.profiler.profile(activities=CPU)), RuntimeError, "has recorded nothing"),
        (lambda folder: ft.from_profile(exported(folder)), RuntimeError, "load_trace"),
        (lambda _: ft.profile(record_shape=True), TypeError, "'record_shape'; did you mean 'record_shapes'"),
        (lambda _: ft.profile(activites=True), TypeError, "'activites'; did you mean 'activities'"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        make(tmp_path)


def test_a_profile_that_is_restarted_or_ends_by_an_exception_has_its_latest_results() -> None:
    prof = ft.profile(activities=CPU)
    prof.start()
    torch.ones(3).sin()
    prof.stop()
    assert "aten::sin" in {row.key for row in prof.key_averages(peaks="none")}
    with pytest.raises(ZeroDivisionError), prof:
        torch.ones(3).cos()
        1 / 0  # noqa: B018
    assert {row.key for row in prof.key_averages(peaks="none")} & {"aten::sin", "aten::cos"} == {"aten::cos"}


def test_tables_are_available_after_the_trace_handler_of_torch(tmp_path: Path) -> None:
    handler = ft.tensorboard_trace_handler(str(tmp_path), use_gzip=True)
    with ft.profile(activities=CPU, on_trace_ready=handler) as prof:
        train()
    (file,) = tmp_path.iterdir()
    assert file.suffix == ".gz"
    rows = prof.key_averages(peaks="none").to_dicts()
    assert fs.load_trace(file).key_averages(peaks="none").to_dicts() == rows
    prof.export_chrome_trace(tmp_path / "again.json")
    first, again = map(json.loads, (gzip.decompress(file.read_bytes()), (tmp_path / "again.json").read_text()))
    assert again.pop("traceName") == str(tmp_path / "again.json")
    assert first.pop("traceName") == str(file) and first == again


def test_a_trace_can_be_written_to_any_kind_of_file(tmp_path: Path) -> None:
    with ft.profile(activities=CPU) as prof:
        train()
    name = tmp_path / 'a "quoted" \\ name.json'
    prof.export_chrome_trace(name)
    assert json.loads(name.read_text())["traceName"] == str(name)
    prof.export_chrome_trace("/dev/null")
    with pytest.raises(FileNotFoundError):
        prof.export_chrome_trace(tmp_path / "nowhere" / "a.json")


def test_the_list_of_events_of_torch_is_never_created(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("torch created its list of events")

    monkeypatch.setattr(torch.autograd.profiler.profile, "_parse_kineto_results", fail)
    with ft.profile(activities=CPU, record_shapes=True, with_stack=True, with_flops=True, acc_events=True) as prof:
        train()
    prof.key_averages(group_by_stack_n=3, peaks="none")
    str(prof.summary())
    prof.export_stacks(tmp_path / "stacks.txt")
    assert "aten::addmm" in (tmp_path / "stacks.txt").read_text()
    assert {event.name for event in prof.trace().events()} >= {"forward", "aten::linear"}
    assert len(ft.from_profile(prof)) == len(prof) == len(prof.trace())


def test_each_cycle_frees_the_file_of_the_previous_one() -> None:
    def files() -> int:
        return sum(1 for fd in Path("/proc/self/fd").iterdir() if "torch.profiler" in os.path.realpath(fd))

    gc.collect()  # torch's profiles contain reference cycles
    before, seen = files(), []

    def ready(prof: Any) -> None:
        prof.key_averages(peaks="none")
        seen.append(files() - before)

    plan = ft.schedule(wait=0, warmup=1, active=1, repeat=3)
    with ft.profile(activities=CPU, schedule=plan, on_trace_ready=ready) as prof:
        train(6, prof.step)
    assert seen == [1, 1, 1]
    del prof
    gc.collect()
    assert files() == before


def test_traces_are_written_before_another_profile_sets_their_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    first, second = ft.profile(activities=CPU), ft.profile(activities=CPU)
    for prof in (first, second, second):
        with prof:
            train()
    texts = first.profiler.kineto_results, second.profiler.kineto_results
    assert [text in module._unwritten for text in texts] == [False, True] and texts[0]._memory is not None


def test_other_names_of_the_module_come_from_torch() -> None:
    assert ft.ExecutionTraceObserver is torch.profiler.ExecutionTraceObserver
    assert ft.record_function is torch.profiler.record_function and ft.schedule is torch.profiler.schedule
    assert inspect.signature(ft.profile) == inspect.signature(torch.profiler.profile)
    with pytest.raises(AttributeError):
        ft.no_such_thing  # noqa: B018


def test_results_before_the_end_are_errors() -> None:
    prof = ft.profile(activities=CPU)
    for ask in (prof.key_averages, prof.trace, prof.events, lambda: prof.export_chrome_trace("/dev/null")):
        with pytest.raises(RuntimeError, match=r"there is no .*: the profile has recorded nothing"):
            ask()
    with prof, pytest.raises(RuntimeError, match="still running; stop it"):
        prof.coverage()
    assert len(prof.key_averages(peaks="none")) >= 0
    with ft.profile(activities=CPU, schedule=fs.schedule(wait=1, warmup=0, active=1)) as prof:
        pass
    with pytest.raises(RuntimeError, match=r"no step as prof\.step\(\), which ends each, was not called"):
        prof.key_averages()


@pytest.mark.parametrize("make", ["torch.profiler", "torch.autograd.profiler"])
def test_from_profile_reads_a_profile_of_torch(make: str, tmp_path: Path) -> None:
    kind = torch.profiler.profile if make == "torch.profiler" else torch.autograd.profiler.profile
    options = {"activities": CPU} if make == "torch.profiler" else {"use_kineto": True}
    with kind(record_shapes=True, **options) as prof:
        train(2)
    trace = ft.from_profile(prof)
    theirs = prof.key_averages(group_by_input_shape=True)
    same_rows(trace.key_averages(group_by_input_shape=True, peaks="none"), theirs, True)
    for name in ("a.json", "b.json"):  # torch alone allows a single export
        prof.export_chrome_trace(str(tmp_path / name))
        assert len(fs.load_trace(tmp_path / name)) == len(trace) == len(ft.from_profile(prof))


def test_with_stacks_rows_are_still_ops_and_ranges() -> None:
    with ft.profile(activities=CPU, with_stack=True) as prof:
        train()
    stacks = [row.stack for row in prof.key_averages(group_by_stack_n=12, peaks="none") if row.key == "aten::addmm"]
    assert stacks and any("test_torch_profile.py" in entry for stack in stacks for entry in stack)
    ours = {row.key: row for row in prof.key_averages(peaks="none")}
    for row in super(ft.profile, prof).key_averages():  # recent versions of torch have rows of Python calls
        if row.key.startswith(("aten::", "autograd::")) or row.key == "forward":
            actual = ours.pop(row.key)
            assert actual.count == row.count and abs(actual.cpu_time_total - row.cpu_time_total) <= 0.005 * row.count
    assert not [key for key in ours if ".py(" in key]


def test_without_torch_the_import_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "flopscope.torch")
    monkeypatch.setitem(sys.modules, "torch.profiler", None)
    with pytest.raises(ImportError, match="pip install torch"):
        import flopscope.torch  # noqa: F401


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_failed_export_keeps_the_existing_file(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ft.profile(activities=CPU) as prof:
        train()
    full, path = tmp_path / f"full{suffix}", tmp_path / f"trace{suffix}"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        prof.export_chrome_trace(full)
    assert caught.value.filename == str(full)
    prof.export_chrome_trace(path)
    old = path.read_bytes()

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flopscope.record.kineto_text._copy", fail)
    monkeypatch.setattr(gzip.GzipFile, "write", fail)
    with pytest.raises(OSError, match="No space left on device") as caught:
        prof.export_chrome_trace(path)
    assert caught.value.filename == str(path) and path.read_bytes() == old
    if "use_python_export" in inspect.signature(torch.profiler.profile.export_chrome_trace).parameters:
        monkeypatch.undo()
        prof.export_chrome_trace(path, use_python_export=True)
        old = path.read_bytes()
        assert {row.key for row in fs.load_trace(path).key_averages()} >= {"aten::mm"}
        monkeypatch.setattr(shutil, "copyfileobj", fail)
        with pytest.raises(OSError, match="No space left on device"):
            prof.export_chrome_trace(path, use_python_export=True)
        assert path.read_bytes() == old
    assert sorted(file.name for file in tmp_path.iterdir()) == [full.name, path.name]


@pytest.mark.parametrize("backend", ["cuspy", "cupti_monitor"])
def test_torchs_own_client_of_cupti_is_refused(backend: str) -> None:
    config = torch._C._profiler._ExperimentalConfig
    known = hasattr(torch.profiler.profile(activities=CPU), f"_use_{backend}")
    if known and "custom_profiler_config" in (config.__init__.__doc__ or ""):
        with pytest.raises(ValueError, match=f"the {backend} backend is unsupported"):
            ft.profile(activities=CPU, experimental_config=config(custom_profiler_config=backend))
    with torch.profiler.profile(activities=CPU) as prof:
        train()
    setattr(prof, f"_use_{backend}", True)
    with pytest.raises(ValueError, match=f"the {backend} backend is unsupported"):
        ft.from_profile(prof)


def test_an_interrupted_stop_still_has_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    prof = ft.profile(activities=CPU)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ft, "keep_text", interrupt)
        with prof:
            train()
    assert len(prof.key_averages(peaks="none")) > 0


def test_a_cpu_program_has_rates_if_the_trace_names_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch names the GPUs of the machine in every trace."""
    with ft.profile(activities=CPU, record_shapes=True) as prof:
        torch.sin(torch.ones(64, 64))
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    trace = json.loads((tmp_path / "t.json").read_text())
    text = json.dumps({**trace, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}).encode()
    monkeypatch.setattr(prof._finished("trace"), "read", lambda: read(text), raising=False)
    for used_cuda in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used_cuda=used_cuda: used_cuda)
        monkeypatch.setattr(prof, "_traces", {})
        table = prof.key_averages()
        (row,) = [row for row in table if row.key == "aten::sin"]
        assert table.device_unseen == used_cuda and math.isnan(row.gbytes_per_s) == used_cuda
