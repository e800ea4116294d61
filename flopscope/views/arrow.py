"""The table for Arrow: pyarrow, polars and duckdb read it without a copy of its numbers; Parquet through pyarrow."""

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
    """Shapes as JSON, for those of tensor lists are lists themselves; texts as they are."""
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def capsule(table: EventTable) -> Any:
    """A PyCapsule of an Arrow stream of one batch."""
    columns: list[tuple[str, str, Any]] = []
    for name, type, values in table.typed_columns():
        if type == "texts":
            values = [_texts(items) for items in values]
        elif 0 in getattr(values, "strides", ()):  # one value for all rows: Arrow has no such form
            values = values.copy()
        columns.append((name, type, values))
    return _core.arrow_stream(len(table), columns)


def to_arrow(table: EventTable) -> pyarrow.Table:
    """A pyarrow.Table over the same memory."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "to_arrow() needs pyarrow: pip install pyarrow; polars.DataFrame(table) and duckdb do without"
        ) from error
    return pyarrow.RecordBatchReader.from_stream(table).read_all()


def to_parquet(table: EventTable, path: str | PathLike[str]) -> None:
    """A Parquet file of the columns of to_arrow()."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet files are written by pyarrow: pip install pyarrow; to_csv() does without") from error
    rows = to_arrow(table)
    with replacing(path, "wb") as file:
        parquet.write_table(rows, file)
