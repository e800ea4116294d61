"""Ops that have a slow and a fast kernel for the same work: what the rule far_from_roof of the advice rests on.

Adds and gathers by index over 220,000 of 20,000 rows, and products of int8 by the layout of the second matrix: µs, the
mean of 20 calls between two CUDA events. "least" is the time of the bytes or FLOPs at the peak of the datasheet.

    python benchmarks/slow_kernels.py --out FOLDER           needs a GPU and torch
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS, INDICES, SIDE = 20_000, 220_000, 4096
BANDWIDTH, INT8 = 4.8e12, 1978.9e12  # of an H200, per second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for slow_kernels.json")
    folder = parser.parse_args().out
    from harness import machine

    result = {"name": "slow_kernels", "machine": machine("cuda"), "by_index": by_index(), "int8": int8()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slow_kernels.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def time_of(call: Callable[[], Any], count: int = 20) -> float:
    """Return the mean µs of a call."""
    import torch

    for _ in range(3):
        call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return round(1000 * begin.elapsed_time(end) / count, 1)


def by_index() -> list[dict[str, Any]]:
    import torch

    cases = []
    for dtype in (torch.float32, torch.bfloat16):
        for width in (4, 64, 256, 1024):
            x = torch.randn(ROWS, width, device="cuda", dtype=dtype)
            source = torch.randn(INDICES, width, device="cuda", dtype=dtype)
            index = torch.randint(0, ROWS, (INDICES,), device="cuda")
            expanded = index[:, None].expand(INDICES, width)
            whole = expanded.contiguous()
            ways = {
                "index_add_": lambda x=x, i=index, s=source: x.index_add_(0, i, s),
                "scatter_add_, expanded index": lambda x=x, i=expanded, s=source: x.scatter_add_(0, i, s),
                "scatter_add_, contiguous index": lambda x=x, i=whole, s=source: x.scatter_add_(0, i, s),
                "gather, expanded index": lambda x=x, i=expanded: torch.gather(x, 0, i),
                "gather, contiguous index": lambda x=x, i=whole: torch.gather(x, 0, i),
                "index_select": lambda x=x, i=index: x.index_select(0, i),
            }
            nbytes = (INDICES + 2 * ROWS) * width * x.element_size() + 8 * INDICES
            times = {name: time_of(call) for name, call in ways.items()}
            cases.append({"dtype": str(dtype), "width": width, "least": round(1e6 * nbytes / BANDWIDTH, 1), **times})
    return cases


def int8() -> dict[str, float]:
    import torch

    a, b = (torch.randint(-8, 8, (SIDE, SIDE), device="cuda", dtype=torch.int8) for _ in range(2))
    return {
        "least": round(1e6 * 2 * SIDE**3 / INT8, 1),
        "row-major second matrix": time_of(lambda: torch._int_mm(a, b)),
        "column-major second matrix": time_of(lambda: torch._int_mm(a, b.t())),
    }


if __name__ == "__main__":
    main()
