"""Tables for tests, built from a few values or from the rows that torch.profiler recorded."""

import ast
import csv
import math
import tarfile
from typing import IO, Any, cast

from flopscope.results.table import COLUMNS, EventTable
from flopscope.results.table_facts import Facts
from helpers import TRACES

DEFAULTS: dict[str, Any] = {
    **{c.name: 0 for c in COLUMNS if c.type == "int64"}, "overload_name": "", "device_type": "cpu",
    "is_user_annotation": False, "count": 1, "input_shapes": [], "input_dtypes": [], "unit": None, "bytes_source": None,
    "flops_source": None, "occupancy_limit": None, "bound": "unknown", "timing_source": "cpu",
    **{c.name: 0.0 for c in COLUMNS if c.unit == "µs" and "total" in c.name},
}  # fmt: skip


def make_table(*rows: dict[str, Any], **meta: Any) -> EventTable:
    """Return a table of rows with these columns; missing columns are 0, or NaN for work and rates."""
    full = [_rated(row) for row in rows]
    columns = {c.name: [row.get(c.name, DEFAULTS.get(c.name, math.nan)) for row in full] for c in COLUMNS}
    defaults: dict[str, Any] = {
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
    groups = meta.pop("groups", {})
    parts = {name: meta.pop(name) for name in ("top_level", "stacks", "kernels") if name in meta}
    return EventTable(columns, Facts(**{**defaults, **meta}), parts, groups)


def _rated(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its rates, and the roofline time that its share of the roofline implies."""
    time = row.get("device_busy_time", row.get("self_cpu_time_total", math.nan))
    roofline_time = row.get("pct_roofline", math.nan) * time / 100
    derived = {"roofline_time": roofline_time, "headroom": time - roofline_time}
    if time > 0:
        derived["tflops_per_s"] = row.get("flops", math.nan) / time / 1e6
        derived["gbytes_per_s"] = row.get("bytes_total_moved", math.nan) / time / 1e3
    return {**derived, **row}


def recorded_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of NAME.rows.csv, recorded from torch.profiler's key_averages()."""
    return [_recorded_row(row) for row in csv.DictReader(ANSWERS[f"{name}.rows.csv"].splitlines())]


def _answers() -> dict[str, str]:
    with tarfile.open(TRACES / "answers.tar.xz") as archive:
        return {one.name: cast(IO[bytes], archive.extractfile(one)).read().decode() for one in archive}


ANSWERS = _answers()
"""By name of file: torch's texts of the recorded traces (tests/data/traces/README.md)."""


def _recorded_row(row: dict[str, str]) -> dict[str, Any]:
    columns: dict[str, Any] = {"key": row["key"], "overload_name": row["overload_name"]}
    columns["device_type"] = "cpu" if row["device_type"] == "DeviceType.CPU" else "cuda"
    columns["is_user_annotation"] = row["is_user_annotation"] == "True"
    columns["input_shapes"] = ast.literal_eval(row["input_shapes"] or "[]")
    for name, value in row.items():
        if name.endswith("time_total"):
            columns[name] = float(value)
        elif name == "count" or name.endswith("memory_usage"):
            columns[name] = int(value)
    return columns
