"""Nsight Compute for the benchmarks: metrics of each kernel of a Python program, or of each of its ranges."""

from __future__ import annotations

import csv
import io
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

OPTIONS = ("--nvtx", "--print-nvtx-rename", "kernel", "--csv", "--page", "raw", "--print-units", "base",
           "--clock-control", "none", "--profile-from-start", "off")  # fmt: skip


class Kernel(NamedTuple):
    """A launch: the innermost NVTX range around it, "" without one, the kernel's name and its metrics."""

    range: str
    name: str
    values: dict[str, float]


def kernels(program: Sequence[str], metrics: Sequence[str], caches: str, seconds: float) -> list[Kernel]:
    """Return what ncu counted of each kernel between cudaProfilerStart and cudaProfilerStop of a Python program.

    caches: "all" empties them before each kernel, "none" leaves them. Raise RuntimeError, with what ncu has printed, if
    it is missing, fails, counts nothing or takes longer than that.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise RuntimeError("Nsight Compute is missing")
    command = [ncu, *OPTIONS, "--cache-control", caches, "--metrics", ",".join(metrics), sys.executable, *program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"ncu took more than {seconds:g} s") from None
    found = list(read_page(done.stdout, metrics))
    if done.returncode != 0 or not found:
        last = " ".join((done.stdout + done.stderr).split())[-500:]
        raise RuntimeError(f"ncu exited with {done.returncode} and counted {len(found)} kernels: {last}")
    return found


def read_page(text: str, metrics: Sequence[str]) -> Iterator[Kernel]:
    """Read the raw page of ncu: a header, a line of units, a line for each kernel. A metric without a value is NaN."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    for record in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if not (record.get("ID") or "").strip().isdecimal():  # the units, or what the program printed
            continue
        outer, _, name = str(record["Kernel Name"]).rpartition("/")
        yield Kernel(outer, name, {metric: number(record.get(metric)) for metric in metrics})


def number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return math.nan
