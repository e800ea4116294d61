"""What the overview of a profile shows, gathered from its accounting, advice and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flopscope.answers.accounting import accounting_columns
from flopscope.answers.analysis import PARTS, Analysis, analysis_of
from flopscope.results.results import program_of
from flopscope.show.advice import advise
from flopscope.show.overview import failure_html, overview_html
from flopscope.show.roofs import Point, roofs_of, slopes_of, timed_ops
from flopscope.show.thumbnail import roofline_svg
from flopscope.support.device import STORED
from flopscope.support.units import MISSING, bound_text, percent_text, prefixed_text, roofline_text, short_time_text

if TYPE_CHECKING:
    from flopscope.results.results import Results
    from flopscope.results.row import EventRow
    from flopscope.results.table import EventTable
    from flopscope.support.peaks import Peaks

OPS_SHOWN, ADVICE_SHOWN = 10, 3


def html(profile: Results) -> str:
    """Return the overview as HTML. It never raises: what prevents it is its text."""
    try:
        return _overview(profile)
    except Exception as problem:
        try:
            return failure_html(repr(profile), problem)
        except Exception:  # a repr that fails
            return failure_html(type(profile).__name__, problem)


def _overview(profile: Results) -> str:
    analysis = analysis_of(profile, "overview", STORED)
    table = profile.key_averages(peaks=STORED)
    parts, whole = _accounting(analysis)
    advice = advise(analysis) if analysis.devices else []
    a_step = " a step" if analysis.has_steps else ""
    shown = [
        (
            row.action,
            f"saves about {short_time_text(row.saving_us)}{a_step} ({percent_text(row.saving_pct)})",
            row.reason,
        )
        for row in advice[:ADVICE_SHOWN]
    ]
    rows, picture = _ops(table, analysis.peaks)
    notes = [] if len(table) else ["The profile holds no events."]
    if len(advice) > ADVICE_SHOWN:
        notes.append(f"{len(advice) - ADVICE_SHOWN} more pieces of advice: advice().")
    notes += getattr(advice, "notes", [])
    headers = ("op", "calls", "time", "share", "FLOP/s", "B/s", "% roofline", "bound")
    return overview_html(
        _head(profile, analysis, whole), parts, shown, picture, headers, rows, notes, analysis.on_device
    )


def _accounting(analysis: Analysis) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the parts in µs (per step), and the row of the whole of the steps that are alike."""
    columns = accounting_columns(analysis, alike=True)
    if not columns["total"]:
        return {}, {}
    whole = {name: values[-1] for name, values in columns.items()}
    per = max(len(analysis.alike) if analysis.has_steps else 0, 1)
    return {part: whole[part] / per for part in PARTS}, whole


def _head(profile: Results, analysis: Analysis, whole: dict[str, Any]) -> list[str]:
    """Return device, program, steps, time and MFU."""
    peaks = analysis.facts.peaks
    names = sorted({known["name"] for known in peaks.values()})
    device = whole.get("device") or (f"{len(analysis.devices)} devices" if analysis.devices else "")
    where = ", ".join(part for part in (device, " and ".join(names)) if part)
    steps = len(analysis.steps) if analysis.has_steps else 0
    head = [where or "no work recorded", program_of(profile)]
    if steps:
        head.append(f"{steps} step{'s' * (steps > 1)}")
    if whole:
        head.append(f"{short_time_text(whole['total'] / max(steps - analysis.apart, 1))}{' a step' if steps else ''}")
        if whole["mfu"] > 0:
            head.append(f"MFU {percent_text(whole['mfu'])}")
    sources = " and ".join(sorted({known["source"] for known in peaks.values()}))
    return [*head, f"{sources} peaks" if sources else ""]


def _ops(table: EventTable, peaks: Mapping[str, Peaks]) -> tuple[list[list[str]], str]:
    """Return the rows of the ops with the longest times, and the roofline of all."""
    on_device = table.has_device
    timed = [(us, row) for _, row, us in timed_ops(table, on_device) if not row.is_user_annotation]
    timed.sort(key=lambda pair: -pair[0])
    total = table.self_device_time_total if on_device else sum(us for us, _ in timed)
    rows = [_cells(row, us, total) for us, row in timed[:OPS_SHOWN]]
    points = [Point(row.key, us, row.arithmetic_intensity, row.tflops_per_s, row.bound) for us, row in timed]
    drawn = [point for point in points if point.is_drawn]
    if not drawn:
        return rows, ""
    known: dict[str, Peaks] = {one.source: one for name, one in peaks.items() if (name != "cpu") == on_device}
    used = sorted({row.unit for _, row in timed if row.unit})
    return rows, roofline_svg(drawn, roofs_of(known, used), slopes_of(known, ()))


def _cells(row: EventRow, us: float, total: float) -> list[str]:
    return [
        row.key.removeprefix("aten::").removeprefix("flopscope::"),
        str(row.count),
        short_time_text(us),
        percent_text(100 * us / total) if total > 0 else MISSING,
        prefixed_text(row.tflops_per_s * 1e12),
        prefixed_text(row.gbytes_per_s * 1e9),
        roofline_text(row.pct_roofline),
        bound_text(row.bound),
    ]
