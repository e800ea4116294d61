"""Time from the end of a torch profile to its table: flopscope.torch.profile and torch's own key_averages().

Both use torch's collection of the same program, 200 000 small additions with shapes; on CUDA each addition also has an
API call and a kernel. Separate rows show Kineto's time to write the trace that flopscope reads, and the preceding
stop(), which is torch's in both cases.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from harness import Report, arguments, collector_off, optional, spread

OPS, ROUNDS = 200_000, 3


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    report = Report("torch_profile", ["200 000 ops", "seconds", "low", "high", "rows"], options.out, options.device)
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed.")
        report.finish()
        return
    x = torch.ones(64, 64, device=options.device)
    record(torch, x, 1000)
    cases = {"flopscope: stop to table": ours, "Kineto: write the trace": kineto, "torch: stop to table": theirs}
    samples: dict[str, list[float]] = {name: [] for name in cases}
    counts: dict[str, int | None] = {}
    stops: list[float] = []
    for _ in range(ROUNDS):
        for name, run in cases.items():
            prof, stop = record(torch, x, OPS)
            elapsed, counts[name] = run(prof)
            samples[name].append(elapsed)
            stops.append(stop)
    samples["torch: stop(), for both"], counts["torch: stop(), for both"] = stops, None
    report.keep(options.device, samples, ours="flopscope: stop to table", ops=OPS)
    for name, values in samples.items():
        report.row(name, *spread(values).cells(3), str(counts[name] or ""))
    assert counts["flopscope: stop to table"] == counts["torch: stop to table"]
    a, b, stop = (
        spread(samples[name]).median
        for name in ("flopscope: stop to table", "torch: stop to table", "torch: stop(), for both")
    )
    report.target("stop to table relative to torch's", a / b, 0.1, "x")
    report.note(f"With stop() on both sides: {(stop + b) / (stop + a):.1f} times as fast.")
    report.finish()


def record(torch: Any, x: Any, ops: int) -> tuple[Any, float]:
    """Record a profile; return it stopped, with the seconds that stop() took."""
    from flopscope.torch import profile

    prof = profile(record_shapes=True)
    prof.start()
    for _ in range(ops):
        torch.add(x, x)
    if x.is_cuda:
        torch.cuda.synchronize()
    return prof, timed(prof.stop)[0]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    with collector_off():
        start = time.perf_counter()
        result = call()
        return time.perf_counter() - start, result


def ours(prof: Any) -> tuple[float, int]:
    return timed(lambda: len(prof.key_averages(peaks="none")))


def theirs(prof: Any) -> tuple[float, int]:
    from flopscope.torch import profile

    return timed(lambda: len(super(profile, prof).key_averages()))


def kineto(prof: Any) -> tuple[float, None]:
    results = prof.profiler.kineto_results._results  # torch's own results, inside flopscope.torch's profile
    with tempfile.TemporaryDirectory() as folder:
        return timed(lambda: results.save(os.path.join(folder, "trace.json")))


if __name__ == "__main__":
    main()
