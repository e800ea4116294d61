"""A measurement for notebooks: its verdict, the samples, a roofline with its one mark, and its facts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flopscope.show.html import STYLE
from flopscope.show.labels import shorten
from flopscope.show.overview import OVERVIEW_STYLE, failure_html, quiet_html
from flopscope.show.roofs import Point
from flopscope.show.thumbnail import roofline_svg, strip_svg
from flopscope.support.safe import markup
from flopscope.support.units import bound_text, roofline_text

if TYPE_CHECKING:
    from flopscope.measuring.measurement import Measurement

FACTS_STYLE = ".flopscope-overview td.name {white-space: normal; max-width: none}"


def html(one: Measurement) -> str:
    """Return the measurement as a fragment of HTML. It never raises: what prevents it is its text."""
    try:
        rating = {
            "% roofline": roofline_text(one.pct_roofline) if one.pct_roofline == one.pct_roofline else "",
            "bound": bound_text(one.bound) if one.bound != "unknown" else "",
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
    return roofline_svg([point], bandwidth, {one.unit: peak} if one.unit else {}, width=280, height=180)
