"""Tables as text: torch.profiler's layout and columns, followed by flopscope's columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopscope.support import units
from flopscope.support.columns import GAP, aligned_line, dashes
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.results.table import EventRow, EventTable

WIDTH = 12  # of torch.profiler's columns
UNMODELLED_SHOWN = 3
BRIEF_NAME = 35  # characters, so that a brief table has 120 columns
BRIEF_RANK, BRIEF_CPU = 4, 9


class Layout:
    """The layout of one printed table: its options, and the widths and columns that follow from its rows."""

    def __init__(
        self,
        table: EventTable,
        time_unit: str | None,
        max_name_width: int | None,
        max_shapes_width: int | None,
        max_source_width: int | None,
        roofline: bool,
    ) -> None:
        self.table, self.time_unit, self.max_name_width = table, time_unit, max_name_width
        self.widths = {
            "name": _width((printable(row.key) for row in table), max_name_width),
            "shapes": _width((str(row.input_shapes) for row in table), max_shapes_width),
            "source": _width((printable(entry) for row in table for entry in row.stack), max_source_width),
        }
        self.widths["group"] = min(_width((printable(row.group) for row in table), max_source_width), 40)
        device_memory = any(row.self_device_memory_usage > 0 for row in table)
        self.shown = {
            "always": True,
            "overload": any(row.overload_name for row in table),
            "device": any(row.self_device_time_total > 0 for row in table),
            "memory": table.profile_memory,
            "device memory": table.profile_memory and device_memory,
            "shapes": any(row.input_shapes for row in table),
            "source": any(row.stack for row in table),
            "group": any(row.group for row in table),
            "rank": table.ranks is not None,
            "roofline": roofline,
        }

    def is_brief(self, column: TextColumn) -> bool:
        """Return whether a brief table has a column; shapes and sources take the place of the host time."""
        has_details = self.shown["shapes"] or self.shown["source"] or self.shown["group"]
        return bool(column.brief) and not (column.header == "Self CPU" and has_details and self.shown["device"])

    def time(self, microseconds: float) -> str:
        return units.time_text(microseconds, self.time_unit)

    def name(self, name: str) -> str:
        limit, name = self.max_name_width, printable(name)
        return name if limit is None or len(name) < limit - 3 else name[: limit - 3] + "..."

    def group(self, text: str) -> str:
        """Shorten what a row is grouped by at its beginning."""
        text = printable(text)
        return text if len(text) <= self.widths["group"] else "..." + text[len(text) - self.widths["group"] + 3 :]

    def source(self, entry: str) -> str:
        """Shorten a source location at its beginning."""
        entry = printable(entry)
        cut = entry[max(0, len(entry) - self.widths["source"]) :]
        return "..." + cut[3:] if 3 < len(cut) < len(entry) else cut


def _brief_widths(table: EventTable) -> tuple[int, int]:
    """Return the widths of the names, and of the shapes or sources beside them."""
    room = BRIEF_NAME - (BRIEF_RANK + len(GAP)) * (table.ranks is not None)
    if not any(row.input_shapes or row.stack or row.group for row in table):
        return room, room
    if table.has_device:
        room += BRIEF_CPU + len(GAP)
    return (room - len(GAP)) // 2, (room - len(GAP)) // 2


def _width(texts: Iterable[str], limit: int | None) -> int:
    width = max(map(len, texts), default=0) + 4
    return width if limit is None else min(width, limit)


@dataclass(frozen=True)
class TextColumn:
    """A column: its header, its cells, the key of Layout.shown that enables it, and its width or key of Layout.widths.

    ``more`` returns further lines of a cell, which are printed below the row. ``brief`` is the width in a brief table;
    0: the column is omitted, 1: it shares the width of the names.
    """

    header: str
    cell: Callable[[EventRow, Layout], str]
    shown: str = "always"
    width: int | str = WIDTH
    align: str = ">"
    more: Callable[[EventRow, Layout], list[str]] | None = None
    brief: int = 0


DEVICE_UNSEEN = (
    "No rates and no roofline: the program apparently used a GPU, but the trace contains no activity of that GPU",
    "(recorded with CPU activities only, or truncated). Host times are the time to dispatch ops, not to run them.",
)

COLUMNS = [
    TextColumn("Name", lambda r, at: at.name(r.key), width="name", brief=BRIEF_NAME),
    TextColumn("Group", lambda r, at: at.group(r.group), "group", "group", align="<", brief=1),
    TextColumn("Rank", lambda r, at: str(r.rank), "rank", 4, brief=BRIEF_RANK),
    TextColumn("Overload Name", lambda r, at: at.name(r.overload_name), "overload", "name"),
    TextColumn("Self CPU %", lambda r, at: units.share_text(r.self_cpu_time_total, at.table.self_cpu_time_total)),
    TextColumn("Self CPU", lambda r, at: at.time(r.self_cpu_time_total), brief=BRIEF_CPU),
    TextColumn("CPU total %", lambda r, at: units.share_text(r.cpu_time_total, at.table.self_cpu_time_total)),
    TextColumn("CPU total", lambda r, at: at.time(r.cpu_time_total)),
    TextColumn("CPU time avg", lambda r, at: at.time(r.cpu_time)),
    TextColumn("Self CUDA", lambda r, at: at.time(r.self_device_time_total), "device", brief=9),
    TextColumn(
        "Self CUDA %",
        lambda r, at: units.share_text(r.self_device_time_total, at.table.self_device_time_total),
        "device",
        brief=11,
    ),
    TextColumn("CUDA total", lambda r, at: at.time(r.device_time_total), "device"),
    TextColumn("CUDA time avg", lambda r, at: at.time(r.device_time), "device"),
    TextColumn("CPU Mem", lambda r, at: units.memory_text(r.cpu_memory_usage), "memory"),
    TextColumn("Self CPU Mem", lambda r, at: units.memory_text(r.self_cpu_memory_usage), "memory"),
    TextColumn("CUDA Mem", lambda r, at: units.memory_text(r.device_memory_usage), "device memory"),
    TextColumn("Self CUDA Mem", lambda r, at: units.memory_text(r.self_device_memory_usage), "device memory"),
    TextColumn("# of Calls", lambda r, at: str(r.count), brief=10),
    TextColumn("Input Shapes", lambda r, at: str(r.input_shapes)[: at.widths["shapes"]], "shapes", "shapes", brief=1),
    TextColumn(
        "Source Location",
        lambda r, at: at.source(r.stack[0]) if r.stack else "",
        "source",
        "source",
        align="<",
        more=lambda r, at: [*map(at.source, r.stack[1:]), ""],
        brief=1,
    ),
    TextColumn("FLOPs", lambda r, at: units.count_text(r.flops), "roofline", 8),
    TextColumn("Bytes", lambda r, at: units.bytes_text(r.bytes_total_moved), "roofline", 10),
    TextColumn("TFLOP/s", lambda r, at: units.number_text(r.tflops_per_s), "roofline", 7, brief=7),
    TextColumn("GB/s", lambda r, at: units.number_text(r.gbytes_per_s), "roofline", 7, brief=6),
    TextColumn("FLOP/B", lambda r, at: units.number_text(r.arithmetic_intensity), "roofline", 7),
    TextColumn("% Roofline", lambda r, at: units.roofline_text(r.pct_roofline), "roofline", 10, brief=10),
    TextColumn("Bound", lambda r, at: units.bound_text(r.bound), "roofline", 7, brief=7),
]


def footnotes(rows: Sequence[EventRow] | EventTable, layout: Layout) -> Iterable[str]:
    """Yield the lines of notes that explain the numbers of these rows."""
    table = layout.table
    if any(row.pct_roofline > 100 for row in rows):
        yield "* more than the roofline: the data sat in cache (bound: cache), the clock was higher than when the peak"
        yield "  was measured (uniform data draws less power), or a work rule is wrong."
    if table.device_unseen:
        yield from DEVICE_UNSEEN
    coverage = table.coverage()
    if min(coverage["bytes"], coverage["flops"]) < 1:
        where = "device time" if table.has_device else "host time of ops"
        yield (
            f"Coverage: the bytes of {100 * coverage['bytes']:.1f} % and the FLOPs of {100 * coverage['flops']:.1f} % "
            f"of the {where} are known."
        )
    if table.lacks_shapes:
        yield "The work of ops is unknown because no input shapes were recorded: profile with record_shapes=True."
    elif coverage["unmodelled"]:
        listed = [f"{layout.name(name)} {layout.time(time)}" for name, time in coverage["unmodelled"]]
        more = len(listed) - UNMODELLED_SHOWN
        yield f"Not modelled: {', '.join(listed[:UNMODELLED_SHOWN])}{f' and {more} more' if more > 0 else ''}."
    if coverage.get("estimated"):
        names = [layout.name(name) for name, _ in coverage["estimated"]]
        more = len(names) - UNMODELLED_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        yield f"Only upper limits are known for the work of {', '.join(names[:UNMODELLED_SHOWN])}{rest}."
    if table.open_events:
        yield f"Open events: {table.open_events} had not ended; their time is unknown and counts as 0."
    if table.dropped:
        yield f"Dropped records: {table.dropped}. Times and counts are too low: profile a shorter part of the program."
    if table.device_unseen and all(math.isnan(row.pct_roofline) for row in rows):  # some of several ranks may have it
        return
    descriptions = {
        name: f"{peaks['source']} peaks of {printable(peaks['name'])}" for name, peaks in table.peaks.items()
    }
    for peaks, devices in _group_devices(descriptions):
        yield f"% Roofline: of the {peaks} ({devices})."
    if any(row.flops == row.flops or row.bytes_total_moved >= 0 for row in rows):
        for reason, devices in _group_devices(table.unknown_peaks):
            yield f"% Roofline: unknown on {devices}: {printable(reason)}."


def _group_devices(descriptions: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yield each distinct text with the devices that it applies to."""
    for description in dict.fromkeys(descriptions.values()):
        yield description, ", ".join(device for device, text in descriptions.items() if text == description)


def render(
    table: EventTable,
    *,
    sort_by: str | None,
    row_limit: int,
    max_src_column_width: int | None,
    max_name_column_width: int | None,
    max_shapes_column_width: int | None,
    header: str | None,
    top_level_events_only: bool,
    time_unit: str | None,
    roofline: bool,
    brief: bool = False,
) -> str:
    """Return the text of EventTable.table, which documents the arguments."""
    if len(table) == 0:
        return ""
    if brief:
        name, details = _brief_widths(table)
        max_name_column_width, max_shapes_column_width, max_src_column_width = name, details, details
    layout = Layout(table, time_unit, max_name_column_width, max_shapes_column_width, max_src_column_width, roofline)
    columns = [column for column in COLUMNS if layout.shown[column.shown] and (not brief or layout.is_brief(column))]
    widths = [
        layout.widths[column.width] if isinstance(column.width, str) else column.brief if brief else column.width
        for column in columns
    ]

    rows = list(table if sort_by is None else table.sorted(sort_by))
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
        lines.append(f"Self CUDA time total: {layout.time(table.self_device_time_total)}")
    if roofline:
        lines += footnotes(rows, layout)
    return "\n".join(lines) + "\n"
