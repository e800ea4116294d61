"""The table of predicted beside measured savings, in a page in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flopscope.cli.trying import _add_rows
from flopscope.measuring.trying.rows import with_rows

PAGE = """# Measured

<!-- tried -->
| program | change | device | predicted | measured | verdict |
| --- | --- | --- | --- | --- | --- |
| a.py | `compile` | a CPU | 9.0 % | 8.0 % (7.0 to 9.0) | faster, 3 pairs |
| c.py | `compile` | a CPU | 1.0 % | -1.0 % | unclear, 1 pair |
<!-- end -->

After it.
"""


def prediction(**more: Any) -> dict[str, Any]:
    known = {"change": "compile", "device": "a CPU", "predicted": 20.04, "measured": 18.96}
    return {**known, "low": 17.0, "high": 21.0, "pairs": 4, "verdict": "faster", **more}


def test_a_row_is_added_and_the_rest_of_the_page_is_kept() -> None:
    text = with_rows(PAGE, "b.py", [prediction()])
    row = "| b.py | `compile` | a CPU | 20.0 % | 19.0 % (17.0 to 21.0) | faster, 4 pairs |"
    lines = PAGE.splitlines()
    assert text.splitlines() == [*lines[:6], row, *lines[6:]] and text.endswith("After it.\n")


def test_a_row_of_the_same_program_change_and_device_is_replaced() -> None:
    text = with_rows(PAGE, "a.py", [prediction(), prediction(device="a GPU"), prediction(change="threads")])
    rows = [line for line in text.splitlines() if line.startswith("| a.py")]
    assert len(rows) == 3 and "8.0 % (7.0" not in text
    assert with_rows(text, "a.py", [prediction()]).count("a.py") == 3


def test_an_empty_table_gets_its_header_and_unknown_limits_are_left_out() -> None:
    text = with_rows("<!-- tried -->\n<!-- end -->\n", "x|y.py", [prediction(low=None, high=None, pairs=1)])
    header, rule, row = text.splitlines()[1:-1]
    assert header == "| program | change | device | predicted | measured | verdict |" and set(rule) == set("| -")
    assert row == "| x/y.py | `compile` | a CPU | 20.0 % | 19.0 % | faster, 1 pair |"


@pytest.mark.parametrize("text", ["", "<!-- tried -->\n", "<!-- end -->\n<!-- tried -->"])
def test_a_page_without_marks_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="there is no line <!-- tried -->"):
        with_rows(text, "a.py", [])


def test_the_file_is_written_only_if_there_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- tried --><!-- end -->")
    with pytest.raises(ValueError, match=r"page\.md: there is no line"):
        _add_rows(str(path), "", [])
    path.write_text(PAGE)
    _add_rows(str(path), "b.py", [])
    assert path.read_text() == PAGE
    _add_rows(str(path), "b.py", [prediction()])
    assert "| b.py |" in path.read_text()
