"""Trying changes on a program: it is looked at, then timed in pairs of runs without and with each change in turn."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flopscope.measuring.trying.inside import BLOCK, BLOCKS, Kind, Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.losses import parity_of
from flopscope.measuring.trying.pairs import CHECKS, FEWEST, MARGIN, MOST, checked
from flopscope.measuring.trying.processes import Processes, Program
from flopscope.measuring.trying.result import Change, Edit, Tried, change_of
from flopscope.measuring.trying.switches import SWITCHES, Switch
from flopscope.support.process import WORTH

FEWEST_STEPS, MOST_STEPS = 3, 5000
LEAST_WINDOW, MOST_WINDOW = 0.3, 5.0
"""Seconds of measured steps in a process, if a step is not longer."""
FOR_BLOCKS = 1.0
"""Seconds for which there may be more steps, so that they can be timed in blocks."""
RECORDED = 5
"""Steps of the trace that the advice reads."""
SLOWER_THAN_LOOK = 5.0
LEAST_LIMIT = 120.0
"""A process is ended after this many seconds, or after SLOWER_THAN_LOOK times the first run if that is longer. The end
of the time never ends one, so that a change does not seem to fail."""
OURS = "flopscope.step()"
NO_STEPS = f"it has no steps, which end with step() of a torch optimizer, or {OURS}"


@dataclass(frozen=True)
class Options:
    """What to try, and for how long."""

    changes: tuple[str, ...] | None = None
    """Names of switches; None: those that the advice or the program proposes."""
    every: bool = False
    """All that apply, whether or not something proposes them."""
    max_time: float = 600.0
    """Seconds."""
    margin: float = MARGIN


class Plan(NamedTuple):
    """How many steps a process runs."""

    warm: int
    steps: int
    """0: the whole program is timed."""
    note: str


def plan_of(record: Record) -> Plan:
    """Return the plan for a program, by a look at its first steps."""
    marks = record.marks
    times = [after - before for before, after in pairwise(marks)]
    if len(times) < 3:
        few = f"it has {len(marks)} steps, too few to tell warm ones from the first" if marks else NO_STEPS
        return Plan(0, 0, f"The whole program is timed: {few}.")
    usual = median(times[len(times) // 2 :])
    warm = 5 if usual < 1 else 3 if usual < 5 else 2
    if record.whole is not None:  # it ended by itself
        warm = min(warm, max(1, len(marks) // 4))
    window = min(max(marks[0] / 2, LEAST_WINDOW), MOST_WINDOW)  # half as long as a process is waited for
    steps = min(max(math.ceil(window / max(usual, 1e-6)), 5 if usual < 1 else 3), MOST_STEPS)
    if BLOCKS * BLOCK * usual < FOR_BLOCKS:
        steps = max(steps, BLOCKS * BLOCK)
    if record.whole is not None:
        steps = min(steps, len(marks) - warm)
    return Plan(warm, steps, "")


class Candidate:
    """A change beside the program without it."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.pairs: list[tuple[float, float]] = []
        self.compared: Record | None = None
        """The run with the change whose results are compared."""
        self.is_strict = False
        """Whether random numbers of that run do not depend on the change."""
        self._records: tuple[list[Record], list[Record]] = ([], [])

    @property
    def is_open(self) -> bool:
        """Whether more pairs may bring a verdict."""
        if self.change.verdict == "unclear":
            return len(self.pairs) < MOST
        return self.change.verdict in ("faster", "slower", "no difference") and len(self.pairs) not in CHECKS

    def add(self, plain: Record, changed: Record) -> None:
        """Add a pair of runs."""
        assert plain.seconds is not None and changed.seconds is not None
        self.pairs.append((1e6 * plain.seconds, 1e6 * changed.seconds))
        for known, one in zip(self._records, (plain, changed), strict=True):
            known.append(one)
        change, (before, after) = self.change, self._records
        change.ratio = checked(self.pairs)
        change.before, change.after = (median(times) for times in zip(*self.pairs, strict=True))
        change.memory = _middle(before, "peak"), _middle(after, "peak")
        change.start = _middle(before, "start"), _middle(after, "start")
        again = "torch.compile compiled again during the measured steps"
        if any(one.recompiled for one in after) and again not in change.notes:
            change.notes.append(again)


def _middle(records: Iterable[Record], name: str) -> float:
    known = [value for one in records if (value := getattr(one, name)) is not None]
    return median(known) if known else math.nan


class Trial:
    """One trial of a program. ``tell`` prints a line; ``advance`` is called after each run."""

    def __init__(
        self, program: Program, options: Options, tell: Callable[[str], object], advance: Callable[[], object]
    ) -> None:
        self._program, self._options = program, options
        self._tell, self._advance = tell, advance
        self._begin = time.monotonic()
        self._deadline = self._begin + options.max_time
        self._seen = Seen()
        self._plan = Plan(0, 0, "")
        self._limit = options.max_time / 2
        self._lasted = 0.0  # the longest pair so far
        self._looked = Record()
        self._plain: list[Record] = []  # that were timed, without a change
        self._strict: list[Record] = []  # that were compared, without a change
        self._notes: list[str] = []

    def run(self) -> Tried:
        """Try the changes. Raise RuntimeError if the program does not run as it is."""
        with tempfile.TemporaryDirectory(prefix="flopscope-try-") as folder:
            self._processes = Processes(self._program, Path(folder))
            self._look()
            tried = Tried(self._program.title, "step" if self._plan.steps else "program", math.nan, [])
            try:
                self._try_all(tried)
            except KeyboardInterrupt:
                self._notes.append("It was interrupted: what was not measured by then is unclear.")
        tried.device = self._seen.device
        tried.before = 1e6 * _middle(self._plain, "seconds")
        waited = _middle(self._plain, "waited")
        if waited > WORTH:
            part = f"{100 * waited:.0f} % of the time"
            self._notes.append(f"The machine was busy: the main thread waited for a free CPU for {part}.")
        tried.notes, tried.runs = self._notes, self._processes.count
        tried.seconds = time.monotonic() - self._begin
        tried.keep_faster()
        return tried

    # The program as it is ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._looked = record = self._timed("look", ())
        if record.problem:
            raise RuntimeError(f"{self._program.title} does not run by itself: {hint(record.problem)}")
        self._limit = max(LEAST_LIMIT, SLOWER_THAN_LOOK * record.lasted)
        self._lasted = 2 * record.lasted
        self._seen = Seen(**record.seen)
        self._plan = plan_of(record)
        self._notes += [self._plan.note] if self._plan.note else []

    def _advice(self) -> Sequence[Any]:
        """Return the advice on a recording of some steps."""
        plan = self._plan
        window = (plan.warm, plan.warm + min(RECORDED, plan.steps)) if plan.steps else None
        path, why = self._processes.trace(window, self._limit, self._seen)
        self._advance()
        if path is None:
            self._notes.append(f"There is no advice, as nothing was recorded: {why}.")
            return ()
        from flopscope.read.trace import load_trace

        try:
            return list(load_trace(path).advice())
        except (ValueError, OSError, RuntimeError) as problem:
            self._notes.append(f"There is no advice: {problem}")
            return ()

    def _described(self) -> str:
        look, plan = self._looked, self._plan
        if plan.steps:
            step = (look.marks[-1] - look.marks[0]) / max(len(look.marks) - 1, 1)
            run, what = look.marks[0] + step * (plan.warm + plan.steps), f"{plan.warm} + {plan.steps} steps"
        else:
            run, what = look.whole or math.nan, "whole"
        most = int(max(self._deadline - time.monotonic(), 0.0) / max(run, 0.1))
        return f"runs {what} each time ({run:.3g} s), at most about {most:,} times more"

    # Changes ----------------------------------------------------------------------------------------------------------

    def _try_all(self, tried: Tried) -> None:
        """Try one change after the other. Each has an equal part of the time that is left, at least for a verdict."""
        advice = self._advice()
        chosen = choose(self._options, self._seen, advice, self._notes)
        tried.edits = edits_of(advice, chosen)
        names = ", ".join(one.name for one in chosen) or "nothing"
        self._tell(f"{self._program.title} {self._described()}; {len(chosen)} to try: {names}")
        margin, seen = self._options.margin, self._seen
        tried.changes = [change_of(one, seen, margin, predicted_of(one, seen, advice)) for one in chosen]
        for number, change in enumerate(tried.changes):
            left = self._deadline - time.monotonic()
            self._try(Candidate(change), left / (len(chosen) - number))
            found = f" ({change.problem})" if change.problem else ""
            if change.ratio.pairs:
                found = f", {change.ratio.pairs} pairs, {change.ratio.gain:+.1f} %{found}"
            self._tell(f"{change.name}: {change.verdict}{found}")

    def _try(self, one: Candidate, share: float) -> None:
        """Run pairs of a change until it has a verdict, its share of the time or all the time is over."""
        begin, number = time.monotonic(), 0
        while one.is_open:
            end = time.monotonic() + self._lasted
            if end > self._deadline or (len(one.pairs) >= FEWEST and end > begin + share):
                break
            self._pair(one, number)
            number += 1
        if one.compared is None and not one.change.problem:
            one.change.notes.append("the time was over before it was measured")

    def _pair(self, one: Candidate, number: int) -> None:
        """Run the program without and with a change, the first of them in turns."""
        change = one.change
        records: dict[bool, Record] = {}
        for changed in (True, False) if number % 2 == 0 else (False, True):
            record = records[changed] = self._timed("time", (change.name,) if changed else ())
            if not record.problem and record.seconds is None:
                if self._shorten(record):
                    return  # the pair is made again
                record.problem = f"it ended after {record.steps} steps, before the last measured one"
            if record.problem:
                change.problem = record.problem if changed else f"without it, {record.problem}"
                return
            if not changed:
                self._plain.append(record)
            elif one.compared is None:
                one.compared, change.hits = record, record.hits.get(change.name, 0)
                self._compare(one)
                if not one.is_open:
                    return
        self._lasted = sum(record.lasted for record in records.values())
        one.add(records[False], records[True])
        self._compare_again(one)

    def _shorten(self, record: Record) -> bool:
        """Let runs end with the program, which has ended too soon; return whether it has enough steps."""
        left = record.steps - max(record.warm, self._plan.warm)
        if left >= FEWEST_STEPS:
            self._plan = self._plan._replace(steps=min(self._plan.steps, left))
        return left >= FEWEST_STEPS

    def _timed(self, kind: Kind, switches: Sequence[str]) -> Record:
        plan = self._plan
        record = self._processes.run(kind, switches, self._seen, plan.warm, plan.steps, self._limit)
        self._advance()
        return record

    # Results ----------------------------------------------------------------------------------------------------------

    def _compare(self, one: Candidate) -> None:
        """Compare the results of a change with those without, which the runs record that are timed.

        If they differ, runs decide in which random numbers do not depend on the change.
        """
        self._compare_again(one)
        if one.change.parity.kept is False:
            while len(self._strict) < 2:
                self._strict.append(self._timed("compare", ()))
            one.compared = self._timed("compare", (one.change.name,))
            one.change.problem, one.is_strict = one.compared.problem, True
            self._compare_again(one)

    def _compare_again(self, one: Candidate) -> None:
        """Compare the results of a change with those of all runs without it so far."""
        changed = one.compared
        assert changed is not None
        plain = self._strict if one.is_strict else [self._looked, *self._plain]
        runs = [_numbers(run) for run in plain if run.values and run.of == changed.of]
        tolerance = SWITCHES[one.change.name].tolerance_in(self._seen)
        one.change.parity = parity_of(changed.of, runs, _numbers(changed), tolerance)


def _numbers(record: Record) -> list[float]:
    return [math.nan if one is None else one for one in record.values]


def hint(problem: str) -> str:
    """Return a problem with what can be done about it."""
    if "EOFError" in problem:
        return f"{problem}. Its standard input is empty here: give what it asks for as arguments"
    if "last measured step" in problem:
        return f"{problem}. A program without end needs steps, which end with step() of a torch optimizer, or {OURS}"
    return problem


# What to try ----------------------------------------------------------------------------------------------------------


def choose(options: Options, seen: Seen, advice: Sequence[Any], notes: list[str]) -> list[Switch]:
    """Return the switches to try, the largest prediction first. Note those that were asked for and do not apply."""
    wanted = options.changes
    chosen = []
    for one in [SWITCHES[name] for name in (SWITCHES if wanted is None else wanted)]:
        if why_not := one.why_not(seen):
            notes += [f"{one.name} does not apply: {why_not}."] if wanted is not None else []
        elif wanted is not None or options.every or one.shown(seen) or savings_of(one, advice):
            chosen.append(one)
    predicted = {one.name: predicted_of(one, seen, advice) for one in chosen}
    return sorted(chosen, key=lambda one: 0.0 if math.isnan(predicted[one.name]) else -predicted[one.name])


def predicted_of(switch: Switch, seen: Seen, advice: Sequence[Any]) -> float:
    """Return what a switch gains by the advice, in percent; NaN if that makes no estimate."""
    savings = savings_of(switch, advice)
    return switch.reached(seen, sum(savings)) if savings else math.nan


def savings_of(switch: Switch, advice: Sequence[Any]) -> list[float]:
    """Return the savings of the findings that propose a switch."""
    savings = [one.saving_pct * _share(switch, one) for one in advice if one.rule in switch.rules]
    return [one for one in savings if one > 0]


def _share(switch: Switch, advice: Any) -> float:
    """Return the part of a finding that a switch mends: TF32 has one for products and one for convolutions."""
    parts = {"tf32_products": "products", "tf32_convolutions": "convolutions"}
    if switch.name not in parts or advice.rule != "tf32":
        return 1.0
    times = [advice.facts.get(name) or 0.0 for name in ("products", "convolutions")]
    return float(advice.facts.get(parts[switch.name]) or 0.0) / sum(times) if sum(times) else 1.0


def edits_of(advice: Sequence[Any], chosen: Sequence[Switch]) -> list[Edit]:
    """Return the advice that no chosen switch follows."""
    tried = {rule for one in chosen for rule in one.rules}
    left = [one for one in advice if one.rule not in tried]
    return [Edit(one.action, float(one.saving_pct), one.where) for one in left]
