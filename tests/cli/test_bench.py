"""What flopscope bench says of its table."""

from typing import Any

import pytest
from helpers.tables import make_table

from flopscope.cli import bench
from flopscope.support import peaks
from flopscope.support.device import find_device


def made(*rows: dict[str, Any], busy: str | None = None) -> bench.Bench:
    """Return a run of ops of 10 calls with these times in µs, MB and shares of the limit in percent."""
    given = [
        {
            "count": 10, "self_cpu_time_total": 10.0 * row["us"], "flops": 1e6, "bytes_total_moved": 10e6 * row["mb"],
            "bound": "memory", "device_busy_time": 0.0, "time_median": row["us"], "time_p95": row["us"],
            "pct_peak_bandwidth": row["share"], "pct_roofline": row["share"], **row, "key": f"flopscope::{row['key']}",
        }
        for row in rows
    ]  # fmt: skip
    known = peaks.Peaks("measured", flops={"fp32": 1e12}, bandwidth=1e11)
    return bench.Bench(find_device("cpu"), known, "float32", 1024, 10, make_table(*given), busy)


ADD = {"key": "add", "us": 126.0, "mb": 12.6, "share": 90.0}


def test_a_busy_machine_comes_first() -> None:
    text = str(made({"key": "sin", "us": 85.0, "mb": 8.4, "share": 89.0}, ADD, busy="others used it").text(width=80))
    assert text.startswith("The machine was busy: others used it. Times may be too long")
    assert "bound, at" not in text and "\n\n\n" not in text and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", [80, 92, 100])
def test_columns_give_way_to_names(width: int) -> None:
    wide = {"key": "a_longer_name", "us": 85.0, "mb": 8.4, "share": 89.0}
    text = str(made(wide, ADD).text(width=width))
    assert "\nflopscope::a_longer_name " in text and ("FLOP/B" in text) == (width > 80)
    assert max(map(len, text.splitlines())) <= width
