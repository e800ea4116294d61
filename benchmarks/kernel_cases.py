"""The cases of the benchmark of kernels: ops of every kind in both libraries, with the result in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import flopscope as fs

SIDE = {"cpu": 1024, "cuda": 8192}
ROWS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
FEW_ROWS = (128, 1024, 8192, 65536)
SMALL = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
SMALL_ROW = 1024
NEED_POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "reciprocal", "pow"}
OPERANDS = {"(x, *, out=None)": 1, "(a, b, *, out=None)": 2}
"""The signatures of unary and binary ops."""
NOT_POINTWISE = {"copy", "transpose_copy"}
SIXTEEN_BITS = ("float16", "bfloat16")

Call = Callable[..., Any]


@dataclass
class Case:
    """One op in both libraries. ``read`` makes what is compared with ``reference``, a float64 tensor, from a result."""

    family: str
    name: str
    dtype: str
    ours: Call
    theirs: Call
    reference: Call
    nbytes: int
    operand: Any
    """What the copy copies and the read reads."""
    read: Call = lambda result: result.double()

    @property
    def label(self) -> str:
        return f"{self.family} {self.name} {self.dtype}"


class Data:
    """Random torch tensors of one dtype, and the cases of ops of them."""

    def __init__(self, torch: Any, device: str, dtype: str) -> None:
        self.torch, self.dtype = torch, dtype
        generator = torch.Generator(device=device).manual_seed(0)

        def made() -> Any:
            return torch.randn(SIDE[device], SIDE[device], generator=generator, device=device)

        self.x, self.y = (made().to(getattr(torch, dtype)) for _ in range(2))
        self.positive = made().abs_().add_(0.25).to(getattr(torch, dtype))  # reciprocal and pow overflow near 0
        self.out = torch.empty_like(self.x)

    def case(
        self,
        family: str,
        name: str,
        ours: Call,
        theirs: Call,
        inputs: Sequence[Any],
        moved: float = 0,
        *,
        out: Any = None,
        exact: Call | None = None,
        read: Call = Case.read,
    ) -> Case:
        """Return a case: both functions of the inputs, which write to ``out`` if there is one.

        ``moved``: the compulsory bytes over those of x. ``exact``: torch's function for float64, if another.
        """
        mine = [fs.from_dlpack(one) for one in inputs]
        into = {} if out is None else {"out": fs.from_dlpack(out)}
        peers = {} if out is None else {"out": out}

        def reference() -> Any:
            return (exact or theirs)(*[one.double() for one in inputs])

        calls = (partial(ours, *mine, **into), partial(theirs, *inputs, **peers), reference)
        return Case(family, name, self.dtype, *calls, round(moved * self.x.nbytes), self.x, read)


def reductions(data: Data) -> Iterator[Case]:
    """In float16, positive numbers are scaled so that their sum is no infinity."""
    torch = data.torch
    x = data.positive / 4096 if data.dtype == "float16" else data.positive
    peers = {"norm": torch.linalg.vector_norm}
    for name in ("sum", "mean", "amax", "norm", "var", "argmax") if data.dtype == "float32" else ("sum",):
        theirs = peers.get(name, getattr(torch, name))
        for length in (0, *FEW_ROWS):
            shaped = x.view(-1, length) if length else x
            axis, dim = ({"axis": -1}, {"dim": -1}) if length else ({}, {})
            exact, read = None, Case.read
            if name == "argmax":  # of equal elements either may be named
                exact, read = partial(torch.amax, **dim), partial(element_at, shaped, bool(length))
            what = f"{name} of rows of {length}" if length else f"{name} of all"
            ours = partial(getattr(fs, name), **axis)
            yield data.case("reduction", what, ours, partial(theirs, **dim), [shaped], 1, exact=exact, read=read)


def element_at(x: Any, rows: bool, index: Any) -> Any:
    index = index.long()
    return (x.gather(-1, index.unsqueeze(-1)).squeeze(-1) if rows else x.flatten()[index]).double()


def powers(data: Data) -> Iterator[Case]:
    torch, x = data.torch, data.positive
    for exponent in (2.5, 3, 0.5, -1):
        ours, theirs = (partial(power, pow, exponent) for pow in (fs.pow, torch.pow))
        yield data.case("pow", f"to {exponent}", ours, theirs, [x], 2, out=data.out)
    yield data.case("pow", "to a tensor", fs.pow, torch.pow, [x, data.y], 3, out=data.out)


def power(pow: Call, exponent: float, x: Any, **into: Any) -> Any:
    return pow(x, exponent, **into)


def transposed_copies(data: Data) -> Iterator[Case]:
    side = math.isqrt(data.x.numel() // 64)
    for how, shape in (("", data.x.shape), (", batched", (64, side, side))):
        x, out = data.x.view(shape), data.out.view(shape)
        turned, into = x.transpose(-1, -2), out.transpose(-1, -2)
        for name, source, target in ((f"x.t() to dense{how}", turned, out), (f"dense to x.t(){how}", x, into)):
            ours = partial(fs.copy, out=fs.from_dlpack(target))
            yield data.case("transposed", name, ours, target.copy_, [source], 2, exact=lambda source: source)


def rows(data: Data) -> Iterator[Case]:
    functional = data.torch.nn.functional
    for length in ROWS:
        x, into = data.x.view(-1, length), fs.from_dlpack(data.out.view(-1, length))
        weight, bias = data.y.flatten()[:length].clone(), data.y.flatten()[-length:].clone()
        for name, theirs, inputs in (
            ("softmax", partial(functional.softmax, dim=-1), [x]),
            ("log_softmax", partial(functional.log_softmax, dim=-1), [x]),
            ("layer_norm", partial(normalized, functional.layer_norm), [x, weight, bias]),
            ("rms_norm", partial(normalized, functional.rms_norm), [x, weight]),
        ):
            yield data.case(
                "rows", f"{name} of rows of {length}", partial(getattr(fs, name), out=into), theirs, inputs, 2
            )


def normalized(norm: Call, x: Any, *affine: Any) -> Any:
    return norm(x, x.shape[-1:], *affine, eps=1e-5)


def pointwise(data: Data) -> Iterator[Case]:
    """Every unary and binary op, and casts between float32 and bfloat16."""
    torch, out = data.torch, data.out
    family = f"pointwise, {'16 bits' if data.dtype in SIXTEEN_BITS else data.dtype}"
    for name in fs._core.ops:
        ours, theirs = getattr(fs, name), getattr(torch, name, None) or getattr(torch.nn.functional, name, None)
        count = OPERANDS.get(ours.__text_signature__)
        if theirs is None or count is None or name in NOT_POINTWISE:
            continue
        inputs = [data.positive if name in NEED_POSITIVE else data.x, data.positive if name == "div" else data.y][
            :count
        ]
        with_out = getattr(getattr(torch.ops.aten, name), "Tensor_Tensor_out" if name == "pow" else "out")
        yield data.case(family, name, ours, with_out, inputs, count + 1, out=out, exact=theirs)
    other = {"float32": "bfloat16", "bfloat16": "float32"}.get(data.dtype)
    if other is None:
        return
    target = torch.empty_like(out, dtype=getattr(torch, other))
    ours = partial(fs.cast, dtype=other, out=fs.from_dlpack(target))
    moved = 1 + target.element_size() / out.element_size()

    def exact(x: Any) -> Any:
        return x.to(target.dtype).double()

    yield data.case(family, f"cast to {other}", ours, target.copy_, [data.x], moved, exact=exact)


def cumulative_sums(data: Data) -> Iterator[Case]:
    for length in (0, *FEW_ROWS):
        x, out = (one.view(-1, length) if length else one.flatten() for one in (data.positive, data.out))
        what = f"of rows of {length}" if length else "of all"
        yield data.case("cumsum", what, fs.cumsum, partial(data.torch.cumsum, dim=-1), [x], 2, out=out)


def small_shapes(data: Data) -> Iterator[Case]:
    """Results are new tensors, as a program's mostly are."""
    torch, functional = data.torch, data.torch.nn.functional
    for count in SMALL:
        x, y = (one.flatten()[:count].view(-1, min(count, SMALL_ROW)) for one in (data.positive, data.y))
        for name, theirs, inputs in (
            ("add", torch.add, [x, y]),
            ("relu", torch.relu, [y]),
            ("sum", torch.sum, [x]),
            ("softmax", partial(functional.softmax, dim=-1), [x]),
            ("layer_norm", partial(normalized, functional.layer_norm), [x, y[0].clone(), y[-1].clone()]),
        ):
            for family in ("small, device", "small, host") if data.x.is_cuda else ("small, host",):
                yield data.case(family, f"{name} of {count >> 10} Ki", getattr(fs, name), theirs, inputs)


# By dtype, in the order of running. A dtype's tensors are made once.
CASES: dict[str, tuple[Callable[[Data], Iterator[Case]], ...]] = {
    "float32": (reductions, powers, transposed_copies, rows, pointwise, cumulative_sums, small_shapes),
    "bfloat16": (reductions, powers, transposed_copies, rows, pointwise),
    "float16": (reductions, powers, pointwise),
    "float64": (powers, transposed_copies, pointwise),
}


def cases_of(torch: Any, device: str) -> Iterator[Case]:
    for dtype, makers in CASES.items():
        data = Data(torch, device, dtype)
        for make in makers:
            yield from make(data)
