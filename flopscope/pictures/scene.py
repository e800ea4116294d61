"""What a roofline picture is drawn of: points and peaks, from tables, measurements, sweeps and DataFrames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flopscope.hardware.peaks import Peaks
    from flopscope.results.table import EventTable
    from flopscope.timing.measurement import Measurement
    from flopscope.timing.sweep import Sweep

__all__ = ["Point", "Scene", "peaks_wanted", "scene_of"]

SOURCES = ("measured", "datasheet")


@dataclass(frozen=True)
class Point:
    """What is drawn of one op."""

    name: str
    us: float
    """Of all its calls."""
    intensity: float
    """FLOP/B; NaN where the work is not known."""
    tera: float
    """TFLOP/s"""
    bound: str
    unit: str | None
    """Compute unit that did the FLOPs; None where it is unknown."""

    @property
    def on_picture(self) -> bool:
        """Whether a log axis has a place for it."""
        return self.intensity > 0 and self.tera > 0 and math.isfinite(self.intensity * self.tera)


@dataclass(frozen=True)
class Scene:
    """All of a picture: the points of one device, and its peaks by source."""

    points: list[Point]
    device: str
    model: str
    peaks: Mapping[str, Peaks]
    notes: tuple[str, ...] = ()
    """Of what else is not shown."""
    by_time: bool = True
    """Whether points are as large as their time; else all alike."""

    @property
    def title(self) -> str:
        """Whose roofline it is."""
        return ", ".join(part for part in (self.device, self.model) if part)

    @property
    def scale(self) -> tuple[float, str]:
        """Of rates in TFLOP/s to those on the axis, and their unit."""
        tops = [max(peaks.flops.values(), default=0.0) / 1e12 for peaks in self.peaks.values()]
        small = max([*tops, *(point.tera for point in self.points if point.on_picture)], default=1.0) < 1
        return (1000.0, "GFLOP/s") if small else (1.0, "TFLOP/s")


def peaks_wanted(peaks: Any) -> tuple[tuple[str, ...], dict[str, Peaks]]:
    """The sources to look up, and the peaks that were given."""
    from flopscope.hardware.peaks import Peaks

    if isinstance(peaks, str):
        if peaks not in (*SOURCES, "both"):
            raise ValueError(f'peaks={peaks!r}: there are "measured", "datasheet" and "both", or Peaks themselves')
        return (SOURCES if peaks == "both" else (peaks,)), {}
    given = [peaks] if isinstance(peaks, Peaks) else list(peaks)
    if not given or not all(isinstance(one, Peaks) for one in given):
        raise TypeError("peaks= takes names of sources or Peaks, as fs.devices()[0].measured is where it is not None")
    return (), {one.source: one for one in given}


def scene_of(table: Any, device: str | None, peaks: tuple[tuple[str, ...], dict[str, Peaks]]) -> Scene:
    from flopscope.results.table import EventTable
    from flopscope.timing.measurement import Measurement
    from flopscope.timing.sweep import Sweep

    if isinstance(table, EventTable):
        return _scene_of_table(table, device, peaks)
    if hasattr(table, "columns"):
        return _scene_of_frame(table, device, peaks)
    if isinstance(table, Sweep):
        return _scene_of_sweep(table, device, peaks)
    several = list(table) if isinstance(table, Iterable) else [table]
    if not all(isinstance(one, Measurement) for one in several):
        known = "a table of key_averages(), Measurements, a Sweep or a DataFrame"
        raise TypeError(f"roofline() draws {known}, not {type(table).__name__}")
    return _scene_of_measurements(several, device, peaks)


def _known_peaks(device: str, model: str, peaks: tuple[tuple[str, ...], dict[str, Peaks]]) -> dict[str, Peaks]:
    """Those given, else those known of such a device, which need not be here."""
    from flopscope.hardware.device import find_device, peaks_of_models
    from flopscope.hardware.model import Model

    sources, given = peaks
    if device == "cpu":
        here = find_device("cpu")
        known = {"measured": here.measured, "datasheet": here.datasheet_peaks} if model in ("", here.name) else {}
    else:
        known = {source: peaks_of_models({device: Model(model)}, source).get(device) for source in sources if model}
    found = {source: known.get(source) for source in sources}
    return given or {source: one for source, one in found.items() if one is not None and one.source == source}


def _scene_of_table(table: EventTable, device: str | None, peaks: Any) -> Scene:
    there = table.peaks
    named = device or next((name for name in there if name.startswith("cuda")), "cuda:0" if table.has_device else "cpu")
    on_device = named != "cpu"
    said = there.get(named, {})
    rows = [(row, _own_time(row, on_device)) for row in table if row.device_type == "cpu" and row.key != "[memory]"]
    points = [
        Point(row.key, us, row.arithmetic_intensity, row.tflops_per_s, row.bound, row.unit)
        for row, us in rows
        if us > 0
    ]
    if not points:
        raise ValueError(f"the table has no ops with time on {named}")
    model = said.get("name", "")
    return Scene(points, named, model, _known_peaks(named, model, peaks), _without_op(table, points, on_device))


def _own_time(row: Any, on_device: bool) -> float:
    """µs of its own there; of a range whose work the program states, of all in it."""
    if on_device:
        own, whole = row.self_device_time_total, row.device_time_total
    else:
        own, whole = (0.0 if row.self_device_time_total else row.self_cpu_time_total), row.cpu_time_total
    stated = row.is_user_annotation and not math.isnan(row.tflops_per_s)
    return float(whole if stated else own)


def _without_op(table: EventTable, points: list[Point], on_device: bool) -> tuple[str, ...]:
    whole = table.self_device_time_total
    rest = whole - sum(point.us for point in points) if on_device else 0.0
    return (f"{100 * rest / whole:.0f} % of the device's time, which no op launched",) if rest > 0.01 * whole else ()


def _scene_of_sweep(sweep: Sweep, device: str | None, peaks: Any) -> Scene:
    """Of one op: its shapes name the points."""
    whole = _scene_of_measurements(sweep.measurements, device, peaks)
    made = [point for point in sweep.points if point.measurement is not None]
    several = len({point.dtype for point in made}) > 1
    names = [f"{one.shape or one.size}" + (f" {one.dtype}" if several else "") for one in made]
    points = [replace(point, name=name) for point, name in zip(whole.points, names, strict=True)]
    return replace(whole, points=points, model=f"{whole.model}: {sweep.op}", by_time=False)


def _scene_of_measurements(measured: Sequence[Measurement], device: str | None, peaks: Any) -> Scene:
    if not measured:
        raise ValueError("there is nothing to draw: no Measurements were given")
    spent: dict[str, float] = {}
    for m in measured:
        spent[m.device] = spent.get(m.device, 0.0) + m.median
    named = device or max(spent, key=lambda name: spent[name])
    chosen = [m for m in measured if m.device == named]
    if not chosen:
        raise ValueError(f"no Measurement is of {named}; they are of {', '.join(spent)}")
    points = [Point(m.name, m.median, m.arithmetic_intensity, m.tflops_per_s, m.bound, m.unit) for m in chosen]
    model, others = chosen[0].device_name, len(measured) - len(chosen)
    notes = (f"{others} of other devices",) if others else ()
    return Scene(points, named, model, _known_peaks(named, model, peaks), notes)


FRAME_COLUMNS = {  # what is read of a DataFrame, the first that it has
    "name": ("key", "op", "name"),
    "us": ("self_device_time_total", "median"),
    "bound": ("bound",),
    "unit": ("unit",),
}


def _scene_of_frame(frame: Any, device: str | None, peaks: Any) -> Scene:
    for needed in ("arithmetic_intensity", "tflops_per_s"):
        if needed not in frame.columns:
            raise ValueError(f"the DataFrame has no column {needed}; it has {', '.join(map(str, frame.columns))}")
    if not len(frame):
        raise ValueError("there is nothing to draw: the DataFrame has no rows")
    found = {what: next((n for n in names if n in frame.columns), None) for what, names in FRAME_COLUMNS.items()}

    def column(what: str, otherwise: Any) -> list[Any]:
        name = found[what]
        return [otherwise] * len(frame) if name is None else list(frame[name])

    values = zip(
        column("name", "") if found["name"] else map(str, frame.index),
        column("us", 1.0),
        map(float, frame["arithmetic_intensity"]),
        map(float, frame["tflops_per_s"]),
        column("bound", "unknown"),
        (unit if isinstance(unit, str) else None for unit in column("unit", None)),
        strict=True,
    )
    points = [Point(*value) for value in values]
    named = device or "cpu"
    model = _model_here(named) if device else ""
    return Scene(points, device or "", model, _known_peaks(named, model, peaks) if device else peaks[1])


def _model_here(device: str) -> str:
    from flopscope.hardware.device import find_device

    return find_device(device).name
