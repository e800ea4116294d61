"""What rooflines draw: the ops of a table with their times, and the limits of a device with their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flopscope.results.row import own_time
from flopscope.support.safe import shorten
from flopscope.support.units import si_text

if TYPE_CHECKING:
    from flopscope.results.row import EventRow
    from flopscope.results.table import EventTable
    from flopscope.support.peaks import Peaks

SOURCES = ("measured", "datasheet")
CACHES = frozenset({"cache", "l2"})
"""The bounds of ops whose data a cache served."""
Rates = dict[str, float]
"""Bytes/s or FLOP/s by the source of the peak."""


@dataclass(frozen=True)
class Point:
    """The point of an op."""

    name: str
    us: float
    """Time of all calls in µs."""
    intensity: float
    """FLOP/B; NaN where the work is unknown."""
    tera: float
    """TFLOP/s."""
    bound: str
    unit: str | None = None
    """Compute unit that executed the FLOPs; None where it is unknown."""
    gbytes: float = math.nan
    """GB/s, of an op that moves data and does no FLOPs, or an unknown number of them."""
    row: int = -1
    """The row of a page that the point stands for; -1: not of a page."""

    @property
    def is_drawn(self) -> bool:
        """Whether it has a place on log axes."""
        return 0 < self.intensity < math.inf and 0 < self.tera < math.inf


def timed_ops(table: EventTable, on_device: bool) -> Iterator[tuple[int, EventRow, float]]:
    """Yield the place, the row and the own time in µs of each op that took time, on the device or on the host.

    In a program in which only counters know any work, its kernels are the ops.
    """
    rows = [(place, row) for place, row in enumerate(table) if row.key != "[memory]"]
    timed = [(place, row, time) for place, row in rows if (time := own_time(row, on_device)) > 0]
    ops = [one for one in timed if one[1].device_type == "cpu"]
    sources = {source for _, row, _ in ops for source in (row.bytes_source, row.flops_source)}
    if on_device and "counted" in table.columns["bytes_source"] and sources <= {None, "counted"}:
        ops = [one for one in timed if one[1].device_type != "cpu" and not one[1].is_user_annotation]
    yield from ops


def memory_of(peaks: Mapping[str, Peaks]) -> Rates:
    """Return the known bandwidths of the memory."""
    return {source: known.bandwidth for source, known in peaks.items() if known.bandwidth}


def slopes_of(peaks: Mapping[str, Peaks], bounds: Iterable[str]) -> list[tuple[str, Rates]]:
    """Return the known bandwidths that limit ops of these bounds: the memory's, and the L2's if a cache bounds one."""
    caches = {source: known.l2_bandwidth for source, known in peaks.items() if known.l2_bandwidth}
    slopes = [("memory", memory_of(peaks)), ("L2", caches if not CACHES.isdisjoint(bounds) else {})]
    return [(name, rates) for name, rates in slopes if rates]


def levels_of(peaks: Mapping[str, Peaks], used: Iterable[str | None]) -> list[tuple[str, Rates]]:
    """Return the used compute units with their peaks in FLOP/s by source, highest first.

    Units with equal peaks share a level.
    """
    alike: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for unit in dict.fromkeys(one for one in used if one is not None):
        tops = tuple((source, known.flops[unit]) for source, known in peaks.items() if unit in known.flops)
        if tops:
            alike.setdefault(tops, []).append(unit)
    levels = [(_units_name(group), dict(tops)) for tops, group in alike.items()]
    return sorted(levels, key=lambda level: -max(level[1].values()))


def roofs_of(peaks: Mapping[str, Peaks], used: Iterable[str | None]) -> list[tuple[str, Rates, Rates]]:
    """Return levels_of() with the FLOP/B at which each level meets the bandwidth, by source.

    For ops of unknown units it is the level of fp32, or of another unit with a peak.
    """
    known = [unit for one in peaks.values() for unit in one.flops]
    levels = levels_of(peaks, used) or levels_of(peaks, ["fp32" if "fp32" in known else next(iter(known), None)])
    memory = memory_of(peaks)
    return [
        (name, rates, {source: rate / memory[source] for source, rate in rates.items() if source in memory})
        for name, rates in levels
    ]


def _units_name(group: Sequence[str]) -> str:
    """Join the names of units, as in "fp16/bf16_tensor"."""
    tensor = "_tensor" if all(unit.endswith("_tensor") for unit in group) else ""
    return "/".join(unit.removesuffix(tensor) for unit in group) + tensor


def level_label(name: str, rates: Mapping[str, float], what: str) -> str:
    """Return the label of a level, such as "fp32: 65.2 TFLOP/s measured, 66.9 datasheet"."""
    texts = {source: si_text(rate, f"{what}/s", 3, "PTGM ") for source, rate in rates.items()}
    prefixes = {text.partition(" ")[2] for text in texts.values()}
    labels = [f"{text} {source}" for source, text in texts.items()]
    if len(prefixes) == 1:  # give the unit once
        labels[1:] = [f"{text.partition(' ')[0]} {source}" for source, text in list(texts.items())[1:]]
    return f"{shorten(name, 40)}: {', '.join(labels)}"


def marks_of(table: EventTable, times: Mapping[int, float]) -> tuple[list[Point], list[int], list[int]]:
    """Return the points that are drawn, and the rows without work and those of unknown work; those with most time
    first. times: of rows in µs, by their places."""
    marks, without, unknown = list[Point](), list[int](), list[int]()
    for place in sorted(times, key=lambda place: -times[place]):
        row, us = table[place], times[place]
        mark = Point(row.key, us, row.arithmetic_intensity, row.tflops_per_s, row.bound, row.unit, row=place)
        if mark.is_drawn:
            marks.append(mark)
        elif 0 < row.gbytes_per_s < math.inf and (row.flops == 0 or row.bytes_source == "counted"):
            marks.append(replace(mark, gbytes=row.gbytes_per_s))  # by their bandwidth
        else:
            (without if row.bytes_total_moved == row.flops == 0 else unknown).append(place)
    return marks, without, unknown
