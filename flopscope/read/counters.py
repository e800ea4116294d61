"""Counters in files of other profilers, as the samples that tables divide among kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flopscope import _core
from flopscope.read.database import Database, Query, Reading
from flopscope.support.core_facts import UNKNOWN_TIME

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

GAP = 3  # intervals between two samples, above which the time between them was not counted


class Counter(NamedTuple):
    """A counter of a file: the metric of the store, and what its values are multiplied by.

    ``rate``: values are shares of a rate, in percent, and ``factor`` is that rate per second.
    """

    metric: str
    factor: float = 1
    rate: bool = False


# Counters of kernels, derived by rocprofv3 (its counter_defs.yaml): kilobytes, and shares in percent.
ROCM = {
    "FETCH_SIZE": Counter("dram_bytes_read", 1024),
    "WRITE_SIZE": Counter("dram_bytes_written", 1024),
    "MfmaUtil": Counter("tensor_active"),
    "VALUBusy": Counter("fma_active"),
}


class Samples(NamedTuple):
    """Samples of a metric of a device: what was counted from each start to its end, ns."""

    device: int
    metric: str
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


def read_samples(
    database: Database, queries: Sequence[Query], counters: Mapping[tuple[int, int], Counter], reading: Reading
) -> list[Samples]:
    """Read samples by queries of the kind "metric". ``counters``: by device and the id that the file gives them."""
    import numpy as np

    reader, found = _core.DatabaseReader(), []
    database.read(reader, queries, reading)
    device, metric, start, end, value = reader.metrics()
    changes = np.flatnonzero((np.diff(device) != 0) | (np.diff(metric) != 0)) + 1
    for places in np.split(np.arange(len(end)), changes) if len(end) else ():
        place = int(device[places[0]])
        counter = counters.get((place, int(metric[places[0]])))
        if counter is None:
            continue
        starts = _starts(start[places], end[places])
        amount = value[places] * counter.factor
        if counter.rate:
            amount = amount / 100 * (end[places] - starts) / 1e9
        found.append(Samples(place, counter.metric, starts, np.ascontiguousarray(end[places]), amount))
    return found


def add_samples(store: _core.Store, samples: Sequence[Samples]) -> dict[str, int]:
    """Add samples to a store. Return their counts by device and metric."""
    for one in samples:
        store.add_samples(*one)
    return {f"cuda:{one.device} {one.metric}": len(one.value) for one in samples}


def _starts(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the starts; one that is missing is the end before it, or an interval before its own end after a gap."""
    import numpy as np

    missing = start == UNKNOWN_TIME
    if not missing.any():
        return np.ascontiguousarray(start)
    interval = max(int(np.median(np.diff(end))), 1) if len(end) > 1 else 1
    before = np.concatenate([[end[0] - interval], end[:-1]])
    before = np.where(end - before > GAP * interval, end - interval, before)
    return np.ascontiguousarray(np.where(missing, before, start))
