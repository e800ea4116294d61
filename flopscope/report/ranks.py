"""The page of the ranks of a distributed program: where each spent its steps, and which the others waited for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import PARTS
from flopscope.report.encode import Columns
from flopscope.report.page import Page
from flopscope.support.units import percent_text, short_time_text
from flopscope.views.waterfall import LOOKS

if TYPE_CHECKING:
    import pandas

__all__ = ["RankFacts", "add_ranks", "most_awaited", "ranks_page", "section"]

MOST_ROWS = 1000
"""Of a table of hosts, groups or collectives: those with the most."""
MOST_STEPS = 512
"""Steps of each rank in a page: the first ones."""
MOST_FINDINGS = 50
LEAST = 0.01
"""Of the time of all ranks: less waiting is not mentioned."""


@dataclass(frozen=True)
class RankFacts:
    """What a page shows of many ranks. Times are in µs; NaN is unknown."""

    ranks: Sequence[int]
    labels: Sequence[str]
    """The source of each rank: its file or host."""
    devices: Sequence[str]
    """The model of each rank's device; "" if unknown."""
    steps: Sequence[str]
    """Names of the steps; empty if the program marked none, and then the parts have one column: the whole profile."""
    parts: Mapping[str, npt.NDArray[np.float64]]
    """By part of the accounting: times by rank and step, means over the devices of a rank; NaN for a missing step."""
    rank_rows: pandas.DataFrame | None = None
    """As Stragglers.ranks."""
    collectives: pandas.DataFrame | None = None
    """As Stragglers.collectives."""
    hosts: pandas.DataFrame | None = None
    """As Ranks.hosts()."""
    groups: pandas.DataFrame | None = None
    """As Ranks.groups()."""
    sizes: pandas.DataFrame | None = None
    """As Ranks.collectives(by_group=False)."""
    why: str = ""
    """Why ``rank_rows`` are missing."""
    findings: Sequence[str] | None = None
    """What is slow across the ranks, the largest cost first; None if it was not looked for."""
    notes: Sequence[str] = ()
    """What is missing from the ranks, such as files that could not be read."""

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        """The times of the steps, by rank and step."""
        return np.asarray(sum(self.parts[name] for name in PARTS), dtype=np.float64)


def ranks_page(facts: RankFacts, title: str | None = None) -> Page:
    """Return the page of many ranks. Raise ValueError for fewer than two."""
    if len(facts.ranks) < 2:
        raise ValueError(f"a page of ranks needs at least two, not {len(facts.ranks)}")
    page = Page("")
    try:
        add_ranks(page, facts, title)
    except BaseException:
        page.columns.close()
        raise
    return page


def add_ranks(page: Page, facts: RankFacts, title: str | None = None) -> None:
    """Add the ranks to a page, which is then about them: its title and the sentences that it begins with."""
    models = dict.fromkeys(model for model in facts.devices if model)
    sentences = _sentences(facts)
    page.title = title or f"{len(facts.ranks):,} ranks"
    page.subtitle = " · ".join([f"{len(facts.ranks):,} ranks", *models])
    page.headline = " ".join(sentences)
    page.sections["ranks"] = section(facts, page.columns)


def most_awaited(facts: RankFacts) -> int:
    """Return the rank that the others waited for longest, or the first one if that is unknown."""
    rows = _by_rank(facts)
    if rows is None or not float(rows["awaited"].sum()) > 0:
        return facts.ranks[0]
    return facts.ranks[int(np.nanargmax(rows["awaited"].to_numpy(dtype=np.float64)))]


def section(facts: RankFacts, columns: Columns) -> dict[str, Any] | None:
    """Return the data of the section, None for fewer than two ranks."""
    if len(facts.ranks) < 2:
        return None
    shown = slice(0, MOST_STEPS)
    totals = facts.totals
    per_step = {name: _means(facts.parts[name]) for name in PARTS}
    return {
        "count": len(facts.ranks),
        "rank": columns.add(np.asarray(facts.ranks, dtype=np.int64)),
        "label": columns.texts(facts.labels),
        "device": columns.texts(facts.devices),
        "steps": list(facts.steps[shown]),
        "steps_left_out": max(len(facts.steps) - MOST_STEPS, 0),
        "parts": {name: columns.add(values) for name, values in per_step.items() if np.nansum(values) > 0},
        "time": columns.add(_means(totals)),
        "cells": {
            "total": _cells(totals[:, shown], columns),
            **{
                name: _cells(facts.parts[name][:, shown], columns) for name in PARTS if np.nansum(facts.parts[name]) > 0
            },
        },
        "part_labels": {name: LOOKS[name][0] for name in PARTS},
        "waits": _waits(facts, columns),
        "tables": {name: table for name in _TABLES if (table := _table(facts, name, columns)) is not None},
        "why": facts.why,
        "findings": list(facts.findings or ())[:MOST_FINDINGS],
        "findings_left_out": max(len(facts.findings or ()) - MOST_FINDINGS, 0),
        "notes": list(facts.notes),
    }


def _means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean of the known steps of each rank, NaN if none is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    return np.asarray(
        np.divide(np.where(known, values, 0).sum(axis=1), counts, where=counts > 0, out=np.full(len(values), math.nan))
    )


def _cells(values: npt.NDArray[np.float64], columns: Columns) -> dict[str, Any]:
    return columns.add(np.ascontiguousarray(values, dtype=np.float32).ravel())


# Who waited for whom --------------------------------------------------------------------------------------------------


_WAITS = (
    *("collectives", "unmatched", "times_last", "waited", "waited_pct", "awaited", "clock_offset"),
    "clock_uncertainty",
)


def _waits(facts: RankFacts, columns: Columns) -> dict[str, Any] | None:
    rows = _by_rank(facts)
    return None if rows is None else {name: columns.add(rows[name].to_numpy(dtype=np.float64)) for name in _WAITS}


def _by_rank(facts: RankFacts) -> pandas.DataFrame | None:
    """Return the rows of the stragglers in the order of the ranks, NaN where a rank has none; None if all lack them."""
    unmatched = facts.collectives is not None and not len(facts.collectives)
    if facts.rank_rows is None or not len(facts.rank_rows) or unmatched:
        return None
    return facts.rank_rows.set_index("rank").reindex(list(facts.ranks))


# Texts, numbers, and the number by which rows are chosen, of each table.
_TABLES: dict[str, tuple[Sequence[str], Sequence[str], str]] = {
    "hosts": (
        ("host",),
        ("ranks", "first_rank", "own", "communication", "slowness", "times_last", "waited", "awaited"),
        "awaited",
    ),
    "groups": (
        ("group", "members"),
        ("ranks", "calls", "waited", "waited_pct", "most_last", "times_last", "awaited"),
        "waited",
    ),
    "sizes": (
        ("collective",),
        (
            *("bytes_from", "bytes_to", "groups", "ranks", "hosts", "calls", "skew_median", "skew_p95"),
            *("skew_uncertainty", "transfer_median", "bus_gbytes_per_s", "time", "waited", "exposed"),
        ),
        "exposed",
    ),
    "collectives": (
        ("collective", "group"),
        (
            *("message_bytes", "number", "count", "straggler", "start", "skew", "skew_uncertainty", "transfer"),
            "bus_gbytes_per_s",
        ),
        "skew",
    ),
}


def _table(facts: RankFacts, name: str, columns: Columns) -> dict[str, Any] | None:
    """Return the columns of a table, and how many rows it has of which the first are listed; None without any."""
    texts, numbers, most = _TABLES[name]
    frame: pandas.DataFrame | None = getattr(facts, name)
    if frame is None or not len(frame):
        return None
    shown = frame.sort_values(most, ascending=False, kind="stable").head(MOST_ROWS)
    return {
        "rows": len(frame),
        "texts": {one: columns.texts(map(str, shown[one])) for one in texts},
        "numbers": {one: columns.add(shown[one].to_numpy(dtype=np.float64, na_value=math.nan)) for one in numbers},
    }


def _sentences(facts: RankFacts) -> list[str]:
    """Return what an engineer asks first: how long a step takes, and who makes the others wait for how long."""
    time = _means(facts.totals)
    known = time[~np.isnan(time)]
    what = "a step" if facts.steps else "the recorded time"
    texts = []
    if len(known):
        least, middle, most = (short_time_text(float(v)) for v in (known.min(), np.median(known), known.max()))
        texts.append(f"{len(facts.ranks):,} ranks; {what} takes {middle} (median of the ranks; {least} to {most}).")
    rows = _by_rank(facts)
    if facts.findings is not None:
        return [facts.findings[0] if facts.findings else "No rank, link or step stands out.", *texts]
    if rows is None:
        return texts
    awaited, waited = (float(rows[name].sum()) for name in ("awaited", "waited"))
    whole = float(np.nansum(facts.totals))
    if not awaited or waited < LEAST * whole:
        return [*texts, "No rank makes the others wait for more than 1% of their time."]
    worst = most_awaited(facts)
    row = rows.iloc[list(facts.ranks).index(worst)]
    share = percent_text(100 * float(row["awaited"]) / awaited)
    texts.append(
        f"The ranks wait for each other in collectives for {short_time_text(waited)} in all, "
        f"{percent_text(100 * waited / whole)} of their time."
    )
    texts.append(
        f"{share} of it is for rank {worst}: it came last in {int(row['times_last']):,} of {int(row['collectives']):,} "
        "collectives."
    )
    return texts
