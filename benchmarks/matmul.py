"""Matrix products compared with NumPy's and torch's, in TFLOP/s (2 n^3 FLOPs).

CPU: float32 and float64, wall time. CUDA: float32, TF32, float16, bfloat16, float64, int8 and float8_e4m3fn, by CUDA
events around single products with an emptied L2 cache. "torch fast" is torch._scaled_mm with use_fast_accum=True.

cuBLASLt's heuristic lists algorithms, the fastest first by its estimate, and flopscope takes the first. On CUDA every
algorithm of the list is timed, at most 64, and the fastest of them once more in turns with the first: "first of 64" is
the rate of the first over the rate of the fastest. These products are timed without emptying the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import CudaTimer, Report, Sampler, arguments, interleave, optional, ratio, spread, stopwatch

import flopscope as fs
from flopscope import _core

CPU_SIDES, CPU_DTYPES = (512, 1024, 2048), ("float32", "float64")
CUDA_SIDES = (1024, 4096, 8192)
# By name: the dtype of both factors, and whether the second is column-major.
CUDA_UNITS = {
    "float32": ("float32", False),
    "tf32": ("float32", False),
    "float16": ("float16", False),
    "bfloat16": ("bfloat16", False),
    "float64": ("float64", False),
    "int8": ("int8", True),
    "int8, row-major b": ("int8", False),
    "float8_e4m3fn": ("float8_e4m3fn", True),
}
BYTES = ("int8", "float8_e4m3fn")  # units with targets: the time relative to torch's, and to the fastest of the list
TORCH_LIMIT, FASTEST_LIMIT = 1.02, 1.05
ROUNDS, SECONDS = 21, 1.5
CHOICES, TRIES = 64, 3
CHECKED_ROWS = 64
# |result - reference| <= tolerance x largest |reference|, the reference in float64 from the same inputs.
TOLERANCE = {
    **{"float64": 1e-13, "float32": 1e-5, "tf32": 4e-3, "float16": 4e-3, "bfloat16": 2e-2},
    **{"int8": 0.0, "int8, row-major b": 0.0, "float8_e4m3fn": 2e-2},
}

Call = Callable[[], Any]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    peers = ["numpy", "torch"] if options.device == "cpu" else ["torch", "torch fast"]
    columns = ["n", "unit", "TFLOP/s", "+-%", *(f"{peer} TFLOP/s" for peer in peers), *(f"x {peer}" for peer in peers)]
    if options.device == "cuda":
        columns += [f"first of {CHOICES}", "fastest"]
    report = Report("matmul", columns, options.out, options.device)
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: no numbers for it.")
    if options.device == "cpu":
        measure_cpu(report, torch, peers)
    elif torch is not None:
        measure_cuda(report, torch, peers)
    report.finish()


def measure_cpu(report: Report, torch: Any, peers: list[str]) -> None:
    if torch is not None:
        torch.set_num_threads(fs.num_threads())
    rng = np.random.default_rng(0)
    for side in CPU_SIDES:
        for dtype in CPU_DTYPES:
            a, b = (rng.standard_normal((side, side)).astype(dtype) for _ in range(2))
            reference = a[:CHECKED_ROWS].astype(np.float64) @ b.astype(np.float64)
            calls: dict[str, Call] = {
                "flopscope": partial(fs.matmul, fs.from_numpy(a), fs.from_numpy(b)),
                "numpy": partial(np.matmul, a, b),
            }
            if torch is not None:
                calls["torch"] = partial(torch.matmul, torch.from_numpy(a), torch.from_numpy(b))
            for who, call in calls.items():
                check(f"{who} {side} {dtype}", np.asarray(call())[:CHECKED_ROWS], reference, dtype)
            fill(report, side, dtype, {who: stopwatch(call) for who, call in calls.items()}, peers)


def measure_cuda(report: Report, torch: Any, peers: list[str]) -> None:
    timer = CudaTimer(torch)
    generator = torch.Generator(device="cuda").manual_seed(0)
    relative: dict[tuple[str, str], dict[int, float]] = {}
    for side in CUDA_SIDES:
        for unit, (dtype, column_major) in CUDA_UNITS.items():
            try:
                a, b = (factor(torch, generator, side, dtype) for _ in range(2))
                if column_major:
                    b = b.t()
                torch.backends.cuda.matmul.allow_tf32 = unit == "tf32"
                calls = checked_calls(torch, a, b, unit)
                samplers = {who: timer.sampler(call) for who, call in calls.items()}
                slower, place = list_of_heuristic(report, side, unit) if unit in (dtype, "tf32") else (math.nan, "-")
                cells = ["-" if math.isnan(slower) else f"{1 / slower:.3f}", place]
                to_torch = fill(report, side, unit, samplers, peers, cells)
                relative.setdefault((unit, "torch"), {})[side] = to_torch
                relative.setdefault((unit, "cuBLASLt's fastest algorithm"), {})[side] = slower
            except RuntimeError as problem:
                report.note(f"{side} {unit}: {problem}")
    for (unit, peer), by_side in relative.items():
        if unit in BYTES:
            limit = TORCH_LIMIT if peer == "torch" else FASTEST_LIMIT
            worst = max(by_side, key=by_side.__getitem__)
            report.target(f"{unit}: time over {peer}'s", by_side[worst], limit, "x", worst=str(worst))


def factor(torch: Any, generator: Any, side: int, dtype: str) -> Any:
    if dtype == "int8":
        return torch.randint(-128, 128, (side, side), generator=generator, device="cuda", dtype=torch.int8)
    return torch.randn(side, side, generator=generator, device="cuda").to(getattr(torch, dtype))


def checked_calls(torch: Any, a: Any, b: Any, unit: str) -> dict[str, Call]:
    reference = (a[:CHECKED_ROWS].double() @ b.double()).cpu().numpy()
    calls = {
        "flopscope": partial(fs.matmul, fs.from_dlpack(a), fs.from_dlpack(b), allow_tf32=unit == "tf32"),
        "torch": partial(torch.matmul, a, b),
    }
    if a.dtype == torch.int8:
        calls["torch"] = partial(torch._int_mm, a, b)
    if a.dtype == torch.float8_e4m3fn:
        one = torch.ones((), device="cuda")
        scaled = partial(torch._scaled_mm, a, b, one, one, out_dtype=torch.bfloat16)
        calls["torch"] = partial(scaled, use_fast_accum=False)
        calls["torch fast"] = partial(scaled, use_fast_accum=True)
    for who, call in calls.items():
        rows = torch.from_dlpack(call())[:CHECKED_ROWS].double().cpu().numpy()
        check(f"{who}, {unit}", rows, reference, unit)
    return calls


def list_of_heuristic(report: Report, side: int, unit: str) -> tuple[float, str]:
    """Time every algorithm that cuBLASLt lists. Return the first one's time over the fastest one's, and its place."""

    def sampler(choice: int) -> Sampler:
        return lambda: _core.probe("cuda", "matmul", unit, side, choice)[0]

    seconds: dict[int, float] = {}
    for choice in range(CHOICES):
        try:
            sampler(choice)()
        except RuntimeError:
            if choice == 0:
                raise
            break
        seconds[choice] = min(sampler(choice)() for _ in range(TRIES))
    fastest = min(seconds, key=seconds.__getitem__)
    samples = interleave({"first": sampler(0), "fastest": sampler(fastest)}, ROUNDS, seconds=SECONDS)
    facts = {"n": side, "unit_used": unit, "fastest": fastest, "listed": len(seconds)}
    report.keep(f"{side} {unit}, algorithms", samples, ours="first", **facts)
    return ratio(samples["first"], samples["fastest"]).median, f"{fastest} of {len(seconds)}"


def check(what: str, rows: np.ndarray, reference: np.ndarray, unit: str) -> None:
    off = float(np.abs(rows - reference).max() / np.abs(reference).max())
    if not off <= TOLERANCE[unit]:
        raise RuntimeError(f"{what}: the product is off by {off:.2g} of its largest element")


def fill(
    report: Report, side: int, unit: str, cases: dict[str, Sampler], peers: list[str], more: list[str] | None = None
) -> float:
    """Sample the cases and add a row. Return the time relative to torch's."""
    samples = interleave(cases, ROUNDS, seconds=SECONDS)
    report.keep(f"{side} {unit}", samples, ours="flopscope", n=side, unit_used=unit)
    rates = {who: 2e-12 * side**3 / spread(values).median for who, values in samples.items()}
    theirs = [f"{rates[peer]:.3f}" if peer in rates else "-" for peer in peers]
    ratios = [f"{ratio(samples['flopscope'], samples[peer]).median:.3f}" if peer in rates else "-" for peer in peers]
    ours = [f"{rates['flopscope']:.3f}", f"{spread(samples['flopscope']).percent:.1f}"]
    report.row(str(side), unit, *ours, *theirs, *ratios, *(more or []))
    return ratio(samples["flopscope"], samples["torch"]).median if "torch" in samples else math.nan


if __name__ == "__main__":
    main()
