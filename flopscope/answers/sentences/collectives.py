"""Sentences about the collectives of one rank."""

from __future__ import annotations

from flopscope.answers import facts
from flopscope.answers.sentences.words import Said
from flopscope.support.units import bytes_text, plural, short_time_text

OF_GRADIENTS = ("allreduce", "reducescatter")
"""Kinds of collectives that sum gradients over ranks."""


SCHEDULER = (
    "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true lets XLA start them earlier and wait later where other "
    "work does not depend on them"
)
PARTS = "split the batch into parts, so that the transfers of one part run while another one is computed"
BY_SCHEDULE = {
    "never": f"{SCHEDULER}. Where all of it does, {PARTS}",
    "alone": f"XLA has other work beside some collectives, but not beside these: {PARTS}",
    "beside": "XLA has other work beside them, but less than they take: compute more for each transfer (a larger batch "
    "on each device), or send less (types of 16 bits)",
    "unknown": SCHEDULER,
}
"""What to do, by what XLA's schedule has beside the collectives."""


def waits_for_ranks(of: facts.WaitsForRanks) -> Said:
    where, excess = of.per, short_time_text(of.waited)
    if of.steps > 1:
        where, excess = f"in {of.steps} steps", f"{excess} {of.per}"
    late = "One rank alone does not show who is late: look at all ranks (flopscope ranks)"
    if of.devices > 1:
        late = (
            "Of the devices in the profile, the one with the shortest kernel of a collective came last "
            "(collectives()); of ranks elsewhere, all traces show it (flopscope ranks)"
        )
    return Said(
        "Find out for which rank this one waits",
        f"{of.calls} of {plural(of.collectives, 'collective')} {where} took more than twice the time that so many "
        f"bytes need at the best rate of the profile, {excess} in excess. {late}, and balance their data and work.",
    )


def exposed_transfers(of: facts.ExposedTransfers) -> Said:
    sums = of.kind.replace("_", "").lower() in OF_GRADIENTS
    if of.schedule:
        tip = BY_SCHEDULE[of.schedule]
    elif of.message < facts.SMALL_MESSAGE:
        tip = f"gather small messages ({bytes_text(of.message)} at the median) into larger ones"
    elif sums and of.buckets:
        tip = "send less (a communication hook that compresses gradients), or accumulate gradients over batches"
    elif sums and of.backward:
        tip = "overlap them with the backward pass (DistributedDataParallel, FSDP prefetching)"
    else:
        tip = "start them before other computation, and wait where the result is needed (async_op=True)"
    return Said(
        "Hide the collectives behind computation",
        f"{short_time_text(of.exposed)} {of.per} of transfers, most of them {of.kind}, overlap with no computation; "
        f"{tip}.",
    )
