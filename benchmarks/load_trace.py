"""Reading a recorded trace: fs.load_trace(file) and its table, compared with JSON parsers that only parse.

The trace has 200 000 calls of a small add with shapes, their API calls, kernels and flows: one million events, about
290 MB, written here in Kineto's format. Every sample reads the file from the page cache. "peak" is the increase of peak
resident memory in a separate process. Ratios are of samples taken in turns. Targets that depend on the number of
processors are those for 16 and more, or for two.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import Report, arguments, cost_of, interleave, optional, ratio, spread, timed

import flopscope as fs

CALLS, ROUNDS = 200_000, 5
SIZES = (2_000, 20_000, 200_000, 2_000_000)  # calls; five events each
MANY = 16  # processors from which on the targets for many of them hold
LOAD, TABLE, TO_TABLE = "flopscope: load", "flopscope: its table", "flopscope: to a table"
KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
  "record_shapes": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
EVENTS = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 403, "tid": 403, "ts": %s, "dur": 9.%03d,
    "args": {
      "External id": %d, "Sequence number": %d, "Fwd thread id": 0, "Record function id": 0, \
"Concrete Inputs": ["", "", "1"], "Input type": ["float", "float", "Scalar"], \
"Input Strides": [[%d, 1], [%d, 1], []], "Input Dims": [[64, %d], [64, %d], []], "Ev Idx": %d
    }
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 403, "tid": 403, "ts": %s, "dur": 4.2,
    "args": {"External id": %d, "cbid": 211, "correlation": %d}
  },
  {
    "ph": "s", "id": %d, "pid": 403, "tid": 403, "ts": %s, "cat": "ac2g", "name": "ac2g"
  },
  {
    "ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7, "ts": %s, "dur": 1.216,
    "args": {
      "External id": %d, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": %d, \
"registers per thread": 22, "shared memory": 0, "blocks per SM": 0.030303, "warps per SM": 0.121212, \
"grid": [4, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %%": 0
    }
  },
  {
    "ph": "f", "id": %d, "pid": 0, "tid": 7, "ts": %s, "cat": "ac2g", "name": "ac2g", "bp": "e"
  }"""


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["reading", "seconds", "low", "high", "MB/s", "peak MB", "ours / it"]
    report = Report("load_trace", columns, options.out, options.device)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = write(Path(folder) / "trace.json", CALLS)
        check(path)
        plain(report, path)
        compressed(report, path)
        path.unlink()
        by_size(report, Path(folder))
    report.finish()


def texts(calls: int) -> Iterator[str]:
    for i in range(calls):
        start, op, link, width = 4_359_896_695_937_531 + i * 12_345, 1000 + i, 9_000_000 + i, 64 + i % 16
        at, launch, run = (f"{ns // 1000}.{ns % 1000:03d}" for ns in (start, start + 3000, start + 9100))
        yield EVENTS % (
            *(at, i % 700, op, i, width, width, width, width, i, launch, op, link, link, launch, KERNEL),
            *(run, op, link, link, run),
        )


def write(path: Path, calls: int) -> Path:
    with path.open("w") as file:
        file.write(HEAD)
        for i, text in enumerate(texts(calls)):
            file.write(",\n" * (i > 0) + text)
        file.write('\n  ],\n  "traceName": "trace.json"\n}\n')
    return path


def check(path: Path) -> None:
    """Check that the rows match the events read by Python's own parser."""
    with path.open() as file:
        events = json.load(file)["traceEvents"]
    counts: dict[str, int] = {}
    for event in events:
        if event["ph"] == "X":
            counts[event["name"]] = counts.get(event["name"], 0) + 1
    rows = fs.load_trace(path).key_averages(peaks="none")
    assert {row.key: row.count for row in rows} == counts
    kernels = sum(round(1000 * event["dur"]) for event in events if event.get("cat") == "kernel")
    assert round(1000 * rows.self_device_time_total) == kernels
    del events
    gc.collect()


def table_of(path: Path) -> None:
    fs.load_trace(path).key_averages(group_by_input_shape=True, peaks="none")


def cost_of_table(path: Path) -> Callable[[], float]:
    """Return a sampler of the first table of a trace that was just read."""

    def sample() -> float:
        trace = fs.load_trace(path)
        return timed(lambda: trace.key_averages(group_by_input_shape=True, peaks="none"))()

    return sample


def readers(path: Path) -> dict[str, Callable[[], object]]:
    result: dict[str, Callable[[], object]] = {TO_TABLE: lambda: table_of(path), LOAD: lambda: fs.load_trace(path)}
    orjson, simdjson = optional("orjson"), optional("simdjson")
    if simdjson is not None:
        result["pysimdjson: parse"] = lambda: simdjson.Parser().parse(path.read_bytes())
    if orjson is not None:
        result["orjson.loads"] = lambda: orjson.loads(path.read_bytes())
    result["json.load"] = lambda: load_json(path)
    return result


def load_json(path: Path) -> Any:
    with path.open("rb") as file:
        return json.load(file)


def plain(report: Report, path: Path) -> None:
    size = path.stat().st_size
    samplers = {name: timed(call) for name, call in readers(path).items()} | {TABLE: cost_of_table(path)}
    samples = interleave(samplers, ROUNDS, warmup=1)
    report.keep("plain", samples, ours="flopscope", bytes=size)
    ours = samples[TO_TABLE]
    for name, values in samples.items():
        peak = None if name == TABLE else cost_of("load_trace", path, name)[0] / 1e6
        show(report, name, values, size, ours, peak)
        if name == TO_TABLE and peak is not None:
            report.target("peak memory over the file's size", peak / (size / 1e6), 0.30, "x")
    if many():
        report.target("file to store", spread(samples[LOAD]).median, 0.09, "s")
        report.target("store to table", spread(samples[TABLE]).median, 0.015, "s")
    else:
        report.target("file to table", spread(ours).median, 0.22, "s")
    report.target("to a table over json.load alone", ratio(ours, samples["json.load"]).median, 1 / 48, "x")
    if "pysimdjson: parse" in samples:
        report.target("to a table over pysimdjson's parse", ratio(ours, samples["pysimdjson: parse"]).median, 1, "x")


def many() -> bool:
    return len(os.sched_getaffinity(0)) >= MANY


def show(report: Report, name: str, values: list[float], size: int, ours: list[float], peak: float | None) -> None:
    rate = f"{size / spread(values).median / 1e6:.0f}"
    memory = "" if peak is None else f"{peak:.0f}"
    report.row(name, *spread(values).cells(3), rate, memory, f"{ratio(ours, values).median:.3f}")


def compressed(report: Report, path: Path) -> None:
    packed = path.with_suffix(".json.gz")
    with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    size = path.stat().st_size
    fastest = None
    for name in ("isal.isal_zlib", "zlib"):  # from the fastest to the slowest
        library = optional(name)
        if library is None:
            report.note(f"{name} is not installed: no row for it.")
            continue
        fastest = fastest or name
        cases = {
            f"flopscope: .json.gz to a table, {name}": timed(partial(table_with, packed, library)),
            f"{name}: decompress alone": timed(partial(decompress, packed, library)),
        }
        samples = interleave(cases, ROUNDS, warmup=1)
        report.keep("compressed", samples, ours="flopscope", bytes=size, compressed_bytes=packed.stat().st_size)
        ours, alone = samples.values()
        for who, values in samples.items():
            show(report, who, values, size, ours, None)
        if name == fastest:
            report.target(f"compressed file to table over {name} alone", ratio(ours, alone).median, 1.2, "x")
    packed.unlink()


def table_with(path: Path, library: Any) -> None:
    """Build a table with the library's decompression, whichever libraries are installed."""
    input._found["gzip"] = library, input.Zlib
    try:
        table_of(path)
    finally:
        input._found.clear()


def decompress(path: Path, library: Any) -> None:
    stream = library.decompressobj(wbits=31)
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            while data:
                stream.decompress(data, 4 << 20)
                data = stream.unconsumed_tail


def by_size(report: Report, folder: Path) -> None:
    costs = {}
    for calls in SIZES:
        path = write(folder / "size.json", calls)
        rounds = 3 if calls > CALLS else 10
        values = interleave({"flopscope": timed(lambda path=path: table_of(path))}, rounds, warmup=1)["flopscope"]
        report.keep("by size", {"flopscope": values}, events=5 * calls, bytes=path.stat().st_size)
        costs[calls] = spread(values).median / (5 * calls)
        name = f"flopscope: {5 * calls:,} events, {1e9 * costs[calls]:.0f} ns each"
        show(report, name, values, path.stat().st_size, values, None)
        path.unlink()
    if many():
        report.target("10 M events to a table", 5 * SIZES[-1] * costs[SIZES[-1]], 0.9, "s")
    worst = max(costs.values()) / min(costs.values())
    report.target("ns per event, highest over lowest of all sizes", worst, 1.15, "x")


if __name__ == "__main__":
    main()
