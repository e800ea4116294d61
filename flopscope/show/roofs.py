"""What rooflines draw: the ops of a table with their times, the limits of a device with their labels, and the scene of
a picture, of a table, measurements or a sweep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flopscope.results.row import own_time
from flopscope.support.device import known_peaks
from flopscope.support.safe import shorten
from flopscope.support.units import si_text

if TYPE_CHECKING:
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.sweep import Sweep
    from flopscope.results.row import EventRow
    from flopscope.results.table import EventTable
    from flopscope.support.peaks import Peaks

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


def point_of(row: EventRow, us: float) -> Point:
    """Return the point of a row of a table, of this time."""
    return Point(row.key, us, row.arithmetic_intensity, row.tflops_per_s, row.bound, row.unit)


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


# The scene of a picture -----------------------------------------------------------------------------------------------

SOURCES = ("measured", "datasheet")


@dataclass(frozen=True)
class Scene:
    """The contents of a plot: the points of one device, and its peaks by source."""

    points: list[Point]
    device: str
    model: str
    notes: Sequence[str]
    """Other data that is not shown."""
    peaks: Mapping[str, Peaks] = field(default_factory=dict)
    by_time: bool = True
    """Whether the area of a point is proportional to its time; otherwise all are equal."""
    program: str = ""
    """What ran, such as the name of a trace's file."""

    @property
    def scale(self) -> tuple[float, str]:
        """The factor from TFLOP/s to the unit of the axis, and that unit."""
        tops = [max(peaks.flops.values(), default=0.0) / 1e12 for peaks in self.peaks.values()]
        small = max([*tops, *(point.tera for point in self.points if point.is_drawn)], default=1.0) < 1
        return (1000.0, "GFLOP/s") if small else (1.0, "TFLOP/s")


def scene_of(table: Any, device: str | None, peaks: Any) -> Scene:
    """Return the scene of a table, of Measurements or of a Sweep; the arguments are those of fs.roofline()."""
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.sweep import Sweep
    from flopscope.results.table import EventTable
    from flopscope.support.peaks import Peaks

    passed = [] if isinstance(peaks, str) else [peaks] if isinstance(peaks, Peaks) else list(peaks)
    if isinstance(peaks, str) and peaks not in (*SOURCES, "both"):
        raise ValueError(f'peaks must be "measured", "datasheet", "both" or Peaks objects, not {peaks!r}')
    if not isinstance(peaks, str) and (not passed or not all(isinstance(one, Peaks) for one in passed)):
        raise TypeError(
            "peaks must be the name of a source or Peaks objects, such as fs.devices()[0].measured if that is not None"
        )
    if isinstance(table, EventTable):
        scene = _scene_of_table(table, device)
    elif isinstance(table, Sweep):
        scene = _scene_of_sweep(table, device)
    else:
        several = list(table) if isinstance(table, Iterable) else [table]
        if not all(isinstance(one, Measurement) for one in several):
            supported = "a table of key_averages(), Measurements or a Sweep"
            raise TypeError(f"roofline() draws {supported}, not {type(table).__name__}")
        scene = _scene_of_measurements(several, device)
    rated = table.facts.shares if isinstance(table, EventTable) else None
    sources = SOURCES if peaks == "both" else [peaks]
    known = {one.source: one for one in passed} or known_peaks(scene.device, scene.model, sources, rated)
    return replace(scene, peaks=known)


def _scene_of_table(table: EventTable, device: str | None) -> Scene:
    known = table.peaks
    usual = f"{table.device_type}:0" if table.has_device else "cpu"
    named = device or next((name for name in known if name != "cpu"), usual)
    on_device = named != "cpu"
    points = [point_of(row, us) for _, row, us in timed_ops(table, on_device)]
    model = known.get(named, {}).get("name", "")
    total = table.self_device_time_total
    rest = total - sum(point.us for point in points) if on_device else 0.0
    notes = [f"{100 * rest / total:.0f} % of the device time, not launched by any op"] if rest > 0.01 * total else []
    return Scene(points, named, model, notes, program=table.program)


def _scene_of_sweep(sweep: Sweep, device: str | None) -> Scene:
    """Return the scene of a sweep, in which the shapes name the points."""
    scene = _scene_of_measurements(sweep.measurements, device)
    measured = [point for point in sweep.points if point.measurement is not None]
    several = len({point.dtype for point in measured}) > 1
    names = [f"{one.shape or one.size}" + (f" {one.dtype}" if several else "") for one in measured]
    points = [replace(point, name=name) for point, name in zip(scene.points, names, strict=True)]
    return replace(scene, points=points, program=sweep.op, by_time=False)


def _scene_of_measurements(measured: Sequence[Measurement], device: str | None) -> Scene:
    if not measured:
        raise ValueError("there is nothing to draw: there are no Measurements")
    spent: dict[str, float] = {}
    for m in measured:
        spent[m.device] = spent.get(m.device, 0.0) + m.median
    named = device or max(spent, key=lambda name: spent[name])
    chosen = [m for m in measured if m.device == named]
    if not chosen:
        raise ValueError(f"there is no Measurement of {named}, only of {', '.join(spent)}")
    points = [Point(m.name, m.median, m.arithmetic_intensity, m.tflops_per_s, m.bound, m.unit) for m in chosen]
    model, others = chosen[0].device_name, len(measured) - len(chosen)
    notes = [f"{others} measurement{'s' * (others > 1)} of other devices"] if others else []
    program = chosen[0].name if len(chosen) == 1 else ""
    return Scene(points, named, model, notes, program=program)
