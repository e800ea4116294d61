"""What was tried: a row for each change, what needs an edit, and the text of it: a table, why, what to write."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.switches import SWITCHES, Switch
from flopscope.measuring.trying.verdicts import FEWEST, MARGIN, USELESS, Parity, Ratio
from flopscope.support.columns import Rows
from flopscope.support.documents import Document, Field, columns, record, rows
from flopscope.support.safe import printable
from flopscope.support.units import MISSING, bytes_text, percent_text, plural, short_time_text

Verdict = Literal["faster", "no difference", "slower", "unclear", "changes results", "failed", "not applied"]

_NOT_RUN = "it was not run, or ended before it was measured"
NO_RATIO, NO_PARITY = Ratio(), Parity()

_RATIO = columns("value low high pairs#", why="there are no pairs, or one only", value="time with over time without")
_CHANGE = (
    *columns("name$ what$ verdict$ effect$ lines$ source$ problem$ notes@", lines="what to write into the program"),
    *columns("predicted:%", why="the advice makes no estimate", predicted="saving by the advice, of the step"),
    record("ratio", _RATIO),
    *columns("before after", "µs", _NOT_RUN),
    *(
        Field(name, "numbers", unit, "without and with it", _NOT_RUN)
        for name, unit in (("memory", "bytes"), ("start", "s"))
    ),
    record("parity", columns("of$ values# difference own tolerance", why="there is nothing to compare")),
    *columns("hits#", why="it was not run", hits="how often it changed something in the program"),
    *columns("margin:share", margin="up to which times count as the same"),
)
TRIED = Document(
    "tried",
    "changes that were tried on a program",
    (
        *columns("title$ per$ device$ runs# seconds:s", per='what times are of: "step", "program" or "call"'),
        *columns("before", "µs", "it was not measured", before="median time without a change"),
        rows("changes", _CHANGE, "the most promising first"),
        *columns("kept@ lines@ notes@", kept="the changes that are faster, the best first", lines="for those"),
        rows("edits", columns("action$ saving:% where$"), "advice that needs an edit of the program"),
    ),
)


@dataclass
class Change:
    """A change that was tried: what was predicted, what was measured. Times are in µs per step, or of the program."""

    name: str
    """Name of the switch."""
    what: str
    """What it changes, in a few words."""
    predicted: float = math.nan
    """Saving by the advice, in percent of the step; NaN: the advice makes no estimate."""
    ratio: Ratio = NO_RATIO
    """Time with the change over time without."""
    before: float = math.nan
    """Time without it: median of the runs that were paired with it."""
    after: float = math.nan
    memory: tuple[float, float] = (math.nan, math.nan)
    """Peak memory in bytes without and with it."""
    start: tuple[float, float] = (math.nan, math.nan)
    """Seconds until the first measured step without and with it: torch.compile compiles by then."""
    parity: Parity = NO_PARITY
    hits: int | None = None
    """How often it changed something in the program; None: it was not run."""
    problem: str = ""
    """Why it failed."""
    notes: list[str] = field(default_factory=list)
    """What else happened in the measured runs."""
    effect: str = ""
    """What else it may change."""
    lines: str = ""
    """What to write into the program."""
    source: str = ""
    margin: float = MARGIN

    @property
    def verdict(self) -> Verdict:
        """What the measurement shows."""
        if self.problem:
            return "failed"
        if self.hits == 0:
            return "not applied"
        if self.parity.kept is False:
            return "changes results"
        return self.ratio.word(self.margin)


def change_of(switch: Switch, seen: Seen, margin: float, predicted: float = math.nan) -> Change:
    """Return a change before it is measured."""
    about = {name: getattr(switch, name) for name in ("name", "what", "effect", "source")}
    return Change(**about, predicted=predicted, lines=switch.lines_for(seen), margin=margin)


@dataclass
class Edit:
    """A piece of advice that needs an edit of the program."""

    action: str
    saving: float
    """In percent of the step, by the advice."""
    where: str | None


@dataclass
class Tried:
    """What was tried on a program or a callable. It prints as a table."""

    title: str
    """Name of the program or the callable, without arguments."""
    per: str
    """What a time is of: "step", "program" or "call"."""
    before: float
    """Median time without a change, in µs."""
    changes: list[Change]
    """Changes, the most promising first."""
    kept: list[str] = field(default_factory=list)
    """The changes that are faster, the best first; of those that exclude each other, the best."""
    edits: list[Edit] = field(default_factory=list)
    """Advice that was not tried."""
    notes: list[str] = field(default_factory=list)
    """What was not tried or not measured, and why."""
    runs: int = 0
    """How often the program ran."""
    seconds: float = math.nan
    """How long that took."""
    device: str = ""
    """Name of the GPU or the CPU."""
    lines: list[str] = field(default_factory=list)
    """What to write into the program for the kept changes."""

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
                self.lines += one.lines.split("\n")
                groups.add(group)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print in IPython on a terminal."""
        printer.text(str(self))

    def __str__(self) -> str:
        return text_of(self)


# Text -----------------------------------------------------------------------------------------------------------------

HEADER = ["change", "predicted", "measured", "interval", "memory", "parity", "verdict"]
WIDTH = 100
TOO_WIDE = 200.0
"""Percent between the ends of an interval above which they are not shown."""
LATER = 1.0, 1.2
"""Seconds, and times the start without a change, from which a longer start is worth a line."""
NOTHING = (
    "Nothing was tried: no change that can be switched on is shown by the advice or the program. --all tries all that "
    "apply, --list names them."
)
EXPLAINED = (
    "predicted and measured: percent of the {per}'s time that the change saves; the interval is of the measured one. "
    "parity: largest relative difference of the first results, beside that among unchanged runs."
)
ALONE = "Each was measured alone. Together they may gain less than the sum: try them one on top of the other."


def text_of(tried: Tried, width: int = WIDTH) -> str:
    """Return the text of what was tried, of lines of at most ``width`` characters where words allow it."""

    def wrapped(*texts: str) -> list[str]:
        how: Any = {"subsequent_indent": "  ", "break_on_hyphens": False}
        return [line for text in texts for line in textwrap.wrap(printable(text), width, **how)]

    time = f"{short_time_text(tried.before)} a {tried.per}" if not math.isnan(tried.before) else "not timed"
    spent = f"{plural(tried.runs, 'run')} in {tried.seconds:.0f} s" if tried.runs else "in this process"
    device = f", on {printable(tried.device)}" if tried.device else ""
    lines = [f"{printable(tried.title)}: {time} without changes; {spent}{device}", ""]
    if not tried.changes:
        lines += wrapped(NOTHING)
    else:
        lines += [*Rows([HEADER, *map(row_of, tried.changes)]).lines(width), ""]
        lines += wrapped(EXPLAINED.format(per=tried.per))
    lines += wrapped(*(f"{one.name}: {reason}" for one in tried.changes for reason in reasons_of(one)))
    if tried.lines:
        lines += ["", "Write into the program:", *(f"    {line}" for line in tried.lines)]
    lines += wrapped(ALONE) if len(tried.kept) > 1 else []
    if tried.edits:
        lines += ["", "Advice that needs an edit, with its estimate:"]
        for edit in tried.edits:
            at = f", at {edit.where}" if edit.where else ""
            lines += wrapped(f"  {edit.action}: {percent_text(edit.saving)}{at}")
    lines += ["", *wrapped(*tried.notes)] if tried.notes else []
    return "\n".join(lines) + "\n"


def row_of(one: Change) -> list[str]:
    """Return the cells of a change."""
    ratio, parity = one.ratio, one.parity
    low, high = 100 * (1 - ratio.high), 100 * (1 - ratio.low)
    is_known = ratio.pairs >= FEWEST and high - low <= TOO_WIDE
    own, apart = (
        MISSING if math.isnan(part) else f"{part:.0e}" if part else "0" for part in (parity.own, parity.difference)
    )
    memory = [*dict.fromkeys(map(bytes_text, one.memory))]
    return [
        one.name,
        percent_text(one.predicted),
        MISSING if math.isnan(ratio.value) else f"{ratio.gain:+.1f}%",
        f"{low:.1f} to {high:.1f}" if is_known else MISSING,
        MISSING if math.isnan(sum(one.memory)) else " -> ".join(memory),
        f"{apart} ({own})" if parity.values else "not compared",
        one.verdict,
    ]


def reasons_of(one: Change) -> Iterator[str]:
    """Yield what a reader must know besides the numbers."""
    verdict, parity = one.verdict, one.parity
    values = plural(parity.values, parity.of.removesuffix("s"))
    differ = f"the first {values} differ by {parity.difference:.2g} of their size"
    if verdict == "failed":
        yield one.problem
    if verdict == "not applied":
        yield "it found nothing to change in the program"
    if verdict == "changes results":
        yield f"{differ}, and {parity.tolerance:g} is allowed. It may change: {one.effect}"
    if parity.values and parity.own > USELESS:
        yield (
            f"results cannot be compared: those of unchanged runs differ by {parity.own:.2g} of their size, though "
            "random generators begin alike"
        )
    elif parity.difference > 0 and math.isnan(parity.tolerance):
        yield f"{differ}, as it draws other random numbers; compare the results of longer runs"
    if verdict == "faster" and one.effect:
        yield f"it may change: {one.effect}"
    soon, late = one.start
    if late > max(soon + LATER[0], LATER[1] * soon):
        yield f"the first measured step begins {late - soon:.1f} s later"
    yield from one.notes
