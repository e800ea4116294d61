"""The report page of several ranks: from their profiles, or from what load_ranks() keeps of many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flopscope.answers.accounting import part_times
from flopscope.answers.analysis import PARTS, Analysis
from flopscope.ranks.finding import host_names
from flopscope.ranks.stragglers import stragglers
from flopscope.ranks.tables import group_rows
from flopscope.report.profile import Profile
from flopscope.report.ranks import RankFacts, add_ranks, most_awaited
from flopscope.report.timeline import Part, rows_of, timeline_of
from flopscope.results.process import source_of

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks
    from flopscope.report.page import Page
    from flopscope.results.results import Results

__all__ = ["facts_of_ranks", "rank_facts", "report_of_ranks"]


def facts_of_ranks(ranks: Ranks) -> RankFacts:
    """Return what the page shows of many ranks: the accounting of each, who waits for whom, and the findings."""
    work, waits = ranks._work, ranks.stragglers()
    digests = ranks._digests
    hosts = host_names(digests)
    matched = len(waits.collectives) > 0
    return RankFacts(
        ranks=[digest.rank for digest in digests],
        labels=[f"host {host}" if host else d.identity.source for host, d in zip(hosts, digests, strict=True)],
        devices=[digest.identity.device or "" for digest in digests],
        steps=[] if work.steps == [None] else [str(name) for name in work.steps],
        parts={part: work.part(part) for part in PARTS},
        rank_rows=waits.ranks,
        collectives=waits.collectives,
        hosts=ranks.hosts(),
        groups=ranks.groups(),
        sizes=ranks.collectives(by_group=False),
        why="" if matched else "No collective could be matched across the ranks.",
        notes=ranks.notes,
        findings=[one.what for one in ranks.findings],
    )


def report_of_ranks(profiles: Mapping[int, Results], *, peaks: str | None = None, title: str | None = None) -> Page:
    """Return the page of several ranks: all of them side by side, and in full the one that the others wait for.

    profiles: by rank, at least two. peaks, title and errors as in Results.write_report(); ValueError for fewer ranks.
    """
    from flopscope.report.profile import profile_page

    if len(profiles) < 2:
        raise ValueError(f"a page of ranks needs at least two, not {len(profiles)}")
    facts = rank_facts(profiles, peaks)
    shown = most_awaited(facts)
    page = profile_page(profiles[shown], peaks=peaks)
    try:
        page.sections["timeline"] = timeline_of(_parts(profiles, shown, facts), page.columns)
        add_ranks(page, facts, title)
        page.subtitle += f" · all sections but Ranks and Timeline show rank {shown}"
    except BaseException:
        page.columns.close()
        raise
    return page


def _parts(profiles: Mapping[int, Results], shown: int, facts: RankFacts) -> list[Part]:
    """Return the timelines of the ranks by the clock of the first one, as far as their collectives tell it."""
    ordered = dict(sorted(profiles.items()))
    offsets: dict[int, float] = {}
    if facts.rank_rows is not None:
        offsets = dict(zip(facts.rank_rows["rank"].tolist(), facts.rank_rows["clock_offset"].tolist(), strict=True))
    base = next(iter(ordered.values()))._base_time()
    source = Profile(profiles[shown])
    return [
        Part(
            profile._recorded("report"),
            source.has_shape_rows,
            f"Rank {rank}",
            profile._base_time() - base - round(1000 * known if math.isfinite(known := offsets.get(rank, 0.0)) else 0),
            rows_of(source.rows.columns),
        )
        for rank, profile in ordered.items()
    ]


def rank_facts(profiles: Mapping[int, Results], peaks: str | None = None) -> RankFacts:
    """Return the accounting of each rank and step, and which ranks the others wait for.

    profiles: by rank. peaks: as in key_averages(). Raises RuntimeError for a profile that runs or recorded nothing.
    """
    ordered = dict(sorted(profiles.items()))
    analyses = [profile._analysis("report", peaks) for profile in ordered.values()]
    names = {step.name: None for analysis in analyses for step in analysis.steps if step.name is not None}
    steps = {name: number for number, name in enumerate(names)}
    parts = {part: np.full((len(ordered), max(len(steps), 1)), math.nan) for part in PARTS}
    for row, analysis in enumerate(analyses):
        _fill(parts, row, analysis, steps)
    rank_rows = collectives = groups = None
    why = ""
    try:
        waits = stragglers(ordered)
        rank_rows, collectives, groups = waits.ranks, waits.collectives, group_rows(waits)
        if not len(collectives):
            why = "No collective could be matched across the ranks, so it is unknown which rank the others waited for."
    except ValueError as problem:
        why = str(problem)
    return RankFacts(
        ranks=list(ordered),
        labels=[source_of(profile, place) for place, profile in enumerate(ordered.values())],
        devices=[_models(analysis) for analysis in analyses],
        steps=list(steps),
        parts=parts,
        rank_rows=rank_rows,
        collectives=collectives,
        groups=groups,
        why=why,
    )


def _fill(parts: Mapping[str, npt.NDArray[np.float64]], row: int, analysis: Analysis, steps: Mapping[str, int]) -> None:
    """Set the times of a rank. Steps of one name, such as those of several windows, are not added: the first counts."""
    devices = len(analysis.devices)
    if not devices:
        return
    times = part_times(analysis).sum(axis=0) / (1000 * devices)
    for number, step in enumerate(analysis.steps):
        place = 0 if step.name is None else steps[step.name]
        if step.name is None and steps:
            continue  # other ranks have steps, and this one has none
        if math.isnan(parts["ideal"][row, place]):
            for part, time in zip(PARTS, times[number], strict=True):
                parts[part][row, place] = time


def _models(analysis: Analysis) -> str:
    return ", ".join(dict.fromkeys(known["name"] for known in analysis.meta["peaks"].values()))
