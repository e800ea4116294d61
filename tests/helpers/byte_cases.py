"""Tests of float8 and of products of 8-bit factors on one device: tests/ops/test_ops.py runs them on the CPU,
tests/gpu on CUDA."""

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

import flopscope as fs
from helpers.ops_reference import Array, Lab, exact

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
# Bits of the fraction, bias of the exponent, and whether the largest exponent holds numbers, but for all ones.
FORMATS = {"float8_e4m3fn": (3, 7, True), "float8_e5m2": (2, 15, False)}
every_float8 = pytest.mark.parametrize("dtype", FLOAT8)
SHAPES = [
    ((1, 1), (1, 1)), ((16, 32), (32, 16)), ((33, 65), (65, 17)), ((128, 64), (64, 256)), ((5, 16), (16, 3)),
    ((3, 33, 48), (3, 48, 16)), ((4, 1, 5, 6), (3, 6, 7)), ((2, 16, 16), (16, 32)), ((5, 0), (0, 3)), ((0, 4), (4, 3)),
]  # fmt: skip
every_shape = pytest.mark.parametrize("shapes", SHAPES, ids=str)


def numbers_of(dtype: str) -> Array:
    """Return the numbers of the codes 0 to 127, by the definition of the format."""
    fraction_bits, bias, holds_numbers = FORMATS[dtype]
    codes = np.arange(128)
    exponent, fraction = codes >> fraction_bits, codes % (1 << fraction_bits)
    values = np.where(exponent > 0, 1 + fraction / 2**fraction_bits, fraction / 2**fraction_bits * 2.0)
    values = values * 2.0 ** (exponent - bias)
    if holds_numbers:
        values[127] = np.nan
    else:
        values[124], values[125:] = np.inf, np.nan
    return values


def nearest(values: Array, dtype: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the codes of the nearest numbers, ties to even: saturated, or infinite half a unit beyond the last."""
    table = numbers_of(dtype)
    finite = table[np.isfinite(table)]
    size = np.where(np.isfinite(values), np.abs(values), 1e300)
    above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    to_low, to_high = size - finite[above - 1], finite[above] - size
    up = (to_high < to_low) | ((to_high == to_low) & (above % 2 == 0))
    codes = np.where(up, above, above - 1)
    if dtype == "float8_e5m2":
        codes = np.where(size >= finite[-1] + (finite[-1] - finite[-2]) / 2, 124, codes)
    codes = np.where(np.isnan(values), 127, codes)
    return (codes | np.where(np.signbit(values), 128, 0)).astype(np.uint8)


def codes_of(tensor: fs.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    host = fs.copy(tensor.to("cpu"))
    memory = (ctypes.c_uint8 * host.size).from_address(host.data_ptr)
    return np.frombuffer(memory, np.uint8).reshape(host.shape).copy()


def all_codes(dtype: str, device: str) -> fs.Tensor:
    """Return a tensor of the codes 0 to 255."""
    host = fs.zeros((256,), dtype=dtype, device="cpu")
    (ctypes.c_uint8 * 256).from_address(host.data_ptr)[:] = list(range(256))
    return host.to(device)


def numbers_only(codes: Array, values: Array) -> Array:
    return codes[~np.isnan(values)]


class ByteCases:
    @every_float8
    def test_every_float8_widens_to_its_number(self, lab: Lab, dtype: str) -> None:
        x = all_codes(dtype, lab.device)
        want = numbers_of(dtype)
        want = np.concatenate([want, -want])
        for wide in ("float64", "float32", "float16", "bfloat16"):
            got = exact(fs.cast(x, wide))
            np.testing.assert_array_equal(got, want, err_msg=wide)
            numbers = ~np.isnan(want)
            assert (np.signbit(got) == np.signbit(want))[numbers].all()
        finite = np.isfinite(want)
        for whole in ("int64", "int32"):
            np.testing.assert_array_equal(exact(fs.cast(x, whole))[finite], np.trunc(want[finite]), err_msg=whole)
        np.testing.assert_array_equal(exact(fs.cast(x, "bool")), want != 0)
        for other in FLOAT8:
            held = numbers_only(got := codes_of(fs.cast(x, other)), want)
            np.testing.assert_array_equal(held, numbers_only(nearest(want, other), want), err_msg=other)
            assert (got[np.isnan(want)] % 128 > 124).all()

    @every_float8
    def test_narrowing_rounds_once_to_the_nearest(self, lab: Lab, dtype: str) -> None:
        bits = np.arange(1 << 16, dtype=np.uint16)
        words = lab.random.integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
        numbers = numbers_of(dtype)
        numbers = numbers[np.isfinite(numbers)]
        middles = (numbers[1:] + numbers[:-1]) / 2
        beyond = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
        near = np.concatenate([numbers, middles, [beyond, 1e300, np.inf, np.nan]])
        near = np.concatenate([near, np.nextafter(near, 0), np.nextafter(near, np.inf)])
        spread = lab.random.uniform(-2, 2, 1 << 16) * 2.0 ** lab.random.integers(-20, 18, 1 << 16)
        cases = {
            "float16": bits.view(np.float16),
            "bfloat16": (bits.astype(np.uint32) << 16).view(np.float32),
            "float32": np.concatenate([words.view(np.float32), spread.astype(np.float32)]),
            "float64": np.concatenate([near, -near, spread]),
            "int64": np.arange(-70000, 70000),
            "int8": np.arange(-128, 128, dtype=np.int8),
        }
        for source, values in cases.items():
            x = fs.from_numpy(values, device=lab.device).to(source)
            with np.errstate(invalid="ignore"):  # signalling NaN
                wide = values.astype(np.float64)
            got = codes_of(fs.cast(x, dtype))
            numbers_only = ~np.isnan(wide)
            np.testing.assert_array_equal(got[numbers_only], nearest(wide, dtype)[numbers_only], err_msg=source)
            assert (got[~numbers_only] % 128 == 127).all(), source

    @every_float8
    def test_copies_keep_every_bit(self, lab: Lab, dtype: str) -> None:
        x = all_codes(dtype, lab.device)
        assert (codes_of(x) == np.arange(256)).all() and (codes_of(fs.copy(x)) == np.arange(256)).all()
        target = fs.full((3, 256), 1, dtype=dtype, device=lab.device)
        assert (codes_of(target) == nearest(np.ones(1), dtype)).all()
        fs.copy_(target, x)
        assert (codes_of(target) == np.arange(256)).all() and (codes_of(target.T) == np.arange(256)[:, None]).all()
        assert (codes_of(fs.transpose_copy(target)) == np.arange(256)[:, None]).all()
        assert codes_of(fs.fill_(target, -0.0)).tolist() == [[128] * 256] * 3

    @every_float8
    def test_arithmetic_names_the_cast(self, lab: Lab, dtype: str) -> None:
        x = fs.ones((4, 4), dtype=dtype, device=lab.device)
        for call in (
            lambda: x + x,
            lambda: fs.exp(x),
            lambda: fs.sum(x),
            lambda: fs.softmax(x),
            lambda: fs.matmul(x, x.to("float32")),
        ):
            with pytest.raises(TypeError, match=rf'{dtype} \(4, 4\).*cast with x\.to\("float32"\)'):
                call()
        with pytest.raises(TypeError, match="rand: the dtype must be float64"):
            fs.rand((3,), dtype=dtype, device=lab.device)

    @every_shape
    def test_products_of_int8_are_exact(self, lab: Lab, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        va, vb = (lab.random.integers(-128, 128, shape, dtype=np.int8) for shape in shapes)
        a, b = (fs.from_numpy(values, device=lab.device) for values in (va, vb))
        want = va.astype(np.int64) @ vb.astype(np.int64)
        got = fs.matmul(a, b)
        assert (got.dtype, got.shape) == ("int32", want.shape)
        np.testing.assert_array_equal(got.numpy(), want)
        out = fs.full(want.shape, 7, dtype="int32", device=lab.device)
        fs.matmul(a, b, out=out)
        np.testing.assert_array_equal(out.numpy(), want)
        for shape in (want.shape[-1:], want.shape, ()):
            bias = lab.random.integers(-(10**6), 10**6, shape, dtype=np.int32)
            got = fs.addmm(fs.from_numpy(bias, device=lab.device), a, b)
            np.testing.assert_array_equal(got.numpy(), bias + want)

    def test_products_of_int8_at_the_ends_of_the_range(self, lab: Lab) -> None:
        for k in (15, 4096, 100_000):
            a = fs.full((9, k), -128, dtype="int8", device=lab.device)
            assert (fs.matmul(a, a.T).numpy() == 128 * 128 * k).all()

    @pytest.mark.parametrize("sides", [(65, 33, 17), (64, 32, 48)], ids=str)
    def test_products_of_transposed_views(self, lab: Lab, sides: tuple[int, int, int]) -> None:
        m, k, n = sides
        for turns in itertools.product((True, False), repeat=2):
            shapes = [shape[::-1] if turn else shape for shape, turn in zip(((m, k), (k, n)), turns, strict=True)]

            def turned(values: Any, turns: Any = turns) -> list[Any]:
                return [each.T if turn else each for each, turn in zip(values, turns, strict=True)]

            whole = [lab.random.integers(-128, 128, shape, dtype=np.int8) for shape in shapes]
            va, vb = turned(whole)
            a, b = turned([fs.from_numpy(values, device=lab.device) for values in whole])
            np.testing.assert_array_equal(fs.matmul(a, b).numpy(), va.astype(np.int64) @ vb.astype(np.int64))
            both = [lab.tensor(values / 32, "float8_e4m3fn") for values in whole]
            (a, b), (va, vb) = turned([x for x, _ in both]), turned([values for _, values in both])
            out = fs.empty((m, n), dtype="float32", device=lab.device)
            np.testing.assert_allclose(exact(fs.matmul(a, b, out=out)), va @ vb, rtol=1e-3, atol=1e-3 * k)

    @pytest.mark.parametrize("b_dtype", FLOAT8)
    @every_float8
    @every_shape
    def test_products_of_float8(
        self, lab: Lab, dtype: str, b_dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> None:
        (a, va), (b, vb) = (lab.uniform(shape, of, -2, 2) for shape, of in zip(shapes, (dtype, b_dtype), strict=True))
        if lab.device == "cuda" and dtype == b_dtype == "float8_e5m2":
            with pytest.raises(TypeError, match=r'two matrices of float8_e5m2.*x\.to\("float8_e4m3fn"\)'):
                fs.matmul(a, b)
            return
        want = va @ vb
        # Tensor cores may add up products in fewer bits than float32.
        atol = 2e-3 * max(1, shapes[0][-1]) ** 0.5
        got = fs.matmul(a, b)
        assert (got.dtype, got.shape) == ("bfloat16", want.shape)
        np.testing.assert_allclose(exact(got), want, rtol=8e-3, atol=atol)
        for out_dtype, rtol in (("float32", 1e-3), ("float16", 2e-3), ("bfloat16", 8e-3)):
            out = fs.full(want.shape, float("nan"), dtype=out_dtype, device=lab.device)
            np.testing.assert_allclose(exact(fs.matmul(a, b, out=out)), want, rtol=rtol, atol=atol)
            bias, values = lab.uniform(want.shape[-1:], out_dtype)
            got = fs.addmm(bias, a, b)
            assert got.dtype == out_dtype
            np.testing.assert_allclose(exact(got), values + want, rtol=rtol, atol=atol + 4 * rtol)

    def test_products_check_their_dtypes(self, lab: Lab) -> None:
        eight, wide = (fs.ones((16, 16), dtype=dtype, device=lab.device) for dtype in ("int8", "float32"))
        f8 = fs.ones((16, 16), dtype="float8_e4m3fn", device=lab.device)
        for call, text in (
            (lambda: fs.matmul(eight, wide), "the dtype must be"),
            (lambda: fs.matmul(eight, f8), "the dtype must be"),
            (lambda: fs.matmul(eight, eight, out=wide), "the output must have dtype int32"),
            (lambda: fs.matmul(f8, f8, out=wide.to("float64")), "the output must have dtype bfloat16"),
            (lambda: fs.addmm(wide, eight, eight), "the bias must have dtype int32"),
            (lambda: fs.addmm(eight, f8, f8), "the bias must have dtype float32, float16 or bfloat16"),
            (lambda: fs.addmm(wide, f8, f8, out=f8.to("bfloat16")), "the output must have dtype float32"),
        ):
            with pytest.raises(TypeError, match=text):
                call()
