"""Comparisons of two runs in words: what explains each change, and three sentences as the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from flopscope.answers.comparing import compared
from flopscope.answers.differences import WORK
from flopscope.answers.verdict import LEAST, Calls, ChangedIdle, ChangedOp, Verdict, Whole, unrecorded
from flopscope.results.changes import Change, Launches, Moved, Replaced
from flopscope.results.comparison import By, Comparison
from flopscope.support.kernel_names import short_names
from flopscope.support.parts import parts_of
from flopscope.support.peaks import stated_peaks
from flopscope.support.suggest import suggesting
from flopscope.support.units import bytes_text, count_text, percent_text, plural, ratio_text, short_time_text

if TYPE_CHECKING:
    import pandas

    from flopscope.results.results import Results
    from flopscope.results.table import EventTable

NAMES_SHOWN, NAME = 4, 40
GONE = 0.05
"""Idle time that fell to this part of what it was is gone."""
FUSED = "triton_"
STEP = "ProfilerStep*"
"""The row of kernels that belong to no op, such as those of a CUDA graph."""


@suggesting
def compare(
    a: Results | EventTable | pandas.DataFrame,
    b: Results | EventTable | pandas.DataFrame,
    *,
    by: By | None = None,
    kind: Literal["op", "kernel"] = "op",
    names: tuple[str, str] = ("a", "b"),
    peaks: str | None = None,
) -> Comparison:
    """Compare two runs row by row: self times and their ratio, calls, FLOPs, bytes and share of the roofline.

    a, b: a profile, a trace, the key_averages() of one, or a DataFrame of those.
    by: match rows by "name", or by "shape": by name and input shapes. The default is "shape" if both runs have shapes.
        Names match without their namespace, so that flopscope::add matches aten::add; ops whose work torch does under
        another name match that name, such as "matmul" and "mm".
    kind: "op" for ops and ranges, with the kernels that they launched; "kernel" for the work on devices.
    names: names of the runs in the table.
    peaks: base of the shares of profiles and traces, see key_averages(); tables and DataFrames keep their shares. The
        default is "measured", or "datasheet" if one of the runs is a loaded trace.

    Raises ValueError for by="shape" if a run has no shapes, and for unknown options.
    """
    if by not in (None, "name", "shape"):
        raise ValueError(f'by must be "name", "shape" or None; got {by!r}')
    if kind not in ("op", "kernel"):
        raise ValueError(f'kind must be "op" or "kernel"; got {kind!r}')
    if peaks not in (None, "measured", "datasheet", "none") and stated_peaks(str(peaks)) is None:
        raise ValueError(f'peaks must be "measured", "datasheet", "none", rates or None; got {peaks!r}')
    found, verdict = compared((a, b), by, kind, names, peaks)
    changes, total = [worded(change) for change in found.changes], worded(found.total_change)
    return replace(found, changes=changes, total_change=total, verdict=list(sentences(verdict)))


# Changes --------------------------------------------------------------------------------------------------------------


def worded(change: Change) -> Change:
    """Return a change and its parts with their reasons as text; a replacement is named by what it replaces."""
    facts, parts = change.facts, [worded(part) for part in change.parts]
    if not isinstance(facts, Replaced):
        return replace(change, why="; ".join(map(_reason, facts)), parts=parts)
    runs = facts.a, facts.b
    why = _launches(facts.launches) if facts.launches else " → ".join(map(_names, runs))
    return replace(change, name=" → ".join(_counted(run, facts.noun) for run in runs), why=why, parts=parts)


def _counted(members: Sequence[tuple[str, float]], noun: str) -> str:
    """Return how many ops these are: "9 ops", "2 fused kernels and 1 op", "a CUDA graph"."""
    if all(name == STEP for name, _ in members):
        return "a CUDA graph"
    fused = sum(calls for name, calls in members if name.startswith(FUSED))
    rest = sum(calls for _, calls in members) - fused
    return " and ".join([*([plural(fused, "fused kernel")] if fused else []), *([plural(rest, noun)] if rest else [])])


def _names(members: Sequence[tuple[str, float]]) -> str:
    names = [short_names([name])[name] for name, _ in members[:NAMES_SHOWN]]
    more = ["…"] if len(members) > NAMES_SHOWN else []
    return ", ".join([*(name if len(name) <= NAME else f"{name[: NAME - 1]}…" for name in names), *more])


def _reason(of: Sequence[Moved]) -> str:
    """Return the numbers behind one cause; of FLOPs and bytes that changed alike, either serves."""
    texts = [_moved(one) for one in of]
    return max(texts) if of[0].what in WORK else ", ".join(texts)


def _moved(of: Moved) -> str:
    """Return a number before and after: "12 → 4 calls"."""
    if of.what == "calls":
        return f"{of.a:.4g} → {plural(of.b, 'call')}"
    show, after = MOVED[of.what]
    return f"{show(of.a)} → {show(of.b)}{after}"


def _flops(value: float) -> str:
    return f"{count_text(value)}{' ' if value < 1000 else ''}FLOPs"


MOVED: Mapping[str, tuple[Callable[[Any], str], str]] = {
    "flops": (_flops, " a call"),
    "bytes": (bytes_text, " a call"),
    "time": (short_time_text, " a call"),
    "unit": (str, ""),
    "share": (percent_text, " of roofline"),
}


def _launches(of: Launches) -> str:
    """Return what became of the launches: "120 kernel launches → 1 cudaGraphLaunch"."""
    texts = []
    for kernels, graphs in zip(of.kernels, of.graphs, strict=True):
        parts = [plural(kernels, "kernel launch", "kernel launches")] if kernels else []
        texts.append(" and ".join([*parts, *([f"{graphs:.4g} cudaGraphLaunch"] if graphs else [])]))
    return " → ".join(texts)


# The verdict ----------------------------------------------------------------------------------------------------------


def sentences(of: Verdict) -> Iterator[str]:
    """Yield three sentences; fewer if the runs cannot be compared as a whole."""
    if of.scale.per == "call":
        yield "The runs differ in length and at least one has no steps, so times are those of a call."
    else:
        whose, times = ("A step" if of.scale.per == "step" else "The run"), [short_time_text(one) for one in of.times]
        if of.wholes is None:
            whose = f"The ops of {whose.lower()}"
        takes = "takes" if of.wholes else "take"
        explained = _explained(of, *of.wholes) if of.wholes else ""
        yield f"{whose} {takes} {times[0]} in a and {times[1]} in b: {_ratio(*of.times)}{explained}."
    changed = [_idle_text(one, of) if isinstance(one, ChangedIdle) else _op_text(one) for one in of.changed]
    if changed:
        yield f"What changed most: {'; '.join(changed)}."
    else:
        yield "No op, kernel or cause of idle time changed by more than 1% of the time."
    if of.rest is not None and of.times[1] and of.scale.per != "call":
        text, time = _rest(of.rest, of.on_device[1])
        share = percent_text(100 * time / of.times[1])
        yield f"The largest remaining part of b: {text} ({share} of the time)."


def _ratio(a: float, b: float) -> str:
    if not (a > 0 and b > 0):
        return "no ratio"
    if abs(a / b - 1) < LEAST:
        return "the same within 1%"
    return f"b is {ratio_text(a / b)} as fast" if a > b else f"b takes {ratio_text(b / a)} as long"


def _explained(of: Verdict, a: Whole, b: Whole) -> str:
    """Return which parts of the time explain the difference, and the times without recording."""
    names = _part_names(of.on_device[0])
    signed = {part: f"{'+' if time > 0 else '-'}{short_time_text(abs(time))}" for part, time in of.moved.items()}
    text = "; " * bool(signed) + ", ".join(f"{names[part]} {time}" for part, time in signed.items())
    if math.isnan(a.unobserved) and math.isnan(b.unobserved):
        return text
    x, y = unrecorded(a, b)
    return f"{text}; without recording, about {short_time_text(x)} and {short_time_text(y)}: {_ratio(x, y)}"


def _op_text(of: ChangedOp) -> str:
    change = worded(of.change)
    before, after = short_time_text(change.time_a), short_time_text(change.time_b)
    name = full_name(change)
    if change.cause == "only a":
        return f"{name} is gone ({before}, {plural(change.calls_a, 'call')})"
    if change.cause == "only b":
        return f"{name} is new ({after}, {plural(change.calls_b, 'call')})"
    a_call = " a call" if change.scale.per == "call" else ""
    sizes = f"sizes {', '.join(f'{x} → {y}' for x, y in of.sizes)}" if of.sizes else ""
    kernels = [(kernel, word, time) for word in ("gone", "new") for kernel, time in getattr(of, word)]
    detail = ", ".join(f"{kernel} {word}: {short_time_text(time)}" for kernel, word, time in kernels)
    why = "; ".join(text for text in (change.why, sizes, detail) if text)
    return f"{name} {before} → {after}{a_call}{f' ({why})' if why else ''}"


def full_name(change: Change) -> str:
    """Return the name with its namespace if it is the same in both runs."""
    keys = {side.key for row in change.rows for side in (row.a, row.b) if side}
    return keys.pop() if len(keys) == 1 and change.cause != "replaced" else change.name


def _idle_text(of: ChangedIdle, verdict: Verdict) -> str:
    name, times = _part_names(verdict.on_device[0])[of.part], f"{short_time_text(of.a)} → {short_time_text(of.b)}"
    why = _launches(of.calls) if isinstance(of.calls, Launches) else ", ".join(map(_calls, of.calls))
    if of.b < GONE * of.a:
        return f"{name} went away ({times}{f'; {why}' if why else ''})"
    return f"{name} {times}{f' ({why})' if why else ''}"


def _calls(of: Calls) -> str:
    after = f"{plural(of.b, 'call')} of {of.of}" if of.of else plural(of.b, "kernel launch", "kernel launches")
    return f"{of.a:.4g} → {after}"


def _rest(of: Change | tuple[str, float], on_device: bool) -> tuple[str, float]:
    """Return the largest part of the time of b as text, and its time."""
    if not isinstance(of, Change):
        return f"{_part_names(on_device)[of[0]]}, {short_time_text(of[1])}", of[1]
    change, replaced = worded(of), of.cause == "replaced"
    name = change.name.partition(" → ")[2] if replaced else full_name(change)
    calls = "" if replaced else f" in {plural(change.calls_b, 'call')}"
    share = math.nan if change.b is None else change.b.pct_roofline
    note = "" if math.isnan(share) else f", at {percent_text(share)} of the roofline"
    return f"{name}, {short_time_text(change.time_b)}{calls}{note}", change.time_b


def _part_names(on_device: bool) -> dict[str, str]:
    """Return what the parts of the time of a run are called: device work, launches and each cause of idleness."""
    work = {"work": "device work" if on_device else "ops", "launch": "launches of short kernels"}
    return work | {part: row.change for part, row in parts_of(on_device).items() if row.change}
