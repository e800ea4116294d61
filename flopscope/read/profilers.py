"""What files of other profilers have in common: properties of devices, ranks, and counters, as the samples that tables
divide among kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope import _core
from flopscope.read.database import Database, Query, Reading
from flopscope.support.core_facts import UNKNOWN_TIME
from flopscope.support.process import rank_in

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


_INDICES = ("type_index", "logical_node_type_id", "logical_index")


def json_object(text: object) -> dict[str, Any]:
    """Parse a JSON object (untrusted); empty if it is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def newer_schema(schema: object, newest: int) -> Iterator[str]:
    """Yield a note if a schema, a text with the major version first, is newer than the newest that is known."""
    major = re.match(r"\d+", str(schema))
    if major and int(major[0]) > newest:
        yield f"its schema is {schema}, newer than {newest}.x: only what this version knows was read"


def finished(
    profiler: str,
    reader: _core.DatabaseReader,
    store: _core.Store,
    facts: dict[str, Any],
    devices: Sequence[Mapping[str, Any]],
    samples: Sequence[Samples],
    base_time: int = 0,
    *,
    accelerator: str = "hip",
) -> tuple[dict[str, int], dict[str, Any]]:
    """Put the events and samples into the store. Return counts, and the metadata of a trace.

    ``facts`` are the member of the metadata that has the name of the profiler. accelerator: "": not told.
    """
    head = {"deviceProperties": devices} | ({"accelerator": accelerator} if accelerator else {})
    report = reader.finish(store, json.dumps(head).encode(), base_time)
    counts = {"samples": add_samples(store, samples), "unmatched_frees": report["unmatched_frees"]}
    metadata: dict[str, Any] = {profiler: facts | counts}
    if devices:
        metadata["deviceProperties"] = devices
    if report["changes"]:
        metadata["profile_memory"] = True
    return report, metadata


def rank_of_process(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return "distributedInfo" from the environment of a process; empty if it names no rank."""
    rank = rank_in(environment)
    return {"distributedInfo": rank} if rank is not None and "world_size" in rank else {}


def properties_of(agent: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a GPU under Kineto's names, from rocprofv3's agent and its details (untrusted)."""
    named = {**details, **{name: value for name, value in agent.items() if value is not None}}
    version = named.get("gfx_target_version")
    banks = named.get("mem_banks")
    sizes = [bank.get("size_in_bytes") for bank in banks if isinstance(bank, dict)] if isinstance(banks, list) else []
    found = {
        "id": next((number for number in map(named.get, _INDICES) if isinstance(number, int)), None),
        "name": next((named[key] for key in ("product_name", "model_name", "name") if named.get(key)), None),
        "totalGlobalMem": sum(size for size in sizes if isinstance(size, int)) or None,
        "computeMajor": version // 10000 if isinstance(version, int) else None,
        "computeMinor": version // 100 % 100 if isinstance(version, int) else None,
        "warpSize": named.get("wave_front_size"),
        "numSms": named.get("cu_count"),
        "maxThreadsPerBlock": named.get("workgroup_max_size"),
        "architecture": named.get("name"),
    }
    return {name: value for name, value in found.items() if value is not None}


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
