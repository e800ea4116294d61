"""The section Memory: allocated and reserved over time on each device, and who allocated and holds it.

Needs ``profile_memory=True``. Traces of torch and live profiles of flopscope's ops have the allocated and reserved
memory of the device after each change; other recordings have only the changes, and what was allocated before them is
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope.show.page.encode import Columns
from flopscope.support.core_facts import UNKNOWN_ID, UNKNOWN_TIME
from flopscope.support.statistics import distinct

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

MOST_POINTS = 500_000
"""Points of a device's curves; beyond it, the least and the largest of each part of the time are kept."""
MOST_ROWS = 200
"""Rows of the table of ops: those that allocated most and those that hold most."""

_Numbers = npt.NDArray[np.int64]


class _Changes(NamedTuple):
    """The changes of one device's memory, in order of time."""

    time: _Numbers
    bytes: _Numbers
    allocated: _Numbers
    reserved: _Numbers
    address: npt.NDArray[np.uint64]
    row: _Numbers


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the curves and the ops of each device whose memory changed; None if no change was recorded."""
    found = source.take("memory")
    if found is None:
        return None
    taken = {name: found[name] for name in (*_Changes._fields, "device")}
    begin = found["begin"] if found["begin"] != UNKNOWN_TIME else int(taken["time"].min())
    devices = [
        _device(index, _changes(taken, index, begin, source.row_of), source.core.device_names, columns)
        for index in distinct(taken["device"])[::-1].tolist()
    ]
    return {"devices": devices, "unplaced": found["unplaced"]}


def _changes(
    taken: Mapping[str, npt.NDArray[Any]], device: int, begin: int, row_of: npt.NDArray[np.int64] | None
) -> _Changes:
    places = np.flatnonzero(taken["device"] == device)
    places = places[np.argsort(taken["time"][places], kind="stable")]
    chosen = {name: values[places] for name, values in taken.items() if name not in ("device", "row")}
    rows = taken["row"][places].astype(np.int64)
    rows[rows == UNKNOWN_ID] = -1
    if row_of is not None:
        rows = np.append(row_of, -1)[rows]
    chosen["time"] = chosen["time"] - begin
    return _Changes(**chosen, row=rows)


def _device(index: int, changes: _Changes, names: Mapping[int, str], columns: Columns) -> dict[str, Any]:
    allocated, recorded = _allocated(changes)
    reserved = np.where(changes.reserved < 0, np.nan, changes.reserved.astype(np.float64))
    peak = int(np.argmax(allocated))
    return {
        "name": "CPU" if index < 0 else f"GPU {index}",
        "model": columns.text(names.get(index)) if index >= 0 else -1,
        "recorded": recorded,
        "changes": len(changes.time),
        "peak": _point(changes, allocated, reserved, peak),
        "peak_reserved": None if np.isnan(reserved).all() else float(np.nanmax(reserved)),
        "first": float(allocated[0]),
        "last": float(allocated[-1]),
        "curve": _curve(changes, allocated, reserved, columns),
        **_ops(changes, allocated, peak, columns),
    }


def _point(
    changes: _Changes, allocated: npt.NDArray[np.float64], reserved: npt.NDArray[np.float64], at: int
) -> dict[str, Any]:
    return {
        "time": float(changes.time[at]),
        "allocated": float(allocated[at]),
        "reserved": float(reserved[at]),
        "bytes": float(changes.bytes[at]),
        "row": int(changes.row[at]),
    }


def _allocated(changes: _Changes) -> tuple[npt.NDArray[np.float64], bool]:
    """Return the bytes allocated after each change, and whether they were recorded.

    Otherwise they are sums of the changes, from the least amount at the begin with which none is negative.
    """
    if (changes.allocated >= 0).all():
        return changes.allocated.astype(np.float64), True
    sums = np.cumsum(changes.bytes.astype(np.float64))
    known = np.flatnonzero(changes.allocated >= 0)
    if len(known):  # some totals are recorded: the others follow from the nearest one before, or the first
        offsets = changes.allocated[known] - sums[known]
        nearest = np.maximum(np.searchsorted(known, np.arange(len(sums)), side="right") - 1, 0)
        return np.asarray(np.maximum(sums + offsets[nearest], 0.0)), True
    return np.asarray(sums + max(0.0, -float(sums.min()))), False


def _curve(
    changes: _Changes, allocated: npt.NDArray[np.float64], reserved: npt.NDArray[np.float64], columns: Columns
) -> dict[str, Any]:
    kept = _kept(changes.time, allocated)
    return {
        "time": columns.add(np.diff(changes.time[kept], prepend=0).astype(np.float64)),
        "allocated": columns.add(allocated[kept]),
        "reserved": columns.add(reserved[kept]),
        "row": columns.add(changes.row[kept]),
        "left_out": len(changes.time) - len(kept),
    }


def _kept(time: _Numbers, allocated: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return which points to keep: all, or the first, least, largest and last of each part of the time."""
    count = len(time)
    if count <= MOST_POINTS:
        return np.arange(count)
    parts = MOST_POINTS // 4
    span = max(float(time[-1]) - float(time[0]), 1.0)
    part = np.minimum(((time - time[0]) * (parts / span)).astype(np.int64), parts - 1)
    order = np.lexsort((allocated, part))
    begins = np.flatnonzero(np.diff(part, prepend=-1))
    ends = np.append(begins[1:], count) - 1
    return distinct(np.concatenate([begins, ends, order[begins], order[ends]]))


# Who allocates, and who holds the memory at the peak -----------------------------------------------------------------


def _ops(changes: _Changes, allocated: npt.NDArray[np.float64], peak: int, columns: Columns) -> dict[str, Any]:
    """Return by row: bytes allocated and freed, allocations, and the bytes held at the peak if addresses are known."""
    held = _held(changes, peak)
    rows = distinct(changes.row)
    place = np.searchsorted(rows, changes.row)
    gained = np.maximum(changes.bytes, 0)
    sums = {
        "allocated": np.bincount(place, gained, len(rows)),
        "freed": np.bincount(place, gained - changes.bytes, len(rows)),
        "allocations": np.bincount(place, changes.bytes > 0, len(rows)),
    }
    if held is not None:
        sums["held"] = np.bincount(place, held, len(rows))
    shown = _largest(sums)
    before = None if held is None else max(float(allocated[peak]) - float(held.sum()), 0.0)
    return {
        "rows": columns.add(rows[shown]),
        **{name: columns.add(values[shown].astype(np.float64)) for name, values in sums.items()},
        "held_before": before,
        "left_out_rows": len(rows) - len(shown),
        "totals": {name: float(values.sum()) for name, values in sums.items()},
    }


def _largest(sums: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Return the rows that allocated most, and those that hold most, the largest first."""
    most = sums.get("held", sums["allocated"])
    chosen = {
        int(row) for values in (most, sums["allocated"]) for row in np.argsort(-values, kind="stable")[:MOST_ROWS]
    }
    return np.array(sorted(chosen, key=lambda row: (-most[row], -sums["allocated"][row])), dtype=np.int64)


def _held(changes: _Changes, peak: int) -> npt.NDArray[np.float64] | None:
    """Return for each change the bytes that it allocated and that are in use at the peak; None without addresses.

    A block is in use from its allocation until its address is freed.
    """
    if not (changes.address != 0).any():
        return None
    count = len(changes.time)
    order = np.lexsort((np.arange(count), changes.address))  # by address, each in order of time
    same = changes.address[order][:-1] == changes.address[order][1:]
    until = np.full(count, count, dtype=np.int64)
    until[order[:-1][same]] = order[1:][same]
    alive = (changes.bytes > 0) & (np.arange(count) <= peak) & (until > peak) & (changes.address != 0)
    return np.where(alive, changes.bytes, 0).astype(np.float64)
