"""What a program was seen to use, which tells the changes that can apply to it."""

from __future__ import annotations

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
