"""Advice as text and as a table in notebooks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.answers.advice import Advice, advised
from flopscope.answers.notes import notes_of
from flopscope.show.documents import ADVICE
from flopscope.show.summary import summary_html
from flopscope.support.columns import Rows, cut_end, cut_start
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    import pandas

    from flopscope.answers.analysis import Analysis

WIDTH = 78  # summary() indents it by two
EVIDENCE_SHOWN = 3
ALONE = 1.1  # times the saving after others from which on that of a change alone is told
NOTHING = "Nothing was found that saves at least 1% of the time."


class AdviceTable(Sequence[Advice]):
    """Advice: first what saves most alone, then what saves most after it. It prints as text, and as a table in
    notebooks."""

    def __init__(self, rows: Sequence[Advice], per_step: bool, notes: Sequence[str]) -> None:
        self._rows, self._per_step = list(rows), per_step
        self.notes = list(notes)
        """Numbers that mislead, what could not be judged, and which recording option would help."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with the fields of Advice as columns."""
        import pandas

        return pandas.DataFrame(self._rows, columns=list(Advice._fields))

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row, of values that JSON can hold."""
        return [row._asdict() for row in self._rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the rows and the notes as a document for JSON: see docs/json.md."""
        return ADVICE.of({"advice": self.to_dicts(), "notes": self.notes})

    def lines(self, width: int = WIDTH) -> Iterator[str]:
        """Yield the lines of the text, of at most ``width`` characters."""
        a_step = " a step" if self._per_step else ""
        for number, row in enumerate(self._rows, 1):
            saves = f"{row.saves} {short_time_text(row.saving_us)}{a_step} ({percent_text(row.saving_pct)})"
            if not row.saving_us <= row.saving_alone_us <= ALONE * row.saving_us:
                saves += f"; alone, {short_time_text(row.saving_alone_us) if row.saving_alone_us else 'nothing'}"
            reason = f"{printable(row.reason)} (rule: {row.rule})"
            yield from textwrap.wrap(f"{number}. {printable(row.action)}: {saves}", width, subsequent_indent="   ")
            yield from textwrap.wrap(reason, width, initial_indent="   ", subsequent_indent="   ")
            yield from (f"     {_evidence_text(entry, width - 7)}" for entry in row.evidence[:EVIDENCE_SHOWN])
            if row.where:
                yield _at(printable(row.where), width)
        if not self._rows:
            yield NOTHING
        for note in self.notes:
            yield from textwrap.wrap(printable(note), width)

    def __str__(self) -> str:
        return "\n".join(self.lines()) + "\n"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        saving = f"Saving{' per step' if self._per_step else ''}"
        head = ("What to change", "Why", saving, "%", "Rule", "Where")
        rows = []
        for row in self._rows:
            saved = short_time_text(row.saving_us), percent_text(row.saving_pct)
            rows.append((row.action, row.reason, *saved, row.rule, row.where or ""))
        return summary_html([Rows([head, *rows], "<<>><<") if rows else NOTHING, *self.notes])


def _at(place: str, width: int) -> str:
    """Return the line of a place; its end is the most informative part."""
    return f"     at {cut_start(place, width - 8)}"


def _evidence_text(entry: Mapping[str, Any], width: int) -> str:
    """Return one line: op, time, calls, and as much of the shapes as fits; scalars are left out."""
    calls = plural(entry["calls"], "call") if entry["calls"] else ""
    shapes = " ".join("x".join(map(str, shape)) for shape in entry["shapes"] if shape)
    texts = (printable(str(entry["op"])), short_time_text(entry["time"]), calls, printable(shapes))
    return cut_end("  ".join(filter(None, texts)), width)


def advise(analysis: Analysis) -> AdviceTable:
    """Return the advice, in its order, and the notes."""
    return AdviceTable(list(advised(analysis)), analysis.has_steps, notes_of(analysis))
