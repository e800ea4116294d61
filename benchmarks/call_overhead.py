"""Time per call from Python on tiny tensors: flopscope bare and profiled, torch, NumPy.

On CUDA this is the host's time, without waiting for the device, compared with a loop of bare launches in C.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from capture import launcher
from harness import Report, Sampler, arguments, interleave, optional, per_call, ratio, spread

import flopscope as fs

CPU_ELEMENTS, CPU_CALLS, CPU_ROUNDS = 16, 5000, 41
# Few enough launches that the device's queue never fills and blocks the host.
CUDA_ELEMENTS, CUDA_CALLS, CUDA_ROUNDS = 1024, 500, 61


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    report = Report("call_overhead", ["call", "us", "low", "high", "x torch.add"], options.out, options.device)
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: no row for it.")
    if options.device == "cuda":
        measure_cuda(report, torch)
    else:
        measure_cpu(report, torch)
    report.finish()


def measure_cpu(report: Report, torch: Any) -> None:
    x, y, a, b = operands(CPU_ELEMENTS, "cpu")
    out = fs.empty(CPU_ELEMENTS, device="cpu")
    cases = {
        "fs.add": per_call(fs.add, a, b, number=CPU_CALLS),
        "fs.add, out=": per_call(fs.add, a, b, number=CPU_CALLS, out=out),
        "fs.add under fs.profile()": profiled(fs.profile, fs.add, a, b, CPU_CALLS),
        "numpy.add": per_call(np.add, x, y, number=CPU_CALLS),
        "numpy.add, out=": per_call(np.add, x, y, number=CPU_CALLS, out=np.empty_like(x)),
    }
    if torch is not None:
        torch.set_num_threads(fs.num_threads())
        tx, ty = torch.from_numpy(x), torch.from_numpy(y)
        cases["torch.add"] = per_call(torch.add, tx, ty, number=CPU_CALLS)
        cases["torch.add, out="] = per_call(torch.add, tx, ty, number=CPU_CALLS, out=torch.empty_like(tx))
    samples = interleave(cases, CPU_ROUNDS)
    fill(report, samples, f"{CPU_ELEMENTS} float32, CPU")
    both = zip(samples["fs.add under fs.profile()"], samples["fs.add"], strict=True)
    added = spread([with_it - bare for with_it, bare in both])
    report.target("fs.profile() adds to an op", added.median * 1e6, 0.3, "us")


def operands(count: int, device: str) -> tuple[Any, Any, fs.Tensor, fs.Tensor]:
    """Return two arrays of NumPy, and tensors of the same elements."""
    rng = np.random.default_rng(0)
    x, y = (rng.random(count, dtype=np.float32) for _ in range(2))
    a, b = (fs.from_numpy(array).to(device) for array in (x, y))
    assert np.array_equal(fs.add(a, b).to("cpu").numpy(), x + y), "fs.add is wrong"
    return x, y, a, b


def measure_cuda(report: Report, torch: Any) -> None:
    x, y, a, b = operands(CUDA_ELEMENTS, "cuda")
    out = fs.empty(CUDA_ELEMENTS, device="cuda")
    wait = partial(fs.synchronize, "cuda")
    cases = {
        "fs.add": per_call(fs.add, a, b, number=CUDA_CALLS, after=wait),
        "fs.add, out=": per_call(fs.add, a, b, number=CUDA_CALLS, out=out, after=wait),
    }
    if torch is not None:
        tx, ty = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
        torch_out = torch.empty_like(tx)
        cases["torch.add"] = per_call(torch.add, tx, ty, number=CUDA_CALLS, after=wait)
        cases["torch.add, out="] = per_call(torch.add, tx, ty, number=CUDA_CALLS, out=torch_out, after=wait)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        try:
            launch = launcher(Path(folder))
            launch(CUDA_CALLS)
            cases["bare launch from C"] = lambda: launch(CUDA_CALLS) / CUDA_CALLS
        except (RuntimeError, OSError) as problem:
            report.note(f"no row of bare launches: {problem}")
        samples = interleave(cases, CUDA_ROUNDS)
    fill(report, samples, f"{CUDA_ELEMENTS} float32, CUDA")
    report.target("fs.add", spread(samples["fs.add"]).median * 1e6, 5.0, "us")


def profiled(
    profiler: Callable[[], AbstractContextManager[object]], op: Callable[..., object], a: object, b: object, number: int
) -> Sampler:
    """Like ``per_call``, but inside a new profile for each sample, whose start and end are not timed."""

    def sample() -> float:
        with profiler():
            start = time.perf_counter()
            for _ in repeat(None, number):
                op(a, b)
            return (time.perf_counter() - start) / number

    return sample


def fill(report: Report, samples: dict[str, list[float]], case: str) -> None:
    report.keep(case, samples, ours="fs.")
    for who, values in samples.items():
        relative = f"{ratio(values, samples['torch.add']).median:.2f}" if "torch.add" in samples else "-"
        report.row(who, *spread(values).cells(3, 1e6), relative)


if __name__ == "__main__":
    main()
