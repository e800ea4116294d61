"""Accounting: every instant of each device in each step, in parts that add up to the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import PARTS, Analysis

if TYPE_CHECKING:
    import pandas


def accounting_columns(analysis: Analysis, *, alike: bool = False) -> dict[str, list[Any]]:
    """Return the columns of the accounting, times in µs: a row per device and step, and one for the whole.

    alike: without the first steps that are left out of means, also in the whole, which is then to be divided by
    len(analysis.alike).
    """
    return part_columns(analysis, part_times(analysis), work_times(analysis), analysis.apart if alike else 0)


def part_columns(
    analysis: Analysis, parts: npt.NDArray[np.int64], work: npt.NDArray[np.float64], first: int = 0
) -> dict[str, list[Any]]:
    """Return the columns for parts by device, step and part, and for the result of work_times(). first: a step."""
    steps, devices = analysis.steps[first:], analysis.devices
    parts, work = parts[:, first:], work[:, first:]
    rated, rows = bool(analysis.peaks), []
    for d, device in enumerate(devices):
        for s, step in enumerate(steps):
            if step.name is not None or len(devices) > 1:
                rows.append(_row(analysis.core.device_name(device), step.name, parts[d, s], work[d, s], rated))
    if devices:
        name = analysis.core.device_name(devices[0]) if len(devices) == 1 else None
        rows.append(_row(name, None, parts.sum(axis=(0, 1), dtype=np.float64), work.sum(axis=(0, 1)), rated))
    names = ("device", "step", "total", *PARTS, "mfu", "mbu")
    return {name: [row[name] for row in rows] for name in names}


def work_times(analysis: Analysis) -> npt.NDArray[np.float64]:
    """Return the times of the FLOPs and of the bytes at the peaks, by device and step, in ns."""
    cells, devices = analysis.cells, analysis.devices
    work = np.zeros((len(devices), len(analysis.steps), 2))
    where = analysis.places(cells)
    np.add.at(work[..., 0], (where, cells["step"]), cells["compute"] - cells["active"])  # activity has no known FLOPs
    np.add.at(work[..., 1], (where, cells["step"]), cells["memory"])
    return work


def part_times(analysis: Analysis) -> npt.NDArray[np.int64]:
    """Return the parts by device, step and part, in ns."""
    devices, cells, gaps = analysis.devices, analysis.cells, analysis.gap_cells
    parts = np.zeros((len(devices), len(analysis.steps), len(PARTS)), dtype=np.int64)
    where = analysis.places(cells)
    ideal = analysis.cell_ideals()
    np.add.at(parts[..., PARTS.index("ideal")], (where, cells["step"]), ideal)
    np.add.at(parts, (where, cells["step"], cells["part"]), cells["exclusive"] - ideal)
    np.add.at(parts, (analysis.places(gaps), gaps["step"], gaps["part"]), gaps["time"])
    return parts


def _row(
    device: str | None, step: str | None, parts: npt.NDArray[Any], work: npt.NDArray[np.float64], rated: bool
) -> dict[str, Any]:
    total = int(parts.sum())
    shares = [100 * float(ns) / total if total and rated else float("nan") for ns in work]
    times = {name: int(ns) / 1000 for name, ns in zip(PARTS, parts, strict=True)}
    return {"device": device, "step": step, "total": total / 1000, **times, "mfu": shares[0], "mbu": shares[1]}


def joined_columns(windows: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Return the columns of several recordings of one program: the rows of each, and one for the whole of all.

    windows: results of accounting_columns(). Steps are named by their window as well, as are recordings without steps.
    """
    rows: list[dict[str, Any]] = []
    wholes: list[dict[str, Any]] = []
    for number, columns in enumerate(windows, 1):
        found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        if not found:
            continue
        wholes.append(found[-1])
        marked = [row for row in found if row["step"] is not None] or found[-1:]
        rows += [{**row, "step": f"window {number}: {row['step'] or 'all'}"} for row in marked]
    names = ("device", "step", "total", *PARTS, "mfu", "mbu")
    rows += [whole_of(wholes)] if wholes else []
    return {name: [row[name] for row in rows] for name in names}


def whole_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row for the whole of several rows of accounting_columns()."""
    devices = {row["device"] for row in rows}
    whole: dict[str, Any] = {name: sum(row[name] for row in rows) for name in ("total", *PARTS)}
    for share in ("mfu", "mbu"):
        work = sum(row[share] * row["total"] for row in rows)
        whole[share] = work / whole["total"] if whole["total"] else float("nan")
    return {"device": devices.pop() if len(devices) == 1 else None, "step": None, **whole}


def accounting_frame(analysis: Analysis) -> pandas.DataFrame:
    """Return the accounting as a DataFrame."""
    import pandas

    return pandas.DataFrame(accounting_columns(analysis))
