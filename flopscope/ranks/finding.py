"""A finding across ranks, and what the rules that make findings share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flopscope.ranks.calls import Floats
from flopscope.ranks.digest import Digest
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.work import Work
from flopscope.support.units import percent_text, short_time_text

__all__ = ["LEAST", "LEAST_SPREAD", "SIGNIFICANT", "Comparison", "Finding", "host_names", "median", "sigma"]

LEAST = 0.01  # of a step: no smaller cost is named
SIGNIFICANT = 5.0  # median absolute deviations, scaled to standard deviations
MAD_TO_SIGMA = 1.4826
LEAST_SPREAD = 0.002  # of the value: ranks and steps differ by at least that


@dataclass(frozen=True)
class Finding:
    """Something that is slow, or wrong."""

    kind: str
    """"straggler", "gpu", "link", "imbalance", "step", "memory", "missing" or "mismatch"."""
    what: str
    """A sentence: who, why, how often, what it costs."""
    ranks: tuple[int, ...]
    cost_us: float
    """What it costs in each step, in µs; NaN if unknown."""
    cost_pct: float
    """cost_us in percent of a step."""
    cause: str = ""
    """Cause of a straggler: "gpu", "work", "kernels" (one of these two, where no shapes are recorded), "data", "host",
    "copy" or "other"."""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """What to do about it: a sentence."""
        return ACTIONS.get((self.kind, self.cause)) or ACTIONS[self.kind, ""]


ACTIONS = {  # by kind and cause; "" for all causes that have no row of their own
    (
        "straggler",
        "gpu",
    ): "Compare its GPU with that of another rank: model, clocks, power limit, temperature and other "
    "processes (nvidia-smi); then its kernels: flopscope compare.",
    ("straggler", "work"): "Give it as much work as the others: look at how samples, sequence lengths and padding are "
    "divided among the ranks.",
    ("straggler", "kernels"): "Record shapes (record_shapes=True) to distinguish more work from a slower GPU.",
    (
        "straggler",
        "data",
    ): "Look at its data loader: number of workers, prefetching, storage, and what else runs on the CPUs of its host.",
    ("straggler", "host"): "Look at what its Python does while the GPU is idle, such as logging, synchronization or "
    "garbage collection, and at what else runs on the CPUs of its host.",
    ("straggler", "copy"): "Look at its copies between host and GPU: pinned memory, the NUMA node of its process, the "
    "PCIe link of its GPU.",
    ("straggler", ""): "Look at the gaps in its timeline: flopscope report of its trace.",
    (
        "gpu",
        "",
    ): "Compare its GPU with that of another rank: model, clocks, power limit, temperature and other processes "
    "(nvidia-smi).",
    (
        "link",
        "",
    ): "Test the network of these hosts alone, for example with nccl-tests, and compare its adapters, routes "
    "and error counters with those of another host.",
    ("imbalance", ""): "Move work from these ranks to the others, for example layers of a stage.",
    ("imbalance", "work"): "Spread the tokens more evenly over the experts: capacity, or a loss that balances them.",
    ("step", ""): "Look at what the program does in these steps only, such as checkpoints, evaluation or logging.",
    ("memory", ""): "Compare what it keeps with another rank, for example with torch.cuda.memory_summary().",
    (
        "missing",
        "",
    ): "Find out what it did instead: its last ops in its trace, or its stack (py-spy dump) while it hangs.",
    ("mismatch", ""): "Let all ranks of the group call the same collectives, with the same sizes, in the same order.",
}
"""What to do about a finding."""


@dataclass(frozen=True)
class Comparison:
    """All that the rules look at."""

    digests: Sequence[Digest]
    work: Work
    stragglers: Stragglers

    @property
    def whole(self) -> str:
        """What costs are a share of."""
        return "a step" if self.work.has_steps else "the recorded time"

    def price(self, cost: float) -> str:
        """Return a cost in µs as text, with its share."""
        return f"{short_time_text(cost)} or {percent_text(self.work.percent(cost))} of {self.whole}"

    def place(self, rank: int) -> str:
        """Return the rank with its host and GPU, as far as they are known."""
        digest = self.digests[rank]
        host, gpu = host_names(self.digests)[rank], digest.identity.device_index
        where = ", ".join([*([f"host {host}"] if host else []), *([f"GPU {gpu}"] if gpu is not None else [])])
        return f"rank {digest.rank}" + (f" ({where})" if where else "")

    def numbers(self, ranks: Sequence[int]) -> str:
        """Return the first of the ranks as text."""
        return ", ".join(str(self.digests[rank].rank) for rank in ranks[:4]) + (", …" if len(ranks) > 4 else "")


def host_names(digests: Sequence[Digest]) -> list[str | None]:
    """Return the host of each rank: from the names of the files, or else counted, if each host has the same number of
    GPUs and ranks are numbered host by host, as torchrun does."""
    if all(digest.identity.host for digest in digests):
        return [digest.identity.host for digest in digests]
    gpus = {digest.identity.gpus_here for digest in digests}
    size = (gpus.pop() or 0) if len(gpus) == 1 else 0
    return [f"#{digest.rank // size}" if size > 1 else None for digest in digests]


def median(values: Floats) -> float:
    """Return the median of the known values; NaN without any."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def sigma(values: Floats) -> float:
    """Return the spread of the values as a standard deviation, from their median absolute deviation."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan")
    return MAD_TO_SIGMA * float(np.median(np.abs(known - np.median(known))))
