"""What is true of a table as a whole, the rows as the core groups them, and details of them as the core lists them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flopscope.results.head import RunSteps
from flopscope.support.hints import HINTS, Hints
from flopscope.support.peaks import Peaks

_UNKNOWN = {"bytes": math.nan, "flops": math.nan}


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
    run_steps: RunSteps | None = None
    """What ``flopscope run`` knows of the program's steps."""
    coverage: Mapping[str, Any] = field(default_factory=lambda: {**_UNKNOWN, "unmodelled": []})
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
        """Wrap what a method of Store returns. known: facts that the core does not have."""
        columns, meta = returned
        coverage = with_what_there_is(meta["coverage"])
        facts = Facts(**({name: meta[name] for name in _OF_CORE} | {"coverage": coverage} | known))
        rows = {name: value for name, value in meta.items() if name not in _NOT_BY_ROW}
        drawn = {name: meta[name] for name in _DRAWN if name in meta}
        return Grouped(columns, facts, rows, meta.get("accounting", {}), drawn)


FIELDS = ("row", "kernel", "count", "busy")


def kernels_of_rows(names: Sequence[str], launched: Mapping[str, Any]) -> list[list[tuple[str, int, float]]]:
    """Return for each row of a table the name, number and µs of the kernels that it launched."""
    found: list[dict[str, list[int]]] = [{} for _ in names]
    for row, kernel, count, busy in zip(*(launched[n].tolist() for n in FIELDS), strict=True):
        total = found[row].setdefault(names[kernel], [0, 0])
        total[0] += count
        total[1] += busy
    return [[(name, count, busy / 1000) for name, (count, busy) in kernels.items()] for kernels in found]


def with_what_there_is(coverage: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is empty, and sources if there is only the model; describe the arguments of misfits."""
    optional = ("estimated", "estimated_flops", "misfits", "unseen_graphs")
    found = {name: value for name, value in coverage.items() if name not in optional or value}
    for name in ("bytes_source", "flops_source"):
        if found.get(name, {}).keys() <= {"model"}:
            found.pop(name, None)
    if "misfits" in found:
        seen = found["misfits"].items()
        found["misfits"] = {name: (_arguments_text(arguments), expected) for name, (arguments, expected) in seen}
    return found


def has_kernels_of_torch(names: Iterable[str]) -> bool:
    """Return whether PyTorch launched any kernel of these names."""
    return any("at::native" in name for name in names)


def has_unknown_kernels(coverage: Mapping[str, Any], columns: Mapping[str, Any]) -> bool:
    """Return whether there are kernels of unknown work that no op launched."""
    on_host = dict(zip(columns["key"], (device == "cpu" for device in columns["device_type"]), strict=True))
    return any(on_host.get(name) is False for name, _ in coverage["unmodelled"])


def _arguments_text(arguments: Sequence[Any]) -> str:
    """Describe the arguments of a call: "float32[8, 4], None, 0.5"."""
    parts = []
    for argument in arguments:
        if isinstance(argument, tuple):
            parts.append(f"{argument[0] or 'tensor'}{list(argument[1])}")
        elif isinstance(argument, list):
            parts.append(f"[{_arguments_text(argument)}]")
        else:
            parts.append(str(argument))
    return ", ".join(parts)
