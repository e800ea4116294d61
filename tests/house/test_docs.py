"""README.md and docs/: Python examples run, excerpts and numbers match the files that they name, commands exist, the
API reference lists every public name, and Sphinx builds the pages without a warning.

A comment on the line before a code block declares its kind:

    <!-- excerpt of PATH -->   a part of that file, verbatim but for line breaks
    <!-- needs NAME -->        runs if that module, or a "gpu", is available; never if that is the "network"
    <!-- with PATH -->         runs, as all after it, beside a copy of that file or folder
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers import ROOT

import flopscope as fs

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WIDEST = 88
"""Columns of code that furo shows without a scroll bar on a screen of 1280 pixels or more."""
LONGEST_HOW_TO = 20
NO_HOW_TO = ("api.md", "benchmarks.md", "commands.md", "comparison.md")
"""Pages that are generated, list what another page introduces, or are about flopscope rather than its use."""
FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\S*)\n(?P<text>.*?)^(?P=fence)$", re.M | re.S)
MARK = re.compile(r"<!-- (excerpt of|needs|with) (\S+) -->\n\Z")
SHELL = ("sh", "console", "bash")


class Block(NamedTuple):
    """A code block of a page."""

    page: Path
    line: int
    """Number of the first line of code."""
    language: str
    text: str
    mark: str
    """Kind: "excerpt of", "needs", "with", or "" for none."""
    argument: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def _blocks_of(page: Path) -> Iterator[Block]:
    content = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(content):
        mark = MARK.search(content[: found.start()])
        line = content.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["language"], found["text"], *(mark.groups() if mark else ("", "")))


BLOCKS = [block for page in PAGES for block in _blocks_of(page)]
PROGRAMS = [block for block in BLOCKS if block.language == "python" and block.mark in ("", "needs", "with")]


def _why_not(need: str) -> str | None:
    """Return why a block cannot run on this machine, or None."""
    if need == "gpu":
        available = any(device.kind == "cuda" for device in fs.devices())
        return None if available else "there is no CUDA device"
    if need == "network":
        return "it would download packages"
    return None if not need or find_spec(need) else f"{need} is not installed"


@functools.cache
def _outcomes(page: Path) -> dict[int, BaseException | str | None]:
    """Run the blocks of a page in order, in one namespace and one temporary folder.

    Return, by the line of each block, the reason why it was skipped, the exception it raised, or None.
    """
    outcomes: dict[int, BaseException | str | None] = {}
    namespace: dict[str, Any] = {"__name__": page.stem}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in (block for block in PROGRAMS if block.page == page):
                if block.mark == "with":
                    source = ROOT / block.argument
                    if source.is_dir():
                        shutil.copytree(source, Path(folder) / source.name)
                    else:
                        shutil.copy(source, folder)
                need = block.argument if block.mark == "needs" else ""
                outcomes[block.line] = _why_not(need) or _raised(block, namespace)
        finally:
            os.chdir(before)
    return outcomes


def _raised(block: Block, namespace: dict[str, Any]) -> Exception | None:
    try:
        exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), namespace)
    except Exception as problem:
        return problem
    return None


@pytest.mark.filterwarnings("ignore:.*measured on a busy machine")
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_examples_run(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    outcome = _outcomes(block.page)[block.line]
    if isinstance(outcome, str):
        pytest.skip(outcome)
    if outcome is not None:
        raise outcome


WITH_HOW_TO = [page for page in PAGES if page.parent != ROOT and page.name not in NO_HOW_TO]
HOW_TOS = [next(block for block in BLOCKS if block.page == page) for page in WITH_HOW_TO]


@pytest.mark.parametrize("block", HOW_TOS, ids=str)
def test_a_page_begins_with_a_short_example_for_a_laptop(block: Block) -> None:
    before = block.page.read_text(encoding="utf-8").splitlines()[: block.line - 1]
    assert len(before) <= LONGEST_HOW_TO
    assert sum(line.startswith("#") for line in before) <= 2  # the title, and at most one section
    assert block.text.count("\n") <= LONGEST_HOW_TO
    assert block in PROGRAMS or block.language in SHELL
    assert block.mark in ("", "with") or block.argument == "network"


@pytest.mark.parametrize("block", [block for block in HOW_TOS if block.language in SHELL], ids=str)
def test_commands_that_a_page_begins_with_run(block: Block, tmp_path: Path) -> None:
    if block.mark == "needs":
        pytest.skip(_why_not(block.argument) or "")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "flopscope").write_text(f'#!/bin/sh\nexec {sys.executable} -m flopscope "$@"\n')
    (folder / "flopscope").chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    shell = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(shell, cwd=tmp_path, env={**os.environ, **paths}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_code_fits_the_page() -> None:
    for block in BLOCKS:
        wide = [line for line in block.text.splitlines() if len(line) > WIDEST]
        assert not wide, f"{block}: {wide[0]}"
    for page in PAGES:
        for line in FENCE.sub("", page.read_text(encoding="utf-8")).splitlines():
            assert len(line) <= WIDEST + 4 or not line.startswith("    "), f"{page.name}: {line}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark == "excerpt of"], ids=str)
def test_excerpts_are_in_their_files(block: Block) -> None:
    assert " ".join(block.text.split()) in " ".join((ROOT / block.argument).read_text(encoding="utf-8").split())


def _commands() -> Iterator[tuple[str, str, str]]:
    """Yield page, command and arguments of each use of the command line, in code blocks and in the text."""
    for block in BLOCKS:
        for found in re.finditer(r"(?:^|[/ ])flopscope ([a-z]+)\b([^#\n]*)", block.text, re.M):
            if block.language in SHELL:
                yield block.page.name, found[1], found[2]
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for found in re.finditer(r"`flopscope ([a-z]+)([^`]*)`", text):
            yield page.name, found[1], found[2]


@functools.cache
def _help(*command: str) -> str:
    """Return the output of ``flopscope COMMAND --help``."""
    run = [sys.executable, "-m", "flopscope", *command, "--help"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_and_their_options_exist() -> None:
    found = list(_commands())
    commands = {"bench", "compare", "devices", "mcp", "measure", "ranks", "report", "run"}
    commands |= {"ab", "check", "schema", "skill", "summary", "table", "try"}
    assert {command for _, command, _ in found} == commands
    for page, command, arguments in found:
        for option in re.findall(r"--[a-z-]+", arguments):
            assert option in _help(command), f"{page}: flopscope {command} {option}"
        assert f"flopscope {command}" in _help(command)


def test_links_between_pages_resolve() -> None:
    for page in {*PAGES, *ROOT.glob("*.md")}:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert re.match(r"[a-z]+://", target) or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_api_reference_lists_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\.\. auto\w+:: flopscope\.([\w.]+)$", text, re.M))
    named = described | set(re.findall(r"`(?:flopscope\.)?(\w+)`", text))
    if ".. flopscope-ops::" in text:
        named |= {name for name in fs.__all__ if isinstance(getattr(fs, name), fs.Op)}
    assert set(fs.__all__) - named == set() and {"torch", "perf", "ipython"} <= described
    for name in described:
        module, _, member = name.partition(".")
        assert module in ("torch", "perf", "ipython") or (not member and module in fs.__all__), name
    for module in ("torch", "perf"):
        public = re.search(r"^__all__ = \[(.*?)\]", _source(module), re.M | re.S)
        assert public is not None
        names = set(re.findall(r'"(\w+)"', public[1]))
        assert {name for name in names if f"{module}.{name}" not in described} <= named, module


def _source(module: str) -> str:
    """Return the source of a module of flopscope without importing it, as its dependencies may be missing."""
    spec = find_spec(f"flopscope.{module}")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def test_the_release_notes_begin_with_this_version_and_the_citation_names_the_last_release() -> None:
    notes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.search(r"^## ([\d.]+) \(", notes, re.M)
    assert released and f"\nversion: {released[1]}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    title, _, rest = notes[notes.index("\n## ") + 1 :].partition("\n")
    released = re.fullmatch(rf"## {re.escape(fs.__version__)} \(\d{{4}}-\d\d-\d\d\)", title)
    assert title == "## Unreleased" if ".dev" in fs.__version__ else released, title
    assert rest.partition("\n## ")[0].count("\n") <= 60


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path / "html")]
    done = subprocess.run([*command, "-d", str(tmp_path / "doctrees")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "html" / "api.html").read_text(encoding="utf-8")
    assert "flopscope.softmax" in page
    assert [name for name in _public_members() if f'id="flopscope.{name}"' not in page] == []
    commands = (tmp_path / "html" / "commands.html").read_text(encoding="utf-8")
    for name in ("table", "ranks", "run"):
        for option in re.findall(r"^ +(?:-o FILE, )?(--[a-z-]+)", _help(name), re.M):
            assert f'id="cmdoption-flopscope-{name}-{option[2:]}"' in commands, option


def _public_members() -> Iterator[str]:
    """Yield the public attributes and methods of the public classes, such as "Trace.accounting"."""
    for name in fs.__all__:
        thing = getattr(fs, name)
        if not isinstance(thing, type) or name in ("Op", "record_function"):  # described in words
            continue
        for base in thing.__mro__:
            if base.__module__.startswith("flopscope"):
                members = {*vars(base), *vars(base).get("__annotations__", {})}
                yield from (f"{name}.{member}" for member in sorted(members) if not member.startswith("_"))
