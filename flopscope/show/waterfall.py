"""The accounting as a waterfall, drawn by matplotlib: from the total time, part by part, down to the ideal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.answers.accounting import accounting_columns
from flopscope.answers.analysis import analysis_of
from flopscope.results.results import program_of
from flopscope.show.labels import arrange, message, set_title, shorten, without_tex
from flopscope.show.plots import GREY, PLAIN, SMALL, matplotlib_axes, require_matplotlib
from flopscope.support.core_facts import parts_of
from flopscope.support.safe import printable
from flopscope.support.units import TIME_UNITS, percent_text, short_time_text

if TYPE_CHECKING:
    from flopscope.results.results import Results

PAPER = "#f4f4f4"
TOTAL = ("total", "#c4c4c4", "")
ROW_HEIGHT = 0.34  # inches
LABEL_GAP = 5  # points between a bar and its label
LEAST_BARS = 0.3  # share of the axes' width that is left to the bars, whatever the labels need


Look = tuple[str, str, str]
"""Label, colour and hatch of a bar."""


def look_of(part: str, on_device: bool) -> Look:
    """Return the look of a part of the accounting: causes of idleness have no colour, only a hatch."""
    row = parts_of(on_device)[part]
    return row.label, PAPER if part in _core.idle_parts else row.light, 4 * row.hatch


def plot_accounting(results: Results, ax: Any, peaks: str | None) -> Any:
    """Draw Results.plot_accounting()."""
    analysis = analysis_of(results, "accounting", peaks)
    known = analysis.facts.peaks.values()
    names = {str(one["name"]) for one in known}
    return plot_waterfall(
        accounting_columns(analysis, alike=True),
        len(analysis.alike) if analysis.has_steps else 0,
        names.pop() if len(names) == 1 else "",
        ax,
        program=program_of(results),
        peaks=" and ".join(sorted({str(one["source"]) for one in known})),
    )


@without_tex
def plot_waterfall(
    columns: Mapping[str, Sequence[Any]],
    steps: int,
    model: str = "",
    ax: Any = None,
    *,
    program: str = "",
    peaks: str = "",
) -> Any:
    """Draw the last row of an accounting's columns, divided by the number of steps; 0: the profile has no steps.

    model: the name of the device; program: what ran; peaks: the source of the ideal; all for the title. Columns without
    time give a picture that says so.
    """
    require_matplotlib()
    if not columns["total"] or not columns["total"][-1] > 0:
        ax = matplotlib_axes(figsize=(8, 3)) if ax is None else ax
        message(ax, "Nothing to draw: no work ran in this profile", fontsize=9, color=GREY, **PLAIN)
        ax.set_xticks([])
        ax.set_yticks([])
        set_title(ax, "Accounting" + (f" of {shorten(program, 40)}" if program else ""), fontsize=11, **PLAIN)
        return ax
    whole = {name: values[-1] for name, values in columns.items()}
    per = max(steps, 1)
    looks = {name: look_of(name, whole["device"] != "cpu") for name in _core.parts}
    ideal = looks.pop("ideal")
    lost = sorted((name for name in looks if whole[name] > 0), key=lambda name: -whole[name])
    rows = [(TOTAL, 0.0, whole["total"] / per)]
    end = whole["total"]
    for name in lost:
        rows.append((looks[name], (end - whole[name]) / per, whole[name] / per))
        end -= whole[name]
    rows.append((ideal, 0.0, whole["ideal"] / per))
    if ax is None:
        ax = matplotlib_axes(figsize=(8, 1.2 + ROW_HEIGHT * len(rows)))
    labels = _draw_rows(ax, rows)
    set_title(ax, _title(whole, steps, model, program, peaks), fontsize=11, **PLAIN)
    arrange(ax)
    _make_room(ax, rows, labels)
    return ax


def _make_room(ax: Any, rows: Sequence[tuple[Look, float, float]], labels: Sequence[Any]) -> None:
    """Extend the x axis so that every label ends within it, and shrink the text to the height of a row."""
    inside, pixels = ax.get_window_extent(), ax.figure.dpi / 72
    height = 0.9 * inside.height / pixels / len(rows)
    for text in (*labels, *ax.get_yticklabels()):
        text.set_fontsize(max(min(text.get_fontsize(), height), 1.0))
    right, total = ax.get_xlim()[1], 0.0
    for (_, left, time), text in zip(rows, labels, strict=True):
        needed = (LABEL_GAP + 2) * pixels + text.get_window_extent().width
        free = max(1 - needed / inside.width, LEAST_BARS) if inside.width > 0 else 1.0
        total = max(total, (left + time) / rows[0][2] / free)
    ax.set_xlim(0, right * total)


def _draw_rows(ax: Any, rows: Sequence[tuple[Look, float, float]]) -> list[Any]:
    """Draw the bars, and return their labels."""
    labels = []
    total = rows[0][2]
    unit = next((name for name, size in TIME_UNITS.items() if total >= size), "us")
    size = TIME_UNITS[unit]
    for y, ((_, colour, hatch), left, time) in enumerate(rows):
        look = {"color": colour, "hatch": hatch, "edgecolor": GREY, "linewidth": 0.6}
        ax.barh(y, time / size, 0.72, left=left / size, zorder=2, **look)
        share = 100 * time / total
        text = f"{short_time_text(time)}  {percent_text(share) if share >= 0.05 or not time else '<0.1%'}"
        labels.append(ax.annotate(text, ((left + time) / size, y), xytext=(LABEL_GAP, 0), textcoords="offset points",
                                  va="center", fontsize=SMALL, gid="label", zorder=3, in_layout=False,
                                  **PLAIN))  # fmt: skip
        if y + 1 < len(rows):  # down to where the next bar ends
            x = (left if y else total) / size
            ax.plot([x, x], [y - 0.36 * (y > 0), y + 1.36], color=GREY, linewidth=0.6, zorder=1)
    ax.set_yticks(range(len(rows)))
    ax.set_yticklabels([label for (label, _, _), _, _ in rows], fontsize=9, **PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.4, -0.6)  # the total at the top
    ax.set_xlim(0, total / size)
    ax.set_xlabel(f"time ({unit.replace('us', 'µs')})", **PLAIN)
    ax.grid(True, axis="x", which="major", color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return labels


def _title(whole: Mapping[str, Any], steps: int, model: str, program: str, peaks: str) -> str:
    of = "a step" if steps else "the profile"
    of += f" of {shorten(program, 40)}" if program else ""
    where = ", ".join(part for part in (whole["device"] or "all devices", model) if part)
    known = [f"{name.upper()} {percent_text(whole[name])}" for name in ("mfu", "mbu") if whole[name] > 0]
    shares = f": {', '.join(known)}" if known else ""
    of_peaks = f" ({peaks} peaks)" if peaks else ""
    return printable(f"Accounting of {of} on {shorten(where, 80)}{of_peaks}{shares}")
