"""What a program uses, which tells the changes that can apply, and what it computes, by which its runs are compared."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

FIRST = 8
"""Results that are compared."""


@dataclass
class Seen:
    """What was seen in a run of the program, as values that JSON can hold. Empty where torch was not imported."""

    torch: str = ""
    """Version of torch; "" if it was not imported."""
    cuda: bool = False
    """The program used a GPU by torch."""
    cpus: int = 1
    """CPUs that the process may use."""
    threads: int = 0
    modules: int = 0
    """Modules with parameters that the program called itself."""
    half: bool = False
    """Some of them have parameters of 16 bits, or were called in autocast."""
    tf32: bool = False
    """Products, or the convolutions of its modules, may use TF32."""
    convolutions: bool = False
    trains: bool = False
    gradients: bool = False
    draws: bool = False
    """Its steps draw random numbers."""
    zeroed: bool = False


class Looking:
    """Looks at a program with torch while it runs, without waiting for the device, and at torch at the end.

    Its first losses are recorded, tensors of one element on which backward() is called; of a program without them, the
    mean magnitudes of what the modules that it calls return.
    """

    def __init__(self, reach: Any) -> None:
        self.reach, self.seen = reach, Seen()
        self.queued = 0
        """Batches that the workers of a DataLoader get ready ahead."""
        self._torch = torch = reach.torch
        self._losses: list[Any] = []
        self._outputs: list[Any] = []
        self._drawn: Any = None
        reach.first.append(self._first)
        reach.after.append(self._returned)

        def zero_grad(original: Callable[..., Any], optimizer: Any, set_to_none: bool = True) -> None:
            self.seen.zeroed |= not set_to_none
            original(optimizer, set_to_none)

        def loader(init: Callable[..., Any], made: Any, *args: Any, **named: Any) -> None:
            init(made, *args, **named)
            self.queued = max(self.queued, made.num_workers * (made.prefetch_factor or 0))

        def backward(original: Callable[..., Any], tensors: Any, *args: Any, **named: Any) -> None:
            self.seen.trains = True
            for root in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
                if len(self._losses) < FIRST and isinstance(root, torch.Tensor) and root.numel() == 1:
                    self._losses.append(root.detach().clone())
            original(tensors, *args, **named)

        reach.wrap(torch.utils.data.DataLoader, "__init__", loader)
        reach.wrap(torch.optim.Optimizer, "zero_grad", zero_grad)
        reach.wrap(torch.autograd, "backward", backward)

    def _first(self, module: Any) -> None:
        """Look at the first call of a module by the program."""
        torch, seen = self._torch, self.seen
        seen.modules += 1
        seen.gradients |= torch.is_grad_enabled()
        seen.half |= any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
        seen.half |= any(one.dtype in (torch.bfloat16, torch.float16) for one in module.parameters())
        seen.convolutions |= any(isinstance(one, torch.nn.modules.conv._ConvNd) for one in module.modules())

    def _returned(self, result: Any) -> None:
        if len(self._outputs) < FIRST and not self._losses:
            self._outputs += islice(magnitudes(self._torch, result), 1)

    def began(self) -> None:
        """Note the generators of random numbers, which steps of a program that draws none leave as they are."""
        self._drawn = generators(self._torch)

    def results(self) -> tuple[str, list[float | None]]:
        """Return what was recorded, "losses", "outputs" or "", and its values. Waits for the device."""
        for name, known in (("losses", self._losses), ("outputs", self._outputs)):
            if known:
                return name, [float(one) for one in known]
        return "", []

    def finish(self) -> Seen:
        """Return what was seen, with the settings that torch has now."""
        torch, seen = self._torch, self.seen
        seen.torch, seen.cuda = str(torch.__version__), torch.cuda.is_initialized()
        seen.draws = self._drawn not in (None, generators(torch))
        if seen.cuda:
            convolves = seen.convolutions and torch.backends.cudnn.allow_tf32  # by default
            seen.tf32 = convolves or torch.get_float32_matmul_precision() != "highest"
        seen.threads = torch.get_num_threads()
        return seen


def magnitudes(torch: Any, result: Any) -> Iterator[Any]:
    """Yield the mean magnitude of each number and floating-point tensor of a result, a tensor."""
    for one in torch.utils._pytree.tree_leaves(result):
        if isinstance(one, (int, float)):
            yield torch.tensor(abs(float(one)))
        elif isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel() and one.layout == torch.strided:
            wide = torch.promote_types(one.dtype, torch.float32)
            yield torch.linalg.vector_norm(one.detach(), 1, dtype=wide) / one.numel()


def generators(torch: Any) -> tuple[bytes, ...]:
    """Return the states of the generators of random numbers."""
    numpy = sys.modules.get("numpy")
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])
    others = [random.getstate()] + ([numpy.random.get_state()[1:3]] if numpy is not None else [])
    return (*(bytes(state.tolist()) for state in states), *(repr(state).encode() for state in others))
