"""Advice: what to change first, with an estimate of what each change gains, and the evidence for it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope.answers.analysis import Analysis, Gap, Op
from flopscope.answers.counter_rules import cached
from flopscope.answers.findings import Finding
from flopscope.answers.launch_rules import pauses
from flopscope.answers.memory_rules import unordered
from flopscope.answers.rules import RULES
from flopscope.answers.step_kinds import notes_of
from flopscope.sentences.words import Facts, sentence, shown_as_sentence
from flopscope.support.hints import HINTS, ON_CPU_WITHOUT_OPS, WITHOUT_OPS
from flopscope.support.safe import markup, printable
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    import pandas

__all__ = ["Advice", "AdviceTable", "advise", "without_peaks"]

LEAST_SHARE = 0.01
"""Share of the step below which a saving is not reported."""
WIDTH = 78  # summary() indents it by two
EVIDENCE_SHOWN = 3


class Advice(NamedTuple):
    """One piece of advice."""

    rule: str
    """The rule that applies; each has a section in docs/answers.md."""
    saving_us: float
    """Estimated gain in wall time: µs per step, or of the profile if it has no steps."""
    saving_pct: float
    """The same in percent of the step as it would be without recording."""
    action: str
    """What to change, in a few words."""
    what: str
    """What to change, and why: the action, a colon, and the reason."""
    evidence: list[dict[str, Any]]
    """The rows it rests on: op, shapes, dtypes, time (µs per step) and calls (per step)."""
    where: str | None
    """Module or source line, where one was recorded."""
    facts: dict[str, Any]
    """What ``what`` is made from: numbers, names and flags, of values that JSON can hold."""

    @property
    def reason(self) -> str:
        """``what`` without the action: why, and how."""
        return shown_as_sentence(self.what.removeprefix(f"{self.action}: "))


class AdviceTable(Sequence[Advice]):
    """Advice, the largest saving first. It prints as text, and as a table in notebooks."""

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

        columns: Mapping[str, list[Any]] = {name: [getattr(row, name) for row in self] for name in Advice._fields}
        return pandas.DataFrame(columns)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row, of values that JSON can hold."""
        return [row._asdict() for row in self._rows]

    def lines(self, width: int = WIDTH) -> Iterator[str]:
        """Yield the lines of the text, of at most ``width`` characters."""
        a_step = " a step" if self._per_step else ""
        for number, row in enumerate(self._rows, 1):
            saves = f"saves about {short_time_text(row.saving_us)}{a_step} ({percent_text(row.saving_pct)})"
            yield from textwrap.wrap(f"{number}. {printable(row.action)}: {saves}", width, subsequent_indent="   ")
            reason = f"{printable(row.reason)} (rule: {row.rule})"
            yield from textwrap.wrap(reason, width, initial_indent="   ", subsequent_indent="   ")
            for entry in row.evidence[:EVIDENCE_SHOWN]:
                yield f"     {_evidence_text(entry, width - 7)}"
            if row.where:
                yield _at(printable(row.where), width)
        if not self._rows:
            yield "Nothing was found that saves at least 1% of the time."
        for note in self.notes:
            yield from textwrap.wrap(printable(note), width)

    def __str__(self) -> str:
        return "\n".join(self.lines()) + "\n"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        a_step = " per step" if self._per_step else ""
        titles = ["What to change", f"Saving{a_step}", "%", "Rule"] + ["Where"] * any(row.where for row in self._rows)
        left = ' style="text-align: left; white-space: normal; max-width: 46em"'
        head = "".join(f"<th{left if title == 'What to change' else ''}>{title}</th>" for title in titles)
        body = "".join(
            f'<tr><td{left} title="{_title(row)}"><strong>{markup(row.action)}</strong><br>{markup(row.reason)}</td>'
            f"<td>{markup(short_time_text(row.saving_us))}</td><td>{markup(percent_text(row.saving_pct))}</td>"
            f"<td>{markup(row.rule)}</td>"
            f"{f'<td>{markup(row.where or str())}</td>' if 'Where' in titles else ''}</tr>"
            for row in self._rows
        )
        from flopscope.views.html import STYLE

        notes = "<br>".join(map(markup, self.notes))
        return (
            f'<style>{STYLE}</style>\n<table class="flopscope"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>\n<div>{notes}</div>"
        )


def _at(place: str, width: int) -> str:
    """Return the line of a place; its end is the most informative part."""
    left = width - 8
    return f"     at {place if len(place) <= left else '…' + place[1 - left :]}"


def _title(row: Advice) -> str:
    return "&#10;".join(markup(_evidence_text(entry)) for entry in row.evidence)


def _evidence_text(entry: Mapping[str, Any], width: int | None = None) -> str:
    """Return one line: op, time, calls, and as much of the shapes as fits; scalars are left out."""
    calls = entry["calls"]
    text = f"{printable(str(entry['op']))}  {short_time_text(entry['time'])}"
    if calls:
        text += f"  {plural(calls, 'call')}"
    shapes = " ".join("x".join(map(str, shape)) for shape in entry["shapes"] if shape)
    if shapes:
        text += f"  {printable(shapes)}"
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


class Pools:
    """The time that advice may still claim: of each op, of each cause of idleness, and of all device work together."""

    def __init__(self, analysis: Analysis) -> None:
        self.times = {id(op): op.time for op in analysis.ops}
        self.times |= {id(gap): analysis.gap_unobserved(gap) for gap in analysis.gaps}
        self.wholes = dict(self.times)
        self.slack, self.host_of = analysis.slack, analysis.host_of
        self.left = analysis.unobserved

    def granted(self, finding: Finding) -> list[tuple[Op | Gap, float]]:
        """Return what is left of each op and gap for the finding to claim."""
        return [(source, min(wanted, self.times[id(source)])) for source, wanted in finding.claims]

    def offer(self, finding: Finding) -> tuple[float, list[tuple[Op | Gap, float]]]:
        """Return what the finding can still claim, in total and from each op and gap."""
        claims = self.granted(finding)
        device = sum(granted for source, granted in claims if isinstance(source, Op))
        idle = sum(granted for source, granted in claims if isinstance(source, Gap))
        slack = max(self.slack, 0.0) + self.host_of(finding.removed)
        if device > slack:  # the host would hold up a faster device
            share = slack / device
            claims = [(source, granted * share if isinstance(source, Op) else granted) for source, granted in claims]
            device = slack
        return min(device + idle, self.left), claims

    def whole(self, finding: Finding) -> float:
        """Return the whole time, without recording, of the ops and idle times from which a finding claims."""
        return sum(self.wholes[source] for source in {id(source) for source, _ in finding.claims})

    def take(self, saving: float, claims: Sequence[tuple[Op | Gap, float]]) -> None:
        for source, granted in claims:
            self.times[id(source)] -= granted
            self.slack -= granted if isinstance(source, Op) else 0
        self.left -= saving


def advise(analysis: Analysis) -> AdviceTable:
    """Apply the rules. A rule claims the time that its change gains; no time is claimed twice.

    Of a profile whose whole time is the recording's own, nothing is known that a change would gain.
    """
    pools, rows = Pools(analysis), []
    for name, rule in RULES.items() if analysis.unobserved > 0 else ():
        for finding in rule(analysis):
            saving, claims = pools.offer(finding)
            if saving < LEAST_SHARE * analysis.unobserved:
                continue
            assert saving <= pools.whole(finding) * (1 + 1e-9), f"{name} saves more than the parts that it comes from"
            pools.take(saving, claims)
            share, said, facts = 100 * saving / analysis.unobserved, finding.facts, _plain(finding.facts)
            texts = said.action, sentence(said)
            rows.append(Advice(name, float(saving), float(share), *texts, finding.evidence, finding.where, facts))
    rows.sort(key=lambda row: -row.saving_us)
    notes = [*outlying(analysis), *cached(analysis), *pauses(analysis), *unordered(analysis), *missing(analysis)]
    return AdviceTable(rows, analysis.has_steps, notes)


def without_peaks(analysis: Analysis) -> list[str]:
    """Return why the peaks of devices are unknown whose work is known, and what to do."""
    unseen = not analysis.on_device and analysis.facts.device_unseen
    unknown = analysis.facts.unknown_peaks if any(analysis.known_work) and not unseen else {}
    return [f"The work on {device} has no limits, as its peaks are unknown: {why}." for device, why in unknown.items()]


def _plain(facts: Facts) -> dict[str, Any]:
    """Return a record of facts as values that JSON can hold: lists for tuples, None for NaN."""

    def plain(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [plain(one) for one in value]
        return None if value != value else value

    names: dict[str, Any] = facts._asdict() if isinstance(facts, tuple) and hasattr(facts, "_asdict") else {}
    return {name: plain(value) for name, value in names.items()}


def outlying(analysis: Analysis) -> list[str]:
    """Return notes on steps that take much longer than the others."""
    if not analysis.has_steps:
        return []
    return notes_of([step.name or "" for step in analysis.steps], [step.time for step in analysis.steps])


def graphs_lost(counts: Mapping[str, int]) -> int:
    """Return how many pieces of work of graphs, counted as Trace.graphs, have no node of a capture."""
    return counts.get("works", 0) - counts.get("matched", 0)


def _without_unit(analysis: Analysis) -> str:
    """Return the names of the first ranges whose FLOPs the program stated without a unit, "" for none."""
    names = ("key", "is_user_annotation", "flops", "unit")
    rows = zip(*(analysis.columns[name] for name in names), strict=True)
    found = list(dict.fromkeys(key for key, is_range, flops, unit in rows if is_range and flops > 0 and not unit))
    more = len(found) - EVIDENCE_SHOWN
    return ", ".join(found[:EVIDENCE_SHOWN]) + (f" and {more} more" if more > 0 else "")


def missing(analysis: Analysis) -> list[str]:
    """Return what could not be judged, and which recording option would bring it."""
    notes = [text for text in (analysis.facts.hints.busy, *analysis.facts.hints.said) if text]
    hints, unseen = analysis.facts.hints, not analysis.on_device and analysis.facts.device_unseen
    unknown = any(op.part == "unmodelled" for op in analysis.ops)
    has_ops = any("::" in op.key for op in analysis.ops if op.row >= 0)
    if unknown and not analysis.has_shapes:
        foreign = not (has_ops or analysis.on_device or analysis.uses_torch) and hints == HINTS
        without = ON_CPU_WITHOUT_OPS if foreign else WITHOUT_OPS.advice
        if not (foreign and any(analysis.known_work)):
            notes.append(hints.advice if has_ops or hints != HINTS else without)
    elif unknown and (lost := graphs_lost(analysis.graphs)):
        notes.append(
            f"The work of {plural(lost, 'kernel or copy', 'kernels and copies')} of replayed graphs is unknown, as the "
            f"capture was not recorded. {hints.graphs}"
        )
    if unitless := _without_unit(analysis):
        notes.append(f"The FLOPs stated for {unitless} have no compute unit, so their limit is unknown: pass unit=.")
    if unseen:
        notes.append("The program used a GPU, but no activity of it was recorded: profile with ProfilerActivity.CUDA.")
    if analysis.steps and not analysis.has_steps:
        notes.append(f"The profile has no steps, so times are those of the whole profile: {hints.steps}.")
    notes += without_peaks(analysis)
    if analysis.facts.dropped:
        notes.append(f"{analysis.facts.dropped} records were lost: times and counts are too low.")
    return notes
