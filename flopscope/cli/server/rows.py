"""Tools on rows of tables, and on events: rows, explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from flopscope import _core
from flopscope.answers.analysis import Analysis, analysis_of
from flopscope.answers.pieces import Op
from flopscope.cli.server.documents import EXPLAINED, Answer
from flopscope.cli.server.folders import Folders
from flopscope.cli.server.traces import FILE
from flopscope.read.trace import Trace
from flopscope.results.groups import GROUPINGS
from flopscope.results.table import EventTable
from flopscope.show.columns import shapes_text
from flopscope.show.entries import Entry
from flopscope.show.fitted import fit_columns
from flopscope.support.columns import Rows, cut_middle
from flopscope.support.safe import printable, shown
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import percent_text, plural, short_time_text

TOP = 10
NAME = 60
"""Characters of names in texts."""
WIDE = 200
"""Characters of a line of a table."""
ENCLOSING = 32
"""Events around an event that are named."""
BY = f"one or several of {', '.join(GROUPINGS)}, as 'name,step'; by default shape, or name if none was recorded"
Kind = Literal["op", "kernel", "range", "all"]


def rows(
    folders: Folders,
    path: str = FILE,
    group_by: str | None = Field(None, description=BY),
    kind: Kind = Field("op", description="which rows"),
    filter: str | None = Field(None, description="only names that contain this text, in any case"),
    kernel: str | None = Field(None, description="only ops that launched a kernel whose name contains this text"),
    sort_by: str | None = Field(None, description="a column, as flops, the largest first; by default the own time"),
    top: int = Field(TOP, description="rows at most", ge=1, le=200),
) -> Answer:
    """Ops, kernels or ranges with their times, FLOPs, bytes, share of the roofline and bound: filter, sort, take the
    top. Use it when summary and advice leave a question, such as which shapes of aten::mm are slow. The ids of rows
    grouped by shape are those of the evidence of the advice; explain takes them."""
    trace = folders.trace(path)
    words = [word.strip() for word in group_by.split(",")] if group_by else None
    by_what: dict[str, Any] = {"group_by_input_shape": True} if words is None else {"group_by": words}
    table = trace.key_averages(**by_what, kernels=kernel is not None)
    by = sort_by or table.own_time
    found = table if table.is_mixed else table.of_kind(kind)
    name, part = (filter or "").lower(), (kernel or "").lower()
    found = found.select(
        place
        for place, row in enumerate(found)
        if name in row.key.lower() and (kernel is None or any(part in one.lower() for one, *_ in row.kernels))
    ).sorted(by)
    chosen = found[:top]
    document = chosen.to_dict(files=[path])
    if not len(found):
        return Answer(f"No rows match; the table has {len(table)} of all kinds.", document)
    return Answer(f"{_table_text(chosen)}\n{len(chosen)} of {len(found)} rows, by {by}.", document)


def _table_text(table: EventTable) -> str:
    """Return a line for each row, with its id and its groups."""
    own = "Self CUDA" if table.has_device else "Self CPU"
    names = [*["Group"][: len(table.groups)], "Input shapes", "Calls", own, f"{own} %", "% Roofline", "Bound"]
    columns = fit_columns([Entry(row) for row in table], table, WIDE, names)
    ids = ("id", *(record["id"] for record in table.row_records()))
    rows = zip(ids, *((one.column.fitted_header, *one.cells) for one in columns), strict=True)
    return "\n".join(Rows([*rows], "<" * (1 + sum(one.is_text for one in columns)) + ">").lines(2 * WIDE))


def _name(text: str) -> str:
    return cut_middle(printable(text), NAME)


# Explain --------------------------------------------------------------------------------------------------------------


def explain(
    folders: Folders,
    path: str = FILE,
    row: str | None = Field(None, description="id of a row grouped by shape, or an op: its longest row"),
    event: int | None = Field(None, description="id of an event, as in the evidence"),
) -> Answer:
    """All that is known of one row or one event: its time and its limit, the part of the accounting that it loses time
    in, the kernels that it launched, what encloses it, the advice that rests on it. Use it on the evidence of a piece
    of advice before changing code."""
    if row is not None and event is None:
        return _row(folders.trace(path), path, row)
    if event is not None and row is None:
        return _event(folders.trace(path), path, event)
    raise ValueError("name one of row and event: an id, such as the advice, rows and kernels give")


NOTHING: dict[str, Any] = {"row": None, "op": None, "event": None, "launcher": None, "advice": []}


def _row(trace: Trace, path: str, wanted: str) -> Answer:
    table = trace.key_averages(True, kernels=True)  # by name where no shapes were recorded
    every = table.row_records()
    named = [i for i, one in enumerate(every) if wanted in (one["id"], one["key"])]
    if not named:
        near = did_you_mean(wanted, {one["key"] for one in every})
        raise ValueError(f"no row of the table grouped by shape has the id or the name {shown(wanted)}{near}")
    place = max(named, key=lambda i: every[i][table.own_time])
    record = every[place]
    analysis = analysis_of(trace, "advice", None)
    op = next((one for one in analysis.ops if analysis.row_id(one.row) == record["id"]), None)
    advice = [one for one in trace.advice() if any(entry["row"] == record["id"] for entry in one.evidence)]
    kernels = _longest(table[place].kernels)
    around = [] if op is None else [{"kind": kind, "name": name} for kind, name in analysis.enclosing(op.event)]
    per, of_op = "step" if analysis.has_steps else "profile", ("part", "time", "ideal", "calls", "event")
    facts = None if op is None else {"per": per, **{name: getattr(op, name) for name in of_op}}
    found = {"row": record, "op": facts, "around": around[:ENCLOSING]}
    found |= {"kernels": kernels, "advice": [one._asdict() for one in advice]}
    lines = [f"Of {len(named)} rows of this name, the longest; rows lists the others."] if len(named) > 1 else []
    lines += _row_lines(table, place, analysis, op)
    lines += _kernel_lines(kernels)
    lines += [f"An event of it, {op.event}, is in {_around_text(around)}."] if op is not None and around else []
    lines += [f"Advice: {printable(one.what)} It {one.saves} {percent_text(one.saving_pct)}." for one in advice]
    lines += [] if advice else ["No advice rests on this row."]
    return Answer("\n".join(lines), EXPLAINED.of({**NOTHING, "file": path, **found}))


def _longest(kernels: Iterable[tuple[str, int, float]]) -> list[dict[str, Any]]:
    """Return a record of each kernel, the longest time first."""
    ordered = sorted(kernels, key=lambda one: -one[2])
    return [{"name": name, "count": count, "time": time} for name, count, time in ordered]


def _row_lines(table: EventTable, place: int, analysis: Analysis, op: Op | None) -> list[str]:
    row, time = table[place], table.own_time
    own, whole = getattr(row, time), getattr(table, time)
    whose = "device" if table.has_device else "CPU"
    share = f", {percent_text(100 * own / whole)} of all time there" if whole else ""
    shapes = shapes_text(row.input_shapes)
    lines = [
        f"{printable(row.key)}{f' of {shapes}' if shapes else ''}: {plural(row.count, 'call')}, "
        f"{short_time_text(own)} on the {whose}{share}."
    ]
    if not math.isnan(row.pct_roofline):
        lines.append(
            f"The limits of the {whose} allow {short_time_text(row.roofline_time)}: it reaches "
            f"{percent_text(row.pct_roofline)} of the roofline. Bound: {row.bound}, {_core.bounds[row.bound].meaning}."
        )
    elif own:
        lines.append("Its FLOPs and bytes, or the peaks, are unknown, so that it has no limit to compare with.")
    if op is not None and op.beyond > 0:
        a_step = " a step" if analysis.has_steps else ""
        lines.append(f"Beyond its limit, {short_time_text(op.beyond)}{a_step} belong to the part {op.part}.")
    return lines


def _kernel_lines(kernels: Sequence[Mapping[str, Any]]) -> list[str]:
    facts = ((_name(one["name"]), plural(one["count"], "call"), one["time"]) for one in kernels[:TOP])
    lines = [f"  {name}: {calls}, {short_time_text(time)}" for name, calls, time in facts]
    more = [f"  and {len(kernels) - TOP} more"] if len(kernels) > TOP else []
    return ["It launched:", *lines, *more] if lines else []


def _around_text(around: Sequence[Mapping[str, str]]) -> str:
    return ", in ".join(f"{one['kind']} {_name(one['name'])}" for one in around[:5])


def _event(trace: Trace, path: str, number: int) -> Answer:
    events = trace.events()
    if not 0 <= number < len(events):
        raise ValueError(f"there is no event {number}: the trace has {len(events)}, from 0")
    event = events[number]
    around: list[dict[str, str]] = []
    parent = event.cpu_parent
    while parent is not None and len(around) < ENCLOSING:
        around.append({"kind": parent.kind, "name": parent.name})
        parent = parent.cpu_parent
    sums: dict[str, tuple[int, float]] = {}
    for kernel in event.kernels:
        count, time = sums.get(kernel.name, (0, 0.0))
        sums[kernel.name] = (count + 1, time + kernel.time_range.elapsed_us())
    kernels = _longest((name, *total) for name, total in sums.items())
    launcher = event.launcher
    launched_by = None if launcher is None else {"id": launcher.id, "name": launcher.name}
    start, end = event.time_range
    facts = {name: getattr(event, name) for name in ("id", "name", "kind", "device_type", "thread")}
    facts |= {"start": start, "duration": end - start, "device": event.device_index, "moved": event.nbytes}
    found = {"event": facts, "around": around, "kernels": kernels, "launcher": launched_by}
    where = f"{event.device_type}:{event.device_index}, stream" if event.device_type != "cpu" else "CPU, thread"
    lasts = "had not ended" if math.isnan(end) else f"takes {short_time_text(end - start)}"
    lines = [f"Event {number}: {event.kind} {printable(event.name)}, on {where} {event.thread}."]
    lines += [f"It begins {short_time_text(start)} after the profile did and {lasts}."]
    lines += [f"It is in {_around_text(around)}."] if around else []
    lines += [f"Event {launcher.id}, {printable(launcher.name)}, launched it."] if launcher is not None else []
    return Answer("\n".join([*lines, *_kernel_lines(kernels)]), EXPLAINED.of({**NOTHING, "file": path, **found}))
