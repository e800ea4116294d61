"""The section on communication: collectives by kind and size, exposed time, bandwidth of the bus."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.answers.collective_kinds import CollectiveKind, kinds_of
from flopscope.report.encode import Columns

if TYPE_CHECKING:
    from flopscope.answers.analysis import Analysis
    from flopscope.report.profile import Profile

__all__ = ["section"]

MOST_CALLS = 200_000
"""Calls that a page lists; sums are over all."""
MOST_SIZES = 500
"""Kinds and sizes that a page lists: those with the most time."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the data of the section, None for a profile without communication."""
    calls, _ = source.core.collectives()
    count = len(calls["start"])
    if not count:
        return None
    time, exposed = math.fsum(calls["duration"]), math.fsum(calls["exposed"])
    analysis = source.analysis
    sizes = kinds_of(calls, "collective", "message_bytes")
    longest = sorted(range(len(sizes)), key=lambda i: -sizes[i].time)[:MOST_SIZES]
    shown = slice(0, MOST_CALLS)
    starts = source.results.collectives()["start"].to_numpy(dtype=np.float64)[shown]
    return {
        "count": count,
        "shown": min(count, MOST_CALLS),
        "steps": analysis.step_count if analysis.has_steps else 0,
        "devices": max(len(analysis.devices), 1),
        "time": time,
        "exposed": exposed,
        "exposed_pct_of_total": _percent(exposed, _time(analysis)),
        "sizes": [_kind(sizes[i], ("collective", "message_bytes")) for i in sorted(longest)],
        "sizes_left_out": len(sizes) - len(longest),
        "calls": {
            **{name: columns.texts(calls[name][shown]) for name in ("collective", "name", "group", "dtype", "kernel")},
            **{name: columns.add(_numbers(calls[name][shown])) for name in _NUMBERS},
            "start": columns.add(starts),
        },
    }


def _time(analysis: Analysis) -> float:
    """Return the time of all steps on all devices, in µs."""
    return sum(step.time for step in analysis.steps) * max(len(analysis.devices), 1)


_NUMBERS = (
    *("device", "stream", "group_size", "sequence", "duration", "exposed", "message_bytes"),
    *("algorithm_gbytes_per_s", "bus_gbytes_per_s"),
)


def _numbers(values: Any) -> Any:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else math.nan


def _kind(kind: CollectiveKind, by: tuple[str, ...]) -> dict[str, Any]:
    return {
        **dict(zip(by, kind.key, strict=True)),
        **{"calls": kind.calls, "median_bytes": kind.message_bytes, "time": kind.time, "exposed": kind.exposed},
        **{"exposed_pct": kind.exposed_pct, "bus_median": kind.bus_median, "bus_max": kind.bus_max},
    }
