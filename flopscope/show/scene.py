"""The data of a roofline plot: points and peaks, from tables, measurements and sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flopscope.show.roofs import Point, points_of
from flopscope.support.device import known_peaks

if TYPE_CHECKING:
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.sweep import Sweep
    from flopscope.results.table import EventTable
    from flopscope.support.peaks import Peaks

SOURCES = ("measured", "datasheet")


@dataclass(frozen=True)
class Scene:
    """The contents of a plot: the points of one device, and its peaks by source."""

    points: list[Point]
    device: str
    model: str
    peaks: Mapping[str, Peaks]
    notes: tuple[str, ...] = ()
    """Other data that is not shown."""
    by_time: bool = True
    """Whether the area of a point is proportional to its time; otherwise all are equal."""
    program: str = ""
    """What ran, such as the name of a trace's file."""

    @property
    def title(self) -> str:
        """The device and its model."""
        return ", ".join(part for part in (self.device, self.model) if part)

    @property
    def scale(self) -> tuple[float, str]:
        """The factor from TFLOP/s to the unit of the axis, and that unit."""
        tops = [max(peaks.flops.values(), default=0.0) / 1e12 for peaks in self.peaks.values()]
        small = max([*tops, *(point.tera for point in self.points if point.is_drawn)], default=1.0) < 1
        return (1000.0, "GFLOP/s") if small else (1.0, "TFLOP/s")


def peaks_wanted(peaks: Any) -> tuple[tuple[str, ...], dict[str, Peaks]]:
    """Return the sources to look up, and the peaks that the caller passed."""
    from flopscope.support.peaks import Peaks

    if isinstance(peaks, str):
        if peaks not in (*SOURCES, "both"):
            raise ValueError(f'peaks must be "measured", "datasheet", "both" or Peaks objects, not {peaks!r}')
        return (SOURCES if peaks == "both" else (peaks,)), {}
    objects = [peaks] if isinstance(peaks, Peaks) else list(peaks)
    if not objects or not all(isinstance(one, Peaks) for one in objects):
        raise TypeError(
            "peaks must be the name of a source or Peaks objects, such as fs.devices()[0].measured if that is not None"
        )
    return (), {one.source: one for one in objects}


def scene_of(table: Any, device: str | None, peaks: tuple[tuple[str, ...], dict[str, Peaks]]) -> Scene:
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.sweep import Sweep
    from flopscope.results.table import EventTable

    if isinstance(table, EventTable):
        return _scene_of_table(table, device, peaks)
    if isinstance(table, Sweep):
        return _scene_of_sweep(table, device, peaks)
    several = list(table) if isinstance(table, Iterable) else [table]
    if not all(isinstance(one, Measurement) for one in several):
        supported = "a table of key_averages(), Measurements or a Sweep"
        raise TypeError(f"roofline() draws {supported}, not {type(table).__name__}")
    return _scene_of_measurements(several, device, peaks)


def _known_peaks(
    device: str, model: str, peaks: tuple[tuple[str, ...], dict[str, Peaks]], rated: Mapping[str, Peaks] | None = None
) -> dict[str, Peaks]:
    """Return the peaks from the caller, or those known for this device, which may be one of another machine."""
    sources, passed = peaks
    return passed or known_peaks(device, model, sources, rated)


def _scene_of_table(table: EventTable, device: str | None, peaks: Any) -> Scene:
    known = table.peaks
    usual = f"{table.device_type}:0" if table.has_device else "cpu"
    named = device or next((name for name in known if name != "cpu"), usual)
    on_device = named != "cpu"
    points = points_of(table, on_device)
    model = known.get(named, {}).get("name", "")
    roofs, notes = _known_peaks(named, model, peaks, table.facts.shares), _without_op(table, points, on_device)
    return Scene(points, named, model, roofs, notes, program=table.program)


def _without_op(table: EventTable, points: list[Point], on_device: bool) -> tuple[str, ...]:
    total = table.self_device_time_total
    rest = total - sum(point.us for point in points) if on_device else 0.0
    return (f"{100 * rest / total:.0f} % of the device time, not launched by any op",) if rest > 0.01 * total else ()


def _scene_of_sweep(sweep: Sweep, device: str | None, peaks: Any) -> Scene:
    """Return the scene of a sweep, in which the shapes name the points."""
    scene = _scene_of_measurements(sweep.measurements, device, peaks)
    measured = [point for point in sweep.points if point.measurement is not None]
    several = len({point.dtype for point in measured}) > 1
    names = [f"{one.shape or one.size}" + (f" {one.dtype}" if several else "") for one in measured]
    points = [replace(point, name=name) for point, name in zip(scene.points, names, strict=True)]
    return replace(scene, points=points, program=sweep.op, by_time=False)


def _scene_of_measurements(measured: Sequence[Measurement], device: str | None, peaks: Any) -> Scene:
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
    notes = (f"{others} measurement{'s' * (others > 1)} of other devices",) if others else ()
    program = chosen[0].name if len(chosen) == 1 else ""
    return Scene(points, named, model, _known_peaks(named, model, peaks), notes, program=program)
