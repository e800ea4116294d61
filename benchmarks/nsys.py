"""Reading an export of Nsight Systems: fs.load_trace(file) and its table, compared with pandas and SQL.

The export has a million kernels and two million API calls, about 165 MB, written here with the columns of schema 3.25.
pandas.read_sql reads the columns that the table needs, and joins each kernel to its call; the SQL is that of the report
of kernels in `nsys stats` (cuda_gpu_kern_sum, without medians). Every sample reads the file from the page cache.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Report, arguments, cost_of, interleave, optional, ratio, spread, timed

import flopscope as fs
from flopscope.read import database

KERNELS, ROUNDS = 1_000_000, 3
NAMES = 200
PROCESS = 1 << 48 | 4242 << 24
KERNEL_COLUMNS = (
    *("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid"),
    *("demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread", "gridX", "gridY"),
    *("gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread"),
    *("localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId", "sharedMemoryLimitConfig", "graphId"),
    *("clusterX", "clusterY", "clusterZ"),
)
CALL_COLUMNS = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId")
KERNEL_TABLE, CALL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
SUMMARY = f"""
    SELECT s.value, count(*), sum(k.end - k.start), avg(k.end - k.start), min(k.end - k.start), max(k.end - k.start)
    FROM {KERNEL_TABLE} AS k LEFT JOIN StringIds AS s ON s.id = k.demangledName GROUP BY k.demangledName
"""


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["reading", "seconds", "low", "high", "CPU s", "bytes/event", "ours / it"]
    report = Report("nsys", columns, options.out, options.device)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = write(Path(folder) / "capture.sqlite", KERNELS)
        check(path)
        samples = interleave({name: timed(call) for name, call in readers(path).items()}, ROUNDS, warmup=1)
        report.keep("capture", samples, ours="flopscope", bytes=path.stat().st_size, kernels=KERNELS)
        ours = samples["flopscope: to a table"]
        for name, values in samples.items():
            peak, cpu = cost_of("nsys", path, name)
            an_event = peak / (3 * KERNELS)
            cells = f"{cpu:.3f}", f"{an_event:.0f}", f"{ratio(ours, values).median:.3f}"
            report.row(name, *spread(values).cells(3), *cells)
            if values is ours:
                report.target("file to table, fastest of the samples", min(values), 2, "s")
                report.target("peak memory per event", an_event, 150, "bytes")
    report.note(f"SQLite {sqlite3.sqlite_version}; the core uses its library: {database._library()}")
    report.finish()


def write(path: Path, kernels: int) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
        f"CREATE TABLE {KERNEL_TABLE} ({', '.join(f'{name} INTEGER' for name in KERNEL_COLUMNS)});"
        f"CREATE TABLE {CALL_TABLE} ({', '.join(f'{name} INTEGER' for name in CALL_COLUMNS)});"
    )
    names = [(1000 + i, f"void kernel_{i}<float, {i}>(float*, int)") for i in range(NAMES)]
    names += [(1, "cudaLaunchKernel_v7000"), (2, "cudaEventRecord_v3020")]
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
    launch = ("launchType", 1), ("cacheConfig", 1), ("registersPerThread", 32), ("gridY", 1), ("gridZ", 1)
    fixed: dict[str, Any] = dict(launch) | {"blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 0}
    fixed |= {"dynamicSharedMemory": 1024, "localMemoryPerThread": 0, "localMemoryTotal": 250871808}
    fixed |= {"deviceId": 0, "contextId": 1, "globalPid": PROCESS, "clusterX": 0, "clusterY": 0, "clusterZ": 0}

    def kernel(i: int) -> list[Any]:
        start, name = 10_000 + 4_000 * i, 1000 + i % NAMES
        row = fixed | {"start": start, "end": start + 3_000 + i % 7, "streamId": 7 + i % 3, "correlationId": 2 * i + 1}
        row |= {"demangledName": name, "shortName": name, "mangledName": name, "gridX": 1 + i % 500, "gridId": i}
        return [row.get(column) for column in KERNEL_COLUMNS]

    marks = ", ".join("?" * len(KERNEL_COLUMNS))
    connection.executemany(f"INSERT INTO {KERNEL_TABLE} VALUES ({marks})", map(kernel, range(kernels)))
    calls = ((2000 * i, 2000 * i + 1500, 0, PROCESS | 4242, i + 1, 1 + i % 2, 0, None) for i in range(2 * kernels))
    connection.executemany(f"INSERT INTO {CALL_TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", calls)
    connection.commit()
    connection.close()
    return path


def check(path: Path) -> None:
    """Check that the rows match the sums by SQL."""
    rows = {row.key: row for row in fs.load_trace(path).key_averages(peaks="none")}
    kernels = summarized(path)
    assert len(kernels) == NAMES
    for name, count, ns, *_ in kernels:
        assert (rows[name].count, round(1000 * rows[name].self_device_time_total)) == (count, ns)
    assert rows["cudaLaunchKernel"].count == rows["cudaEventRecord"].count == KERNELS


def summarized(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(SUMMARY).fetchall()
    finally:
        connection.close()


def table_of(path: Path) -> None:
    fs.load_trace(path).key_averages(peaks="none")


def table_by_python(path: Path) -> None:
    database._found = False
    try:
        table_of(path)
    finally:
        database._found = None


def by_pandas(path: Path, pandas: Any, *, join: bool) -> None:
    connection = sqlite3.connect(path)
    columns = "start, end, deviceId, streamId, correlationId, globalPid, demangledName, gridX, blockX"
    kernels = pandas.read_sql(f"SELECT {columns} FROM {KERNEL_TABLE}", connection)
    calls = pandas.read_sql(f"SELECT start, end, globalTid, correlationId, nameId FROM {CALL_TABLE}", connection)
    names = pandas.read_sql("SELECT id, value FROM StringIds", connection)
    connection.close()
    if join:
        calls["globalPid"] = calls.globalTid // (1 << 24) * (1 << 24)
        joined = kernels.merge(calls, on=["correlationId", "globalPid"], how="left", suffixes=("", "_call"))
        joined = joined.merge(names, left_on="demangledName", right_on="id")
        joined["time"] = joined.end - joined.start
        joined.groupby("value").time.agg(["count", "sum", "mean", "min", "max"])


def readers(path: Path) -> dict[str, Callable[[], object]]:
    result: dict[str, Callable[[], object]] = {
        "flopscope: to a table": lambda: table_of(path),
        "flopscope: by Python's sqlite3": lambda: table_by_python(path),
        "SQL: sums of kernels alone": lambda: summarized(path),
    }
    pandas = optional("pandas")
    if pandas is not None:
        result["pandas.read_sql"] = lambda: by_pandas(path, pandas, join=False)
        result["pandas.read_sql and join"] = lambda: by_pandas(path, pandas, join=True)
    return result


if __name__ == "__main__":
    main()
