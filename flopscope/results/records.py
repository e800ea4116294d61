"""Records of a table: pandas, dicts, CSV and JSON, all with the same columns in the same order."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.support.files import finite, write_json
from flopscope.support.safe import write_csv

if TYPE_CHECKING:
    import pandas

    from flopscope.results.table import EventTable


def _columns(table: EventTable) -> dict[str, list[Any]]:
    """Return the table's columns, with ranks before and stacks and groups after them if the table has any."""
    ranks = {} if table.ranks is None else {"rank": list(table.ranks)}
    stacks = {} if table.stacks is None else {"stack": list(table.stacks)}
    groups = {column.name: list(table.groups[column.name]) for column in table.group_columns()}
    return {**ranks, **table.columns, **stacks, **groups}


def to_pandas(table: EventTable) -> pandas.DataFrame:
    """Return a DataFrame with one row per row of the table."""
    try:
        import numpy
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas; to_dicts() and to_csv() do not") from error
    # Each column is a Series: given plain lists of lists, pandas would look for a second dimension.
    columns = ((name, numpy.asarray(v) if isinstance(v, _core.Numbers) else v) for name, _, v in table.typed_columns())
    return pandas.DataFrame({name: pandas.Series(values) for name, values in columns})


def to_dicts(table: EventTable) -> list[dict[str, Any]]:
    """Return one dict per row, ready for JSON: unknown numbers are None."""
    columns = {name: finite(values) for name, values in _columns(table).items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def to_json(table: EventTable, path: str | PathLike[str]) -> None:
    """Write json_content() to a JSON file."""
    write_json(path, json_content(table))


def json_content(table: EventTable) -> dict[str, Any]:
    """Return the device, the coverage, the peaks and the rows, ready for JSON."""
    coverage = finite(table.coverage())
    return {"device": _device(table), "coverage": coverage, "peaks": table.peaks, "rows": to_dicts(table)}


def _device(table: EventTable) -> dict[str, Any]:
    """Return the device that the times refer to, with its name if the table has its peaks."""
    kind = table.device_type if table.has_device else "cpu"
    return {"kind": kind, "name": next((p["name"] for name, p in table.peaks.items() if name.startswith(kind)), None)}


def to_csv(table: EventTable, path: str | PathLike[str]) -> None:
    """Write a CSV file with a header; unknown values are empty, lists are JSON, and no cell is a formula."""
    write_csv(path, _columns(table), (record.values() for record in to_dicts(table)))
