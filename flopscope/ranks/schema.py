"""The columns of the tables of Ranks, and their types in tables()."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopscope.answers.analysis import PARTS
from flopscope.support.documents import Document, Field, columns, rows

if TYPE_CHECKING:
    import pandas

PANDAS = {"text": "string", "integer": "Int64", "number": "float64", "flag": "bool", "integers": "object"}


def _columns(names: str) -> dict[str, Field]:
    return {field.name: field for field in columns(names)}


SCHEMA: dict[str, dict[str, Field]] = {
    "files": _columns("source$ rank# rank_from$ host$ device$ events# dropped# problem$"),
    "findings": _columns("kind$ cause$ what$ action$ ranks* cost_us cost_pct"),
    "ranks": _columns(
        "rank# host$ gpu# device$ steps# total:µs own:µs excess:µs communication:µs data:µs flops bytes_total_moved "
        "slowness memory_peak:bytes collectives# unmatched# times_last# waited:µs waited_pct awaited:µs "
        "clock_offset:µs clock_uncertainty:µs clock_spread:µs clock_drift_ppm aligned_with#"
    ),
    "hosts": _columns("host$ ranks# first_rank# own:µs communication:µs slowness times_last# waited:µs awaited:µs"),
    "groups": _columns("group$ members$ ranks# calls# waited:µs waited_pct most_last# times_last# awaited:µs"),
    "collectives": _columns(
        "collective$ group$ groups# ranks# hosts# bytes_from bytes_to calls# skew_median:µs skew_p95:µs "
        "skew_uncertainty:µs transfer_median:µs bus_gbytes_per_s time:µs waited:µs exposed:µs"
    ),
    "calls": _columns(
        "collective$ group$ message_bytes number# count# straggler# start:µs skew:µs skew_uncertainty:µs transfer:µs "
        "bus_gbytes_per_s"
    ),
    "last_calls": _columns("rank# group$ members$ called# collective$ ran# waiting# waiting_collective$"),
    "ops": _columns(
        "key$ device_type$ is_user_annotation? input_shapes$ input_dtypes$ ranks# count time_min:µs time_median:µs "
        "time_max:µs rank_min# rank_max# flops bytes_total_moved pct_roofline bound$"
    ),
    "steps": _columns("step$ rank# total:µs own:µs excess:µs " + " ".join(f"{part}:µs" for part in PARTS)),
}
"""By table: its columns in their order, with their units and types, which do not depend on the rows."""
_OF_CALLS = ("rank", *[*SCHEMA["ranks"]][[*SCHEMA["ranks"]].index("collectives") :])

RANKS = Document(
    "ranks",
    "what is slow across the ranks of a program, with a row for each rank and each file",
    (
        *columns("verdict$", verdict="the sentence of the first finding, or that nothing stands out"),
        rows("findings", SCHEMA["findings"].values(), "the largest cost first; `ranks` are those of the rows"),
        *columns("notes@", notes="what is left out, differs between the ranks, or is uncertain"),
        rows("ranks", SCHEMA["ranks"].values(), "a row for each rank; times are medians over its steps"),
        rows("files", SCHEMA["files"].values(), "a row for each file"),
    ),
)
STRAGGLERS = Document(
    "stragglers",
    "which rank the others waited for in each collective",
    (
        rows("ranks", (SCHEMA["ranks"][name] for name in _OF_CALLS), "a row for each rank"),
        rows("collectives", SCHEMA["calls"].values(), "a row for each matched collective, in order of start"),
    ),
)


def records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return a dict for each row, in which missing values are None."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def with_types(name: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table of that name with the types of its columns. Lists become texts where the schema has texts."""
    fields = SCHEMA[name]
    return frame.astype({column: PANDAS[fields[str(column)].type] for column in frame})
