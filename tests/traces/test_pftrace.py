"""Perfetto's traces: the same events as from a Chrome trace of the same program."""

import gzip
import json
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from helpers import TESTS
from helpers.hand_traces import text_of
from helpers.protobufs import field, message
from helpers.recordings import PFTRACE

import flopscope as fs

RECORDED = TESTS / "data" / "pftrace"
TRACES = ("square", "tracking_flops", "tutorial_naive")


BEGIN, END = 1, 2
Interned = dict[str, int]


def annotation(name: str, value: Any, names: Interned | None = None) -> bytes:
    """Encode a DebugAnnotation; names: those that are interned, with their numbers."""
    named = field(10, name) if names is None else field(1, names.setdefault(name, len(names) + 1))
    return named + _value(value, names)


def _value(value: Any, names: Interned | None) -> bytes:
    if isinstance(value, dict):
        return b"".join(field(11, annotation(key, one, names)) for key, one in value.items())
    if isinstance(value, list):
        return b"".join(field(12, _value(one, names)) for one in value)
    number = {bool: 2, int: 4, float: 5, str: 6}[type(value)]
    return field(number, int(value) if number == 2 else value)


def track(uuid: int, process: int, thread: int) -> bytes:
    """Encode the packet of a track's descriptor."""
    return field(1, message((60, message((1, uuid), (4, message((1, process), (2, thread)))))))


def sdk_trace(events: list[dict[str, Any]], packed: bool) -> bytes:
    """Encode nested slices as a program does while it runs: a sequence for each thread. packed: compressed packets."""
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    descriptors = b"".join(track(100 + number, *place) for number, place in enumerate(threads, 1))
    packets = [packet for number, place in enumerate(threads, 1) for packet in _sequence(number, threads[place])]
    half = len(packets) // 2
    parts = (b"".join(packets[:half]), b"".join(packets[half:]))
    return descriptors + b"".join(field(1, field(50, zlib.compress(part))) if packed else part for part in parts)


def _sequence(number: int, events: list[dict[str, Any]]) -> list[bytes]:
    """Return the packets of a thread: the clock counts from the packet before, and names are listed where they are
    first used."""
    last = round(1000 * events[0]["ts"]) // 1000
    clock = message((1, 64), (2, last), (3, 1), (4, 1))
    defaults = message((58, 64), (11, message((11, 100 + number))))
    packets = [message((10, number), (41, 1), (6, message((1, clock))), (59, defaults))]
    kinds, names, keys = tables = ({}, {}, {})  # type: tuple[Interned, Interned, Interned]
    ends: list[int] = []

    def add(time: int, *fields: tuple[int, Any]) -> None:
        nonlocal last
        packets.append(message((8, time - last), (10, number), *fields))
        last = time

    for event in events:
        start = round(1000 * event["ts"])
        while ends and ends[-1] <= start:
            add(ends.pop(), (11, message((9, END))))
        known = [len(table) for table in tables]
        name = names.setdefault(event["name"], len(names) + 1)
        kind = kinds.setdefault(event["cat"], len(kinds) + 1)
        args = [(4, annotation(key, value, keys)) for key, value in event.get("args", {}).items()]
        new = [[one for one in table.items() if one[1] > least] for table, least in zip(tables, known, strict=True)]
        listed = [(which, message((1, one), (2, text))) for which, rows in enumerate(new, 1) for text, one in rows]
        add(start, (12, message(*listed) if listed else None), (11, message((9, BEGIN), (10, name), (3, kind), *args)))
        ends.append(start + round(1000 * event["dur"]))
    while ends:
        add(ends.pop(), (11, message((9, END))))
    return [field(1, packet) for packet in packets]


def _chrome(name: str) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress((TESTS / "data" / "traces" / f"{name}.json.gz").read_bytes()))
    events: list[dict[str, Any]] = trace["traceEvents"] if isinstance(trace, dict) else trace
    return [event for event in events if event.get("ph") == "X" and isinstance(event.get("tid"), int)]


def _rows(source: Any) -> str:
    rows = fs.load_trace(source).key_averages(group_by_input_shape=True, peaks="none").to_pandas()
    return rows.round(6).to_csv()  # a Chrome trace has times since its base, of which sums round otherwise


def _nested(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events that overlap no other of their thread without being nested in it."""
    kept = []
    ends: dict[tuple[int, int], list[float]] = {}
    for event in sorted(events, key=lambda one: (round(1000 * one["ts"]), -round(1000 * one["dur"]))):
        start, stack = round(1000 * event["ts"]), ends.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or start + round(1000 * event["dur"]) <= stack[-1]:
            stack.append(start + round(1000 * event["dur"]))
            kept.append(event)
    return kept


@pytest.mark.parametrize("name", TRACES)
def test_rows_of_the_sdks_form_are_those_of_the_chrome_trace(name: str) -> None:
    events = _nested(_chrome(name))
    expected = _rows(text_of(*events, schemaVersion=1))
    assert _rows(sdk_trace(events, packed=False)) == _rows(sdk_trace(events, packed=True)) == expected


def test_a_recording_of_torch_has_the_rows_of_its_chrome_trace() -> None:
    packed = PFTRACE / "mlp_cpu.pftrace.gz"
    assert _rows(packed) == _rows(gzip.decompress(packed.read_bytes())) == _rows(PFTRACE / "mlp_cpu.json.gz")


def test_the_work_of_a_gpu_has_the_rows_of_its_chrome_trace() -> None:
    """torch's exporter writes kernels as render stages; memory, CUPTI's overhead and registers are not in its files."""
    kept = [one for one in _chrome("square") if one["cat"] not in ("overhead", "Trace")]
    for one in kept:
        one.get("args", {}).pop("registers per thread", None)
    chrome = fs.load_trace(text_of(*kept, schemaVersion=1))
    stages = fs.load_trace(RECORDED / "square.pftrace")
    assert _rows(RECORDED / "square.pftrace") == _rows(text_of(*kept, schemaVersion=1))
    for one in (chrome, stages):
        (kernel,) = (event for event in one.events() if event.kind == "kernel")
        assert kernel.launcher is not None and kernel.launcher.name == "aten::pow"
        (row,) = (row for row in one.key_averages(group_by="stream", peaks="none") if row.key == kernel.name)
        assert (kernel.device_index, kernel.correlation, row.stream) == (0, 193, "cuda:0 stream 7")


def _stage(*fields: tuple[int, Any]) -> bytes:
    return field(1, message((8, 1000), (10, 1), (53, message(*fields))))


@pytest.mark.parametrize(
    ("stage", "kind"),
    [("Kernel", "kernel"), ("Memcpy", "memcpy"), ("Memset", "memset"), ("Annotation", "range"), ("HostNode", None)],
)
@pytest.mark.filterwarnings("ignore:.*1 of an unknown category, such as .HostNode.")
def test_stages_have_the_kind_of_their_specification(stage: str, kind: str | None) -> None:
    names = field(1, message((10, 1), (12, message((24, message((1, 4), (2, stage)))))))
    extra = [(6, message((1, "stream id"), (2, "9"))), (6, message((1, "correlation"), (2, "12")))]
    work = _stage((1, 1), (2, 500), (11, 1), (13, 100), (14, 4), (17, "work"), *extra)
    content = track(7, 12, 13) + names + work + _slice(3000, 4000, "train")
    events = [event for event in fs.load_trace(content).events() if event.name == "work"]
    assert [(event.kind, event.correlation) for event in events] == ([] if kind is None else [(kind, 12)])


@pytest.mark.filterwarnings("ignore:.*1 of an unknown category, such as .stage.")
def test_stages_without_a_specification_are_kernels_if_they_were_launched() -> None:
    launch = (21, message((1, message((1, 8))), (2, message((1, 64), (2, 2)))))
    content = track(7, 12, 13) + _stage((1, 1), (2, 500), (13, 5), (17, "gemm"), launch) + _stage((1, 2), (2, 9))
    (event,) = fs.load_trace(content).events()
    assert (event.name, event.kind, event.self_device_time_total) == ("gemm", "kernel", 0.5)


def _slice(begin: int, end: int, name: str, *fields: tuple[int, Any]) -> bytes:
    begun = message((9, BEGIN), (11, 7), (23, name), *fields)
    return b"".join(
        field(1, message((8, time), (10, 1), (11, event)))
        for time, event in ((begin, begun), (end, message((9, END), (11, 7))))
    )


def test_categories_follow_from_the_annotations() -> None:
    grid = [(4, annotation(key, value)) for key, value in {"grid": [8, 1, 1], "block": [64, 1, 1]}.items()]
    place = [(4, annotation(key, value)) for key, value in {"device": 1, "stream": 9, "correlation": 4}.items()]
    call = [(4, annotation(key, value)) for key, value in {"cbid": 211, "correlation": 4}.items()]
    content = track(7, 12, 13) + _slice(1000, 2000, "gemm", *grid, *place)
    content += _slice(3000, 4000, "Memcpy HtoD (Pageable -> Device)", *place)
    content += _slice(5000, 6000, "cudaLaunchKernel", *call) + _slice(7000, 8000, "train")
    events = fs.load_trace(content).events()
    assert {event.name: event.kind for event in events} == {
        "gemm": "kernel", "Memcpy HtoD (Pageable -> Device)": "memcpy", "cudaLaunchKernel": "runtime", "train": "range",
    }  # fmt: skip
    assert {event.device_index for event in events if event.kind == "kernel"} == {1}


@pytest.mark.parametrize("agent", [2, "Agent-2"])
def test_names_of_rocprofv3_are_those_of_torch(agent: int | str) -> None:
    kernel = [(4, annotation(key, value)) for key, value in {"agent": agent, "queue": 1, "corr_id": 4}.items()]
    content = track(7, 12, 13)
    content += _slice(1000, 2000, "gemm", (22, "kernel_dispatch"), *kernel)
    content += _slice(500, 600, "hipLaunchKernel", (22, "hip_runtime_api"), (4, annotation("corr_id", 4)))
    trace = fs.load_trace(content)
    assert trace.hints.options["later"].startswith("rocprofv3 ") and "torch" not in trace.hints.kernels
    kinds = {event.name: (event.kind, event.correlation, event.device_index) for event in trace.events()}
    assert kinds == {"gemm": ("kernel", 4, 2), "hipLaunchKernel": ("runtime", 4, -1)}


def test_slices_that_end_without_a_beginning_are_left_out() -> None:
    content = track(7, 12, 13) + field(1, message((8, 5), (10, 1), (11, message((9, END), (11, 7)))))
    content += _slice(1000, 2000, "work", (22, "cpu_op"))
    assert [event.name for event in fs.load_trace(content).events()] == ["work"]


@pytest.mark.parametrize("cut", [1, 5, 33, 0])
def test_a_damaged_file_is_an_error_with_the_byte(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "run.pftrace"
    packed = track(7, 12, 13) + field(1, field(50, b"\x78\x9cnothing"))
    path.write_bytes(gzip.decompress((PFTRACE / "mlp_cpu.pftrace.gz").read_bytes())[:-cut] if cut else packed)
    message = r"run\.pftrace: byte \d+: " if cut else "a compressed packet cannot be expanded"
    with pytest.raises(ValueError, match=message):
        fs.load_trace(path)


def test_deep_annotations_end() -> None:
    value = field(4, 5)
    for _ in range(2000):
        value = field(12, value)
    content = track(7, 12, 13) + _slice(1000, 2000, "work", (22, "cpu_op"), (4, field(10, "deep") + value))
    assert len(fs.load_trace(content)) == 1
