"""What is true of a table as a whole, and the rows as the core groups them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flopscope.results.details import with_what_there_is
from flopscope.support.hints import HINTS, Hints

if TYPE_CHECKING:
    from flopscope.support.peaks import Peaks


def _unknown_coverage() -> dict[str, Any]:
    return {"bytes": math.nan, "flops": math.nan, "unmodelled": []}


@dataclass(frozen=True)
class Facts:
    """Facts about a whole table: EventTable has an attribute for each, which documents it."""

    self_cpu_time_total: float = 0.0
    self_device_time_total: float = 0.0
    device_type: str = "cuda"
    program: str = ""
    has_device: bool = False
    has_memory: bool = False
    has_shapes: bool = True
    """Whether an op has input shapes."""
    profile_memory: bool = False
    record_shapes: bool = False
    device_unseen: bool = False
    is_sorted: bool = False
    is_whole: bool = True
    is_mixed: bool = False
    open_events: int = 0
    dropped: int = 0
    hints: Hints = HINTS
    coverage: Mapping[str, Any] = field(default_factory=_unknown_coverage)
    peaks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shares: Mapping[str, Peaks] | None = None
    """The peaks that rows are compared with, by device; None for a table that was not made of a profile."""
    unknown_peaks: Mapping[str, str] = field(default_factory=dict)
    grouping_seconds: float = math.nan
    """What the core took to group the events."""


_OF_CORE = (
    *("self_cpu_time_total", "self_device_time_total", "has_device", "has_memory", "device_unseen"),
    *("open_events", "dropped", "grouping_seconds"),
)
_DRAWN = ("timeline", "memory")
_NOT_BY_ROW = frozenset({*_OF_CORE, *_DRAWN, "coverage", "accounting", "roof", "profile_memory"})


@dataclass(frozen=True)
class Grouped:
    """The rows of a store as the core groups them."""

    columns: dict[str, Any]
    """The values of each column by name."""
    facts: Facts
    rows: Mapping[str, Any]
    """What else the core returns by row: "top_level" and, as requested, "stacks", "step", "module", …"""
    accounting: Mapping[str, Any]
    """The content of an Analysis, if it was requested."""
    drawn: dict[str, Any]
    """If it was requested, the "timeline" and, if memory changed, the changes of "memory"."""

    @staticmethod
    def of(returned: tuple[dict[str, Any], dict[str, Any]], **known: Any) -> Grouped:
        """Wrap what Store.table() returns. known: facts that the core does not have."""
        columns, meta = returned
        coverage = with_what_there_is(meta["coverage"])
        facts = Facts(**({name: meta[name] for name in _OF_CORE} | {"coverage": coverage} | known))
        rows = {name: value for name, value in meta.items() if name not in _NOT_BY_ROW}
        drawn = {name: meta[name] for name in _DRAWN if name in meta}
        return Grouped(columns, facts, rows, meta.get("accounting", {}), drawn)
