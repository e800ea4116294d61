"""Arrow tables, whose numbers pyarrow, polars and duckdb read without a copy, and Parquet files."""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.support.files import replacing

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

    from flopscope.results.table import EventTable


def _texts(values: list[Any]) -> list[str]:
    """Return shapes as JSON, since the shape of a tensor list is a nested list, and texts unchanged."""
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def capsule(table: EventTable) -> Any:
    """Return a PyCapsule of an Arrow stream with one batch."""
    columns: list[tuple[str, str, Any]] = []
    for name, type, values in table.typed_columns():
        if type == "texts":
            values = [_texts(items) for items in values]
        elif isinstance(values, _core.Numbers):  # which may have one value for all rows, unlike Arrow
            values = values.dense()
        columns.append((name, type, values))
    return _core.arrow_stream(len(table), columns)


def to_arrow(table: EventTable) -> pyarrow.Table:
    """Return a pyarrow.Table over the same memory."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "to_arrow() needs pyarrow: pip install pyarrow; polars.DataFrame(table) and duckdb work without it"
        ) from error
    return pyarrow.RecordBatchReader.from_stream(table).read_all()


def to_parquet(table: EventTable, path: str | PathLike[str]) -> None:
    """Write the columns of to_arrow() to a Parquet file."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("to_parquet() needs pyarrow: pip install pyarrow; to_csv() works without it") from error
    rows = to_arrow(table)
    with replacing(path, "wb") as file:
        parquet.write_table(rows, file)
