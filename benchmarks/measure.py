"""fs.measure compared with other timers on the same calls: reported times, their repeatability, and seconds taken.

CUDA: torch's kernels of 1 to 150 us, with a cold cache, timed by triton.testing.do_bench, torch.utils.benchmark,
cupyx.profiler.benchmark and ncu's gpu__time_duration. CPU: zlib.crc32 and flopscope's neg, also timed by timeit and
torch.utils.benchmark, on an idle machine and next to a busy process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import timeit
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import nsight
from harness import Report, arguments, optional

import flopscope as fs

REPEATS = 10
NCU_CALLS = 20
UNDER_NCU, DURATION, NCU_SECONDS = "--under-ncu", "gpu__time_duration.sum", 120
CPU_ELEMENTS = (1 << 12, 1 << 16, 1 << 20)
COLUMNS = ["case", "timer", "median us", "x ncu", "- ncu", "CV %", "seconds"]

Call = Callable[[], object]
Tool = Callable[[Call], float]  # the median, in us


def main() -> None:
    if sys.argv[1:] == [UNDER_NCU]:
        return launch_for_ncu()
    options = arguments(__doc__ or "", ("cpu", "cuda"), rounds=REPEATS)
    report = Report("measure", COLUMNS, options.out, options.device)
    if options.device == "cuda":
        on_cuda(report, options.rounds)
    else:
        on_cpu(report, "idle", options.rounds)
        with neighbour():
            on_cpu(report, "busy neighbour", options.rounds)
    report.finish()


# CUDA -----------------------------------------------------------------------------------------------------------------


def cuda_calls(torch: Any) -> dict[str, Call]:
    """Return calls that launch one kernel each, by name."""
    calls: dict[str, Call] = {
        f"neg of {count} Ki": partial(torch.neg, torch.rand(count << 10, device="cuda"))
        for count in (4, 64, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
    }
    x = torch.rand(2048, 2048, device="cuda")
    half = torch.rand(1024, 1024, device="cuda", dtype=torch.bfloat16)
    calls["softmax of 2048 x 2048"] = partial(torch.softmax, x, -1)
    calls["layer_norm of 2048 x 2048"] = partial(torch.nn.functional.layer_norm, x, (2048,))
    calls["matmul of 1024 in bfloat16"] = partial(torch.matmul, half, half)
    return calls


def on_cuda(report: Report, repeats: int) -> None:
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: its kernels cannot be timed.")
        return
    calls = cuda_calls(torch)
    truth: list[list[float]] = []
    try:
        truth = by_ncu(len(calls))
    except RuntimeError as problem:
        report.note(f"There are no reference times: {problem}")
    tools = cuda_tools()
    for call in calls.values():
        fs.measure(call, peaks="none")  # load kernels and do other one-time work
    medians, took, varies = {}, {}, {}
    for at, (case, call) in enumerate(calls.items()):
        counted = statistics.median(truth[at]) if truth else None
        medians[case], took[case], varies[case] = time_all(report, case, call, tools, counted, repeats)
        if counted is not None:
            report.keep(case, {"ncu": truth[at]}, "us")
            report.row("", "ncu", f"{counted:.3f}", "1", "", "", "")
            medians[case]["ncu"] = counted
    targets_on_cuda(report, medians, took, varies, repeats)


def targets_on_cuda(
    report: Report,
    medians: Mapping[str, Mapping[str, float]],
    took: Mapping[str, Mapping[str, float]],
    varies: Mapping[str, float],
    repeats: int,
) -> None:
    report.target(f"CV of {repeats} medians", max(varies.values()), 0.5, "%")
    if any("triton do_bench" in seconds for seconds in took.values()):
        ours, its = ([each[who] for each in took.values()] for who in ("flopscope", "triton do_bench"))
        longer = statistics.median(ours) / statistics.median(its)
        report.target("seconds of a measurement, over do_bench's", longer, 1, "")
    short = {case: us for case, us in medians.items() if 1 <= us.get("ncu", 0) <= 50}
    if short:
        raw = max(abs(us["flopscope"] / us["ncu"] - 1) for us in short.values())
        report.target("difference from ncu's times, kernels of 1 to 50 us", 100 * raw, 2, "%")
        offset = statistics.median(us["ncu"] - us["flopscope"] for us in short.values())
        rest = max(abs((us["flopscope"] + offset) / us["ncu"] - 1) for us in short.values())
        report.target(f"the same without the {offset:.2f} us by which ncu's times are longer", 100 * rest, 2, "%")


def cuda_tools() -> dict[str, Tool]:
    import torch.utils.benchmark

    def timer(call: Call) -> float:
        benchmark = torch.utils.benchmark.Timer("call()", globals={"call": call})
        return 1e6 * float(benchmark.blocked_autorange().median)

    tools: dict[str, Tool] = {"flopscope": by_measure}
    triton = optional("triton.testing")
    if triton is not None:
        tools["triton do_bench"] = lambda call: 1e3 * float(triton.do_bench(call, return_mode="median"))
    tools["torch.utils.benchmark"] = timer
    cupyx = optional("cupyx.profiler")
    if cupyx is not None:
        tools["cupyx benchmark"] = lambda call: (
            1e6 * statistics.median(cupyx.benchmark(call, name="", n_repeat=200).gpu_times[0].tolist())
        )
    return tools


def launch_for_ncu() -> None:
    import torch

    for call in cuda_calls(torch).values():
        call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        for _ in range(NCU_CALLS):
            call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def by_ncu(cases: int) -> list[list[float]]:
    """Return the us of each case's calls as measured by Nsight Compute. Raise RuntimeError if it is unavailable."""
    found = nsight.kernels((os.path.abspath(__file__), UNDER_NCU), (DURATION,), "all", NCU_SECONDS)
    values = [kernel.values[DURATION] / 1e3 for kernel in found]  # ns to us
    if len(values) != NCU_CALLS * cases:
        raise RuntimeError(f"ncu has counted {len(values)} kernels instead of {NCU_CALLS * cases}")
    return [values[NCU_CALLS * case : NCU_CALLS * (case + 1)] for case in range(cases)]


# The CPU --------------------------------------------------------------------------------------------------------------


def on_cpu(report: Report, how: str, repeats: int) -> None:
    calls: dict[str, Call] = {"crc32 of 100 kB": partial(zlib.crc32, bytes(100_000))}
    for count in CPU_ELEMENTS:
        x = fs.rand((count,), device="cpu")
        calls[f"neg of {count >> 10} Ki"] = partial(fs.neg, x, out=fs.neg(x))
    varies = {}
    for case, call in calls.items():
        _, _, varies[case] = time_all(report, f"{case}, {how}", call, cpu_tools(), None, repeats)
    report.target(f"CV of {repeats} medians, {how}", max(varies.values()), 0.5, "%")


def cpu_tools() -> dict[str, Tool]:
    def by_timeit(call: Call) -> float:
        timer = timeit.Timer(call)
        count, _ = timer.autorange()
        return 1e6 * statistics.median(timer.repeat(5, count)) / count

    tools: dict[str, Tool] = {"flopscope": by_measure, "timeit": by_timeit}
    torch = optional("torch.utils.benchmark")
    if torch is not None:
        tools["torch.utils.benchmark"] = lambda call: (
            1e6 * float(torch.Timer("call()", globals={"call": call}).blocked_autorange().median)
        )
    return tools


@contextmanager
def neighbour() -> Iterator[None]:
    """Run a process that keeps one processor busy within a ``with`` block."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


# Both -----------------------------------------------------------------------------------------------------------------


def by_measure(call: Call) -> float:
    return fs.measure(call, peaks="none").median


def time_all(
    report: Report, case: str, call: Call, tools: Mapping[str, Tool], counted: float | None, repeats: int
) -> tuple[dict[str, float], dict[str, float], float]:
    """Add a row per tool. Return the median us and the seconds per measurement of each, and flopscope's CV in %."""
    medians: dict[str, list[float]] = {who: [] for who in tools}
    seconds: dict[str, list[float]] = {who: [] for who in tools}
    for who, tool in tools.items():
        for _ in range(repeats):
            begin = time.perf_counter()
            medians[who].append(tool(call))
            seconds[who].append(time.perf_counter() - begin)
    report.keep(case, medians, "us")
    report.keep(f"{case}, seconds of a measurement", seconds, ours="flopscope")
    varies = {who: 100 * statistics.stdev(us) / statistics.mean(us) for who, us in medians.items()}
    overall = {who: statistics.median(us) for who, us in medians.items()}
    took = {who: statistics.median(each) for who, each in seconds.items()}
    for who in tools:
        first = case if who == next(iter(tools)) else ""
        facts = *against(overall[who], counted), f"{varies[who]:.2f}", f"{took[who]:.3f}"
        report.row(first, who, f"{overall[who]:.3f}", *facts)
    return overall, took, varies["flopscope"]


def against(us: float, counted: float | None) -> tuple[str, str]:
    return ("", "") if counted is None else (f"{us / counted:.3f}", f"{us - counted:+.2f}")


if __name__ == "__main__":
    main()
