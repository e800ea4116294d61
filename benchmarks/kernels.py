"""Kernels of every kind at the limit of the memory, beside torch's, a copy and a read of the same memory.

2^26 elements (CUDA) or 2^20 (CPU): reductions over all elements and along rows, pow with exponents, transposed copies,
softmax and norms along rows, pointwise ops, cumulative sums; small shapes, where launches decide. Results are compared
with float64 before they are timed. On CUDA, events are around single launches with an emptied L2 cache. "% copy" and
"% read" are rates relative to torch's copy_ of the first operand and to a kernel that only reads it (the fastest of
six, compiled by nvcc), sampled in the same rounds.

    python benchmarks/kernels.py --device cuda --only 'reduction|cumsum float32' --seconds 0.1
"""

from __future__ import annotations

import argparse
import ctypes
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from harness import (
    HERE,
    CudaTimer,
    Report,
    Sampler,
    Spread,
    arguments,
    build_cuda_library,
    interleave,
    optional,
    ratio,
    spread,
    stopwatch,
)
from kernel_cases import Call, Case, cases_of

import flopscope as fs

ROUNDS = {"cpu": 5, "cuda": 31}
SECONDS = {"cpu": 0.05, "cuda": 0.25}  # of one case
# |result - reference| <= tolerance x (|reference| + its mean), the reference in float64 from the same inputs.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
LAUNCHES, HELD_CYCLES, CALLS = 50, 1_500_000, 200  # launches between two events; calls of a host sample
PROBED_BYTES = 2 << 30
COLUMNS = ["family", "case", "dtype", "us", "+-%", "torch us", "GB/s", "% copy", "% read", "x torch", "low", "high"]
# Of each family: what its rate is compared with, and the least share of it. None: no slower than torch.
FAMILIES: dict[str, tuple[str, float] | None] = {
    "reduction": ("read", 0.92),
    "pow": ("copy", 0.90),
    "transposed": ("copy", 0.95),
    "rows": ("copy", 0.90),
    "pointwise, float32": ("copy", 0.90),
    "pointwise, 16 bits": ("copy", 0.92),
    "pointwise, float64": ("copy", 0.92),
    "cumsum": ("copy", 0.70),
    "small, device": None,
    "small, host": None,
}


def error_of(case: Case, torch: Any) -> str | None:
    """Return a description of a wrong result, or None if both results are right."""
    reference = case.reference()
    scale = reference.abs().mean()
    for who, call in (("flopscope", case.ours), ("torch", case.theirs)):
        result = call()
        values = case.read(torch.from_dlpack(result) if who == "flopscope" else result)
        if values.shape != reference.shape:
            return f"{who}'s result has the shape {tuple(values.shape)} instead of {tuple(reference.shape)}"
        off = ((values - reference).abs_() / (reference.abs() + scale)).max().item()
        if not off <= TOLERANCE[case.dtype]:  # NaN is wrong too
            return f"{who}'s result is off by {off:.2g} of |reference| + its mean"
    return None


class Timers:
    """Samplers of the cases, by device. On the CPU every sample is the time of one call."""

    def __init__(self, torch: Any, device: str, folder: Path, report: Report) -> None:
        self.torch, self.cuda, self.report = torch, device == "cuda", report
        self.single: Callable[[Call], Sampler] = CudaTimer(torch).sampler if self.cuda else stopwatch
        self.readers: list[Callable[[Any], None]] = []
        if not self.cuda:
            return
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        try:
            self.readers = load_readers(folder)
        except RuntimeError as problem:
            report.note(f"no case is compared with a read: {problem}")

    def peers(self, case: Case, named: str) -> dict[str, Sampler]:
        """Return the copy of the case's operand, and the read of it where the family's rate is compared with that."""
        scratch = self.torch.empty_like(case.operand)
        found = {"torch copy_": self.single(partial(scratch.copy_, case.operand))}
        if named == "read" and self.readers:
            if len(self.readers) > 1:
                self.choose_reader(case.operand)
            found["read"] = self.single(partial(self.readers[0], case.operand))
        return found

    def choose_reader(self, operand: Any) -> None:
        """Keep the fastest reader. Note its rate, and that of the probe behind devices()."""
        samples = interleave({str(i): self.single(partial(read, operand)) for i, read in enumerate(self.readers)}, 9)
        seconds = [spread(values).median for values in samples.values()]
        form = seconds.index(min(seconds))
        self.readers = [self.readers[form]]
        probed = [fs._core.probe("cuda:0", "read", "float32", PROBED_BYTES) for _ in range(5)]
        here, peak = operand.nbytes / seconds[form] / 1e9, max(done / took for took, done in probed) / 1e9
        self.report.note(f"reading: {here:.0f} GB/s in form {form}; the probe of devices(), 2 GiB: {peak:.0f} GB/s")

    def launches(self, call: Call) -> Sampler:
        """Return a sampler of the device's time for a launch, of many in a row that were queued beforehand."""
        start, end = self.events

        def sample() -> float:
            self.torch.cuda._sleep(HELD_CYCLES)
            start.record()
            for _ in repeat(None, LAUNCHES):
                call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3 / LAUNCHES

        return sample

    def calls(self, call: Call) -> Sampler:
        """Return a sampler of the host's time for a call."""

        def sample() -> float:
            start = time.perf_counter()
            for _ in repeat(None, CALLS):
                call()
            elapsed = time.perf_counter() - start
            if self.cuda:
                self.torch.cuda.synchronize()
            return elapsed / CALLS

        return sample

    def of(self, case: Case) -> dict[str, Sampler]:
        timed = {"small, device": self.launches, "small, host": self.calls}.get(case.family, self.single)
        samplers = {"flopscope": timed(case.ours), "torch": timed(case.theirs)}
        limit = FAMILIES[case.family]
        return samplers if limit is None else samplers | self.peers(case, limit[0])


def load_readers(folder: Path) -> list[Callable[[Any], None]]:
    """Return functions that read a tensor's memory, in all forms."""
    library = ctypes.CDLL(str(build_cuda_library(HERE / "read_rate.cu", folder)))
    library.read_memory.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]

    def read(form: int, x: Any) -> None:
        if (error := library.read_memory(x.data_ptr(), x.nbytes, form)) != 0:
            raise RuntimeError(f"reading memory failed with CUDA error {error}")

    return [partial(read, form) for form in range(library.read_forms())]


@dataclass
class Result:
    case: Case
    relative: Spread
    """Our time over torch's."""
    shares: dict[str, float]
    """The rate over those of the copy and the read."""


def measure(report: Report, case: Case, samplers: dict[str, Sampler], rounds: int, seconds: float) -> Result:
    samples = interleave(samplers, rounds, warmup=1, seconds=seconds)
    limits = {who: values for who, values in samples.items() if who not in ("flopscope", "torch")}
    ours, theirs = samples["flopscope"], samples["torch"]
    what = f"{case.family}: {case.name}"
    report.keep(what, {"flopscope": ours, "torch": theirs}, ours="flopscope", dtype=case.dtype, bytes=case.nbytes)
    report.keep(what, limits, dtype=case.dtype, time="limit")
    relative, moved = ratio(ours, theirs), case.nbytes / case.operand.nbytes
    shares = {
        short: moved / amount / ratio(ours, samples[peer]).median
        for short, peer, amount in (("copy", "torch copy_", 2), ("read", "read", 1))
        if peer in samples
    }
    middle = spread(ours)
    report.row(
        case.family,
        case.name,
        case.dtype,
        f"{middle.median * 1e6:.2f}",
        f"{middle.percent:.1f}",
        f"{spread(theirs).median * 1e6:.2f}",
        f"{case.nbytes / middle.median / 1e9:.0f}" if case.nbytes else "",
        *(f"{100 * shares[peer]:.1f}" if peer in shares else "" for peer in ("copy", "read")),
        *relative.cells(3),
    )
    return Result(case, relative, shares)


def judge(report: Report, results: list[Result], device: str) -> None:
    """Add the target of each family: the share of its worst case, or the cases slower than torch."""
    for family, limit in FAMILIES.items():
        found = [one for one in results if one.case.family == family]
        if limit is None and found:
            worst = max(found, key=lambda one: one.relative.low)
            slower = sum(one.relative.low > 1 for one in found)
            named = f"{worst.case.label} {worst.relative.median:.2f} x"
            report.target(f"{family}: cases slower than torch", slower, 0, f"of {len(found)}", worst=named)
        if limit is None or device == "cpu":
            continue
        peer, least = limit
        found = [one for one in found if peer in one.shares]
        if found:
            worst = min(found, key=lambda one: one.shares[peer])
            below = sum(one.shares[peer] < least for one in found)
            named = f"{worst.case.name} {worst.case.dtype}; {below} of {len(found)} below"
            what = f"{family}: least share of the {peer}"
            report.target(what, 100 * worst.shares[peer], 100 * least, "%", least=True, worst=named)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="regular expression for the cases")
    parser.add_argument("--seconds", type=float, help="of one case")


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), add_options)
    device = options.device
    report = Report("kernels", COLUMNS, options.out, device)
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: there is no peer to compare with and no reference for the results.")
        report.finish()
        return
    torch.set_num_threads(fs.num_threads())
    results: list[Result] = []
    wrong = 0
    seconds = SECONDS[device] if options.seconds is None else options.seconds
    with torch.inference_mode(), tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        timers = Timers(torch, device, Path(folder), report)
        for case in filter(lambda case: options.only.search(case.label), cases_of(torch, device)):
            try:
                problem = error_of(case, torch)
                if problem is None:
                    results.append(measure(report, case, timers.of(case), ROUNDS[device], seconds))
            except (RuntimeError, MemoryError, TypeError, ValueError) as failure:
                problem = str(failure)
            if problem is not None:
                wrong += 1
                report.note(f"not timed: {case.label}: {problem}")
    slower = [f"{one.case.label} {one.relative.median:.2f}" for one in results if one.relative.low > 1]
    report.note(f"slower than torch (lower quartile of the ratio above 1): {', '.join(slower) or 'none'}")
    report.target("cases whose result is wrong or that failed", wrong, 0, f"of {wrong + len(results)}")
    judge(report, results, device)
    report.finish()


if __name__ == "__main__":
    main()
