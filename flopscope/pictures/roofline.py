"""The roofline plot: the performance of ops below the limits of their device.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flopscope.pictures.scene import Point, Scene, peaks_wanted, scene_of
from flopscope.support.safe import printable
from flopscope.views.plots import (
    BOUNDS,
    PEAK_LINES,
    PLAIN,
    SMALL,
    bound_label,
    draw_legend,
    level_label,
    levels_of,
    matplotlib_axes,
    require_matplotlib,
)

if TYPE_CHECKING:
    from flopscope.hardware.peaks import Peaks

__all__ = ["roofline"]

LONGEST_NAME = 34
NAMED = 3  # maximum number of ops named per line of the caption
SMALLEST, LARGEST, EQUAL = 25.0, 400.0, 60.0  # areas of markers in square points; EQUAL without weights
MIN_SHARE = 0.002  # share of the time from which a point extends the axes
# Positions of a label relative to its point, in points (1/72 inch). The first NEAR are adjacent; others get a line.
NEAR, FAR_COSTS = 8, 0.4
PLACES = [
    (dx * far, dy * far)
    for far in (1.0, 1.8, 2.8, 4.0, 5.5, 7.0)
    for dx, dy in ((5, 0), (-5, 0), (5, 7), (5, -7), (-5, 7), (-5, -7), (0, 6), (0, -6))
]


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

    The area of a point is proportional to its share of the time; its colour and marker show its bound. Roofs are drawn
    for memory and for each compute unit that the points use: solid if measured, dashed if from the datasheet. Ops
    without FLOPs and ops of unknown work cannot be drawn on log axes: the caption counts and names them.

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
    ImportError if matplotlib is not installed, TypeError for an unsupported table, and ValueError if the table is empty
    or has no rows of the device.
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"top must be an integer of at least 0, not {top!r}")
    scene = scene_of(table, device, peaks_wanted(peaks))
    require_matplotlib()
    if ax is None:
        ax = matplotlib_axes(figsize=(9, 6.2))
    scale, unit = scene.scale
    shown = sorted((point for point in scene.points if point.on_picture), key=lambda point: -point.us)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("arithmetic intensity (FLOP/B)", **PLAIN)
    ax.set_ylabel(unit, **PLAIN)
    title = " of ".join(["Roofline", *([printable(scene.title)] if scene.title else [])])
    ax.set_title(title, fontsize=11, **PLAIN)
    ax.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    marks = [Mark(point, point.intensity, scale * point.tera, _area(point, shown, scene)) for point in shown]
    roofs = _roofs(scene, scale)
    _set_limits(ax, marks, roofs, scene.by_time)
    _draw_marks(ax, marks)
    drawn = [thing for roof in roofs for thing in _draw_roof(ax, roof)]
    legend = _draw_legend(ax, marks, scene)
    _draw_caption(ax, scene, [mark.point for mark in marks if not mark.within(ax)])
    if labels:
        _label(ax, marks, top, [*drawn, *([legend] if legend else [])])
    return ax


@dataclass(frozen=True)
class Roof:
    """A roof from one source or both: memory bandwidth (sloped) or the peak of compute units (level)."""

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
    """Return the level roofs in descending order, and the sloped one."""
    memory = {source: peaks.bandwidth for source, peaks in scene.peaks.items() if peaks.bandwidth}
    roofs = [
        Roof(name, rates, {s: rate / memory[s] for s, rate in rates.items() if s in memory}, False, scale)
        for name, rates in levels_of(scene.peaks, (point.unit for point in scene.points)) or _any_level(scene)
    ]
    if memory:
        ends = {s: max((roof.rates[s] for roof in roofs if s in roof.rates), default=math.nan) for s in memory}
        roofs.append(Roof("memory", memory, {s: ends[s] / memory[s] for s in memory}, True, scale))
    return roofs


def _any_level(scene: Scene) -> list[tuple[str, dict[str, float]]]:
    """Return the level of fp32, or of another unit, for points of unknown units."""
    known = [unit for peaks in scene.peaks.values() for unit in peaks.flops]
    unit = "fp32" if "fp32" in known else next(iter(known), None)
    rates = {
        source: peaks.flops[unit] for source, peaks in scene.peaks.items() if unit is not None and unit in peaks.flops
    }
    return [(str(unit), rates)] if rates else []


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

    def box(self, ax: Any) -> Any:
        """Return the bounding box in display coordinates."""
        from matplotlib.transforms import Bbox

        x, y = ax.transData.transform((self.x, self.y))
        half = math.sqrt(self.area) / 2 * ax.figure.dpi / 72
        return Bbox.from_extents(x - half, y - half, x + half, y + half)


def _area(point: Point, shown: list[Point], scene: Scene) -> float:
    return SMALLEST + (LARGEST - SMALLEST) * point.us / (shown[0].us or 1.0) if scene.by_time else EQUAL


def _set_limits(ax: Any, marks: list[Mark], roofs: list[Roof], by_time: bool) -> None:
    """Set the limits of the axes to show all points of relevant time, and the roofs above them with their ridge."""
    total = sum(mark.point.us for mark in marks)
    counted = [mark for mark in marks if not by_time or mark.point.us >= MIN_SHARE * total]
    xs, ys = [mark.x for mark in counted] or [0.1], [mark.y for mark in counted] or [1.0]
    levels = [roof for roof in roofs if not roof.is_memory]
    xs += [ridge for roof in levels for ridge in roof.ridges.values()]
    high = max([*ys, *(roof.height(source) for roof in levels for source in roof.rates)])
    ax.set_xlim(min(xs) / 4, max(xs) * 6)
    ax.set_ylim(min([*ys, high / 100]) / 4, high * 5)


def _draw_marks(ax: Any, marks: list[Mark]) -> None:
    for bound, (colour, marker) in BOUNDS.items():
        chosen = [mark for mark in marks if mark.point.bound == bound]
        if chosen:
            x, y = zip(*((mark.x, mark.y) for mark in chosen), strict=True)
            look: dict[str, Any] = {"color": colour, "marker": marker, "alpha": 0.75, "zorder": 4}
            areas, name = [mark.area for mark in chosen], bound_label(bound)
            ax.scatter(x, y, s=areas, label=name, edgecolors="white", linewidths=0.6, **look)


def _draw_roof(ax: Any, roof: Roof) -> list[Any]:
    """Draw the lines of a roof and a label above the highest one. Return the artists."""
    lines = []
    left, right = ax.get_xlim()
    for source in roof.rates:
        colour, style = PEAK_LINES[source]
        ridge, height = roof.ridges.get(source, math.nan), roof.height(source)
        if roof.is_memory:
            end = right if math.isnan(ridge) else ridge
            line = [left, end], [left * height, end * height]
        else:
            line = [left if math.isnan(ridge) else ridge, right], [height, height]
        lines += ax.plot(*line, color=colour, linestyle=style, linewidth=1.3, zorder=2, label=f"{roof.name} {source}")
    highest = max(roof.rates, key=roof.height)
    height, look = roof.height(highest), {"fontsize": SMALL, "color": "#303030", "va": "bottom", "ha": "right", **PLAIN}
    if not roof.is_memory:
        offset = {"xytext": (-4, 2), "textcoords": "offset points"}
        return [*lines, ax.annotate(roof.label, (right, height), **offset, **look, zorder=3)]
    ridge = roof.ridges.get(highest, math.nan)
    x = (right if math.isnan(ridge) else ridge) / 1.3
    turned = {"rotation": math.degrees(math.atan(height)), "rotation_mode": "anchor", "transform_rotates_text": True}
    return [*lines, ax.text(x, 1.12 * x * height, roof.label, **look, **turned, zorder=3)]


def _draw_legend(ax: Any, marks: list[Mark], scene: Scene) -> Any:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=bound_label(bound))
        for bound, (colour, marker) in BOUNDS.items()
        if any(mark.point.bound == bound for mark in marks)
    ]
    handles += [
        Line2D([], [], color=colour, linestyle=style, label=f"{source} peaks")
        for source, (colour, style) in PEAK_LINES.items()
        if source in scene.peaks
    ]
    return draw_legend(ax, handles, loc="lower right") if handles else None


def _draw_caption(ax: Any, scene: Scene, outside: list[Point]) -> None:
    """Draw the caption, which lists what is not shown."""
    total = sum(point.us for point in scene.points) or 1.0
    without = [point for point in scene.points if point.intensity == 0 or point.tera == 0]
    unknown = [point for point in scene.points if not point.on_picture and point not in without]
    groups = [(without, "without FLOPs"), (unknown, "of unknown work"), (outside, "beyond the axes")]
    counts = [_counted(points, what, total) for points, what in groups]
    lines = [f"Not shown: {line}" for line in (*counts, *scene.notes) if line]
    if not scene.peaks:
        lines.append("No roofs: the peaks of the device are unknown.")
    if lines:
        where = {"xycoords": "axes fraction", "xytext": (0, -38), "textcoords": "offset points"}
        look = {"ha": "left", "va": "top", "fontsize": SMALL, "color": "#505050", "gid": "caption", **PLAIN}
        ax.annotate("\n".join(lines), (0, 0), **where, **look)


def _counted(points: list[Point], what: str, total: float) -> str:
    if not points:
        return ""
    names = list(dict.fromkeys(_short(p.name) for p in sorted(points, key=lambda p: -p.us)))
    more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    share = 100 * sum(point.us for point in points) / total
    ops = "op" if len(points) == 1 else "ops"
    return f"{len(points)} {ops} {what}, {share:.2g} % of the time: {', '.join(names[:NAMED])}{more}"


def _short(name: str) -> str:
    name = printable(name.removeprefix("aten::").removeprefix("flopscope::"))
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."


def _label(ax: Any, marks: list[Mark], top: int, drawn: list[Any]) -> None:
    """Label the marks, each at the position where it overlaps least with other labels, marks and roofs."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    halo = [withStroke(linewidth=2, foreground="white")]
    layout = ax.figure.get_layout_engine()
    if layout is not None:
        layout.execute(ax.figure.figure)  # the layout moves the axes
    shown = [mark for mark in marks if mark.within(ax)]
    lines = [box for thing in drawn if hasattr(thing, "get_xdata") for box in _boxes(thing)]
    taken = [box for thing in drawn if not hasattr(thing, "get_xdata") for box in _boxes(thing)]
    taken += [mark.box(ax) for mark in shown]
    for mark in shown[:top]:
        text = ax.annotate(_short(mark.point.name), (mark.x, mark.y), xytext=(0, 0), textcoords="offset points",
                           fontsize=SMALL, zorder=5, gid="label", path_effects=halo, **PLAIN)  # fmt: skip
        radius = math.sqrt(mark.area) / 2
        wide, high = text.get_window_extent().size
        pixels = ax.figure.dpi / 72
        x, y = ax.transData.transform((mark.x, mark.y))
        tried: list[tuple[float, int, tuple[float, float]]] = []
        for dx, dy in PLACES:
            place = (dx + math.copysign(radius, dx) * bool(dx), dy + math.copysign(radius, dy) * (not dx))
            left = x + place[0] * pixels - wide * (0.5 if dx == 0 else 0.0 if dx > 0 else 1.0)
            low = y + place[1] * pixels - high * (0.5 if dy == 0 else 0.0 if dy > 0 else 1.0)
            cost = _covered(ax, Bbox.from_bounds(left, low, wide, high), taken, lines)
            tried.append((cost + FAR_COSTS * (len(tried) // NEAR), len(tried), place))
        _, number, place = min(tried)
        _place(text, place)
        taken.append(text.get_window_extent())
        if number >= NEAR:
            arrow = {"arrowstyle": "-", "color": "#909090", "linewidth": 0.5}
            ax.annotate("", (mark.x, mark.y), xytext=place, textcoords="offset points", zorder=3, arrowprops=arrow)


def _boxes(thing: Any) -> list[Any]:
    """Return the boxes that an artist covers in display coordinates; many along a sloped line or text."""
    from matplotlib.transforms import Bbox

    box = thing.get_window_extent()
    slopes = bool(getattr(thing, "get_rotation", lambda: box.height > 1 and hasattr(thing, "get_xdata"))())
    steps = 40 if slopes else 1
    wide, high = box.width / steps, box.height / steps
    corners = [(box.x0 + at * wide, box.y0 + at * high) for at in range(steps)]
    return [Bbox.from_extents(x, y, x + wide, y + max(high, 1)) for x, y in corners]


def _covered(ax: Any, box: Any, taken: list[Any], lines: list[Any]) -> float:
    """Return the cost of a text in this box: highest outside the axes, lowest for crossing a line."""
    inside = ax.get_window_extent()
    out = box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1
    crosses = any(box.overlaps(line) for line in lines)
    return 100.0 * bool(out) + 4.0 * sum(bool(box.overlaps(other)) for other in taken) + crosses


def _place(text: Any, place: tuple[float, float]) -> None:
    dx, dy = place
    text.xyann = place
    text.set_ha("center" if dx == 0 else "left" if dx > 0 else "right")
    text.set_va("center" if dy == 0 else "bottom" if dy > 0 else "top")
