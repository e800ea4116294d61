"""Effect of a busy machine on measured peaks: ``flopscope devices --measure`` alone and next to two busy processes.

Each case runs five times. ``stored`` is the combined result that flopscope stores, ``last reading`` the result if each
measurement replaced the previous one (--reset, with a separate cache, alternating with the other). After each run,
fs.measure reports the share of the roofline that sin of 2048 x 2048 reaches with either. All these shares use the same
time of sin, so they depend on the peaks only.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import Report, arguments

import flopscope as fs

RUNS = 5
NEIGHBOURS = (0, 2)
SIDE = 2048
BUSY = """
import flopscope as fs
x = fs.ones((2048, 2048), device="{device}")
while True:
    fs.matmul(x, x)
    fs.synchronize("{device}")
"""
SPIN = "while True: sum(range(10_000))"
COLUMNS = ["run", "peaks", "memory GB/s", "fp32 TFLOP/s", "spread", "load", "% roofline of sin", "bound", "seconds"]
KEPT, LAST = "stored", "last reading"


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    report = Report("peaks", COLUMNS, options.out, options.device)
    device = "cpu" if options.device == "cpu" else "cuda:0"
    x = fs.rand((SIDE, SIDE), device=device)
    us = statistics.median(fs.measure(fs.sin, x, peaks="none").median for _ in range(5))
    report.note(f"sin of {SIDE} x {SIDE} takes {us:.0f} us.")
    shares: dict[str, list[float]] = {KEPT: [], LAST: []}
    verdicts: dict[str, list[str]] = {KEPT: [], LAST: []}
    stored: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for busy in NEIGHBOURS:
            for run in range(RUNS):
                for who in (KEPT, LAST):
                    with neighbours(busy, device):
                        peaks, messages, seconds = measured(Path(folder, who), device, reset=who == LAST)
                    bound, share = verdict(Path(folder, who), device, us)
                    shares[who].append(share)
                    verdicts[who].append(bound)
                    if who == KEPT:
                        stored.append(numbers(peaks))
                    case = f"{run + 1}, {busy} busy"
                    values = {f"{who}: {name}": [value] for name, value in numbers(peaks).items()}
                    report.keep(case, values, "1/s", said=messages)
                    report.row(
                        case,
                        who,
                        f"{peaks['bandwidth'] / 1e9:.1f}",
                        f"{peaks['flops']['fp32'] / 1e12:.4g}",
                        f"{100 * peaks['spread']['fp32']:.1f} %",
                        f"{peaks['load_average']:.2f}",
                        f"{share:.1f}",
                        bound,
                        f"{seconds:.1f}",
                    )
    report.target("decreases of a stored number", drops(stored), 0, "")
    for who in (KEPT, LAST):
        moved = max(shares[who]) / min(shares[who])
        report.note(
            f"{who}: the share of sin varied by {100 * (moved - 1):.1f} %, its bound was "
            f"{' or '.join(dict.fromkeys(verdicts[who]))}."
        )
    after = shares[KEPT][RUNS - 1 :]  # from the last idle run on
    report.target("change of the share of sin by busy runs", 100 * (max(after) / min(after) - 1), 3, "%")
    report.finish()


@contextlib.contextmanager
def neighbours(count: int, device: str) -> Iterator[None]:
    """Run processes that keep processors or the GPU busy within a ``with`` block."""
    code = SPIN if device == "cpu" else BUSY.format(device=device)
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    time.sleep(3 if running and device != "cpu" else 0)  # until they run
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measured(folder: Path, device: str, reset: bool) -> tuple[dict[str, Any], str, float]:
    """Run the command; return the stored peaks, its stderr output, and the seconds taken for all devices."""
    file = folder.parent / "devices.json"
    command = [sys.executable, "-m", "flopscope", "devices", "--measure", "--json", str(file)]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, *(["--reset"] if reset else [])],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FLOPSCOPE_CACHE_DIR": str(folder)},
    )
    seconds = time.perf_counter() - begin
    devices = json.loads(file.read_text())["devices"]
    return next(d["measured"] for d in devices if d["kind"] == device[:4].rstrip(":")), done.stderr, seconds


def numbers(peaks: dict[str, Any]) -> dict[str, float]:
    """Return all numbers as rates (times inverted), so that higher is better."""
    rates = {name: value for name, value in peaks.items() if name.endswith("bandwidth") and value}
    times = {f"1 / {name}": 1 / peaks[name] for name in ("launch_ns", "kernel_ns") if peaks[name]}
    return {**peaks["flops"], **rates, **times}


def drops(stored: list[dict[str, float]]) -> int:
    return sum(after[name] < value for before, after in pairwise(stored) for name, value in before.items())


def verdict(folder: Path, device: str, us: float) -> tuple[str, float]:
    """Return the bound of sin by fs.measure in a separate process, and the share of the roofline at ``us``."""
    code = (
        f'import flopscope as fs; m = fs.measure(fs.sin, fs.rand(({SIDE}, {SIDE}), device="{device}"), '
        'peaks="measured"); print(m.bound, m.pct_roofline * m.median)'
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FLOPSCOPE_CACHE_DIR": str(folder)},
    )
    bound, product = done.stdout.split()
    return bound, float(product) / us


if __name__ == "__main__":
    main()
