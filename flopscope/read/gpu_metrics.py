"""GPU metrics of Nsight Systems (``--gpu-metrics-devices``).

nsys samples throughputs in percent of the peak and numbers them differently for each GPU, so they are found by their
names. Those of the memory become bytes by the bandwidth that TARGET_INFO_GPU gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flopscope.read.counters import Counter, Samples, read_samples
from flopscope.read.database import Database, Query, Reading, Value, columns

# The metric of the store, the name that nsys gives, and whether it is a share of the memory's bandwidth. Names have a
# unit in brackets, "[Throughput %]", and on some GPUs a prefix or a suffix.
_NAMES = (
    ("dram_bytes_read", re.compile(r"DRAM Read (Bandwidth|Throughput)\b"), True),
    ("dram_bytes_written", re.compile(r"DRAM Write (Bandwidth|Throughput)\b"), True),
    ("sm_active", re.compile(r"SMs? Active\b"), False),
    ("issue_active", re.compile(r"SM Issue\b"), False),
    ("tensor_active", re.compile(r"Tensor (Pipe |Core )?Active\b"), False),
)
_DEVICE = Value(("typeId",), "{} & 255")


def read_metrics(database: Database, devices: Sequence[Mapping[str, Any]], reading: Reading) -> list[Samples]:
    """Read the samples of the metrics that tables have columns for."""
    counters = _counters(database, {device.get("id"): device.get("memoryBandwidth") for device in devices})
    listed = ", ".join(str(metric) for metric in sorted({metric for _, metric in counters}))
    samples = columns(end="timestamp", device=_DEVICE, id=("metricId", "id"), value="value")
    column = "metricId" if "metricId" in database.tables.get("GPU_METRICS", ()) else "id"
    query = Query("metric", "GPU_METRICS", samples, ("end", "id", "value"), (column, f"IN ({listed})"))
    return read_samples(database, [query], counters, reading) if counters else []


def _counters(database: Database, bandwidths: Mapping[Any, Any]) -> dict[tuple[int, int], Counter]:
    """Return the metrics to read, by device and the id that nsys gives. Shares of an unknown bandwidth are left out."""
    counters: dict[tuple[int, int], Counter] = {}
    for row in database.facts("TARGET_INFO_GPU_METRICS"):
        name, metric = (row.get(f"metric{key}", row.get(key.lower())) for key in ("Name", "Id"))
        device = row.get("typeId", 0)
        if not isinstance(name, str) or not isinstance(metric, int) or not isinstance(device, int):
            continue
        place = device & 255
        for ours, pattern, of_memory in _NAMES:
            bandwidth = bandwidths.get(place)
            if pattern.search(name) and (not of_memory or (isinstance(bandwidth, int) and bandwidth > 0)):
                rate = float(bandwidth or 0) if of_memory else 1
                counters.setdefault((place, metric), Counter(ours, rate, of_memory))
    return counters
