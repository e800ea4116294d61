"""``flopscope measure``: ops with shapes, and MODULE:FUNCTION with the search for the module."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.processes import environment

import flopscope as fs
from flopscope.cli.measure import add_arguments


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The current folder, not on Python's path, as for the installed command."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(file: Path, message: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"def f():\n    raise KeyError({message!r})\n")
    return file


def run(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser.add_subparsers().add_parser("measure"))
    options = parser.parse_args(["measure", "--max-time", "0.01", *arguments])
    options.run(options)


def message_of(*arguments: str) -> str:
    """Return the message of the exception that the function raises."""
    with pytest.raises(KeyError) as caught:
        run(*arguments)
    return str(caught.value.args[0])


@pytest.mark.parametrize("op", fs._core.ops)
def test_every_op_is_measured(op: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(op, "32,32", "--device", "cpu", "--peaks", "none")
    assert f"{op} takes" in capsys.readouterr().out


def test_shapes_are_taken_and_json_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.json"
    run("matmul", "8,4", "4,2", "--device", "cpu", "--peaks", "none", "--json", str(file))
    content = json.loads(file.read_text())
    assert content["flops"] == 2 * 8 * 4 * 2 and len(content["samples_us"]) == content["n"]
    assert "matmul takes" in capsys.readouterr().out


def test_the_exception_of_a_function_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "it_raises.py").write_text("def f():\n    raise ValueError('mine')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match=r"it_raises:f raised ValueError in .*it_raises.py, line 2: mine"):
        run("it_raises:f")


def test_a_module_of_the_current_folder_is_found_and_hides_no_installed_one(here: Path, tmp_path: Path) -> None:
    sys.path.append(str(tmp_path / "installed"))
    for name, folder in (("kernels_here", here), ("some_package", here), ("some_package", tmp_path / "installed")):
        write(folder / f"{name}.py", folder.name)
    assert message_of("kernels_here:f") == "here" and message_of("some_package:f") == "installed"


def test_later_imports_of_flopscope_ignore_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for name in ("numpy", "statistics", "platformdirs", "html"):
        (tmp_path / "here" / f"{name}.py").write_text(f"raise SystemExit('the {name} of the current folder')\n")
    (tmp_path / "here" / "mine.py").write_text("def f(): pass\n")
    command = tmp_path / "bin" / "command.py"  # as pip makes it: its own folder is the first of sys.path
    command.parent.mkdir()
    command.write_text("import sys\nfrom flopscope.cli.program import main\nsys.exit(main())\n")
    arguments = ["measure", "mine:f", "--device", "cpu", "--max-time", "0.01", "--peaks", "none"]
    words = [sys.executable, str(command), *arguments]
    done = subprocess.run(words, cwd=tmp_path / "here", env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "f takes" in done.stdout


@pytest.mark.parametrize("file", ["./script.py", "script.py", "../here/script.py"])
def test_a_function_of_a_file_is_found(here: Path, file: str) -> None:
    write(here / "neighbour_of_script.py", "unused")
    script = write(here / "script.py", "script")
    script.write_text("import neighbour_of_script\n" + script.read_text())
    assert message_of(f"{file}:f") == "script"


def test_a_file_is_preferred_to_a_module_of_its_name_and_may_hold_a_class(here: Path) -> None:
    write(here / "json.py", "the file")
    assert message_of("./json.py:f") == "the file" and sys.modules["json"] is json
    (here / "odd:name.py").write_text("class A:\n    @staticmethod\n    def f():\n        raise KeyError('in A')\n")
    assert message_of("odd:name.py:A.f") == "in A"
