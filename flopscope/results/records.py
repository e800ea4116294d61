"""Records of a table: pandas, dicts, CSV, JSON and Parquet, all with the same columns in the same order."""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, Any

from flopscope.results.columns import ROW_FIELDS
from flopscope.support.core_facts import Numbers
from flopscope.support.documents import Document, Field, by_name, columns, plain, record, rows
from flopscope.support.files import replacing
from flopscope.support.safe import write_csv

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas

    from flopscope.results.table import EventTable


DEVICE = record("device", columns("kind$ name$"), "the device that the times refer to")
_SHARE = "a share of the device time: of ops whose bytes, or FLOPs, are known"
_TIMES = columns("name$ time:µs")
_SOURCE = Field("share", unit="share")
COVERAGE = (
    *columns("bytes flops", "share", "there is no time to take a share of", bytes=_SHARE, flops=_SHARE),
    rows("unmodelled", _TIMES, "ops whose bytes are unknown"),
    rows("estimated", _TIMES, "ops whose work is an estimate", optional=True),
    rows("estimated_flops", _TIMES, "ops of whose work only the FLOPs are an estimate", optional=True),
    rows(
        "misfits", columns("name$ seen$ expected$"), "ops with other arguments than their rule expects", optional=True
    ),
    *columns("unseen_graphs:µs", optional=True, unseen_graphs="kernels of CUDA graphs whose capture was not seen"),
    by_name("bytes_source", _SOURCE, "the share of bytes by where they are known from", optional=True),
    by_name("flops_source", _SOURCE, "the share of flops by where they are known from", optional=True),
)
TABLE = Document(
    "table",
    "the rows of a table",
    (
        DEVICE,
        record("coverage", COVERAGE, "how much of the time has known work"),
        by_name("peaks", record("peak", columns("source$ name$")), "what shares are relative to, by device"),
        Field("files", "texts", doc="the traces that the rows are of", optional=True),
        rows("rows", ROW_FIELDS),
    ),
)
IDENTITY = ("key", "overload_name", "device_type", "is_user_annotation", "input_shapes", "input_dtypes")
"""The columns whose values tell the rows of a table apart, but for what else it is grouped by."""


def row_id(values: Iterable[Any]) -> str:
    """Return the id of the row that has these values of IDENTITY, and of what else the table is grouped by."""
    from hashlib import blake2b

    return blake2b(json.dumps([*values]).encode(), digest_size=6).hexdigest()


def _columns(table: EventTable) -> dict[str, list[Any]]:
    """Return the table's columns, with ranks before and stacks and groups after them if the table has any."""
    return {column.name: table.columns.get(column.name, values) for column, values in table.described_columns()}


def to_pandas(table: EventTable) -> pandas.DataFrame:
    """Return a DataFrame with one row per row of the table."""
    import numpy
    import pandas

    # Each column is a Series: given plain lists of lists, pandas would look for a second dimension.
    columns = ((c.name, numpy.asarray(v) if isinstance(v, Numbers) else v) for c, v in table.described_columns())
    return pandas.DataFrame({name: pandas.Series(values) for name, values in columns})


def to_dicts(table: EventTable) -> list[dict[str, Any]]:
    """Return one dict per row, ready for JSON: unknown numbers are None."""
    columns = {name: plain(values) for name, values in _columns(table).items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def to_parquet(table: EventTable, path: str | PathLike[str]) -> None:
    """Write the columns to a Parquet file. Only numbers and texts may be unknown, which is null."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("to_parquet() needs pyarrow: pip install pyarrow; to_csv() works without it") from error
    text = pyarrow.large_string()
    types = {"int64": pyarrow.int64(), "float64": pyarrow.float64(), "bool": pyarrow.bool_(), "text": text}
    types["texts"] = pyarrow.large_list(text)
    fields, arrays = [], []
    for column, values in table.described_columns():
        # The shape of a tensor list is a nested list, so shapes are texts: JSON.
        items = [[_text(item) for item in value] for value in values] if column.type == "texts" else list(values)
        kind = types[column.type]
        fields.append(pyarrow.field(column.name, kind, nullable=column.type in ("float64", "text")))
        arrays.append(pyarrow.array(items, kind, from_pandas=True))
    rows = pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))
    with replacing(path, "wb") as file:
        parquet.write_table(rows, file)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def to_dict(table: EventTable, **more: Any) -> dict[str, Any]:
    """Return the device, the coverage, the peaks and the rows as a document. more: fields that the table lacks."""
    return TABLE.of({**content(table), **more})


def content(table: EventTable) -> dict[str, Any]:
    """Return what the document of a table is made of."""
    coverage = table.coverage()
    for name in ("unmodelled", "estimated", "estimated_flops"):
        if name in coverage:
            coverage[name] = [{"name": op, "time": time} for op, time in coverage[name]]
    if "misfits" in coverage:
        found = coverage["misfits"].items()
        coverage["misfits"] = [{"name": op, "seen": seen, "expected": expected} for op, (seen, expected) in found]
    return {"device": _device(table), "coverage": coverage, "peaks": table.peaks, "rows": row_records(table)}


def row_records(table: EventTable) -> list[dict[str, Any]]:
    """Return a record of each row, with its id; unknown numbers are NaN."""
    named = _columns(table)
    telling = [values for name, values in named.items() if name in IDENTITY or name not in table.columns]
    ids = [row_id(values) for values in zip(*telling, strict=True)]
    return [dict(zip(("id", *named), values, strict=True)) for values in zip(ids, *named.values(), strict=True)]


def _device(table: EventTable) -> dict[str, Any]:
    """Return the device that the times refer to, with its name if the table has its peaks."""
    kind = table.device_type if table.has_device else "cpu"
    return {"kind": kind, "name": next((p["name"] for name, p in table.peaks.items() if name.startswith(kind)), None)}


def to_csv(table: EventTable, path: str | PathLike[str]) -> None:
    """Write a CSV file with a header; unknown values are empty, lists are JSON, and no cell is a formula."""
    write_csv(path, _columns(table), (record.values() for record in to_dicts(table)))
