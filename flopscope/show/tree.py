"""The tree of a program's modules as indented text."""

from __future__ import annotations

from flopscope.results.groups import ModuleTable
from flopscope.show.fitted import wrapped
from flopscope.show.notes import footnotes
from flopscope.support import units
from flopscope.support.columns import GAP, aligned_line, cut_apart, cut_middle, dashes
from flopscope.support.safe import printable

INDENT = "  "
NAME, LEAST_NAME = 50, 24  # characters
GIVE_WAY = ("FLOPs", "Self", "Calls", "total %")  # parts of the headers that a narrow tree leaves out, in this order


def render(table: ModuleTable, width: int = 0) -> str:
    """Return the tree as indented text: calls, self and total time, FLOPs and share of the roofline.

    width: of the lines, at least 40; 0 for names of up to 50 characters beside all columns.
    """
    if len(table) == 0:
        return ""
    place, kind = ("device", table.device_type.upper()) if table.has_device else ("cpu", "CPU")
    whole = table.self_device_time_total if table.has_device else table.self_cpu_time_total
    header = ["Module", "Calls", f"Self {kind}", f"{kind} total", f"{kind} total %", "FLOPs", "% Roofline"]
    lines = [header]
    deep = zip(table, table.depths(), strict=True)
    named = [INDENT * min(depth, NAME // 4) + printable(row.key) for row, depth in deep]
    names = cut_apart(named, NAME)
    columns = (table.groups[name] for name in ("module_calls", "pct_roofline_total"))
    for row, full, calls, share in zip(table, named, *columns, strict=True):
        own, total = (getattr(row, f"{of}{place}_time_total") for of in ("self_", ""))
        times = *(units.time_text(time) for time in (own, total)), units.share_text(total, whole)
        work = units.count_text(row.flops_total), units.roofline_text(share)
        lines.append([names[full], str(calls) if calls else "", *times, *work])
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for part in GIVE_WAY if width else ():
        column = next(i for i, cell in enumerate(lines[0]) if part in cell)
        if min(widths[0], LEAST_NAME) + sum(widths[1:]) + len(GAP) * (len(widths) - 1) > width:
            del widths[column]
            lines = [[*line[:column], *line[column + 1 :]] for line in lines]
    if width:
        widths[0] = min(widths[0], width - sum(widths[1:]) - len(GAP) * (len(widths) - 1))
        names = cut_apart(["Module", *named], widths[0])
        lines = [[names[full], *line[1:]] for full, line in zip(["Module", *named], lines, strict=True)]
    rule = dashes(widths)
    printed = [rule, aligned_line(lines[0], widths), rule, *(aligned_line(line, widths) for line in lines[1:]), rule]
    printed.append(f"Self CPU time total: {units.time_text(table.self_cpu_time_total)}")
    if table.has_device:
        printed.append(f"Self {kind} time total: {units.time_text(table.self_device_time_total)}")
    notes = footnotes(table, table, lambda name: cut_middle(name, NAME), units.time_text)
    shown = wrapped((" ".join(note.split()) for note in notes), width) if width else notes
    return "\n".join(line.rstrip() for line in [*printed, *shown]) + "\n"
