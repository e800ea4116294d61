"""Rules about other ranks, from the trace of one: waiting for a slow rank, and transfers that nothing hides."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, compress
from typing import NamedTuple

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, claim_all, evidence, finding_about, is_trained
from flopscope.answers.host_events import calls_named, steps_of
from flopscope.answers.sentences import collectives
from flopscope.answers.sentences.collectives import SMALL_MESSAGE
from flopscope.support.statistics import median

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
    says = partial(collectives.waits_for_ranks, share * sum(op.time for op in ops), analysis.per, *counts)
    yield Finding(says, claim_all(ops, share), evidence(ops), None)


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
    says = partial(collectives.exposed_transfers, share * total, analysis.per, *about)
    yield finding_about(analysis, says, claim_all(ops, min(share, computing / total) * HIDDEN), ops)
