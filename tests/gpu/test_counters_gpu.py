"""Hardware counters on a GPU whose counters may be read."""

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.processes import output_of

import flopscope as fs
from flopscope import _core
from flopscope.answers.counted import Counted
from flopscope.results.results import store_of

SIDE = 8192


@pytest.fixture(autouse=True)
def counters() -> None:
    """Skip where counters are unavailable: without the permission, or while another profiler holds them."""
    x = fs.rand((1024, 1024), device="cuda")
    try:
        with fs.profile(counters="require"):
            fs.neg(x)
    except RuntimeError as problem:
        pytest.skip(str(problem))


def row_of(prof: fs.profile, key: str) -> fs.EventRow:
    (found,) = [row for row in prof.key_averages(peaks="none") if row.key == key and row.device_type == "cpu"]
    return found


def test_rows_have_the_traffic_of_their_kernels() -> None:
    x, y = fs.rand((SIDE, SIDE), device="cuda"), fs.rand((SIDE, SIDE), device="cuda")
    with fs.profile(counters="require") as prof:
        for _ in range(20):
            fs.add(x, y)
            fs.sum(x)
    add, total = row_of(prof, "flopscope::add"), row_of(prof, "flopscope::sum")
    assert add.dram_bytes_read == pytest.approx(add.bytes_read, rel=0.02)
    assert add.dram_bytes_written == pytest.approx(add.bytes_written, rel=0.06)
    assert total.dram_bytes_read == pytest.approx(total.bytes_read, rel=0.03)
    assert add.traffic_ratio == pytest.approx(1, abs=0.04) and add.sm_active > 80


def test_kernels_without_a_rule_have_what_was_counted() -> None:
    torch, kernels = pytest.importorskip("torch"), pytest.importorskip("triton_kernel")
    x = torch.rand(1 << 26, device="cuda")
    kernels.double(x)
    with fs.profile(counters="require") as prof:
        for _ in range(40):
            kernels.double(x)
        torch.cuda.synchronize()
    (row,) = [row for row in prof.key_averages(peaks="datasheet") if row.key == "double_kernel"]
    assert row.bytes_source == "counted" and row.flops_source is None
    assert row.bytes_total_moved == pytest.approx(40 * 8 * (1 << 26), rel=0.03)
    assert row.bound in ("memory", "l2") and 70 < row.pct_roofline <= 105  # on an H200 both are near their peaks
    whole = prof.accounting().iloc[-1]
    assert whole["unmodelled"] < 0.02 * row.self_device_time_total
    assert prof.coverage()["bytes_source"]["counted"] > 0.95


def test_profiles_with_counters_follow_each_other() -> None:
    x = fs.rand((SIDE, SIDE), device="cuda")
    for interval in (None, 2, 20, 200):
        with fs.profile(counters="require", counter_interval_us=interval) as prof:
            for _ in range(40):
                fs.sin(x)
        assert len(prof.counter_timeline()) > 10
        assert row_of(prof, "flopscope::sin").count == 40


def test_a_call_is_counted_exactly_and_is_as_busy_as_in_a_profile() -> None:
    x, y = fs.rand((SIDE, SIDE), device="cuda"), fs.rand((SIDE, SIDE), device="cuda")
    with fs.profile(counters="require") as prof:
        for _ in range(20):
            fs.add(x, y)
    add = row_of(prof, "flopscope::add")
    assert add.l2_bytes == pytest.approx(add.bytes_total_moved, rel=0.03), "a stream asks for its bytes once"
    m = fs.measure(fs.add, x, y, counters="require", max_time=0.2)
    assert m.counters["dram_bytes_read"] == pytest.approx(8 * SIDE**2, rel=0.005)
    assert m.traffic_ratio == pytest.approx(1, abs=0.01) and "moves the bytes it must" in m.traffic
    assert m.counters["tensor_flops"] == 0
    assert m.counters["l2_bytes"] == pytest.approx(12 * SIDE**2, rel=0.03)
    for name in ("fma_active", "alu_active", "issue_active"):
        assert m.counters[name] == pytest.approx(getattr(add, name), abs=5), name
    assert 0 < m.counters["pct_peak_l2"] < 100 and m.counters["fp64_active"] < 5


def test_calls_are_counted_in_order() -> None:
    x = fs.rand((SIDE, SIDE), device="cuda")
    calls = (lambda: fs.sin(x), lambda: fs.add(x, x), lambda: fs.sum(x))
    values = _core.count_calls(0, "memory", lambda: _core.measure_flush("cuda:0"), calls)
    written = [value["dram_bytes_written"] for value in values]
    assert written[2] < 0.1 * written[0] and all(v["dram_bytes_read"] > 0.9 * 4 * SIDE**2 for v in values)


def test_the_command_counts_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flopscope", "measure", "add", f"{SIDE},{SIDE}", "--counters", "--max-time", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "traffic" in done.stdout, done.stdout + done.stderr


def run_alone(code: str) -> str:
    """Run a program in a new process, in which nothing was profiled, and return its output."""
    begin = f"import flopscope as fs\nx, y = (fs.rand(({SIDE}, {SIDE}), device='cuda') for _ in range(2))\n"
    return output_of(begin + code)


def test_kernels_are_bound_by_what_is_busy() -> None:
    held = _core.cuda_device_properties(0)["l2_bytes"]
    moved = 0.0
    with fs.profile(counters="require") as prof:
        for _ in range(4):
            for dtype, iterations in (("float32", 1 << 13), ("float64", 1 << 12)):
                _core.probe("cuda:0", "fma", dtype, iterations)
            moved += _core.probe("cuda:0", "l2", "float32", held // 4)[1]
    table = prof.key_averages(peaks="measured")
    found = {row.key: row for row in table if row.device_type == "cuda" and "kernel" in row.key}

    def only(name: str) -> fs.EventRow:
        (row,) = [row for key, row in found.items() if name in key]
        return row

    single, double, cache = only("fma_kernel<float>"), only("fma_kernel<double>"), only("l2_kernel")
    assert single.bound == "fma" and 80 < single.fma_active <= 101 and single.issue_active > single.fma_active
    assert single.pct_roofline == pytest.approx(single.fma_active, abs=1)
    if not math.isnan(double.fp64_active):
        assert double.bound == "fp64" and 80 < double.fp64_active <= 101
    assert cache.l2_bytes == pytest.approx(moved, rel=0.03), "what multiprocessors asked for, once"
    assert cache.bound == "l2" and 85 < cache.pct_peak_l2 < 110 and cache.pct_peak_bandwidth < 10
    assert all(row.bytes_source == "counted" for row in (single, double, cache))


def test_the_bandwidth_of_the_l2_is_measured() -> None:
    peaks = fs.measure_peaks("cuda:0")
    assert peaks.l2_bandwidth is not None and peaks.bandwidth is not None, peaks.missing
    assert 1.2 * peaks.bandwidth < peaks.l2_bandwidth < 10 * peaks.bandwidth
    assert "L2" in fs.devices()[1].report()


COUNT = """
def count():
    m = fs.measure(fs.add, x, y, counters="require", max_time=0.1)
    assert abs(m.counters["dram_bytes_read"] / (8 * x.shape[0] ** 2) - 1) < 0.01, m.counters
    return m.counters.get("fp32_flops")
"""


@pytest.mark.parametrize(
    "before",
    [
        "",
        "with fs.profile(): fs.neg(x)",
        "with fs.profile(counters='require'): fs.neg(x)",
        "fs.measure(fs.neg, x, max_time=0.1)",
        "count()",
    ],
    ids=["first", "after a profile", "after counters", "after a measurement", "twice"],
)
def test_a_call_is_counted_whatever_came_before(before: str) -> None:
    code = (
        COUNT
        + before
        + "\nfound = count()\nprint('FLOP instructions', found)\nassert found in (None, x.shape[0] ** 2)\n"
    )
    assert "FLOP instructions" in run_alone(code)


def test_a_call_is_counted_from_another_thread_and_after_torch() -> None:
    code = COUNT + (
        "import threading\nfound = []\nthread = threading.Thread(target=lambda: found.append(count()))\n"
        "thread.start(); thread.join()\nassert len(found) == 1\n"
    )
    run_alone(code)
    pytest.importorskip("torch")
    torch = (
        "import torch\nwith torch.profiler.profile(): torch.ones(8, device='cuda').sum()\ntorch.cuda.synchronize()\n"
    )
    run_alone(COUNT + torch + "count()\nwith fs.profile(): fs.neg(x)\ncount()\n")


PROGRAM = """
import os, sys, time
assert "torch" not in sys.modules
os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # which has no effect once CUDA is initialized
import flopscope as fs
x, y = (fs.rand((8192, 8192), device="cuda") for _ in range(2))
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(20): fs.add(x, y)
    fs.sum(x).item()
"""


def test_the_command_counts_programs_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "flopscope", "run", "--counters", "--no-report", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 0 and "Counters" in done.stderr, done.stderr
    assert "unavailable" not in done.stderr and "nothing was counted" not in done.stderr, done.stderr


@pytest.mark.parametrize("of_program", [True, False], ids=["program", "profile"])
def test_work_after_idle_time_is_counted(of_program: bool) -> None:
    x = fs.rand((SIDE, SIDE), device="cuda")
    prof = fs.profile(counters="require")
    prof._is_of_program = of_program
    with prof:
        time.sleep(2.5)
        for _ in range(250):  # 47 ms
            fs.sin(x)
    (total,) = Counted(store_of(prof, "counters")).totals()
    assert total.share > 0.95
    assert row_of(prof, "flopscope::sin").dram_bytes_read == pytest.approx(250 * 4 * SIDE**2, rel=0.03)
    assert len(prof.counter_timeline()) < 2000


def test_all_of_a_profile_of_live_samples_is_counted() -> None:
    x = fs.rand((SIDE, SIDE), device="cuda")
    with fs.profile(counters="require", counter_interval_us=100) as prof:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            for _ in range(20):
                fs.sin(x)
            _core.wait_for_devices()
    (total,) = Counted(store_of(prof, "counters")).totals()
    assert total.share > 0.95


def test_inputs_in_the_cache_are_told_from_the_memory() -> None:
    x = fs.rand((3072, 2304), device="cuda")  # 28 MB, read in about 9 µs
    with fs.profile(counters="require") as prof:
        for _ in range(500):
            fs.sum(x)
    (row,) = [row for row in prof.key_averages(peaks="datasheet") if row.key == "flopscope::sum"]
    assert row.dram_bytes_read < 0.3 * row.bytes_read and row.bound in ("cache", "l2", "launch", "latency")


def test_two_gpus_are_counted_in_one_process() -> None:
    if _core.cuda_device_count() < 2:
        pytest.skip("needs two GPUs")
    x, y = fs.rand((SIDE, SIDE), device="cuda:0"), fs.rand((SIDE, SIDE), device="cuda:1")
    fs.sin(x), fs.sum(y)
    with fs.profile(counters="require") as prof:
        for _ in range(20):
            fs.sin(x)
            fs.sum(y)
    sin, total = row_of(prof, "flopscope::sin"), row_of(prof, "flopscope::sum")
    assert sin.dram_bytes_read == pytest.approx(sin.bytes_read, rel=0.02)
    assert total.dram_bytes_read == pytest.approx(total.bytes_read, rel=0.03)
    assert set(prof.counter_timeline()["device"]) == {0, 1} and set(prof.energy) == {"cuda:0", "cuda:1"}
