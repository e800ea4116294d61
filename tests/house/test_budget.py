"""The house does not grow: each room has at most the lines and bytes of budget.txt, and the whole what CAPS allow.

`python tools/structure.py --budget >tests/house/budget.txt` writes the table as the rooms are now, to be done after
deleting. Where text moves from one room to another, raise the row of the one. The caps of the whole stay as they are,
so that a feature pays with a deletion. Lines are those of C, CUDA, Python, JavaScript, CSS and Markdown; bytes those
of all files.
"""

import runpy
from collections import Counter
from pathlib import Path

import pytest
from helpers import ROOT

CAPS = {
    "lines in all": 194_990,
    "bytes of the checkout": 10_260_000,
    "lines of flopscope/*.py": 38_150,
    "modules of flopscope": 194,
    "lines of tests": 58_750,
    "lines of benchmarks": 6_000,
    "lines of docs": 3_000,
}
ADVICE = "Delete as much there or, where text only moved between rooms, raise the row of tests/house/budget.txt."


def _wholes(rooms: dict[str, Counter[str]]) -> dict[str, int]:
    package = [room for name, room in rooms.items() if name.startswith("flopscope")]
    return {
        "lines in all": sum(room["lines"] for room in rooms.values()),
        "bytes of the checkout": sum(room["bytes"] for room in rooms.values()),
        "lines of flopscope/*.py": sum(room["python"] for room in package),
        "modules of flopscope": sum(room["modules"] for room in package),
        **{f"lines of {name}": rooms[name]["lines"] for name in ("tests", "benchmarks", "docs")},
    }


def _over(rooms: dict[str, Counter[str]], table: str) -> list[str]:
    """Return a sentence for each number that is over its cap, and for each share of comments that fell."""
    caps = {name: (int(lines), int(size), float(share)) for name, lines, size, share in map(str.split, _rows(table))}
    found = [
        f"{name}: {value:,}, {value - CAPS[name]:,} more than the {CAPS[name]:,} allowed"
        for name, value in _wholes(rooms).items()
        if value > CAPS[name]
    ]
    for name, room in rooms.items():
        lines, size, share = caps.get(name, (0, 0, 0.0))
        for what, most in (("lines", lines), ("bytes", size)):
            if room[what] > most:
                found.append(f"{name}: {room[what]:,} {what}, {room[what] - most:,} more than the {most:,} allowed")
        if (now := 100 * room["comments"] / max(room["lines"], 1)) < share:
            found.append(f"{name}: {now:.1f} % of the lines are comments, less than {share} %: say why things are so")
    return found


def _rows(table: str) -> list[str]:
    return table.splitlines()[1:]


@pytest.fixture(scope="module")
def structure() -> dict[str, object]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    return runpy.run_path(str(ROOT / "tools" / "structure.py"))


def test_no_room_is_over_its_budget(structure: dict) -> None:
    over = _over(structure["rooms"](), (Path(__file__).parent / "budget.txt").read_text(encoding="utf-8"))
    assert not over, "\n".join([*over, ADVICE])


def test_what_is_over_the_budget_is_named_with_its_amount(structure: dict) -> None:
    rooms, table = structure["rooms"](), structure["budget"]()
    assert all("more than" in sentence for sentence in _over(rooms, table)), "the table as it is now suffices for rooms"
    most = int(next(row for row in _rows(table) if row.startswith("kernels ")).split()[1])
    rooms["kernels"].update(lines=most - rooms["kernels"]["lines"] + 7)
    rooms["tools"]["comments"] = 0
    rooms["new"] = Counter(lines=1, bytes=10)
    found = "\n".join(_over(rooms, table))
    assert f"kernels: {most + 7:,} lines, 7 more than the {most:,} allowed" in found
    assert "tools: 0.0 % of the lines are comments" in found
    assert "new: 1 lines, 1 more than the 0 allowed" in found and "new: 10 bytes" in found
