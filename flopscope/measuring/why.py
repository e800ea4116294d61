"""Why a kernel takes its time, in a sentence: what its launch says, and what the hardware counted.

What most warps wait for is not the cause: scattered loads, chains of loads, and too few warps all show waits for
memory. The other counts tell these apart, in the order of CAUSES: first work that need not be, then what is busy, then
what keeps everything from being busy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flopscope.record.counters import BARRIER, MEMORY, SHARED, STALLS, Line, code_text
from flopscope.support import upward
from flopscope.support.columns import aligned_lines
from flopscope.support.documents import Field, by_name, columns, record, rows
from flopscope.support.units import bytes_text

WASTED, CONFLICTS, WAITING = 5.0, 30.0, 20.0
"""Percent that count: of the instructions, of the passes of shared memory, of the time of warps."""
BUSY, ALIKE, FEW = 75.0, 10.0, 50.0
"""Percent from which a unit is busy, points by which it may differ from another one that is as busy, and percent below
which multiprocessors or warps are few."""
SECTOR, WARP = 32, 32
"""Bytes of a sector of memory, and threads of a warp."""
LINE = columns("kernel$ file$ line# offset# instruction$ share:% waits_for$ wait:% source$", why="it was not seen")
LAUNCH = columns("kernel$ registers# shared_memory#:bytes theoretical_occupancy:% limit$ waves")
WHY = (
    record("launch", LAUNCH, "of its longest kernel", "no kernel on a GPU was recorded"),
    *columns("cause$", cause='what limits that kernel; "" without counters'),
    *columns("explanation$", explanation="the same in a sentence"),
    rows("hot_lines", LINE, "of that kernel, if they were sampled"),
    by_name("code", Field("instructions", "integer"), "of that kernel: how many of each kind, if it was seen"),
)


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
    name, *others = (table[of][longest] for of in ("key", "theoretical_occupancy", "occupancy_limit", "waves"))
    return Launch(name, int(table["registers"][longest]), int(table["shared_memory"][longest]), *others)


def waiting(counts: Mapping[str, float], what: str) -> float:
    """Return the part of the warps' time for which they wait for this, one of STALLS; NaN if it was not counted."""
    every = 1.0 + sum(counts.get(name, 0.0) for names in STALLS.values() for name in names)  # counted in several calls
    warps = max(counts.get("warps_per_issue", math.nan), every)
    return sum(counts.get(name, 0.0) for name in STALLS[what]) / warps


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


class Seen:
    """What the causes are found by. Shares are in percent; NaN or, of what may be few, infinite if unknown."""

    def __init__(self, counts: Mapping[str, float], launch: Launch) -> None:
        def share(name: str, of: str) -> float:
            return 100 * (counts.get(name, math.nan) / (counts.get(of) or math.nan))

        self.waits = {what: 100 * waiting(counts, what) for what in STALLS}
        self.longest_wait = max(self.waits, key=self.waits.__getitem__)
        waits_of_memory = (MEMORY, "room in the memory queue", "its writes to be seen")
        self.waits_for_memory = sum(self.waits[what] for what in waits_of_memory) >= WAITING
        self.overlaps = {MEMORY: "loads", "results of arithmetic": "operations"}.get(self.longest_wait, "work")
        self.local, self.atomic = (share(f"{kind}_requests", "instructions") for kind in ("local", "atomic"))
        self.conflicts = share("bank_conflicts", "shared_wavefronts")
        sectors = {way: counts.get(f"sectors_{way}", 0.0) for way in ("read", "written")}
        used = (count and count * counts.get(f"bytes_per_sector_{way}", math.nan) for way, count in sectors.items())
        self.sector = sum(used) / (sum(sectors.values()) or math.nan)  # bytes that loads and stores use of one
        # Of those about as busy, the first of UNITS: caches pass what memory and units need.
        rates = {what: max(counts.get(name, 0.0) for name in names) for what, names in UNITS.items()}
        self.busiest, self.rate = next(item for item in rates.items() if item[1] >= max(rates.values()) - ALIKE)
        self.is_busy = f"{'is' if self.busiest.startswith('the ') else 'are'} {min(self.rate, 100.0):.0f} % busy"
        self.relief = RELIEF.get(self.busiest, "Fewer or cheaper operations")
        self.l1 = counts.get("l1_active", 0.0)
        few = ("threads_per_instruction", "sm_active", "occupancy")
        self.threads, self.active, self.occupancy = (counts.get(name, math.inf) for name in few)
        of_device = f"its blocks are {100 * launch.waves:.0f} % of those that the device can hold at once"
        of_one = f"a multiprocessor has a block for {self.active:.2g} % of the time"
        self.blocks = of_one if self.active < FEW else of_device
        self.waves, self.limit = 100 * launch.waves, launch.limit or ""
        less = {"registers": "Fewer registers a thread", "shared memory": "Less shared memory a block"}
        self.less = less.get(self.limit, "Larger blocks")


class Cause(NamedTuple):
    """What may limit a kernel. The texts have places for what is seen."""

    holds: Callable[[Seen], bool]
    text: str
    change: str


CAUSES = {
    "spills": Cause(
        lambda seen: seen.local >= WASTED,
        "{0.local:.0f} % of the instructions access local memory, to which registers spill",
        "Fewer values at a time, or more registers a thread (__launch_bounds__, num_warps, a smaller tile)",
    ),
    "atomics": Cause(
        lambda seen: seen.atomic >= WASTED / 2 and seen.waits_for_memory,
        "{0.atomic:.0f} % of the instructions are atomic, in global memory",
        "Add up within a block first, then once to global memory",
    ),
    "scattered access": Cause(
        lambda seen: seen.sector <= SECTOR / 2 and seen.waits_for_memory and seen.rate >= FEW / 2,
        f"loads and stores use {{0.sector:.0f}} of the {SECTOR} bytes of a sector of memory",
        "Let neighbouring threads access neighbouring addresses: another layout, or through shared memory",
    ),
    "bank conflicts": Cause(
        lambda seen: seen.conflicts >= CONFLICTS and (seen.waits[SHARED] >= WAITING or seen.l1 >= FEW),
        "{0.conflicts:.0f} % of the passes of shared memory are conflicts of its banks",
        "Pad its rows by an element, or swizzle",
    ),
    "divergence": Cause(
        lambda seen: seen.threads <= WARP / 2 and seen.active >= FEW,  # a call of a few elements does not diverge
        f"{{0.threads:.0f}} of {WARP} threads take part in an instruction",
        "Let the threads of a warp take the same branch: sort or split the work",
    ),
    "busy": Cause(lambda seen: seen.rate >= BUSY, "{0.busiest} {0.is_busy}", "{0.relief}"),
    "few blocks": Cause(
        lambda seen: seen.active < FEW or (seen.waves < FEW and seen.occupancy < FEW),
        "{0.blocks}",
        "More and smaller blocks, or more work a launch",
    ),
    "barrier": Cause(
        lambda seen: seen.longest_wait == BARRIER and seen.waits[BARRIER] >= WAITING,
        "warps wait for each other at a barrier",
        "Fewer barriers, or smaller blocks of which others run meanwhile",
    ),
    "occupancy": Cause(
        lambda seen: seen.occupancy < FEW and seen.limit != "",
        "{0.occupancy:.0f} % of the warps that fit are in flight, limited by {0.limit}",
        "{0.less}, or more independent loads a thread",
    ),
    "waits": Cause(
        lambda seen: True,
        "warps wait for {0.longest_wait}",
        "More independent {0.overlaps} a thread, to overlap the waits",
    ),
}


def cause_of(counts: Mapping[str, float], launch: Launch | None) -> tuple[str, str]:
    """Return the name of the first cause that holds, and a sentence: it, what warps wait for, and what to change first.

    Both are "" if nothing was counted or the launch is unknown.
    """
    if launch is None or not counts.get("warps_per_issue"):
        return "", ""
    seen = Seen(counts, launch)
    name, cause = next((name, cause) for name, cause in CAUSES.items() if cause.holds(seen))
    waits = sorted(((share, what) for what, share in seen.waits.items()), reverse=True)
    longest = " and ".join(f"{share:.0f} % for {what}" for share, what in waits[:2] if share >= WASTED)
    issues = f"; they issue in {counts['issue_active']:.0f} % of the cycles" if "issue_active" in counts else ""
    waiting = f". Of their time, warps wait {longest}{issues}" if longest else ""
    return name, f"{cause.text}{waiting}. {cause.change}.".format(seen)


class Explained(ABC):
    """A measurement, or the result of a check: its text, and why its longest kernel takes its time."""

    counters: Mapping[str, float]
    launch: Launch | None
    notes: tuple[str, ...]
    _said: Any
    """The sentence that the text begins with."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Return the lines of the text and the HTML in their order, without unknown values."""

    def __str__(self) -> str:
        lines = [f"  {line}".rstrip() for line in aligned_lines([*self.facts().items()], "<")]
        return "\n".join([self._said, *lines, *(f"  note: {note}" for note in self.notes)])

    def __init_subclass__(cls) -> None:
        cls._repr_pretty_ = Explained._repr_pretty_  # type: ignore[method-assign]  # before the repr of a dataclass

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return the sentence, the facts and the notes for a notebook."""
        return upward.rooms.measurements.found_html(self._said, self)

    @property
    def hot_lines(self) -> tuple[Line, ...]:
        """Where that kernel's warps were in most samples: three lines or instructions at most, if that was sampled."""
        return getattr(getattr(self.counters, "stalls", None), "lines", ())

    @property
    def cause(self) -> str:
        """What limits that kernel, one of flopscope.measuring.why.CAUSES; "" without counters."""
        return cause_of(self.counters, self.launch)[0]

    @property
    def explanation(self) -> str:
        """The same in a sentence, with what its warps wait for and what to change first; "" without counters."""
        text, loads = cause_of(self.counters, self.launch)[1], [kind for kind in self.code if kind.endswith("loads")]
        narrow = loads and loads[-1][:2] in ("1-", "2-", "4-") and "asynchronous copies" not in self.code
        wide = " to ".join(dict.fromkeys(kind[0] for kind in (*loads[:1], *loads[-1:])))
        return f"{text} Its loads of global memory are {wide} bytes wide." if text and narrow else text

    @property
    def code(self) -> Mapping[str, int]:
        """How many instructions of each kind the code of that kernel has, as "4-byte loads"; {} if it was not seen."""
        return getattr(getattr(self.counters, "stalls", None), "code", {})

    def explained(self) -> dict[str, Any]:
        lines, launch = [line._asdict() for line in self.hot_lines], self.launch and self.launch._asdict()
        found = {"launch": launch, "cause": self.cause, "explanation": self.explanation}
        return found | {"hot_lines": lines, "code": {**self.code}}

    def why(self) -> dict[str, str]:
        lines, code = "; ".join(map(str, self.hot_lines)), code_text(self.code)
        texts = {"why": self.explanation, "hot lines": lines, "code": code}
        return {name: text for name, text in texts.items() if text}
