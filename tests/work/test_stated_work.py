"""Work that a program states for a range or a launch, in its row and in the rows around and within it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import BANDWIDTH, NCCL, Program, rewritten

import flopscope as fs
from flopscope.results.table import EventTable


def row(table: EventTable, key: str, device_type: str = "cpu") -> Any:
    (match,) = (row for row in table if row.key == key and row.device_type == device_type)
    return match


def test_rates_of_stated_work_use_the_time_of_the_range() -> None:
    x = fs.ones((64, 64))
    with fs.profile() as prof, fs.record_function("mine", flops=3e6, bytes=6e5):
        fs.sin(x)
    table = prof.key_averages(peaks="memory=1e11,fp64=1e12,fp32=2e12")
    mine, sine = row(table, "mine"), row(table, "flopscope::sin")
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


@pytest.mark.parametrize(("flops", "nbytes"), [(5.0, None), (None, 7.0), (0.0, 0.0), (None, None)])
def test_work_that_is_not_stated_is_unknown(flops: float | None, nbytes: float | None) -> None:
    with fs.profile() as prof, fs.record_function("mine", flops=flops, bytes=nbytes):
        pass
    mine = row(prof.key_averages(peaks="none"), "mine")
    wanted = [math.nan if number is None else number for number in (flops, flops, nbytes)]
    assert [mine.flops, mine.flops_total, mine.bytes_total_moved] == pytest.approx(wanted, nan_ok=True)


# Traces in which ranges and launches state their work. Times are µs ---------------------------------------------------


class Stated(Program):
    """A program on one thread."""

    def range(self, name: str, begin: float, end: float, **stated: float) -> None:
        self.add("user_annotation", name, begin, end - begin, **stated)

    def kernel(self, name: str, called: float, begin: float, end: float, **more: Any) -> None:
        """Add a kernel that an API call launched, of whatever was open on the host."""
        self.correlation += 1
        self.call("cudaLaunchKernel", called, 0.5, 1, self.correlation)
        self.work(name, begin, end - begin, correlation=self.correlation, **more)

    def rows(self, **options: Any) -> EventTable:
        return self.load().key_averages(**options)


MATRIX = [256, 1024]
"""aten::add of two of these has 262,144 FLOPs and moves three times 1 MiB."""


@pytest.mark.parametrize("unknown", [False, True])
def test_a_range_next_to_work_of_unknown_origin_has_no_rates(unknown: bool) -> None:
    """Without API calls, the origin of kernels is unknown. They may be the range's: the host's time gives no rate."""
    program = Stated(devices=int(unknown))
    program.range("mine", 10, 1010, flops=6e6, bytes=3e6)
    program.op("x::a", 20, 5)
    if unknown:
        program.work("k", 100, 500)
    mine = row(program.rows(), "mine")
    assert (mine.flops, mine.bytes_total_moved) == (6e6, 3e6)
    assert math.isnan(mine.tflops_per_s) == math.isnan(mine.gbytes_per_s) == unknown


def test_a_range_with_stated_work_has_all_device_work_inside() -> None:
    program = Stated()
    program.range("outer", 0, 2000)
    program.range("mine", 10, 1010, flops=6e6, bytes=3e6)
    program.op("aten::add", 20, 30, MATRIX, MATRIX)
    program.kernel("k", 25, 1000, 1400)
    program.op("x::a", 60, 30)
    program.kernel("k", 65, 1200, 1700, stream=8)  # overlaps the first by 200
    program.kernel("k", 100, 3000, 3100)  # launched by the range itself
    program.kernel("k", 1500, 9000, 9050)  # outside
    program.kernel("other", 1600, 9100, 9130)
    table = program.rows()
    mine, add, outer = row(table, "mine"), row(table, "aten::add"), row(table, "outer")
    assert (mine.flops, mine.flops_total, mine.bytes_total_moved) == (6e6, 6e6, 3e6)
    assert math.isnan(mine.bytes_read) and math.isnan(mine.bytes_written) and mine.is_user_annotation
    assert (mine.device_busy_time, mine.device_time_total, mine.self_device_time_total) == (700 + 100, 1000, 100)
    assert mine.time_max == 1000 and mine.tflops_per_s == pytest.approx(6e6 / 800e-6 / 1e12)
    assert mine.gbytes_per_s == pytest.approx(3e6 / 800e-6 / 1e9) and mine.arithmetic_intensity == 2
    assert mine.pct_peak_bandwidth == pytest.approx(100 * (3e6 / BANDWIDTH) / 800e-6)
    # The op inside keeps its own work; the enclosing rows count the stated work instead.
    assert (add.flops, add.device_busy_time, add.self_device_time_total) == (262144, 400, 400)
    assert outer.flops_total == 6e6 and math.isnan(outer.flops) and math.isnan(outer.bytes_total_moved)
    assert (outer.device_busy_time, outer.device_time_total) == (80, 1080)
    # Three kernels have work from add's rule and the range, so the fourth, which is alike, has work too.
    coverage = table.coverage()
    assert coverage["bytes"] == coverage["flops"] == pytest.approx(1050 / 1080)
    assert coverage["unmodelled"] == [("other", 30)]


def test_nested_ranges_show_their_own_stated_work() -> None:
    program = Stated(devices=2)
    program.step(0, 0, 1000)
    program.range("outer", 1, 901, flops=1000)
    program.range("middle", 5, 805)
    program.range("inner", 10, 510, flops=300, bytes=70)
    program.op("x::a", 20, 30)
    program.kernel("k", 25, 100, 140)
    program.kernel("k", 600, 100, 107, device=1)
    program.range("inner", 950, 970, flops=50, bytes=5)
    program.range("part", 2000, 2100, flops=10, bytes=10)
    program.range("part", 2010, 2060, flops=4, bytes=4)
    program.kernel("l", 2020, 2100, 2130)
    program.kernel("l", 2080, 2110, 2150, stream=8)
    table = program.rows()
    outer, inner, part = row(table, "outer"), row(table, "inner"), row(table, "part")
    assert (outer.flops, outer.flops_total, outer.device_busy_time) == (1000, 1000, 47)
    assert math.isnan(outer.bytes_total_moved)
    assert (inner.count, inner.flops, inner.bytes_total_moved, inner.device_busy_time) == (2, 350, 75, 40)
    assert row(table, "middle").flops_total == 300 and math.isnan(row(table, "middle").flops)
    assert row(table, "ProfilerStep*").flops_total == 1050
    # Of one name: busy once.
    assert (part.device_busy_time, part.flops, part.self_device_time_total) == (50, 14, 70)
    assert (part.time_min, part.time_max) == (30, 70)
    coverage = table.coverage()
    assert coverage["flops"] == 1 and coverage["bytes"] == pytest.approx(110 / 117)


def test_work_that_is_not_stated_for_every_range_of_a_name_has_no_sum() -> None:
    program = Stated()
    program.range("twice", 1000, 2000, flops=8000, bytes=4000)
    program.range("twice", 2000, 3000)
    program.range("copied", 3000, 4000, flops=8000, bytes=4000)
    program.kernel("k", 3050, 3100, 3110)
    program.add("gpu_user_annotation", "copied", 3100, 10, tid=7, pid=0, device=0, stream=7)
    table = program.rows()
    on_device = row(table, "copied", "cuda")
    assert math.isnan(on_device.flops) and math.isnan(on_device.bytes_total_moved)
    twice, copied = row(table, "twice"), row(table, "copied")
    assert twice.count == 2 and math.isnan(twice.flops) and math.isnan(twice.bytes_total_moved)
    assert twice.flops_total == 8000 and (copied.flops, copied.device_busy_time) == (8000, 10)


# Launches that state their work ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "flops", "nbytes", "unit"),
    [
        ("mm [flops=8 bytes=12 unit=fp16_tensor]", "mm", 8, 12, "fp16_tensor"),
        ("mm [flops=137438953472]", "mm", 137438953472, math.nan, None),
        ("mm [M=4, N=5] [bytes<=0]", "mm [M=4, N=5]", math.nan, 0, None),
        ("a b [bytes=3]", "a b", math.nan, 3, None),
    ],
)
def test_names_tell_work(text: str, name: str, flops: float, nbytes: float, unit: str | None, tmp_path: Path) -> None:
    program = Stated()
    program.run(text, 0, 10, 20)
    for trace in (program.load(), rewritten(program.load(), tmp_path)):
        found = row(trace.key_averages(), name)
        assert [found.flops, found.bytes_total_moved] == pytest.approx([flops, nbytes], nan_ok=True)
        assert found.unit == unit


@pytest.mark.parametrize(
    "name",
    [
        *["]", "[flops=8]", " [flops=8]", "mm[flops=8]", "mm [flops=8", "mm []", "mm [unit=fp32]", "mm [flops=]"],
        *["mm [flops=-8]", "mm [flops=8.5]", "mm [flops=8,bytes=3]", "mm [flops=8 flops=9]", "mm [bytes=8 bytes<=9]"],
        *["mm [flops=8 M=4]", "mm [flops=8  bytes=3]", "mm [flops=8 unit=a_name_of_16_char]", "void f<int [4]>"],
    ],
)
def test_other_names_stay_whole(name: str) -> None:
    program = Stated()
    program.run(name, 0, 10, 20)
    assert math.isnan(row(program.rows(), name).flops)


def test_a_launch_gives_way_to_the_rule_of_an_op_around_it() -> None:
    program = Stated()
    program.op("aten::add", 0, 100, MATRIX, MATRIX)
    program.op("inside [flops=5 bytes=6]", 10, 10)
    program.kernel("k", 12, 1000, 1400)
    program.op("x::a", 200, 100)
    program.op("other [flops=7 bytes=8]", 210, 10)
    program.kernel("l", 212, 2000, 2300)
    table = program.rows()
    add, inside = row(table, "aten::add"), row(table, "inside")
    assert (add.flops, add.flops_source, add.device_busy_time) == (262144, "model", 400)
    assert (inside.flops, inside.bytes_total_moved, inside.self_device_time_total) == (0, 0, 400)
    assert math.isnan(row(table, "k", "cuda").flops)
    assert math.isnan(row(table, "x::a").flops) and row(table, "x::a").flops_total == 7
    assert row(table, "other").flops == row(table, "l", "cuda").flops == 7
    assert table.coverage()["flops_source"] == pytest.approx({"model": 400 / 700, "stated": 300 / 700})


def test_kernels_show_the_work_of_their_launch_once_and_only_if_all_is_known() -> None:
    program = Stated()
    program.op("mm [flops=5 bytes=6]", 10, 10)
    program.kernel("first", 11, 1000, 1400)
    program.kernel("second", 13, 2000, 2300)
    program.op("bmm [flops=5 bytes=6]", 30, 10)
    program.kernel("mixed", 31, 3000, 3400)
    program.op("x::a", 50, 10)
    program.kernel("mixed", 51, 4000, 4300)
    table = program.rows()
    assert (row(table, "mm").flops, row(table, "mm").device_busy_time) == (5, 700)
    assert row(table, "first", "cuda").flops == 5 and math.isnan(row(table, "second", "cuda").flops)
    mixed = row(table, "mixed", "cuda")
    assert row(table, "bmm").flops == 5 and math.isnan(mixed.flops) and math.isnan(mixed.bytes_total_moved)
    assert mixed.bytes_source is None


def test_counted_bytes_take_the_place_of_a_limit_and_not_of_what_is_stated() -> None:
    """4,000,000 bytes at the peak of the H200 take less than a µs, so the third launch cannot have moved them."""
    program = Stated()
    moved = int(BANDWIDTH * 1e-3)  # in 1000 µs at the peak
    for at, (name, begin, end) in enumerate((("add", 1000, 2000), ("mm", 2000, 3000), ("skip", 9000, 9500))):
        work = f"[flops=2000000 bytes={moved * 3 // 4} unit=fp16_tensor]" if name == "mm" else f"[bytes<={moved}]"
        program.op(f"{name} {work}", 10 + 20 * at, 10)
        program.kernel(name, 12 + 20 * at, begin, end)
    trace = program.load()
    store = trace._core
    samples = np.arange(1_000_000, 3_000_000, 100_000)
    for metric in ("dram_bytes_read", "dram_bytes_written"):
        store.add_samples(0, metric, samples, samples + 100_000, np.full(len(samples), moved / 40))
    table = trace.key_averages()
    for kind in ("cpu", "cuda"):
        add, mm, skip = (row(table, name, kind) for name in ("add", "mm", "skip"))
        assert add.bytes_source == "counted" and add.bytes_total_moved == pytest.approx(moved / 2)
        assert math.isnan(add.flops) and add.pct_peak_bandwidth == pytest.approx(50)
        assert (mm.bytes_source, mm.bytes_total_moved, mm.flops) == ("stated", moved * 3 // 4, 2e6)
        assert mm.traffic_ratio == pytest.approx(2 / 3) and mm.unit == "fp16_tensor"
        assert (skip.bytes_source, skip.bytes_total_moved, skip.bound) == ("estimated", moved, "unknown")
        assert math.isnan(skip.pct_roofline) and math.isnan(skip.gbytes_per_s)
    assert table.coverage()["bytes_source"] == pytest.approx({"counted": 0.4, "stated": 0.4, "estimated": 0.2})


# Work of ops ----------------------------------------------------------------------------------------------------------


def test_work_counts_once_and_one_unknown_call_makes_the_row_unknown() -> None:
    program = Stated()
    program.op("aten::sin", 0, 100, [4, 4])
    program.op("aten::add", 10, 50, [4, 4], [4, 4])
    program.op("x::helper", 20, 20)
    program.kernel("k", 25, 130, 630)
    program.op("aten::add", 200, 10)
    table = program.rows()
    # The kernel counts as add's work, though a helper launched it; sin has none of its own.
    sine, add = row(table, "aten::sin"), row(table, "aten::add")
    assert (sine.flops, sine.flops_total, sine.bytes_total_moved) == (0, 16, 0)
    assert math.isnan(add.flops) and (add.flops_total, add.device_busy_time) == (16, 500)
    assert (add.self_device_time_total, add.time_max) == (0, 500)
    assert row(table, "x::helper").self_device_time_total == 500
    assert table.coverage()["bytes"] == 1 and table.coverage()["unmodelled"] == []


def test_coverage_names_ops_without_a_rule() -> None:
    program = Stated()
    program.range("outer", 0, 1000)
    program.op("aten::add", 1, 10, [4, 4], [4, 4])
    program.kernel("k", 2, 100, 110)
    for at, size, begin, end in ((20, 4, 200, 220), (40, 5, 300, 330)):
        program.op("x::a", at, 10, [size, size])
        program.kernel("k", at + 2, begin, end)
    program.kernel("mine", 60, 400, 470)
    program.work("Memcpy DtoD (Device -> Device)", 500, 5, bytes=100)
    program.work(NCCL, 600, 1000)
    coverage = program.rows(group_by_input_shape=True).coverage()
    # A copy records its own bytes, whatever launched it.
    assert coverage["bytes"] == coverage["flops"] == pytest.approx(15 / 135)
    assert coverage["unmodelled"] == [("mine", 70), ("x::a", 50)]
