"""The kinds of rows of a table, and its columns: their names, units, descriptions and types; and its document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flopscope import _core
from flopscope.support.documents import WHY, Document, Field, by_name, columns, record, rows

KINDS = ("op", "kernel", "range", "all")
NO_OP = "(no op)"
NO_MODULE = "(no module)"


def kind_of(device_type: str, is_user_annotation: bool) -> str:
    """Return the kind of a row: "op" (an op or API call of the host), "kernel" (work of a device) or "range"."""
    return "range" if is_user_annotation else "op" if device_type == "cpu" else "kernel"


def require_kind(kind: str | None) -> None:
    """Raise ValueError for an unknown kind."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its unit ("" for none), its description and the type of its values."""

    name: str
    unit: str
    doc: str
    type: str = "text"
    """"int64", "float64" (NaN where unknown), "bool", "text" (None where unknown) or "texts" (a list for each row)."""


_NUMBERS = tuple(Column(*number) for number in _core.numeric_columns)
_BEFORE_SHAPES = 8  # of the numbers: times and memory, as torch has them
_BEFORE_UNIT, _COUNTED = ([number.name for number in _NUMBERS].index(n) for n in ("roofline_time", "dram_bytes_read"))

_UNIT = 'compute unit that did the FLOPs ("fp32", "bf16_tensor", …), or most of them'
_SOURCES = "; ".join(["where the bytes come from", *map(": ".join, _core.work_sources.items())])
_CATEGORIES = ", ".join(name for name, *_ in _core.categories)
COLUMNS = (
    Column("key", "", "name of the events of the row"),
    Column("overload_name", "", "overload of the op, where it was recorded"),
    Column("device_type", "", 'where the events ran: "cpu", or torch\'s type of the device: "cuda", "xpu", "mtia", …'),
    Column("is_user_annotation", "", "whether the events are ranges or steps named by the program", "bool"),
    Column("count", "calls", "events in the row", "int64"),
    *_NUMBERS[:_BEFORE_SHAPES],
    Column("input_shapes", "elements", "shapes of the inputs of the first call, if rows are grouped by shape", "texts"),
    Column("input_dtypes", "", "dtypes of the inputs of the first call, if rows are grouped by shape", "texts"),
    *_NUMBERS[_BEFORE_SHAPES:_BEFORE_UNIT],
    Column("unit", "", f"{_UNIT}; None if nothing computes or the unit is unknown"),
    Column("bytes_source", "", f"{_SOURCES}; None if they are unknown, and for sums over several rows"),
    Column("flops_source", "", "where the FLOPs come from, as bytes_source"),
    *_NUMBERS[_BEFORE_UNIT:_COUNTED],
    Column("bound", "", "; ".join(["what bounds the row", *(f"{n}: {of.meaning}" for n, of in _core.bounds.items())])),
    *_NUMBERS[_COUNTED:],
    Column("occupancy_limit", "", "what limits the theoretical occupancy; None if nothing does, or it is unknown"),
    Column("timing_source", "", 'source of the device times: "cupti", "event", "trace", or "cpu" for host times'),
    Column("category", "", f"kind of op, by its name: {_CATEGORIES}; None for sums over several"),
)

# Columns that only some tables have, each a value for every row: EventRow has attributes for them.
STACK = Column("stack", "", "Python calls that enclose the events, innermost first", "texts")
GROUPS = (
    Column("step", "", "name of the step around the events or their launch"),
    Column("stream", "", "device and stream of device work"),
    Column("line", "", "innermost Python function of the program around the events"),
    Column("module", "", "path of the module around the events"),
    Column("module_depth", "modules", "number of modules around the module", "int64"),
    Column("module_calls", "calls", "forward calls of the module", "int64"),
    Column("pct_roofline_total", "%", "share of the roofline with the submodules", "float64"),
)

# Documents ------------------------------------------------------------------------------------------------------------

_WORK = "no rule knows the work of these calls"
_RATE = "the work is unknown, or no time was spent on it"
_ROOF = "the work, the unit that does it or the peak of the device is unknown, or no time was spent on it"
_COUNTED_ONLY = "not counted, or the kernels are too short for the interval of the counters"
_SEVERAL = "unknown, or the row is a sum of several"
_WHY = {
    **dict.fromkeys(("flops", "bytes_read", "bytes_written", "bytes_total_moved"), _WORK),
    **{"flops_total": "no rule knows the work of these calls, or of any that they enclose"},
    **dict.fromkeys(("tflops_per_s", "gbytes_per_s", "arithmetic_intensity"), _RATE),
    **dict.fromkeys(("roofline_time", "headroom", "pct_peak_flops", "pct_peak_bandwidth", "pct_roofline"), _ROOF),
    **{number.name: _COUNTED_ONLY for number in _NUMBERS[_COUNTED:]},
    **dict.fromkeys(("registers", "shared_memory"), "no launch of a kernel was recorded with them"),
    **dict.fromkeys(("theoretical_occupancy", "waves"), "the launches, or properties of the device, are unknown"),
    "occupancy_limit": "nothing limits it, or it is unknown",
    **dict.fromkeys(("time_min", "time_median", "time_p95", "time_max"), "no call has a time of its own"),
    **{"time_std": "the row has fewer than two calls with a time of their own"},
    **{"unit": "nothing computes, or the unit is unknown", "step": "the events are in no step"},
    **dict.fromkeys(("bytes_source", "flops_source", "category"), _SEVERAL),
}
_TYPES = {"int64": "integer", "float64": "number", "bool": "flag", "text": "text", "texts": "any"}


def _field(column: Column, optional: bool = False) -> Field:
    why = _WHY.get(column.name, WHY)
    return Field(column.name, _TYPES[column.type], column.unit, column.doc, why, optional=optional)


ROW_FIELDS = (
    Field("id", "text", doc="of the row: equal in every table in which the same events are a row"),
    *map(_field, COLUMNS),
    *(_field(column, True) for column in (STACK, *GROUPS)),
)
"""The fields of a row in JSON; those of GROUPS and stack where rows are grouped by them."""
DEVICE = record("device", columns("kind$ name$"), "the device that the times refer to")
_SHARE = "a share of the device time: of ops whose bytes, or FLOPs, are known"
_MISFITS = "ops with other arguments than their rule expects"
_TIMES = columns("name$ time:µs")
_SOURCE = Field("share", unit="share")
COVERAGE = (
    *columns("bytes flops", "share", "there is no time to take a share of", bytes=_SHARE, flops=_SHARE),
    rows("unmodelled", _TIMES, "ops whose bytes are unknown"),
    rows("estimated", _TIMES, "ops whose work is an estimate", optional=True),
    rows("estimated_flops", _TIMES, "ops of whose work only the FLOPs are an estimate", optional=True),
    rows("misfits", columns("name$ seen$ expected$"), _MISFITS, optional=True),
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
