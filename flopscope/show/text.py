"""Tables as text in torch.profiler's layout: its columns, followed by flopscope's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from flopscope.results.row import EventRow
from flopscope.results.table import EventTable
from flopscope.show.columns import COLUMNS, columns_of
from flopscope.show.notes import footnotes
from flopscope.support import units
from flopscope.support.columns import GAP, aligned_line, dashes
from flopscope.support.safe import printable


class Layout:
    """The layout of one printed table: its options, and the widths and columns that follow from its rows."""

    def __init__(
        self,
        table: EventTable,
        *,
        time_unit: str | None,
        max_name_column_width: int | None,
        max_shapes_column_width: int | None,
        max_src_column_width: int | None,
        roofline: bool,
    ) -> None:
        self.table, self.time_unit, self.max_name_width = table, time_unit, max_name_column_width
        values = table.columns
        stacks, shapes = table.stacks or (), values["input_shapes"]
        counters = zip(values["dram_gbytes_per_s"], values["tensor_active"], strict=True)
        groups = {row.group for row in table} if table.groups else {""}
        self.widths: dict[str, int] = {
            "name": _width(map(printable, values["key"]), max_name_column_width),
            "shapes": _width(map(str, shapes), max_shapes_column_width),
            "source": _width((printable(entry) for stack in stacks for entry in stack), max_src_column_width),
            "group": min(_width(map(printable, groups), max_src_column_width), 40),
        }
        device_memory = any(size > 0 for size in values["self_device_memory_usage"])
        self.shown = {
            "always": True,
            "overload": any(values["overload_name"]),
            "device": any(time > 0 for time in values["self_device_time_total"]),
            "memory": table.profile_memory,
            "device memory": table.profile_memory and device_memory,
            "shapes": any(shapes),
            "source": any(stacks),
            "group": any(groups),
            "roofline": roofline,
            "counted": roofline and any(not math.isnan(moved + active) for moved, active in counters),
            "fitted": False,
        }

    def time(self, microseconds: float) -> str:
        return units.time_text(microseconds, self.time_unit)

    def name(self, name: str) -> str:
        limit, name = self.max_name_width, printable(name)
        return name if limit is None or len(name) < limit - 3 else name[: limit - 3] + "..."

    def end(self, text: str, column: str) -> str:
        """Shorten a source location, or what a row is grouped by, at its beginning to the width of its column."""
        text = printable(text)
        cut = text[max(0, len(text) - self.widths[column]) :]
        return "..." + cut[3:] if 3 < len(cut) < len(text) else cut


def _width(texts: Iterable[str], limit: int | None) -> int:
    width = max(map(len, texts), default=0) + 4
    return width if limit is None else min(width, limit)


def render(
    table: EventTable, *, row_limit: int, header: str | None, top_level_events_only: bool, **options: Any
) -> str:
    """Return the text of EventTable.table, which documents the arguments. options: those of Layout."""
    if len(table) == 0:
        return ""
    layout = Layout(table, **options)
    columns = [column for column in columns_of(table.device_type, COLUMNS) if layout.shown[column.shown]]
    widths = [layout.widths[column.width] if isinstance(column.width, str) else column.width for column in columns]

    rows = list(table)
    if top_level_events_only:
        rows = [row for row in rows if row.top_level]
    if row_limit >= 0:
        rows = rows[:row_limit]

    align = "".join(column.align for column in columns)

    def aligned(cells: Iterable[str]) -> str:
        return aligned_line(cells, widths, align) + GAP  # as torch.profiler ends its lines

    def row_lines(row: EventRow) -> Iterable[str]:
        yield aligned(column.cell(row, layout) for column in columns)
        for column in columns:
            for text in column.more(row, layout) if column.more is not None else ():
                yield aligned(text if other is column else "" for other in columns)

    rule = dashes(widths) + GAP
    double_rule = "=" * (len(rule) - len(GAP))
    lines = [] if header is None else [double_rule, header]
    if top_level_events_only:
        lines += [double_rule, "This report only display top-level ops statistics"]
    lines += [rule, aligned(column.header for column in columns), rule]
    lines += [text for row in rows for text in row_lines(row)]
    lines += [rule, f"Self CPU time total: {layout.time(table.self_cpu_time_total)}"]
    if layout.shown["device"]:
        lines.append(f"Self {table.device_type.upper()} time total: {layout.time(table.self_device_time_total)}")
    if layout.shown["roofline"]:
        lines += footnotes(rows, table, layout.name, layout.time)
    return "\n".join(lines) + "\n"
