"""The section Overview: what ran and where, where the time went, what to change first, and what is missing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from flopscope.answers.accounting import KNOWN, cause_text, known_shares, recorded_lines
from flopscope.answers.advice import Advice
from flopscope.answers.analysis import PARTS
from flopscope.answers.host_events import causes_of
from flopscope.answers.words import gain_text, shown_as_sentence
from flopscope.results.head import LEFT_OUT, ODD
from flopscope.results.results import cpu_of
from flopscope.results.row import own_time
from flopscope.results.table import EventTable
from flopscope.show.entries import usual_order
from flopscope.show.notes import devices_by_text, footnotes
from flopscope.show.page import devices
from flopscope.show.page.encode import Columns, sentence
from flopscope.show.page.profile import Profile
from flopscope.show.page.rows import tensor_text, why_unrated
from flopscope.support.core_facts import parts_of
from flopscope.support.model import index_of
from flopscope.support.units import percent_text, plural, short_time_text

_UNRATED = (
    "work without a limit to compare it with, as the peaks are unknown",
    "Time of work whose least time is unknown, because the peaks are.",
)


def section(source: Profile, columns: Columns) -> dict[str, Any]:
    """Return what the overview shows."""
    where, analysis = _Places(source.rows), source.analysis
    return {
        "facts": list(facts(source)),
        "steps": source.steps,
        "accounting": _accounting(source, columns),
        "recording": {
            "is_delayed": analysis.is_delayed and analysis.bare is None,
            "unobserved": analysis.unobserved or None,
            "recorded": analysis.bare and analysis.bare.recorded,
        },
        "advice": [_advice(row, where) for row in source.advice],
        "unjudged": [*map(sentence, source.advice.notes)],
        "largest": _largest(source, where),
        "coverage": analysis.once(known_shares)._asdict(),
        "hfu": source.counted.hfu(source.accounting).percent,
        "missing": list(missing(source)),
        "notes": [*map(sentence, (*recorded_lines(analysis), *notes(source)))],
    }


def _accounting(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the rows of accounting(), the whole last, and what its parts are; None if there is no time."""
    found = source.accounting
    if not found["total"] or not found["total"][-1] > 0:
        return None
    numbers = {name: columns.numbers(values) for name, values in found.items() if name not in TEXTS}
    texts = {name: columns.texts(found[name]) for name in TEXTS}
    whole, per = source.means
    parts = [
        {"name": name, "label": row.label, "means": row.gloss, "doc": _doc(source, name)}
        for name, row in parts_of(source.analysis.on_device).items()
    ]
    return {
        "count": len(found["total"]),
        "columns": {**texts, **numbers},
        "whole": whole,
        "parts": parts,
        "per": per,
        "bounds": source.analysis.once(known_shares).bounds(whole),
        **source.mean_text,
        "devices": len(source.analysis.devices),
    }


TEXTS = ("device", "step")
MOST_LARGEST = 5


def _doc(source: Profile, part: str) -> str:
    """Return what a part means, and the causes of its idle time."""
    analysis, text = source.analysis, _part_text(source, part)[1]
    causes = cause_text(causes_of(analysis, part), analysis.unobserved)
    return f"{text} Of it: {causes}." if causes else text


_UNSHAPED = (
    "work of unknown FLOPs and bytes, as no input shapes were recorded",
    "Time of work whose FLOPs and bytes are unknown, because the shapes of its inputs are.",
)


def _part_text(source: Profile, part: str) -> tuple[str, str]:
    if part == "unmodelled" and not source.core.has_shapes and source.analysis.has_namespaced_ops:
        return _UNSHAPED
    if part == "unmodelled" and not source.analysis.peaks:
        return _UNRATED
    row = parts_of(source.analysis.on_device)[part]
    return row.noun, row.meaning


def _advice(row: Advice, where: _Places) -> dict[str, Any]:
    evidence = [{**entry, "row": where.of_evidence(entry)} for entry in row.evidence]
    for entry in evidence:
        entry["shapes"] = tensor_text([shape for shape in entry["shapes"] if shape])
        entry["dtypes"] = ", ".join(dict.fromkeys(dtype for dtype in entry["dtypes"] if dtype not in ("", "Scalar")))
    return {**row._asdict(), "saves": row.saves, "reason": sentence(row.reason), "evidence": evidence}


def _largest(source: Profile, where: _Places) -> dict[str, Any]:
    """Return the ops that the command line's table lists first: those with the most to gain, or the most time."""
    ops = source.names.of_kind("op")
    table = usual_order(ops)
    rated = any(not math.isnan(headroom) for headroom in ops.columns["headroom"])
    timed = (i for i, row in enumerate(table) if own_time(row, table.has_device) > 0)
    first = table.select(islice(timed, MOST_LARGEST))
    rows = []
    for row, why in zip(first, why_unrated(first), strict=True):
        facts = {"time": own_time(row, table.has_device), "headroom": row.headroom, "bound": row.bound, "why": why}
        rows.append({"name": row.key, "row": where.of_name(row.key), **facts})
    over = f"sums over {plural(source.steps, 'step')}" if source.steps else "sums over the recording"
    title = "Ops with the most to gain" if rated else "Ops with the most time"
    return {"title": title, "note": f"time, and how much of it lies beyond the limit; {over}" if rated else over,
            "rows": rows}  # fmt: skip


class _Places:
    """Where the rows of a table are, by name: those of the host first, each by their time."""

    def __init__(self, table: EventTable) -> None:
        self.columns = table.columns
        self.rows: dict[str, list[int]] = {}
        times = table.columns[table.own_time]
        devices = table.columns["device_type"]
        for i in sorted(range(len(table)), key=lambda i: (devices[i] != "cpu", -times[i])):
            self.rows.setdefault(table.columns["key"][i], []).append(i)

    def of_name(self, name: str) -> int:
        """Return the row of a name that takes most time, preferably one of the host; -1 if there is none."""
        return self.rows.get(name, [-1])[0]

    def of_evidence(self, entry: Mapping[str, Any]) -> int:
        """Return the row that a piece of evidence refers to, -1 if there is none."""
        wanted = _signature(entry["shapes"], entry["dtypes"])
        shapes, dtypes = self.columns["input_shapes"], self.columns["input_dtypes"]
        rows = self.rows.get(entry["op"], [])
        return next((i for i in rows if _signature(shapes[i], dtypes[i]) == wanted), self.of_name(entry["op"]))


def _signature(shapes: Sequence[Any], dtypes: Sequence[str]) -> str:
    return f"{[list(shape) if isinstance(shape, (list, tuple)) else shape for shape in shapes]}{list(dtypes)}"


# Texts of the head ----------------------------------------------------------------------------------------------------


def title_of(source: Profile) -> str:
    """Return the title of a page: the name of the trace's file, or what was profiled."""
    name = getattr(source.results, "source", None)
    if name and not str(name).startswith("<"):
        return os.path.basename(str(name))
    return f"Profile on {', '.join(_models(source)) or 'the CPU'}"


def subtitle_of(source: Profile) -> str:
    """Return a line on device, steps and events."""
    devices = _models(source) or (["unknown device"] if source.analysis.on_device else ["CPU"])
    steps = [plural(source.steps, "step")] if source.steps else []
    rank = [f"rank {source.results.rank}"] if source.results.rank is not None else []
    events = [] if source.has_lines_alone else [plural(len(source.results), "event")]
    return " · ".join([*devices, *rank, *steps, *events])


def headline_of(source: Profile) -> str:
    """Return the sentence that the page begins with: what to change first and what that gains, or where the time is."""
    columns = source.accounting
    if not columns["total"] or not columns["total"][-1] > 0:
        return "No op and no work of a device was recorded." if not len(source.results) else ""
    if len(source.advice):
        first = source.advice[0]
        return f"{shown_as_sentence(first.action)}: {gain_text(first.rule, first.saving_pct)}"
    whole, of = source.means[0], "step" if source.steps else "time"
    lost, share = _largest_part(source), percent_text(100 * whole["ideal"] / whole["total"])
    loss = f"{percent_text(100 * whole[lost] / whole['total'])} of the {of} is {_part_text(source, lost)[0]}"
    if whole["ideal"] >= whole[lost]:
        ideal = f"{share} of the {of} is {_part_text(source, 'ideal')[0]}"
        return f"{ideal}; the largest loss: {loss}" if whole[lost] > 0 else ideal
    return loss


def lead_of(source: Profile) -> str:
    """Return the sentences below the headline: the time, what the change saves, the largest loss, the least time."""
    columns = source.accounting
    if not columns["total"] or not columns["total"][-1] > 0:
        return ""
    (whole, per), analysis = source.means, source.analysis
    devices = len(set(columns["device"][:-1]))
    taken = f"{short_time_text(whole['total'] / per)}{f', summed over {devices} devices' if devices > 1 else ''}"
    sentences = [f"A step takes {taken} ({source.mean_text['of']})." if source.steps else f"The profile takes {taken}."]
    if len(source.advice):
        first, lost = source.advice[0], _largest_part(source)
        estimated = analysis.is_delayed and analysis.bare is None
        base = f" of {short_time_text(analysis.unobserved)} without recording" if estimated else ""
        sentences.append(f"The change {first.saves} {short_time_text(first.saving_us)}{base}.")
        if whole[lost] > 0:
            what, time = _part_text(source, lost)[0], short_time_text(whole[lost] / per)
            sentences.append(
                f"The largest loss, {time} ({percent_text(100 * whole[lost] / whole['total'])}), is {what}."
            )
    known = analysis.once(known_shares)
    if known.bounds(whole)["ideal"] is not None:
        # A small rest does not change the sentence; with more of it, the ideal is not that of the same work.
        what = "the same work" if known.limit >= KNOWN else "the modelled work"
        whose = "device" if source.analysis.on_device else "CPU"
        sentences.append(f"At the {whose}'s limits, {what} takes {short_time_text(whole['ideal'] / per)}.")
    return " ".join(sentences)


def _largest_part(source: Profile) -> str:
    """Return the part, other than the ideal, that has the most time."""
    whole = source.means[0]
    return max((part for part in PARTS if part != "ideal"), key=lambda part: float(whole[part]))


def _models(source: Profile) -> list[str]:
    """Return the names of the devices that ran, each once, with how many of them there are."""
    names = source.core.device_names
    ran = [names[i] for device in _devices(source) if (i := index_of(device)) in names]
    counts = {name: ran.count(name) for name in ran}
    return [f"{count} × {name}" if count > 1 else name for name, count in counts.items()]


# Facts ----------------------------------------------------------------------------------------------------------------

_VERSIONS = {
    "pytorch_version": "PyTorch",
    "cuda_runtime_version": "CUDA runtime",
    "cuda_driver_version": "CUDA driver",
    "cupti_version": "CUPTI",
    "hip_runtime_version": "HIP runtime",
}


def facts(source: Profile) -> Iterator[tuple[str, str]]:
    """Yield what was recorded, as (label, text)."""
    results, rows = source.results, source.rows
    name = getattr(results, "source", None)
    if name:
        yield "Source", str(name)
    yield from _profiler(results.metadata)
    names = source.core.device_names
    ran = {device: names.get(index_of(device), "unknown") for device in _devices(source)}
    yield from ((f"Device {devices}", text) for text, devices in devices_by_text(ran))
    if not rows.has_device:
        yield "CPU", "unknown" if cpu_of(results) is None else str(cpu_of(results))
    if results.rank is not None:
        yield "Rank", str(results.rank)
    peaks = {device: f"{known['source']} of {known['name']}" for device, known in rows.peaks.items()}
    peaks |= {device: f"unknown: {why}" for device, why in rows.unknown_peaks.items()}
    shown = {device: text for device, text in peaks.items() if device in ran or not ran}
    yield from ((f"Peaks of {devices}", text) for text, devices in devices_by_text(shown))
    yield "Device times" if rows.has_device else "Times", _TIMING.get(results.timing_source, results.timing_source)
    yield "Events", f"{len(results):,}"
    by_shape = source.has_shape_rows
    yield f"Rows by name{' and shape' * by_shape}", f"{len(rows if by_shape else source.names):,}"
    for key, label in _VERSIONS.items():
        value = results.metadata.get(key)
        if isinstance(value, (int, str)) and value:
            yield label, str(value)


_PROFILERS = {"nsys": "Nsight Systems", "xplane": "XLA's profiler", "rocpd": "rocprofv3 (rocpd)"}
_MOST_TEXT = 300  # characters of a fact from a file


def _profiler(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield which profiler recorded a file and the program that it ran, unless it was torch's."""
    for key, name in _PROFILERS.items():
        facts = metadata.get(key)
        if isinstance(facts, dict):
            yield "Recorded by", f"{name} {facts.get('version') or ''}"[:_MOST_TEXT].strip()
            if facts.get("command"):
                yield "Command", str(facts["command"])[:_MOST_TEXT]


def _devices(source: Profile) -> list[str]:
    """Return the names of the GPUs that ran, in their order."""
    return sorted(source.core.devices - {"cpu"}, key=lambda device: index_of(device))


_TIMING = {
    "cupti": "CUPTI",
    "event": "CUDA events",
    "trace": "as recorded in the trace",
    "cpu": "of the host, by its clock",
}


def missing(source: Profile) -> Iterator[dict[str, Any]]:
    """Yield what a profile may hold, whether this one does, what it brings, and the option that records it.

    Whether it does is None if the program has nothing of the kind.
    """
    results, rows, core = source.results, source.rows, source.core
    options = results.hints.options
    used_none = not rows.has_device and not rows.device_unseen
    has_device = None if used_none else rows.has_device
    has_shapes = core.has_shapes or (False if rows.lacks_shapes else None)
    has_counters = any(len(track[4]) for track in core.samples()) or (None if used_none else False)
    found = (
        ("Input shapes", has_shapes, "FLOPs, bytes and roofline of the ops; rows by shape and dtype",
         results.hints.option),
        ("Device work", has_device, "kernels, copies and their times; idle time of the device",
         options["device"]),
        ("Steps", source.steps > 0, "times of a step; the accounting of each", options["steps"]),
        ("Stacks", core.has_frames, "source lines; rows by stack and by line", options["stacks"]),
        ("Modules", source.table(("module",)) is not None, "time by module, forward and backward",
         options["modules"]),
        ("Memory", rows.has_memory, "memory by op; allocated and reserved memory over time", options["memory"]),
        ("Peaks", bool(rows.peaks), "shares of the roofline, bounds, ideal times",
         "a device of the datasheet, or measured peaks"),
        ("Counters", has_counters, "traffic and activity that the hardware counted, next to what the rules compute",
         options["counters"]),
    )  # fmt: skip
    for what, present, brings, option in found:
        present = None if present is None else bool(present)
        is_code = any(mark in option for mark in ("=", "(", "--"))
        yield {"what": what, "present": present, "brings": brings, "option": option, "is_code": is_code}


def notes(source: Profile) -> Iterator[str]:
    """Yield what limits the numbers: what was lost, what is estimated, what could not be judged."""
    lines = list(source.advice.notes)
    if source.rows_left_out:
        lines.append(
            f"The rows of the page are by name: by name and shape they are {source.rows_left_out:,}, too many for a "
            'page. key_averages(group_by=("name", "shape")) has them.'
        )
    hints = source.rows.hints
    has_shapes_note = hints.advice in lines
    for note in footnotes(source.rows, source.rows, lambda name: name, short_time_text):
        line = " ".join(note.split())
        if line.startswith("Coverage:"):  # of all time of the devices: the tiles have it of the work alone, as the bars
            continue
        if line not in lines and not (has_shapes_note and line == hints.shapes):
            lines.append(line)
    yield from lines
    yield from devices.graph_notes(source)
    report = getattr(source.results, "report", None) or {}
    if report.get("truncated"):
        yield "The file of the trace is cut off: it ends before the trace does."
    for name, text in LEFT_OUT.items():
        if report.get(name):
            yield f"{report[name]:,} events {text} are in no table."
    for name, text in ODD.items():
        if report.get(name):
            yield f"{report[name]:,} {text}."
