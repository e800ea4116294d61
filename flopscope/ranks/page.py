"""What the page of many ranks shows. Ranks ask for it, so it stands apart from what makes ranks of profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopscope.answers.analysis import PARTS
from flopscope.answers.sentences.ranks import NO_MATCH
from flopscope.ranks.medians import median_of_others
from flopscope.ranks.text import page_tables
from flopscope.show.page.ranks import RankFacts, RankFinding, means

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks


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
        findings=[RankFinding(one.what, one.action, one.ranks) for one in ranks.findings],
    )
