"""FLOPs and bytes of every op of flopscope, compared with values computed by hand from the convention.

A pointwise op is 1 FLOP per output element, a reduction 1 per input element, a matrix product 2 m n k, and an op that
only moves data 0. Bytes are compulsory: each distinct input element read once, each output element written once.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.ops_layouts import distinct_bytes
from helpers.ops_reference import BINARY, UNARY
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs

FLOATS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
SIZES = {**FLOATS, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}

Counted = tuple[float, float, float]


def counted(call: Callable[[], object], name: str) -> Counted:
    """Return the FLOPs, bytes read and bytes written of the only op that the call runs."""
    with fs.profile() as prof:
        call()
    table = prof.key_averages(peaks="none")
    assert [(row.key, row.count) for row in table] == [(f"flopscope::{name}", 1)]
    row = table[0]
    assert row.bytes_total_moved == row.bytes_read + row.bytes_written and row.flops_total == row.flops
    return row.flops, row.bytes_read, row.bytes_written


def make(*shape: int, dtype: str = "float32") -> fs.Tensor:
    return fs.ones(shape, dtype=dtype, device="cpu")


def run(name: str, *args: Any, **keywords: Any) -> Counted:
    return counted(lambda: getattr(fs, name)(*args, **keywords), name)


# Every op, once, by hand ----------------------------------------------------------------------------------------------

x, y = make(4, 6), make(4, 6)  # 24 elements, 96 bytes
row = make(6)  # 24 bytes
square = make(8, 8)  # 64 elements, 256 bytes
a, b = make(3, 5), make(5, 7)  # 60 and 140 bytes; the product has 21 elements, 84 bytes
whole = make(4, 6)
none, one = make(0, 5), fs.ones((), device="cpu")
windows = fs.from_numpy(np.lib.stride_tricks.sliding_window_view(np.ones(10, np.float32), 3))
halves = np.ones((8, 6), np.float32)

cube = make(2, 3, 4, dtype="float64")


def products(first: tuple[int, ...], second: tuple[int, ...], times: int) -> list[tuple[str, tuple[Any, ...], Counted]]:
    factors, sides = (make(*first), make(*second)), (first[-2], second[-1], first[-1])
    flops, read, written = 2 * math.prod(sides) * times, 4 * math.prod(first) + 4 * math.prod(second), 4 * times
    written *= sides[0] * sides[1]
    bias = make(sides[1])
    return [
        ("matmul", factors, (flops, read, written)),
        ("addmm", (bias, *factors), (flops, read + 4 * sides[1], written)),
    ]


BY_HAND: list[tuple[str, tuple[Any, ...], Counted]] = [
    *((name, (x,), (24, 96, 96)) for name in UNARY),
    *((f"{name}_", (make(4, 6),), (24, 96, 96)) for name in UNARY),
    *((name, (x, y), (24, 192, 96)) for name in BINARY),
    *((f"{name}_", (make(4, 6), y), (24, 192, 96)) for name in BINARY),
    ("sum", (x,), (24, 96, 4)),
    ("mean", (x,), (24, 96, 4)),
    ("amax", (x, -1), (24, 96, 16)),
    ("amin", (x, 1, True), (24, 96, 16)),
    ("norm", (x,), (2 * 24, 96, 4)),
    ("var", (x, -1), (4 * 24, 96, 16)),
    ("argmax", (x, -1), (0, 96, 32)),  # int64
    ("cumsum", (x,), (24, 96, 96)),
    ("softmax", (x,), (5 * 24, 96, 96)),
    ("log_softmax", (x,), (5 * 24, 96, 96)),
    ("layer_norm", (x, row, make(6)), (7 * 24, 96 + 24 + 24, 96)),
    ("layer_norm", (x, row), (6 * 24, 96 + 24, 96)),
    ("layer_norm", (x, None, make(6)), (6 * 24, 96 + 24, 96)),
    ("layer_norm", (x,), (5 * 24, 96, 96)),
    ("rms_norm", (x, row), (4 * 24, 96 + 24, 96)),
    ("rms_norm", (x,), (3 * 24, 96, 96)),
    *((name, (cube, -1, True), (24 * each, 192, 8 * 6)) for name, each in (
        ("sum", 1), ("mean", 1), ("amax", 1), ("amin", 1), ("norm", 2), ("var", 4), ("argmax", 0))),
    ("matmul", (a, b), (2 * 3 * 7 * 5, 60 + 140, 84)),
    ("addmm", (make(7), a, b), (2 * 3 * 7 * 5, 28 + 60 + 140, 84)),
    # batches are multiplied out: 2 m n k for each
    *(row for first, second, times in (
        ((1, 1), (1, 1), 1), ((2, 3, 5), (2, 5, 7), 2), ((4, 2, 3, 5), (5, 7), 8), ((3, 5), (4, 5, 7), 4),
        ((4, 1, 3, 5), (2, 5, 7), 8), ((2, 1, 3, 5), (1, 3, 5, 7), 6),
    ) for row in products(first, second, times)),
    ("copy", (x,), (0, 96, 96)),
    ("cast", (x, "float16"), (0, 96, 48)),
    ("transpose_copy", (x,), (0, 96, 96)),
    ("copy_", (make(4, 6), row), (0, 24, 96)),
    ("zeros", ((4, 6),), (0, 0, 96)),
    ("ones", ((24,),), (0, 0, 96)),
    ("full", ((4, 6), 2.5), (0, 0, 96)),
    ("fill_", (make(4, 6), 1), (0, 0, 96)),
    ("rand", ((4, 6),), (0, 0, 96)),
    ("randn", ((4, 6),), (0, 0, 96)),
    ("uniform_", (make(4, 6), 0, 1), (0, 0, 96)),
    ("normal_", (make(4, 6), 0, 1), (0, 0, 96)),
    # an operand that is there twice is read once, also as another tensor over its memory; other parts are others
    ("add", (x, fs.from_numpy(np.asarray(x))), (24, 96, 96)),
    ("add", (square, square.T), (64, 256, 256)),
    ("add", (fs.from_numpy(halves[:4]), fs.from_numpy(halves[4:])), (24, 192, 96)),
    ("matmul", (square, square), (2 * 8**3, 256, 256)),
    ("matmul", (a, a.T), (2 * 3 * 3 * 5, 60, 36)),
    ("addmm", (square, square, square), (2 * 8**3, 256, 256)),
    ("addmm", (row, make(6, 4), x), (2 * 6 * 6 * 4, 24 + 96 + 96, 144)),
    ("layer_norm", (x, row, row), (168, 96 + 24, 96)),
    ("mul_", (whole, whole), (24, 96, 96)),
    ("copy_", (whole, whole), (0, 96, 96)),
    # numbers of the host move no bytes; a tensor of one element is memory
    *((name, pair, (24, 96, 96)) for name in BINARY for pair in ((x, 2.0), (2, x))),
    ("add_", (make(4, 6), 2.0), (24, 96, 96)),
    ("add", (x, np.float64(1)), (24, 96, 96)),
    ("add", (x, one), (24, 96 + 4, 96)),
    # windows that overlap count once
    ("sum", (windows, -1), (24, 10 * 4, 8 * 4)),
    ("transpose_copy", (make(2, 3, 4).T,), (0, 96, 96)),
    # empty tensors do nothing, but a sum of none is a zero that is written; no dimensions are one element
    *((name, (none,), (0, 0, 0)) for name in ("sin", "softmax", "copy")),
    ("add", (none, none), (0, 0, 0)),
    ("sum", (none,), (0, 0, 4)),
    ("sum", (make(3, 0), -1), (0, 0, 12)),
    ("matmul", (make(5, 0), make(0, 3)), (0, 0, 60)),
    ("matmul", (make(0, 4), make(4, 3)), (0, 48, 0)),
    ("zeros", ((0,),), (0, 0, 0)),
    ("sin", (one,), (1, 4, 4)),
    ("sum", (one,), (1, 4, 4)),
    ("zeros", ((),), (0, 0, 4)),
    ("sin", (fs.from_numpy(np.broadcast_to(np.float32(1), (1 << 20, 1 << 20, 1 << 20))[:0]),), (0, 0, 0)),
]  # fmt: skip


def test_every_op_has_values_by_hand() -> None:
    assert {name for name, *_ in BY_HAND} == set(fs._core.ops)


@pytest.mark.parametrize(("name", "arguments", "wanted"), BY_HAND)
def test_work_of_every_op(name: str, arguments: tuple[Any, ...], wanted: Counted) -> None:
    assert run(name, *arguments) == wanted


@pytest.mark.parametrize("dtype", SIZES)
def test_only_bytes_depend_on_the_dtype(dtype: str) -> None:
    size = SIZES[dtype]
    v = make(3, 5, dtype=dtype)
    for target, wide in SIZES.items():
        assert run("cast", v, target) == run("cast", v.T, target) == (0, 15 * size, 15 * wide)
        assert run("copy_", make(2, 3, 5, dtype=target), v) == (0, 15 * size, 30 * wide)
        if dtype != target:
            assert counted(lambda to=target: v.to(to), "cast") == (0, 15 * size, 15 * wide)  # type: ignore[misc]
    if dtype in FLOATS:
        v, w = make(4, 6, dtype=dtype), make(6, dtype=dtype)
        assert run("sin", v) == (24, 24 * size, 24 * size) and run("add", v, w) == (24, 30 * size, 24 * size)
        assert run("mean", v, -1) == (24, 24 * size, 4 * size) and run("softmax", v) == (120, 24 * size, 24 * size)
        assert run("layer_norm", v, w) == (144, 30 * size, 24 * size)
        for options in ({}, {"allow_tf32": True}):
            assert run("matmul", v, v.T, **options) == (2 * 4 * 4 * 6, 24 * size, 16 * size)
        assert run("rand", (10,), dtype=dtype) == (0, 0, 10 * size)
        for name, theirs, arguments in (
            ("norm", "linalg_vector_norm", [2, [-1], False, None]),
            ("var", "var", [[-1], 1, False]),
            ("argmax", "argmax", [-1, False]),
            ("cumsum", "cumsum", [-1, None]),
        ):  # the work of torch's op of that name
            work = fs.work(f"aten::{theirs}", [(4, 6)], dtype, [None, *arguments])
            assert run(name, v, -1) == (work.flops, work.bytes_read, work.bytes_written)


def test_out_is_read_only_if_it_is_an_input() -> None:
    out = make(4, 6)
    for name, arguments, into, wanted in (
        ("sin", (x,), out, (24, 96, 96)),
        ("sin", (out,), out, (24, 96, 96)),
        ("add", (x, y), out, (24, 192, 96)),
        ("add", (out, y), out, (24, 192, 96)),
        ("matmul", (square, square), square, (1024, 256, 256)),
        ("sum", (x, -1), make(4), (24, 96, 16)),
        ("zeros", ((4, 6),), out, (0, 0, 96)),
        ("softmax", (x.T,), out.T, (120, 96, 96)),
        ("exp", (x,), fs.from_numpy(np.ones((10, 12), np.float32)[:8:2, :6]), (24, 96, 96)),
    ):
        assert run(name, *arguments, out=into) == wanted, name


def test_work_adds_up_over_calls_and_ranges_and_a_failed_call_has_none() -> None:
    with fs.profile() as prof, fs.record_function("outer"):
        for size in (10, 20, 30):
            fs.sin(make(size))
        fs.matmul(a, b)
        for name, arguments in (("add", (x, a)), ("matmul", (x, x)), ("cos", ("x",)), ("full", ((-1,), 1))):
            with pytest.raises((ValueError, TypeError)):
                getattr(fs, name)(*arguments)
    rows = {r.key: r for r in prof.key_averages(peaks="none")}
    assert rows["flopscope::sin"].flops == 60 and rows["flopscope::sin"].bytes_total_moved == 2 * 4 * 60
    assert rows["flopscope::sin"].arithmetic_intensity == 60 / 480 and rows["outer"].flops_total == 60 + 210
    assert rows["flopscope::ones"].flops == 0 and rows["flopscope::matmul"].flops == 210
    for key in rows.keys() - {"flopscope::sin", "flopscope::ones", "flopscope::matmul"}:
        assert not rows[key].flops > 0 and not rows[key].bytes_written > 0, key
    with fs.profile() as prof:
        for _ in range(1000):
            fs.matmul(square, square)
    only = prof.key_averages(peaks="none")[0]
    assert only.flops == 1_024_000 and only.bytes_total_moved == 512_000


# Any shape, any view --------------------------------------------------------------------------------------------------


sides = st.lists(st.integers(1, 4), min_size=0, max_size=4)


@st.composite
def views(draw: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Draw an array of this shape over its own memory: axes broadcast, reversed, stepped, or reordered."""
    order = draw(st.permutations(range(len(shape))))
    repeated = [draw(st.booleans()) and draw(st.booleans()) for _ in shape]
    steps = [draw(st.sampled_from((1, 1, 2, -1, -3))) for _ in shape]
    sizes = [1 if repeated[d] else shape[d] * abs(steps[d]) for d in order]
    base = np.ones(sizes, dtype).transpose(np.argsort(order).tolist() if sizes else [])
    for d, step in enumerate(steps):
        cut = (slice(None),) * d + (slice(None) if repeated[d] else slice(None, None, step),)
        base = base[cut]
    return np.broadcast_to(base, shape)


@st.composite
def operands(draw: Any) -> list[np.ndarray[Any, Any]]:
    """Draw two arrays that broadcast."""
    shape, arrays = draw(sides), []
    dtype = draw(st.sampled_from(("float64", "float32", "float16")))
    for _ in range(2):
        own = [1 if draw(st.integers(0, 3)) == 0 else n for n in shape]
        own = own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :]
        arrays.append(draw(views(tuple(own), dtype)))
    return arrays


@settings(max_examples=60)
@given(operands(), st.sampled_from([*BINARY]))
def test_ops_move_the_distinct_elements_of_their_operands(arrays: list[Any], name: str) -> None:
    array, item = arrays[0], arrays[0].itemsize
    elements = math.prod(np.broadcast_shapes(*(each.shape for each in arrays)))
    assert run(name, *map(fs.from_numpy, arrays)) == (elements, distinct_bytes(*arrays), elements * item)
    v, read, size = fs.from_numpy(array), distinct_bytes(array), array.size
    assert run("sin", v) == run("add", v, v) == run("mul", v, v.T.T) == (size, read, size * item)
    assert run("sum", v) == (size, read, item) and run("copy", v) == (0, read, size * item)
    assert run("cast", v, "int8") == (0, read, size)
    if array.ndim:
        assert run("softmax", v) == (5 * size, read, size * item)
        assert run("amax", v, -1) == (size, read, size // array.shape[-1] * item)


@settings(max_examples=30)
@given(sides.filter(lambda s: len(s) < 3), st.tuples(*[st.integers(1, 5)] * 3), st.data())
def test_products_move_the_distinct_elements_of_their_factors(batch: list[int], sizes: Any, data: Any) -> None:
    m, n, k = sizes
    own = [[1 if data.draw(st.booleans()) else size for size in batch] for _ in range(2)]
    first = data.draw(views((*own[0], m, k), "float32"))
    second = data.draw(views((*own[1], k, n), "float32"))
    out = math.prod(np.broadcast_shapes(own[0], own[1])) * m * n
    result = run("matmul", fs.from_numpy(first), fs.from_numpy(second))
    assert result == (2 * out * k, distinct_bytes(first, second), 4 * out)
