"""Print what each part of the Python package imports, from the ground up: the drawing in docs/architecture.md.

    python tools/structure.py [FOLDER]      of the package in FOLDER, by default that of this checkout
    python tools/structure.py --budget      the lines, bytes and comments of each room, for tests/house/budget.txt

The parts and their order are those of the table in docs/architecture.md. Imports within functions count, imports for
types do not. An import against the order is marked "↑", with the number of statements.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FACE = "face"
WIDTH = 88


def order(document: str) -> tuple[str, ...]:
    """Return the parts from the ground up; modules at the top level are the last."""
    return (*re.findall(r"^\| `(\w+)/?` \|", document.split("## The Python layer")[1], re.M), FACE)


def part_of(module: str, parts: tuple[str, ...]) -> str:
    """Return the part of a module such as "flopscope.results.table"."""
    names = module.split(".")
    return names[1] if len(names) > 1 and names[1] in parts else FACE


def imports_of(tree: ast.AST, parts: tuple[str, ...]) -> list[str]:
    """Return the modules of flopscope that a file imports at run time, once for each statement."""
    found: list[str] = []
    nodes: list[ast.AST] = [tree]
    packages = ("flopscope", *(f"flopscope.{part}" for part in parts))
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names] if node.module in packages else []
            found += [] if node.module in packages else [str(node.module)]
        nodes += ast.iter_child_nodes(node)
    return [name for name in found if name.split(".")[0] == "flopscope"]


def drawing(package: Path, parts: tuple[str, ...]) -> str:
    """Return a line for each part with the parts that it imports."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in package.rglob("*.py"):
        own = part_of(".".join(path.relative_to(package.parent).with_suffix("").parts), parts)
        for module in imports_of(ast.parse(path.read_text(encoding="utf-8")), parts):
            counts[own, part_of(module, parts)] += 1
    lines = []
    for number, own in enumerate(parts[1:], 1):
        below = [part for part in parts[:number] if counts[own, part]]
        above = [f"↑{part} {counts[own, part]}" for part in parts[number + 1 :] if counts[own, part]]
        lines += textwrap.wrap(f"{own:<10} {' '.join([*below, *above])}", WIDTH, subsequent_indent=" " * 11)
    return "\n".join(lines)


SOURCES = {".c", ".h", ".cu", ".cuh", ".def", ".py", ".pyi", ".js", ".css", ".md"}
ASSETS = "flopscope/show/page/assets"
COMMENT = re.compile(r'^[ \t]*(?:#.*|[rf]?"""[\s\S]*?""")', re.M)
COMMENT_OF_C = re.compile(r"^[ \t]*(?://.*|/\*[\s\S]*?\*/)", re.M)


def room_of(name: str) -> str:
    """Return the room of a file: a part of the core or the package, the page's assets, or a folder."""
    folders = Path(name).parts[:-1]
    if name.startswith(ASSETS):
        return ASSETS
    return "/".join(folders[: 2 if folders[0] in ("csrc", "flopscope") else 1]) if folders else "top"


def rooms(root: Path = ROOT) -> dict[str, Counter[str]]:
    """Count each room's modules, lines, bytes and lines of comments and docstrings, in the files that git lists."""
    found: dict[str, Counter[str]] = {}
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=root, text=True).split("\0")[:-1]:
        path, room = root / name, found.setdefault(room_of(name), Counter())
        if not path.exists():
            continue
        room["bytes"] += path.stat().st_size
        if path.suffix in SOURCES:
            text = path.read_text(encoding="utf-8")
            pattern = COMMENT if path.suffix in (".py", ".pyi") else COMMENT_OF_C
            room["lines"] += text.count("\n")
            room["comments"] += sum(match.count("\n") + 1 for match in pattern.findall(text)) * (path.suffix != ".md")
            room["python"] += text.count("\n") * (path.suffix == ".py")
            room["modules"] += path.suffix == ".py"
    return dict(sorted(found.items()))


def budget() -> str:
    """Return the table of tests/house/budget.txt with the rooms as they are, rounded up."""
    lines = [f"{'room':<28}{'lines':>8}{'bytes':>12}{'comments, %':>14}"]
    for name, room in rooms().items():
        share = 100 * room["comments"] / max(room["lines"], 1)
        most = (-room["lines"] // 100 * -100, -room["bytes"] // 10_000 * -10_000)
        lines.append(f"{name:<28}{most[0]:>8}{most[1]:>12}{max(share - 0.1, 0):>14.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--budget"]:
        sys.exit(print(budget()))
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    print(drawing(folder / "flopscope", order(document)))
