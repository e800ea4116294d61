"""Collectives summed by device and kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flopscope.support.statistics import median


class CollectiveKind(NamedTuple):
    """Calls of collectives that have something in common; sizes and bandwidths are of the calls that have them."""

    device: int
    collective: str
    calls: int
    message_bytes: float
    """Median; NaN if no size is known."""
    time: float
    """µs, with the wait for other ranks."""
    exposed: float
    """The part in µs in which no other kernel ran on the device."""
    bus_median: float
    """GB/s over the time with the wait; NaN if unknown."""
    bus_max: float

    @property
    def exposed_pct(self) -> float:
        """The exposed part in percent of the time; NaN if there is none."""
        return 100 * self.exposed / self.time if self.time else math.nan


def kinds_of(calls: Mapping[str, Sequence[Any]]) -> list[CollectiveKind]:
    """Sum the calls, the columns of Store.collectives(), by device and kind, in the order of their values."""
    places: dict[tuple[int, str], list[int]] = {}
    for i, key in enumerate(zip(calls["device"], calls["collective"], strict=True)):
        places.setdefault(key, []).append(i)
    return [_kind(*key, {name: [calls[name][i] for i in places[key]] for name in _SUMMED}) for key in sorted(places)]


_SUMMED = ("duration", "exposed", "message_bytes", "bus_gbytes_per_s")


def _kind(device: int, collective: str, calls: Mapping[str, Sequence[float]]) -> CollectiveKind:
    message, bus = ([v for v in calls[name] if not math.isnan(v)] for name in ("message_bytes", "bus_gbytes_per_s"))
    return CollectiveKind(
        device,
        collective,
        len(calls["duration"]),
        median(message) if message else math.nan,
        sum(calls["duration"]),
        sum(calls["exposed"]),
        median(bus) if bus else math.nan,
        max(bus, default=math.nan),
    )
