"""The two sides of ``flopscope ab``: each a revision of git, a folder or an interpreter, made ready once."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flopscope.measuring.trying.trial import Processes, Program
from flopscope.support.safe import printable
from flopscope.support.units import plural

NOT_MODULES = ("test", "example", "doc", "bench", ".")
"""What folders begin with in which a package of the name of another one is none that programs import."""
BORROWED = "import site; site.addsitedir({!r})\n"
"""A line of a new environment, for a folder of this one, which has pytest, flopscope and torch. Its own comes first."""


@dataclass
class Side:
    """One side. Its processes run in ``where``, by an interpreter and with variables of their own."""

    label: str
    tree: Path | None = None
    """The folder of its files; None: an interpreter, whose modules are wherever it has them."""
    where: Path = field(default_factory=Path.cwd)
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    origin: Path | None = None
    installed: Path | None = None

    def processes(self, program: Program, folder: Path) -> Processes:
        """Return what runs a program, or pytest, on this side."""
        return Processes(program, folder, self.python, cwd=self.where, env={**os.environ, **self.environment})

    def require_own(self, modules: Mapping[str, str], other: Side) -> None:
        """Raise ValueError if one of the modules that were measured is of another tree, or if this tree has one of its
        name."""
        homes, foreign = (self.tree, self.installed), (self.origin, other.tree, other.installed)
        names = names_in(self.tree) if self.tree else set()
        for name, file in modules.items() if self.tree else ():
            # An environment may lie in the checkout; what is installed there is foreign by its name alone.
            elsewhere = "-packages" not in file and _within(file, foreign)
            if (elsewhere or name.partition(".")[0] in names) and not _within(file, homes):
                raise ValueError(
                    f"{self.label} would not be measured: its module {name} was loaded from {file}, not from "
                    f"{self.tree}; --setup 'pip install .' installs each side into an environment of its own"
                )


def _within(file: str, folders: Iterable[Path | None]) -> bool:
    return any(Path(os.path.realpath(file)).is_relative_to(os.path.realpath(one)) for one in folders if one)


def names_in(tree: Path) -> set[str]:
    """Return the names of the modules that a tree has: at its top, in src/, and in folders of packages."""
    folders = [tree, *(one for one in tree.iterdir() if one.is_dir() and not one.name.startswith(NOT_MODULES))]
    folders = [one for one in folders if one == tree or not (one / "__init__.py").exists()]
    found = {path.parent.name for folder in folders for path in folder.glob("*/__init__.py")}
    found |= {path.stem for folder in (tree, tree / "src") for path in folder.glob("*.py")}
    return found - {"setup", "conftest", "__main__"}


@contextmanager
def made_ready(base: str, head: str | None, setup: str) -> Iterator[tuple[Side, Side, Path]]:
    """Make both sides ready, and yield them with a temporary folder; nothing of them is left afterwards.

    head: None: the working tree, or for a folder the current one, for an interpreter this one. setup: a command to run
    in the tree of each side. Raises ValueError for what cannot be made ready.
    """
    with tempfile.TemporaryDirectory(prefix="flopscope-ab-") as scratch, ExitStack() as stack:
        folder = Path(scratch).resolve()
        first = _side(base, folder / "base", setup, stack)
        if head is None and first.origin is None:
            head = "./" if first.tree else sys.executable
        sides = first, _side(head, folder / "head", setup, stack)
        # Processes that all compile what they import would spend most of the time on that.
        cached = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        for one, name in zip(sides, ("base", "head"), strict=True):
            if setup:
                _install(one, setup, folder / f"{name}-environment")
            elif one.tree:
                given = os.environ.get("PYTHONPATH", "")
                own = [str(part) for part in (one.tree, one.tree / "src") if part.is_dir()]
                one.environment["PYTHONPATH"] = os.pathsep.join([*own, given]).rstrip(os.pathsep)
            one.environment |= cached if sys.dont_write_bytecode else {}
        yield *sides, folder


def _side(word: str | None, folder: Path, setup: str, stack: ExitStack) -> Side:
    if word is not None and os.path.isfile(word) and os.access(word, os.X_OK):
        return Side(word, python=os.path.abspath(word))
    if word is not None and os.path.isdir(word) and os.sep in word:  # a branch may be called as a folder is
        return Side(word, Path(word).resolve(), Path(word).resolve())
    origin = Path(git("rev-parse", "--show-toplevel"))
    inside = Path.cwd().resolve().relative_to(origin.resolve())
    commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{word or 'HEAD'}^{{commit}}", refused=word)
    if word is None:
        changed = plural(len(git("status", "--porcelain").splitlines()), "changed file")
        label, tree = f"working tree ({commit[:8]}, {changed})", _copied(origin, folder) if setup else origin
    else:
        label, tree = f"{word} ({commit[:8]})", folder
        links = [line.split("\t")[1] for line in git("ls-tree", "-r", commit).splitlines() if line.startswith("160000")]
        if links and "submodule" not in setup:
            raise ValueError(
                f"{word} has submodules, as {links[0]}, which a worktree lacks: give two folders, or begin --setup "
                "with 'git submodule update --init'"
            )
        git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        stack.callback(git, "worktree", "remove", "--force", str(folder), at=origin)
    where = tree / inside
    return Side(label, tree, where if where.is_dir() else tree, origin=origin)


def git(*words: str, at: Path | str = ".", refused: str | None = None) -> str:
    """Return what git prints. Raise ValueError with its reason; ``refused`` is the revision that there may not be."""
    if shutil.which("git") is None:
        raise ValueError("git is not installed; give two folders, or two interpreters")
    command = ["git", "-C", str(at), "-c", "core.hooksPath=/dev/null", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if done.returncode and refused is not None:
        raise ValueError(f"{refused!r} is neither a revision of git, a folder (with a slash) nor an interpreter")
    if done.returncode:
        why = printable(done.stderr.strip().rpartition("\n")[2]).removeprefix("fatal: ")
        raise ValueError(f"git {words[0]}: {why or 'it failed'}; revisions need a repository of git with a commit")
    return done.stdout.strip()


def _copied(tree: Path, folder: Path) -> Path:
    """Copy what git would keep of a tree, so that nothing is built in the user's."""
    for name in git("ls-files", "-z", "-co", "--exclude-standard", at=tree).split("\0"):
        if (tree / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, folder / name)
    return folder


def _install(side: Side, setup: str, folder: Path) -> None:
    """Run the command in the tree, in a virtual environment that has what this one has beside it."""
    subprocess.run([side.python, "-m", "venv", str(folder)], check=True, stdout=subprocess.DEVNULL)
    (packages,) = folder.glob("lib/python*/site-packages")
    borrowed = [one for one in sys.path if one.endswith("-packages")] or site.getsitepackages()
    (packages / "flopscope_ab.pth").write_text("".join(map(BORROWED.format, borrowed)), encoding="utf-8")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    side.python, side.installed = str(folder / "bin" / "python"), folder
    side.environment |= {"PATH": path, "VIRTUAL_ENV": str(folder)}
    how: Any = {"cwd": side.tree or side.where, "env": {**os.environ, **side.environment}, "stdin": subprocess.DEVNULL}
    done = subprocess.run(setup, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    if done.returncode:
        last = printable(done.stdout.strip().rpartition("\n")[2][:300])
        raise ValueError(f"{side.label} cannot be set up: {setup!r} ended with status {done.returncode}: {last}")
