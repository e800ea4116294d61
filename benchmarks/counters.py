"""Hardware counters beside a profile: what they cost, and how exact they are. Needs a GPU whose counters may be read.

cost      a training step, and one kernel's own time, profiled without and with counters in turns
kernels   bytes read per kernel over the model's, by length, at the default interval of a profile of 100 ms
program   sums of a whole program over those of Nsight Compute for the same program (if ncu is there)
calls     exact counts of single ops over those of Nsight Compute

    python benchmarks/counters.py --device cuda --out FOLDER
"""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import Report, arguments, optional, spread

import flopscope as fs
from flopscope import _core

SIZES = (1024, 1448, 2048, 2896, 4096, 8192)
ROUNDS = 6
NCU = ("dram__bytes_read.sum", "dram__bytes_write.sum", *(
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")))  # fmt: skip
NCU_SECONDS = 150


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--run":
        run_under_ncu(sys.argv[2])
        return
    options = arguments(__doc__ or "", ("cuda",))
    torch = optional("torch")
    if torch is None:
        raise SystemExit("this benchmark needs torch")
    report = Report("counters", ["what", "value", "low", "high", "target"], options.out, "cuda")
    for part in (cost, kernels, *((program, calls) if shutil.which("ncu") else ())):
        try:
            part(torch, report)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:  # the other parts are reported all the same
            report.note(f"{part.__name__} failed: {problem}")
    if not shutil.which("ncu"):
        report.note("Nsight Compute is missing")
    report.finish()


def show(report: Report, what: str, values: list[float], digits: int, target: str) -> None:
    found = spread(values)
    report.row(what, *(f"{value:.{digits}f}" for value in (found.median, min(values), max(values))), target)


def trainer(torch: Any) -> Callable[[], None]:
    """Return one training step: six layers of 2048, bfloat16 products, an optimizer."""
    layers = [torch.nn.Linear(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(6)]
    model = torch.nn.Sequential(
        *(
            m
            for layer in layers
            for m in (layer, torch.nn.GELU(), torch.nn.LayerNorm(2048, device="cuda", dtype=torch.bfloat16))
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(8192, 2048, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def cost(torch: Any, report: Report) -> None:
    step = trainer(torch)
    a, b = torch.rand(8192, 8192, device="cuda"), torch.rand(8192, 8192, device="cuda")
    small = torch.rand(1024, 1024, device="cuda")
    steps: dict[bool, list[float]] = {False: [], True: []}
    times: dict[bool, dict[str, list[float]]] = {False: {"long": [], "short": []}, True: {"long": [], "short": []}}
    for _ in range(3):
        step()
    for turn in range(2 * ROUNDS):
        counted = bool(turn % 2)
        with fs.profile(counters="require" if counted else False) as prof:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(8):
                step()
            torch.cuda.synchronize()
            steps[counted].append((time.perf_counter() - begin) / 8)
            with fs.record_function("kernels"):
                for _ in range(10):
                    torch.add(a, b)
                    torch.add(small, small)
                torch.cuda.synchronize()
        found = prof.events().to_pandas()
        found = found[(found.kind == "kernel") & found.name.str.contains("CUDAFunctor_add")].tail(20)
        for name, part in (("long", found[found.duration > 50]), ("short", found[found.duration < 50])):
            times[counted][name].append(float(part.duration.median()))
    report.keep("training step", {"without": steps[False], "with": steps[True]})
    added = [100 * (w / o - 1) for w, o in zip(steps[True], steps[False], strict=True)]
    show(report, "training step, added %", added, 2, "< 1")
    for name in ("long", "short"):
        report.keep(f"kernel, {name}", {"without": times[False][name], "with": times[True][name]}, "us")
        added = [100 * (w / o - 1) for w, o in zip(times[True][name], times[False][name], strict=True)]
        show(report, f"{name} kernel's time, added %", added, 2, "0")


def kernels(torch: Any, report: Report) -> None:
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
        report.keep(f"read over model, {n}", {"ratio": ratios, "us": lengths}, "")
        target = "±2 %" if lengths[0] > 20 else "±5 %" if lengths[0] > 8 else ""
        show(report, f"read / model, {statistics.median(lengths):.1f} us", ratios, 4, target)


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


def ncu(what: str, metrics: tuple[str, ...], caches: str) -> dict[str, dict[str, float]]:
    """Return the sums of the metrics by range."""
    command = ["ncu", "--nvtx", "--print-nvtx-rename", "kernel", "--csv", "--page", "raw", "--print-units", "base",
               "--clock-control", "none", "--cache-control", caches, "--profile-from-start", "off",
               "--metrics", ",".join(metrics), sys.executable, os.path.abspath(__file__), "--run", what]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=NCU_SECONDS)
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
    sums: dict[str, dict[str, float]] = {}
    for record in list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))[1:]:
        total = sums.setdefault(record["Kernel Name"].split("/")[0], dict.fromkeys(metrics, 0.0))
        for metric in metrics:
            text = (record.get(metric) or "").replace(",", "")
            total[metric] += float(text) if text else 0.0
    return sums


def program(torch: Any, report: Report) -> None:
    run = the_program(torch)
    run()
    torch.cuda.synchronize()
    theirs = next(iter(ncu("program", NCU[:2], "none").values()))
    for metric, name in zip(NCU[:2], ("dram_bytes_read", "dram_bytes_written"), strict=True):
        ratios = []
        for _ in range(5):
            with fs.profile(counters="require") as prof, torch.no_grad():
                run()
                torch.cuda.synchronize()
            ratios.append(float(prof.counter_timeline()[name].sum()) / theirs[metric])
        report.keep(f"program, {name} over ncu", {"ratio": ratios}, "")
        show(report, f"program: {name} / ncu", ratios, 4, "±3 %")


def calls(torch: Any, report: Report) -> None:
    work = the_calls(torch)
    theirs = ncu("calls", NCU, "all")
    with torch.no_grad():
        for call in work.values():
            call()

        def flush() -> None:
            _core.measure_flush("cuda:0")

        memory = _core.count_calls(0, "memory", flush, tuple(work.values()))
        scalar = _core.count_calls(0, "scalar", flush, tuple(work.values()))
    reads, writes, flops = [], [], []
    for name, ours, instructions in zip(work, memory, scalar, strict=True):
        their = theirs.get(name, {})
        report.keep(f"call {name}", {"ours": [*ours.values(), *instructions.values()], "ncu": list(their.values())}, "")
        if not their:
            continue
        reads.append(ours["dram_bytes_read"] / their[NCU[0]])
        writes.append(ours["dram_bytes_written"] / their[NCU[1]])
        total = their[NCU[2]] + their[NCU[3]] + 2 * their[NCU[4]]
        flops.append(instructions["fp32_flops"] / total if total else math.nan)
    known = [value for value in flops if not math.isnan(value)]
    show(report, f"{len(reads)} calls: bytes read / ncu", reads, 4, "±0.5 %")
    show(report, f"{len(writes)} calls: bytes written / ncu", writes, 4, "")
    show(report, f"{len(known)} calls: fp32 FLOPs / ncu", known, 6, "1")


if __name__ == "__main__":
    main()
