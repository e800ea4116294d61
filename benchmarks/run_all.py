"""Run every benchmark for a device, each in a separate process; a failure does not stop the others.

python benchmarks/run_all.py --out benchmarks/results/MACHINE [--device cpu|cuda]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from harness import HERE, ROOT, arguments

# Independent of the device.
HOST_PROGRAMS = ("store_append", "import_time", "stacks", "load_trace", "nsys", "trace_tools", "answers", "report")
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
CUDA_PROGRAMS = ("capture", "graphs")
LIMIT = 1200  # seconds per program


def main() -> int:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    failed = []
    for name in HOST_PROGRAMS + DEVICE_PROGRAMS + (CUDA_PROGRAMS if options.device == "cuda" else ()):
        error = run_one(name, options.out, options.device)
        if error is None:
            continue
        failed.append(name)
        print(f"{name} failed: {error}\n", flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{name}.json").write_text(json.dumps({"name": name, "error": error}, indent=1) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run_one(name: str, out: Path | None, device: str) -> str | None:
    """Run one benchmark; return an error message, or None on success."""
    command = [sys.executable, str(HERE / f"{name}.py")]
    if name not in HOST_PROGRAMS:
        command += ["--device", device]
    if out is not None:
        command += ["--out", str(out)]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"{name}.py took more than {LIMIT} s"
    print(f"({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)
    if done.returncode != 0:
        return f"{name}.py exited with {done.returncode}:\n{done.stderr}".replace(f"{ROOT}/", "")
    return None


if __name__ == "__main__":
    sys.exit(main())
