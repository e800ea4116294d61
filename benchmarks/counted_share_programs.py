"""Programs whose work comes late, in bursts or all the time; benchmarks/counted_share.py counts them.

    python benchmarks/counted_share_programs.py triton|cupy|training|tiny|bursts

Each prints, as JSON, the seconds of one step after its start where it has steps.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

TRAINED, TINY, BURSTS = 10.0, 5.0, 5.0
"""Seconds."""


def main() -> None:
    name = sys.argv[1]
    step = {"triton": triton, "cupy": cupy, "training": training, "tiny": tiny, "bursts": bursts}[name]()
    print(json.dumps({"step": step}), flush=True)


def triton() -> None:
    """JIT compilation, then 47 ms of kernels: a new kernel for each of twelve block sizes, then add and double."""
    import counted_share_kernels as kernels
    import torch

    x = torch.ones(1 << 20, device="cuda")
    for variant in range(12):
        kernels.compile_variant(x, variant)
    torch.cuda.synchronize()
    big = torch.ones(1 << 26, device="cuda")
    for _ in range(200):
        kernels.double(big)
    torch.cuda.synchronize()


def cupy() -> None:
    """Two seconds of kernels, of which CuPy compiles some."""
    import cupy as cp

    x = cp.random.rand(8192, 8192, dtype=cp.float32)
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        for _ in range(20):
            y = cp.sqrt(x) + x
            y.sum(axis=1)
        cp.cuda.Device().synchronize()


def training() -> float:
    """Steps of six layers of 4096, for ten seconds."""
    import torch

    width = 4096
    layers: list[Any] = []
    for _ in range(6):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)]
    model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(8192, width, device="cuda", dtype=torch.bfloat16)

    def steps(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / number

    steps(20)
    return steps(round(TRAINED / steps(50)))


def tiny() -> None:
    """Kernels of a few µs, for five seconds."""
    import cupy as cp

    x = cp.ones(1 << 16, dtype=cp.float32)
    end = time.monotonic() + TINY
    while time.monotonic() < end:
        for _ in range(500):
            x += 1
        cp.cuda.Device().synchronize()
        time.sleep(0.005)


def bursts() -> None:
    """Kernels for 5 to 60 ms, then a pause of 50 to 400 ms, for five seconds."""
    import torch

    chance = random.Random(0)
    x = torch.ones(1 << 26, device="cuda")
    end = time.monotonic() + BURSTS
    while time.monotonic() < end:
        for _ in range(round(chance.uniform(5, 60) / 0.15)):
            x.mul_(1.0)
        torch.cuda.synchronize()
        time.sleep(chance.uniform(0.05, 0.4))


if __name__ == "__main__":
    main()
