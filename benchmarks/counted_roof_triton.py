"""Triton kernels of counted_roof.py's programs, as a user would write them; no rule knows their names."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

Calls = tuple[dict[str, Callable[[], object]], Callable[[], object]]
BF16 = torch.bfloat16


@triton.jit
def roof_add_relu(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, tl.maximum(total, 0.0), mask=inside)


@triton.jit
def roof_rms_norm(x, weight, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.load(x + at + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(row * row, 0) / columns + 1e-6)
    tl.store(out + at + column, row * scale * tl.load(weight + column, mask=inside), mask=inside)


@triton.jit
def roof_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    place = tl.program_id(0)
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = place // (GROUP * across) * GROUP
    height = tl.minimum(down - first, GROUP)
    m = first + place % (GROUP * across) % height
    n = place % (GROUP * across) // height
    row, column, inner = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN), tl.arange(0, BK)
    left = a + row[:, None] * K + inner[None, :]
    right = b + inner[:, None] * N + column[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * N
    tl.store(c + row[:, None] * N + column[None, :], total.to(tl.bfloat16))


@triton.jit
def roof_attention(q, k, v, out, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                   CAUSAL: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * length * D
    first = tl.program_id(0) * BM
    row, column, inner = first + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    query = tl.load(q + head + row[:, None] * D + inner[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weights = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    end = first + BM if CAUSAL else length
    for start in range(0, end, BN):
        key = tl.load(k + head + (start + column)[None, :] * D + inner[:, None])
        score = tl.dot(query, key) * (scale * 1.44269504)
        if CAUSAL:
            score = tl.where(row[:, None] >= (start + column)[None, :], score, -1e30)
        peak = tl.maximum(largest, tl.max(score, 1))
        share = tl.math.exp2(score - peak[:, None])
        fade = tl.math.exp2(largest - peak)
        weights = weights * fade + tl.sum(share, 1)
        value = tl.load(v + head + (start + column)[:, None] * D + inner[None, :])
        total = tl.dot(share.to(tl.bfloat16), value, total * fade[:, None])
        largest = peak
    tl.store(out + head + row[:, None] * D + inner[None, :], (total / weights[:, None]).to(tl.bfloat16))


def elementwise_and_products() -> Calls:
    torch.manual_seed(0)
    n = 1 << 26
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    rows, columns = 8192, 8192
    values, weight = (torch.randn(size, device="cuda", dtype=BF16) for size in ((rows, columns), (columns,)))
    normed = torch.empty_like(values)
    size = 4096
    a, b = (torch.randn(size, size, device="cuda", dtype=BF16) for _ in range(2))
    c = torch.empty_like(a)

    def add_relu(count: int = n) -> None:
        roof_add_relu[(triton.cdiv(count, 1024),)](x, y, out, count, BLOCK=1024)

    def rms_norm() -> None:
        roof_rms_norm[(rows,)](values, weight, normed, columns, BLOCK=8192, num_warps=8)

    def matmul(bm: int = 128, bn: int = 256, warps: int = 8) -> None:
        grid = (size // bm * (size // bn),)
        roof_matmul[grid](a, b, c, size, size, size, bm, bn, 64, 8, num_warps=warps, num_stages=3)

    add_relu()
    torch.testing.assert_close(out, (x + y).relu())
    rms_norm()
    expected = torch.nn.functional.rms_norm(values[:64].float(), (columns,), weight.float(), 1e-6)
    torch.testing.assert_close(normed[:64].float(), expected, rtol=2e-2, atol=2e-2)
    for tile in ((128, 256, 8), (64, 64, 4)):
        matmul(*tile)
        torch.testing.assert_close(c.float(), (a @ b).float(), rtol=2e-2, atol=1.0)
    return {
        "add and relu": add_relu,
        "add and relu, 2^23": lambda: add_relu(1 << 23),
        "rms norm": rms_norm,
        "matmul, tiles of 128 x 256": matmul,
        "matmul, tiles of 64 x 64": lambda: matmul(64, 64, 4),
    }, torch.cuda.synchronize


def attentions() -> Calls:
    torch.manual_seed(0)
    heads, length, width = 64, 4096, 128
    q, k, v = (torch.randn(heads, length, width, device="cuda", dtype=BF16) for _ in range(3))
    out = torch.empty_like(q)

    def attention(causal: bool) -> None:
        grid = (length // 128, heads)
        roof_attention[grid](q, k, v, out, width**-0.5, length, width, 128, 64, causal, num_warps=8, num_stages=3)

    for causal in (False, True):
        attention(causal)
        expected = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]
        torch.testing.assert_close(out.float(), expected.float(), rtol=3e-2, atol=3e-2)
    return {"whole": lambda: attention(False), "causal": lambda: attention(True)}, torch.cuda.synchronize
