"""Tools on a whole trace: open, summary, advice, accounting, what_if."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any

from flopscope.answers.accounting import accounting_columns, whole_of
from flopscope.answers.analysis import PARTS, analysis_of
from flopscope.answers.sentences.accounting import LEAST
from flopscope.cli.server.arguments import Argument
from flopscope.cli.server.documents import ACCOUNTING, OPENED, WHAT_IF
from flopscope.cli.server.folders import LISTED
from flopscope.cli.server.tool import PATH, Answer, Call, Room, Tool, shortened
from flopscope.read.paths import PATTERNS
from flopscope.show.documents import ADVICE, SUMMARY
from flopscope.support.parts import parts_of
from flopscope.support.safe import printable
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import bytes_text, percent_text, short_time_text

if TYPE_CHECKING:
    from flopscope.read.trace import Trace

WORDS = 300
STEPS = 20
"""Rows of steps that a result has by default."""
ENDINGS = tuple(dict.fromkeys(pattern.split("*")[1] for pattern in PATTERNS))


def _open(room: Room, call: Call, path: str) -> Answer:
    real = room.folders.path(path)
    if os.path.isdir(real):
        files, count = room.folders.files(real, ENDINGS, call.check)
        listed = [f"{printable(name)}  {bytes_text(size)}" for name, size in files]
        more = [f"{LISTED} of {count} files; open a folder in it for fewer."] if count > len(files) else []
        none = ["No file here has the name of a trace."] if not files else []
        rows = [{"file": name, "size": size} for name, size in files]
        return Answer("\n".join(listed + more + none), OPENED.of({"path": path, "files": rows, "trace": None}))
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        facts = _facts(opened.trace)
    document = OPENED.of({"path": path, "files": [], "trace": facts})
    steps = f"{facts['steps']} steps, the median {short_time_text(facts['step'])}" if facts["steps"] else "no steps"
    recorded = ", ".join(facts["recorded"]) or "names and times alone"
    lines = [
        f"{facts['events']:,} events, {steps}; devices: {', '.join(map(printable, facts['devices'])) or 'CPU'}.",
        f"Recorded: {recorded}.",
    ]
    if not math.isnan(facts["known_bytes"]):
        share = percent_text(100 * facts["known_bytes"])
        lines.append(f"The bytes of {share} of the time are known; an op without them has no limit to compare with.")
    if facts["dropped"]:
        lines.append(f"{facts['dropped']:,} events are in no table.")
    return Answer("\n".join(lines), document)


def _facts(trace: Trace) -> dict[str, Any]:
    analysis = analysis_of(trace, "summary", None)
    core = analysis.core
    recorded = {
        "shapes": core.has_shapes,
        "memory": trace.profile_memory,
        "modules": core.has_modules,
        "Python stacks": core.has_frames,
        "sampled lines": bool(core.lines()["groups"]),
        "hardware counters": bool(core.samples()),
    }
    coverage = trace.coverage()
    times = [step.time for step in analysis.steps if step.name is not None]
    return {
        "events": len(trace),
        "steps": len(times),
        "devices": [
            core.device_names.get(device, core.device_name(device)) for device in analysis.devices if device >= 0
        ],
        "recorded": [what for what, is_known in recorded.items() if is_known],
        "step": median(times) if times else math.nan,
        "known_bytes": coverage["bytes"],
        "known_flops": coverage["flops"],
        "rank": trace.rank,
        "dropped": trace.dropped,
    }


def _summary(room: Room, call: Call, path: str, budget: int) -> Answer:
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        summary = opened.trace.summary(budget=budget)
        call.check()
        document = {**summary.to_dict(), "file": path}
    cut = [shortened(document, name, STEPS) for name in ("steps", "lines")]
    if len(document["accounting"]) > STEPS:
        document["accounting"] = [row for row in document["accounting"] if row["step"] is None]
        cut.append("Of the accounting only the whole is listed; the tool accounting has the steps.")
    return Answer("\n".join([summary.fitted(), *filter(None, cut)]), document)


def _advice(room: Room, call: Call, path: str) -> Answer:
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        advice = opened.trace.advice()
    return Answer(str(advice).rstrip(), advice.to_dict())


def _accounting(
    room: Room,
    call: Call,
    path: str,
    steps: list[str] | None,
    begin_us: float | None,
    end_us: float | None,
    top: int,
) -> Answer:
    if (begin_us is None) != (end_us is None):
        raise ValueError("a window has both limits, begin_us and end_us")
    window = None if begin_us is None or end_us is None else (begin_us, end_us)
    if steps is not None and window is not None:
        raise ValueError("name steps, or begin_us and end_us, not both")
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        analysis = analysis_of(opened.trace, "accounting", None, window)
        columns = accounting_columns(analysis)
    every = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    rows = every
    if steps is not None:
        names = [row["step"] for row in every if row["step"] is not None]
        for name in steps:
            if name not in names:
                has = did_you_mean(name, names) or f"; there are {', '.join(names[:3]) or 'no steps'}"
                raise ValueError(f"there is no step {printable(name)!r}{has}")
        chosen = [row for row in every if row["step"] in set(steps)]
        rows = [*chosen, whole_of(chosen)] if chosen else every[-1:]
    text = _parts_text(rows[-1], analysis.on_device) if rows else "Nothing was recorded."
    more = f"{top} of {len(rows) - 1} steps are listed, and the whole." if len(rows) - 1 > top else ""
    rows = [*rows[:-1][:top], *rows[-1:]]
    lines = [f"{printable(row['step'])}: {short_time_text(row['total'])}" for row in rows[:-1] if row["step"]]
    begin, end = window or (math.nan, math.nan)
    document = ACCOUNTING.of({"file": path, "begin": begin, "end": end, "accounting": rows})
    return Answer("\n".join(filter(None, [text, *lines, more])), document)


def _parts_text(row: Mapping[str, Any], on_device: bool) -> str:
    """Return a line for each part that is not empty, the longest first."""
    glosses = parts_of(on_device)
    known = sorted((part for part in PARTS if row[part] > LEAST * row["total"]), key=lambda part: -row[part])
    lines = [
        f"{part}: {short_time_text(row[part])}, {percent_text(100 * row[part] / row['total'])} ({glosses[part].gloss})"
        for part in known
    ]
    return "\n".join([f"{short_time_text(row['total'])} in all:", *lines])


def _what_if(
    room: Room,
    call: Call,
    path: str,
    rules: list[str] | None,
    dtype: str | None,
    device: str | None,
    peaks: dict[str, float] | None,
    host_us_per_launch: float | None,
) -> Answer:
    given = {"rule": rules, "dtype": dtype, "device": device, "peaks": peaks, "host_us_per_launch": host_us_per_launch}
    change: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not change:
        raise ValueError("name a change: rules, dtype, device, peaks or host_us_per_launch")
    with ExitStack() as stack:
        (opened,) = room.open(call, stack, path)
        analysis = analysis_of(opened.trace, "accounting", None)
        frames = []
        for asked in ({}, change):
            call.check()
            frames.append(opened.trace.what_if(**asked))
    if not len(frames[0]):
        raise ValueError("nothing was recorded that takes time")
    before, after = ({**frame.iloc[-1].to_dict(), "step": None} for frame in frames)
    for row in (before, after):
        row["device"] = row["device"] if isinstance(row["device"], str) else None
    steps = max(len(analysis.steps), 1) if analysis.has_steps else 1
    saving = 100 * (1 - after["total"] / before["total"]) if before["total"] else math.nan
    content = {"file": path, "change": change, "steps": steps, "before": before, "after": after, "saving": saving}
    a_step = " a step" if analysis.has_steps else ""
    times = [short_time_text(row["total"] / steps) for row in (before, after)]
    moved = sorted((p for p in PARTS if abs(after[p] - before[p]) > LEAST * before["total"]),
                   key=lambda p: -abs(after[p] - before[p]))  # fmt: skip
    lines = [f"{p}: {short_time_text(before[p] / steps)} to {short_time_text(after[p] / steps)}" for p in moved]
    saved = "nothing" if abs(saving) < 0.05 else f"{percent_text(saving)} of the time"
    head = f"Without recording, {times[0]}{a_step}; after the change {times[1]}: it saves {saved}, by this estimate."
    if saving < -0.05:
        head = f"Without recording, {times[0]}{a_step}; after the change {times[1]}: it is slower, by this estimate."
    return Answer("\n".join([head, *lines]), WHAT_IF.of(content))


TOOLS = (
    Tool(
        "open",
        "Open a trace or list a folder",
        "Start here. Of a folder, list the files that may be traces ('.' for the folders of this server). Of a trace, "
        "say what it has recorded: events, steps, devices, shapes, and for how much of the time the work is known. "
        "Traces of torch.profiler, flopscope, Nsight Systems (SQLite), rocprofv3, XLA and Perfetto are read.",
        (PATH._replace(doc="a trace, or a folder to list", required=False, default="."),),
        OPENED,
        _open,
        "Open one of the folders in it.",
    ),
    Tool(
        "summary",
        "Summary of a trace",
        "Where the time of a step went and what to change first: accounting, advice, GPUs, steps, launches and "
        "collectives. The first question about any trace. The text fits the budget of words, the most valuable first.",
        (PATH, Argument("budget", "integer", "words of the text at most", WORDS, least=50, most=5000)),
        SUMMARY,
        _summary,
        "Use advice and accounting.",
    ),
    Tool(
        "advice",
        "What to change",
        "What to change in the program, the largest saving first, each with the rows and events that it rests on. Use "
        "it for fixes; explain shows the evidence. A premise that the trace does not show is not assumed: no advice "
        "means that no known fault was found, and the notes say what could not be judged.",
        (PATH,),
        ADVICE,
        _advice,
    ),
    Tool(
        "accounting",
        "Where the time went",
        "Every instant of each device belongs to one part: ideal (the least that the device allows), compute, memory, "
        "latency, communication, copy, host, sync, data and others; the parts add up to the total. Use it to compare "
        "steps, or to look at a few of them, or at a window of time, such as around a slow event.",
        (
            PATH,
            Argument("steps", "texts", "names of steps, as ['ProfilerStep#7']; all by default"),
            Argument(
                "begin_us",
                "number",
                "begin of a window, instead of steps: µs since the profile began, as start_us of explain",
                least=0,
            ),
            Argument("end_us", "number", "end of the window", least=0),
            Argument("top", "integer", "steps listed, beside the whole", STEPS, least=0, most=500),
        ),
        ACCOUNTING,
        _accounting,
        "Name fewer steps, or set top.",
    ),
    Tool(
        "what_if",
        "Estimate a change",
        "Estimate the time after a change that nobody has made yet: following rules of the advice, another dtype, "
        "another GPU of the datasheet, other peaks, or cheaper launches. One call may combine several.",
        (
            PATH,
            Argument("rules", "texts", "rules of the advice to follow, as ['sync', 'fuse']"),
            Argument("dtype", "text", "dtype of all float tensors, as 'bfloat16'"),
            Argument("device", "text", "a GPU of the datasheet, as 'NVIDIA B200'"),
            Argument("peaks", "rates", "rates by name: FLOP/s of a unit as bf16_tensor, bytes/s of memory"),
            Argument("host_us_per_launch", "number", "host time for each launch in µs; 0 as in a CUDA graph", least=0),
        ),
        WHAT_IF,
        _what_if,
    ),
)
