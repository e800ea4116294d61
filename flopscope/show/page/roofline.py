"""The section Roofline: the rate of every op over its arithmetic intensity, below the limits of its device.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flopscope.show.looks import BOUNDS
from flopscope.show.page.encode import Columns, cut
from flopscope.show.page.profile import Profile
from flopscope.show.page.rows import tensor_text
from flopscope.show.roofline import BESIDE, MOST_MARKS, roofline_svg
from flopscope.show.roofs import SOURCES, marks_of, roofs_of, slopes_of, timed_ops
from flopscope.support.device import known_peaks

NAMED = 5  # maximum number of names of what is not drawn

Times = dict[int, float]
"""Time of the own work of rows in µs, by the row."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the marks and the roofs of each device; None if no op of any device took time."""
    found = [_device(source, name, times, columns) for name, times in _times(source) if times]
    return {"devices": found} if found else None


def _times(source: Profile) -> Iterable[tuple[str, Times]]:
    """Yield each device on which ops ran, and the times of their rows."""
    table = source.rows
    ops = {row: time for row, _, time in timed_ops(table, table.has_device)}
    names = [name for name in table.peaks if name != "cpu"] or list(_models(source))
    if not table.has_device or len(names) < 2:
        yield next(iter(names), f"{table.device_type}:0") if table.has_device else "cpu", ops
        return
    times = _times_by_device(source)
    for name in sorted(times, key=lambda one: (len(one), one)):
        yield name, {row: times[name][row] for row in ops if times[name].get(row, 0.0) > 0}


def _models(source: Profile) -> Mapping[str, str]:
    return {source.core.device_name(index): name for index, name in source.core.device_names.items()}


def _times_by_device(source: Profile) -> dict[str, Times]:
    """Return the time of the work of each row on each device in µs, as accounting attributes it: ops and kernels."""
    cells = source.analysis.cells
    times: dict[str, Times] = {}
    if len(source.analysis.columns["key"]) != len(source.rows):
        return times  # shapes are known, but the page does not separate by them
    columns = (cells[name].tolist() for name in ("device", "busy", "row", "kernel"))
    for device, busy, *rows in zip(*columns, strict=True):
        of = times.setdefault(source.core.device_name(device), {}) if device >= 0 else {}
        for row in rows:
            if row >= 0:
                of[row] = of.get(row, 0.0) + busy / 1000
    return times


def _device(source: Profile, name: str, times: Times, columns: Columns) -> dict[str, Any]:
    table = source.rows
    known = table.peaks.get(name, {}).get("name") or (table.unknown_peaks.get(name) and "")
    model = str(known or _models(source).get(name, ""))
    peaks = known_peaks(name, model, SOURCES, source.analysis.peaks)
    marks, without, unknown = marks_of(table, times)
    named = ((mark, tensor_text(table[mark.row].input_shapes)) for mark in marks[:MOST_MARKS])
    shown = [replace(mark, name=f"{mark.name}{BESIDE}{text}") if text else mark for mark, text in named]

    def left_out(why: str, rows: list[int]) -> dict[str, Any]:
        """Return how many rows are not drawn, their time, and the names of those with the most."""
        names = list(dict.fromkeys(table[row].key for row in rows))
        shown, more = [columns.text(name) for name in names[:NAMED]], max(len(names) - NAMED, 0)
        time = math.fsum(times[row] for row in rows)
        return {"why": why, "rows": len(rows), "time": time, "names": shown, "more": more}

    found = {mark.bound for mark in shown}
    roofs = roofs_of(peaks, sorted({mark.unit for mark in shown if mark.unit}))
    slopes = slopes_of(peaks, found)
    return {
        "name": name,
        "model": cut(model),
        "svg": roofline_svg(shown, roofs, slopes),
        "total": math.fsum(times.values()),
        "left_out": [
            left_out("with neither bytes nor FLOPs", without),
            left_out("of unknown work or time", unknown),
            left_out("with less time", [mark.row for mark in marks[MOST_MARKS:]]),
        ],
        "bounds": [bound for bound in BOUNDS if bound in found],
        "has_roofs": bool(roofs or slopes),
        "has_strip": any(not mark.is_drawn for mark in shown),
    }
