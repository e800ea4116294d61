"""Run every benchmark for a device, each in a separate process, and say which targets are met and what got slower.

A failure does not stop the others. The last lines compare each ratio within this run with the same ratio of the version
before: by default that of the newest committed result of the same machine. OUT gets a file of each program with its raw
samples, and kept.json with what is committed of all; a run of some programs (--only) updates their part of it.

    python benchmarks/run_all.py --out FOLDER [--device cpu|cuda] [--only load_trace,report] [--before FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import summary
from harness import HERE, ROOT, arguments, write_json

# Independent of the device.
HOST_PROGRAMS = (
    *("store_append", "import_time", "stack_sampling", "load_trace", "nsys", "xplane", "answers"),
    *("growth", "report"),
)
DEVICE_PROGRAMS = (
    *("grouping", "call_overhead", "recording", "run_overhead", "kernels", "matmul", "torch_profile", "measure"),
)
CUDA_PROGRAMS = ("capture", "graphs")
ROUNDS = {"measure": 3, "run_overhead": 3}  # which take minutes with all of theirs
LIMIT = 1200  # seconds per program


def main() -> int:
    options = arguments(__doc__ or "", ("cpu", "cuda"), add_options)
    programs = HOST_PROGRAMS + DEVICE_PROGRAMS + (CUDA_PROGRAMS if options.device == "cuda" else ())
    unknown = set(options.only or ()) - set(programs)
    if unknown:
        sys.exit(f"run_all.py: there is no {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
    candidates = [summary.read(path) for path in options.before or (HERE / "results").glob("*.json")]
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        out: Path = options.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        kept = summary.read(out / "kept.json")
        for name in options.only or programs:
            start = time.perf_counter()
            error = run_one(name, out, options.device)
            print(f"{name} failed: {error}\n" if error else f"({name}: {time.perf_counter() - start:.0f} s)\n")
            result = out / f"{name}.json"
            kept[name] = {"error": error} if error else summary.kept_of(json.loads(result.read_text(encoding="utf-8")))
            write_json(out / "kept.json", kept)
        print(summary.text(kept, candidates))
    return 1 if any("error" in one for one in kept.values()) else 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=lambda names: names.split(","), metavar="NAMES", help="programs, with commas")
    parser.add_argument(
        "--before", type=Path, nargs="+", metavar="FILE", help="results before; default: committed ones"
    )


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
    return "" if (out / f"{name}.json").exists() else f"{name}.py wrote no result"


if __name__ == "__main__":
    sys.exit(main())
