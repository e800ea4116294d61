"""Work that a program states for a range, in its row and in the rows around and within it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.tables import make_table

import flopscope as fs
from flopscope import _core
from flopscope.results.table import COLUMNS, EventTable
from flopscope.results.table_facts import Grouped

PEAKS = {"cpu": {"flops": {"fp64": 1e12, "fp32": 2e12}, "bandwidth": 1e11, "launch_ns": 10.0}}


def rows_of(core: Any, peaks: dict[str, Any] | None = None) -> tuple[EventTable, dict[str, Any]]:
    grouped = Grouped.of(core.table(False, 0, peaks or {}))
    columns = grouped.columns
    for name in ("input_shapes", "input_dtypes"):
        columns[name] = [[] for _ in columns["key"]]
    table = EventTable({column.name: columns[column.name] for column in COLUMNS}, grouped.facts)
    return table, {row.key: row for row in table if row.device_type == "cpu"}


def recorded(flops: float, nbytes: float) -> Any:
    """Return the store of a range that states its work, with an op in it."""
    x = fs.ones((64, 64))
    core: Any = _core.Profiler()
    core.start()
    token = core.begin_range("mine", False, flops, nbytes)
    fs.sin(x)
    core.end_range(token)
    core.stop()
    return core.store


def test_rates_of_stated_work_use_the_time_of_the_range() -> None:
    table, rows = rows_of(recorded(3e6, 6e5), PEAKS)
    mine, sine = rows["mine"], rows["flopscope::sin"]
    assert (mine.flops, mine.flops_total, mine.bytes_total_moved) == (3e6, 3e6, 6e5)
    assert math.isnan(mine.bytes_read) and math.isnan(mine.bytes_written)
    assert (sine.flops, sine.bytes_total_moved) == (64 * 64, 2 * 64 * 64 * 4), "the nested op keeps its own work"
    assert mine.gbytes_per_s == pytest.approx(6e5 / (mine.cpu_time_total * 1e3))
    assert mine.tflops_per_s == pytest.approx(3e6 / (mine.cpu_time_total * 1e6))
    # 6 µs for the bytes and 3 µs for the FLOPs, even on the slowest unit: bound by the bytes.
    assert mine.pct_roofline == pytest.approx(100 * 6.0 / mine.cpu_time_total) == pytest.approx(mine.pct_peak_bandwidth)
    assert math.isnan(mine.pct_peak_flops), "the unit is unknown"
    assert table.coverage()["bytes"] == table.coverage()["flops"] == 1
    assert "3.0 M" in table.table() and "585.9 KiB" in table.table()


@pytest.mark.parametrize(("flops", "nbytes"), [(5.0, math.nan), (math.nan, 7.0), (0.0, 0.0), (math.nan, math.nan)])
def test_work_that_is_not_stated_is_unknown(flops: float, nbytes: float) -> None:
    core: Any = _core.Profiler()
    core.start()
    core.end_range(core.begin_range("mine", True, flops, nbytes))
    core.stop()
    mine = rows_of(core.store)[1]["mine"]
    found = (mine.flops, mine.flops_total, mine.bytes_total_moved)
    assert found == pytest.approx((flops, flops, nbytes), nan_ok=True)


def test_device_work_outside_of_stated_ranges_is_not_covered() -> None:
    """An op without a rule launches two overlapping kernels of 40 µs; a third kernel has no op."""
    core: Any = _core.Store()
    outer = _core._append(core, kind="range", name="outer", start=0, duration=100_000)
    op = _core._append(core, kind="op", name="x::a", start=1000, duration=2000, parent=outer)
    for name, start, launcher in (("k", 10_000, op), ("k", 40_000, op), ("l", 200_000, None)):
        _core._append(core, "kernel", name, start, duration=40_000, launcher=launcher, device=0, stream=7)
    table, rows = rows_of(core)
    assert table.coverage()["bytes"] == table.coverage()["flops"] == 0
    assert sorted(table.coverage()["unmodelled"]) == [("l", 40.0), ("x::a", 80.0)]
    around = rows["outer"]
    assert around.device_busy_time == 0 and around.device_time_total == 80 and math.isnan(around.flops)


def test_stated_work_is_printed_without_a_device() -> None:
    assert "mine" in make_table({"key": "mine", "is_user_annotation": True, "flops": 2e9}).table()
