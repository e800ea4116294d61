"""More rows of PROGRAMS in well_made_programs.py: products, a kernel in Triton, sparse tables, programs of the CPU."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from fault_programs import BF16, DEVICE, Step, training
from torch import Tensor, nn
from well_made_programs import captured, compiled, program

import flopscope as fs

try:
    import triton
    import triton.language as tl
except ImportError:  # without a GPU
    triton = None


@program("large products in bfloat16, one after the other", {"n": 64}, {"launch": {"graph": True}}, marked=False)
def matmul(n: int = 8192, count: int = 6, graph: bool = False) -> Step:
    a, b, c = (torch.randn(n, n, device=DEVICE, dtype=BF16) / n**0.5 for _ in range(3))

    @torch.no_grad()
    def step() -> None:
        for _ in range(count // 2):
            torch.mm(a, b, out=c)
            torch.mm(b, a, out=c)

    return captured(step) if graph else step


def add_norm(x, r, weight, y, columns, BLOCK: tl.constexpr) -> None:
    """Store the RMS norm of a row of x + r, times a weight, in y: a kernel in Triton."""
    at = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.load(x + at + column, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(r + at + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, 0) / columns + 1e-6)
    tl.store(y + at + column, total * scale * tl.load(weight + column, mask=inside, other=0.0), mask=inside)


@program(
    "a kernel in Triton: addition and RMS norm of large rows",
    {"rows": 4, "columns": 48},
    {"launch": {"graph": True}},
    marked=False,
)
def triton_kernel(rows: int = 1 << 17, columns: int = 8192, count: int = 4, graph: bool = False) -> Step:
    x, r = (torch.randn(rows, columns, device=DEVICE, dtype=BF16) for _ in range(2))
    weight, y = torch.randn(columns, device=DEVICE, dtype=BF16), torch.empty_like(x)

    def in_torch(part: slice) -> Tensor:
        return F.rms_norm(x[part] + r[part].float(), (columns,), weight.float(), 1e-6).to(BF16)

    if DEVICE == "cpu":
        return lambda: y.copy_(in_torch(slice(None)))
    kernel, block = triton.jit(add_norm), 1 << (columns - 1).bit_length()

    def step() -> None:
        for _ in range(count):
            kernel[(rows,)](x, r, weight, y, columns, BLOCK=block, num_warps=8)

    step()
    torch.testing.assert_close(y[-100:], in_torch(slice(-100, None)))
    return captured(step) if graph else step


class Ranking(nn.Module):
    """The dense part of a recommender: products of all pairs of vectors, and a perceptron."""

    def __init__(self, tables: int, width: int, hidden: int) -> None:
        super().__init__()
        pairs = (tables + 1) * tables // 2
        self.bottom = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, width))
        layers = [nn.Linear(width + pairs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
        self.top = nn.Sequential(*layers, nn.Linear(hidden, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        vectors = torch.cat([x[:, None], sparse], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1)).squeeze(1)


@program(
    "training of a recommender: all tables in one embedding bag with sparse gradients, a large batch, fused SGD",
    {"rows": 100, "tables": 3, "width": 8, "hidden": 16, "batch": 4},
    {"launch": {"mode": "reduce-overhead"}},
)
def recommender(
    rows: int = 500_000,
    tables: int = 15,
    width: int = 128,
    hidden: int = 1024,
    batch: int = 32768,
    bag: int = 4,
    mode: str = "default",
) -> Step:
    with torch.device(DEVICE):
        embedding = nn.EmbeddingBag(rows * tables, width, mode="sum", sparse=True)
        model = Ranking(tables, width, hidden)
        first = rows * torch.arange(tables)[:, None]  # of each table
        ids = (torch.randint(0, rows, (batch, tables, bag)) + first).flatten(0, 1)
        dense, clicks = torch.randn(batch, 64), torch.randint(0, 2, (batch,)).float()

    def loss(vectors: Tensor) -> Tensor:
        with torch.autocast(DEVICE, dtype=BF16):
            scores = model(dense, vectors)
        return F.binary_cross_entropy_with_logits(scores.float(), clicks)

    compiled_loss = compiled(loss, mode)
    of_rows = torch.optim.SGD(embedding.parameters(), lr=0.01)
    of_layers = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    train = training(of_layers, lambda: compiled_loss(embedding(ids).unflatten(0, (batch, tables))))

    def step() -> None:
        train()
        of_rows.step()
        of_rows.zero_grad()

    return step


# Programs of the CPU --------------------------------------------------------------------------------------------------


@program(
    "inference of a perceptron on the CPU: large products, compiled",
    {"rows": 8, "width": 32, "backend": "aot_eager"},
    {"low_precision": {"dtype": BF16}},
    device="cpu",
)
def cpu_products(
    rows: int = 4096,
    width: int = 4096,
    depth: int = 3,
    dtype: torch.dtype = torch.float32,
    backend: str = "inductor",
) -> Step:
    model = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU()))).to(dtype)
    function, x = torch.compile(model.eval(), backend=backend, fullgraph=True), torch.randn(rows, width, dtype=dtype)

    @torch.no_grad()
    def step() -> Tensor:
        return function(x)

    return step


@program(
    "power iteration of NumPy on the CPU, with stated work",
    {"n": 64},
    {},
    device="cpu",
    tools="flopscope",
)
def numpy_products(n: int = 4096, columns: int = 512, iterations: int = 4) -> Step:
    random = np.random.default_rng(0)
    a, x = (random.standard_normal(shape, dtype=np.float32) for shape in ((n, n), (n, columns)))
    y = np.empty_like(x)
    scale = np.float32(1 / n)

    def step() -> None:
        nonlocal x, y
        for _ in range(iterations):
            with fs.record_function("product", flops=2 * n * n * columns, bytes=a.nbytes + 2 * x.nbytes):
                np.matmul(a, x, out=y)
            with fs.record_function("scale", flops=y.size, bytes=2 * y.nbytes):
                np.multiply(y, scale, out=y)
            x, y = y, x

    return step
