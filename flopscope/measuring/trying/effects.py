"""What switches do and need: the functions that the rows of flopscope.measuring.trying.switches name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flopscope.measuring.trying.means import within
from flopscope.measuring.trying.reach import Call, Reach, Setting
from flopscope.measuring.trying.seen import Seen

# Premises -------------------------------------------------------------------------------------------------------------


def unless(condition: bool, why_not: str) -> str:
    return "" if condition else why_not


def uses_torch(seen: Seen) -> str:
    return unless(bool(seen.torch), "the program does not use torch")


def uses_cuda(seen: Seen) -> str:
    return uses_torch(seen) or unless(seen.cuda, "the program uses no GPU by torch")


def has_modules(seen: Seen) -> str:
    return uses_torch(seen) or unless(seen.modules > 0, "the program calls no module with parameters")


def has_convolutions(seen: Seen) -> str:
    return unless(seen.convolutions, "its modules have no convolutions")


def has_flat_images(seen: Seen) -> str:
    return unless(seen.images, "its convolutions get no 4-d tensors, or such in channels_last already")


def has_refused_attention(seen: Seen) -> str:
    return uses_torch(seen) or unless(not seen.fused_attention, "every back end is allowed already")


def is_deterministic(seen: Seen) -> str:
    return uses_torch(seen) or unless(seen.deterministic, "deterministic algorithms are off")


def on_nvidia(seen: Seen, capability: int, what: str) -> str:
    return uses_cuda(seen) or unless(not seen.hip and seen.capability >= capability, f"the GPU has no {what}")


def uses_cpu(seen: Seen) -> str:
    return uses_torch(seen) or unless(not seen.cuda, "the program computes on a GPU")


def has_idle_cpus(seen: Seen) -> str:
    return uses_cpu(seen) or unless(seen.threads < seen.cpus, "torch uses every CPU already")


def infers(seen: Seen) -> str:
    why = has_modules(seen) or unless(not seen.trains, "the program trains")
    return why or unless(not seen.inference, "it uses inference mode already")


def uses_jax(seen: Seen) -> str:
    return unless(seen.jax, "the program does not use JAX") or unless(seen.jax_gpu, "JAX computes on no GPU here")


def has_unfused(seen: Seen) -> str:
    named = any(one["name"] in FUSED and not one["fused"] for one in seen.optimizers)
    return unless(named, "there is no unfused Adam, AdamW or SGD of torch.optim")


def has_single(seen: Seen) -> str:
    """Refuse programs whose optimizers do not loop over their parameters. That is torch's default on CPUs alone."""
    single = [
        not one["fused"] and (one["foreach"] is False if seen.cuda else not one["foreach"]) for one in seen.optimizers
    ]
    return unless(any(single), "there is no optimizer that loops over its parameters")


def fills_gradients(seen: Seen) -> str:
    return unless(seen.zeroed, "the program does not call zero_grad(set_to_none=False)")


def has_loader(seen: Seen) -> str:
    return unless(bool(seen.loaders), "the program has no DataLoader")


def loads_in_main(seen: Seen) -> str:
    named = any(not one["num_workers"] and not one["iterable"] for one in seen.loaders)
    return has_loader(seen) or unless(named, "no DataLoader of a dataset with indices loads in the program itself")


def has_workers(seen: Seen) -> str:
    return unless(any(one["num_workers"] for one in seen.loaders), "no DataLoader has worker processes")


def has_pageable(seen: Seen) -> str:
    pageable = any(not one["pin_memory"] for one in seen.loaders)
    return uses_cuda(seen) or has_loader(seen) or unless(pageable, "its batches are in pinned memory already")


def is_parallel(seen: Seen) -> str:
    return unless(seen.parallel, "the program does not use DistributedDataParallel")


# Precision ------------------------------------------------------------------------------------------------------------


def tf32_products(torch: Any, seen: Seen) -> Sequence[Setting]:
    return [
        Setting(lambda t: t.get_float32_matmul_precision(), lambda t, to: t.set_float32_matmul_precision(to), "high")
    ]


def attribute(owner: Callable[[Any], Any], name: str, value: Any) -> Setting:
    return Setting(lambda t: getattr(owner(t), name), lambda t, to: setattr(owner(t), name, to), value)


def autocast(reach: Reach, module: Any, call: Call) -> Call:
    torch, device = reach.torch, "cuda" if reach.seen.cuda else "cpu"
    return within(lambda: torch.autocast(device, dtype=torch.bfloat16), call, lambda found: widened(torch, found))


def widened(torch: Any, result: Any) -> Any:
    """Return a result in float32, as the loss outside of autocast needs it."""
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype == torch.bfloat16 else result
    if type(result) in (list, tuple):
        return type(result)(widened(torch, one) for one in result)
    if type(result) is dict:
        return {name: widened(torch, one) for name, one in result.items()}
    return result


def can_autocast(seen: Seen) -> str:
    why = has_modules(seen) or unless(seen.float32, "its modules have no float32 parameters")
    why = why or unless(not seen.autocast, "it uses autocast already")
    if not why and not seen.cuda:
        return unless(seen.bf16_cpu, "this CPU has no instructions for bfloat16")
    return why or unless(seen.hip or seen.capability >= 80, "the GPU has no tensor cores for bfloat16")


# Kernels --------------------------------------------------------------------------------------------------------------


def channels_last(reach: Reach, module: Any, call: Call) -> Call | None:
    torch = reach.torch
    if module is None or not any(isinstance(one, torch.nn.Conv2d) for one in module.modules()):
        return None
    module.to(memory_format=torch.channels_last)
    reach.later(lambda: module.to(memory_format=torch.contiguous_format))

    def laid_out(*args: Any, **named: Any) -> Any:
        images = [image(torch, one) for one in args]
        return call(*images, **{name: image(torch, one) for name, one in named.items()})

    return laid_out


def image(torch: Any, one: Any) -> Any:
    is_image = isinstance(one, torch.Tensor) and one.dim() == 4 and one.is_floating_point()
    return one.contiguous(memory_format=torch.channels_last) if is_image else one


def compiled(mode: str) -> Callable[[Reach, Any, Call], Call]:
    def wrap(reach: Reach, module: Any, call: Call) -> Call:
        if not reach.comparing:
            done: Call = reach.torch.compile(call, mode=mode)
            return done
        from torch import _inductor  # the same random numbers as without it

        done = reach.torch.compile(call, options={**_inductor.list_mode_options(mode), "fallback_random": True})
        return done

    return wrap


def can_compile(seen: Seen) -> str:
    why = has_modules(seen) or unless(not seen.compiled, "it uses torch.compile already")
    return why or unless(seen.compiler, "torch.compile needs Triton on a GPU, and a C++ compiler (g++) on a CPU")


def attention_flags(torch: Any) -> list[Any]:
    """Return the functions that say whether a fused back end of scaled_dot_product_attention is allowed."""
    cuda = torch.backends.cuda
    names = ("flash_sdp_enabled", "mem_efficient_sdp_enabled", "cudnn_sdp_enabled")
    return [getattr(cuda, name) for name in names if hasattr(cuda, name)]


def _without_torch(function: Call, torch: Any, *args: Any) -> Any:
    return function(*args)


def fused_attention(torch: Any, seen: Seen) -> Sequence[Setting]:
    cuda = torch.backends.cuda
    settings: list[Setting] = []
    for read in attention_flags(torch):
        write = getattr(cuda, f"enable_{read.__name__.removesuffix('_enabled')}")
        settings.append(
            Setting(functools.partial(_without_torch, read), functools.partial(_without_torch, write), True)
        )
    return settings


def nondeterministic(torch: Any, seen: Seen) -> Sequence[Setting]:
    def write(t: Any, value: bool) -> None:
        t.use_deterministic_algorithms(value, warn_only=t.is_deterministic_algorithms_warn_only_enabled())

    everywhere = Setting(lambda t: t.are_deterministic_algorithms_enabled(), write, False)
    return [everywhere, attribute(lambda t: t.backends.cudnn, "deterministic", False)]


# Optimizers -----------------------------------------------------------------------------------------------------------

FUSED = ("Adam", "AdamW", "SGD")
"""Optimizers with a fused step on GPUs and on CPUs."""


def fuse(seen: Seen, given: dict[str, Any]) -> bool:
    if given.get("fused") or given.get("differentiable"):
        return False
    given.update(fused=True, foreach=None)
    return True


def by_lists(seen: Seen, given: dict[str, Any]) -> bool:
    if given.get("foreach") or given.get("fused") or given.get("differentiable"):
        return False
    given["foreach"] = True
    return True


def foreach_optimizers(torch: Any) -> list[Any]:
    kinds = [one for one in vars(torch.optim).values() if isinstance(one, type)]
    return [
        one
        for one in kinds
        if issubclass(one, torch.optim.Optimizer) and "foreach" in inspect.signature(one).parameters
    ]


def fused_optimizers(torch: Any) -> list[Any]:
    return [getattr(torch.optim, name) for name in FUSED]


def zero_grads(torch: Any) -> list[tuple[Any, str]]:
    return [(torch.optim.Optimizer, "zero_grad"), (torch.nn.Module, "zero_grad")]


def dropping(torch: Any, original: Call, hit: Callable[[], object]) -> Call:
    def zero_grad(owner: Any, set_to_none: bool = True) -> None:
        if not set_to_none:
            hit()
        original(owner, True)

    return zero_grad


# Data -----------------------------------------------------------------------------------------------------------------

MOST_WORKERS = 8


def workers(seen: Seen) -> int:
    """Return the worker processes to give a DataLoader: one per CPU but the program's own, at least one."""
    return max(1, min(MOST_WORKERS, seen.cpus - 1))


def loaders(torch: Any) -> list[Any]:
    return [torch.utils.data.DataLoader]


def reached_by_workers(seen: Seen, saving: float) -> float:
    """Return what workers gain of the wait for data, in percent of a step: they take their part of the time for each
    batch, and the step waits for that if it is longer than the rest."""
    wait = saving / 100
    return 100 * (1 - max(1 - wait, wait / workers(seen)))


def start_workers(seen: Seen, given: dict[str, Any]) -> bool:
    from torch.utils.data import IterableDataset

    if given["num_workers"] or issubclass(type(given["dataset"]), IterableDataset):
        return False
    given.update(num_workers=workers(seen), persistent_workers=True)
    return True


def pin(seen: Seen, given: dict[str, Any]) -> bool:
    changes = not given["pin_memory"]
    given["pin_memory"] = True
    return changes


def prefetch(seen: Seen, given: dict[str, Any]) -> bool:
    if not given["num_workers"]:
        return False
    given.update(prefetch_factor=max(8, 2 * (given["prefetch_factor"] or 2)), persistent_workers=True)
    return True


def copies(torch: Any) -> list[tuple[Any, str]]:
    return [(torch.Tensor, "to"), (torch.Tensor, "cuda")]


def in_background(torch: Any, original: Call, hit: Callable[[], object]) -> Call:
    def copy(tensor: Any, *args: Any, **named: Any) -> Any:
        stated = "non_blocking" in named or any(isinstance(one, bool) for one in args)
        if not stated and tensor.device.type == "cpu" and tensor.is_pinned():
            hit()
            named = {**named, "non_blocking": True}
        return original(tensor, *args, **named)

    return copy


# Memory, processes, CPUs ----------------------------------------------------------------------------------------------


def expandable_segments(seen: Seen, before: Mapping[str, str]) -> Mapping[str, str]:
    name = "PYTORCH_CUDA_ALLOC_CONF"
    known = [part for part in before.get(name, "").split(",") if part and not part.startswith("expandable_segments")]
    return {name: ",".join([*known, "expandable_segments:True"])}


def larger_buckets(seen: Seen, given: dict[str, Any]) -> bool:
    given.update(bucket_cap_mb=100, gradient_as_bucket_view=True)
    return True


def all_threads(torch: Any, seen: Seen) -> Sequence[Setting]:
    return [Setting(lambda t: t.get_num_threads(), lambda t, to: t.set_num_threads(to), seen.cpus)]


def thread_variables(seen: Seen, before: Mapping[str, str]) -> Mapping[str, str]:
    return {"OMP_NUM_THREADS": str(seen.cpus)}


def in_inference_mode(reach: Reach, module: Any, call: Call) -> Call:
    return within(reach.torch.inference_mode, call)


def xla_flags(*flags: str) -> Callable[[Seen, Mapping[str, str]], Mapping[str, str]]:
    def variables(seen: Seen, before: Mapping[str, str]) -> Mapping[str, str]:
        return {"XLA_FLAGS": " ".join([*before.get("XLA_FLAGS", "").split(), *flags])}

    return variables
