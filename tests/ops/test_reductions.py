"""norm, var, argmax and cumsum on the CPU, against NumPy in float64 and torch; results for any number of threads."""

import numpy as np
import pytest
from helpers.ops_reference import FLOATS, Lab, exact, with_threads
from helpers.reduction_cases import ReductionCases

import flopscope as fs


class TestOnTheCpu(ReductionCases):
    pass


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 300_003), (3, 100_001), (40, 20_000), (5000, 7)], ids=str)
def test_results_do_not_depend_on_the_number_of_threads(lab: Lab, dtype: str, shape: tuple[int, int]) -> None:
    x = lab.uniform(shape, dtype, -1, 1.25)[0]

    def compute() -> list[bytes]:
        whole = [exact(op(x, axis)).tobytes() for op in (fs.norm, fs.var, fs.argmax) for axis in (None, -1)]
        return [*whole, exact(fs.cumsum(x)).tobytes()]

    results = with_threads(compute, 1, 2, 3, 16)
    assert all(result == results[0] for result in results[1:])


def test_squares_that_overflow_or_vanish() -> None:
    for dtype, large, small in (("float32", 1e20, 1e-30), ("float64", 1e200, 1e-200)):
        x, y = (fs.full((10,), value, dtype=dtype, device="cpu") for value in (large, small))
        assert np.isposinf(fs.norm(x).item()) and fs.norm(y).item() == 0 and fs.var(x).item() == 0


def test_large_cumulative_sums_pass_the_cache(lab: Lab) -> None:
    count = max(fs._core.cpu_properties()["cache_bytes"], 1 << 20) // 4 + 1003
    values = np.zeros(count, np.float32)
    values[:: 1 + count // (1 << 23)] = 1  # so that every sum is exact in float32, however large the cache is
    assert (fs.cumsum(fs.from_numpy(values)).numpy() == np.cumsum(values, dtype=np.float64)).all()
    several = values[: count // 3 * 3].reshape(3, -1)
    assert (fs.cumsum(fs.from_numpy(several)).numpy() == np.cumsum(several, axis=1, dtype=np.float64)).all()
