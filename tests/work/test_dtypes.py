"""Every column of the rows of dtypes, against torch, NumPy and Python's struct."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tensors import DTYPES

import flopscope as fs
from flopscope import _core


@pytest.fixture(scope="module")
def torch_dtypes() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {str(value).removeprefix("torch."): value for value in vars(torch).values() if type(value) is torch.dtype}


@pytest.fixture(scope="module")
def recorded(torch_dtypes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return torch's trace of aten::empty and aten::detach of tensors of every dtype."""
    import torch

    path = Path(tmp_path_factory.mktemp("dtypes")) / "trace.json"
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with warnings.catch_warnings(), torch.profiler.profile(activities=cpu, record_shapes=True) as profile:
        warnings.simplefilter("ignore")
        for dtype in torch_dtypes.values():
            torch.empty(3, dtype=dtype).detach()
    profile.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def arguments(recorded: list[dict[str, Any]], op: str, what: str, place: int) -> list[str]:
    return [event["args"][what][place] for event in recorded if event.get("name") == op]


def test_names_of_c10_are_those_of_torchs_tensor_types(torch_dtypes: dict[str, Any]) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {name: torch.empty(0, dtype=dtype).type().split(".")[-1] for name, dtype in torch_dtypes.items()}
    assert names == {name: f"{_core.dtypes[name].c10}Tensor" for name in torch_dtypes}


def test_rows_are_those_of_torch_and_its_records(torch_dtypes: dict[str, Any], recorded: list[dict[str, Any]]) -> None:
    for name, dtype in torch_dtypes.items():
        row = _core.dtypes[name]
        assert row.bytes == dtype.itemsize, name
        floats = row.kind in ("float", "float8", "float4")
        assert (dtype.is_complex, dtype.is_floating_point) == (row.kind == "complex", floats), name
    numbers = arguments(recorded, "aten::empty", "Concrete Inputs", 1)
    assert [str(_core.dtypes[name].number) for name in torch_dtypes] == numbers
    kineto = dict(zip(torch_dtypes, arguments(recorded, "aten::detach", "Input type", 0), strict=True))
    assert kineto == {name: _core.dtypes[name].kineto for name in torch_dtypes}


@pytest.mark.parametrize(
    ("text", "item"), [("long", 8), ("long long", 8), ("short", 2), ("unsigned short", 2), ("unsigned long", 8)]
)
def test_types_that_other_compilers_write_otherwise_have_their_sizes(text: str, item: int) -> None:
    assert _core._work_of_torch("aten::clone", [[3]], [text])["bytes_read"] == 3 * item


def test_every_number_gives_a_result_of_that_dtype() -> None:
    for name, row in _core.dtypes.items():
        types, values = ["float", "Scalar", ""], ["", str(row.number), ""]
        got = _core._work_of_torch("aten::_to_copy", [[3], [], []], types, None, values)
        assert (got["bytes_read"], got["bytes_written"]) == (12, 3 * row.bytes), name


def test_the_dtypes_of_messages_are_those_of_tensors() -> None:
    for call in (lambda: fs.ones(2, dtype="int16"), lambda: fs.from_numpy(np.zeros(2, np.int16))):
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        listed = str(error.value).partition("supported are ")[2].partition(" (")[0].split(", ")
        assert sorted(listed) == sorted(DTYPES)


def test_units_are_those_of_the_datasheets_columns() -> None:
    products = {name: row.product_unit for name, row in _core.dtypes.items() if row.product_unit}
    assert products == {
        **{"float64": "fp64_tensor", "complex128": "fp64_tensor", "float32": "fp32", "complex64": "fp32"},
        **{"float16": "fp16_tensor", "bfloat16": "bf16_tensor", "int8": "int8_tensor", "uint8": "int8_tensor"},
        **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), "fp8_tensor"),
    }
    plain = {name: row.unit for name, row in _core.dtypes.items()}
    assert {name for name, unit in plain.items() if unit == "fp64"} == {"float64", "complex128"}
    assert all((unit is None) == (_core.dtypes[name].kind == "integer") for name, unit in plain.items())
