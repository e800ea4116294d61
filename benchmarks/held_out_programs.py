"""A second set of programs with one known fault each, which the advice rules were not developed on.

``python benchmarks/faults.py --held-out --out FOLDER`` measures them. FAULTS has the form of that in fault_programs.py:
each function takes `mended` and returns a function that runs one step. Its other arguments are sizes, for a test with
small ones. The models, their sizes and the way in which each fault arises differ from those of the first set.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from fault_programs import Fault, Step
from held_out_host import (
    DEVICE,
    conjugate_gradient,
    lstm_loop,
    place,
    predict,
    random_input,
    sgd_nesterov,
    tokenizer,
    upscaler,
)
from torch import Tensor, nn

# Width of a layer -----------------------------------------------------------------------------------------------------


class GatedFeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def swiglu_width(mended: bool, width: int = 2048, layers: int = 4, tokens: int = 8192) -> Step:
    hidden = int(width * 8 / 3)
    if mended:
        hidden = math.ceil(hidden / 64) * 64
    model = nn.Sequential(*[GatedFeedForward(width, hidden) for _ in range(layers)])
    return predict(place(model, torch.bfloat16), random_input(tokens, width, dtype=torch.bfloat16))


# Precision ------------------------------------------------------------------------------------------------------------


def vgg(mended: bool, images: int = 64, size: int = 64, channels: int = 64) -> Step:
    torch.backends.cudnn.allow_tf32 = mended
    torch.set_float32_matmul_precision("high" if mended else "highest")
    layers: list[nn.Module] = []
    before = 3
    for after in ("1", "2", "pool", "4", "4", "pool", "8", "8", "pool"):
        if after == "pool":
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(before, channels * int(after), 3, padding=1), nn.ReLU(inplace=True)]
        before = channels * int(after)
    flat = before * (size // 8) ** 2
    layers += [nn.Flatten(), nn.Linear(flat, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 128)]
    model = place(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    x, labels = random_input(images, 3, size, size), torch.randint(0, 128, (images,), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return step


class VisionTransformer(nn.Module):
    def __init__(self, width: int, layers: int, patches: int, patch: int = 16, classes: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * patch * patch, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, patches, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, patches: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(patches) + self.position).mean(1))


def vit(mended: bool, width: int = 1024, layers: int = 6, images: int = 32, patches: int = 256) -> Step:
    torch.set_float32_matmul_precision("high")
    model = place(VisionTransformer(width, layers, patches))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    x, labels = random_input(images, patches, 768), torch.randint(0, 1000, (images,), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=mended):
            loss = F.cross_entropy(model(x), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# Attention ------------------------------------------------------------------------------------------------------------


class EinsumAttention(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = (project(y).unflatten(-1, (self.heads, -1)) for project in (self.query, self.key, self.value))
        if self.fused:
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).transpose(1, 2)
        else:
            energy = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
            weights = F.dropout(torch.softmax(energy, dim=-1), 0.1)
            mixed = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return x + self.out(mixed.flatten(2))


def einsum_dropout(mended: bool, width: int = 768, layers: int = 3, batch: int = 8, tokens: int = 1024) -> Step:
    model = place(nn.Sequential(*[EinsumAttention(width, width // 64, fused=mended) for _ in range(layers)]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    scaler = torch.amp.GradScaler(DEVICE)
    x, target = random_input(batch, tokens, width), random_input(batch, tokens, width)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = F.smooth_l1_loss(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


class BiasedEncoderLayer(nn.Module):
    """A layer of an encoder whose attention adds a bias for the distance between two tokens."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        if self.fused:
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
            scores = scores + bias
            context = torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)
        x = self.norm1(x + self.out(context.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.dense(x))


def alibi(mended: bool, width: int = 1024, layers: int = 3, batch: int = 6, tokens: int = 2048) -> Step:
    heads = width // 64
    model = nn.ModuleList(BiasedEncoderLayer(width, heads, fused=mended) for _ in range(layers))
    model = place(model, torch.bfloat16).eval()
    x = random_input(batch, tokens, width, dtype=torch.bfloat16)
    position = torch.arange(tokens, device=DEVICE)
    slope = 2 ** (-8 * torch.arange(1, heads + 1, device=DEVICE) / heads)
    bias = (-slope[:, None, None] * (position[:, None] - position).abs()).to(x.dtype)[None]

    @torch.no_grad()
    def step() -> Tensor:
        y = x
        for layer in model:
            y = layer(y, bias)
        return y

    return step


# Kernels that could be one --------------------------------------------------------------------------------------------


class HandWrittenBlock(nn.Module):
    """A layer with its normalization and activation written as formulas."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.dense = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, unbiased=False)
        y = (x - mean) / torch.sqrt(variance + 1e-5) * self.gain + self.shift
        y = self.dense(y)
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)))
        return x + y


def norm_gelu(mended: bool, width: int = 768, layers: int = 2, rows: int = 49152) -> Step:
    model = place(nn.Sequential(*[HandWrittenBlock(width) for _ in range(layers)]), torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x = random_input(rows, width, dtype=torch.bfloat16)
    forward = torch.compile(model) if mended else model

    def step() -> None:
        optimizer.zero_grad()
        forward(x).square().mean().backward()
        optimizer.step()

    return step


class HandWrittenSwiglu(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        gate, up = self.gate_up(self.weight * y.to(x.dtype)).chunk(2, dim=-1)
        return x + self.down(gate * torch.sigmoid(gate) * up)


def rms_swiglu(mended: bool, width: int = 640, hidden: int = 1728, layers: int = 8, tokens: int = 32768) -> Step:
    model = place(nn.Sequential(*[HandWrittenSwiglu(width, hidden) for _ in range(layers)]), torch.float16).eval()
    function = torch.compile(model) if mended else model
    x = random_input(tokens, width, dtype=torch.float16)

    @torch.no_grad()  # not inference_mode, for the sake of torch.compile
    def step() -> Tensor:
        return function(x)

    return step


# Copies of tensors ----------------------------------------------------------------------------------------------------


class WindowAttention(nn.Module):
    """Attention in windows of an image. Without ``views``, every change in the order of dimensions makes a copy."""

    def __init__(self, width: int, heads: int, views: bool) -> None:
        super().__init__()
        self.heads, self.views = heads, views
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def rearranged(self, x: Tensor, *order: int) -> Tensor:
        x = x.permute(order)
        return x if self.views else x.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = self.rearranged(qkv, 2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(self.rearranged(y, 0, 2, 1, 3).flatten(2))


def window_heads(mended: bool, width: int = 256, layers: int = 4, windows: int = 4096, tokens: int = 64) -> Step:
    model = nn.Sequential(*[WindowAttention(width, width // 32, views=mended) for _ in range(layers)])
    x = random_input(windows, tokens, width, dtype=torch.bfloat16)
    return predict(place(model, torch.bfloat16), x)


def master_weights(mended: bool, width: int = 4096, layers: int = 2, batches: int = 8, rows: int = 256) -> Step:
    blocks = [
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(layers)
    ]
    teacher = place(nn.Sequential(*blocks)).requires_grad_(False).eval()
    inputs = [random_input(rows, width, dtype=torch.float16) for _ in range(batches)]
    if mended:
        teacher = teacher.half()
        return lambda: [teacher(x) for x in inputs]
    master = dict(teacher.named_parameters())

    def step() -> list[Tensor]:
        targets = []
        for x in inputs:
            half = {name: weight.half() for name, weight in master.items()}
            targets.append(torch.func.functional_call(teacher, half, (x,)))
        return targets

    return step


# Use of the device ----------------------------------------------------------------------------------------------------


def soft_argmax(mended: bool, joints: int = 4, size: int = 256) -> Step:
    volumes = random_input(joints, size, size, size)
    axis = torch.linspace(-1, 1, size, device=DEVICE)

    def probabilities(scores: Tensor) -> Tensor:
        if not mended:
            return torch.softmax(scores, dim=-1)
        total = scores.unflatten(-1, (-1, size * size // 4)).logsumexp(-1).logsumexp(-1, keepdim=True)
        return (scores - total).exp_()

    @torch.no_grad()
    def step() -> Tensor:
        p = probabilities(volumes.flatten(1)).view_as(volumes)
        return torch.stack([(p.sum(dims) * axis).sum(-1) for dims in ((2, 3), (1, 3), (1, 2))], dim=-1)

    return step


def empty_cache(
    mended: bool, recordings: int = 16, seconds: tuple[int, ...] = (2, 3, 4, 5, 6), width: int = 256
) -> Step:
    layers: list[nn.Module] = [nn.Conv1d(1, width, 10, stride=5), nn.GELU()]
    for _ in range(4):
        layers += [nn.Conv1d(width, width, 3, stride=2), nn.GroupNorm(8, width), nn.GELU()]
    model = place(nn.Sequential(*layers), torch.bfloat16).eval()
    inputs = [random_input(recordings, 1, 16000 * s, dtype=torch.bfloat16) for s in seconds]

    @torch.no_grad()
    def step() -> Tensor:
        embeddings = []
        for x in inputs:
            embeddings.append(model(x).mean(-1))
            if not mended:
                torch.cuda.empty_cache()
        return torch.cat(embeddings)

    return step


FAULTS = {
    "swiglu_width": Fault(
        "feed-forward layers of 8/3 the width, 5461: rounded up to 5504, a multiple of 64", ("align",), swiglu_width
    ),
    "vgg": Fault("convolutional network in float32 with TF32 off: on", ("tf32", "low_precision"), vgg),
    "vit": Fault("vision transformer trained in TF32: bfloat16 by autocast", ("low_precision",), vit),
    "einsum_dropout": Fault(
        "attention with dropout by einsum, in float16 training: scaled_dot_product_attention",
        ("attention",),
        einsum_dropout,
    ),
    "alibi": Fault(
        "attention with an added bias by matmul, in inference: scaled_dot_product_attention", ("attention",), alibi
    ),
    "lstm_loop": Fault("inference of an LSTM written as a loop over time: a CUDA graph", ("launch",), lstm_loop),
    "sgd_nesterov": Fault(
        "SGD with momentum that loops over many small parameters: fused=True", ("optimizer",), sgd_nesterov
    ),
    "conjugate_gradient": Fault(
        "two item() in each iteration of a solver: scalars on the device, read every 30 iterations",
        ("sync",),
        conjugate_gradient,
    ),
    "upscaler": Fault(
        "cpu() of each batch of large outputs: copied to pinned memory on another stream", ("copy",), upscaler
    ),
    "tokenizer": Fault("text tokenized in Python by the process that trains: by eight workers", ("data",), tokenizer),
    "window_heads": Fault(
        "copies of queries, keys, values and outputs to reorder dimensions: views", ("layout",), window_heads
    ),
    "master_weights": Fault(
        "frozen float32 weights cast to float16 for each batch: cast once", ("cast",), master_weights
    ),
    "soft_argmax": Fault(
        "softmax of four rows of 16.8 million, one block of threads each: in chunks", ("small",), soft_argmax
    ),
    "empty_cache": Fault("empty_cache() after each batch, whose lengths differ: not called", ("memory",), empty_cache),
    "norm_gelu": Fault(
        "training with layer norm and GELU written as formulas, a kernel for each op: fused by torch.compile",
        ("fuse",),
        norm_gelu,
    ),
    "rms_swiglu": Fault(
        "inference with RMS norm and SwiGLU written as formulas: fused by torch.compile", ("fuse",), rms_swiglu
    ),
}
