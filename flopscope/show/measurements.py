"""Measurements for notebooks, and sweeps: their text, and HTML in the looks of tables and overviews."""

from __future__ import annotations

import math
import re
import textwrap
from typing import TYPE_CHECKING

from flopscope.show.html import STYLE
from flopscope.show.overview import OVERVIEW_STYLE, failure_html, quiet_html
from flopscope.show.roofs import Point
from flopscope.show.thumbnail import roofline_svg, strip_svg
from flopscope.support import units
from flopscope.support.columns import aligned_lines, column_widths, dashes
from flopscope.support.safe import markup, printable, shorten

if TYPE_CHECKING:
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.sweep import Sweep, SweepPoint

FACTS_STYLE = ".flopscope-overview td.name {white-space: normal; max-width: none}"


def measurement_html(one: Measurement) -> str:
    """Return the measurement as a fragment of HTML. It never raises: what prevents it is its text."""
    try:
        rating = {
            "% roofline": units.roofline_text(one.pct_roofline) if one.pct_roofline == one.pct_roofline else "",
            "bound": units.bound_text(one.bound) if one.bound != "unknown" else "",
        }
        facts = {**{name: text for name, text in rating.items() if text}, **one.facts()}
        cells = ((markup(shorten(name, 60)), markup(shorten(text, 200))) for name, text in facts.items())
        rows = "".join(f'<tr><td class="name">{name}</td><td class="name">{text}</td></tr>' for name, text in cells)
        table = f'<table class="flopscope"><tbody>{rows}</tbody></table>'
        strip, notes = strip_svg(one.samples, one.median), "".join(map(quiet_html, one.notes))
        return (
            f"<style>{STYLE}{OVERVIEW_STYLE}\n{FACTS_STYLE}</style>\n"
            f'<div class="flopscope-overview"><div class="head">{markup(shorten(one.verdict, 400))}</div>\n{strip}\n'
            f'<div class="sides"><div>{table}</div>{_picture(one)}</div>\n{notes}</div>'
        )
    except Exception as problem:
        return failure_html(f"measurement of {one.name}", problem)


def _picture(one: Measurement) -> str:
    """Return a roofline with this one mark, if its place is known. The roofs follow from rates and shares."""
    point = Point(one.name, one.median, one.arithmetic_intensity, one.tflops_per_s, one.bound)
    if not point.is_drawn:
        return ""
    bandwidth = one.gbytes_per_s * 1e9 * 100 / one.pct_peak_bandwidth if one.pct_peak_bandwidth else math.nan
    peak = one.tflops_per_s * 1e12 * 100 / one.pct_peak_flops if one.pct_peak_flops else math.nan
    roofs = [(one.unit, {"measured": peak}, {"measured": peak / bandwidth})] if one.unit and 0 < peak < math.inf else []
    slopes = [("memory", {"measured": bandwidth})] if 0 < bandwidth < math.inf else []
    return roofline_svg([point], roofs, slopes, width=280, height=180)


# A sweep --------------------------------------------------------------------------------------------------------------


HEADERS = ("dtype", "shape", "working set", "median", "±", "B/s", "FLOP/s", "FLOP/B", "% roofline", "bound")
LINE, LONGEST_SHAPE = 120, 26


def sweep_text(sweep: Sweep) -> str:
    """Return the sweep as a table of at most 120 columns."""
    rows = [HEADERS, *(_cells(point) for point in sweep.points)]
    rule = dashes(column_widths(rows))
    head, *body = aligned_lines(rows, ">")
    table = [_title(sweep), rule, head, rule, *body, rule]
    notes = [line for note in _footnotes(sweep) for line in textwrap.wrap(printable(note), LINE)]
    return "\n".join([*map(printable, table), *notes])


def sweep_html(sweep: Sweep) -> str:
    """Return the sweep as a fragment of HTML with all text escaped."""
    head = "".join(f"<th>{markup(header)}</th>" for header in HEADERS)
    rows = ("".join(f"<td>{markup(cell)}</td>" for cell in _cells(point)) for point in sweep.points)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    caption = "<br>".join(markup(line) for line in (_title(sweep), *_footnotes(sweep)))
    return (
        f'<style>{STYLE}</style>\n<table class="flopscope">\n<caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )


def _cells(point: SweepPoint) -> list[str]:
    shape = point.shape or str(point.size)
    cells = [
        point.dtype,
        shape if len(shape) <= LONGEST_SHAPE else shape[: LONGEST_SHAPE - 3] + "...",
        units.bytes_text(point.working_set_bytes),
    ]
    m = point.measurement
    if m is None:
        return [*cells, "no time", *[units.MISSING] * (len(HEADERS) - len(cells) - 1)]
    half = (m.ci[1] - m.ci[0]) / 2 / m.median if m.median else math.nan
    return [
        *cells,
        units.time_text(m.median),
        units.percent_text(100 * half),
        units.prefixed_text(m.gbytes_per_s * 1e9),
        units.prefixed_text(m.tflops_per_s * 1e12),
        units.significant_text(m.arithmetic_intensity, 3),
        units.roofline_text(m.pct_roofline),
        units.bound_text(m.bound),
    ]


def _title(sweep: Sweep) -> str:
    return f"{sweep.op} on {sweep.device}, {sweep.device.name}; caches {sweep[0].cache}"


def _footnotes(sweep: Sweep) -> list[str]:
    over = {m.bound == "compute" for m in sweep if m.pct_roofline > 100}
    return [*(text for by_compute, text in _OVER.items() if by_compute in over), *_refusals(sweep)]


# Notes on shares marked by a star, by whether compute bounds the point.
_OVER = {
    False: "* more than the memory bandwidth: the data sat in cache",
    True: "* more than the peak, which was measured on larger products, at the lower clock that those allow",
}


def _refusals(sweep: Sweep) -> list[str]:
    """Return why points have no time; of reasons that differ only in their numbers, the first."""
    alike: dict[tuple[str, str], list[SweepPoint]] = {}
    for point in sweep.points:
        if point.note:
            alike.setdefault((point.dtype, re.sub(r"\d+", "", point.note)), []).append(point)
    more = {kind: f" (and {len(points) - 1} more sizes)" if len(points) > 1 else "" for kind, points in alike.items()}
    return [f"{points[0].dtype}: {points[0].note}{more[kind]}" for kind, points in alike.items()]
