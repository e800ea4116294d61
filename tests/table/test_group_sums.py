"""Sums of rows by group, of tables made by hand: against NumPy, and what the core rejects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flopscope import _core
from flopscope.results.categories import sums_of_groups

INTEGERS, NUMBERS = _core.summed_columns
ROWS, GROUPS = 300, 7


@pytest.fixture
def columns() -> dict[str, Any]:
    random = np.random.default_rng(0)
    found: dict[str, Any] = {name: random.integers(0, 1000, ROWS) for name in INTEGERS}
    found["is_user_annotation"] = random.random(ROWS) < 0.2
    found |= {name: np.where(random.random(ROWS) < 0.1, np.nan, random.random(ROWS) * 1e6) for name in NUMBERS}
    return found


def test_lists_and_arrays_have_equal_sums(columns: dict[str, Any]) -> None:
    groups = np.random.default_rng(1).integers(-1, GROUPS, ROWS)
    found = sums_of_groups(columns, groups.tolist(), [-1] * GROUPS)
    lists = {name: values.tolist() for name, values in columns.items()}
    assert repr(sums_of_groups(lists, groups.tolist(), [-1] * GROUPS)) == repr(found)
    ops = ~columns["is_user_annotation"]
    for group in range(GROUPS):
        here, work = groups == group, (groups == group) & ops
        for name in ("count", "self_device_memory_usage"):
            assert found[name][group] == columns[name][here].sum()
        assert found["self_cpu_time_total"][group] == pytest.approx(
            np.nansum(columns["self_cpu_time_total"][here]), rel=1e-12
        )
        for name in ("flops", "bytes_read", "roofline_time", "headroom"):
            assert found[name][group] == pytest.approx(np.nansum(columns[name][work]), rel=1e-12)
        time = columns["roofline_time"] + columns["headroom"]
        known = work & ~np.isnan(time + columns["pct_roofline"])
        mean = np.average(columns["pct_roofline"][known], weights=time[known])
        assert found["pct_roofline"][group] == pytest.approx(mean, rel=1e-12)


def test_work_of_absent_columns_is_unknown() -> None:
    found = sums_of_groups({"count": [2, 3]}, [0, 0])
    assert found["count"] == [5] and found["self_cpu_time_total"] == [0.0] and np.isnan(found["flops"][0])
    assert sums_of_groups({}, [], [])["count"] == []


def test_wrong_arrays_are_rejected() -> None:
    integers, numbers = np.zeros((len(INTEGERS), 2), np.int64), np.zeros((len(NUMBERS), 2))
    groups = np.zeros(2, np.int64)

    def sum_rows(*changed: Any) -> Any:
        given = [integers, numbers, groups, None]
        for place, value in changed:
            given[place] = value
        return _core.sum_rows(*given, False, 0.0)  # type: ignore[arg-type]

    assert sum_rows()["rows"].tolist() == [2]
    for place, wrong, error, text in (
        (0, numbers, TypeError, "integers must be a two-dimensional array of int64"),
        (1, integers, TypeError, "numbers must be a two-dimensional array of float64"),
        (1, numbers.T, ValueError, "contiguous"),
        (1, numbers[:3], ValueError, f"numbers has 3 columns of 2 rows, not {len(NUMBERS)} of 2"),
        (2, groups[:1], ValueError, "integers has 6 columns of 2 rows, not 6 of 1"),
        (2, groups.astype(np.int32), TypeError, "groups must be a one-dimensional array of int64"),
        (2, groups + 1, ValueError, "row 0 is in group 1 of 1"),
        (3, groups, ValueError, "group 0 is in group 0, which must precede it"),
        (3, [0], TypeError, "buffer|bytes-like"),
    ):
        with pytest.raises(error, match=text):
            sum_rows((place, wrong))
