"""What is misspelt or of the wrong type, on the command line and in Python: the message names it and what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flopscope as fs
from flopscope.cli.bench import run
from flopscope.cli.program import main
from flopscope.support.suggest import did_you_mean

TRACE = Path(__file__).parent.parent / "benchmarks/results/nvidia-h200/faults/pointwise_before.json.gz"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the exit status and the last line on stderr of a command that fails."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("tabel", "x.json"), "did you mean 'table'?"),
        (("perf", "lst"), "did you mean 'list'?"),
        (("bench", "--dtype", "floa32"), "did you mean 'float32'?"),
        (
            ("table", "x.json", "--groupby", "shape"),
            "flopscope table: error: unrecognized arguments: --groupby shape; did you mean '--group-by'?",
        ),
        (
            ("table", "x.json", "--group_by=shape"),
            "flopscope table: error: unrecognized arguments: --group_by=shape; did you mean '--group-by'?",
        ),
        (
            ("perf", "show", "--colums", "min"),
            "flopscope perf show: error: unrecognized arguments: --colums; did you mean '--columns'?",
        ),
        (
            ("run", "--step", "3:4", "x.py"),
            "flopscope run: error: unrecognized arguments: --step; did you mean '--steps'?",
        ),
        (
            ("measure", "add", "--dtype", "float16", "64,64", "--cach", "hot"),
            "flopscope measure: error: unrecognized arguments: --cach; did you mean '--cache'?",
        ),
        (("measure", "add", "-1,8"), "flopscope measure: error: '-1,8' is not a shape such as 8192,8192"),
        (("devices", "gpu"), "flopscope devices: error: unrecognized arguments: gpu"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_word_of_a_command_line_names_the_command_and_what_is_similar(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    status, message = refused(capsys, *arguments)
    assert status == 2 and message.endswith(expected)


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "what changed between two recorded traces" in capsys.readouterr().err


def test_a_failure_with_a_file_begins_with_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rank.json").touch()
    assert refused(capsys, "table", "rnak.json") == (
        1,
        "flopscope table: rnak.json: there is no such file; did you mean rank.json?",
    )
    status, message = refused(capsys, "table", "https://host/rank.json")
    assert status == 1 and "a trace is not read from a URL" in message


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("notes.txt:f", "notes.txt is not a Python file: its name must end in .py"),
        ("nowhere.at_all:f", "there is no module 'nowhere.at_all' in --path, the installed packages and the current"),
        ("json.nowhere:f", "there is no module 'json.nowhere' in"),
        ("json:dump_s", "did you mean 'dumps'?"),
    ],
)
def test_a_function_that_is_not_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").touch()
    status, message = refused(capsys, "measure", what)
    assert status and expected in message


def test_a_module_that_lacks_another_one_says_which(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("import nowhere_at_all\n", encoding="utf-8")
    status, message = refused(capsys, "measure", "--path", str(tmp_path), "needy:f")
    assert status == 1 and message == "flopscope measure: No module named 'nowhere_at_all'"


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
        (lambda: fs.stragglers(fs.load_trace(TRACE)), TypeError, "one of each rank, or a dict of them, not <"),
    ],
)
def test_python_calls_say_what_is_wrong(call: Any, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        call()


@pytest.mark.filterwarnings("ignore:.*measured on a busy machine")
@pytest.mark.parametrize("used", [0.9, 0.0])
def test_bench_says_if_the_device_was_busy(monkeypatch: pytest.MonkeyPatch, used: float) -> None:
    monkeypatch.setattr("flopscope.cli.bench.load_average", lambda: 0.0)
    monkeypatch.setattr("flopscope.cli.bench.busy_meter", lambda device: lambda: used)
    result = run("cpu", size=64, ops=["ones", "add"], repeat=2)
    first = str(result.text(width=200)).splitlines()[0]
    assert first.startswith("The machine was busy: other processes used") == (used > 0)
    assert bool(result.answers()) == (used == 0), "no cause is named that other processes may be"
    assert (result.to_json()["busy"] is not None) == (used > 0)
