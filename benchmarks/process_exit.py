"""Exit codes of processes that use torch.profiler, with and without flopscope.

Each process profiles several thousand torch additions on the GPU four times and exits. If CUDA's driver is initialised
before torch is imported, some abort at exit ("double free or corruption"), with or without flopscope: exit handlers
destroy the CUDA context after torch's profiler. No process that imports flopscope may abort.
"""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
from collections import Counter

from harness import Report, arguments

PROGRAM = """
{first}
import torch
x = torch.rand(1024, device="cuda")
for turn in range(4):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as prof:
        for _ in range(5000):
            torch.add(x, x)
    prof.key_averages(); prof.events()
print("end", flush=True)
"""
FIRST = {
    "torch alone": "",
    "driver, then torch": "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)",
    "flopscope.devices(), then torch": "import flopscope as fs; fs.devices()",
    "flopscope op, then torch": "import flopscope as fs; fs.add(fs.rand((8, 8)), fs.rand((8, 8)))",
    "flopscope profile, then torch": "import flopscope as fs\nwith fs.profile(): fs.rand((8, 8))",
}
RUNS, AT_ONCE = 40, 12


def main() -> None:
    options = arguments(__doc__ or "", ("cuda",))
    report = Report("process_exit", ["process", "runs", "failed", "last message"], options.out, options.device)
    own_failures = 0
    for name, first in FIRST.items():
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            ends = list(pool.map(run, [first] * RUNS))
        bad = [end for end in ends if end]
        report.keep(name, {"bad": [float(bool(end)) for end in ends]}, "1: failed")
        report.row(name, str(RUNS), str(len(bad)), ", ".join(f"{n} x {text}" for text, n in Counter(bad).items()))
        own_failures += len(bad) if name.startswith("flopscope") else 0
    report.target("processes with flopscope that fail", own_failures, 0, "")
    report.finish()


def run(first: str) -> str:
    """Return "" if the process succeeds, otherwise its exit code and last message."""
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0 and "end" in done.stdout:
        return ""
    last = done.stderr.strip().splitlines()[-1:] or ["no message"]
    return f"{done.returncode}: {last[0][:60]}"


if __name__ == "__main__":
    main()
