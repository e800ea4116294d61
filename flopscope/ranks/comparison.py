"""The digests of all ranks with what is computed from them, and the findings that rules make of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from flopscope.answers.rank_sentences import RECORDING, STEP, Cost, Place, action
from flopscope.answers.words import facts_of
from flopscope.ranks.digest import Digest
from flopscope.ranks.engine import Failure
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.work import Work

LEAST = 0.01  # of a step: no smaller cost is named
SIGNIFICANT = 5.0  # median absolute deviations, scaled to standard deviations
LEAST_SPREAD = 0.002  # of the value: ranks and steps differ by at least that


@dataclass(frozen=True)
class Finding:
    """Something that is slow, or wrong."""

    kind: str
    """"straggler", "gpu", "link", "imbalance", "step", "memory", "missing" or "mismatch"."""
    says: partial[str]
    """The sentence, with the facts that it is made from as arguments."""
    ranks: tuple[int, ...]
    cost_us: float
    """What it costs in each step, in µs; NaN if unknown."""
    cost_pct: float
    """cost_us in percent of a step."""
    cause: str = ""
    """Cause of a straggler: "gpu", "work", "kernels" (one of these two, where no shapes are recorded), "data", "host",
    "copy" or "other"."""

    @property
    def what(self) -> str:
        """A sentence: who, why, how often, what it costs."""
        text = self.says()
        return text[0].upper() + text[1:]

    @property
    def action(self) -> str:
        """What to do about it: a sentence."""
        return action(self.kind, self.cause)

    @property
    def evidence(self) -> dict[str, object]:
        """The facts by name."""
        return facts_of(self.says)


@dataclass(frozen=True)
class Comparison:
    """All that the rules and the tables look at. Ranks are named by their places among the digests."""

    digests: Sequence[Digest]
    """By rank."""
    failures: Sequence[Failure]

    @cached_property
    def work(self) -> Work:
        """What each did in each step."""
        return Work(self.digests)

    @cached_property
    def stragglers(self) -> Stragglers:
        """Who waits for whom."""
        return Stragglers([digest.rank for digest in self.digests], [digest.calls for digest in self.digests])

    @cached_property
    def hosts(self) -> list[str | None]:
        """The host of each rank: from the names of the files, or else counted, if each host has the same number of GPUs
        and ranks are numbered host by host, as torchrun does."""
        if all(digest.identity.host for digest in self.digests):
            return [digest.identity.host for digest in self.digests]
        gpus = {digest.identity.gpus_here for digest in self.digests}
        size = (gpus.pop() or 0) if len(gpus) == 1 else 0
        return [f"#{digest.rank // size}" if size > 1 else None for digest in self.digests]

    def place(self, rank: int) -> Place:
        """Return the rank with its host and GPU, as far as they are known."""
        digest = self.digests[rank]
        return Place(digest.rank, self.hosts[rank], digest.identity.device_index)

    def numbers(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return the numbers of the ranks in the program."""
        return tuple(self.digests[rank].rank for rank in ranks)

    def cost(self, time: float) -> Cost:
        """Return a time for each step with its share."""
        return Cost(time, self.work.percent(time), STEP if self.work.has_steps else RECORDING)

    def found(
        self, kind: str, says: partial[str], ranks: Iterable[int], cost: Cost | None = None, cause: str = ""
    ) -> Finding:
        """Return a finding about these ranks."""
        time, percent, _ = cost or (float("nan"), float("nan"), "")
        return Finding(kind, says, self.numbers(ranks), time, percent, cause)
