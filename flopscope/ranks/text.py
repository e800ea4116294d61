"""The summary of ranks as text."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from flopscope.answers.analysis import PARTS
from flopscope.ranks.stragglers import LEGEND, with_error
from flopscope.support.columns import Rows
from flopscope.support.safe import printable
from flopscope.support.units import bytes_text, percent_text, plural, short_time_text, tenths_text

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks

__all__ = ["summary_parts"]

FINDINGS = 8
RANKS = 8
HOSTS = 4
COLLECTIVES = 5


def summary_parts(ranks: Ranks) -> list[str | Rows]:
    """Return the largest finding as the first line, then the others, the step, the collectives, the ranks and hosts
    waited for, and what is left out or uncertain."""
    lines: list[str | Rows] = []
    found = ranks.findings
    lines.append(printable(ranks.verdict))
    if found:
        lines.append(printable(f"What to do: {found[0].action}"))
    lines.append("")
    for number, one in enumerate(found[1:FINDINGS], 2):
        lines.append(f"{number}. {printable(one.what)}")
    if len(found) > FINDINGS:
        lines.append(f"   and {len(found) - FINDINGS} more: Ranks.findings")
    if len(found) > 1:
        lines.append("")
    for part in (_step(ranks), _collectives(ranks), _waited_for(ranks), _hosts(ranks), ranks.notes):
        lines += [*part, ""] if part else []
    return lines


def _step(ranks: Ranks) -> list[str]:
    work = ranks._work
    if not np.isfinite(work.total).any():
        return []
    head = plural(len(ranks), "rank")
    if work.has_steps:
        lines = [f"{head}, {plural(len(work.steps), 'step')}; median over ranks and steps:"]
    else:
        lines = [f"{head}, no steps in common; median over ranks:"]
    total = work.step_time
    for part in PARTS:
        values = work.part(part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a rank may have no step
            by_rank = np.nanmedian(values, axis=1)
        middle = float(np.nanmedian(values))
        if not middle > 0 and not np.nanmax(by_rank) > 0.01 * total:
            continue
        low, high = int(np.nanargmin(by_rank)), int(np.nanargmax(by_rank))
        line = f"  {part:<14}{short_time_text(middle):>9}  {percent_text(work.percent(middle)):>6}"
        if len(ranks) > 1:
            least, most = (
                f"{short_time_text(float(by_rank[place]))} (rank {ranks._digests[place].rank})" for place in (low, high)
            )
            line += f"   from {least} to {most}"
        lines.append(line)
    after = ranks.what_if(without_stragglers=True).iloc[-1]
    if after["saving"] > 0.005 * after["total"]:
        what = "a step takes" if work.has_steps else "the program takes"
        lines.append(
            f"  Without stragglers, {what} about {short_time_text(after['after'])} instead of "
            f"{short_time_text(after['total'])} ({percent_text(100 * after['saving'] / after['total'])} less)."
        )
    return lines


def _collectives(ranks: Ranks) -> list[str | Rows]:
    frame = ranks.collectives(by_group=False)
    if not len(frame):
        return []
    header = (
        "collective",
        "from",
        "ranks",
        "calls",
        "skew, median",
        "95%",
        "transfer",
        "bus GB/s",
        "waited",
        "exposed",
    )
    rows = [
        (
            row["collective"],
            bytes_text(row["bytes_from"]),
            f"{row['groups']:,} x {row['ranks']:,}" if row["groups"] > 1 else f"{row['ranks']:,}",
            f"{row['calls']:,}",
            with_error(row["skew_median"], row["skew_uncertainty"]),
            short_time_text(row["skew_p95"]),
            short_time_text(row["transfer_median"]),
            tenths_text(row["bus_gbytes_per_s"]),
            short_time_text(row["waited"]),
            short_time_text(row["exposed"]),
        )
        for row in frame.head(COLLECTIVES).to_dict("records")
    ]
    weight = (frame["groups"] * frame["ranks"]).to_numpy(np.float64)
    waited, time = (float((frame[name].to_numpy(np.float64) * weight).sum()) for name in ("waited", "time"))
    share = percent_text(100 * waited / time if time > 0 else float("nan"))
    step = "step and rank" if ranks._work.has_steps else "rank"
    lines: list[str | Rows] = ["Collectives by size: arrival and transfer", Rows([header, *rows])]
    lines.append(f"  {share} of the time in collectives is waiting for the last rank")
    lines.append(f"  waited, exposed (nothing computed): per {step}; {LEGEND}")
    if len(frame) > COLLECTIVES:
        lines.append(f"  {COLLECTIVES} of {len(frame)} kinds and sizes: Ranks.collectives() has all, by group")
    return lines


def _waited_for(ranks: Ranks) -> list[str | Rows]:
    found = ranks.stragglers()
    if len(ranks) < 2:
        return []
    if not found.ranks["collectives"].any():
        return ["No collective could be matched across the ranks, so it is unknown who waits for whom."]
    title = "Ranks that others waited for longest" if len(ranks) > RANKS else "Ranks: who waits for whom"
    return [title, *found.rank_rows(RANKS)]


def _hosts(ranks: Ranks) -> list[str | Rows]:
    frame = ranks.hosts()
    if len(frame) < 2 or not frame["awaited"].any():
        return []
    header = ("host", "ranks", "came last", "waited", "awaited", "own work")
    rows = [
        (
            printable(row["host"]),
            f"{row['ranks']:,}",
            f"{row['times_last']:,}",
            short_time_text(row["waited"]),
            short_time_text(row["awaited"]),
            short_time_text(row["own"]),
        )
        for row in frame.head(HOSTS).to_dict("records")
    ]
    return ["Hosts that others waited for longest", Rows([header, *rows])]
