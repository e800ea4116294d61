"""Tests of norm, var, argmax and cumsum on one device, by lengths, layouts and special values, against float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flopscope as fs
from helpers.ops_reference import FLOATS, TINY, TOLERANCE, Array, Lab, exact, norm, var

# Around the widths of vectors, warps, blocks and pieces.
LENGTHS = [1, 2, 3, 7, 8, 31, 33, 127, 129, 255, 257, 511, 513, 1000, 1025, 2049, 4097, 16385, 65536, 65537, 100_000]
VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T, "reversed": lambda x: x[:, ::-1], "stepped": lambda x: x[::2, 1::3],
    "permuted": lambda x: x.reshape(3, 11, 70).transpose(2, 0, 1),
}  # fmt: skip
every_dtype = pytest.mark.parametrize("dtype", FLOATS)
# Of sums in the type that a dtype computes with, relative to the sum of magnitudes.
SUMMING = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-6, "bfloat16": 2e-6}


def near_sums(got: fs.Tensor, values: Array, dtype: str) -> None:
    """Check cumulative sums: those of magnitudes bound the error."""
    want, magnitudes = (np.cumsum(x.astype(np.longdouble), -1) for x in (values, np.abs(values)))
    error = np.abs(exact(got) - want)
    if dtype == "float16":
        error[magnitudes > 65000] = 0  # beyond what float16 represents
    assert got.dtype == dtype and got.shape == want.shape
    assert (error <= TOLERANCE[dtype] * np.abs(want) + SUMMING[dtype] * magnitudes + TINY[dtype]).all(), error.max()


def with_ties(lab: Lab, shape: tuple[int, ...], dtype: str) -> tuple[fs.Tensor, Array]:
    """Few distinct values, so that a maximum occurs several times, also as -0 and 0."""
    values = lab.random.integers(-3, 1, shape) * lab.random.choice([1.0, 0.0], shape)
    return lab.tensor(values, dtype)


class ReductionCases:
    @pytest.mark.grid(5)
    @every_dtype
    @pytest.mark.parametrize("length", LENGTHS)
    def test_lengths(self, lab: Lab, dtype: str, length: int) -> None:
        for rows in (1, 3) if length > 1025 else (1, 5, 700):
            self.check_all(lab, *lab.uniform((rows, length), dtype, -1, 1.25), dtype)
            self.check_all(lab, *with_ties(lab, (rows, length), dtype), dtype)

    @pytest.mark.parametrize("offset", [10.0, -1000.0])
    @pytest.mark.parametrize("length", [5, 300, 5000, 100_000])
    def test_variances_far_from_zero(self, lab: Lab, length: int, offset: float) -> None:
        # Means in float32 are rounded relative to the offset, as those of torch on CUDA are.
        for dtype, rtol in (("float64", 1e-10), ("float32", 1e-6 + 4e-7 * abs(offset))):
            x, values = lab.tensor(offset + lab.random.normal(0, 1, (3, length)), dtype)
            for axis in (None, -1):
                np.testing.assert_allclose(exact(fs.var(x, axis)), var(values, axis), rtol=rtol)

    @every_dtype
    @pytest.mark.parametrize("length", [1, 2, 3, 1000, 70_000])
    def test_equal_elements_do_not_vary(self, lab: Lab, dtype: str, length: int) -> None:
        x = lab.tensor(np.full((2, length), 0.1), dtype)[0]
        got = exact(fs.var(x, -1, correction=0))
        assert (got >= 0).all() and (got <= 0.01 * TOLERANCE[dtype] ** 2).all()

    def test_variances_of_large_numbers(self, lab: Lab) -> None:
        inf = np.inf
        pairs = [[1e25, 1.1e25], [2e19, -2e19]]
        pairs += [[3e38, -3e38]] * (lab.device == "cpu")  # on CUDA their difference overflows
        for values, want in (
            *(([large] * 5000, 0.0) for large in (1e20, 3e38)),
            *((pair, inf) for pair in pairs),
            ([1e30] * 3, 0.0),
        ):
            assert fs.var(lab.tensor(values, "float32")[0]).item() == want

    @every_dtype
    def test_corrections(self, lab: Lab, dtype: str) -> None:
        x, values = lab.uniform((3, 50), dtype)
        for correction in (0, 1, 2.5, -3, 49, 49.5, np.int64(7), np.float32(0.5)):
            want = var(values, -1, correction=float(correction))
            lab.check(fs.var(x, -1, correction=correction), want, dtype, 4)
        for correction in (50, 51, 1e9):  # the divisor is 0, not less
            assert np.isposinf(exact(fs.var(x, -1, correction=correction))).all()
        one = lab.uniform((4, 1), dtype)[0]
        assert np.isnan(exact(fs.var(one, -1))).all() and exact(fs.var(one, -1, correction=0)).tolist() == [0] * 4

    @every_dtype
    @pytest.mark.parametrize("length", [1, 2, 40, 1000, 3000, 20_000, 100_000])
    def test_nan_and_infinity_anywhere(self, lab: Lab, dtype: str, length: int) -> None:
        for at in {0, length // 3, length - 1}:
            for special in (np.nan, np.inf, -np.inf):
                values = lab.random.uniform(-1, 1, (2, length))
                values[1, at] = special
                x, values = lab.tensor(values, dtype)
                for axis in (None, -1):
                    # A row of -inf alone has its maximum, which is its first element.
                    assert (exact(fs.argmax(x, axis)) == np.argmax(values, axis)).all()
                    got = exact(fs.norm(x, axis)).ravel()[-1]
                    assert np.isnan(got) if np.isnan(special) else np.isposinf(got)
                    assert np.isnan(exact(fs.var(x, axis, correction=0)).ravel()[-1])
                got = exact(fs.cumsum(x))
                assert np.isfinite(got[0]).all() and np.isfinite(got[1, :at]).all()
                assert np.isnan(got[1, at:]).all() if np.isnan(special) else (got[1, at:] == special).all()

    @pytest.mark.parametrize("length", [10, 1000, 5000, 100_000])
    def test_the_first_of_several_nan_and_maxima(self, lab: Lab, length: int) -> None:
        values = lab.random.uniform(-1, 1, (6, length))
        first, second = length // 2, length - 2
        for row, pair in enumerate([(np.nan, np.nan), (np.inf, np.nan), (np.nan, np.inf), (np.inf, np.inf), (2, 2)]):
            values[row, [first, second]] = pair
        values[5] = -np.inf
        got = exact(fs.argmax(lab.tensor(values, "float32")[0], -1))
        assert got.tolist() == [first, second, first, first, first, 0]

    def test_opposite_infinities_add_to_nan(self, lab: Lab) -> None:
        x = lab.tensor([[1, np.inf, 2, -np.inf, 3]], "float32")[0]
        np.testing.assert_array_equal(exact(fs.cumsum(x)), [[1, np.inf, np.inf, np.nan, np.nan]])

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
    @pytest.mark.parametrize("view", VIEWS)
    def test_strided_inputs(self, lab: Lab, view: str, dtype: str) -> None:
        values = lab.random.uniform(-1, 1.25, (33, 70)).astype(dtype)
        if lab.device == "cpu":
            x = fs.from_numpy(VIEWS[view](values))
        else:
            x = fs.from_dlpack(VIEWS[view](pytest.importorskip("cupy").asarray(values)))
        self.check_all(lab, x, VIEWS[view](values).astype(np.float64), dtype)

    @every_dtype
    def test_out(self, lab: Lab, dtype: str) -> None:
        x, values = lab.uniform((5, 300), dtype, -1, 1.25)
        for op in (fs.norm, fs.var, fs.argmax, fs.cumsum):
            want = op(x, -1)
            out = fs.empty(want.shape, dtype=want.dtype, device=lab.device)
            assert exact(op(x, -1, out=out)).tobytes() == exact(want).tobytes() == exact(out).tobytes()
            other = fs.empty(want.shape, dtype="float64" if dtype != "float64" else "float32", device=lab.device)
            with pytest.raises(TypeError, match=f"{op.__name__}.*dtype {want.dtype}"):
                op(x, -1, out=other)
        wide = fs.empty((300, 5), dtype=dtype, device=lab.device).T
        near_sums(fs.cumsum(x, out=wide), values, dtype)
        near_sums(fs.cumsum(x, out=x), values, dtype)

    def test_axes_and_kept_dimensions(self, lab: Lab) -> None:
        x, values = lab.uniform((2, 3, 40), "float32")
        for axis in (None, -1, 2):
            for keepdims in (False, True):
                got, expected = fs.argmax(x, axis, keepdims), np.argmax(values, axis, keepdims=keepdims)
                assert got.shape == expected.shape and (exact(got) == expected).all()
        near_sums(fs.cumsum(x, 2), values, "float32")
        scalar, value = lab.uniform((), "float32")
        assert exact(fs.norm(scalar)) == abs(value) and np.isnan(fs.var(scalar).item())
        assert fs.argmax(scalar).item() == 0

    def test_empty_inputs(self, lab: Lab) -> None:
        none = fs.empty((3, 0), device=lab.device)
        assert exact(fs.norm(none, -1)).tolist() == [0, 0, 0] and fs.norm(none).item() == 0
        assert np.isnan(exact(fs.var(none, -1))).all() and np.isnan(fs.var(none).item())
        assert fs.cumsum(none).shape == (3, 0)
        for axis in (None, -1):
            with pytest.raises(ValueError, match=r"argmax\(float32 \(3, 0\).*empty axis"):
                fs.argmax(none, axis)
        no_rows = fs.empty((0, 3), device=lab.device)
        for op in (fs.norm, fs.var, fs.argmax):
            assert op(no_rows, -1).shape == (0,)
        assert fs.argmax(no_rows, -1).dtype == "int64" and fs.cumsum(no_rows).shape == (0, 3)

    def check_all(self, lab: Lab, x: fs.Tensor, values: Array, dtype: str) -> None:
        for axis in (None, -1):
            lab.check(fs.norm(x, axis), norm(values, axis), dtype, 4)
            # A variance far below the square of the mean keeps fewer digits.
            lab.check(fs.var(x, axis), var(values, axis), dtype, 16)
            lab.check(fs.var(x, axis, correction=0), var(values, axis, correction=0), dtype, 16)
            got = fs.argmax(x, axis)
            assert got.dtype == "int64" and got.device.startswith(lab.device)
            assert (exact(got) == np.argmax(values, axis)).all()
        near_sums(fs.cumsum(x), values, dtype)
        near_sums(fs.cumsum(x, -1), values, dtype)
