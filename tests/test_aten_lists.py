"""Work of ops over lists of tensors, whose dtypes only the kernels that ran tell."""

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
BLOCK = 65536  # elements that a block of multi_tensor_apply covers at most


def test_lists_that_are_told_have_as_many_elements_as_their_tensors() -> None:
    got = _core._work_of_torch(
        "aten::_foreach_mul_", [[[6, 10], [4], []], []], ["TensorList", "Scalar"], None, ["", "2"]
    )
    assert got["of_launched"] and got["list_elements"] == 65
    assert math.isnan(_core._work_of_torch("aten::_foreach_sqrt", [[]], ["TensorList"])["list_elements"])


def test_what_joins_a_list_reads_and_writes_all_of_it() -> None:
    got = _core._work_of_torch("aten::cat", [[[6, 10], [4, 10]], []], ["TensorList", "Scalar"], None, ["", "0"])
    assert (got["flops"], got["bytes_read"], got["bytes_written"], got["list_elements"]) == (0, 1, 1, 100)
    out = [[[6, 10], [4, 10]], [], [10, 10]]
    got = _core._work_of_torch("aten::cat", out, ["TensorList", "Scalar", "c10::Half"], None, ["", "0", ""])
    assert (got["flops"], got["bytes_read"], got["bytes_written"]) == (0, 200, 200) and not got["of_launched"]


def row_of(name: str, tensors: list[list[int]], kernels: list[str]) -> tuple[fs.EventRow, dict[str, Any]]:
    """The row of an op over a list that launched kernels of three blocks each, and the table's coverage."""
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
def test_cats_kernels_tell_the_size_of_an_element(kernels: int) -> None:
    row, coverage = row_of("aten::cat", [[6, 10], [4, 10]], [CAT] * kernels)
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 200, 200)
    assert coverage["bytes"] == 1 and "estimated" not in coverage


def test_a_list_that_is_told_is_no_estimate() -> None:
    row, coverage = row_of("aten::_foreach_add_", [[100], [20, 10]], [ADD, ADD])
    assert (row.flops, row.bytes_read, row.bytes_written) == (300, 8 * 300, 8 * 300)
    assert "estimated" not in coverage


def test_of_a_list_that_is_not_told_the_kernels_blocks_are_counted() -> None:
    row, coverage = row_of("aten::_foreach_add_", [], [ADD, ADD])
    assert row.flops == 2 * 3 * BLOCK and row.bytes_read == 8 * row.flops
    assert coverage["estimated"]


def test_a_cat_that_is_not_told_is_unknown() -> None:
    row, _ = row_of("aten::cat", [], [CAT])
    assert math.isnan(row.bytes_total_moved)


def test_a_kernel_whose_name_tells_no_type_leaves_the_list_unknown() -> None:
    row, _ = row_of("aten::_foreach_add_", [[100]], ["somebodys_kernel"])
    assert math.isnan(row.flops) and math.isnan(row.bytes_total_moved)
