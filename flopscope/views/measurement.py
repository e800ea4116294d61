"""A measurement for notebooks: its verdict, the samples, a roofline with its one mark, and its facts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flopscope.support.units import bound_text, roofline_text
from flopscope.views.overview import failure_html, measurement_html
from flopscope.views.thumbnail import Mark, roofline_svg, strip_svg

if TYPE_CHECKING:
    from flopscope.timing.measurement import Measurement

__all__ = ["html"]


def html(one: Measurement) -> str:
    """Return the measurement as a fragment of HTML. It never raises: what prevents it is its text."""
    try:
        rating = {
            "% roofline": roofline_text(one.pct_roofline) if one.pct_roofline == one.pct_roofline else "",
            "bound": bound_text(one.bound) if one.bound != "unknown" else "",
        }
        facts = {**{name: text for name, text in rating.items() if text}, **one.facts()}
        return measurement_html(one.verdict, facts, one.notes, _pictures(one), strip_svg(one.samples, one.median))
    except Exception as problem:
        return failure_html(f"measurement of {one.name}", problem)


def _pictures(one: Measurement) -> list[str]:
    """Return a roofline with this one mark, if its place is known. The roofs follow from rates and shares."""
    mark = Mark(one.name, one.median, one.arithmetic_intensity, one.tflops_per_s, one.bound)
    if not mark.is_drawn:
        return []
    bandwidth = one.gbytes_per_s * 1e9 * 100 / one.pct_peak_bandwidth if one.pct_peak_bandwidth else math.nan
    peak = one.tflops_per_s * 1e12 * 100 / one.pct_peak_flops if one.pct_peak_flops else math.nan
    return [roofline_svg([mark], bandwidth, {one.unit: peak} if one.unit else {}, width=280, height=180)]
