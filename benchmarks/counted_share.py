"""How much of a program's work `flopscope run --counters` counts. Needs a GPU whose counters may be read.

Five programs of 2 to 12 s (counted_share_programs.py) whose work comes late, in bursts or all the time; and profiles of
0.05 to 2 s of a training loop, by flopscope.torch.profile. For each: the share of the device's working time that lies
within samples, and the share of it in rows whose bytes are known; and what counting adds to a step of the training.
--against FOLDER does the same with an older flopscope, whose package is there, in turns. About 90 s, and 160 s with
--against.

    python benchmarks/counted_share.py --device cuda --out FOLDER [--against FOLDER] [--programs triton,bursts]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import HERE, ROOT, Report, arguments

PROGRAMS = {
    "triton": "Triton: JIT, then 47 ms of kernels",
    "cupy": "CuPy, 2 s",
    "training": "training, 10 s",
    "tiny": "tiny kernels, 5 s",
    "bursts": "bursts and pauses, 5 s",
}
PROFILES = (0.05, 0.3, 1.0, 2.0)
"""Seconds."""
LEAST = 60.0
"""Percent of a program's work to be counted."""
SECONDS = 60
STEPS = "training"
"""The program whose steps are timed, also without counters."""
COLUMNS = ("program", "flopscope", "work s", "counted %", "known %", "samples", "< 10 us", "lost", "step ms", "total s")
CHILD, PLAIN, PROFILED = "--child", "--plain", "--profiled"


def main() -> int:
    if len(sys.argv) == 4 and sys.argv[1] in (CHILD, PLAIN):
        return recorded_run(sys.argv[2], Path(sys.argv[3]), sys.argv[1] == CHILD)
    if len(sys.argv) == 3 and sys.argv[1] == PROFILED:
        return counted_profiles(Path(sys.argv[2]))
    options = arguments(__doc__ or "", ("cuda",), add_options)
    report = Report("counted_share", COLUMNS, options.out, "cuda")
    roots = {"this": ROOT} | ({"before": options.against.resolve()} if options.against else {})
    for name in options.programs.split(","):
        steps = {who: measure(name, who, root, CHILD, report) for who, root in roots.items()}
        if name == STEPS:
            plain = measure(name, "not counted", ROOT, PLAIN, report)
            report.target("counting adds to a step", 100 * (steps["this"] / plain - 1), 1, "%")
    report.finish()
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", type=Path, help="folder that holds an older package flopscope, built")
    every = ",".join((*PROGRAMS, "profiles"))
    parser.add_argument("--programs", default=every, help=f"some of {every}")


def measure(name: str, who: str, root: Path, how: str, report: Report) -> float:
    """Run a program in a process of its own with the flopscope of a folder, and add what was counted to the report.

    Return the seconds of a step; NaN if it has none.
    """
    with tempfile.TemporaryDirectory(prefix="flopscope-share-") as folder:
        path = Path(folder) / "found.json"
        environment = {**os.environ, "PYTHONPATH": str(root), "TRITON_CACHE_DIR": f"{folder}/triton"}
        what = [PROFILED] if name == "profiles" else [how, name]
        command = [sys.executable, os.path.abspath(__file__), *what, str(path)]
        begin, printed = time.monotonic(), ""
        try:
            done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, timeout=SECONDS)
            printed = done.stdout
            problem = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no message"])[-1]
        except subprocess.TimeoutExpired:
            problem = f"it took more than {SECONDS} s"
        took, step = time.monotonic() - begin, step_in(printed)
        print(f"({name}, {who}: {took:.0f} s)", flush=True)
        if not path.exists():
            report.note(f"{name} ({who}) failed: {problem or 'nothing was recorded'}")
            return math.nan
        for label, found in json.loads(path.read_text(encoding="utf-8")).items():
            add(PROGRAMS.get(label, label), who, {**found, "step": step, "took": took}, report)
        return step


def step_in(printed: str) -> float:
    """Return the seconds of a step that a program printed, or NaN."""
    for line in printed.splitlines():
        if line.startswith('{"step": '):
            step = json.loads(line)["step"]
            return math.nan if step is None else float(step)
    return math.nan


def add(label: str, who: str, found: dict[str, Any], report: Report) -> None:
    """Add a row, the raw numbers and, of this flopscope, the target."""
    counted, known = 100 * found["counted"], 100 * found["known"]
    cells = [f"{found['work']:.3f}", f"{counted:.1f}", f"{known:.1f}"]
    counts = [str(found[key]) for key in ("samples", "fine", "lost")]
    step = "" if math.isnan(found["step"]) else f"{1e3 * found['step']:.3f}"
    report.row(label, who, *cells, *counts, step, f"{found['took']:.1f}")
    report.keep(label, {who: [counted]}, "%", **found)
    report.done()
    if who == "this" and label in PROGRAMS.values():
        report.target(f"counted of {label}", counted, LEAST, "%", least=True)


# In the process that counts -------------------------------------------------------------------------------------------


def recorded_run(name: str, path: Path, counts: bool) -> int:
    """Run a program under `flopscope run`, with counters or not, and write what was counted in place of the results."""
    from flopscope.cli.program import main as flopscope
    from flopscope.cli.run import Run

    def hand_over(self: Run, prof: Any) -> None:
        path.write_text(json.dumps({name: figures(prof)}), encoding="utf-8")

    Run._hand_over = hand_over  # type: ignore[method-assign]
    program = str(HERE / "counted_share_programs.py")
    wish = ["--counters"] if counts else []
    return int(flopscope(["run", *wish, "--no-samples", "--no-report", program, name]) or 0)


def counted_profiles(path: Path) -> int:
    """Profile a training loop for several times, and write what was counted in each."""
    import torch

    import flopscope.torch as ft

    layers = [torch.nn.Linear(2048, 2048, device="cuda") for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    x = torch.randn(4096, 2048, device="cuda")
    found = {}

    def step() -> None:
        model(x).relu().square().mean().backward()

    step()
    torch.cuda.synchronize()
    for seconds in PROFILES:
        with ft.profile(counters="require") as prof:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for _ in range(4):
                    step()
                torch.cuda.synchronize()
        found[f"profile of {seconds:g} s"] = figures(prof)
        path.write_text(json.dumps(found), encoding="utf-8")
    return 0


def figures(prof: Any) -> dict[str, Any]:
    """Return what the samples of a profile cover."""
    from flopscope.answers.counted import Counted
    from flopscope.results.results import store_of

    core = store_of(prof, "counters")
    counted = Counted(core)
    total = next(iter(counted.totals()), None)
    busy = next(iter(counted._busy.values()), None)
    rows = [row for row in prof.key_averages(peaks="none") if row.device_type == "cuda"]
    of_all = sum(row.device_busy_time for row in rows)
    known = sum(row.device_busy_time for row in rows if not math.isnan(row.dram_bytes_read))
    lengths = next((end - start for _, _, _, _, start, end, _ in core.samples()), None)
    counters = getattr(prof, "_counters", None)
    reports = counters.reports if counters is not None else []
    return {
        "counted": total.share if total is not None else 0.0,
        "work": 0.0 if busy is None else float((busy[1] - busy[0]).sum()) / 1e9,
        "known": known / of_all if of_all else 0.0,
        "samples": 0 if lengths is None else len(lengths),
        "fine": 0 if lengths is None else int((lengths < 10_000).sum()),
        "lost": sum(one["lost"] for one in reports),
    }


if __name__ == "__main__":
    sys.exit(main())
