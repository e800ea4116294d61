"""Every op on CUDA, compared with NumPy in float64: the cases of the CPU, and cases only for CUDA."""

import numpy as np
import pytest
from helpers.byte_cases import ByteCases
from helpers.op_cases import OpCases
from helpers.ops_reference import BINARY, FLOATS, UNARY, Lab, exact

import flopscope as fs
from flopscope import _core


class TestOnCuda(OpCases):
    pass


class TestBytesOnCuda(ByteCases):
    pass


@pytest.mark.parametrize("dtype", FLOATS)
def test_random_numbers_equal_those_of_the_cpu(dtype: str) -> None:
    for make in (fs.rand, fs.randn):
        draws = []
        for device in ("cpu", "cuda"):
            fs.manual_seed(11)
            draws.append(exact(make((10_007,), dtype=dtype, device=device)))
        np.testing.assert_allclose(*draws, rtol=1e-2 if "16" in dtype else 1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_tensors(lab: Lab, dtype: str) -> None:
    n = (1 << 24) + 3
    x, y = (fs.rand((n,), dtype=dtype, device="cuda") for _ in range(2))
    a, b = exact(x), exact(y)
    lab.check(fs.add(x, y), a + b, dtype, 4)
    lab.check(fs.sin(x), np.sin(a), dtype, 4)
    lab.check(fs.sum(x), a.sum() if dtype != "float16" else np.inf, dtype, 4)
    lab.check(fs.mean(x), a.mean(), dtype, 4)
    lab.check(fs.cast(x, "float32"), a, "float32", 4)


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_misaligned_tensors_of_other_libraries_are_supported(lab: Lab, offset: int, dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    base = cupy.random.uniform(0.5, 1, 4099).astype(dtype)
    view = base[offset:]
    x = fs.from_dlpack(view)
    assert x.data_ptr == view.data.ptr
    values = cupy.asnumpy(view).astype(np.float64)
    for name in ("sin", "sqrt", "neg"):
        lab.check(getattr(fs, name)(x), UNARY[name](values), dtype, 4)
    for name in ("add", "mul"):
        lab.check(getattr(fs, name)(x, x), BINARY[name](values, values), dtype, 4)
    reverse = fs.from_dlpack(cupy.ascontiguousarray(view).reshape(2, -1)[:, ::2] if view.size % 2 == 0 else view[::2])
    lab.check(fs.exp(reverse), np.exp(exact(reverse)), dtype, 8)


def test_unusual_layouts(lab: Lab) -> None:
    cupy = pytest.importorskip("cupy")
    a = cupy.random.uniform(0.5, 1, (6, 130, 70)).astype("float32")
    for view in (
        a.transpose(2, 1, 0),
        a[:, ::-1],
        a[::2, :, 3::5],
        a.swapaxes(0, 1),
        cupy.broadcast_to(a[:1], a.shape),
    ):
        x = fs.from_dlpack(view)
        values = cupy.asnumpy(view).astype(np.float64)
        lab.check(fs.copy(x), values, "float32")
        lab.check(fs.log(x), np.log(values), "float32", 30)
        lab.check(fs.add(x, x), values + values, "float32", 4)
        lab.check(fs.sum(x), values.sum(), "float32", 10)
        lab.check(fs.cast(x, "float64"), values, "float64")


def test_tf32_is_used_only_with_allow_tf32(lab: Lab) -> None:
    (a, va), (b, vb) = (lab.uniform((512, 512), "float32", -1, 1) for _ in range(2))
    expected = va @ vb
    errors = [np.abs(exact(fs.matmul(a, b, allow_tf32=allow)) - expected).max() for allow in (False, True)]
    assert errors[0] < 5e-5 and 5e-4 < errors[1] < 0.1


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "fp8", "bfloat16"])
def test_probes_time_products_by_any_listed_algorithm(dtype: str) -> None:
    for choice in (0, 1):
        seconds, flops = _core.probe("cuda", "matmul", dtype, 1024, choice)
        assert seconds > 0 and flops == 2 * 1024**3
    for beyond in (-1, 64):
        with pytest.raises(RuntimeError, match="choosing an algorithm"):
            _core.probe("cuda", "matmul", dtype, 1024, beyond)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("side", [256, 250])
def test_products_of_8_bits_in_graphs_and_profiles(dtype: str, side: int) -> None:
    a = fs.ones((side, side), dtype=dtype, device="cuda")
    fs.measure(fs.matmul, a, a, max_time=0.1, peaks="none")
    with fs.profile(record_shapes=True) as prof:
        product = fs.matmul(a, a)
    assert (exact(product) == side).all()
    row = next(row for row in prof.key_averages() if row.key == "flopscope::matmul")
    assert row.flops == 2 * side**3
    assert row.bytes_total_moved == side**2 * (1 + (4 if dtype == "int8" else 2))


def test_the_first_algorithm_reads_padded_factors_of_any_alignment(lab: Lab) -> None:
    torch = pytest.importorskip("torch")
    values = torch.randint(-128, 128, (3, 67, 131), dtype=torch.int8, device="cuda")
    for a, b in (
        (values[0, 1:, 3:], values[1, :, 5:].T[:, :66]),
        (values[:, :64, 1:129], values[:, :, :128].transpose(1, 2)),
        (values[:, 3:19, :], values[1, :, :].T),
    ):
        b = b[..., : a.shape[-1], :]
        a = a[..., : b.shape[-2]]
        got = fs.matmul(fs.from_dlpack(a), fs.from_dlpack(b))
        want = a.double() @ b.double()
        assert torch.equal(torch.from_dlpack(got).double(), want)
