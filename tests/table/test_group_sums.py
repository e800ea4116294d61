"""Sums of rows by group, of lists and arrays made by hand: against NumPy."""

import math
from typing import Any

import numpy as np
import pytest

from flopscope.results.categories import sums_of_groups

INTEGERS = ("count", "self_cpu_memory_usage", "cpu_memory_usage", "self_device_memory_usage", "device_memory_usage")
NUMBERS = (
    "self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total", "device_busy_time",
    "flops", "bytes_read", "bytes_written", "bytes_total_moved", "roofline_time", "headroom", "tflops_per_s",
    "gbytes_per_s", "pct_peak_flops", "pct_peak_bandwidth", "pct_roofline",
)  # fmt: skip
ROWS, GROUPS = 300, 7


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("ops_have_work", [False, True])
def test_nested_groups_add_up_what_is_known_of_their_rows(ops_have_work: bool, on_device: bool) -> None:
    """Ranges have work of their own only where no op of a group has any: theirs is that of the ops inside."""
    rng = np.random.default_rng(4 * ops_have_work + on_device)
    columns: dict[str, Any] = {name: rng.integers(-300, 700, ROWS) for name in INTEGERS}
    columns |= {name: np.where(rng.random(ROWS) < 1 / 7, np.nan, rng.random(ROWS) * 1e6) for name in NUMBERS}
    ranges = columns["is_user_annotation"] = rng.random(ROWS) < 0.25
    columns["count"] = rng.integers(0, 9, ROWS)
    if not ops_have_work:
        for name in ("flops", "bytes_read", "bytes_written", "bytes_total_moved"):
            columns[name][~ranges] = np.nan
    parents = [-1, -1, -1, *(int(rng.integers(0, group)) for group in range(3, GROUPS))]
    groups = rng.integers(-1, GROUPS, ROWS)
    found = sums_of_groups(columns, groups.tolist(), parents, on_device)
    lists = {name: values.tolist() for name, values in columns.items()}
    assert repr(sums_of_groups(lists, groups.tolist(), parents, on_device)) == repr(found)
    works = ~ranges if ops_have_work else np.ones(ROWS, bool)
    time = columns["roofline_time"] + columns["headroom"]
    elapsed = np.where(ranges, columns["cpu_time_total"], columns["self_cpu_time_total"])
    if on_device:
        elapsed = columns["device_busy_time"]

    def total(name: str, rows: Any) -> float:
        known = columns[name][rows & ~np.isnan(columns[name])]
        return float(known.sum()) if len(known) else math.nan

    def mean(name: str, rows: Any) -> float:
        rows = rows & ~np.isnan(columns[name] + time)
        return float(np.average(columns[name][rows], weights=time[rows])) if rows.any() else math.nan

    def rate(work: str, name: str, rows: Any) -> float:
        rows = rows & ~np.isnan(columns[name]) & (elapsed > 0)
        return float(np.nansum(columns[work][rows]) / elapsed[rows].sum()) if rows.any() else math.nan

    for group in range(GROUPS):
        inside = {group}
        for inner in range(group + 1, GROUPS):
            inside |= {inner} if parents[inner] in inside else set()
        here, within = groups == group, np.isin(groups, list(inside))
        expected = {
            "rows": within.sum(), "count": columns["count"][here].sum(),
            "cpu_memory_usage": columns["self_cpu_memory_usage"][within].sum(),
            "self_cpu_time_total": total("self_cpu_time_total", here),
            "device_time_total": total("self_device_time_total", within),
            "device_busy_time": total("device_busy_time", here & works), "flops": total("flops", here & works),
            "flops_total": total("flops", within & works), "headroom": total("headroom", here & works),
            "bytes_read": total("bytes_read", here & works), "roofline_time": total("roofline_time", here & works),
            "pct_peak_flops": mean("pct_peak_flops", here & works),
            "pct_roofline_total": mean("pct_roofline", within & works),
            "tflops_per_s": rate("flops", "tflops_per_s", here & works) / 1e6,
            "gbytes_per_s": rate("bytes_total_moved", "gbytes_per_s", here & works) / 1e3,
        }  # fmt: skip
        assert {name: found[name][group] for name in expected} == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_device_time_of_no_group_is_one_more_sum() -> None:
    columns = {"count": [600, 600], "self_device_time_total": [100.0, 200.0]}
    found = sums_of_groups(columns, [0, 1], [-1, -1], device_time=600.0)
    assert found["device_busy_time"][2] == 300 and math.isnan(found["flops"][2])
    # 0.001 µs for each of the calls are a matter of rounding.
    assert len(sums_of_groups(columns, [0, 1], [-1, -1], device_time=300.5)["count"]) == 2


def test_work_of_absent_columns_is_unknown_and_integers_beyond_int64_are_its_largest() -> None:
    found = sums_of_groups({"count": [2, 3]}, [0, 0])
    assert found["count"] == [5] and found["self_cpu_time_total"] == [0.0] and np.isnan(found["flops"][0])
    assert sums_of_groups({}, [], [])["count"] == []
    assert sums_of_groups({"count": [2**63 - 1, 2**63 - 1]}, [0, 0], [-1])["count"] == [2**63 - 1]
