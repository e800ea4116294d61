"""The roofline plot: the performance of ops below the limits of their device.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flopscope.show.labels import Room, arrange, boxes_of, message, nearest, set_title, shorten, without_tex
from flopscope.show.plots import (
    BOUNDS,
    PEAK_LINES,
    PLAIN,
    SMALL,
    bound_handles,
    bound_label,
    draw_legend,
    matplotlib_axes,
    require_matplotlib,
)
from flopscope.show.roofs import Point, level_label, roofs_of, slopes_of
from flopscope.show.scene import Scene, peaks_wanted, scene_of
from flopscope.support.suggest import suggesting
from flopscope.support.units import short_time_text

if TYPE_CHECKING:
    from flopscope.support.peaks import Peaks

LONGEST_NAME = 34
NAMED = 3  # maximum number of ops named per line of the caption
LARGEST, SMALLEST, EQUAL = 400.0, 25.0, 60.0  # areas of markers in square points; EQUAL without weights
DECADE = 10.0
MIN_SHARE = 0.002  # share of the time from which a point extends the axes
SLIDES = (0.0, 0.12, 0.25, 0.4, 0.55, 0.7, 0.85)  # positions of a roof's label along it
BOUNDS_AT = ("lower right", "lower left", "upper left", "upper right", "center right", "lower center")
SIZES_AT = ("upper left", "upper right", "lower left", "lower right", "center right", "upper center")


@without_tex
@suggesting
def roofline(
    table: Any,
    *,
    ax: Any = None,
    peaks: Literal["measured", "datasheet", "both"] | Peaks | Iterable[Peaks] = "both",
    labels: bool = True,
    top: int = 10,
    device: str | None = None,
) -> Any:
    """Draw a roofline plot: the TFLOP/s of ops over their FLOP/B, on log axes, and the limits of the device.

    The area of a point is proportional to its time, from a smallest area on, and a legend gives the times; its colour
    and marker show its bound. Roofs are drawn for memory, for the L2 if a cache bounds a point, and for each compute
    unit that the points use: solid if measured, dashed if from the datasheet. Ops without FLOPs and ops of unknown work
    cannot be drawn on log axes: the caption counts and names them. Labels cover neither each other nor points; those
    away from their point have a line to it, and the caption counts those for which there is no room.

    table: an EventTable (``key_averages()``), a Measurement, several of them, a Sweep, or a DataFrame with the columns
        arithmetic_intensity (FLOP/B) and tflops_per_s and the optional columns key, op or name; bound; unit;
        self_device_time_total or median (µs).
    ax: matplotlib Axes to draw on; None: those of a new figure.
    peaks: sources of the device's peaks to draw. Unknown peaks are omitted and none are measured. Or Peaks objects,
        such as ``fs.devices()[0].measured``. A DataFrame needs device= or Peaks objects.
    labels: name the points with the longest times.
    top: maximum number of labels.
    device: the device whose ops and roofs are drawn, as "cpu" or "cuda:1". None: the device with the longest time.

    Returns the Axes. The caption is below them; a figure with layout="constrained" makes room for it. Raises
    ImportError if matplotlib is not installed, TypeError for an unsupported table, and ValueError if there are no
    Measurements (of the device). A table without ops gives a picture that says so.
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"top must be an integer of at least 0, not {top!r}")
    scene = scene_of(table, device, peaks_wanted(peaks))
    require_matplotlib()
    if ax is None:
        ax = matplotlib_axes(figsize=(9, 6.2))
    scale, unit = scene.scale
    shown = sorted((point for point in scene.points if point.is_drawn), key=lambda point: -point.us)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("arithmetic intensity (FLOP/B)", **PLAIN)
    ax.set_ylabel(unit, **PLAIN)
    ax.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    marks = [Mark(point, point.intensity, scale * point.tera, _area(point, shown, scene)) for point in shown]
    roofs = _roofs(scene, scale)
    _set_limits(ax, marks, roofs, scene.by_time)
    _draw_marks(ax, marks)
    lines = [line for roof in roofs for line in _draw_lines(ax, roof)]
    outside = [mark.point for mark in marks if not mark.within(ax)]
    inside = [mark for mark in marks if mark.within(ax)]
    chosen = inside[:top] if labels else []
    if not inside:
        why = "no op has both known FLOPs and known bytes above 0" if scene.points else "no op has time on this device"
        message(ax, f"Nothing to draw: {why}", fontsize=9, color="#505050", **PLAIN)
    # The caption and the title change the layout, and so what fits; a label without room adds a line to the caption.
    caption = _draw_caption(ax, scene, outside, 0)
    set_title(ax, _title(scene), fontsize=11, **PLAIN)
    arrange(ax)
    unlabelled = _place(ax, inside, chosen, roofs, lines, scene)
    if unlabelled:
        caption.remove() if caption is not None else None
        _draw_caption(ax, scene, outside, unlabelled)
    return ax


@dataclass(frozen=True)
class Roof:
    """A roof from one source or both: bandwidth of memory or L2 (sloped) or the peak of compute units (level)."""

    name: str
    rates: Mapping[str, float]
    """Bytes/s or FLOP/s by source."""
    ridges: Mapping[str, float]
    """FLOP/B by source where a level meets the slope, or the slope the highest level; NaN where unknown."""
    is_memory: bool
    scale: float
    """Factor from TFLOP/s to the unit of the axis."""

    @property
    def label(self) -> str:
        return level_label(self.name, self.rates, "B" if self.is_memory else "FLOP")

    def height(self, source: str) -> float:
        """Return the height of a level, or of the slope at 1 FLOP/B."""
        return self.scale * self.rates[source] / 1e12


def _roofs(scene: Scene, scale: float) -> list[Roof]:
    """Return the level roofs in descending order, and the sloped ones."""
    roofs = [
        Roof(name, rates, ridges, False, scale)
        for name, rates, ridges in roofs_of(scene.peaks, (point.unit for point in scene.points))
    ]
    slopes = slopes_of(scene.peaks, (point.bound for point in scene.points))
    ends = {s: max((roof.rates[s] for roof in roofs if s in roof.rates), default=math.nan) for s in scene.peaks}
    for name, rates in slopes:
        roofs.append(Roof(name, rates, {source: ends[source] / rate for source, rate in rates.items()}, True, scale))
    return roofs


# Drawing --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """A drawn point: its position on the axes, and its area in square points."""

    point: Point
    x: float
    y: float
    area: float

    def within(self, ax: Any) -> bool:
        """Return whether the point is within the limits of the axes."""
        return bool(ax.get_xlim()[0] <= self.x <= ax.get_xlim()[1] and ax.get_ylim()[0] <= self.y <= ax.get_ylim()[1])

    def box(self, ax: Any) -> tuple[float, float, float, float]:
        """Return the bounding box in display coordinates."""
        x, y = ax.transData.transform((self.x, self.y))
        half = math.sqrt(self.area) / 2 * ax.figure.dpi / 72
        return (x - half, y - half, x + half, y + half)


def _area(point: Point, shown: list[Point], scene: Scene) -> float:
    return max(LARGEST * point.us / (shown[0].us or 1.0), SMALLEST) if scene.by_time else EQUAL


def _title(scene: Scene) -> str:
    """Name the program, its device, and the source of the roofs."""
    of = shorten(scene.program, 40)
    where = shorten(scene.title, 80)
    parts = ["Roofline", *([f"of {of}"] if of else []), *([f"{'on' if of else 'of'} {where}"] if where else [])]
    return " ".join(parts) + (f" ({' and '.join(scene.peaks)} peaks)" if scene.peaks else "")


def _set_limits(ax: Any, marks: list[Mark], roofs: list[Roof], by_time: bool) -> None:
    """Set the limits of the axes to show all points of relevant time, and the roofs above them with their ridge."""
    total = sum(mark.point.us for mark in marks)
    counted = [mark for mark in marks if not by_time or mark.point.us >= MIN_SHARE * total]
    xs, ys = [mark.x for mark in counted] or [0.1], [mark.y for mark in counted] or [1.0]
    for mark in marks:  # others too, if they lie at most a decade beyond
        if min(xs) / DECADE < mark.x < max(xs) * DECADE and min(ys) / DECADE < mark.y < max(ys) * DECADE:
            xs, ys = [min(*xs, mark.x), max(*xs, mark.x)], [min(*ys, mark.y), max(*ys, mark.y)]
    levels = [roof for roof in roofs if not roof.is_memory]
    xs += [ridge for roof in levels for ridge in roof.ridges.values()]
    high = max([*ys, *(roof.height(source) for roof in levels for source in roof.rates)])
    ax.set_xlim(min(xs) / 4, max(xs) * 6)
    ax.set_ylim(min([*ys, high / 100]) / 4, high * 5)


def _draw_marks(ax: Any, marks: list[Mark]) -> None:
    for bound, row in BOUNDS.items():
        chosen = [mark for mark in marks if mark.point.bound == bound]
        if chosen:
            x, y = zip(*((mark.x, mark.y) for mark in chosen), strict=True)
            look: dict[str, Any] = {"color": row.light, "marker": row.marker, "alpha": 0.75, "zorder": 4}
            areas, name = [mark.area for mark in chosen], bound_label(bound)
            ax.scatter(x, y, s=areas, label=name, edgecolors="white", linewidths=0.6, **look)


def _draw_lines(ax: Any, roof: Roof) -> list[Any]:
    """Draw the lines of a roof."""
    lines = []
    left, right = ax.get_xlim()
    for source in roof.rates:
        colour, style = PEAK_LINES[source]
        ridge, height = roof.ridges.get(source, math.nan), roof.height(source)
        if roof.is_memory:
            end = right if math.isnan(ridge) else min(ridge, right)
            line = [left, end], [left * height, end * height]
        else:
            line = [left if math.isnan(ridge) else ridge, right], [height, height]
        lines += ax.plot(*line, color=colour, linestyle=style, linewidth=1.3, zorder=2, label=f"{roof.name} {source}")
    return lines


def _place_roof_label(ax: Any, room: Room, roof: Roof) -> None:
    """Label the highest line of a roof where the label covers nothing: along it, above it or below."""
    highest = max(roof.rates, key=roof.height)
    height, (left, right) = roof.height(highest), ax.get_xlim()
    look = {"fontsize": SMALL, "color": "#303030", "gid": "roof", "zorder": 3, "in_layout": False, **PLAIN}
    ridge = roof.ridges.get(highest, math.nan)
    if roof.is_memory:
        begin, end = left, right if math.isnan(ridge) else min(ridge, right)
        look |= {"rotation": math.degrees(math.atan(height)), "rotation_mode": "anchor", "transform_rotates_text": True}
    else:
        begin, end = left if math.isnan(ridge) else max(ridge, left), right
    text = (
        ax.annotate(roof.label, (end, height), textcoords="offset points", xytext=(0, 0), ha="right", **look)
        if not roof.is_memory
        else ax.text(end, height * end, roof.label, ha="right", **look)
    )

    def move(place: tuple[float, str]) -> None:
        slide, side = place
        x = math.exp(math.log(end) - slide * (math.log(end) - math.log(begin)))
        text.set_va(side)
        if roof.is_memory:
            text.set_position((x / 1.3, (1.12 if side == "bottom" else 1 / 1.12) * x / 1.3 * height))
        else:
            text.xy = (x, height)
            text.xyann = (-4, 2 if side == "bottom" else -3)

    room.settle(text, [(slide, side) for side in ("bottom", "top") for slide in SLIDES], move)


def _legends(marks: list[Mark], scene: Scene) -> list[tuple[list[Any], str, tuple[str, ...]]]:
    """Return the legends: handles, title and places. One of bounds and peaks, one of areas."""
    from matplotlib.lines import Line2D

    handles = bound_handles({mark.point.bound for mark in marks}) + [
        Line2D([], [], color=colour, linestyle=style, label=f"{source} peaks")
        for source, (colour, style) in PEAK_LINES.items()
        if source in scene.peaks
    ]
    sizes = []
    if scene.by_time and len(marks) > 1:
        longest = max(mark.point.us for mark in marks)
        least = longest * SMALLEST / LARGEST
        for us, text in ((longest, ""), (longest / 4, ""), (least, "≤ ")):
            side = math.sqrt(max(LARGEST * us / longest, SMALLEST)) if longest else math.sqrt(SMALLEST)
            look: dict[str, Any] = {"color": "#909090", "marker": "o", "linestyle": "", "markersize": side}
            sizes.append(Line2D([], [], label=f"{text}{short_time_text(us)}", **look))
    return [(handles, "", BOUNDS_AT), (sizes, scene.time_name, SIZES_AT)]


def _place_legend(ax: Any, room: Room, handles: list[Any], title: str, places: tuple[str, ...]) -> None:
    """Draw a legend in the first place where it covers nothing; if there is none, beside the axes."""
    if not handles:
        return
    previous = ax.get_legend()
    options = {"title": title or None, "title_fontsize": SMALL, "labelspacing": 0.7 if title else 0.4}
    boxes = []
    for place in places:
        boxes.append(boxes_of(draw_legend(ax, handles, loc=place, **options)))
    best = room.first(boxes)
    if best is None:
        best = min(range(len(boxes)), key=lambda i: (room.covered(boxes[i][0]), i))
    legend = draw_legend(ax, handles, loc=places[best], **options)
    legend.set_in_layout(False)
    if previous is not None:
        ax.add_artist(previous)
    room.take(boxes[best])


def _place(ax: Any, marks: list[Mark], chosen: list[Mark], roofs: list[Roof], lines: list[Any], scene: Scene) -> int:
    """Draw legends and labels where they cover nothing. Return how many labels found no room."""
    room = Room(ax)
    room.take(mark.box(ax) for mark in marks)
    room.cross(box for line in lines for box in boxes_of(line))
    for legend in _legends(marks, scene):
        _place_legend(ax, room, *legend)
    for roof in roofs:
        _place_roof_label(ax, room, roof)
    return sum(not _place_label(ax, room, mark) for mark in chosen)


def _place_label(ax: Any, room: Room, mark: Mark) -> bool:
    from matplotlib.patheffects import withStroke

    look = {"fontsize": SMALL, "zorder": 5, "gid": "label", "in_layout": False, **PLAIN}
    look["path_effects"] = [withStroke(linewidth=2, foreground="white")]
    text = ax.annotate(
        _short(mark.point.name), (mark.x, mark.y), (0, 0), textcoords="offset points", ha="center", va="center", **look
    )
    x, y = ax.transData.transform((mark.x, mark.y))
    pixels = ax.figure.dpi / 72
    radius = math.sqrt(mark.area) / 2 * pixels
    found = room.around(x, y, radius, tuple(text.get_window_extent().size))
    if found is None:
        text.remove()
        return False
    box, led = found
    text.xyann = ((box[0] + box[2]) / 2 - x) / pixels, ((box[1] + box[3]) / 2 - y) / pixels
    room.take([box])
    if led:
        end = nearest(x, y, box)
        place = (end[0] - x) / pixels, (end[1] - y) / pixels
        arrow = {"arrowstyle": "-", "color": "#808080", "linewidth": 0.6, "shrinkA": 0, "shrinkB": radius / pixels}
        ax.annotate("", (mark.x, mark.y), xytext=place, textcoords="offset points", zorder=3, arrowprops=arrow,
                    gid="leader", in_layout=False)  # fmt: skip
    return True


def _draw_caption(ax: Any, scene: Scene, outside: list[Point], unlabelled: int) -> Any:
    """Draw the caption, which lists what is not shown."""
    total = sum(point.us for point in scene.points) or 1.0
    without = [point for point in scene.points if point.intensity == 0 or point.tera == 0]
    unknown = [point for point in scene.points if not point.is_drawn and point not in without]
    groups = [(without, "without FLOPs"), (unknown, "of unknown work"), (outside, "beyond the axes")]
    counts = [_counted(points, what, total) for points, what in groups]
    lines = [f"Not shown: {line}" for line in (*counts, *scene.notes) if line]
    if unlabelled:
        lines.append(f"Not labelled, for lack of room: {unlabelled} of the points")
    if not scene.peaks:
        lines.append("No roofs: the peaks are unknown.")
    if not lines:
        return None
    where = {"xycoords": "axes fraction", "xytext": (0, -38), "textcoords": "offset points"}
    look = {"ha": "left", "va": "top", "fontsize": SMALL, "color": "#505050", "gid": "caption", **PLAIN}
    text = ax.annotate("\n".join(lines), (0, 0), **where, **look)
    wide, room = text.get_window_extent().width, ax.get_window_extent().width
    if wide > room > 0:
        fits = max(int(max(map(len, lines)) * room / wide), 20)
        text.set_text("\n".join(part for line in lines for part in textwrap.wrap(line, fits, subsequent_indent="    ")))
    return text


def _counted(points: list[Point], what: str, total: float) -> str:
    if not points:
        return ""
    names = list(dict.fromkeys(_short(p.name) for p in sorted(points, key=lambda p: -p.us)))
    more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    share = 100 * sum(point.us for point in points) / total
    ops = "op" if len(points) == 1 else "ops"
    return f"{len(points)} {ops} {what}, {share:.2g} % of the time: {', '.join(names[:NAMED])}{more}"


def _short(name: str) -> str:
    return shorten(name.removeprefix("aten::").removeprefix("flopscope::"), LONGEST_NAME)
