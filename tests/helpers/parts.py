"""The parts of an accounting, of a page and of a table."""

from typing import Any

from flopscope.answers.analysis import PARTS
from helpers.hand_traces import Program

Parts = dict[str, int]


def rows_of(trace: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of the accounting with times in ns. Check what holds for all of them."""
    frame = trace.accounting(**options)
    assert list(frame.columns) == ["device", "step", "total", *PARTS, "mfu", "mbu"]
    rows = [{name: None if v != v else v for name, v in row.items()} for row in frame.to_dict("records")]
    for row in rows:
        for name in ("total", *PARTS):
            ns = 1000 * row[name]
            assert ns >= 0 and abs(ns - round(ns)) < 1e-6 * max(ns, 1)
            row[name] = round(ns)
        assert sum(row[part] for part in PARTS) == row["total"]
        for share in (row["mfu"], row["mbu"]):
            assert share is None or share >= 0
    if len(rows) > 1:
        whole = rows[-1]
        assert whole["step"] is None
        for name in ("total", *PARTS):
            assert whole[name] == sum(row[name] for row in rows[:-1])
    return rows


def parts_of(row: dict[str, Any]) -> Parts:
    """Return the parts that are not empty."""
    return {part: row[part] for part in PARTS if row[part]}


def whole(program: Program) -> Parts:
    """Return the parts of the whole in µs."""
    parts = parts_of(rows_of(program.load())[-1])
    assert all(ns % 1000 == 0 for ns in parts.values())
    return {part: ns // 1000 for part, ns in parts.items()}
