"""Hardware counters beside a profile: what they cost, and how exact they are. Needs a GPU whose counters may be read.

cost      a training step, a kernel's own time and a small op's launch, profiled without and with counters in turns
kernels   bytes read per kernel over the model's, by length, at the default interval of a profile of 100 ms
long      how the interval adapts to long runs, and whether buffers overflow
program   sums of a whole program over those of Nsight Compute for the same program (if ncu is there)
calls     exact counts of 20 ops over those of Nsight Compute

Each part runs in a process of its own, which is ended after its time: seven and a half minutes in all. What it has
measured by then is reported.

    python benchmarks/counters.py --device cuda --out FOLDER [--parts cost,kernels]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nsight
from harness import Report, arguments, run_for, spread

import flopscope as fs
from flopscope import _core
from flopscope.record.counters import why_no_counters

SIZES = (1024, 1448, 2048, 2896, 4096, 8192)
ROUNDS, STEPS = 8, 8
LONG = {"training step, profile of 4 s": (3, 400), "training step, profile of 25 s": (1, 2600)}
"""Rounds and steps."""
LAUNCH = "small op, launched"
WIDTH = 4096
READ, WRITTEN, INSTRUCTIONS = "dram__bytes_read.sum", "dram__bytes_write.sum", "smsp__inst_executed.sum"
FADD, FMUL, FFMA = (f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma"))
NCU_SECONDS = 75
WAITING = 0.001
"""Percent by which instructions may differ: warps of mm wait for each other in loops, and how often varies."""
PARTS = {"cost": 180, "kernels": 50, "long": 40, "program": 90, "calls": 90}
"""Seconds that each part may take."""
SHORTEST_NS = 2_000
LONG_RUNS = (("default", 0, 4.0), ("2 us", SHORTEST_NS, 4.0), ("200 us", 200_000, 2.0))
"""Name, interval in ns (0: adapts) and seconds."""
COLUMNS = ("what", "value", "low", "high", "target")
UNDER_NCU = "--under-ncu"


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == UNDER_NCU:
        run_under_ncu(sys.argv[2])
        return 0
    options = arguments(__doc__ or "", ("cuda",), add_options)
    if options.part is not None:
        return run_part(options.part, options.out)
    report = Report("counters", COLUMNS, options.out, "cuda")
    with tempfile.TemporaryDirectory(prefix="flopscope-counters-") as folder:
        for name in options.parts:
            command = [sys.executable, os.path.abspath(__file__), "--part", name, "--out", folder]
            problem = run_for(command, PARTS[name])
            take(Path(folder) / f"{name}.json", report)
            if problem:
                report.note(f"{name} failed: {problem}")
            report.save()
    report.finish()
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", type=lambda names: names.split(","), default=list(PARTS), help="with commas")
    parser.add_argument("--part", choices=PARTS, help="run this part in this process")


# Parts in processes of their own --------------------------------------------------------------------------------------


class Results(Report):
    """What a part has measured, written with every row, so that it outlives the part."""

    def show(self, what: str, values: Sequence[float], digits: int, aim: str) -> None:
        """Add a row: the median, the least and the greatest. Unknown values are counted in a note."""
        known = [value for value in values if not math.isnan(value)]
        if len(known) < len(values):
            self.note(f"{what}: {len(values) - len(known)} of {len(values)} are unknown")
        cells = (spread(known).median, min(known), max(known)) if known else (math.nan,) * 3
        self.row(what, *(f"{cell:.{digits}f}" for cell in cells), aim)
        self.save()


def run_part(name: str, folder: Path) -> int:
    import torch

    why = why_no_counters()  # which loads CUPTI
    if why is not None:
        raise RuntimeError(why)
    results = Results(name, COLUMNS, folder, "cuda")
    with torch.no_grad() if name != "cost" else torch.enable_grad():
        {"cost": cost, "kernels": kernels, "long": long, "program": program, "calls": calls}[name](torch, results)
    results.save()
    return 0


def take(path: Path, report: Report) -> None:
    """Add the results of a part to the report; there are none if it failed at once."""
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        report.rows += found["rows"]
        report.samples += found["samples"]
        report.notes += found["notes"]
        report.targets += found["targets"]


def greatest(ratios: Sequence[float]) -> float:
    """Return the greatest deviation from 1 in percent; NaN, which meets no target, if one is unknown."""
    found = [100 * abs(value - 1) for value in ratios]
    return math.nan if not found or any(map(math.isnan, found)) else max(found)


# Cost -----------------------------------------------------------------------------------------------------------------


def trainer(torch: Any) -> Callable[[], None]:
    """Return one training step: six layers of WIDTH, bfloat16 products, an optimizer."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(6)]
    norm = partial(torch.nn.LayerNorm, WIDTH, device="cuda", dtype=torch.bfloat16)
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.GELU(), norm())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(8192, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def cost(torch: Any, results: Results) -> None:
    step = trainer(torch)
    a, b = torch.rand(8192, 8192, device="cuda"), torch.rand(8192, 8192, device="cuda")
    small = torch.rand(1024, 1024, device="cuda")
    found: dict[str, dict[bool, list[float]]] = {}

    def keep(what: str, counted: bool, value: float) -> None:
        found.setdefault(what, {False: [], True: []})[counted].append(value)

    def seconds(call: Callable[[], object], number: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(number):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / number

    for _ in range(3):
        step()
    for turn in range(-2, 2 * ROUNDS):
        counted = bool((turn + turn // 2) % 2)  # without, with; with, without; …
        with fs.profile(counters="require" if counted else False) as prof:
            of_step = seconds(step, STEPS)
            of_launch = min(seconds(lambda: torch.add(small, small), 200) for _ in range(5))
            for _ in range(10):
                torch.add(a, b)
                torch.add(small, small)
            torch.cuda.synchronize()
        if turn < 0:
            continue
        keep("training step", counted, of_step)
        keep(LAUNCH, counted, of_launch)
        events = prof.events().to_pandas()
        adds = events[(events.kind == "kernel") & events.name.str.contains("CUDAFunctor_add")].tail(20)
        keep("long kernel's time", counted, 1e-6 * float(adds[adds.duration > 50].duration.median()))
        keep("short kernel's time", counted, 1e-6 * float(adds[adds.duration < 50].duration.median()))
    for what, (rounds, steps) in LONG.items():
        for turn in range(2 * rounds):
            counted = bool((turn + turn // 2) % 2)
            with fs.profile(counters="require" if counted else False):
                keep(what, counted, seconds(step, steps))
    for what, times in found.items():
        added = [100 * (w / o - 1) for w, o in zip(times[True], times[False], strict=True)]
        results.keep(what, {"without": times[False], "with": times[True]})
        results.show(f"{what}, added %", added, 2, "")
        fastest = {counted: sum(sorted(values)[: (len(values) + 1) // 2]) for counted, values in times.items()}
        share = 100 * (fastest[True] / fastest[False] - 1)
        aim = what != LAUNCH  # that is a matter of the host, which differs by a tenth and more from turn to turn
        results.show(f"{what}, added % by the faster half", [share], 2, "< 1" if aim else "")
        if aim:
            results.target(f"counters add to a {what}", share, 1, "%")


# Kernels, and long runs -----------------------------------------------------------------------------------------------


def kernels(torch: Any, results: Results) -> None:
    pairs = {n: (torch.rand(n, n, device="cuda"), torch.rand(n, n, device="cuda")) for n in SIZES}
    sweep = torch.rand(1 << 26, device="cuda")
    for n, (a, b) in pairs.items():
        ratios, lengths = [], []
        for _ in range(3):
            with fs.profile(counters="require", record_api_calls=True) as prof:
                for _ in range(20):
                    with fs.record_function("sweep"):
                        sweep.add_(1.0)
                    with fs.record_function("measured", bytes=12.0 * n * n):
                        torch.add(a, b)
                torch.cuda.synchronize()
            row = next(r for r in prof.key_averages(peaks="none") if r.key == "measured" and r.device_type == "cpu")
            ratios.append(row.dram_bytes_read / row.count / (8 * n * n))
            lengths.append(row.device_busy_time / row.count)
        length = statistics.median(lengths)
        results.keep(f"read over model, {n}", {"ratio": ratios, "us": lengths}, "")
        limit = 2 if length > 20 else 5
        results.show(f"read / model, {length:.1f} us", ratios, 4, f"±{limit} %" if length > 8 else "")
        if length > 8:
            results.target(f"reads of kernels of {length:.0f} us are off by", greatest(ratios), limit, "%")


def long(torch: Any, results: Results) -> None:
    a, b = torch.rand(4096, 4096, device="cuda"), torch.rand(4096, 4096, device="cuda")
    for label, interval, seconds in LONG_RUNS:
        sampler = _core.Sampler(0, interval)
        sampler.start()
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            for _ in range(100):
                torch.add(a, b)
            torch.cuda.synchronize()
        sampler.stop()
        report = sampler.report
        first, last = report["first_interval_ns"] / 1000, report["last_interval_ns"] / 1000
        results.keep(f"long run, {label}", {name: [report[name]] for name in ("samples", "overflows", "lost")}, "")
        results.note(
            f"long run of {seconds:g} s, {label}: {report['samples']} samples of {first:g} us, then {last:g} us; "
            f"buffers were full {report['overflows']} times, {report['lost']} samples were lost"
        )
        results.show(f"overflows in {seconds:g} s, {label}", [float(report["overflows"])], 0, "0")
        if interval != SHORTEST_NS:  # of which the GPU itself may lose samples
            results.target(f"overflows at the interval {label}", float(report["overflows"]), 0, "")


# Beside Nsight Compute ------------------------------------------------------------------------------------------------


def the_program(torch: Any) -> Callable[[], None]:
    x, y = torch.rand(8192, 8192, device="cuda"), torch.rand(8192, 8192, device="cuda")
    m = torch.rand(4096, 4096, device="cuda").bfloat16()

    def run() -> None:
        for _ in range(3):
            (x + y).sin().softmax(-1)
            x.t().contiguous()
            m @ m
            y.sum()

    return run


def the_calls(torch: Any) -> dict[str, Callable[[], Any]]:
    n = 8192
    torch.manual_seed(0)  # the instructions of sin and sqrt depend on their arguments
    x, y = torch.rand(n, n, device="cuda"), torch.rand(n, n, device="cuda")
    b, row = x.bfloat16(), torch.rand(n, device="cuda")
    m = torch.rand(4096, 4096, device="cuda").bfloat16()
    f = torch.nn.functional
    return {
        "add": lambda: x + y, "add_row": lambda: x + row, "mul": lambda: x * 0.5, "sin": lambda: x.sin(),
        "exp": lambda: x.exp(), "gelu": lambda: f.gelu(x), "sigmoid": lambda: x.sigmoid(), "sqrt": lambda: x.sqrt(),
        "add_bf16": lambda: b + b, "cast": lambda: x.bfloat16(), "sum": lambda: x.sum(), "sum_rows": lambda: x.sum(-1),
        "amax": lambda: x.amax(), "softmax": lambda: x.softmax(-1), "log_softmax": lambda: x.log_softmax(-1),
        "layer_norm": lambda: f.layer_norm(x, (n,), row, row), "transpose": lambda: x.t().contiguous(),
        "cumsum": lambda: x.cumsum(-1), "relu_bf16": lambda: b.relu(), "mm": lambda: m @ m,
    }  # fmt: skip


def run_under_ncu(what: str) -> None:
    """Run the program, or each call in a range of its name, between cudaProfilerStart and cudaProfilerStop."""
    import torch

    work = {"program": the_program(torch)} if what == "program" else the_calls(torch)
    with torch.no_grad():
        for call in work.values():
            call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        for name, call in work.items():
            with torch.cuda.nvtx.range(name):
                call()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def ncu(what: str, metrics: Sequence[str], caches: str) -> dict[str, dict[str, float]]:
    """Return the sums of the metrics by range. Raise RuntimeError if ncu is missing, fails or takes too long."""
    sums: dict[str, dict[str, float]] = {}
    for kernel in nsight.kernels((os.path.abspath(__file__), UNDER_NCU, what), metrics, caches, NCU_SECONDS):
        total = sums.setdefault(kernel.range, dict.fromkeys(metrics, 0.0))
        for metric, value in kernel.values.items():
            total[metric] += value
    return sums


def program(torch: Any, results: Results) -> None:
    run = the_program(torch)
    run()
    torch.cuda.synchronize()
    sums: dict[str, list[float]] = {"dram_bytes_read": [], "dram_bytes_written": []}
    for _ in range(5):
        with fs.profile(counters="require") as prof:
            run()
            torch.cuda.synchronize()
        timeline = prof.counter_timeline()
        for name, values in sums.items():
            values.append(float(timeline[name].sum()))
    results.keep("program", sums, "bytes")
    theirs = ncu("program", (READ, WRITTEN), "none")
    for metric, (name, values) in zip((READ, WRITTEN), sums.items(), strict=True):
        ratios = [value / sum(one[metric] for one in theirs.values()) for value in values]
        results.keep(f"program, {name} over ncu", {"ratio": ratios}, "")
        results.show(f"program: {name} / ncu", ratios, 4, "±3 %")
        results.target(f"{name} of a program are off by", 100 * abs(statistics.median(ratios) - 1), 3, "%")


def calls(torch: Any, results: Results) -> None:
    work = the_calls(torch)
    for call in work.values():
        call()
    torch.cuda.synchronize()

    def flush() -> None:
        _core.measure_flush("cuda:0")

    ours: dict[str, dict[str, float]] = {name: {} for name in work}
    for group in ("memory", "issue", "scalar"):
        for name, counts in zip(work, _core.count_calls(0, group, flush, tuple(work.values())), strict=True):
            ours[name] |= counts
    for name, counts in ours.items():
        results.keep(f"call {name}, counted", {key: [value] for key, value in counts.items()}, "")
    compare(ours, ncu("calls", (READ, WRITTEN, INSTRUCTIONS, FADD, FMUL, FFMA), "all"), results)


def compare(
    ours: Mapping[str, Mapping[str, float]], theirs: Mapping[str, Mapping[str, float]], results: Results
) -> None:
    """Report our counts of each call over those of Nsight Compute."""
    missing = sorted({*ours} - {*theirs})
    if missing:
        results.note(f"Nsight Compute has no counts of {', '.join(missing)}")
    ratios: dict[str, list[float]] = {"bytes read": [], "bytes written": [], "instructions": [], "fp32 FLOPs": []}
    for name, counts in ours.items():
        if name not in theirs:
            continue
        their = theirs[name]
        results.keep(f"call {name}, ncu", {key: [value] for key, value in their.items()}, "")
        ratios["bytes read"].append(counts["dram_bytes_read"] / their[READ])
        ratios["bytes written"].append(counts["dram_bytes_written"] / their[WRITTEN])
        ratios["instructions"].append(counts["instructions"] / their[INSTRUCTIONS])
        flops = their[FADD] + their[FMUL] + 2 * their[FFMA]
        if flops:
            ratios["fp32 FLOPs"].append(counts.get("fp32_flops", math.nan) / flops)
    for what, values in ratios.items():
        limit = {"bytes read": 0.5, "bytes written": math.inf}.get(what, WAITING)
        shown = {0.5: "±0.5 %", WAITING: "1"}.get(limit, "")
        results.show(f"{len(values)} calls: {what} / ncu", values, 6, shown)
        equal = sum(value == 1 for value in values)
        if limit == WAITING:
            results.show(f"calls with equal {what}, of {len(values)}", [float(equal)], 0, "")
        if not math.isinf(limit):
            results.target(f"{what} of {len(values)} calls are off by", greatest(values), limit, "%")


if __name__ == "__main__":
    sys.exit(main())
