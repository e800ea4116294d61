"""The table as records: pandas, dicts, CSV, JSON. All have the same columns, in the same order."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Any

from flopscope.support.files import write_json
from flopscope.support.safe import write_csv

if TYPE_CHECKING:
    import pandas

    from flopscope.results.table import EventTable


def _columns(table: EventTable) -> dict[str, list[Any]]:
    """The table's columns; with ranks before and stacks behind where it has them."""
    ranks = {} if table.ranks is None else {"rank": list(table.ranks)}
    return {**ranks, **table.columns, **({} if table.stacks is None else {"stack": list(table.stacks)})}


def to_pandas(table: EventTable) -> pandas.DataFrame:
    """A DataFrame with one row per row of the table."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas; to_dicts() and to_csv() do without") from error
    # A column of lists as a Series, or else pandas would look for a second dimension.
    return pandas.DataFrame({name: pandas.Series(values) for name, _, values in table.typed_columns()})


def to_dicts(table: EventTable) -> list[dict[str, Any]]:
    """One dict per row, of what JSON has: a number that is not known is None."""
    columns = {name: [_json_value(value) for value in values] for name, values in _columns(table).items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _json_value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(table: EventTable, path: str | PathLike[str]) -> None:
    """A JSON file of json_content()."""
    write_json(path, json_content(table))


def json_content(table: EventTable) -> dict[str, Any]:
    """What the rows are of, and the rows, ready for JSON."""
    coverage = {name: _json_value(value) for name, value in table.coverage().items()}
    return {"device": _device(table), "coverage": coverage, "peaks": table.peaks, "rows": to_dicts(table)}


def _device(table: EventTable) -> dict[str, Any]:
    """The device that the times are of, its name where the table has its peaks."""
    kind = "cuda" if table.has_device else "cpu"
    return {"kind": kind, "name": next((p["name"] for name, p in table.peaks.items() if name.startswith(kind)), None)}


def to_csv(table: EventTable, path: str | PathLike[str]) -> None:
    """Write a CSV file with a header; what is not known is empty, lists are JSON, and texts are never formulas."""
    write_csv(path, _columns(table), (record.values() for record in to_dicts(table)))
