"""The accounting as a waterfall, drawn by matplotlib: from the total time, part by part, down to the ideal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flopscope.support.safe import printable
from flopscope.support.units import TIME_UNITS, percent_text, short_time_text
from flopscope.views.plots import BOUNDS, GREY, PLAIN, SMALL, matplotlib_axes, require_matplotlib

__all__ = ["plot_waterfall"]

PAPER = "#f4f4f4"
YELLOW = "#F0E442"
LOOKS: Mapping[str, tuple[str, str, str]] = {  # of each part: label, colour, hatch
    "compute": ("compute, beyond ideal", BOUNDS["compute"][0], ""),
    "memory": ("memory, beyond ideal", BOUNDS["memory"][0], ""),
    "latency": ("latency, beyond ideal", BOUNDS["latency"][0], ""),
    "launch": ("launch, beyond ideal", BOUNDS["launch"][0], ""),
    "unmodelled": ("unmodelled", BOUNDS["unknown"][0], ""),
    "communication": ("communication", YELLOW, ""),
    "copy": ("copies", YELLOW, "////"),
    "host": ("idle: host late", PAPER, "////"),
    "sync": ("idle: after a wait", PAPER, "\\\\\\\\"),
    "data": ("idle: data loading", PAPER, "...."),
    "other": ("idle: other", PAPER, "xxxx"),
    "ideal": ("ideal", "#56B4E9", ""),
}
TOTAL = ("total", "#c4c4c4", "")
ROW_HEIGHT = 0.34  # inches
LABEL_ROOM = 1.24  # of the longest bar


def plot_waterfall(columns: Mapping[str, Sequence[Any]], steps: int, model: str = "", ax: Any = None) -> Any:
    """Draw the last row of an accounting's columns, divided by the number of steps; 0: the profile has no steps.

    model: the name of the device, for the title.
    """
    if not columns["total"] or not columns["total"][-1] > 0:
        raise ValueError("there is no time to draw: the profile has no work")
    require_matplotlib()
    whole = {name: values[-1] for name, values in columns.items()}
    per = max(steps, 1)
    lost = sorted((name for name in LOOKS if name != "ideal" and whole[name] > 0), key=lambda name: -whole[name])
    rows = [(TOTAL, 0.0, whole["total"] / per)]
    end = whole["total"]
    for name in lost:
        rows.append((LOOKS[name], (end - whole[name]) / per, whole[name] / per))
        end -= whole[name]
    rows.append((LOOKS["ideal"], 0.0, whole["ideal"] / per))
    if ax is None:
        ax = matplotlib_axes(figsize=(8, 1.2 + ROW_HEIGHT * len(rows)))
    _draw_rows(ax, rows)
    ax.set_title(_title(whole, steps, model), fontsize=11, **PLAIN)
    return ax


def _draw_rows(ax: Any, rows: Sequence[tuple[tuple[str, str, str], float, float]]) -> None:
    total = rows[0][2]
    unit = next((name for name, size in TIME_UNITS.items() if total >= size), "us")
    size = TIME_UNITS[unit]
    for y, ((_, colour, hatch), left, time) in enumerate(rows):
        look = {"color": colour, "hatch": hatch, "edgecolor": GREY, "linewidth": 0.6}
        ax.barh(y, time / size, 0.72, left=left / size, zorder=2, **look)
        share = 100 * time / total
        text = f"{short_time_text(time)}  {percent_text(share) if share >= 0.05 or not time else '<0.1%'}"
        ax.annotate(text, ((left + time) / size, y), xytext=(5, 0), textcoords="offset points", va="center",
                    fontsize=SMALL, gid="label", zorder=3, **PLAIN)  # fmt: skip
        if y + 1 < len(rows):  # down to where the next bar ends
            x = (left if y else total) / size
            ax.plot([x, x], [y - 0.36 * (y > 0), y + 1.36], color=GREY, linewidth=0.6, zorder=1)
    ax.set_yticks(range(len(rows)))
    ax.set_yticklabels([label for (label, _, _), _, _ in rows], fontsize=9, **PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.4, -0.6)  # the total at the top
    ax.set_xlim(0, LABEL_ROOM * total / size)
    ax.set_xlabel(f"time ({unit.replace('us', 'µs')})", **PLAIN)
    ax.grid(True, axis="x", which="major", color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _title(whole: Mapping[str, Any], steps: int, model: str) -> str:
    of = "a step" if steps else "the profile"
    where = ", ".join(part for part in (whole["device"] or "all devices", model) if part)
    known = whole["mfu"] == whole["mfu"]
    shares = f": MFU {percent_text(whole['mfu'])}, MBU {percent_text(whole['mbu'])}" if known else ""
    return printable(f"Accounting of {of} on {where}{shares}")
