"""norm, var, argmax and cumsum on CUDA: the cases of the CPU, and sizes only for CUDA."""

import numpy as np
import pytest
from helpers.ops_reference import FLOATS, Lab, exact, norm, var
from helpers.reduction_cases import ReductionCases, near_sums

import flopscope as fs


class TestOnCuda(ReductionCases):
    pass


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, (1 << 24) + 3), (4096, 4099), (70_000, 129), (1_500_001, 5)], ids=str)
def test_large_inputs(lab: Lab, dtype: str, shape: tuple[int, int]) -> None:
    x = fs.randn(shape, dtype=dtype, device="cuda")
    values = exact(x)
    for axis in (None, -1):
        lab.check(fs.norm(x, axis), norm(values, axis), dtype, 4)
        lab.check(fs.var(x, axis), var(values, axis), dtype, 8)
        assert (exact(fs.argmax(x, axis)) == np.argmax(values, axis)).all()
    near_sums(fs.cumsum(x), values, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, (1 << 25) + 64), (2, 18_000_000)], ids=str)
def test_sums_of_the_longest_rows(lab: Lab, dtype: str, shape: tuple[int, int]) -> None:
    x = fs.randn(shape, dtype=dtype, device="cuda")
    sums = fs.cumsum(x)
    near_sums(sums, exact(x), dtype)
    assert (exact(fs.cumsum(x)) == exact(sums)).all()


@pytest.mark.parametrize("at", [0, 12_345_677, (1 << 25) - 1])
def test_sums_before_a_nan_are_numbers(at: int) -> None:
    values = np.ones(1 << 25, np.float32)
    values[at] = np.float32("nan")
    sums = fs.cumsum(fs.from_numpy(values).to("cuda")).numpy()
    assert np.isfinite(sums[:at]).all() and np.isnan(sums[at:]).all()


def test_more_than_two_to_the_31_elements(lab: Lab) -> None:
    count = (1 << 31) + 5
    x = fs.full((count,), 1, dtype="bfloat16", device="cuda")
    assert fs.argmax(x).item() == 0 and fs.var(x).item() == 0
    np.testing.assert_allclose(fs.norm(x).item(), count**0.5, rtol=4e-3)
    fs.copy_(fs.from_dlpack(pytest.importorskip("torch").from_dlpack(x)[-2:]), fs.full((2,), 2, device="cuda"))
    assert fs.argmax(x).item() == count - 2
    fs.mul_(x, 3)
    assert fs.amax(x).item() == 6 and fs.amin(x).item() == 3
    assert fs.mean(x).item() == 3


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_misaligned_inputs(lab: Lab, offset: int, dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    view = cupy.random.uniform(-1, 1.25, 40_000 + offset).astype(dtype)[offset:]
    for shape in ((1, 40_000), (5, 8000), (400, 100), (8000, 5)):
        x, values = fs.from_dlpack(view.reshape(shape)), cupy.asnumpy(view).astype(np.float64).reshape(shape)
        TestOnCuda().check_all(lab, x, values, dtype)
