"""Hardware counters on a GPU whose counters may be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flopscope as fs
from flopscope import _core

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


def test_short_kernels_are_missing() -> None:
    x = fs.rand((64, 64), device="cuda")
    with fs.profile(counters="require") as prof:
        for _ in range(5):
            fs.add(x, x)
    assert row_of(prof, "flopscope::add").dram_bytes_read != row_of(prof, "flopscope::add").dram_bytes_read


def test_profiles_with_counters_follow_each_other() -> None:
    x = fs.rand((SIDE, SIDE), device="cuda")
    for interval in (None, 2, 20, 200):
        with fs.profile(counters="require", counter_interval_us=interval) as prof:
            for _ in range(40):
                fs.sin(x)
        assert len(prof.counter_timeline()) > 10
        assert row_of(prof, "flopscope::sin").count == 40


def test_a_call_is_counted_exactly() -> None:
    x, y = fs.rand((SIDE, SIDE), device="cuda"), fs.rand((SIDE, SIDE), device="cuda")
    m = fs.measure(fs.add, x, y, counters="require", max_time=0.2)
    assert m.counters["dram_bytes_read"] == pytest.approx(8 * SIDE**2, rel=0.005)
    assert m.traffic_ratio == pytest.approx(1, abs=0.01) and "moves the bytes it must" in m.traffic
    assert m.counters["tensor_flops"] == 0


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
