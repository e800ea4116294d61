"""Why a kernel takes its time, in a sentence: what its launch says, and what the hardware counted.

What most warps wait for is not the cause: scattered loads, chains of loads, and too few warps all show waits for
memory. The other counts tell these apart, in the order of CAUSES: first work that need not be, then what is busy, then
what keeps everything from being busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flopscope.support.documents import columns
from flopscope.support.units import bytes_text

MEMORY, SHARED, BARRIER = "memory", "shared memory or special functions", "a barrier"
STALLS = {
    MEMORY: ("stall_long_scoreboard",),
    "room in the memory queue": ("stall_memory_queue",),
    SHARED: ("stall_short_scoreboard", "stall_mio"),
    BARRIER: ("stall_barrier",),
    "its writes to be seen": ("stall_membar", "stall_drain"),
    "tensor cores": ("stall_gmma",),
    "a busy arithmetic unit": ("stall_math_pipe",),
    "results of arithmetic": ("stall_wait",),
    "others, which issue": ("stall_not_selected",),
    "instructions": ("stall_no_instruction", "stall_branch"),
    "the dispatcher": ("stall_dispatch",),
}
"""What warps wait for, and the counters of warps that do, per issued instruction."""
WASTED, CONFLICTS, WAITING = 0.05, 0.3, 0.2
"""Parts that count: of the instructions, of the passes of shared memory, of the time of warps."""
BUSY, ALIKE, FEW = 75.0, 10.0, 50.0
"""Percent from which a unit is busy, points by which it may differ from another one that is as busy, and percent below
which multiprocessors or warps are few."""
SECTOR, WARP = 32, 32
"""Bytes of a sector of memory, and threads of a warp."""
OF_TABLE = ("key", "registers", "shared_memory", "theoretical_occupancy", "occupancy_limit", "waves")
"""The columns with what is known of a launch."""
LAUNCH = columns("kernel$ registers# shared_memory#:bytes theoretical_occupancy:% limit$ waves")


class Launch(NamedTuple):
    """What is known of the launch of a call's longest kernel."""

    kernel: str
    registers: int
    """Of a thread."""
    shared_memory: int
    """Bytes of a block."""
    theoretical_occupancy: float
    """Percent of the warps that a multiprocessor can hold; NaN: unknown."""
    limit: str | None
    """What limits it."""
    waves: float
    """Blocks over those that the device holds at once; NaN: unknown."""

    def __str__(self) -> str:
        limit = f", limited by {self.limit}" if self.limit else ""
        facts = [
            f"{self.registers} registers a thread",
            f"{bytes_text(self.shared_memory)} of shared memory a block" if self.shared_memory else "",
            "" if math.isnan(self.waves) else f"{self.waves:.3g} waves of blocks",
            "" if math.isnan(self.theoretical_occupancy) else f"occupancy {self.theoretical_occupancy:.0f} %{limit}",
        ]
        return ", ".join(fact for fact in facts if fact)


def launch_of(table: Mapping[str, Any]) -> Launch | None:
    """Return the launch of the longest kernel in the columns of a table; None if no launch was recorded with it."""
    rows = [row for row, registers in enumerate(table["registers"]) if registers > 0]
    if not rows:
        return None
    longest = max(rows, key=table["self_device_time_total"].__getitem__)
    name, registers, shared, *others = (table[column][longest] for column in OF_TABLE)
    return Launch(name, int(registers), int(shared), *others)


def waiting(counts: Mapping[str, float], what: str) -> float:
    """Return the part of the warps' time for which they wait for this, one of STALLS; NaN if it was not counted."""
    every = 1.0 + sum(counts.get(name, 0.0) for names in STALLS.values() for name in names)  # counted in several calls
    warps = max(counts.get("warps_per_issue", math.nan), every)
    return sum(counts.get(name, 0.0) for name in STALLS[what]) / warps


class Seen(NamedTuple):
    """What the causes are found by."""

    counts: Mapping[str, float]
    launch: Launch

    def part(self, name: str, of: str) -> float:
        """The quotient of two counters; NaN if one is unknown or the second is 0."""
        return self.counts.get(name, math.nan) / (self.counts.get(of) or math.nan)

    def waiting(self, *whats: str) -> float:
        """The part of the warps' time for which they wait for these."""
        return sum(waiting(self.counts, what) for what in whats)

    @property
    def waits_for_memory(self) -> bool:
        return self.waiting(MEMORY, "room in the memory queue", "its writes to be seen") >= WAITING

    @property
    def sector(self) -> float:
        """Bytes of a sector that loads and stores use, the mean; NaN: unknown."""
        sectors = {way: self.counts.get(f"sectors_{way}", 0.0) for way in ("read", "written")}
        used = (
            count and count * self.counts.get(f"bytes_per_sector_{way}", math.nan) for way, count in sectors.items()
        )
        return sum(used) / (sum(sectors.values()) or math.nan)

    @property
    def busiest(self) -> tuple[str, float]:
        """What is busiest, and the percent of its peak. Of those about as busy, the first of UNITS: caches pass what
        memory and units need."""
        rates = {what: max(self.counts.get(name, 0.0) for name in names) for what, names in UNITS.items()}
        return next(item for item in rates.items() if item[1] >= max(rates.values()) - ALIKE)

    @property
    def longest_wait(self) -> str:
        return max(STALLS, key=self.waiting)


UNITS = {
    "the device memory": ("pct_peak_dram",),
    "tensor cores": ("tensor_active",),
    "fp64 units": ("fp64_active",),
    "FMA units": ("fma_active",),
    "integer and logic units": ("alu_active",),
    "the L2 cache": ("pct_peak_l2", "l2_active"),
    "L1 caches and shared memories": ("l1_active",),
    "the issue of instructions": ("issue_active",),
}
"""What can be busy, and its counters."""
RELIEF = {
    "the device memory": "Move fewer bytes: fuse what reads them again, or a smaller dtype",
    "the L2 cache": "Keep in registers and shared memory what is read again",
    "L1 caches and shared memories": "Wider loads, or more of the data in registers",
    "tensor cores": "A shorter dtype, or fewer operations",
    "fp64 units": "fp32 where the result allows it",
}
"""What to do about a busy unit."""

Found = tuple[str, str] | None
"""What a cause says, and what changes it; None if it does not hold."""


def _spills(seen: Seen) -> Found:
    local = seen.part("local_requests", "instructions")
    if not local >= WASTED:
        return None
    return (
        f"{_percent(local)} of the instructions access local memory, to which registers spill",
        "Fewer values at a time, or more registers a thread (__launch_bounds__, num_warps, a smaller tile)",
    )


def _atomics(seen: Seen) -> Found:
    atomic = seen.part("atomic_requests", "instructions")
    if not atomic >= WASTED / 2 or not seen.waits_for_memory:
        return None
    return (
        f"{_percent(atomic)} of the instructions are atomic, in global memory",
        "Add up within a block first, then once to global memory",
    )


def _scattered(seen: Seen) -> Found:
    if not seen.sector <= SECTOR / 2 or not seen.waits_for_memory or seen.busiest[1] < FEW / 2:
        return None
    return (
        f"loads and stores use {seen.sector:.0f} of the {SECTOR} bytes of a sector of memory",
        "Let neighbouring threads access neighbouring addresses: another layout, or through shared memory",
    )


def _conflicts(seen: Seen) -> Found:
    conflicts = seen.part("bank_conflicts", "shared_wavefronts")
    matter = seen.waiting(SHARED) >= WAITING or seen.counts.get("l1_active", 0.0) >= FEW
    if not conflicts >= CONFLICTS or not matter:
        return None
    text = f"{_percent(conflicts)} of the passes of shared memory are conflicts of its banks"
    return text, "Pad its rows by an element, or swizzle"


def _divergence(seen: Seen) -> Found:
    threads = seen.counts.get("threads_per_instruction", math.inf)
    if threads > WARP / 2:
        return None
    return (
        f"{threads:.0f} of {WARP} threads take part in an instruction",
        "Let the threads of a warp take the same branch: sort or split the work",
    )


def _busy(seen: Seen) -> Found:
    what, percent = seen.busiest
    if percent < BUSY:
        return None
    cause = f"{what} {'is' if what.startswith('the ') else 'are'} {min(percent, 100.0):.0f} % busy"
    return cause, RELIEF.get(what, "Fewer or cheaper operations")


def _few_blocks(seen: Seen) -> Found:
    active, waves = seen.counts.get("sm_active", math.inf), seen.launch.waves
    if active < FEW:
        cause = f"a multiprocessor has a block for {active:.2g} % of the time"
    elif waves < FEW / 100 and seen.counts.get("occupancy", math.inf) < FEW:
        cause = f"its blocks are {_percent(waves)} of those that the device can hold at once"
    else:
        return None
    return cause, "More and smaller blocks, or more work a launch"


def _barrier(seen: Seen) -> Found:
    if seen.longest_wait != BARRIER or not seen.waiting(BARRIER) >= WAITING:
        return None
    return "warps wait for each other at a barrier", "Fewer barriers, or smaller blocks of which others run meanwhile"


def _occupancy(seen: Seen) -> Found:
    occupancy, limit = seen.counts.get("occupancy", math.inf), seen.launch.limit
    if occupancy >= FEW or not limit:
        return None
    less = {"registers": "Fewer registers a thread", "shared memory": "Less shared memory a block"}
    return (
        f"{occupancy:.0f} % of the warps that fit are in flight, limited by {limit}",
        f"{less.get(limit, 'Larger blocks')}, or more independent loads a thread",
    )


def _waits(seen: Seen) -> Found:
    what = seen.longest_wait
    more = {MEMORY: "loads", "results of arithmetic": "operations"}.get(what, "work")
    return f"warps wait for {what}", f"More independent {more} a thread, to overlap the waits"


CAUSES: dict[str, Callable[[Seen], Found]] = {
    "spills": _spills,
    "atomics": _atomics,
    "scattered access": _scattered,
    "bank conflicts": _conflicts,
    "divergence": _divergence,
    "busy": _busy,
    "few blocks": _few_blocks,
    "barrier": _barrier,
    "occupancy": _occupancy,
    "waits": _waits,
}


def cause_of(counts: Mapping[str, float], launch: Launch | None) -> tuple[str, str]:
    """Return the name of the first cause that holds, and a sentence: it, what warps wait for, and what to change first.

    Both are "" if nothing was counted or the launch is unknown.
    """
    if launch is None or not counts.get("warps_per_issue"):
        return "", ""
    seen = Seen(counts, launch)
    name, (cause, change) = next((name, found) for name, holds in CAUSES.items() if (found := holds(seen)))
    waits = sorted(((seen.waiting(what), what) for what in STALLS), reverse=True)
    longest = " and ".join(f"{_percent(part)} for {what}" for part, what in waits[:2] if part >= WASTED)
    issues = f"; they issue in {counts['issue_active']:.0f} % of the cycles" if "issue_active" in counts else ""
    waiting = f". Of their time, warps wait {longest}{issues}" if longest else ""
    return name, f"{cause}{waiting}. {change}."


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
