"""What was tried: the ratio of the step times without and with each change, how far the results are apart, the verdict,
and the text of it: a table, why, what to write.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from flopscope.measuring.distribution import Ratio, Word
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.support.columns import Rows
from flopscope.support.documents import Document, Field, columns, record, rows
from flopscope.support.safe import printable
from flopscope.support.units import MISSING, bytes_text, percent_text, plural, short_time_text

Verdict = Word | Literal["changes results", "failed", "not applied"]

CONFIDENCE = 0.95
"""That of compare_times() would need twice the pairs, each of which takes two starts of the program."""
FEWEST, MOST = 3, 42
"""Pairs after which there may be a verdict, and must be none."""
LEAST_GAIN = 0.01
"""A change is faster or slower if its whole interval is beyond this."""
MARGIN = 0.02
"""Relative difference within which the whole interval must lie for "same"."""
SPREAD = 3.0
"""Times the distance of unchanged runs within which a further one may lie: there are few of them."""
USELESS = 0.1
"""Relative spread of unchanged runs from which a comparison says nothing."""


class Parity(NamedTuple):
    """How far the results of a changed run are from those of unchanged ones, relative to the latter."""

    of: str = ""
    """ "losses" or "outputs"; "" if nothing was recorded in both."""
    values: int = 0
    difference: float = math.nan
    """Largest relative difference beyond what unchanged runs gave; NaN if there is nothing to compare."""
    own: float = math.nan
    """Largest relative distance of an unchanged run from the first one; NaN with fewer than two of them."""
    tolerance: float = math.nan
    """Difference up to which the results count as kept; NaN if the change draws other random numbers."""

    @property
    def kept(self) -> bool | None:
        """Whether the results are kept; None if that is unknown."""
        if not self.values or self.own > USELESS or math.isnan(self.tolerance):
            return None
        return self.difference <= max(self.tolerance, SPREAD * self.own if self.own == self.own else 0.0)


def parity_of(of: str, plain: Sequence[Sequence[float]], changed: Sequence[float], tolerance: float) -> Parity:
    """Compare the values of a changed run with those of unchanged runs."""
    count = min([len(changed), *map(len, plain)]) if plain else 0
    if not count:
        return Parity(tolerance=tolerance)
    difference = own = 0.0
    for value, *ones in zip(changed[:count], *plain, strict=False):
        scale = max(map(abs, ones))
        difference = max(difference, _apart(value, min(ones), max(ones), scale))
        own = max(own, *(_apart(one, ones[0], ones[0], scale) for one in ones))
    return Parity(of, count, difference, own if len(plain) > 1 else math.nan, tolerance)


def _apart(value: float, low: float, high: float, scale: float) -> float:
    """Return the relative distance of a value from an interval; infinite for a NaN where there was none."""
    if math.isnan(value) or math.isnan(low) or math.isnan(high):
        return 0.0 if math.isnan(value) and math.isnan(low) else math.inf
    beyond = max(low - value, value - high, 0.0)
    return 0.0 if beyond == 0 else beyond / scale if scale > 0 and math.isfinite(scale) else math.inf


# Records --------------------------------------------------------------------------------------------------------------

_NOT_RUN = "it was not run, or ended before it was measured"
NO_RATIO, NO_PARITY = Ratio(), Parity()

_RATIO = columns("value low high pairs#", why="there are too few pairs", value="time with over time without")
_CHANGE = (
    *columns("name$ verdict$ problem$"),
    *columns("predicted:%", why="the advice makes no estimate", predicted="saving by the advice, of the step"),
    record("ratio", _RATIO),
    *columns("before", "µs", _NOT_RUN),
    Field("memory", "numbers", "bytes", "without and with it", _NOT_RUN),
    record("parity", columns("of$ values# difference own tolerance", why="there is nothing to compare")),
    *columns("hits#", why="it was not run", hits="how often it changed something in the program"),
    *columns("margin:share", margin="up to which times count as the same"),
)
TRIED = Document(
    "tried",
    "changes that were tried on a program",
    (
        *columns("title$ per$", per='what times are of: "step" or "program"'),
        *columns("before", "µs", "it was not measured", before="median time without a change"),
        rows("changes", _CHANGE, "the most promising first"),
        *columns("kept@ lines@ notes@", kept="the changes that are faster, the best first", lines="for those"),
    ),
)


@dataclass
class Change:
    """A change that was tried: what was predicted, what was measured. Times are in µs per step, or of the program."""

    name: str
    predicted: float = math.nan
    """Saving by the advice, in percent of the step; NaN: the advice makes no estimate."""
    ratio: Ratio = NO_RATIO
    """Time with the change over time without."""
    before: float = math.nan
    """Time without it: median of the runs that were paired with it."""
    memory: tuple[float, float] = (math.nan, math.nan)
    """Peak memory in bytes without and with it."""
    parity: Parity = NO_PARITY
    hits: int | None = None
    """How often it changed something in the program; None: it was not run."""
    problem: str = ""
    margin: float = MARGIN

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return "failed"
        if self.hits == 0:
            return "not applied"
        if self.parity.kept is False:
            return "changes results"
        beyond = self.ratio.word(LEAST_GAIN)
        return self.ratio.word(self.margin) if beyond in ("same", "unclear") else beyond


@dataclass
class Tried:
    """What was tried on a program."""

    title: str
    per: str
    """What a time is of: "step" or "program"."""
    before: float
    """Median time without a change, in µs."""
    changes: list[Change]
    """Changes, the most promising first."""
    kept: list[str] = field(default_factory=list)
    """The changes that are faster, the best first; of those that exclude each other, the best."""
    notes: list[str] = field(default_factory=list)
    """What was not tried or not measured, and why; advice that needs an edit of the program."""
    lines: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as a document for JSON: see docs/json.md."""
        changes = [
            {**asdict(one), "ratio": one.ratio._asdict(), "parity": one.parity._asdict(), "verdict": one.verdict}
            for one in self.changes
        ]
        return TRIED.of({**asdict(self), "changes": changes})

    def keep_faster(self) -> None:
        """Keep the changes that are faster, the best of each group."""
        groups = set()
        faster = [one for one in self.changes if one.verdict == "faster"]
        for one in sorted(faster, key=lambda one: one.ratio.value):
            group = SWITCHES[one.name].group or one.name
            if group not in groups:
                self.kept.append(one.name)
                self.lines += SWITCHES[one.name].lines.split("\n")
                groups.add(group)


# Text -----------------------------------------------------------------------------------------------------------------

HEADER = ["change", "predicted", "measured", "interval", "memory", "parity", "verdict"]
NOTHING = (
    "Nothing was tried: no change that can be switched on is shown by the advice or the program. --all tries all that "
    "apply, --list names them."
)
EXPLAINED = (
    "predicted and measured: percent of the {per}'s time that the change saves; the interval is of the measured one. "
    "parity: largest relative difference of the first results, beside that among unchanged runs."
)
ALONE = "Each was measured alone. Together they may gain less than the sum: try them one on top of the other."


def text_of(tried: Tried, width: int) -> str:
    """Return the text of what was tried, of lines of at most ``width`` characters where words allow it."""

    def wrapped(*texts: str) -> list[str]:
        how: Any = {"subsequent_indent": "  ", "break_on_hyphens": False}
        return [line for text in texts for line in textwrap.wrap(printable(text), width, **how)]

    time = f"{short_time_text(tried.before)} a {tried.per}" if not math.isnan(tried.before) else "not timed"
    lines = [f"{printable(tried.title)}: {time} without changes", ""]
    if not tried.changes:
        lines += wrapped(NOTHING)
    else:
        lines += [*Rows([HEADER, *map(row_of, tried.changes)]).lines(width), ""]
        lines += wrapped(EXPLAINED.format(per=tried.per))
    lines += wrapped(*(f"{one.name}: {reason}" for one in tried.changes for reason in reasons_of(one)))
    if tried.lines:
        lines += ["", "Write into the program:", *(f"    {line}" for line in tried.lines)]
    lines += wrapped(ALONE) if len(tried.kept) > 1 else []
    lines += ["", *wrapped(*tried.notes)] if tried.notes else []
    return "\n".join(lines) + "\n"


def row_of(one: Change) -> list[str]:
    ratio, parity = one.ratio, one.parity
    own, apart = (
        MISSING if math.isnan(part) else f"{part:.0e}" if part else "0" for part in (parity.own, parity.difference)
    )
    memory = [*dict.fromkeys(map(bytes_text, one.memory))]
    return [
        one.name,
        percent_text(one.predicted),
        MISSING if math.isnan(ratio.value) else f"{ratio.gain:+.1f}%",
        MISSING if math.isnan(ratio.low) else f"{100 * (1 - ratio.high):.1f} to {100 * (1 - ratio.low):.1f}",
        MISSING if math.isnan(sum(one.memory)) else " -> ".join(memory),
        f"{apart} ({own})" if parity.values else "not compared",
        one.verdict,
    ]


def reasons_of(one: Change) -> Iterator[str]:
    """Yield what a reader must know besides the numbers."""
    verdict, parity, effect = one.verdict, one.parity, SWITCHES[one.name].effect
    values = plural(parity.values, parity.of.removesuffix("s"))
    differ = f"the first {values} differ by {parity.difference:.2g} of their size"
    if verdict == "failed":
        yield one.problem
    if verdict == "not applied":
        yield "it found nothing to change in the program"
    if verdict == "changes results":
        yield f"{differ}, and {parity.tolerance:g} is allowed. It may change: {effect}"
    if parity.values and parity.own > USELESS:
        yield (
            f"results cannot be compared: those of unchanged runs differ by {parity.own:.2g} of their size, though "
            "random generators begin alike"
        )
    elif parity.difference > 0 and math.isnan(parity.tolerance):
        yield f"{differ}, as it draws other random numbers; compare the results of longer runs"
    if verdict == "faster":
        yield f"it may change: {effect}"
    if verdict == "unclear" and one.hits is None:
        yield "the time was over before it was measured"
