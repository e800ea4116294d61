"""Notes on a profile: numbers that mislead, what could not be judged, and which recording option would help."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.answers.analysis import Analysis
from flopscope.answers.collective_rules import buffers
from flopscope.answers.counted import cached
from flopscope.answers.findings import COMPILED, OF_CPP
from flopscope.answers.fuse_rules import foldable, separate
from flopscope.answers.launch_rules import pauses
from flopscope.answers.pieces import Op, first_apart, heavy_steps
from flopscope.answers.words import first_of
from flopscope.results.categories import OF_TRITON
from flopscope.support.hints import (
    GENERATED,
    GENERATED_KERNELS,
    HINTS,
    NOT_RESOLVED,
    ON_CPU_WITHOUT_OPS,
    OWN_HINTS,
    WITHOUT_OPS,
)
from flopscope.support.statistics import median
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    from flopscope._core import Store


def notes_of(analysis: Analysis) -> list[str]:
    steps = analysis.steps if analysis.has_steps else []
    notes = step_notes([step.name or "" for step in steps], [step.time for step in steps]) if steps else ()
    rules = (cached, pauses, separate, foldable, buffers, missing)
    return [*notes, *(note for rule in rules for note in rule(analysis))]


def step_notes(names: Sequence[str], times: Sequence[float]) -> Iterator[str]:
    """Yield which steps are left out of the means, and which long ones weigh heavily in them. Times in µs."""
    apart = first_apart(times)
    first, later, names = names[:apart], times[apart:], names[apart:]
    usual = median(later)
    if first:
        ratio = f"{max(times[:apart]) / usual:.3g} times as long as the median of the others"
        took = f"{first[0]} took {ratio} and is"
        if apart > 1:
            took = f"{first[0]} to {first[-1]} took up to {ratio} and are"
        yield f"Times of a step are means of {plural(len(later), 'step')}: {took} left out."
    if heavy := heavy_steps(later):
        share = 100 * sum(later[place] for place in heavy) / max(sum(later), 1.0)
        named = ", ".join(f"{names[place]} ({short_time_text(later[place])})" for place in heavy[:2])
        yield (
            f"Times of a step are means, {percent_text(share)} of them from {plural(len(heavy), 'long step')}: "
            f"{named}{'…' if len(heavy) > 2 else ''}; the median step takes {short_time_text(usual)}. A schedule or "
            "flopscope run --steps records steps of one kind."
        )


def without_peaks(analysis: Analysis) -> list[str]:
    """Return why the peaks of devices are unknown whose work is known, and what to do."""
    unseen = not analysis.on_device and analysis.facts.device_unseen
    unknown = analysis.facts.unknown_peaks if any(analysis.known_work) and not unseen else {}
    return [f"The work on {device} has no limits, as its peaks are unknown: {why}." for device, why in unknown.items()]


def _without_unit(analysis: Analysis) -> str:
    """Return the names of the first ranges and launches whose FLOPs the program stated without a unit, "" for none."""
    rows = analysis.rows("key", "flops_source", "flops", "unit", "device_type")
    unitless = ((key, source, device) for key, source, flops, unit, device in rows if flops > 0 and not unit)
    found = [key for key, source, device in unitless if source == "stated" and device == "cpu"]
    return first_of(list(dict.fromkeys(found)))


def _lacks_peaks_only(analysis: Analysis) -> bool:
    """Return whether no peaks are known, but the bytes of all work of the devices."""
    rows = analysis.rows("is_user_annotation", "self_device_time_total", "bytes_total_moved")
    dark = (time > 0 and math.isnan(moved) for is_range, time, moved in rows if not is_range)
    return not analysis.peaks and not any(dark)


def _unknown_kernels(analysis: Analysis) -> float:
    """Return the time of kernels of unknown work that no op launched, in µs; 0 where only the peaks are unknown."""
    if not analysis.on_device or (any(analysis.known_work) and not analysis.peaks):
        return 0.0
    ranges = analysis.columns["is_user_annotation"]
    return sum(op.time for op in analysis.ops if op.part == "unmodelled" and (op.row < 0 or ranges[op.row]))


def _has_recorded_ops(analysis: Analysis) -> bool:
    """Return whether ops were recorded, whatever ran in them."""
    rows = analysis.rows("key", "device_type", "is_user_annotation", "bytes_source")
    return any(device == "cpu" and not is_range and ("::" in key or moved) for key, device, is_range, moved in rows)


def _is_launch(analysis: Analysis, op: Op) -> bool:
    """Return whether an op is a launch of Triton, which no shapes make known."""
    if op.row < 0 or analysis.columns["is_user_annotation"][op.row] or op.key.startswith("triton_"):
        return False  # "triton_…": a kernel of Inductor
    sources = {analysis.columns[name][op.row] for name in ("bytes_source", "flops_source")}
    return op.key.startswith(OF_TRITON) or "stated" in sources or ("estimated" in sources and "::" not in op.key)


def _launches(analysis: Analysis) -> list[str] | None:
    """Return the note on launches of Triton that could not be judged, if any; None if other ops could not either."""
    open_ = [op for op in analysis.ops if op.part == "unmodelled"]
    if not open_ or not all(_is_launch(analysis, op) for op in open_):
        return None
    if not analysis.peaks or all(analysis.columns["flops_source"][op.row] == "stated" for op in open_):
        return []
    if "counted" in analysis.columns["bytes_source"]:
        return [NOT_RESOLVED]
    return [analysis.facts.hints.kernels]


def missing(analysis: Analysis) -> list[str]:
    """Return what could not be judged, and which recording option would bring it."""
    notes = [text for text in (analysis.facts.hints.busy, *analysis.facts.hints.said) if text]
    hints, unseen = analysis.facts.hints, not analysis.on_device and analysis.facts.device_unseen
    dark = [op for op in analysis.ops if op.part == "unmodelled"]
    unknown = bool(dark) and not _lacks_peaks_only(analysis)
    has_ops, own = analysis.has_namespaced_ops, hints in (HINTS, OWN_HINTS)
    kernels = _unknown_kernels(analysis)
    lost = analysis.graphs.get("works", 0) - analysis.graphs.get("matched", 0)
    counted = kernels and "counted" in analysis.columns["bytes_source"]
    generated, recorded = (
        sum(op.time for op in dark if of.search(op.key)) > sum(op.time for op in dark) / 2 for of in (COMPILED, OF_CPP)
    )
    if counted and not has_ops:
        notes.append(NOT_RESOLVED)
    elif (generated or recorded) and not analysis.on_device and not unseen:
        notes.append(GENERATED if generated else GENERATED_KERNELS)
    elif (of_launches := _launches(analysis)) is not None:
        notes += of_launches
    elif kernels and not has_ops and not lost and _has_recorded_ops(analysis):
        notes.append(hints.kernels)  # ops were recorded, and none of them launched these
    elif unknown and not analysis.facts.has_shapes and (has_ops or analysis.uses_torch or not kernels):
        foreign = not (has_ops or analysis.on_device or analysis.uses_torch) and own
        without = ON_CPU_WITHOUT_OPS if foreign else WITHOUT_OPS.advice
        if not (foreign and any(analysis.known_work)):
            notes.append(hints.advice if has_ops or not own else without)
    elif kernels and not analysis.uses_torch:
        notes.append(hints.kernels)
    elif unknown and lost:
        notes.append(
            f"The work of {plural(lost, 'kernel or copy', 'kernels and copies')} of replayed graphs is unknown, as the "
            f"capture was not recorded. {hints.graphs}"
        )
    elif kernels:
        notes.append(hints.kernels)
    if unitless := _without_unit(analysis):
        notes.append(
            f"The FLOPs stated for {unitless} have no compute unit, so their limit is unknown: pass unit=, or flops16 "
            "or the like in launch_metadata."
        )
    if unseen:
        notes.append("No activity of a GPU was recorded: if the program uses one, profile with ProfilerActivity.CUDA.")
    if analysis.steps and not analysis.has_steps:
        notes.append(f"The profile has no steps, so times are those of the whole profile: {hints.steps}.")
    notes += without_peaks(analysis)
    if analysis.facts.dropped:
        notes.append(f"{analysis.facts.dropped} records were lost: times and counts are too low.")
    return notes


def skewed_clocks(core: Store, launches: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a warning for each device of a launch summary of a store that has impossible delays."""
    counts = zip(*(launches[name] for name in ("device", "negative_delays", "launches", "delay_min")), strict=True)
    for device, negative, all_of_them, least in counts:
        if negative:
            yield (
                f"{core.device_name(device)}: {negative:.0f} of {all_of_them:.0f} launches have a negative delay: "
                f"their kernel started before their call, by up to {short_time_text(-least)}. The clocks of host and "
                "device disagree by about that or more, and all delays, queues and late launches here are off by as "
                "much."
            )
