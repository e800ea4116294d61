"""The kinds of rows of a table, and its columns: their names, units, descriptions and types."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flopscope import _core
from flopscope.support.documents import WHY, Field

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


class Numbers(Sequence[Any]):
    """A column of int64 ("q") or float64 ("d"), which never changes: made without NumPy, and shared with it.

    Equal values are stored once: most columns of a large table hold a single value.
    """

    __slots__ = ("_count", "_stored", "_type")

    def __init__(self, type: Literal["q", "d"], stored: bytes, count: int) -> None:
        self._type, self._stored, self._count = type, stored, count

    @property
    def _is_shared(self) -> bool:
        return len(self._stored) < 8 * self._count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        values = memoryview(self._stored).cast(self._type)
        place = range(self._count)[row]
        return values[0 if self._is_shared else place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """Return the numbers as a list."""
        return memoryview(self._stored).cast(self._type).tolist() * (self._count if self._is_shared else 1)

    def chosen(self, rows: Iterable[int]) -> Numbers:
        """Return the numbers of these rows, as a column."""
        places = rows if isinstance(rows, list) else list(rows)
        if self._is_shared and places:
            return Numbers(self._type, self._stored, len(places))
        values = memoryview(self._stored).cast(self._type).tolist()
        return Numbers(self._type, array(self._type, map(values.__getitem__, places)).tobytes(), len(places))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a read-only array of the numbers, which shares their memory, or a copy in another dtype."""
        import numpy as np

        strides = (0 if self._is_shared else 8,)
        values = np.ndarray(self._count, np.dtype(self._type), self._stored, strides=strides)
        return values.copy() if copy else values if dtype is None else values.astype(dtype, copy=False)


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
    Column(
        "unit",
        "",
        'compute unit that did the FLOPs ("fp32", "bf16_tensor", …), or most of them; '
        "None if nothing computes or the unit is unknown",
    ),
    Column(
        "bytes_source",
        "",
        "where the bytes come from; "
        + "; ".join(f"{name}: {meaning}" for name, meaning in _core.work_sources.items())
        + "; None if they are unknown, and for sums over several rows",
    ),
    Column("flops_source", "", "where the FLOPs come from, as bytes_source"),
    *_NUMBERS[_BEFORE_UNIT:_COUNTED],
    Column(
        "bound",
        "",
        "what bounds the row; " + "; ".join(f"{name}: {bound.meaning}" for name, bound in _core.bounds.items()),
    ),
    *_NUMBERS[_COUNTED:],
    Column("timing_source", "", 'source of the device times: "cupti", "event", "trace", or "cpu" for host times'),
    Column(
        "category",
        "",
        f"kind of op, by its name: {', '.join(name for name, *_ in _core.categories)}; None for sums over several",
    ),
)

# Columns that only some tables have, each a value for every row: EventRow has attributes for them.
RANK = Column("rank", "", "rank of the process of a distributed program", "int64")
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
    *(_field(column, True) for column in (RANK, STACK, *GROUPS)),
)
"""The fields of a row in JSON; those of GROUPS, rank and stack where rows are grouped by them."""
