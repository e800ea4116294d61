"""Programs of JAX with one known fault each, and the same programs with the fault mended, on a CUDA GPU.

For each program of jax_fault_programs.py: milliseconds per step before and after the change, without a profiler, and
the advice of a profile of each: what the rule said of the fault, and whether it is silent on the mended program. A
folder given by --traces receives the traces.

    python benchmarks/jax_faults.py --device cuda [--out FOLDER] [--traces FOLDER] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax_fault_programs
from harness import Report, arguments, interleave, spread

import flopscope as fs

PROFILED, ROUNDS, SECONDS = 4, 20, 2.0
SAMPLE = 5e-3
"""Seconds that a sample of the longer program lasts at least: that of a short step is the mean of several."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traces", type=Path, help="folder for the traces of the profiles")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs; default: all")


def timed(step: Any, steps: int = 1) -> float:
    """Return the seconds of a step, of several."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def profiled(step: Any, path: Path | None) -> Any:
    """Return a profile of some steps."""
    schedule = fs.schedule(wait=0, warmup=1, active=PROFILED, repeat=1)
    with fs.profile(schedule=schedule, record_shapes=True) as prof:
        for _ in range(PROFILED + 1):
            step()
            prof.step()
    if path is not None:
        prof.export_chrome_trace(str(path))
    return prof


def saved(prof: Any, rule: str) -> float:
    """Return what a rule estimates to save, in seconds per step; of several devices, the mean."""
    devices = prof.accounting()["device"].nunique()
    return sum(row.saving_us for row in prof.advice() if row.rule == rule) / 1e6 / max(devices, 1)


def measure(name: str, report: Report, traces: Path | None) -> bool:
    """Measure a program, and return whether the rule named its fault, and not one of the mended program."""
    fault = jax_fault_programs.FAULTS[name]
    steps, profiles = {}, {}
    for who in ("before", "after"):  # the modules of both may be alike: each is profiled before the next is compiled
        steps[who] = fault.build(who == "after")
        steps[who]()
        path = traces / f"{name}_{who}.json.gz" if traces is not None else None
        profiles[who] = profiled(steps[who], path)
    count = max(1, round(SAMPLE / max(min(timed(step), timed(step)) for step in steps.values())))
    samplers = {who: lambda step=step: timed(step, count) for who, step in steps.items()}
    samples = interleave(samplers, ROUNDS, 2, SECONDS)
    before, after = (spread(samples[who]).median for who in ("before", "after"))
    predicted, advice = {}, {}
    for who, prof in profiles.items():
        predicted[who] = saved(prof, fault.rule)
        advice[who] = [(row.rule, row.saving_us, row.what) for row in prof.advice()]
        said = [what for rule, _, what in advice[who] if rule == fault.rule]
        print(f"{name} {who}: {said or [rule for rule, *_ in advice[who]]}", flush=True)
    report.keep(name, samples, predicted=predicted, rule=fault.rule, what=fault.what, advice=advice)
    times = (f"{1e3 * value:.3f} ms" for value in (before, after, before - after))
    report.row(name, *times, fault.rule, *(f"{1e3 * predicted[who]:.3f} ms" for who in ("before", "after")))
    return predicted["after"] <= 0.25 * predicted["before"] and predicted["before"] > 0


def main() -> int:
    options = arguments(__doc__ or "", ("cuda", "cpu"), add_options)
    columns = ["program", "before", "after", "gained", "rule", "predicted", "left"]
    report = Report("jax_faults", columns, options.out, options.device)
    if options.traces is not None:
        options.traces.mkdir(parents=True, exist_ok=True)
    silent = 0
    for name in jax_fault_programs.FAULTS:
        if options.only and name not in options.only:
            continue
        if jax.device_count() < jax_fault_programs.FAULTS[name].devices:
            report.note(f"{name} needs {jax_fault_programs.FAULTS[name].devices} devices")
            continue
        try:
            silent += measure(name, report, options.traces)
        except Exception as problem:
            traceback.print_exc()
            report.row(name, *["-"] * (len(columns) - 1))
            report.note(f"{name} failed: {type(problem).__name__}: {str(problem)[:300]}")
        report.done()
    report.note(f"the rule named the fault, and kept silent of the mended program, in {silent} of {len(report.rows)}")
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
