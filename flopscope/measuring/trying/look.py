"""What a program uses, which tells the changes that can apply, and what it computes, by which its runs are compared."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
    device: str = ""
    """Name of the GPU that torch uses, else of the CPU."""
    has_tf32: bool = False
    """That GPU has TF32."""
    has_bf16: bool = False
    """That GPU, else the CPU, has instructions for products in bfloat16."""
    cpus: int = 1
    """CPUs that the process may use."""
    threads: int = 0
    """Threads of torch's ops."""
    compiler: bool = False
    """torch.compile can compile: there is a C++ compiler, or a GPU with Triton."""
    modules: int = 0
    """Modules with parameters that the program called itself."""
    float32: bool = False
    """Some of them have float32 parameters."""
    half: bool = False
    """Some of them have parameters of 16 bits, or were called in autocast."""
    tf32: bool = False
    """Products, or the convolutions of its modules, may use TF32."""
    images: bool = False
    """One of them was given a 4-d float tensor that is not channels_last, and has 2-d convolutions."""
    convolutions: bool = False
    trains: bool = False
    """backward() was called."""
    gradients: bool = False
    """A module was called with gradients enabled."""
    draws: bool = False
    """Its steps draw random numbers."""
    compiled: bool = False
    """torch.compile was used."""
    autocast: bool = False
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    """For each kind: ``name``, and the arguments ``fused`` and ``foreach``."""
    loaders: list[dict[str, Any]] = field(default_factory=list)
    """For each DataLoader: ``num_workers``, ``pin_memory``, ``prefetch_factor``, and ``iterable`` for its dataset."""
    zeroed: bool = False
    """zero_grad(set_to_none=False) was called."""
    parallel: bool = False
    """DistributedDataParallel was used."""
    deterministic: bool = False
    tuned: bool = False
    """cudnn.benchmark was on."""


class Looking:
    """Looks at a program with torch while it runs, without waiting for the device, and at its objects at the end.

    Its first losses are recorded, tensors of one element on which backward() is called; of a program without them, the
    mean magnitudes of what the modules that it calls return.
    """

    def __init__(self, reach: Any) -> None:
        self.seen = Seen()
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
            numbers = {name: getattr(made, name) for name in ("num_workers", "pin_memory", "prefetch_factor")}
            iterable = issubclass(type(made.dataset), torch.utils.data.IterableDataset)
            _add(self.seen.loaders, **numbers, iterable=iterable)

        def backward(original: Callable[..., Any], tensors: Any, *args: Any, **named: Any) -> None:
            self.seen.trains = True
            for root in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
                if len(self._losses) < FIRST and isinstance(root, torch.Tensor) and root.numel() == 1:
                    self._losses.append(root.detach().clone())
            original(tensors, *args, **named)

        # A loop over a DataLoader keeps only its iterator, so each is noted when it is made.
        reach.wrap(torch.utils.data.DataLoader, "__init__", loader)
        reach.wrap(torch.optim.Optimizer, "zero_grad", zero_grad)
        reach.wrap(torch.autograd, "backward", backward)

    def _first(self, module: Any, args: Sequence[Any]) -> None:
        """Look at the first call of a module by the program."""
        torch, seen = self._torch, self.seen
        parameters = list(module.parameters())
        if not parameters:
            return
        seen.modules += 1
        seen.float32 |= any(one.dtype == torch.float32 for one in parameters)
        seen.gradients |= torch.is_grad_enabled()
        seen.autocast |= in_autocast(torch)
        seen.half |= seen.autocast or any(one.dtype in (torch.bfloat16, torch.float16) for one in parameters)
        convolutions = [one for one in module.modules() if isinstance(one, torch.nn.modules.conv._ConvNd)]
        seen.convolutions |= bool(convolutions)
        given = [one for one in args if isinstance(one, torch.Tensor) and one.dim() == 4 and one.is_floating_point()]
        flat = any(not one.is_contiguous(memory_format=torch.channels_last) for one in given)
        seen.images |= flat and any(isinstance(one, torch.nn.Conv2d) for one in convolutions)

    def _returned(self, result: Any) -> None:
        if len(self._outputs) < FIRST and not self._losses:
            self._outputs += islice(magnitudes(self._torch, result), 1)

    def began(self) -> None:
        """Note the generators of random numbers, which steps of a program that draws none leave as they are."""
        self._drawn = generators(self._torch)

    def queued(self) -> int:
        """Return how many batches the workers of a DataLoader get ready ahead."""
        return max((one["num_workers"] * (one["prefetch_factor"] or 0) for one in self.seen.loaders), default=0)

    def results(self) -> tuple[str, list[float]]:
        """Return what was recorded, "losses", "outputs" or "", and its values. Waits for the device."""
        for name, known in (("losses", self._losses), ("outputs", self._outputs)):
            if known:
                return name, [float(one) for one in known]
        return "", []

    def finish(self) -> Seen:
        """Return what was seen, with what there is now."""
        torch, seen = self._torch, self.seen
        seen.torch, is_hip = str(torch.__version__), torch.version.hip is not None
        seen.cuda = torch.cuda.is_initialized()
        seen.draws = self._drawn not in (None, generators(torch))
        if seen.cuda:
            seen.device, is_new = torch.cuda.get_device_name(), torch.cuda.get_device_capability() >= (8, 0)
            seen.has_tf32, seen.has_bf16 = is_new and not is_hip, is_new or is_hip
            convolves = seen.convolutions and torch.backends.cudnn.allow_tf32  # by default
            seen.tf32 = seen.has_tf32 and (convolves or torch.get_float32_matmul_precision() != "highest")
        else:
            seen.has_bf16 = multiplies_bf16()
        seen.threads = torch.get_num_threads()
        seen.deterministic = torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
        seen.tuned = torch.backends.cudnn.benchmark
        seen.compiler = compiles(seen.cuda)
        dynamo = sys.modules.get("torch._dynamo.utils")
        seen.compiled = dynamo is not None and dynamo.counters["frames"]["total"] > 0
        for one in gc.get_objects():
            kind = type(one)
            if issubclass(kind, torch.optim.Optimizer):
                given = {key: one.defaults.get(key) for key in ("fused", "foreach")}
                _add(seen.optimizers, name=kind.__name__, **given)
            seen.parallel |= issubclass(kind, torch.nn.parallel.DistributedDataParallel)
        return seen


def magnitudes(torch: Any, result: Any) -> Iterator[Any]:
    """Yield the mean magnitude of each number and floating-point tensor of a result, a tensor."""
    if isinstance(result, torch.Tensor):
        if result.is_floating_point() and result.numel() and result.layout == torch.strided:
            wide = torch.promote_types(result.dtype, torch.float32)
            yield torch.linalg.vector_norm(result.detach(), 1, dtype=wide) / result.numel()
    elif isinstance(result, (int, float)):
        yield torch.tensor(abs(float(result)))
    elif isinstance(result, (dict, list, tuple)):
        for one in result.values() if isinstance(result, dict) else result:
            yield from magnitudes(torch, one)


def generators(torch: Any) -> tuple[bytes, ...]:
    """Return the states of the generators of random numbers."""
    numpy = sys.modules.get("numpy")
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [])
    others = [random.getstate()] + ([numpy.random.get_state()[1:3]] if numpy is not None else [])
    return (*(bytes(state.tolist()) for state in states), *(repr(state).encode() for state in others))


def in_autocast(torch: Any) -> bool:
    """Return whether autocast is on, for any kind of device."""
    try:
        return any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    except TypeError:  # before torch 2.4
        return bool(torch.is_autocast_enabled())


def _add(known: list[dict[str, Any]], **one: Any) -> None:
    if one not in known:
        known.append(one)


def compiles(cuda: bool) -> bool:
    """Return whether torch.compile has what it needs, by what is installed."""
    if cuda:
        return importlib.util.find_spec("triton") is not None
    return shutil.which(os.environ.get("CXX", "g++")) is not None or shutil.which("clang++") is not None


def multiplies_bf16() -> bool:
    """Return whether the CPU has instructions for products in bfloat16, by Linux's list of its features."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith(("flags", "Features"))), "").split()
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags))
