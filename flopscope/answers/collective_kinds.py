"""Collectives summed by device, kind or size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flopscope.support.statistics import median


class CollectiveKind(NamedTuple):
    """Calls of collectives that have something in common; sizes and bandwidths are of the calls that have them."""

    key: tuple[Any, ...]
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


def kinds_of(calls: Mapping[str, Sequence[Any]], *by: str) -> list[CollectiveKind]:
    """Sum the calls, the columns of Store.collectives(), by the named columns; in the order of their values.

    Unknown values (None and NaN) come last.
    """
    places: dict[tuple[Any, ...], list[int]] = {}
    for i, key in enumerate(zip(*(calls[name] for name in by), strict=True)):
        places.setdefault(tuple(_known(value) for value in key), []).append(i)
    ordered = sorted(places.items(), key=lambda item: [(value is None, value) for value in item[0]])
    return [_kind(key, {name: [calls[name][i] for i in where] for name in _SUMMED}) for key, where in ordered]


_SUMMED = ("duration", "exposed", "message_bytes", "bus_gbytes_per_s")


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _kind(key: tuple[Any, ...], calls: Mapping[str, Sequence[float]]) -> CollectiveKind:
    message, bus = ([v for v in calls[name] if not math.isnan(v)] for name in ("message_bytes", "bus_gbytes_per_s"))
    return CollectiveKind(
        key,
        len(calls["duration"]),
        median(message) if message else math.nan,
        sum(calls["duration"]),
        sum(calls["exposed"]),
        median(bus) if bus else math.nan,
        max(bus, default=math.nan),
    )
