"""Two sides measured in turns, in fresh processes, and what it shows: a row for each measurement.

The processes are of base, head, head, base, base, …: A B B A. Two successive ones, of base and of head, are a pair. So
are a process and the one after it in the next pair, which is of the same side: A against A. What comes out of those is
what the machine alone does to a ratio.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, pstdev
from typing import Any, NamedTuple

from flopscope.measuring.distribution import Ratio, ratio_of
from flopscope.measuring.paired import CONFIDENCE
from flopscope.measuring.trying.inside import Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.sides import Side
from flopscope.measuring.trying.trial import LEAST_LIMIT, SLOWER_THAN_LOOK, Plan, Program, plan_of
from flopscope.support.busy import busy_meter, why_busy
from flopscope.support.columns import Rows
from flopscope.support.device import find_device
from flopscope.support.documents import Document, columns, record, rows
from flopscope.support.safe import printable
from flopscope.support.units import MISSING, plural, short_time_text

ORDER = (0, 1, 1, 0)
"""The sides of processes, one after the other: 0 is base."""
FACTS = {"launches": "kernels", "bytes": "bytes_total_moved", "FLOPs": "flops", "clock": "clock_mhz"}
"""What a measurement of the plugin has beside its time."""
PROCESSES = 60
"""As many as the time is for, unless they start slowly."""
SHORTEST, LONGEST, FIRST = 0.3, 3.0, 1.0
"""Seconds for which a process times a call: bounds, and those of the first two."""
FIRST_LIMIT = 3600.0
"""Seconds after which the first process of a side is ended."""
MEMORY_VARIES = 0.02
"""Relative difference up to which peak memory counts as the same."""


class Time(NamedTuple):
    """The time of a call or a step in one process, in µs; NaN where it is unknown."""

    wall: float
    cpu: float = math.nan
    """CPU time of the thread, if it never waits: what the call takes when nothing else runs."""
    steady: float = math.nan
    """The same in times of a fixed piece of work, which was timed in between: the machine's speed cancels out."""


@dataclass
class Run:
    """What one process of a side has measured, by name, with facts beside the times."""

    times: dict[str, Time]
    facts: dict[str, dict[str, float]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    """Of the tests that measure: "passed", "failed", "skipped"."""


Measure = Callable[[int, float], Run]
"""Runs a process of a side, by its number, in at most so many seconds."""


def tests(words: Sequence[str], sides: Sequence[Side], folder: Path, max_time: float) -> Measure:
    """Return what runs pytest on a side. Measurements have the names of tests."""
    processes = [one.processes(Program("pytest"), folder / str(at)) for at, one in enumerate(sides)]
    alike = len({os.path.realpath(one.python) for one in sides}) == 1  # the fixed work is of the interpreter
    seconds = FIRST

    def run(side: int, limit: float) -> Run:
        nonlocal seconds
        own, begin = sides[side], time.monotonic()
        try:
            found = processes[side].tests([own.own(word) for word in words], seconds, limit)
        except RuntimeError as problem:
            raise ValueError(f"{own.label}: {problem}; flopscope must be installed in {own.python}") from None
        own.require_own(found["modules"], sides[1 - side])
        times, facts = {}, {}
        for one in found["records"]:
            name = f"{one['test']} #{one['number'] + 1}".removesuffix(" #1")
            if one["outcome"] == "passed":
                cpu, measured = one.get("cpu", math.nan), one["measurement"]
                times[name] = Time(measured["median"], cpu, one.get("steady", math.nan) if alike else math.nan)
                facts[name] = {fact: measured[key] for fact, key in FACTS.items() if measured[key]}
        besides = time.monotonic() - begin - seconds * len(times)
        seconds = min(max((max_time / PROCESSES - besides) / max(len(times), 1), SHORTEST), LONGEST)
        return Run(times, facts, found["outcomes"])

    return run


def steps(program: Program, sides: Sequence[Side], folder: Path, max_time: float) -> Measure:
    """Return what runs a program on a side, once each is looked at: its steps are timed, or the whole."""
    processes = []
    for at, own in enumerate(sides):
        here = Program(own.own(program.target), tuple(map(own.own, program.arguments)), program.option)
        processes.append(own.processes(here, folder / str(at)))

    def once(side: int, plan: Plan, limit: float) -> Record:
        found = processes[side].run("", Seen(), plan.warm, plan.steps, limit)
        if found.problem:
            raise ValueError(f"{sides[side].label}: {program.title} does not run: {found.problem}")
        sides[side].require_own(found.modules, sides[1 - side])
        return found

    first, second = (plan_of(once(side, Plan(None, 0, ""), LEAST_LIMIT)) for side in (0, 1))
    plan = Plan(max(first.warm or 0, second.warm or 0), min(first.steps, second.steps), "")
    name = f"{program.title}, {'a step' if plan.steps else 'whole'}"

    def run(side: int, limit: float) -> Run:
        found = once(side, plan, limit)
        if found.seconds is None:
            raise ValueError(f"{sides[side].label}: {program.title} ended before the last measured step")
        time = Time(1e6 * found.seconds, math.nan if found.cpu is None else 1e6 * found.cpu)
        return Run({name: time}, {name: {"memory": found.peak or math.nan}})

    return run


# Rows -----------------------------------------------------------------------------------------------------------------

_RATIO = columns("ratio low high pairs#", why="there are too few pairs, or none")
COMPARED = Document(
    "compared_sides",
    "two versions of a program or its tests, measured in turns",
    (
        *columns("base$ head$ processes# seconds resolution:share confidence:share"),
        rows(
            "rows",
            (
                *columns("name$ verdict$ problem$", problem="why it was not compared"),
                *_RATIO,
                *columns("clock$", clock='of the times: "wall", "cpu" or "steady"; see docs/ab.md'),
                *columns("base head", "µs", "it was not measured", base="median of the processes"),
                record("null", (*_RATIO, *columns("verdict$")), "each side against itself"),
                *columns("changed@", changed="what else is different"),
            ),
        ),
        *columns("reached:share", why="there are too few pairs", reached="half of the widest interval of A against A"),
        *columns("notes@ machine@"),
    ),
)


@dataclass
class Row:
    """A measurement on both sides."""

    name: str
    verdict: str
    problem: str
    """Why it was not compared; "" if it was."""
    ratio: Ratio
    """Head over base."""
    null: Ratio
    """A side over itself."""
    clock: str
    """The field of Time that the ratios are of."""
    times: list[list[float]]
    """Of base and head: µs of each process, on the wall or of the CPU."""
    changed: list[str]

    @property
    def medians(self) -> list[float]:
        """Of base and head, in µs; NaN for a side without a measurement."""
        return [median(one) if one else math.nan for one in self.times]


@dataclass
class Compared:
    """What the turns have shown."""

    sides: tuple[str, str]
    """What base and head are."""
    resolution: float = 0.01
    """Relative difference up to which times count as the same."""
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: list[str] = field(default_factory=list)
    """What it did besides: load, clocks."""
    seconds: float = 0.0
    processes: int = 0

    @property
    def compared(self) -> list[Row]:
        """The rows that have a ratio."""
        return [one for one in self.rows if not one.problem]

    @property
    def reached(self) -> float:
        """Half of the widest interval of A against A, relative; NaN if one is unknown."""
        return max((one.null.half for one in self.compared), key=lambda half: (half != half, half), default=math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as a document for JSON: see docs/json.md."""

        def of(ratio: Ratio) -> dict[str, Any]:
            names = "ratio", "low", "high", "pairs", "verdict"
            return dict(zip(names, (*ratio, ratio.word(self.resolution)), strict=True))

        found = []
        for one in self.rows:
            times = dict(zip(("base", "head"), one.medians, strict=True))
            found.append({**vars(one), **of(one.ratio), "verdict": one.verdict, "null": of(one.null), **times})
            del found[-1]["times"]
        sides = dict(zip(("base", "head"), self.sides, strict=True))
        content = {**vars(self), **sides, "rows": found, "reached": self.reached, "confidence": CONFIDENCE}
        del content["sides"]
        return COMPARED.of(content)


def ratios_of(times: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return head over base for each pair, and for each pair of A against A the ratio to the earlier or the later one
    in turn. times: of the processes in order; NaN for one that did not measure it."""
    found: tuple[list[float], list[float]] = [], []
    for number, (one, other) in enumerate(pairwise(times)):
        turned = number % 4 == 2 or number % 8 in (5, 7)
        ratio = one / other if turned else other / one
        found[number % 2].extend([] if math.isnan(ratio) else [ratio])
    return found


def row_of(name: str, runs: Sequence[Run], confidence: float, resolution: float) -> Row:
    """Return the row of a measurement. runs: of the sides that ORDER has.

    Its clock is the CPU's if its thread never waited, alone or steadied, whichever tells equal code apart less.
    """
    own = [run.times.get(name, Time(math.nan)) for run in runs]
    ratios = {clock: ratios_of([getattr(one, clock) for one in own]) for clock in Time._fields}
    complete = [clock for clock in ("steady", "cpu") if [*map(len, ratios[clock])] == [*map(len, ratios["wall"])]]
    clock = min(complete, key=lambda clock: pstdev(map(math.log, ratios[clock][1] or [1.0])), default="wall")
    ratio, null = (ratio_of(one, confidence) for one in ratios[clock])
    sides = [[run for at, run in enumerate(runs) if ORDER[at % 4] == side] for side in (0, 1)]
    shown = "wall" if clock == "wall" else "cpu"
    times = [[getattr(run.times[name], shown) for run in side if name in run.times] for side in sides]
    if ratio.pairs:
        changed = changed_of(*([run.facts.get(name, {}) for run in side] for side in sides))
        return Row(name, ratio.word(resolution), "", ratio, null, clock, times, changed)
    test, why = name.rpartition(" #")[0] or name, []
    for side, measured, word in zip(sides, times, ("base", "head"), strict=True):
        outcomes = sorted({run.outcomes[test] for run in side if test in run.outcomes} - {"passed"})
        why += [] if measured else [f"{' and '.join(outcomes) or 'not'} in {word}"]
    return Row(name, "not compared", "; ".join(why) or "never in both of a pair", ratio, null, clock, times, [])


def changed_of(base: Sequence[Mapping[str, float]], head: Sequence[Mapping[str, float]]) -> list[str]:
    """Return what is different beside the time: "2 more launches (5, now 7)", "1.3 × the bytes"."""
    found = []
    for name in ("launches", "bytes", "FLOPs", "memory"):
        before, now = (median([facts.get(name, math.nan) for facts in side]) for side in (base, head))
        if math.isnan(now - before) or abs(now - before) <= before * (MEMORY_VARIES if name == "memory" else 0):
            continue
        more = f"{abs(now - before):g} {'more' if now > before else 'fewer'} {name} ({before:g}, now {now:g})"
        found.append(more if name == "launches" else f"{now / before:.3g} × the {name}")
    return found


# Turns ----------------------------------------------------------------------------------------------------------------


def measure(
    run: Measure,
    labels: tuple[str, str],
    resolution: float,
    max_time: float,
    tell: Callable[[str], object] = bool,
    clock: Callable[[], float] = time.monotonic,
) -> Compared:
    """Run processes until each interval is narrower than the resolution, or the time is over.

    The rows are those of the first pair: their intervals, and those of A against A, err together as rarely as one of
    CONFIDENCE. Ctrl-C ends it with what was measured so far.
    """
    found, runs, longest, busy = Compared(labels, resolution), list[Run](), 0.0, busy_meter(find_device("cpu"))
    begin, clocks = clock(), cpu_clocks()
    try:
        while len(runs) < 2 or clock() - begin + longest < max_time:
            before = clock()
            limit = FIRST_LIMIT if len(runs) < 2 else max(LEAST_LIMIT, SLOWER_THAN_LOOK * longest)
            runs.append(run(ORDER[len(runs) % 4], limit))
            longest, clocks = max(longest, clock() - before), clocks + cpu_clocks()
            if len(runs) % 2:
                continue
            names = list(dict.fromkeys(name for one in runs[:2] for name in (*one.times, *one.outcomes)))
            # Bonferroni: each row has two intervals, and the number of rows must not depend on what they show.
            confidence = 1 - (1 - CONFIDENCE) / max(1, 2 * len(names))
            found.rows = [row_of(name, runs, confidence, resolution) for name in names]
            halves = [one.ratio.half for one in found.compared]
            tell(f"{plural(len(runs) // 2, 'pair')}, intervals of {', '.join(map(_percent, halves)) or MISSING}")
            if not names:
                raise ValueError("neither side measured anything: the tests that run must use the fixture perf")
            if all(half <= resolution / 2 for half in halves):  # none is NaN
                break
    except KeyboardInterrupt:
        found.notes.append("It was interrupted: what was not clear by then is unclear.")
    if later := {name for one in runs for name in one.times} - {one.name for one in found.rows}:
        found.notes.append(f"Not in the first run of a side, and left out: {', '.join(sorted(later))}.")
    found.seconds, found.processes = clock() - begin, len(runs)
    gpu = [facts["clock"] for one in runs for facts in one.facts.values() if "clock" in facts]
    load = busy()
    found.machine = ["load unknown" if load is None else why_busy("cpu", load) or "other processes used little"]
    for what, seen in (("CPU", clocks), ("GPU", gpu)):
        found.machine += [f"{what} at {min(seen):.0f} to {max(seen):.0f} MHz"] if seen else []
    found.machine += [why_busy("cuda", busy_meter(find_device("cuda"))()) or "no other use of the GPU"] if gpu else []
    return found


def cpu_clocks() -> list[float]:
    """Return the clocks of the CPUs in MHz, where the system says them."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return [float(one) for one in re.findall(r"^cpu MHz\s*: ([\d.]+)", text, re.MULTILINE)]


# Text -----------------------------------------------------------------------------------------------------------------

HEADER = ["measurement", "base", "head", "ratio", "interval", "A against A", "verdict"]


def _percent(share: float) -> str:
    """Return half of an interval as it is printed; MISSING if it is unknown."""
    return f"±{100 * share:.2g} %" if math.isfinite(share) else MISSING


def text_of(found: Compared, width: int = 0) -> str:
    """Return the table for a terminal of this width; 0: in Markdown, for a comment on a pull request."""
    table, below = [HEADER], []
    for one in found.rows:
        value, low, high = (MISSING if math.isnan(end) else f"{end:.4f}" for end in one.ratio[:3])
        interval = MISSING if low == MISSING else f"{low} to {high}"
        times = map(short_time_text, one.medians)
        table.append([printable(one.name), *times, value, interval, _percent(one.null.half), one.verdict])
        below += [f"{one.name}: {one.problem or '; '.join(one.changed)}"] if one.problem or one.changed else []
    wrong = [one.name for one in found.compared if one.null.word(found.resolution) in ("faster", "slower")]
    null = f"faster or slower in {', '.join(wrong)}: do not trust this run" if wrong else "faster or slower in no row"
    below.append(f"A against A came out {null}; the resolution reached is {_percent(found.reached)}.")
    below.append(f"Ratios are of head over base, intervals of 99 % for all rows. Machine: {'; '.join(found.machine)}.")
    below = [*map(printable, [*below, *found.notes])]
    ran = f"{plural(found.processes, 'process', 'processes')}, {found.seconds:.0f} s"
    title = printable(f"base {found.sides[0]}, head {found.sides[1]}: {ran}")
    if width:
        return "\n".join([title, "", *Rows(table).lines(width), "", *below, ""])
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
    return "\n".join(
        [f"### flopscope: {title}", "", lines[0], "|---" * 7 + "|", *lines[1:], "", *(f"- {one}" for one in below), ""]
    )
