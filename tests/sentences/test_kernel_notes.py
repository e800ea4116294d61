"""What is said of kernels of unknown work, by the library that launched them, and of ops without shapes."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import call, kernel, load, op, text_of

import flopscope as fs

MATRIX = {"Input Dims": [[256, 256]], "Input type": ["float"], "Input Strides": [[256, 1]], "Concrete Inputs": [""]}
SHAPES, COUNTERS, NO_OPS = "record_shapes=True", "counters count what they move", "no op that did it was recorded"
UNIT = "have no compute unit"


def launch(place: int, name: str | None, kernel_name: str, **args: Any) -> list[dict[str, Any]]:
    """Return a launch of a kernel of 500 µs, by an op if `name` is given."""
    start, link = 1000.0 * place, {"correlation": place + 1, "External id": place + 1 if name else 0}
    ops = [op(name, start, 20, **{"External id": place + 1}, **args)] if name else []
    api = "cuLaunchKernelEx"
    return [*ops, call(api, start + 5, 5, **link), kernel(kernel_name, start + 30, 500, **link)]


def said(tmp_path: Path, launches: list[list[dict[str, Any]]], **head: Any) -> str:
    """Return the advice on a trace of these launches."""
    path = tmp_path / "trace.json"
    devices = [{"id": 0, "name": "NVIDIA H200"}]
    path.write_bytes(text_of(*chain.from_iterable(launches), deviceProperties=devices, **head))
    return " ".join(str(fs.load_trace(path).advice(peaks="memory=4e12,fp16_tensor=1e15")).split())


STATED = "mm [M=4] [flops=2000000000 bytes=4000000 unit=fp16_tensor]"
LIMITED = "triton::add [bytes<=4000000]"


@pytest.mark.parametrize(
    "launches, expected, absent",
    [
        ([launch(0, STATED, "mm_kernel")], "", (SHAPES, COUNTERS, NO_OPS, UNIT)),
        ([launch(0, LIMITED, "add")], COUNTERS, (SHAPES, NO_OPS, UNIT)),
        ([launch(0, "mm [flops=8 bytes=9]", "mm_kernel")], UNIT, (SHAPES, COUNTERS, NO_OPS)),
        ([launch(0, LIMITED, "add"), launch(1, None, "grouped")], COUNTERS, (SHAPES, NO_OPS)),
        ([launch(0, STATED, "mm_kernel"), launch(1, None, "cupy_add")], COUNTERS, (SHAPES, NO_OPS)),
        ([launch(0, None, "at::native::vectorized_elementwise_kernel<4>")], NO_OPS, (COUNTERS,)),
        ([launch(0, "aten::relu", "k"), launch(1, LIMITED, "add")], SHAPES, (COUNTERS, NO_OPS)),
        ([launch(0, "aten::relu", "k", **MATRIX), launch(1, None, "grouped")], COUNTERS, (SHAPES, NO_OPS)),
    ],
)
def test_shapes_are_asked_for_only_where_they_would_help(
    launches: list[list[dict[str, Any]]], expected: str, absent: tuple[str, ...], tmp_path: Path
) -> None:
    text = said(tmp_path, launches)
    assert expected in text and not [part for part in absent if part in text]


@pytest.mark.parametrize("kernel_name", ["cupy_multiply__float_float_float", "_ZN6cudapy8__main__3addE", "saxpy(int)"])
def test_counters_are_named_in_profiles_of_other_programs(kernel_name: str, tmp_path: Path) -> None:
    for launches in ([launch(0, None, kernel_name)], [launch(0, None, kernel_name), launch(1, LIMITED, "add")]):
        text = said(tmp_path, launches, flopscope={})
        assert COUNTERS in text and "flopscope run --counters" in text and SHAPES not in text and NO_OPS not in text


def test_the_text_of_a_table_asks_for_no_shapes_of_launches(tmp_path: Path) -> None:
    said(tmp_path, [launch(0, STATED, "mm_kernel"), launch(1, LIMITED, "add"), launch(2, None, "grouped")])
    text = " ".join(fs.load_trace(tmp_path / "trace.json").key_averages(peaks="none").table(width=120).split())
    assert SHAPES not in text and "Not modelled: grouped 500us" in text and COUNTERS in text
    assert "Only bounds or estimates are known for the work of triton::add." in text


SHAPELESS = "The work of ops is unknown because no input shapes were recorded: profile with record_shapes=True."
GEMM = kernel("gemm", 5, 9)


def test_tables_report_why_their_work_is_unknown() -> None:
    shapes = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
    traces = [load(op("aten::mm", 0, 9), GEMM), load(op("aten::mm", 0, 9, **shapes), GEMM)]
    assert [trace.record_shapes for trace in traces] == [False, True]  # neither trace has a record_shapes member
    without, known = (trace.key_averages() for trace in traces)
    assert without.lacks_shapes and SHAPELESS in without.table() and "Not modelled" not in without.table()
    assert not known.lacks_shapes and SHAPELESS not in known.table()


def test_traces_without_ops_and_native_ops_do_not_lack_shapes() -> None:
    table = load(GEMM).key_averages()
    assert not table.lacks_shapes and SHAPELESS not in table.table() and "Not modelled: gemm" in table.table()
    with fs.profile(record_shapes=False) as prof:
        fs.sin(fs.ones((4,), device="cpu"))
    assert not prof.key_averages(peaks="none").lacks_shapes
