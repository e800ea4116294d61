"""Measurements for notebooks, and sweeps: their text, and HTML in the looks of tables and overviews."""

from __future__ import annotations

import math
import re
import textwrap

from flopscope.measuring.sweep import Sweep, SweepPoint
from flopscope.measuring.why import Explained
from flopscope.show.summary import summary_html
from flopscope.support import units
from flopscope.support.columns import Rows, aligned_lines, column_widths, dashes
from flopscope.support.safe import printable, shorten


def found_html(verdict: str, one: Explained) -> str:
    """Return a verdict, the facts and the notes as HTML."""
    return summary_html([verdict, Rows([*one.facts().items()], "<"), *one.notes])


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
    """Return the sweep as HTML."""
    return summary_html([_title(sweep), Rows([HEADERS, *map(_cells, sweep.points)], ">"), *_footnotes(sweep)])


def _cells(point: SweepPoint) -> list[str]:
    shape = point.shape or str(point.size)
    cells = [point.dtype, shorten(shape, LONGEST_SHAPE), units.bytes_text(point.working_set_bytes)]
    m = point.measurement
    if m is None:
        return [*cells, "no time", *[units.MISSING] * (len(HEADERS) - len(cells) - 1)]
    half = (m.ci[1] - m.ci[0]) / 2 / m.median if m.median else math.nan
    times = units.time_text(m.median), units.percent_text(100 * half)
    rates = units.prefixed_text(m.gbytes_per_s * 1e9), units.prefixed_text(m.tflops_per_s * 1e12)
    intensity, roofline = units.significant_text(m.arithmetic_intensity, 3), units.roofline_text(m.pct_roofline)
    return [*cells, *times, *rates, intensity, roofline, units.bound_text(m.bound)]


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
