"""float8, and products of 8-bit factors, on the CPU."""

import numpy as np
import pytest
from helpers.byte_cases import FLOAT8, ByteCases
from helpers.ops_reference import with_threads

import flopscope as fs


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
