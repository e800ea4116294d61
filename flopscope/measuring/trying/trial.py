"""Trying changes on a program: it is looked at, then timed in pairs of runs without and with each change in turn."""

from __future__ import annotations

import json
import math
import os
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

from flopscope.measuring.distribution import ratio_of
from flopscope.measuring.trying.inside import TRY, Job, Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.result import CONFIDENCE, FEWEST, MARGIN, MOST, Change, Tried, parity_of
from flopscope.measuring.trying.switches import SWITCHES, Switch, named
from flopscope.support.files import write_json
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, plural

FEWEST_STEPS, MOST_STEPS = 3, 5000
LEAST_WINDOW, MOST_WINDOW = 0.5, 5.0
"""Seconds of measured steps in a process, if a step is not longer."""
RECORDED = 5
"""Steps of the trace that the advice reads."""
SLOWER_THAN_LOOK, LEAST_LIMIT = 5.0, 120.0
"""A process is ended after this many seconds, or after SLOWER_THAN_LOOK times the first run if that is longer. The end
of the time never ends one, so that a change does not seem to fail."""
STEPS = "steps, which end with step() of a torch optimizer, or flopscope.step()"
HINT = f"A program without end needs {STEPS}. Its standard input is empty here"
RUN = f"{TRY}_RUN"
AB = "FLOPSCOPE_AB"
"""The environment variable that tells the plugin of pytest, which has the same constant, what to do."""
INTERPRETERS = ("torchrun", "accelerate")
"""Launchers that start Python themselves."""
ENDED = ("failed", "not applied", "changes results")
"""Verdicts after which a change is not timed."""


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


class Processes:
    """Runs of a program or of pytest, one after the other. Their files are in ``folder``, which is temporary."""

    def __init__(self, program: Program, folder: Path, python: str = sys.executable, **how: Any) -> None:
        """python: their interpreter. how: ``cwd`` and ``env`` of subprocess.Popen."""
        self._program, self._folder, self._python, self._how = program, folder, python, {"env": os.environ, **how}
        folder.mkdir(exist_ok=True)
        self.count = 0
        """Processes that were started, launches of several ranks counted once."""

    def run(self, switch: str, seen: Seen, warm: int | None = None, steps: int = 0, limit: float = 600.0) -> Record:
        """Run the program once, as a Job says. The record tells what failed, if something did. limit: in seconds."""
        path, written = (self._folder / f"{name}-{self.count}.json" for name in ("record", "job"))
        program = [self._program.target, list(self._program.arguments), self._program.option]
        write_json(written, asdict(Job(program, str(path), switch, warm, steps, asdict(seen))))
        begin = time.monotonic()
        try:
            self._run(["-m", "flopscope", "try", "--job", str(written)], limit, path)
            record = Record(**json.loads(path.read_text(encoding="utf-8")))
        except RuntimeError as problem:
            record = Record(problem=str(problem))
        record.lasted = time.monotonic() - begin
        return record

    def trace(self, steps: tuple[int, int] | None, limit: float) -> Path:
        """Record a trace of some steps, or of the whole program. Raise RuntimeError if there is none."""
        path = self._folder / "trace.json"
        window = [] if steps is None else ["--steps", f"{steps[0]}:{steps[1]}", "--stop"]
        words = ["-m", "flopscope", "run", *window, "--no-report", "--no-summary", "--no-samples", "--trace", str(path)]
        words += [self._program.option] if self._program.option else []
        words += [self._program.target, *self._program.arguments]
        return self._run(words, limit, path, path.with_name("trace.rank0.json"))

    def tests(self, words: Sequence[str], seconds: float, limit: float) -> Any:
        """Run pytest; return what the plugin has recorded. Raise RuntimeError if that is nothing.

        words: those after ``python``. seconds: how long each call is timed.
        """
        path = self._folder / f"record-{self.count}.json"
        options = f"--continue-on-collection-errors -o cache_dir={self._folder}/cache --basetemp={self._folder}/tmp"
        job = {
            AB: json.dumps({"record": str(path), "seconds": seconds}),
            "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} {options}",
        }
        return json.loads(self._run(words, limit, path, **job).read_text(encoding="utf-8"))

    def _run(self, words: Sequence[str], limit: float, *wanted: Path, **variables: str) -> Path:
        """Run Python; return which of the files it wrote. Raise RuntimeError if there is none."""
        launcher = list(self._program.launcher)
        runs_python = bool(launcher) and os.path.basename(launcher[0]) in INTERPRETERS
        command = [*launcher, *([] if runs_python else [self._python]), *words]
        log, status = self._folder / f"log-{self.count}.txt", None
        own = {TRY: "1", RUN: str(self._folder), **variables}
        environment = {"PYTHONHASHSEED": "0", **self._how["env"], **own}
        with open(log, "wb") as output:
            self.count += 1
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, **{**self._how, "env": environment},
            )  # fmt: skip
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            finally:
                end(process, f"{RUN}={self._folder}")
        for one in wanted:
            if one.exists():
                return one
        raise RuntimeError(explained(status, limit, log))


def end(process: subprocess.Popen[Any], variable: str) -> None:
    """End a process and those that it has started, daemons too: they have the variable."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if os.fsencode(variable) in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)
                os.waitpid(int(environment.parent.name), 0)


def explained(status: int | None, limit: float, log: Path) -> str:
    """Return why a process has left no file, with the last line of an error that it printed."""
    if status is None:
        return f"it did not get to its last measured step within {limit:.0f} s"
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if "rror" in line] or lines  # pytest prints more below it
    last = f": {printable(said[-1][:300])}" if said else ""
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return f"it {how}{last}"


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
        few = f"it has {len(marks)} steps, too few to tell warm ones from the first" if marks else f"it has no {STEPS}"
        return Plan(0, 0, f"The whole program is timed: {few}.")
    usual = median(times[len(times) // 2 :])
    warm = 5 if usual < 1 else 3 if usual < 5 else 2
    window = min(max(marks[0] / 2, LEAST_WINDOW), MOST_WINDOW)  # half as long as a process is waited for
    steps = min(max(math.ceil(window / max(usual, 1e-6)), 5 if usual < 1 else 3), MOST_STEPS)
    if record.whole is not None:  # it ended by itself
        warm = min(warm, max(1, len(marks) // 4))
        steps = min(steps, len(marks) - warm)
    return Plan(warm, steps, "")


class Trial:
    """One trial of a program.

    changes: names of switches; None: those that the advice or the program proposes, or ``every`` one that applies.
    max_time: in seconds. tell: prints a line.
    """

    def __init__(
        self,
        program: Program,
        changes: Sequence[str] | None = None,
        every: bool = False,
        max_time: float = 600.0,
        margin: float = MARGIN,
        tell: Callable[[str], object] = bool,
    ) -> None:
        self._program, self._changes, self._every, self._margin = program, changes, every, margin
        self._tell = tell
        self._deadline = time.monotonic() + max_time
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
            look = self._timed("")
            if look.problem:
                raise RuntimeError(f"{self._program.title} does not run by itself: {look.problem}. {HINT}")
            self._limit = max(LEAST_LIMIT, SLOWER_THAN_LOOK * look.lasted)
            self._lasted = 2 * look.lasted
            self._seen, self._plan, self._plain = Seen(**look.seen), plan_of(look), [look]
            self._notes += [self._plan.note] if self._plan.note else []
            per = "step" if self._plan.steps else "program"
            tried = Tried(self._program.title, per, math.nan, [], notes=self._notes)
            try:
                self._try_all(tried)
            except KeyboardInterrupt:
                self._notes.append("It was interrupted: what was not measured by then is unclear.")
        tried.before = 1e6 * _middle(self._plain, "seconds")
        tried.keep_faster()
        return tried

    def _advice(self) -> Sequence[Any]:
        from flopscope.read.trace import load_trace

        warm, steps, _ = self._plan
        window = (warm or 0, (warm or 0) + min(RECORDED, steps)) if steps else None
        try:
            return list(load_trace(self._processes.trace(window, self._limit)).advice())
        except (ValueError, OSError, RuntimeError) as problem:
            self._notes.append(f"There is no advice: {problem}")
            return ()

    def _try_all(self, tried: Tried) -> None:
        """Try one change after the other. Each has an equal part of the time that is left, at least for a verdict."""
        advice = self._advice()
        chosen = choose(self._changes, self._every, self._seen, advice, self._notes)
        warm, steps, _ = self._plan
        each = f"{warm} + {steps} steps" if steps else "whole"
        names = ", ".join(one.name for one in chosen) or "nothing"
        self._tell(f"{self._program.title} runs {each} each time; {len(chosen)} to try: {names}")
        tried.changes = [Change(one.name, predicted_of(one, advice), margin=self._margin) for one in chosen]
        for number, change in enumerate(tried.changes):
            left = self._deadline - time.monotonic()
            self._try(change, left / (len(chosen) - number))
            self._tell(f"{change.name}: {change.verdict} after {plural(change.ratio.pairs, 'pair')}")

    def _try(self, change: Change, share: float) -> None:
        """Run pairs of a change until it has a verdict, its share of the time or all the time is over."""
        begin, pairs, self._changed = time.monotonic(), list[tuple[Record, Record]](), None
        while len(pairs) < MOST and (change.verdict == "unclear" or len(pairs) < FEWEST):
            end = time.monotonic() + self._lasted
            if end > self._deadline or (len(pairs) >= FEWEST and end > begin + share):
                break
            pair = self._pair(change, len(pairs) % 2 == 0)
            if change.verdict in ENDED:
                return
            if pair is not None:
                pairs.append(pair)
                plain, changed = zip(*pairs, strict=True)
                ratios = [(other.seconds or math.nan) / (one.seconds or math.nan) for one, other in pairs]
                change.ratio = ratio_of(ratios, CONFIDENCE)
                change.before = 1e6 * _middle(plain, "seconds")
                change.memory = _middle(plain, "peak"), _middle(changed, "peak")

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
            if self._changed is not None:
                of, tolerance = self._changed.of, SWITCHES[change.name].tolerance_in(self._seen)
                plain = [_values(run) for run in self._plain if run.of == of and run.values]
                change.parity = parity_of(of, plain, _values(self._changed), tolerance)
            if change.verdict in ENDED:
                return None
        self._lasted = sum(record.lasted for record in records.values())
        return records[False], records[True]

    def _timed(self, switch: str) -> Record:
        return self._processes.run(switch, self._seen, self._plan.warm, self._plan.steps, self._limit)


def _values(record: Record) -> list[float]:
    return [math.nan if one is None else one for one in record.values]


def _middle(records: Iterable[Record], name: str) -> float:
    known = [value for one in records if (value := getattr(one, name)) is not None]
    return median(known) if known else math.nan


# What to try ----------------------------------------------------------------------------------------------------------


def choose(
    changes: Sequence[str] | None, every: bool, seen: Seen, advice: Sequence[Any], notes: list[str]
) -> list[Switch]:
    """Return the switches to try, the largest prediction first. Note those that were asked for and do not apply, and
    the advice that no switch follows."""
    chosen = []
    for one in named(changes):
        if why_not := one.why_not(seen):
            notes += [f"{one.name} does not apply: {why_not}."] if changes is not None else []
        elif changes is not None or every or one.shown or predicted_of(one, advice) > 0:
            chosen.append(one)
    tried = {one.rule for one in chosen}
    for one in advice:
        if one.rule not in tried:
            at = f", at {one.where}" if one.where else ""
            notes.append(f"Needs an edit, with an estimate of {percent_text(one.saving_pct)}: {one.action}{at}.")
    return sorted(chosen, key=lambda one: -max(0.0, predicted_of(one, advice)))


def predicted_of(switch: Switch, advice: Sequence[Any]) -> float:
    """Return what a switch gains by the advice, in percent; NaN if that makes no estimate."""
    savings = [one.saving_pct for one in advice if one.rule == switch.rule and one.saving_pct > 0]
    return float(sum(savings)) if savings else math.nan
