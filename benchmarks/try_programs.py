"""Programs whose cure is a switch of `flopscope try`, and the same mended by hand; benchmarks/try.py runs them.

python benchmarks/try_programs.py NAME [--mended]     runs steps of one without end

A row of CURED has the switch that should cure the program, the device that it needs, and a function that builds it:
from `mended` to a function that runs one step. A program is mended by the lines that the switch would have a person
write. ALIKE has programs whose mended form is tried against itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import fault_programs
import torch
import torch.nn.functional as F
from fault_programs import FAULTS, Step, inference, language_model, perceptron, training
from held_out_programs import FAULTS as HELD_OUT
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import flopscope as fs

DEVICE = fault_programs.DEVICE


@dataclass(frozen=True)
class Cured:
    switch: str
    device: str  # "cuda", "cpu", or "any"
    build: Callable[[bool], Step]


CURED: dict[str, Cured] = {}
ALIKE: dict[str, Cured] = {}


def program(switch: str, device: str = "any") -> Callable[[Callable[[bool], Step]], Callable[[bool], Step]]:
    """Add the decorated function to CURED under its name."""

    def add(build: Callable[[bool], Step]) -> Callable[[bool], Step]:
        CURED[build.__name__] = Cured(switch, device, build)
        return build

    return add


@program("threads", "cpu")
def threads(mended: bool) -> Step:
    if not mended:
        torch.set_num_threads(1)
    model, x = perceptron(4, 1024), torch.randn(512, 1024)
    return training(torch.optim.SGD(model.parameters(), lr=1e-3), lambda: F.mse_loss(model(x), x))


@program("nondeterministic", "cpu")
def deterministic(mended: bool) -> Step:
    torch.use_deterministic_algorithms(not mended)
    model, x = perceptron(2, 256), torch.randn(64, 256, device=DEVICE)
    train = training(torch.optim.SGD(model.parameters(), lr=1e-3), lambda: F.mse_loss(model(x), x))

    def step() -> None:
        torch.empty(16 << 20, device=DEVICE)
        train()

    return step


class Slow(Dataset[Tensor]):
    """Samples that take 2 ms to wait for, as those of a disk or a network."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.002)
        return torch.full((256,), float(index % 7))


@program("loader_workers")
def loader(mended: bool) -> Step:
    workers = max(1, min(8, len(os.sched_getaffinity(0)) - 1)) if mended else 0
    batches = iter(DataLoader(Slow(), batch_size=16, num_workers=workers, persistent_workers=mended))
    model = perceptron(6, 256)

    def loss() -> Tensor:
        x = next(batches).to(DEVICE).repeat(8, 1)
        return F.mse_loss(model(x), x)

    return training(torch.optim.SGD(model.parameters(), lr=1e-3), loss)


@program("fused_optimizer", "cpu")
def optimizer_cpu(mended: bool) -> Step:
    model, x = perceptron(24, 256), torch.randn(4, 256)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=mended)
    return training(adamw, lambda: F.mse_loss(model(x), x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(256, 768)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 64).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v)


@program("fused_attention")
def math_attention(mended: bool) -> Step:
    for allow in (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_mem_efficient_sdp):
        allow(mended)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(mended)
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    model = Attention().to(DEVICE, dtype)
    x = torch.randn(8 if DEVICE == "cuda" else 1, 2048, 256, device=DEVICE, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        return model(x)

    return step


@program("inference_mode")
def gradients(mended: bool) -> Step:
    model = nn.Sequential(*(layer for _ in range(60) for layer in (nn.Linear(16, 16), nn.Tanh()))).to(DEVICE).eval()
    x = torch.randn(4, 16, device=DEVICE)

    def step() -> Tensor:
        with torch.inference_mode(mended):
            return model(x)

    return step


@program("zero_grad")
def filled_gradients(mended: bool) -> Step:
    """Large layers and few rows: the gradients are most of what moves."""
    model = perceptron(4, 8192) if DEVICE == "cuda" else perceptron(48, 256)
    x = torch.randn(8, model[0].in_features, device=DEVICE)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        sgd.zero_grad(set_to_none=mended)
        F.mse_loss(model(x), x).backward()
        sgd.step()

    return step


@program("nondeterministic", "cuda")
def deterministic_sums(mended: bool) -> Step:
    """Sums over the neighbours in a graph: deterministic ones sort their indices."""
    torch.use_deterministic_algorithms(not mended)
    nodes, edges = 1 << 20, 1 << 23
    x, weights = torch.randn(nodes, device=DEVICE), nn.Parameter(torch.ones(nodes, device=DEVICE))
    source, target = torch.randint(0, nodes, (2, edges), device=DEVICE)

    def loss() -> Tensor:
        messages = (weights * x).index_select(0, source)
        return torch.zeros_like(x).index_add(0, target, messages).square().mean()

    return training(torch.optim.SGD([weights], lr=1e-3, fused=True), loss)


@program("foreach_optimizer", "cuda")
def optimizer_loop(mended: bool) -> Step:
    """Many small parameters, and an optimizer without fused kernels that loops over them."""
    model = nn.ModuleList(nn.Embedding(64, 32) for _ in range(300)).to(DEVICE)
    tables = [table.weight for table in model]
    rmsprop = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, foreach=mended)
    return training(rmsprop, lambda: torch.cat(tables).square().mean())


@program("compile_graphs", "cuda")
def graph_infer(mended: bool) -> Step:
    model = language_model(layers=8, width=512, heads=8)
    if mended:
        model.compile(mode="reduce-overhead")
    return inference(model, torch.randint(0, 8192, (1, 16), device=DEVICE))


def well_made(mended: bool) -> Step:
    model, x = perceptron(6, 512), torch.randn(256, 512, device=DEVICE)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return training(adamw, lambda: F.mse_loss(model(x), x))


def in_place(build: Callable[[bool], Step]) -> Callable[[bool], Step]:
    """Return a program that is mended by the line that the switch names, model.compile(), which does what is done here.

    torch.compile(model) compiles an nn.Sequential as one function, model.compile() each of its layers.
    """
    compiled = torch.compile

    def compile_calls(model: nn.Module) -> nn.Module:
        model._compiled_call_impl = compiled(model._call_impl)
        return model

    def built(mended: bool) -> Step:
        with patch.object(torch, "compile", compile_calls):
            return build(mended)

    return built


EVERY = {**FAULTS, **HELD_OUT}
for name, switch in {
    "tf32": "tf32_products",
    "low_precision": "autocast",
    "optimizer": "fused_optimizer",
    "optimizer_foreach": "fused_optimizer",
    "vgg": "tf32_convolutions",
    "vit": "autocast",
    "sgd_nesterov": "fused_optimizer",
    "data": "loader_workers",
    "compile_fuse": "compile",
    "norm_gelu": "compile",
    "rms_swiglu": "compile",
}.items():
    build = EVERY[name].build
    CURED[name] = Cured(switch, "cuda", in_place(build) if switch == "compile" else build)

FIRST = ("rms_swiglu", "norm_gelu", "compile_fuse", "graph_infer")  # which take longest
LAST = ("gradients", "sgd_nesterov")  # small gains of steps that the host limits
CURED = {name: CURED[name] for name in [*FIRST, *(name for name in CURED if name not in FIRST + LAST), *LAST]}
ALIKE["well_made"] = Cured("", "cpu", well_made)
for name in (  # what limits them is the GPU, but for vit where the host is slow
    *("vocab", "tf32", "low_precision", "copy_pageable", "memory", "attention", "attention_infer", "optimizer_foreach"),
    *("layout", "small", "graph", "launch_train", "compile_fuse", "swiglu_width", "vgg", "vit", "alibi"),
    *("window_heads", "master_weights", "soft_argmax"),
):
    ALIKE[name] = Cured("", "cuda", EVERY[name].build)


def main() -> None:
    torch.manual_seed(0)
    name, mended = sys.argv[1], "--mended" in sys.argv
    step = {**EVERY, **ALIKE, **CURED}[name].build(mended)
    while True:
        step()
        fs.step()


if __name__ == "__main__":
    main()
