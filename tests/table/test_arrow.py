"""Arrow export: its structs, read through ctypes, and its tables, read by pyarrow, polars and duckdb."""

from __future__ import annotations

import ctypes
import gc
import json
import math
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT
from helpers.tables import make_table

import flopscope as fs
from flopscope import _core
from flopscope.results.table import COLUMNS, RANK, STACK, EventTable

DEFINITIONS = ROOT / "csrc" / "table" / "columns.def"
ROWS: list[dict[str, Any]] = [
    {"key": "aten::mm", "count": 3, "cpu_time_total": 1.5, "flops": 64.0, "input_shapes": [[2, 3], [3, 4]]},
    {"key": "größer", "is_user_annotation": True, "self_cpu_memory_usage": -8, "input_shapes": []},
    {"key": "aten::cat", "input_shapes": [[[2], [3]], []], "input_dtypes": ["float32", ""], "cpu_time_total": 0.25},
]


class Schema(ctypes.Structure):
    """Arrow's ArrowSchema."""


class Array(ctypes.Structure):
    """Arrow's ArrowArray."""


class Stream(ctypes.Structure):
    """Arrow's ArrowArrayStream."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))),
    ("private_data", ctypes.c_void_p),
]


def stream_of(capsule: Any) -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Stream.from_address(get(capsule, b"arrow_array_stream"))


def batch_of(stream: Any) -> Any:
    batch = Array()
    assert stream.get_next(stream, batch) == 0
    return batch


def bits(pointer: int, count: int) -> list[int]:
    packed = np.ctypeslib.as_array((ctypes.c_uint8 * ((count + 7) // 8)).from_address(pointer))
    return np.unpackbits(packed, bitorder="little")[:count].tolist()


# The structs ----------------------------------------------------------------------------------------------------------


def test_numbers_share_the_arrays_memory_and_nan_is_null() -> None:
    times = np.array([1.0, math.nan, 3.0, math.inf])
    counts = np.arange(4)
    capsule = _core.arrow_stream(4, [("time", "float64", times), ("count", "int64", counts)])
    batch = batch_of(stream_of(capsule))
    time, count = (batch.children[i].contents for i in range(2))
    assert (time.buffers[1], count.buffers[1]) == (times.ctypes.data, counts.ctypes.data)
    assert time.null_count == 1 and bits(time.buffers[0], 4) == [1, 0, 1, 1]
    assert count.null_count == 0 and count.buffers[0] is None
    batch.release(batch)


def test_the_schema_names_and_types_the_columns() -> None:
    table = make_table(*ROWS, stacks=[[], ["a.py(1): f"], []], ranks=[0, 1, 1])
    stream, schema = stream_of(capsule := table.__arrow_c_stream__()), Schema()
    formats = {"int64": b"l", "float64": b"g", "bool": b"b", "text": b"U", "texts": b"+L"}
    assert stream.get_schema(stream, schema) == 0 and schema.format == b"+s"
    fields = [schema.children[i].contents for i in range(schema.n_children)]
    expected = [RANK, *COLUMNS, STACK]
    assert [f.name.decode() for f in fields] == [c.name for c in expected]
    assert [f.format for f in fields] == [formats[c.type] for c in expected]
    nullable = {c.name for c in COLUMNS if c.type in ("float64", "text")}
    assert {f.name.decode() for f in fields if f.flags & 2} == nullable
    schema.release(schema)
    del capsule


def test_columns_have_the_types_of_the_core() -> None:
    text = DEFINITIONS.read_text(encoding="utf-8")
    for c_type, name, unit in re.findall(r"FS_COLUMN\((\w+), (\w+), (\w+),", text):
        integral = c_type == "int64_t" and unit != "ns"  # ns become µs
        assert next(c.type for c in COLUMNS if c.name == name) == ("int64" if integral else "float64"), name


def test_a_batch_outlives_its_table_and_frees_its_memory() -> None:
    class Watched(np.ndarray[Any, Any]):
        pass

    values = np.array([5.0, 6.0]).view(Watched)
    gone = weakref.ref(values)
    capsule = _core.arrow_stream(2, [("x", "float64", values), ("y", "text", ["a", "b"])])
    batch = batch_of(stream_of(capsule))
    del values, capsule
    gc.collect()
    address = batch.children[0].contents.buffers[1]
    assert gone() is not None and list((ctypes.c_double * 2).from_address(address)) == [5.0, 6.0]
    batch.release(batch)
    assert not batch.release
    gc.collect()
    assert gone() is None


def test_an_unread_stream_frees_its_memory() -> None:
    values = np.array([5.0, 6.0]).view(type("Watched", (np.ndarray,), {}))
    gone = weakref.ref(values)
    capsule = _core.arrow_stream(2, [("x", "float64", values)])
    del values, capsule
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("columns", "problem", "message"),
    [
        ([("x", "float64", [1.0, "no"])], TypeError, "column x: expected a number or None, got 'no'"),
        ([("x", "int64", [1, None])], TypeError, "column x: expected an integer, got None"),
        ([("x", "int64", [1, 2**70])], OverflowError, "too (big|large)"),
        ([("x", "int64", [1])], ValueError, "column x has 1 values for 2 rows"),
        ([("x", "float64", np.arange(2))], TypeError, "column x: expected doubles"),
        ([("x", "int64", np.arange(3))], ValueError, "column x has 3 values for 2 rows"),
        ([("x", "text", ["a", 1])], TypeError, "column x: expected a string, got 1"),
        ([("x", "texts", [["a"], "b"])], TypeError, "column x: expected a list of strings, got 'b'"),
        ([("x", "texts", [["a"], [1]])], TypeError, "column x: expected a string, got 1"),
        ([("x", "float32", [1, 2])], ValueError, 'column x: unknown type "float32"'),
        ([("good", "float64", np.zeros(2)), ("x", "bool", "ab")], TypeError, "column x: expected a list"),
        ([3], TypeError, r"a column must be a tuple \(name, type, values\), not 3"),
    ],
)
def test_invalid_columns_are_reported(columns: Any, problem: type[Exception], message: str) -> None:
    with pytest.raises(problem, match=message):
        _core.arrow_stream(2, columns)


# Readers --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live() -> EventTable:
    x = fs.ones((16, 16))
    with fs.profile(record_shapes=True) as prof, fs.record_function("a range"):
        fs.add(x, x)
        fs.matmul(x, x)
    return prof.key_averages(group_by_input_shape=True, peaks="none")


def expected(table: EventTable) -> list[dict[str, Any]]:
    """Return the rows as JSON values, with lists as lists of strings and infinities unchanged."""
    rows = table.to_dicts()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, list):
                row[name] = [item if isinstance(item, str) else json.dumps(item) for item in value]
    return rows


def test_pyarrow_reads_the_rows_of_to_dicts(live: EventTable) -> None:
    pytest.importorskip("pyarrow")
    for table in (live, make_table(*ROWS), make_table(*ROWS)[:0], make_table(*ROWS, ranks=[0, 1, 0])):
        arrow = table.to_arrow()
        arrow.validate(full=True)
        assert arrow.to_pylist() == expected(table)


def test_a_parquet_file_contains_the_same_rows(live: EventTable, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    live.to_parquet(tmp_path / "table.parquet")
    assert parquet.read_table(tmp_path / "table.parquet").to_pylist() == expected(live)


def test_polars_reads_a_table(live: EventTable) -> None:
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(live).to_dicts() == expected(live)


def test_duckdb_reads_a_table(live: EventTable) -> None:
    duckdb = pytest.importorskip("duckdb")
    recorded = live  # noqa: F841 - duckdb finds it by its name
    rows = duckdb.sql("select key, count, flops, input_shapes[1] from recorded").fetchall()
    assert rows == [(r["key"], r["count"], r["flops"], next(iter(r["input_shapes"]), None)) for r in expected(live)]


def test_a_missing_pyarrow_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow; polars"):
        make_table(*ROWS).to_arrow()
    with pytest.raises(ImportError, match="pip install pyarrow"):
        make_table(*ROWS).to_parquet(tmp_path / "t.parquet")


def test_json_files_contain_device_and_rows(tmp_path: Path) -> None:
    peaks = {"cuda:0": {"source": "datasheet", "name": "NVIDIA H200"}}
    table = make_table({"key": "k", "device_type": "cuda", "self_device_time_total": 3.0}, peaks=peaks)
    table.to_json(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["device"] == {"kind": "cuda", "name": "NVIDIA H200"} and content["peaks"] == peaks
    assert [*content["rows"][0].values()][1:] == [*table.to_dicts()[0].values()] and content["rows"][0]["flops"] is None
