"""Trying changes on a program: which, in how many runs, alone and together, until a verdict or the end of the time."""

from __future__ import annotations

import functools
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flopscope.measuring.trying.inside import BLOCK, BLOCKS, Kind, Record
from flopscope.measuring.trying.losses import parity_of
from flopscope.measuring.trying.pairs import CHECKS, FEWEST, MARGIN, MOST, Ratio, checked, word_of
from flopscope.measuring.trying.processes import Processes, Program
from flopscope.measuring.trying.result import Change, Edit, Tried, joined
from flopscope.measuring.trying.seen import Seen
from flopscope.measuring.trying.switches import SWITCHES, Switch
from flopscope.measuring.trying.turns import Ended, Late, Turns
from flopscope.support.cpu_wait import WORTH
from flopscope.support.lock import alone

SINGLE_SHARE = 0.7
"""Of the time, until which changes are measured alone if there may be several to combine."""
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
    combine: bool = True
    jobs: int = 1
    """Runs that get ready side by side."""
    most: int | None = None
    """Changes to try, the most promising first; None: all."""


class Plan(NamedTuple):
    """How many steps a process runs."""

    warm: int
    steps: int
    """0: the whole program is timed."""
    note: str


def plan_of(record: Record, jobs: int = 1) -> Plan:
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
    window = min(max(marks[0] / 2 / jobs, LEAST_WINDOW), MOST_WINDOW)  # half as long as a process is waited for
    steps = min(max(math.ceil(window / max(usual, 1e-6)), 5 if usual < 1 else 3), MOST_STEPS)
    if BLOCKS * BLOCK * usual < FOR_BLOCKS:
        steps = max(steps, BLOCKS * BLOCK)
    if record.whole is not None:
        steps = min(steps, len(marks) - warm)
    return Plan(warm, steps, "")


OURS = "flopscope.step()"
NO_STEPS = f"it has no steps, which end with step() of a torch optimizer, or {OURS}"


class Candidate:
    """A change, or several together, beside the program without it."""

    def __init__(self, base: Sequence[str], added: Sequence[str], change: Change) -> None:
        self.base, self.switches, self.change = tuple(base), (*base, *added), change
        self.pairs: list[tuple[float, float]] = []
        self.records: tuple[list[Record], list[Record]] = ([], [])

    @property
    def next_pairs(self) -> tuple[int, int]:
        """The pairs up to the next check: the number of the first, and that after the last."""
        done = len(self.pairs)
        return done, next((one for one in CHECKS if one > done), done)

    @property
    def is_open(self) -> bool:
        """Whether more pairs may bring a verdict."""
        if self.change.verdict == "unclear":
            return len(self.pairs) < MOST
        measured = self.change.verdict in ("faster", "slower", "no difference")
        return measured and len(self.pairs) not in CHECKS

    def add(self, plain: Record, changed: Record) -> None:
        """Add a pair of runs."""
        assert plain.seconds is not None and changed.seconds is not None
        self.pairs.append((1e6 * plain.seconds, 1e6 * changed.seconds))
        for known, one in zip(self.records, (plain, changed), strict=True):
            known.append(one)
        change, (before, after) = self.change, self.records
        change.ratio = checked(self.pairs)
        change.before, change.after = (median(times) for times in zip(*self.pairs, strict=True))
        change.memory = _middle(before, "peak"), _middle(after, "peak")
        change.start = _middle(before, "start"), _middle(after, "start")
        change.clocks = _middle(before, "clock"), _middle(after, "clock")
        again = "torch.compile compiled again during the measured steps"
        if any(one.recompiled for one in after) and again not in change.notes:
            change.notes.append(again)


def _middle(records: Iterable[Record], name: str) -> float:
    known = [value for one in records if (value := getattr(one, name)) is not None]
    return median(known) if known else math.nan


class Trial:
    """One trial of a program. ``tell`` prints a line; ``advance`` is called after each run.

    turns: those of other trials that run at the same time.
    """

    def __init__(
        self,
        program: Program,
        options: Options,
        tell: Callable[[str], object],
        advance: Callable[[], object],
        turns: Turns | None = None,
    ) -> None:
        self._program, self._options = program, options
        self._tell, self._advance = tell, advance
        self._turns = turns or Turns(options.jobs, tell)
        self._adding = threading.Lock()
        self._begin = time.monotonic()
        self._deadline = self._begin + options.max_time
        self.seen = Seen()
        """What the program was seen to use."""
        self.plan = Plan(0, 0, "")
        self._limit = options.max_time / 2
        self._lasted = 0.0  # the longest run that was timed
        self.plain: list[Record] = []
        """Runs without a change."""
        self.candidates: list[Candidate] = []
        """What is tried."""
        self._notes: list[str] = []

    def run(self) -> Tried:
        """Try the changes. Raise RuntimeError if the program does not run as it is."""
        with tempfile.TemporaryDirectory(prefix="flopscope-try-") as folder:
            self._processes = Processes(self._program, Path(folder), self._turns)
            return self._run()

    def against_itself(self) -> Change:
        """Compare the program with itself, as if there were a change. Raise RuntimeError if it does not run."""
        with tempfile.TemporaryDirectory(prefix="flopscope-try-") as folder:
            self._processes = Processes(self._program, Path(folder), self._turns)
            self._look()
            one = Candidate((), (), Change("nothing", "", hits=1, margin=self._options.margin))
            self.candidates = [one]
            with suppress(Ended):
                self._measure([one], self._deadline)
            return one.change

    def _run(self) -> Tried:
        look = self._look()
        tried = Tried(self._program.title, "step" if self.plan.steps else "program", math.nan, [])
        tried.device = self.seen.device
        advice = self._advice()
        chosen = choose(self._options, self.seen, advice, self._notes)[: self._options.most]
        tried.edits = edits_of(advice, chosen)
        self._tell(
            f"{self._program.title} {self._described(look)}; "
            f"{len(chosen)} to try: {', '.join(one.name for one in chosen) or 'nothing'}"
        )
        candidates = self.candidates = [
            self._candidate((), (one,), predicted_of(one, self.seen, advice)) for one in chosen
        ]
        tried.changes = [one.change for one in candidates]
        share = SINGLE_SHARE if self._options.combine and len(candidates) > 1 else 1.0
        interrupted = False
        try:
            if candidates:
                self._compare_plain()
            deadline = self._begin + share * self._options.max_time
            first = functools.partial(self._first, deadline=deadline)
            self._turns.side_by_side([functools.partial(first, one) for one in candidates])
            self._measure(candidates, deadline)
            if self._options.combine:
                self._combine(tried, candidates)
        except (KeyboardInterrupt, Ended):
            interrupted = True
        tried.before = 1e6 * _middle(self.plain, "seconds")
        if interrupted:
            self._notes.append("It was interrupted: what was not measured by then is unclear.")
        waited = _middle(self.plain, "waited")
        if waited > WORTH:
            part = f"{100 * waited:.0f} % of the time"
            self._notes.append(f"The machine was busy: the main thread waited for a free CPU for {part}.")
        tried.notes, tried.runs = self._notes, self._processes.count
        tried.seconds = time.monotonic() - self._begin
        tried.lines = [line for name in tried.kept for line in SWITCHES[name].lines_for(self.seen).split("\n")]
        return tried

    # The program as it is ---------------------------------------------------------------------------------------------

    def _look(self) -> Record:
        begin = time.monotonic()
        record = self._timed("look", ())
        if record.problem:
            raise RuntimeError(f"{self._program.title} does not run by itself: {hint(record.problem)}")
        lasted = time.monotonic() - begin
        self._limit = max(LEAST_LIMIT, SLOWER_THAN_LOOK * lasted)
        self.seen = Seen(**record.seen)
        self.plan = plan_of(record, self._turns.jobs)
        self._keep_plain(record)
        if self.plan.note:
            self._notes.append(self.plan.note)
        return record

    def _described(self, look: Record) -> str:
        plan, left = self.plan, max(self._deadline - time.monotonic(), 0.0)
        if not plan.steps:
            most = int(left / max(look.whole or 1.0, 0.1))
            return f"runs whole each time ({look.whole or math.nan:.3g} s), at most about {most:,} times more"
        step = (look.marks[-1] - look.marks[0]) / max(len(look.marks) - 1, 1)
        run = look.marks[0] + step * (plan.warm + plan.steps)
        most = int(left / max(run, 0.1))
        return f"runs {plan.warm} + {plan.steps} steps each time ({run:.3g} s), at most about {most:,} times more"

    def _advice(self) -> Sequence[Any]:
        """Return the advice on a recording of some steps."""
        plan = self.plan
        last = plan.warm + min(RECORDED, plan.steps)
        window = (plan.warm, last) if plan.steps else None
        path, why = self._processes.trace(window, self._limit, self.seen)
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

    def _compare_plain(self) -> None:
        """Let the program's own spread of results be known."""
        self._keep_plain(self._timed("compare", ()))

    def _keep_plain(self, record: Record) -> None:
        if not record.problem:
            self.plain.append(record)

    def _first(self, one: Candidate, deadline: float) -> None:
        """Compare the results of a change, and make its first pairs."""
        self._compare(one)
        self._measure([one], deadline, FEWEST)

    # Changes ----------------------------------------------------------------------------------------------------------

    def _candidate(self, base: Sequence[str], added: Sequence[Switch], predicted: float) -> Candidate:
        first = added[0]
        change = Change(
            joined([one.name for one in added]),
            first.what,
            predicted,
            effect=first.effect,
            lines=first.lines_for(self.seen),
            source=first.source,
            margin=self._options.margin,
        )
        return Candidate(base, [one.name for one in added], change)

    def _compare(self, one: Candidate) -> None:
        """Run a change once: whether it works, whether it changes anything, and whether the results are kept."""
        try:
            record = self._timed("compare", one.switches, self._deadline)
        except Late:
            return one.change.notes.append("the time was over before it was tried")
        change, added = one.change, [name for name in one.switches if name not in one.base]
        change.problem = record.problem
        change.hits = min(record.hits.get(name, 0) for name in added)
        plain = [known.values for known in self.plain if known.values and known.of == record.of]
        tolerance = max(SWITCHES[name].tolerance_in(self.seen) for name in one.switches)
        change.parity = parity_of(record.of, _numbers(plain), _numbers([record.values])[0], tolerance)
        if change.verdict in ("failed", "not applied", "changes results"):
            self._tell(f"{change.name}: {change.verdict}{f' ({change.problem})' if change.problem else ''}")

    def _measure(self, candidates: Sequence[Candidate], deadline: float, most: int = MOST) -> None:
        """Run pairs of each candidate until all have a verdict, or so many pairs, or the time is over."""
        end = min(deadline, self._deadline)
        while left := [one for one in candidates if one.is_open and one.change.hits and len(one.pairs) < most]:
            if not self._in_time(end):
                return
            pairs = [functools.partial(self._pair, one, at, end) for one in left for at in range(*one.next_pairs)]
            self._turns.side_by_side(pairs)
            for one in left:
                if not one.is_open:
                    change, ratio = one.change, one.change.ratio
                    found = f" ({change.problem})" if change.problem else f", {ratio.pairs} pairs, {ratio.gain:+.1f} %"
                    self._tell(f"{change.name}: {change.verdict}{found}")

    def _in_time(self, end: float) -> bool:
        """Return whether another pair would end in time."""
        return time.monotonic() + 2 * self._lasted <= end

    def _pair(self, one: Candidate, number: int, end: float) -> None:
        """Run the program without and with a change, the first of them in turns."""
        if one.change.problem or not self._in_time(end):
            return
        records: dict[bool, Record] = {}

        def run(changed: bool) -> None:
            if one.change.problem:
                return
            try:
                record = self._timed("time", one.switches if changed else one.base, end - self._lasted)
            except Late:
                return
            self._lasted = max(self._lasted, record.lasted)
            if not record.problem and record.seconds is None:
                if self._shorten(record):
                    return  # the pair is made again
                record.problem = f"it ended after {record.steps} steps, before the last measured one"
            records[changed] = record
            if record.problem:
                one.change.problem = record.problem if changed else f"without it, {record.problem}"
            elif not changed and not one.base:
                self._keep_plain(record)

        order = (False, True) if number % 2 == 0 else (True, False)
        with alone(self._tell) if self._turns.jobs == 1 else nullcontext():  # else each run takes the lock
            self._turns.side_by_side([functools.partial(run, changed) for changed in order])
        if not one.change.problem and len(records) == 2:
            with self._adding:
                one.add(records[False], records[True])

    def _shorten(self, record: Record) -> bool:
        """Let runs end with the program, which has ended too soon; return whether it has enough steps."""
        left = record.steps - max(record.warm, self.plan.warm)
        if left >= FEWEST_STEPS:
            self.plan = self.plan._replace(steps=min(self.plan.steps, left))
        return left >= FEWEST_STEPS

    def _timed(self, kind: Kind, switches: Sequence[str], latest: float = math.inf) -> Record:
        plan = self.plan
        record = self._processes.run(kind, switches, self.seen, plan.warm, plan.steps, self._limit, latest)
        if kind == "time":
            record.values = []  # its datasets draw other random numbers than those of runs that are compared
        with self._adding:
            self._advance()
        return record

    # Together ---------------------------------------------------------------------------------------------------------

    def _combine(self, tried: Tried, candidates: Sequence[Candidate]) -> None:
        """Add to the best change the next best, as long as one gains."""
        faster = sorted(
            (one for one in candidates if one.change.verdict == "faster"), key=lambda one: one.change.ratio.value
        )
        if not faster:
            return
        tried.kept, tried.total = list(faster[0].switches), faster[0].change.ratio
        for one in faster[1:]:
            switch = SWITCHES[one.switches[0]]
            if switch.group and any(SWITCHES[name].group == switch.group for name in tried.kept):
                continue
            more = self._candidate(tried.kept, (switch,), math.nan)
            tried.combined.append(more.change)
            self._compare(more)
            self._measure([more], self._deadline)
            if more.change.verdict == "faster":
                tried.kept.append(switch.name)
        if len(tried.kept) > 1:
            self._total(tried)

    def _total(self, tried: Tried) -> None:
        """Measure the whole combination beside the program as it is."""
        whole = self._candidate((), [SWITCHES[name] for name in tried.kept], math.nan)
        whole.change.hits = 1
        self._measure([whole], self._deadline)
        if whole.change.ratio.pairs >= FEWEST and word_of(whole.change.ratio, self._options.margin) != "unclear":
            tried.total = whole.change.ratio
        else:
            self._notes.append("The time was over before all of them together had been measured; the total is unclear.")
            tried.total = Ratio(math.nan, math.nan, math.nan, whole.change.ratio.pairs)


def _numbers(rows: Sequence[Sequence[float | None]]) -> list[list[float]]:
    return [[math.nan if one is None else one for one in row] for row in rows]


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
    known = [SWITCHES[name] for name in (SWITCHES if wanted is None else wanted)]
    chosen = []
    for one in known:
        why_not = one.needs(seen)
        if why_not:
            if wanted is not None:
                notes.append(f"{one.name} does not apply: {why_not}.")
            continue
        if wanted is not None or options.every or one.shown(seen) or savings_of(one, advice):
            chosen.append(one)
    key: Mapping[str, float] = {one.name: predicted_of(one, seen, advice) for one in chosen}
    return sorted(chosen, key=lambda one: -key[one.name] if key[one.name] == key[one.name] else 0.0)


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
