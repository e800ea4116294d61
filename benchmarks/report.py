"""The report page: time from the file of a recorded trace to a page on the disk, and the size of the page.

The traces have calls of a small add with shapes, their API calls, kernels and flows, at random times, which compress
worse than even ones, and come from the page cache. What is in the page is checked: the number of calls, and the time of
the kernels. How `flopscope report` grows is measured once for each size, in a process of its own: with the events, and
with the number of distinct names. The targets of time are for two processors, and others for sixteen or more. Where
Chromium is installed, the first paint and the frames of the moving timeline are measured too.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import tempfile
import time
import zlib
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from harness import Report, Sampler, arguments, interleave, spread, stopwatch
from load_trace import EVENTS, HEAD, KERNEL
from report_frames import Frames, why_no_browser

import flopscope as fs

ROUNDS = 5
FIRST_PAINT, FRAMES = 1.5, 30  # most seconds; least frames a second
CASES = {1_000: (0.5, 1e6), 200_000: (0.7, 25e6)}  # calls, five events each: most seconds and bytes on two cores
BYTES_AN_EVENT = 1000  # of memory to leave free for a case of growth: its process, and its trace in the page cache
GROWTH = (200_000, 600_000, 2_000_000)  # calls, five events each
MOST_WALL = {16: 4.0, 2: 8.0}  # seconds of the command for the largest, by the least number of processors
MOST_MEMORY = 1.0e9  # bytes, likewise
NAMES = (50_000, 100_000, 200_000)  # ops, each of a name of its own with a kernel of a name of its own
PAGE = "growth.html"
MOST_CPU, MOST_PAGE = 3.0, 10e6  # seconds for each 100,000 names; bytes


class Cost(NamedTuple):
    """What a process took."""

    cpu: float
    """Seconds, of all threads."""
    wall: float
    memory: int
    """Bytes at most."""
    page: int
    """Bytes."""


def main() -> None:
    options = arguments(__doc__ or "")
    report = Report(
        "report", ["events", "seconds", "low", "high", "of it load_trace", "MB"], options.out, options.device
    )
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        grow(report, Path(folder))  # first: a child begins with the memory of its parent as its most
        for calls, (most_seconds, most_bytes) in CASES.items():
            trace, page = write(Path(folder) / "trace.json", calls), Path(folder) / "report.html"
            cases: dict[str, Sampler] = {
                "page": stopwatch(partial(make, trace, page)),
                "load_trace": stopwatch(partial(fs.load_trace, trace)),
            }
            samples = interleave(cases, ROUNDS, warmup=0, seconds=60, minimum=3)
            check(page, calls)
            size = page.stat().st_size
            report.keep(f"{5 * calls} events", samples, ours="page", bytes=size)
            whole, loading = spread(samples["page"]), spread(samples["load_trace"])
            report.row(
                f"{5 * calls:,}",
                *(f"{value:.3f}" for value in (whole.median, whole.low, whole.high, loading.median)),
                f"{size / 1e6:.2f}",
            )
            report.target(f"{5 * calls} events to a page", whole.median, most_seconds, "s")
            report.target(f"page of {5 * calls} events", size / 1e6, most_bytes / 1e6, "MB")
            look(report, page, f"{5 * calls} events")
    report.finish()


def grow(report: Report, folder: Path) -> None:
    """Measure the command with more events, and with more names, as far as memory allows."""
    for calls in GROWTH:
        cost = command(report, f"{5 * calls} events in a process", 5 * calls, partial(write, calls=calls), folder)
        if cost is not None:
            report.note(f"{5 * calls:,} events: {_cost_text(cost)}")
        if cost is not None and calls == GROWTH[-1]:
            cores = len(os.sched_getaffinity(0))
            most = next((most for least, most in MOST_WALL.items() if cores >= least), None)
            if most is not None:
                report.target(f"{5 * calls} events to a page on {cores} processors", cost.wall, most, "s")
            report.target(f"memory for {5 * calls} events", cost.memory / 1e9, MOST_MEMORY / 1e9, "GB")
    for ops in NAMES:
        case = f"{2 * ops} names in a process"
        cost = command(report, case, 3 * ops, partial(write_names, ops=ops), folder)
        if cost is not None:
            report.note(f"{2 * ops:,} names: {_cost_text(cost)}")
            report.target(f"CPU for each 100,000 of {2 * ops} names", cost.cpu / (2 * ops / 1e5), MOST_CPU, "s")
            report.target(f"page of {2 * ops} names", cost.page / 1e6, MOST_PAGE / 1e6, "MB")
            look(report, folder / PAGE, f"{2 * ops} names")


def _cost_text(cost: Cost) -> str:
    sizes = f"{cost.memory / 1e6:.0f} MB of memory, a page of {cost.page / 1e6:.1f} MB"
    return f"{cost.wall:.1f} s, {cost.cpu:.1f} s of CPU, {sizes}"


def command(report: Report, case: str, events: int, make_trace: Any, folder: Path) -> Cost | None:
    """Run `flopscope report` on a trace that is made for it. Return what it took; None without memory for it."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if events * BYTES_AN_EVENT > free:
        report.note(f"{case}: not measured: {free / 1e9:.1f} GB of memory are free")
        return None
    trace, page = make_trace(folder / "growth.json"), folder / PAGE
    begin = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "flopscope", "report", str(trace), "-o", str(page)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    assert status == 0, case
    wall, cpu = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    cost = Cost(cpu, wall, 1024 * usage.ru_maxrss, page.stat().st_size)
    report.keep(case, {"cpu": [cpu], "wall": [wall]}, memory=cost.memory, bytes=cost.page)
    trace.unlink()
    return cost


def write_names(path: Path, ops: int) -> Path:
    """Write a trace of ops and kernels that each have a name of their own."""
    with path.open("w") as file:
        file.write(HEAD)
        for i in range(ops):
            ids = {"External id": i + 1, "correlation": i + 1}
            place = {"pid": 0, "tid": 7, "args": {**ids, "device": 0, "stream": 7}}
            host = {"pid": 403, "tid": 403}
            events = (
                {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": 10 * i, "dur": 5, **host, "args": {**ids}},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10 * i + 1, "dur": 1, **host}
                | {"args": ids},
                {"ph": "X", "cat": "kernel", "name": f"void k{i}<float>(float*)", "ts": 10 * i + 3, "dur": 6, **place},
            )
            file.write(",\n" * (i > 0) + ",\n".join(map(json.dumps, events)))
        file.write("\n  ]\n}\n")
    return path


def write(path: Path, calls: int) -> Path:
    """Write a trace of calls that begin, launch and run after random times."""
    random, start = Random(1), 4_359_896_695_937_531
    with path.open("w") as file:
        file.write(HEAD)
        for i in range(calls):
            start += random.randint(10_000, 40_000)
            launch = start + random.randint(2_000, 4_500)
            times = (start, launch, launch + random.randint(5_000, 9_000))
            at, call, run = (f"{ns // 1000}.{ns % 1000:03d}" for ns in times)
            op, link, width = 1000 + i, 9_000_000 + i, 64 + random.randrange(16)
            before = (
                at,
                random.randrange(700),
                op,
                i,
                width,
                width,
                width,
                width,
                i,
                call,
                op,
                link,
                link,
                call,
                KERNEL,
            )
            file.write(",\n" * (i > 0) + EVENTS % (*before, run, op, link, link, run))
        file.write('\n  ],\n  "traceName": "trace.json"\n}\n')
    return path


def make(trace: Path, page: Path) -> None:
    fs.load_trace(trace).write_report(page)


def look(report: Report, page: Path, case: str) -> None:
    """Measure the page in a browser, if there is one."""
    missing = why_no_browser()
    if missing:
        report.note(f"{case}: not measured in a browser: {missing}")
        return
    seen = Frames(page)
    samples = {"first paint": seen.paints, "frame": seen.frames, "painting": seen.costs}
    report.keep(f"{case} in Chromium", samples, unit="ms", ready=seen.ready)
    paint, frame = spread(seen.paints), sorted(seen.frames)
    report.note(
        f"{case} in Chromium: first paint {paint.median:.0f} ms, timeline after {seen.ready:.0f} ms; {seen.rate:.1f} "
        f"frames a second while it zooms and pans, 95 % within {frame[int(0.95 * len(frame))]:.0f} ms"
    )
    report.target(f"first paint of {case}", paint.median / 1000, FIRST_PAINT, "s")
    report.target(f"time of a frame of {case}", sum(seen.frames) / len(seen.frames), 1000 / FRAMES, "ms")


def check(path: Path, calls: int) -> None:
    """Check the rows of the page."""
    text = path.read_text(encoding="utf-8")
    data = json.loads(element(text, r'type="application/json" id="data"'))
    columns = data["rows"]["columns"]
    keys = [data["strings"][i] for i in column(text, columns["key"]).tolist()]
    counts, times = (column(text, columns[name]) for name in ("count", "self_device_time_total"))
    assert sum(n for key, n in zip(keys, counts.tolist(), strict=True) if key == "aten::add") == calls
    kernels = [time for key, time in zip(keys, times.tolist(), strict=True) if "elementwise_kernel" in key]
    assert round(1000 * sum(kernels)) == 1216 * calls


def element(text: str, attributes: str) -> str:
    found = re.search(rf"<script {attributes}>(.*?)</script>", text, re.S)
    assert found is not None, attributes
    return found[1]


def column(text: str, reference: dict[str, Any]) -> np.ndarray[Any, Any]:
    if "fill" in reference:
        return np.full(reference["length"], np.nan if reference["fill"] is None else reference["fill"])
    packed = element(text, f'type="text/plain" data-blob="{reference["blob"]}"')
    values = zlib.decompress(base64.b64decode(packed))
    return np.frombuffer(values, f"<{reference['type']}", reference["length"], reference["offset"])


if __name__ == "__main__":
    main()
