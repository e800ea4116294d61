"""The changes that can be tried without editing a program: one row each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flopscope.measuring.trying import effects
from flopscope.measuring.trying.effects import (
    Around,
    Constructor,
    Means,
    Method,
    Need,
    Reach,
    Settings,
    Variables,
)
from flopscope.measuring.trying.look import Seen

EXACT, TF32, BF16 = 1e-4, 5e-3, 2e-2
"""Relative differences of the first losses that come with another order of float32 sums (some hundred of their units in
the last place, as steps amplify them), with products of inputs of 10 bits, and with 8 bits (ten units of each)."""


@dataclass(frozen=True)
class Switch:
    """A change that can be switched on from outside a program."""

    name: str
    what: str
    """What it changes, in a few words."""
    rules: tuple[str, ...]
    """Rules of the advice that propose it."""
    needs: tuple[Need, ...]
    """Its premises; those before hold if one is asked for."""
    means: tuple[Means, ...]
    effect: str
    """What else it may change: results, memory."""
    lines: str
    """What to write into the program. {cpus} and {workers} are numbers, {device} is "cpu" or "cuda"."""
    source: str
    tolerance: float = EXACT
    """Relative difference of losses up to which results count as kept."""
    reached: Callable[[Seen, float], float] = lambda seen, saving: saving
    """What it gains of the saving that its rules name, both in percent of a step; NaN without an estimate."""
    shown: Callable[[Seen], bool] = lambda seen: False
    """Whether what was seen proposes it, without advice."""
    group: str = ""
    """Of switches of a group, only one can be kept."""

    def why_not(self, seen: Seen) -> str:
        """Return why it does not apply to a program; "" if it does."""
        return next((need.why_not for need in self.needs if not need.holds(seen)), "")

    def environment(self, seen: Seen, before: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables to set for a process, given those that are set."""
        return {name: value for one in self.means for name, value in one.environment(seen, before).items()}

    def tolerance_in(self, seen: Seen) -> float:
        """Return the tolerance for the program that was seen, whose own products may round as much."""
        return max(self.tolerance, TF32 if seen.tf32 else 0.0, BF16 if seen.half else 0.0)

    def lines_for(self, seen: Seen) -> str:
        """Return the lines for the program that was seen."""
        return self.lines.format(cpus=seen.cpus, workers=effects.workers(seen), device="cuda" if seen.cuda else "cpu")


def apply(names: Iterable[str], reach: Reach) -> None:
    """Apply switches in a process that has just imported torch, what wraps calls from within first."""
    ways = [(name, way) for name in names for way in SWITCHES[name].means]
    for name, way in sorted(ways, key=lambda one: one[1].level):
        way.apply(name, reach)


DOCS = "https://docs.pytorch.org/docs/stable"
TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
XLA = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"


def _switch(name: str, what: str, *rules: str, **rest: Any) -> Switch:
    return Switch(name, what, rules, **rest)


_ROWS = (
    _switch(
        "tf32_products",
        "TF32 in matrix products",
        "tf32",
        needs=effects.TF32_CORES,
        means=(Settings(effects.tf32_products),),
        effect="products round their float32 inputs to 10 bits of mantissa",
        tolerance=TF32,
        lines='torch.set_float32_matmul_precision("high")',
        source=f"{DOCS}/generated/torch.set_float32_matmul_precision.html",
    ),
    _switch(
        "tf32_convolutions",
        "TF32 in convolutions",
        "tf32",
        needs=(*effects.TF32_CORES, effects.CONVOLUTIONS),
        means=(Settings(effects.cudnn("allow_tf32", True)),),
        effect="convolutions round their float32 inputs to 10 bits of mantissa",
        tolerance=TF32,
        lines="torch.backends.cudnn.allow_tf32 = True",
        source=f"{DOCS}/backends.html#torch.backends.cudnn.allow_tf32",
    ),
    _switch(
        "autocast",
        "bfloat16 by autocast",
        "low_precision",
        needs=(*effects.MODULES, effects.FLOAT32, effects.NO_AUTOCAST, effects.BF16_CPU, effects.BF16_GPU),
        shown=lambda seen: not seen.cuda,
        means=(Around(effects.autocast, level=2),),
        effect="products and convolutions in 8 bits of mantissa; less memory for activations",
        tolerance=BF16,
        lines='with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = ...  # the forward pass and the loss',
        source=f"{DOCS}/amp.html",
    ),
    _switch(
        "cudnn_benchmark",
        "cuDNN's search for the fastest kernels",
        needs=(*effects.CUDA, effects.CONVOLUTIONS),
        shown=lambda seen: not seen.tuned,
        means=(Settings(effects.cudnn("benchmark", True)),),
        effect="another order of sums; each new shape takes longer once",
        tolerance=TF32,
        lines="torch.backends.cudnn.benchmark = True",
        source=f"{TUNING}#enable-cudnn-auto-tuner",
    ),
    _switch(
        "channels_last",
        "channels_last for images and convolutions",
        "layout",
        needs=(*effects.MODULES, effects.FLAT_IMAGES),
        shown=lambda seen: True,
        means=(Around(effects.channels_last, level=1),),
        effect="another order of sums",
        tolerance=TF32,
        lines="model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    ),
    _switch(
        "fused_attention",
        "fused kernels for scaled_dot_product_attention",
        "attention",
        needs=(*effects.TORCH, effects.REFUSED_ATTENTION),
        shown=lambda seen: True,
        means=(Settings(effects.fused_attention),),
        effect="another order of sums; less memory, as the scores are not stored",
        tolerance=TF32,
        lines="torch.backends.cuda.enable_flash_sdp(True)\ntorch.backends.cuda.enable_mem_efficient_sdp(True)",
        source=f"{DOCS}/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
    _switch(
        "nondeterministic",
        "deterministic algorithms off",
        needs=(*effects.TORCH, effects.DETERMINISTIC),
        shown=lambda seen: True,
        means=(Settings(effects.nondeterministic),),
        effect="results may differ from run to run, by another order of sums",
        lines="torch.use_deterministic_algorithms(False)\ntorch.backends.cudnn.deterministic = False",
        source=f"{DOCS}/notes/randomness.html#avoiding-nondeterministic-algorithms",
    ),
    _switch(
        "compile",
        "torch.compile",
        "fuse",
        needs=(*effects.MODULES, effects.NOT_COMPILED, effects.COMPILER),
        means=(Around(effects.compiled("default"), level=0),),
        effect="another order of sums, other random numbers in dropout; the first steps compile",
        tolerance=TF32,
        lines="model.compile()",
        source=f"{DOCS}/generated/torch.compile.html",
        group="compile",
    ),
    _switch(
        "compile_graphs",
        "torch.compile with CUDA graphs",
        "launch",
        needs=(*effects.CUDA, *effects.MODULES, effects.NOT_COMPILED, effects.COMPILER),
        means=(Around(effects.compiled("reduce-overhead"), level=0),),
        effect="as torch.compile; more memory, and outputs are overwritten by the next call",
        tolerance=TF32,
        lines='model.compile(mode="reduce-overhead")',
        source=f"{DOCS}/generated/torch.compile.html",
        group="compile",
    ),
    _switch(
        "fused_optimizer",
        "the optimizer's step in one kernel (fused)",
        "optimizer",
        needs=(effects.UNFUSED,),
        means=(Constructor(effects.optimizers(*effects.FUSED), effects.fuse),),
        effect="another order of rounding",
        lines="torch.optim.AdamW(..., fused=True)  # of your optimizer: Adam, AdamW or SGD",
        source=f"{DOCS}/optim.html#algorithms",
        group="optimizer",
    ),
    _switch(
        "foreach_optimizer",
        "the optimizer's step over lists of parameters (foreach)",
        needs=(effects.SINGLE,),
        shown=lambda seen: seen.cuda,  # where it is torch's default
        means=(Constructor(effects.optimizers(*effects.FOREACH), effects.by_lists),),
        effect="another order of rounding; memory for a copy of the parameters during the step",
        lines="torch.optim.AdamW(..., foreach=True)  # of your optimizer",
        source=f"{DOCS}/optim.html#algorithms",
        group="optimizer",
    ),
    _switch(
        "zero_grad",
        "gradients dropped instead of filled with 0",
        needs=(effects.ZEROED,),
        shown=lambda seen: True,
        means=(Method(("optim.Optimizer.zero_grad", "nn.Module.zero_grad"), effects.dropping),),
        effect="gradients are None between steps, and parameters without one are left out of the optimizer's step",
        lines="optimizer.zero_grad(set_to_none=True)",
        source=f"{DOCS}/generated/torch.optim.Optimizer.zero_grad.html",
    ),
    _switch(
        "loader_workers",
        "worker processes for the DataLoader",
        "data",
        needs=(effects.LOADER, effects.LOADS_IN_MAIN),
        means=(Constructor(effects.LOADERS, effects.start_workers),),
        effect="a dataset that draws random numbers draws other ones in its workers; memory for each worker",
        lines="DataLoader(..., num_workers={workers}, persistent_workers=True)",
        source=f"{TUNING}#enable-asynchronous-data-loading-and-augmentation",
        reached=effects.reached_by_workers,
        group="workers",
    ),
    _switch(
        "loader_prefetch",
        "more batches loaded ahead",
        "data",
        needs=(effects.WORKERS,),
        means=(Constructor(effects.LOADERS, effects.prefetch),),
        # It evens out batches that take longer than others; the rule tells the wait for all.
        reached=lambda seen, saving: math.nan,
        effect="memory for the batches",
        lines="DataLoader(..., prefetch_factor=8, persistent_workers=True)",
        source=f"{DOCS}/data.html#torch.utils.data.DataLoader",
        group="workers",
    ),
    _switch(
        "loader_pinned",
        "batches in pinned memory",
        "copy",
        needs=(*effects.CUDA, effects.LOADER, effects.PAGEABLE),
        means=(Constructor(effects.LOADERS, effects.pin),),
        effect="memory that cannot be swapped out",
        lines="DataLoader(..., pin_memory=True)",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        group="copies",
    ),
    _switch(
        "non_blocking",
        "batches in pinned memory, copied in the background",
        "copy",
        needs=(*effects.CUDA, effects.LOADER),
        means=(Constructor(effects.LOADERS, effects.pin), Method(("Tensor.to", "Tensor.cuda"), effects.in_background)),
        effect="a batch must not be changed on the host while it is copied",
        lines="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
        group="copies",
    ),
    _switch(
        "expandable_segments",
        "segments of device memory that grow",
        "memory",
        needs=effects.CUDA,
        means=(Variables(effects.expandable_segments),),
        effect="less fragmentation of device memory",
        lines="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # in the environment",
        source=f"{DOCS}/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
    ),
    _switch(
        "ddp_buckets",
        "larger buckets of gradients in DistributedDataParallel",
        "communication",
        needs=(effects.PARALLEL,),
        means=(Constructor(("nn.parallel.DistributedDataParallel",), effects.larger_buckets),),
        effect="another order of sums; the last bucket overlaps with less of the backward pass",
        lines="DistributedDataParallel(..., bucket_cap_mb=100, gradient_as_bucket_view=True)",
        source=f"{DOCS}/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    _switch(
        "threads",
        "a thread for each CPU",
        needs=effects.IDLE_CPUS,
        shown=lambda seen: True,
        means=(Variables(effects.thread_variables), Settings(effects.all_threads)),
        effect="another order of sums",
        lines="torch.set_num_threads({cpus})",
        source=f"{DOCS}/generated/torch.set_num_threads.html",
    ),
    _switch(
        "affinity",
        "threads bound to cores",
        needs=effects.CPU,
        means=(Variables(effects.fixed(OMP_PROC_BIND="close", OMP_PLACES="cores")),),
        effect="other programs on the same cores slow it down more",
        lines="OMP_PROC_BIND=close OMP_PLACES=cores  # in the environment",
        source=f"{TUNING}#utilize-openmp",
    ),
    _switch(
        "inference_mode",
        "inference mode",
        needs=(*effects.MODULES, effects.NO_TRAINING, effects.NO_INFERENCE_MODE),
        shown=lambda seen: seen.gradients,
        means=(Around(effects.in_inference_mode, level=3),),
        effect="its results cannot be used in autograd; less memory, as nothing is kept for a backward pass",
        lines="with torch.inference_mode():\n    output = model(...)",
        source=f"{DOCS}/generated/torch.autograd.grad_mode.inference_mode.html",
    ),
    _switch(
        "jax_precision",
        "bfloat16 in JAX's products",
        "tf32",
        "low_precision",
        needs=effects.JAX,
        means=(Variables(effects.fixed(JAX_DEFAULT_MATMUL_PRECISION="bfloat16")),),
        effect="products round their float32 inputs to 8 bits of mantissa",
        tolerance=BF16,
        lines='jax.config.update("jax_default_matmul_precision", "bfloat16")',
        source="https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html",
    ),
    _switch(
        "jax_latency_hiding",
        "XLA's schedule that hides communication",
        "communication",
        needs=effects.JAX,
        means=(Variables(effects.xla_flag("--xla_gpu_enable_latency_hiding_scheduler=true")),),
        effect="more memory",
        lines="XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true  # in the environment",
        source=XLA,
    ),
    _switch(
        "jax_command_buffers",
        "CUDA graphs for all of XLA's kernels",
        "launch",
        needs=effects.JAX,
        means=(Variables(effects.xla_flag("--xla_gpu_graph_min_graph_size=1")),),
        effect="more memory",
        lines="XLA_FLAGS=--xla_gpu_graph_min_graph_size=1  # in the environment",
        source="https://docs.nvidia.com/jax-toolbox/performance-profiling/gpu-performance",
    ),
)
SWITCHES: Mapping[str, Switch] = {one.name: one for one in _ROWS}
