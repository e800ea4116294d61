"""Matrix products compared with NumPy's and torch's, in TFLOP/s (2 n^3 FLOPs).

CPU: float32 and float64, wall time. CUDA: float32, TF32, float16, bfloat16 and float64, CUDA events around single
products with an emptied L2 cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import CudaTimer, Report, Sampler, arguments, interleave, optional, ratio, spread, stopwatch

import flopscope as fs

CPU_SIDES, CPU_DTYPES = (512, 1024, 2048), ("float32", "float64")
CUDA_SIDES = (4096, 8192)
CUDA_UNITS = {
    "float32": "float32",
    "tf32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float64": "float64",
}
ROUNDS, SECONDS = 21, 1.5
CHECKED_ROWS = 64
# |result - reference| <= tolerance x largest |reference|, the reference in float64 from the same inputs.
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "tf32": 4e-3, "float16": 4e-3, "bfloat16": 2e-2}

Call = Callable[[], Any]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    peers = ["numpy", "torch"] if options.device == "cpu" else ["torch"]
    columns = ["n", "unit", "TFLOP/s", "+-%", *(f"{peer} TFLOP/s" for peer in peers), *(f"x {peer}" for peer in peers)]
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
    for side in CUDA_SIDES:
        for unit, dtype in CUDA_UNITS.items():
            a, b = (
                torch.randn(side, side, generator=generator, device="cuda").to(getattr(torch, dtype)) for _ in range(2)
            )
            torch.backends.cuda.matmul.allow_tf32 = unit == "tf32"
            try:
                calls = checked_calls(torch, a, b, unit)
                fill(report, side, unit, {who: timer.sampler(call) for who, call in calls.items()}, peers)
            except RuntimeError as problem:
                report.note(f"{side} {unit}: {problem}")


def checked_calls(torch: Any, a: Any, b: Any, unit: str) -> dict[str, Call]:
    reference = (a[:CHECKED_ROWS].double() @ b.double()).cpu().numpy()
    calls = {
        "flopscope": partial(fs.matmul, fs.from_dlpack(a), fs.from_dlpack(b), allow_tf32=unit == "tf32"),
        "torch": partial(torch.matmul, a, b),
    }
    for who, call in calls.items():
        rows = torch.from_dlpack(call())[:CHECKED_ROWS].double().cpu().numpy()
        check(f"{who}, {unit}", rows, reference, unit)
    return calls


def check(what: str, rows: np.ndarray, reference: np.ndarray, unit: str) -> None:
    off = float(np.abs(rows - reference).max() / np.abs(reference).max())
    if not off <= TOLERANCE[unit]:
        raise RuntimeError(f"{what}: the product is off by {off:.2g} of its largest element")


def fill(report: Report, side: int, unit: str, cases: dict[str, Sampler], peers: list[str]) -> None:
    samples = interleave(cases, ROUNDS, seconds=SECONDS)
    report.keep(f"{side} {unit}", samples, ours="flopscope", n=side, unit_used=unit)
    rates = {who: 2e-12 * side**3 / spread(values).median for who, values in samples.items()}
    theirs = [f"{rates[peer]:.3f}" if peer in rates else "-" for peer in peers]
    ratios = [f"{ratio(samples['flopscope'], samples[peer]).median:.3f}" if peer in rates else "-" for peer in peers]
    report.row(
        str(side), unit, f"{rates['flopscope']:.3f}", f"{spread(samples['flopscope']).percent:.1f}", *theirs, *ratios
    )


if __name__ == "__main__":
    main()
