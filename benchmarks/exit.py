"""How processes end that use torch.profiler beside flopscope: exit codes, not times.

Each process profiles some thousand additions of torch on the GPU four times and ends. "driver first" initialises CUDA's
driver before torch is imported, which lets some of them abort at their end ("double free or corruption"): a fault of
the order in which exit handlers run, with or without flopscope. flopscope keeps the primary contexts alive at the end
of a process that it is imported in, and none of its own must abort.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

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
    "driver first, torch alone": "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)",
    "flopscope.devices() first": "import flopscope as fs; fs.devices()",
    "flopscope op first": "import flopscope as fs; fs.add(fs.rand((8, 8)), fs.rand((8, 8)))",
    "flopscope profile first": "import flopscope as fs\nwith fs.profile(): fs.rand((8, 8))",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="processes of each kind")
    parser.add_argument("--parallel", type=int, default=7, help="of them at once")
    parser.add_argument("--out", type=Path, help="folder for exit.json")
    options = parser.parse_args()
    found = {}
    for name, first in FIRST.items():
        with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
            codes = list(pool.map(lambda _, first=first: run(first), range(options.runs)))
        found[name] = codes
        bad = sum(code != "0" for code in codes)
        print(f"{name:<28} {bad:>4} of {len(codes)} ended badly  {dict(Counter(codes))}", flush=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "exit.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run(first: str) -> str:
    """The exit code of one process, and what it said last where that is not 0."""
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0 and "end" in done.stdout:
        return "0"
    last = done.stderr.strip().splitlines()[-1:] or ["no message"]
    return f"{done.returncode}: {last[0][:80]}"


if __name__ == "__main__":
    main()
