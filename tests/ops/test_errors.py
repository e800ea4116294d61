"""Errors: invalid arguments are refused with clear messages, and a failed call leaves everything usable."""

import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import flopscope as fs

INT64_MAX = 2**63 - 1
WRONG_SIZE = (OverflowError, MemoryError, ValueError)


class Five:
    def __float__(self) -> float:
        return 5.0


class Index:
    def __index__(self) -> int:
        return 5


class Broken:
    def __float__(self) -> float:
        raise ZeroDivisionError("mine")

    __index__ = __bool__ = __float__  # type: ignore[assignment]


x, y, z = fs.ones((2, 3), device="cpu"), fs.ones((4,), device="cpu"), fs.ones((), device="cpu")
whole, half = (fs.ones((2, 3), dtype=dtype, device="cpu") for dtype in ("int32", "bfloat16"))
row, none, wide, stack = (fs.ones(shape, device="cpu") for shape in ((1, 3), (0, 3), (4, 2, 3), (2, 4, 3)))
ones = np.ones(3, np.float32)
windows, repeated = (fs.from_numpy(np.lib.stride_tricks.as_strided(ones, (2, n), (s, 4))) for n, s in ((2, 4), (3, 0)))
constant = fs.from_numpy(np.broadcast_to(ones, (2, 3)))
column, line, long = (
    fs.from_numpy(np.broadcast_to(np.float32(1), shape)) for shape in ((1 << 23, 1), (1, 1 << 23), (1 << 45,))
)


@pytest.fixture(autouse=True)
def still_usable() -> Iterator[None]:
    """Check that ops still work after each test, and that no argument has changed."""
    yield
    assert fs.add(fs.ones((3,)), 1).numpy().tolist() == [2, 2, 2] and fs.default_device() == "cpu"
    for tensor in (x, y, z, whole, half, row, wide, stack):
        assert (tensor.to("float64").numpy() == 1).all()
    assert ones.tolist() == [1, 1, 1]


LAST = ("sum", "mean", "amax", "amin", "norm", "var", "argmax", "cumsum", "softmax", "log_softmax")
REFUSED: list[tuple[Any, ...]] = [  # a call, its error, parts of the message
    # numbers
    ("fs.add(1, 2)", TypeError, "add(1, 2)", "tensor"),
    ("fs.add_(1, 2)", TypeError, "add_", "Tensor", "int"),
    *((call.format(wrong), TypeError, *parts, type(eval(wrong)).__name__)
      for wrong in ("None", "'5'", "b'5'", "[1.0]", "(1.0, 2.0)", "dict()", "1j", "object()", "np.ones(1)",
                    "np.ones((1, 1))", "float", "...")
      for call, *parts in (
        ("fs.add(x, {})", "add"), ("fs.add({}, x)", "add"), ("fs.sin({})", "sin"), ("fs.full((2,), {})", "full"),
        ("fs.fill_(y, {})", "fill_"), ("fs.matmul(y, {})", "matmul"))),
    *((operation.format(wrong), TypeError) for wrong in ("'5'", "np.ones(2)", "object()")
      for operation in ("y + {}", "{} - y", "y / {}", "y ** {}", "y @ {}", "y.__iadd__({}) + 1")),
    *((call, OverflowError, "too large") for call in (
        "fs.add(x, 10**400)", "x * 10**400", "fs.full((2,), 10**400)", "fs.fill_(x, -(10**400))")),
    *((call, ZeroDivisionError, "mine") for call in (
        "fs.add(x, Broken())", "x + Broken()", "fs.full((2,), Broken())", "fs.empty(Broken())",
        "fs.empty((1, Broken()))", "fs.sum(x, keepdims=Broken())", "fs.sum(x, Broken())")),
    # axes
    *((f"fs.{op}(x, {axis})", ValueError, op, str(axis), "2 axes", "last")
      for op in LAST for axis in (0, -2, 2, -3, 10**6, INT64_MAX, -(2**63))),
    *((f"fs.{op}(x, {axis})", TypeError, op, type(eval(axis)).__name__)
      for op in ("sum", "softmax") for axis in ("float('nan')", "1.0", "'1'", "(1,)", "[1]", "fs.ones", "1j")),
    ("fs.softmax(y, None)", TypeError, "softmax", "NoneType"),
    ("fs.sum(z, -1)", ValueError, "sum", "float32 ()", "axis"),
    ("fs.softmax(z)", ValueError, "softmax", "float32 ()", "axis"),
    ("fs.cumsum(z)", ValueError, "cumsum", "float32 ()", "axis"),
    ("fs.sum(x, 10**30)", (ValueError, OverflowError)),
    ("fs.transpose_copy(y)", ValueError, "transpose_copy", "(4,)", "two axes"),
    *((f"fs.{op}(none)", ValueError, op, "(0, 3)") for op in ("amax", "amin", "argmax")),
    *((f"fs.{op}(none.T, -1)", ValueError, op, "(3, 0)") for op in ("amax", "amin", "argmax")),
    # shapes
    *((f"fs.{make.format(shape)}", kind, *parts) for make in ("empty({})", "zeros({})", "full({}, 1)", "rand({})")
      for shape, kind, *parts in (
        ("-1", ValueError), ("(2, -3)", ValueError, "(2, -3)"), ("(1,) * 9", ValueError, "9"), ("'ab'", TypeError),
        ("1.5", TypeError), ("(1, 2.5)", TypeError), ("(1, None)", TypeError), ("None", TypeError),
        ("[[1]]", TypeError), ("10**30", WRONG_SIZE), ("(2, 10**30)", WRONG_SIZE), ("(INT64_MAX, 2)", MemoryError),
        ("(1 << 40, 1 << 40)", MemoryError), ("INT64_MAX", MemoryError))),
    # dtypes and devices
    *((call.format(dtype), kind, "dtype", "bfloat16", repr(eval(dtype))) for call in (
        "fs.empty((2,), dtype={})", "fs.zeros((2,), dtype={})", "fs.cast(x, {})", "x.to(dtype={})")
      for dtype, kind in (
        ("'float33'", ValueError), ("''", ValueError), ("'FLOAT32'", ValueError), ("'f4'", ValueError),
        (r"'float32\0'", ValueError), ("np.float32", TypeError), ("np.dtype('float32')", TypeError),
        ("None", TypeError), ("float", TypeError), ("32", TypeError))),
    *((call.format(device), kind, "device", repr(eval(device)), "cuda") for call in (
        "fs.empty((2,), device={})", "fs.zeros((2,), device={})", "fs.set_default_device({})",
        "fs.from_numpy(np.ones(2), {})", "fs.from_numpy(np.ones(2), device={})", "fs.memory_allocated({})",
        "x.to(device={})")
      for device, kind in (
        ("'gpu'", ValueError), ("''", ValueError), ("'CPU'", ValueError), ("'cpu:0'", ValueError),
        ("'cuda:x'", ValueError), ("'cuda:-1'", ValueError), ("'cuda:1e3'", ValueError), (r"'cpu\0'", ValueError),
        ("0", TypeError), ("b'cpu'", TypeError), ("['cpu']", TypeError))),
    *((f"x.to({arguments})", kind) for arguments, kind in (
        ("3", TypeError), ("None", TypeError), ("'float32', 'cpu', 'cpu'", TypeError), ("wrong=1", TypeError),
        ("'cuda:'", ValueError), ("'float64', 'float16'", TypeError), ("'cpu', 'cpu'", TypeError),
        ("'float64', dtype='float16'", TypeError), ("'cpu', device='cpu'", TypeError))),
    # each op's own
    ("fs.add(x, y)", ValueError, "add(float32 (2, 3) on cpu, float32 (4,) on cpu)", "broadcast"),
    ("fs.mul(x, half)", TypeError, "mul(float32 (2, 3) on cpu, bfloat16 (2, 3) on cpu)", "dtypes differ"),
    ("fs.sin(whole)", TypeError, "sin(int32 (2, 3) on cpu)", "float32"),
    ("fs.sum(fs.ones((2,), dtype='bool'))", TypeError, "sum(bool (2,) on cpu)"),
    ("fs.add(whole, 1.5)", TypeError, "add(int32 (2, 3) on cpu, 1.5)"),
    ("fs.matmul(x, x)", ValueError, "matmul(float32 (2, 3) on cpu, float32 (2, 3) on cpu)", "3 columns", "2 rows"),
    ("fs.matmul(stack, fs.ones((5, 3, 4)))", ValueError, "matmul", "broadcast"),
    ("fs.matmul(x, 2.0)", TypeError, "matmul", "float"),
    ("fs.addmm(fs.ones((9,)), x, x.T)", ValueError, "addmm", "(9,)", "bias"),
    ("fs.addmm(fs.ones((1, 2, 2)), x, x.T)", ValueError, "addmm", "bias"),
    ("fs.layer_norm(x, y)", ValueError, "layer_norm", "(4,)", "last axis"),
    ("fs.layer_norm(x, None, row)", ValueError, "layer_norm", "(1, 3)", "last axis"),
    ("fs.rms_norm(x, fs.ones((3,), dtype='float64'))", TypeError, "rms_norm", "float64", "differ"),
    ("fs.layer_norm(x, 1.0)", TypeError, "layer_norm", "float"),
    ("fs.layer_norm(x, eps='small')", TypeError, "layer_norm", "str"),
    ("fs.copy_(y, x)", ValueError, "copy_", "(4,)", "(2, 3)", "broadcast"),
    ("fs.copy_(x, 1.0)", TypeError, "copy_", "float"),
    ("fs.rand((2,), dtype='int64')", TypeError, "rand", "int64"),
    ("fs.normal_(whole, 0, 1)", TypeError, "normal_", "int32"),
    ("fs.var(x, correction='none')", TypeError, "var", "str"),
    ("fs.var(x, -1, True, 1)", TypeError, "var", "at most 3 positional"),
    ("fs.argmax(x, -1, out=fs.ones((2,)))", TypeError, "argmax", "int64"),
    ("fs.cumsum(whole)", TypeError, "cumsum", "int32"),
    # targets: an op in place does not grow its target, nor write memory that is shared or not its own
    ("fs.add_(row, x)", ValueError, "add_", "(1, 3)", "(2, 3)"),
    ("row.__imul__(x)", ValueError, "mul_"),
    ("fs.sin_(constant)", ValueError, "read-only"),
    ("fs.fill_(constant, 1)", ValueError, "read-only"),
    ("fs.sin_(repeated)", ValueError, "sin_", "broadcast"),
    ("fs.mul_(windows, 2)", ValueError, "mul_"),
    ("fs.sin(x, out=x.T)", ValueError, "sin", "out=float32 (3, 2) on cpu", "shape (2, 3)"),
    ("fs.sin(x, out=fs.ones((1, 2, 3)))", ValueError, "sin", "(1, 2, 3)", "shape (2, 3)"),
    ("fs.sin(x, out=fs.ones((2, 3), dtype='float64'))", TypeError, "sin", "out=float64", "dtype float32"),
    ("fs.sin(x, out=np.ones((2, 3), np.float32))", TypeError, "sin", "ndarray"),
    ("fs.sin(x, out='x')", TypeError, "sin", "str"),
    ("fs.add(x, wide, out=x)", ValueError, "add", "shape (4, 2, 3)"),
    ("fs.sum(x, out=fs.ones((1,)))", ValueError, "sum", "shape ()"),
    ("fs.matmul(x, x.T, out=x)", ValueError, "matmul", "shape (2, 2)"),
    ("fs.cast(x, 'float16', out=x)", TypeError, "cast", "dtype float16"),
    ("fs.zeros((3,), out=x)", ValueError, "zeros", "shape (3,)"),
    ("fs.zeros((2, 3), dtype='float64', out=x)", TypeError, "zeros", "dtype float64"),
    ("fs.sin_(x, out=x)", TypeError, "sin_", "'out'"),
    # keywords
    *((call, TypeError, "positional")
      for call in ("fs.sin(x, x)", "fs.add(x, x, x)", "fs.zeros((2,), 'float32')", "fs.empty((2,), 'float32')")),
    # threads and seeds
    *((f"fs.set_num_threads({count})", ValueError, "threads") for count in (0, -1, 257, 10**6, -(10**6))),
    *((f"fs.set_num_threads({count})", TypeError) for count in ("'2'", "None", "1.5")),
    *((f"fs.manual_seed({seed})", (OverflowError, TypeError, ValueError)) for seed in ("-1", "1 << 64", "'x'", "1.5")),
    # more memory than there is
    ("fs.empty((1 << 46,))", MemoryError, "host memory", "GiB"),
    ("fs.zeros((1 << 23, 1 << 23))", MemoryError, "host memory", "GiB"),
    ("fs.rand((1 << 46,), dtype='float64')", MemoryError, "host memory", "GiB"),
    ("fs.empty((1 << 62,))", MemoryError, "float32", f"({1 << 62},)"),
    ("fs.add(column, line)", MemoryError, "host memory", "GiB"),
    ("fs.matmul(column, line)", MemoryError, "host memory", "GiB"),
    ("fs.copy(long)", MemoryError, "host memory"),
    # what a tensor cannot do
    *((call, (TypeError, AttributeError)) for call in (
        "x[0]", "iter(x)", "list(x)", "x // 2", "x % 2", "x & 1", "x < x", "x()", "~x", "pow(x, 2, 3)",
        "x.__setitem__(0, 1)", "x @ 2")),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "parts"), [(call, kind, parts) for call, kind, *parts in REFUSED])
def test_a_call_is_refused_with_a_message_that_names_what_is_wrong(call: str, kind: Any, parts: list[str]) -> None:
    with pytest.raises(kind) as caught:
        eval(call)
    message = str(caught.value)
    assert message.strip() and "\n" not in message
    assert [part for part in parts if part not in message] == [], message


# What is accepted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "five",
    [5, 5.0, np.float64(5), np.float32(5), np.float16(5), np.int8(5), np.uint64(5), np.array(5.0), Decimal(5),
     Fraction(5), Five(), Index()],
    ids=lambda five: type(five).__name__,
)  # fmt: skip
def test_every_kind_of_number_is_a_scalar(five: Any) -> None:
    t = fs.ones((2,), dtype="float64")
    assert fs.mul(t, five).numpy().tolist() == [5, 5] and fs.sub(five, t).numpy().tolist() == [4, 4]
    assert (t + five).numpy().tolist() == (five + t).numpy().tolist() == [6, 6]
    assert fs.full((1,), five).item() == fs.fill_(fs.ones((1,)), five).item() == 5
    assert fs.add_(t, five) is t and t.numpy().tolist() == [6, 6] and fs.uniform_(fs.ones((1,)), five, five).item() == 5


def test_booleans_are_numbers() -> None:
    t = fs.ones((2,))
    for true in (True, np.True_):
        assert fs.add(t, true).numpy().tolist() == (t * true + true).numpy().tolist() == [2, 2]
        assert fs.full((2,), true, dtype="bool").numpy().all()
    assert fs.sum(fs.ones((2, 3, 4)), axis=np.int64(2)).shape == (2, 3)
    assert fs.sum(x, True).shape == (2,), "True is the axis 1"


def test_shapes_are_any_sequence_of_integers() -> None:
    for shape in ((2, 3), [2, 3], range(2, 4), np.array([2, 3]), (np.int32(2), True + 2)):
        assert fs.zeros(shape).shape == (2, 3)
    assert fs.zeros(np.int64(4)).shape == (4,) and fs.zeros(()).shape == () and fs.zeros(True).shape == (1,)
    assert fs.zeros({}).shape == () and fs.rand((INT64_MAX, 0)).shape == (INT64_MAX, 0)
    for op in (fs.amax, fs.amin, fs.argmax):
        assert op(none, -1).shape == (0,)


def test_out_is_returned() -> None:
    t, out = fs.ones((2, 2)), fs.empty((2, 2))
    for result in (
        fs.neg(t, out=out), fs.add(t, t, out=out), fs.matmul(t, t, out=out), fs.softmax(t, out=out),
        fs.zeros((2, 2), out=out),
    ):  # fmt: skip
        assert result.data_ptr == out.data_ptr
    assert out.numpy().sum() == 0 and fs.sin(x, out=None) is not x
    assert fs.sin_(out) is out and fs.add_(out, 1) is out and fs.fill_(out, 1) is out
    assert fs.zeros((2,), out=fs.ones((2,), dtype="int8")).dtype == "int8", "the dtype defaults to that of out"


@pytest.mark.parametrize("name", fs._core.ops)
def test_keywords_are_checked(name: str) -> None:
    op = getattr(fs, name)
    first = op.__text_signature__[1:].partition(",")[0].rstrip(")")
    for arguments, keywords, *parts in (
        ((), {}, "missing"), ([y] * 9, {}, "at most", "9"), ((y,), {"no_such_argument": 1}, "no_such_argument"),
        ((y,), {first: y}, first, "multiple values"), ((), {"ünknown": 1}, "ünknown"),
    ):  # fmt: skip
        with pytest.raises(TypeError) as caught:
            op(*arguments, **keywords)
        assert all(part in str(caught.value) for part in (name, *parts)), caught.value


def test_all_arguments_may_be_keywords() -> None:
    t = fs.ones((2, 2))
    assert fs.add(b=t, a=2.0).numpy().tolist() == [[3, 3], [3, 3]]
    assert fs.sum(keepdims=True, axis=-1, x=t).shape == (2, 1)
    assert fs.full(value=3, shape=2, dtype="int8", device="cpu").numpy().tolist() == [3, 3]
    assert fs.addmm(b=t, a=t, bias=t, allow_tf32=True).numpy()[0, 0] == 3
    keywords = {"axis": None, "out": None}
    assert fs.sum(t, **keywords).item() == 4 and keywords == {"axis": None, "out": None}
    fs.manual_seed(2**64 - 1)
    assert fs.num_threads() >= 1


# Devices that are missing, memory, references -------------------------------------------------------------------------


def test_a_missing_cuda_device_reports_the_reason_and_a_remedy() -> None:
    try:
        count = fs._core.cuda_device_count()
        reason = f"cuda:{count}"
    except RuntimeError as why:
        count, reason = 0, str(why)
        for call in ("fs.empty((2,), device='cuda')", "x.to('cuda:0')", "fs._core.cuda_device_count()"):
            with pytest.raises(RuntimeError, match=r"CUDA.*(install|update|visible|container)"):
                eval(call)
    for call in (
        "fs.empty((2,), device=name)", "x.to(name)", "fs.from_numpy(np.ones(2), device=name)", "fs.synchronize(name)",
        "fs.set_default_device(name)",
    ):  # fmt: skip
        with pytest.raises(RuntimeError) as caught:
            eval(call, {**globals(), "name": f"cuda:{count}"})
        assert reason in str(caught.value)
    with pytest.raises((ValueError, RuntimeError)):
        fs._core.cuda_device_properties(count)


def test_out_of_memory_inside_a_profile_leaves_it_intact() -> None:
    with fs.profile(profile_memory=True) as prof:
        fs.sin(y)
        with pytest.raises(MemoryError):
            fs.zeros((1 << 46,))
        fs.sin(y)
    rows = {row.key: row for row in prof.key_averages(peaks="none")}
    assert rows["flopscope::sin"].count == 2 and rows["flopscope::sin"].top_level
    assert prof.key_averages(peaks="none").open_events == 0 and prof.dropped == 0
    assert not rows.get("flopscope::zeros") or not rows["flopscope::zeros"].bytes_written > 0, "nothing was written"


JUNK = object()


def test_references_are_balanced() -> None:
    tracked: list[Any] = [x, y, whole, half, None, fs.add, "float32", "no such dtype", JUNK]
    more = ["fs.add(x, JUNK)", "fs.sum(x, JUNK)", "fs.full((2,), JUNK)", "fs.layer_norm(x, y, eps=JUNK)", "x + JUNK",
            "fs.zeros(JUNK)", "fs.zeros((JUNK,))", "fs.from_dlpack(JUNK)", "fs.from_numpy(x)", "fs.sin(x, out=y)",
            "x.to('no such dtype')", "x.__dlpack__(copy=True, stream='x')"]  # fmt: skip
    calls = [compile(call, "call", "eval") for call in [*(call for call, *_ in REFUSED), *more]]

    def misuse() -> None:
        for call in calls:
            with suppress(Exception):
                eval(call)
        fs.add(x, 1.0), fs.relu_(x), fs.sum(x, -1, True), x.to("float64"), x.T, x.numpy()

    misuse()
    gc.collect()
    memory, before = fs.memory_allocated("cpu"), [sys.getrefcount(each) for each in tracked]
    for _ in range(50):
        misuse()
    gc.collect()
    after = [sys.getrefcount(each) for each in tracked]
    assert fs.memory_allocated("cpu") == memory
    assert all(abs(a - b) < 25 for a, b in zip(after, before, strict=True)), (before, after)
