"""The command flopscope try on real programs."""

import json
import subprocess
from pathlib import Path

import pytest
from helpers.run_programs import done, script, start, wait_for

from flopscope.measuring.trying.switches import SWITCHES

# Filling the gradient again and again costs more than the rest of this program.
FILLING = """
import torch
weight = torch.nn.Parameter(torch.ones(4_000_000))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    for _ in range(50):
        optimizer.zero_grad(set_to_none=False)
    weight.mean().backward()
    optimizer.step()
"""


def tries(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return done(folder, ["-m", "flopscope", "try", *arguments], **more)


def test_the_cure_of_a_program_is_found_applied_and_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = script(tmp_path, FILLING)
    before = path.read_bytes()
    files = ["--json", "all.json"]
    words = ["-m", "flopscope", "try", "--changes", "zero_grad", "--max-time", "300", *files, "program.py"]
    with start(tmp_path, words) as process:
        out, err = process.communicate(timeout=400)
    result = subprocess.CompletedProcess(words, process.returncode, out, err)
    assert result.returncode == 0, result.stderr
    assert "runs program.py again and again, for up to 5 min" in result.stderr and "FLOPSCOPE_TRY=1" in result.stderr
    content = json.loads((tmp_path / "all.json").read_text())
    (change,) = content["changes"]
    # The verdict is said as soon as the whole interval is beyond 1 %. On a busy machine it may still be wide then.
    assert change["verdict"] == "faster" and change["ratio"]["high"] < 1 / 1.01, result.stdout
    assert change["ratio"]["value"] < 0.5, result.stdout  # the time of the steps, which are mostly filling
    assert change["parity"]["of"] == "losses" and change["parity"]["difference"] == 0
    assert content["kept"] == ["zero_grad"]
    assert "optimizer.zero_grad(set_to_none=True)" in result.stdout and "faster" in result.stdout
    assert path.read_bytes() == before


def test_a_program_to_which_nothing_applies_is_said_so(tmp_path: Path) -> None:
    script(tmp_path, "import time; time.sleep(0.1)")
    result = tries(tmp_path, "program.py")
    assert result.returncode == 0 and "Nothing was tried" in result.stdout
    assert "The whole program is timed: it has no steps" in result.stdout.replace("\n  ", " ")


def test_a_program_without_end_needs_steps(tmp_path: Path) -> None:
    script(tmp_path, "while True: pass")
    result = tries(tmp_path, "--max-time", "6", "program.py")
    message = "it did not get to its last measured step within 3 s. A program without end needs steps"
    assert result.returncode == 1 and message in result.stderr and result.stdout == ""


WRONG = {
    ("-",): "a program from standard input cannot be run several times",
    ("missing.py",): "missing.py: No such file",
    ("--changes", "autocst", "program.py"): "there is no change 'autocst'; did you mean 'autocast'?",
    ("--max-time", "0", "x.py"): "'0' is not a positive number",
    ("--launcher", "no-such-launcher -n 2", "program.py"): "no-such-launcher: No such file",
    ("--json", "nowhere/x.json", "program.py"): "nowhere",
    ("program.py",): "run flopscope try by itself, with --launcher COMMAND",
    (): "the following arguments are required: SCRIPT",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_arguments_are_errors(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    script(tmp_path, "")
    rank = {"RANK": "1", "WORLD_SIZE": "2"} if arguments == ("program.py",) else {}
    result = tries(tmp_path, *arguments, **rank)
    assert result.returncode in (1, 2) and WRONG[arguments] in result.stderr and result.stdout == ""


def test_the_list_has_every_change(tmp_path: Path) -> None:
    assert [line.split(":")[0] for line in tries(tmp_path, "--list").stdout.splitlines()[::3]] == [*SWITCHES]


def test_run_stops_the_program_at_the_end_of_its_window(tmp_path: Path) -> None:
    body = "    fs.neg(fs.ones((4, 4), device='cpu'))\n    fs.step()\n"
    script(tmp_path, f"import flopscope as fs\nfor step in range(10 ** 9):\n{body}")
    stopped = done(tmp_path, ["-m", "flopscope", "run", "--steps", "2:4", "--stop", "--no-report", "program.py"])
    assert stopped.returncode == 0
    assert "ProfilerStep#3" in stopped.stderr and "ProfilerStep#4" not in stopped.stderr
    refused = done(tmp_path, ["-m", "flopscope", "run", "--stop", "program.py"])
    assert refused.returncode == 2 and "--stop needs --steps or --seconds" in refused.stderr


def test_a_signal_ends_the_program_too(tmp_path: Path) -> None:
    text = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
    script(tmp_path, f"{text}pathlib.Path('written').touch()\ntime.sleep(600)\n")
    with start(tmp_path, ["-m", "flopscope", "try", "program.py"]) as process:
        wait_for(tmp_path / "written")
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 143
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
