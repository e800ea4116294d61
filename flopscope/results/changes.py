"""What changed between two runs, by name: calls, work, speed, or ops that others replaced.

Times and calls are those of a step if both runs have steps, of a call if they differ in length, else of the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from flopscope.results.matching import ComparisonRow, Side

Per = Literal["step", "call", "run"]
Cause = Literal["calls", "work", "rate", "time", "replaced", "only a", "only b", "same"]


class Moved(NamedTuple):
    """A number of a name before and after; work and times are those of a call."""

    what: Literal["calls", "flops", "bytes", "time", "unit", "share"]
    a: Any
    b: Any


class Launches(NamedTuple):
    """Launches per step of each run, of kernels and of CUDA graphs, where only one run has graphs."""

    kernels: Sequence[float]
    graphs: Sequence[float]


class Replaced(NamedTuple):
    """What replaced what: the names of each run with their calls, those of one run first."""

    a: Sequence[tuple[str, float]]
    b: Sequence[tuple[str, float]]
    noun: str
    """ "op" or "kernel"."""
    launches: Launches | None


@dataclass(frozen=True)
class Scale:
    """What times and calls refer to, and the numbers of steps that the sums of each run are divided by."""

    per: Per
    a: int = 1
    b: int = 1


@dataclass(frozen=True)
class Change:
    """A name of one run or both, or ops of run a and those of run b that replaced them."""

    name: str
    a: Side | None
    """The sum of the rows of run a, not scaled; None if it has none with time."""
    b: Side | None
    rows: list[ComparisonRow]
    """By shape. Shapes that only one run has are paired with similar ones; the ops of a replacement are not paired."""
    scale: Scale
    cause: Cause
    """What explains most of the difference.

    "calls": their number. "work": FLOPs or bytes of a call. "rate": the same work at another speed. "time": the time of
    a call, whose work is unknown. "replaced": other ops or kernels do the work. "only a", "only b": one run has it.
    "same": the times differ by less than 5 %.
    """
    facts: Replaced | list[list[Moved]] = field(default_factory=list)
    """The numbers behind ``cause``; of several causes those of each."""
    why: str = ""
    """The same as text."""
    parts: list[Change] = field(default_factory=list)
    """The same by shape, or the ops that replaced each other; the largest difference first."""

    @property
    def differs(self) -> bool:
        """Whether the runs have other shapes, or only one has this; true of the ops of a replacement."""
        return ComparisonRow(self.name, self.a, self.b).differs

    @property
    def time_a(self) -> float:
        """Time in µs of run a: of a step, of a call or of the run; 0 if it has none."""
        return scaled(self.a, self.scale, self.scale.a)

    @property
    def time_b(self) -> float:
        """The same of run b."""
        return scaled(self.b, self.scale, self.scale.b)

    @property
    def calls_a(self) -> float:
        """Calls of run a, of a step or of the run."""
        return self.a.count / self.scale.a if self.a else 0.0

    @property
    def calls_b(self) -> float:
        """The same of run b."""
        return self.b.count / self.scale.b if self.b else 0.0

    @property
    def difference(self) -> float:
        """Time of b minus time of a in µs; if times are those of a call, times the calls of run a."""
        calls = self.a.count if self.a and self.scale.per == "call" else 1
        return (self.time_b - self.time_a) * calls

    @property
    def matched(self) -> bool:
        """Whether both runs have it."""
        return self.a is not None and self.b is not None


def scaled(side: Side | None, scale: Scale, steps: int) -> float:
    if side is None:
        return 0.0
    return side.time / max(side.count if scale.per == "call" else steps, 1)
