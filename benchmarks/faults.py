"""Programs with one known fault each, and the same programs with the fault mended, on a CUDA GPU.

python benchmarks/faults.py [--held-out] --out FOLDER [NAME ...]

--held-out takes the programs of held_out_programs.py, which the advice rules were not developed on, instead of those of
fault_programs.py.

For each program, FOLDER receives traces of torch.profiler: NAME_before.json.gz and NAME_after.json.gz with shapes and
memory, NAME_light.json.gz (the faulty program) without. pairs.json holds what was changed, the advice rules that may
name the fault, and milliseconds per step:

- *_ms: median of *_samples_ms, each the mean of 20 steps that run back to back without a profiler
- *_ms_waiting: median of 20 steps, each followed by a wait for the device
- *_profiled_ms, light_profiled_ms: mean of the steps in a trace, which include the profiler's overhead
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import math
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import fault_programs
import held_out_programs
import torch
import torch.profiler
from fault_programs import Fault, Step

WARMUP_STEPS, WARMUP_SECONDS = 5, 0.3  # both are reached
REPETITIONS, STEPS = 5, 20


def wait() -> None:
    """Wait for the device, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def warm_up(step: Step) -> None:
    step()  # may compile
    start = time.perf_counter()
    steps = 1
    while steps < WARMUP_STEPS or time.perf_counter() - start < WARMUP_SECONDS:
        step()
        wait()
        steps += 1


def back_to_back(step: Step, steps: int) -> float:
    """Return milliseconds per step of a loop that waits for the device at its end."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return 1e3 * (time.perf_counter() - start) / steps


def traced(
    step: Step, path: Path, shapes: bool, memory: bool, steps: int = 3, marked: bool = True, tools: Any = torch.profiler
) -> float:
    """Write a compressed trace of some steps. Return milliseconds per step under the profiler, NaN without a GPU.

    CUDA events take the time, since a wait at the end would be part of the last step in the trace.

    marked: the trace has steps, and begins after a step that is not recorded.
    tools: the module that records, with ``profile`` and ``schedule`` as in torch.profiler.
    """
    plain = path.with_suffix("")
    gpu = torch.cuda.is_available()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if gpu else (None, None)
    with tools.profile(
        activities=[tools.ProfilerActivity.CPU, *([tools.ProfilerActivity.CUDA] if gpu else [])],
        schedule=tools.schedule(wait=0, warmup=1, active=steps, repeat=1) if marked else None,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(plain)),
        record_shapes=shapes,
        profile_memory=memory,
    ) as profiler:
        if marked:
            step()
            wait()
            profiler.step()
        if start:
            start.record()
        for i in range(steps):
            step()
            if end and i + 1 == steps:
                end.record()
            if marked:
                profiler.step()
    with open(plain, "rb") as source, gzip.open(path, "wb", 9) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()
    wait()
    return start.elapsed_time(end) / steps if start else math.nan


def measured(name: str, fault: Fault, mended: bool, out: Path) -> dict[str, Any]:
    """Build and measure one program, write its traces, and return its part of the row in pairs.json."""
    torch.cuda.reset_peak_memory_stats()
    step = fault.build(mended)
    warm_up(step)
    samples = [back_to_back(step, STEPS) for _ in range(REPETITIONS)]
    word = "after" if mended else "before"
    row = {
        f"{word}_ms": statistics.median(samples),
        f"{word}_ms_waiting": statistics.median(back_to_back(step, 1) for _ in range(STEPS)),
        f"{word}_samples_ms": samples,
        f"{word}_peak_mb": torch.cuda.max_memory_allocated() / 1e6,
        f"{word}_profiled_ms": traced(step, out / f"{name}_{word}.json.gz", True, True),
    }
    if not mended:
        row["light_profiled_ms"] = traced(step, out / f"{name}_light.json.gz", False, False)
    return row


def reset() -> None:
    """Restore the settings that a program may have changed, and free its memory."""
    gc.collect()
    torch.compiler.reset()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = True, False
    torch.manual_seed(0)
    torch.cuda.empty_cache()


def compared(name: str, fault: Fault, out: Path) -> dict[str, Any]:
    """Measure a program before and after its fault is mended, and return its row; an error becomes part of the row."""
    row: dict[str, Any] = {"what": fault.what, "rules": list(fault.rules)}
    for mended in (False, True):
        try:
            reset()
            row |= measured(name, fault, mended, out)
        except Exception as error:
            row["error"] = f"{'after' if mended else 'before'}: {type(error).__name__}: {error}"[:500]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the traces and pairs.json")
    parser.add_argument("--held-out", action="store_true", help="take the programs of held_out_programs.py")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; default: all")
    options = parser.parse_args()
    faults = held_out_programs.FAULTS if options.held_out else fault_programs.FAULTS
    if unknown := sorted(set(options.names) - set(faults)):
        parser.error(f"unknown program: {', '.join(unknown)}; known: {', '.join(faults)}")
    if not torch.cuda.is_available():
        parser.error("no CUDA device found")
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = options.out / "pairs.json"
    rows = json.loads(pairs.read_text()) if pairs.exists() else {}
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    for name in options.names or faults:
        start = time.perf_counter()
        rows[name] = row = compared(name, faults[name], options.out)
        pairs.write_text(json.dumps(rows, indent=1) + "\n")
        times = [f"{word} {row[word + '_ms']:.3f} ms" for word in ("before", "after") if word + "_ms" in row]
        print(f"{name}: {', '.join([*times, *([row['error']] if 'error' in row else [])])}", end="")
        print(f" [{time.perf_counter() - start:.0f} s]", flush=True)
    return 1 if any("error" in rows[name] for name in options.names or faults) else 0


if __name__ == "__main__":
    sys.exit(main())
