"""The page of the ranks of a distributed program: where each spent its steps, and which rank the others waited for.

Of profiles in memory, one is shown in full. Ranks ask for the page, so it stands apart from what makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope import _core
from flopscope.answers.analysis import PARTS
from flopscope.answers.rank_sentences import NO_MATCH
from flopscope.ranks.calls import Floats, mean, median_of_others
from flopscope.ranks.text import page_tables
from flopscope.results.process import base_time_of
from flopscope.results.results import store_of
from flopscope.show.page.encode import Columns, sentence, text_table
from flopscope.show.page.page import Page, profile_page
from flopscope.show.page.profile import Profile
from flopscope.show.page.timeline import Part, rows_in, timeline_of
from flopscope.support.units import plural, short_time_text

if TYPE_CHECKING:
    import pandas

    from flopscope.ranks.ranks import Ranks
    from flopscope.ranks.work import Work
    from flopscope.results.results import Results

MOST_FINDINGS = 50


def ranks_page(ranks: Ranks, title: str | None = None) -> Page:
    page = Page("")
    add_ranks(page, ranks, title)
    return page


def add_ranks(page: Page, ranks: Ranks, title: str | None = None) -> None:
    """Add the ranks to a page, which is then about them: its title and the sentences that it begins with."""
    models = dict.fromkeys(digest.identity.device for digest in ranks.comparison.digests if digest.identity.device)
    count = plural(len(ranks), "rank")
    page.title = title or count
    page.subtitle = " · ".join([*([count] if title else []), *models])
    page.headline, page.lead = ranks.verdict, _time_sentence(ranks.comparison.work)
    page.sections["ranks"] = section(ranks, page.columns)


def opened(ranks: Ranks) -> tuple[int, str]:
    """Return the place of the rank that the page opens on and why: that of the first finding, or else the one that the
    others waited for longest, or else the first."""
    places = {digest.rank: place for place, digest in enumerate(ranks.comparison.digests)}
    for rank in ranks.findings[0].ranks if ranks.findings else ():
        if rank in places:
            return places[rank], "that of the first finding"
    awaited = ranks.ranks["awaited"].to_numpy(dtype=np.float64)
    # Without matched collectives, nobody was awaited.
    if not np.nansum(awaited) > 0:
        return 0, "the first one"
    return int(np.nanargmax(awaited)), "the one that others waited for longest"


def section(ranks: Ranks, columns: Columns) -> dict[str, Any]:
    """Return the data of the section. Times are in µs; NaN is unknown."""
    digests, work, rows = ranks.comparison.digests, ranks.comparison.work, ranks.ranks
    places = {digest.rank: place for place, digest in enumerate(digests)}
    known = [part for part in PARTS if np.nansum(work.part(part)) > 0]
    own = {part: means(work.part(part)) for part in known}
    place, reason = opened(ranks)
    has_waits = len(ranks.stragglers().collectives) > 0
    unmatched = "" if has_waits or len(ranks) == 1 else NO_MATCH.format("which rank the others waited for")
    return {
        "count": len(ranks),
        "rank": columns.add([*places]),
        "label": columns.texts(digest.identity.source for digest in digests),
        "device": columns.texts(digest.identity.device or "" for digest in digests),
        "where": columns.texts(_places(rows)),
        "opened": {"place": place, "why": reason},
        "has_steps": work.has_steps,
        "parts": {part: columns.add(times) for part, times in own.items()},
        # The median over the other ranks of the same program.
        "others": {part: columns.add(median_of_others(own[part][:, None], work.role)[:, 0]) for part in known},
        "time": columns.add(means(work.total)),
        "part_labels": {name: row.label for name, row in _core.parts.items()},
        "own": _numbers(rows, _OWN, columns),
        "waits": _numbers(rows, _WAITS, columns) if has_waits else None,
        "columns": _rank_columns(work.has_steps, known, has_waits, unmatched),
        "sort": "excess" if rows["excess"].notna().any() else "awaited" if has_waits else "time",
        "tables": [text_table(title, parts) for title, parts in page_tables(ranks).items() if parts],
        "why": sentence(unmatched),
        "findings": [
            {"what": sentence(one.what), "action": sentence(one.action), "place": places.get(first, -1)}
            for one in ranks.findings[:MOST_FINDINGS]
            for first in [next(iter(one.ranks), -1)]
        ],
        "findings_left_out": max(len(ranks.findings) - MOST_FINDINGS, 0),
        "notes": [*map(sentence, ranks.notes)],
    }


def _places(rows: pandas.DataFrame) -> list[str]:
    """Return the host and the GPU of each rank, as far as they are known."""
    hosts, gpus = rows["host"], rows["gpu"]
    known = zip(hosts.notna(), hosts, gpus.notna(), gpus, strict=True)
    return [", ".join([f"host {host}"] * has_host + [f"GPU {gpu}"] * has_gpu) for has_host, host, has_gpu, gpu in known]


def means(values: Floats) -> Floats:
    """Return the mean of the known steps of each rank, NaN if none is known."""
    return np.array([mean(steps) for steps in values])


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


def _rank_columns(has_steps: bool, parts: Sequence[str], has_waits: bool, unmatched: str) -> list[dict[str, Any]]:
    """Return the columns of the list of ranks: those of waits only where they are known, and the parts that occur."""
    left_out = {*PARTS} - {*parts} | (set() if has_waits else {*_WAITS})
    why = sentence(unmatched or "The rank's collectives match those of no other rank.")
    found = []
    for name, title, unit, doc, bar in _RANK_COLUMNS:
        named = {"name": name, "title": "The recording" if name == "time" and not has_steps else title}
        if name not in left_out:
            about = {"unit": unit or None, "doc": sentence(doc), "bar": bar, "missing": _MISSING.get(name, why)}
            found.append({**named, **about})
    return found


def _time_sentence(work: Work) -> str:
    """Return how long a step takes, as a sentence; "" if that is unknown."""
    time = means(work.total)
    known = time[~np.isnan(time)]
    if not len(known):
        return ""
    what = "A step takes" if work.has_steps else "The recording takes"
    least, middle, most = (short_time_text(float(v)) for v in (known.min(), np.median(known), known.max()))
    how = ["mean of the steps"] if len(work.steps) > 1 else []
    how += ["median of the ranks"] if len(known) > 1 else []
    how += [f"{least} to {most}"] if least != most else []
    return f"{what} {middle}" + (f" ({', '.join(how)})." if how else ".")


# With one of the ranks in full ----------------------------------------------------------------------------------------


def report_of_ranks(
    ranks: Ranks, profiles: Mapping[int, Results], *, peaks: str | None = None, title: str | None = None
) -> Page:
    """Return the page of several ranks, and in full the one that it opens on.

    profiles: those of the ranks, by rank. peaks, title and errors as in Results.write_report().
    """
    place, why = opened(ranks)
    shown = ranks.comparison.digests[place].rank
    page = profile_page(profiles[shown], peaks=peaks)
    page.sections["timeline"] = timeline_of(_parts(profiles, shown, ranks), page.columns)
    add_ranks(page, ranks, title)
    if len(ranks) > 1:
        page.subtitle += f" · the other sections show rank {shown}, {why}; Timeline shows all"
    return page


def _parts(profiles: Mapping[int, Results], shown: int, ranks: Ranks) -> list[Part]:
    """Return the timelines of the ranks, ``shown`` first, by the clock of the first one as far as their collectives
    tell it."""
    clocks = dict(zip(ranks.ranks["rank"].tolist(), ranks.ranks["clock_offset"].tolist(), strict=True))
    ahead = {rank: round(1000 * offset) for rank, offset in clocks.items() if math.isfinite(offset)}
    base = base_time_of(profiles[min(clocks)])
    source = Profile(profiles[shown])
    row_of = rows_in(source.rows.columns, source.has_shape_rows)
    shifts = {rank: base_time_of(profiles[rank]) - base - ahead.get(rank, 0) for rank in clocks}
    return [
        Part(store_of(profiles[rank], "report"), f"Rank {rank}", shifts[rank], row_of)
        for rank in sorted(clocks, key=lambda rank: (rank != shown, rank))
    ]
