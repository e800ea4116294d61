"""Tools on rows of tables: rows, kernels, explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.answers.analysis import Analysis, analysis_of
from flopscope.answers.pieces import Op
from flopscope.cli.server.arguments import Argument
from flopscope.cli.server.documents import EXPLAINED, KERNELS
from flopscope.cli.server.tool import PATH, Answer, Call, Room, Tool
from flopscope.results import records
from flopscope.results.kinds import KINDS
from flopscope.results.records import TABLE, row_records
from flopscope.support.columns import Rows
from flopscope.support.cutting import cut_middle
from flopscope.support.safe import printable, shown
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    from flopscope.read.trace import Trace
    from flopscope.results.events import Event
    from flopscope.results.table import EventTable

TOP = 10
MOST = 200
NAME, SHAPES = 60, 40
"""Characters of names and of shapes in texts."""
WIDE = 1_000
ENCLOSING = 32
"""Events around an event that are named."""
TABLE_WORDS = ("shape", "name", "dtype", "step", "stream", "module", "line", "category", "stack")
BY_SHAPE = "shape"
BY = f"one or several of {', '.join(TABLE_WORDS)}, as 'name,step'; by default shape, or name if none was recorded"
FILTER = Argument("filter", "text", "only names that contain this text, in any case")


def _named(text: str | None, names: Sequence[str]) -> list[int]:
    """Return the places of the names that contain a text."""
    wanted = (text or "").lower()
    return [place for place, name in enumerate(names) if wanted in name.lower()]


def _time_of(table: EventTable) -> str:
    return "self_device_time_total" if table.has_device else "self_cpu_time_total"


def _rows(
    room: Room,
    call: Call,
    path: str,
    group_by: str | None,
    kind: str,
    filter: str | None,
    sort_by: str | None,
    top: int,
) -> Answer:
    words = [word.strip() for word in (group_by or BY_SHAPE).split(",")]
    for word in words:
        if word not in TABLE_WORDS:
            hint = did_you_mean(word, TABLE_WORDS) or f"; it is one or several of {', '.join(TABLE_WORDS)}"
            raise ValueError(f"rows cannot be grouped by {shown(word)}{hint}")
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        trace = opened.trace
        table = trace.key_averages(True) if group_by is None else trace.key_averages(group_by=words)
        call.check()
        every = table if table.is_mixed else table.of_kind(kind)
        found = every.select(_named(filter, every.columns["key"])).sorted(sort_by or _time_of(table))
        chosen = found[:top]
        document = TABLE.of({**records.content(table), "files": [path], "rows": row_records(chosen)})
    if not len(found):
        kinds = {one: len(table.of_kind(one)) for one in KINDS} if not table.is_mixed else {}
        has = ", ".join(f"{count} of kind {one}" for one, count in kinds.items() if count)
        return Answer(f"No rows match; the table has {has or f'{len(table)} rows'}.", document)
    shown_by = sort_by or _time_of(table)
    return Answer(f"{_table_text(chosen)}\n{len(chosen)} of {len(found)} rows, by {shown_by}.", document)


def _table_text(table: EventTable) -> str:
    """Return a line for each row, with its id and its groups."""
    time, whole = _time_of(table), getattr(table, _time_of(table))
    groups = [column.name for column in table.group_columns()]
    lines = [("id", "name", "shapes", *groups, "calls", "time", "of all", "of the roofline", "bound")]
    for row, record in zip(table, row_records(table), strict=True):
        own = getattr(row, time)
        lines.append(
            (
                record["id"],
                cut_middle(printable(row.key), NAME),
                cut_middle(_shapes_text(row.input_shapes), SHAPES),
                *(cut_middle(printable(str(record[name])), NAME) for name in groups),
                str(row.count),
                short_time_text(own),
                percent_text(100 * own / whole if whole else math.nan),
                percent_text(row.pct_roofline),
                row.bound,
            )
        )
    return "\n".join(Rows(lines, "<<<" + "<" * len(groups) + ">").lines(WIDE))


def _shapes_text(shapes: Sequence[Any]) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes if shape) if shapes else ""


# Kernels --------------------------------------------------------------------------------------------------------------


def _kernels(room: Room, call: Call, path: str, filter: str | None, top: int) -> Answer:
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        table = opened.trace.key_averages(True, kernels=True)
        call.check()
        kernels = opened.trace.key_averages().of_kind("kernel")
    chosen = kernels.select(_named(filter, kernels.columns["key"])).sorted("self_device_time_total")
    whole = table.self_device_time_total
    launched: dict[str, list[dict[str, Any]]] = {row.key: [] for row in chosen[:top]}
    for row, record in zip(table, row_records(table), strict=True):
        for name, count, time in row.kernels if row.device_type == "cpu" else ():
            if name in launched:
                launched[name].append({"row": record["id"], "op": row.key, "count": count, "time": time})
    found = []
    for row in chosen[:top]:
        ops = sorted(launched[row.key], key=lambda one: -one["time"])
        share = 100 * row.self_device_time_total / whole if whole else math.nan
        unowned = max(row.count - sum(one["count"] for one in ops), 0)
        facts = {"name": row.key, "count": row.count, "time": row.self_device_time_total, "share": share}
        found.append({**facts, "ops": ops, "unowned": unowned})
    lines = []
    for one in found:
        times = f"{plural(one['count'], 'call')}, {short_time_text(one['time'])}, {percent_text(one['share'])}"
        lines.append(f"{cut_middle(printable(one['name']), NAME)}: {times}")
        lines += [f"  {printable(op['op'])} (row {op['row']}): {plural(op['count'], 'call')}, "
                  f"{short_time_text(op['time'])}" for op in one["ops"][:3]]  # fmt: skip
        lines += [f"  no recorded op: {plural(one['unowned'], 'call')}"] if one["unowned"] else []
    lines.append(f"{len(found)} of {len(chosen)} names; times are sums over the calls.")
    return Answer("\n".join(lines), KERNELS.of({"file": path, "kernels": found}))


# Explain --------------------------------------------------------------------------------------------------------------


def _explain(room: Room, call: Call, path: str, row: str | None, event: int | None) -> Answer:
    if (row is None) == (event is None):
        raise ValueError("name one of row and event: an id, such as the advice, rows and kernels give")
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        return _event(opened.trace, path, event) if row is None else _row(opened.trace, call, path, row)


def _row(trace: Trace, call: Call, path: str, wanted: str) -> Answer:
    table = trace.key_averages(True, kernels=True)  # by name where no shapes were recorded
    call.check()
    every = row_records(table)
    place = next((i for i, one in enumerate(every) if one["id"] == wanted), None)
    named = [i for i, one in enumerate(every) if one["key"] == wanted] if place is None else []
    if place is None and not named:
        near = did_you_mean(wanted, {one["key"] for one in every})
        raise ValueError(f"no row of the table grouped by shape has the id or the name {shown(wanted)}{near}")
    time = _time_of(table)
    place = max(named, key=lambda i: every[i][time]) if place is None else place
    row, record = table[place], every[place]
    analysis = analysis_of(trace, "advice", None)
    op = next((one for one in analysis.ops if analysis.row_id(one.row) == record["id"]), None)
    advice = [one for one in trace.advice() if any(entry["row"] == record["id"] for entry in one.evidence)]
    kernels = _longest((name, count, time) for name, count, time in row.kernels)
    around = _around(analysis, op.event) if op is not None else []
    document = EXPLAINED.of(
        {
            "file": path,
            "row": record,
            "op": None if op is None else _op_facts(analysis, op),
            "event": None,
            "around": around,
            "launcher": None,
            "kernels": kernels,
            "advice": [one._asdict() for one in advice],
        }
    )
    lines = [f"Of {len(named)} rows of this name, the longest; rows lists the others."] if len(named) > 1 else []
    lines += _row_lines(table, place, analysis, op)
    lines += _kernel_lines(kernels)
    lines += [f"An event of it, {op.event}, is in {_around_text(around)}."] if op is not None and around else []
    lines += [f"Advice: {printable(one.what)} It saves about {percent_text(one.saving_pct)}." for one in advice]
    lines += [] if advice else ["No advice rests on this row."]
    return Answer("\n".join(lines), document)


def _longest(kernels: Iterable[tuple[str, int, float]]) -> list[dict[str, Any]]:
    """Return a record of each kernel, the longest time first."""
    ordered = sorted(kernels, key=lambda one: -one[2])
    return [dict(zip(("name", "count", "time"), one, strict=True)) for one in ordered]


def _op_facts(analysis: Analysis, op: Op) -> dict[str, Any]:
    per = "step" if analysis.has_steps else "profile"
    return {"per": per, **{name: getattr(op, name) for name in ("part", "time", "ideal", "calls", "event")}}


def _row_lines(table: EventTable, place: int, analysis: Analysis, op: Op | None) -> list[str]:
    row, time = table[place], _time_of(table)
    own, whole = getattr(row, time), getattr(table, time)
    whose = "device" if table.has_device else "CPU"
    share = f", {percent_text(100 * own / whole)} of all time there" if whole else ""
    shapes = _shapes_text(row.input_shapes)
    lines = [
        f"{printable(row.key)}{f' of {printable(shapes)}' if shapes else ''}: {plural(row.count, 'call')}, "
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
    lines = [f"  {cut_middle(printable(one['name']), NAME)}: {plural(one['count'], 'call')}, "
             f"{short_time_text(one['time'])}" for one in kernels[:TOP]]  # fmt: skip
    more = f"  and {len(kernels) - TOP} more" if len(kernels) > TOP else ""
    return ["It launched:", *lines, *filter(None, [more])] if lines else []


def _around(analysis: Analysis, event: int) -> list[dict[str, str]]:
    return [{"kind": kind, "name": name} for kind, name in analysis.enclosing(event)][:ENCLOSING]


def _around_text(around: Sequence[Mapping[str, str]]) -> str:
    return ", in ".join(f"{one['kind']} {cut_middle(printable(one['name']), NAME)}" for one in around[:5])


def _event(trace: Trace, path: str, number: int | None) -> Answer:
    events = trace.events()
    if number is None or not 0 <= number < len(events):
        raise ValueError(f"there is no event {number}: the trace has {len(events)}, from 0")
    event = events[number]
    around: list[dict[str, str]] = []
    parent = event.cpu_parent
    while parent is not None and len(around) < ENCLOSING:
        around.append({"kind": parent.kind, "name": parent.name})
        parent = parent.cpu_parent
    sums: dict[str, list[Any]] = {}
    for kernel in event.kernels:
        total = sums.setdefault(kernel.name, [0, 0.0])
        total[0] += 1
        total[1] += kernel.time_range.elapsed_us()
    kernels = _longest((name, count, time) for name, (count, time) in sums.items())
    launcher = event.launcher
    document = EXPLAINED.of(
        {
            "file": path,
            "row": None,
            "op": None,
            "event": _event_facts(event),
            "around": around,
            "launcher": None if launcher is None else {"id": launcher.id, "name": launcher.name},
            "kernels": kernels,
            "advice": [],
        }
    )
    start, end = event.time_range
    where = f"{event.device_type}:{event.device_index}, stream" if event.device_type != "cpu" else "CPU, thread"
    lasts = "had not ended" if math.isnan(end) else f"takes {short_time_text(end - start)}"
    lines = [f"Event {number}: {event.kind} {printable(event.name)}, on {where} {event.thread}.",
             f"It begins {short_time_text(start)} after the profile did and {lasts}."]  # fmt: skip
    lines += [f"It is in {_around_text(around)}."] if around else []
    lines += [f"Event {launcher.id}, {printable(launcher.name)}, launched it."] if launcher is not None else []
    return Answer("\n".join([*lines, *_kernel_lines(kernels)]), document)


def _event_facts(event: Event) -> dict[str, Any]:
    start, end = event.time_range
    known = {"id": event.id, "start": start, "duration": end - start, "device": event.device_index}
    own = {name: getattr(event, name) for name in ("name", "kind", "device_type", "thread")}
    return {**known, **own, "moved": event.nbytes}


TOOLS = (
    Tool(
        "rows",
        "Rows of the table",
        "Ops, kernels or ranges with their times, FLOPs, bytes, share of the roofline and bound: filter, sort, take "
        "the top. Use it when summary and advice leave a question, such as which shapes of aten::mm are slow. The ids "
        "of rows grouped by shape are those of the evidence of the advice; explain takes them.",
        (
            PATH,
            Argument("group_by", "text", BY),
            Argument("kind", "text", "which rows", "op", choices=KINDS),
            FILTER,
            Argument("sort_by", "text", "a column, as flops or pct_roofline, largest first; by default the own time"),
            Argument("top", "integer", "rows at most", TOP, least=1, most=MOST),
        ),
        TABLE,
        _rows,
        "Ask for fewer rows by top or filter.",
    ),
    Tool(
        "kernels",
        "Kernels and who launched them",
        "Kernels, copies and fills by time, each with the ops that launched it. Use it when a kernel's name is the "
        "question, or when device work belongs to no op.",
        (PATH, FILTER, Argument("top", "integer", "names at most", TOP, least=1, most=MOST)),
        KERNELS,
        _kernels,
        "Ask for fewer by top or filter.",
    ),
    Tool(
        "explain",
        "Explain a row or an event",
        "All that is known of one row or one event: its time and its limit, the part of the accounting that it "
        "loses time in, the kernels that it launched, what encloses it, the advice that rests on it. Use it on the "
        "evidence of a piece of advice before changing code.",
        (
            PATH,
            Argument("row", "text", "id of a row grouped by shape, or the name of an op: its longest row"),
            Argument("event", "integer", "id of an event, as in the evidence", least=0, most=1e12),
        ),
        EXPLAINED,
        _explain,
    ),
)
