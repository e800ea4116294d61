"""The least time that peaks allow, and what bounds a time that was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .measurement import Bound, Shares

if TYPE_CHECKING:
    from ..peaks import Peaks

__all__ = ["Roof", "bound_of", "roof_of_stated", "shares_of"]

# As the rows of tables have it: csrc/table/roofline.c.
CACHE_PERCENT = 105.0
LAUNCH_FACTOR = 2.0


@dataclass(frozen=True)
class Roof:
    """Least times in µs: of the FLOPs, of the bytes, and of both; NaN where work or peak is not known."""

    compute: float = math.nan
    memory: float = math.nan
    least: float = math.nan

    def __add__(self, other: Roof) -> Roof:
        return Roof(self.compute + other.compute, self.memory + other.memory, self.least + other.least)


def roof_of_stated(flops: float, moved: float, unit: str | None, peaks: Peaks) -> Roof:
    """Of work that the program states; unit: the compute unit that does the FLOPs, as peaks name it.

    Without a unit the roofline is known only where the bytes take longer than the FLOPs would on the slowest unit; and
    where only one of FLOPs and bytes is stated, it is of that one.
    """
    memory = _term(moved, peaks.bandwidth)
    if unit is not None:
        compute = _term(flops, peaks.flops.get(unit))
    else:
        slowest = _term(flops, min(peaks.flops.values(), default=None))
        compute = slowest if slowest <= memory or flops == 0 else math.nan
    least = max(compute, memory) if not math.isnan(compute + memory) else math.nan
    if math.isnan(flops):
        least = memory
    elif math.isnan(moved):
        least = compute
    return Roof(compute if unit is not None or flops == 0 else math.nan, memory, least)


def shares_of(roof: Roof, us: float) -> Shares:
    """Of a time in µs."""
    return Shares(*(100 * term / us for term in (roof.compute, roof.memory, roof.least)))


def bound_of(roof: Roof, us: float, launch_us: float) -> Bound:
    """What bounds a call of ``us`` µs; launch_us: of as many launches of next to nothing, NaN where not known."""
    if math.isnan(roof.least) or roof.least == 0:
        return "unknown"
    if us <= LAUNCH_FACTOR * launch_us:
        return "launch"
    if roof.compute > roof.memory or math.isnan(roof.memory):
        return "compute"
    return "cache" if 100 * roof.memory / us > CACHE_PERCENT else "memory"


def _term(amount: float, rate: float | None) -> float:
    """µs. No work takes no time whatever the rate."""
    if amount == 0:
        return 0.0
    return math.nan if rate is None else amount / rate * 1e6
