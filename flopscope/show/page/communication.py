"""The section on communication: collectives by kind and size, exposed time, bandwidth of the bus."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flopscope.answers.collective_kinds import kinds_of
from flopscope.show.page.encode import Columns

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

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
    devices = max(len(analysis.devices), 1)
    whole = sum(step.time for step in analysis.steps) * devices
    sizes = kinds_of(calls, "collective", "message_bytes")
    longest = sorted(range(len(sizes)), key=lambda i: -sizes[i].time)[:MOST_SIZES]
    return {
        "count": count,
        "steps": analysis.step_count if analysis.has_steps else 0,
        "devices": devices,
        "time": time,
        "exposed": exposed,
        "exposed_pct_of_total": 100 * exposed / whole if whole else math.nan,
        "sizes": [
            {"collective": sizes[i].key[0], "message_bytes": sizes[i].key[1], "median_bytes": sizes[i].message_bytes}
            | {name: getattr(sizes[i], name) for name in _OF_KIND}
            for i in sorted(longest)
        ],
        "sizes_left_out": len(sizes) - len(longest),
    }


_OF_KIND = ("calls", "time", "exposed", "exposed_pct", "bus_median", "bus_max")
