"""Tests of every op and dtype on one device: tests/ops/test_ops.py runs them on the CPU, tests/gpu on CUDA."""

from typing import Any

import numpy as np
import pytest

import flopscope as fs
from helpers import ops_reference as reference
from helpers.ops_reference import BINARY, FLOATS, POSITIVE, REDUCTIONS, UNARY, Lab, exact

SHAPES = [(), (1,), (7,), (0, 5), (33, 65), (2, 3, 129), (4099,)]
every_dtype = pytest.mark.parametrize("dtype", FLOATS)
BROADCAST = [
    *(((33, 65), (33, 65)), ((33, 65), (65,)), ((33, 1), (1, 65))),
    *(((), (5,)), ((2, 1, 7), (3, 1)), ((0, 3), (3,))),
]
PRODUCTS = [
    ((1, 1), (1, 1)), ((33, 65), (65, 17)), ((128, 64), (64, 256)), ((3, 33, 65), (3, 65, 17)),
    ((4, 1, 5, 6), (3, 6, 7)), ((2, 5, 6), (6, 7)), ((5, 0), (0, 3)), ((0, 4), (4, 3)), ((2, 3, 1, 4, 5), (3, 2, 5, 1)),
]  # fmt: skip
ALL = [*FLOATS, "int64", "int32", "int8", "uint8", "bool"]
NEAR = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # of what sums elements


def near_product(got: fs.Tensor, want: Any, dtype: str, atol: float = 2e-2, rtol: float = 1e-2) -> None:
    assert got.dtype == dtype and got.shape == want.shape
    np.testing.assert_allclose(exact(got), want, rtol=rtol if "16" in dtype else 1e-5, atol=atol)


class OpCases:
    @pytest.mark.parametrize("name", UNARY)
    @every_dtype
    def test_unary(self, lab: Lab, name: str, dtype: str) -> None:
        for shape in SHAPES:
            x, values = lab.uniform(shape, dtype, 0.05 if name in POSITIVE else -3.0, 3.0)
            want, got = UNARY[name](values), getattr(fs, name)(x)
            if name == "gelu" and dtype != "float64":  # 1 + erf cancels below -2
                np.testing.assert_allclose(exact(got), want, rtol=8e-3 if "16" in dtype else 1e-4, atol=1e-6)
            else:
                lab.check(got, want, dtype, 8 if name in ("gelu", "silu") else 4)  # composed: each part rounds
            out = fs.empty(shape, dtype=dtype, device=lab.device)
            assert exact(getattr(fs, name)(x, out=out)).tobytes() == exact(got).tobytes()
            assert exact(getattr(fs, name + "_")(x)).tobytes() == exact(got).tobytes() == exact(x).tobytes()

    @pytest.mark.parametrize("name", BINARY)
    @every_dtype
    def test_binary(self, lab: Lab, name: str, dtype: str) -> None:
        for shapes in BROADCAST:
            (a, va), (b, vb) = (lab.uniform(shape, dtype, 0.1, 2.5) for shape in shapes)
            want = BINARY[name](va, vb)
            lab.check(getattr(fs, name)(a, b), want, dtype, 4)
            target = lab.tensor(np.broadcast_to(va, want.shape), dtype)[0]
            lab.check(getattr(fs, name + "_")(target, b), want, dtype, 4)
            lab.check(target, want, dtype, 4)
        x, values = lab.uniform((17, 31), dtype, 0.1, 2.5)
        lab.check(getattr(fs, name)(x, 1.5), BINARY[name](values, 1.5), dtype, 4)
        lab.check(getattr(fs, name)(1.5, x), BINARY[name](1.5, values), dtype, 4)
        lab.check(getattr(fs, name)(x, 2), BINARY[name](values, 2.0), dtype, 4)

    @every_dtype
    def test_pow_with_a_scalar_exponent(self, lab: Lab, dtype: str) -> None:
        for exponent in (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 3.14159, -2.5):
            x, values = lab.uniform((257,), dtype, 0.2, 2.0)
            lab.check(fs.pow(x, exponent), np.power(values, exponent), dtype, 4)

    def test_operators(self, lab: Lab) -> None:
        (a, va), (b, vb) = (lab.uniform((5, 5), "float64", 0.5, 2) for _ in range(2))
        results = [a + b, a - 1, 2 - a, a * b, 1 / a, a**b, 2**a, -a, abs(-a), a @ b, np.float64(2) * a]
        wanted = [va + vb, va - 1, 2 - va, va * vb, 1 / va, va**vb, 2**va, -va, va, va @ vb, 2 * va]
        for got, want in zip(results, wanted, strict=True):
            lab.check(got, want, "float64", 8)
        original = a
        a += b
        a *= 2
        a -= 1
        a /= b
        assert a is original
        lab.check(a, ((va + vb) * 2 - 1) / vb, "float64", 8)

    def test_special_values(self, lab: Lab) -> None:
        inf, nan = np.inf, np.nan
        values = np.array([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 1e-310, 1e300, -1e300, 7.5e8, 1e22, 710.0, -746.0])
        with np.errstate(all="ignore"):
            for name in set(UNARY) - {"gelu"}:
                for dtype in ("float64", "float32"):
                    x, inputs = lab.tensor(values, dtype)
                    want = UNARY[name](inputs)
                    want = want.astype(dtype).astype(np.float64)
                    if name == "silu":
                        want[np.isneginf(inputs)] = nan  # the reference evaluates -inf / (1 + inf)
                    near = {"rtol": 1e-6 if dtype == "float32" else 1e-13, "atol": 1e-44}
                    np.testing.assert_allclose(exact(getattr(fs, name)(x)), want, **near, err_msg=f"{name} {dtype}")
        for name in ("maximum", "minimum"):
            got = exact(getattr(fs, name)(*(lab.tensor(v, "float32")[0] for v in ([1.0, nan, 3.0], [nan, 2.0, 4.0]))))
            assert np.isnan(got[:2]).all() and got[2] == (4 if name == "maximum" else 3)

    def test_exact_points(self, lab: Lab) -> None:
        points = {"log2": (8, 3), "log10": (1000, 3), "exp": (0, 1), "sin": (0, 0), "cos": (0, 1), "sqrt": (9, 3)}
        points |= {"log": (1, 0), "tanh": (0, 0), "erf": (0, 0)}
        for dtype in ("float64", "float32"):
            for name, (at, want) in points.items():
                got = float(exact(getattr(fs, name)(lab.tensor([float(at)], dtype)[0]))[0])
                # CUDA's log2 of float64 is accurate only to 1 unit in the last place.
                near = lab.device == "cuda" and abs(got - want) <= np.spacing(float(want))
                assert got == want or near, (name, dtype)

    @pytest.mark.parametrize("name", REDUCTIONS)
    @every_dtype
    def test_reductions(self, lab: Lab, name: str, dtype: str) -> None:
        scale = 16 if name == "var" else 4  # a variance far below the square of the mean keeps fewer digits
        for shape in ((1,), (7,), (33, 65), (2, 3, 129), (3, 20011), (5000, 3)):
            x, values = lab.uniform(shape, dtype, 0.1, 1.0)
            for axis in (None, -1, len(shape) - 1):
                for keepdims in (False, True):
                    want = REDUCTIONS[name](values, axis=axis, keepdims=keepdims)
                    if dtype != "float16" or np.abs(want).max() <= 65000:
                        lab.check(getattr(fs, name)(x, axis, keepdims), want, dtype, scale)
            out = fs.empty(shape[:-1], dtype=dtype, device=lab.device)
            lab.check(getattr(fs, name)(x, axis=-1, out=out), REDUCTIONS[name](values, axis=-1), dtype, scale)

    def test_reductions_of_nan_and_of_empty_tensors(self, lab: Lab) -> None:
        values = np.ones((3, 1000))
        values[1, 617] = np.nan
        x = lab.tensor(values, "float32")[0]
        for name in REDUCTIONS:
            got = exact(getattr(fs, name)(x, -1))
            assert np.isnan(got[1]) and not np.isnan(got[[0, 2]]).any(), name
            assert np.isnan(getattr(fs, name)(x).item())
        empty = lab.tensor(np.ones((2, 0)), "float32")[0]
        assert fs.sum(empty).item() == 0 and np.isnan(fs.mean(empty).item())
        assert exact(fs.sum(empty, -1)).tolist() == [0, 0]
        for name in ("amax", "amin"):
            with pytest.raises(ValueError, match=name):
                getattr(fs, name)(empty)

    def test_a_long_sum_is_accurate(self, lab: Lab) -> None:
        x, values = lab.uniform((3_000_001,), "float32", 0.0, 1.0)
        assert abs(fs.sum(x).item() - values.sum()) < 1e-6 * values.sum()

    @every_dtype
    @pytest.mark.parametrize("shape", [(1,), (3, 7), (33, 65), (2, 3, 1000), (4, 9001), (0, 4), (2, 70001)], ids=str)
    def test_softmax_and_norms(self, lab: Lab, dtype: str, shape: tuple[int, ...]) -> None:
        x, values = lab.uniform(shape, dtype)
        weight, vw = lab.uniform(shape[-1:], dtype, 0.5, 1.5)
        bias, vb = lab.uniform(shape[-1:], dtype)
        near = {"rtol": NEAR[dtype], "atol": 2e-2 if dtype == "bfloat16" else NEAR[dtype]}
        if 0 in shape:
            assert fs.softmax(x).shape == shape
            return
        for got, want in [
            (fs.softmax(x), reference.softmax(values)),
            (fs.log_softmax(x), reference.log_softmax(values)),
            (fs.layer_norm(x), reference.layer_norm(values)),
            (fs.layer_norm(x, weight, bias), reference.layer_norm(values, vw, vb)),
            (fs.layer_norm(x, bias=bias, eps=0.1), reference.layer_norm(values, bias=vb, eps=0.1)),
            (fs.rms_norm(x), reference.rms_norm(values)),
            (fs.rms_norm(x, weight, 0.01), reference.rms_norm(values, vw, 0.01)),
        ]:
            assert got.dtype == dtype and got.shape == shape
            np.testing.assert_allclose(exact(got), want, **near)
        np.testing.assert_allclose(exact(fs.softmax(x, out=x)), reference.softmax(values), **near)

    def test_softmax_of_large_values(self, lab: Lab) -> None:
        x = lab.tensor([[1000.0, 1000.0], [-1e30, 0.0]], "float32")[0]
        np.testing.assert_allclose(exact(fs.softmax(x)), [[0.5, 0.5], [0, 1]])

    @every_dtype
    def test_matmul(self, lab: Lab, dtype: str) -> None:
        for shapes in PRODUCTS:
            (a, va), (b, vb) = (lab.uniform(shape, dtype, -1, 1) for shape in shapes)
            atol = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
            near_product(fs.matmul(a, b), va @ vb, dtype, atol * max(1, shapes[0][-1] ** 0.5))
        (a, va), (b, vb) = (lab.uniform(shape, dtype, -1, 1) for shape in ((65, 33), (17, 65)))
        near_product(fs.matmul(a.T, b.T), va.T @ vb.T, dtype)
        near_product(fs.matmul(b, a), vb @ va, dtype)
        near_product(fs.matmul(a.T, a), va.T @ va, dtype)
        square, values = lab.uniform((40, 40), dtype, -1, 1)
        near_product(fs.matmul(square, square, out=square), values @ values, dtype)

    @every_dtype
    def test_addmm(self, lab: Lab, dtype: str) -> None:
        (a, va), (b, vb) = (lab.uniform(shape, dtype, -1, 1) for shape in ((33, 65), (65, 17)))
        for shape in ((17,), (33, 17), (33, 1), ()):
            bias, values = lab.uniform(shape, dtype)
            near_product(fs.addmm(bias, a, b), values + va @ vb, dtype, 4e-2, 2e-2)

    @pytest.mark.parametrize("source", ALL)
    def test_casts(self, lab: Lab, source: str) -> None:
        for target in ALL:
            values = lab.random.integers(0, 100, (37, 23)).astype(np.float64)
            if source in FLOATS and target in FLOATS:
                values += lab.random.uniform(0, 1, values.shape)
            if source == "bool":
                values = (values > 50).astype(np.float64)
            x = fs.from_numpy(values, device=lab.device).to(source)
            held, got = exact(x), exact(fs.cast(x, target))
            if target == "bool":
                assert (got == (held != 0)).all()
            else:
                np.testing.assert_allclose(got, held, rtol={"float16": 5e-4, "bfloat16": 4e-3}.get(target, 6e-8))
            assert (exact(fs.cast(x.T, target)) == got.T).all()

    def test_rounding_to_half_is_to_nearest_even(self, lab: Lab) -> None:
        spread = [lab.random.uniform(-70000, 70000, 5000), lab.random.uniform(-1e-7, 1e-7, 3000)]
        edges = [65519.9, 65520.0, 1e10, 2049.0, 2051.0, 6.1e-5, 5.9e-8, 2.98e-8, 2.9803e-8]
        values = np.concatenate([*spread, edges, [0.0, -0.0, np.inf, -np.inf]]).astype(np.float32)
        x = fs.from_numpy(values, device=lab.device)
        with np.errstate(over="ignore"):
            want = values.astype(np.float16)
        assert fs.cast(x, "float16").to("cpu").numpy().tobytes() == want.tobytes()
        bits = values.view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
        assert exact(fs.cast(x, "bfloat16")).astype(np.float32).tobytes() == rounded.tobytes()
        assert np.isnan(exact(fs.cast(fs.full((3,), float("nan"), device=lab.device), "float16"))).all()

    @every_dtype
    def test_copies_and_transposes(self, lab: Lab, dtype: str) -> None:
        x, values = lab.uniform((3, 65, 130), dtype)
        lab.check(fs.copy(x), values, dtype)
        lab.check(fs.transpose_copy(x), values.swapaxes(-1, -2), dtype)
        lab.check(fs.copy(x.T), values.T, dtype)
        target = fs.zeros((2, 3, 65, 130), dtype=dtype, device=lab.device)
        lab.check(fs.copy_(target, x), np.broadcast_to(values, target.shape), dtype)

    @pytest.mark.parametrize("dtype", ALL)
    def test_creation_and_fill(self, lab: Lab, dtype: str) -> None:
        for shape in [(), (3,), (5, 7), (0, 2), (100003,)]:
            assert (exact(fs.zeros(shape, dtype=dtype, device=lab.device)) == 0).all()
            assert (exact(fs.ones(shape, dtype=dtype, device=lab.device)) == 1).all()
            full = fs.full(shape, 3, dtype=dtype, device=lab.device)
            assert full.shape == shape and full.dtype == dtype and (exact(full) == (1 if dtype == "bool" else 3)).all()
            assert (exact(fs.fill_(full, 0)) == 0).all()

    @every_dtype
    def test_random_numbers(self, lab: Lab, dtype: str) -> None:
        fs.manual_seed(7)
        u, n = (exact(make((400, 251), dtype=dtype, device=lab.device)) for make in (fs.rand, fs.randn))
        assert u.min() >= 0 and (u.max() < 1 or "16" in dtype)
        assert abs(u.mean() - 0.5) < 0.005 and abs(u.var() - 1 / 12) < 0.002
        assert abs(n.mean()) < 0.015 and abs(n.std() - 1) < 0.01 and abs((n**4).mean() - 3) < 0.15
        assert np.unique(u).size > (100 if "16" in dtype else 90_000)
        fs.manual_seed(7)
        again = exact(fs.rand((400, 251), dtype=dtype, device=lab.device))
        assert (again == u).all() and not (exact(fs.rand((400, 251), dtype=dtype, device=lab.device)) == u).all()
        x = fs.empty((1001,), dtype=dtype, device=lab.device)
        low = exact(fs.uniform_(x, -2, -1))
        assert low.min() >= -2 and low.max() <= -1 and abs(exact(fs.normal_(x, 5, 0.1)).mean() - 5) < 0.05

    def test_out_may_overlap_an_input(self, lab: Lab) -> None:
        base, values = lab.uniform((64, 64), "float32")
        got = fs.add(base, base.T, out=base)
        np.testing.assert_allclose(exact(got), values + values.T, rtol=1e-6)
