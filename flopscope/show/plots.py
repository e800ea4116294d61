"""Plots by matplotlib, which is imported when one is drawn: a sweep, and the parts shared with other plots.

The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which people with colour blindness can
distinguish; each has its own marker, so that the plots can also be printed in grey.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.show.labels import Box, Room, arrange, boxes_of, set_title, shorten, without_tex
from flopscope.show.roofs import level_label, levels_of, memory_of
from flopscope.support import units

if TYPE_CHECKING:
    from flopscope.measuring.sweep import Sweep, SweepPoint

BOUNDS: Mapping[str, _core.Bound] = {name: _core.bounds[name] for name in sorted(_core.bounds, key="unknown".__eq__)}
"""In the order of legends: the unknown bound is last."""
LINES: tuple[Any, ...] = ("-", "--", ":", "-.")  # of dtypes
PEAK_LINES: dict[str, tuple[str, Any]] = {"measured": ("#000000", "-"), "datasheet": ("#707070", (0, (5, 3)))}
GREY = "#505050"
SHADE = 0.13
SLIDES = (0.0, 1.0, 0.5, 0.25, 0.75, 0.12, 0.37, 0.62, 0.87)  # places of a level's label along the line
SMALL = 8  # points
# Options of every text: names may contain "$" or TeX commands, which must be printed unchanged.
PLAIN: dict[str, Any] = {"parse_math": False, "usetex": False}
POINT_AREA = 34  # square points
DECADES = 30.0  # ratio of the largest value to the smallest from which an axis is logarithmic


def matplotlib_axes(rows: int = 1, **options: Any) -> Any:
    """Return the axes of a new pyplot figure. Raise ImportError naming the missing package."""
    require_matplotlib()
    from matplotlib import pyplot

    return pyplot.subplots(rows, 1, layout="constrained", **options)[1]


def require_matplotlib() -> None:
    """Raise ImportError naming the missing package if matplotlib cannot be imported."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'flopscope-profiler[plot]'") from error


# A sweep --------------------------------------------------------------------------------------------------------------


@without_tex
def plot_sweep(sweep: Sweep, ax: Any = None) -> Any:
    """Plot time, rate and share of the roofline against the working set, and return the first Axes; see Sweep.plot."""
    require_matplotlib()
    if ax is None:
        ax = matplotlib_axes(3, sharex=True, figsize=(8, 9))
    axes = list(ax.flat) if hasattr(ax, "flat") else list(ax) if isinstance(ax, (list, tuple)) else [ax]
    if len(axes) != 3:
        raise ValueError(f"a sweep needs three axes, not {len(axes)}: use plt.subplots(3, 1)")
    time_axes, rate_axes, share_axes = axes
    _, at, unit = _against(sweep)
    by_compute = _by_compute(sweep)
    rate, rate_name, scale = _rate_shown(sweep, by_compute)
    for axes_of, value, size in ((time_axes, "median", 1), (rate_axes, rate, scale), (share_axes, "pct_roofline", 1)):
        _draw_lines(axes_of, sweep, value, size)
        axes_of.set_xscale("log", base=2)
        axes_of.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
        axes_of.set_axisbelow(True)
    time_axes.set_yscale("log")
    time_axes.set_ylabel("time per call (µs)", **PLAIN)
    rate_axes.set_ylabel(rate_name, **PLAIN)
    share_axes.set_ylabel("% of the roofline", **PLAIN)
    share_axes.set_xlabel(at, **PLAIN)
    low, high = axes[0].get_xlim()
    for axes_of in axes:
        axes_of.set_xlim(low / 1.4, high * 1.4)  # room for labels and shades
    for axes_of in (rate_axes, share_axes):
        _scale(axes_of)
    levels = {
        id(time_axes): _draw_floor(time_axes, sweep),
        id(rate_axes): _draw_rates(rate_axes, sweep, by_compute, scale),
        id(share_axes): [_draw_level(share_axes, 100, "roofline", "measured")],
    }
    set_title(time_axes, _title(sweep), fontsize=11, **PLAIN)
    if unit == "B":
        from matplotlib.ticker import FuncFormatter, LogLocator

        share_axes.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
        share_axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _bytes_label(x)))
    arrange(time_axes)
    for axes_of in axes:
        _raise_top(axes_of, 1)
    rooms = {}
    for axes_of in axes:
        room = rooms[id(axes_of)] = Room(axes_of)
        _take_points(room)
        room.take(_shade(axes_of, sweep))
    _legend(time_axes, sweep, rooms[id(time_axes)])
    for axes_of in axes:
        room = rooms[id(axes_of)]
        if axes_of is time_axes:  # the legend may have changed the limits
            room.take(box for text in axes_of.texts for box in boxes_of(text))
        for line, text in levels[id(axes_of)]:
            _place_level(axes_of, room, line, text)
        if unit == "B":
            _draw_caches(axes_of, sweep, room if axes_of is share_axes else None)
    return time_axes


def _title(sweep: Sweep) -> str:
    sources = " and ".join(source for source in PEAK_LINES if source in sweep.peaks)
    where = shorten(f"{sweep.device}, {sweep.device.name}", 80)
    return f"{shorten(sweep.op, 60)} on {where}" + (f" ({sources} peaks)" if sources else "")


def _take_points(room: Room) -> None:
    """Keep labels off the points, and off the lines between them where there is another place."""
    import numpy

    ax = room.ax
    for dots in ax.collections:
        half = math.sqrt(POINT_AREA) / 2 * ax.figure.dpi / 72
        places = numpy.ma.filled(ax.transData.transform(dots.get_offsets()), math.nan)
        for x, y in places[numpy.isfinite(places).all(axis=1)]:
            room.take([(x - half, y - half, x + half, y + half)])
    room.cross(box for line in ax.lines for box in boxes_of(line))


def _against(sweep: Sweep) -> tuple[str, str, str]:
    """Return what the x axis shows: the attribute of the points, the label and the unit."""
    if all(not math.isnan(point.working_set_bytes) for point in sweep.points if point.measurement):
        return "working_set_bytes", "working set: bytes of operands and result", "B"
    if all(not math.isnan(point.elements) for point in sweep.points if point.measurement):
        return "elements", "elements of the first operand", ""
    return "", "position in the list of sizes", ""


def _xs(sweep: Sweep) -> dict[int, float]:
    """Return the x of each measured point, by id."""
    name = _against(sweep)[0]
    sizes = list(dict.fromkeys(str(point.size) for point in sweep.points))
    return {
        id(point): float(getattr(point, name) if name else 1 + sizes.index(str(point.size)))
        for point in sweep.points
        if point.measurement is not None
    }


def _by_compute(sweep: Sweep) -> bool:
    """Return whether to plot FLOP/s: compute bounds the largest size of most dtypes, or no bytes are known."""
    if all(math.isnan(m.gbytes_per_s) for m in sweep):
        return any(not math.isnan(m.tflops_per_s) for m in sweep)
    last = [points[-1].measurement for _, points in _by_dtype(sweep)]
    return 2 * sum(m is not None and m.bound == "compute" for m in last) > len(last)


def _rate_shown(sweep: Sweep, by_compute: bool) -> tuple[str, str, float]:
    """Return the attribute of the measurements to plot, its axis label and its scale."""
    if not by_compute:
        return "gbytes_per_s", "GB/s", 1
    most = max((m.tflops_per_s for m in sweep if not math.isnan(m.tflops_per_s)), default=1)
    return ("tflops_per_s", "TFLOP/s", 1) if most >= 1 else ("tflops_per_s", "GFLOP/s", 1000)


def _by_dtype(sweep: Sweep) -> list[tuple[str, list[SweepPoint]]]:
    """Return the measured points of each dtype, in order of x."""
    xs = _xs(sweep)
    points = sorted((point for point in sweep.points if id(point) in xs), key=lambda point: xs[id(point)])
    dtypes = dict.fromkeys(point.dtype for point in sweep.points)
    lines = [(dtype, [point for point in points if point.dtype == dtype]) for dtype in dtypes]
    return [(dtype, line) for dtype, line in lines if line]


def _draw_lines(axes: Any, sweep: Sweep, value: str, scale: float) -> None:
    xs = _xs(sweep)
    for number, (dtype, points) in enumerate(_by_dtype(sweep)):
        x, y = [xs[id(p)] for p in points], [scale * getattr(p.measurement, value) for p in points]
        axes.plot(x, y, LINES[number % len(LINES)], color=GREY, linewidth=1.3, label=dtype, zorder=2)
        for bound, look in BOUNDS.items():
            at = [i for i, p in enumerate(points) if p.measurement and p.measurement.bound == bound]
            if at:
                axes.scatter(
                    [x[i] for i in at], [y[i] for i in at], s=POINT_AREA, color=look.light, marker=look.marker, zorder=3
                )
    if all(math.isnan(getattr(m, value)) for m in sweep):
        hint = "unknown: pass flops=… and bytes=… to sweep()"
        axes.text(0.5, 0.5, hint, transform=axes.transAxes, ha="center", va="center", color=GREY, **PLAIN)


def _scale(axes: Any) -> None:
    """Choose a logarithmic y axis for values that differ by more than a decade and a half."""
    values = [float(y) for dots in axes.collections for _, y in dots.get_offsets() if y > 0]
    if values and max(values) > DECADES * min(values):
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 2, max(values) * 2)
    else:
        axes.set_ylim(bottom=0)


def _raise_top(axes: Any, lines: float) -> None:
    """Raise the top of the y axis by the height of that many lines of text."""
    low, high = axes.get_ylim()
    height = axes.get_window_extent().height
    share = min(lines * 1.7 * SMALL * axes.figure.dpi / 72 / height, 0.6) if height > 0 else 0.0
    if axes.get_yscale() == "log":
        axes.set_ylim(top=float(low * (high / low) ** (1 / (1 - share))))
    else:
        axes.set_ylim(top=low + (high - low) / (1 - share))


def _draw_floor(axes: Any, sweep: Sweep) -> list[tuple[Any, str]]:
    """Draw the least time that a call takes."""
    if math.isnan(sweep.floor_us):
        return []
    what = "call for one element" if sweep.device.kind == "cpu" else "shortest kernel"
    level = _draw_level(axes, sweep.floor_us, f"{what}, {sweep.floor_us:.3g} µs", "measured")
    axes.set_ylim(bottom=min(axes.get_ylim()[0], sweep.floor_us / 2))
    return [level]


def _draw_rates(axes: Any, sweep: Sweep, by_compute: bool, scale: float) -> list[tuple[Any, str]]:
    """Draw the peaks of the bandwidth, or of the compute units that did the FLOPs."""
    if by_compute:
        levels, what, size = levels_of(sweep.peaks, (m.unit for m in sweep)), "FLOP", scale / 1e12
    else:
        memory = memory_of(sweep.peaks)
        levels, what, size = [("memory", memory)] if memory else [], "B", 1e-9
    drawn = []
    for name, rates_of in levels:
        lowest, *others = sorted(rates_of, key=lambda source: rates_of[source])
        for source in (lowest, *others):
            text = "" if source == lowest and others else level_label(name, rates_of, what)
            drawn.append(_draw_level(axes, size * rates_of[source], text, source))
    return drawn


def _draw_level(axes: Any, y: float, label: str, source: str) -> tuple[Any, str]:
    """Draw a horizontal line. Return it and its label, to be placed when all lines are drawn."""
    colour, style = PEAK_LINES[source]
    line = axes.axhline(y, color=colour, linestyle=style, linewidth=1, zorder=1)
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear":
        axes.set_ylim(low, max(high, 1.2 * y))
    elif axes.get_xscale() == "log" and y > 0:
        axes.set_ylim(min(low, y / 2), max(high, 2 * y))
    return line, label


def _place_level(axes: Any, room: Room, line: Any, label: str) -> None:
    """Label a level where the label covers nothing: along the line, above it or below."""
    if not label:
        return
    y = float(line.get_ydata()[0])
    look = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": SMALL, "in_layout": False}
    text = axes.annotate(
        label, (0, y), xytext=(4, 3), color=line.get_color(), va="bottom", gid="level", **look, **PLAIN
    )
    box, inside = text.get_window_extent(), axes.get_window_extent()
    point = 72 / axes.figure.dpi
    slack = max(inside.width - 1.04 * box.width - 8 / point, 0)

    def move(place: tuple[float, int]) -> None:
        text.xyann = 4 + slack * place[0] * point, 3 - (box.height + 6 / point) * place[1] * point

    room.settle(text, [(slide, below) for below in (0, 1) for slide in SLIDES], move)


def _shade(axes: Any, sweep: Sweep) -> list[Box]:
    """Shade the ranges in which all dtypes have the same bound. Return the boxes of their labels."""
    labels = []
    xs, found = _xs(sweep), dict[float, set[str]]()
    for _, points in _by_dtype(sweep):
        for point in points:
            found.setdefault(xs[id(point)], set()).add(point.measurement.bound if point.measurement else "unknown")
    order = sorted(found)
    low, high = axes.get_xlim()
    edges = [low, *(math.sqrt(a * b) for a, b in pairwise(order)), high]
    bounds = [next(iter(found[x])) if len(found[x]) == 1 else "" for x in order]
    for bound, run in groupby(range(len(order)), key=lambda i: bounds[i]):
        places = list(run)
        begin, end = edges[places[0]], edges[places[-1] + 1]
        if bound in ("", "unknown"):
            continue
        axes.axvspan(begin, end, color=BOUNDS[bound].light, alpha=SHADE, linewidth=0, zorder=0)
        text = axes.annotate(bound, (math.sqrt(begin * end), 1), xycoords=("data", "axes fraction"), xytext=(0, -3),
                             textcoords="offset points", ha="center", va="top", fontsize=SMALL, gid="bound",
                             color=BOUNDS[bound].light, in_layout=False, **PLAIN)  # fmt: skip
        edges_of = axes.transData.transform([(begin, 1), (end, 1)])[:, 0]
        if text.get_window_extent().width > edges_of[1] - edges_of[0]:
            text.remove()
        else:
            labels += boxes_of(text)
    return labels


def _draw_caches(axes: Any, sweep: Sweep, room: Room | None) -> None:
    """Draw the sizes of the caches; with room, label them."""
    low, high = axes.get_xlim()
    look = {"textcoords": "offset points", "fontsize": SMALL, "color": GREY, "in_layout": False, "gid": "cache"}
    places = [(at, side) for side in ("right", "left") for at in (0.0, 1.0, 0.5, 0.25, 0.75)]
    for name, size in sweep.caches.items():
        if not low < size < high:
            continue
        axes.axvline(size, color=GREY, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        if room is None:
            continue
        label, at_base = shorten(f"{name} {_bytes_label(size)}", 40), ("data", "axes fraction")
        text = axes.annotate(label, (size, 0), (-2, 0), xycoords=at_base, rotation=90, **look, **PLAIN)

        def move(place: tuple[float, str], text: Any = text, size: float = size) -> None:
            at, side = place
            text.xy = (size, at)
            text.xyann = (-2 if side == "right" else 2, 4 - 8 * at)
            text.set_ha(side)
            text.set_va("bottom" if at == 0 else "top" if at == 1 else "center")

        room.settle(text, places, move)


def _bytes_label(nbytes: float) -> str:
    return units.bytes_text(nbytes).replace(".0 ", " ")


def _legend(axes: Any, sweep: Sweep, room: Room) -> None:
    """Draw the legend: dtypes by line style, bounds by marker. Where it would cover points, the axis is extended."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=GREY, linestyle=LINES[number % len(LINES)], label=shorten(dtype, 30))
        for number, (dtype, _) in enumerate(_by_dtype(sweep))
    ]
    handles += bound_handles({m.bound for m in sweep})
    columns = min(len(handles), 3)
    places = [("upper left", (0, 0.93)), ("lower right", (1, 0)), ("lower left", (0, 0)), ("upper right", (1, 0.93))]
    boxes = []
    for loc, anchor in places:
        boxes.append(boxes_of(draw_legend(axes, handles, loc=loc, bbox_to_anchor=anchor, ncols=columns)))
    costs = [max(room.costs(box)) for box in boxes]
    best = costs.index(min(costs))
    if costs[best] > 0:  # no place is free of points and lines: make one at the top
        high = boxes[0][0][3] - boxes[0][0][1]
        lines = high / (1.7 * SMALL * axes.figure.dpi / 72) + 1
        _raise_top(axes, lines)
        best = 0
        room.taken.clear()
        room.lines.clear()
        _take_points(room)
    loc, anchor = places[best]
    legend = draw_legend(axes, handles, loc=loc, bbox_to_anchor=anchor, ncols=columns)
    legend.set_in_layout(False)
    room.take(boxes_of(legend))


def draw_legend(axes: Any, handles: Sequence[Any], **place: Any) -> Any:
    legend = axes.legend(handles=handles, fontsize=SMALL, framealpha=0.9, **place)
    for text in (legend.get_title(), *legend.get_texts()):
        text.set(**PLAIN)
    return legend


def bound_handles(present: Collection[str]) -> list[Any]:
    """Return the handles of a legend of these bounds."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=look.light, marker=look.marker, linestyle="", label=bound_label(bound))
        for bound, look in BOUNDS.items()
        if bound in present
    ]


def bound_label(bound: str) -> str:
    """Return the name of a bound in legends."""
    return "bound unknown" if bound == "unknown" else f"{bound}-bound"
