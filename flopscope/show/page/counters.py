"""The tracks of counters in the Timeline: what the hardware of each device counted over the time.

The samples of a track are many: past a limit, those that begin in the same part of the time become one bucket, which
keeps their mean, weighted by time, their least and their largest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope._core import Store
from flopscope.show.page.encode import Columns, since

MOST_BUCKETS = 20_000
"""Samples of a track."""
MOST_TRACKS = 16
"""Tracks of a device; further ones are only counted."""

_LABELS = {  # in the order of the tracks
    "dram_bytes_read": "DRAM read",
    "dram_bytes_written": "DRAM written",
    "sm_active": "SM active",
    "tensor_active": "tensor active",
    "l2_bytes": "L2",
    "fma_active": "FMA active",
    "fp64_active": "fp64 active",
    "alu_active": "ALU active",
    "issue_active": "issue slots",
    "l2_active": "L2 active",
    "l2_fabric": "L2 fabric",
    "l1_active": "L1 active",
    "nvlink_bytes_received": "NVLink received",
    "nvlink_bytes_sent": "NVLink sent",
    "pcie_bytes_read": "PCIe read",
    "pcie_bytes_written": "PCIe written",
}

_Floats = npt.NDArray[np.float64]


class Buckets(NamedTuple):
    """The samples of a track, or their buckets, in order of time; times in ns."""

    start: npt.NDArray[Any]
    duration: npt.NDArray[Any]
    mean: _Floats
    low: _Floats
    high: _Floats


def tracks(parts: Iterable[tuple[str, Store, int]], origin: int, columns: Columns) -> dict[str, Any]:
    """Return the tracks of each device, and how many are left out.

    parts: the title of a process, its store, and the ns to add to its times. origin: the time that the page calls 0.
    """
    found: dict[tuple[str, int], dict[str, tuple[str, float, Buckets]]] = {}
    for title, core, shift in parts:
        for device, name, kind, unit, start, end, value in core.samples():
            if len(start):
                one = _samples(since(start, origin - shift), since(end, origin - shift), value, kind == "amount")
                unit = {"bytes": "GB/s"}.get(unit, f"G{unit}/s") if kind == "amount" else unit
                found.setdefault((title, device), {})[name] = unit, 100.0 if kind == "share" else 0.0, one
    places = {name: place for place, name in enumerate(_LABELS)}
    listed = [
        encoded(title, device, (name, _LABELS.get(name, name), unit), samples, columns, least_top)
        for (title, device), named in found.items()
        for name in sorted(named, key=lambda one: (places.get(one, len(places)), one))[:MOST_TRACKS]
        for unit, least_top, samples in [named[name]]
    ]
    left_out = sum(max(len(named) - MOST_TRACKS, 0) for named in found.values())
    return {"tracks": listed, "left_out": left_out, "limit": MOST_BUCKETS}


def _samples(start: npt.NDArray[Any], end: npt.NDArray[Any], value: _Floats, is_amount: bool) -> Buckets:
    """Return samples as rates per ns, if they are amounts. One without a length has no rate, and is left out."""
    duration = end - start
    if is_amount:
        kept = duration > 0
        start, duration, value = start[kept], duration[kept], value[kept]
        value = value / duration
    return Buckets(start, duration, value, value, value)


def encoded(
    title: str, device: int, texts: tuple[str, str, str], samples: Buckets, columns: Columns, least_top: float = 0.0
) -> dict[str, Any]:
    """Return a track of the timeline: its process, device, name, label and unit, and its samples or their buckets.

    Its axis begins at 0 and ends at the largest sample, or at least_top.
    """
    kept = bucketed(samples)
    merged = len(kept.start) < len(samples.start)
    return {
        "part": columns.text(title) if title else -1,
        "device": device,
        **dict(zip(("name", "label", "unit"), map(columns.text, texts), strict=True)),
        "samples": len(samples.start),
        "top": max(float(kept.high.max(initial=0.0)), least_top),
        "start": columns.add(np.diff(kept.start, prepend=kept.start[:1] * 0).astype(np.float64)),
        "duration": columns.add(kept.duration.astype(np.float64)),
        "mean": columns.add(_short(kept.mean)),
        "low": columns.add(_short(kept.low)) if merged else None,
        "high": columns.add(_short(kept.high)) if merged else None,
    }


def _short(values: _Floats) -> npt.NDArray[Any]:
    """Return values in 32 bits, if these hold them."""
    limit = float(np.finfo(np.float32).max)
    return values.astype(np.float32) if float(np.abs(values).max(initial=0.0)) < limit else values


def bucketed(samples: Buckets, most: int = MOST_BUCKETS) -> Buckets:
    """Return at most ``most`` buckets: the samples, or those that begin in the same part of the time as one.

    The mean of a bucket is weighted by the durations of its samples, as time between samples was not counted.
    """
    count = len(samples.start)
    if count <= most:
        return samples
    begin = samples.start[0]
    span = max(float(samples.start[-1]) - float(begin), 1.0)
    part = np.minimum(((samples.start - begin) * (most / span)).astype(np.int64), most - 1)
    first = np.flatnonzero(np.diff(part, prepend=-1))
    duration = samples.duration.astype(np.float64)
    weights = np.where(np.add.reduceat(duration, first).repeat(np.diff(first, append=count)) > 0, duration, 1.0)
    last = np.append(first[1:], count) - 1
    return Buckets(
        samples.start[first],
        samples.start[last] + samples.duration[last] - samples.start[first],
        np.add.reduceat(samples.mean * weights, first) / np.add.reduceat(weights, first),
        np.minimum.reduceat(samples.low, first),
        np.maximum.reduceat(samples.high, first),
    )
