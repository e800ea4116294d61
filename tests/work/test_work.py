"""FLOPs and bytes of every op, compared with values computed by hand from the convention.

A pointwise op is 1 FLOP per output element, a reduction 1 per input element, a matrix product 2 m n k, and an op that
only moves data 0. Bytes are compulsory: each distinct input element read once, each output element written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs

UNARY = [
    "neg", "abs", "sqrt", "rsqrt", "reciprocal", "square", "exp", "log", "log2", "log10", "sin", "cos", "tanh", "erf",
    "sigmoid", "relu", "gelu", "silu",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "pow", "maximum", "minimum"]
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

BY_HAND: dict[str, tuple[tuple[Any, ...], Counted]] = {
    **{name: ((x,), (24, 96, 96)) for name in UNARY},
    **{f"{name}_": ((make(4, 6),), (24, 96, 96)) for name in UNARY},
    **{name: ((x, y), (24, 192, 96)) for name in BINARY},
    **{f"{name}_": ((make(4, 6), y), (24, 192, 96)) for name in BINARY},
    "sum": ((x,), (24, 96, 4)),
    "mean": ((x,), (24, 96, 4)),
    "amax": ((x, -1), (24, 96, 16)),
    "amin": ((x, 1, True), (24, 96, 16)),
    "norm": ((x,), (2 * 24, 96, 4)),
    "var": ((x, -1), (4 * 24, 96, 16)),
    "argmax": ((x, -1), (0, 96, 32)),  # int64
    "cumsum": ((x,), (24, 96, 96)),
    "softmax": ((x,), (5 * 24, 96, 96)),
    "log_softmax": ((x,), (5 * 24, 96, 96)),
    "layer_norm": ((x, row, make(6)), (7 * 24, 96 + 24 + 24, 96)),
    "rms_norm": ((x, row), (4 * 24, 96 + 24, 96)),
    "matmul": ((a, b), (2 * 3 * 7 * 5, 60 + 140, 84)),
    "addmm": ((make(7), a, b), (2 * 3 * 7 * 5, 28 + 60 + 140, 84)),
    "copy": ((x,), (0, 96, 96)),
    "cast": ((x, "float16"), (0, 96, 48)),
    "transpose_copy": ((x,), (0, 96, 96)),
    "copy_": ((make(4, 6), row), (0, 24, 96)),
    "zeros": (((4, 6),), (0, 0, 96)),
    "ones": ((24,), (0, 0, 96)),
    "full": (((4, 6), 2.5), (0, 0, 96)),
    "fill_": ((make(4, 6), 1), (0, 0, 96)),
    "rand": (((4, 6),), (0, 0, 96)),
    "randn": (((4, 6),), (0, 0, 96)),
    "uniform_": ((make(4, 6), 0, 1), (0, 0, 96)),
    "normal_": ((make(4, 6), 0, 1), (0, 0, 96)),
}


def test_every_op_has_values_by_hand() -> None:
    assert set(BY_HAND) == set(fs._core.ops)


@pytest.mark.parametrize("name", BY_HAND)
def test_work_of_every_op(name: str) -> None:
    arguments, want = BY_HAND[name]
    assert run(name, *arguments) == want


@pytest.mark.parametrize("dtype", FLOATS)
def test_only_bytes_depend_on_the_dtype(dtype: str) -> None:
    size = FLOATS[dtype]
    v, w = make(4, 6, dtype=dtype), make(6, dtype=dtype)
    assert run("sin", v) == (24, 24 * size, 24 * size)
    assert run("add", v, w) == (24, 30 * size, 24 * size)
    assert run("mean", v, -1) == (24, 24 * size, 4 * size)
    assert run("softmax", v) == (120, 24 * size, 24 * size)
    assert run("layer_norm", v, w) == (144, 30 * size, 24 * size)
    assert run("matmul", v, v.T) == (2 * 4 * 4 * 6, 24 * size, 16 * size)
    assert run("rand", (10,), dtype=dtype) == (0, 0, 10 * size)


@pytest.mark.parametrize("source", SIZES)
@pytest.mark.parametrize("target", SIZES)
def test_a_cast_reads_one_size_and_writes_the_other(source: str, target: str) -> None:
    v = make(3, 5, dtype=source)
    assert run("cast", v, target) == (0, 15 * SIZES[source], 15 * SIZES[target])
    assert run("cast", v.T, target) == (0, 15 * SIZES[source], 15 * SIZES[target])
    assert run("copy_", make(2, 3, 5, dtype=target), v) == (0, 15 * SIZES[source], 30 * SIZES[target])
    if source != target:
        assert counted(lambda: v.to(target), "cast") == (0, 15 * SIZES[source], 15 * SIZES[target])


# Shared memory and broadcasting ---------------------------------------------------------------------------------------


def test_a_repeated_operand_is_read_once() -> None:
    assert run("add", x, x) == (24, 96, 96)
    assert run("add", square, square.T) == (64, 256, 256)
    assert run("matmul", square, square) == (2 * 8**3, 256, 256)
    assert run("matmul", a, a.T) == (2 * 3 * 3 * 5, 60, 36)
    assert run("addmm", square, square, square) == (2 * 8**3, 256, 256)
    assert run("addmm", row, make(6, 4), x) == (2 * 6 * 6 * 4, 24 + 96 + 96, 144)
    assert run("layer_norm", x, row, row) == (168, 96 + 24, 96)
    target = make(4, 6)
    assert run("mul_", target, target) == (24, 96, 96)
    assert run("copy_", target, target) == (0, 96, 96)
    other = fs.from_numpy(np.asarray(x))  # another tensor over the same memory
    assert run("add", x, other) == (24, 96, 96)


def test_different_parts_of_an_array_are_counted_separately() -> None:
    base = np.ones((8, 6), np.float32)
    top, bottom = fs.from_numpy(base[:4]), fs.from_numpy(base[4:])
    assert run("add", top, bottom) == (24, 192, 96)


def test_out_is_read_only_if_it_is_an_input() -> None:
    out = make(4, 6)
    assert run("sin", x, out=out) == (24, 96, 96)
    assert run("sin", out, out=out) == (24, 96, 96)
    assert run("add", x, y, out=out) == (24, 192, 96)
    assert run("add", out, y, out=out) == (24, 192, 96)
    assert run("matmul", square, square, out=square) == (1024, 256, 256)
    assert run("sum", x, -1, out=make(4)) == (24, 96, 16)
    assert run("zeros", (4, 6), out=out) == (0, 0, 96)
    assert run("softmax", x.T, out=out.T) == (120, 96, 96)


def test_host_scalars_move_no_bytes() -> None:
    for name in BINARY:
        assert run(name, x, 2.0) == run(name, 2, x) == (24, 96, 96)
        assert run(f"{name}_", make(4, 6), 2.0) == (24, 96, 96)
    assert run("add", x, np.float64(1)) == (24, 96, 96)
    assert run("add", x, fs.ones((), device="cpu")) == (24, 96 + 4, 96), "a tensor of one element is memory"


def test_a_broadcast_axis_counts_once() -> None:
    assert run("add", make(4, 1), make(1, 6)) == (24, 16 + 24, 96)
    assert run("mul", make(2, 1, 7), make(3, 1)) == (42, 14 * 4 + 3 * 4, 42 * 4)
    wide = fs.from_numpy(np.broadcast_to(np.ones((1, 6), np.float32), (4, 6)))
    assert run("sin", wide) == (24, 24, 96)
    assert run("sum", wide) == (24, 24, 4), "24 additions of 6 elements in memory"
    assert run("softmax", wide) == (120, 24, 96)
    assert run("matmul", wide, make(6, 2)) == (2 * 4 * 2 * 6, 24 + 48, 32)
    one = fs.from_numpy(np.broadcast_to(np.float32(1), (4, 6)))
    assert run("add", one, one) == (24, 4, 96)
    assert run("copy", one) == (0, 4, 96)


def test_views_count_their_own_elements() -> None:
    base = np.ones((10, 12), np.float32)
    for view in (base[::2, ::3], base[::-2, ::-3], base[1:6, 2:6], base.T[:5, :4]):
        v = fs.from_numpy(view)
        assert v.size == 20
        assert run("exp", v) == (20, 80, 80)
        assert run("exp_", v) == (20, 80, 80)
        assert run("exp", x, out=fs.from_numpy(base[:8:2, :6])) == (24, 96, 96)
    assert run("transpose_copy", make(2, 3, 4).T) == (0, 96, 96)


def test_overlapping_windows_are_read_once() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(np.ones(10, np.float32), 3)
    assert run("sum", fs.from_numpy(windows), -1) == (24, 10 * 4, 8 * 4)


# Shapes ---------------------------------------------------------------------------------------------------------------


def test_norms_count_one_flop_more_for_each_of_weight_and_bias() -> None:
    bias = make(6)
    assert run("layer_norm", x) == (5 * 24, 96, 96)
    assert run("layer_norm", x, row) == (6 * 24, 96 + 24, 96)
    assert run("layer_norm", x, bias=bias) == (6 * 24, 96 + 24, 96)
    assert run("layer_norm", x, row, bias, 0.1) == (7 * 24, 96 + 48, 96)
    assert run("rms_norm", x) == (3 * 24, 96, 96)
    assert run("rms_norm", x, weight=row, eps=1) == (4 * 24, 96 + 24, 96)


@pytest.mark.parametrize(("name", "each"), [*((name, 1) for name in ("sum", "mean", "amax", "amin")),
                                            ("norm", 2), ("var", 4), ("argmax", 0)])  # fmt: skip
def test_reductions_count_their_input(name: str, each: int) -> None:
    v = make(2, 3, 4, dtype="float64")
    for arguments, elements in (((), 1), ((None,), 1), ((-1,), 6), ((2,), 6), ((-1, True), 6), ((None, True), 1)):
        assert run(name, v, *arguments) == (24 * each, 192, 8 * elements)


@pytest.mark.parametrize(
    ("name", "theirs", "arguments"),
    [
        ("norm", "linalg_vector_norm", [2, [-1], False, None]),
        ("var", "var", [[-1], 1, False]),
        ("argmax", "argmax", [-1, False]),
        ("cumsum", "cumsum", [-1, None]),
    ],
)
def test_an_op_of_torch_with_the_same_name_has_the_same_work(name: str, theirs: str, arguments: list[Any]) -> None:
    for dtype in FLOATS:
        work = fs.work(f"aten::{theirs}", [(4, 6)], dtype, [None, *arguments])
        assert run(name, make(4, 6, dtype=dtype), -1) == (work.flops, work.bytes_read, work.bytes_written)


@pytest.mark.parametrize(
    ("shapes", "m", "n", "k", "batch"),
    [
        (((1, 1), (1, 1)), 1, 1, 1, 1),
        (((2, 3, 5), (2, 5, 7)), 3, 7, 5, 2),
        (((4, 2, 3, 5), (5, 7)), 3, 7, 5, 8),
        (((3, 5), (4, 5, 7)), 3, 7, 5, 4),
        (((4, 1, 3, 5), (2, 5, 7)), 3, 7, 5, 8),
        (((2, 1, 3, 5), (1, 3, 5, 7)), 3, 7, 5, 6),
    ],
    ids=str,
)
def test_batched_products(shapes: Any, m: int, n: int, k: int, batch: int) -> None:
    first, second = (make(*shape) for shape in shapes)
    read = 4 * (math.prod(shapes[0]) + math.prod(shapes[1]))
    assert run("matmul", first, second) == (2 * m * n * k * batch, read, 4 * m * n * batch)
    bias = make(n)
    assert run("addmm", bias, first, second) == (2 * m * n * k * batch, read + 4 * n, 4 * m * n * batch)
    assert run("matmul", first, second, allow_tf32=True) == (2 * m * n * k * batch, read, 4 * m * n * batch)


def test_empty_tensors_do_nothing() -> None:
    none = make(0, 5)
    assert run("sin", none) == run("add", none, none) == run("softmax", none) == run("copy", none) == (0, 0, 0)
    assert run("sum", none) == (0, 0, 4), "a zero is written"
    assert run("sum", make(3, 0), -1) == (0, 0, 12)
    assert run("matmul", make(5, 0), make(0, 3)) == (0, 0, 60)
    assert run("matmul", make(0, 4), make(4, 3)) == (0, 48, 0)
    assert run("zeros", (0,)) == run("randn", (3, 0)) == (0, 0, 0)


def test_zero_dimensions_are_one_element() -> None:
    one = fs.ones((), device="cpu")
    assert run("sin", one) == (1, 4, 4)
    assert run("sum", one) == (1, 4, 4)
    assert run("zeros", ()) == (0, 0, 4)


def test_work_adds_up_over_calls_and_ranges() -> None:
    with fs.profile() as prof, fs.record_function("outer"):
        for size in (10, 20, 30):
            fs.sin(make(size))
        fs.matmul(a, b)
    rows = {r.key: r for r in prof.key_averages(peaks="none")}
    assert rows["flopscope::sin"].flops == 60 and rows["flopscope::sin"].bytes_total_moved == 2 * 4 * 60
    assert rows["flopscope::sin"].arithmetic_intensity == 60 / 480
    assert rows["outer"].flops_total == 60 + 210
    assert rows["flopscope::ones"].flops == 0
    assert not rows["outer"].flops > 0, "a range has no work of its own"


def test_the_work_of_a_failed_call_is_not_counted() -> None:
    with fs.profile() as prof:
        for wrong in (
            lambda: fs.add(x, make(5)),
            lambda: fs.matmul(x, x),
            lambda: fs.sin("x"),
            lambda: fs.zeros((-1,)),
        ):
            with pytest.raises((ValueError, TypeError)):
                wrong()
        fs.sin(x)
    rows = {r.key: r for r in prof.key_averages(peaks="none")}
    assert (rows["flopscope::sin"].count, rows["flopscope::ones"].count) == (1, 1)
    for key in rows.keys() - {"flopscope::sin", "flopscope::ones"}:
        assert not rows[key].flops > 0 and (math.isnan(rows[key].bytes_written) or rows[key].bytes_written == 0), key


def test_large_counts_are_exact() -> None:
    with fs.profile() as prof:
        for _ in range(1000):
            fs.matmul(square, square)
    only = prof.key_averages(peaks="none")[0]
    assert only.flops == 1_024_000 and only.bytes_total_moved == 512_000
    wide = fs.from_numpy(np.broadcast_to(np.float32(1), (1 << 20, 1 << 20, 1 << 20))[:0])
    assert run("sin", wide) == (0, 0, 0)


# Any shape, any view --------------------------------------------------------------------------------------------------


def distinct_bytes(*arrays: np.ndarray[Any, Any]) -> int:
    """Return the number of bytes of the distinct elements of the arrays."""
    total: set[tuple[int, int]] = set()
    for array in arrays:
        start, item = array.__array_interface__["data"][0], array.itemsize
        offsets = np.zeros(array.shape, np.int64)
        for axis, stride in enumerate(array.strides):
            steps = np.arange(array.shape[axis]) * stride
            offsets += steps.reshape([-1 if d == axis else 1 for d in range(array.ndim)])
        total |= {(start + int(offset), item) for offset in offsets.ravel()}
    return sum(item for _, item in total)


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
def operands(draw: Any, count: int) -> list[np.ndarray[Any, Any]]:
    shape = draw(sides)
    dtype = draw(st.sampled_from(("float64", "float32", "float16")))
    arrays = []
    for _ in range(count):
        own = [1 if draw(st.integers(0, 3)) == 0 else n for n in shape]
        own = own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :]
        arrays.append(draw(views(tuple(own), dtype)))
    return arrays


@settings(max_examples=150, deadline=None)
@given(operands(2), st.sampled_from(BINARY))
def test_binary_ops_move_the_distinct_elements_of_their_operands(arrays: list[Any], name: str) -> None:
    out = np.broadcast_shapes(*(array.shape for array in arrays))
    elements = math.prod(out)
    result = run(name, *(fs.from_numpy(array) for array in arrays))
    assert result == (elements, distinct_bytes(*arrays), elements * arrays[0].itemsize)


@settings(max_examples=150, deadline=None)
@given(operands(1))
def test_ops_of_one_tensor_move_its_distinct_elements(arrays: list[Any]) -> None:
    (array,) = arrays
    v, read, item = fs.from_numpy(array), distinct_bytes(array), array.itemsize
    assert run("sin", v) == (array.size, read, array.size * item)
    assert run("sum", v) == (array.size, read, item)
    assert run("copy", v) == (0, read, array.size * item)
    assert run("cast", v, "int8") == (0, read, array.size)
    assert run("add", v, v) == (array.size, read, array.size * item)
    assert run("mul", v, v.T.T) == (array.size, read, array.size * item)
    if array.ndim:
        rows = array.size // array.shape[-1]
        assert run("softmax", v) == (5 * array.size, read, array.size * item)
        assert run("amax", v, -1) == (array.size, read, rows * item)


@settings(max_examples=60, deadline=None)
@given(sides.filter(lambda s: len(s) < 3), st.tuples(*[st.integers(1, 5)] * 3), st.data())
def test_products_move_the_distinct_elements_of_their_factors(batch: list[int], sizes: Any, data: Any) -> None:
    m, n, k = sizes
    own = [[1 if data.draw(st.booleans()) else size for size in batch] for _ in range(2)]
    first = data.draw(views((*own[0], m, k), "float32"))
    second = data.draw(views((*own[1], k, n), "float32"))
    out = math.prod(np.broadcast_shapes(own[0], own[1])) * m * n
    result = run("matmul", fs.from_numpy(first), fs.from_numpy(second))
    assert result == (2 * out * k, distinct_bytes(first, second), 4 * out)
