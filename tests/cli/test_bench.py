"""The benchmark program from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from flopscope.cli import bench
from flopscope.support import peaks
from flopscope.support.device import find_device


@pytest.mark.filterwarnings("ignore:cpu. slower readings")  # than the bandwidth assumed here
def test_peaks_that_the_run_exceeds_are_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOPSCOPE_CACHE_DIR", str(tmp_path))
    key = peaks.cache_key(find_device("cpu"))
    slow = peaks.Peaks("measured", flops={"fp32": 1e3, "fp64": 1e3}, bandwidth=1e12, launch_ns=1.0)
    monkeypatch.setitem(peaks.remembered, peaks.cache_file(key).name, slow)
    done = bench.run("cpu", size=64, ops=["matmul", "add"], repeat=2)
    assert done.peaks.flops["fp32"] > 1e6 and done.peaks.flops["fp64"] > 1e6
    assert done.peaks.bandwidth == 1e12 and done.peaks.launch_ns == 1, "peaks that were not exceeded stay"
    assert all(row.pct_peak_flops < 1e4 for row in done.table)
    assert [row.count for row in done.table] == [2, 2]
