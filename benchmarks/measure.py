"""fs.measure and fs.compare_times: beside peers and ncu, how well medians repeat, what is called slower.

CUDA: kernels of 1 to 200 us, cold, beside triton.testing.do_bench, torch.utils.benchmark, cupyx.profiler.benchmark and
ncu's gpu__time_duration (where each is installed), with the seconds that each took. Repeatability: ten medians of the
same measurement. Verdicts: f is g with 0, 2, 5 or 10 % more work, a hundred trials each. CPU: the last two, the same
with a busy neighbour process.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from harness import Report, arguments, optional

import flopscope as fs

ELEMENTS = (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26)  # float32: neg takes 1 to 130 us on an H200
REPEATS, TRIALS = 10, 100
SLOWER = (0.0, 0.02, 0.05, 0.10)
VERDICT_SECONDS = {"cpu": 0.5, "cuda": 0.5}
BASE = {"cpu": 400_000, "cuda": 1 << 25}  # elements of g's tensor, a multiple of 100: f's has so many percent more

Call = Callable[[], object]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    report = Report("measure", ["case", "who", "median us", "x flopscope", "CV %", "s", "told by"], options.out,
                    options.device)
    if options.device == "cuda":
        beside_peers(report)
    repeat(report, options.device, "idle")
    verdicts(report, options.device, "idle")
    if options.device == "cpu":
        with neighbour():
            repeat(report, "cpu", "busy neighbour")
            verdicts(report, "cpu", "busy neighbour")
    report.finish()


# Peers ----------------------------------------------------------------------------------------------------------------


def beside_peers(report: Report) -> None:
    torch = optional("torch")
    truth = by_ncu()
    if not truth:
        report.note("ncu is not here, or may not count: nothing to hold the times against.")
    worst = 0.0
    for count in ELEMENTS:
        x = fs.rand((count,), device="cuda")
        fs.neg(x)
        begin = time.perf_counter()
        ours = fs.measure(fs.neg, x, peaks="none")
        took = time.perf_counter() - begin
        case = f"neg of {count}"
        report.keep(case, {"flopscope": ours.samples}, "us")
        report.row(case, "flopscope", f"{ours.median:.3f}", "1", f"{100 * ours.std / ours.mean:.2f}", f"{took:.2f}",
                   ours.timing_source)
        others = {**peers(torch, x), "ncu": partial(truth.get, count, [])}
        for who, sample in others.items():
            begin = time.perf_counter()
            values = sample()
            took = time.perf_counter() - begin
            if not values:
                continue
            found = statistics.median(values)
            report.keep(case, {who: values}, "us")
            report.row("", who, f"{found:.3f}", f"{found / ours.median:.3f}", "", f"{took:.2f}", "")
            if who == "ncu" and 1 <= found <= 50:
                worst = max(worst, abs(ours.median / found - 1))
    if truth:
        report.target("distance of the median from ncu's, kernels of 1 to 50 us", 100 * worst, 2, "%")


def peers(torch: Any, x: fs.Tensor) -> dict[str, Callable[[], list[float]]]:
    """By name, what gives times in us of torch's neg (cupy's, of cupy) on the same memory."""
    found: dict[str, Callable[[], list[float]]] = {}
    if torch is None:
        return found
    there = torch.from_dlpack(x)

    def timer() -> list[float]:
        made = torch.utils.benchmark.Timer("torch.neg(x)", globals={"torch": torch, "x": there})
        return [1e6 * value for value in made.blocked_autorange().times]

    if importlib.util.find_spec("triton"):
        import triton.testing

        found["triton do_bench"] = lambda: [
            1e3 * ms for ms in triton.testing.do_bench(lambda: torch.neg(there), return_mode="all")
        ]
    importlib.import_module("torch.utils.benchmark")
    found["torch.utils.benchmark"] = timer
    cupyx = optional("cupyx.profiler")
    if cupyx is not None:
        import cupy

        array = cupy.from_dlpack(there)
        found["cupyx benchmark"] = lambda: (
            1e6 * cupyx.benchmark(cupy.negative, (array,), n_repeat=200).gpu_times[0]
        ).tolist()
    return found


def by_ncu() -> dict[int, list[float]]:
    """us of neg by its number of elements, as Nsight Compute counts them; {} where it cannot."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return {}
    program = (
        "import flopscope as fs\n"
        f"for count in {ELEMENTS}:\n"
        "    x = fs.empty((count,), device='cuda')\n"
        "    for _ in range(21): fs.neg(x)\n"
    )
    command = [ncu, "--csv", "--metrics", "gpu__time_duration.sum", "--clock-control", "none", "--cache-control", "all",
               "--print-units", "base", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(lines) if row.get("Metric Name") == "gpu__time_duration.sum"]
    values = [float(row["Metric Value"].replace(",", "")) / 1e3 for row in rows]  # of ns
    if done.returncode != 0 or len(values) != 21 * len(ELEMENTS):
        return {}
    return {count: values[21 * place + 1 : 21 * (place + 1)] for place, count in enumerate(ELEMENTS)}


# Repeatability --------------------------------------------------------------------------------------------------------


def repeat(report: Report, device: str, how: str) -> None:
    worst = 0.0
    for count in (ELEMENTS[1:] if device == "cuda" else ELEMENTS[1:5]):
        x = fs.rand((count,), device=device)
        call: Call = partial(fs.neg, x, out=fs.neg(x))
        begin = time.perf_counter()
        medians = [fs.measure(call, peaks="none", graph=False).median for _ in range(REPEATS)]
        took = (time.perf_counter() - begin) / REPEATS
        varies = 100 * statistics.stdev(medians) / statistics.mean(medians)
        worst = max(worst, varies)
        case = f"neg of {count}, {REPEATS} times, {how}"
        report.keep(case, {"flopscope": medians}, "us")
        report.row(case, "flopscope", f"{statistics.median(medians):.3f}", "", f"{varies:.2f}", f"{took:.2f}", "")
    report.target(f"CV of {REPEATS} medians, {how}", worst, 0.5, "%")


# Verdicts -------------------------------------------------------------------------------------------------------------


def verdicts(report: Report, device: str, how: str) -> None:
    calls = calls_of(device)
    for slower, call in calls.items():
        begin = time.perf_counter()
        found = [fs.compare_times(call, calls[0.0], max_time=VERDICT_SECONDS[device]) for _ in range(TRIALS)]
        took = (time.perf_counter() - begin) / TRIALS
        said = [one.verdict for one in found]
        counts = ", ".join(f"{said.count(word)} {word}" for word in dict.fromkeys(said))
        case = f"{100 * slower:g} % more work, {how}"
        report.keep(case, {"ratio": [one.ratio for one in found]}, "")
        report.row(case, "compare_times", "", f"{statistics.median(one.ratio for one in found):.4f}", "", f"{took:.2f}",
                   counts)
        if slower == 0:
            report.target(f"false alarms of {TRIALS}, {how}", said.count("slower") + said.count("faster"), 0, "")
        if slower == max(SLOWER):
            report.target(f"missed of {TRIALS} at {100 * slower:g} %, {how}", TRIALS - said.count("slower"), 0, "")


def calls_of(device: str) -> dict[float, Call]:
    """By how much slower each is: neg of so many more elements, of the same memory, whose place matters on a CPU."""
    most = round(BASE[device] * (1 + max(SLOWER)))
    if device == "cuda":
        return {slower: partial(fs.neg, fs.rand((round(BASE[device] * (1 + slower)),), device=device))
                for slower in SLOWER}
    x, out = np.random.default_rng(0).random((2, most), dtype=np.float32)
    views = {slower: slice(round(BASE[device] * (1 + slower))) for slower in SLOWER}
    return {slower: partial(fs.neg, fs.from_numpy(x[view]), out=fs.from_numpy(out[view]))
            for slower, view in views.items()}


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that keeps one processor busy."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


if __name__ == "__main__":
    main()
