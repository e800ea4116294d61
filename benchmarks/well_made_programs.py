"""Programs that are well made, on a GPU and on the CPU; benchmarks/well_made.py holds the advice against them.

A row of PROGRAMS describes a program and holds a function that builds it: from sizes, and from options of which the
defaults are the good ones, to a function that runs one step. `tiny` are sizes for a test on a CPU, and `changes` are
the options that follow an advice rule, so that its gain can be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fault_programs import (
    BF16,
    DEVICE,
    Block,
    Captured,
    Photos,
    Step,
    fused_adamw,
    inference,
    language_model,
    prefetched,
    training,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

Changes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Program:
    what: str
    build: Callable[..., Step]  # from sizes and options to a function that runs one step
    tiny: Mapping[str, Any]  # sizes for a test
    changes: Changes  # by advice rule: options that follow it
    marked: bool  # the trace has steps
    device: str  # "cuda" or "cpu"
    tools: str  # the module that records: "torch.profiler" or "flopscope"


PROGRAMS: dict[str, Program] = {}


def program(
    what: str,
    tiny: Mapping[str, Any],
    changes: Changes,
    marked: bool = True,
    device: str = "cuda",
    tools: str = "torch.profiler",
) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Add the decorated function to PROGRAMS under its name."""

    def add(build: Callable[..., Step]) -> Callable[..., Step]:
        PROGRAMS[build.__name__] = Program(what, build, tiny, changes, marked, device, tools)
        return build

    return add


def compiled(function: Callable[..., Any], mode: str = "default") -> Callable[..., Any]:
    """Compile without graph breaks; without generating code for a CPU."""
    how = {"mode": mode} if DEVICE == "cuda" else {"backend": "aot_eager"}
    return torch.compile(function, fullgraph=True, dynamic=False, **how)


def captured(step: Step) -> Step:
    return Captured(step) if DEVICE == "cuda" else step


def image_batch(batch: int, size: int, channels: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(batch, channels, size, size, device=DEVICE, dtype=dtype).to(memory_format=torch.channels_last)


# Language models ------------------------------------------------------------------------------------------------------


def gpt_training(layers: int, width: int, heads: int, batch: int, tokens: int, vocabulary: int, mode: str) -> Step:
    model = language_model(layers, width=width, heads=heads, vocabulary=vocabulary)
    ids = torch.randint(0, vocabulary, (batch, tokens + 1), device=DEVICE)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].flatten()

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets)

    compiled_loss = compiled(loss, mode)
    return training(fused_adamw(model), lambda: compiled_loss(inputs, targets))


TINY_GPT = {"layers": 1, "width": 32, "heads": 2, "batch": 2, "tokens": 16, "vocabulary": 128}


@program(
    "GPT training in bfloat16: compiled, fused AdamW, vocabulary padded to a multiple of 64",
    TINY_GPT,
    {"launch": {"mode": "reduce-overhead"}},
)
def gpt(
    layers: int = 4,
    width: int = 2048,
    heads: int = 16,
    batch: int = 8,
    tokens: int = 2048,
    vocabulary: int = 50304,
    mode: str = "default",
) -> Step:
    return gpt_training(layers, width, heads, batch, tokens, vocabulary, mode)


@program("smaller GPT training, compiled with reduce-overhead: CUDA graphs of both passes, fused AdamW", TINY_GPT, {})
def gpt_graphs(
    layers: int = 4, width: int = 1024, heads: int = 16, batch: int = 8, tokens: int = 1024, vocabulary: int = 32768
) -> Step:
    return gpt_training(layers, width, heads, batch, tokens, vocabulary, "reduce-overhead")


class CachedBlock(Block):
    """A block that attends to a cache, in which a token replaces the oldest one."""

    def __init__(self, width: int, heads: int, batch: int, length: int) -> None:
        super().__init__(width, heads)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, heads, length, width // heads))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, 1, -1)).unbind(1)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        x = x + self.out(F.scaled_dot_product_attention(q, self.keys, self.values).flatten(1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """The next token of each sequence."""

    def __init__(self, layers: int, width: int, heads: int, batch: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.blocks = nn.ModuleList(CachedBlock(width, heads, batch, length) for _ in range(layers))

    def forward(self, ids: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, position)
        return self.head(x).argmax(-1)


@program(
    "decoding with a cache of keys and values, compiled and in one CUDA graph",
    {"layers": 1, "width": 32, "heads": 2, "batch": 2, "length": 16, "vocabulary": 128},
    {},
    marked=False,
)
def decode(
    layers: int = 8, width: int = 4096, heads: int = 32, batch: int = 16, length: int = 2048, vocabulary: int = 32768
) -> Step:
    with torch.device(DEVICE):
        model = Decoder(layers, width, heads, batch, length, vocabulary).to(BF16).eval()
        ids, position = torch.zeros(batch, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    function = compiled(model)

    @torch.no_grad()
    def step() -> None:
        ids.copy_(function(ids, position))
        position.add_(1).remainder_(length)

    return captured(step)


@program(
    "inference of a vision transformer in bfloat16: compiled, scaled_dot_product_attention",
    {"layers": 1, "width": 32, "heads": 2, "images": 2, "patches": 16},
    {"launch": {"mode": "reduce-overhead"}},
)
def vit(
    layers: int = 6,
    width: int = 1024,
    heads: int = 16,
    images: int = 64,
    patches: int = 1024,
    mode: str = "default",
) -> Step:
    with torch.device(DEVICE):
        blocks = [Block(width, heads, causal=False) for _ in range(layers)]
        model = nn.Sequential(nn.Linear(768, width), *blocks, nn.LayerNorm(width)).to(BF16)
        x = torch.randn(images, patches, 768, dtype=BF16)
    return inference(compiled(model.eval(), mode), x)


@program(
    "gradient accumulation: every other step clips the norm of the gradients and updates, nothing is read back",
    TINY_GPT,
    {"launch": {"mode": "reduce-overhead"}},
)
def accumulation(
    layers: int = 4,
    width: int = 1536,
    heads: int = 12,
    batch: int = 16,
    tokens: int = 1024,
    vocabulary: int = 32768,
    mode: str = "default",
) -> Step:
    model = language_model(layers, width=width, heads=heads, vocabulary=vocabulary)
    ids = torch.randint(0, vocabulary, (batch, tokens + 1), device=DEVICE)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    optimizer = fused_adamw(model)
    parameters = list(model.parameters())
    graphs = mode == "reduce-overhead"  # which write the gradients of each step to the same memory
    for parameter in parameters if graphs else []:
        parameter.grad = torch.zeros_like(parameter)
    count = 0

    def half_loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets) / 2

    loss = compiled(half_loss, mode)

    def step() -> None:
        nonlocal count
        loss(inputs, targets).backward()
        count += 1
        if count % 2 == 0:
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=not graphs)

    return step


# Images ---------------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """A block of a ResNet."""

    def __init__(self, before: int, channels: int, stride: int = 1) -> None:
        super().__init__()

        def convolution(a: int, b: int, kernel: int, stride: int = 1) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(a, b, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(b))

        narrow = channels // 4
        self.reduce, self.expand = convolution(before, narrow, 1), convolution(narrow, channels, 1)
        self.middle = convolution(narrow, narrow, 3, stride)
        self.skip = nn.Identity() if before == channels else convolution(before, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.skip(x) + self.expand(F.relu(self.middle(F.relu(self.reduce(x))))))


def residual_network(width: int) -> nn.Sequential:
    """Return a ResNet of four blocks on the device, in channels_last."""
    widths = [width, 4 * width, 8 * width, 8 * width, 16 * width]
    with torch.device(DEVICE):
        stem = [nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        blocks = [Bottleneck(a, b, 2 if b > a > width else 1) for a, b in pairwise(widths)]
        layers = [*stem, nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], 1024)).to(memory_format=torch.channels_last)


def image_training(width: int, batches: Iterator[Tensor], labels: Tensor, mode: str) -> Step:
    """Return a training step of a ResNet on batches of images; autocast is part of what is compiled."""
    torch.backends.cudnn.benchmark = True
    model = residual_network(width)

    def loss(images: Tensor) -> Tensor:
        with torch.autocast(DEVICE, dtype=BF16):
            return F.cross_entropy(model(images.float() / 255), labels)

    compiled_loss = compiled(loss, mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    return training(optimizer, lambda: compiled_loss(next(batches)))


@program(
    "training of a ResNet: channels_last, bfloat16 by autocast, compiled, fused SGD",
    {"width": 8, "batch": 2, "size": 32},
    {"launch": {"mode": "reduce-overhead"}},
)
def resnet(width: int = 64, batch: int = 256, size: int = 224, mode: str = "default") -> Step:
    images, labels = image_batch(batch, size), torch.randint(0, 1024, (batch,), device=DEVICE)
    return image_training(width, iter(lambda: images, None), labels, mode)


class Crops(Photos):
    """Random crops and flips alone: the rest of the augmentation is left to the GPU."""

    def __getitem__(self, index: int) -> Tensor:
        top, left = index % 32, index // 32 % 32
        image = self.images[index % len(self.images), top : top + self.crop, left : left + self.crop]
        return torch.from_numpy(np.ascontiguousarray(image[:, ::-1] if index % 3 else image))


@program(
    "training fed by a DataLoader: workers, pinned memory, the next batch copied on another stream",
    {"width": 8, "batch": 2, "workers": 1},
    {"data": {"workers": 14}, "launch": {"mode": "reduce-overhead"}},
)
def loader(width: int = 64, batch: int = 256, workers: int = 8, mode: str = "default") -> Step:
    options = {"prefetch_factor": 4, "pin_memory": DEVICE == "cuda", "timeout": 60}
    data = iter(DataLoader(Crops(), batch_size=batch, drop_last=True, num_workers=workers, **options))
    batches = (batch.permute(0, 3, 1, 2) for batch in (prefetched(data) if DEVICE == "cuda" else data))
    return image_training(width, batches, torch.randint(0, 1024, (batch,), device=DEVICE), mode)


class MobileBlock(nn.Module):
    """An inverted residual with squeeze and excitation, as in EfficientNet, its batch normalization folded away."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.expand, self.project = nn.Conv2d(channels, wide, 1), nn.Conv2d(wide, channels, 1)
        self.depthwise = nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide)
        self.squeeze, self.excite = nn.Conv2d(wide, channels // 4, 1), nn.Conv2d(channels // 4, wide, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.depthwise(F.silu(self.expand(x))))
        gate = self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        return x + self.project(y * gate.sigmoid())


@program(
    "inference of an EfficientNet: depthwise convolutions, channels_last, TF32 allowed, compiled",
    {"blocks": 1, "channels": 8, "batch": 2, "size": 16},
    {
        "low_precision": {"dtype": BF16},
        "layout": {"memory_format": torch.contiguous_format},
        "launch": {"mode": "reduce-overhead"},
    },
)
def depthwise(
    blocks: int = 6,
    channels: int = 96,
    batch: int = 128,
    size: int = 56,
    dtype: torch.dtype = torch.float32,
    memory_format: torch.memory_format = torch.channels_last,
    mode: str = "default",
) -> Step:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    with torch.device(DEVICE):
        model = nn.Sequential(*(MobileBlock(channels, 3 + 2 * (i % 2)) for i in range(blocks)))
    model = model.to(dtype=dtype, memory_format=memory_format).eval().requires_grad_(False)
    x = image_batch(batch, size, channels, dtype).to(memory_format=memory_format)
    return inference(compiled(model, mode), x)


class UNetBlock(nn.Module):
    """Group normalizations and convolutions with the embedding of a time, and attention over the pixels."""

    def __init__(self, before: int, channels: int, attention: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, channels)
        self.conv1, self.conv2 = (nn.Conv2d(a, channels, 3, padding=1) for a in (before, channels))
        self.time = nn.Linear(256, channels)
        self.skip = nn.Identity() if before == channels else nn.Conv2d(before, channels, 1)
        self.attention = Block(channels, channels // 64 or 1, causal=False) if attention else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        y = self.skip(x) + self.conv2(F.silu(self.norm2(y)))
        if self.attention is None:
            return y
        return self.attention(y.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, y.shape[2:])


class UNet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.before, self.after = UNetBlock(channels, channels, False), UNetBlock(3 * channels, channels, False)
        self.middle = nn.ModuleList(UNetBlock(a * channels, 2 * channels, True) for a in (1, 2))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        skip = self.before(self.first(x), time)
        y = self.down(skip)
        for block in self.middle:
            y = block(y, time)
        return self.last(self.after(torch.cat([skip, F.interpolate(y, scale_factor=2.0)], 1), time))


@program(
    "steps of a diffusion U-Net in bfloat16: channels_last, compiled, in one CUDA graph",
    {"channels": 16, "batch": 2, "size": 8},
    {},
    marked=False,
)
def unet(channels: int = 320, batch: int = 16, size: int = 64) -> Step:
    torch.backends.cudnn.benchmark = True
    with torch.device(DEVICE):
        model = UNet(channels).to(BF16).to(memory_format=torch.channels_last).eval().requires_grad_(False)
        time = torch.randn(batch, 256, dtype=BF16)
    x = image_batch(batch, size, 4, BF16)
    function = compiled(model)

    @torch.no_grad()
    def step() -> None:
        x.sub_(function(x, time), alpha=0.02)

    return captured(step)
