"""Many ranks: reading the traces of simulated ranks, and findings.

load_ranks() of ranks of 20 000 events, gzip, over the same files read one after the other by load_trace() in one
process on one core, times the cores; memory of the driver and of the workers. Eight ranks, one of them slow: the time
to name it, beside HolisticTraceAnalysis if that is installed.

    python benchmarks/ranks.py [--ranks 1024] [--events 20000] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import warnings
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from harness import Report, arguments, optional
from ranks_simulator import Program, write

import flopscope as fs
from flopscope.ranks.digest import digest_of

SMALL = 200  # ranks whose files the plain reader reads
TP, PP = 8, 4


def main() -> None:
    options = arguments(__doc__ or "", extend=add_options)
    report = Report("ranks", ["what", "value", "note"], options.out)
    with tempfile.TemporaryDirectory(prefix="flopscope-ranks-") as folder:
        reading(report, options, Path(folder) / "reading")
        peer(report, options.events, Path(folder) / "peer")
    report.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--events", type=int, default=20_000)


def reading(report: Report, options: argparse.Namespace, folder: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    slow = min(7, options.ranks - 1)
    dp, tp, pp = (options.ranks // (TP * PP), TP, PP) if options.ranks >= TP * PP else (options.ranks, 1, 1)
    write(Program(dp=dp, tp=tp, pp=pp, events=options.events, slow_gpu={slow: 1.1}), folder, cores)
    files = sorted(folder.glob("*.json.gz"))
    report.row("ranks", f"{len(files)}", f"{sum(path.stat().st_size for path in files) / 1e6:.0f} MB")
    plain, alone = one_by_one(files)
    before = peak(resource.RUSAGE_SELF)
    fs.load_ranks(files[:cores], workers=cores)  # starts nothing that stays, but loads the modules
    begin, cpu = perf_counter(), process_time()
    ranks = fs.load_ranks(files, workers=cores)
    seconds, cpu = perf_counter() - begin, process_time() - cpu
    begin = perf_counter()
    found = ranks.findings
    analysed = perf_counter() - begin
    driver = peak(resource.RUSAGE_SELF)
    report.keep("load_trace", {"load_trace": plain, "and digest": alone}, events=options.events)
    report.keep("load_ranks", {"load_ranks": [seconds], "findings": [analysed]}, ranks=len(files), cores=cores)
    report.row("one rank, read", f"{1e3 * np.mean(plain):.1f} ms", f"and reduced {1e3 * np.mean(alone):.1f} ms")
    report.row(f"load_ranks, {cores} cores", f"{seconds:.2f} s", f"{len(files) / seconds:.0f} ranks a second")
    report.row("the driver's CPU time for a rank", f"{1e3 * cpu / len(files):.2f} ms", "")
    report.row("findings, clocks and all", f"{analysed:.2f} s", found[0].what[:60] if found else "none")
    report.row("driver, peak", f"{driver:.0f} MB", f"before {before:.0f} MB")
    report.row("largest child, peak", f"{peak(resource.RUSAGE_CHILDREN):.0f} MB", "")
    ideal = len(files) * float(np.mean(plain)) / cores
    report.target("cores times plain reader over load_ranks", seconds / ideal, 1 / 0.9, "x")
    report.target("driver's memory", driver, 300 + len(files), "MB")
    assert found and found[0].ranks == (slow,), found[:1]


def one_by_one(files: list[Path]) -> tuple[list[float], list[float]]:
    """Return the seconds in which some files are read on one core, and those until they are reduced."""
    plain, alone = [], []
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})  # reading one file otherwise takes part of a second core
    for path in files[:: max(1, len(files) // SMALL)]:
        begin = perf_counter()
        trace = fs.load_trace(path)
        plain.append(perf_counter() - begin)
        digest_of(trace, str(path), 0)
        alone.append(perf_counter() - begin)
    os.sched_setaffinity(0, everywhere)
    return plain, alone


def peak(whose: int) -> float:
    """Return the most memory of this process or of its children in MB."""
    return resource.getrusage(whose).ru_maxrss / 1024


def peer(report: Report, events: int, folder: Path) -> None:
    write(Program(dp=8, events=events, slow_gpu={3: 1.2}), folder)
    begin = perf_counter()
    first = fs.load_ranks(folder).findings[:1]
    ours = perf_counter() - begin
    report.row("eight ranks, flopscope", f"{ours:.2f} s", first[0].what[:70] if first else "nothing")
    report.keep("eight ranks", {"flopscope": [ours]})
    hta: Any = optional("hta.trace_analysis")
    if hta is None:
        report.note("HolisticTraceAnalysis is not installed: pip install HolisticTraceAnalysis")
        return
    begin = perf_counter()
    try:
        found = str(hta.TraceAnalysis(trace_dir=str(folder)).get_potential_stragglers())
    except Exception as problem:
        found = f"{type(problem).__name__}: {problem}"
    theirs = perf_counter() - begin
    report.row("eight ranks, HTA", f"{theirs:.2f} s", f"potential stragglers: {found}")
    report.keep("eight ranks", {"hta": [theirs]}, found=found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
