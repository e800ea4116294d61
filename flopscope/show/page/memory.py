"""The section Memory: who allocated and holds the memory of each device; and its tracks in the Timeline.

Needs ``profile_memory=True``. Traces of torch and live profiles of flopscope's ops have the allocated and reserved
memory of the device after each change; other recordings have only the changes, and what was allocated before them is
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope.show.page import counters
from flopscope.show.page.encode import Columns
from flopscope.show.page.profile import Profile
from flopscope.support.core_facts import UNKNOWN_ID, UNKNOWN_TIME
from flopscope.support.statistics import distinct

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
    tracks: list[dict[str, Any]] = []
    devices = [
        _device(index, _changes(taken, index, begin, source.row_of), source.core.device_names, columns, tracks)
        for index in distinct(taken["device"])[::-1].tolist()
    ]
    return {"devices": devices, "tracks": tracks, "unplaced": found["unplaced"]}


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


def _device(
    index: int, changes: _Changes, names: Mapping[int, str], columns: Columns, tracks: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the numbers of a device, and add its tracks."""
    allocated, recorded = _allocated(changes)
    reserved = np.where(changes.reserved < 0, np.nan, changes.reserved.astype(np.float64))
    peak = int(np.argmax(allocated))
    tracks += _tracks(index, changes, allocated, reserved, columns)
    return {
        "name": "CPU" if index < 0 else f"GPU {index}",
        "model": columns.text(names.get(index)) if index >= 0 else -1,
        "recorded": recorded,
        "changes": len(changes.time),
        "peak": {"allocated": float(allocated[peak]), "row": int(changes.row[peak])},
        "peak_reserved": None if np.isnan(reserved).all() else float(np.nanmax(reserved)),
        "first": float(allocated[0]),
        "last": float(allocated[-1]),
        **_ops(changes, allocated, peak, columns),
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


def _tracks(
    index: int,
    changes: _Changes,
    allocated: npt.NDArray[np.float64],
    reserved: npt.NDArray[np.float64],
    columns: Columns,
) -> list[dict[str, Any]]:
    """Return what is allocated and, if it is known, reserved, from each change until the next."""
    found = []
    for name, values in (("allocated", allocated), ("reserved", reserved)):
        known = np.isfinite(values)
        if known.any():
            start, value = changes.time[known], values[known]
            rest = max((int(start[-1]) - int(start[0])) // 100, 500)  # the last is drawn, too
            duration = np.diff(start, append=start[-1] + rest)
            samples = counters.Buckets(start, duration, value, value, value)
            found.append(counters.encoded("", index, (f"memory_{name}", name, "bytes"), samples, columns))
    return found


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
    ordered = (np.argsort(-values, kind="stable").tolist() for values in (most, sums["allocated"]))
    chosen = {row for rows in ordered for row in rows[:MOST_ROWS]}
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
