"""Print what each part of the Python package imports, from the ground up: the drawing in docs/architecture.md.

    python tools/structure.py [FOLDER]      of the package in FOLDER, by default that of this checkout

The parts and their order are those of the table in docs/architecture.md. Imports within functions count, imports for
types do not. An import against the order is marked "↑", with the number of statements.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FACE = "face"


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
        lines.append(f"{own:<10} {' '.join([*below, *above])}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    print(drawing(folder / "flopscope", order(document)))
