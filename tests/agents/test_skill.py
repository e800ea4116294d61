"""The skill for agents: its form, and that all it names exists."""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

from flopscope.cli.program import COMMANDS, main, make_parser
from flopscope.cli.server.server import TOOLS


@pytest.fixture
def skill(capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["skill"]) == 0
    return Path(capsys.readouterr().out.strip())


def test_the_front_matter_is_that_of_a_skill(skill: Path) -> None:
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    front = re.match(r"---\n(.*?)\n---\n", text, re.S)
    assert front is not None
    fields = dict(line.split(": ", 1) for line in front[1].splitlines())
    assert fields["name"] == skill.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert 0 < len(fields["description"]) <= 1024 and "Use when" in fields["description"]
    assert fields["license"] in (ROOT / "pyproject.toml").read_text(encoding="utf-8") and len(text.split()) < 800


def test_its_commands_and_options_exist(skill: Path) -> None:
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    uses = re.findall(r"`flopscope (?!COMMAND)([a-z]+)([^`]*)`", text)
    assert len(uses) > 10
    commands: Any = next(one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction))
    helps = {name: command.format_help() for name, command in commands.choices.items()}
    for name, rest in uses:
        assert name in COMMANDS
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in helps[name], f"flopscope {name} {option}"
    named = re.search(r"serves the same answers as tools: ([a-z_,\s]+)\.", text)
    assert named is not None and {*re.split(r",\s+", named[1])} == {*TOOLS}


def test_the_commands_of_the_skill_run(tmp_path: Path, skill: Path) -> None:
    (tmp_path / "script.py").write_text("import flopscope as fs\nx = fs.ones((64, 64))\nfs.matmul(x, x)\n")
    program = [sys.executable, "-m", "flopscope"]
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    recorded = re.search(r"`flopscope (run .*?SCRIPT)`, then `flopscope (summary .*?)`", text)
    assert recorded is not None
    for command in recorded.groups():
        words = command.replace("SCRIPT", "script.py").split()
        done = subprocess.run([*program, *words], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert b"Advice" in done.stdout
