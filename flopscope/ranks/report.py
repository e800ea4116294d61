"""The report page of several ranks: what is found across them, and of profiles in memory one of them in full."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flopscope.ranks.page import add_ranks, opened
from flopscope.ranks.ranks import Ranks
from flopscope.ranks.source import digests_of
from flopscope.results.process import base_time_of
from flopscope.results.results import store_of
from flopscope.show.page.page import Page, profile_page
from flopscope.show.page.profile import Profile
from flopscope.show.page.timeline import Part, rows_of, timeline_of

if TYPE_CHECKING:
    from flopscope.results.results import Results


def report_of_ranks(profiles: Mapping[int, Results], *, peaks: str | None = None, title: str | None = None) -> Page:
    """Return the page of several ranks: what load_ranks() finds, and in full the rank that it opens on.

    profiles: by rank, at least one. peaks, title and errors as in Results.write_report().
    """
    ranks = Ranks(digests_of(profiles, peaks or "datasheet"))
    place, why = opened(ranks)
    shown = ranks.comparison.digests[place].rank
    page = profile_page(profiles[shown], peaks=peaks)
    try:
        page.sections["timeline"] = timeline_of(_parts(profiles, shown, ranks), page.columns)
        add_ranks(page, ranks, title)
        if len(ranks) > 1:
            page.subtitle += f" · the other sections show rank {shown}, {why}; Timeline shows all"
    except BaseException:
        page.columns.close()
        raise
    return page


def _parts(profiles: Mapping[int, Results], shown: int, ranks: Ranks) -> list[Part]:
    """Return the timelines of the ranks, ``shown`` first, by the clock of the first one as far as their collectives
    tell it."""
    clocks = dict(zip(ranks.ranks["rank"].tolist(), ranks.ranks["clock_offset"].tolist(), strict=True))
    ahead = {rank: round(1000 * offset) for rank, offset in clocks.items() if math.isfinite(offset)}
    base = base_time_of(profiles[min(clocks)])
    source = Profile(profiles[shown])
    return [
        Part(
            store_of(profiles[rank], "report"),
            f"Rank {rank}",
            base_time_of(profiles[rank]) - base - ahead.get(rank, 0),
            rows_of(source.rows.columns),
            by_shape=source.has_shape_rows,
        )
        for rank in sorted(clocks, key=lambda rank: (rank != shown, rank))
    ]
