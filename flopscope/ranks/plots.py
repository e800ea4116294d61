"""Pictures of many ranks: the work of each rank in each step, how late each arrives, and the links between hosts."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.ranks.findings import link_rows
from flopscope.show.plots import PLAIN, matplotlib_axes
from flopscope.support.units import plural

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks

DIVERGING = "RdBu_r"
SEQUENTIAL = "cividis"  # even in lightness, also for people with colour blindness
TICKS = 16


def plot_steps(ranks: Ranks, ax: Any = None) -> Any:
    """Draw a heat map of ranks and steps: own work beyond the median of the other ranks, in percent of a step."""
    ax = ax or matplotlib_axes(figsize=(8, 5))
    work = ranks.comparison.work
    excess = work.percent(work.excess)
    most = max(float(np.nanmax(np.abs(excess))) if np.isfinite(excess).any() else 1.0, 1.0)
    image = ax.imshow(excess, aspect="auto", cmap=DIVERGING, vmin=-most, vmax=most, interpolation="nearest")
    names = [str(name).removeprefix("ProfilerStep#") if name is not None else "whole" for name in work.steps]
    _label(ax.xaxis, "step", names)
    _label(ax.yaxis, "rank", [str(digest.rank) for digest in ranks.comparison.digests])
    title = f"{plural(len(ranks), 'rank')}: work that the others wait for"
    return _explained(ax, image, "own work beyond the others' median (% of a step)", title)


def plot_skew(ranks: Ranks, ax: Any = None) -> Any:
    """Draw how long after the first rank each rank arrives at its collectives: the median and the middle 80 % of calls,
    in µs, and the uncertainty of the clocks as a grey band."""
    ax = ax or matplotlib_axes(figsize=(8, 4))
    found = ranks.stragglers()
    late: list[list[Any]] = [[] for _ in ranks.comparison.digests]
    for group in found.matched.groups:
        after = group.start - np.nanmin(group.start, axis=1)[:, None]
        for column, member in enumerate(group.members):
            late[member].append(after[:, column])
    numbers = [digest.rank for digest in ranks.comparison.digests]
    rows = [np.concatenate(values) if values else np.empty(0) for values in late]
    quantiles = np.array(
        [np.nanquantile(row, [0.1, 0.5, 0.9]) if np.isfinite(row).any() else [np.nan] * 3 for row in rows]
    )
    ax.fill_between(numbers, 0, found.ranks["clock_uncertainty"].fillna(0), color="#C0C0C0", label="clock uncertainty")
    ax.vlines(numbers, quantiles[:, 0], quantiles[:, 2], color="#56B4E9", linewidth=2, label="middle 80% of calls")
    ax.plot(numbers, quantiles[:, 1], "o", color="#0072B2", markersize=4, label="median")
    ax.set_yscale("symlog", linthresh=10)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("rank", **PLAIN)
    ax.set_ylabel("arrival after the first rank (µs)", **PLAIN)
    ax.set_title(f"{plural(len(ranks), 'rank')}: arrival at collectives", fontsize=11, **PLAIN)
    ax.legend(loc="upper right", fontsize=8)
    ax.grid(True, axis="y", color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def plot_links(ranks: Ranks, ax: Any = None) -> Any:
    """Draw a matrix of hosts: how many times longer than equal groups the groups that contain both transfer, the least
    over those groups. Pairs of hosts in no comparable group are blank. Raises ValueError if the hosts are unknown."""
    hosts = ranks.comparison.hosts
    if not any(hosts):
        raise ValueError("the hosts of the ranks are unknown: neither file names nor traces name them")
    names = list(dict.fromkeys(map(str, hosts)))
    factor = np.full((len(names), len(names)), np.nan)
    rows = link_rows(ranks.comparison)
    for inside, slower in zip(rows["hosts"], rows["time"] / rows["best"], strict=True):
        places = [names.index(host) for host in inside]
        for a, b in permutations(places, 2) if len(places) > 1 else [places * 2]:
            factor[a, b] = np.fmin(factor[a, b], slower)
    ax = ax or matplotlib_axes(figsize=(6.5, 5.5))
    most = max(2.0, float(np.nanmax(factor)) if np.isfinite(factor).any() else 2.0)
    image = ax.imshow(factor, cmap=SEQUENTIAL, vmin=1.0, vmax=most, interpolation="nearest")
    for axis in (ax.xaxis, ax.yaxis):
        _label(axis, "host", names)
    title = f"{plural(len(names), 'host')}: links"
    return _explained(ax, image, "time of a transfer over that of equal groups", title)


def _explained(ax: Any, image: Any, scale: str, title: str) -> Any:
    """Give a heat map its colour bar and its title, and return the Axes."""
    ax.figure.colorbar(image, ax=ax).set_label(scale, **PLAIN)
    ax.set_title(title, fontsize=11, **PLAIN)
    return ax


def _label(axis: Any, what: str, names: list[str]) -> None:
    """Label an axis of a heat map, and as many of its places as fit."""
    axis.set_label_text(what, **PLAIN)
    every = max(1, -(-len(names) // TICKS))
    places = list(range(0, len(names), every))
    axis.set_ticks(places, [names[i] for i in places], fontsize=8)
