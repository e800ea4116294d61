"""Chrome traces: checked against the rules of Chrome, the output of Kineto, and the recorded events."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import stat
import threading
import time
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from helpers.chrome_events import Event, parse_checked, slices

import flopscope as fs
from flopscope import _core
from flopscope.results import chrome_trace
from flopscope.support.launchers import RANK_VARIABLES

# The rules of Chrome that apply here (Catapult's "Trace Event Format") ------------------------------------------------


def write_and_parse(core: _core.Store) -> dict[str, Any]:
    pieces: list[bytes] = []
    assert core.write_trace(pieces.append, "1.2.3", '"traceName": "x"') == 0
    return parse_checked(b"".join(pieces))


# Output of Kineto: one event of each kind, recorded on an H200 (PyTorch 2.11), names cut ------------------------------

KINETO = json.loads(r"""[
{"ph": "X", "cat": "cpu_op", "name": "aten::square", "pid": 403, "tid": 403, "ts": 4359896695937.531, "dur": 3984.347,
 "args": {"External id": 513, "Sequence number": 0, "Fwd thread id": 0, "Record function id": 0,
 "Concrete Inputs": [""], "Input type": ["float"], "Input Strides": [[10000, 1]],
 "Input Dims": [[10000, 10000]], "Ev Idx": 0}},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 403, "tid": 403, "ts": 4359896959916.706,
 "dur": 1796.312, "args": {"External id": 1537, "Record function id": 0, "Ev Idx": 0}},
{"ph": "X", "cat": "python_function", "name": "make_traces.py(195): <module>", "pid": 403, "tid": 403,
 "ts": 4359896959623.717, "dur": 4656.699, "args": {"Python parent id": null, "Python id": 1, "Ev Idx": 453}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 403, "tid": 403, "ts": 4359896699810.234,
 "dur": 79.807, "args": {"External id": 514, "cbid": 211, "correlation": 193}},
{"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 403, "tid": 403, "ts": 4359938548096.394,
 "dur": 15.734, "args": {"External id": 20494, "cbid": 307, "correlation": 526076}},
{"ph": "X", "cat": "kernel", "name": "pow", "pid": 0, "tid": 7, "ts": 4359896699879.574, "dur": 189.183, "args":
 {"External id": 514, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 193,
 "registers per thread": 32, "shared memory": 0, "blocks per SM": 739.825745, "warps per SM": 2959.302979,
 "grid": [97657, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 100}},
{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 7, "ts": 4359938565998.578,
 "dur": 1.6, "args": {"External id": 22177, "device": 0, "context": 1, "stream": 7, "correlation": 531528, "bytes": 4,
 "memory bandwidth (GB/s)": 0.0025}},
{"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 4359938548485.289, "dur": 0.736,
 "args": {"External id": 20502, "device": 0, "context": 1, "stream": 7, "correlation": 526177, "bytes": 4,
 "memory bandwidth (GB/s)": 0.005434782608695652}},
{"ph": "X", "cat": "gpu_user_annotation", "name": "MLP", "pid": 0, "tid": 7, "ts": 4359896963800.672, "dur": 231.235,
 "args": {"External id": 1832}},
{"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": 4359896696034.015,
 "dur": 3767.59},
{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 403, "tid": 403, "ts": 4359896696001.585,
 "args": {"Total Reserved": 834666496, "Total Allocated": 834666496, "Bytes": 400556032, "Device Id": 0,
 "Device Type": 1, "Addr": 140374630727680, "finished": false, "Ev Idx": 4}},
{"ph": "s", "id": 193, "pid": 403, "tid": 403, "ts": 4359896699810.234, "cat": "ac2g", "name": "ac2g"},
{"ph": "f", "id": 193, "pid": 0, "tid": 7, "ts": 4359896699879.574, "cat": "ac2g", "name": "ac2g", "bp": "e"}]""")
# Arguments that only Kineto or only flopscope writes.
KINETO_ONLY = {"Sequence number", "Fwd thread id", "Record function id", "Concrete Inputs", "cbid", "queued",
               "Total Reserved", "Addr", "finished"}  # fmt: skip
OURS = {"flops", "bytes read", "bytes written", "bytes", "cluster", "graph id", "graph node id"}

H200 = {"name": "NVIDIA H200", "total_memory": 150109880320, "compute_major": 9, "compute_minor": 0,
        "max_threads_per_block": 1024, "max_threads_per_sm": 2048, "registers_per_block": 65536, "warp_size": 32,
        "shared_memory_per_block": 49152, "sm_count": 132, "registers_per_sm": 65536,
        "shared_memory_per_block_optin": 232448, "shared_memory_per_sm": 233472, "max_blocks_per_sm": 32}  # fmt: skip
LAUNCH = {"grid": (97657, 1, 1), "block": (128, 1, 1), "registers": 32, "context": 1}


@pytest.fixture
def core() -> _core.Store:
    """Return two steps of a torch program on a GPU, with every kind of event that CUPTI records. Times are in ns."""
    store = _core.Store()
    _core._set_device(store, 0, H200)
    _core._set_window(store, 1_000, 200_000)
    module = _core._append(store, "frame", "train.py(1): <module>", start=1_100, duration=190_000)
    for step in range(2):
        at = 2_000 + 90_000 * step
        begin = _core._append(store, "step", f"ProfilerStep#{step}", start=at, duration=80_000, parent=module)
        outer = _core._append(store, "op", "aten::linear", start=at + 100, duration=30_001, parent=begin)
        inner = _core._append(store, "op", "aten::addmm", start=at + 200, duration=20_000, parent=outer)
        _core._append(store, "memory", "[memory]", start=at + 250, duration=0, parent=inner, device=0, bytes=4096)
        call = _core._append(store, "runtime", "cudaLaunchKernel", at + 300, 9_000, inner, correlation=10 * step + 1)
        _core._append(store, "runtime", "cuLaunchKernel", at + 400, 8_000, call, correlation=10 * step + 1)
        _core._append(store, "overhead", "Activity Buffer Request", start=at + 9_400, duration=500, parent=inner)
        _core._append(store, "runtime", "cudaMemcpyAsync", at + 40_000, 2_000, begin, correlation=10 * step + 2)
        _core._append(store, "runtime", "cudaMemsetAsync", at + 43_000, 2_000, begin, correlation=10 * step + 3)
        waits = "cudaDeviceSynchronize"
        wait = _core._append(store, "runtime", waits, at + 50_000, 10_000, begin, correlation=10 * step + 4)
        _core._append(store, "sync", "Context Sync", at + 51_000, 8_000, wait, correlation=10 * step + 4)
        device: dict[str, Any] = {"device": 0, "stream": 7}
        _core._append(store, "kernel", "sgemm", at + 9_000, 25_003, None, inner, 10 * step + 1, launch=LAUNCH, **device)
        _core._append(store, "memcpy", "Memcpy DtoH (Device -> Pinned)", at + 42_000, 1_600, None, begin, 10 * step + 2,
                     bytes=4, launch={"context": 1}, **device)  # fmt: skip
        _core._append(store, "memset", "Memset (Device)", at + 46_000, 736, None, begin, 10 * step + 3, bytes=4,
                     launch={"context": 1}, **device)  # fmt: skip
        _core._append(store, "step", f"ProfilerStep#{step}", at + 9_000, 37_736, None, begin, **device)
    return store


def test_a_trace_with_every_kind_of_event_follows_the_rules(core: _core.Store) -> None:
    trace = write_and_parse(core)
    kinds = Counter(event["cat"] for event in trace["traceEvents"] if "cat" in event and event["ph"] in "Xi")
    assert kinds == {"python_function": 1, "user_annotation": 2, "cpu_op": 4, "cpu_instant_event": 2, "cuda_runtime": 8,
                     "cuda_driver": 2, "overhead": 2, "cuda_sync": 2, "kernel": 2, "gpu_memcpy": 2, "gpu_memset": 2,
                     "gpu_user_annotation": 2, "Trace": 1}  # fmt: skip
    assert sum(event["ph"] == "s" for event in trace["traceEvents"]) == 6, "one flow arrow for each launch"
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] == "ms" and trace["traceName"] == "x"
    assert trace["flopscope"] == {"version": "1.2.3", "timing": ["cpu", "cupti"], "dropped": 0, "without a time": 0}
    assert trace["deviceProperties"] == [
        {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0,
         "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
         "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
         "sharedMemPerMultiprocessor": 233472, "maxBlocksPerMultiprocessor": 32}]  # fmt: skip


@pytest.mark.parametrize("theirs", KINETO, ids=lambda event: event.get("cat") + event["ph"])
def test_events_equal_those_of_kineto(core: _core.Store, theirs: Event) -> None:
    same = [e for e in write_and_parse(core)["traceEvents"] if (e.get("cat"), e["ph"]) == (theirs["cat"], theirs["ph"])]
    assert same
    for ours in same:
        assert ours.keys() == theirs.keys()
        # This store has no shapes; test_native_ops_from_end_to_end checks them.
        shapes = {"Input Dims", "Input type", "Input Strides"}
        expected, actual = theirs.get("args", {}), ours.get("args", {})
        assert expected.keys() - actual.keys() <= KINETO_ONLY | shapes, ours
        assert actual.keys() - expected.keys() <= OURS, ours
        for key in expected.keys() & actual.keys() - {"Python parent id"}:
            kinds = [float if isinstance(value, Decimal) else type(value) for value in (actual[key], expected[key])]
            assert kinds[0] is kinds[1], (key, actual[key], expected[key])
        if theirs["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):  # these events have the same numbers
            for key in expected.keys() & actual.keys() - {"External id", "correlation"}:
                value = float(actual[key]) if isinstance(actual[key], Decimal) else actual[key]
                assert value == pytest.approx(expected[key], rel=1e-7, abs=1e-9), key


@pytest.mark.parametrize(
    ("grid", "block", "registers", "shared", "blocks", "warps", "pct"),
    [
        ((97657, 1, 1), (128, 1, 1), 32, 0, 739.825745, 2959.302979, 100),
        ((2, 66, 1), (384, 1, 1), 168, 188604, 1.0, 12.0, 19),  # Kineto: 0, for more than 48 KiB
        ((12, 176, 1), (32, 4, 1), 48, 2064, 16.0, 64.0, 63),
        ((65536, 1, 1), (32, 4, 1), 39, 24, 496.484863, 1985.939453, 75),
        ((16, 1, 1), (32, 32, 1), 31, 8448, 0.121212, 3.878788, 6),
    ],
)
def test_occupancy_is_that_which_kineto_writes(
    grid: Any, block: Any, registers: int, shared: int, blocks: float, warps: float, pct: int
) -> None:
    core = _core.Store()
    _core._set_device(core, 0, H200)
    launch = {"grid": grid, "block": block, "registers": registers, "dynamic_shared": shared}
    _core._append(core, "kernel", "k", 0, 10, device=0, launch=launch)
    (args,) = [event["args"] for event in write_and_parse(core)["traceEvents"] if event.get("cat") == "kernel"]
    assert (float(args["blocks per SM"]), float(args["warps per SM"])) == pytest.approx((blocks, warps), abs=1e-6)
    assert args["est. achieved occupancy %"] == pct


def test_device_work_has_the_ids_of_its_op_and_call(core: _core.Store) -> None:
    trace = write_and_parse(core)
    names = {
        event["args"]["External id"]: event["name"] for c in ("cpu_op", "user_annotation") for event in slices(trace, c)
    }
    assert len(names) == 6, "each op has its own id"
    works = slices(trace, "kernel") + slices(trace, "gpu_memset") + slices(trace, "gpu_user_annotation")
    owners = [(event["name"], names[event["args"]["External id"]]) for event in works]
    steps = ["ProfilerStep#0", "ProfilerStep#1"]
    memsets = [("Memset (Device)", step) for step in steps]
    assert owners == [("sgemm", "aten::addmm")] * 2 + memsets + [(step, step) for step in steps]
    for event in slices(trace, "cuda_runtime"):
        within = "aten::addmm" if event["name"] == "cudaLaunchKernel" else "ProfilerStep#"
        assert names[event["args"]["External id"]].startswith(within)
    calls = {e["args"]["correlation"]: e["name"] for e in slices(trace, "cuda_runtime")}
    assert [calls[e["args"]["correlation"]] for e in slices(trace, "gpu_memcpy")] == ["cudaMemcpyAsync"] * 2


def test_rows_of_the_trace_equal_the_rows_of_the_table(core: _core.Store) -> None:
    """Compute times of rows by the rules of torch: nesting on a thread, and device time by "External id"."""
    trace = write_and_parse(core)
    host = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")
    events = sorted((e for c in host for e in slices(trace, c)), key=lambda e: (e["ts"], -e["dur"]))
    rows: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    around: list[Event] = []
    work = defaultdict(Decimal)
    for event in (e for c in ("kernel", "gpu_memcpy", "gpu_memset") for e in slices(trace, c)):
        work[event["args"]["External id"]] += event["dur"]
    for event in events:
        while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"]:
            around.pop()
        key = re.sub(r"#\d+$", "*", event["name"])
        own = work[event["args"].get("External id")] if event["cat"] in host[:2] else Decimal()
        rows[key]["count"] += 1
        rows[key]["cpu_time_total"] += event["dur"]
        rows[key]["self_cpu_time_total"] += event["dur"]
        rows[key]["self_device_time_total"] += own
        if around:
            rows[around[-1]["key"]]["self_cpu_time_total"] -= event["dur"]
        for enclosing in {e["key"] for e in around} | {key}:
            rows[enclosing]["device_time_total"] += own
        around.append({**event, "key": key})
    table = core.table(False, 0, {})[0]
    names = list(table["key"])
    assert {"aten::linear", "aten::addmm", "ProfilerStep*", "cudaLaunchKernel"} <= rows.keys()
    for key in ("aten::linear", "cudaLaunchKernel", "cudaMemcpyAsync", "ProfilerStep*"):
        at = next(i for i, name in enumerate(names) if name == key and table["device_type"][i] == "cpu")
        for column in ("count", "cpu_time_total", "device_time_total", "self_device_time_total"):
            assert float(rows[key][column]) == pytest.approx(table[column][at]), (key, column)


# Times ----------------------------------------------------------------------------------------------------------------


def test_times_are_exact_to_the_nanosecond() -> None:
    core, start = _core.Store(), 1_234_567_890_123
    durations = [1, 999, 1_000, 123_456_789, 0, 7]
    _core._set_window(core, start, start + 10**9)
    for i, duration in enumerate(durations):
        _core._append(core, "op", f"x::{i}", start=start + 10**6 * i**3 + i, duration=duration, thread=i + 1)
    ops = slices(write_and_parse(core), "cpu_op")
    assert [int(op["dur"] * 1000) for op in ops] == durations
    assert [int((op["ts"] - ops[0]["ts"]) * 1000) for op in ops] == [10**6 * i**3 + i for i in range(len(durations))]


def test_trace_times_plus_the_base_are_unix_times() -> None:
    before = time.time_ns()
    with fs.profile() as prof:
        fs.ones((4,))
    after = time.time_ns()
    trace = write_and_parse(prof._core)
    (op,) = slices(trace, "cpu_op")
    slack = 50_000_000  # the clocks are read in sequence, and the time of day may be adjusted
    assert before - slack <= trace["baseTimeNanoseconds"] + int(op["ts"] * 1000) <= after + slack
    assert trace["baseTimeNanoseconds"] % 7_889_238_000_000_000 == 0, "the same base for all ranks, as in torch"
    assert float(op["ts"]) * 1000 < 2**53, "the time is exact in a double"


# Native ops -----------------------------------------------------------------------------------------------------------


def test_native_ops_have_the_names_of_types_of_torch() -> None:
    names = {"float64": "double", "float32": "float", "float16": "c10::Half", "bfloat16": "c10::BFloat16"}
    names |= {"int64": "long int", "int32": "int", "int8": "signed char", "uint8": "unsigned char", "bool": "bool"}
    tensors = [fs.ones((2,), dtype=dtype) for dtype in names]
    with fs.profile() as prof:
        for tensor in tensors:
            tensor.to("float32" if tensor.dtype != "float32" else "float64")
    casts = slices(write_and_parse(prof._core), "cpu_op")
    assert [event["args"]["Input type"] for event in casts] == [[name] for name in names.values()]


def test_native_ops_from_end_to_end(tmp_path: Path) -> None:
    x, weight = fs.ones((8, 4)), fs.ones((4, 16), dtype="bfloat16")
    before = fs.memory_allocated("cpu")
    with fs.profile(profile_memory=True) as prof, fs.record_function('the "range"\n'):
        for _ in range(3):
            fs.add(x, x)
        fs.mul_(x.T, 2)
        weight.to("float32")
    chrome_trace.export(prof._core, tmp_path / "trace.json")
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


def test_each_thread_has_a_row() -> None:
    with fs.profile() as prof:
        threads = [threading.Thread(target=lambda: [fs.ones((8,)) for _ in range(50)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = write_and_parse(prof._core)
    assert Counter(Counter(op["tid"] for op in slices(trace, "cpu_op")).values()) == {50: len(threads)}
    named = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert named == {op["tid"]: f"thread {op['tid']}" for op in slices(trace, "cpu_op")}


# Files ----------------------------------------------------------------------------------------------------------------


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_path_that_ends_in_gz_is_compressed(core: _core.Store, tmp_path: Path) -> None:
    chrome_trace.export(core, tmp_path / "a.json")
    chrome_trace.export(core, str(tmp_path / "b.json.gz"))
    plain, packed = (tmp_path / "a.json").read_bytes(), (tmp_path / "b.json.gz").read_bytes()
    assert parse_checked(gzip.decompress(packed))["traceName"] == str(tmp_path / "b.json.gz")
    assert len(packed) < len(plain) / 4 and names_in(tmp_path) == ["a.json", "b.json.gz"]
    assert re.fullmatch("[0-9A-F]{32}", parse_checked(plain)["trace_id"])
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~mask


def test_a_failure_keeps_the_existing_file(core: _core.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.json"
    target.write_text("before")

    class Full:
        def write_trace(self, write: Any, version: str, members: str, peaks: Any = None) -> int:
            write(b"{")
            raise OSError("no space left")

        event_count = 1

    for name in ("a.json", "a.json.gz"):
        with pytest.raises(OSError, match="no space left"):
            chrome_trace.export(Full(), tmp_path / name)  # type: ignore[arg-type]
    assert target.read_text() == "before" and names_in(tmp_path) == ["a.json"]


def test_exceptions_of_a_writer_propagate(core: _core.Store) -> None:
    class Stop(BaseException):
        pass

    def stop(piece: bytes) -> None:
        raise Stop(len(piece))

    with pytest.raises(Stop):
        core.write_trace(stop, "1")
    with pytest.raises(TypeError, match="not callable"):
        core.write_trace(None, "1")  # type: ignore[arg-type]
    assert write_and_parse(core), "the trace can be written again"


def test_other_threads_run_while_a_trace_is_written(core: _core.Store) -> None:
    for i in range(100_000):
        _core._append(core, "op", "x::a", start=300_000 + i * 10, duration=5)
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(len(pieces))
            time.sleep(0.0001)

    pieces: list[bytes] = []
    thread = threading.Thread(target=watch)
    thread.start()
    core.write_trace(pieces.append, "1")
    done.set()
    thread.join()
    assert max(map(len, pieces)) <= 1 << 19 and len(pieces) > 20
    assert len({at for at in seen if 0 < at < len(pieces)}) > 1


def test_invalid_paths_are_errors(core: _core.Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no folder {tmp_path}/none"):
        chrome_trace.export(core, tmp_path / "none" / "a.json")
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        chrome_trace.export(core, tmp_path)
    assert names_in(tmp_path) == []


def test_links_and_pipes_are_not_replaced(core: _core.Store, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "a.json")
    chrome_trace.export(core, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink() and parse_checked((tmp_path / "there" / "a.json").read_bytes())
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    chrome_trace.export(core, tmp_path / "pipe")
    reader.join()
    assert (tmp_path / "pipe").is_fifo() and parse_checked(read[0])


def test_a_running_profile_has_no_trace_yet(tmp_path: Path) -> None:
    with fs.profile() as prof, pytest.raises(RuntimeError, match="still running; stop it before asking for its trace"):
        chrome_trace.export(prof._core, tmp_path / "a.json")
    assert names_in(tmp_path) == []


def test_events_without_a_time_are_reported(core: _core.Store, tmp_path: Path) -> None:
    _core._append(core, "kernel", "never ran", device=0)
    with pytest.warns(RuntimeWarning, match=r"1 events have no time and are not in a\.json"):
        chrome_trace.export(core, tmp_path / "a.json")
    trace = parse_checked((tmp_path / "a.json").read_bytes())
    assert trace["flopscope"]["without a time"] == 1 and len(slices(trace, "kernel")) == 2


def test_the_rank_of_a_job_is_written(core: _core.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (name for names in RANK_VARIABLES for name in names):
        monkeypatch.delenv(name, raising=False)
    chrome_trace.export(core, tmp_path / "a.json")
    assert "distributedInfo" not in parse_checked((tmp_path / "a.json").read_bytes())
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    chrome_trace.export(core, tmp_path / "a.json")
    assert parse_checked((tmp_path / "a.json").read_bytes())["distributedInfo"] == {"rank": 3, "world_size": 8}


class Exported:
    """A stand-in for a profile, which records the paths of exports."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def export_chrome_trace(self, path: str, **options: Any) -> None:
        self.paths.append(path)


def test_a_handler_names_files_as_torch_does(tmp_path: Path) -> None:
    prof, folder = Exported(), tmp_path / "new" / "folder"
    before = time.time_ns()
    chrome_trace.trace_handler(folder, "me")(prof)
    chrome_trace.trace_handler(str(folder), use_gzip=True)(prof)
    names = [re.fullmatch(r"(.+)\.(\d+)\.pt\.trace\.json(\.gz)?", Path(path).name) for path in prof.paths]
    assert (
        names[0] and names[1] and folder.is_dir() and {str(Path(path).parent) for path in prof.paths} == {str(folder)}
    )
    assert (names[0][1], names[0][3]) == ("me", None) and before <= int(names[0][2]) <= time.time_ns()
    assert names[1][1].endswith(f"_{os.getpid()}") and names[1][3] == ".gz"


def test_file_names_equal_those_of_torch(tmp_path: Path) -> None:
    profiler = pytest.importorskip("torch.profiler")
    theirs, ours = Exported(), Exported()
    profiler.tensorboard_trace_handler(str(tmp_path))(theirs)
    chrome_trace.trace_handler(str(tmp_path))(ours)
    digits = re.compile(r"\d{15,}")
    assert digits.sub("N", theirs.paths[0]) == digits.sub("N", ours.paths[0])


def test_numbers_are_finite(core: _core.Store) -> None:
    def numbers(value: Any) -> Any:
        if isinstance(value, dict):
            value = list(value.values())
        return [n for part in value for n in numbers(part)] if isinstance(value, list) else [value]

    assert all(math.isfinite(n) for n in numbers(write_and_parse(core)) if isinstance(n, (int, float, Decimal)))
