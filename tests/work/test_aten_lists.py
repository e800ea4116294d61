"""Work of ops over lists of tensors, whose dtypes are known only from the kernels that ran."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import flopscope as fs
from flopscope import _core

SPACE = "at::native::(anonymous namespace)::"
CAT = f"void {SPACE}CatArrayBatchedCopy<{SPACE}OpaqueType<2u>, unsigned int, 4, 64, 64>(x)"
ADD = (
    f"void {SPACE}multi_tensor_apply_kernel<{SPACE}TensorListMetadata<1>, "
    f"{SPACE}BinaryOpScalarFunctor<double, 1, 1, 0>, std::plus<double>, double>(x)"
)
BLOCK = 65536  # maximum number of elements per block of multi_tensor_apply


def test_recorded_lists_have_the_elements_of_their_tensors() -> None:
    got = _core._work_of_torch(
        "aten::_foreach_mul_", [[[6, 10], [4], []], []], ["TensorList", "Scalar"], None, ["", "2"]
    )
    assert got["of_launched"] and got["list_elements"] == 65
    assert math.isnan(_core._work_of_torch("aten::_foreach_sqrt", [[]], ["TensorList"])["list_elements"])


def test_concatenations_read_and_write_every_element() -> None:
    got = _core._work_of_torch("aten::cat", [[[6, 10], [4, 10]], []], ["TensorList", "Scalar"], None, ["", "0"])
    assert (got["flops"], got["bytes_read"], got["bytes_written"], got["list_elements"]) == (0, 1, 1, 100)
    out = [[[6, 10], [4, 10]], [], [10, 10]]
    got = _core._work_of_torch("aten::cat", out, ["TensorList", "Scalar", "c10::Half"], None, ["", "0", ""])
    assert (got["flops"], got["bytes_read"], got["bytes_written"]) == (0, 200, 200) and not got["of_launched"]


def row_of(name: str, tensors: list[list[int]], kernels: list[str]) -> tuple[fs.EventRow, dict[str, Any]]:
    """Return the row of a list op that launched kernels of three blocks each, and the table's coverage."""
    args = {"Input Dims": [tensors, []], "Input type": ["TensorList", "Scalar"], "Concrete Inputs": ["", "0"]}
    events: list[dict[str, Any]] = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": 0,
            "dur": 90,
            "args": {**args, "External id": 7},
        }
    ]
    for i, kernel in enumerate(kernels):
        launch = {"External id": 7, "correlation": i + 1}
        grid = {"device": 0, "stream": 7, "grid": [3, 1, 1], "block": [512, 1, 1]}
        api = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 2}
        work = {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "dur": 5}
        events += [{**api, "ts": 10 * i + 5, "args": launch}, {**work, "ts": 10 * i + 20, "args": {**launch, **grid}}]
    prof = fs.load_trace(json.dumps({"traceEvents": events}).encode())
    row = next(r for r in prof.key_averages(peaks="none") if r.key == name and r.device_type == "cpu")
    return row, prof.coverage()


@pytest.mark.parametrize("kernels", [1, 2])
def test_the_kernels_of_cat_give_the_element_size(kernels: int) -> None:
    row, coverage = row_of("aten::cat", [[6, 10], [4, 10]], [CAT] * kernels)
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 200, 200)
    assert coverage["bytes"] == 1 and "estimated" not in coverage


def test_the_work_of_a_recorded_list_is_exact() -> None:
    row, coverage = row_of("aten::_foreach_add_", [[100], [20, 10]], [ADD, ADD])
    assert (row.flops, row.bytes_read, row.bytes_written) == (300, 8 * 300, 8 * 300)
    assert "estimated" not in coverage


def test_the_work_of_an_unrecorded_list_is_estimated_from_kernel_blocks() -> None:
    row, coverage = row_of("aten::_foreach_add_", [], [ADD, ADD])
    assert row.flops == 2 * 3 * BLOCK and row.bytes_read == 8 * row.flops
    assert coverage["estimated"]


def test_the_work_of_cat_is_unknown_without_its_list() -> None:
    row, _ = row_of("aten::cat", [], [CAT])
    assert math.isnan(row.bytes_total_moved)


def test_work_is_unknown_if_no_kernel_name_gives_the_dtype() -> None:
    row, _ = row_of("aten::_foreach_add_", [[100]], ["somebodys_kernel"])
    assert math.isnan(row.flops) and math.isnan(row.bytes_total_moved)


# work() ---------------------------------------------------------------------------------------------------------------

MB = 1 << 20
SQUARE = (1024, 1024)


class Tensor:
    """Stands for a tensor of torch, or of any other library."""

    def __init__(self, *shape: int, dtype: str = "torch.float32") -> None:
        self.shape, self.dtype = shape, dtype


def moved(name: str, *args: Any) -> tuple[float, float, float]:
    found = fs.work(name, *args)
    return found.flops, found.bytes_read, found.bytes_written


@pytest.mark.parametrize(
    "tensors",
    [
        [SQUARE, SQUARE],
        (SQUARE, SQUARE),
        [[1024, 1024], [1024, 1024]],
        [Tensor(*SQUARE), Tensor(*SQUARE)],
        (Tensor(*SQUARE), SQUARE),
        {"a": Tensor(*SQUARE), "b": Tensor(*SQUARE)}.values(),
        [fs.zeros(SQUARE, device="cpu")] * 2,
    ],
    ids=["shapes", "tuple", "lists", "tensors", "mixed", "values", "own"],
)
def test_lists_of_tensors_are_taken_as_they_come(tensors: Any) -> None:
    assert moved("aten::cat", [tensors, 0]) == (0, 8 * MB, 8 * MB)
    assert moved("aten::stack", [iter(tensors), 0]) == (0, 8 * MB, 8 * MB)


def test_the_dtypes_of_a_list_are_one_or_one_for_each() -> None:
    pair = [SQUARE, SQUARE]
    assert moved("aten::cat", [pair, 0], "bfloat16") == (0, 4 * MB, 4 * MB)
    assert moved("aten::cat", [pair, 0], ["float16", None]) == (0, 4 * MB, 4 * MB)
    mixed = (0, 6 * MB, 8 * MB)  # the result is float32
    assert moved("aten::cat", [pair, 0], [["bfloat16", "float32"], None]) == mixed
    assert moved("aten::cat", [[Tensor(*SQUARE, dtype="torch.bfloat16"), SQUARE], 0]) == mixed
    with pytest.raises(ValueError, match="3 dtypes for a list of 2 tensors"):
        fs.work("aten::cat", [pair], [["float32"] * 3])
    with pytest.raises(ValueError, match="dtype must be one of"):
        fs.work("aten::cat", [pair], [None])
    with pytest.raises(TypeError, match="a shape is a sequence of integers"):
        fs.work("aten::cat", [[SQUARE, 3]])


def test_ops_over_lists_count_each_of_them() -> None:
    small = [(100,), (20, 10)]
    for name in ("concat", "concatenate", "hstack", "vstack", "dstack", "column_stack", "row_stack"):
        assert moved(f"aten::{name}", [[SQUARE] * 3]) == (0, 12 * MB, 12 * MB), name
    assert moved("aten::_foreach_add_", [small, small, 1.0]) == (300, 2 * 1200, 1200)
    assert moved("aten::_foreach_sqrt", [small], "float64") == (300, 2400, 2400)
    assert moved("aten::_foreach_mul", [small, 2], "int64") == (0, 2400, 2400)  # integers
    assert moved("aten::_foreach_copy_", [small, small], ["bfloat16", "float32"]) == (0, 1200, 600)
    assert moved("aten::_foreach_norm", [small]) == (600, 1200, 0)
    numbers = (None, 1e-3, 0.9, 0.999, 0.0, 1e-8, False, False)
    values = [None] * 5 + list(numbers)
    assert moved("aten::_fused_adam_", [small] * 4 + [[], []], "float32", values) == (7 * 300, 4 * 1200, 3 * 1200)


def test_blocks_on_a_diagonal_are_written_with_the_zeros_around_them() -> None:
    blocks = [(2, 3), (4,), ()]  # the last two have one row
    assert moved("aten::block_diag", [blocks]) == (0, 4 * (6 + 4 + 1), 4 * (2 + 1 + 1) * (3 + 4 + 1))


def test_work_that_only_kernels_tell_is_unknown_without_them() -> None:
    for args in ([(1000, 64), [None, (10,)]], [(1000, 64), [(10,)]]):
        found = fs.work("aten::index", args, ["float32", "int64"])
        assert math.isnan(found.bytes) and found.why and "gives no work for these arguments" in found.why
    assert math.isnan(fs.work("aten::cat", [[], 0]).bytes)
