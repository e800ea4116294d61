"""Exports of Nsight Systems: ``nsys export --type sqlite``, schemas 2 and 3 (2021 to 2026).

nsys makes a table when its first row is written, and columns have come and gone, so every table and most columns may be
missing. Columns are documented in NVIDIA's "SQLite Schema Reference".
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from flopscope import _core
from flopscope.read.database import (
    Counter,
    Database,
    Query,
    Reading,
    Samples,
    Value,
    columns,
    finished,
    json_object,
    newer_schema,
    rank_of_process,
    read_samples,
)

REPORT = b"NVIDIA Tegra Profiler Report"
"""Begins the files of nsys itself, .nsys-rep and .qdrep."""
EXPORT_SECONDS = 3600
NEWEST_SCHEMA = 3  # major
LONG_CALL = 1_000_000
"""ns from which on a call of the operating system is read: short ones tell nothing about idle time."""

_PROCESS, _THREAD = "{} >> 24 & 16777215", "{} & 16777215"
_PID = Value(("globalPid",), _PROCESS)
_WORK = columns("start", "end", process=_PID, graph_node="graphNodeId")
_WORK |= columns(**{name: f"{name}Id" for name in ("device", "stream", "context", "correlation", "graph")})
_LAUNCH = columns(
    name=("demangledName", "shortName", "mangledName"),
    registers="registersPerThread",
    static_shared="staticSharedMemory",
    dynamic_shared="dynamicSharedMemory",
    **{f"{what}_{axis.lower()}": f"{what}{axis}" for what in ("grid", "block", "cluster") for axis in "XYZ"},
)
_HOST = columns("start", "end", process=Value(("globalTid",), _PROCESS), thread=Value(("globalTid",), _THREAD))
_RANGE = columns("text", name="textId", type="eventType", domain="domainId", payload="binaryData")
_RANGE |= columns(end_thread=Value(("endGlobalTid",), _THREAD))
_TIMES = ("start", "end")

# Tables of libraries' calls. A kernel belongs to the innermost one, unless an op of torch is inside it.
_LIBRARIES = re.compile(r"(CUBLAS|CUDNN|CUFFT|CUSPARSE|CUSOLVER|NCCL|NVSHMEM|MPI(_[A-Z0-9_]+)?|UCP(_[A-Z_]+)?)_EVENTS")

_DEVICE = columns(process="pid", device="cudaId", id="gpuId")
_FIELD = columns("name", "type", domain="domainId", id="schemaId", value="offset")
_FACTS = (
    Query("string", "StringIds", columns("id", name="value"), ("id", "name")),
    Query("device", "TARGET_INFO_CUDA_DEVICE", _DEVICE, ("process", "device", "id")),
    Query("field", "NVTX_PAYLOAD_SCHEMA_ENTRIES", _FIELD, ("domain", "id", "name", "type")),
)
_NAMED = _HOST | columns(name="nameId")
_CALL = _NAMED | columns(correlation="correlationId")
_COPY = _WORK | columns("bytes", copy_kind="copyKind", **{"from": "srcKind", "to": "dstKind"})
_MEMORY = columns("start", "bytes", "address", device="deviceId", correlation="correlationId", process=_PID)
_MEMORY |= columns(type="memoryOperationType", **{"from": "memKind"})
_NODE = _HOST | columns(graph_node="graphNodeId", original="originalGraphNodeId")
_DOMAIN = columns("text", name="textId", domain="domainId", process=Value(("globalTid",), _PROCESS))

# Names of domains are in the table of ranges, which refers to them.
_DOMAINS = Query("domain", "NVTX_EVENTS", _DOMAIN, ("domain",), ("eventType", "= 75"))
_EVENTS = (
    Query("call", "CUPTI_ACTIVITY_KIND_RUNTIME", _CALL, (*_TIMES, "name")),
    Query("call", "CUPTI_ACTIVITY_KIND_DRIVER", _CALL, (*_TIMES, "name")),
    Query("range", "NVTX_EVENTS", _HOST | _RANGE, _TIMES),
    Query("kernel", "CUPTI_ACTIVITY_KIND_KERNEL", _WORK | _LAUNCH, (*_TIMES, "name")),
    Query("copy", "CUPTI_ACTIVITY_KIND_MEMCPY", _COPY, _TIMES),
    Query("fill", "CUPTI_ACTIVITY_KIND_MEMSET", _WORK | columns("bytes", **{"from": "memKind"}), _TIMES),
    Query("sync", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _WORK | columns(type="syncType"), _TIMES),
    Query("replay", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _WORK | columns(graph="graphId"), _TIMES),
    Query("overhead", "PROFILER_OVERHEAD", _NAMED, (*_TIMES, "name")),
    Query("overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD", _NAMED, (*_TIMES, "name")),
    Query("memory", "CUDA_GPU_MEMORY_USAGE_EVENTS", _MEMORY, ("start", "bytes", "type")),
    Query("node", "CUDA_GRAPH_NODE_EVENTS", _NODE, ("start", "graph_node")),
)


@contextmanager
def exported(path: str) -> Iterator[str]:
    import subprocess
    import tempfile

    command = "nsys export --type sqlite --output REPORT.sqlite REPORT.nsys-rep"
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ValueError(
            f"it is a report of Nsight Systems, and nsys, which reads it, is not installed here; where it is, run "
            f"{command} and read the file that it writes"
        )
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        target = os.path.join(folder, "report.sqlite")
        arguments = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", target]
        for more in (["--include-blobs", "true"], []):  # the payloads of ranges, which old versions do not export
            try:
                done = subprocess.run(
                    [*arguments, *more, path], capture_output=True, text=True, timeout=EXPORT_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as problem:
                raise ValueError(f"it is a report of Nsight Systems, and {command} failed: {problem}") from None
            if done.returncode == 0:
                break
        if done.returncode != 0 or not os.path.exists(target):
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise ValueError(f"it is a report of Nsight Systems, and {command} failed: {said[0]}")
        yield target


def is_nsys(database: Database) -> bool:
    """Return whether the tables are those of an export of Nsight Systems."""
    return any(name.startswith(("CUPTI_ACTIVITY_KIND_", "META_DATA_", "TARGET_INFO_")) for name in database.tables)


def read_nsys(
    database: Database, reader: _core.DatabaseReader, store: _core.Store, reading: Reading
) -> tuple[Mapping[str, Any], dict[str, Any], list[str]]:
    """Read the events into a store. Return counts, the metadata of a trace, and notes for the user."""
    facts, devices, start = _facts(database), _devices(database), _start(database)
    database.read(reader, _FACTS, reading)
    database.read(reader, [_DOMAINS], Reading())
    library = partial(Query, "span", columns={**_HOST, "name": Value(("nameId", "textId"))}, needs=(*_TIMES, "name"))
    libraries = [library(table) for table in database.tables if _LIBRARIES.fullmatch(table)]
    database.read(reader, [*_EVENTS, *libraries, *_waits(database)], reading)
    samples = _metrics(database, devices, reading)
    report, metadata = finished("nsys", reader, store, facts, devices, samples, start, accelerator="")
    metadata["nsys"] |= {"tables": dict(reading.rows), "unread": _unread(database, reading)}
    metadata["nsys"] |= {name: report[name] for name in ("marks", "messages")}
    if start:
        metadata["baseTimeNanoseconds"] = start
    if report["processes"] == 1:
        environment = _values(database, "TARGET_INFO_SYSTEM_ENV").get("DeviceEnvironment")
        pairs = (pair.partition("=") for pair in str(environment or "").split(";"))
        metadata |= rank_of_process({name: value for name, _, value in pairs})
    return report, metadata, list(_notes(metadata["nsys"], report))


def _waits(database: Database) -> list[Query]:
    """Return a query of the long calls of the operating system by threads that call CUDA: what they waited for.

    Threads that only wait, as those of a pool, have one call for all of their time, which tells nothing of a device.
    """
    calls = [query.table for query in _EVENTS if query.kind == "call" and query.table in database.tables]
    callers = " UNION ".join(f'SELECT globalTid FROM "{table}"' for table in calls)
    long = f'IN ({callers}) AND "end" - start >= {LONG_CALL}'
    return [Query("span", "OSRT_API", _NAMED, (*_TIMES, "name"), ("globalTid", long))] if calls else []


def _unread(database: Database, reading: Reading) -> dict[str, int]:
    """Return the tables of events that were not used, with their last row numbers, which nsys counts from 1."""
    known = {*reading.rows, "DIAGNOSTIC_EVENT"}
    timed = sorted(name for name, present in database.tables.items() if {"start", "timestamp"} & {*present})
    counts = {name: database.rowid(name, "DESC") or 0 for name in timed if name not in known}
    return {name: count for name, count in counts.items() if count > 0}


def _notes(nsys: Mapping[str, Any], report: Mapping[str, Any]) -> Iterable[str]:
    yield from newer_schema(nsys["schema"], NEWEST_SCHEMA)
    if not report["events"]:
        yield "it has no kernels, API calls or ranges; record with nsys profile --trace=cuda,nvtx,cublas"
    if report["replays"]:
        yield (
            f"{report['replays']:,} replays of CUDA graphs have no record of their kernels; record with "
            f"nsys profile --cuda-graph-trace=node"
        )
    if report["unsized"] and not report["messages"]:
        yield (
            f"its ranges of NCCL have no sizes ({report['unsized']:,} calls), so bandwidths are unknown; export with "
            f"nsys export --type sqlite --include-blobs=true"
        )
    left = report["graph_work"] - report["captured"]
    if left > 0 and report["captured"]:
        yield f"{left:,} kernels of CUDA graphs have no record of their capture; they belong to the graph's launch"


# Metadata -------------------------------------------------------------------------------------------------------------

# Kineto's names of the properties, from those of TARGET_INFO_GPU.
_SAME = (
    *("id", "name", "computeMajor", "computeMinor", "maxThreadsPerBlock", "memoryBandwidth", "clockRate"),
    *("l2CacheSize", "chipName", "busLocation", "uuid"),
)
_PROPERTIES = {
    **{name: name for name in _SAME},
    **{"totalGlobalMem": "totalMemory", "warpSize": "threadsPerWarp", "numSms": "smCount"},
    **{"regsPerBlock": "maxRegistersPerBlock", "regsPerMultiprocessor": "maxRegistersPerSm"},
    **{"sharedMemPerBlock": "maxShmemPerBlock", "sharedMemPerBlockOptin": "maxShmemPerBlockOptin"},
    **{"sharedMemPerMultiprocessor": "maxShmemPerSm", "maxBlocksPerMultiprocessor": "maxBlocksPerSm"},
}


def _values(database: Database, table: str) -> dict[str, Any]:
    return {str(row.get("name")): row.get("value") for row in database.facts(table, "name", "value")}


def _facts(database: Database) -> dict[str, Any]:
    export = _values(database, "META_DATA_EXPORT")
    return {
        "version": export.get("EXPORT_PRODUCT_VERSION"),
        "schema": export.get("EXPORT_SCHEMA_VERSION"),
        "cuda_graph_trace": _values(database, "META_DATA_CAPTURE").get("CUDA_GRAPH_TRACE_OPTIONS:MODE"),
    }


def _start(database: Database) -> int:
    """Return the Unix time in ns that times count from; 0 if it is unknown."""
    start = next(iter(database.facts("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")), {}).get("utcEpochNs")
    return start if isinstance(start, int) and 0 < start < 1 << 62 else 0


def _devices(database: Database) -> list[dict[str, Any]]:
    """Return the properties of the devices under Kineto's names."""
    rows = database.facts("TARGET_INFO_GPU") or database.facts("TARGET_INFO_CUDA_GPU") or _gpus_of_system(database)
    devices = []
    for row in rows:
        device = {name: row[source] for name, source in _PROPERTIES.items() if row.get(source) is not None}
        warps, threads = row.get("maxWarpsPerSm"), row.get("threadsPerWarp")
        if isinstance(warps, int) and isinstance(threads, int):
            device["maxThreadsPerMultiProcessor"] = device["maxThreadsPerMultiprocessor"] = warps * threads
        if isinstance(device.get("id"), int):
            devices.append(device)
    return devices


def _gpus_of_system(database: Database) -> list[dict[str, Any]]:
    """Return rows like those of TARGET_INFO_GPU from the JSON that describes the system."""
    gpus = json_object(_values(database, "TARGET_INFO_SYSTEM_ENV").get("GpuInfo")).get("Gpus")
    found = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    return [{f"{name[:1].lower()}{name[1:]}": _number(value) for name, value in gpu.items()} for gpu in found]


def _number(value: object) -> object:
    """Return the number that a text is; large ones are texts in JSON."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19 else value


# GPU metrics (--gpu-metrics-devices) ----------------------------------------------------------------------------------
#
# nsys samples throughputs in percent of the peak and numbers them differently for each GPU, so they are found by their
# names. Those of the memory become bytes by the bandwidth that TARGET_INFO_GPU gives.

# The metric of the store, the name that nsys gives, and whether it is a share of the memory's bandwidth. Names have a
# unit in brackets, "[Throughput %]", and on some GPUs a prefix or a suffix.
_METRICS = (
    ("dram_bytes_read", re.compile(r"DRAM Read (Bandwidth|Throughput)\b"), True),
    ("dram_bytes_written", re.compile(r"DRAM Write (Bandwidth|Throughput)\b"), True),
    ("sm_active", re.compile(r"SMs? Active\b"), False),
    ("issue_active", re.compile(r"SM Issue\b"), False),
    ("tensor_active", re.compile(r"Tensor (Pipe |Core )?Active\b"), False),
)


def _metrics(database: Database, devices: Sequence[Mapping[str, Any]], reading: Reading) -> list[Samples]:
    """Read the samples of the metrics that tables have columns for."""
    counters = _metric_counters(database, {device.get("id"): device.get("memoryBandwidth") for device in devices})
    listed = ", ".join(str(metric) for metric in sorted({metric for _, metric in counters}))
    samples = columns(end="timestamp", device=Value(("typeId",), "{} & 255"), id=("metricId", "id"), value="value")
    column = "metricId" if "metricId" in database.tables.get("GPU_METRICS", ()) else "id"
    query = Query("metric", "GPU_METRICS", samples, ("end", "id", "value"), (column, f"IN ({listed})"))
    return read_samples(database, [query], counters, reading) if counters else []


def _metric_counters(database: Database, bandwidths: Mapping[Any, Any]) -> dict[tuple[int, int], Counter]:
    """Return the metrics to read, by device and the id that nsys gives. Shares of an unknown bandwidth are left out."""
    counters: dict[tuple[int, int], Counter] = {}
    for row in database.facts("TARGET_INFO_GPU_METRICS"):
        name, metric = (row.get(f"metric{key}", row.get(key.lower())) for key in ("Name", "Id"))
        device = row.get("typeId", 0)
        if not isinstance(name, str) or not isinstance(metric, int) or not isinstance(device, int):
            continue
        place = device & 255
        for ours, pattern, of_memory in _METRICS:
            bandwidth = bandwidths.get(place)
            if pattern.search(name) and (not of_memory or (isinstance(bandwidth, int) and bandwidth > 0)):
                rate = float(bandwidth or 0) if of_memory else 1
                counters.setdefault((place, metric), Counter(ours, rate, of_memory))
    return counters
