"""The ways that kernels divide their work: by vectors or elements, lanes, blocks, clusters and pieces; and every 16-bit
input of the functions that 16-bit ops have of their own."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.ops_reference import FLOATS, UNARY, Lab, exact, layer_norm, log_softmax, rms_norm, softmax

import flopscope as fs

ROWWISE: dict[str, Callable[..., Any]] = {of.__name__: of for of in (softmax, log_softmax, layer_norm, rms_norm)}


def every_number(dtype: str) -> tuple[fs.Tensor, np.ndarray[Any, Any]]:
    """All 65,536 numbers of a 16-bit dtype, and the same in float64."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = bits.view(np.float16) if dtype == "float16" else (bits.astype(np.uint32) << 16).view(np.float32)
    tensor = fs.from_numpy(values.astype(np.float32), device="cuda").to(dtype)
    np.testing.assert_array_equal(exact(tensor), values.astype(np.float64))
    return tensor, values.astype(np.float64)


def ulps(got: Any, want: Any, dtype: str) -> Any:
    """The error in units of the last place of the exact result, and 0 for equal infinities and NaN."""
    digits, least = (10, -14) if dtype == "float16" else (7, -126)
    largest = 65504.0 if dtype == "float16" else 3.3895313892515355e38
    _, exponent = np.frexp(np.abs(np.nan_to_num(want, nan=1.0, posinf=1.0, neginf=1.0)))
    unit = np.ldexp(1.0, np.maximum(exponent - 1, least) - digits)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want) / unit
    overflows = np.isinf(got) & (np.sign(got) == np.sign(want)) & (np.abs(want) >= largest + unit / 4)
    return np.where((got == want) | (np.isnan(got) & np.isnan(want)) | overflows, 0.0, error)


def flushed(got: Any, want: Any, flushes: bool = True) -> Any:
    """gelu and pow have 0 for results that are no normal float32."""
    return np.where(flushes & (got == 0) & (np.abs(want) < 1.2e-38), want, got)


def gelu(x: Any) -> Any:
    return np.array([value * 0.5 * math.erfc(-value / math.sqrt(2)) if value == value else value for value in x])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_16_bits_round_nearly_exactly(name: str, dtype: str) -> None:
    x, values = every_number(dtype)
    want = gelu(values) if name == "gelu" else UNARY[name](values)
    # At -inf, x * 0 is NaN where the limit is 0. sin and cos of the largest numbers need more than float64's pi.
    known = ~((values == -np.inf) & (name in ("gelu", "silu")))
    worst = ulps(flushed(exact(getattr(fs, name)(x)), want, name == "gelu"), want, dtype)[known]
    at = values[known][worst.argmax()]
    assert worst.max() <= 0.66, f"{name}({at}) of {dtype} is {worst.max():.3f} ulp off"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("power", [-3, -1, -0.5, 0, 0.25, 0.5, 1, 2, 2.5, 3, 7, 100, math.inf, -math.inf])
def test_powers_of_16_bits(power: float, dtype: str) -> None:
    x, values = every_number(dtype)
    for got in (fs.pow(x, power), fs.pow(x, fs.full(x.shape, power, dtype=dtype, device="cuda"))):
        # By an array: NumPy takes a single 0.5 for a square root, whose value at -inf is not a power's.
        want = np.power(values, np.full(values.shape, float(power)))
        worst = ulps(flushed(exact(got), want), want, dtype)
        assert worst.max() <= 0.85, f"{values[worst.argmax()]} ** {power}: {worst.max():.3f} ulp off"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_powers_of_16_bits_by_random_exponents(dtype: str) -> None:
    x, values = every_number(dtype)
    random = np.random.default_rng(3)
    for spread in (0.01, 1.0, 300.0):
        y = fs.from_numpy((random.standard_normal(values.size) * spread).astype(np.float32), device="cuda").to(dtype)
        want = np.power(values, exact(y))
        worst = ulps(flushed(exact(fs.pow(x, y)), want), want, dtype)
        assert worst.max() <= 0.85, f"{values[worst.argmax()]} ** {exact(y)[worst.argmax()]}: {worst.max():.3f} ulp"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("power", [-1, -0.5, 0.5, 1, 2, 3, 2.5])
def test_powers_by_a_number(power: float, dtype: str) -> None:
    random = np.random.default_rng(5)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -2.5, 1e-39, 1e-20, 3e38]
    numbers = [special, random.standard_normal(5000), np.exp(random.uniform(-80, 80, 5000))]
    values = np.concatenate(numbers).astype(dtype)
    got = fs.pow(fs.from_numpy(values, device="cuda"), power).numpy()
    want = np.power(values.astype(np.longdouble), np.full(values.shape, power, np.longdouble)).astype(dtype)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)
    np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(want[:4]))  # of zeros and infinities


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(64, 64), (200, 1000), (1000, 200), (65, 67), (1, 4096), (72, 4104), (3, 130, 264)])
def test_transposes(lab: Lab, shape: tuple[int, ...], dtype: str) -> None:
    x, values = lab.uniform(shape, dtype)
    want = values.swapaxes(-1, -2)
    np.testing.assert_array_equal(exact(fs.transpose_copy(x)), want)
    if len(shape) == 2:
        out = fs.full(shape[::-1], math.nan, dtype=dtype, device="cuda")
        fs.copy_(out, x.T)
        np.testing.assert_array_equal(exact(out), want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int32", "int64"])
@pytest.mark.parametrize("shape", [(64, 256), (80, 272), (130, 70), (5, 48, 512)])
def test_transposes_of_integers(shape: tuple[int, ...], dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    got = fs.transpose_copy(fs.from_numpy(values, device="cuda"))
    np.testing.assert_array_equal(got.to("cpu").numpy(), values.swapaxes(-1, -2))


LENGTHS = (
    1, 7, 8, 31, 128, 130, 512, 1000, 1024, 4097, 8192, 16384, 16392, 32768, 50257, 65536, 131072, 300_000, 300_001,
)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", sorted(ROWWISE))
def test_rows_of_every_length(lab: Lab, name: str, length: int, dtype: str) -> None:
    rows = 5 if length > 10_000 else 37
    x, values = lab.uniform((rows, length), dtype)
    extra = [lab.uniform((length,), dtype) for _ in range({"layer_norm": 2, "rms_norm": 1}.get(name, 0))]
    out = fs.full((rows, length), math.nan, dtype=dtype, device="cuda")
    getattr(fs, name)(x, *(tensor for tensor, _ in extra), out=out)
    want = ROWWISE[name](values, *(exactly for _, exactly in extra))
    bound = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(exact(out), want, rtol=bound, atol=bound * (np.abs(want).max() if extra else 1e-3))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 3), (3000, 5), (40, 129), (2, 70_001), (1, 1_000_003), (9000, 40), (300, 8192)])
def test_reductions_of_every_division(lab: Lab, shape: tuple[int, int], dtype: str) -> None:
    x, values = lab.uniform(shape, dtype, 0.5, 1.5)
    for name, reference in {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min}.items():
        for axis in (None, -1):
            for _ in range(2):  # the second call finds the counters that the first left
                got = exact(getattr(fs, name)(x, axis=axis))
                want = reference(values, axis=axis)
                if dtype == "float16" and name == "sum":
                    want = np.where(want > 65519, np.inf, want)
                np.testing.assert_allclose(got, want, rtol={"float64": 1e-13, "float32": 1e-6}.get(dtype, 5e-3))


def test_reductions_of_views_that_begin_anywhere(lab: Lab) -> None:
    cupy = pytest.importorskip("cupy")
    base = cupy.random.uniform(-1, 1, 100_013).astype("float32")
    for offset in range(5):
        x = fs.from_dlpack(base[offset:])
        values = cupy.asnumpy(base[offset:]).astype(np.float64)
        np.testing.assert_allclose(exact(fs.sum(x)), values.sum(), atol=2e-3)
        assert exact(fs.argmax(x)) == values.argmax()
