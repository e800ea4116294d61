"""Triton kernels, in a file because Triton reads the source of its kernels."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def double_kernel(source, target, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + at, 2 * tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def variant_kernel(source, count, variant: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(source + at, mask=at < count)
    for _ in tl.static_range(variant + 1):
        value = tl.exp(value) - tl.sin(value)
    tl.store(source + at, value, mask=at < count)


def double(tensor: Any) -> Any:
    result = tensor.new_empty(tensor.shape)
    double_kernel[(triton.cdiv(tensor.numel(), 1024),)](tensor, result, tensor.numel(), 1024)
    return result


def compile_variant(tensor: Any, variant: int) -> None:
    """Compile a kernel and run it once."""
    variant_kernel[(triton.cdiv(tensor.numel(), 1024),)](tensor, tensor.numel(), variant, 1024)
