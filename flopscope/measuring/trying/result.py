"""What was tried: a row for each change, their combination, and what needs an edit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any, Literal

from flopscope.measuring.trying.losses import Parity
from flopscope.measuring.trying.pairs import MARGIN, Ratio, word_of
from flopscope.support import upward
from flopscope.support.documents import Document, Field, columns, record, rows
from flopscope.support.files import finite
from flopscope.support.suggest import suggesting

Verdict = Literal["faster", "no difference", "slower", "unclear", "changes results", "failed", "not applied"]

NO_RATIO = Ratio(math.nan, math.nan, math.nan, 0)
NO_PARITY = Parity("", 0, math.nan, math.nan, math.nan)

_NOT_RUN = "it was not run, or ended before it was measured"
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
    Field("clocks", "numbers", "MHz", "without and with it", "unknown on CPUs, and if it was not run"),
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
        rows("combined", _CHANGE, "each on top of those before it"),
        *columns("kept@ lines@ notes@", kept="the switches of the best combination"),
        record("total", _RATIO, "the best combination"),
        rows("edits", columns("action$ saving:% where$"), "advice that needs an edit of the program"),
    ),
)


@dataclass
class Change:
    """A change that was tried: what was predicted, what was measured. Times are in µs per step, or of the program."""

    name: str
    """Name of the switch, or of several joined by " + "."""
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
    clocks: tuple[float, float] = (math.nan, math.nan)
    """SM clock in MHz without and with it; NaN on CPUs."""
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
        return word_of(self.ratio, self.margin)

    def content(self) -> dict[str, Any]:
        """Return all fields and the verdict, as the document has them."""
        own = asdict(self)
        own["ratio"], own["parity"] = self.ratio._asdict(), self.parity._asdict()
        return {**own, "verdict": self.verdict}


@dataclass
class Edit:
    """A piece of advice that needs an edit of the program."""

    action: str
    saving: float
    """In percent of the step, by the advice."""
    where: str | None


@dataclass
@suggesting
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
    combined: list[Change] = field(default_factory=list)
    """Each further change on top of those before it, beside those without it; the first is not among them."""
    kept: list[str] = field(default_factory=list)
    """The switches of the best combination."""
    total: Ratio = NO_RATIO
    """Time with the best combination over time without a change."""
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
    """What to write into the program for the best combination."""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as a document for JSON: see docs/json.md."""
        names = ("title", "per", "before", "device", "kept", "lines", "notes", "runs", "seconds")
        changes = {name: [one.content() for one in getattr(self, name)] for name in ("changes", "combined")}
        edits = [asdict(one) for one in self.edits]
        own = {name: getattr(self, name) for name in names}
        return TRIED.of({**own, **changes, "total": self.total._asdict(), "edits": edits})

    def predictions(self) -> list[dict[str, Any]]:
        """Return a row for each change of which the advice had an estimate: predicted and measured saving in percent.

        It names neither the program nor its files.
        """
        return [
            finite(
                {
                    "change": one.name,
                    "predicted": one.predicted,
                    "measured": one.ratio.gain,
                    "low": 100 * (1 - one.ratio.high),
                    "high": 100 * (1 - one.ratio.low),
                    "pairs": one.ratio.pairs,
                    "verdict": one.verdict,
                    "device": self.device,
                }
            )
            for one in self.changes
            if not math.isnan(one.predicted) and one.ratio.pairs
        ]

    def write_report(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write one HTML page that opens from disk.

        title: of the page; by default the name of the program. An existing file is replaced only by a complete page.
        Raises OSError if the file cannot be written.
        """
        upward.rooms.write_tried(self, path, title)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print in IPython on a terminal."""
        printer.text(str(self))

    def __str__(self) -> str:
        return str(upward.rooms.tried_text(self))


def joined(names: Sequence[str]) -> str:
    """Return the name of several switches at once."""
    return " + ".join(names)
