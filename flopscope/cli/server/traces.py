"""Tools on whole traces: open, summary, advice, accounting, what_if, compare, ranks."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any, Literal

from pydantic import Field

from flopscope.answers.accounting import LEAST, accounting_columns, whole_of
from flopscope.answers.analysis import PARTS, analysis_of
from flopscope.answers.comparing import compare as compared
from flopscope.cli.server.documents import ACCOUNTING, OPENED, WHAT_IF, Answer, shortened
from flopscope.cli.server.folders import LISTED, Folders
from flopscope.read.paths import PATTERNS, find_traces
from flopscope.read.trace import Trace
from flopscope.support.core_facts import parts_of
from flopscope.support.safe import printable
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import bytes_text, percent_text, short_time_text

STEPS = 20
"""Rows of steps that a summary lists."""
WIDTH = 120
ENDINGS = tuple(dict.fromkeys(pattern.split("*")[1] for pattern in PATTERNS))

FILE = Field(description="file of the trace, as open lists it")


def open_(folders: Folders, path: str = Field(".", description="a trace, or a folder to list")) -> Answer:
    """Start here. Of a folder, list the files that may be traces ('.' for the folders of this server). Of a trace,
    say what it has recorded: events, steps, devices, shapes, and for how much of the time the work is known. Traces of
    torch.profiler, flopscope, Nsight Systems (SQLite), rocprofv3, XLA and Perfetto are read."""
    real = folders.path(path)
    if not os.path.isdir(real):
        return _opened(folders.trace(path), path)
    files, count = folders.files(real, ENDINGS)
    lines = [f"{printable(name)}  {bytes_text(size)}" for name, size in files]
    if count > LISTED:
        lines.append(f"{LISTED} of {count} files; open a folder in it for fewer.")
    rows = [{"file": name, "size": size} for name, size in files]
    text = "\n".join(lines) or "No file here has the name of a trace."
    return Answer(text, OPENED.of({"path": path, "files": rows, "trace": None}))


def _opened(trace: Trace, path: str) -> Answer:
    facts = _facts(trace)
    steps = f"{facts['steps']} steps, the median {short_time_text(facts['step'])}" if facts["steps"] else "no steps"
    recorded = ", ".join(facts["recorded"]) or "names and times alone"
    devices = ", ".join(map(printable, facts["devices"])) or "CPU"
    lines = [f"{facts['events']:,} events, {steps}; devices: {devices}.", f"Recorded: {recorded}."]
    if not math.isnan(facts["known_bytes"]):
        share = percent_text(100 * facts["known_bytes"])
        lines.append(f"The bytes of {share} of the time are known; an op without them has no limit to compare with.")
    if facts["dropped"]:
        lines.append(f"{facts['dropped']:,} events are in no table.")
    return Answer("\n".join(lines), OPENED.of({"path": path, "files": [], "trace": facts}))


def _facts(trace: Trace) -> dict[str, Any]:
    analysis = analysis_of(trace, "summary", None)
    core, coverage = analysis.core, trace.coverage()
    recorded = {
        "shapes": core.has_shapes,
        "memory": trace.profile_memory,
        "modules": core.has_modules,
        "Python stacks": core.has_frames,
        "sampled lines": bool(core.lines()["groups"]),
        "hardware counters": bool(core.samples()),
    }
    times = [step.time for step in analysis.steps if step.name is not None]
    return {
        **{"events": len(trace), "steps": len(times), "step": median(times) if times else math.nan},
        "devices": [core.device_names.get(one, core.device_name(one)) for one in analysis.devices if one >= 0],
        "recorded": [what for what, is_known in recorded.items() if is_known],
        **{f"known_{name}": coverage[name] for name in ("bytes", "flops")},
        **{"rank": trace.rank, "dropped": trace.dropped},
    }


def summary(folders: Folders, path: str = FILE) -> Answer:
    """Where the time of a step went and what to change first: accounting, advice, GPUs, steps, launches and
    collectives. The first question about any trace."""
    found = folders.trace(path).summary()
    document = {**found.to_dict(), "file": path}
    cut = [line for name in ("steps", "lines") for line in shortened(document, name, STEPS)]
    if len(document["accounting"]) > STEPS:
        document["accounting"] = [row for row in document["accounting"] if row["step"] is None]
        cut.append("Of the accounting only the whole is listed; the tool accounting has the steps.")
    return Answer("\n".join([found.fitted(), *cut]), document)


def advice(folders: Folders, path: str = FILE) -> Answer:
    """What to change in the program, the largest saving first, each with the rows and events that it rests on. Use it
    for fixes; explain shows the evidence. A premise that the trace does not show is not assumed: no advice means that
    no known fault was found, and the notes say what could not be judged."""
    found = folders.trace(path).advice()
    return Answer(str(found).rstrip(), found.to_dict())


def accounting(
    folders: Folders,
    path: str = FILE,
    steps: list[str] | None = Field(None, description="names of steps, as ['ProfilerStep#7']; all by default"),
    begin_us: float | None = Field(None, description="begin of a window instead of steps: µs as start_us of explain"),
    end_us: float | None = Field(None, description="end of the window"),
    top: int = Field(STEPS, description="steps listed, beside the whole", ge=0, le=500),
) -> Answer:
    """Every instant of each device belongs to one part: ideal (the least that the device allows), compute, memory,
    latency, communication, copy, host, sync, data and others; the parts add up to the total. Use it to compare steps,
    or to look at a few of them, or at a window of time, such as around a slow event."""
    window = None if begin_us is None or end_us is None else (begin_us, end_us)
    if window is None and (begin_us, end_us) != (None, None):
        raise ValueError("a window has both limits, begin_us and end_us")
    if steps is not None and window is not None:
        raise ValueError("name steps, or begin_us and end_us, not both")
    analysis = analysis_of(folders.trace(path), "accounting", None, window)
    columns = accounting_columns(analysis)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if steps is not None:
        rows = _of_steps(rows, steps)
    text = _parts_text(rows[-1], analysis.on_device) if rows else "Nothing was recorded."
    more = [f"{top} of {len(rows) - 1} steps are listed, and the whole."] if len(rows) - 1 > top else []
    rows = [*rows[:-1][:top], *rows[-1:]]
    lines = [f"{printable(row['step'])}: {short_time_text(row['total'])}" for row in rows[:-1] if row["step"]]
    begin, end = window or (math.nan, math.nan)
    document = ACCOUNTING.of({"file": path, "begin": begin, "end": end, "accounting": rows})
    return Answer("\n".join([text, *lines, *more]), document)


def _of_steps(rows: list[dict[str, Any]], steps: list[str]) -> list[dict[str, Any]]:
    """Return the rows of these steps, and one for their whole. Raise ValueError for a step that there is not."""
    names = [row["step"] for row in rows if row["step"] is not None]
    for name in steps:
        if name not in names:
            has = did_you_mean(name, names) or f"; there are {', '.join(names[:3]) or 'no steps'}"
            raise ValueError(f"there is no step {printable(name)!r}{has}")
    chosen = [row for row in rows if row["step"] in steps]
    return [*chosen, whole_of(chosen)] if chosen else rows[-1:]


def _parts_text(row: Mapping[str, Any], on_device: bool) -> str:
    """Return a line for each part that is not empty, the longest first."""
    glosses = parts_of(on_device)
    known = sorted((part for part in PARTS if row[part] > LEAST * row["total"]), key=lambda part: -row[part])
    lines = [
        f"{part}: {short_time_text(row[part])}, {percent_text(100 * row[part] / row['total'])} ({glosses[part].gloss})"
        for part in known
    ]
    return "\n".join([f"{short_time_text(row['total'])} in all:", *lines])


def what_if(
    folders: Folders,
    path: str = FILE,
    rules: list[str] | None = Field(None, description="rules of the advice to follow, as ['sync', 'fuse']"),
    dtype: str | None = Field(None, description="dtype of all float tensors, as 'bfloat16'"),
    device: str | None = Field(None, description="a GPU of the datasheet, as 'NVIDIA B200'"),
    peaks: dict[str, float] | None = Field(None, description="FLOP/s by unit, as bf16_tensor; bytes/s of memory"),
    host_us_per_launch: float | None = Field(None, description="µs of the host a launch; 0 as in a CUDA graph", ge=0),
) -> Answer:
    """Estimate the time after a change that nobody has made yet: following rules of the advice, another dtype, another
    GPU of the datasheet, other peaks, or cheaper launches. One call may combine several."""
    given = {"rule": rules, "dtype": dtype, "device": device, "peaks": peaks, "host_us_per_launch": host_us_per_launch}
    change: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not change:
        raise ValueError("name a change: rules, dtype, device, peaks or host_us_per_launch")
    trace = folders.trace(path)
    analysis = analysis_of(trace, "accounting", None)
    frames = [trace.what_if(), trace.what_if(**change)]
    if not len(frames[0]):
        raise ValueError("nothing was recorded that takes time")
    before, after = (dict(zip(frame, frame.iloc[-1], strict=True)) for frame in frames)
    for row in (before, after):
        row |= {"step": None, "device": row["device"] if isinstance(row["device"], str) else None}
    steps = max(len(analysis.steps), 1) if analysis.has_steps else 1
    saving = 100 * (1 - after["total"] / before["total"]) if before["total"] else math.nan
    content = {"file": path, "change": change, "steps": steps, "before": before, "after": after, "saving": saving}
    changes = {part: after[part] - before[part] for part in ("total", *PARTS)}
    times = {part: [short_time_text(row[part] / steps) for row in (before, after)] for part in changes}
    effect = "is slower" if saving < -0.05 else f"saves {percent_text(saving)} of the time"
    effect = "saves nothing" if abs(saving) < 0.05 else effect
    was, would_be = times["total"]
    per = " a step" if analysis.has_steps else ""
    lines = [f"Without recording, {was}{per}; after the change {would_be}: it {effect}, by this estimate."]
    moved = [part for part in PARTS if abs(changes[part]) > LEAST * before["total"]]
    lines += [f"{one}: {' to '.join(times[one])}" for one in sorted(moved, key=lambda one: -abs(changes[one]))]
    return Answer("\n".join(lines), WHAT_IF.of(content))


def compare(
    folders: Folders,
    a: str = FILE,
    b: str = Field(description="the trace to compare it with"),
    by: Literal["name", "shape"] | None = Field(None, description="what rows are matched by; by default what fits"),
    kind: Literal["op", "kernel"] = Field("op", description="what is compared"),
    top: int = Field(10, description="changes and rows at most", ge=1, le=200),
) -> Answer:
    """What changed from trace a to trace b, and why: other calls, other work, another rate, ops that replaced each
    other. Use it for before and after a change, for two versions or two machines; ratios are a over b, and a negative
    slowdown_pct means that b is faster."""
    names = (os.path.basename(a), os.path.basename(b))
    names = (a, b) if names[0] == names[1] or not all(names) else names
    found = compared(folders.trace(a), folders.trace(b), by=by, kind=kind, names=names, peaks="datasheet")
    document = found.to_dict(files=[a, b])
    cut = [line for name in ("changes", "rows") for line in shortened(document, name, top)]
    return Answer("\n".join([found.table(top, width=WIDTH).rstrip(), *cut]), document)


def ranks(
    folders: Folders,
    paths: list[str] = Field(description="traces of the ranks, or folders of them"),
    top: int = Field(50, description="ranks and files listed; those of the findings first", ge=1, le=500),
) -> Answer:
    """Which rank, host or link of a distributed program is slow, and why: clocks are aligned by the collectives, and
    waiting is told apart from work. Name the folder of the traces or each file."""
    from flopscope.ranks.load import RankFile, ranks_of

    listed = [file for path in paths for file in find_traces(folders.path(path)).paths]
    with ExitStack() as stack:  # each is opened once, and what was opened is what the workers read
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        found = dict(stack.enter_context(folders.opened(file)) for file in dict.fromkeys(listed))
        opened = ((real, f"/proc/{os.getpid()}/fd/{file.fileno()}") for real, file in found.items())
        files = [RankFile(real, place, opened=path) for place, (real, path) in enumerate(opened)]
        loaded = ranks_of(files, workers=1 if len(files) < 3 else None)
    document = loaded.to_dict()
    named = {rank for finding in document["findings"] for rank in finding["ranks"] or ()}
    document["ranks"].sort(key=lambda row: row["rank"] not in named)  # those of the findings first
    cut = [line for name in ("ranks", "files") for line in shortened(document, name, top)]
    return Answer("\n".join([str(loaded.summary()).rstrip(), *cut]), document)
