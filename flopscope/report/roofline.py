"""The section Roofline: the rate of every op over its arithmetic intensity, below the limits of its device.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flopscope.hardware.device import known_peaks
from flopscope.report.encode import Columns
from flopscope.views.plots import level_label, levels_of

if TYPE_CHECKING:
    from flopscope.hardware.peaks import Peaks
    from flopscope.report.profile import Profile
    from flopscope.results.table import EventTable

__all__ = ["MOST_MARKS", "section"]

MOST_MARKS = 3000
"""Marks of a device; ops with less time are only counted."""
NAMED = 5  # maximum number of names of what is not drawn
SOURCES = ("measured", "datasheet")


class _Mark(NamedTuple):
    row: int
    time: float
    """Device time of the row's own work in µs, on the CPU its own time."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the marks and the roofs of each device; None if no op of any device took time."""
    table = source.rows
    found = []
    for name, model, marks in _devices(source):
        if marks:
            peaks = known_peaks(name, model, SOURCES, source.main.analysis.peaks)
            found.append(_device(table, name, model, marks, columns, peaks))
    return {"devices": found} if found else None


def _devices(source: Profile) -> Iterable[tuple[str, str, list[_Mark]]]:
    """Yield the name, the model and the marks of each device on which ops ran."""
    table = source.rows
    names = [name for name in table.peaks if name != "cpu"] or list(_models(source))
    if not table.has_device or len(names) < 2:
        name = names[0] if names and table.has_device else f"{table.device_type}:0" if table.has_device else "cpu"
        yield name, _model(source, name), _marks(table, table.has_device)
        return
    times = _times_by_device(source)
    marks = {mark.row: mark for mark in _marks(table, True)}
    for name in sorted(times, key=lambda one: (len(one), one)):
        of = times[name]
        yield name, _model(source, name), [_Mark(row, of[row]) for row in marks if of.get(row, 0.0) > 0]


def _models(source: Profile) -> Mapping[str, str]:
    return {source.core.device_name(index): name for index, name in source.core.device_names.items()}


def _model(source: Profile, device: str) -> str:
    known = source.rows.peaks.get(device, {}).get("name") or (source.rows.unknown_peaks.get(device) and "")
    return str(known or _models(source).get(device, ""))


def _marks(table: EventTable, on_device: bool) -> list[_Mark]:
    """Return the rows of ops with their own time."""
    marks = (
        _Mark(place, row._own_time(on_device))
        for place, row in enumerate(table)
        if row.device_type == "cpu" and row.key != "[memory]"
    )
    return [mark for mark in marks if mark.time > 0]


def _times_by_device(source: Profile) -> dict[str, dict[int, float]]:
    """Return the time of the work of each row on each device in µs, as accounting attributes it."""
    cells = source.analysis.cells
    times: dict[str, dict[int, float]] = {}
    if len(source.analysis.columns["key"]) != len(
        source.rows
    ):  # shapes are known, but the page does not separate by them
        return times
    for device, row, busy in zip(*(cells[name].tolist() for name in ("device", "row", "busy")), strict=True):
        if device >= 0 and row >= 0:
            of = times.setdefault(source.core.device_name(device), {})
            of[row] = of.get(row, 0.0) + busy / 1000
    return times


def _device(
    table: EventTable, name: str, model: str, marks: Sequence[_Mark], columns: Columns, peaks: Mapping[str, Peaks]
) -> dict[str, Any]:
    values = table.columns
    names = ("arithmetic_intensity", "tflops_per_s", "gbytes_per_s", "bytes_total_moved", "flops")
    places = {mark: tuple(values[name][mark.row] for name in names) for mark in marks}
    known = [mark for mark, (x, y, *_) in places.items() if x > 0 and y > 0 and math.isfinite(x) and math.isfinite(y)]
    moving = [mark for mark, (*_, rate, _, flops) in places.items() if flops == 0 and rate > 0 and math.isfinite(rate)]
    known = sorted([*known, *moving], key=lambda mark: -mark.time)  # without FLOPs: by their bandwidth
    drawn, apart = known[:MOST_MARKS], set(known)
    without = [mark for mark, (*_, size, flops) in places.items() if mark not in apart and size == flops == 0]
    apart |= set(without)
    unknown = [mark for mark in marks if mark not in apart]
    total = math.fsum(mark.time for mark in marks)
    return {
        "name": name,
        "model": columns.text(model) if model else -1,
        "rows": columns.add(np.array([mark.row for mark in drawn], dtype=np.int64)),
        "times": columns.add(np.array([mark.time for mark in drawn], dtype=np.float64)),
        "total": total,
        "left_out": [
            _left_out(table, "with neither bytes nor FLOPs", without, columns),
            _left_out(table, "of unknown work or time", unknown, columns),
            _left_out(table, "with less time", known[MOST_MARKS:], columns),
        ],
        "roofs": _roofs(peaks, {values["unit"][mark.row] for mark in drawn}),
        "memory": _memory(peaks),
    }


def _left_out(table: EventTable, why: str, marks: Sequence[_Mark], columns: Columns) -> dict[str, Any]:
    """Return how many rows are not drawn, their time, and the names of those with the most."""
    names = dict.fromkeys(table.columns["key"][mark.row] for mark in sorted(marks, key=lambda mark: -mark.time))
    return {
        "why": why,
        "rows": len(marks),
        "time": math.fsum(mark.time for mark in marks),
        "names": [columns.text(name) for name in list(names)[:NAMED]],
        "more": max(len(names) - NAMED, 0),
    }


def _roofs(peaks: Mapping[str, Peaks], units: Iterable[str | None]) -> list[dict[str, Any]]:
    """Return the levels of the compute units that the marks use, highest first: FLOP/s and ridge by source."""
    used = sorted(unit for unit in units if unit is not None)
    levels = levels_of(peaks, used) or levels_of(peaks, [_usual_unit(peaks)])
    return [
        {
            "label": level_label(name, rates, "FLOP"),
            "rates": rates,
            "ridges": {
                source: rate / bandwidth for source, rate in rates.items() if (bandwidth := peaks[source].bandwidth)
            },
        }
        for name, rates in levels
    ]


def _usual_unit(peaks: Mapping[str, Peaks]) -> str | None:
    """Return fp32, or another unit with a peak, for marks whose units are unknown."""
    known = [unit for one in peaks.values() for unit in one.flops]
    return "fp32" if "fp32" in known else next(iter(known), None)


def _memory(peaks: Mapping[str, Peaks]) -> dict[str, Any] | None:
    rates = {source: one.bandwidth for source, one in peaks.items() if one.bandwidth}
    return {"label": level_label("memory", rates, "B"), "rates": rates} if rates else None
