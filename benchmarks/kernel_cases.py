"""The cases of the benchmark of kernels: ops of every kind in both libraries, with the result in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pointwise import Data, pointwise_cases

import flopscope as fs

SIDE = {"cpu": 512, "cuda": 8192}
ROWS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
REDUCED_ROWS = (128, 1024, 8192, 65536)
SCANNED_ROWS = (128, 1024, 8192, 65536)
SMALL = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
SMALL_ROW = 1024
PRODUCT_SIDES = {"cpu": (64,), "cuda": (4096, 8192)}

Call = Callable[..., Any]


class Missing(Exception):
    """This version of flopscope lacks the op, or supports no such dtype."""


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
    read: Callable[[Any], Any] = lambda result: result.double()

    @property
    def label(self) -> str:
        return f"{self.family} {self.name} {self.dtype}"


def reductions(data: Data) -> Iterator[Case]:
    """In float16, positive numbers are scaled so that their sum is no infinity."""
    torch = data.torch
    x = data.positive / 4096 if data.dtype == "float16" else data.positive
    peers = {"norm": torch.linalg.vector_norm}
    for name in ("sum", "mean", "amax", "norm", "var", "argmax") if data.dtype == "float32" else ("sum",):
        mine, theirs = op(name), peers.get(name, getattr(torch, name))
        for length in (0, *REDUCED_ROWS):
            shaped = x.view(-1, length) if length else x
            axis, dim = ({"axis": -1}, {"dim": -1}) if length else ({}, {})
            exact, read = partial(theirs, **dim), Case.read
            if name == "argmax":  # of equal elements either may be named
                exact, read = partial(torch.amax, **dim), partial(element_at, shaped, bool(length))
            yield Case(
                "reduction",
                f"{name} of rows of {length}" if length else f"{name} of all",
                data.dtype,
                partial(mine, fs.from_dlpack(shaped), **axis),
                partial(theirs, shaped, **dim),
                lambda exact=exact, shaped=shaped: exact(shaped.double()),
                x.nbytes,
                x,
                read,
            )


def op(name: str) -> Call:
    """Return the op, or a function that raises Missing."""

    def missing(*args: object, **options: object) -> None:
        raise Missing(f"fs.{name} does not exist")

    return getattr(fs, name, missing)


def element_at(x: Any, rows: bool, index: Any) -> Any:
    index = index.long()
    return (x.gather(-1, index.unsqueeze(-1)).squeeze(-1) if rows else x.flatten()[index]).double()


def powers(data: Data) -> Iterator[Case]:
    x, out = data.positive, data.out
    for exponent in (2.5, 3, 0.5, -1):
        yield Case(
            "pow",
            f"to {exponent}",
            data.dtype,
            partial(fs.pow, data.fs_positive, exponent, out=data.fs_out),
            partial(data.torch.pow, x, exponent, out=out),
            lambda exponent=exponent: x.double().pow(exponent),
            2 * x.nbytes,
            x,
        )
    yield Case(
        "pow",
        "to a tensor",
        data.dtype,
        partial(fs.pow, data.fs_positive, data.fs_y, out=data.fs_out),
        partial(data.torch.pow, x, data.y, out=out),
        lambda: x.double().pow(data.y.double()),
        3 * x.nbytes,
        x,
    )


def transposed_copies(data: Data) -> Iterator[Case]:
    side = math.isqrt(data.x.numel() // 64)
    for how, shape in (("", data.x.shape), (", batched", (64, side, side))):
        x, out = data.x.view(shape), data.out.view(shape)
        turned, into = x.transpose(-1, -2), out.transpose(-1, -2)
        for name, source, target in ((f"x.t() to dense{how}", turned, out), (f"dense to x.t(){how}", x, into)):
            yield Case(
                "transposed",
                name,
                data.dtype,
                partial(fs.copy, fs.from_dlpack(source), out=fs.from_dlpack(target)),
                partial(target.copy_, source),
                source.double,
                2 * x.nbytes,
                x,
            )


def rows(data: Data) -> Iterator[Case]:
    functional = data.torch.nn.functional
    for length in ROWS:
        x, out = data.x.view(-1, length), data.out.view(-1, length)
        weight, bias = data.y.flatten()[:length].clone(), data.y.flatten()[-length:].clone()
        ours = [fs.from_dlpack(one) for one in (x, weight, bias)]
        into = fs.from_dlpack(out)
        calls: dict[str, tuple[Call, Callable[..., Any], list[Any]]] = {
            "softmax": (partial(fs.softmax, ours[0], out=into), partial(functional.softmax, dim=-1), [x]),
            "log_softmax": (partial(fs.log_softmax, ours[0], out=into), partial(functional.log_softmax, dim=-1), [x]),
            "layer_norm": (
                partial(fs.layer_norm, *ours, out=into),
                lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5),
                [x, weight, bias],
            ),
            "rms_norm": (
                partial(fs.rms_norm, *ours[:2], out=into),
                lambda x, weight: functional.rms_norm(x, x.shape[-1:], weight, 1e-5),
                [x, weight],
            ),
        }
        for name, (mine, theirs, inputs) in calls.items():
            yield Case(
                "rows",
                f"{name} of rows of {length}",
                data.dtype,
                mine,
                partial(theirs, *inputs),
                lambda theirs=theirs, inputs=inputs: theirs(*[one.double() for one in inputs]),
                2 * x.nbytes,
                x,
            )


def pointwise_ops(data: Data) -> Iterator[Case]:
    family = f"pointwise, {'float64' if data.dtype == 'float64' else '16 bits'}"
    for case in pointwise_cases(data):
        if case.form == "out=":
            yield Case(family, case.name, data.dtype, case.ours, case.theirs, case.reference, case.nbytes, data.x)


def cumulative_sums(data: Data) -> Iterator[Case]:
    x = data.positive
    for length in (0, *SCANNED_ROWS):
        shaped, out = (one.view(-1, length) if length else one.flatten() for one in (x, data.out))
        yield Case(
            "cumsum",
            f"of rows of {length}" if length else "of all",
            data.dtype,
            partial(op("cumsum"), fs.from_dlpack(shaped), out=fs.from_dlpack(out)),
            partial(data.torch.cumsum, shaped, -1, out=out),
            lambda shaped=shaped: shaped.double().cumsum(-1),
            2 * x.nbytes,
            x,
        )


def small_shapes(data: Data) -> Iterator[Case]:
    """Results are new tensors, as a program's mostly are."""
    torch, functional = data.torch, data.torch.nn.functional
    for count in SMALL:
        if count > data.x.numel():
            return
        length = min(count, SMALL_ROW)
        x, y = (one.flatten()[:count].view(-1, length) for one in (data.positive, data.y))
        weight, bias = y[0].clone(), y[-1].clone()
        ours_x, ours_y, *affine = (fs.from_dlpack(one) for one in (x, y, weight, bias))
        norm = partial(functional.layer_norm, normalized_shape=(length,))
        calls: dict[str, tuple[Call, Call, Call]] = {
            "add": (
                partial(fs.add, ours_x, ours_y),
                partial(torch.add, x, y),
                lambda x=x, y=y: x.double() + y.double(),
            ),
            "relu": (partial(fs.relu, ours_y), partial(torch.relu, y), lambda y=y: y.double().relu()),
            "sum": (partial(fs.sum, ours_x), partial(torch.sum, x), lambda x=x: x.double().sum()),
            "softmax": (
                partial(fs.softmax, ours_x),
                partial(torch.softmax, x, -1),
                lambda x=x: torch.softmax(x.double(), -1),
            ),
            "layer_norm": (
                partial(fs.layer_norm, ours_x, *affine),
                partial(norm, x, weight=weight, bias=bias),
                lambda norm=norm, x=x, w=weight, b=bias: norm(x.double(), weight=w.double(), bias=b.double()),
            ),
        }
        for name, calls_and_reference in calls.items():
            for family in ("small, device", "small, host") if data.x.is_cuda else ("small, host",):
                yield Case(family, f"{name} of {count >> 10} Ki", data.dtype, *calls_and_reference, 0, x)


def products(torch: Any, device: str) -> Iterator[Case]:
    """Of 8 bits. torch's are cuBLASLt's, whose second matrix may be stored by rows or, of float8 too, by columns."""
    generator = torch.Generator(device=device).manual_seed(0)
    one = torch.ones((), device=device)
    scaled = partial(torch._scaled_mm, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    kinds = {"int8": (torch._int_mm, (False, True)), "float8_e4m3fn": (scaled, (True,))}
    for side in PRODUCT_SIDES[device]:
        for dtype, (theirs, columns) in kinds.items() if device == "cuda" else [("int8", kinds["int8"])]:
            numbers = (torch.randn(side, side, device=device, generator=generator) * 32 for _ in range(2))
            a, b = (each.clamp(-128, 127).to(getattr(torch, dtype)) for each in numbers)
            for by_columns in columns:
                second = b.t().contiguous().t() if by_columns else b
                yield Case(
                    "product",
                    f"{side} by {'columns' if by_columns else 'rows'}",
                    dtype,
                    partial(product, shared(a), shared(second)),
                    partial(theirs, a, second),
                    lambda a=a, b=b: a[:64].double() @ b.double(),
                    0,
                    a,
                    lambda result: result[:64].double(),
                )


def shared(x: Any) -> Any:
    """Return a tensor as flopscope's, or why that is impossible."""
    try:
        return fs.from_dlpack(x)
    except (TypeError, BufferError) as problem:
        return problem


def product(*factors: Any) -> Any:
    for factor in factors:
        if isinstance(factor, Exception):
            raise Missing(str(factor))
    try:
        return fs.matmul(*factors)
    except TypeError as problem:
        raise Missing(f"fs.matmul: {problem}") from None


# By dtype, in the order of running. A dtype's tensors are made once.
CASES: dict[str, tuple[Callable[[Data], Iterator[Case]], ...]] = {
    "float32": (reductions, powers, transposed_copies, rows, cumulative_sums, small_shapes),
    "bfloat16": (reductions, powers, transposed_copies, rows, pointwise_ops),
    "float16": (reductions, powers, pointwise_ops),
    "float64": (powers, transposed_copies, pointwise_ops),
}


def cases_of(torch: Any, device: str) -> Iterator[Case]:
    for dtype, makers in CASES.items():
        data = Data(torch, SIDE[device], dtype, device)
        for make in makers:
            yield from make(data)
    yield from products(torch, device)
