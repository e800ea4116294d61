"""The columns of the tables of Ranks, and their types: those of its DataFrames in tables(), and of Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopscope.answers.analysis import PARTS

if TYPE_CHECKING:
    import pandas

__all__ = ["SCHEMA", "arrow_table", "with_types"]

PANDAS = {"text": "string", "integer": "Int64", "number": "float64", "flag": "bool", "integers": "object"}


def _columns(**types: str) -> dict[str, str]:
    return {name: kind for kind, names in types.items() for name in names.split()}


SCHEMA: dict[str, dict[str, str]] = {
    "files": _columns(text="source rank_from host device problem", integer="rank events dropped"),
    "findings": _columns(text="kind cause what action", integers="ranks", number="cost_us cost_pct"),
    "ranks": _columns(
        text="host device",
        integer="rank gpu steps collectives unmatched times_last aligned_with",
        number="total own excess communication data flops bytes_total_moved slowness memory_peak waited waited_pct "
        "awaited clock_offset clock_uncertainty clock_spread clock_drift_ppm",
    ),
    "hosts": _columns(
        text="host", integer="ranks first_rank times_last", number="own communication slowness waited awaited"
    ),
    "groups": _columns(
        text="group members", integer="ranks calls most_last times_last", number="waited waited_pct awaited"
    ),
    "collectives": _columns(
        text="collective group",
        integer="groups ranks hosts calls",
        number="bytes_from bytes_to skew_median skew_p95 skew_uncertainty transfer_median bus_gbytes_per_s time waited "
        "exposed",
    ),
    "calls": _columns(
        text="collective group",
        integer="number count straggler",
        number="message_bytes start skew skew_uncertainty transfer bus_gbytes_per_s",
    ),
    "last_calls": _columns(text="group members collective waiting_collective", integer="rank called ran waiting"),
    "ops": _columns(
        text="key device_type input_shapes input_dtypes bound",
        flag="is_user_annotation",
        integer="ranks rank_min rank_max",
        number="count time_min time_median time_max flops bytes_total_moved pct_roofline",
    ),
    "steps": _columns(text="step", integer="rank", number=" ".join(("total", "own", "excess", *PARTS))),
}
"""By table: its columns and their types, which do not depend on the rows."""


def with_types(name: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table of that name with the types of its columns. Lists become texts where the schema has texts."""
    types = SCHEMA[name]
    return frame.astype({column: PANDAS[types[str(column)]] for column in frame})


def arrow_table(name: str, frame: pandas.DataFrame) -> Any:
    """Return the table of that name as pyarrow.Table. Raise ImportError without pyarrow."""
    try:
        import pyarrow
    except ImportError as problem:
        raise ImportError("to_parquet() needs pyarrow: pip install pyarrow") from problem
    kinds = {
        "text": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "flag": pyarrow.bool_(),
        "integers": pyarrow.list_(pyarrow.int64()),
    }
    schema = pyarrow.schema([(str(column), kinds[SCHEMA[name][str(column)]]) for column in frame])
    return pyarrow.Table.from_pandas(frame, schema, preserve_index=False)
