"""What flopscope knows of programs of JAX under fs.profile(), with command buffers on.

For each program of jax_step_programs.py: the share of the kernels' time that belongs to an instruction, the FLOPs of
its products beside a count by hand, its bytes beside the GPU's counters, in all and of the instructions above 20 µs,
and what profiling adds to a step.

    python benchmarks/jax_programs.py --device cuda [--out FOLDER] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax_step_programs
from harness import Report, arguments, interleave, spread

import flopscope as fs

STEPS, ROUNDS, SECONDS = 10, 9, 3.0
LONG = 20.0  # µs
TIED, OVERHEAD, BYTES, LONG_BYTES = 0.98, 5.0, 10.0, 15.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs; default: all")


def run(function: Callable[..., Any], given: Any, steps: int = STEPS) -> float:
    """Return the seconds of a step, of several that run back to back."""
    start = time.perf_counter()
    for _ in range(steps):
        result = function(*given)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / steps


def profiled(function: Callable[..., Any], given: Any) -> float:
    with fs.profile():
        return run(function, given)


def rows_of(function: Callable[..., Any], given: Any, **options: Any) -> tuple[Any, list[Any]]:
    """Return a profile of some steps, and the rows of its instructions."""
    with fs.profile(record_shapes=True, **options) as prof:
        run(function, given)
    rows = [row for row in prof.key_averages() if row.device_type == "cpu" and row.self_device_time_total > 0]
    return prof, rows


def off(model: float, counted: float) -> float:
    """Return by how many percent the counters differ from the model."""
    return 100 * (counted / model - 1) if model > 0 else math.nan


def counted_bytes(rows: list[Any]) -> list[tuple[str, float, float, float]]:
    """Return name, µs per call, bytes of the model and counted bytes of the instructions for which both are known."""
    found = []
    for row in rows:
        counted = row.dram_bytes_read + row.dram_bytes_written
        if not math.isnan(counted) and not math.isnan(row.bytes_total_moved):
            found.append((row.key, row.self_device_time_total / row.count, row.bytes_total_moved, counted))
    return found


def measure(name: str, report: Report) -> None:
    function, given, flops = jax_step_programs.PROGRAMS[name](1.0)
    began = time.perf_counter()
    compiled = jax.jit(function).lower(*given).compile()
    took = time.perf_counter() - began
    run(compiled, given)
    work = fs.work_of_hlo(compiled.as_text())
    by_hand = work.product_flops.sum() / flops if flops else math.nan
    prof, rows = rows_of(compiled, given)
    tied = prof.hlo["tied_ns"] / prof.hlo["kernel_ns"] if prof.hlo else math.nan
    _, counted_rows = rows_of(compiled, given, counters=True)
    each = counted_bytes(counted_rows)
    total = off(sum(row[2] for row in each), sum(row[3] for row in each))
    long = [(key, off(model, counted)) for key, us, model, counted in each if us > LONG]
    within = sum(abs(share) <= LONG_BYTES for _, share in long)
    samples = interleave(
        {"plain": lambda: run(compiled, given), "profiled": lambda: profiled(compiled, given)}, ROUNDS, 1, SECONDS
    )
    plain = spread(samples["plain"]).median
    added = 100 * (spread(samples["profiled"]).median / plain - 1)
    report.keep(
        name,
        samples,
        compile_s=took,
        hlo=dict(prof.hlo),
        product_flops=work.product_flops.sum(),
        by_hand=flops,
        bytes=each,
        coverage={key: value for key, value in prof.coverage().items() if isinstance(value, float)},
        rows=[(row.key, row.count, row.self_device_time_total, row.flops, row.bytes_total_moved) for row in rows],
        module=[(row.module, row.device_time_total) for row in prof.key_averages(group_by="module")]
        if prof.hlo
        else [],
    )
    kernels = prof.hlo["kernel_ns"] / STEPS / 1e6 if prof.hlo else math.nan
    guessed = prof.hlo["guessed"] / prof.hlo["works"] if prof.hlo else math.nan
    report.row(
        name,
        f"{took:.1f} s",
        f"{1e3 * plain:.3f} ms",
        f"{kernels:.3f} ms",
        f"{tied:.4f}",
        f"{guessed:.3f}",
        f"{by_hand:.4f}",
        f"{total:+.1f} %",
        f"{within} of {len(long)}",
        f"{added:+.1f} %",
    )
    report.target(f"{name}: share of the kernels' time that is tied", tied, TIED, "", least=True)
    if flops:
        report.target(f"{name}: products differ from the count by hand", 100 * abs(by_hand - 1), 0.1, "%")
    if each:
        report.target(f"{name}: bytes differ from the counters' in total", abs(total), BYTES, "%")
    for key, share in long:
        if abs(share) > LONG_BYTES:
            report.note(f"{name}: {key}: the counters saw {share:+.0f} %")
    if name == "gpt":
        report.target("gpt: profiling adds to a step", added, OVERHEAD, "%")


def main() -> int:
    options = arguments(__doc__ or "", ("cuda", "cpu"), add_options)
    columns = ["program", "compiled", "step", "kernels", "tied", "guessed", "products", "bytes", "long", "profiled"]
    report = Report("jax_programs", columns, options.out, options.device)
    warnings.simplefilter("once")
    for name in jax_step_programs.PROGRAMS:
        if options.only and name not in options.only:
            continue
        try:
            measure(name, report)
        except Exception as problem:
            traceback.print_exc()
            report.row(name, *["-"] * (len(columns) - 1))
            report.note(f"{name} failed: {type(problem).__name__}: {str(problem)[:300]}")
        report.done()
    report.note(
        "products: FLOPs over those by hand; bytes: counted over modelled, in all; long: instructions above 20 us with "
        "counted bytes within 15 % of the model"
    )
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
