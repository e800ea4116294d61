"""Tables as Parquet and JSON files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.tables import make_table

import flopscope as fs
from flopscope.results.table import COLUMNS, STACK, EventTable

ROWS: list[dict[str, Any]] = [
    {"key": "aten::mm", "count": 3, "cpu_time_total": 1.5, "flops": 64.0, "input_shapes": [[2, 3], [3, 4]]},
    {"key": "größer", "is_user_annotation": True, "self_cpu_memory_usage": -8, "input_shapes": []},
    {"key": "aten::cat", "input_shapes": [[[2], [3]], []], "input_dtypes": ["float32", ""], "cpu_time_total": 0.25},
]


@pytest.fixture(scope="module")
def live() -> EventTable:
    x = fs.ones((16, 16))
    with fs.profile(record_shapes=True) as prof, fs.record_function("a range"):
        fs.add(x, x)
        fs.matmul(x, x)
    return prof.key_averages(group_by_input_shape=True, peaks="none")


def expected(table: EventTable) -> list[dict[str, Any]]:
    """Return the rows as JSON values, with lists as lists of strings."""
    rows = table.to_dicts()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, list):
                row[name] = [item if isinstance(item, str) else json.dumps(item) for item in value]
    return rows


def test_a_parquet_file_contains_the_rows_of_to_dicts(live: EventTable, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for table in (live, make_table(*ROWS), make_table(*ROWS)[:0]):
        table.to_parquet(tmp_path / "table.parquet")
        assert parquet.read_table(tmp_path / "table.parquet").to_pylist() == expected(table)


def test_the_schema_names_and_types_the_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    types = {"int64": "int64", "float64": "double", "bool": "bool", "text": "large_string"}
    make_table(*ROWS, stacks=[[], ["a.py(1): f"], []]).to_parquet(tmp_path / "table.parquet")
    schema = parquet.read_schema(tmp_path / "table.parquet")
    columns = [*COLUMNS, STACK]
    assert schema.names == [column.name for column in columns]
    for field, column in zip(schema, columns, strict=True):
        assert str(field.type).startswith(types.get(column.type, "large_list<")), field
        assert field.nullable == (column.type in ("float64", "text")), field


def test_a_missing_pyarrow_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        make_table(*ROWS).to_parquet(tmp_path / "t.parquet")


def test_json_files_contain_device_and_rows(tmp_path: Path) -> None:
    peaks = {"cuda:0": {"source": "datasheet", "name": "NVIDIA H200"}}
    table = make_table({"key": "k", "device_type": "cuda", "self_device_time_total": 3.0}, peaks=peaks)
    table.to_json(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["device"] == {"kind": "cuda", "name": "NVIDIA H200"} and content["peaks"] == peaks
    assert [*content["rows"][0].values()][1:] == [*table.to_dicts()[0].values()] and content["rows"][0]["flops"] is None
