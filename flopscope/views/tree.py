"""The tree of a program's modules as indented text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopscope.support import units
from flopscope.support.columns import aligned_line, dashes
from flopscope.support.safe import printable
from flopscope.views.notes import footnotes

if TYPE_CHECKING:
    from flopscope.results.modules import ModuleTable

INDENT = "  "
NAME = 50  # characters


def _shortened(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 3] + "..."


def render(table: ModuleTable, time_unit: str | None = None) -> str:
    """Return the text of ModuleTable.tree, which documents the arguments."""
    if len(table) == 0:
        return ""
    place, kind = ("device", "CUDA") if table.has_device else ("cpu", "CPU")
    whole = table.self_device_time_total if table.has_device else table.self_cpu_time_total
    header = ["Module", "Calls", f"Self {kind}", f"{kind} total", f"{kind} total %", "FLOPs", "% Roofline"]
    lines = [header]
    for row, depth, calls, share in zip(
        table, table._depths(), table._groups["module_calls"], table._groups["pct_roofline_total"], strict=True
    ):
        total = getattr(row, f"{place}_time_total")
        lines.append(
            [
                _shortened(INDENT * min(depth, NAME // 4) + printable(row.key)),
                str(calls) if calls else "",
                units.time_text(getattr(row, f"self_{place}_time_total"), time_unit),
                units.time_text(total, time_unit),
                units.share_text(total, whole),
                units.count_text(row.flops_total),
                units.roofline_text(share),
            ]
        )
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    rule = dashes(widths)
    printed = [rule, aligned_line(lines[0], widths), rule, *(aligned_line(line, widths) for line in lines[1:]), rule]
    printed.append(f"Self CPU time total: {units.time_text(table.self_cpu_time_total, time_unit)}")
    if table.has_device:
        printed.append(f"Self CUDA time total: {units.time_text(table.self_device_time_total, time_unit)}")
    notes = footnotes(table, table, _shortened, lambda spent: units.time_text(spent, time_unit))
    return "\n".join(line.rstrip() for line in [*printed, *notes]) + "\n"
