"""Sentences about the collectives of one rank."""

from __future__ import annotations

from flopscope.answers.sentences.words import Said
from flopscope.support.units import bytes_text, plural, short_time_text

SMALL_MESSAGE = 1 << 20
"""Bytes: smaller messages are limited by the latency of the link (NCCL tests)."""
OF_GRADIENTS = ("allreduce", "reducescatter")
"""Kinds of collectives that sum gradients over ranks."""


def waits_for_ranks(waited: float, per: str, calls: int, collectives: int, steps: int, devices: int) -> Said:
    """Time of collectives beyond what their bytes need.

    calls: calls that waited, in all steps. devices: in the profile.
    """
    where, excess = per, short_time_text(waited)
    if steps > 1:
        where, excess = f"in {steps} steps", f"{excess} {per}"
    late = "One rank alone does not show who is late: look at all ranks (flopscope ranks)"
    if devices > 1:
        late = (
            "Of the devices in the profile, the one with the shortest kernel of a collective came last "
            "(collectives()); of ranks elsewhere, all traces show it (flopscope ranks)"
        )
    return Said(
        "Find out for which rank this one waits",
        f"{calls} of {plural(collectives, 'collective')} {where} took more than twice the time that so many "
        f"bytes need at the best rate of the profile, {excess} in excess. {late}, and balance their data and work.",
    )


def exposed_transfers(
    exposed: float, per: str, kind: str, message: float, backward: bool, buckets: bool, jax: bool
) -> Said:
    """Time that the bytes of collectives need while nothing computes.

    kind: the kind of collective with the most of that time. message: median size of those. backward: whether the
    profile has a backward pass. buckets: whether DistributedDataParallel is in use. jax: whether
    the program is one of JAX.
    """
    sums = kind.replace("_", "").lower() in OF_GRADIENTS
    if jax:
        tip = (
            "split the batch into parts, so that the transfers of one part run while another one is computed (where "
            "XLA starts them late, XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true starts them earlier)"
        )
    elif message < SMALL_MESSAGE:
        tip = f"gather small messages ({bytes_text(message)} at the median) into larger ones"
    elif sums and buckets:
        tip = "send less (a communication hook that compresses gradients), or accumulate gradients over batches"
    elif sums and backward:
        tip = "overlap them with the backward pass (DistributedDataParallel, FSDP prefetching)"
    else:
        tip = "start them before other computation, and wait where the result is needed (async_op=True)"
    return Said(
        "Hide the collectives behind computation",
        f"{short_time_text(exposed)} {per} of transfers, most of them {kind}, overlap with no computation; {tip}.",
    )
