"""profile(): recorded events, memory, threads, and errors of misuse."""

import gc
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.profiled import counts, rows_of, table_of

import flopscope as fs

# Counting -------------------------------------------------------------------------------------------------------------


def test_every_op_is_one_event(x: fs.Tensor) -> None:
    fs.sin(x)
    with fs.profile() as prof:
        fs.sin(x)
        for _ in range(3):
            fs.add(x, x)
        x.to("float64")
        y = -x + 1
        y *= 2
    fs.sin(x)
    assert counts(prof) == {"flopscope::sin": 1, "flopscope::add": 4, "flopscope::cast": 1, "flopscope::neg": 1,
                            "flopscope::mul_": 1}  # fmt: skip
    assert len(prof) == 8 and prof.dropped == 0
    assert table_of(prof)[0].key == "flopscope::sin", "rows are in the order of their first events"


def test_functions_that_are_no_ops_are_not_recorded(x: fs.Tensor) -> None:
    array = np.ones(4)
    with fs.profile() as prof:
        fs.empty((4,)), fs.from_numpy(array), fs.from_dlpack(array), fs.from_dlpack(x)
        x.T, x.numpy(), np.asarray(x), memoryview(x), x.to("float32"), x.__dlpack__(), repr(x)
        fs.ones((0,)).to("float32")
    assert counts(prof) == {"flopscope::ones": 1}


def test_host_times_add_up(x: fs.Tensor) -> None:
    with fs.profile() as prof, fs.record_function("outer"):
        fs.sin(x)
        with fs.record_function("inner"):
            fs.matmul(x, x)
            fs.matmul(x, x)
    rows, table = rows_of(prof), table_of(prof)
    for row in table:
        assert 0 <= row.self_cpu_time_total <= row.cpu_time_total and row.cpu_time == row.cpu_time_total / row.count
        assert row.self_device_time_total == row.device_time_total == row.device_busy_time == 0
        assert row.device_type == "cpu" and row.timing_source == "cpu"
    outer, inner, matmul, sin = (rows[k] for k in ("outer", "inner", "flopscope::matmul", "flopscope::sin"))
    assert inner.cpu_time_total == pytest.approx(inner.self_cpu_time_total + matmul.cpu_time_total)
    assert outer.cpu_time_total == pytest.approx(outer.self_cpu_time_total + sin.cpu_time_total + inner.cpu_time_total)
    assert table.self_cpu_time_total == pytest.approx(sum(row.self_cpu_time_total for row in table))
    assert table.self_cpu_time_total == pytest.approx(outer.cpu_time_total)
    assert matmul.self_cpu_time_total == matmul.cpu_time_total
    assert matmul.time_min + matmul.time_max == pytest.approx(matmul.cpu_time_total) and math.isnan(sin.time_std)
    assert sin.tflops_per_s == pytest.approx(sin.flops / sin.self_cpu_time_total / 1e6)
    assert sin.gbytes_per_s == pytest.approx(sin.bytes_total_moved / sin.self_cpu_time_total / 1e3)
    assert math.isnan(sin.pct_roofline) and math.isnan(sin.pct_peak_flops) and sin.bound == "unknown"
    assert [row.key for row in table if row.top_level] == ["outer"]


def test_a_profile_without_events_has_empty_results() -> None:
    with fs.profile(record_shapes=True, profile_memory=True) as prof:
        pass
    table = table_of(prof)
    assert len(prof) == len(table) == 0 and table.table() == "" and table.to_dicts() == []
    assert table.to_pandas().empty and "html" not in repr(table) and isinstance(table._repr_html_(), str)
    coverage = prof.coverage()
    assert math.isnan(coverage["bytes"]) and math.isnan(coverage["flops"]) and coverage["unmodelled"] == []
    assert not table.has_device and not table.has_memory and table.open_events == 0


def test_a_profile_keeps_no_tensor_alive() -> None:
    gc.collect()
    before = fs.memory_allocated("cpu")
    with fs.profile(profile_memory=True, record_shapes=True) as prof:
        fs.sin(fs.ones((100,)))
    assert fs.memory_allocated("cpu") == before and len(prof) > 0


def test_a_hundred_thousand_ops_take_bounded_memory(x: fs.Tensor) -> None:
    one, add_ = fs.ones(()), fs.add_
    with fs.profile(record_shapes=True) as prof:
        for _ in range(100_000):
            add_(one, 1.0)
    assert len(prof) == 100_000 and prof.dropped == 0 and counts(prof) == {"flopscope::add_": 100_000}
    # An event takes 55 bytes (csrc/store/store.h). Memory is allocated in chunks of 65 536 events.
    assert prof._core.nbytes <= 2 * 65_536 * 60
    assert one.item() == 100_001 and rows_of(prof)["flopscope::add_"].flops == 100_000


# Starting and stopping ------------------------------------------------------------------------------------------------


def test_a_restarted_profile_discards_earlier_events(x: fs.Tensor) -> None:
    prof = fs.profile()
    with pytest.raises(RuntimeError, match="never started"):
        prof.stop()
    with prof:
        fs.sin(x)
        with pytest.raises(RuntimeError, match="this profile is in progress already"):
            prof.start()
    with prof:
        fs.cos(x)
        prof.stop()
        fs.sin(x)
    with pytest.raises(RuntimeError, match="not running"):
        prof.stop()
    assert counts(prof) == {"flopscope::cos": 1} and prof.coverage() == {"bytes": 1.0, "flops": 1.0, "unmodelled": []}


def test_only_one_profile_runs_at_a_time(x: fs.Tensor) -> None:
    second, deleted = fs.profile(), fs._core.Profiler(True)
    deleted.start()
    del deleted
    gc.collect()
    with fs.profile() as first:
        with pytest.raises(RuntimeError, match="in progress"):
            second.start()
        with pytest.raises(RuntimeError, match="in progress"), second:
            fs.cos(x)
        fs.sin(x)
    assert counts(first) == {"flopscope::sin": 1}
    with second:
        fs.cos(x)
    assert counts(second) == {"flopscope::cos": 1}, "a profile that could not start can start later"


def test_a_running_profile_has_no_table() -> None:
    with fs.profile() as prof:
        for ask in (
            *(prof.key_averages, prof.coverage, prof.gpu_summary, prof.step_breakdown, prof.launch_summary),
            *(prof.collectives, prof.stream_summary, prof.summary, lambda: prof.write_report("r.html")),
            *(lambda: prof.export_chrome_trace("t.json"), lambda: prof._core.table(False, 0, {}), prof.events),
        ):
            with pytest.raises(RuntimeError, match="still running"):
                ask()
    assert list(prof.events()) == []
    with pytest.raises(RuntimeError, match="the profile was not started"):
        fs.profile().events()


def test_a_profile_is_not_stopped_while_another_thread_restarts_it() -> None:
    """restart() waits without the GIL for the running op; a concurrent stop() would free memory that it still uses."""
    core = fs._core.Profiler()
    a = fs.ones((3000, 3000), dtype="float64")
    core.start()
    works = threading.Thread(target=lambda: fs.matmul(a, a))
    restarts = threading.Thread(target=core.restart)
    works.start()
    while core.store.event_count == 0:
        time.sleep(0.001)
    restarts.start()
    time.sleep(0.02)
    for change in (core.stop, core.start, core.restart):
        with pytest.raises(RuntimeError, match="another thread is starting or stopping"):
            change()
    works.join()
    restarts.join()
    core.stop()
    assert core.store.event_count == 0


# Shapes and memory ----------------------------------------------------------------------------------------------------


def test_shapes_are_recorded_with_record_shapes() -> None:
    for record_shapes in (False, True):
        with fs.profile(record_shapes=record_shapes) as prof:
            a, b = fs.from_numpy(np.ones((2, 3), np.float32)), fs.from_numpy(np.ones(3, np.float32))
            fs.add(a, b, out=fs.empty((2, 3)))
            fs.mul(a, 2.0)
            fs.mul_(a, a)
            fs.fill_(a, 1)
        rows = {
            row.key.removeprefix("flopscope::"): row
            for row in table_of(prof, group_by_input_shape=True)
            if row.count == 1
        }
        assert table_of(prof).record_shapes == record_shapes
        assert not any(row.input_shapes for row in table_of(prof)), "rows that combine several shapes have no shapes"
        assert "Input Shapes" not in table_of(prof).table()
        if not record_shapes:
            continue
        shapes = {name: row.input_shapes for name, row in rows.items()}
        assert shapes == {"add": [[2, 3], [3]], "mul": [[2, 3], []], "mul_": [[2, 3], [2, 3]], "fill_": [[2, 3], []]}
        assert rows["add"].input_dtypes == ["float32", "float32"]
        assert "Input Shapes" in table_of(prof, group_by_input_shape=True).table()


def test_memory_columns_count_allocated_and_freed_bytes() -> None:
    with fs.profile(profile_memory=True) as prof:
        with fs.record_function("part"):
            large = fs.zeros((1000,))
            fs.sin(large)  # allocated in the op, freed outside of it
        fs.add_(large, 1)
    rows, table = rows_of(prof), table_of(prof)
    assert rows["flopscope::zeros"].self_cpu_memory_usage == rows["flopscope::zeros"].cpu_memory_usage == 4000
    assert rows["flopscope::sin"].cpu_memory_usage == 4000 and rows["flopscope::add_"].cpu_memory_usage == 0
    assert rows["part"].self_cpu_memory_usage == -4000, "the result of sin is freed in the range, outside of any op"
    assert rows["part"].cpu_memory_usage == 4000 and all(row.device_memory_usage == 0 for row in table)
    assert table.has_memory and "CPU Mem" in table.table() and large.shape == (1000,)


def test_memory_outside_of_ops_has_a_separate_row() -> None:
    old = fs.zeros((1000,))
    with fs.profile(profile_memory=True) as prof:
        del old
        new = fs.empty((500,))
    row = rows_of(prof)["[memory]"]
    assert row.count == 2 and row.cpu_memory_usage == 2000 - 4000 and new.size == 500
    with fs.profile() as prof:
        del new
        fs.zeros((3,))
    assert not table_of(prof).has_memory and all(row.cpu_memory_usage == 0 for row in table_of(prof))
    assert "CPU Mem" not in table_of(prof).table()


# Threads --------------------------------------------------------------------------------------------------------------


def test_ops_of_all_threads_are_recorded_with_their_own_ranges(x: fs.Tensor) -> None:
    start = threading.Barrier(8)
    values = np.arange(50_000, dtype=np.float64)
    wrong: list[int] = []

    def work(number: int) -> None:
        start.wait(60)
        mine = fs.from_numpy(values + number)
        for i in range(50):
            with fs.record_function(f"thread {number}"):
                small = fs.add(x, float(i))
                large = fs.mul(mine, 2.0)
            if small.numpy()[0, 0] != 1 + i or large.numpy()[7] != 2 * (7 + number):
                wrong.append(number)

    with fs.profile() as prof, fs.record_function("main"), ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    rows = rows_of(prof)
    assert wrong == [] and prof.dropped == 0 and len(prof) == 1 + 8 * 50 * 3
    assert rows["flopscope::add"].count == rows["flopscope::mul"].count == 400
    for i in range(8):
        assert rows[f"thread {i}"].count == 50 and rows[f"thread {i}"].flops_total == 50 * (64 + 50_000)
        assert rows[f"thread {i}"].top_level, "ranges of different threads do not nest"
    assert rows["main"].self_cpu_time_total == rows["main"].cpu_time_total
