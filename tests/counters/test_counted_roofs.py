"""The roofs that counters add: the L2, the pipes of multiprocessors, issue slots; and what they say bounds a row.

Kernels and their counts are put together by hand, on a GPU with a memory of 4 TB/s and an L2 of 8 TB/s.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import BANDWIDTH, Program

import flopscope as fs
from flopscope import _core
from flopscope.show.roofs import slopes_of
from flopscope.support.peaks import Peaks

KERNEL, SAMPLE = 400_000, 10_000  # ns
MEMORY, L2 = 4e12, 8e12
PEAKS: Mapping[str, Any] = {"bandwidth": MEMORY, "l2_bandwidth": L2, "flops": {"fp32": 60e12}}
UNITS = ("tensor_active", "fma_active", "fp64_active", "alu_active", "issue_active")
QUIET = {"dram_bytes_read": 40.0, "dram_bytes_written": 0.0, "l2_bytes": 40.0, "sm_active": 95.0}
QUIET |= dict.fromkeys(UNITS, 2.0)
Work = tuple[str, int, int]
"""Name, start and length in ns."""


def store_of(works: Sequence[Work], rates: Mapping[str, float | Sequence[float]]) -> _core.Store:
    """Return kernels with counters: bytes/ns, or shares in percent; one value, or one for each KERNEL's time."""
    store = _core.Store()
    for name, start, length in works:
        _core._append(store, "kernel", name, start, length, device=0)  # type: ignore[attr-defined]
    end = max(start + length for _, start, length in works)
    edges = np.arange(0, end + 1, SAMPLE)
    for name, rate in rates.items():
        values = np.repeat(np.atleast_1d(np.asarray(rate, dtype=float)), KERNEL // SAMPLE)[: len(edges) - 1]
        values = values if np.ndim(rate) else np.full(len(edges) - 1, float(rate))  # type: ignore[arg-type]
        store.add_samples(0, name, edges[:-1], edges[1:], values * (SAMPLE if "bytes" in name else 1))
    return store


def rows_of(store: _core.Store, **changes: Any) -> dict[str, dict[str, Any]]:
    columns, _ = store.table(False, 0, {"cuda:0": {**PEAKS, **changes}})
    return {key: {name: columns[name][i] for name in columns} for i, key in enumerate(columns["key"])}


def row_of(rates: Mapping[str, float], **changes: Any) -> dict[str, Any]:
    return rows_of(store_of([("kernel", 0, KERNEL)], rates), **changes)["kernel"]


def test_the_l2_has_a_rate_and_a_share_of_its_peak() -> None:
    row = row_of({**QUIET, "l2_bytes": 6000.0})
    assert row["l2_bytes"] == pytest.approx(6000 * KERNEL) and row["l2_gbytes_per_s"] == pytest.approx(6000)
    assert row["pct_peak_l2"] == pytest.approx(100 * 6e12 / L2)
    assert row["bound"] == "l2" and row["pct_roofline"] == pytest.approx(75)
    assert row["headroom"] == pytest.approx(KERNEL / 1e3 / 4)
    assert row["pct_peak_bandwidth"] == pytest.approx(1) and row["pct_peak_flops"] == pytest.approx(2)


def test_without_a_peak_of_the_l2_its_share_is_unknown_and_all_else_stays() -> None:
    for changes in ({"l2_bandwidth": None}, {"l2_bandwidth": math.nan}):
        row = row_of({**QUIET, "l2_bytes": 6000.0}, **changes)
        assert math.isnan(row["pct_peak_l2"]) and row["l2_gbytes_per_s"] == pytest.approx(6000)
        assert row["bound"] == "other" and row["pct_roofline"] == pytest.approx(2)
    row = row_of({**QUIET, "fma_active": 80.0}, l2_bandwidth=None)
    assert row["bound"] == "fma" and row["pct_roofline"] == pytest.approx(80)


@pytest.mark.parametrize("unit", UNITS)
def test_the_busiest_unit_bounds(unit: str) -> None:
    row = row_of({**QUIET, unit: 85.0})
    assert row["bound"] == unit.removesuffix("_active") and row[unit] == pytest.approx(85)
    assert row["pct_peak_flops"] == row["pct_roofline"] == pytest.approx(85)


@pytest.mark.parametrize("missing", UNITS)
def test_a_chip_that_lacks_one_has_the_others(missing: str) -> None:
    other = next(unit for unit in UNITS if unit != missing)
    rates = {name: rate for name, rate in QUIET.items() if name != missing}
    row = row_of({**rates, other: 70.0})
    assert row["bound"] == other.removesuffix("_active") and math.isnan(row[missing])
    assert row_of(rates)["bound"] == "other", "what was not counted may have been busy"
    assert row_of(QUIET)["bound"] == "inefficient", "all were counted, and none was busy"


@pytest.mark.parametrize(
    ("rates", "bound"),
    [
        ({"fma_active": 96.0, "issue_active": 99.0}, "fma"),  # each of its instructions takes a slot
        ({"fma_active": 70.0, "alu_active": 60.0, "issue_active": 97.0}, "issue"),
        ({"alu_active": 99.0, "issue_active": 50.0}, "alu"),
        ({"dram_bytes_read": 3600.0, "l2_bytes": 3800.0, "issue_active": 55.0}, "memory"),
        ({"dram_bytes_read": 3000.0, "l2_bytes": 7000.0}, "l2"),
        ({"tensor_active": 90.0, "l2_bytes": 6000.0, "dram_bytes_read": 900.0}, "tensor"),
        ({"dram_bytes_read": 2000.0, "l2_bytes": 2100.0, "l2_active": 63.0}, "l2"),
        (
            {"dram_bytes_read": 3600.0, "l2_bytes": 3600.0, "l2_active": 92.0},
            "memory",
        ),  # 90 %: what moves passes the L2
        ({"l1_active": 92.0, "l2_active": 63.0, "alu_active": 52.0}, "l1"),
        ({"l1_active": 70.0, "tensor_active": 91.0}, "tensor"),
        ({"l1_active": 49.0, "l2_active": 49.0}, "other"),
        ({"fma_active": 49.0, "issue_active": 49.0, "l2_bytes": 3900.0, "dram_bytes_read": 1900.0}, "other"),
    ],
)
def test_the_nearest_roof_bounds(rates: Mapping[str, float], bound: str) -> None:
    assert row_of({**QUIET, **rates})["bound"] == bound


def test_the_busiest_part_of_a_cache_is_its_share_of_the_roof() -> None:
    row = row_of({**QUIET, "l2_bytes": 1000.0, "l2_active": 80.0, "l1_active": 60.0}, l2_bandwidth=None)
    assert (row["l2_active"], row["l1_active"], row["pct_roofline"]) == pytest.approx((80, 60, 80))
    assert row["bound"] == "l2" and row["pct_peak_flops"] == pytest.approx(2), "a cache computes nothing"
    assert row_of({**QUIET, "l1_active": 12.0})["bound"] == "other", "a cache was not idle"


@pytest.mark.parametrize(
    ("sectors", "busy"), [(0.0, 0.0), (5.0, 40.5), (10.0, 72.0), (40 / 3, 88.0), (17.0, 100.0), (60.0, 100.0)]
)
def test_the_fabric_of_the_l2_is_estimated_from_its_sectors(sectors: float, busy: float) -> None:
    row = row_of({**QUIET, "l2_fabric": sectors, "dram_bytes_read": 2000.0})
    assert row["l2_fabric_active"] == pytest.approx(busy, rel=0.01)
    assert row["bound"] == ("l2" if busy > 53 else "memory") and math.isnan(row_of(QUIET)["l2_fabric_active"])


def test_overlapping_kernels_never_exceed_the_roof_in_sum() -> None:
    works = [("one", 0, KERNEL), ("other", KERNEL // 2, KERNEL)]
    full = {**QUIET, "l2_bytes": L2 / 1e9, "fma_active": 95.0}
    rows = rows_of(store_of(works, full))
    assert all(0 < row["pct_peak_l2"] <= 100.001 and row["pct_roofline"] <= 100.001 for row in rows.values())
    total = sum(row["l2_bytes"] for row in rows.values())
    assert total == pytest.approx(L2 / 1e9 * 1.5 * KERNEL, rel=1e-6)
    same = rows_of(store_of([("one", 0, KERNEL), ("one", KERNEL // 2, KERNEL)], full))["one"]
    assert same["pct_peak_l2"] == pytest.approx(100) and same["device_busy_time"] == pytest.approx(1.5 * KERNEL / 1e3)


def test_several_devices_share_a_roof_by_their_work() -> None:
    store = store_of([("kernel", 0, KERNEL)], {**QUIET, "l2_bytes": 6000.0})
    _core._append(store, "kernel", "kernel", 0, KERNEL, device=1)  # type: ignore[attr-defined]
    edges = np.arange(0, KERNEL + 1, SAMPLE)
    for name, rate in {**QUIET, "l2_bytes": 2000.0}.items():
        values = np.full(len(edges) - 1, rate * (SAMPLE if "bytes" in name else 1))
        store.add_samples(1, name, edges[:-1], edges[1:], values)
    columns, _ = store.table(False, 0, {"cuda:0": PEAKS, "cuda:1": PEAKS})
    assert list(columns["l2_bytes"]) == [pytest.approx(8000 * KERNEL)]
    assert list(columns["pct_peak_l2"]) == [pytest.approx(100 * (0.75 + 0.25) / 2)]


# Ops whose work the model knows ---------------------------------------------------------------------------------------


def an_op(us: float, **rates: float) -> fs.Trace:
    """Return a program of an op that must move 201 MB, 42 µs of an H200's memory, and took so long."""
    program = Program()
    program.run("aten::add", 1, 10, us, [1 << 24], [1 << 24], kernel="kernel")
    for name, rate in rates.items():
        for at in range(10, 10 + int(us), 10):
            program.count(name, at, rate, "GB/s" if "bytes" in name else "%")
        program.count(name, 10 + us, 0)
    return program.load()


@pytest.mark.parametrize(
    ("us", "rates", "bound"),
    [
        (200, {}, "memory"),
        (200, {"dram_bytes_read": 1000.0, "dram_bytes_written": 10.0}, "memory"),
        (200, {"fma_active": 85.0}, "fma"),
        (200, {"fma_active": 45.0}, "memory"),  # not half of its peak either
        (200, {"fma_active": 60.0, "dram_bytes_read": 4000.0, "dram_bytes_written": 10.0}, "memory"),
        (60, {"issue_active": 90.0}, "memory"),  # its bytes explain more than half of the time
        (1000, {}, "inefficient"),
        (1000, {"issue_active": 90.0, "fma_active": 20.0}, "issue"),
        (1000, {"dram_bytes_read": 4300.0, "dram_bytes_written": 10.0}, "memory"),  # of 20 times the bytes it must
        (1000, {"issue_active": 30.0}, "inefficient"),
    ],
)
def test_counts_tell_what_bounds_ops_that_no_model_explains(us: float, rates: Mapping[str, float], bound: str) -> None:
    (row,) = [row for row in an_op(us, **rates).key_averages(peaks="datasheet") if row.key == "aten::add"]
    assert row.bound == bound
    assert row.bytes_source == "model" and row.bytes_total_moved == 12 << 24, "the model has its work"
    assert row.pct_roofline == pytest.approx(100 * (12 << 24) / BANDWIDTH / (us * 1e-6), rel=1e-3)


def test_a_faster_memory_does_not_help_what_a_unit_bounds() -> None:
    least = 1e6 * (12 << 24) / BANDWIDTH
    for rates, expected in (({"fma_active": 85.0}, 200 - least / 2), ({}, 100)):
        whole = an_op(200, **rates).what_if(peaks={"memory": 2 * BANDWIDTH}).iloc[-1]
        parts = whole["ideal"] + whole["compute"] + whole["memory"] + whole["latency"]
        assert parts == pytest.approx(expected, rel=1e-3), rates


# Views ----------------------------------------------------------------------------------------------------------------


def test_the_l2_has_a_roof_where_a_cache_bounds_an_op() -> None:
    peaks = {"measured": Peaks("measured", {"fp32": 60e12}, 4e12, l2_bandwidth=8e12)}
    peaks["datasheet"] = Peaks("datasheet", {"fp32": 67e12}, 4.8e12)
    memory = ("memory", {"measured": 4e12, "datasheet": 4.8e12})
    assert slopes_of(peaks, ["memory", "unknown"]) == [memory]
    for bound in ("l2", "cache"):
        assert slopes_of(peaks, ["memory", bound]) == [memory, ("L2", {"measured": 8e12})]
    assert slopes_of({"datasheet": peaks["datasheet"]}, ["cache"]) == [("memory", {"datasheet": 4.8e12})]
    assert slopes_of({}, ["cache"]) == []
