"""Work of kernels and ops that no rule knows, from counters, in tables, coverage, accounting, pages and notes.

The programs are put together by hand, so that their traffic is known: an H200 with 4.8 TB/s. One was recorded.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.hand_traces import BANDWIDTH, NCCL, Program, ran
from helpers.recorded_counters import recording
from helpers.report_pages import written

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import analysis_of
from flopscope.support.hints import NOT_RESOLVED

EVERY = 10  # µs: the samples


def rates(read: float = 0.0, written: float = 0.0, **shares: float) -> dict[str, float]:
    """GB/s of the memory, and shares in percent; a counter that is not named is one that the device lacks."""
    return {"dram_bytes_read": read, "dram_bytes_written": written, **shares}


def count(program: Program, phases: list[tuple[float, Mapping[str, float]]], device: int = 0) -> Program:
    """Add counters that read the same during each phase: (its end in µs, the rates)."""
    at = 0
    for end, values in [*phases, (phases[-1][0] + 3 * EVERY, {name: 0.0 for _, of in phases for name in of})]:
        while at < end:
            for name, value in values.items():
                program.count(name, at, value, "GB/s" if name.startswith("dram") else "%", device)
            at += EVERY
    return program


MOVES, MULTIPLIES, NEITHER, IDLE = rates(2400, 1200), rates(480, 0), rates(960, 0), rates(96, 0)
PROGRAM = [("moves", 400, MOVES, 0, 95), ("multiplies", 400, MULTIPLIES, 80, 95), ("neither", 200, NEITHER, 5, 95),
           ("idles", 200, IDLE, 0, 4)]  # fmt: skip


def kernels(more: str = "", **counters: float) -> Program:
    """Return a program of another library than torch: kernels without an op, one after another."""
    program, at = Program(), 0
    phases: list[tuple[float, Mapping[str, float]]] = []
    for name, length, memory, tensor, sm in PROGRAM:
        program.call("cuLaunchKernel", at, 1, correlation=at)
        program.work(f"{more}{name}", at, length, correlation=at)
        at += length
        phases.append((at, {**memory, "tensor_active": tensor, "sm_active": sm, **counters}))
    program.head.pop("record_shapes")
    return count(program, phases)


def rows_of(trace: fs.Trace, **options: object) -> dict[str, fs.EventRow]:
    return {row.key: row for row in trace.key_averages(**options)}  # type: ignore[arg-type]


def test_kernels_without_a_rule_have_the_bytes_that_moved() -> None:
    trace = kernels().load()
    found, covered = rows_of(trace), trace.coverage()
    for name, length, memory, tensor, _ in PROGRAM:
        row = found[name]
        read, written = (1e3 * memory[f"dram_bytes_{one}"] * length for one in ("read", "written"))
        assert (row.bytes_source, row.flops_source) == ("counted", None)
        assert row.bytes_read == row.dram_bytes_read == pytest.approx(read)
        assert row.bytes_written == row.dram_bytes_written == pytest.approx(written)
        assert row.bytes_total_moved == pytest.approx(read + written)
        assert row.pct_peak_bandwidth == pytest.approx(100 * (read + written) / BANDWIDTH / (length * 1e-6))
        assert row.gbytes_per_s == pytest.approx((read + written) / length / 1e3)
        assert row.pct_peak_flops == pytest.approx(tensor, abs=1e-9) and math.isnan(row.flops)
        assert row.pct_roofline == pytest.approx(max(row.pct_peak_flops, row.pct_peak_bandwidth))
        assert row.headroom == pytest.approx(length * (1 - row.pct_roofline / 100))
        assert math.isnan(row.traffic_ratio), "a ratio to a model that there is not"
    assert covered["bytes"] == 1 and covered["unmodelled"] == [] and covered["flops"] == 0
    assert covered["bytes_source"] == {"counted": 1.0} and "flops_source" not in covered
    frame = trace.key_averages().to_pandas()
    assert set(frame.bytes_source[frame.dram_bytes_read > 0]) == {"counted"} and "flops_source" in frame
    assert _core.work_sources.keys() == {"model", "stated", "counted", "estimated"}


def test_a_kernel_without_traffic_is_not_unmodelled() -> None:
    program = Program()
    program.work("spins", 0, 400)
    trace = count(program, [(400, rates(0, 0, tensor_active=0.0, sm_active=90.0))]).load()
    row = rows_of(trace)["spins"]
    assert (row.bytes_source, row.bytes_total_moved, row.bound) == ("counted", 0, "other")
    whole = trace.accounting().iloc[-1]
    assert whole["unmodelled"] == whole["ideal"] == 0 and whole["latency"] == pytest.approx(400)


def test_impossible_counts_are_unknown(tmp_path: Path) -> None:
    program = Program()
    for place in range(3):
        program.work("kernel", 400 * place, 400)
    trace = count(program, [(1200, rates(1e300, 1e300, tensor_active=1e300))]).load()
    row = rows_of(trace)["kernel"]
    assert row.bound == "unknown" or row.pct_roofline > 100
    json.loads(json.dumps(trace.key_averages().to_dicts(), allow_nan=False))
    assert "kernel" in str(trace.summary()) or str(trace.key_averages())
    assert written(trace, tmp_path).data["rows"]["count"] == 1


def test_ops_without_shapes_are_counted_and_not_asked_for_them() -> None:
    program = ran("aten::mul", 1, 10, 400, kernel="vectorized")
    text = str(count(program, [(10, rates()), (410, MOVES)]).load().key_averages())
    assert "work of ops is unknown" not in text and "those that the counters saw" in " ".join(text.split())


def test_kernels_without_an_op_are_listed_up_to_the_limit() -> None:
    program = Program()
    for place in range(40):
        program.call("cuLaunchKernel", 400 * place, 1, correlation=place + 1)
        program.work(f"kernel{place:02}", 400 * place + 1, 300 + place, correlation=place + 1)
    table = count(program, [(16_000, MOVES)]).load().key_averages()
    text = table.table(brief=True, row_limit=5)
    assert [f"kernel{place:02}" in text for place in range(40)] == [False] * 35 + [True] * 5, "the longest"
    assert "5 of these 40 kernels are listed" in " ".join(text.split())
    whole = table.table(brief=True, row_limit=-1)
    assert all(f"kernel{place:02}" in whole for place in range(40)) and "are listed" not in whole


@pytest.mark.parametrize(("tensor", "shown"), [(1.5, False), (30.0, True)])
def test_hfu_needs_more_activity_than_kernels_without_tensor_cores_count(tensor: float, shown: bool) -> None:
    program = Program()
    program.work("kernel", 0, 400)
    trace = count(program, [(400, rates(2400, 0, tensor_active=tensor))]).load()
    assert ("HFU 30.0% (counted)" in str(trace.summary())) == shown and ("% (counted" in str(trace.summary())) == shown


def test_a_range_whose_work_is_stated_is_an_op() -> None:
    program = kernels()
    program.add("user_annotation", "simulate", -1, 1300, flops=1e9, bytes=1e9)
    ops = analysis_of(program.load(), "a test").ops
    assert [op.key for op in ops] == ["simulate", "moves"], "the launch of the first kernel is unknown"


def test_reads_alone_are_no_traffic() -> None:
    program = Program()
    program.work("reads", 0, 400)
    phases: list[tuple[float, Mapping[str, float]]] = [(400, {"dram_bytes_read": 3600.0})]
    trace = count(program, phases).load()
    row = rows_of(trace)["reads"]
    assert row.dram_bytes_read > 0 and math.isnan(row.bytes_read) and row.bytes_source is None
    assert row.bound == "unknown" and trace.coverage()["bytes"] == 0
    program = Program()
    program.work("multiplies", 0, 400)
    row = rows_of(count(program, [(400, {"tensor_active": 75.0})]).load())["multiplies"]
    assert row.bound == "tensor" and row.pct_roofline == pytest.approx(75) and row.bytes_source is None


def test_the_accounting_has_no_unmodelled_time_but_that_of_short_kernels() -> None:
    program = kernels()
    program.work("short", 1200, 2)
    program.work("short", 1204, 2)
    program.work("late", 1400, 50)  # nothing is counted any more
    trace = program.load()
    whole = trace.accounting().iloc[-1]
    assert whole["unmodelled"] == pytest.approx(54) and whole["copy"] == whole["communication"] == 0
    least = 400 * 0.75 + 400 * 0.8 + 200 * 0.2 + 200 * 0.02
    assert whole["ideal"] == pytest.approx(least, rel=1e-3)
    assert whole["memory"] == pytest.approx(100 + 196, rel=1e-3), "inefficient work is that of its larger term"
    assert whole["compute"] == pytest.approx(80, rel=1e-3) and whole["latency"] == pytest.approx(160, rel=1e-3)
    span = 1450e-6
    moved = 1e3 * (3600 * 400 + 480 * 400 + 960 * 200 + 96 * 200)
    assert whole["mbu"] == pytest.approx(100 * moved / BANDWIDTH / span, rel=1e-3)
    assert whole["mfu"] == 0, "activity has no known FLOPs; HFU tells it"
    assert [note for note in trace.advice().notes if "did not resolve" in note] == [NOT_RESOLVED]
    assert NOT_RESOLVED in " ".join(str(trace.key_averages()).split())


def test_the_model_decides_where_it_knows_the_work() -> None:
    program = Program()
    size = 1 << 24
    program.run("aten::add", 1, 10, 400, [size], [size], kernel="vectorized_add")
    program.run("lib::op", 5, 410, 400, [size], kernel="lib_kernel")
    trace = count(program, [(10, rates()), (410, MOVES), (810, MOVES)]).load()
    found = rows_of(trace)
    assert (found["aten::add"].bytes_source, found["aten::add"].flops_source) == ("model", "model")
    assert found["aten::add"].bytes_total_moved == 12 * size
    assert found["aten::add"].traffic_ratio == pytest.approx(3600e3 * 400 / (12 * size))
    assert found["lib::op"].bytes_source == "counted" and found["lib::op"].bound == "memory"
    assert found["lib::op"].bytes_total_moved == pytest.approx(3600e3 * 400)
    assert found["vectorized_add"].bytes_source == "counted", "a kernel's row has what moved in it"
    assert trace.coverage()["bytes_source"] == {"model": pytest.approx(0.5), "counted": pytest.approx(0.5)}
    (product,) = [row for row in trace.key_averages().by_category() if row.category == "pointwise"]
    assert product.bytes_total_moved == 12 * size, "kernels are not added to their ops"


def test_an_op_inside_of_another_rules_work_is_not_counted_twice() -> None:
    program = Program()
    size = 1 << 24
    program.op("aten::sum", 0, 8, [size])
    program.run("lib::inner", 1, 10, 400, kernel="inner_kernel")
    program.events.append(program.events.pop(0))
    found = rows_of(count(program, [(10, rates()), (410, MOVES)]).load())
    assert found["aten::sum"].bytes_source == "model" and found["lib::inner"].bytes_source is None
    assert found["inner_kernel"].bytes_source == "counted"


@pytest.mark.parametrize("name", ["Memcpy HtoD (Pinned -> Device)", "Memset (Device)", NCCL])
def test_transfers_and_collectives_are_not_judged_by_the_memory(name: str) -> None:
    program = Program()
    program.work(name, 0, 400)
    program.work("kernel", 400, 400)
    row = rows_of(count(program, [(400, IDLE), (800, MOVES)]).load())[name]
    assert row.dram_bytes_read > 0 and row.bytes_source is None and row.bound == "unknown"


def test_a_range_with_transfers_leaves_its_kernels_their_bytes() -> None:
    program = Program()
    program.add("user_annotation", "part", 0, 20)
    for place, (name, at) in enumerate((("Memcpy HtoD (Pinned -> Device)", 10), ("kernel", 410))):
        program.call("cudaLaunchKernel", 1 + 2 * place, 1, correlation=place)
        program.work(name, at, 400, correlation=place)
    trace = count(program, [(10, rates()), (410, IDLE), (810, MOVES)]).load()
    assert rows_of(trace)["kernel"].bytes_source == "counted"
    whole = trace.accounting().iloc[-1]
    assert whole["unmodelled"] == 0 and whole["ideal"] == pytest.approx(300, rel=1e-3)
    assert whole["memory"] == pytest.approx(100, rel=1e-2) and whole["copy"] == pytest.approx(400, rel=1e-2)


def test_recorded_kernels_have_a_roof_without_a_rule() -> None:
    columns, _ = recording("h200_5us.npz").table(False, 0, {"cuda:0": {"bandwidth": BANDWIDTH, "flops": {}}})
    found = {key: {name: columns[name][i] for name in columns} for i, key in enumerate(columns["key"])}
    must = {"add8192": 12 * 8192**2, "sin": 8 * 8192**2, "transpose": 8 * 8192**2, "sum": 4 * 8192**2}
    for key, moved in must.items():
        row = found[key]
        assert row["bytes_source"] == "counted" and row["bound"] == ("other" if key == "transpose" else "memory"), key
        assert row["bytes_total_moved"] == pytest.approx(moved * row["count"], rel=0.06), key
        share = 100 * moved * row["count"] / BANDWIDTH / (row["device_busy_time"] * 1e-6)
        assert row["pct_roofline"] == pytest.approx(share, rel=0.06) and row["pct_roofline"] < 100, key
    assert found["mm"]["bound"] == "tensor" and found["mm"]["pct_roofline"] == found["mm"]["pct_peak_flops"] > 80
    assert found["mm"]["pct_peak_flops"] == pytest.approx(found["mm"]["tensor_active"], rel=1e-3)
    assert found["add256"]["bytes_source"] is None and found["add256"]["bound"] == "unknown", "too short"


# Notes and pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cupy_add__float32_float32_float32", "void thrust::cuda_cub::scan<int>(int)"])
def test_programs_of_other_libraries_are_told_to_count_or_to_state(name: str) -> None:
    program = kernels(name)
    program.events = [event for event in program.events if event["ph"] != "C"]
    program.head["flopscope"] = {"version": "0.6"}
    trace = program.load()
    assert not trace.key_averages().lacks_shapes
    texts = [" ".join(trace.advice().notes), " ".join(str(trace.key_averages()).split())]
    for text in texts:
        assert "record_shapes" not in text
        assert "counters=True" in text and "fs.record_function" in text and "fs.register_work" in text


def test_the_page_shows_where_bytes_come_from(tmp_path: Path) -> None:
    page = written(kernels().load(), tmp_path)
    assert "bytes_source" in {column["name"] for column in page.data["rows"]["described"]}
    (device,) = page.data["sections"]["roofline"]["devices"]
    assert device["total"] == pytest.approx(1200) and device["left_out"][1]["rows"] == 0
    missing = {one["what"]: one["present"] for one in page.data["sections"]["overview"]["missing"]}
    assert missing["Input shapes"] is None, "the program has none to record"


def test_what_if_scales_each_kernel_by_its_own_counts() -> None:
    trace = kernels().load()
    twice = trace.what_if(peaks={"memory": 2 * BANDWIDTH}).iloc[-1]
    # 400 µs at 75 % of the memory become 200; the others are bound by something else, whose ideal time is not memory's
    assert twice["ideal"] == pytest.approx(150 + 320 + 0.1 * 200 + 0.01 * 200, rel=1e-2)
    other = trace.what_if(device="NVIDIA A100-SXM4-80GB").iloc[-1]
    assert other["unmodelled"] > 0, "of which unit was active, nothing is known"
