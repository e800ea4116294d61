"""Programs with one known fault each, and the same programs with the fault mended; benchmarks/faults.py measures them.

A row of FAULTS describes the change, names the advice rules that may find the fault, and holds a function that builds
the program: from `mended` to a function that runs one step. Programs that torch.compile mends come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16 = torch.bfloat16

Step = Callable[[], object]
Optimizer = torch.optim.Optimizer


@dataclass(frozen=True)
class Fault:
    what: str  # the fault, and what mends it
    rules: tuple[str, ...]  # advice that may name it; empty: none is expected
    build: Callable[[bool], Step]  # from `mended` to a function that runs one step


FAULTS: dict[str, Fault] = {}


def fault(what: str, *rules: str) -> Callable[[Callable[[bool], Step]], Callable[[bool], Step]]:
    """Add the decorated function to FAULTS under its name."""

    def add(build: Callable[[bool], Step]) -> Callable[[bool], Step]:
        FAULTS[build.__name__] = Fault(what, rules, build)
        return build

    return add


# Models and steps -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A transformer block, causal or not. With ``written_out``, causal attention materializes the matrix of scores."""

    def __init__(self, width: int, heads: int, written_out: bool = False, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.written_out, self.causal = heads, written_out, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if self.written_out:
            scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
            future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    def __init__(
        self, layers: int, width: int = 1024, heads: int = 16, vocabulary: int = 8192, written_out: bool = False
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, written_out) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def language_model(layers: int, dtype: torch.dtype = BF16, **options: Any) -> LanguageModel:
    """Return a LanguageModel on the device."""
    with torch.device(DEVICE):
        return LanguageModel(layers, **options).to(dtype)


def perceptron(depth: int, width: int) -> nn.Sequential:
    """Return ``depth`` square layers on the device, each followed by a ReLU."""
    with torch.device(DEVICE):
        return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())))


def fused_adamw(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def training(optimizer: Optimizer, loss: Callable[[], Tensor]) -> Step:
    """Return a step that computes the loss and its gradients and updates the parameters."""

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def language_training(
    model: LanguageModel, batch: int, tokens: int, vocabulary: int = 8192, optimizer: Optimizer | None = None
) -> Step:
    """Return a training step on random tokens."""
    ids = torch.randint(0, vocabulary, (batch, tokens), device=DEVICE)

    def loss() -> Tensor:
        logits = model(ids)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids.view(-1))

    return training(optimizer or fused_adamw(model), loss)


def inference(model: nn.Module, x: Tensor) -> Step:
    """Return a step that applies the model without gradients."""
    model.eval()

    @torch.no_grad()
    def step() -> Tensor:
        return model(x)

    return step


class Captured:
    """A step captured in a CUDA graph. It keeps the step, whose tensors the graph uses."""

    def __init__(self, step: Step) -> None:
        self.step = step
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step()

    def __call__(self) -> None:
        self.graph.replay()


# Matrix products ------------------------------------------------------------------------------------------------------


@fault("vocabulary of 50257, which does not fit the tensor cores: padded to 50304", "align")
def vocab(mended: bool) -> Step:
    model = language_model(layers=2, vocabulary=50304 if mended else 50257)
    return language_training(model, batch=8, tokens=1024, vocabulary=50257)


@fault("float32 products on the CUDA cores: TF32 allowed", "tf32", "low_precision")
def tf32(mended: bool) -> Step:
    torch.set_float32_matmul_precision("high" if mended else "highest")
    model = language_model(layers=2, vocabulary=32768, dtype=torch.float32)
    return language_training(model, batch=4, tokens=1024, vocabulary=32768)


@fault("large products in TF32: bfloat16 by autocast", "low_precision")
def low_precision(mended: bool) -> Step:
    torch.set_float32_matmul_precision("high")
    model = perceptron(depth=6, width=4096)
    x = torch.randn(8192, 4096, device=DEVICE)

    def loss() -> Tensor:
        with torch.autocast(DEVICE, dtype=BF16, enabled=mended):
            y = model(x)
        return F.mse_loss(y.float(), x)

    return training(fused_adamw(model), loss)


@fault("float32 weights cast by autocast in each call of a frozen model: cast once", "cast")
def cast(mended: bool) -> Step:
    model = perceptron(depth=6, width=8192)
    if mended:
        model = model.to(BF16)
    step = inference(model, torch.randn(128, 8192, device=DEVICE))
    return torch.autocast(DEVICE, dtype=BF16)(step)


# Host and device ------------------------------------------------------------------------------------------------------


@fault("item() of the norm of each parameter: not read in each step", "sync")
def sync(mended: bool) -> Step:
    model = language_model(layers=8, width=512, heads=8, vocabulary=32768)
    train = language_training(model, batch=2, tokens=256, vocabulary=32768)
    if mended:
        return train

    def step() -> float:
        train()
        return sum(parameter.norm().item() for parameter in model.parameters())

    return step


@fault("inference of many small kernels, launched one by one: a CUDA graph", "launch")
def graph(mended: bool) -> Step:
    model = language_model(layers=8, width=512, heads=8)
    step = inference(model, torch.randint(0, 8192, (1, 16), device=DEVICE))
    return Captured(step) if mended else step


@fault("training of a tiny network, launched kernel by kernel: a CUDA graph of the step", "launch")
def launch_train(mended: bool) -> Step:
    model = perceptron(depth=10, width=256)
    x = torch.randn(128, 256, device=DEVICE)
    classes = torch.randint(0, 256, (128,), device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
    step = training(optimizer, lambda: F.cross_entropy(model(x), classes))
    return Captured(step) if mended else step


@fault("requests processed one by one: in one batch", "batch", "launch")
def batch(mended: bool) -> Step:
    model = perceptron(depth=6, width=1024).to(BF16).eval()
    requests = torch.randn(48, 1, 1024, device=DEVICE, dtype=BF16)

    @torch.no_grad()
    def step() -> Tensor:
        if mended:
            return model(requests.squeeze(1))
        return torch.cat([model(request) for request in requests])

    return step


def prefetched(batches: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield the batches. The next one is copied on another stream while the caller uses the current one."""
    stream = torch.cuda.Stream()

    def fetch() -> Tensor:
        batch = next(batches)
        stream.wait_stream(torch.cuda.current_stream())  # at most one batch ahead
        with torch.cuda.stream(stream):
            return batch.to(DEVICE, non_blocking=True)

    following = fetch()
    while True:
        torch.cuda.current_stream().wait_stream(stream)
        current, following = following, fetch()
        current.record_stream(torch.cuda.current_stream())
        yield current


@fault("blocking copies of batches from pageable memory: from pinned memory, beside the previous step", "copy")
def copy_pageable(mended: bool) -> Step:
    model = perceptron(depth=4, width=4096).to(BF16)
    hosts = [torch.randn(8192, 4096, pin_memory=mended) for _ in range(3)]
    batches = prefetched(cycle(hosts)) if mended else (host.to(DEVICE) for host in cycle(hosts))

    def loss() -> Tensor:
        x = next(batches).to(BF16)
        return F.mse_loss(model(x), x)

    return training(fused_adamw(model), loss)


class Photos(Dataset[Tensor]):
    """Random images with the augmentation that a user would write in NumPy, about 1 ms for each image."""

    def __init__(self, size: int = 160, crop: int = 128) -> None:
        self.crop = crop
        self.images = np.random.default_rng(0).integers(0, 256, (64, size, size, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> Tensor:
        random = np.random.default_rng(index)
        top, left = random.integers(0, self.images.shape[1] - self.crop, 2)
        image = self.images[index % len(self.images), top : top + self.crop, left : left + self.crop]
        if random.random() < 0.5:
            image = image[:, ::-1]
        x = image.astype(np.float32) / 255
        x = (x - x.mean()) * random.uniform(0.8, 1.2) + x.mean()  # contrast
        x = x + random.uniform(-0.1, 0.1)  # brightness
        x = x + 0.02 * random.standard_normal(x.shape, dtype=np.float32)
        return torch.from_numpy((255 * x.clip(0, 1)).astype(np.uint8))


@fault("images loaded and augmented by the process that trains: by eight workers", "data")
def data(mended: bool) -> Step:
    workers = {"num_workers": 8, "prefetch_factor": 2, "timeout": 60} if mended else {}
    batches = iter(DataLoader(Photos(), batch_size=32, drop_last=True, **workers))
    channels = 256
    with torch.device(DEVICE):
        convolutions = [nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.ReLU()]
        for _ in range(4):
            convolutions += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
        model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
        classes = torch.randint(0, 1000, (32,))
    model = model.to(dtype=BF16, memory_format=torch.channels_last)

    def loss() -> Tensor:
        images = next(batches).to(DEVICE).permute(0, 3, 1, 2)
        return F.cross_entropy(model(images.to(BF16) / 255), classes)

    return training(fused_adamw(model), loss)


@fault("empty_cache() in each step, so that the next one allocates from the driver: not called", "memory")
def memory(mended: bool) -> Step:
    train = language_training(language_model(layers=3), batch=8, tokens=1024)
    if mended:
        return train

    def step() -> None:
        train()
        torch.cuda.empty_cache()

    return step


# Kernels --------------------------------------------------------------------------------------------------------------


@fault("attention written out as product, mask, softmax and product: scaled_dot_product_attention", "attention")
def attention(mended: bool) -> Step:
    return language_training(language_model(layers=3, written_out=not mended), batch=16, tokens=1024)


@fault("attention over 4096 tokens written out, in inference: scaled_dot_product_attention", "attention")
def attention_infer(mended: bool) -> Step:
    model = language_model(layers=4, written_out=not mended)
    return inference(model, torch.randint(0, 8192, (2, 4096), device=DEVICE))


@fault("AdamW that loops over the parameters: fused=True", "optimizer")
def optimizer(mended: bool) -> Step:
    model = language_model(layers=8, width=512, heads=8)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False, fused=mended)
    return language_training(model, batch=2, tokens=256, optimizer=adamw)


@fault("AdamW on large parameters with foreach, which passes over memory for each operation: fused=True", "optimizer")
def optimizer_foreach(mended: bool) -> Step:
    torch.set_float32_matmul_precision("high")
    model = perceptron(depth=4, width=8192)
    x = torch.randn(512, 8192, device=DEVICE)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=not mended, fused=mended)
    return training(adamw, lambda: F.mse_loss(model(x), x))


class ChannelMixer(nn.Module):
    """A residual layer over the channels of sequences, which are the last dimension, or the second one."""

    def __init__(self, channels: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.norm, self.mix1, self.mix2 = (
            nn.LayerNorm(channels),
            nn.Linear(channels, channels),
            nn.Linear(channels, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.last else x.transpose(1, 2).contiguous()
        y = self.mix2(F.gelu(self.mix1(self.norm(y))))
        return x + (y if self.last else y.transpose(1, 2).contiguous())


@fault("(batch, channels, time) transposed and copied around each layer: kept as (batch, time, channels)", "layout")
def layout(mended: bool) -> Step:
    with torch.device(DEVICE):
        model = nn.Sequential(*(ChannelMixer(512, last=mended) for _ in range(6))).to(BF16)
        x = torch.randn((64, 2048, 512) if mended else (64, 512, 2048), dtype=BF16)
    return inference(model, x)


@fault("convolutions in NCHW under autocast: channels_last")
def channels_last(mended: bool) -> Step:
    import torchvision

    memory_format = torch.channels_last if mended else torch.contiguous_format
    with torch.device(DEVICE):
        model = torchvision.models.resnet50().to(memory_format=memory_format)
        x = torch.randn(64, 3, 224, 224).to(memory_format=memory_format)
        classes = torch.randint(0, 1000, (64,))

    def loss() -> Tensor:
        with torch.autocast(DEVICE, dtype=BF16):
            return F.cross_entropy(model(x), classes)

    return training(torch.optim.SGD(model.parameters(), lr=0.01, fused=True), loss)


def cumulative(x: Tensor, chunk: int = 2048) -> Tensor:
    """Return ``x.cumsum(-1)``, computed in chunks of each row and then across the chunks."""
    parts = x.view(*x.shape[:-1], -1, chunk).cumsum(-1)
    totals = parts[..., -1]
    return (parts + (totals.cumsum(-1) - totals).unsqueeze(-1)).view_as(x)


@fault("cumsum of eight long rows, one block of threads each: in chunks, then across the chunks", "small")
def small(mended: bool) -> Step:
    scores = torch.randn(8, 2 << 20, device=DEVICE)

    def sample() -> Tensor:
        weights = scores.exp()
        bounds = cumulative(weights) if mended else weights.cumsum(-1)
        return torch.searchsorted(bounds, torch.rand(8, 4096, device=DEVICE) * bounds[:, -1:])

    return sample


@fault("a chain of pointwise ops, one kernel each: fused by torch.compile", "fuse")
def pointwise(mended: bool) -> Step:
    x = torch.randn(8192, 8192, device=DEVICE)
    weight = torch.randn(8192, device=DEVICE)

    def chain(x: Tensor) -> Tensor:
        return torch.tanh(x * weight + 0.5).mul(2.0).sub(x).abs().add(1e-6).log().sigmoid()

    function = torch.compile(chain) if mended else chain
    return lambda: function(x)


class Residual(nn.Module):
    """Normalization, GELU, a product, dropout, a scale for each channel and the residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(channels), nn.Linear(channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * F.dropout(self.linear(F.gelu(self.norm(x))), 0.1)


@fault("training of narrow residual layers, a kernel for each op: fused by torch.compile", "fuse")
def compile_fuse(mended: bool) -> Step:
    with torch.device(DEVICE):
        model = nn.Sequential(*(Residual(512) for _ in range(3))).to(BF16)
        x = torch.randn(1 << 17, 512, dtype=BF16)
    function = torch.compile(model) if mended else model
    return training(fused_adamw(model), lambda: F.mse_loss(function(x), x))
