"""Rows held against the SQL of reports of Nsight Systems: cuda_gpu_kern_sum, cuda_api_sum and nvtx_sum.

Each report has the name, the total time, the number of instances, their average, median, minimum and maximum.
"""

from __future__ import annotations

import gzip
import os
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import query
from helpers.nsys_programs import MOCK, program

import flopscope as fs

KERNELS = """
    SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds AS s ON s.id = k.demangledName
"""
CALLS = """
    SELECT CASE WHEN substr(s.value, -6, 2) = '_v' THEN substr(s.value, 1, length(s.value) - 6)
        WHEN substr(s.value, -7, 2) = '_v' THEN substr(s.value, 1, length(s.value) - 7) ELSE s.value END,
        r.end - r.start
    FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r JOIN StringIds AS s ON s.id = r.nameId
"""
RANGES = """
    SELECT coalesce(n.text, s.value), n.end - n.start FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId
    WHERE n.eventType IN (59, 60, 70, 71) AND n.end IS NOT NULL AND coalesce(n.domainId, 0) = 0
"""


def report(path: Path, sql: str) -> dict[str, list[int]]:
    found = defaultdict(list)
    for name, ns in query(path, sql):
        found[name].append(ns)
    return found


def captures() -> list[Path]:
    folder = os.environ.get("FLOPSCOPE_CAPTURES")
    return sorted(Path(folder).glob("*.sqlite")) if folder else []


@pytest.fixture(params=["program", "file", *captures()], ids=lambda one: getattr(one, "stem", one))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if isinstance(request.param, Path):
        return request.param
    target = tmp_path / "x.sqlite"
    if request.param == "file":
        target.write_bytes(gzip.decompress(MOCK.read_bytes()))
        return target
    made = program()
    made.nvtx("imported", 5, 25, eventType=70)
    made.nvtx("imported", 30, 40, eventType=71)
    return made.write(target)


def shown(name: str) -> str:
    """Return the name of the row of a range: that of the op that torch's text names, of all steps alike."""
    name = name.split(", seq = ")[0].split(", op_id = ")[0].split(", sizes = ")[0]
    return "ProfilerStep*" if name.startswith("ProfilerStep#") else name


def test_kernels_and_calls(path: Path) -> None:
    table = fs.load_trace(path).key_averages()
    rows = {row.key: row for row in table if row.device_type == "cuda"}
    expected = report(path, KERNELS)
    assert expected
    for name, times in expected.items():
        row = rows[name]
        assert (row.count, round(1000 * row.self_device_time_total)) == (len(times), sum(times))
        assert row.self_device_time_total / row.count == pytest.approx(statistics.fmean(times) / 1000)
        found = [row.time_min, row.time_median, row.time_max]
        assert found == pytest.approx([ns / 1000 for ns in (min(times), statistics.median(times), max(times))]), name
    rows = {row.key: row for row in table if row.device_type == "cpu"}
    expected = report(path, CALLS)
    assert expected
    for name, times in expected.items():
        assert (rows[name].count, round(1000 * rows[name].cpu_time_total)) == (len(times), sum(times)), name


def test_ranges(path: Path) -> None:
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in fs.load_trace(path).key_averages():
        if row.device_type == "cpu":
            rows[row.key].append(row)
    expected: dict[str, list[int]] = defaultdict(list)
    for name, times in (report(path, RANGES) if query(path, "PRAGMA table_info(NVTX_EVENTS)") else {}).items():
        expected[shown(name)] += times
    for name, times in expected.items():
        assert sum(row.count for row in rows[name]) == len(times), name
        if len(rows[name]) == 1 and not any(other.startswith(f"{name}, ") for other in expected):
            assert round(1000 * rows[name][0].cpu_time_total) <= sum(times), name
    events = fs.load_trace(path).events()
    lasted: dict[str, int] = defaultdict(int)
    for event in events:
        if event.kind in ("op", "range", "step"):
            name = "ProfilerStep*" if event.kind == "step" else event.name
            lasted[name] += round(1000 * event.time_range.elapsed_us())
    for name, times in expected.items():
        assert lasted[name] == sum(times), name
