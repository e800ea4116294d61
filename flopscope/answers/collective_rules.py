"""Collectives of one rank: sums by device and kind, and rules about waits for a slow rank and exposed transfers."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, compress
from typing import Any, NamedTuple

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, claim_all, evidence, finding_about, is_trained
from flopscope.answers.host_events import calls_named, steps_of
from flopscope.answers.words import Said
from flopscope.support.statistics import median
from flopscope.support.units import bytes_text, plural, short_time_text

SLOW = 2.0
"""Times the time that its bytes need, above which a collective waited for another rank."""
FEWEST = 3
"""Collectives of a communicator from which their best rate is known."""
ALIKE = 4
"""Times the size of a message up to which its rate is comparable."""
SLOWEST_LINK, SLOWEST_SMALL = 2e3, 1000.0
"""Bytes per µs, and µs of a small message: what takes longer than that at its best waits, whatever the link."""
HIDDEN = 0.8
"""Share of a transfer that overlaps with computation once it can."""

SMALL_MESSAGE = 1 << 20
"""Bytes: smaller messages are limited by the latency of the link (NCCL tests)."""
OF_GRADIENTS = ("allreduce", "reducescatter")
"""Kinds of collectives that sum gradients over ranks."""


class Call(NamedTuple):
    """A collective of a known size. Times in µs."""

    kind: str
    size: float
    duration: float
    exposed: float
    bus: float
    """Bus bandwidth, NaN where its kind has none."""


def _calls(analysis: Analysis) -> tuple[list[tuple[Call, float]], float, int]:
    """Return the collectives of the steps with their least times, and of those of any size the exposed time and number.

    A least time follows from the collectives of the same communicator: one of the same kind that moves no fewer bytes
    takes no less, and rates are alike up to four times the size, of messages that latency does not limit.
    """
    columns = analysis.core.collectives()[0]
    names = ("collective", "message_bytes", "duration", "exposed", "bus_gbytes_per_s")
    groups: dict[tuple[object, ...], list[Call]] = {}
    exposed, count = 0.0, 0
    inside = steps_of(analysis, np.array(columns["start"], np.int64)) >= 0
    places = zip(*(columns[name] for name in ("device", "stream", "group", "group_size")), strict=True)
    rows = zip(*(columns[name] for name in names), strict=True)
    for row, place in compress(zip(rows, places, strict=True), inside):
        call = Call(*row)
        exposed += call.exposed
        count += 1
        if call.size > 0 and call.duration > 0:
            groups.setdefault(place, []).append(call)
    return [pair for calls in groups.values() if len(calls) >= FEWEST for pair in _least(calls)], exposed, count


def _least(calls: Sequence[Call]) -> Iterator[tuple[Call, float]]:
    """Yield collectives of one communicator with the least time that their bytes need, as far as they show it."""
    ordered = sorted(calls, key=lambda call: call.size)
    sizes = [call.size for call in ordered]
    bus = list(accumulate([call.bus if call.bus == call.bus else 0.0 for call in ordered], max))
    for kind in dict.fromkeys(call.kind for call in ordered):
        same = [call for call in ordered if call.kind == kind]
        rates = list(accumulate([call.size / call.duration for call in same], max))
        shortest = list(accumulate([-call.duration for call in reversed(same)], max))[::-1]
        own = [call.size for call in same]
        for call in same:
            near = call.size * (ALIKE if call.size >= SMALL_MESSAGE else 1)
            least = min(
                call.duration,
                -shortest[bisect.bisect_left(own, call.size)],
                call.size / rates[bisect.bisect_right(own, near) - 1],
            )
            best = bus[bisect.bisect_right(sizes, near) - 1]
            if call.bus == call.bus and best > 0:
                least = min(least, call.duration * call.bus / best)
            yield call, least


def _waited(call: Call, least: float) -> float:
    """Return the exposed time in which a collective waited for other ranks."""
    return min(call.duration - least, call.exposed) if call.duration > SLOW * least else 0.0


def _is_transfer(call: Call, least: float) -> bool:
    """Return whether the least time of a collective is one that its bytes may need, and not itself a wait."""
    return least < SLOWEST_SMALL if call.size < SMALL_MESSAGE else call.size / least > SLOWEST_LINK


WRAPPED = "DistributedDataParallel.forward"
BEGINS = re.compile(
    r"^(?:c10d::|nccl:|gloo:)_?broadcast|^aten::(?:conv\w*|linear|addmm|mm|bmm|matmul|einsum|embedding|\w*_norm)$"
)
"""What a forward pass begins with: a broadcast, or what its module computes."""


def buffers(analysis: Analysis) -> Iterator[str]:
    """Yield a note on DistributedDataParallel, in a training of which several forward passes began with a broadcast."""
    if WRAPPED not in analysis.names or not is_trained(analysis):
        return
    passes, begun = calls_named(analysis, WRAPPED.__eq__), calls_named(analysis, BEGINS.search)
    starts, count = begun["start"].tolist(), 0
    for start, duration in zip(passes["start"].tolist(), passes["duration"].tolist(), strict=True):
        first = bisect.bisect_left(starts, start)
        inside = first < len(starts) and starts[first] < start + duration
        count += inside and "broadcast" in analysis.names[begun["name"][first]]
    if count > 1:
        yield (
            f"DistributedDataParallel broadcasts buffers before {count} of {len(passes['start'])} forward passes: "
            "broadcast_buffers=False leaves that out where ranks need not agree on them, as on running statistics."
        )


def straggler(analysis: Analysis) -> Iterator[Finding]:
    """Collectives that last longer than their bytes need: this rank waits for another one.

    Premises: the sizes of at least three collectives of a communicator were recorded, and one took more than twice its
    least time, which follows from the best rate among them. The estimate is the exposed part of the time beyond.
    """
    ops = [op for op in analysis.ops if op.part == "communication"]
    calls, exposed, count = analysis.once(_calls) if ops else ([], 0.0, 0)
    waits = [waited for call, least in calls if (waited := _waited(call, least)) > 0]
    if not waits:
        return
    share, counts = min(sum(waits) / exposed, 1.0), (len(waits), count, analysis.step_count, len(analysis.devices))
    says = partial(say_straggler, share * sum(op.time for op in ops), analysis.per, *counts)
    yield Finding(says, claim_all(ops, share), evidence(ops), None)


def say_straggler(waited: float, per: str, calls: int, collectives: int, steps: int, devices: int) -> Said:
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


def communication(analysis: Analysis) -> Iterator[Finding]:
    """Transfers of collectives during which the device computes nothing.

    Premises: as for `straggler`; waiting for other ranks is not part of a collective's transfer. Most of the
    collectives did not wait, and the best of a communicator is one that links have: otherwise each may have waited. The
    estimate is 80 % of the transfers, as far as the computation of a step lasts.
    """
    ops = [op for op in analysis.ops if op.part == "communication"]
    calls, exposed, _ = analysis.once(_calls) if ops else ([], 0.0, 0)
    moved = [(call, call.exposed - _waited(call, least)) for call, least in calls if _is_transfer(call, least)]
    transfers = sum(time for _, time in moved)
    if transfers <= 0 or 2 * sum(_waited(*pair) > 0 for pair in calls) > len(calls):
        return
    kinds: dict[str, float] = {}
    for call, time in moved:
        kinds[call.kind] = kinds.get(call.kind, 0.0) + time
    kind = max(kinds, key=lambda name: kinds[name])
    share, total = min(transfers / exposed, 1.0), sum(op.time for op in ops)
    if not total:
        return  # all of them ran during computation, or in steps that are left out
    computing = sum(op.time for op in analysis.ops if op.part not in ("copy", "communication"))
    keys = set(analysis.columns["key"])
    size = median(call.size for call, _ in moved if call.kind == kind)
    backward, buckets = (any(name in key for key in keys) for name in ("autograd::engine", "DistributedDataParallel"))
    about = (kind, size, backward, buckets, analysis.uses_jax)
    says = partial(say_communication, share * total, analysis.per, *about)
    yield finding_about(analysis, says, claim_all(ops, min(share, computing / total) * HIDDEN), ops)


def say_communication(
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


# Sums by device and kind ----------------------------------------------------------------------------------------------


class CollectiveKind(NamedTuple):
    """Calls of collectives that have something in common; sizes and bandwidths are of the calls that have them."""

    device: int
    collective: str
    calls: int
    message_bytes: float
    """Median; NaN if no size is known."""
    time: float
    """µs, with the wait for other ranks."""
    exposed: float
    """The part in µs in which no other kernel ran on the device."""
    bus_median: float
    """GB/s over the time with the wait; NaN if unknown."""
    bus_max: float

    @property
    def exposed_pct(self) -> float:
        """The exposed part in percent of the time; NaN if there is none."""
        return 100 * self.exposed / self.time if self.time else math.nan


def kinds_of(calls: Mapping[str, Sequence[Any]]) -> list[CollectiveKind]:
    """Sum the calls, the columns of Store.collectives(), by device and kind, in the order of their values."""
    places: dict[tuple[int, str], list[int]] = {}
    for i, key in enumerate(zip(calls["device"], calls["collective"], strict=True)):
        places.setdefault(key, []).append(i)
    return [_kind(*key, {name: [calls[name][i] for i in places[key]] for name in _SUMMED}) for key in sorted(places)]


_SUMMED = ("duration", "exposed", "message_bytes", "bus_gbytes_per_s")


def _kind(device: int, collective: str, calls: Mapping[str, Sequence[float]]) -> CollectiveKind:
    message, bus = ([v for v in calls[name] if not math.isnan(v)] for name in ("message_bytes", "bus_gbytes_per_s"))
    return CollectiveKind(
        device,
        collective,
        len(calls["duration"]),
        median(message) if message else math.nan,
        sum(calls["duration"]),
        sum(calls["exposed"]),
        median(bus) if bus else math.nan,
        max(bus, default=math.nan),
    )


RULES = (straggler, communication)
