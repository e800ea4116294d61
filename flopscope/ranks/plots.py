"""A picture of many ranks: the work of each rank in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.show.plots import PLAIN, matplotlib_axes
from flopscope.support.units import plural

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks

DIVERGING = "RdBu_r"
TICKS = 16


def plot_steps(ranks: Ranks, ax: Any = None) -> Any:
    """Draw a heat map of ranks and steps: own work beyond the median of the other ranks, in percent of a step."""
    ax = ax or matplotlib_axes(figsize=(8, 5))
    work = ranks.comparison.work
    excess = work.percent(work.excess)
    most = max(float(np.nanmax(np.abs(excess))) if np.isfinite(excess).any() else 1.0, 1.0)
    image = ax.imshow(excess, aspect="auto", cmap=DIVERGING, vmin=-most, vmax=most, interpolation="nearest")
    steps = [str(name).removeprefix("ProfilerStep#") if name is not None else "whole" for name in work.steps]
    numbers = [str(digest.rank) for digest in ranks.comparison.digests]
    for axis, what, names in ((ax.xaxis, "step", steps), (ax.yaxis, "rank", numbers)):
        axis.set_label_text(what, **PLAIN)
        places = range(0, len(names), max(1, -(-len(names) // TICKS)))  # as many as fit
        axis.set_ticks(list(places), [names[place] for place in places], fontsize=8)
    ax.figure.colorbar(image, ax=ax).set_label("own work beyond the others' median (% of a step)", **PLAIN)
    ax.set_title(f"{plural(len(ranks), 'rank')}: work that the others wait for", fontsize=11, **PLAIN)
    return ax
