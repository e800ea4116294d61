"""What a program uses, seen in its first run: it tells the changes that can apply."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """What was seen in a run of the program, as values that JSON can hold. Empty where torch was not imported."""

    torch: str = ""
    """Version of torch; "" if it was not imported."""
    jax: bool = False
    jax_gpu: bool = False
    """JAX computes on a GPU."""
    cuda: bool = False
    """The program used a GPU by torch."""
    capability: int = 0
    """Its compute capability, as 90 for 9.0."""
    hip: bool = False
    device: str = ""
    """Name of the GPU that torch uses, else of the CPU."""
    cpus: int = 1
    """CPUs that the process may use."""
    threads: int = 0
    """Threads of torch's ops."""
    bf16_cpu: bool = False
    """The CPU has instructions for products in bfloat16."""
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
    trains: bool = False
    """backward() was called."""
    gradients: bool = False
    """A module was called with gradients enabled."""
    inference: bool = False
    """A module was called in inference mode."""
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
    fused_attention: bool = True
    """Every back end of scaled_dot_product_attention was allowed."""
    convolutions: bool = False


class Looking:
    """Looks at a program with torch while it runs, and at its objects when that ends."""

    def __init__(self, reach: Any) -> None:
        self.seen: Seen = reach.seen
        self._torch = torch = reach.torch
        reach.replace(torch.optim.Optimizer, "zero_grad", self._noting_zeros(torch.optim.Optimizer.zero_grad))
        # Each DataLoader is noted when it is made: a loop over one keeps only its iterator.
        loader = torch.utils.data.DataLoader
        reach.replace(loader, "__init__", self._noting_loaders(loader.__init__))
        reach.first.append(self._first)

    def _noting_zeros(self, zero_grad: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(zero_grad)
        def noted(optimizer: Any, set_to_none: bool = True) -> None:
            self.seen.zeroed |= not set_to_none
            zero_grad(optimizer, set_to_none)

        return noted

    def _noting_loaders(self, init: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(init)
        def __init__(loader: Any, *args: Any, **named: Any) -> None:
            init(loader, *args, **named)
            numbers = {name: getattr(loader, name) for name in ("num_workers", "pin_memory", "prefetch_factor")}
            iterable = issubclass(type(loader.dataset), self._torch.utils.data.IterableDataset)
            _add(self.seen.loaders, **numbers, iterable=iterable)

        return __init__

    def _first(self, module: Any, args: Sequence[Any]) -> None:
        """Look at the first call of a module by the program."""
        torch, seen = self._torch, self.seen
        parameters = list(module.parameters())
        if not parameters:
            return
        seen.modules += 1
        seen.float32 |= any(one.dtype == torch.float32 for one in parameters)
        seen.gradients |= torch.is_grad_enabled()
        seen.inference |= torch.is_inference_mode_enabled()
        seen.autocast |= in_autocast(torch)
        seen.half |= seen.autocast or any(one.dtype in (torch.bfloat16, torch.float16) for one in parameters)
        convolutions = [one for one in module.modules() if isinstance(one, torch.nn.modules.conv._ConvNd)]
        seen.convolutions |= bool(convolutions)
        given = [one for one in args if isinstance(one, torch.Tensor) and one.dim() == 4 and one.is_floating_point()]
        flat = any(not one.is_contiguous(memory_format=torch.channels_last) for one in given)
        seen.images |= flat and any(isinstance(one, torch.nn.Conv2d) for one in convolutions)

    def finish(self, backward: bool) -> None:
        """Look at what there is at the end. backward: a backward pass ran."""
        torch, seen = self._torch, self.seen
        seen.torch, seen.trains, seen.hip = str(torch.__version__), backward, torch.version.hip is not None
        seen.cuda = torch.cuda.is_initialized()
        if seen.cuda:
            major, minor = torch.cuda.get_device_capability()
            seen.capability, seen.device = 10 * major + minor, torch.cuda.get_device_name()
            seen.tf32 = not seen.hip and seen.capability >= 80 and allows_tf32(torch, seen.convolutions)
        seen.threads = torch.get_num_threads()
        seen.deterministic = torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
        seen.tuned = torch.backends.cudnn.benchmark
        seen.fused_attention = all(read() for read in attention_flags(torch))
        seen.compiler = compiles(seen.cuda)
        seen.bf16_cpu = multiplies_bf16()
        seen.compiled = compiled_frames() > 0
        for one in gc.get_objects():
            kind = type(one)
            if issubclass(kind, torch.optim.Optimizer):
                _add(
                    seen.optimizers, name=kind.__name__, **{key: one.defaults.get(key) for key in ("fused", "foreach")}
                )
            elif issubclass(kind, torch.nn.parallel.DistributedDataParallel):
                seen.parallel = True


def compiled_frames() -> int:
    """Return how many functions torch.compile has looked at."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def attention_flags(torch: Any) -> list[Any]:
    """Return the functions that say whether a fused back end of scaled_dot_product_attention is allowed."""
    names = ("flash_sdp_enabled", "mem_efficient_sdp_enabled", "cudnn_sdp_enabled")
    return [getattr(torch.backends.cuda, name) for name in names if hasattr(torch.backends.cuda, name)]


def allows_tf32(torch: Any, convolutions: bool) -> bool:
    """Return whether products of float32, or convolutions if there are some, may use TF32, as those do by default."""
    return torch.get_float32_matmul_precision() != "highest" or (convolutions and torch.backends.cudnn.allow_tf32)


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
