"""Collectives of one rank: the facts of a finding. Times are in µs, sizes in bytes."""

from __future__ import annotations

from typing import NamedTuple

from flopscope.support.units import bytes_text, plural, short_time_text

__all__ = ["SMALL_MESSAGE", "ExposedTransfers", "WaitsForRanks"]

SMALL_MESSAGE = 1 << 20
"""Bytes: smaller messages are limited by the latency of the link (NCCL tests)."""


OF_GRADIENTS = ("allreduce", "reducescatter")
"""Kinds of collectives that sum gradients over ranks."""


class WaitsForRanks(NamedTuple):
    """Time of collectives beyond what their bytes need."""

    waited: float
    per: str
    calls: int
    """Calls that waited, in all steps."""
    collectives: int
    steps: int

    @property
    def action(self) -> str:
        return "Find out for which rank this one waits"

    @property
    def reason(self) -> str:
        where = f"in {self.steps} steps" if self.steps > 1 else self.per
        excess = f"{short_time_text(self.waited)} {self.per}" if self.steps > 1 else short_time_text(self.waited)
        return (
            f"{self.calls} of {plural(self.collectives, 'collective')} "
            f"{where} took more than twice the time that so many bytes need at the best rate of the "
            f"profile, {excess} in excess. One rank alone does not show who is late: look at all "
            "ranks (flopscope ranks), and balance their data and work."
        )


class ExposedTransfers(NamedTuple):
    """Time that the bytes of collectives need while nothing computes."""

    exposed: float
    per: str
    kind: str
    """The kind of collective with the most of that time."""
    message: float
    """Median size of those."""
    backward: bool
    """Whether the profile has a backward pass."""
    buckets: bool
    """Whether DistributedDataParallel is in use."""

    @property
    def action(self) -> str:
        return "Hide the collectives behind computation"

    @property
    def reason(self) -> str:
        sums = self.kind.replace("_", "").lower() in OF_GRADIENTS
        if self.message < SMALL_MESSAGE:
            tip = f"gather small messages ({bytes_text(self.message)} at the median) into larger ones"
        elif sums and self.buckets:
            tip = "send less (a communication hook that compresses gradients), or accumulate gradients over batches"
        elif sums and self.backward:
            tip = "overlap them with the backward pass (DistributedDataParallel, FSDP prefetching)"
        else:
            tip = "start them before other computation, and wait where the result is needed (async_op=True)"
        return (
            f"{short_time_text(self.exposed)} {self.per} of transfers, most of them "
            f"{self.kind}, overlap with no computation; {tip}."
        )
