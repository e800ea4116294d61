"""The summary of ranks as text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from flopscope.answers.analysis import PARTS
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, short_time_text

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks

__all__ = ["summary_text"]

WIDTH = 100
FINDINGS = 8
RANKS = 8
UNCERTAIN = 5.0  # µs of a clock, from which it is worth a line


def summary_text(ranks: Ranks) -> str:
    """Return the largest finding as the first line, then the others, the step, the ranks waited for and the clocks."""
    lines: list[str] = []
    found = ranks.findings
    if found:
        lines += textwrap.wrap(printable(found[0].what), WIDTH)
    else:
        lines.append("No rank, link or step stands out.")
    lines.append("")
    for number, one in enumerate(found[1:FINDINGS], 2):
        lines += textwrap.wrap(printable(one.what), WIDTH, initial_indent=f"{number}. ", subsequent_indent="   ")
    if len(found) > FINDINGS:
        lines.append(f"   and {len(found) - FINDINGS} more: Ranks.findings")
    if len(found) > 1:
        lines.append("")
    lines += _step(ranks)
    lines += _waited_for(ranks)
    lines += _clocks(ranks)
    lines += _files(ranks)
    return "\n".join(lines).rstrip() + "\n"


def _step(ranks: Ranks) -> list[str]:
    work = ranks._work
    if not np.isfinite(work.total).any():
        return []
    count = 0 if work.steps == [None] else len(work.steps)
    head = f"{len(ranks):,} ranks, {count:,} steps" if count else f"{len(ranks):,} ranks, no steps marked"
    lines = [f"{head}; median over ranks and steps:" if count else f"{head}; median over ranks:"]
    total = float(np.nanmedian(work.total))
    for part in PARTS:
        values = work.part(part)
        middle = float(np.nanmedian(values))
        by_rank = np.nanmedian(values, axis=1)
        if not middle > 0 and not np.nanmax(by_rank) > 0.01 * total:
            continue
        low, high = (ranks._digests[int(place)].rank for place in (np.nanargmin(by_rank), np.nanargmax(by_rank)))
        lines.append(
            f"  {part:<14}{short_time_text(middle):>9}  {percent_text(100 * middle / total):>6}   "
            f"from {short_time_text(float(np.nanmin(by_rank)))} (rank {low}) to "
            f"{short_time_text(float(np.nanmax(by_rank)))} (rank {high})"
        )
    after = ranks.what_if(without_stragglers=True).iloc[-1]
    if after["saving"] > 0.005 * after["total"]:
        lines.append(
            f"  Without stragglers, a step takes about {short_time_text(after['after'])} instead of "
            f"{short_time_text(after['total'])} ({percent_text(100 * after['saving'] / after['total'])} less)."
        )
    return [*lines, ""]


def _waited_for(ranks: Ranks) -> list[str]:
    from flopscope.results.summary import table_lines

    frame = ranks.stragglers().ranks
    if not frame["collectives"].any():
        return ["No collective could be matched across the ranks.", ""]
    header = ("rank", "collectives", "unmatched", "came last", "waited", "of its time", "awaited", "clock")
    rows = [
        (
            str(row["rank"]),
            str(row["collectives"]),
            str(row["unmatched"]),
            str(row["times_last"]),
            short_time_text(row["waited"]),
            percent_text(row["waited_pct"]),
            short_time_text(row["awaited"]),
            f"{short_time_text(row['clock_offset'])} ± {short_time_text(row['clock_uncertainty'])}",
        )
        for row in frame.nlargest(RANKS, "awaited").to_dict("records")
    ]
    title = "Ranks that others waited for longest" if len(frame) > RANKS else "Ranks by the time that others waited"
    legend = "  waited: time spent waiting for the last rank; awaited: time that others waited for this rank"
    return [title, *table_lines([header, *rows]), legend, ""]


def _clocks(ranks: Ranks) -> list[str]:
    frame = ranks.stragglers().ranks
    alone = frame[frame["clock_uncertainty"].isna() & (frame["aligned_with"] == frame["rank"])]
    parts = frame.loc[~frame["rank"].isin(alone["rank"]), "aligned_with"].nunique()
    lines = []
    if len(alone) and len(frame) > 1:
        names = ", ".join(map(str, alone["rank"][:8])) + (", …" if len(alone) > 8 else "")
        lines.append(f"Not aligned, because they share no collective with another rank: ranks {names}.")
    if parts > 1:
        lines.append(f"The ranks form {parts} sets that share no collective: clocks are aligned within each set only.")
    worst = frame["clock_uncertainty"].max()
    if worst > UNCERTAIN:
        lines.append(f"Clocks are uncertain by up to {short_time_text(worst)}; shorter skews mean nothing.")
    return [*lines, ""] if lines else []


def _files(ranks: Ranks) -> list[str]:
    lines = []
    for failure in ranks._failures[:RANKS]:
        lines.append(printable(f"Left out: {failure.source}: {failure.reason}"))
    if len(ranks._failures) > RANKS:
        lines.append(f"and {len(ranks._failures) - RANKS:,} more files left out: Ranks.files")
    dropped = sum(digest.dropped for digest in ranks._digests)
    if dropped:
        lines.append(f"{dropped:,} events of the traces are in no table: Ranks.files")
    return lines
