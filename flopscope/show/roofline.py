"""The roofline of a table as SVG: that of pages, whose marks select rows, and that of ``fs.roofline()``.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike

from flopscope.results.table import EventTable
from flopscope.show.looks import BOUNDS, bound_label
from flopscope.show.roofs import SOURCES, Point, Rates, level_label, marks_of, roofs_of, slopes_of, timed_ops
from flopscope.support import units
from flopscope.support.device import known_peaks
from flopscope.support.files import replacing
from flopscope.support.safe import markup, shorten

MOST_MARKS = 1000
"""Marks of a device; ops with less time are only counted."""
WIDTH, HEIGHT = 1000, 460  # px
LONGEST = 60  # characters of a name in a tooltip
LARGEST, SMALLEST = 18.0, 2.5  # radii in pixels
LEFT, RIGHT, TOP, BOTTOM = 40.0, WIDTH - 8.0, 16.0, HEIGHT - 30.0  # edges in pixels
LABEL_EM, TALL = 5.4, 9.0  # px: the width of a character of a name, and its height
LARGE = 5.0  # px: the radius of marks that no text may cover
FONT = 'font-size="10" fill="currentColor"'
FAINT = 'font-size="9" fill="currentColor" fill-opacity="0.8"'
LEAST_SHARE = 0.001  # of the time: marks with less do not extend the axes
STRIP = 1.2  # decades of the strip of ops without FLOPs
NAMED = 12
BESIDE = " · "  # between the name of a mark and its shapes
Corner = tuple[float, float]
Roofs = Sequence[tuple[str, Rates, Mapping[str, float]]]
"""As those of roofs_of(): name, rates and ridges."""
Slopes = Sequence[tuple[str, Rates]]
Disc = tuple[float, float, float]
"""x, y and radius of a mark, in pixels."""


def roofline_svg(shown: Sequence[Point], roofs: Roofs, slopes: Slopes) -> str:
    """Return a roofline as an ``<svg>`` element, with all text escaped.

    The axes are logarithmic. The area of a mark is proportional to its time, its colour shows its bound, and its
    tooltip names it. Marks are drawn if they lie within the axes; those without FLOPs in a strip at the left, as
    far below the roof of the memory as their bandwidth is. The longest have their names beside them.

    shown: the longest first. roofs, slopes: those of roofs_of() and slopes_of(); rates of the datasheet are dashed.
    """
    least = LEAST_SHARE * math.fsum(mark.us for mark in shown)
    frame = _frame([mark for mark in shown if mark.us >= least] or shown, roofs)
    placed = (mark if mark.is_drawn else frame.moved(mark, number) for number, mark in enumerate(shown))
    drawn = [mark for mark in placed if frame.holds(mark)]
    head = f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
    head += 'xmlns="http://www.w3.org/2000/svg" role="img" font-family="sans-serif">'
    longest = max((mark.us for mark in drawn), default=0.0) or math.inf
    radii = [max(LARGEST * math.sqrt(mark.us / longest), SMALLEST) for mark in drawn]
    discs = [(frame.x(mark.intensity), frame.y(mark.tera), radius) for mark, radius in zip(drawn, radii, strict=True)]
    room = _Room(discs)
    parts = [head, "<title>Roofline</title>", *frame.axes(), *_roofs(frame, roofs, slopes, room)]
    parts += [_mark(mark, disc) for mark, disc in zip(drawn, discs, strict=True)]
    return "".join([*parts, *_names(drawn, discs, room), "</svg>"])


@dataclass(frozen=True)
class _Frame:
    """The axes: limits as decimal logarithms."""

    x0: float
    x1: float
    y0: float
    y1: float
    strip: float = -math.inf
    """Where the strip of ops without FLOPs ends, as a decimal logarithm."""

    def holds(self, mark: Point) -> bool:
        """Return whether a mark is within the axes."""
        if not mark.is_drawn:
            return False
        return self.x0 <= math.log10(mark.intensity) <= self.x1 and self.y0 <= math.log10(mark.tera) <= self.y1

    def moved(self, mark: Point, number: int) -> Point:
        """Return a mark in the strip, at the height of its bandwidth; neighbours by time stand apart."""
        intensity = 10.0 ** (self.strip - STRIP * (0.5 - 0.3 * (0.0, 1.0, -1.0, 0.5, -0.5)[number % 5]))
        return replace(mark, intensity=intensity, tera=mark.gbytes / 1000 * intensity)

    def x(self, intensity: float) -> float:
        return LEFT + (math.log10(intensity) - self.x0) / (self.x1 - self.x0) * (RIGHT - LEFT)

    def y(self, tera: float) -> float:
        return BOTTOM - (math.log10(tera) - self.y0) / (self.y1 - self.y0) * (BOTTOM - TOP)

    def axes(self) -> list[str]:
        """Return the border, lines at the decades with their labels, and the units."""

        def box(right: float, look: str) -> str:
            wide, high = right - LEFT, BOTTOM - TOP
            return f'<rect x="{LEFT:.1f}" y="{TOP:.1f}" width="{wide:.1f}" height="{high:.1f}" {look}/>'

        parts = [box(RIGHT, 'fill="none" stroke="currentColor" stroke-opacity="0.5"')]
        line = 'stroke="currentColor" stroke-opacity="0.13"'
        if self.strip > self.x0:
            x = self.x(10.0**self.strip)
            parts.append(box(x, 'fill="currentColor" fill-opacity="0.06"'))
            parts.append(_text((LEFT + x) / 2, BOTTOM + 12, "middle", "no FLOPs"))
        for power in _decades(max(self.x0, self.strip), self.x1):
            x = self.x(10.0**power)
            parts.append(f'<line x1="{x:.1f}" y1="{TOP:.1f}" x2="{x:.1f}" y2="{BOTTOM:.1f}" {line}/>')
            parts.append(_text(x, BOTTOM + 12, "middle", _tick(power)))
        for power in _decades(self.y0, self.y1):
            y = self.y(10.0**power)
            parts.append(f'<line x1="{LEFT:.1f}" y1="{y:.1f}" x2="{RIGHT:.1f}" y2="{y:.1f}" {line}/>')
            parts.append(_text(LEFT - 4, y + 3, "end", _tick(power)))
        parts.append(_text((LEFT + RIGHT) / 2, BOTTOM + 25, "middle", "FLOP/B"))
        return [*parts, _text(2, TOP - 5, "start", "TFLOP/s")]


def _text(x: float, y: float, anchor: str, text: str, look: str = FONT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {look}>{text}</text>'


def _frame(marks: Sequence[Point], roofs: Roofs) -> _Frame:
    """Choose limits that show the marks, the levels and where they meet the slope."""
    drawn = [mark for mark in marks if mark.is_drawn]
    xs = [mark.intensity for mark in drawn] + [x for _, _, ridges in roofs for x in ridges.values()] or [1.0]
    x0, x1 = math.log10(min(xs)) - 0.5, math.log10(max(xs)) + 0.8
    strip = x0 if len(drawn) < len(marks) else -math.inf
    ys = [mark.tera for mark in drawn] + [rate / 1e12 for _, rates, _ in roofs for rate in rates.values()]
    ys += [mark.gbytes / 1000 * 10.0 ** (strip - STRIP) for mark in marks if not mark.is_drawn]
    x0 = min(x0, max(strip - STRIP, x0 - STRIP)) if strip == x0 else x0
    y0, y1 = math.log10(min(ys or [1.0])) - 0.4, math.log10(max(ys or [1.0])) + 0.4
    return _Frame(x0, x1, y0, max(y1, y0 + 1), strip)


def _decades(low: float, high: float) -> list[int]:
    """Return at most six powers of ten between the limits."""
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    return powers[:: max(1, math.ceil(len(powers) / 6))]


def _tick(power: int) -> str:
    return f"{10.0**power:g}" if -3 <= power <= 4 else f"1e{power}"


def _roofs(frame: _Frame, roofs: Roofs, slopes: Slopes, room: _Room) -> list[str]:
    """Return the slopes up to the highest level, and each level from the slope on, with their names and numbers."""
    parts = []
    left, right, bottom, top = (10.0**edge for edge in (frame.x0, frame.x1, frame.y0, frame.y1))

    def line(path: str, source: str, label: str) -> str:
        dashed = ' stroke-dasharray="6 4"' if source == "datasheet" else ""
        look = f'stroke="currentColor" stroke-opacity="0.75" fill="none"{dashed}'
        return f'<path d="{path}" {look}><title>{markup(label)}</title></path>'

    for name, rates in slopes:
        label = level_label(name, rates, "B")
        for source, rate in rates.items():
            slope = rate / 1e12
            highest = max((level[source] for _, level, _ in roofs if source in level), default=math.inf)
            begin, end = max(left, bottom / slope), min(highest / rate, right, top / slope)
            if begin < end:
                ends = [f"{frame.x(at):.1f} {frame.y(at * slope):.1f}" for at in (begin, end)]
                parts.append(line(f"M{'L'.join(ends)}", source, label))
        if begin < end:
            x, y = frame.x(math.sqrt(begin * end)), frame.y(math.sqrt(begin * end) * slope)
            angle = math.degrees(math.atan2(frame.y(end * slope) - y, frame.x(end) - x))
            turned = f'{FAINT} transform="translate({x:.1f} {y - 7:.1f}) rotate({angle:.1f})"'
            parts.append(_text(0, 0, "middle", markup(label), turned))
            half, steps = 0.5 * LABEL_EM * len(label), [i / 4 for i in range(-4, 5)]
            turn = math.radians(angle)
            middles = [(x + half * i * math.cos(turn), y - 7 + half * i * math.sin(turn)) for i in steps]
            room.taken += [(at - 8, high - 8, at + 8, high + 2) for at, high in middles]
    for name, rates, ridges in roofs:
        label = level_label(name, rates, "FLOP")
        for source, rate in rates.items():
            begin = min(max(ridges.get(source, left), left), right)
            y = frame.y(rate / 1e12)
            parts.append(line(f"M{frame.x(begin):.1f} {y:.1f}H{RIGHT:.1f}", source, label))
        wide = 0.9 * LABEL_EM * len(label)
        lefts = [RIGHT - 3 - wide * (1 + i) for i in range(4)]
        found = room.place(wide, [(left, below) for left in lefts for below in (y - 3, y + 10)])
        parts += [_text(found[0] + wide, found[1], "end", markup(label), FAINT)] if found else []
    return parts


class _Room:
    """Where texts are free to stand: within the axes, and neither over other texts nor over large marks."""

    def __init__(self, discs: Sequence[Disc]) -> None:
        self.discs = [disc for disc in discs if disc[2] >= LARGE]
        self.taken: list[tuple[float, float, float, float]] = []

    def place(self, wide: float, corners: Sequence[Corner], own: Disc | None = None) -> Corner | None:
        """Return the first of the lower left corners at which a text is free to stand, and take it; None without."""
        for left, below in corners:
            right, above = left + wide, below - TALL
            free = left >= LEFT and right <= RIGHT and above >= TOP
            free &= all(right < x0 or left > x1 or below < y0 or above > y1 for x0, y0, x1, y1 in self.taken)
            for x, y, r in self.discs:
                apart = math.hypot(max(left - x, x - right, 0.0), max(above - y, y - below, 0.0))
                free &= (x, y, r) == own or apart > r
            if free:
                self.taken.append((left, above, right, below))
                return left, below
        return None


def _names(marks: Sequence[Point], discs: Sequence[Disc], room: _Room) -> list[str]:
    """Return the names of the longest ops, each beside its mark, but for those that would cover anything."""
    parts: list[str] = []
    for mark, (x, y, radius) in zip(marks[:NAMED], discs, strict=False):
        name = shorten(mark.name.partition(BESIDE)[0].removeprefix("aten::").removeprefix("flopscope::"), 32)
        wide, gap = LABEL_EM * len(name), radius + 3
        corners = [(x + gap, y + 3), (x - gap - wide, y + 3), (x - wide / 2, y - gap), (x - wide / 2, y + gap + TALL)]
        if found := room.place(wide, corners, (x, y, radius)):
            parts.append(_text(*found, "start", markup(name)))
    return parts


def _mark(mark: Point, disc: Disc) -> str:
    """Return a mark, whose colour shows the bound."""
    x, y, r = disc
    bound = mark.bound if mark.bound in BOUNDS else "unknown"
    rate = units.flop_rate_text(mark.tera) if not mark.gbytes > 0 else units.rate_text(mark.gbytes, "GB/s")
    facts = f"{units.long_time_text(mark.us)}, {rate}, {markup(bound_label(mark.bound))}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill-opacity="0.9" stroke="Canvas" stroke-width="0.6" '
        f'class="mark bound-{bound}" data-row="{mark.row}">'
        f"<title>{markup(shorten(mark.name, LONGEST))}: {facts}</title></circle>"
    )


# For notebooks and files ----------------------------------------------------------------------------------------------

MISSING = 3  # maximum number of ops that are named in a line of the caption


@dataclass(frozen=True)
class Picture:
    """A roofline: the last expression of a notebook's cell shows it."""

    svg: str
    """An ``<svg>`` element, which is valid as a file, too."""
    caption: str
    """The device, its peaks, and what is not drawn."""

    def write(self, path: str | PathLike[str]) -> None:
        """Write the picture as a file of SVG. Raise OSError if that is impossible."""
        with replacing(path) as file:
            file.write(self.svg)

    def _repr_html_(self) -> str:
        return f"<div>{self.svg}<br>{markup(self.caption)}</div>"


def roofline(table: EventTable, *, device: str | None = None) -> Picture:
    """Draw a roofline: the TFLOP/s of the ops of a table over their FLOP/B, on log axes, and the limits of the device.

    The area of a mark is proportional to its time, its colour shows its bound, and its tooltip has its numbers; the
    ops with the most time are named beside it. Roofs are drawn for memory, for the L2 if a cache bounds an op, and for
    each compute unit that the ops use: solid if measured, dashed if from the datasheet. Ops without FLOPs are in a
    strip at the left, as far below the roof of the memory as their bandwidth is.

    table: a table of key_averages().
    device: whose ops and roofs are drawn, as "cpu" or "cuda:1". None: the first GPU that worked, or the CPU.

    Returns the picture, which notebooks show: ``svg`` is its text, ``caption`` says what it is of and what is not
    drawn, and ``write(path)`` makes a file of it. Unknown peaks are left out, and none are measured. Raises TypeError
    for anything but a table.
    """
    if not isinstance(table, EventTable):
        raise TypeError(f"roofline() draws a table of key_averages(), not {type(table).__name__}")
    usual = f"{table.device_type}:0" if table.has_device else "cpu"
    named = device or next((name for name in table.peaks if name != "cpu"), usual)
    marks, without, unknown = marks_of(table, {place: us for place, _, us in timed_ops(table, named != "cpu")})
    model = str(table.peaks.get(named, {}).get("name", ""))
    peaks = known_peaks(named, model, SOURCES, table.facts.shares)
    marks, less = marks[:MOST_MARKS], [mark.row for mark in marks[MOST_MARKS:]]
    bounds = {mark.bound for mark in marks}
    roofs, slopes = roofs_of(peaks, [mark.unit for mark in marks]), slopes_of(peaks, bounds)
    svg = roofline_svg(marks, roofs, slopes).replace("</title>", f"</title>{_legend(bounds)}", 1)
    of = f" of {shorten(table.program, 40)}" if table.program else ""
    where = shorten(", ".join(filter(None, (named, model))), 80)
    lines = [f"Roofline{of} on {where} ({' and '.join(peaks) or 'unknown'} peaks)."]
    left_out = ("with neither bytes nor FLOPs", without), ("of unknown work or time", unknown), ("with less time", less)
    for what, rows in left_out:
        names = list(dict.fromkeys(shorten(table[row].key, LONGEST) for row in rows))
        more = f", and {len(names) - MISSING} more" if len(names) > MISSING else ""
        lines += [f"Not drawn, {what}: {', '.join(names[:MISSING])}{more}."] if names else []
    return Picture(svg, " ".join(lines if marks else [*lines, "No op has known work and time on this device."]))


def _legend(bounds: set[str]) -> str:
    """Return the colours of the bounds of marks, and their names at the top, for a picture outside of pages."""
    looks = {bound: look.light for bound, look in BOUNDS.items() if bound in bounds}
    parts = [f"<style>{''.join(f'.bound-{bound} {{fill: {colour}}}' for bound, colour in looks.items())}</style>"]
    for number, bound in enumerate(looks):
        x = RIGHT - 100 * (len(looks) - number)
        parts.append(f'<circle cx="{x:.1f}" cy="{TOP - 8:.1f}" r="4" class="bound-{bound}"/>')
        parts.append(_text(x + 8, TOP - 5, "start", bound_label(bound)))
    return "".join(parts)
