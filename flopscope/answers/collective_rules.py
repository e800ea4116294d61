"""Collectives of one rank: sums by device and kind, and rules about waits for a slow rank and exposed transfers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, claim_all, evidence, finding_about, is_trained
from flopscope.answers.host_events import calls_named, steps_of
from flopscope.answers.words import Said
from flopscope.support.units import bytes_text, plural, short_time_text

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
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


class Calls(NamedTuple):
    """The collectives of the steps as arrays. Times in µs."""

    kinds: Sequence[str]
    kind: npt.NDArray[np.intp]
    """Its place in ``kinds``."""
    size: Floats
    exposed: Floats
    least: Floats
    """The least time that its bytes need; NaN: unknown."""
    waited: Floats
    """The exposed time in which it waited for other ranks."""

    @property
    def transfers(self) -> npt.NDArray[np.bool_]:
        """Whether the least time is one that the bytes may need, and not itself a wait."""
        fast = self.size / self.least > SLOWEST_LINK
        return np.asarray(np.where(self.size < SMALL_MESSAGE, self.least < SLOWEST_SMALL, fast))

    def share(self, times: Floats) -> float:
        """Return the share of the exposed time in these parts of it."""
        return min(float(times.sum() / self.exposed.sum()), 1.0)


def _numbered(keys: Iterable[T]) -> tuple[list[T], npt.NDArray[np.intp]]:
    """Return the different keys in the order of the first of each, and the place of each key among them."""
    places: dict[T, int] = {}
    of = np.array([places.setdefault(key, len(places)) for key in keys], np.intp)
    return list(places), of


def _calls(analysis: Analysis) -> Calls:
    """Return the collectives of the steps.

    A least time follows from the collectives of the same communicator, if it has some of known size: one of the same
    kind that moves no fewer bytes takes no less, and rates are alike up to four times the size, of messages that
    latency does not limit.
    """
    columns = analysis.core.collectives()[0]
    inside = steps_of(analysis, np.array(columns["start"], np.int64)) >= 0
    names = ("message_bytes", "duration", "exposed", "bus_gbytes_per_s")
    size, time, exposed, bus = (np.array(columns[name], np.float64)[inside] for name in names)
    kinds, kind = _numbered(compress(columns["collective"], inside))
    places = zip(*(columns[name] for name in ("device", "stream", "group", "group_size")), strict=True)
    groups, group = _numbered(compress(places, inside))
    near, least = size * np.where(size >= SMALL_MESSAGE, ALIKE, 1), np.full(len(size), math.nan)
    for number in range(len(groups)):
        at = np.flatnonzero((group == number) & (size > 0) & (time > 0))
        at = at[np.argsort(size[at], kind="stable")] if len(at) >= FEWEST else at[:0]
        for same in (at[kind[at] == one] for one in np.unique(kind[at])):
            own, rates = size[same], np.maximum.accumulate(size[same] / time[same])
            shortest = np.minimum.accumulate(time[same][::-1])[::-1][np.searchsorted(own, own)]
            least[same] = np.minimum(shortest, own / rates[np.searchsorted(own, near[same], side="right") - 1])
        best = np.maximum.accumulate(np.nan_to_num(bus[at]))[np.searchsorted(size[at], near[at], side="right") - 1]
        least[at] = np.fmin(least[at], time[at] * bus[at] / np.where(best > 0, best, math.nan))
    waited = np.where(time > SLOW * least, np.minimum(time - least, exposed), 0.0)
    return Calls(kinds, kind, size, exposed, least, waited)


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
    first = np.searchsorted(begun["start"], passes["start"])
    starts, sends = np.append(begun["start"], 1 << 62), np.array(["broadcast" in name for name in analysis.names])
    inside = starts[first] < passes["start"] + passes["duration"]
    buffered = np.count_nonzero(sends[begun["name"][first[inside]]])
    if buffered > 1:
        yield (
            f"DistributedDataParallel broadcasts buffers before {buffered} of {len(passes['start'])} forward passes: "
            "broadcast_buffers=False leaves that out where ranks need not agree on them, as on running statistics."
        )


def straggler(analysis: Analysis) -> Iterator[Finding]:
    """Collectives that last longer than their bytes need: this rank waits for another one.

    Premises: the sizes of at least three collectives of a communicator were recorded, and one took more than twice its
    least time, which follows from the best rate among them. The estimate is the exposed part of the time beyond.

    Facts: waited: time beyond what their bytes need. calls: those that waited, in all steps. devices: in the
    profile.
    """
    ops = [op for op in analysis.ops if op.part == "communication"]
    calls = analysis.once(_calls)
    if not ops or not (waits := int(np.count_nonzero(calls.waited))):
        return
    share, per, steps, devices = calls.share(calls.waited), analysis.per, analysis.step_count, len(analysis.devices)
    waited, collectives = share * sum(op.time for op in ops), len(calls.kind)
    excess = short_time_text(waited)
    where, excess = (f"in {steps} steps", f"{excess} {per}") if steps > 1 else (per, excess)
    late = "One rank alone does not show who is late: look at all ranks (flopscope ranks)"
    if devices > 1:
        late = (
            "Of the devices in the profile, the one with the shortest kernel of a collective came last "
            "(collectives()); of ranks elsewhere, all traces show it (flopscope ranks)"
        )
    says = Said(
        "Find out for which rank this one waits",
        f"{waits} of {plural(collectives, 'collective')} {where} took more than twice the time that so many bytes need "
        f"at the best rate of the profile, {excess} in excess. {late}, and balance their data and work.",
        {"waited": waited, "per": per, "calls": waits, "collectives": collectives}
        | {"steps": steps, "devices": devices},
    )
    yield Finding(says, claim_all(ops, share), evidence(ops), None)


def communication(analysis: Analysis) -> Iterator[Finding]:
    """Transfers of collectives during which the device computes nothing.

    Premises: as for `straggler`; waiting for other ranks is not part of a collective's transfer. Most of the
    collectives did not wait, and the best of a communicator is one that links have: otherwise each may have waited. The
    estimate is 80 % of the transfers, as far as the computation of a step lasts.

    Facts: kind: of the collectives with the most of that time. message: median size of those. backward: the profile
    has a backward pass. buckets: DistributedDataParallel is in use.
    """
    ops = [op for op in analysis.ops if op.part == "communication"]
    calls, total = analysis.once(_calls), sum(op.time for op in ops)
    transfers, waits = calls.transfers, np.count_nonzero(calls.waited)
    moved = np.where(transfers, calls.exposed - calls.waited, 0.0)
    if not total or moved.sum() <= 0 or 2 * waits > np.count_nonzero(~np.isnan(calls.least)):
        return  # without total, all of them ran during computation, or in steps that are left out
    most = int(np.bincount(calls.kind, moved).argmax())
    share = calls.share(moved)
    computing = sum(op.time for op in analysis.ops if op.part not in ("copy", "communication"))
    keys = set(analysis.columns["key"])
    size = float(np.median(calls.size[transfers & (calls.kind == most)]))
    backward, buckets = (any(name in key for key in keys) for name in ("autograd::engine", "DistributedDataParallel"))
    kind, exposed, per, jax = calls.kinds[most], share * total, analysis.per, analysis.uses_jax
    sums = kind.replace("_", "").lower() in OF_GRADIENTS
    if jax:
        tip = (
            "split the batch into parts, so that the transfers of one part run while another one is computed (where "
            "XLA starts them late, XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true starts them earlier)"
        )
    elif size < SMALL_MESSAGE:
        tip = f"gather small messages ({bytes_text(size)} at the median) into larger ones"
    elif sums and buckets:
        tip = "send less (a communication hook that compresses gradients), or accumulate gradients over batches"
    elif sums and backward:
        tip = "overlap them with the backward pass (DistributedDataParallel, FSDP prefetching)"
    else:
        tip = "start them before other computation, and wait where the result is needed (async_op=True)"
    says = Said(
        "Hide the collectives behind computation",
        f"{short_time_text(exposed)} {per} of transfers, most of them {kind}, overlap with no computation; {tip}.",
        {"exposed": exposed, "per": per, "kind": kind, "message": size, "backward": backward}
        | {"buckets": buckets, "jax": jax},
    )
    yield finding_about(analysis, says, claim_all(ops, min(share, computing / total) * HIDDEN), ops)


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
    keys, of = _numbered(zip(calls["device"], calls["collective"], strict=True))
    names = ("duration", "exposed", "message_bytes", "bus_gbytes_per_s")
    columns, found = [np.array(calls[name], np.float64) for name in names], []
    for key, number in sorted(zip(keys, count())):
        time, exposed, *known = (column[of == number] for column in columns)
        known = [values[~np.isnan(values)] for values in known]
        size, bus = (float(np.median(values)) if len(values) else math.nan for values in known)
        most = float(known[1].max()) if len(known[1]) else math.nan
        found.append(CollectiveKind(*key, len(time), size, time.sum(), exposed.sum(), bus, most))
    return found


RULES = (straggler, communication)
