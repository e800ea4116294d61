"""The columns of the tables of Ranks, and their types: those of its DataFrames in tables(), and of Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopscope.answers.analysis import PARTS

if TYPE_CHECKING:
    import pandas

TYPES = {"$": "text", "#": "integer", "?": "flag", "*": "integers"}
"""By the last character of a column in SCHEMA; others are numbers."""
PANDAS = {"text": "string", "integer": "Int64", "number": "float64", "flag": "bool", "integers": "object"}


def _columns(names: str) -> dict[str, str]:
    return {name.rstrip("$#?*"): TYPES.get(name[-1], "number") for name in names.split()}


SCHEMA: dict[str, dict[str, str]] = {
    "files": _columns("source$ rank# rank_from$ host$ device$ events# dropped# problem$"),
    "findings": _columns("kind$ cause$ what$ action$ ranks* cost_us cost_pct"),
    "ranks": _columns(
        "rank# host$ gpu# device$ steps# total own excess communication data flops bytes_total_moved slowness "
        "memory_peak collectives# unmatched# times_last# waited waited_pct awaited clock_offset clock_uncertainty "
        "clock_spread clock_drift_ppm aligned_with#"
    ),
    "hosts": _columns("host$ ranks# first_rank# own communication slowness times_last# waited awaited"),
    "groups": _columns("group$ members$ ranks# calls# waited waited_pct most_last# times_last# awaited"),
    "collectives": _columns(
        "collective$ group$ groups# ranks# hosts# bytes_from bytes_to calls# skew_median skew_p95 skew_uncertainty "
        "transfer_median bus_gbytes_per_s time waited exposed"
    ),
    "calls": _columns(
        "collective$ group$ message_bytes number# count# straggler# start skew skew_uncertainty transfer "
        "bus_gbytes_per_s"
    ),
    "last_calls": _columns("rank# group$ members$ called# collective$ ran# waiting# waiting_collective$"),
    "ops": _columns(
        "key$ device_type$ is_user_annotation? input_shapes$ input_dtypes$ ranks# count time_min time_median time_max "
        "rank_min# rank_max# flops bytes_total_moved pct_roofline bound$"
    ),
    "steps": _columns("step$ rank# total own excess " + " ".join(PARTS)),
}
"""By table: its columns in their order, and their types, which do not depend on the rows."""


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
