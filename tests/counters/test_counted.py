"""How samples of counters become columns: recorded on an H200, from traces, and against the definition."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import DATA
from helpers.hand_traces import kernel, load
from helpers.recorded_counters import SIZES, recording

import flopscope as fs
from flopscope import _core
from flopscope.answers import counted
from flopscope.answers.counted import counter_rows
from flopscope.show.summarize import energy_section
from flopscope.support.nvml import Energy
from flopscope.support.units import MISSING

# Recorded on an H200 ------------------------------------------------------------------------------------------------


def per_call(store: _core.Store) -> dict[str, dict[str, float]]:
    columns, _ = store.table(False, 0, {})
    return {
        key: {
            "read": columns["dram_bytes_read"][i] / columns["count"][i],
            "written": columns["dram_bytes_written"][i] / columns["count"][i],
            "tensor": columns["tensor_active"][i],
        }
        for i, key in enumerate(columns["key"])
    }


@pytest.mark.parametrize(("name", "least", "within"), [("h200_2us.npz", 1024, 0.003), ("h200_5us.npz", 2048, 0.02)])
def test_recorded_kernels_read_what_they_must(name: str, least: int, within: float) -> None:
    found = per_call(recording(name))
    checked = 0
    for n in SIZES:
        if f"add{n}" not in found:
            continue
        if n < least:
            assert n == 256 or n > 700 or math.isnan(found[f"add{n}"]["read"])
        else:
            assert found[f"add{n}"]["read"] == pytest.approx(8 * n * n, rel=within), n
            checked += 1
    assert checked >= 4 and found["big"]["read"] == pytest.approx(1 << 28, rel=0.002)


WRITTEN = {f"add{n}": 4 * n * n for n in SIZES} | {"big": 1 << 28, "sum": 0}
WRITTEN |= dict.fromkeys(("add", "sin", "transpose"), 4 * 8192**2)


def test_writes_are_within_their_doubt_or_missing() -> None:
    found = per_call(recording("h200_5us.npz"))
    told = {key: row["written"] for key, row in found.items() if key in WRITTEN and not math.isnan(row["written"])}
    for key, written in told.items():
        assert abs(written - WRITTEN[key]) <= 0.2 * (60 << 20), key
    for key, row in found.items():  # less traffic than 1.25 of the L2
        if key.startswith("add") and key != "add" and int(key[3:]) <= 2048:
            assert math.isnan(row["written"]), key
    assert {"big", "add2896", "sum", "sin", "add4096", "add8192"} <= {*told}


def in_turns(keys: list[str], read: float, written: float, devices: int = 1) -> _core.Store:
    """Return a store of kernels of 20 µs that follow each other, with even traffic, on GPUs with an L2 of 60 MiB."""
    store = _core.Store()
    for place, key in enumerate(keys):
        for device in range(devices):
            _core._append(store, "kernel", key, 20_000 * place, 20_000, device=device)  # type: ignore[attr-defined]
    edges = np.arange(0, 20_000 * len(keys) + 1, 2_500)
    for device in range(devices):
        _core._set_device(store, device, {"name": "NVIDIA H200", "l2_bytes": 60 << 20})  # type: ignore[attr-defined]
        for metric, amount in (("dram_bytes_read", read), ("dram_bytes_written", written)):
            store.add_samples(device, metric, edges[:-1], edges[1:], np.full(len(edges) - 1, amount / 8))
    return store


def test_the_doubt_of_writes_is_that_of_each_run_of_a_rows_kernels() -> None:
    # Doubts: 0.2 × 60 MiB = 12.6 MB a run. Told up to 0.16 of the traffic of the row: 78.6 MB a run.
    columns, _ = in_turns(["a"] * 10 + ["b"] * 3 + ["a"] * 10, 20e6, 10e6).table(False, 0, {})
    rows = {key: {name: columns[name][i] for name in columns} for i, key in enumerate(columns["key"])}
    assert rows["a"]["dram_bytes_written"] == pytest.approx(20 * 10e6, abs=2 * 12.6e6)  # 600 MB in two runs
    assert rows["b"]["dram_bytes_written"] == pytest.approx(3 * 10e6, abs=12.6e6)  # 90 MB in one
    columns, _ = in_turns(["a", "b"] * 20, 20e6, 10e6).table(False, 0, {"cuda:0": {"bandwidth": 4.8e12, "flops": {}}})
    for name in ("dram_bytes_written", "dram_gbytes_per_s", "bytes_written"):
        assert np.isnan(columns[name]).all(), name
    for name in ("dram_bytes_read", "bytes_read"):
        assert columns[name] == pytest.approx(np.full(2, 20 * 20e6)), name
    assert columns["bytes_total_moved"] == pytest.approx(np.full(2, 20 * 30e6), rel=1e-6), "the traffic of the time"
    assert list(columns["bytes_source"]) == ["counted", "counted"]
    columns, _ = in_turns(["a", "b"] * 20, 70e6, 20e6).table(False, 0, {})  # 90 MB a run
    assert columns["dram_bytes_written"] == pytest.approx(np.full(2, 20 * 20e6), rel=0.15)


def sampled_at_rates(works: list[tuple[str, int, int, float]], ns: int = 2_500) -> dict[str, float]:
    """Bytes read by row of kernels (row, start, length in ns, true bytes per ns), of samples that begin 100 ns late."""
    store = _core.Store()
    for key, start, length, _ in works:
        _core._append(store, "kernel", key, start, length, device=0)  # type: ignore[attr-defined]
    edges = np.arange(100 - ns, max(start + length for _, start, length, _ in works) + 2 * ns, ns, np.int64)
    totals = [
        sum(rate * max(0, min(start + length, edge + ns) - max(start, edge)) for _, start, length, rate in works)
        for edge in edges[:-1].tolist()
    ]
    store.add_samples(0, "dram_bytes_read", edges[:-1], edges[1:], np.array(totals, np.float64))
    columns, _ = store.table(False, 0, {})
    return dict(zip(columns["key"], columns["dram_bytes_read"], strict=True))


def one_after_another(kernels: list[tuple[str, int, float]], gap: int) -> list[tuple[str, int, int, float]]:
    starts = np.cumsum([0, *(length + gap for _, length, _ in kernels)]).tolist()
    return [(key, start, length, rate) for start, (key, length, rate) in zip(starts, kernels, strict=False)]


def test_a_short_kernel_after_a_long_one_of_its_row_is_counted_with_it() -> None:
    # As a sum is: a kernel that reads everything, and one that reads next to nothing.
    works = one_after_another([("sum", 60_000, 4000), ("sum", 1_900, 0), ("sin", 90_000, 2600)] * 20, 1_000)
    found = sampled_at_rates(works)
    assert found["sum"] == pytest.approx(20 * 60_000 * 4000, rel=0.005)  # scaled by time, it would be 1.03 of that
    assert found["sin"] == pytest.approx(20 * 90_000 * 2600, rel=0.005)


def test_a_run_of_short_kernels_is_counted_if_it_is_long() -> None:
    tiny = [("tiny", 1_000, 500.0 * (i % 3)) for i in range(90)]
    true = sum(length * rate for _, length, rate in tiny)
    around = [("big", 100_000, 3000.0)]
    assert sampled_at_rates(one_after_another(around + tiny + around, 500))["tiny"] == pytest.approx(true, rel=0.05)
    for few_or_apart in (one_after_another(around + tiny[:30] + around, 500), one_after_another(tiny, 4_000)):
        assert math.isnan(sampled_at_rates(few_or_apart)["tiny"])
    mixed = one_after_another([("tiny", 1_000, 500.0), ("other", 1_000, 1500.0)] * 90, 500)
    assert all(math.isnan(value) for value in sampled_at_rates(mixed).values())


def test_samples_are_kept_in_order_and_bad_ones_left_out() -> None:
    store = _core.Store()
    start = np.array([0, 10, 5, 20, 30], np.int64)
    end = np.array([10, 20, 15, 30, 25], np.int64)
    assert store.add_samples(0, "dram_bytes_read", start, end, np.array([1.0, 2.0, 3.0, math.nan, 5.0])) == 3
    (device, name, kind, unit, starts, ends, values) = store.samples()[0]
    assert (device, name, kind, unit) == (0, "dram_bytes_read", "amount", "bytes")
    assert (starts.tolist(), ends.tolist(), values.tolist()) == ([0, 10], [10, 20], [1.0, 2.0])


def test_a_store_that_is_extended_takes_the_samples_along() -> None:
    first, second = _core.Store(), _core.Store()
    edges = np.array([0, 10], np.int64)
    first.add_samples(0, "sm_active", edges, edges + 10, np.array([1.0, 2.0]))
    second.add_samples(0, "sm_active", edges, edges + 10, np.array([3.0, 4.0]))
    first.extend(second, 100)
    assert first.samples()[0][4].tolist() == [0, 10, 100, 110]


# Python's division of samples, as an oracle of the core's ----------------------------------------------------------


def divided(samples: list[tuple[int, int, float]], works: list[tuple[int, int]]) -> list[float]:
    """Divide amounts among works by expectation-maximization."""
    rates = [1.0] * len(works)
    amounts = [0.0] * len(works)
    for _ in range(20):
        amounts = [0.0] * len(works)
        for start, end, value in samples:
            parts = [r * max(0, min(end, b) - max(start, a)) for r, (a, b) in zip(rates, works, strict=True)]
            for k, part in enumerate(parts):
                amounts[k] += value * part / sum(parts) if part else 0.0
        covered = [sum(max(0, min(e, b) - max(s, a)) for s, e, _ in samples) for a, b in works]
        rates = [amount / time if time else 0.0 for amount, time in zip(amounts, covered, strict=True)]
    return amounts


def test_the_core_divides_samples_as_the_definition_does() -> None:
    rng = np.random.default_rng(7)
    starts = np.sort(rng.integers(0, 9000, 40))
    works = [(int(s), int(s + rng.integers(30, 500))) for s in starts]
    edges = np.arange(0, 10001, 10)
    values = rng.random(1000) * 1000
    store = _core.Store()
    for k, (a, b) in enumerate(works):
        _core._append(store, "kernel", f"k{k}", a, b - a, device=0)  # type: ignore[attr-defined]
    store.add_samples(0, "l2_bytes", edges[:-1].astype(np.int64), edges[1:].astype(np.int64), values)
    columns, _ = store.table(False, 0, {})
    found = dict(zip(columns["key"], columns["l2_bytes"], strict=True))
    expected = divided([(int(a), int(a + 10), float(v)) for a, v in zip(edges[:-1], values, strict=True)], works)
    for k, amount in enumerate(expected):
        assert found[f"k{k}"] == pytest.approx(amount, rel=1e-9), k
    busy = sum(v for a, v in zip(edges[:-1], values, strict=True) if any(s < a + 10 and a < e for s, e in works))
    assert sum(found.values()) == pytest.approx(busy)


# Counters of traces ---------------------------------------------------------------------------------------------------


KERNEL = kernel("k", 100, 100)


def point(ts: float, value: float, name: str = "power", key: str = "W", **more: object) -> dict[str, object]:
    return {"ph": "C", "name": name, "pid": 0, "tid": 1, "ts": ts, "args": {key: value, **more}}


def test_counter_events_of_others_become_the_same_columns() -> None:
    points = [
        point(90 + 10 * i, value, name, key)
        for i in range(13)
        for name, key, value in [
            ("dram__bytes_read.sum", "value", 2e6 if 1 <= i < 11 else 0),
            ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "value", 50),
            ("power", "W", 300 + i),
        ]
    ]
    elsewhere = {"ph": "C", "name": "dram__bytes_read.sum", "pid": 4321, "tid": 1, "ts": 90, "args": {"value": 1}}
    trace = load(KERNEL, *points, elsewhere)
    row = next(row for row in trace.key_averages(peaks="none") if row.key == "k")
    assert row.dram_bytes_read == pytest.approx(2e7) and row.sm_active == pytest.approx(50)
    assert math.isnan(row.tensor_active)
    timeline = trace.counter_timeline()
    assert timeline["power.W"].tolist()[:3] == [300, 301, 302] and len(timeline) == 12
    assert timeline["dram_bytes_read"].sum() == pytest.approx(2e7)


def test_samples_become_the_same_events_in_both_kinds_of_traces() -> None:
    store = _core.Store()
    _core._append(store, "kernel", "k", 1_000_000, 500, device=1)  # type: ignore[attr-defined]
    start = np.array([1_000_000, 1_001_000, 1_005_250], np.int64)
    store.add_samples(1, "dram_bytes_read", start, start + 1000, np.array([4321.0, 0.0, 2e6]))
    store.add_samples(1, "tensor_active", start[:1], start[:1] + 1000, np.array([37.5]))
    store.add_samples(1, 'a "level"', start[:1], start[:1] + 1000, np.array([-2.25]))
    events = json.loads(b"[" + store.trace_text("samples") + b"]")
    expected = [
        ("dram_bytes_read", 1000.0, {"GB/s": 4.321}), ("dram_bytes_read", 1001.0, {"GB/s": 0}),
        ("dram_bytes_read", 1002.0, {"GB/s": 0, "missing": 1}), ("dram_bytes_read", 1005.25, {"GB/s": 2000}),
        ("dram_bytes_read", 1006.25, {"GB/s": 0, "missing": 1}), ("tensor_active", 1000.0, {"%": 37.5}),
        ("tensor_active", 1001.0, {"%": 0, "missing": 1}), ('a "level"', 1000.0, {"value": -2.25}),
        ('a "level"', 1001.0, {"value": 0, "missing": 1}),
    ]  # fmt: skip
    assert [(e["name"], e["ts"], e["args"]) for e in events] == expected
    assert {(e["ph"], e["pid"]) for e in events} == {("C", 1)}
    pieces: list[bytes] = []
    store.write_trace(pieces.append, "0")
    written = [event for event in json.loads(b"".join(pieces))["traceEvents"] if event["ph"] == "C"]
    shift = written[0]["ts"] - events[0]["ts"]
    assert [{**e, "ts": round(e["ts"] - shift, 3)} for e in written] == events
    assert _core.Store().trace_text("samples") == b""


def test_broken_counter_events_are_left_out() -> None:
    bad = [
        {"ph": "C", "name": "x", "pid": 0, "ts": 1, "args": {}},
        {"ph": "C", "name": "x", "pid": 0, "ts": 1, "args": {"value": "much"}},
        {"ph": "C", "name": "x", "pid": 0, "ts": 1, "args": {"value": [1, {"a": 2}]}},
        {"ph": "C", "name": "x", "pid": 0, "ts": 1},
        {"ph": "C", "name": "x", "pid": 0, "args": {"value": 1}},
        {"ph": "C", "name": "x" * 600, "pid": 0, "ts": 1, "args": {"value": 1}},
        {"ph": "C", "name": "x", "pid": "zero", "ts": 1, "args": {"value": 1}},
        {"ph": "C", "args": 3, "name": "x", "pid": 0, "ts": 1},
        {"ph": "C", "name": "x", "pid": 0, "ts": 2, "args": {str(i): i for i in range(20)}},
    ]
    trace = load(*bad, KERNEL)
    assert [row.key for row in trace.key_averages(peaks="none")] == ["k"] and len(trace.counter_timeline()) == 0


def test_names_of_counters_are_read_as_json() -> None:
    name, key = 'speed of "fans"', "µ/s"
    text = json.dumps({"traceEvents": [KERNEL, *(point(90 + 10 * i, i, name, key) for i in range(3))]})
    assert "\\u00b5" in text
    timeline = fs.load_trace(text.replace("/s", "\\/s").encode()).counter_timeline()
    assert timeline[f"{name}.{key}"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([event for i in range(200) for event in (point(10 * i, 0, missing=1), point(10 * i, i))], [*range(199)]),
        ([point(9.2e15, 1), *(point(90 + 10 * i, i) for i in range(4)), point(-9.2e15, 1), point(1e300, 1)], [0, 1, 2]),
    ],
    ids=["of points of one time the last one counts", "impossible times are left out"],
)
def test_points_become_samples(points: list[dict[str, object]], kept: list[int]) -> None:
    assert load(points[0], KERNEL, *points[1:]).counter_timeline()["power.W"].tolist() == kept


def test_work_of_any_length_is_counted() -> None:
    limit = 2**61 / 1000 - 1024
    works = [KERNEL | {"name": f"long {i}", "ts": -limit, "dur": limit, "tid": i} for i in range(9)]
    points = [point(-limit + i * limit / 4, 1e6, "l2_bytes", "GB/s") for i in range(8)]
    found = {row.key: row.l2_bytes for row in load(KERNEL, *works, *points).key_averages(peaks="none")}
    assert all(math.isfinite(found[f"long {i}"]) for i in range(9)) and math.isnan(found["k"])


# Text -----------------------------------------------------------------------------------------------------------------


def test_tables_show_counters_only_where_there_are_any() -> None:
    points = [
        point(90 + 10 * i, value, name, "value")
        for i in range(13)
        for name, value in (("dram__bytes_read.sum", 2e6), ("dram__bytes_write.sum", 1e6), ("tensor_active", 25))
    ]
    without = load(KERNEL).key_averages(peaks="none")
    counted = load(KERNEL, *points).key_averages(peaks="none")
    for text in (without.table(), str(without)):
        assert "DRAM" not in text and "Tensor" not in text and "Traffic" not in text
    assert "DRAM B/s" in counted.table() and "300 G" in counted.table() and "25.0%" in counted.table()
    assert "DRAM" not in counted.table(roofline=False)
    assert "300 G" in counted.table(kind="all", brief=True) and "25.0%" in counted.table(kind="all", brief=True)


def test_the_summary_has_sums_over_the_program() -> None:
    (total,) = counted.Counted(recording("h200_5us.npz")).totals()
    file = np.load(DATA / "counters" / "h200_5us.npz")
    assert total.bytes_read == pytest.approx(256.0 * file["dram_read"].sum())
    seconds = float(file["edges"].sum()) / 1e9
    assert total.seconds == pytest.approx(seconds) and total.share == pytest.approx(1)
    moved = 256.0 * float(file["dram_read"].sum() + file["dram_written"].sum())
    assert total.tbytes_per_s == pytest.approx(moved / seconds / 1e12)
    lengths = file["edges"][1:]
    assert total.tensor_active == pytest.approx((file["tensor_active"] * lengths).sum() / lengths.sum(), rel=1e-5)
    assert math.isnan(total.sm_active) and math.isnan(counted.Counted(_core.Store()).hfu({"total": []}).percent)
    header, row = counter_rows(counted.Counted(recording("h200_5us.npz")))
    assert header[1] == "read" and row[0] == "cuda:0" and row[1].endswith("GiB")
    assert counter_rows(counted.Counted(_core.Store())) == []


def test_sums_are_scaled_to_the_work_that_was_not_counted() -> None:
    rng = np.random.default_rng(3)
    works = [(int(start), int(rng.integers(0, 90))) for start in rng.integers(0, 3000, 60)]
    starts = np.sort(rng.choice(3000, 40, replace=False)).astype(np.int64)
    ends = np.minimum(starts + 50, np.append(starts[1:], 4000))
    store = _core.Store()
    for start, length in works:
        _core._append(store, "kernel", "k", start, length, device=0)  # type: ignore[attr-defined]
    _core._append(store, "kernel", "elsewhere", 0, 100_000, device=1)  # type: ignore[attr-defined]
    store.add_samples(0, "dram_bytes_read", starts, ends, np.full(40, 2.5))
    counted_ns = {ns for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for ns in range(start, end)}
    busy_ns = {ns for start, length in works for ns in range(start, start + length)}
    (total,) = counted.Counted(store).totals()
    assert total.share == pytest.approx(len(busy_ns & counted_ns) / len(busy_ns)) and total.bytes_read == 100
    assert total.whole_read == pytest.approx(100 / total.share) and math.isnan(total.whole_written)
    assert counter_rows(counted.Counted(store))[1][1] == f"{100 / total.share:.0f} B"
    without = _core.Store()
    without.add_samples(0, "dram_bytes_read", starts, ends, np.full(40, 2.5))
    (total,) = counted.Counted(without).totals()
    assert total.share == pytest.approx((ends - starts).sum() / (ends[-1] - starts[0]))


def test_flops_per_joule_are_unknown_without_flops() -> None:
    energy, nan = {"cuda:0": Energy(20.0, 400.0, "")}, math.nan
    for flops, said in (([4e9, nan, 6e9], "0.500"), ([nan, nan], MISSING), ([], MISSING)):
        rows: Any = energy_section(energy, SimpleNamespace(columns={"flops": flops}))[0]  # type: ignore[arg-type]
        assert rows.rows[1][-1] == said


# torch ----------------------------------------------------------------------------------------------------------------


class Sampled:
    """Counters that counted one track, as those of a profile do."""

    energy: ClassVar[dict[str, object]] = {}

    def start(self) -> bool:
        return True

    def stop(self) -> None: ...

    def pour(self, store: _core.Store) -> None:
        start = np.array([1000, 2000, 5000], np.int64)
        store.add_samples(0, "dram_bytes_read", start, start + 1000, np.array([4e6, 0.0, 2e6]))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_traces_of_torch_have_the_counters(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from flopscope.torch import profile

    monkeypatch.setattr("flopscope.torch.Counters", lambda wish, interval, begins_live: Sampled())
    with profile(counters=True) as prof:
        torch.ones(3) + 1
    path = tmp_path / name
    prof.export_chrome_trace(str(path))
    trace = fs.load_trace(path)
    assert [row.key for row in trace.key_averages(peaks="none")] == [r.key for r in prof.key_averages(peaks="none")]
    for timeline in (prof.counter_timeline(), trace.counter_timeline()):
        assert timeline["dram_bytes_read"].tolist() == pytest.approx([4e6, 0, 2e6])
        assert timeline["duration"].tolist() == pytest.approx([1, 1, 1])
    if name.endswith("json"):
        json.loads(path.read_text(encoding="utf-8"))
