"""The magics of IPython: %%flopscope, %flopscope and %measure."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.fake_measure import Clock, Measurement, Times

import flopscope as fs
from flopscope.ipython import load_ipython_extension

Shell = Any
UsageError: Any = pytest.importorskip("IPython.core.error").UsageError


@pytest.fixture(scope="module")
def ipython() -> Iterator[Shell]:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    load_ipython_extension(shell)
    shell.user_ns["fs"] = fs
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def run(ipython: Shell, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[Any, str]]:
    """Return a function that runs a cell and returns its value and the output shown."""

    def run(cell: str) -> tuple[Any, str]:
        done = ipython.run_cell(cell)
        done.raise_error()
        return done.result, capsys.readouterr().out

    return run


Run = Callable[[str], tuple[Any, str]]


def test_a_cell_is_profiled_and_its_value_is_kept(run: Run) -> None:
    value, shown = run("%%flopscope --no-peaks -o prof\nx = fs.ones((3,5), device='cpu')\ny = fs.add(x, x)\nlen([1,2])")
    assert value == 2 and re.search(r"flopscope::add\b", shown) and re.search(r"flopscope::ones\b", shown)
    rows, _ = run("[(row.key, row.count, row.flops) for row in prof.key_averages(peaks='none')]")
    assert ("flopscope::add", 1, 15.0) in rows and run("y.shape")[0] == (3, 5)


def test_a_cell_may_use_ipythons_syntax_and_end_with_a_statement(run: Run) -> None:
    value, shown = run("%%flopscope --no-peaks\nhere = %pwd\nfor _ in range(4):\n    fs.ones((2,), device='cpu')")
    assert value is None and "flopscope::ones" in shown and isinstance(run("here")[0], str)


@pytest.mark.parametrize(
    ("cell", "error", "message"),
    [
        ("%%flopscope\n1 / 0", ZeroDivisionError, "division"), ("%%flopscope\nif", SyntaxError, "invalid syntax"),
        ("%%flopscope --colour red\n1", UsageError, "--colour"),
        ("%%flopscope -o 3x\n1", UsageError, "'3x' is not a valid variable name"),
        ("%flopscope", UsageError, "the code to profile is missing"),
        ("%measure", UsageError, "the expression to measure is missing"),
        ("%measure --flops many f()", UsageError, "--flops"), ("%measure --flops", UsageError, "--flops"),
    ],
)  # fmt: skip
def test_errors_are_raised_and_leave_no_profile_running(
    ipython: Shell, run: Run, cell: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        run(cell)
    run("%%flopscope --no-peaks\nfs.ones((2,), device='cpu')")


MAGIC = "%%flopscope --no-peaks -o prof\n"
CELLS = [  # one after the other; FLOPs of the profile, and what is shown
    (MAGIC + "import torch, flopscope as fs\nx = torch.ones(3, 4)\ny = x @ x.t()", {"aten::mm": 72.0}, ["aten::mm"]),
    ("%flopscope --no-peaks -o prof x @ x.t()", {"aten::mm": 72.0}, ["aten::mm"]),
    (MAGIC + "fs.neg(fs.ones((5,), device='cpu'))\nx * 2", {"aten::mul": 12.0}, ["flopscope::neg", "aten::mul"]),
    (MAGIC + "fs.neg(fs.ones((5,), device='cpu'))", {"flopscope::neg": 5.0}, ["flopscope::neg"]),
    (MAGIC + "x * 2\n1 / 0", {"aten::mul": 12.0}, ["ZeroDivisionError"]),
    (MAGIC + "import threading\nt = threading.Thread(target=x.sin)\nt.start()\nt.join()", {"aten::sin": 12.0},
     ["aten::sin"]),
    (MAGIC + "x * 2\nwith torch.profiler.profile() as own:\n    x @ x.t()\nlen(own.events()) > 1",
     {"aten::mul": 12.0}, ["aten::mul", "Out[0]: True", "one profiler at a time"]),
    (MAGIC + "# nothing", {}, ["No ops were recorded.\n"]),
    ("with fs.profile() as prof: x @ x.t()\nprint(prof.key_averages(), prof.summary())", {},
     ["No ops were recorded. fs.profile does not record torch's ops on a CPU", "Nothing was recorded."]),
]  # fmt: skip


@pytest.fixture(scope="module")
def of_torch() -> list[str]:
    """Return what the cells print, in a process that has not imported torch before."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell(colors="nocolor")
shell.run_line_magic("load_ext", "flopscope")
shell.run_line_magic("reload_ext", "flopscope")  # both wait for the import of torch
for cell in {[cell for cell, _, _ in CELLS]!r}:
    print("=====", flush=True)
    shell.run_cell(cell)
    shell.run_cell("print({{r.key: r.flops for r in prof.key_averages(peaks='none') if r.flops}}, flush=True)")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250)
    return done.stdout.split("=====\n")[1:]


@pytest.mark.parametrize("number", range(len(CELLS)))
def test_torchs_ops_on_a_cpu_are_recorded(of_torch: list[str], number: int) -> None:
    _, found, shown = CELLS[number]
    output = of_torch[number]
    assert str(found) in output.splitlines(), output
    assert all(text in output for text in shown) and "profiler_start" not in output, output


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("f(2) - 1", {}),
        ("--flops 10 --bytes=20 f(2) -1", {"flops": 10.0, "bytes": 20.0}),
        ("--max-time 0.5 f(2) - len('--bytes')+6", {"max_time": 0.5}),
        ("-f(2)", {}), ("--flops 1 -f(2)", {"flops": 1.0}), ("--flops 1 f(2) or 'a  b' \"--c\"", {"flops": 1.0}),
    ],
)  # fmt: skip
def test_an_expression_is_measured(
    ipython: Shell, run: Run, monkeypatch: pytest.MonkeyPatch, line: str, options: dict[str, float]
) -> None:
    clock = Clock(Times(20))
    called: list[int] = []
    monkeypatch.setattr("flopscope.measuring.measuring.measure", clock.measure)
    ipython.user_ns["f"] = lambda x: called.append(x) or x
    value, _ = run(f"%measure {line}")
    assert isinstance(value, Measurement) and called == [2] and clock.calls == [{"max_time": 1.0, **options}]


def test_an_expression_can_use_local_names_and_is_the_name_of_its_measurement(run: Run) -> None:
    options = "--max-time 0.02"
    value, _ = run(f"def f(inner):\n    m = %measure {options} [inner,   1]\n    return m\nf(3)")
    assert value.name == "[inner, 1]" and value.verdict.startswith("[inner, 1] takes ")


def test_a_semicolon_suppresses_the_value(ipython: Shell, run: Run) -> None:
    assert "takes" in run("%measure --max-time 0.02 1 + 1")[1]  # as text, not as the dataclass's repr
    assert "takes" not in run("%measure --max-time 0.02 1 + 1;")[1]
