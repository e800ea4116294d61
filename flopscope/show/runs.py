"""The picture of ``flopscope perf compare --histogram``: the times of each test in several runs, as box plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from statistics import median
from typing import Any

from flopscope.show.plots import GREY, PLAIN, SMALL, require_matplotlib
from flopscope.support.files import replacing
from flopscope.support.safe import printable
from flopscope.support.units import long_time_text

COLOURS = ("#707070", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST = 60  # tests in a picture
BOX_INCHES, WIDTH_INCHES = 0.2, 9.0
LOG_FROM = 3.0  # ratio of the largest time to the smallest
LONGEST = 48  # characters of the name of a test
WHISKER = 1.5  # interquartile ranges beyond the quartiles, as matplotlib's

Samples = Mapping[str, Mapping[str, Sequence[float]]]


def draw_runs(path: str | PathLike[str], samples: Samples, runs: Sequence[str], margin: float) -> str:
    """Draw a box of each run's samples below each test, and return a line that says what was drawn.

    samples: µs by test and run. Times are divided by the median of the first run that has samples, so that tests of
    different lengths fit on one axis; that median stands on the right. A box spans the quartiles, with a line at the
    median, and whiskers reach the last sample within 1.5 interquartile ranges. margin: width of the shaded band.

    Raises ImportError if matplotlib is not installed, and ValueError if there are no samples or the format of the file
    is unknown.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    known = {test: {run: times for run, times in by_run.items() if times} for test, by_run in samples.items()}
    every = {test: by_run for test, by_run in known.items() if by_run}
    if not every:
        raise ValueError("the runs have no samples to draw: they were stored by an earlier version")
    drawn = dict(list(every.items())[:MOST])
    shown = [run for run in runs if any(run in by_run for by_run in drawn.values())]
    rows = len(drawn) * (len(shown) + 1)
    figure = Figure(figsize=(WIDTH_INCHES, 1.3 + BOX_INCHES * rows), layout="constrained")
    axes = figure.add_subplot()
    for place, by_run in enumerate(drawn.values()):
        _draw_test(axes, place, by_run, shown)
    low, high = axes.dataLim.intervalx
    if high > LOG_FROM * low > 0:
        _use_log_scale(axes)
    _label(axes, drawn, margin)
    _add_legend(axes, shown)
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in figure.canvas.get_supported_filetypes():
        formats = ", ".join(sorted(figure.canvas.get_supported_filetypes()))
        raise ValueError(f"--histogram {path}: the format of a picture is its suffix, one of {formats}")
    with replacing(path, "wb") as stream:
        figure.savefig(stream, format=suffix)
    left_out = len(samples) - len(drawn)
    return f"drawn: {path}, {len(drawn)} tests" + f" ({left_out} without samples or beyond {MOST})" * bool(left_out)


def _draw_test(axes: Any, place: int, by_run: Mapping[str, Sequence[float]], runs: Sequence[str]) -> None:
    from matplotlib.cbook import boxplot_stats

    base = median(next(by_run[run] for run in runs if run in by_run))
    step = 0.8 / len(runs)
    for number, run in enumerate(runs):
        if run in by_run:
            stats = boxplot_stats([time / base for time in by_run[run]], whis=WHISKER)
            colour = COLOURS[number % len(COLOURS)]
            line = {"color": colour, "linewidth": 1.2}
            axes.bxp(
                stats,
                positions=[place - 0.4 + step * (number + 0.5)],
                widths=0.75 * step,
                orientation="horizontal",
                showfliers=False,
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": f"{colour}40", "edgecolor": colour, "linewidth": 1.0},
                medianprops={"color": colour, "linewidth": 2.2},
                whiskerprops=line,
                capprops=line,
            )
    axes.annotate(
        long_time_text(base),
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=GREY,
        **PLAIN,
    )


def _use_log_scale(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _label(axes: Any, drawn: Samples, margin: float) -> None:
    axes.axvspan(1 / (1 + margin), 1 + margin, color="#000000", alpha=0.06, linewidth=0)
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(len(drawn) - 0.4, -0.6)  # the first test on top
    axes.set_yticks(range(len(drawn)))
    names = [printable(test) for test in drawn]
    axes.set_yticklabels(
        [name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}" for name in names], fontsize=SMALL, **PLAIN
    )
    axes.set_xlabel(
        f"time / median of the first run, which stands on the right (band: ± {100 * margin:g} %)", fontsize=9, **PLAIN
    )
    axes.grid(True, axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _add_legend(axes: Any, runs: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    colours = [COLOURS[number % len(COLOURS)] for number in range(len(runs))]
    boxes = [Patch(facecolor=f"{colour}40", edgecolor=colour) for colour in colours]
    columns = min(len(runs), 4)
    legend = axes.legend(
        boxes, list(runs), loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, fontsize=SMALL
    )
    for text in legend.get_texts():
        text.set(**PLAIN)
