"""The result of check(): a verdict, and what it is based on.

The sentence says what matters most: what is wrong, else how the times compare. What the kernel is right for, where it
ran and what was not compared follow, so that a reader can judge the verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from flopscope.measuring.counting import Counts, counts_text
from flopscope.measuring.paired import TIMES, TimesCompared
from flopscope.measuring.why import WHY, Explained, Launch
from flopscope.support.documents import Document, Field, by_name, columns, record, rows
from flopscope.support.units import plural

Verdict = Literal["faster", "slower", "same", "unclear", "wrong", "invalid"]
CHECKED = Document(
    "check",
    "a kernel, compared with a reference",
    (
        *columns("kernel$ reference$ verdict$ reason$", reason='why the kernel is wrong or its time invalid, or ""'),
        *columns("pct_limit:% reference_pct_limit:%", why="the peaks or the work are unknown, or nothing was timed"),
        record("times", TIMES.fields, "how their times compare", "nothing was timed"),
        rows(
            "baselines",
            (*columns("name$ pct_limit:%"), record("times", TIMES.fields, "how the times compare")),
            "the kernel beside each of the baselines that are right",
        ),
        by_name("counters", Field("counter"), "of a call of the kernel, as docs/counters.md lists them"),
        *columns("traffic$", traffic="counted, beside the inputs and outputs"),
        *WHY,
        Field("cases", "texts", doc="the inputs for which the outputs are right"),
        Field("isolated", "flag", doc="whether the kernel ran in a process of its own"),
        *columns("seed# notes@", seed="of the inputs"),
    ),
)


NEAR_LIMIT = 80.0
"""Percent of the limit from which nobody asks why a kernel does not reach it."""


class Beside(NamedTuple):
    """The kernel's times beside those of another function."""

    name: str
    times: TimesCompared
    kernel_pct_limit: float
    """As Checked.pct_limit, by the times of the kernel in turns with this function."""
    pct_limit: float
    """That of the function."""

    def __str__(self) -> str:
        return f"{self.times}{_reaches(self.name, self.pct_limit)}"


def _reaches(name: str, pct_limit: float) -> str:
    return "" if math.isnan(pct_limit) else f"; {name} reaches {pct_limit:.0f} % of the limit"


@dataclass(frozen=True)
class Checked(Explained):
    """Whether a kernel is right, faster than a reference, and how far from the limit."""

    verdict: Verdict
    """The first four say how the times of a kernel that is right compare; "wrong" and "invalid" have a reason."""
    kernel: str
    reference: str
    reason: str = ""
    """Why the kernel is wrong or its time invalid; "" otherwise."""
    times: TimesCompared | None = None
    """How the times compare; None if they were not measured."""
    pct_limit: float = math.nan
    """100 × the shortest time in which the device can read the inputs, write the outputs and do the FLOPs of the
    reference / the kernel's median time; NaN if that is unknown."""
    reference_pct_limit: float = math.nan
    baselines: tuple[Beside, ...] = ()
    counters: Counts = field(default_factory=lambda: Counts({}))
    """What the hardware counted for a call of the kernel, on a GPU whose counters may be read; else empty."""
    launch: Launch | None = None
    """That of the kernel's longest kernel, on a GPU."""
    traffic: str = ""
    """How the counted traffic compares with the bytes of inputs and outputs."""
    cases: tuple[str, ...] = ()
    """The inputs for which the outputs are right."""
    seed: int = 0
    isolated: bool = False
    notes: tuple[str, ...] = ()
    """What was not compared, and why; differences that are no verdict."""
    failed: tuple[Any, ...] | None = field(default=None, repr=False)
    """The arguments for which an output is wrong, arrays as NumPy's; None if there are none."""

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        if self.times is None or self.reason:
            return f"{self.kernel} is {self.verdict}: {self.reason}"
        shares = (self.kernel, self.pct_limit), (self.reference, self.reference_pct_limit)
        return f"{self.times}{''.join(_reaches(*share) for share in shares)}"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but ``failed`` as a document for JSON: see docs/json.md."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "failed"}
        beside = [{"name": b.name, "pct_limit": b.pct_limit, "times": b.times.content()} for b in self.baselines]
        content["times"] = None if self.times is None else self.times.content()
        return CHECKED.of(content | self.explained() | {"baselines": beside})

    def facts(self) -> dict[str, str]:
        shapes = sum(case.startswith("shapes ") for case in self.cases)
        named = [case for case in self.cases if not case.startswith("shapes ")]
        several = ", ".join([*named, *([plural(shapes, "other shape")] if shapes else [])])
        facts = {"right for": f"{several or 'none'} (seed {self.seed})"}
        facts["ran in"] = "a process of its own" if self.isolated else "a process with the reference, not isolated"
        facts |= {f"beside {one.name}": str(one) for one in self.baselines}
        counted = counts_text(self.counters) if self.counters else ""
        seen = {"launch": str(self.launch or ""), "counted": counted, "traffic": self.traffic}
        facts |= {name: text for name, text in seen.items() if text}
        return facts if self.pct_limit >= NEAR_LIMIT else facts | self.why()

    _said = sentence
