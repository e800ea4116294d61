"""Well-made programs: the advice on them, and what following it gains.

python benchmarks/well_made.py [--out FOLDER] [--only NAME,...] [--device cpu] [--tiny]

Each program of well_made_programs.py and well_made_kernels.py runs in a process of its own: it is warmed up, timed
without a profiler, and recorded by torch.profiler (flopscope records the program of NumPy). Where advice() promises
more than 3 %, and the program has an option that follows the rule, the program is timed with it as well. A row of
advice is right if that gained at least half of what it promised; the target is that no other row is above 3 %.

FOLDER receives NAME.json.gz, the trace, and well_made.json with times, advice, accounting, and gains. --device cpu runs
the programs without a GPU (their streams, graphs and Triton kernels left out); with --tiny, which is a test of the
programs and not a measurement, their sizes are small. A program that fails or takes too long is reported, and the
others run; whatever happens, all ends after nine minutes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import well_made_kernels  # noqa: F401  (adds its programs)
from faults import back_to_back, reset, traced, warm_up
from harness import Report, run_for
from well_made_programs import PROGRAMS, Program

import flopscope as fs

LEAST_PCT = 3.0
"""Advice below this share of the time is not judged."""
SECONDS, TOTAL_SECONDS, LEFT_SECONDS = 75, 540, 20
"""For a program; for all; no program starts with less."""
SAMPLES, SAMPLE_MS, TRACED_STEPS = 5, 200, 4
COLUMNS = ("program", "ms", "advice", "promised", "option", "ms with it", "gained", "")


# One program, in a process of its own ---------------------------------------------------------------------------------


def timed(step: Any, tiny: bool) -> list[float]:
    """Return samples of the milliseconds per step, without a profiler; steps of two kinds are sampled in pairs."""
    warm_up(step)
    steps = 2 if tiny else 2 * max(1, min(50, round(SAMPLE_MS / back_to_back(step, 2) / 2)))
    return [back_to_back(step, steps) for _ in range(SAMPLES)]


def measured(name: str, program: Program, folder: Path, tiny: bool) -> None:
    """Measure one program, and write its row to FOLDER/NAME.json after each change of it."""
    row: dict[str, Any] = {"changed": {}}
    sizes = dict(program.tiny) if tiny else {}

    def build(options: Mapping[str, Any]) -> Any:
        reset()
        return program.build(**{**sizes, **options})

    def keep() -> None:
        (folder / f"{name}.json").write_text(json.dumps(row), encoding="utf-8")

    start = time.perf_counter()
    step = build({})
    row["samples_ms"] = timed(step, tiny)
    keep()
    path = folder / f"{name}.json.gz"
    tools = importlib.import_module(program.tools)
    row["profiled_ms"] = traced(step, path, True, False, TRACED_STEPS, program.marked, tools)
    del step
    row["seconds"] = time.perf_counter() - start
    trace = fs.load_trace(path)
    advice = trace.advice()
    row |= {"advice": advice.to_dicts(), "notes": advice.notes}
    keep()
    row["accounting"] = trace.accounting().to_dict("records")
    keep()
    for rule in dict.fromkeys(found.rule for found in advice if found.saving_pct > LEAST_PCT):
        for option in [program.changes[rule]] if rule in program.changes else []:
            try:
                row["changed"][rule] = {"option": str(option), "samples_ms": timed(build(option), tiny)}
            except Exception as error:
                row["changed"][rule] = {"option": str(option), "error": f"{type(error).__name__}: {error}"[:300]}
            keep()


# All programs ---------------------------------------------------------------------------------------------------------


def judged(name: str, row: Mapping[str, Any], report: Report) -> int:
    """Add what was measured of a program to the report. Return the number of rows of advice that are not right."""
    facts = {key: value for key, value in row.items() if key not in ("samples_ms", "changed")}
    samples = {rule: change["samples_ms"] for rule, change in row["changed"].items() if "samples_ms" in change}
    report.keep(name, {"as made": row["samples_ms"], **samples}, "ms", **facts)
    ms = statistics.median(row["samples_ms"])
    wrong = 0
    above = [found for found in row.get("advice", []) if found["saving_pct"] > LEAST_PCT]
    if not above:
        report.row(name, f"{ms:.3f}", "none" if "advice" in row else "unknown", *[""] * 5)
    for found in above:
        change = row["changed"].get(found["rule"], {})
        after = statistics.median(change["samples_ms"]) if "samples_ms" in change else math.nan
        gained = 100 * (1 - after / ms)
        right = gained >= found["saving_pct"] / 2
        wrong += not right
        cells = ["", ""] if math.isnan(after) else [f"{after:.3f}", f"{gained:.1f} %"]
        option = change.get("option", "no such option")
        words = "" if right else change.get("error", "WRONG" if cells[0] else "NOT SHOWN")
        report.row(name, f"{ms:.3f}", found["rule"], f"{found['saving_pct']:.1f} %", option, *cells, words)
        report.note(f"{name}: {found['rule']}: {found['what']}")
    return wrong


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the traces and well_made.json; default: none is kept")
    parser.add_argument("--only", metavar="NAME,...", help="programs; default: all that the device runs")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is a GPU")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to test the programs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options.names = options.only.split(",") if options.only else list(PROGRAMS)
    if not options.only and options.device == "cpu" and not options.tiny:
        options.names = [name for name, program in PROGRAMS.items() if program.device == "cpu"]
    if unknown := sorted(set(options.names) - set(PROGRAMS)):
        parser.error(f"unknown program: {', '.join(unknown)}; known: {', '.join(PROGRAMS)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device found")
    return options


def run_all(options: argparse.Namespace, folder: Path) -> bool:
    """Run the programs and print the report. Return whether none failed."""
    report = Report("well_made", COLUMNS, options.out, options.device)
    gpu = f", {torch.cuda.get_device_name()}" if options.device == "cuda" else ""
    report.note(f"torch {torch.__version__}{gpu}; medians, ms per step; advice above {LEAST_PCT:g} % of the time")
    wrong, failed, begin = 0, [], time.monotonic()
    for name in options.names:
        seconds = min(SECONDS, TOTAL_SECONDS - (time.monotonic() - begin))
        path, problem, start = folder / f"{name}.json", "no time is left", time.monotonic()
        device = "cpu" if PROGRAMS[name].device == "cpu" else options.device
        path.unlink(missing_ok=True)
        if seconds >= LEFT_SECONDS:
            command = [sys.executable, os.path.abspath(__file__), "--child", "--only", name, "--out", str(folder)]
            hidden = ["env", "CUDA_VISIBLE_DEVICES="] if device == "cpu" else []
            problem = run_for([*hidden, *command, "--device", device, *["--tiny"] * options.tiny], seconds)
        if path.exists():
            wrong += judged(name, json.loads(path.read_text(encoding="utf-8")), report)
            path.unlink()
        if problem:
            failed.append(name)
            report.note(f"{name} failed: {problem}")
        print(f"{name}: {time.monotonic() - start:.0f} s {problem}", flush=True)
    report.target(f"rows of advice above {LEAST_PCT:g} % that gain less than half", wrong, 0, "")
    report.finish()
    return not failed


def main() -> int:
    options = options_of()
    if options.child:
        (name,) = options.names
        try:
            measured(name, PROGRAMS[name], options.out, options.tiny)
        except Exception as error:
            raise SystemExit(f"{type(error).__name__}: {' '.join(str(error).split())[:500]}") from error
        os._exit(0)  # not waiting for the workers of a DataLoader
    with tempfile.TemporaryDirectory(prefix="flopscope-well-made-") as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if run_all(options, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
