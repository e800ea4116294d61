"""The page of the ranks of a distributed program: where each spent its steps, and which rank the others waited for.

Ranks ask for it, so it stands apart from what makes ranks of profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.answers.sentences.ranks import NO_MATCH
from flopscope.ranks.medians import Floats, median_of_others
from flopscope.ranks.text import page_tables
from flopscope.show.page.encode import Columns, sentence, text_table
from flopscope.show.page.page import Page
from flopscope.support.units import plural, short_time_text

if TYPE_CHECKING:
    import pandas

    from flopscope.ranks.comparison import Finding
    from flopscope.ranks.ranks import Ranks
    from flopscope.show.summarize import Section

MOST_FINDINGS = 50


@dataclass(frozen=True)
class RankFacts:
    """What a page shows of many ranks. Times are in µs; NaN is unknown."""

    ranks: Sequence[int]
    labels: Sequence[str]
    """The source of each rank: its file."""
    devices: Sequence[str]
    """The model of each rank's device; "" if unknown."""
    steps: Sequence[str]
    """Names of the steps; empty if the program marked none, and then the parts have one column: the whole profile."""
    parts: Mapping[str, Floats]
    """By part of the accounting: times by rank and step, means over the devices of a rank; NaN for a missing step."""
    rank_rows: pandas.DataFrame
    """As Ranks.ranks."""
    verdict: str
    """The first finding, or why there is none."""
    others: Mapping[str, Floats]
    """By part: the median over the other ranks of the same program of their mean over the steps, by rank."""
    has_waits: bool = True
    """Whether a collective is matched across ranks."""
    tables: Mapping[str, Section] = field(default_factory=dict)
    """Tables of texts by their titles: hosts, groups, collectives."""
    why: str = ""
    """Why nothing is known of who waits for whom."""
    findings: Sequence[Finding] = ()
    """What is slow across the ranks, the largest cost first."""
    notes: Sequence[str] = ()
    """What is missing from the ranks, such as files that could not be read."""

    @property
    def totals(self) -> Floats:
        """The times of the steps, by rank and step."""
        return np.asarray(sum(self.parts[name] for name in PARTS), dtype=np.float64)


def facts_of_ranks(ranks: Ranks) -> RankFacts:
    """Return what the page shows of many ranks: the findings, the accounting of each, and who waits for whom."""
    digests, work, calls = ranks.comparison.digests, ranks.comparison.work, ranks.stragglers().collectives
    parts = {part: work.part(part) for part in PARTS}
    return RankFacts(
        ranks=[digest.rank for digest in digests],
        labels=[digest.identity.source for digest in digests],
        devices=[digest.identity.device or "" for digest in digests],
        steps=[str(name) for name in work.steps] if work.has_steps else [],
        parts=parts,
        rank_rows=ranks.ranks,
        verdict=ranks.verdict,
        others={part: median_of_others(means(time)[:, None], work.role)[:, 0] for part, time in parts.items()},
        has_waits=bool(len(calls)),
        tables=page_tables(ranks),
        why="" if len(calls) or len(ranks) == 1 else NO_MATCH.format("which rank the others waited for"),
        notes=ranks.notes,
        findings=ranks.findings,
    )


def ranks_page(facts: RankFacts, title: str | None = None) -> Page:
    """Return the page of many ranks."""
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
    count = plural(len(facts.ranks), "rank")
    page.title = title or count
    page.subtitle = " · ".join([*([count] if title else []), *models])
    page.headline, page.lead = facts.verdict, _time_sentence(facts)
    page.sections["ranks"] = section(facts, page.columns)


def opened(facts: RankFacts) -> tuple[int, str]:
    """Return the rank that the page opens on and why: that of the first finding, or else the one that the others waited
    for longest, or else the first."""
    for rank in facts.findings[0].ranks if facts.findings else ():
        if rank in facts.ranks:
            return rank, "that of the first finding"
    awaited = facts.rank_rows["awaited"].to_numpy(dtype=np.float64)
    if not facts.has_waits or not np.nansum(awaited) > 0:
        return facts.ranks[0], "the first one"
    longest = int(np.nanargmax(awaited))
    return facts.ranks[longest], "the one that others waited for longest"


def section(facts: RankFacts, columns: Columns) -> dict[str, Any]:
    """Return the data of the section."""
    place = {rank: number for number, rank in enumerate(facts.ranks)}
    known = [name for name in PARTS if np.nansum(facts.parts[name]) > 0]
    rank, why = opened(facts)
    waits = _numbers(facts.rank_rows, _WAITS, columns) if facts.has_waits else None
    return {
        "count": len(facts.ranks),
        "rank": columns.add(np.asarray(facts.ranks, dtype=np.int64)),
        "label": columns.texts(facts.labels),
        "device": columns.texts(facts.devices),
        "where": columns.texts(_places(facts)),
        "opened": {"place": place[rank], "why": why},
        "has_steps": bool(facts.steps),
        "parts": {name: columns.add(means(facts.parts[name])) for name in known},
        "others": {name: columns.add(facts.others[name]) for name in known},
        "time": columns.add(means(facts.totals)),
        "part_labels": {name: row.label for name, row in _core.parts.items()},
        "own": _numbers(facts.rank_rows, _OWN, columns),
        "waits": waits,
        "columns": _rank_columns(facts, known),
        "sort": "excess" if facts.rank_rows["excess"].notna().any() else "awaited" if waits else "time",
        "tables": [text_table(title, parts) for title, parts in facts.tables.items() if parts],
        "why": sentence(facts.why),
        "findings": [
            {
                "what": sentence(one.what),
                "action": sentence(one.action),
                "place": place.get(next(iter(one.ranks), -1), -1),
            }
            for one in facts.findings[:MOST_FINDINGS]
        ],
        "findings_left_out": max(len(facts.findings) - MOST_FINDINGS, 0),
        "notes": [*map(sentence, facts.notes)],
    }


def _places(facts: RankFacts) -> list[str]:
    """Return the host and the GPU of each rank, as far as they are known."""
    hosts, gpus = facts.rank_rows["host"], facts.rank_rows["gpu"]
    known = zip(hosts.notna(), hosts, gpus.notna(), gpus, strict=True)
    return [", ".join([f"host {host}"] * has_host + [f"GPU {gpu}"] * has_gpu) for has_host, host, has_gpu, gpu in known]


def means(values: Floats) -> Floats:
    """Return the mean of the known steps of each rank, NaN if none is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    return np.asarray(
        np.divide(np.where(known, values, 0).sum(axis=1), counts, where=counts > 0, out=np.full(len(values), math.nan))
    )


# Who waited for whom --------------------------------------------------------------------------------------------------


_OWN = ("own", "excess", "slowness", "memory_peak")
_WAITS = (
    *("collectives", "unmatched", "times_last", "waited", "waited_pct", "awaited", "clock_offset"),
    "clock_uncertainty",
)


def _numbers(rows: pandas.DataFrame, names: Sequence[str], columns: Columns) -> dict[str, Any]:
    return {name: columns.add(rows[name].to_numpy(dtype=np.float64, na_value=math.nan)) for name in names}


# Columns of the list of ranks: name, title, unit ("" of a text), what it means, and the class of its bar, None without.
_RANK_COLUMNS: Sequence[tuple[str, str, str, str, str | None]] = (
    ("rank", "Rank", "rank", "", None),
    ("time", "A step", "µs", "", ""),
    ("own", "Own work", "µs", "Median of the steps, without the time in which it only communicated.", ""),
    ("excess", "Beyond others", "µs",
     "Median of the steps: own work less the median of the other ranks that run the same program.", "warm"),
    ("slowness", "Slowness", "×",
     "Time of its kernels over that of the same kernels and shapes on the other ranks.", None),
    ("awaited", "Others waited", "µs",
     "Time that other ranks waited for this one, also where it was late because it waited itself.", "warm"),
    ("waited", "Waited", "µs", "Time that it waited for the last rank of its collectives.", ""),
    ("waited_pct", "Of its time", "%", "Waited, in percent of the time of its matched collectives.", None),
    ("times_last", "Came last", "calls", "", None),
    ("collectives", "Collectives", "calls", "Matched with those of other ranks.", None),
    ("unmatched", "Unmatched", "calls", "", None),
    ("clock_offset", "Clock", "µs", "Its clock minus that of the first rank.", None),
    ("clock_uncertainty", "± Clock", "µs", "Standard error of the offset.", None),
    *((name, row.label, "µs", "Part of the accounting, mean of the steps.", "") for name, row in _core.parts.items()),
    ("memory_peak", "Memory", "bytes", "Bytes allocated at the peak.", None),
    ("where", "Where", "", "", None),
    ("device", "Device", "", "", None),
    ("label", "Source", "", "", None),
)  # fmt: skip
_NO_STEP = "No step of it was recorded."
_MISSING = {
    "excess": "No other rank recorded this step of the same program.",
    "slowness": "No kernels of the same shapes ran on other ranks.",
    "memory_peak": "Memory was not recorded.",
} | dict.fromkeys(("time", "own", *PARTS), _NO_STEP)


def _rank_columns(facts: RankFacts, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns of the list of ranks: those of waits only where they are known, and the parts that occur."""
    left_out = {*PARTS} - {*parts} | (set() if facts.has_waits else {*_WAITS})
    why = sentence(facts.why or "The rank's collectives match those of no other rank.")
    return [
        {
            "name": name,
            "title": "The recording" if name == "time" and not facts.steps else title,
            "unit": unit or None,
            "doc": sentence(doc),
            "bar": bar,
            "missing": _MISSING.get(name, why),
        }
        for name, title, unit, doc, bar in _RANK_COLUMNS
        if name not in left_out
    ]


def _time_sentence(facts: RankFacts) -> str:
    """Return how long a step takes, as a sentence; "" if that is unknown."""
    time = means(facts.totals)
    known = time[~np.isnan(time)]
    if not len(known):
        return ""
    what = "A step takes" if facts.steps else "The recording takes"
    least, middle, most = (short_time_text(float(v)) for v in (known.min(), np.median(known), known.max()))
    how = ["mean of the steps"] if len(facts.steps) > 1 else []
    how += ["median of the ranks"] if len(known) > 1 else []
    how += [f"{least} to {most}"] if least != most else []
    return f"{what} {middle}" + (f" ({', '.join(how)})." if how else ".")
