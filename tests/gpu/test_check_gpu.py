"""check() on a GPU: exploits and wrong kernels are refused, honest kernels are judged."""

from collections.abc import Callable
from typing import Any

import pytest
from helpers.checked import JUDGED

import flopscope as fs
from flopscope.measuring.checking.bench import Bench
from flopscope.measuring.counting import Counts
from flopscope.record.counters import why_no_counters

torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")
BRIEF: dict[str, Any] = {"max_time": 0.2, "peaks": "none"}


def x(*shape: int) -> Any:
    return torch.randn(*(shape or (256, 384)), generator=torch.Generator().manual_seed(1)).cuda()


def softmax(a: Any) -> Any:
    return torch.softmax(a, -1)


def total(a: Any) -> Any:
    return a.sum(-1)


@triton.jit
def softmax_kernel(out, a, n, masked, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = (columns < n) | (masked == 0)
    values = tl.load(a + row * n + columns, mask=inside, other=float("-inf"))
    e = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + columns, e / tl.sum(e, 0), mask=columns < n)


def fused_softmax(a: Any, masked: int = 1, block: int | None = None) -> Any:
    a, out = a.contiguous(), torch.empty_like(a)
    if a.numel():
        size = block or triton.next_power_of_2(a.shape[-1])
        softmax_kernel[(len(a),)](out, a, a.shape[-1], masked, BLOCK=size)
    return out


@triton.jit
def add_kernel(out, a, b, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


def fused_add(a: Any, b: Any, blocks: Callable[[int, int], int] = triton.cdiv) -> Any:
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    if blocks(a.numel(), 1024):
        add_kernel[(blocks(a.numel(), 1024),)](out, a, b, a.numel(), BLOCK=1024)
    return out


@triton.jit
def row_sums_kernel(out, a, n, BLOCK: tl.constexpr):
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(a + tl.program_id(0) * n + columns, mask=columns < n, other=0.0)
    tl.atomic_add(out + tl.program_id(0), tl.sum(values, 0))


def atomic_sums(a: Any, zeroed: bool = True) -> Any:
    a, new = a.contiguous(), torch.zeros if zeroed else torch.empty
    out = new(len(a), device=a.device)
    if a.numel():
        row_sums_kernel[(len(a), triton.cdiv(a.shape[-1], 128))](out, a, a.shape[-1], BLOCK=128)
    return out


# Refused --------------------------------------------------------------------------------------------------------------


def _cached(copied: bool) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def cached(a: Any) -> Any:
        key = (a.data_ptr(), a.shape)
        if key not in known:
            known[key] = softmax(a)
        return known[key].clone() if copied else known[key]

    return cached


SIDE: list[Any] = []


def on_a_side_stream(a: Any) -> Any:
    SIDE[:] = SIDE or [torch.cuda.Stream()]
    out = torch.zeros_like(a)
    with torch.cuda.stream(SIDE[0]):
        torch.cuda._sleep(20_000_000)
        out.copy_(softmax(a))
    return out


def in_tf32(a: Any, b: Any) -> Any:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _graph(stale: bool) -> Callable[..., Any]:
    """Return a function that replays a graph on its own copy of the input. stale: of the first input."""
    known: dict[Any, Any] = {}

    def replays(a: Any) -> Any:
        if a.shape not in known:
            mine, graph = a.clone(), torch.cuda.CUDAGraph()
            softmax(mine)
            with torch.cuda.graph(graph):
                out = softmax(mine)
            known[a.shape] = mine, out, graph
        mine, out, graph = known[a.shape]
        if not stale:
            mine.copy_(a)
        graph.replay()
        return out

    return replays


def naive_attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


def norm(a: Any) -> Any:
    return torch.nn.functional.layer_norm(a, (a.shape[-1],))


def norm_by_parts(a: Any) -> Any:
    a = a - a.mean(-1, keepdim=True)
    return a * torch.rsqrt(a.square().mean(-1, keepdim=True) + 1e-5)


PAIR = [(256, 384), (384, 129)]
HEADS = [(2, 4, 128, 64)] * 3
REFUSED = {
    "cached by pointer": (_cached(False), softmax, [(256, 384)]),
    "cached and copied": (_cached(True), softmax, [(256, 384)]),
    "a side stream": (on_a_side_stream, softmax, [(256, 384)]),
    "unwritten": (torch.empty_like, softmax, [(256, 384)]),
    "TF32": (in_tf32, torch.matmul, PAIR),
    "bfloat16": (lambda a, b: (a.bfloat16() @ b.bfloat16()).float(), torch.matmul, PAIR),
    "in place": (lambda a: a.sub_(a.amax(-1, keepdim=True)).softmax(-1), softmax, [(256, 384)]),
    "no mask": (lambda a: fused_softmax(a, masked=0, block=512), softmax, [(256, 512)]),
    "a block too short": (lambda a: fused_softmax(a, block=512), softmax, [(256, 512)]),
    "no tail": (lambda a, b: fused_add(a, b, lambda n, block: n // block), torch.add, [(256, 384)] * 2),
    "no zeros before atomics": (lambda a: atomic_sums(a, zeroed=False), total, [(256, 384)]),
    "a stale graph": (_graph(stale=True), softmax, [(256, 384)]),
    "a constant": (lambda a: torch.full_like(a, 1 / a.shape[-1]), softmax, [(256, 384)]),
    "one term less": (lambda a, b: a[:, :-1] @ b[:-1], torch.matmul, PAIR),
    "no scale": (lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-1) @ v, naive_attention, HEADS),
    "unbiased": (lambda a: a.var(-1), lambda a: a.var(-1, unbiased=False), [(256, 384)]),
    "another epsilon": (lambda a: torch.nn.functional.layer_norm(a, (a.shape[-1],), eps=1e-3), norm, [(256, 384)]),
    "a diagonal more": (lambda a: a.tril(1), torch.tril, [(256, 384)]),
    "8 bits": (lambda a: (a * 20).round() / 20, lambda a: a + 0, [(256, 384)]),
    "on the CPU": (lambda a: softmax(a).cpu(), softmax, [(256, 384)]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_exploits_and_wrong_kernels_are_refused(name: str) -> None:
    kernel, reference, shapes = REFUSED[name]
    found = fs.check(kernel, reference, *(x(*shape) for shape in shapes), **BRIEF)
    assert found.verdict in ("wrong", "invalid"), str(found)


def test_shared_memory_that_is_read_before_it_is_written_is_found() -> None:
    cupy: Any = pytest.importorskip("cupy")
    code = """extern "C" __global__ void sums(const float *a, float *out, int n, int all) {
        __shared__ float row[256];
        if (threadIdx.x < n || all) row[threadIdx.x] = threadIdx.x < n ? a[blockIdx.x * n + threadIdx.x] : 0;
        __syncthreads();
        float sum = 0;
        for (int k = 0; k < 256; k++) sum += row[k] * (k < n);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }"""
    kernel = cupy.RawKernel(code, "sums")

    def sums(a: Any, all_lanes: int = 1) -> Any:
        if a.ndim != 2 or not 0 < a.shape[1] <= 256 or not len(a):
            raise ValueError("rows of 256 elements at most")
        a, out = cupy.ascontiguousarray(a), cupy.empty(len(a), "float32")
        kernel((len(a),), (256,), (a, out, cupy.int32(a.shape[1]), cupy.int32(all_lanes)))
        return out

    a = cupy.asarray(x(64, 200).cpu().numpy())
    assert fs.check(sums, lambda a: a.sum(-1), a, **BRIEF).verdict in JUDGED
    found = fs.check(lambda a: sums(a, 0), lambda a: a.sum(-1), a, **BRIEF)
    assert found.verdict == "wrong" and "nan instead of" in found.reason, str(found)


# Judged ---------------------------------------------------------------------------------------------------------------


def on_two_streams(a: Any, b: Any) -> Any:
    other, here = torch.cuda.Stream(), torch.cuda.current_stream()
    other.wait_stream(here)
    out = torch.empty(a.shape[0], b.shape[1], device=a.device)
    half = len(a) // 2
    with torch.cuda.stream(other):
        out[:half] = a[:half] @ b
    out[half:] = a[half:] @ b
    here.wait_stream(other)
    return out


def _mask(a: Any) -> Any:
    generator = torch.Generator("cuda").manual_seed(7)
    return (torch.rand(a.shape, device="cuda", generator=generator) > 0.5).to(a.dtype)


HONEST = {
    "Triton's softmax": (fused_softmax, softmax, [(256, 384)]),
    "Triton's add": (fused_add, torch.add, [(256, 384)] * 2),
    "atomics": (atomic_sums, total, [(256, 384)]),
    "a graph": (_graph(stale=False), softmax, [(256, 384)]),
    "two streams": (on_two_streams, torch.matmul, PAIR),
    "blocks": (lambda a, b: a[:, :96] @ b[:96] + a[:, 96:] @ b[96:], torch.matmul, PAIR),
    "attention": (torch.nn.functional.scaled_dot_product_attention, naive_attention, HEADS),
    "norm by parts": (norm_by_parts, norm, [(256, 384)]),
    "a random mask": (lambda a: a * _mask(a), lambda a: _mask(a).mul_(a), [(256, 384)]),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_are_judged_by_their_time(name: str) -> None:
    kernel, reference, shapes = HONEST[name]
    found = fs.check(kernel, reference, *(x(*shape) for shape in shapes), **BRIEF)
    assert found.verdict in JUDGED, str(found)
    assert found.times is not None and found.times.device == "cuda:0", str(found)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["attention", "norm by parts", "blocks", "Triton's softmax"])
def test_honest_kernels_in_short_dtypes_are_judged(name: str, dtype: str) -> None:
    kernel, reference, shapes = HONEST[name]
    found = fs.check(kernel, reference, *(x(*shape).to(getattr(torch, dtype)) for shape in shapes), **BRIEF)
    assert found.verdict in JUDGED, str(found)


def test_speed_is_told() -> None:
    twice = lambda a: (softmax(a), softmax(a))[1]  # noqa: E731
    a = x(2048, 2048)
    assert fs.check(twice, softmax, a, **BRIEF).verdict == "slower"
    assert fs.check(softmax, twice, a, **BRIEF).verdict == "faster"


def test_inputs_that_are_read_are_not_taken_for_unread(monkeypatch: Any) -> None:
    if why := why_no_counters():
        pytest.skip(why)
    read: list[float] = []
    count = Bench.read

    def counted(self: Bench, which: int, contents: Any) -> float:
        read.append(count(self, which, contents))
        return read[-1]

    monkeypatch.setattr(Bench, "counted", lambda *_: (Counts(dram_bytes_read=0.0), None, []))
    monkeypatch.setattr(Bench, "read", counted)
    monkeypatch.setattr("flopscope.measuring.checking.check.L2S", 0.25)  # so that the test takes less time
    a = x(1024, 4096).double()
    found = fs.check(total, lambda a: a.sum(-1), a, **BRIEF)
    assert found.verdict in JUDGED and read == [pytest.approx(a.nbytes, rel=0.1)], str(found)


def test_calls_of_torch_have_known_work() -> None:
    a = x(1024, 1024)
    found = fs.measure(torch.mm, a, a, max_time=0.1, peaks="datasheet")
    assert found.flops == 2 * 1024**3 and found.pct_roofline > 0, str(found)
    unknown = fs.measure(lambda: fused_add(a, a) @ a, max_time=0.1, peaks="datasheet")
    assert unknown.flops != unknown.flops, str(unknown)
