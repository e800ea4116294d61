"""Several recordings of one process in one table: sums of torch's own rows, and recordings that cannot be joined."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import TRACES
from helpers.hand_traces import Json, event, kernel, load, text_of
from helpers.tables import recorded_text
from helpers.windows import STEPS, rank, window

import flopscope as fs
from flopscope import _core
from flopscope.cli.program import main
from flopscope.read.trace import join_windows
from flopscope.results.results import store_of

TIMES = ("self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total")
MESSAGE = (
    r"two of the traces are of {}: .* are recordings of one process or of two runs that cannot be joined, because "
)


def op(start: float, duration: float = 10, pid: int = 1, step: int | None = None) -> Json:
    if step is None:
        return event("cpu_op", "op", start, duration, pid=pid)
    return event("user_annotation", f"ProfilerStep#{step}", start, duration, pid=pid)


GPU = kernel("k", 0, 10)


def torchs_rows() -> dict[tuple[str, str, bool], dict[str, str]]:
    rows = list(csv.DictReader(recorded_text(TRACES / "tutorial_naive.rows.csv").splitlines()))
    device = {True: "cpu", False: "cuda"}
    return {(r["key"], device[r["device_type"].endswith("CPU")], r["is_user_annotation"] == "True"): r for r in rows}


def test_rows_are_the_sums_of_torchs_rows() -> None:
    """The windows use the same ids and are given in the wrong order."""
    windows = [fs.load_trace(window(number)) for number in (2, 0, 1)]
    (process,) = join_windows(windows)
    assert process.windows == [windows[1], windows[2], windows[0]]
    expected = torchs_rows()
    table = process.trace.key_averages(peaks="none")
    assert {(row.key, row.device_type, bool(row.is_user_annotation)) for row in table} == set(expected)
    for row in table:
        theirs = expected[row.key, row.device_type, bool(row.is_user_annotation)]
        assert row.count == 3 * int(theirs["count"])
        for name in TIMES:
            assert getattr(row, name) == pytest.approx(3 * float(theirs[name]), abs=0.005 * row.count), (row.key, name)
        for name in ("self_cpu_memory_usage", "device_memory_usage"):
            assert getattr(row, name) == 3 * int(theirs[name])


def test_work_is_that_of_all_windows() -> None:
    windows = [fs.load_trace(window(number)) for number in range(2)]
    (process,) = join_windows(windows)
    for options in ({}, {"group_by_input_shape": True}):
        one, both = (each.key_averages(**options) for each in (windows[0], process.trace))
        assert [row.key for row in one] == [row.key for row in both]
        for a, b in zip(one, both, strict=True):
            assert (b.count, b.bound) == (2 * a.count, a.bound)
            for name in ("flops_total", "bytes_total_moved", "device_busy_time", "roofline_time"):
                assert getattr(b, name) == pytest.approx(2 * getattr(a, name), nan_ok=True)
            for name in ("tflops_per_s", "gbytes_per_s", "pct_roofline", "time_min", "time_max", "time_median"):
                assert getattr(b, name) == pytest.approx(getattr(a, name), rel=1e-9, nan_ok=True), (a.key, name)
        assert both.coverage()["bytes"] == pytest.approx(one.coverage()["bytes"], nan_ok=True)
        assert both.self_device_time_total == pytest.approx(2 * one.self_device_time_total)


def test_clocks_with_different_bases_are_compared() -> None:
    early, late = (load(op(start), baseTimeNanoseconds=base) for start, base in ((5e6, 10**9), (0.0, 7 * 10**9)))
    (process,) = join_windows([late, early])
    assert process.windows == [early, late]
    columns, *_ = store_of(process.trace, "events").events()
    assert sorted(columns["start"].tolist()) == [5_000_000_000, 6_000_000_000]


def test_processes_are_told_apart_by_rank_and_id() -> None:
    windows = [load(op(start, pid=pid), **rank(pid)) for start in (0, 100) for pid in (2, 1)]
    found = join_windows(windows)
    assert [(process.trace.rank, len(process.windows)) for process in found] == [(2, 2), (1, 2)]
    alike = [load(op(start, 100)) for start in (0, 1, 2)]  # containers: one process id, at the same time
    assert [process.windows for process in join_windows(alike)] == [[each] for each in alike]
    assert len(join_windows([load(GPU), load(GPU)])) == 2
    assert join_windows([]) == []


REFUSED = {
    "copies": ([load(op(0)), load(op(0))], "process 1", "they begin at the same moment"),
    "copies of a rank": ([load(op(0), **rank(3)), load(op(0), **rank(3))], "rank 3", "they begin at the same moment"),
    "overlap": ([load(op(0), **rank(3)), load(op(5), **rank(3))], "rank 3", "they overlap in time"),
    "mixed": ([load(op(0)), load(op(5)), load(op(100))], "process 1", "they overlap in time"),
    "two runs": ([load(op(0), **rank(3)), load(op(50, pid=2), **rank(3))], "rank 3", "their process ids are 1 and 2"),
    "no host": ([load(GPU, **rank(3)), load(GPU, **rank(3))], "rank 3", "their process ids are unknown and unknown"),
    "steps": ([load(op(0, step=4)), load(op(50, step=4))], "process 1", "both have ProfilerStep#4"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_joined_is_an_error(case: str) -> None:
    traces, who, why = REFUSED[case]
    with pytest.raises(ValueError, match=MESSAGE.format(who) + why):
        join_windows(traces)


def write(folder: Path, worker: str, number: int, *events: dict[str, Any]) -> None:
    content = text_of(*events) if events else window(number)
    (folder / f"{worker}.{number}.pt.trace.json").write_bytes(content)


def test_workers_of_file_names_are_processes(tmp_path: Path) -> None:
    for number, start in ((9, 0), (10, 100)):
        for worker, shift in (("a_1", 0), ("b_1", 3)):
            write(tmp_path, worker, number, op(start + shift))
    found = join_windows(fs.load_traces(tmp_path))
    assert [[Path(one.source).name[:3] for one in process.windows] for process in found] == [["a_1"] * 2, ["b_1"] * 2]
    write(tmp_path, "c_1", 1, op(5000))
    with pytest.raises(ValueError, match=MESSAGE.format("process 1") + "their files are of different workers"):
        join_windows(fs.load_traces(tmp_path))


def test_the_command_prints_one_table_and_each_windows_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "log", tmp_path / "out.json"
    folder.mkdir()
    for number in (0, 1):
        write(folder, "host_403", number)
    files = [str(folder / f"host_403.{number}.pt.trace.json") for number in (0, 1)]
    assert main(["table", str(folder), "--steps", "--limit", "-1", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"window 1 of 2: {files[0]}\nwindow 2 of 2: {files[1]}\n\n") and "Rank" not in text
    shown = re.findall(r"^  (ProfilerStep#\d+)", text, re.M)
    assert shown == sorted(shown, key=lambda name: int(name[13:])) and len(shown) == 2 * len(STEPS)
    content = json.loads(out.read_text())
    assert content["files"] == files
    plain = (row for row in content["rows"] if not row["is_user_annotation"])
    counts = {(row["key"], row["device_type"]): row["count"] for row in plain}
    for (key, device, annotation), row in torchs_rows().items():
        assert annotation or counts[key, device] == 2 * int(row["count"])
    assert main(["table", str(folder), files[0]]) == 2
    assert "begin at the same moment" in capsys.readouterr().err
    assert main(["compare", str(folder), files[0], "--by", "name"]) == 0
    text = capsys.readouterr().out
    assert "Times and calls are those of a step." in text and "1.00x" in text


def test_a_store_is_extended_only_by_another_one() -> None:
    one, two = (store_of(load(op(0)), "events"), store_of(load(op(0)), "events"))
    with pytest.raises(ValueError, match="by another one"):
        one.extend(one)
    with pytest.raises(TypeError):
        one.extend(7)  # type: ignore[arg-type]
    profiler = _core.Profiler()
    profiler.start()
    with pytest.raises(RuntimeError, match="still running"):
        profiler.store.extend(two)
    profiler.stop()
    with pytest.raises(ValueError, match="Profiler"):
        profiler.store.extend(two)
    one.extend(two, 2**63 - 1)
    one.extend(two, -(2**63))
    assert one.event_count == 3
