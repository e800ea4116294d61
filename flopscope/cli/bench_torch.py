"""The benchmark program in torch, for ``flopscope bench --against torch``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flopscope import _core
from flopscope.results.results import Results

__all__ = ["OPS", "run"]


class _Program:
    """The tensors of the program, like those of bench._Program."""

    def __init__(self, torch: Any, size: int, dtype: str, device: str) -> None:
        self.torch = torch
        self.options = {"dtype": getattr(torch, dtype), "device": device}
        self.shape = (size, size)
        self.x = torch.ones(self.shape, **self.options)
        self.y = torch.full(self.shape, 0.5, **self.options)

    def ones(self) -> None:
        self.x = self.torch.ones(self.shape, **self.options)

    def matmul(self) -> None:  # torch cannot write a product into its operand
        self.x = self.torch.matmul(self.x, self.x)

    def mul(self) -> None:
        self.y = self.torch.mul(self.x, 0.5)


# The steps of bench.OPS, in the same order.
OPS: dict[str, Callable[[_Program], object]] = {
    "ones": _Program.ones,
    "matmul": _Program.matmul,
    "mul_": lambda p: p.x.mul_(0.5),
    "mul": _Program.mul,
    "add": lambda p: p.torch.add(p.x, p.y),
    "sum": lambda p: p.torch.sum(p.x),
    "sqrt": lambda p: p.torch.sqrt(p.x),
    "sin": lambda p: p.torch.sin(p.x),
    "sigmoid": lambda p: p.torch.sigmoid(p.x),
    "log10": lambda p: p.torch.log10(p.x),
    "pow": lambda p: p.torch.pow(p.x, 3.14159),
}


def run(device: str, dtype: str, size: int, ops: Sequence[str], repeat: int) -> Results:
    """Run each op of the benchmark program in torch ``repeat`` times after a warm-up, under torch.profiler.

    On the CPU, torch is set to the number of threads that flopscope uses, and keeps that setting.
    Raises ImportError without torch, RuntimeError if torch cannot use the device.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError("--against torch needs torch: pip install torch") from error
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} cannot use {device}: it was built without CUDA or finds no GPU")
    program = _Program(torch, size, dtype, device)

    def once() -> None:
        for name in ops:
            OPS[name](program)

    def synchronize() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    if device == "cpu":
        torch.set_num_threads(_core.num_threads())  # the same number for both
    once()
    synchronize()
    with torch.profiler.profile(record_shapes=True, acc_events=True) as prof:
        for _ in range(repeat):
            once()
        synchronize()
    return _read(prof)


def _read(prof: Any) -> Results:
    from flopscope.results.trace import load_trace

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "torch.json"
        prof.export_chrome_trace(str(path))
        return load_trace(path)
