"""A row of a table: its columns, each an attribute, with the names that torch.profiler's rows have."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from flopscope.results.columns import COLUMNS, GROUPS
from flopscope.support import units
from flopscope.support.model import DeviceType
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.results.table import EventTable


COLUMN_NAMES = tuple(column.name for column in COLUMNS)


class EventRow:
    """One row of an EventTable. Every column is an attribute; times are in µs, memory in bytes.

    Attributes of torch.profiler's rows that begin with ``cuda`` work and warn: use those with ``device``.
    """

    __slots__ = ("_index", "_table")

    def __init__(self, table: EventTable, index: int) -> None:
        self._table = table
        self._index = index

    if TYPE_CHECKING:  # the columns: properties made from COLUMNS below

        def __getattr__(self, name: str) -> Any: ...

    @property
    def cpu_time(self) -> float:
        """Host time per call in µs."""
        return float(self.cpu_time_total / self.count) if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Device time per call in µs."""
        return float(self.device_time_total / self.count) if self.count else 0.0

    @property
    def top_level(self) -> bool:
        """Whether some event of the row has no parent."""
        return self._table._top_level[self._index]

    @property
    def stack(self) -> list[str]:
        """The Python calls that enclose the row's events, "path/file.py(line): function", innermost first.

        As many as the rows are grouped by; [] if they are not grouped by stack, and for rows of devices.
        """
        return self._table.stacks[self._index] if self._table.stacks is not None else []

    @property
    def kernels(self) -> list[tuple[str, int, float]]:
        """Name, calls and µs of the kernels that an op launched; they need key_averages(kernels=True)."""
        return (self._table.parts.get("kernels") or {self._index: []})[self._index]

    @property
    def group(self) -> str:
        """The groups of the row other than name, shape and stack: the step, the stream, the module, …"""
        groups = self._table.groups
        words = ("category", "dtype", "module", "line", "stream", "step")
        values = (groups[word][self._index] for word in words if word in groups)
        return ", ".join(value for value in values if value and value != self.key)

    @property
    def use_device(self) -> str | None:
        """The kind of device whose times the table has, such as "cuda", or None."""
        return self._table.device_type if self._table.has_device else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventRow) and self._table is other._table and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._table), self._index))

    def __repr__(self) -> str:
        return (
            f"<EventRow {printable(repr(self.key))}: {self.count} calls, self CPU {self.self_cpu_time_total_str}, "
            f"self device {self.self_device_time_total_str}>"
        )


def own_time(row: EventRow, on_device: bool) -> float:
    """Return the self time in µs, by which plots weigh a row; the total time for a range with declared work."""
    if on_device:
        own, total = row.self_device_time_total, row.device_time_total
    else:
        own, total = (0.0 if row.self_device_time_total else row.self_cpu_time_total), row.cpu_time_total
    declared = row.is_user_annotation and not math.isnan(row.tflops_per_s)
    return float(total if declared else own)


def _value(name: str, row: EventRow) -> Any:
    found = row._table._sources[name][row._index]
    return DeviceType(found) if name == "device_type" else found


def _group(name: str, row: EventRow) -> Any:
    values = row._table.groups.get(name)
    return None if values is None else values[row._index]


def _text(name: str, row: EventRow) -> str:
    return units.time_text(getattr(row, name))


def _deprecated(name: str, row: EventRow) -> Any:
    old = name.replace("device", "cuda")
    warnings.warn(f"`{old}` is deprecated, please use `{name}` instead.", FutureWarning, stacklevel=2)
    return getattr(row, name)


_TIMES = ("cpu_time", "device_time", *(n for n in COLUMN_NAMES if n.endswith("_time_total")))
_OLD_NAMES = ("device_time", *(n for n in COLUMN_NAMES if "device_" in n and n.endswith(("_total", "_usage"))))
_PROPERTIES = {
    **{c.name: (partial(_value, c.name), f"{c.doc}{f', in {c.unit}' if c.unit else ''}") for c in COLUMNS},
    **{c.name: (partial(_group, c.name), f"{c.doc}; None if rows are not grouped by it") for c in GROUPS},
    **{f"{n}_str": (partial(_text, n), f"{n} with its unit, as torch.profiler prints it.") for n in _TIMES},
    **{n.replace("device", "cuda"): (partial(_deprecated, n), f"Deprecated name of {n}.") for n in _OLD_NAMES},
}
for _name, (_get, _doc) in _PROPERTIES.items():
    setattr(EventRow, _name, property(_get, doc=_doc))
