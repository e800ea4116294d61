"""Every op on the CPU against NumPy in float64, with any number of threads; float8, and products of 8-bit factors."""

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers import TESTS
from helpers.byte_cases import FLOAT8, ByteCases
from helpers.op_cases import OpCases
from helpers.ops_reference import BINARY, FLOATS, REDUCTIONS, UNARY, Lab, exact, with_threads
from helpers.reduction_cases import ReductionCases

import flopscope as fs


class TestOnTheCpu(OpCases):
    pass


def test_every_op_has_a_result_test() -> None:
    named = set(UNARY) | set(BINARY) | set(REDUCTIONS)
    named |= {name + "_" for name in {*UNARY, *BINARY}}
    files = [TESTS / "helpers" / f"{name}_cases.py" for name in ("op", "reduction")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [op for op in fs._core.ops if op not in named and f"fs.{op}" not in text] == []


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("program", ["ops_precision", "ops_layouts"])
def test_all_instruction_sets_are_right_to_the_last_bits_and_on_any_layout(program: str, isa: str) -> None:
    command = [sys.executable, "-m", f"helpers.{program}"]
    environment = {**os.environ, "FLOPSCOPE_ISA": isa}
    done = subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() != isa:
        pytest.skip(f"this processor runs {done.stdout.strip()} at most")


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = fs.from_numpy(np.random.default_rng(1).random((1000, 3001), dtype=np.float32))

    def compute() -> tuple[object, ...]:
        fs.manual_seed(3)
        drawn = fs.randn((100_001,), device="cpu")
        return fs.sum(x).item(), fs.softmax(x).numpy().tobytes(), drawn.numpy().tobytes()

    results = with_threads(compute, 1, 2, 5)
    assert results[0] == results[1] == results[2]


class TestReductionsOnTheCpu(ReductionCases):
    pass


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 300_003), (3, 100_001), (40, 20_000), (5000, 7)], ids=str)
def test_reductions_do_not_depend_on_the_number_of_threads(lab: Lab, dtype: str, shape: tuple[int, int]) -> None:
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
    got = fs.cumsum(fs.from_numpy(values)).numpy()
    assert (got == np.cumsum(values, dtype=np.float64)).all()
    several = values[: count // 3 * 3].reshape(3, -1)
    rows = fs.cumsum(fs.from_numpy(several)).numpy()
    assert (rows == np.cumsum(several, axis=1, dtype=np.float64)).all()


class TestBytesOnTheCpu(ByteCases):
    pass


def test_casts_and_products_are_equal_with_any_number_of_threads() -> None:
    values = np.random.default_rng(3).integers(-128, 128, (700, 300), dtype=np.int8)
    x = fs.from_numpy(values)

    def compute() -> tuple[np.ndarray, list[np.ndarray]]:  # type: ignore[type-arg]
        return fs.matmul(x, x.T).numpy(), [fs.cast(x, dtype).to("float32").numpy() for dtype in FLOAT8]

    wanted = values.astype(np.int64) @ values.T.astype(np.int64)
    whole = [fs.cast(fs.cast(x, dtype), "float32").numpy() for dtype in FLOAT8]
    for product, casts in with_threads(compute, 1, 3, 16):
        assert (product == wanted).all()
        assert all((of == as_before).all() for of, as_before in zip(casts, whole, strict=True))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_widens_to_float32_for_numpy(dtype: str) -> None:
    x = fs.full((2,), 1.5, dtype=dtype)
    assert x.numpy().dtype == np.float32 and x.numpy().tolist() == [1.5, 1.5]
    assert repr(x) == f"tensor({dtype} (2,) on cpu)\n[1.5 1.5]"
    with pytest.raises(ValueError, match=f"{dtype}.*copy"):
        np.array(x, copy=False)
    with pytest.raises(BufferError, match=rf"{dtype} \(2,\) on cpu.*no {dtype}; x\.to\(\"float32\"\)"):
        memoryview(x)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_arrays_of_ml_dtypes_are_shared(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2, 448], dtype=getattr(ml_dtypes, dtype))
    x = fs.from_numpy(array)
    assert x.dtype == dtype and x.to("float32").numpy().tolist() == array.astype(np.float32).tolist()


@pytest.mark.parametrize(("dtype", "item"), [("float8_e4m3fn", 2), ("int8", 4)])
def test_the_work_of_a_product_is_that_of_its_shapes_and_bytes(dtype: str, item: int) -> None:
    a, b = fs.ones((32, 48), dtype=dtype), fs.ones((48, 16), dtype=dtype)
    with fs.profile(record_shapes=True) as prof:
        fs.matmul(a, b)
    (row,) = prof.key_averages(peaks="none")
    assert row.flops == 2 * 32 * 16 * 48 and row.bytes_total_moved == 32 * 48 + 48 * 16 + item * 32 * 16
    assert row.unit == ("int8_tensor" if dtype == "int8" else "fp32"), "float8 is computed in float32"
