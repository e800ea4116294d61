"""Chrome traces: rows for overlapping slices, the work of single events, and counters."""

import itertools
import json
import math
import random
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import DATA, hand_traces
from helpers.chrome_events import Event, parse_checked, slices, stored, written

import flopscope as fs
from flopscope import _core

TRACES = sorted((DATA / "traces").glob("*.json.gz"))
MOST_VALUES = 1 << 16
WORK = {"FLOPs", "bytes read", "bytes written", "TFLOP/s", "GB/s", "% roofline", "bound"}


def exported(trace: fs.Trace, path: Path, **options: Any) -> dict[str, Any]:
    trace.export_chrome_trace(path, **options)
    return parse_checked(path.read_bytes())


# Rows -----------------------------------------------------------------------------------------------------------------


def first_fit(intervals: list[tuple[int, int]]) -> list[int]:
    """Return the row of each interval, in order of start: the first in which it overlaps none without nesting."""
    rows: list[list[tuple[int, int]]] = []
    found = []
    for begin, end in intervals:
        # An interval that has begun before and not ended must contain this one.
        fits = (i for i, row in enumerate(rows) if all(other <= begin or end <= other for _, other in row))
        number = next(fits, len(rows))
        rows += [[]] * (number == len(rows))
        rows[number] = [*rows[number], (begin, end)]
        found.append(number)
    return found


def rows_of(trace: dict[str, Any], category: str) -> dict[str, str]:
    """Return the name of the row of each slice, by the slice's name."""
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    return {event["name"]: named[event["pid"], event["tid"]] for event in slices(trace, category)}


@pytest.mark.parametrize("seed", range(6))
def test_slices_go_to_the_first_row_in_which_they_nest(seed: int) -> None:
    rng = random.Random(seed)
    core, longest = _core.Store(), rng.choice([3, 30, 3000])
    intervals = sorted((rng.randrange(1000), rng.randrange(longest)) for _ in range(400))
    order = list(range(400))
    for i in order:
        start, duration = intervals[i]
        _core._append(core, "kernel", f"k{i}", 5000 + start, duration, device=1, stream=7)
        _core._append(core, "op", f"x::{i}", 5000 + start, duration, thread=3)
    expected = first_fit([(start, start + duration) for start, duration in intervals])
    trace = written(core)
    for category, prefix, place in (("kernel", "k", "stream 7"), ("cpu_op", "x::", "thread 3")):
        found = rows_of(trace, category)
        names = [place if row == 0 else f"{place} ({row + 1})" for row in expected]
        assert [found[f"{prefix}{i}"] for i in order] == names
    assert len(set(expected)) > 1


def overlapping() -> fs.Trace:
    """Return a trace in which slices of a stream and of a thread overlap without nesting."""
    program = hand_traces.Program()
    program.add("cpu_op", "aten::a", 0, 100, tid=11)
    program.add("cpu_op", "aten::b", 50, 100, tid=11)  # beyond the end of a
    program.add("cpu_op", "aten::c", 60, 10, tid=11)
    program.add("user_annotation", "range", 140, 30, tid=11)
    program.add("overhead", "Buffer Flush", 10, 20, tid=0, pid=-1)
    program.add("overhead", "Buffer Request", 20, 20, tid=0, pid=-1)
    for number, (ts, dur) in enumerate(((200, 50), (210, 50), (220, 50), (230, 5), (251, 40))):
        program.work(f"k{number}", ts, dur, correlation=number + 1)
    program.add("gpu_user_annotation", "range", 205, 60, tid=7, pid=0, device=0, stream=7)
    return program.load()


def test_moved_slices_name_their_thread_and_stream_and_read_back_the_same(tmp_path: Path) -> None:
    trace = overlapping()
    out = exported(trace, tmp_path / "a.json")
    kernels = {event["name"]: event for event in slices(out, "kernel")}
    assert len({event["tid"] for event in kernels.values()}) >= 3
    assert {event["args"]["stream"] for event in kernels.values()} == {7}
    moved = [event for event in slices(out, "cpu_op") + slices(out, "user_annotation") if event["tid"] != 11]
    assert moved and {event["args"]["on thread"] for event in moved} == {11}
    stay = [event for event in slices(out, "cpu_op") if event["tid"] == 11]
    assert stay and all("on thread" not in event.get("args", {}) for event in stay)
    tids = {(e["pid"], e["tid"]) for e in out["traceEvents"] if e["ph"] == "X"}
    assert len({tid for _, tid in tids}) >= 6, "no further row has the id of another"
    (annotation,) = slices(out, "gpu_user_annotation")
    assert (annotation["args"].get("stream", annotation["tid"]), annotation["pid"]) == (7, 0)
    with pytest.warns(UserWarning, match="overlap another one on their thread without being nested"):
        again = fs.load_trace(tmp_path / "a.json")
    assert stored(again._core) == stored(trace._core)
    second = exported(again, tmp_path / "b.json")
    for category in ("kernel", "cpu_op", "user_annotation", "gpu_user_annotation"):
        assert rows_of(out, category) == rows_of(second, category)


def test_many_overlaps_take_little_time() -> None:
    core, count = _core.Store(), 30_000
    for i in range(count):  # each overlaps all others
        _core._append(core, "kernel", "k", 1000 + i, count, device=0, stream=7)
    assert len({event["tid"] for event in slices(written(core), "kernel")}) == count


# Work -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_work_and_counters_in_a_trace_are_those_of_the_table(path: Path, tmp_path: Path) -> None:
    trace = fs.load_trace(path)
    out = exported(trace, tmp_path / "a.json")
    ops = [event for c in ("cpu_op", "user_annotation") for event in slices(out, c)]
    work = [event for c in ("kernel", "gpu_memcpy", "gpu_memset") for event in slices(out, c)]
    by_op: dict[str, list[Event]] = defaultdict(list)
    for op in ops:
        if WORK & op["args"].keys():
            by_op[op["name"]].append(op["args"])
    for row in trace.key_averages():
        if row.device_type != "cpu" or math.isnan(row.flops) or row.is_user_annotation:
            continue
        known = [args for args in by_op[row.key] if "FLOPs" in args]
        assert sum(float(args["FLOPs"]) for args in known) == pytest.approx(row.flops, rel=1e-9), row.key
        if row.count == 1 and known and not math.isnan(row.pct_roofline):
            (args,) = known
            shown = {"TFLOP/s": row.tflops_per_s, "GB/s": row.gbytes_per_s, "% roofline": row.pct_roofline}
            for key, value in shown.items():
                assert float(args[key]) == pytest.approx(value, rel=1e-3, abs=1e-8), (row.key, key)
            assert args.get("bound", "unknown") == row.bound
    owned = sum(float(event["args"].get("FLOPs", 0)) for event in work)
    total = sum(float(args["FLOPs"]) for several in by_op.values() for args in several if "FLOPs" in args)
    assert owned == pytest.approx(total, rel=1e-9), "each FLOP is in one op, and in its device work"
    for event in work:
        args, ns = event["args"], float(event["dur"]) * 1000
        if "TFLOP/s" in args and ns > 0:
            assert float(args["TFLOP/s"]) == pytest.approx(float(args["FLOPs"]) / ns / 1e3, rel=1e-3, abs=1e-8)
        if "GB/s" in args and ns > 0:
            moved = float(args["bytes read"]) + float(args["bytes written"])
            assert float(args["GB/s"]) == pytest.approx(moved / ns, rel=1e-3, abs=1e-8)
    assert out["rooflinePeaks"] == {"cuda:0": "datasheet"}
    check_counter(counter(out, "TFLOP/s"), achieved(out, "FLOPs"), 1e-3)
    check_counter(counter(out, "GB/s"), achieved(out, "bytes read", "bytes written"), 1)


def two_products(tmp_path: Path) -> tuple[fs.Trace, dict[str, Any]]:
    """Return a trace of two products, one of two kernels, that overlap; of a mystery, and of a copy."""
    program = hand_traces.Program()
    shapes = [1024, 1024], [1024, 1024]
    program.op("aten::mm", 0, 50, *shapes)
    program.op("aten::mm", 100, 50, *shapes)
    program.op("x::mystery", 200, 50)
    for number, at, start, duration in ((10, 10, 1000, 40), (20, 110, 1030, 10), (21, 120, 1040, 30)):
        program.call("cudaLaunchKernel", at, 5, correlation=number)
        program.work(f"sgemm{number}", start, duration, stream=number // 10, correlation=number)
    program.call("cudaLaunchKernel", 210, 5, correlation=77)
    program.work("mystery", 1200, 10, stream=1, correlation=77)
    trace = program.load()
    return trace, exported(trace, tmp_path / "a.json")


def test_device_work_has_its_share_by_duration(tmp_path: Path) -> None:
    _, out = two_products(tmp_path)
    args = {event["name"]: event["args"] for event in slices(out, "kernel")}
    flops = 2 * 1024**3
    assert [float(args[f"sgemm{number}"]["FLOPs"]) for number in (10, 20, 21)] == [flops, flops / 4, flops * 3 / 4]
    assert [float(args[f"sgemm{number}"]["bytes read"]) for number in (10, 20)] == [2 * 4 * 2**20, 2 * 2**20]
    assert args["sgemm10"]["TFLOP/s"] == Decimal("53.69") == round(Decimal(flops) / 40_000_000, 2)
    least = max(flops / hand_traces.PEAKS["fp32"], 3 * 4 * 2**20 / hand_traces.BANDWIDTH)
    assert float(args["sgemm10"]["% roofline"]) == pytest.approx(100 * least / 40e-6, rel=1e-3)
    assert args["sgemm10"]["bound"] == "compute"
    assert not WORK & args["mystery"].keys(), "unknown is not 0"
    start, one, both = int(slices(out, "kernel")[0]["ts"] * 1000), flops / 40 / 1e6, 2 * flops / 40 / 1e6
    expected = [(0, one), (30_000, both), (40_000, one), (70_000, 0)]
    found = counter(out, "TFLOP/s")[1:]
    assert found == [(start + ns, float(f"{value:.4g}")) for ns, value in expected], "the sum of the running works"
    check_counter(counter(out, "GB/s"), achieved(out, "bytes read", "bytes written"), 1)


def test_work_is_optional_and_is_not_read_back(tmp_path: Path) -> None:
    trace, out = two_products(tmp_path)
    bare = exported(trace, tmp_path / "bare.json", work=False)
    assert not any(event["ph"] == "C" for event in bare["traceEvents"]) and "rooflinePeaks" not in bare
    assert not any({"FLOPs", "GB/s"} & event.get("args", {}).keys() for event in bare["traceEvents"])
    assert any(event["ph"] == "C" for event in out["traceEvents"])
    first, second = fs.load_trace(tmp_path / "a.json"), fs.load_trace(tmp_path / "bare.json")
    assert stored(first._core) == stored(second._core)
    assert str(first.key_averages().table()) == str(second.key_averages().table())


# Counters -------------------------------------------------------------------------------------------------------------


def counter(trace: dict[str, Any], unit: str) -> list[tuple[int, float]]:
    """Return the times in ns and the values of a counter."""
    found = [event for event in trace["traceEvents"] if event["ph"] == "C" and unit in event["args"]]
    assert {event["cat"] for event in found} <= {"flopscope"} and {len(event["args"]) for event in found} <= {1}
    assert all(event["name"].startswith("flopscope ") for event in found)
    return [(int(event["ts"] * 1000), float(event["args"][unit])) for event in found]


def achieved(trace: dict[str, Any], *keys: str) -> list[tuple[int, int, float]]:
    """Return begin, end in ns and rate per ns of each piece of work whose amounts are known."""
    works = [event for c in ("kernel", "gpu_memcpy", "gpu_memset") for event in slices(trace, c)]
    return [
        (
            int(event["ts"] * 1000),
            int((event["ts"] + event["dur"]) * 1000),
            sum(float(event["args"][key]) for key in keys) / int(event["dur"] * 1000),
        )
        for event in works
        if all(key in event["args"] for key in keys) and event["dur"] > 0
    ]


def check_counter(values: list[tuple[int, float]], works: list[tuple[int, int, float]], scale: float) -> None:
    """Compare a counter with the sum of the rates at every time between two edges."""
    works = [work for work in works if work[2] > 0]
    edges = sorted({time for begin, end, _ in works for time in (begin, end)})
    times = [time for time, _ in values]
    assert times == sorted(set(times)) and values[-1] == (edges[-1], 0)
    assert all(a[1] != b[1] for a, b in itertools.pairwise(values)), "equal values are merged"
    begins, ends, rates = (np.array(column) for column in zip(*works, strict=True))
    for begin, end in itertools.pairwise(edges):
        shown = values[np.searchsorted(times, begin, side="right") - 1][1]
        expected = rates[(begins <= begin) & (ends >= end)].sum() * scale
        assert shown == pytest.approx(expected, rel=1e-3, abs=1e-8), (begin, end)


def test_counters_have_a_bounded_number_of_values(tmp_path: Path) -> None:
    program, rng = hand_traces.Program(), random.Random(1)
    ends, at = 0, 0
    for number in range(35_000):
        side = 64 * rng.randrange(1, 9)
        program.op("aten::mm", 20 * number, 15, [side, side], [side, side])
        program.call("cudaLaunchKernel", 20 * number + 1, 5, correlation=number + 1)
        at, duration = max(at + rng.randrange(3), ends), rng.randrange(1, 30)
        ends = at + duration
        program.work("k", at, duration, correlation=number + 1)
    program.load().export_chrome_trace(tmp_path / "a.json")
    out = json.loads((tmp_path / "a.json").read_text(), parse_float=Decimal)
    for unit, keys, scale in (("TFLOP/s", ("FLOPs",), 1e-3), ("GB/s", ("bytes read", "bytes written"), 1)):
        values = counter(out, unit)
        assert 30_000 < len(values) <= MOST_VALUES
        total = sum((end - begin) * rate for begin, end, rate in achieved(out, *keys)) * scale
        area = sum(a[1] * (b[0] - a[0]) for a, b in itertools.pairwise(values))
        assert area == pytest.approx(total, rel=1e-4), "means keep the amount of work"


def test_a_profile_of_the_cpu_has_no_counters(tmp_path: Path) -> None:
    x = fs.ones((64, 64))
    with fs.profile() as prof:
        fs.add(x, x)
    prof.export_chrome_trace(tmp_path / "a.json")
    trace = json.loads((tmp_path / "a.json").read_text())
    assert not any(event["ph"] == "C" for event in trace["traceEvents"])
    (op,) = slices(trace, "cpu_op")
    assert op["args"]["FLOPs"] == 4096 and op["args"]["GB/s"] > 0
