"""The owners of kernels, compared with an independent join of generated traces with every kind of invalid id."""

import random
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from helpers import hand_traces
from helpers.hand_traces import Json, event, rewritten, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs

OPS, ANNOTATIONS, CALLS = {"cpu_op", "Operator"}, {"user_annotation"}, {"cuda_runtime", "cuda_driver", "Runtime"}
WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel"}


def op(name: str, ts: float, dur: float, external: int | None = None, **where: Any) -> Json:
    return event("cpu_op", name, ts, dur, External_id=external, **where)


def call(name: str, ts: float, dur: float, correlation: int, external: int | None = None, **where: Any) -> Json:
    return event("cuda_runtime", name, ts, dur, External_id=external, correlation=correlation, **where)


def kernel(name: str, ts: float, correlation: int | None, external: int | None = None, device: int = 0) -> Json:
    return hand_traces.kernel(name, ts, 1, device=device, External_id=external, correlation=correlation)


def load(events: list[Json], **head: Any) -> fs.Trace:
    return hand_traces.load(*events, **head)


def self_times(trace: fs.Trace) -> dict[str, float]:
    return {row.key: row.self_cpu_time_total for row in trace.key_averages(peaks="none")}


def launchers(trace: fs.Trace) -> dict[str, str | None]:
    """Return the name of the launching op or annotation of each kernel."""
    work = [event for event in trace.events() if event.kind in ("kernel", "memcpy", "memset")]
    return {event.name: event.launcher.name if event.launcher is not None else None for event in work}


# The oracle -----------------------------------------------------------------------------------------------------------


def join_owners(events: list[Json]) -> dict[str, str | None]:
    """Join kernel -> correlation -> call -> innermost op around it on its thread, else the innermost annotation."""

    def around(call: Json, categories: set[str]) -> Json | None:
        begin, end = call["ts"], call["ts"] + call["dur"]
        same = (e for e in events if e["cat"] in categories and (e["pid"], e["tid"]) == (call["pid"], call["tid"]))
        enclosing = [event for event in same if event["ts"] <= begin and event["ts"] + event["dur"] >= end]
        return max(enclosing, key=lambda event: (event["ts"], -event["dur"])) if enclosing else None

    owners: dict[str, str | None] = {}
    for work in (e for e in events if e["cat"] in WORK):
        correlation, external = work["args"].get("correlation"), work["args"].get("External id")
        calls = [e for e in events if e["cat"] in CALLS and e["args"].get("correlation") == correlation]
        if correlation is not None and calls:
            first = min(calls, key=lambda event: event["ts"])
            owner = around(first, OPS) or around(first, ANNOTATIONS)
        elif external is not None and external != correlation:
            named = (e for e in events if e["cat"] in OPS | ANNOTATIONS)
            owner = next((e for e in named if e["args"].get("External id") == external), None)
        else:
            owner = None
        owners[work["name"]] = owner["name"] if owner else None
    return owners


def generated(seed: int) -> list[Json]:
    """Generate two threads of nested ops, annotations and Python calls, with launches inside and outside of them."""
    rng = random.Random(seed)
    style = rng.choice(["right", "repeats", "shifted", "none", "mixed"])
    events: list[Json] = []
    counters = {"external": 0, "correlation": 100}

    def next_id(which: str) -> int:
        counters[which] += 1
        return counters[which]

    def external_of(owner: int | None, correlation: int) -> int | None:
        kind = rng.choice(["right", "repeats", "shifted", "none"]) if style == "mixed" else style
        return {"right": owner, "repeats": correlation, "none": None, "shifted": (owner or 0) % 7 + 1}[kind]

    def launch(at: int, end: int, tid: int, owner: int | None) -> None:
        correlation, kernels = next_id("correlation"), rng.choice([1, 1, 1, 0, 5])
        external = external_of(owner, correlation)
        if rng.random() < 0.9:  # the other calls are missing, as if made before the profile began
            events.append(call("launch", at, end - at, correlation, external, tid=tid))
            if end - at > 4 and rng.random() < 0.3:
                inner = {**call("cuLaunch", at + 1, end - at - 2, correlation, external, tid=tid), "cat": "cuda_driver"}
                events.append(inner)
        for _ in range(kernels):
            events.append(kernel(f"kernel {len(events)}", end + 50, correlation, external))

    def fill(begin: int, end: int, tid: int, owner: int | None, depth: int) -> None:
        at = begin
        while at + 8 < end:
            until = min(end, at + rng.randint(4, max(5, (end - begin) // 2)))
            what = rng.choice(["op", "op", "annotation", "frame", "launch"] if depth < 5 else ["launch"])
            name = f"{what} {len(events)}"
            if what == "launch":
                launch(at, until, tid, owner)
            elif what == "frame":
                events.append(event("python_function", name, at, until - at, tid))
                fill(at, until, tid, owner, depth + 1)
            else:
                external = next_id("external")
                cat = "cpu_op" if what == "op" else "user_annotation"
                events.append(event(cat, name, at, until - at, tid, External_id=external))
                fill(at, until, tid, external if what == "op" else owner, depth + 1)
            at = until + rng.randint(0, 3)

    for tid in (1, 2):
        fill(0, rng.randint(100, 2000), tid, None, 0)
    if rng.random() < 0.5:
        rng.shuffle(events)
    return events


@pytest.mark.parametrize("seed", range(40))
def test_owners_of_kernels_equal_an_independent_join(seed: int) -> None:
    events = generated(seed)
    owners = join_owners(events)
    assert launchers(load(events)) == owners
    shifted = [{**each, "ts": 1623143089861234 + each["ts"]} for each in events]
    assert launchers(load(shifted)) == owners
    rows = {row.key: row.self_device_time_total for row in load(events).key_averages(peaks="none")}
    for each in (e for e in events if e["cat"] in OPS | ANNOTATIONS):
        assert rows[each["name"]] == sum(1 for owner in owners.values() if owner == each["name"])


# The rules, one by one ------------------------------------------------------------------------------------------------


def test_an_external_id_that_contradicts_the_call_is_reported() -> None:
    events = [op("first", 0, 10, 1), op("second", 20, 10, 2), call("launch", 22, 3, 77, external=1)]
    events.append(kernel("k", 40, 77, external=1))
    with pytest.warns(UserWarning, match=r"1 kernels or copies carry an External id that contradicts the call"):
        trace = fs.load_trace(text_of(*events))
    assert trace.report["contradicting"] == 1 and launchers(trace) == {"k": "second"}
    assert self_times(trace) == {"first": 10, "second": 7, "launch": 3, "k": 0}


def test_an_ambiguous_external_id_names_no_op() -> None:
    events = [op("mine", 0, 10, 3, pid=1), op("its", 0, 10, 3, pid=2), op("other", 20, 10, 4, pid=2)]
    assert launchers(load([*events, kernel("a", 40, None, 3), kernel("b", 50, None, 4)])) == {"a": None, "b": "other"}


def test_calls_with_the_same_correlation_are_distinguished_by_time() -> None:
    """A profiler may restart its ids in every cycle."""
    events = []
    for i in range(3000):
        at = 100 * i
        events += [op(f"op {i}", at, 40), call("cudaLaunchKernel", at + 5, 20, 5)]
        events += [{**call("cuLaunchKernel", at + 6, 10, 5), "cat": "cuda_driver"}, kernel(f"kernel {i}", at + 60, 5)]
    random.Random(1).shuffle(events)
    assert launchers(load(events)) == {f"kernel {i}": f"op {i}" for i in range(3000)}


def test_correlations_can_exceed_32_bits() -> None:
    large = 2**40 + 5
    events = [op("a", 0, 10, 1), op("b", 20, 10, large), call("x", 2, 3, large, external=large)]
    assert launchers(load([*events, kernel("k", 60, large, external=large)])) == {"k": "a"}
    assert launchers(load([*events[:2], kernel("k", 60, large, external=large)])) == {"k": None}


def test_ids_in_traces_of_flopscope_are_unambiguous() -> None:
    events = [op("flopscope::add", 0, 10, 5), call("cudaLaunchKernel", 50, 5, 5), kernel("k", 60, 5, external=5)]
    assert launchers(load(events, flopscope={"version": "1"})) == {"k": "flopscope::add"}
    assert launchers(load(events)) == {"k": None}


def test_the_parent_of_a_wait_is_the_runtime_call() -> None:
    calls = [call("cudaStreamSynchronize", 10, 20, 5), {**call("cuStreamSynchronize", 12, 9, 5), "cat": "cuda_driver"}]
    wait = event("cuda_sync", "Stream Sync", 13, 6, tid=7, pid=0, stream=7, device=0, correlation=5)
    (sync,) = [e for e in load([op("a", 0, 50), *calls, wait]).events() if e.kind == "sync"]
    assert sync.cpu_parent is not None and sync.cpu_parent.name == "cudaStreamSynchronize"


# Times ----------------------------------------------------------------------------------------------------------------


def nanoseconds(text: str) -> int:
    with localcontext() as context:
        context.prec = 60
        return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_UP))


def times_of(text: str, dur: str = "1") -> tuple[int, int]:
    """Return the start, relative to an event at 0, and the duration as read, in ns."""
    line = '{"ph":"X","cat":"cpu_op","name":"%s","pid":1,"tid":%d,"ts":%s,"dur":%s}'
    trace = fs.load_trace(f"[{line % ('zero', 1, '0', '1')}, {line % ('a', 2, text, dur)}]".encode())
    events = {each.name: each for each in trace.events()}
    return events["a"]._value("start") - events["zero"]._value("start"), events["a"]._value("duration")


TIMES = (
    *("1623143089861234.567", "1623143089861234", "1623143089861234.5675", "1623143089861234.56749", "0"),
    *("1.623143089861234567e+15", "1.623143089861234567E15", "1623143089861234567e-3", "16231430898612345.67e-1"),
    *("1623143089861234.56749999999999999999", "0.0004", "0.0005", "1e-3", "12.5e0", "00000000000000012.5"),
    *("999999999999999.9995", "2305843009213693", "1.5", "123456789012345678e-4", "0.000000000000000000012e20"),
)


def test_times_are_parsed_exactly() -> None:
    for text in TIMES:
        assert times_of(text) == (nanoseconds(text), 1000)
        assert times_of(f'"{text}"', f'"{text}"') == (nanoseconds(text), nanoseconds(text))


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2 * 10**18), st.integers(-3, 6), st.booleans())
def test_all_notations_of_a_time_are_equal(ns: int, shift: int, plus: bool) -> None:
    mantissa = (Decimal(ns) / 1000).scaleb(-shift)
    text = f"{mantissa:f}e{'+' if plus and shift >= 0 else ''}{shift}"
    assert times_of(text)[0] == ns == times_of(f"{Decimal(ns) / 1000:f}")[0]


def test_an_invalid_time_is_counted_and_an_invalid_duration_is_zero() -> None:
    line = '[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":%s,"dur":%s}]'
    for text in ("9223372036854775.807", "1e300", "-1e300", "99999999999999999999", "nan", '"x"', "[]"):
        with pytest.warns(UserWarning, match="1 without a time"):
            assert fs.load_trace((line % (text, 1)).encode()).report["without_time"] == 1
    for text in ("-1", "9e15", "1e300"):
        (row,) = fs.load_trace((line % (1623143089861234, text)).encode()).key_averages(peaks="none")
        assert row.self_cpu_time_total == 0 == row.cpu_time_total


def test_a_child_that_ends_late_by_rounding_lies_in_its_parent() -> None:
    """Times in whole µs: the child is at 3 to 11, the parent ends at 10, and the outer op ends at 11."""
    events = [op("outer", 0, 11), op("parent", 1, 9), op("child", 3, 8), call("launch", 6, 5, 4), kernel("k", 30, 4)]
    trace = load(events)
    assert self_times(trace) == {"outer": 2, "parent": 2, "child": 3, "launch": 5, "k": 0}
    assert trace.report["overlapping"] == 0 and launchers(trace) == {"k": "child"}
    with pytest.warns(UserWarning, match="1 host events overlap another one on their thread"):  # of ns: not rounded
        exact = fs.load_trace(text_of(*({**each, "ts": each["ts"] + 0.123} for each in events)))
    rows = self_times(exact)
    assert exact.report["overlapping"] == 1 and rows["parent"] == 9
    assert rows["outer"] == 1  # the overlap of the two is subtracted once


@pytest.mark.parametrize("seed", range(30))
def test_self_times_of_overlapping_events_are_not_negative(seed: int) -> None:
    rng = random.Random(seed)
    spans = sorted((rng.randint(0, 900), rng.randint(1, 400)) for _ in range(12))
    inside = [(ts, min(dur, 1000 - ts)) for ts, dur in spans]
    events = [op("outer", 0, 1000), *(op(f"op {i}", ts, dur) for i, (ts, dur) in enumerate(inside))]
    trace = load([{**each, "ts": each["ts"] + 0.001} for each in events])
    rows = self_times(trace)
    assert min(rows.values()) >= 0
    free = 1000 - len({tick for ts, dur in inside for tick in range(ts, ts + dur)})
    assert rows["outer"] == pytest.approx(free)  # every op lies in the outer one, directly or not
    assert all(row.cpu_time_total >= row.self_cpu_time_total for row in trace.key_averages(peaks="none"))
    assert {event.name: pytest.approx(event.self_cpu_time_total) for event in trace.events()} == rows


# The head -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [None, "x", 1.5, -1, 10**30, "1790857026000000000", [], {}, True, 1e18])
def test_invalid_members_of_the_head_are_ignored(base: Any, tmp_path: Path) -> None:
    devices: list[Any] = [{"id": "0", "name": 3}, {"id": 1e300}, 7, None, {"id": 0, "name": "A", "numSms": 1e2}]
    trace = load([op("a", 0, 1)], baseTimeNanoseconds=base, deviceProperties=devices)
    assert trace.devices == {0: "A"} and len(trace.key_averages()) == 1
    assert len(rewritten(trace, tmp_path).key_averages()) == 1


# Traces of flopscope --------------------------------------------------------------------------------------------------


def test_written_flops_and_bytes_are_read_back(tmp_path: Path) -> None:
    x = fs.rand((64, 64), device="cpu")
    with fs.profile(record_shapes=True) as prof:
        for _ in range(3):
            with fs.record_function("part", flops=1e6, bytes=4096, unit="bf16_tensor"):
                fs.matmul(fs.add(x, x), x)
        with fs.record_function("unstated"):
            fs.sin(x)
    once = rewritten(prof, tmp_path)
    once.export_chrome_trace(tmp_path / "twice.json")
    numbers = ("count", "flops", "flops_total", "bytes_read", "bytes_written", "bytes_total_moved")
    numbers += ("input_shapes", "unit")
    for by_shape in (False, True):
        written = prof.key_averages(group_by_input_shape=by_shape, peaks="none").to_dicts()
        for trace in (once, fs.load_trace(tmp_path / "twice.json")):
            read = {(row["key"], str(row["input_shapes"])): row for row in trace.key_averages(by_shape).to_dicts()}
            for row in written:
                again = read[row["key"], str(row["input_shapes"])]
                assert str([again[name] for name in numbers]) == str([row[name] for name in numbers]), row["key"]
    matmul = next(row for row in once.key_averages() if row.key == "flopscope::matmul")
    assert matmul.flops == 3 * 2 * 64**3 and matmul.bytes_total_moved == 3 * 3 * 64 * 64 * 4


def test_a_rule_overrides_the_work_in_a_trace() -> None:
    shapes = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
    events = [op("aten::mm", 0, 10), op("made::up", 20, 10), op("made::alone", 40, 10)]
    for each in events[:2]:
        each["args"] = {**shapes, "flops": 999, "bytes read": 30, "bytes written": 12}
    events[2]["args"] = {"flops": 5, "bytes": 42}
    rows = {row.key: row for row in load(events).key_averages(peaks="none")}
    assert rows["aten::mm"].flops == 2 * 4 * 8 * 2
    assert (rows["made::up"].flops, rows["made::up"].bytes_total_moved) == (999, 42)
    assert (rows["made::alone"].flops, rows["made::alone"].bytes_total_moved) == (5, 42)
