"""How well kernels shorter than a sample are told by their repetition, in simulated programs of known traffic.

Training steps of 35 kernels of 5 to 150 µs in 24 layers, at rates of 80 to 4,000 bytes a ns, with gaps of 1 µs. Times
and bytes vary by 3 %. A kernel moves its bytes evenly but for 1 µs at either end, give or take 0.2 µs. Profiles of
0.05, 0.3 and 2 s are read as traces with samples of 100 µs. By the length of a kernel over the interval: the share of
the time of rows whose bytes are known, and by how much these are wrong at most. A minute on two cores, no GPU.

    python benchmarks/counted_alike.py --out FOLDER [--rounds 8]
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import Report, arguments

import flopscope as fs

KERNELS, LAYERS, EDGE = 35, 24, 3
SHORTEST_US, LONGEST_US = 5.0, 150.0
LEAST_RATE, MOST_RATE = 80.0, 4000.0
VARIES = 0.03
GAP_US, END_US, END_VARIES_US = 1.0, 1.0, 0.2
INTERVAL_US = 100.0
SECONDS = (0.05, 0.3, 2.0)
BINS = (0.05, 0.1, 0.2, 0.5, 1.0, 1.5)
"""Lengths of kernels over the interval."""
MOST_WRONG = 10.0
"""Percent by which bytes that are told may be wrong."""
COLUMNS = ("profile", "length / interval", "rows", "known %", "wrong by at most %", "median %")


class Found(NamedTuple):
    """A row: the length of its kernels in µs, their time in all, and how far its bytes are off; NaN: unknown."""

    length: float
    time: float
    error: float


def main() -> int:
    options = arguments(__doc__ or "", rounds=8)
    report = Report("counted_alike", COLUMNS, options.out)
    for seconds in SECONDS:
        found = [row for seed in range(options.rounds) for row in simulate(seconds, seed)]
        for low, high in [*itertools.pairwise(BINS), (BINS[0], BINS[-1])]:
            show(report, f"{seconds:g} s", low, high, found)
        wrong = max(abs(row.error) for row in found if not math.isnan(row.error))
        report.target(f"bytes of rows in profiles of {seconds:g} s are wrong by", 100 * wrong, MOST_WRONG, "%")
        report.keep(f"{seconds:g} s", {"error": [row.error for row in found], "us": [row.length for row in found]}, "")
    report.finish()
    return 0


def show(report: Report, profile: str, low: float, high: float, found: list[Found]) -> None:
    rows = [row for row in found if low <= row.length / INTERVAL_US < high]
    errors = [abs(row.error) for row in rows if not math.isnan(row.error)]
    known = sum(row.time for row in rows if not math.isnan(row.error)) / sum(row.time for row in rows)
    cells = [f"{100 * cell:.1f}" for cell in (max(errors), float(np.median(errors)))] if errors else ["", ""]
    report.row(profile, f"{low:g} to {high:g}", str(len(rows)), f"{100 * known:.0f}", *cells)


def simulate(seconds: float, seed: int) -> list[Found]:
    """Return the rows of a program that runs for some seconds."""
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.uniform(math.log(SHORTEST_US), math.log(LONGEST_US), KERNELS))
    rates = 1000 * rng.uniform(LEAST_RATE, MOST_RATE, KERNELS)
    places = [*range(EDGE), *range(EDGE, KERNELS // 2)] + [*range(EDGE, KERNELS // 2)] * (LAYERS - 1)
    places += [*range(KERNELS // 2, KERNELS - EDGE)] * LAYERS + [*range(KERNELS - EDGE, KERNELS)]
    steps = math.ceil(1e6 * seconds / float((lengths[places] + GAP_US).sum()))
    kernels = np.tile(places, steps)
    taken = lengths[kernels] * (1 + VARIES * rng.standard_normal(len(kernels)))
    starts = np.cumsum(taken + GAP_US * rng.exponential(1.0, len(kernels))) - taken
    inside = starts + taken < 1e6 * seconds
    kernels, taken, starts = kernels[inside], taken[inside], starts[inside]
    amounts = rates[kernels] * lengths[kernels] * (1 + VARIES * rng.standard_normal(len(kernels)))
    ends = END_US + END_VARIES_US * rng.standard_normal((2, len(kernels)))
    samples = sample(starts + ends[0], starts + taken - ends[1], amounts, 1e6 * seconds)
    read = table_of(kernels, starts, taken, samples)
    found = []
    for kernel in np.unique(kernels):
        own = kernels == kernel
        error = read.get(f"k{kernel}", math.nan) / float(amounts[own].sum()) - 1
        found.append(Found(float(lengths[kernel]), float(taken[own].sum()), error))
    return found


def sample(begin: Any, end: Any, amounts: Any, until: float) -> Any:
    """Return what is moved in each interval, of amounts that move evenly from a time to another."""
    edges = np.arange(0.0, until + INTERVAL_US, INTERVAL_US)
    first = np.searchsorted(edges, begin, side="right") - 1
    moved = np.zeros(len(edges) + 3)
    for at in range(int((end - begin).max() / INTERVAL_US) + 2):
        low = edges[0] + INTERVAL_US * (first + at)
        part = (np.minimum(end, low + INTERVAL_US) - np.maximum(begin, low)).clip(0) / (end - begin)
        np.add.at(moved, first + at, amounts * part)
    return moved[: len(edges) - 1]


def table_of(kernels: Any, starts: Any, taken: Any, samples: Any) -> dict[str, float]:
    """Return the bytes read by row of the trace of a program."""
    columns = (kernels.tolist(), starts.round(3).tolist(), taken.round(3).tolist())
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "kernel", "name": f"k{kernel}", "pid": 0, "tid": 7, "ts": start, "dur": length,
         "args": {"stream": 7, "device": 0}}
        for kernel, start, length in zip(*columns, strict=True)
    ]  # fmt: skip
    events += [
        {"ph": "C", "name": "dram__bytes_read.sum", "pid": 0, "ts": INTERVAL_US * at, "args": {"value": value}}
        for at, value in enumerate([*samples.tolist(), 0.0])
    ]
    with tempfile.TemporaryDirectory(prefix="flopscope-alike-") as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
        return {row.key: row.dram_bytes_read for row in fs.load_trace(path).key_averages(peaks="none")}


if __name__ == "__main__":
    sys.exit(main())
