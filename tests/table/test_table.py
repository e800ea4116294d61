"""EventTable and EventRow: the names of torch.profiler, sequences of rows, sorting; columns of numbers of the core."""

import copy
import json
import math
import pickle
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT
from helpers.tables import make_table

from flopscope.results.columns import COLUMNS
from flopscope.results.table import EventTable
from flopscope.results.table_facts import Facts
from flopscope.support.core_facts import Numbers

DEFINITIONS = ROOT / "csrc" / "table" / "columns.def"
ROWS = [
    {"key": "flopscope::add", "count": 4, "self_cpu_time_total": 8.0, "cpu_time_total": 12.0, "flops": 1e6,
     "self_device_time_total": 1500.0, "device_time_total": 2000.0},
    {"key": "outer", "is_user_annotation": True, "self_cpu_time_total": 30.0, "cpu_time_total": 42.0},
    {"key": "flopscope::sin", "self_cpu_time_total": 9.0, "cpu_time_total": 9.0, "flops": 5.0},
]  # fmt: skip


def test_a_table_is_a_sequence_of_rows() -> None:
    table = make_table(*ROWS)
    assert len(table) == 3 and [row.key for row in table] == ["flopscope::add", "outer", "flopscope::sin"]
    assert table[-1].key == "flopscope::sin" and math.isnan(table[1].flops)
    empty = make_table()
    assert len(empty) == 0 and empty.table() == "" and empty.to_dicts() == [] and list(empty) == []
    coverage = {"bytes": 0.9, "flops": 0.8, "unmodelled": [("aten::x", 3.5)]}
    covered = make_table(*ROWS, coverage=coverage).coverage()
    assert covered == coverage and covered is not coverage
    rows = list(table)
    assert rows == list(table) and len({*table, *table}) == len(table)
    assert all(table.index(row) == i and row in table for i, row in enumerate(rows))
    assert rows[0] != rows[1] and rows[0] != make_table(*ROWS)[0] and rows[0] != 0


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda table: table[99], IndexError, "row 99 is out of range: the table has 3 rows"),
        (lambda table: table["flopscope::sin"], TypeError, "not by name 'flopscope::sin'"),
        (lambda table: table.sorted(None), ValueError, "cannot sort by None"),
        (lambda table: table.sorted("coutn"), ValueError, "cannot sort by 'coutn'; did you mean 'count'"),
        (
            lambda table: table.table(sort_by="beauty"),
            ValueError,
            "cannot sort by 'beauty'; choose a header: Name, .*% roof, .*to_pandas",
        ),
        (lambda table: table.of_kind("opp"), ValueError, "kind must be one of op, kernel, range, all; got 'opp'"),
    ],
)
def test_wrong_rows_columns_and_kinds_are_errors_that_name_them(
    ask: Callable[[EventTable], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(make_table(*ROWS))


def test_a_slice_is_a_table_with_the_same_totals() -> None:
    table = make_table(*ROWS, top_level=[False, True, True])
    part = table[1:]
    assert isinstance(part, EventTable) and [row.key for row in part] == ["outer", "flopscope::sin"]
    assert part.self_cpu_time_total == table.self_cpu_time_total == 47.0
    assert [row.top_level for row in part] == [True, True] and not table[0].top_level


def test_rows_have_the_attributes_of_torch() -> None:
    row, table = make_table(*ROWS)[0], make_table(*ROWS)
    assert (row.cpu_time, row.device_time) == (3.0, 500.0)
    assert (row.cpu_time_str, row.device_time_total_str) == ("3.000us", "2.000ms")
    assert row.use_device == "cuda" and table[1:][0].is_user_annotation
    for old, new in [("cuda_time", "device_time"), ("self_cuda_time_total", "self_device_time_total")]:
        with pytest.warns(FutureWarning, match=f"`{old}` is deprecated, please use `{new}`"):
            assert getattr(row, old) == getattr(row, new)
    assert repr(row) == "<EventRow 'flopscope::add': 4 calls, self CPU 8.000us, self device 1.500ms>"
    assert repr(table) == "<EventTable: 3 rows, self CPU 47.000us, self device 0.000us>"


def test_every_column_is_an_attribute_with_a_docstring() -> None:
    row = make_table(*ROWS)[0]
    for column in COLUMNS:
        getattr(row, column.name)
        doc = getattr(type(row), column.name).__doc__
        assert doc and column.doc in doc and (column.unit in doc) and len(column.doc) > 10


def test_numbers_have_python_types() -> None:
    plain = make_table(*ROWS)
    arrays = {name: np.array(v) if isinstance(v[0], (float, int)) else v for name, v in plain.columns.items()}
    table = EventTable(arrays, Facts(self_cpu_time_total=np.float64(47), has_device=True))
    assert type(table[0].count) is int and type(table[0].flops) is float and type(table[1].is_user_annotation) is bool
    assert type(table.self_cpu_time_total) is float and table.columns["key"] == plain.columns["key"]


def test_sorting_puts_the_largest_first_and_the_unknown_last() -> None:
    table = make_table(*ROWS)
    keys = lambda by: [row.key for row in table.sorted(by)]  # noqa: E731
    assert keys("self_cpu_time_total") == ["outer", "flopscope::sin", "flopscope::add"]
    assert keys("flops") == ["flopscope::add", "flopscope::sin", "outer"]
    assert keys("self_cuda_time_total")[0] == keys("cuda_time")[0] == "flopscope::add"
    assert keys("device_time")[1:] == ["outer", "flopscope::sin"]  # equal ones stay in order
    assert keys("key") == ["outer", "flopscope::sin", "flopscope::add"]
    headers = {"Self CUDA": "self_device_time_total", "self cpu": "self_cpu_time_total", "CALLS": "count",
               "# of calls": "count", "% Roofline": "pct_roofline", "flop/s": "tflops_per_s",
               "input shapes": "input_shapes"}  # fmt: skip
    assert {key: keys(key) for key in headers} == {key: keys(attribute) for key, attribute in headers.items()}


def test_rows_have_a_kind() -> None:
    kernel = {"key": "k", "device_type": "cuda", "self_device_time_total": 3.0}
    table = make_table(*ROWS, kernel, {**kernel, "key": "outer", "is_user_annotation": True})
    keys = {kind: [row.key for row in table.of_kind(kind)] for kind in ("op", "kernel", "range", "all")}
    assert keys["op"] == ["flopscope::add", "flopscope::sin"] and keys["kernel"] == ["k"]
    assert keys["range"] == ["outer", "outer"] and len(keys["all"]) == 5
    assert len(table.to_pandas()) == 5 and list(table.to_pandas("kernel").key) == ["k"]


def test_the_columns_include_those_of_the_core() -> None:
    core = re.findall(r"^FS_COLUMN\((\w+), (\w+), (\w+),", DEFINITIONS.read_text(encoding="utf-8"), re.M)
    columns = {column.name: column for column in COLUMNS}
    own = columns.keys() - {name for _, name, _ in core}
    assert [name for name in columns if name not in own] == [name for _, name, _ in core]
    assert own == {
        "key", "overload_name", "device_type", "is_user_annotation", "count", "input_shapes", "input_dtypes", "unit",
        "bytes_source", "flops_source", "bound", "occupancy_limit", "timing_source", "category",
    }  # fmt: skip
    units = {"ns": "µs", "bytes": "bytes", "flops": "FLOP", "percent": "%"}
    for c_type, name, unit in core:
        integral = c_type == "int64_t" and unit != "ns"  # ns become µs
        assert columns[name].type == ("int64" if integral else "float64"), name
        assert units.get(unit, columns[name].unit) == columns[name].unit


def test_json_files_contain_device_and_rows(tmp_path: Path) -> None:
    peaks = {"cuda:0": {"source": "datasheet", "name": "NVIDIA H200"}}
    table = make_table({"key": "k", "device_type": "cuda", "self_device_time_total": 3.0}, peaks=peaks)
    table.to_json(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["device"] == {"kind": "cuda", "name": "NVIDIA H200"} and content["peaks"] == peaks
    assert [*content["rows"][0].values()][1:] == [*table.to_dicts()[0].values()] and content["rows"][0]["flops"] is None


def column_of(values: list[Any], integers: bool) -> Numbers:
    stored = array("q" if integers else "d", values).tobytes()
    same = len(values) > 1 and stored == stored[:8] * len(values)
    return Numbers("q" if integers else "d", stored[:8] if same else stored, len(values))


OF_CORE = {
    "integers": ([3, -1, 2**63 - 1, -(2**63)], True), "doubles": ([0.5, -0.0, math.inf, 1e-300], False),
    "one value": ([7] * 5, True), "one double": ([2.5] * 3, False), "one row": ([4], True), "no row": ([], False),
}  # fmt: skip


@pytest.mark.parametrize("values, integers", OF_CORE.values(), ids=OF_CORE)
def test_a_column_is_a_sequence_of_the_numbers_and_a_buffer(values: list[float], integers: bool) -> None:
    column = column_of(values, integers)
    assert len(column) == len(values) and column.tolist() == list(column) == values
    assert all(type(value) is (int if integers else float) for value in column)
    array = np.asarray(column)
    assert array.dtype == (np.int64 if integers else np.float64) and array.tolist() == values
    assert not array.flags.writeable
    for copied in (copy.deepcopy(column), pickle.loads(pickle.dumps(column))):
        assert copied.tolist() == values


@pytest.mark.parametrize("values", [[10, 20, 30, 40], [5, 5, 5, 5]])
def test_rows_are_chosen_as_those_of_a_list(values: list[int]) -> None:
    column = column_of(values, True)
    for rows in ([], [2], [3, 0, 0], [-1, -4], range(4)):
        assert column.chosen(rows).tolist() == [values[row] for row in rows]
    with pytest.raises(IndexError):
        column[4]
