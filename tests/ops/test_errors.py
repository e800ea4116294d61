"""Errors: invalid arguments are refused with clear messages, and a failed call leaves everything usable."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import flopscope as fs

INT64_MAX = 2**63 - 1


@pytest.fixture(autouse=True)
def still_usable() -> Any:
    """Check that ops still work after each test."""
    before = fs.default_device()
    fs.set_default_device("cpu")
    yield
    assert fs.add(fs.ones((3,)), 1).numpy().tolist() == [2, 2, 2]
    fs.set_default_device(before)


def refused(
    kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object], *parts: str
) -> None:
    """Check that the call raises and that its message contains each part."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message.strip() and "\n" not in message
    assert [part for part in parts if part not in message] == [], message


# Numbers --------------------------------------------------------------------------------------------------------------


class Five:
    def __float__(self) -> float:
        return 5.0


class Index:
    def __index__(self) -> int:
        return 5


@pytest.mark.parametrize(
    "five",
    [5, 5.0, np.float64(5), np.float32(5), np.float16(5), np.int8(5), np.uint64(5), np.array(5.0), Decimal(5),
     Fraction(5), Five(), Index()],
    ids=lambda five: type(five).__name__,
)  # fmt: skip
def test_every_kind_of_number_is_a_scalar(five: Any) -> None:
    x = fs.ones((2,), dtype="float64")
    assert fs.mul(x, five).numpy().tolist() == [5, 5]
    assert fs.sub(five, x).numpy().tolist() == [4, 4]
    assert (x + five).numpy().tolist() == (five + x).numpy().tolist() == [6, 6]
    assert fs.full((1,), five).item() == fs.fill_(fs.ones((1,)), five).item() == 5
    assert fs.add_(x, five) is x and x.numpy().tolist() == [6, 6]
    assert fs.uniform_(fs.ones((1,)), five, five).item() == 5


def test_booleans_are_numbers() -> None:
    x = fs.ones((2,))
    for true in (True, np.True_):
        assert fs.add(x, true).numpy().tolist() == (x * true + true).numpy().tolist() == [2, 2]
        assert fs.full((2,), true, dtype="bool").numpy().all()
    assert fs.ones((2, 3)).shape == fs.sum(fs.ones((2, 3, 4)), axis=np.int64(2)).shape == (2, 3)
    assert fs.sum(fs.ones((2, 3)), True).shape == (2,), "True is the axis 1"


@pytest.mark.parametrize(
    "wrong",
    [None, "5", b"5", [1.0], (1.0, 2.0), {}, 1j, object(), np.ones(2), np.ones((2, 2)), float, ..., "x" * 1000],
    ids=lambda wrong: type(wrong).__name__,
)  # fmt: skip
def test_non_numbers_are_refused(wrong: Any) -> None:
    x = fs.ones((2,))
    name = type(wrong).__name__
    refused(TypeError, lambda: fs.add(x, wrong), "add", name)
    refused(TypeError, lambda: fs.add(wrong, x), "add", name)
    refused(TypeError, lambda: fs.sin(wrong), "sin", name, "from_numpy")
    refused(TypeError, lambda: fs.full((2,), wrong), "full", name)
    refused(TypeError, lambda: fs.fill_(x, wrong), "fill_", name)
    refused(TypeError, lambda: fs.matmul(x, wrong), "matmul", name)
    for operation in (lambda: x + wrong, lambda: wrong - x, lambda: x / wrong, lambda: x**wrong, lambda: x @ wrong):
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(TypeError):
        x += wrong
    assert x.numpy().tolist() == [1, 1]


def test_an_array_of_one_element_is_not_a_number() -> None:
    refused(TypeError, lambda: fs.add(fs.ones((2,)), np.ones(1)), "add", "ndarray")
    refused(TypeError, lambda: fs.add(fs.ones((2,)), np.ones((1, 1))), "add", "ndarray")


def test_numbers_too_large_for_a_float_are_refused() -> None:
    x = fs.ones((2,))
    for call in (
        lambda: fs.add(x, 10**400),
        lambda: x * 10**400,
        lambda: fs.full((2,), 10**400),
        lambda: fs.fill_(x, -(10**400)),
    ):
        refused(OverflowError, call, "too large")
    assert x.numpy().tolist() == [1, 1]


def test_exceptions_raised_by_arguments_propagate() -> None:
    class Broken:
        def __float__(self) -> float:
            raise ZeroDivisionError("mine")

        def __index__(self) -> int:
            raise ZeroDivisionError("mine")

        def __bool__(self) -> bool:
            raise ZeroDivisionError("mine")

    x = fs.ones((2,))
    for call in (
        lambda: fs.add(x, Broken()),
        lambda: x + Broken(),
        lambda: fs.full((2,), Broken()),
        lambda: fs.empty(Broken()),
        lambda: fs.empty((1, Broken())),
        lambda: fs.sum(x, keepdims=Broken()),
        lambda: fs.sum(x, Broken()),
    ):
        refused(ZeroDivisionError, call, "mine")


def test_two_scalars_need_a_tensor() -> None:
    refused(TypeError, lambda: fs.add(1, 2), "add(1, 2)", "tensor")
    refused(TypeError, lambda: fs.add_(1, 2), "add_", "Tensor", "int")


# Axes, shapes, dtypes, devices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, -2, 2, -3, 10**6, INT64_MAX, -(2**63)])
def test_only_the_last_axis_is_supported(axis: int) -> None:
    x = fs.ones((2, 3))
    for op in (fs.sum, fs.mean, fs.amax, fs.amin, fs.norm, fs.var, fs.argmax, fs.cumsum, fs.softmax, fs.log_softmax):
        refused(ValueError, lambda op=op: op(x, axis), op.__name__, str(axis), "2 axes", "last")


@pytest.mark.parametrize("axis", [float("nan"), 1.0, "1", (1,), [1], fs.ones, 1j])
def test_an_axis_is_an_integer(axis: Any) -> None:
    x = fs.ones((2, 3))
    for op in (fs.sum, fs.softmax):
        refused(TypeError, lambda op=op: op(x, axis), op.__name__, type(axis).__name__)


def test_missing_axes_are_refused() -> None:
    refused(TypeError, lambda: fs.softmax(fs.ones((2,)), None), "softmax", "NoneType")
    refused(ValueError, lambda: fs.sum(fs.ones(()), -1), "sum", "float32 ()", "axis")
    refused(ValueError, lambda: fs.softmax(fs.ones(())), "softmax", "float32 ()", "axis")
    refused(ValueError, lambda: fs.cumsum(fs.ones(())), "cumsum", "float32 ()", "axis")
    refused((ValueError, OverflowError), lambda: fs.sum(fs.ones((2,)), 10**30))
    refused(ValueError, lambda: fs.transpose_copy(fs.ones((3,))), "transpose_copy", "(3,)", "two axes")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [(-1, ValueError), ((2, -3), ValueError), ((1,) * 9, ValueError), ("ab", TypeError), (1.5, TypeError),
     ((1, 2.5), TypeError), ((1, None), TypeError), (None, TypeError), ([[1]], TypeError), ({}, None),
     (10**30, (OverflowError, MemoryError, ValueError)), ((2, 10**30), (OverflowError, MemoryError, ValueError)),
     ((INT64_MAX, 2), MemoryError), ((1 << 40, 1 << 40), MemoryError), (INT64_MAX, MemoryError),
     ((INT64_MAX, 0), None)],
    ids=str,
)  # fmt: skip
def test_invalid_shapes_are_refused(shape: Any, kind: Any) -> None:
    calls = [lambda: fs.empty(shape), lambda: fs.zeros(shape), lambda: fs.full(shape, 1), lambda: fs.rand(shape)]
    for call in calls:
        if kind is None:
            call()
        else:
            refused(kind, call)
    if isinstance(shape, tuple) and kind is ValueError:
        refused(ValueError, calls[0], "9" if len(shape) == 9 else str(shape))


def test_shapes_are_any_sequence_of_integers() -> None:
    for shape in ((2, 3), [2, 3], range(2, 4), np.array([2, 3]), (np.int32(2), True + 2)):
        assert fs.zeros(shape).shape == (2, 3)
    assert fs.zeros(np.int64(4)).shape == (4,) and fs.zeros(()).shape == () and fs.zeros(True).shape == (1,)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float33", ValueError), ("", ValueError), ("FLOAT32", ValueError), ("f4", ValueError), (np.float32, TypeError),
     (np.dtype("float32"), TypeError), (None, TypeError), (float, TypeError), (32, TypeError),
     ("float32\0", ValueError)],
    ids=str,
)  # fmt: skip
def test_dtypes_must_be_known_names(dtype: Any, kind: type[Exception]) -> None:
    x = fs.ones((2,))
    for call in (
        lambda: fs.empty((2,), dtype=dtype),
        lambda: fs.zeros((2,), dtype=dtype),
        lambda: fs.cast(x, dtype),
        lambda: x.to(dtype=dtype),
    ):
        refused(kind, call, "dtype", "bfloat16", repr(dtype))


@pytest.mark.parametrize(
    ("device", "kind"),
    [("gpu", ValueError), ("", ValueError), ("CPU", ValueError), ("cpu:0", ValueError), ("cuda:x", ValueError),
     ("cuda:-1", ValueError), ("cuda:1e3", ValueError), (0, TypeError), (b"cpu", TypeError), (["cpu"], TypeError),
     ("cpu\0", ValueError)],
    ids=str,
)  # fmt: skip
def test_devices_must_be_known_names(device: Any, kind: type[Exception]) -> None:
    for call in (
        lambda: fs.empty((2,), device=device),
        lambda: fs.zeros((2,), device=device),
        lambda: fs.set_default_device(device),
        lambda: fs.from_numpy(np.ones(2), device),
        lambda: fs.from_numpy(np.ones(2), device=device),
        lambda: fs.memory_allocated(device),
        lambda: fs.ones((2,)).to(device=device),
    ):
        refused(kind, call, "device", repr(device), "cuda")
    assert fs.default_device() == "cpu"


def test_a_missing_cuda_device_reports_the_reason() -> None:
    try:
        count = fs._core.cuda_device_count()
    except RuntimeError as why:
        count, reason = 0, str(why)
    else:
        reason = f"cuda:{count}"
    for call in (
        lambda: fs.empty((2,), device=f"cuda:{count}"),
        lambda: fs.ones((2,)).to(f"cuda:{count}"),
        lambda: fs.from_numpy(np.ones(2), device=f"cuda:{count}"),
        lambda: fs.synchronize(f"cuda:{count}"),
        lambda: fs.set_default_device(f"cuda:{count}"),
    ):
        refused(RuntimeError, call, reason)
    with pytest.raises((ValueError, RuntimeError)):
        fs._core.cuda_device_properties(count)


# Messages of ops ------------------------------------------------------------------------------------------------------


def test_errors_name_op_shapes_dtypes_and_devices() -> None:
    x, y, half = fs.ones((2, 3)), fs.ones((4,)), fs.ones((2, 3), dtype="bfloat16")
    whole = fs.ones((2, 3), dtype="int32")
    refused(ValueError, lambda: fs.add(x, y), "add(float32 (2, 3) on cpu, float32 (4,) on cpu)", "broadcast")
    refused(TypeError, lambda: fs.mul(x, half), "mul(float32 (2, 3) on cpu, bfloat16 (2, 3) on cpu)", "dtypes differ")
    refused(TypeError, lambda: fs.sin(whole), "sin(int32 (2, 3) on cpu)", "float32")
    refused(TypeError, lambda: fs.sum(fs.ones((2,), dtype="bool")), "sum(bool (2,) on cpu)")
    refused(TypeError, lambda: fs.add(whole, 1.5), "add(int32 (2, 3) on cpu, 1.5)")
    refused(
        ValueError,
        lambda: fs.matmul(x, x),
        "matmul(float32 (2, 3) on cpu, float32 (2, 3) on cpu)",
        "3 columns",
        "2 rows",
    )
    refused(ValueError, lambda: fs.matmul(fs.ones((2, 4, 3)), fs.ones((5, 3, 4))), "matmul", "broadcast")
    refused(TypeError, lambda: fs.matmul(x, 2.0), "matmul", "float")
    refused(ValueError, lambda: fs.addmm(fs.ones((9,)), x, x.T), "addmm", "(9,)", "bias")
    refused(ValueError, lambda: fs.addmm(fs.ones((1, 2, 2)), x, x.T), "addmm", "bias")
    refused(ValueError, lambda: fs.layer_norm(x, fs.ones((2,))), "layer_norm", "(2,)", "last axis")
    refused(ValueError, lambda: fs.layer_norm(x, None, fs.ones((1, 3))), "layer_norm", "(1, 3)", "last axis")
    refused(TypeError, lambda: fs.rms_norm(x, fs.ones((3,), dtype="float64")), "rms_norm", "float64", "differ")
    refused(TypeError, lambda: fs.layer_norm(x, 1.0), "layer_norm", "float")
    refused(TypeError, lambda: fs.layer_norm(x, eps="small"), "layer_norm", "str")
    refused(ValueError, lambda: fs.copy_(y, x), "copy_", "(4,)", "(2, 3)", "broadcast")
    refused(TypeError, lambda: fs.copy_(x, 1.0), "copy_", "float")
    refused(TypeError, lambda: fs.rand((2,), dtype="int64"), "rand", "int64")
    refused(TypeError, lambda: fs.normal_(whole, 0, 1), "normal_", "int32")
    refused(TypeError, lambda: fs.var(x, correction="none"), "var", "str")
    refused(TypeError, lambda: fs.var(x, -1, True, 1), "var", "at most 3 positional")
    refused(TypeError, lambda: fs.argmax(x, -1, out=fs.ones((2,))), "argmax", "int64")
    refused(TypeError, lambda: fs.cumsum(whole), "cumsum", "int32")
    for op in (fs.amax, fs.amin, fs.argmax):
        refused(ValueError, lambda op=op: op(fs.ones((0, 3))), op.__name__, "(0, 3)")
        refused(ValueError, lambda op=op: op(fs.ones((3, 0)), -1), op.__name__, "(3, 0)")
        assert op(fs.ones((0, 3)), -1).shape == (0,)


def test_in_place_ops_do_not_grow_their_target() -> None:
    row, x = fs.ones((1, 3)), fs.ones((2, 3))
    refused(ValueError, lambda: fs.add_(row, x), "add_", "(1, 3)", "(2, 3)")
    with pytest.raises(ValueError, match="mul_"):
        row *= x
    wide = fs.from_numpy(np.broadcast_to(np.ones(3, np.float32), (2, 3)))
    for call in (lambda: fs.sin_(wide), lambda: fs.fill_(wide, 1)):
        refused(ValueError, call, "read-only")
    array = np.ones(3, np.float32)
    writable = fs.from_numpy(np.lib.stride_tricks.as_strided(array, (2, 3), (0, 4)))
    refused(ValueError, lambda: fs.sin_(writable), "sin_", "broadcast")
    windows = fs.from_numpy(np.lib.stride_tricks.as_strided(array, (2, 2), (4, 4)))
    refused(ValueError, lambda: fs.mul_(windows, 2), "mul_")
    assert array.tolist() == [1, 1, 1]


def test_invalid_outputs_are_refused() -> None:
    x = fs.ones((2, 3))
    refused(ValueError, lambda: fs.sin(x, out=fs.ones((3, 2))), "sin", "out=float32 (3, 2) on cpu", "shape (2, 3)")
    refused(ValueError, lambda: fs.sin(x, out=fs.ones((1, 2, 3))), "sin", "(1, 2, 3)", "shape (2, 3)")
    refused(TypeError, lambda: fs.sin(x, out=fs.ones((2, 3), dtype="float64")), "sin", "out=float64", "dtype float32")
    refused(TypeError, lambda: fs.sin(x, out=np.ones((2, 3), np.float32)), "sin", "ndarray")
    refused(TypeError, lambda: fs.sin(x, out="x"), "sin", "str")
    refused(ValueError, lambda: fs.add(x, fs.ones((4, 2, 3)), out=x), "add", "shape (4, 2, 3)")
    refused(ValueError, lambda: fs.sum(x, out=fs.ones((1,))), "sum", "shape ()")
    refused(ValueError, lambda: fs.matmul(x, x.T, out=x), "matmul", "shape (2, 2)")
    refused(TypeError, lambda: fs.cast(x, "float16", out=x), "cast", "dtype float16")
    refused(ValueError, lambda: fs.zeros((3,), out=x), "zeros", "shape (3,)")
    refused(TypeError, lambda: fs.zeros((2, 3), dtype="float64", out=x), "zeros", "dtype float64")
    refused(TypeError, lambda: fs.sin_(x, out=x), "sin_", "'out'")
    assert fs.sin(x, out=None) is not x and fs.zeros((2, 3), out=fs.ones((2, 3))).numpy().sum() == 0
    assert fs.zeros((2,), out=fs.ones((2,), dtype="int8")).dtype == "int8", "the dtype defaults to that of out"


def test_out_is_returned() -> None:
    x, out = fs.ones((2, 2)), fs.empty((2, 2))
    for result in (
        fs.neg(x, out=out),
        fs.add(x, x, out=out),
        fs.matmul(x, x, out=out),
        fs.softmax(x, out=out),
        fs.ones((2, 2), out=out),
    ):
        assert result.data_ptr == out.data_ptr
    assert fs.sin_(out) is out and fs.add_(out, 1) is out and fs.fill_(out, 1) is out


@pytest.mark.parametrize("name", fs._core.ops)
def test_keywords_are_checked(name: str) -> None:
    op = getattr(fs, name)
    refused(TypeError, lambda: op(), name, "missing")
    refused(TypeError, lambda: op(*[fs.ones((2,))] * 9), name, "at most", "9")
    refused(TypeError, lambda: op(fs.ones((2,)), no_such_argument=1), name, "no_such_argument")
    first = op.__text_signature__[1:].partition(",")[0].rstrip(")")
    refused(TypeError, lambda: op(fs.ones((2,)), **{first: fs.ones((2,))}), name, first, "multiple values")
    refused(TypeError, lambda: op(**{"ünknown": 1}), name, "ünknown")


def test_all_arguments_may_be_keywords() -> None:
    x = fs.ones((2, 2))
    assert fs.add(b=x, a=2.0).numpy().tolist() == [[3, 3], [3, 3]]
    assert fs.sum(keepdims=True, axis=-1, x=x).shape == (2, 1)
    assert fs.full(value=3, shape=2, dtype="int8", device="cpu").numpy().tolist() == [3, 3]
    assert fs.addmm(b=x, a=x, bias=x, allow_tf32=True).numpy()[0, 0] == 3
    keywords = {"axis": None, "out": None}
    assert fs.sum(x, **keywords).item() == 4 and keywords == {"axis": None, "out": None}


def test_keyword_only_arguments_are_keyword_only() -> None:
    x = fs.ones((2,))
    for call in (
        lambda: fs.sin(x, x),
        lambda: fs.add(x, x, x),
        lambda: fs.zeros((2,), "float32"),
        lambda: fs.empty((2,), "float32"),
    ):
        refused(TypeError, call, "positional")


def test_threads_and_seeds() -> None:
    for wrong in (0, -1, 257, 10**6, -(10**6)):
        refused(ValueError, lambda wrong=wrong: fs.set_num_threads(wrong), "threads")
    for wrong in ("2", None, 1.5):
        with pytest.raises(TypeError):
            fs.set_num_threads(wrong)  # type: ignore[arg-type]
    for wrong in (-1, 1 << 64, "x", 1.5):
        with pytest.raises((OverflowError, TypeError, ValueError)):
            fs.manual_seed(wrong)  # type: ignore[arg-type]
    fs.manual_seed(2**64 - 1)
    assert fs.num_threads() >= 1


# Out of memory --------------------------------------------------------------------------------------------------------


def test_a_too_large_tensor_is_a_memory_error_with_its_size() -> None:
    for call in (
        lambda: fs.empty((1 << 46,)),
        lambda: fs.zeros((1 << 23, 1 << 23)),
        lambda: fs.rand((1 << 46,), dtype="float64"),
    ):
        refused(MemoryError, call, "host memory", "GiB")
    refused(MemoryError, lambda: fs.empty((1 << 62,)), "float32", f"({1 << 62},)")
    column, line = (fs.from_numpy(np.broadcast_to(np.float32(1), shape)) for shape in ((1 << 23, 1), (1, 1 << 23)))
    refused(MemoryError, lambda: fs.add(column, line), "host memory", "GiB")
    refused(MemoryError, lambda: fs.matmul(column, line), "host memory", "GiB")
    refused(MemoryError, lambda: fs.copy(fs.from_numpy(np.broadcast_to(np.float32(1), (1 << 45,)))), "host memory")


def test_out_of_memory_inside_a_profile_leaves_it_intact() -> None:
    x = fs.ones((4,))
    with fs.profile(profile_memory=True) as prof:
        fs.sin(x)
        with pytest.raises(MemoryError):
            fs.zeros((1 << 46,))
        fs.sin(x)
    rows = {row.key: row for row in prof.key_averages(peaks="none")}
    assert rows["flopscope::sin"].count == 2 and rows["flopscope::sin"].top_level
    assert prof.key_averages(peaks="none").open_events == 0 and prof.dropped == 0
    assert not rows.get("flopscope::zeros") or not rows["flopscope::zeros"].bytes_written > 0, "nothing was written"


# Unsupported operations -----------------------------------------------------------------------------------------------


def test_unsupported_operations_are_type_errors() -> None:
    x: Any = fs.ones((2, 2))
    for call in (
        lambda: x[0],
        lambda: iter(x),
        lambda: x // 2,
        lambda: x % 2,
        lambda: x & 1,
        lambda: x < x,
        lambda: x(),
        lambda: ~x,
        lambda: pow(x, 2, 3),
        lambda: x.__setitem__(0, 1),
        lambda: x @ 2,
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()
    with pytest.raises(TypeError):
        list(x)


def test_references_are_balanced() -> None:
    x, y = fs.ones((2, 3)), fs.ones((4,))
    tracked: list[Any] = [x, y, None, fs.add, "float32", "no such dtype"]
    junk = object()

    def misuse() -> None:
        for call in (
            lambda: fs.add(x, y),
            lambda: fs.add(x, junk),
            lambda: fs.add(x, out=x),
            lambda: fs.cast(x, "no such dtype"),
            lambda: fs.sum(x, junk),
            lambda: fs.full((2,), junk),
            lambda: fs.layer_norm(x, y, eps=junk),
            lambda: x.to("no such dtype"),
            lambda: x + junk,
            lambda: fs.from_dlpack(junk),
            lambda: fs.from_numpy(x),
            lambda: fs.zeros((junk,)),
            lambda: fs.zeros(junk),
            lambda: fs.sin(x, out=y),
            lambda: x.__dlpack__(copy=True, stream="x"),
        ):
            with pytest.raises((TypeError, ValueError)):
                call()
        fs.add(x, 1.0), fs.sin_(x), fs.sum(x, -1, True), x.to("float64"), x.T, x.item if x.size == 1 else x.numpy()

    misuse()
    gc.collect()
    memory = fs.memory_allocated("cpu")
    before = [sys.getrefcount(object_) for object_ in (*tracked, junk)]
    for _ in range(50):
        misuse()
    gc.collect()
    after = [sys.getrefcount(object_) for object_ in (*tracked, junk)]
    assert fs.memory_allocated("cpu") == memory
    assert all(abs(a - b) < 25 for a, b in zip(after, before, strict=True)), (before, after)


def test_requesting_cuda_without_a_gpu_reports_the_reason_and_a_remedy() -> None:
    if any(device.kind == "cuda" for device in fs.devices()):
        pytest.skip("there is a GPU")
    for ask in (lambda: fs.empty((2,), device="cuda"), lambda: fs.ones((2,)).to("cuda:0"), fs._core.cuda_device_count):
        with pytest.raises(RuntimeError, match=r"CUDA.*(install|update|visible|container)"):
            ask()
