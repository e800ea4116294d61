"""The model against the hardware: FLOPs and bytes of ops as flopscope counts them, and as the GPU's counters did.

Every case is called once with cold caches for each group of counters. "read" and "written" are DRAM bytes over the
model's; written bytes include the lines that leave the L2 after the call. "FLOPs" are those of tensor cores over the
model's, where a call uses them; else the scalar floating-point instructions.

    python benchmarks/truth.py --out FOLDER                  needs a GPU whose counters may be read
    python benchmarks/truth.py --page FOLDER/truth.json      prints the page of the documentation
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CHUNK = 40  # calls counted in one session

HOW_TO = (
    "```python",
    "import flopscope as fs",
    "",
    "x = fs.rand((1024, 1024))",
    'on_gpu = str(x.device).startswith("cuda")',
    "m = fs.measure(fs.add, x, x, counters=on_gpu, max_time=0.2)",
    'print(f"model: {m.flops:.0f} FLOPs, {m.bytes_read:.0f} + {m.bytes_written:.0f} bytes")',
    'print(f"DRAM bytes counted, over the model: {m.traffic_ratio}")  # NaN on a CPU',
    "```",
)
"""How a reader compares both, as lines of the page."""

EXPLAINED = {
    "unary": "Each element is read and written once. The model counts 1 FLOP an element, the hardware those of the "
    "polynomial; instructions that only round or compare count 0.",
    "binary": "`add of itself` reads its operand once: a trace does not know that both are the same memory.",
    "broadcast": "A row or column is read once and stays in the cache.",
    "in place": "The op reads and writes the same memory.",
    "comparison": "Booleans take one byte.",
    "reduction": "The input is read once; results of less than 1 MB are left out.",
    "scan": "One pass over the rows.",
    "softmax": "Rows fit into the multiprocessors, so they are read once.",
    "normalization": "torch's layer_norm and rms_norm read their input a second time, as far as it has left the L2.",
    "copy": "Only the compulsory bytes move.",
    "random": "dropout writes a mask of booleans besides its result.",
    "index": "Distinct rows are read once. `gather` and `tril` read at most what the model says.",
    "window": "Windows overlap in the cache only.",
    "loss": "A loss consists of several ops; each reads what the previous one wrote.",
    "product": "Operands that exceed the L2 are read again for other tiles, and tiles at the edges are padded.",
    "convolution": "The layout is converted before and after, which the model of the convolution leaves out.",
    "attention": "One tensor is query, key and value, and is read once; a trace does not know that they are the same. "
    "Tiles on the diagonal of a causal mask are computed whole.",
    "native": "flopscope's own kernels. `matmul` in float32 reads operands again for other tiles; `addmm` writes the "
    "product and reads it again.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for truth.json")
    parser.add_argument("--page", type=Path, metavar="FILE", help="print the page for this result, without a GPU")
    options = parser.parse_args()
    if options.page:
        print(page(json.loads(options.page.read_text(encoding="utf-8"))), end="")
        return
    from harness import machine, write_json

    result = {"name": "truth", "machine": machine("cuda"), "cases": count_all()}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "truth.json", result)
    print(page(result))


def count_all() -> list[dict[str, Any]]:
    import torch
    from truth_cases import native_cases, torch_cases

    from flopscope.record.counters import why_no_counters

    why = why_no_counters()
    if why is not None:
        raise SystemExit(f"no hardware counters: {why}")
    torch.backends.cuda.matmul.allow_tf32 = False
    records = []
    for make, is_torch in ((torch_cases, True), (native_cases, False)):
        cases = list(make())
        print(f"{len(cases)} cases of {'torch' if is_torch else 'flopscope'}", flush=True)
        with torch.no_grad():
            for case in cases:
                case.call()
            torch.cuda.synchronize()
            models = models_of([case.call for case in cases], is_torch)
            counts = counts_of(cases)
        for case, model, count in zip(cases, models, counts, strict=True):
            facts = {
                "family": case.family,
                "op": case.name,
                "dtype": case.dtype,
                "shape": case.shape,
                "unit": case.unit,
            }
            records.append({**facts, "model": model, "counted": count})
    return records


def models_of(calls: Sequence[Callable[[], Any]], is_torch: bool) -> list[dict[str, float]]:
    """Return the FLOPs and bytes of each call, as flopscope counts them: each call is a step of one profile."""
    import torch

    import flopscope as fs
    from flopscope.torch import profile as torch_profile

    plan = fs.schedule(wait=0, warmup=1, active=len(calls), repeat=1)
    profile = torch_profile if is_torch else fs.profile
    with profile(record_shapes=True, schedule=plan) as prof:
        for call in [calls[0], *calls]:
            call()
            torch.cuda.synchronize()
            prof.step()
    sums = [dict.fromkeys(("flops", "bytes_read", "bytes_written"), 0.0) for _ in calls]
    for row in prof.key_averages(group_by=("name", "step"), peaks="none"):
        if row.device_type != "cpu" or row.is_user_annotation or not str(row.step).startswith("ProfilerStep#"):
            continue
        total = sums[int(row.step.partition("#")[2]) - 1]
        for name in total:
            value = getattr(row, name)
            total[name] += 0.0 if math.isnan(value) else value
    return sums


def counts_of(cases: Sequence[Any]) -> list[dict[str, float]]:
    """Return what the hardware counted for each case."""
    from flopscope import _core

    def flush() -> None:
        _core.measure_flush("cuda:0")

    def flushed(call: Callable[[], Any]) -> Callable[[], None]:
        def both() -> None:
            call()
            flush()

        return both

    counts: list[dict[str, float]] = [{} for _ in cases]
    for begin in range(0, len(cases), CHUNK):
        chunk = range(begin, min(begin + CHUNK, len(cases)))
        calls = [cases[i].call for i in chunk]
        memory = _core.count_calls(0, "memory", flush, tuple(f for call in calls for f in (call, flushed(call))))
        scalar = _core.count_calls(0, "scalar", flush, tuple(calls))
        for k, i in enumerate(chunk):
            alone, with_flush = memory[2 * k], memory[2 * k + 1]
            left = max(with_flush["dram_bytes_written"] - alone["dram_bytes_written"], 0.0)
            counts[i] = {**alone, "l2_bytes_left_dirty": left, **scalar[k]}
    for unit in sorted({case.unit for case in cases if case.unit}):
        those = [i for i, case in enumerate(cases) if case.unit == unit]
        counted = _core.count_calls(0, unit, flush, tuple(cases[i].call for i in those))
        for i, count in zip(those, counted, strict=True):
            counts[i] |= count
    return counts


# The page ------------------------------------------------------------------------------------------------------------


def ratios(case: dict[str, Any]) -> dict[str, float]:
    """Return counted over modelled: bytes read, bytes written, FLOPs of tensor cores, FLOPs in fp32 outside of them."""
    model, counted = case["model"], case["counted"]
    written = counted["dram_bytes_written"] + counted["l2_bytes_left_dirty"]
    return {
        "read": share(counted["dram_bytes_read"], model["bytes_read"], 1e6),
        "written": share(written, model["bytes_written"], 1e6),
        "flops": share(counted.get("tensor_flops", math.nan), model["flops"], 1.0),
        "scalar": share(counted["fp32_flops"], math.nan if case["unit"] else model["flops"], 1.0),
    }


def share(counted: float, modelled: float, least: float) -> float:
    return counted / modelled if modelled >= least else math.nan


def page(result: dict[str, Any]) -> str:
    """Return the page: a table of families, and one of the cases that are far from 1."""
    cases = result["cases"]
    families = list(dict.fromkeys(case["family"] for case in cases))
    lines = [
        "# Model and hardware",
        "",
        "This page compares the work that [the model](counting.md) expects of an op with the hardware counters of a "
        "GPU. An example for one call:",
        "",
        *HOW_TO,
        "",
        f"The table covers {len(cases)} calls on one {result['machine'].get('device', 'GPU')}, each with cold caches. "
        "It has the median and the range from the least to the greatest. 1 means that model and counters agree. "
        "Written bytes include the lines that leave the L2 after the call. `benchmarks/truth.py` generates this page.",
        "",
        "| family | calls | read / model | written / model | tensor FLOPs / model | fp32 FLOPs / model | why not 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for family in families:
        those = [ratios(case) for case in cases if case["family"] == family]
        cells = [spread([one[name] for one in those]) for name in ("read", "written", "flops", "scalar")]
        lines.append(f"| {family} | {len(those)} | {' | '.join(cells)} | {EXPLAINED[family]} |")
    lines += ["", "These calls differ from 1 by 5 % or more:", ""]
    lines += ["| op | dtype | shape | read | written | tensor FLOPs |", "|---|---|---|---|---|---|"]
    for case in cases:
        found = ratios(case)
        del found["scalar"]
        if any(not math.isnan(value) and abs(value - 1) >= 0.05 for value in found.values()):
            texts = ("" if math.isnan(value) else f"{value:.3g}" for value in found.values())
            lines.append(f"| {case['op']} | {case['dtype']} | {case['shape']} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def spread(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ""
    middle = f"{statistics.median(known):.3f}"
    return middle if len(known) == 1 else f"{middle} ({min(known):.3f} to {max(known):.3f})"


if __name__ == "__main__":
    main()
