"""Databases as profilers write them, put together by hand. Times are in ns."""

import gzip
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import flopscope as fs

Row = dict[str, Any]
HARDWARE = 1 << 48  # the machine, in the high bits of nsys' ids
PUSHED, STARTED, MARK, DOMAIN = 59, 60, 34, 75
RTX3080 = {
    **{"vmId": HARDWARE, "id": 0, "name": "NVIDIA GeForce RTX 3080", "l2CacheSize": 5242880, "smCount": 68},
    **{"totalMemory": 10736893952, "memoryBandwidth": 760080000000, "clockRate": 1710000000, "maxWarpsPerSm": 48},
    **{"threadsPerWarp": 32, "maxBlocksPerSm": 16, "maxThreadsPerBlock": 1024, "maxRegistersPerSm": 65536},
    **{"maxRegistersPerBlock": 65536, "maxShmemPerBlock": 49152, "maxShmemPerSm": 102400, "computeMajor": 8},
    **{"computeMinor": 6, "chipName": "GA102"},
}
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
# Columns that older exports lack.
NEW_COLUMNS = {
    *("greenContextId", "graphId", "clusterX", "clusterY", "clusterZ", "endGlobalTid", "originalGraphNodeId"),
    *("graphNodeId", "srcKind", "dstKind", "memKind", "domainId"),
}


def global_pid(process: int) -> int:
    return HARDWARE | process << 24


def global_tid(process: int, thread: int) -> int:
    return global_pid(process) | thread


class Nsys:
    """An export of Nsight Systems, row by row. ``old``: without the columns and tables of schema 3."""

    def __init__(self, *, old: bool = False, schema: str | None = None) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.strings: dict[str, int] = {}
        self.old = old
        version = schema or ("2.7.1" if old else "3.25.0")
        self.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value=version)
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2021.5.1" if old else "2026.2.1.210")

    def add(self, table: str, **row: Any) -> None:
        self.tables.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, 1000 + 7 * len(self.strings))

    def work(self, table: str, start: int, end: int, correlation: int, process: int, device: int, **more: Any) -> None:
        stream = more.pop("stream", 7)
        ids = {"deviceId": device, "contextId": 1, "streamId": stream, "correlationId": correlation}
        self.add(table, start=start, end=end, **ids | {"globalPid": global_pid(process)} | more)

    def kernel(
        self, name: str, start: int, end: int, correlation: int = 0, process: int = 42, device: int = 0, **more: Any
    ) -> None:
        short = re.split(r"[<(]", name)[0].split()[-1]
        row = {"demangledName": self.string(name), "shortName": self.string(short), "registersPerThread": 32}
        row |= {f"{what}{axis}": size for what, size in (("grid", 68), ("block", 128)) for axis in "X"}
        row |= {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "YZ"}
        row |= {"staticSharedMemory": 1024, "dynamicSharedMemory": 2048, "graphNodeId": None, "greenContextId": None}
        row |= {"graphId": None, "clusterX": 0, "clusterY": 0, "clusterZ": 0}
        self.work(KERNEL, start, end, correlation, process, device, **row | more)

    def copy(self, start: int, end: int, correlation: int = 0, process: int = 42, device: int = 0, **more: Any) -> None:
        row = {"bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2, "graphNodeId": None}
        self.work("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, correlation, process, device, **row | more)

    def fill(self, start: int, end: int, correlation: int = 0, process: int = 42, device: int = 0, **more: Any) -> None:
        row = {"bytes": 64, "value": 0, "memKind": 2, "graphNodeId": None}
        self.work("CUPTI_ACTIVITY_KIND_MEMSET", start, end, correlation, process, device, **row | more)

    def sync(self, start: int, end: int, correlation: int = 0, process: int = 42, kind: int = 3) -> None:
        self.work("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start, end, correlation, process, 0, syncType=kind)

    def call(self, name: str, start: int, end: int, correlation: int = 0, process: int = 42, thread: int = 42) -> None:
        row = {"eventClass": 0, "globalTid": global_tid(process, thread), "correlationId": correlation}
        self.add(RUNTIME, start=start, end=end, **row, nameId=self.string(name), returnValue=0)

    def nvtx(self, name: str, start: int, end: int | None, process: int = 42, thread: int = 42, **more: Any) -> None:
        row = {"text": name, "textId": None, "domainId": 0, "endGlobalTid": None, "eventType": PUSHED}
        self.add("NVTX_EVENTS", start=start, end=end, globalTid=global_tid(process, thread), **row | more)

    def node(self, node: int, start: int, original: int | None = None, process: int = 42, thread: int = 42) -> None:
        row = {"nameId": self.string("Graph Node Creation"), "globalTid": global_tid(process, thread)}
        row |= {"graphNodeId": node, "originalGraphNodeId": original}
        self.add("CUDA_GRAPH_NODE_EVENTS", start=start, end=start + 10, **row)

    def write(self, path: Path) -> Path:
        tables = dict(self.tables)
        tables["StringIds"] = [{"id": place, "value": text} for text, place in self.strings.items()]
        for name, rows in tables.items():
            if self.old:
                tables[name] = [{key: row[key] for key in row if key not in NEW_COLUMNS} for row in rows]
        return write_tables(path, tables)

    def load(self, folder: Path) -> fs.Trace:
        return fs.load_trace(self.write(folder / "x.sqlite"))


def write_tables(path: Path, tables: dict[str, list[Row]]) -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    for table, rows in tables.items():
        columns = list(dict.fromkeys(key for row in rows for key in row)) or ["id", "value"]
        listed = ", ".join(f'"{name}"' for name in columns)
        key = ", PRIMARY KEY(id)" if "id" in columns and len({row.get("id") for row in rows}) == len(rows) else ""
        typed = ", ".join(f'"{name}" INTEGER' if name == "id" else f'"{name}"' for name in columns)
        connection.execute(f'CREATE TABLE "{table}" ({typed}{key})')
        marks = ", ".join("?" * len(columns))
        values = ([row.get(name) for name in columns] for row in rows)
        connection.executemany(f'INSERT INTO "{table}" ({listed}) VALUES ({marks})', values)
    connection.commit()
    connection.close()
    return path


def change(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.commit()
    connection.close()
    return path


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# A trace of torch.profiler as nsys would have recorded the program ----------------------------------------------------

COPIES = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")


def _ns(us: float) -> int:
    return round(us * 1000)


def nvtx_text(event: Row, op_id: int, *, shapes: bool) -> str:
    """Return the text that torch gives to NVTX (torch/csrc/profiler/util.cpp, getNvtxStr)."""
    arguments = event.get("args", {})
    text = event["name"]
    if arguments.get("Sequence number", -1) >= 0:
        text += f", seq = {arguments['Sequence number']}"
    text += f", op_id = {op_id}"
    if shapes and arguments.get("Input Dims"):
        text += f", sizes = {json.dumps(arguments['Input Dims'])}"
    return text


def nsys_of(trace: Path, target: Path, *, shapes: bool = True) -> Path:
    """Write the events of a trace as an export of Nsight Systems."""
    content = json.loads(gzip.decompress(trace.read_bytes()))
    made = Nsys()
    process = next(int(event["pid"]) for event in content["traceEvents"] if event.get("cat") == "cpu_op")
    for op_id, event in enumerate(content["traceEvents"]):
        kind = event.get("cat")
        if event.get("ph") != "X" or kind is None:
            continue
        start, arguments = _ns(event["ts"]), event.get("args", {})
        end, correlation = start + _ns(event["dur"]), arguments.get("correlation", 0)
        if kind in ("cpu_op", "user_annotation"):
            text = nvtx_text(event, op_id, shapes=shapes) if kind == "cpu_op" else event["name"]
            made.nvtx(text, start, end, process, int(event["tid"]))
        elif kind in ("cuda_runtime", "cuda_driver"):
            made.call(f"{event['name']}_v7000", start, end, correlation, process, int(event["tid"]))
        elif kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            where = (start, end, correlation, process, arguments["device"])
            stream = {"stream": arguments["stream"]}
            found = re.fullmatch(r"Memcpy (\w+) \(([\w ]+) -> ([\w ]+)\)", event["name"])
            if kind == "kernel":
                axes = [(what, place, axis) for what in ("grid", "block") for place, axis in enumerate("XYZ")]
                sizes = {f"{what}{axis}": arguments[what][place] for what, place, axis in axes}
                shared = {"staticSharedMemory": 0, "dynamicSharedMemory": arguments["shared memory"]}
                registers = {"registersPerThread": arguments["registers per thread"]}
                made.kernel(event["name"], *where, **stream, **sizes, **shared, **registers)
            elif found:
                kinds = {"srcKind": MEMORIES.index(found[2]), "dstKind": MEMORIES.index(found[3])}
                made.copy(*where, **stream, bytes=arguments["bytes"], copyKind=1 + COPIES.index(found[1]), **kinds)
            else:
                made.fill(*where, **stream, bytes=arguments["bytes"])
    properties = content["deviceProperties"][0]
    facts = {"name": "name", "smCount": "numSms", "totalMemory": "totalGlobalMem"}
    made.add("TARGET_INFO_GPU", id=properties["id"], **{name: properties[of] for name, of in facts.items()})
    return made.write(target)
