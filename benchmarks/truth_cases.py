"""The cases of truth.py: ops of torch by family, and every native op, each a call without arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import flopscope as fs
from flopscope.measuring.operands import call_of_op


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    dtype: str
    shape: str
    call: Callable[[], Any]
    unit: str = ""
    """Group of tensor-core counters that the call uses; "": none."""


UNARY = (
    *("abs", "neg", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "relu", "erf", "floor", "ceil"),
    *("round", "sign", "square", "reciprocal", "exp2", "log2", "log1p", "expm1", "sinh", "atan"),
)
FUNCTIONAL = ("gelu", "silu", "softplus", "leaky_relu", "elu", "hardswish", "mish", "relu6")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod", "remainder")
REDUCTIONS = ("sum", "mean", "amax", "amin", "argmax", "prod", "std", "var", "norm", "logsumexp")
DTYPES = ("float32", "bfloat16")
UNITS = {"bfloat16": "bf16_tensor", "float16": "fp16_tensor"}


def torch_cases() -> Iterator[Case]:
    """Yield the cases of torch."""
    import torch
    import torch.nn.functional as functional

    sdpa = functional.scaled_dot_product_attention
    n = 8192
    side = f"{n}x{n}"
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        x, y, z = (torch.rand(n, n, device="cuda").to(kind) + 0.01 for _ in range(3))
        row, column = torch.rand(n, device="cuda").to(kind), torch.rand(n, 1, device="cuda").to(kind)

        def one(
            family: str, name: str, call: Callable[[], Any], shape: str = side, unit: str = "", d: str = dtype
        ) -> Case:
            return Case(family, name, d, shape, call, unit)

        for name in UNARY:
            yield one("unary", name, partial(getattr(torch, name), x))
        for name in FUNCTIONAL:
            yield one("unary", name, partial(getattr(functional, name), x))
        for name in BINARY:
            yield one("binary", name, partial(getattr(torch, name), x, y))
        yield one("binary", "add of itself", lambda x=x: x + x)
        yield one("broadcast", "add row", lambda x=x, r=row: x + r)
        yield one("broadcast", "mul column", lambda x=x, c=column: x * c)
        yield one("broadcast", "mul scalar", lambda x=x: x * 0.5)
        yield one("in place", "add_", lambda x=z, y=y: x.add_(y))
        yield one("in place", "mul_ scalar", lambda x=z: x.mul_(0.999))
        yield one("comparison", "gt", lambda x=x, y=y: x > y)
        yield one("comparison", "where", lambda x=x, y=y, m=x > y: torch.where(m, x, y))
        yield one("comparison", "clamp", lambda x=x: x.clamp(0.2, 0.8))
        yield one("comparison", "lerp", lambda x=x, y=y: torch.lerp(x, y, 0.3))
        yield one("comparison", "addcmul", lambda x=x, y=y, z=z: torch.addcmul(x, y, z))
        for name in REDUCTIONS:
            by = {"norm": torch.linalg.vector_norm}.get(name, getattr(torch, name))
            yield one("reduction", f"{name} of rows", lambda f=by, x=x: f(x, dim=-1))
            if name not in ("argmax", "prod", "logsumexp"):
                yield one("reduction", f"{name} of columns", lambda f=by, x=x: f(x, dim=0))
        yield one("reduction", "sum of all", lambda x=x: x.sum())
        yield one("scan", "cumsum", lambda x=x: x.cumsum(-1))
        yield one("softmax", "softmax", lambda x=x: x.softmax(-1))
        yield one("softmax", "log_softmax", lambda x=x: x.log_softmax(-1))
        yield one("normalization", "layer_norm", lambda x=x, r=row: functional.layer_norm(x, (n,), r, r))
        yield one("normalization", "rms_norm", lambda x=x, r=row: functional.rms_norm(x, (n,), r))
        yield one("copy", "clone", lambda x=x: x.clone())
        yield one("copy", "transpose", lambda x=x: x.t().contiguous())
        yield one("copy", "cat", lambda x=x, y=y: torch.cat([x, y]))
        yield one("copy", "flip", lambda x=x: x.flip(0))
        yield one("copy", "roll", lambda x=x: x.roll(5, 0))
        yield one("copy", "fill_", lambda x=z: x.fill_(1.0))
        yield one("copy", "zeros", lambda k=kind: torch.zeros(n, n, device="cuda", dtype=k))
        yield one("copy", "cast to float16", lambda x=x: x.to(torch.float16))
        yield one("random", "dropout", lambda x=x: functional.dropout(x, 0.5))
        yield one("random", "uniform_", lambda x=z: x.uniform_())
        where = torch.randperm(n, device="cuda")
        yield one("index", "index_select", lambda x=x, w=where: x.index_select(0, w))
        yield one("index", "embedding", lambda x=x, w=where: functional.embedding(w, x))
        yield one("index", "gather", lambda x=x, w=where: x.gather(0, w[:, None].expand(n, n)))
        yield one("index", "tril", lambda x=x: x.tril())
        image = torch.rand(32, 64, 128, 128, device="cuda").to(kind)
        yield one("window", "max_pool2d", lambda i=image: functional.max_pool2d(i, 2), "32x64x128x128")
        yield one("window", "avg_pool2d", lambda i=image: functional.avg_pool2d(i, 2), "32x64x128x128")
        yield one("window", "interpolate", lambda i=image: functional.interpolate(i, scale_factor=2), "32x64x128x128")
        target = torch.randint(0, n, (n,), device="cuda")
        yield one("loss", "cross_entropy", lambda x=x, t=target: functional.cross_entropy(x, t))
        yield one("loss", "mse_loss", lambda x=x, y=y: functional.mse_loss(x, y))
    for dtype in ("bfloat16", "float16", "float32"):
        kind, unit = getattr(torch, dtype), UNITS.get(dtype, "")
        for m, k, p in ((4096, 4096, 4096), (1000, 1000, 1000), (8192, 1024, 512)):
            a, b = torch.rand(m, k, device="cuda").to(kind), torch.rand(k, p, device="cuda").to(kind)
            yield Case("product", "mm", dtype, f"{m}x{k} {k}x{p}", lambda a=a, b=b: a @ b, unit)
        a, w, bias = (torch.rand(*s, device="cuda").to(kind) for s in ((4096, 4096), (4096, 4096), (4096,)))
        yield Case("product", "linear", dtype, "4096", lambda a=a, w=w, b=bias: functional.linear(a, w, b), unit)
        a, b = torch.rand(32, 1024, 512, device="cuda").to(kind), torch.rand(32, 512, 1024, device="cuda").to(kind)
        yield Case("product", "bmm", dtype, "32x1024x512", lambda a=a, b=b: torch.bmm(a, b), unit)
        if dtype == "float32":
            continue
        image, filters = (
            torch.rand(32, 128, 56, 56, device="cuda").to(kind),
            torch.rand(256, 128, 3, 3, device="cuda").to(kind),
        )
        call = lambda i=image, f=filters: functional.conv2d(i, f, padding=1)  # noqa: E731
        yield Case("convolution", "conv2d 3x3", dtype, "32x128x56x56", call, unit)
        q = torch.rand(4, 16, 2048, 128, device="cuda").to(kind)
        yield Case("attention", "sdpa", dtype, "4x16x2048x128", partial(sdpa, q, q, q), unit)
        yield Case("attention", "sdpa causal", dtype, "4x16x2048x128", partial(sdpa, q, q, q, is_causal=True), unit)


def native_cases() -> Iterator[Case]:
    """Yield every native op, in float32."""
    for name in fs._core.ops:
        shapes = [(4096, 4096)]
        if name in ("layer_norm", "rms_norm"):
            shapes = [(8192, 4096), *[(4096,)] * (2 if name == "layer_norm" else 1)]
        try:
            function, arguments = call_of_op(name, shapes, "float32", "cuda")
        except (ValueError, TypeError):
            function, arguments = call_of_op(name, shapes[:1], "float32", "cuda")
        shape = "x".join(map(str, shapes[0]))
        yield Case("native", name, "float32", shape, lambda f=function, a=arguments: f(*a))
