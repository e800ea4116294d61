"""A small roofline as inline SVG, without matplotlib: for notebooks and reports. It follows the page's colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flopscope.show.labels import shorten
from flopscope.show.plots import BOUNDS, bound_label
from flopscope.show.roofs import Point
from flopscope.support import units
from flopscope.support.safe import markup

MOST_MARKS = 60
LONGEST = 60  # characters of a name in a tooltip
LARGEST, SMALLEST = 9.0, 2.5  # radii in pixels
LEFT, RIGHT, TOP, BOTTOM = 40.0, 8.0, 16.0, 30.0  # margins in pixels
MOST_SAMPLES = 300
FAR = 4.0
LABEL_EM = 5.4  # px: the width of a character of a level's name
FONT = 'font-size="10" fill="currentColor"'


def _around(corners: int, *radii: float, turn: float = 0.0) -> Sequence[tuple[float, float]]:
    """Return corners around the centre from the top on, at these radii in turn; turn: in parts of a step."""
    angles = (2 * math.pi * (place + turn) / corners for place in range(corners))
    ends = zip(angles, (radii * corners)[:corners], strict=True)
    return tuple((round(radius * math.sin(angle), 3), round(-radius * math.cos(angle), 3)) for angle, radius in ends)


OUTLINES: Mapping[str, Sequence[tuple[float, float]]] = {
    "o": (),
    "s": ((-0.886, -0.886), (0.886, -0.886), (0.886, 0.886), (-0.886, 0.886)),
    "D": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "^": ((0, -1.3), (1.43, 0.975), (-1.43, 0.975)),
    "v": ((0, 1.3), (1.43, -0.975), (-1.43, -0.975)),
    "<": ((-1.3, 0), (0.975, 1.43), (0.975, -1.43)),
    ">": ((1.3, 0), (-0.975, 1.43), (-0.975, -1.43)),
    "d": ((0, -1.65), (0.95, 0), (0, 1.65), (-0.95, 0)),
    "p": _around(5, 1.15),
    "h": _around(6, 1.1),
    "H": _around(6, 1.1, turn=0.5),
    "8": _around(8, 1.05, turn=0.5),
    "*": _around(10, 1.7, 0.7),
    "P": (
        *((-0.4, -1.25), (0.4, -1.25), (0.4, -0.4), (1.25, -0.4), (1.25, 0.4), (0.4, 0.4)),
        *((0.4, 1.25), (-0.4, 1.25), (-0.4, 0.4), (-1.25, 0.4), (-1.25, -0.4), (-0.4, -0.4)),
    ),
    "X": (
        *((0.6, -1.24), (1.24, -0.6), (0.64, 0), (1.24, 0.6), (0.6, 1.24), (0, 0.64)),
        *((-0.6, 1.24), (-1.24, 0.6), (-0.64, 0), (-1.24, -0.6), (-0.6, -1.24), (0, -0.64)),
    ),
}
"""The corners of markers of radius 1, all of about the area of the circle, which has none."""


def roofline_svg(
    marks: Sequence[Point],
    bandwidth: float = math.nan,
    levels: Mapping[str, float] | None = None,
    *,
    width: int = 320,
    height: int = 210,
) -> str:
    """Return a roofline as an ``<svg>`` element of at most 20 kB, with all text escaped.

    The axes are logarithmic. The area of a mark is proportional to its time, its colour and shape show its bound, and
    its tooltip names it. The MOST_MARKS longest are drawn. bandwidth: of the memory in bytes/s. levels: peaks in FLOP/s
    by the name of their compute unit. Unknown ones (NaN) are left out.
    """
    drawn = sorted((mark for mark in marks if mark.is_drawn), key=lambda mark: -mark.us)[:MOST_MARKS]
    peaks = {name: flops / 1e12 for name, flops in (levels or {}).items() if 0 < flops < math.inf}
    tera_per_intensity = bandwidth / 1e12 if 0 < bandwidth < math.inf else math.nan
    frame = _frame(drawn, tera_per_intensity, peaks, width, height)
    head = f'<svg class="flopscope-roofline" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
    head += 'xmlns="http://www.w3.org/2000/svg" role="img" font-family="sans-serif">'
    longest = max((mark.us for mark in drawn), default=0.0)
    discs = [(frame.x(mark.intensity), frame.y(mark.tera), _radius(mark, longest)) for mark in drawn]
    parts = [head, "<title>Roofline</title>", *frame.axes(), *_roofs(frame, tera_per_intensity, peaks, discs)]
    parts += [_mark(frame, mark, longest) for mark in drawn]
    if not drawn:
        x, y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
        parts.append(_text(x, y, "middle", "no op of known work"))
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Frame:
    """The axes: limits as decimal logarithms, edges in pixels."""

    x0: float
    x1: float
    y0: float
    y1: float
    left: float
    right: float
    top: float
    bottom: float

    def x(self, intensity: float) -> float:
        return self.left + (math.log10(intensity) - self.x0) / (self.x1 - self.x0) * (self.right - self.left)

    def y(self, tera: float) -> float:
        return self.bottom - (math.log10(tera) - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top)

    def axes(self) -> list[str]:
        """Return the border, lines at the decades with their labels, and the units."""
        wide, high = self.right - self.left, self.bottom - self.top
        parts = [
            f'<rect x="{self.left:.1f}" y="{self.top:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="none" '
            'stroke="currentColor" stroke-opacity="0.5"/>'
        ]
        line = 'stroke="currentColor" stroke-opacity="0.13"'
        for power in _decades(self.x0, self.x1):
            x = self.x(10.0**power)
            parts.append(f'<line x1="{x:.1f}" y1="{self.top:.1f}" x2="{x:.1f}" y2="{self.bottom:.1f}" {line}/>')
            parts.append(_text(x, self.bottom + 12, "middle", _tick(power)))
        for power in _decades(self.y0, self.y1):
            y = self.y(10.0**power)
            parts.append(f'<line x1="{self.left:.1f}" y1="{y:.1f}" x2="{self.right:.1f}" y2="{y:.1f}" {line}/>')
            parts.append(_text(self.left - 4, y + 3, "end", _tick(power)))
        parts.append(_text((self.left + self.right) / 2, self.bottom + 25, "middle", "FLOP/B"))
        return [*parts, _text(2, self.top - 5, "start", "TFLOP/s")]


def _text(x: float, y: float, anchor: str, text: str, look: str = FONT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {look}>{text}</text>'


def _frame(marks: Sequence[Point], slope: float, peaks: Mapping[str, float], width: int, height: int) -> _Frame:
    """Choose limits that show the marks, the levels and where they meet the slope."""
    ridges = [] if math.isnan(slope) else [level / slope for level in peaks.values()]
    xs = [mark.intensity for mark in marks] + ridges or [1.0]
    ys = [mark.tera for mark in marks] + [*peaks.values()] or [1.0]
    x0, x1 = math.log10(min(xs)) - 0.5, math.log10(max(xs)) + 0.8
    y0, y1 = math.log10(min(ys)) - 0.4, math.log10(max(ys)) + 0.4
    return _Frame(x0, x1, y0, max(y1, y0 + 1), LEFT, width - RIGHT, TOP, height - BOTTOM)


def _decades(low: float, high: float) -> list[int]:
    """Return at most six powers of ten between the limits."""
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    return powers[:: max(1, math.ceil(len(powers) / 6))]


def _tick(power: int) -> str:
    return f"{10.0**power:g}" if -3 <= power <= 4 else f"1e{power}"


def _roofs(
    frame: _Frame, slope: float, peaks: Mapping[str, float], discs: Sequence[tuple[float, float, float]]
) -> list[str]:
    """Return the slope up to the highest level, and each level from the slope on, with the numbers in tooltips.

    discs: centres and radii of the marks. The name of a level is where it meets none of them, if there is such a place.
    """
    parts = []
    left, right = 10.0**frame.x0, 10.0**frame.x1
    stroke = 'stroke="currentColor" stroke-opacity="0.75" fill="none"'
    if not math.isnan(slope):
        end = min(max(peaks.values()) / slope, right) if peaks else right
        begin = max(left, 10.0**frame.y0 / slope)
        end = min(end, 10.0**frame.y1 / slope)
        if begin < end:
            title = f"<title>memory: {units.si_text(slope * 1e12, 'B/s', 3)}</title>"
            ends = f"M{frame.x(begin):.1f} {frame.y(begin * slope):.1f}L{frame.x(end):.1f} {frame.y(end * slope):.1f}"
            parts.append(f'<path d="{ends}" {stroke}>{title}</path>')
    for name, level in peaks.items():
        begin = left if math.isnan(slope) else min(max(level / slope, left), right)
        y = frame.y(level)
        label = markup(shorten(name, 30))
        title = f"<title>{label}: {units.si_text(level * 1e12, 'FLOP/s', 3)}</title>"
        parts.append(f'<path d="M{frame.x(begin):.1f} {y:.1f}H{frame.right:.1f}" {stroke}>{title}</path>')
        wide = LABEL_EM * len(name)
        ridge = frame.x(begin)
        places = [(frame.right - 3, y - 3, "end"), (ridge + 5, y - 3, "start"), (ridge - 3, y - 3, "end")]
        free = [place for place in places if not any(_meets(place, wide, disc) for disc in discs)]
        at, base, anchor = (free or places)[0]
        parts.append(_text(at, base, anchor, label, 'font-size="9" fill="currentColor" fill-opacity="0.8"'))
    return parts


def _meets(place: tuple[float, float, str], wide: float, disc: tuple[float, float, float]) -> bool:
    """Return whether a text of one line and a disc have a point in common."""
    at, base, anchor = place
    x, y, radius = disc
    left = at - wide if anchor == "end" else at
    return math.hypot(x - min(max(x, left), left + wide), y - min(max(y, base - 8), base + 2)) < radius


def _radius(mark: Point, longest: float) -> float:
    share = mark.us / longest if longest > 0 else 0.0
    return max(LARGEST * math.sqrt(max(share, 0.0)), SMALLEST) if share == share else SMALLEST


def _mark(frame: _Frame, mark: Point, longest: float) -> str:
    """Return a mark: its shape and colour show the bound."""
    r = _radius(mark, longest)
    x, y = frame.x(mark.intensity), frame.y(mark.tera)
    bound = BOUNDS.get(mark.bound, BOUNDS["unknown"])
    look = f'fill="{bound.light}" fill-opacity="0.9" stroke="Canvas" stroke-width="0.6"'
    title = (
        f"<title>{markup(shorten(mark.name, LONGEST))}: {units.short_time_text(mark.us)}, "
        f"{units.flop_rate_text(mark.tera)}, {markup(bound_label(mark.bound))}</title>"
    )
    outline = OUTLINES[bound.marker]
    if not outline:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" {look}>{title}</circle>'
    path = "L".join(f"{x + r * a:.1f} {y + r * b:.1f}" for a, b in outline)
    return f'<path d="M{path}Z" {look}>{title}</path>'


def strip_svg(samples: Sequence[float], median: float, *, width: int = 460, height: int = 46) -> str:
    """Return samples in µs as lines along an axis, with the median, as an ``<svg>`` element.

    Of more than MOST_SAMPLES, evenly spaced ones of the sorted samples are drawn. If the largest samples lie FAR times
    further from the median than the usual ones, the axis ends at the 95th percentile and a label names the largest.
    """
    known = sorted(sample for sample in samples if math.isfinite(sample))
    if not known:
        return ""
    if len(known) > MOST_SAMPLES:
        known = [known[round(i * (len(known) - 1) / (MOST_SAMPLES - 1))] for i in range(MOST_SAMPLES)]
    low, high, largest = known[0], known[-1], known[-1]
    usual = known[round(0.95 * (len(known) - 1))]
    if high - median > FAR * (usual - low) > 0:
        high = usual
        known = [sample for sample in known if sample <= high]
    span = high - low or 1.0
    left, right = 6.0, width - 6.0

    def x(value: float) -> float:
        return left + (value - low) / span * (right - left) if high > low else (left + right) / 2

    ticks = "".join(f"M{x(value):.1f} 4v20" for value in known)
    middle = x(min(max(median, low), high)) if math.isfinite(median) else (left + right) / 2
    beyond = f" (5 % up to {units.long_time_text(largest)})" if largest > high else ""
    texts = [(left, "start", low, ""), (right, "end", high, beyond)] if high > low else []
    if 0.25 * width < middle < (0.4 if beyond else 0.75) * width:
        texts.append((middle, "middle", median, ""))
    labels = "".join(
        _text(at, height - 6, anchor, f"{'median ' * (anchor == 'middle')}{units.long_time_text(value)}{more}")
        for at, anchor, value, more in texts
    )
    return (
        f'<svg class="flopscope-strip" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'xmlns="http://www.w3.org/2000/svg" role="img" font-family="sans-serif"><title>Samples</title>'
        f'<path d="M{left} 24H{right}" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<path d="{ticks}" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<path d="M{middle:.1f} 1v26" stroke="{BOUNDS["compute"].light}" stroke-width="2"/>{labels}</svg>'
    )
