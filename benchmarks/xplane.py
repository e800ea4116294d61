"""Reading a recording of XLA's profiler: fs.load_trace(file), compared with JAX's and xprof's readers.

The file is an xplane.pb of about 100 MB, written here with the stats that XLA writes: kernels of a GPU with their
details and instructions, API calls, ranges, and calls of Python. jax.profiler.ProfileData, which is lazy, is asked for
what a table of kernels needs: the name and the duration of each event; xprof makes its tables of kernels and of HLO.
Their Python is that of --peer; without it flopscope is measured alone. Every sample reads the file from the page cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT, Report, arguments, cost_of, interleave, ratio, spread, timed

import flopscope as fs

sys.path.insert(0, str(ROOT / "tests"))
from helpers.protobufs import GPU_STATS, Plane, Ref, environment, field, kernel_details, message, space

BYTES, ROUNDS = 100 << 20, 5
TABLE = "flopscope: to a table"
KERNEL_NAMES, DIGITS = 200, 7  # bytes of a number of seven bits each

PEER = """
import pathlib, sys, time
path, what = sys.argv[1:3]
if what == "jax":
    from jax.profiler import ProfileData
    def read():
        sums = {}
        for plane in ProfileData.from_file(path).planes:
            for line in plane.lines:
                for event in line.events:
                    sums[event.name] = sums.get(event.name, 0) + event.duration_ns
        return len(sums)
else:
    from xprof.convert import raw_to_tool_data
    def read():
        return len(raw_to_tool_data.xspace_to_tool_data([path], "kernel_stats", {})[0])
for _ in range(int(sys.argv[3])):
    for made in pathlib.Path(path).parent.glob("*op_stats*"):  # which xprof would read instead of the recording
        made.unlink()
    start = time.perf_counter()
    read()
    print(time.perf_counter() - start)
"""


def main() -> None:
    options = arguments(__doc__ or "", extend=extend)
    report = Report("xplane", ["reading", "seconds", "low", "high", "ours / it"], options.out, options.device)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = Path(folder) / "host.xplane.pb"
        counts = write(path, BYTES)
        check(path, counts)
        samples = interleave({name: timed(call) for name, call in readers(path).items()}, ROUNDS, warmup=1)
        if options.peer:
            for what in ("jax", "xprof: kernel_stats"):
                samples[what] = peer(options.peer, path, what)
        report.keep("xplane", samples, ours=TABLE, bytes=path.stat().st_size, **counts)
        ours = samples[TABLE]
        for name, values in samples.items():
            if values:
                report.row(name, *spread(values).cells(3), f"{ratio(ours[: len(values)], values).median:.3f}")
        report.target("file to table, fastest of the samples", min(ours), 1, "s")
        report.target("peak memory per event", cost_of("xplane", path, TABLE)[0] / sum(counts.values()), 150, "bytes")
    report.note(f"{counts['kernels']:,} kernels and {counts['hosts']:,} events of threads")
    report.finish()


def extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peer", help="a Python with jax and xprof, which are measured too")


def repeated(events: list[bytes], count: int, step: int) -> bytes:
    """Return a line's events, `count` times those given, whose offsets grow by `step` ps from one to the next.

    Each event has its offset as a number of DIGITS bytes, OFFSET.
    """
    once = b"".join(field(4, event) for event in events)
    places = []
    at = once.find(OFFSET)
    while at >= 0:
        places.append(at + 1)
        at = once.find(OFFSET, at + 1)
    tiled = np.tile(np.frombuffer(once, np.uint8), (count, 1))
    offsets = np.arange(count * len(places), dtype=np.int64).reshape(count, len(places)) * step
    for digit in range(DIGITS):
        bits = (offsets >> 7 * digit & 0x7F) | (0x80 if digit < DIGITS - 1 else 0)
        tiled[:, np.array(places) + digit] = bits
    return tiled.tobytes()


OFFSET = b"\x10" + b"\x80" * (DIGITS - 1) + b"\x7f"  # field 2


def write(path: Path, size: int) -> dict[str, int]:
    """Write a recording of about this size. Return the numbers of its events."""
    gpu, cpu = Plane("/device:GPU:0", GPU_STATS), Plane("/host:CPU", {"process_id": 4242})

    def event(plane: Plane, name: str, duration: int, **stats: Any) -> bytes:
        encoded = [(4, plane.stat(key, value)) for key, value in stats.items()]
        return message((1, plane.event_id(name))) + OFFSET + message((3, duration), *encoded)

    kernels = [
        event(
            gpu,
            f"loop_multiply_fusion_{i}",
            900_000 + 1000 * (i % 7),
            correlation_id=1000 + i,
            context_id=Ref("$$1"),
            cuda_graph_id=40,
            cuda_graph_node_id=(40 << 32) + i,
            theoretical_occupancy_pct=50.0,
            occupancy_min_grid_size=132,
            occupancy_suggested_block_size=1024,
            kernel_details=kernel_details((64 + i % 50, 1, 1), (128, 1, 1)),
            tf_op=Ref("Thunk"),
            hlo_op=Ref(f"loop_multiply_fusion.{i}"),
            hlo_module=Ref("jit_step"),
            program_id=12,
        )
        for i in range(KERNEL_NAMES)
    ]
    hosts = [
        event(cpu, "$train.py:12 step", 800_000),
        event(cpu, "PjRtCApiLoadedExecutable::Execute", 700_000, _ct=14, _c=0, _src=Ref("pjrt_c_api_client.cc")),
        event(cpu, "cuLaunchKernelEx", 600_000, device_id=0, correlation_id=1001, context_id=Ref("$$1")),
        event(cpu, "$builtins isinstance", 500_000),
    ]
    kernel_bytes, host_bytes = len(b"".join(kernels)), len(b"".join(hosts))
    counts = {"kernels": size * 6 // 10 // kernel_bytes, "hosts": size * 4 // 10 // host_bytes}
    head = lambda number, name: message((1, number), (2, name), (3, 1000))  # noqa: E731
    streams = [(3, head(14, "Stream #14(Compute)") + repeated(kernels, counts["kernels"], 1_000_000))]
    threads = [(3, head(7, "python") + repeated(hosts, counts["hosts"], 1_000_000))]
    planes = [
        message((2, plane.name), *lines) + plane.encode()[len(field(2, plane.name)) :]
        for plane, lines in ((gpu, streams), (cpu, threads))
    ]
    ends = environment(1_795_405_150_328_813_463, 1_795_405_151_328_813_463)
    path.write_bytes(b"".join(field(1, plane) for plane in planes) + space(ends))
    return {"kernels": counts["kernels"] * len(kernels), "hosts": counts["hosts"] * len(hosts)}


def check(path: Path, counts: dict[str, int]) -> None:
    """Check that the rows have what was written."""
    rows = {row.key: row for row in fs.load_trace(path).key_averages(peaks="none")}
    calls = [row for name, row in rows.items() if name.startswith("loop_multiply_fusion_")]
    assert sum(row.count for row in calls) == counts["kernels"], counts
    expected = sum(900 + i % 7 for i in range(KERNEL_NAMES)) / 1000 * counts["kernels"] / KERNEL_NAMES
    assert abs(sum(row.self_device_time_total for row in calls) - expected) < 1e-6 * expected
    assert rows["cuLaunchKernelEx"].count == counts["hosts"] // 4


def readers(path: Path) -> dict[str, Callable[[], object]]:
    return {TABLE: lambda: fs.load_trace(path).key_averages(peaks="none")}


def peer(python: str, path: Path, what: str) -> list[float]:
    """Return the seconds of another reader; none if it fails."""
    done = subprocess.run([python, "-c", PEER, str(path), what, str(ROUNDS)], capture_output=True, text=True)
    if done.returncode:
        print(f"{what}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return []
    return [float(line) for line in done.stdout.split()]


if __name__ == "__main__":
    main()
