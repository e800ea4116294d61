"""Collectives of one rank: the facts of a finding, whose text is its sentence. Times are in µs, sizes in bytes."""

from __future__ import annotations

from typing import NamedTuple

from flopscope.support.units import bytes_text, plural, short_time_text

__all__ = ["SMALL_MESSAGE", "ExposedTransfers", "WaitsForRanks"]

SMALL_MESSAGE = 1 << 20
"""Bytes: smaller messages are limited by the latency of the link (NCCL tests)."""


class WaitsForRanks(NamedTuple):
    """Time of collectives beyond what their bytes need."""

    waited: float
    per: str
    calls: float
    collectives: float

    def __str__(self) -> str:
        return (
            f"Find out for which rank this one waits: {self.calls:.3g} of {plural(self.collectives, 'collective')} "
            f"{self.per} took more than twice the time that so many bytes need at the best rate of the "
            f"profile, {short_time_text(self.waited)} in excess. One rank alone does not show who is late: look at all "
            "ranks (flopscope ranks), and balance their data and work."
        )


class ExposedTransfers(NamedTuple):
    """Time that the bytes of collectives need while nothing computes."""

    exposed: float
    per: str
    message: float
    """Median size."""
    backward: bool
    """Whether the profile has a backward pass."""
    buckets: bool
    """Whether DistributedDataParallel is in use."""

    def __str__(self) -> str:
        if self.message < SMALL_MESSAGE:
            tip = f"gather small messages ({bytes_text(self.message)} at the median) into larger ones"
        elif self.buckets:
            tip = "send less (a communication hook that compresses gradients), or accumulate gradients over batches"
        elif self.backward:
            tip = "overlap them with the backward pass (DistributedDataParallel, FSDP prefetching)"
        else:
            tip = "start them before other computation, and wait where the result is needed (async_op=True)"
        return (
            f"Hide the collectives: {short_time_text(self.exposed)} {self.per} of transfers overlap with no "
            f"computation; {tip}."
        )
