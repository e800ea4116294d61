"""GPU metrics of Nsight Systems (``--gpu-metrics-devices``) as samples of counters, which tables divide among kernels.

nsys numbers the metrics differently for each GPU, so they are found by their names. Throughputs are percentages of the
peak: those of the memory become bytes by the bandwidth that TARGET_INFO_GPU gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope import _core
from flopscope.sources.database import Database, Query, Reading, Value, columns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Samples", "read_metrics"]

# The metric of the store, the name that nsys gives, and whether it is a share of the memory's bandwidth. Names have a
# unit in brackets, "[Throughput %]", and on some GPUs a prefix or a suffix.
_NAMES = (
    ("dram_bytes_read", re.compile(r"DRAM Read (Bandwidth|Throughput)\b"), True),
    ("dram_bytes_written", re.compile(r"DRAM Write (Bandwidth|Throughput)\b"), True),
    ("sm_active", re.compile(r"SMs? Active\b"), False),
    ("tensor_active", re.compile(r"Tensor (Pipe |Core )?Active\b"), False),
)
GAP = 3  # intervals between two samples, above which the time between them was not counted
_DEVICE = Value(("typeId",), "{} & 255")


class Samples(NamedTuple):
    """Samples of a metric of a device: what was counted from each start to its end, ns."""

    device: int
    metric: str
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


def read_metrics(
    database: Database, devices: list[Mapping[str, Any]], store: _core.Store, reading: Reading
) -> list[Samples]:
    """Read the samples of the metrics that tables have columns for, and add them to the store if it takes samples."""
    wanted = _wanted(database)
    if not wanted:
        return []
    reader = _core.DatabaseReader()
    listed = ", ".join(str(metric) for metric in sorted({metric for _, metric in wanted}))
    samples = columns(start="timestamp", device=_DEVICE, id=("metricId", "id"), value="value")
    column = "metricId" if "metricId" in database.tables.get("GPU_METRICS", ()) else "id"
    query = Query("metric", "GPU_METRICS", samples, ("start", "id", "value"), (column, f"IN ({listed})"))
    database.read(reader, [query], reading)
    bandwidths = {device.get("id"): device.get("memoryBandwidth") for device in devices}
    found = list(_tracks(reader, wanted, bandwidths))
    add: Callable[..., object] | None = getattr(store, "add_samples", None)
    if add is not None:
        for one in found:
            add(*one)
    return found


def _wanted(database: Database) -> dict[tuple[int, int], tuple[str, bool]]:
    """Return the metrics to read, by device and the id that nsys gives them."""
    wanted: dict[tuple[int, int], tuple[str, bool]] = {}
    for row in database.facts("TARGET_INFO_GPU_METRICS"):
        name, metric = (row.get(f"metric{key}", row.get(key.lower())) for key in ("Name", "Id"))
        device = row.get("typeId", 0)
        if not isinstance(name, str) or not isinstance(metric, int) or not isinstance(device, int):
            continue
        for ours, pattern, of_memory in _NAMES:
            if pattern.search(name) and (device & 255, metric) not in wanted:
                wanted[device & 255, metric] = ours, of_memory
    return wanted


def _tracks(
    reader: _core.DatabaseReader, wanted: Mapping[tuple[int, int], tuple[str, bool]], bandwidths: Mapping[Any, Any]
) -> list[Samples]:
    import numpy as np

    device, metric, time, value = reader.metrics()
    found = []
    if not len(time):
        return []
    changes = np.flatnonzero((np.diff(device) != 0) | (np.diff(metric) != 0)) + 1
    for places in np.split(np.arange(len(time)), changes):
        place = int(device[places[0]])
        name, of_memory = wanted.get((place, int(metric[places[0]])), ("", False))
        bandwidth = bandwidths.get(place)
        if not name or len(places) < 2 or (of_memory and not isinstance(bandwidth, int)):
            continue
        end, share = time[places], value[places]
        interval = max(int(np.median(np.diff(end))), 1)
        start = np.concatenate([[end[0] - interval], end[:-1]])
        start = np.where(end - start > GAP * interval, end - interval, start)
        amount = share / 100 * float(bandwidth or 0) * (end - start) / 1e9 if of_memory else share
        found.append(Samples(place, name, np.ascontiguousarray(start), np.ascontiguousarray(end), amount))
    return found
