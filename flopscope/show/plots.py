"""Pictures by matplotlib, which is imported when one is drawn: the roofline, the accounting, and a sweep.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from flopscope import _core
from flopscope.answers.accounting import ALL_KNOWN, SHARES, Known, accounting_columns, known_shares
from flopscope.answers.analysis import analysis_of
from flopscope.measuring.sweep import Sweep, SweepPoint
from flopscope.results.results import Results
from flopscope.results.table_facts import Facts
from flopscope.show.looks import BOUNDS, bound_label
from flopscope.show.roofs import Point, Scene, level_label, levels_of, memory_of, roofs_of, scene_of, slopes_of
from flopscope.support.core_facts import parts_of
from flopscope.support.peaks import Peaks
from flopscope.support.safe import printable, shorten
from flopscope.support.units import TIME_UNITS, percent_text, short_time_text

LINES: tuple[Any, ...] = ("-", "--", ":", "-.")  # of dtypes
PEAK_LINES: dict[str, tuple[str, Any]] = {"measured": ("#000000", "-"), "datasheet": ("#707070", (0, (5, 3)))}
GREY, PALE = "#505050", "#e4e4e4"
SMALL = 8  # points
# Options of every text: names may contain "$" or TeX commands, which must be printed unchanged.
PLAIN: dict[str, Any] = {"parse_math": False, "usetex": False}
TITLE_WIDTH, CAPTION_WIDTH = 80, 120  # characters of a line
LONGEST_NAME = 34
NAMED = 3  # maximum number of ops named per line of the caption
LARGEST, SMALLEST, EQUAL = 400.0, 25.0, 60.0  # areas of markers in square points; EQUAL without weights
DECADE = 10.0
MIN_SHARE = 0.002  # share of the time from which a point extends the axes
ROW_HEIGHT = 0.34  # inches of a bar of the accounting
LABEL_ROOM = 1.3  # width of the accounting's axes, of the total's: the labels need the rest


def matplotlib_axes(ax: Any = None, **options: Any) -> Any:
    """Return the axes, of a new pyplot figure if they are None. Raise ImportError naming the missing package."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'flopscope-profiler[plot]'") from error
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(layout="constrained", **options)[1]
    return ax


def _set_title(ax: Any, text: str) -> None:
    ax.set_title(textwrap.fill(shorten(text, 2 * TITLE_WIDTH), TITLE_WIDTH), fontsize=11, **PLAIN)


def _message(ax: Any, text: str) -> None:
    """Write a text that says why there is nothing to draw, in the middle of the axes."""
    look = {"ha": "center", "va": "center", "fontsize": 9, "color": GREY, "gid": "message", **PLAIN}
    ax.text(0.5, 0.5, textwrap.fill(text, 60), transform=ax.transAxes, **look)


def _draw_legend(ax: Any, handles: Sequence[Any]) -> None:
    if handles:
        for text in ax.legend(handles=handles, loc="best", fontsize=SMALL, framealpha=0.9).get_texts():
            text.set(**PLAIN)


def _bound_handles(present: Iterable[str]) -> list[Any]:
    """Return the handles of a legend of these bounds."""
    from matplotlib.lines import Line2D

    shown = set(present)
    looks = [(look, bound_label(bound)) for bound, look in BOUNDS.items() if bound in shown]
    return [Line2D([], [], color=of.light, marker=of.marker, linestyle="", label=label) for of, label in looks]


# Roofline -------------------------------------------------------------------------------------------------------------


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

    The area of a point is proportional to its time, from a smallest area on; its colour and marker show its bound.
    Roofs are drawn for memory, for the L2 if a cache bounds a point, and for each compute unit that the points use:
    solid if measured, dashed if from the datasheet. Ops without FLOPs and ops of unknown work cannot be drawn on log
    axes: the caption counts and names them.

    table: an EventTable (``key_averages()``), a Measurement, several of them, or a Sweep.
    ax: matplotlib Axes to draw on; None: those of a new figure.
    peaks: sources of the device's peaks to draw. Unknown peaks are omitted and none are measured. Or Peaks objects,
        such as ``fs.devices()[0].measured``.
    labels: name the points with the longest times, but for names that would cover that of a point with more time.
    top: maximum number of labels.
    device: the device whose ops and roofs are drawn, as "cpu" or "cuda:1". None: the device with the longest time.

    Returns the Axes. The caption is below them; a figure with layout="constrained" makes room for it. Raises
    ImportError if matplotlib is not installed, TypeError for an unsupported table, and ValueError if there are no
    Measurements (of the device). A table without ops gives a picture that says so.
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"top must be an integer of at least 0, not {top!r}")
    scene = scene_of(table, device, peaks)
    ax = matplotlib_axes(ax, figsize=(9, 6.2))
    scale, unit = scene.scale
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("arithmetic intensity (FLOP/B)", **PLAIN)
    ax.set_ylabel(unit, **PLAIN)
    ax.grid(True, which="major", color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    marks = sorted((point for point in scene.points if point.is_drawn), key=lambda point: -point.us)
    _set_limits(ax, marks, scene, scale)
    _draw_marks(ax, marks, scene, scale)
    roofs = _draw_roofs(ax, scene, scale)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    inside = [mark for mark in marks if left <= mark.intensity <= right and low <= scale * mark.tera <= high]
    if not inside:
        why = "no op has both known FLOPs and known bytes above 0" if scene.points else "no op has time on this device"
        _message(ax, f"Nothing to draw: {why}")
    _draw_caption(ax, scene, [mark for mark in marks if mark not in inside])
    _set_title(ax, _roofline_title(scene))
    _draw_legend(ax, [*_bound_handles(mark.bound for mark in marks), *_peak_handles(scene.peaks)])
    _label(ax, inside, roofs, scale, top if labels else 0)
    return ax


def _roofline_title(scene: Scene) -> str:
    """Name the program, its device, and the source of the roofs."""
    of = shorten(scene.program, 40)
    where = shorten(", ".join(filter(None, (scene.device, scene.model))), 80)
    parts = ["Roofline", *([f"of {of}"] if of else []), *([f"{'on' if of else 'of'} {where}"] if where else [])]
    return " ".join(parts) + (f" ({' and '.join(scene.peaks)} peaks)" if scene.peaks else "")


def _set_limits(ax: Any, marks: Sequence[Point], scene: Scene, scale: float) -> None:
    """Set the limits of the axes to show all points of relevant time, and the roofs above them with their ridge."""
    total = sum(mark.us for mark in marks)
    places = [(mark.intensity, scale * mark.tera, mark.us) for mark in marks]
    counted = [(x, y) for x, y, us in places if not scene.by_time or us >= MIN_SHARE * total] or [(0.1, 1.0)]
    xs, ys = [x for x, _ in counted], [y for _, y in counted]
    for x, y, _ in places:  # others too, if they lie at most a decade beyond
        if min(xs) / DECADE < x < max(xs) * DECADE and min(ys) / DECADE < y < max(ys) * DECADE:
            xs.append(x)
            ys.append(y)
    levels = roofs_of(scene.peaks, (point.unit for point in scene.points))
    xs += [ridge for _, _, ridges in levels for ridge in ridges.values()]
    high = max([*ys, *(scale * rate / 1e12 for _, rates, _ in levels for rate in rates.values())])
    ax.set_xlim(min(xs) / 4, max(xs) * 6)
    ax.set_ylim(min([*ys, high / 100]) / 4, high * 5)


def _draw_marks(ax: Any, marks: Sequence[Point], scene: Scene, scale: float) -> None:
    longest = marks[0].us or 1.0 if marks else 1.0
    for bound, look in BOUNDS.items():
        chosen = [mark for mark in marks if mark.bound == bound]
        if chosen:
            areas = [max(LARGEST * mark.us / longest, SMALLEST) if scene.by_time else EQUAL for mark in chosen]
            x, y = [mark.intensity for mark in chosen], [scale * mark.tera for mark in chosen]
            ax.scatter(x, y, s=areas, color=look.light, marker=look.marker, alpha=0.75, zorder=4,
                       edgecolors="white", linewidths=0.6)  # fmt: skip


def _draw_roofs(ax: Any, scene: Scene, scale: float) -> list[Any]:
    """Draw the levels of the compute units and the slopes of the memories, each source a line. Return their names."""
    texts = []
    levels = roofs_of(scene.peaks, (point.unit for point in scene.points))
    left, right = ax.get_xlim()
    look = {"fontsize": SMALL, "color": "#303030", "gid": "roof", "zorder": 3, "in_layout": False, **PLAIN}
    for name, rates, ridges in levels:
        for source, rate in rates.items():
            height = scale * rate / 1e12
            _draw_line(ax, [ridges.get(source, left), right], [height, height], f"{name} {source}", source)
        text, top = level_label(name, rates, "FLOP"), scale * max(rates.values()) / 1e12
        where = {"xytext": (-4, 2), "textcoords": "offset points", "ha": "right", "va": "bottom"}
        texts.append(ax.annotate(text, (right, top), **where, **look))
    for name, rates in slopes_of(scene.peaks, (point.bound for point in scene.points)):
        for source, rate in rates.items():
            highest = max((level[source] for _, level, _ in levels if source in level), default=math.nan)
            end, slope = min(right, highest / rate), scale * rate / 1e12
            _draw_line(ax, [left, end], [left * slope, end * slope], f"{name} {source}", source)
        slope = scale * max(rates.values()) / 1e12
        x = math.sqrt(max(left, ax.get_ylim()[0] / slope) * end)
        turned = {"rotation": math.degrees(math.atan(slope)), "rotation_mode": "anchor", "transform_rotates_text": True}
        texts.append(ax.text(x, 1.2 * x * slope, level_label(name, rates, "B"), va="bottom", **turned, **look))
    return texts


def _draw_line(ax: Any, xs: list[float], ys: list[float], label: str, source: str) -> None:
    colour, style = PEAK_LINES[source]
    ax.plot(xs, ys, color=colour, linestyle=style, linewidth=1.3, zorder=2, label=label)


def _peak_handles(sources: Iterable[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    shown = {source: look for source, look in PEAK_LINES.items() if source in sources}
    return [Line2D([], [], color=c, linestyle=style, label=f"{name} peaks") for name, (c, style) in shown.items()]


ALONG = [(-4 - 110 * i, up) for i in range(4) for up in (2, -11)]  # points from the end of a level to its name
LARGE = 6.0  # px: radius of marks that no name may cover


def _label(ax: Any, marks: Sequence[Point], roofs: Sequence[Any], scale: float, top: int) -> None:
    """Place the names of the roofs, and of the first marks beside them, where they cover nothing, or remove them."""
    from matplotlib.transforms import Bbox

    legend, longest = ax.get_legend(), marks[0].us if marks else 0.0
    taken = [legend.get_window_extent()] if legend is not None else []
    discs = []
    for mark in marks:
        area = LARGEST * mark.us / longest if longest > 0 else 0.0
        x, y = ax.transData.transform((mark.intensity, scale * mark.tera))
        discs.append((x, y, math.sqrt(area) / 2 * ax.figure.dpi / 72))
    large = [Bbox.from_extents(x - r, y - r, x + r, y + r) for x, y, r in discs if r >= LARGE]

    def place(text: Any, offsets: Sequence[tuple[float, float]], own: Any = None) -> None:
        for x, y in offsets:
            text.xyann = (x, y)
            text.set_ha("right" if x < 0 else "left")
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in (*taken, *large) if own is None or other.bounds != own.bounds):
                taken.append(box)
                return
        text.remove()

    for text in roofs:
        if text.get_rotation() == 0:
            place(text, ALONG)
            continue
        (x0, y0), (x1, y1) = text.get_window_extent().get_points()
        xs, ys = ([low + (high - low) * i / 8 for i in range(9)] for low, high in ((x0, x1), (y0, y1)))
        taken += [Bbox.from_extents(xs[i], ys[i], xs[i + 1], ys[i + 1]) for i in range(8)]  # along the slope
    for mark, (x, y, r) in list(zip(marks, discs, strict=True))[:top]:
        at, name = (mark.intensity, scale * mark.tera), _short(mark.name)
        look = {"textcoords": "offset points", "fontsize": SMALL, "zorder": 5, "gid": "label", "in_layout": False}
        apart = r * 72 / ax.figure.dpi + 3
        text = ax.annotate(name, at, (apart, 0), **look, **PLAIN)
        beside = [(side * apart, up) for side in (1, -1) for up in (5, -3, -12)]
        place(text, beside, Bbox.from_extents(x - r, y - r, x + r, y + r))


def _draw_caption(ax: Any, scene: Scene, outside: list[Point]) -> None:
    """Draw the caption, which lists what is not shown."""
    total = sum(point.us for point in scene.points) or 1.0
    without = [point for point in scene.points if point.intensity == 0 or point.tera == 0]
    unknown = [point for point in scene.points if not point.is_drawn and point not in without]
    groups = [(without, "without FLOPs"), (unknown, "of unknown work"), (outside, "beyond the axes")]
    counts = [_counted(points, what, total) for points, what in groups]
    lines = [f"Not shown: {line}" for line in (*counts, *scene.notes) if line]
    if not scene.peaks:
        lines.append("No roofs: the peaks are unknown.")
    if lines:
        shown = "\n".join(textwrap.fill(line, CAPTION_WIDTH, subsequent_indent="    ") for line in lines)
        where = {"xycoords": "axes fraction", "xytext": (0, -38), "textcoords": "offset points"}
        look = {"ha": "left", "va": "top", "fontsize": SMALL, "color": GREY, "gid": "caption", **PLAIN}
        ax.annotate(shown, (0, 0), **where, **look)


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


# Accounting -----------------------------------------------------------------------------------------------------------


_NO_FACTS = Facts()


def plot_accounting(results: Results, ax: Any, peaks: str | None) -> Any:
    """Draw Results.plot_accounting()."""
    analysis = analysis_of(results, "accounting", peaks)
    columns, steps = accounting_columns(analysis, alike=True), len(analysis.alike) if analysis.has_steps else 0
    return plot_waterfall(columns, steps, analysis.facts, ax, analysis.once(known_shares))


def plot_waterfall(
    columns: Mapping[str, Sequence[Any]], steps: int, facts: Facts = _NO_FACTS, ax: Any = None, work: Known = ALL_KNOWN
) -> Any:
    """Draw the last row of an accounting's columns, divided by the number of steps; 0: the profile has no steps.

    facts: for the title, what ran and its peaks; work: how much of it is known. Columns without time give a picture
    that says so.
    """
    if not columns["total"] or not columns["total"][-1] > 0:
        ax = matplotlib_axes(ax, figsize=(8, 3))
        _message(ax, "Nothing to draw: no work ran in this profile")
        ax.set_xticks([])
        ax.set_yticks([])
        _set_title(ax, "Accounting" + (f" of {shorten(facts.program, 40)}" if facts.program else ""))
        return ax
    whole = {name: values[-1] for name, values in columns.items()}
    parts = {part: whole[part] for part in _core.parts if whole[part] > 0 and part != "ideal"}
    lost = sorted(parts, key=lambda part: -parts[part])
    ax = matplotlib_axes(ax, figsize=(8, 1.2 + ROW_HEIGHT * (len(lost) + 2)))
    _draw_bars(ax, [*lost, "ideal"], whole, max(steps, 1))
    _set_title(ax, _accounting_title(whole, steps, facts, work.bounds(whole)))
    return ax


def _draw_bars(ax: Any, shown: Sequence[str], whole: Mapping[str, Any], per: int) -> None:
    """Draw a bar of the total, and below it one for each part, which begins where what is left then ends."""
    looks = parts_of(whole["device"] != "cpu")
    end = total = whole["total"] / per
    unit, size = next(((name, size) for name, size in TIME_UNITS.items() if total >= size), ("us", TIME_UNITS["us"]))
    rows = [("total", "#c4c4c4", "", 0.0, total)]
    for part in shown:
        time = whole[part] / per
        look = looks[part]
        rows.append((look.label, look.light, 4 * look.hatch, end - time if part != "ideal" else 0.0, time))
        end -= time
    for y, (_, colour, hatch, left, time) in enumerate(rows):
        ax.barh(y, time / size, 0.72, left=left / size, color=colour, hatch=hatch, edgecolor=GREY, linewidth=0.6)
        share = 100 * time / total
        text = f"{short_time_text(time)}  {percent_text(share) if share >= 0.05 or not time else '<0.1%'}"
        ax.annotate(text, ((left + time) / size, y), xytext=(5, 0), textcoords="offset points", va="center",
                    fontsize=SMALL, gid="label", in_layout=False, **PLAIN)  # fmt: skip
    ax.set_yticks(range(len(rows)))
    ax.set_yticklabels([label for label, *_ in rows], fontsize=9, **PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.4, -0.6)  # the total at the top
    ax.set_xlim(0, LABEL_ROOM * total / size)
    ax.set_xlabel(f"time ({unit.replace('us', 'µs')})", **PLAIN)
    ax.grid(True, axis="x", which="major", color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _accounting_title(whole: Mapping[str, Any], steps: int, facts: Facts, bounds: Mapping[str, str | None]) -> str:
    of = "a step" if steps else "the profile"
    of += f" of {shorten(facts.program, 40)}" if facts.program else ""
    models, sources = ({str(peaks[key]) for peaks in facts.peaks.values()} for key in ("name", "source"))
    where = ", ".join(filter(None, [whole["device"] or "all devices", *(models if len(models) == 1 else ())]))
    known = [f"{name.upper()} {bounds[name]}{percent_text(whole[name])}" for name in SHARES if bounds[name] is not None]
    shares = f": {', '.join(known)}" if known else ""
    of_peaks = f" ({' and '.join(sorted(sources))} peaks)" if sources else ""
    return printable(f"Accounting of {of} on {shorten(where, 80)}{of_peaks}{shares}")


# A sweep --------------------------------------------------------------------------------------------------------------


def plot_sweep(sweep: Sweep, ax: Any = None) -> Any:
    """Plot the rate of a sweep against the working set, and return the Axes; see Sweep.plot."""
    ax = matplotlib_axes(ax, figsize=(8, 5))
    points = [point for point in sweep.points if point.measurement is not None]
    attribute, label, by_compute = _rate_shown(points)
    place, x_label = _against(points)
    points.sort(key=place)
    for number, dtype in enumerate(dict.fromkeys(point.dtype for point in sweep.points)):
        line = [(place(point), point.measurement) for point in points if point.dtype == dtype]
        _draw_dtype(ax, line, attribute, LINES[number % len(LINES)], dtype)
    if attribute != "median":
        _draw_peaks(ax, sweep, by_compute)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel(x_label, **PLAIN)
    ax.set_ylabel(label, **PLAIN)
    ax.grid(True, which="major", color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    _set_title(ax, f"{shorten(sweep.op, 60)} on {shorten(f'{sweep.device}, {sweep.device.name}', 80)}")
    _draw_legend(ax, [*ax.get_lines(), *_bound_handles(m.bound for m in sweep)])
    return ax


def _rate_shown(points: Sequence[SweepPoint]) -> tuple[str, str, bool]:
    """Return the attribute of the measurements to plot, its axis label, and whether it is a rate of compute.

    FLOP/s are shown where compute bounds the largest size of most dtypes, or where no bytes are known; times where
    neither is.
    """
    pairs = [(point.dtype, point.measurement) for point in points if point.measurement is not None]
    found, last = [measured for _, measured in pairs], list(dict(pairs).values())
    no_bytes = all(math.isnan(m.gbytes_per_s) for m in found)
    by_compute = no_bytes or 2 * sum(m.bound == "compute" for m in last) > len(last)
    if by_compute and not all(math.isnan(m.tflops_per_s) for m in found):
        return "tflops_per_s", "TFLOP/s", True
    return ("median", "time per call (µs)", False) if no_bytes else ("gbytes_per_s", "GB/s", False)


def _against(points: Sequence[SweepPoint]) -> tuple[Callable[[SweepPoint], float], str]:
    """Return the place of a point on the x axis, and the axis' label."""
    if all(not math.isnan(point.working_set_bytes) for point in points):
        return lambda point: point.working_set_bytes, "working set: bytes of operands and result"
    if all(not math.isnan(point.elements) for point in points):
        return lambda point: point.elements, "elements of the first operand"
    sizes = list(dict.fromkeys(str(point.size) for point in points))
    return lambda point: 1.0 + sizes.index(str(point.size)), "position in the list of sizes"


def _draw_dtype(ax: Any, line: Sequence[tuple[float, Any]], attribute: str, style: str, dtype: str) -> None:
    """Draw the line of a dtype, and its points in the colours and markers of their bounds."""
    x, y = [x for x, _ in line], [getattr(m, attribute) for _, m in line]
    ax.plot(x, y, style, color=GREY, linewidth=1.3, label=shorten(dtype, 30), zorder=2)
    for at, value, (_, m) in zip(x, y, line, strict=True):
        look = BOUNDS[m.bound]
        ax.scatter([at], [value], s=SMALLEST + 9, color=look.light, marker=look.marker, zorder=3)


def _draw_peaks(ax: Any, sweep: Sweep, by_compute: bool) -> None:
    """Draw the peaks of the bandwidth, or of the compute units that did the FLOPs."""
    memory = memory_of(sweep.peaks)
    levels = levels_of(sweep.peaks, (m.unit for m in sweep)) if by_compute else [("memory", memory)] if memory else []
    for name, rates in levels:
        for source, rate in rates.items():
            colour, style = PEAK_LINES[source]
            text = level_label(name, {source: rate}, "FLOP" if by_compute else "B")
            ax.axhline(rate / (1e12 if by_compute else 1e9), color=colour, linestyle=style, linewidth=1, label=text)
