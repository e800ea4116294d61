"""The report page: time from the file of a recorded trace to a page on the disk, and the size of the page.

The traces have calls of a small add with shapes, their API calls, kernels and flows, at random times, which compress
worse than even ones, and come from the page cache. What is in the page is checked: the number of calls, and the time of
the kernels. How `flopscope report` grows with the events is measured once for each size, in a process of its own. The
targets of time are for two processors, and others for sixteen or more. Where Chromium is installed, the first paint and
the frames of the moving timeline are measured too.
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
from typing import Any

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


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["events", "seconds", "low", "high", "of it load_trace", "MB"]
    report = Report("report", columns, options.out, options.device)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        for calls in GROWTH:  # first: a child begins with the memory of its parent as its most
            grow(report, Path(folder), calls)
        for calls, (most_seconds, most_bytes) in CASES.items():
            trace, page = write(Path(folder) / "trace.json", calls), Path(folder) / "report.html"
            cases: dict[str, Sampler] = {
                "page": stopwatch(partial(make, trace, page)),
                "load_trace": stopwatch(partial(fs.load_trace, trace)),
            }
            samples = interleave(cases, ROUNDS, warmup=0, seconds=60, minimum=3)
            check(page, calls)
            case, size = f"{5 * calls} events", page.stat().st_size / 1e6
            report.keep(case, samples, ours="page", bytes=page.stat().st_size)
            whole, loading = spread(samples["page"]), spread(samples["load_trace"])
            report.row(f"{5 * calls:,}", *whole.cells(3), f"{loading.median:.3f}", f"{size:.2f}")
            report.target(f"{case} to a page", whole.median, most_seconds, "s")
            report.target(f"page of {case}", size, most_bytes / 1e6, "MB")
            look(report, page, case)
    report.finish()


def grow(report: Report, folder: Path, calls: int) -> None:
    """Measure the command in a process of its own, if memory allows."""
    events, cores = 5 * calls, len(os.sched_getaffinity(0))
    case = f"{events} events in a process"
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if events * BYTES_AN_EVENT > free:
        report.note(f"{case}: not measured: {free / 1e9:.1f} GB of memory are free")
        return
    trace, page = write(folder / "growth.json", calls), folder / "growth.html"
    wall, cpu, memory = command([sys.executable, "-m", "flopscope", "report", str(trace), "-o", str(page)])
    size = page.stat().st_size
    trace.unlink()
    report.keep(case, {"cpu": [cpu], "wall": [wall]}, memory=memory, bytes=size)
    report.note(f"{case}: {wall:.1f} s, {cpu:.1f} s of CPU, {memory / 1e6:.0f} MB of memory, {size / 1e6:.1f} MB")
    if calls == GROWTH[-1]:
        most = next((most for least, most in MOST_WALL.items() if cores >= least), None)
        if most is not None:
            report.target(f"{events} events to a page on {cores} processors", wall, most, "s")
        report.target(f"memory for {events} events", memory / 1e9, MOST_MEMORY / 1e9, "GB")


def command(words: list[str]) -> tuple[float, float, int]:
    """Run a program. Return its seconds, those of all its threads on processors, and its most bytes of memory."""
    begin = time.perf_counter()
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(words[0], words, os.environ, file_actions=silent)
    _, status, usage = os.wait4(child, 0)
    assert status == 0, words
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss


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
            first = (at, random.randrange(700), op, i, *[width] * 4, i, call, op, link)
            file.write(",\n" * (i > 0) + EVENTS % (*first, link, call, KERNEL, run, op, link, link, run))
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
