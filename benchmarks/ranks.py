"""Many ranks: reading them, aligning their clocks, and naming faults that were put in.

reading     load_ranks() of simulated ranks of 20 000 events, gzip, over the same files read one after the other by
            load_trace() in one process on one core, times the cores; CPU time and memory of the driver, memory of the
            workers
clocks      the error of simulated clocks, with and without drift; the time of the alignment of 1024 ranks in 161
            groups of 2000 calls each
faults      trials with one fault of a random kind, and trials without: what is named first
cluster     the same findings by a LocalCluster of separate processes, one of which is killed in the middle
peer        HolisticTraceAnalysis on the same eight ranks, if it is installed

python benchmarks/ranks.py [--ranks 1024] [--trials 100] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from harness import Report, optional
from ranks_simulator import Program, write

import flopscope as fs
from flopscope.ranks.calls import Group
from flopscope.ranks.clocks import align
from flopscope.ranks.digest import digest_of

SMALL = 200  # ranks whose files the plain reader reads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--parts", default="reading,clocks,faults,cluster,peer")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = Report("ranks", ["what", "value", "note"], options.out)
    with tempfile.TemporaryDirectory(prefix="flopscope-ranks-") as text:
        folder = Path(text)
        for part in options.parts.split(","):
            PARTS[part](report, options, folder)
    report.finish()


# Reading --------------------------------------------------------------------------------------------------------------


def reading(report: Report, options: argparse.Namespace, folder: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    here = folder / "reading"
    tp = 8
    program = Program(dp=options.ranks // (tp * 4), tp=tp, pp=4, events=options.events, slow_gpu={7: 1.1})
    begin = perf_counter()
    write(program, here)
    files = sorted(here.glob("*.json.gz"))
    size = sum(path.stat().st_size for path in files)
    report.row("ranks written", f"{len(files)}", f"{size / 1e6:.0f} MB, {perf_counter() - begin:.0f} s")
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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fs.load_ranks(files[:cores], workers=cores)  # starts nothing that stays, but loads the modules
    begin, cpu = perf_counter(), process_time()
    ranks = fs.load_ranks(files, workers=cores)
    seconds, cpu = perf_counter() - begin, process_time() - cpu
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    begin = perf_counter()
    found = ranks.findings
    analysed = perf_counter() - begin
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.keep("load_trace", {"load_trace": plain, "and digest": alone}, events=options.events)
    report.keep("load_ranks", {"load_ranks": [seconds], "findings": [analysed]}, ranks=len(files), cores=cores)
    ideal = len(files) * float(np.mean(plain)) / cores
    report.row("one rank, read", f"{1e3 * np.mean(plain):.1f} ms", f"and reduced {1e3 * np.mean(alone):.1f} ms")
    report.row(f"load_ranks, {cores} cores", f"{seconds:.2f} s", f"{len(files) / seconds:.0f} ranks a second")
    report.row("the driver's CPU time for a rank", f"{1e3 * cpu / len(files):.2f} ms", "")
    report.row("findings, clocks and all", f"{analysed:.2f} s", found[0].what[:60] if found else "none")
    report.row("driver, peak", f"{driver:.0f} MB", f"before {peak:.0f} MB")
    report.row("largest child, peak", f"{workers:.0f} MB", f"a process that reads one file: {peak:.0f} MB")
    report.target("cores times plain reader over load_ranks", seconds / ideal, 1 / 0.9, "x")
    report.target("driver's memory", driver, 300 + len(files), "MB")
    assert found and found[0].ranks == (7,), found[:1]


# Clocks ---------------------------------------------------------------------------------------------------------------


def groups_of(
    tp: int, dp: int, pp: int, calls: int, seed: int, drift_ppm: float = 0.0
) -> tuple[int, Any, Any, list[Group]]:
    """Return ends of collectives that are late by an exponential of 2 µs on each rank, two in a hundred by up to
    500."""
    rng = np.random.default_rng(seed)
    ranks = tp * dp * pp
    hosts = np.arange(ranks) // 8
    offset = rng.normal(0, 300.0, hosts.max() + 1)[hosts]
    drift = 1e-6 * rng.normal(0, drift_ppm, hosts.max() + 1)[hosts] if drift_ppm else np.zeros(ranks)
    places = np.arange(ranks).reshape(pp, dp, tp)
    members = [places[p, d] for p in range(pp) for d in range(dp)]
    members += [places[p, :, t] for p in range(pp) for t in range(tp)]
    members += [places[:, 0, 0]] if pp > 1 else []
    groups = []
    for who in members:
        times = np.sort(rng.uniform(0, 5e6, calls))
        ends = times[:, None] + rng.exponential(2.0, (calls, len(who)))
        late = rng.random(ends.shape) < 0.02
        ends[late] += rng.uniform(20, 500, int(late.sum()))
        ends = ends + offset[who] + ends * drift[who]
        duration = np.full(ends.shape, 50.0)
        kind, none = np.zeros(calls, np.int8), np.zeros_like(duration)
        groups.append(
            Group(
                *("g", str(list(who)), who.astype(np.intp), kind, np.full(calls, 1e6), np.arange(calls)),
                *(np.ones(calls), ends - duration, duration, none),
            )
        )
    return ranks, offset - offset[0], drift - drift[0], groups


def clocks(report: Report, options: argparse.Namespace, folder: Path) -> None:
    for drift, limit in ((0.0, 5.0), (5.0, 5.0)):
        worst, medians, seconds = [], [], []
        for seed in range(5):
            ranks, offset, slope, groups = groups_of(8, 32, 4, 2000, seed, drift)
            begin = perf_counter()
            found = align(groups, ranks)
            seconds.append(perf_counter() - begin)
            errors = [
                np.abs(found.offset + at * found.drift - offset - (found.middle + at) * slope)
                for at in (-2.5e6, 0, 2.5e6)
            ]
            worst.append(float(np.max(errors)))
            medians.append(float(np.median(errors[1])))
        report.keep(f"clocks, {drift:g} ppm", {"worst": worst, "median": medians}, "us")
        report.keep(f"alignment, {drift:g} ppm", {"align": seconds})
        report.row(
            f"clock error, drift {drift:g} ppm",
            f"{np.median(medians):.2f} us median",
            f"at worst {max(worst):.2f} us at the ends of 5 s",
        )
        report.target(f"clock error at worst, {drift:g} ppm", max(worst), limit, "us")
        if not drift:
            report.target("clock error, median", max(medians), 1.0, "us")
            report.target("alignment of 1024 ranks, 161 groups, 2000 calls", min(seconds), 2.0, "s")


# Faults ---------------------------------------------------------------------------------------------------------------


def random_fault(rng: np.random.Generator, program: dict[str, Any]) -> tuple[str, dict[str, Any], set[int]]:
    """Return a kind of fault, the program's arguments for it, and the ranks that may be named."""
    ranks = program["dp"] * program["tp"] * program["pp"]
    rank = int(rng.integers(ranks))
    kinds = ["gpu", "data", "work", "step"]
    if program["pp"] > 1 and ranks > 16:
        kinds.append("link")
    kind = str(rng.choice(kinds))
    if kind == "gpu":
        return kind, {"slow_gpu": {rank: float(rng.uniform(1.06, 1.5))}}, {rank}
    if kind == "data":
        return kind, {"late_data": {rank: float(rng.uniform(600, 4000))}}, {rank}
    if kind == "work":
        return kind, {"imbalance": {rank: 1 + float(rng.integers(1, 5)) / 8}}, {rank}
    if kind == "step":
        return kind, {"slow_steps": {int(rng.integers(1, 4)): float(rng.uniform(6e3, 2e4))}}, set()
    host = int(rng.integers(ranks // 8))
    stage = ranks // program["pp"]
    same = {r for r in range(ranks) if r // stage == (8 * host) // stage}
    return kind, {"slow_link": {host: float(rng.uniform(0.3, 0.6))}}, same


def faults(report: Report, options: argparse.Namespace, folder: Path) -> None:
    named, wrong, quiet = 0, [], 0
    causes = {"gpu": "gpu", "data": "data", "work": "work"}
    for trial in range(options.trials):
        rng = np.random.default_rng(trial)
        shape = {"dp": 8, "tp": int(rng.choice([1, 2, 4])), "pp": int(rng.choice([1, 2]))}
        shape |= {"events": int(rng.choice([6000, 12_000])), "seed": trial, "drift_ppm": float(rng.uniform(0, 5))}
        kind, fault, who = random_fault(rng, shape)
        first = _findings(Program(**shape, **fault), folder / "fault")[:1]
        right = bool(first) and (
            (kind in causes and first[0].kind == "straggler" and set(first[0].ranks) == who and first[0].cause == kind)
            or (kind == "link" and first[0].kind == "link" and set(first[0].ranks) <= who)
            or (kind == "step" and first[0].kind == "step")
        )
        named += right
        if not right:
            wrong.append(f"{kind} {fault} {shape}: {first[0].what if first else 'nothing'}")
        quiet += not _findings(Program(**shape), folder / "none")
    report.row("faults named first", f"{named} of {options.trials}", "; ".join(wrong)[:300])
    report.row("nothing named without a fault", f"{quiet} of {options.trials}", "")
    report.keep("faults", {"named": [named], "quiet": [quiet]}, "trials", trials=options.trials, wrong=wrong)
    report.target("faults not named first", options.trials - named, 0, "trials")
    report.target("faults named where there is none", options.trials - quiet, 0, "trials")


def _findings(program: Program, folder: Path) -> list[Any]:
    shutil.rmtree(folder, ignore_errors=True)
    write(program, folder)
    return fs.load_ranks(folder).findings


# A cluster ------------------------------------------------------------------------------------------------------------


def cluster(report: Report, options: argparse.Namespace, folder: Path) -> None:
    from distributed import Client, LocalCluster

    here = folder / "cluster"
    program = Program(dp=8, tp=8, events=options.events, slow_gpu={9: 1.2})
    write(program, here)
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.wait_for_workers(4)
        pid = next(iter(client.run(os.getpid).values()))
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        begin = perf_counter()
        ranks = fs.load_ranks(here, client=client)
        seconds = perf_counter() - begin
    found = ranks.findings
    report.row(
        "LocalCluster, a worker killed",
        f"{len(ranks)} of {program.ranks} ranks",
        f"{seconds:.1f} s; {found[0].what[:50] if found else 'nothing found'}",
    )
    report.keep("cluster", {"load_ranks": [seconds]}, ranks=len(ranks))
    report.target("ranks lost with the worker", program.ranks - len(ranks), 0, "ranks")


# The peer -------------------------------------------------------------------------------------------------------------


def peer(report: Report, options: argparse.Namespace, folder: Path) -> None:
    here = folder / "peer"
    write(Program(dp=8, events=options.events, slow_gpu={3: 1.2}), here)
    begin = perf_counter()
    ranks = fs.load_ranks(here)
    first = ranks.findings[:1]
    ours = perf_counter() - begin
    report.row("eight ranks, flopscope", f"{ours:.2f} s", first[0].what[:70] if first else "nothing")
    report.keep("eight ranks", {"flopscope": [ours]})
    hta: Any = optional("hta.trace_analysis")
    if hta is None:
        report.note("HolisticTraceAnalysis is not installed: pip install HolisticTraceAnalysis")
        return
    begin = perf_counter()
    try:
        analysis = hta.TraceAnalysis(trace_dir=str(here))
        found = str(analysis.get_potential_stragglers())
    except Exception as problem:
        found = f"{type(problem).__name__}: {problem}"
    theirs = perf_counter() - begin
    report.row("eight ranks, HTA", f"{theirs:.2f} s", f"potential stragglers: {found}")
    report.keep("eight ranks", {"hta": [theirs]}, found=found)


PARTS: dict[str, Callable[[Report, argparse.Namespace, Path], None]] = {
    "reading": reading,
    "clocks": clocks,
    "faults": faults,
    "cluster": cluster,
    "peer": peer,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
