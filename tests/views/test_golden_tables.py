"""The texts of recorded profiles at two widths, kept in tests/data/golden, and their colours on a terminal.

``PYTHONPATH=tests python tests/views/test_golden_tables.py`` writes them anew; read the difference before
you commit it.
"""

import os
import pty
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import pytest
from helpers import DATA, ROOT, TRACES
from helpers.hand_traces import quietly
from helpers.recordings import FAULTS

from flopscope.cli.program import main

GOLDEN = DATA / "golden"
WIDTHS = (80, 140)
# Each name with its trace, the arguments of key_averages() and those of table().
PROFILES = {
    "ops": (FAULTS / "vocab_before.json.gz", {}, {}),
    "shapes": (FAULTS / "attention_infer_before.json.gz", {"group_by_input_shape": True}, {"row_limit": 20}),
    "kernels": (FAULTS / "optimizer_foreach_before.json.gz", {"kernels": True}, {"kernels": True, "row_limit": 12}),
    "graph": (FAULTS / "launch_train_after.json.gz", {"kernels": True}, {}),
    "kernel_rows": (FAULTS / "tf32_before.json.gz", {}, {"kind": "kernel", "row_limit": 15}),
    "ranges": (TRACES / "tutorial_optimised.json.gz", {}, {}),
    "stacks": (TRACES / "tutorial_naive_stack.json.gz", {"group_by_stack_n": 3}, {"row_limit": 8}),
    "all": (TRACES / "tracking_flops.json.gz", {}, {"kind": "all"}),
}


def text_of(name: str, width: int) -> str:
    path, grouping, options = PROFILES[name]
    return quietly(path).key_averages(**grouping).table(width=width, **options)


def golden(name: str) -> Path:
    return GOLDEN / f"{name}.txt"


def expected(name: str) -> str:
    return "\n".join(f"{f' {width} columns ':=^{width}}\n{text_of(name, width)}" for width in WIDTHS)


@pytest.mark.parametrize("name", PROFILES)
def test_texts_are_those_on_record(name: str) -> None:
    assert expected(name) == golden(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PROFILES)
def test_lines_fit_and_rows_differ(name: str) -> None:
    for width in (40, 60, *WIDTHS):
        lines = text_of(name, width).splitlines()
        assert all(line == line.rstrip() for line in lines)
        if width >= 60:
            assert max(map(len, lines)) <= width
        assert "TFLOP/s" not in lines[0] and "0.000" not in lines[0]


COMMAND = ("-m", "flopscope", "table", str(FAULTS / "vocab_before.json.gz"))


def on_a_terminal(columns: int, *command: str, **environment: str) -> str:
    """Return what a command writes to a terminal of a width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    env = {**kept, "TERM": "xterm-256color", **environment}
    child = subprocess.Popen([sys.executable, *command], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=ROOT)
    os.close(theirs)
    parts = []
    with suppress(OSError):  # Linux: the other end is closed
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    assert child.wait(60) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_a_terminal_has_its_width_and_colours() -> None:
    plain = on_a_terminal(150, *COMMAND, NO_COLOR="1")
    assert "\x1b" not in plain and 130 < longest(plain) <= 150
    coloured = on_a_terminal(90, *COMMAND)
    assert "\x1b[36mcompute\x1b[0m" in coloured and "\x1b" not in on_a_terminal(90, *COMMAND, TERM="dumb")
    program = f"import flopscope as fs; print(fs.load_trace({COMMAND[-1]!r}).key_averages())"
    assert 70 < longest(on_a_terminal(84, "-c", program)) <= 84, "str() of a table fits the terminal too"


@pytest.mark.parametrize(("stated", "width"), [(None, 100), ("80", 80), ("130", 130), ("12", 40), ("wide", 100)])
def test_a_pipe_gets_plain_text_of_100_columns_unless_more_or_fewer_are_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stated: str | None, width: int
) -> None:
    if stated is not None:
        monkeypatch.setenv("COLUMNS", stated)
    assert main([*COMMAND[2:]]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and 0.75 * width < longest(text) <= width


if __name__ == "__main__":
    for each in PROFILES:
        golden(each).write_text(expected(each), encoding="utf-8")
