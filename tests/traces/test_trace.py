"""Chrome traces: checked against the rules of Chrome, the output of Kineto, and the recorded events."""

import gzip
import json
import os
import random
import re
import threading
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from helpers import TRACES
from helpers.chrome_events import Event, parse_checked, slices, written
from helpers.hand_traces import event, load

import flopscope as fs
from flopscope import _core
from flopscope.results import exports

# Arguments that only Kineto or only flopscope writes, and numbers that each counts for itself.
KINETO_ONLY = {"Sequence number", "Fwd thread id", "Record function id", "cbid", "queued", "finished",
               "Python module id"}  # fmt: skip
OURS = {"flops", "bytes read", "bytes written", "unit", "on thread", "External id"}
IDS = {"External id", "Ev Idx", "Python id", "Python parent id"}
LAUNCH = {"grid": (97657, 1, 1), "block": (128, 1, 1), "registers": 32, "context": 1}


def test_a_trace_with_every_kind_of_event_follows_the_rules() -> None:
    core = _core.Store()
    _core._set_window(core, 1_000, 200_000)
    module = _core._append(core, "frame", "train.py(1): <module>", 1_100, 190_000)
    step = _core._append(core, "step", "ProfilerStep#0", 2_000, 80_000, module)
    op = _core._append(core, "op", "aten::addmm", 2_200, 20_000, step)
    _core._append(core, "memory", "[memory]", 2_250, 0, op, device=0, bytes=4096)
    call = _core._append(core, "runtime", "cudaLaunchKernel", 2_300, 9_000, op, correlation=1)
    _core._append(core, "runtime", "cuLaunchKernel", 2_400, 8_000, call, correlation=1)
    _core._append(core, "overhead", "Activity Buffer Request", 11_400, 500, op)
    _core._append(core, "runtime", "cudaMemcpyAsync", 42_000, 2_000, step, correlation=2)
    _core._append(core, "runtime", "cudaMemsetAsync", 45_000, 2_000, step, correlation=3)
    wait = _core._append(core, "runtime", "cudaDeviceSynchronize", 52_000, 10_000, step, correlation=4)
    _core._append(core, "sync", "Context Sync", 53_000, 8_000, wait, correlation=4)
    device: dict[str, Any] = {"device": 0, "stream": 7}
    copied: dict[str, Any] = {"bytes": 4, "launch": {"context": 1}, **device}
    _core._append(core, "kernel", "sgemm", 11_000, 25_003, None, op, 1, launch=LAUNCH, **device)
    _core._append(core, "memcpy", "Memcpy DtoH (Device -> Pinned)", 44_000, 1_600, None, step, 2, **copied)
    _core._append(core, "memset", "Memset (Device)", 48_000, 736, None, step, 3, **copied)
    _core._append(core, "step", "ProfilerStep#0", 11_000, 37_736, None, step, **device)
    trace = written(core, '"traceName": "x"')
    kinds = Counter(event["cat"] for event in trace["traceEvents"] if "cat" in event and event["ph"] in "Xi")
    once = ("python_function", "user_annotation", "cpu_op", "cpu_instant_event", "cuda_driver", "overhead", "cuda_sync",
            "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "Trace")  # fmt: skip
    assert kinds == {**dict.fromkeys(once, 1), "cuda_runtime": 4}
    assert sum(event["ph"] == "s" for event in trace["traceEvents"]) == 3, "one flow arrow for each launch"
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] == "ms" and trace["traceName"] == "x"
    assert trace["flopscope"] == {"version": "1.2.3", "timing": ["cpu", "cupti"], "dropped": 0, "without a time": 0}


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name.partition(".")[0])
def test_events_equal_those_of_kineto(path: Path, tmp_path: Path) -> None:
    """Of recorded traces, which are read and written again."""

    def events_of(text: bytes) -> dict[Any, Event]:
        timed = [event for event in json.loads(text)["traceEvents"] if event["ph"] in "Xi" and "cat" in event]
        return {(event["cat"], event["name"], round(1000 * event["ts"])): event for event in timed}

    fs.load_trace(path).export_chrome_trace(tmp_path / "again.json", work=False)
    ours, theirs = events_of((tmp_path / "again.json").read_bytes()), events_of(gzip.decompress(path.read_bytes()))
    lost = {(cat, name) for cat, name, _ in theirs.keys() - ours.keys() if cat not in ("Trace", "gpu_user_annotation")}
    assert lost <= {("cpu_op", name) for _, name in lost}, "ops merged with the only one inside them"
    for place in ours.keys() & theirs.keys():
        one, other = ours[place], theirs[place]
        assert one.keys() == other.keys() and one.get("dur", 0) == pytest.approx(other.get("dur", 0), abs=0.001)
        actual, expected = one.get("args", {}), other.get("args", {})
        assert expected.keys() - actual.keys() <= KINETO_ONLY and actual.keys() - expected.keys() <= OURS | IDS, one
        for key in expected.keys() & actual.keys() - IDS:
            if key == "est. achieved occupancy %" and actual["shared memory"] > 48 << 10:
                assert actual[key] > expected[key] == 0  # Kineto does not know that more is possible
            elif isinstance(expected[key], float):
                assert actual[key] == pytest.approx(expected[key], rel=1e-6, abs=1e-9), key
            else:
                assert (type(actual[key]), actual[key]) == (type(expected[key]), expected[key]), key


# Times ----------------------------------------------------------------------------------------------------------------


def test_trace_times_plus_the_base_are_unix_times() -> None:
    before = time.time_ns()
    with fs.profile() as prof:
        fs.ones((4,))
    after = time.time_ns()
    trace = written(prof._core)
    (op,) = slices(trace, "cpu_op")
    slack = 50_000_000  # the clocks are read in sequence, and the time of day may be adjusted
    assert before - slack <= trace["baseTimeNanoseconds"] + int(op["ts"] * 1000) <= after + slack
    assert trace["baseTimeNanoseconds"] % 7_889_238_000_000_000 == 0, "the same base for all ranks, as in torch"
    assert float(op["ts"]) * 1000 < 2**53, "the time is exact in a double"


# Native ops -----------------------------------------------------------------------------------------------------------


def test_native_ops_from_end_to_end(tmp_path: Path) -> None:
    x, weight = fs.ones((8, 4)), fs.ones((4, 16), dtype="bfloat16")
    before = fs.memory_allocated("cpu")
    with fs.profile(profile_memory=True) as prof, fs.record_function('the "range"\n'):
        for _ in range(3):
            fs.add(x, x)
        fs.mul_(x.T, 2)
        weight.to("float32")
    exports.export(prof._core, tmp_path / "trace.json")
    trace = parse_checked((tmp_path / "trace.json").read_bytes())
    ops = slices(trace, "cpu_op")
    assert [op["name"] for op in ops] == ["flopscope::add"] * 3 + ["flopscope::mul_", "flopscope::cast"]
    inputs = [[op["args"][key] for key in ("Input Dims", "Input type", "Input Strides")] for op in ops[2:]]
    assert inputs == [
        [[[8, 4], [8, 4]], ["float", "float"], [[4, 1], [4, 1]]],
        [[[4, 8], []], ["float", "Scalar"], [[1, 4], []]],
        [[[4, 16]], ["c10::BFloat16"], [[16, 1]]],
    ]
    counted = [{key: op["args"][key] for key in ("flops", "bytes read", "bytes written")} for op in ops[2:]]
    assert counted == [
        {"flops": 32, "bytes read": 128, "bytes written": 128},  # both operands are the same memory
        {"flops": 32, "bytes read": 128, "bytes written": 128},
        {"flops": 0, "bytes read": 128, "bytes written": 256},
    ]
    (around,) = slices(trace, "user_annotation")
    assert around["name"] == 'the "range"\n'
    assert all(around["ts"] <= op["ts"] and op["ts"] + op["dur"] <= around["ts"] + around["dur"] for op in ops)
    assert all(op["tid"] == threading.get_native_id() and op["pid"] == os.getpid() for op in ops)
    memory = slices(trace, "cpu_instant_event")
    assert memory[0]["args"]["Bytes"] == 128 and min(m["args"]["Total Allocated"] for m in memory) == before
    averages = {row.key: row.count for row in prof.key_averages(peaks="none") if row.key != "[memory]"}
    assert averages == Counter(event["name"] for event in [*ops, around])


# Rare events: at the limits of time, open, without a name, with names that are not UTF-8 ------------------------------


def named(core: _core.Store) -> dict[str, Event]:
    """Return the complete events of the trace by their names, which differ."""
    events = [event for event in written(core)["traceEvents"] if event["ph"] in "Xi" and event["name"] != "ac2g"]
    found = {event["name"]: event for event in events}
    assert len(found) == len(events)
    return found


def test_extreme_times_are_written() -> None:
    core = _core.Store()
    for name, start, duration in (
        ("x::a", 2**63 - 1, 2**63 - 1),
        ("x::b", 1 - 2**63, 2**63 - 1),
        ("x::c", 1 - 2**63, None),
        ("x::d", None, 5),
        ("x::e", 100, -5),  # ended before it began: durations are never negative
    ):
        _core._append(core, "op", name, start, duration)
    pieces: list[bytes] = []
    assert core.write_trace(pieces.append, "1") == 1
    trace = json.loads(b"".join(pieces), parse_float=Decimal)
    found = {event["name"]: event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"}
    assert found.keys() == {"x::a", "x::b", "x::c", "x::e"} and trace["flopscope"]["without a time"] == 1
    assert (found["x::b"]["ts"], found["x::b"]["dur"]) == (0, Decimal("9223372036854775.807"))
    assert found["x::e"]["dur"] == 0


def test_open_events_last_until_the_end() -> None:
    core = _core.Store()
    _core._append(core, "op", "x::a", 1000, None)
    _core._append(core, "kernel", "k", 9000, None, device=0)  # begins after the window that is set below
    found = named(core)
    assert found["x::a"]["dur"] == 8 and found["x::a"]["args"] == {"External id": 1, "Ev Idx": 0, "open": True}
    _core._set_window(core, 500, 4000)
    found = named(core)
    begin = found["x::a"]["ts"]
    assert (found["x::a"]["dur"], found["k"]["dur"], found["flopscope (0)"]["dur"]) == (3, 0, Decimal("3.5"))
    assert found["Record Window End"]["ts"] == begin + 3
    assert found["Iteration Start: flopscope"]["ts"] == found["flopscope (0)"]["ts"] == begin - Decimal("0.5")


def test_frames_are_linked_through_ranges() -> None:
    core = _core.Store()
    module = _core._append(core, "frame", "a.py(1): <module>", 0, 1000)
    inside = _core._append(core, "range", "r", 10, 900, module)
    frame = _core._append(core, "frame", "a.py(9): f", 20, 800, inside)
    _core._append(core, "runtime", "cudaDeviceSynchronize", 30, 40, frame, correlation=5)
    found = {name: event.get("args") for name, event in named(core).items()}
    assert found["a.py(1): <module>"] == {"Python parent id": None, "Python id": 1, "Ev Idx": 0}
    assert found["a.py(9): f"] == {"Python parent id": 1, "Python id": 3, "Ev Idx": 2}
    assert found["cudaDeviceSynchronize"] == {"External id": 2, "correlation": 5}


def test_allocated_memory_is_never_negative() -> None:
    """The sums are 100, -200, -150, -170, 230: at least 200 bytes were allocated before."""
    core = _core.Store()
    for at, change in enumerate((100, -300, 50, -20, 400)):
        _core._append(core, "memory", "[memory]", at, 0, device=0, bytes=change)
    events = [event["args"] for event in written(core)["traceEvents"] if event["name"] == "[memory]"]
    assert [event["Total Allocated"] for event in events] == [300, 0, 50, 30, 430]


def in_json(raw: bytes) -> bytes:
    """Return a JSON string of these bytes, which need not be UTF-8."""
    return b'"' + re.sub(rb'[\x00-\x1f"\\]', lambda found: b"\\u%04x" % found[0][0], raw) + b'"'


def test_names_that_are_not_utf8_have_a_mark_for_each_ill_formed_part() -> None:
    """One U+FFFD for each maximal subpart of an ill-formed sequence (Unicode 15, table 3-8), as Python decodes too."""
    rng = random.Random(5)
    parts = [
        *(b"a", b'"', b"\\", b"/", b"\n", b"\t", b"\x01", b"\x1f", b"\x7f"),
        "\u00e9\u20ac\U0001f600\U0010ffff".encode(),
    ]
    parts += [b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"]
    parts += [bytes([value]) for value in range(0x80, 0x100)]
    names = [b"".join(rng.choices(parts, k=rng.randrange(1, 9))) for _ in range(3000)]
    events = [b'{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"ts":%d,"dur":1,"name":%b}' % (2 * i, in_json(name))
              for i, name in enumerate(names)]  # fmt: skip
    trace = fs.load_trace(b'{"traceEvents":[' + b",".join(events) + b"]}")
    found = [event["name"] for event in written(trace._core)["traceEvents"] if event.get("cat") == "cpu_op"]
    assert found == [name.decode("utf-8", "replace") for name in names]


def test_what_ranges_say_beside_their_names_survives(tmp_path: Path) -> None:
    notes: list[dict[str, Any]] = [
        {"category": "io", "color": "#00ff80", "payload": 3},
        {"category": 7},
        {"payload": -1.5},
        {"payload": {"bytes": 8, "name": 'x"é'}},
    ]
    ranges = (event("user_annotation", f"range {i}", 10 * i, 5, **note) for i, note in enumerate(notes))
    load(*ranges).export_chrome_trace(tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    said = {one["name"]: one["args"] for one in written if str(one["name"]).startswith("range ")}
    assert [{name: said[f"range {i}"][name] for name in note} for i, note in enumerate(notes)] == notes
