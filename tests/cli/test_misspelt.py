"""What is misspelt or of the wrong type, on the command line and in Python: the message names it and what was meant."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from helpers import DATA

import flopscope as fs
from flopscope.cli.bench import run
from flopscope.support.suggest import did_you_mean

TRACE = DATA / "programs/pointwise_before.json.gz"


def test_names_that_contain_the_word_are_suggested_if_none_is_similar() -> None:
    known = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB")
    assert did_you_mean("h200", known) == "; did you mean 'NVIDIA H200'?"
    assert did_you_mean("A100", known) == "; did you mean 'NVIDIA A100-SXM4-80GB' or 'NVIDIA A100-PCIE-40GB'?"
    assert did_you_mean("nvidia h20", known) == "; did you mean 'NVIDIA H200'?"
    assert did_you_mean("A1", known) == did_you_mean("TPU v5", known) == ""


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        (lambda: fs.rand(8, 8), TypeError, r"at most 1 positional argument, not 2; a shape is one tuple, such as \("),
        (lambda: fs.add(1, 2, 3), TypeError, "at most 2 positional arguments, not 3$"),
        (
            lambda: fs.add(fs.ones((1,)), Path()),
            TypeError,
            "expected a flopscope Tensor, not pathlib[.a-z_]*.PosixPath;",
        ),
        (lambda: fs.add(fs.ones((1,)), [1]), TypeError, "expected a flopscope Tensor, not list;"),
        (lambda: fs.roofline_time(1.0, 1.0, device="H200"), ValueError, "no datasheet row for 'H200'; did you mean 'N"),
        (lambda: fs.load_traces(["a.json"]), TypeError, r"load_traces\(\*paths\), not \['a.json'\]"),
        (lambda: fs.ones((2,)).to(dtyp="float16"), TypeError, "'dtyp'; did you mean 'dtype'"),
        (lambda: fs.matmul(1, 2, zzz=3), TypeError, "has no argument 'zzz'$"),
        (lambda: fs.matmull, AttributeError, "no attribute 'matmull'; did you mean 'matmul'"),
        (lambda: fs._nothing_like_it, AttributeError, "no attribute '_nothing_like_it'$"),
        (lambda: trace().key_averages(group_by="shapes"), ValueError, "got 'shapes'; did you mean 'shape'"),
        (lambda: trace().key_averages().sorted("cpu_time_totl"), ValueError, "did you mean 'cpu_time_total'"),
    ],
)
def test_python_calls_say_what_is_wrong(call: Any, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        call()


@pytest.mark.filterwarnings("ignore:.*measured on a busy machine")
@pytest.mark.parametrize("used", [0.9, 0.0])
def test_bench_says_if_the_device_was_busy(monkeypatch: pytest.MonkeyPatch, used: float) -> None:
    monkeypatch.setattr("flopscope.cli.bench.busy_meter", lambda device: lambda: used)
    result = run("cpu", size=64, ops=["ones", "add"], repeat=2)
    first = str(result.text(width=200)).splitlines()[0]
    assert first.startswith("The machine was busy: other processes used") == (used > 0)
    assert (result.to_dict()["busy"] is not None) == (used > 0)


def trace() -> fs.Trace:
    return fs.load_trace(TRACE)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("aten::mm", [(4, 4), (5, 4)], "4 ≠ 5 in (4, 4) and (5, 4)"),
        ("aten::bmm", [(2, 3, 4), (2, 5, 6)], "4 ≠ 5 in (2, 3, 4) and (2, 5, 6)"),
        ("aten::addmm", [(7,), (3, 4), (6, 7)], "4 ≠ 6 in (3, 4) and (6, 7)"),
        ("aten::linear", [(8, 16), (32, 15)], "16 ≠ 15 in (8, 16) and (32, 15)"),
        ("aten::matmul", [(3, 4), (5,)], "4 ≠ 5 in (3, 4) and (5,)"),
        ("aten::mm", [(4, 4)], "their shapes, or values that are missing"),
        ("aten::mmm", [(4, 4), (4, 4)], "there is no rule for aten::mmm; did you mean 'aten::mm'?"),
        ("mm", [(4, 4), (4, 4)], "there is no rule for mm; did you mean 'aten::mm'?"),
        ("my::scael", [(4, 4)], "there is no rule for my::scael; did you mean 'my::scale'?"),
        ("nothing::like_this_at_all", [], "there is no rule for nothing::like_this_at_all"),
    ],
)
def test_unknown_work_says_what_is_wrong(name: str, shapes: list[Any], expected: str) -> None:
    fs.register_work("my::scale", lambda call: None)
    try:
        why = fs.work(name, shapes).why
    finally:
        fs.register_work("my::scale", None)
    assert why is not None and why.endswith(expected)
    with patch("flopscope.answers.work_of.did_you_mean", side_effect=AssertionError):  # only who asks waits for it
        fs.work("nothing::like_this", [])
    assert fs.work("aten::mm", [(4, 5), (5, 4)]).why is None and fs.work("aten::matmul", [(3, 4), (4,)]).why is None


def test_flops_without_a_unit_ask_for_it() -> None:
    x = fs.rand((64, 64))
    with fs.profile() as prof:
        with fs.record_function("unitless", flops=1e3):
            fs.add(x, x)
        with fs.record_function("rated", flops=1e3, unit="fp32"):
            fs.add(x, x)
        with fs.record_function("moving", bytes=1e3):
            fs.add(x, x)
    table = prof.key_averages(peaks="fp32=1e12,memory=1e10")
    for text in (str(table), table.table(), table._repr_html_()):
        said = " ".join(text.split())
        assert "unknown for unitless, whose FLOPs are stated without a compute unit; pass unit=." in said
    assert any("stated for unitless have no compute unit" in note for note in prof.advice(peaks="none").notes)
    with fs.profile() as prof, fs.record_function("rated", flops=1e3, unit="fp32"):
        fs.add(x, x)
    assert "pass unit=" not in str(prof.key_averages(peaks="fp32=1e12,memory=1e10")) + str(prof.advice(peaks="none"))
