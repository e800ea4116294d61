"""Advice as text and as a table in notebooks; the documents of advice and of summaries."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.answers.advice import Advice, advised
from flopscope.answers.analysis import PARTS
from flopscope.answers.lines import IDLE_PARTS
from flopscope.answers.notes import notes_of
from flopscope.results.columns import DEVICE
from flopscope.results.summaries import GPU_COLUMNS
from flopscope.show.summary import summary_html
from flopscope.support.columns import Rows, cut_end, cut_start
from flopscope.support.documents import Document, Field, columns, record, rows
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    import pandas

    from flopscope.answers.analysis import Analysis

_WHOLE = "the row is of the whole profile, or of all devices"
_NO_ROW = "it rests on no single row of the table, such as on the idle time before an op, or on an API call"
EVIDENCE = (
    Field("op", "text", doc="the `key` of its rows"),
    *(Field(name, "any") for name in ("shapes", "dtypes")),
    *columns("time", "µs", time="a step, or of the profile if it has no steps"),
    *columns("calls", calls="a step, or of the profile if it has no steps", why="the calls are unknown"),
    *columns("row$", why=_NO_ROW, row="`id` of the row in the table grouped by shape"),
    *columns("event#", why=_NO_ROW, event="`id` of one of its events in `events()`"),
)
ADVICE_FIELDS = (
    *columns("rule$", rule="name of the rule, which has a section in docs/answers.md"),
    *columns(
        "saving_us saving_alone_us saving_pct",
        saving_us="a step, or of the profile if it has no steps",
        saving_alone_us="of this change without those before it; 0 if it needs them",
    ),
    *columns("up_to?", up_to="it rests on the host's time, of which recording took an estimated part"),
    *columns("action$ what$"),
    rows("evidence", EVIDENCE, "the ops or calls that it rests on, the longest first"),
    *columns("where$", why="no module and no source line was recorded", where="module or source line"),
    Field("facts", "any", doc="what the sentences are made from", why="a fact that was not recorded"),
)
_NOTES = columns("notes@", notes="numbers that mislead, and what could not be judged")
ADVICE = Document("advice", "what to change, the largest saving alone first", (rows("advice", ADVICE_FIELDS), *_NOTES))

_STEP = columns("step$", why=_WHOLE, step="name of the step")
ACCOUNTING_FIELDS = (
    *columns("device$", why=_WHOLE),
    *_STEP,
    *columns(" ".join(("total", *PARTS)), "µs", total="the sum of the parts"),
    *columns("mfu mbu", "%", "the work or the peaks are unknown"),
)
_MOST = (
    *columns("op$ calls"),
    *columns("time ideal", "µs", "the work or the peaks are unknown", ideal="at the peaks"),
    *columns("tflops_per_s:TFLOP/s gbytes_per_s:GB/s", why="the work is unknown"),
    *columns("computes? unknown$", why="the ideal time is known", computes="its limit is the peak FLOP/s"),
)
_EXPOSED = (
    *columns("time:µs share:%"),
    *columns("collective$ bus_gbytes_per_s:GB/s", why="no size was recorded", bus_gbytes_per_s="median, with waits"),
)
_RECORDING = (
    *columns("step$", why="the program has no steps", step="what ends a step: optimizer, jax, flopscope.step(), …"),
    *columns("step_of$", why="steps are no passes", step_of="class of the module, or jitted function"),
    *columns("recorded_steps#", recorded_steps="also those of a recording that gave way to a later one"),
    *columns("recorded_step", "µs", "there are no recorded steps, or none is known as a whole"),
    *columns("bare_steps#", bare_steps="steps that nothing recorded"),
    *columns("bare_step bare_step_low bare_step_high", "µs", "no step was timed that nothing recorded",
             bare_step="median; low and high: its 95 % confidence interval"),
    rows("slow_steps", columns("number# time:µs line$", line="where the host was for most of it"),
         "the longest steps that nothing recorded, numbered from 1"),
    record("long_steps",
           (*columns("count# median:µs share:%", share="of the time that nothing recorded"),
            rows("most", columns("recorded:µs name$ share:%", recorded="the step of which it is the share"),
                 "what takes the most of one of each kind that was recorded by itself")),
           "steps that nothing recorded, three times as long as the median or more", "there are none"),
    rows("stalls", columns("kernel$ share:% waits$", waits="what its warps wait for, its hot lines, its code"),
         "kernels with most samples of instructions, by `flopscope run --stalls`"),
)  # fmt: skip
_PARTS_OF_STEP = "kernel memcpy memset communication runtime data_loading other_cpu other total"
_LAUNCHES = (
    "device# kernels launches delay_min:µs delay_median:µs delay_p95:µs delay_max:µs negative_delays "
    "call_time_median:µs queue_mean queue_max launch_bound_pct idle_lost:µs"
)
SUMMARY = Document(
    "summary",
    "where the time of a profile went, and what to change",
    (
        *columns("file$", why="the profile was not read from a file"),
        DEVICE,
        record("recording", _RECORDING, "what steps take, those that were recorded and those that were not"),
        rows("accounting", ACCOUNTING_FIELDS, "every instant of each device in each step"),
        rows("most", _MOST, "the ops with the most time, longest first; kernels of which no op is known"),
        rows("phases", columns("phase$ host:µs device:µs"), "of a training step, or of all"),
        record("exposed", _EXPOSED, "communication that nothing hides", "it takes less than 5 % of the time"),
        rows("advice", ADVICE_FIELDS, "what to change, the largest saving first"),
        *_NOTES,
        rows("gpus", (*columns("device#"), *columns(" ".join(GPU_COLUMNS[1:]), "%"))),
        rows("steps", (*_STEP, *columns(_PARTS_OF_STEP, "µs")), "the time of each step by what ran"),
        rows("launches", columns(_LAUNCHES, why="no launch has one"), "launches of kernels, by device"),
        rows(
            "lines",
            (
                *columns("group$ line$ inside$"),
                *columns(" ".join(("time", "own_time", "cpu_time", "own_cpu_time", *IDLE_PARTS)), "µs"),
            ),
            "where the program was, by sampled stacks",
        ),
    ),
)
SUMMARIES = Document("summaries", "the summaries of several traces", (Field("traces", "documents", of=SUMMARY),))
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
                # The end of a place is its most informative part.
                yield f"     at {cut_start(printable(row.where), width - 8)}"
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


def _evidence_text(entry: Mapping[str, Any], width: int) -> str:
    """Return one line: op, time, calls, and as much of the shapes as fits; scalars are left out."""
    calls = plural(entry["calls"], "call") if entry["calls"] else ""
    shapes = " ".join("x".join(map(str, shape)) for shape in entry["shapes"] if shape)
    texts = (printable(str(entry["op"])), short_time_text(entry["time"]), calls, printable(shapes))
    return cut_end("  ".join(filter(None, texts)), width)


def advise(analysis: Analysis) -> AdviceTable:
    """Return the advice, in its order, and the notes."""
    return AdviceTable(list(advised(analysis)), analysis.has_steps, notes_of(analysis))
