"""The picture of a sweep by matplotlib, which is imported when one is drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from flopscope.measuring.sweep import Sweep, SweepPoint
from flopscope.show.looks import BOUNDS, bound_label
from flopscope.show.roofs import level_label, levels_of, memory_of
from flopscope.support.safe import shorten

LINES: tuple[Any, ...] = ("-", "--", ":", "-.")  # of dtypes
PEAK_LINES: dict[str, tuple[str, Any]] = {"measured": ("#000000", "-"), "datasheet": ("#707070", (0, (5, 3)))}
GREY, PALE = "#505050", "#e4e4e4"
# Options of every text: names may contain "$" or TeX commands, which must be printed unchanged.
PLAIN: dict[str, Any] = {"parse_math": False, "usetex": False}
TITLE_WIDTH = 80  # characters of a line
AREA = 34.0  # of a marker in square points


def plot_sweep(sweep: Sweep, ax: Any = None) -> Any:
    """Plot the rate of a sweep against the working set, and return the Axes; see Sweep.plot."""
    try:
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'flopscope-profiler[plot]'") from error
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(layout="constrained", figsize=(8, 5))[1]
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
    title = f"{shorten(sweep.op, 60)} on {shorten(f'{sweep.device}, {sweep.device.name}', 80)}"
    ax.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize=11, **PLAIN)
    present = {m.bound for m in sweep}
    bounds = [(look, bound_label(bound)) for bound, look in BOUNDS.items() if bound in present]
    handles = [Line2D([], [], color=of.light, marker=of.marker, linestyle="", label=label) for of, label in bounds]
    if handles := [*ax.get_lines(), *handles]:
        for text in ax.legend(handles=handles, loc="best", fontsize=8, framealpha=0.9).get_texts():
            text.set(**PLAIN)
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
        ax.scatter([at], [value], s=AREA, color=look.light, marker=look.marker, zorder=3)


def _draw_peaks(ax: Any, sweep: Sweep, by_compute: bool) -> None:
    """Draw the peaks of the bandwidth, or of the compute units that did the FLOPs."""
    memory = memory_of(sweep.peaks)
    levels = levels_of(sweep.peaks, (m.unit for m in sweep)) if by_compute else [("memory", memory)] if memory else []
    for name, rates in levels:
        for source, rate in rates.items():
            colour, style = PEAK_LINES[source]
            text = level_label(name, {source: rate}, "FLOP" if by_compute else "B")
            ax.axhline(rate / (1e12 if by_compute else 1e9), color=colour, linestyle=style, linewidth=1, label=text)
