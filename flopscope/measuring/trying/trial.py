"""Trying changes on a program: it is looked at, then timed in pairs of runs without and with each change in turn."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flopscope.measuring.trying.inside import BLOCK, BLOCKS, TRY, Job, Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.result import Change, Edit, Tried, change_of
from flopscope.measuring.trying.switches import SWITCHES, Switch
from flopscope.measuring.trying.verdicts import CHECKS, FEWEST, MARGIN, MOST, parity_of, ratio_of
from flopscope.support.files import write_json
from flopscope.support.safe import printable

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
GRACE = 5.0
"""Seconds that a launcher may take to end its processes after it was told to."""
INTERPRETERS = ("torchrun", "accelerate")
"""Launchers that start Python themselves."""


@dataclass(frozen=True)
class Program:
    """A program as it stands on the command line."""

    target: str
    arguments: tuple[str, ...] = ()
    option: str = ""
    """ "-m", "-c" or ""."""
    launcher: tuple[str, ...] = ()
    """The command that starts its processes, such as torchrun."""

    @property
    def title(self) -> str:
        """Return its name, without arguments, which may be secret."""
        return "python -c" if self.option == "-c" else os.path.basename(self.target)


def launcher_words(text: str | None) -> tuple[str, ...]:
    """Return the words of a launcher's command. Raise ValueError if there is none of this name."""
    words = tuple(shlex.split(text or ""))
    if text is not None and (not words or shutil.which(words[0]) is None):
        raise ValueError(f"--launcher {text!r}: there is no command {words[0] if words else ''!r}")
    return words


class Processes:
    """Runs of a program, one after the other. Their files are in ``folder``, which is temporary."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.count = 0
        """Processes that were started, launches of several ranks counted once."""

    def run(self, switch: str, seen: Seen, warm: int | None = None, steps: int = 0, limit: float = 600.0) -> Record:
        """Run the program once, as a Job says. The record tells what failed, if something did. limit: in seconds."""
        path = self._folder / f"record-{self.count}.json"
        target, arguments, option = self._program.target, list(self._program.arguments), self._program.option
        job = Job(target, arguments, option, str(path), switch, warm, steps, asdict(seen))
        written = self._folder / f"job-{self.count}.json"
        write_json(written, asdict(job))
        begin = time.monotonic()
        status, log = self._run(["try", "--job", str(written)], limit)
        if not path.exists():
            return Record(problem=explained(status, limit, log), lasted=time.monotonic() - begin)
        record = Record(**json.loads(path.read_text(encoding="utf-8")))
        record.lasted = time.monotonic() - begin
        return record

    def trace(self, steps: tuple[int, int] | None, limit: float) -> tuple[Path | None, str]:
        """Record a trace of some steps, or of the whole program; return its file, or None and why there is none."""
        path = self._folder / "trace.json"
        window = [] if steps is None else ["--steps", f"{steps[0]}:{steps[1]}", "--stop"]
        words = ["run", *window, "--no-report", "--no-summary", "--no-samples", "--trace", str(path)]
        words += [self._program.option] if self._program.option else []
        words += [self._program.target, *self._program.arguments]
        status, log = self._run(words, limit)
        found = [one for one in (path, path.with_name("trace.rank0.json")) if one.exists()]
        return (found[0], "") if found else (None, explained(status, limit, log))

    def _run(self, words: Sequence[str], limit: float) -> tuple[int | None, Path]:
        """Run a command of flopscope; return its status, None if it was ended at the limit, and its output."""
        launcher = list(self._program.launcher)
        runs_python = bool(launcher) and os.path.basename(launcher[0]) in INTERPRETERS
        command = [*launcher, *([] if runs_python else [sys.executable]), "-m", "flopscope", *words]
        log = self._folder / f"log-{self.count}.txt"
        with open(log, "wb") as output:
            self.count += 1
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={"PYTHONHASHSEED": "0", **os.environ, TRY: "1"}, start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(limit), log
            except subprocess.TimeoutExpired:
                return None, log
            finally:
                end(process, gently=bool(launcher))


def end(process: subprocess.Popen[Any], gently: bool) -> None:
    """End a process and those that it has started. gently: let a launcher end its own first."""
    if gently and process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def explained(status: int | None, limit: float, log: Path) -> str:
    """Return why a process has left no record."""
    if status is None:
        return f"it did not get to its last measured step within {limit:.0f} s"
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {printable(lines[-1][:300])}" if lines else ""
    if status < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-status).name}{last}"
    return f"it ended with status {status}{last}"


class Plan(NamedTuple):
    """How many steps a process runs."""

    warm: int | None
    """Before the measured ones; None: a look."""
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


class Trial:
    """One trial of a program.

    changes: names of switches; None: those that the advice or the program proposes, or ``every`` one that applies.
    max_time: in seconds. tell: prints a line. advance: called after each run.
    """

    def __init__(
        self,
        program: Program,
        changes: Sequence[str] | None = None,
        every: bool = False,
        max_time: float = 600.0,
        margin: float = MARGIN,
        tell: Callable[[str], object] = bool,
        advance: Callable[[], object] = bool,
    ) -> None:
        self._program, self._changes, self._every, self._margin = program, changes, every, margin
        self._tell, self._advance = tell, advance
        self._begin = time.monotonic()
        self._deadline = self._begin + max_time
        self._seen = Seen()
        self._plan = Plan(None, 0, "")
        self._limit = max_time / 2
        self._lasted = 0.0  # the longest pair so far
        self._plain: list[Record] = []  # runs without a change, the look first
        self._changed: Record | None = None  # the first run with the change
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
        tried.notes, tried.runs = self._notes, self._processes.count
        tried.seconds = time.monotonic() - self._begin
        tried.keep_faster()
        return tried

    # The program as it is ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        record = self._timed("")
        if record.problem:
            raise RuntimeError(f"{self._program.title} does not run by itself: {hint(record.problem)}")
        self._limit = max(LEAST_LIMIT, SLOWER_THAN_LOOK * record.lasted)
        self._lasted = 2 * record.lasted
        self._seen, self._plan, self._plain = Seen(**record.seen), plan_of(record), [record]
        self._notes += [self._plan.note] if self._plan.note else []

    def _advice(self) -> Sequence[Any]:
        """Return the advice on a recording of some steps."""
        warm, steps, _ = self._plan
        window = (warm or 0, (warm or 0) + min(RECORDED, steps)) if steps else None
        path, why = self._processes.trace(window, self._limit)
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

    # Changes ----------------------------------------------------------------------------------------------------------

    def _try_all(self, tried: Tried) -> None:
        """Try one change after the other. Each has an equal part of the time that is left, at least for a verdict."""
        advice = self._advice()
        chosen = choose(self._changes, self._every, self._seen, advice, self._notes)
        tried.edits = edits_of(advice, chosen)
        warm, steps, _ = self._plan
        each = f"{warm} + {steps} steps" if steps else "whole"
        names = ", ".join(one.name for one in chosen) or "nothing"
        self._tell(f"{self._program.title} runs {each} each time; {len(chosen)} to try: {names}")
        margin, seen = self._margin, self._seen
        tried.changes = [change_of(one, seen, margin, predicted_of(one, seen, advice)) for one in chosen]
        for number, change in enumerate(tried.changes):
            left = self._deadline - time.monotonic()
            self._try(change, left / (len(chosen) - number))
            found = f" ({change.problem})" if change.problem else ""
            if change.ratio.pairs:
                found = f", {change.ratio.pairs} pairs, {change.ratio.gain:+.1f} %{found}"
            self._tell(f"{change.name}: {change.verdict}{found}")

    def _try(self, change: Change, share: float) -> None:
        """Run pairs of a change until it has a verdict, its share of the time or all the time is over."""
        begin, pairs, self._changed = time.monotonic(), list[tuple[Record, Record]](), None
        while len(pairs) < MOST and not (change.verdict != "unclear" and len(pairs) in CHECKS):
            end = time.monotonic() + self._lasted
            if end > self._deadline or (len(pairs) >= FEWEST and end > begin + share):
                break
            pair = self._pair(change, len(pairs) % 2 == 0)
            if change.verdict in ENDED:
                return
            if pair is not None:
                pairs.append(pair)
                _measured(change, pairs)
        if change.hits is None:
            change.notes.append("the time was over before it was measured")

    def _pair(self, change: Change, changed_first: bool) -> tuple[Record, Record] | None:
        """Run the program without and with a change; None if the runs were too long, and are shorter from now on."""
        records: dict[bool, Record] = {}
        for changed in (changed_first, not changed_first):
            record = records[changed] = self._timed(change.name if changed else "")
            if not record.problem and record.seconds is None:
                left = record.steps - max(record.warm, self._plan.warm or 0)
                if left >= FEWEST_STEPS:  # the program ends sooner: so do its runs
                    self._plan = self._plan._replace(steps=min(self._plan.steps, left))
                    return None
                record.problem = f"it ended after {record.steps} steps, before the last measured one"
            if record.problem:
                change.problem = record.problem if changed else f"without it, {record.problem}"
                return None
            if changed:
                self._changed = self._changed or record
                change.hits = self._changed.hits
            else:
                self._plain.append(record)
            self._compare(change)
            if change.verdict in ENDED:
                return None
        self._lasted = sum(record.lasted for record in records.values())
        return records[False], records[True]

    def _timed(self, switch: str) -> Record:
        record = self._processes.run(switch, self._seen, self._plan.warm, self._plan.steps, self._limit)
        self._advance()
        return record

    def _compare(self, change: Change) -> None:
        """Compare the results of the first run with a change with those of all runs without it so far."""
        if self._changed is not None:
            changed, tolerance = self._changed, SWITCHES[change.name].tolerance_in(self._seen)
            runs = [_numbers(run) for run in self._plain if run.values and run.of == changed.of]
            change.parity = parity_of(changed.of, runs, _numbers(changed), tolerance)


ENDED = ("failed", "not applied", "changes results")
"""Verdicts after which a change is not timed."""


def _measured(change: Change, pairs: Sequence[tuple[Record, Record]]) -> None:
    """Give a change the numbers of its pairs of runs."""
    times = [(1e6 * (plain.seconds or 0.0), 1e6 * (changed.seconds or 0.0)) for plain, changed in pairs]
    before, after = zip(*pairs, strict=True)
    change.ratio = ratio_of(times)
    change.before, change.after = (median(own) for own in zip(*times, strict=True))
    change.memory = _middle(before, "peak"), _middle(after, "peak")
    change.start = _middle(before, "start"), _middle(after, "start")


def _middle(records: Iterable[Record], name: str) -> float:
    known = [value for one in records if (value := getattr(one, name)) is not None]
    return median(known) if known else math.nan


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


def choose(
    changes: Sequence[str] | None, every: bool, seen: Seen, advice: Sequence[Any], notes: list[str]
) -> list[Switch]:
    """Return the switches to try, the largest prediction first. Note those that were asked for and do not apply."""
    chosen = []
    for one in [SWITCHES[name] for name in (SWITCHES if changes is None else changes)]:
        if why_not := one.why_not(seen):
            notes += [f"{one.name} does not apply: {why_not}."] if changes is not None else []
        elif changes is not None or every or one.shown(seen) or savings_of(one, advice):
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
