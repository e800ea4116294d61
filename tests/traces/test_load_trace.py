"""Recorded traces: torch's own rows for the same profile, old and messy files, and files that are not traces."""

import ast
import csv
import gzip
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA
from helpers.chrome_events import stored
from helpers.hand_traces import call, event, kernel, memory, op, rewritten, text_of
from helpers.tables import ANSWERS

import flopscope as fs
from flopscope import _core

TRACES = sorted((DATA / "traces").glob("*.json.gz"))
TIMES = ("self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total")
MEMORY = ("self_cpu_memory_usage", "cpu_memory_usage", "self_device_memory_usage", "device_memory_usage")
# torch adds the device time of an op to the profiling overhead inside it, which doubles the op's total.
OVERHEAD = "Activity Buffer Request"


def name_of(path: Path) -> str:
    return path.name[: -len(".json.gz")]


def rows_of(trace: fs.Trace, **options: Any) -> dict[str, fs.EventRow]:
    table = trace.key_averages(peaks="none", **options)
    rows = {row.key: row for row in table}
    assert len(rows) == len(table)
    return rows


# torch's results ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=TRACES, ids=name_of)
def recorded(request: pytest.FixtureRequest) -> tuple[Path, fs.Trace]:
    return request.param, fs.load_trace(request.param)


def expected_rows(path: Path, by_shape: bool) -> dict[tuple[str, str, bool, str], dict[str, str]]:
    rows = {}
    name = name_of(path) + (".rows_by_shape.csv" if by_shape else ".rows.csv")
    for row in csv.DictReader(ANSWERS[name].splitlines()):
        device = "cpu" if row["device_type"].endswith("CPU") else "cuda"
        shapes = str(ast.literal_eval(row["input_shapes"])) if by_shape and row["input_shapes"] else ""
        rows[row["key"], device, row["is_user_annotation"] == "True", shapes] = row
    return rows


@pytest.mark.parametrize("by_shape", [False, True], ids=["by name", "by shape"])
def test_rows_match_those_of_torch(recorded: tuple[Path, fs.Trace], by_shape: bool) -> None:
    path, trace = recorded
    expected, result = expected_rows(path, by_shape), {}
    for row in trace.key_averages(group_by_input_shape=by_shape, peaks="none"):
        key = (row.key, row.device_type, bool(row.is_user_annotation), str(row.input_shapes) if by_shape else "")
        assert key not in result
        result[key] = row
    assert set(result) == set(expected)
    doubled = sum(float(row["self_device_time_total"]) for key, row in expected.items() if key[0] == OVERHEAD)
    for key, theirs in expected.items():
        ours = result[key]
        assert ours.count == int(theirs["count"]), key
        assert [int(getattr(ours, name)) for name in MEMORY] == [int(theirs[name]) for name in MEMORY], key
        for name in TIMES:
            value, tolerance = float(theirs[name]), 0.005 * ours.count
            if key[0] == OVERHEAD and "device" in name:
                continue
            minimum = value - (doubled if name == "device_time_total" else 0)
            assert minimum - tolerance <= getattr(ours, name) <= value + tolerance, (key, name)


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_text_matches_that_of_torch_line_by_line(recorded: tuple[Path, fs.Trace]) -> None:
    path, trace = recorded
    theirs = lines_of(ANSWERS[f"{name_of(path)}.table.txt"])
    ours = lines_of(trace.key_averages().table(row_limit=-1, roofline=False))
    assert len(ours) == len(theirs)
    if any("FLOPs" in line for line in theirs[:3]):  # torch's own column, of seven ops, is the last
        width = theirs[1].rindex("Total")
        theirs = [line[: width - 2].rstrip() if len(line) > width - 2 else line for line in theirs]
        ours = [line[: width - 2].rstrip() if len(line) > width - 2 else line for line in ours]
    other = [(a, b) for a, b in zip(theirs, ours, strict=True) if a != b and OVERHEAD not in a]
    doubles = any(OVERHEAD in line for line in theirs)
    # The last digit may be rounded differently.
    assert len(other) <= (len(theirs) if doubles else 2 + len(theirs) // 50), other[:3]


def test_paths_bytes_and_file_objects_read_alike(tmp_path: Path) -> None:
    path = TRACES[-1]
    raw = gzip.decompress(path.read_bytes())
    plain = tmp_path / "plain.json"
    plain.write_bytes(raw)
    expected = fs.load_trace(path).key_averages(peaks="none").to_dicts()
    for source in (str(plain), plain, raw, bytearray(raw), memoryview(raw), path.read_bytes(), io.BytesIO(raw)):
        assert fs.load_trace(source).key_averages(peaks="none").to_dicts() == expected
    for name in (plain, path):
        with name.open("rb") as file:
            assert fs.load_trace(file).key_averages(peaks="none").to_dicts() == expected


def test_a_pipe_is_read_incrementally(tmp_path: Path) -> None:
    raw = gzip.decompress(TRACES[0].read_bytes())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(raw,))
    writer.start()
    trace = fs.load_trace(pipe)
    writer.join()
    assert len(trace) == len(fs.load_trace(raw))


# Rules ----------------------------------------------------------------------------------------------------------------


def test_device_work_belongs_to_the_op_with_its_external_id() -> None:
    text = text_of(
        op("outer", 0, 100, **{"External id": 1}),
        op("inner", 10, 20, **{"External id": 2}),
        call("launch", 12, 5, tid=9, **{"External id": 2, "correlation": 5}),
        kernel("k", 50, 30, **{"External id": 2, "correlation": 5}),
        kernel("unowned", 90, 7),
    )
    rows = rows_of(fs.load_trace(text))
    assert rows["inner"].self_device_time_total == 30 and rows["outer"].device_time_total == 30
    assert rows["outer"].self_device_time_total == 0
    assert rows["inner"].self_cpu_time_total == 15  # the call is moved to the op's thread, inside the op
    assert rows["unowned"].self_device_time_total == 7


def test_an_only_child_of_the_same_name_is_merged_with_its_parent() -> None:
    text = text_of(
        op("sum", 0, 100, **{"External id": 1}), op("sum", 10, 80, **{"External id": 2}),
        op("sum", 20, 60, **{"External id": 3}), op("fill", 30, 10, **{"External id": 4}), op("cat", 200, 50),
        op("cat", 210, 10), op("cat", 230, 10), kernel("k", 300, 8, **{"External id": 3}),
    )  # fmt: skip
    rows = rows_of(fs.load_trace(text))
    assert rows["sum"].count == 1 and rows["sum"].self_cpu_time_total == 90 and rows["sum"].self_device_time_total == 8
    assert rows["cat"].count == 3


def test_an_event_has_the_memory_of_all_threads_while_it_ran() -> None:
    text = text_of(
        op("outer", 0, 100),
        op("first", 10, 20),
        op("second", 30, 20),
        op("elsewhere", 5, 30, tid=2),
        memory(12, 1000),
        memory(30, 16),  # at the end of one op and the beginning of the next
        memory(33, 64, tid=2),
        memory(40, -8, device_type=0),
        memory(500, 7),
        profile_memory=1,
    )
    rows = rows_of(fs.load_trace(text))
    assert [rows[k].device_memory_usage for k in ("outer", "first", "second", "elsewhere")] == [1080, 1016, 80, 1080]
    assert rows["outer"].self_device_memory_usage == 1080 - 1016 - 80
    assert rows["outer"].cpu_memory_usage == rows["second"].self_cpu_memory_usage == -8
    assert rows["[memory]"].self_device_memory_usage == 7 and rows["[memory]"].count == 1


def test_annotations_of_collectives_have_no_children() -> None:
    around = event("user_annotation", "nccl:all_reduce", 0, 100)
    rows = rows_of(fs.load_trace(text_of(around, op("aten::add", 10, 20), op("aten::add", 90, 30))))
    assert rows["nccl:all_reduce"].self_cpu_time_total == 0 and rows["nccl:all_reduce"].cpu_time_total == 100
    assert rows["aten::add"].self_cpu_time_total == 50


def test_internal_queries_of_torch_are_left_out() -> None:
    internal = [op("aten::is_leaf", 1, 2), op("profiler::_record_function_exit", 4, 2)]
    assert list(rows_of(fs.load_trace(text_of(op("aten::add", 0, 10), *internal)))) == ["aten::add"]


def test_old_traces_with_whole_microseconds_are_read() -> None:
    text = text_of(
        event("Operator", "aten::add", 10, 20, External_id="7"),
        event("Runtime", "cudaLaunchKernel", 12, 3, external_id=7, correlation=9),
        event("Kernel", "k", 40, 5, 7, 0, external_id=7, correlation=9, device=0, stream=7),
        event("Memcpy", "Memcpy HtoD", 50, 6, 7, 0, device=0, stream=7, bytes=4096),
        {"ph": "s", "id": 9, "cat": "async_cpu_to_gpu", "name": "launch", "pid": 1, "tid": 1, "ts": 12},
    )
    rows = rows_of(fs.load_trace(text))
    assert {k: r.count for k, r in rows.items()} == {"aten::add": 1, "cudaLaunchKernel": 1, "k": 1, "Memcpy HtoD": 1}
    assert rows["k"].self_device_time_total == 5


def test_the_metadata_is_available(tmp_path: Path) -> None:
    text = text_of(
        kernel("k", 1, 2),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9}],
        distributedInfo={"rank": 3, "world_size": 8},
        note="€",
    )
    trace = fs.load_trace(text)
    assert trace.rank == 3 and trace.devices == {0: "NVIDIA H200"} and trace.metadata["note"] == "€"
    assert trace.key_averages(peaks="datasheet").peaks["cuda:0"]["source"] == "datasheet"
    assert fs.load_trace(text_of(kernel("k", 1, 2))).key_averages().peaks == {}


# What flopscope writes ------------------------------------------------------------------------------------------------


def test_an_exported_trace_reads_the_same(recorded: tuple[Path, fs.Trace], tmp_path: Path) -> None:
    _, trace = recorded
    again = rewritten(trace, tmp_path)
    assert stored(again._core) == stored(trace._core)
    assert again.metadata["baseTimeNanoseconds"] == trace.metadata["baseTimeNanoseconds"]
    names = ("key", "device_type", "is_user_annotation", "count", "input_shapes", "input_dtypes", *MEMORY)
    for first, second in zip(
        trace.key_averages(group_by_input_shape=True, peaks="none"),
        again.key_averages(group_by_input_shape=True, peaks="none"),
        strict=True,
    ):
        assert [getattr(first, name) for name in names] == [getattr(second, name) for name in names]
        for name in TIMES:
            assert abs(getattr(first, name) - getattr(second, name)) <= 0.003 * first.count, (first.key, name)


# Messy files ----------------------------------------------------------------------------------------------------------


def test_messy_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "messy.json"
    path.write_bytes(
        b'[{"ph":"X","cat":"cpu_op","name":"aten::add \xff\\n","pid":1,"tid":1,"ts":1.5,"dur":2.25,"args":{"x":NaN,'
        b'"big":123456789012345678901234567890,"y":N/A}},\n{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":2,'
        b'"dur":1,"args":{"stream":7,"device":0,"correlation":1}},]'
    )
    rows = rows_of(fs.load_trace(path))
    assert rows["k"].self_device_time_total == 1 and rows["aten::add \ufffd\n"].cpu_time_total == 2.25


@pytest.mark.parametrize("cut", [0.3, 0.999])
def test_a_truncated_file_is_read_up_to_its_end_with_a_warning(tmp_path: Path, cut: float) -> None:
    raw = gzip.decompress(TRACES[-1].read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(raw[: int(cut * len(raw))])
    text = r"cut\.json: the file is truncated: it ends at byte [\d,]+.* events were read"
    with pytest.warns(UserWarning, match=text):
        trace = fs.load_trace(path)
    assert trace.report["truncated"] and len(trace) > 0
    with pytest.warns(UserWarning, match="truncated: the compressed file ends"):
        assert len(fs.load_trace(gzip.compress(raw)[:-3000])) > 0


def test_dropped_events_are_counted_and_reported() -> None:
    text = text_of(
        op("aten::add", 1, 2), {"ph": "X", "cat": "cpu_op", "name": "no time", "pid": 1, "tid": 1},
        event("somebody_elses", "what", 1, 2), kernel("far", 1, 2, device=4000),
    )  # fmt: skip
    omitted = '1 without a time, 1 of an unknown category, such as "somebody_elses", 1 of dev'
    with pytest.warns(UserWarning, match=omitted):
        trace = fs.load_trace(text)
    assert trace.dropped == 3 and list(rows_of(trace)) == ["aten::add"]


INVALID_TRACES = {
    b"": "byte 0: the text ends where a trace",
    b"{": "byte 1: the text ends",
    b"[1, 2": "byte 1: expected an event",
    b"hello": "byte 0: expected a trace, which begins with '{' or '\\[', found 'h'",
    b'{"a": 1}': 'no member "traceEvents"',
    b"null": "byte 0",
    b"\x1f\x8b\x08broken": "decompress|ends before",
    b'{"traceEvents": 7}': "byte 16: expected '\\['",
    b'{"traceEvents": [{"ph" "X"}]}': "byte 23: expected ':', found '\"'",
    b'{"traceEvents": [{"ph": "X"} {"ph": @}]}': "byte 36: expected a value, found '@'",
    b'{"traceEvents": []} more': "byte 20: expected the end of the file, found 'm'",
}


@pytest.mark.parametrize("text", INVALID_TRACES, ids=repr)
def test_invalid_traces_are_errors_with_file_byte_and_reason(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "no.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=rf"no\.json: .*{INVALID_TRACES[text]}"):
        fs.load_trace(path)


@pytest.mark.parametrize(
    ("source", "error", "message"), [(io.StringIO("[]"), TypeError, "binary"), (7, TypeError, "a trace must be a path")]
)
def test_sources_that_cannot_be_read_are_errors(source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fs.load_trace(source)


def test_an_endless_text_does_not_fill_the_memory() -> None:
    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.position = 0

        def read(self, size: int = -1) -> bytes:
            first = b'[{"name": "' if self.position == 0 else b""
            self.position += size
            return first + b"a" * size

    source = Endless()
    with pytest.raises(ValueError, match="byte 1: the element that begins here exceeds the limit of 64 MB"):
        fs.load_trace(source)  # type: ignore[arg-type]
    assert source.position < 200 << 20


def test_a_truncated_trace_is_refused_or_has_no_extra_events() -> None:
    raw = gzip.decompress(TRACES[0].read_bytes())
    complete = len(fs.load_trace(raw))
    for at in range(0, len(raw), 97):
        reader, core = _core.TraceReader(), _core.Store()
        try:
            reader.scan_bytes(raw[:at])
            reader.finish(core)
        except ValueError:
            continue
        assert core.event_count <= complete
