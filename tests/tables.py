"""Tables for tests: made from a few values, or from the rows that torch.profiler recorded."""

from __future__ import annotations

import ast
import csv
import math
from pathlib import Path
from typing import Any

from flopscope.results.table import COLUMNS, EventTable

DATA = Path(__file__).parent / "data" / "traces"

DEFAULTS: dict[str, Any] = {
    "overload_name": "",
    "device_type": "cpu",
    "is_user_annotation": False,
    "count": 1,
    "input_shapes": [],
    "input_dtypes": [],
    "unit": None,
    "bound": "unknown",
    "timing_source": "cpu",
    **{c.name: 0.0 for c in COLUMNS if c.unit == "µs" and "total" in c.name},
    **{c.name: 0 for c in COLUMNS if c.name.endswith("memory_usage")},
}


def make_table(*rows: dict[str, Any], **meta: Any) -> EventTable:
    """A table of rows that are given by some of their columns; what is not given is 0, or NaN for work and rates."""
    full = [_rated(row) for row in rows]
    columns = {c.name: [row.get(c.name, DEFAULTS.get(c.name, math.nan)) for row in full] for c in COLUMNS}
    defaults = {
        "self_cpu_time_total": sum(columns["self_cpu_time_total"]),
        "self_device_time_total": sum(
            row.get("self_device_time_total", 0.0)
            for row in rows
            if row.get("device_type") == "cuda" and not row.get("is_user_annotation")
        ),
        "has_memory": False,
        "has_device": any(row.get("self_device_time_total", 0.0) > 0 for row in rows),
        "record_shapes": False,
        "profile_memory": False,
        "open_events": 0,
        "dropped": 0,
        "coverage": {"bytes": 1.0, "flops": 1.0, "unmodelled": []},
        "peaks": {},
    }
    return EventTable(columns, {**defaults, **meta})


def _rated(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its rates, and the least time that its share of the roofline is made of."""
    time = row.get("device_busy_time", row.get("self_cpu_time_total", math.nan))
    least = row.get("pct_roofline", math.nan) * time / 100
    made = {"roofline_time": least, "headroom": time - least}
    if time > 0:
        made["tflops_per_s"] = row.get("flops", math.nan) / time / 1e6
        made["gbytes_per_s"] = row.get("bytes_total_moved", math.nan) / time / 1e3
    return {**made, **row}


def recorded_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a NAME.rows.csv file: what torch.profiler's key_averages() gave."""
    with open(path, newline="", encoding="utf-8") as file:
        return [_recorded_row(row) for row in csv.DictReader(file)]


def _recorded_row(row: dict[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {"key": row["key"], "overload_name": row["overload_name"]}
    made["device_type"] = "cpu" if row["device_type"] == "DeviceType.CPU" else "cuda"
    made["is_user_annotation"] = row["is_user_annotation"] == "True"
    made["input_shapes"] = ast.literal_eval(row["input_shapes"] or "[]")
    for name, value in row.items():
        if name.endswith("time_total"):
            made[name] = float(value)
        elif name == "count" or name.endswith("memory_usage"):
            made[name] = int(value)
    return made
