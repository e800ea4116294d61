"""The ranks of a distributed program, compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from flopscope.ranks.digest import Digest
from flopscope.ranks.engine import Failure
from flopscope.ranks.findings import Comparison, Finding, find
from flopscope.ranks.stragglers import Stragglers, find_stragglers
from flopscope.ranks.work import Work

if TYPE_CHECKING:
    import pandas

__all__ = ["Ranks"]


class Ranks:
    """The ranks of a distributed program, returned by load_ranks()."""

    def __init__(self, digests: Sequence[Digest], failures: Sequence[Failure] = ()) -> None:
        self._digests, self._failures = list(digests), list(failures)

    def __len__(self) -> int:
        """Number of ranks."""
        return len(self._digests)

    def __repr__(self) -> str:
        return f"<flopscope.Ranks: {len(self)} ranks>"

    @cached_property
    def files(self) -> pandas.DataFrame:
        """A row per file: ``source``; ``rank`` and ``rank_from`` ("trace", "file name", "order"), missing for a file
        that is left out; ``host``, ``device``; ``events``; ``dropped``: events in no table; ``problem``: why the file is
        left out, or what reading warned of; "" for none."""
        import pandas

        rows = [
            {
                "source": d.identity.source,
                "rank": d.rank,
                "rank_from": d.identity.rank_from,
                "host": d.identity.host,
                "device": d.identity.device,
                "events": d.events,
                "dropped": d.dropped,
                "problem": "; ".join(d.problems),
            }
            for d in self._digests
        ]
        rows += [{"source": f.source, "problem": f.reason} for f in self._failures]
        return pandas.DataFrame(rows).astype({"rank": "Int64", "events": "Int64", "dropped": "Int64"})

    def stragglers(self) -> Stragglers:
        """Return which ranks wait for which in collectives. See fs.stragglers()."""
        return self._stragglers

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(self._digests, Work(self._digests), self._stragglers)

    @cached_property
    def findings(self) -> list[Finding]:
        """What is slow or wrong, the largest cost first."""
        return find(self._comparison)

    @cached_property
    def _stragglers(self) -> Stragglers:
        return find_stragglers([d.rank for d in self._digests], [d.calls for d in self._digests])
