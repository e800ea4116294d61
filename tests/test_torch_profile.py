"""flopscope.torch: torch.profiler's collection, live, and the rows that torch makes of the same recording."""

from __future__ import annotations

import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs

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

    found, expected = {key(row): row for row in ours}, {key(row): row for row in theirs}
    assert found.keys() == expected.keys() and len(found) == len(ours)
    for name, row in expected.items():
        assert found[name].count == row.count, name
        for time in TIMES:
            assert abs(getattr(found[name], time) - getattr(row, time)) <= 0.005 * row.count + 1e-6, (name, time)
        for memory in MEMORY:
            assert getattr(found[name], memory) == getattr(row, memory), (name, memory)


@pytest.mark.parametrize("shapes", [False, True])
def test_rows_are_those_that_torch_makes_of_the_same_recording(shapes: bool) -> None:
    with ft.profile(activities=CPU, record_shapes=True, profile_memory=True) as prof:
        train(3)
    ours = prof.key_averages(group_by_input_shape=shapes, peaks="none")
    same_rows(ours, super(ft.profile, prof).key_averages(group_by_input_shape=shapes), shapes)
    assert prof.coverage()["bytes"] > 0.5 and any(row.flops > 0 for row in ours)


def test_the_text_is_torchs_but_for_its_flops() -> None:
    with ft.profile(activities=CPU) as prof:
        train()
    theirs = super(ft.profile, prof).key_averages().table(row_limit=-1).splitlines()
    ours = prof.key_averages(peaks="none").table(row_limit=-1, roofline=False).splitlines()
    differ = [pair for pair in zip(ours, theirs, strict=True) if pair[0].rstrip() != pair[1].rstrip()]
    assert len(differ) <= len(theirs) // 20, differ[:3]


def test_a_schedule_hands_each_cycle_over(tmp_path: Path) -> None:
    seen = []

    def ready(prof: Any) -> None:
        rows = {row.key: row.count for row in prof.key_averages(peaks="none")}
        seen.append((prof.step_num, rows["forward"], rows["ProfilerStep*"]))

    plan = ft.schedule(wait=1, warmup=1, active=2, repeat=2)
    with ft.profile(activities=CPU, schedule=plan, on_trace_ready=ready) as prof:
        train(8, prof.step)
    assert seen == [(4, 2, 2), (8, 2, 2)]
    assert isinstance(prof, torch.profiler.profile)


def test_torchs_trace_handler_and_our_tables_go_together(tmp_path: Path) -> None:
    handler = ft.tensorboard_trace_handler(str(tmp_path), use_gzip=True)
    with ft.profile(activities=CPU, on_trace_ready=handler) as prof:
        train()
    (file,) = tmp_path.iterdir()
    assert file.suffix == ".gz"
    rows = prof.key_averages(peaks="none").to_dicts()
    assert fs.load_trace(file).key_averages(peaks="none").to_dicts() == rows
    prof.export_chrome_trace(tmp_path / "again.json")
    with gzip.open(file) as first, (tmp_path / "again.json").open("rb") as second:
        assert first.read() == second.read()


def test_tables_before_the_export_and_after(tmp_path: Path) -> None:
    with ft.profile(activities=CPU) as prof:
        train()
        prof.add_metadata("experiment", "seven")
    count = len(prof.key_averages(peaks="none"))
    for name in ("a.json", "b.json.gz", "c.json"):
        prof.export_chrome_trace(str(tmp_path / name))
        assert len(fs.load_trace(tmp_path / name).key_averages(peaks="none")) == count
    assert json.loads((tmp_path / "a.json").read_text())["experiment"] == "seven"


def test_an_export_that_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    with ft.profile(activities=CPU) as prof:
        train()
    prof.export_chrome_trace(str(tmp_path / "a.json"))
    (tmp_path / "a.json").unlink()
    with pytest.raises(RuntimeError, match=r"a\.json is gone"):
        prof.key_averages()


def test_results_before_the_end_are_errors() -> None:
    prof = ft.profile(activities=CPU)
    with pytest.raises(RuntimeError, match="has recorded nothing yet"):
        prof.key_averages()
    with prof, pytest.raises(RuntimeError, match="has recorded nothing yet"):
        prof.coverage()
    assert len(prof.key_averages(peaks="none")) >= 0


def test_what_fails_inside_leaves_the_table_readable() -> None:
    prof = ft.profile(activities=CPU)
    with pytest.raises(ZeroDivisionError), prof:
        torch.ones(3).add(1)
        1 / 0  # noqa: B018
    assert "aten::add" in {row.key for row in prof.key_averages(peaks="none")}


def test_a_profile_that_starts_again_has_its_latest_results() -> None:
    prof = ft.profile(activities=CPU)
    for name in ("sin", "cos"):
        prof.start()
        getattr(torch.ones(3), name)()
        prof.stop()
        assert f"aten::{name}" in {row.key for row in prof.key_averages(peaks="none")}
    assert "aten::sin" not in {row.key for row in prof.key_averages(peaks="none")}


@pytest.mark.parametrize("make", ["torch.profiler", "torch.autograd.profiler"])
def test_from_profile_reads_what_torch_recorded(make: str, tmp_path: Path) -> None:
    kind = torch.profiler.profile if make == "torch.profiler" else torch.autograd.profiler.profile
    options = {"activities": CPU} if make == "torch.profiler" else {"use_kineto": True}
    with kind(record_shapes=True, **options) as prof:
        train(2)
    trace = ft.from_profile(prof)
    same_rows(
        trace.key_averages(group_by_input_shape=True, peaks="none"), prof.key_averages(group_by_input_shape=True), True
    )
    with pytest.raises(RuntimeError, match="load_trace"):
        ft.from_profile(prof)
    trace.export_chrome_trace(tmp_path / "trace.json")
    assert len(fs.load_trace(tmp_path / "trace.json")) == len(trace)


def test_from_profile_refuses_what_is_no_profile() -> None:
    with pytest.raises(TypeError, match="not 7"):
        ft.from_profile(7)
    with pytest.raises(RuntimeError, match="nothing yet"):
        ft.from_profile(torch.profiler.profile(activities=CPU))


def test_stacks_are_read_with_the_rest() -> None:
    with ft.profile(activities=CPU, with_stack=True) as prof:
        train()
    stacks = [row.stack for row in prof.key_averages(group_by_stack_n=12, peaks="none") if row.key == "aten::addmm"]
    assert stacks and any("test_torch_profile.py" in entry for stack in stacks for entry in stack)


def test_work_of_a_product_is_counted_once() -> None:
    a, b = torch.randn(30, 20), torch.randn(20, 40)
    with ft.profile(activities=CPU, record_shapes=True) as prof:
        torch.matmul(a, b)
    rows = {row.key: row for row in prof.key_averages(peaks="none")}
    assert rows["aten::mm"].flops == 2 * 30 * 20 * 40 and rows["aten::matmul"].flops == 0
    assert rows["aten::matmul"].flops_total == 2 * 30 * 20 * 40
    assert not math.isnan(rows["aten::mm"].bytes_total_moved)


def test_without_torch_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "flopscope.torch")
    monkeypatch.setitem(sys.modules, "torch.profiler", None)
    with pytest.raises(ImportError, match="pip install torch"):
        import flopscope.torch  # noqa: F401
