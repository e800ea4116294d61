"""Run every benchmark for a device, each in a separate process, and say which targets are met and what got slower.

A failure does not stop the others. The last lines compare each ratio within this run with the same ratio of the version
before: by default that of the newest committed result of the same machine. OUT gets the results, summary.json and
summary.txt; a run of some programs (--only) updates the summary of the others.

    python benchmarks/run_all.py --out FOLDER [--device cpu|cuda] [--only load_trace,report] [--before FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import summary
from harness import HERE, ROOT, arguments, write_json

# Independent of the device.
HOST_PROGRAMS = (
    "store_append",
    "nvtx_calls",
    "import_time",
    "stacks",
    "stack_sampling",
    "load_trace",
    "hlo",
    "nsys",
    "xplane",
    "trace_tools",
    "answers",
    "report",
    "agents",
)
DEVICE_PROGRAMS = (
    "grouping",
    "call_overhead",
    "profiling_overhead",
    "recording",
    "run_overhead",
    "pointwise",
    "matmul",
    "torch_profile",
    "measure",
    "verdicts",
)
CUDA_PROGRAMS = ("kernels", "capture", "graphs")
ROUNDS = {"verdicts": 20, "measure": 3, "run_overhead": 3}  # which take minutes with all of theirs
LIMIT = 1200  # seconds per program
RESULTS = HERE / "results"


def main() -> int:
    options = arguments(__doc__ or "", ("cpu", "cuda"), add_options)
    programs = HOST_PROGRAMS + DEVICE_PROGRAMS + (CUDA_PROGRAMS if options.device == "cuda" else ())
    unknown = set(options.only or ()) - set(programs)
    if unknown:
        sys.exit(f"run_all.py: there is no {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
    programs = tuple(name for name in programs if not options.only or name in options.only)
    before = {name: results_before(name, options.before) for name in programs}  # before OUT is written to
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        out: Path = options.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        whole = summary.combined([summary.read_summary(out / "summary.json")])
        for name in programs:
            start = time.perf_counter()
            error = run_one(name, out, options.device)
            seconds = time.perf_counter() - start
            print(f"{name} failed: {error}\n" if error else f"({name}: {seconds:.0f} s)\n", flush=True)
            if error:
                write_json(out / f"{name}.json", {"name": name, "error": error})
            part = summary.summarized(name, summary.read(out / f"{name}.json"), before[name], seconds, error)
            whole = summary.combined([whole, part])
            write_json(out / "summary.json", whole)
            (out / "summary.txt").write_text(summary.text(whole) + "\n", encoding="utf-8")
        print(summary.text(whole))
    return 1 if any("error" in row for row in whole["programs"] if row["program"] in programs) else 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=lambda names: names.split(","), metavar="NAMES", help="programs, with commas")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="results before; default: those committed")


def results_before(name: str, folder: Path | None) -> list[dict[str, Any]]:
    """Return the results of a program in a folder, or in all folders of committed results."""
    paths = sorted(RESULTS.glob(f"*/{name}.json")) if folder is None else [folder / f"{name}.json"]
    return [content for content in map(summary.read, paths) if content is not None]


def run_one(name: str, out: Path, device: str) -> str:
    """Run one benchmark. Return an error message, or ""."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--out", str(out)]
    if name not in HOST_PROGRAMS:
        command += ["--device", device]
    if name in ROUNDS:
        command += ["--rounds", str(ROUNDS[name])]
    (out / f"{name}.json").unlink(missing_ok=True)  # that of an earlier run
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"{name}.py took more than {LIMIT} s"
    if done.returncode != 0:
        return f"{name}.py exited with {done.returncode}:\n{done.stderr}".replace(f"{ROOT}/", "")
    return ""


if __name__ == "__main__":
    sys.exit(main())
