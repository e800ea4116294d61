"""The changes that can be tried without editing a program: one row each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from flopscope.measuring.trying import effects
from flopscope.measuring.trying.effects import Call, Need, Reach, Setting
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
    needs: tuple[Need, ...]
    """Its premises; those before hold if one is asked for."""
    effect: str
    """What else it may change: results, memory."""
    lines: str
    """What to write into the program. {cpus} and {workers} are numbers, {device} is "cpu" or "cuda"."""
    source: str
    rules: tuple[str, ...] = ()
    """Rules of the advice that propose it."""
    tolerance: float = EXACT
    """Relative difference of losses up to which results count as kept."""
    reached: Callable[[Seen, float], float] = lambda seen, saving: saving
    """What it gains of the saving that its rules name, both in percent of a step; NaN without an estimate."""
    shown: Callable[[Seen], bool] = lambda seen: False
    """Whether what was seen proposes it, without advice."""
    group: str = ""
    """Of switches of a group, only one can be kept."""
    draws: bool = False
    """Random numbers of the program differ with it."""
    settings: Callable[[Any, Seen], Sequence[Setting]] | None = None
    """Values of torch. They are set again if the program changes them during the first steps."""
    calls: Callable[[Reach, Any, Call], Call | None] | None = None
    """What wraps the calls of modules that the program calls itself, or that of a callable, with None as its module."""
    functions: Mapping[str, Callable[[Reach], Call]] = field(default_factory=dict)
    """Functions of torch, and what makes a wrapper of each, which gets the function and its arguments."""

    def apply(self, reach: Reach) -> None:
        """Apply it in a process that has just imported torch."""
        if self.settings is not None:
            reach.set(self.settings(reach.torch, reach.seen))
        if self.calls is not None:
            effects.around_modules(reach, self.calls)
        for path, wrapper in self.functions.items():
            owner, _, name = path.rpartition(".")
            reach.wrap(attrgetter(owner)(reach.torch), name, wrapper(reach))

    def why_not(self, seen: Seen) -> str:
        """Return why it does not apply to a program; "" if it does."""
        return next((need.why_not for need in self.needs if not need.holds(seen)), "")

    def tolerance_in(self, seen: Seen) -> float:
        """Return the tolerance for the program that was seen, whose own products may round as much; NaN if its results
        differ by random numbers."""
        if self.draws and seen.draws:
            return math.nan
        return max(self.tolerance, TF32 if seen.tf32 else 0.0, BF16 if seen.half else 0.0)

    def lines_for(self, seen: Seen) -> str:
        """Return the lines for the program that was seen."""
        return self.lines.format(cpus=seen.cpus, workers=effects.workers(seen), device="cuda" if seen.cuda else "cpu")


DOCS = "https://docs.pytorch.org/docs/stable"
TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
LOADER = "utils.data.DataLoader.__init__"

_ROWS = (
    Switch(
        "tf32_products",
        "TF32 in matrix products",
        rules=("tf32",),
        needs=effects.TF32_CORES,
        settings=lambda torch, seen: [
            Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")
        ],
        effect="products round their float32 inputs to 10 bits of mantissa",
        tolerance=TF32,
        lines='torch.set_float32_matmul_precision("high")',
        source=f"{DOCS}/generated/torch.set_float32_matmul_precision.html",
    ),
    Switch(
        "tf32_convolutions",
        "TF32 in convolutions",
        rules=("tf32",),
        needs=(*effects.TF32_CORES, effects.CONVOLUTIONS),
        settings=effects.cudnn("allow_tf32", True),
        effect="convolutions round their float32 inputs to 10 bits of mantissa",
        tolerance=TF32,
        lines="torch.backends.cudnn.allow_tf32 = True",
        source=f"{DOCS}/backends.html#torch.backends.cudnn.allow_tf32",
    ),
    Switch(
        "autocast",
        "bfloat16 by autocast",
        rules=("low_precision",),
        needs=(*effects.MODULES, effects.FLOAT32, effects.NO_AUTOCAST, effects.HAS_BF16),
        shown=lambda seen: not seen.cuda,
        calls=effects.autocast,
        effect="products and convolutions in 8 bits of mantissa; less memory for activations",
        tolerance=BF16,
        lines='with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = ...  # the forward pass and the loss',
        source=f"{DOCS}/amp.html",
    ),
    Switch(
        "cudnn_benchmark",
        "cuDNN's search for the fastest kernels",
        needs=(*effects.CUDA, effects.CONVOLUTIONS, effects.NOT_TUNED),
        shown=lambda seen: True,
        settings=effects.cudnn("benchmark", True),
        effect="another order of sums; each new shape takes longer once",
        tolerance=TF32,
        lines="torch.backends.cudnn.benchmark = True",
        source=f"{TUNING}#enable-cudnn-auto-tuner",
    ),
    Switch(
        "channels_last",
        "channels_last for images and convolutions",
        rules=("layout",),
        needs=(*effects.MODULES, effects.FLAT_IMAGES),
        shown=lambda seen: True,
        calls=effects.channels_last,
        effect="another order of sums",
        tolerance=TF32,
        lines="model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    ),
    Switch(
        "nondeterministic",
        "deterministic algorithms off",
        needs=(*effects.TORCH, effects.DETERMINISTIC),
        shown=lambda seen: True,
        settings=effects.nondeterministic,
        effect="results may differ from run to run, by another order of sums",
        lines="torch.use_deterministic_algorithms(False)\ntorch.backends.cudnn.deterministic = False",
        source=f"{DOCS}/notes/randomness.html#avoiding-nondeterministic-algorithms",
    ),
    Switch(
        "compile",
        "torch.compile",
        rules=("fuse",),
        needs=effects.COMPILES,
        calls=effects.compiled("default"),
        effect="another order of sums, other random numbers in dropout; the first steps compile",
        tolerance=TF32,
        lines="model.compile()",
        source=f"{DOCS}/generated/torch.compile.html",
        group="compile",
        draws=True,
    ),
    Switch(
        "compile_graphs",
        "torch.compile with CUDA graphs",
        rules=("launch",),
        needs=(*effects.CUDA, *effects.COMPILES),
        calls=effects.compiled("reduce-overhead"),
        effect="as torch.compile; more memory, and outputs are overwritten by the next call",
        tolerance=TF32,
        lines='model.compile(mode="reduce-overhead")',
        source=f"{DOCS}/generated/torch.compile.html",
        group="compile",
        draws=True,
    ),
    Switch(
        "fused_optimizer",
        "the optimizer's step in one kernel (fused)",
        rules=("optimizer",),
        needs=(effects.UNFUSED,),
        functions={f"optim.{name}.__init__": effects.with_arguments(effects.fuse) for name in effects.FUSED},
        effect="another order of rounding",
        lines="torch.optim.AdamW(..., fused=True)  # of your optimizer: Adam, AdamW or SGD",
        source=f"{DOCS}/optim.html#algorithms",
    ),
    Switch(
        "zero_grad",
        "gradients dropped instead of filled with 0",
        needs=(effects.ZEROED,),
        shown=lambda seen: True,
        functions=dict.fromkeys(("optim.Optimizer.zero_grad", "nn.Module.zero_grad"), effects.dropping),
        effect="gradients are None between steps, and parameters without one are left out of the optimizer's step",
        lines="optimizer.zero_grad(set_to_none=True)",
        source=f"{DOCS}/generated/torch.optim.Optimizer.zero_grad.html",
    ),
    Switch(
        "loader_workers",
        "worker processes for the DataLoader",
        rules=("data",),
        needs=(effects.LOADER, effects.LOADS_IN_MAIN),
        functions={LOADER: effects.with_arguments(effects.start_workers)},
        draws=True,
        effect="a dataset that draws random numbers draws other ones in its workers; memory for each worker",
        lines="DataLoader(..., num_workers={workers}, persistent_workers=True)",
        source=f"{TUNING}#enable-asynchronous-data-loading-and-augmentation",
        reached=effects.reached_by_workers,
    ),
    Switch(
        "non_blocking",
        "batches in pinned memory, copied in the background",
        rules=("copy",),
        needs=(*effects.CUDA, effects.LOADER),
        functions={
            LOADER: effects.with_arguments(effects.pin),
            **dict.fromkeys(("Tensor.to", "Tensor.cuda"), effects.in_background),
        },
        effect="a batch must not be changed on the host while it is copied",
        lines="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
        source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
    Switch(
        "ddp_buckets",
        "larger buckets of gradients in DistributedDataParallel",
        rules=("communication",),
        needs=(effects.PARALLEL,),
        functions={
            "nn.parallel.DistributedDataParallel.__init__": effects.with_arguments(
                lambda seen, given: given.update(bucket_cap_mb=100, gradient_as_bucket_view=True) is None
            )
        },
        effect="another order of sums; the last bucket overlaps with less of the backward pass",
        lines="DistributedDataParallel(..., bucket_cap_mb=100, gradient_as_bucket_view=True)",
        source=f"{DOCS}/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    Switch(
        "threads",
        "a thread for each CPU",
        needs=effects.IDLE_CPUS,
        shown=lambda seen: True,
        settings=lambda torch, seen: [Setting(torch.get_num_threads, torch.set_num_threads, seen.cpus)],
        effect="another order of sums",
        lines="torch.set_num_threads({cpus})",
        source=f"{DOCS}/generated/torch.set_num_threads.html",
    ),
    Switch(
        "inference_mode",
        "inference mode",
        needs=(*effects.MODULES, effects.NO_TRAINING, effects.GRADIENTS),
        shown=lambda seen: True,
        calls=lambda reach, module, call: effects.within(reach.torch.inference_mode, call),
        effect="its results cannot be used in autograd; less memory, as nothing is kept for a backward pass",
        lines="with torch.inference_mode():\n    output = model(...)",
        source=f"{DOCS}/generated/torch.autograd.grad_mode.inference_mode.html",
    ),
)
SWITCHES: Mapping[str, Switch] = {one.name: one for one in _ROWS}
