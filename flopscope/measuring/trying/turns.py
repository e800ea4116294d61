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
from flopscope.support.documents import Document, Field, columns, record, rows
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
PRIOR, TINY = 2.0, 1e-12
"""Pairs that equal weights of the fixed work count as; and so that there is a solution."""
MEMORY_VARIES = 0.02
"""Relative difference up to which peak memory counts as the same."""


class Time(NamedTuple):
    """The time of a call or a step in one process, in µs; NaN where it is unknown."""

    wall: float
    cpu: float = math.nan
    """CPU time of the thread, if it never waits: what the call takes when nothing else runs."""
    logs: Sequence[float] = ()
    """The means of the logarithms of it, and of the times of fixed work beside it; unknown if (). """


class Run(NamedTuple):
    """What one process of a side has measured, by name: times, facts beside them, outcomes of tests that measure."""

    times: dict[str, Time]
    facts: dict[str, dict[str, float]]
    outcomes: dict[str, str]


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
            found = processes[side].tests(words, seconds, limit)
        except RuntimeError as problem:
            raise ValueError(f"{own.label}: {problem}; flopscope must be installed in {own.python}") from None
        own.require_own(found["modules"], sides[1 - side])
        times, facts = {}, {}
        for one in found["records"]:
            name = f"{one['test']} #{one['number'] + 1}".removesuffix(" #1")
            if one["outcome"] == "passed":
                cpu, measured = one.get("cpu", math.nan), one["measurement"]
                times[name] = Time(measured["median"], cpu, one.get("logs", ()) if alike else ())
                facts[name] = {fact: measured[key] for fact, key in FACTS.items() if measured[key]}
        # Fewer, longer processes gain nothing, but much shorter ones than their start waste the time.
        besides = time.monotonic() - begin - seconds * len(times)
        seconds = max(max_time / PROCESSES - besides, besides / 2) / max(len(times), 1)
        seconds = min(max(seconds, SHORTEST), LONGEST)
        return Run(times, facts, found["outcomes"])

    return run


def steps(program: Program, sides: Sequence[Side], folder: Path, max_time: float) -> Measure:
    """Return what runs a program on a side, once base is looked at: its steps are timed, or the whole."""
    processes = [one.processes(program, folder / str(at)) for at, one in enumerate(sides)]

    def once(side: int, plan: Plan, limit: float) -> Record:
        found = processes[side].run("", Seen(), plan.warm, plan.steps, limit)
        if found.problem:
            raise ValueError(f"{sides[side].label}: {program.title} does not run: {found.problem}")
        sides[side].require_own(found.modules, sides[1 - side])
        return found

    plan = plan_of(once(0, Plan(None, 0, ""), FIRST_LIMIT))
    name = f"{program.title}, {'a step' if plan.steps else 'whole'}"

    def run(side: int, limit: float) -> Run:
        found = once(side, plan, limit)
        if found.seconds is None:
            raise ValueError(f"{sides[side].label}: {program.title} ended before the last measured step")
        time = Time(1e6 * found.seconds, math.nan if found.cpu is None else 1e6 * found.cpu)
        return Run({name: time}, {name: {"memory": found.peak or math.nan}}, {})

    return run


# Rows -----------------------------------------------------------------------------------------------------------------

_FEW = "there are too few pairs"
_RATIO = columns("ratio low high pairs# verdict$", why=_FEW)
COMPARED = Document(
    "compared_sides",
    "two versions of a program or its tests, measured in turns",
    (
        *columns("base$ head$ processes# seconds resolution:share confidence:share"),
        rows(
            "rows",
            (
                *columns("name$ problem$", problem="why it was not compared"),
                *_RATIO,
                record("null", _RATIO, "each side against itself"),
                *columns("clock$", clock='of the times: "wall", "cpu" or "steady"; see docs/ab.md'),
                *columns("base head", "µs", "it was not measured", base="median of the processes"),
                *(Field(f"{side}_times", "numbers", "µs", "of the processes") for side in ("base", "head")),
                *columns("changed@", changed="what else is different"),
            ),
        ),
        *columns("reached:share", why=_FEW, reached="half of the widest interval of a side against itself"),
        *columns("notes@ machine@"),
    ),
)


def ratios_of(times: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return head over base for each pair, and for each pair of A against A the ratio to the earlier or the later one
    in turn. times: of the processes in order; NaN for one that did not measure it."""
    found: tuple[list[float], list[float]] = [], []
    for number, (one, other) in enumerate(pairwise(times)):
        turned = number % 4 == 2 or number % 8 in (5, 7)
        ratio = one / other if turned else other / one
        found[number % 2].extend([] if math.isnan(ratio) else [ratio])
    return found


def steady_times(runs: Sequence[Time]) -> list[float]:
    """Return CPU times as on a machine of one speed; NaN where there was no fixed work.

    The speed is that of the fixed work. How much of it concerns the call, a weight for each piece of work, is fitted to
    the pairs of one side (ridge regression, towards equal weights): it tells nothing of head and base.
    """
    import numpy as np

    width = max((len(one.logs) for one in runs), default=0)
    logs = np.array([[*one.logs] or [math.nan] * width for one in runs]).reshape(len(runs), width)
    if width < 2:
        return [math.nan] * len(runs)
    changes = np.diff(logs, axis=0)[1::2]
    changes = changes[~np.isnan(changes).any(axis=1)]
    of_call, of_work = changes[:, 0], changes[:, 1:]
    ridge = np.eye(width - 1) * (PRIOR * np.square(of_work).mean() + TINY if len(changes) else 1.0)
    equal = np.full(width - 1, 1 / (width - 1))
    weights = np.linalg.solve(of_work.T @ of_work + ridge, of_work.T @ of_call + ridge @ equal)
    return [float(time) for time in np.exp(logs[:, 0] - logs[:, 1:] @ weights)]


def row_of(name: str, runs: Sequence[Run], confidence: float, resolution: float) -> dict[str, Any]:
    """Return the row of a measurement, as COMPARED has it. runs: of the sides that ORDER has.

    Its clock is the CPU's if its thread never waited, alone or steadied, whichever tells equal code apart less.
    """
    own = [run.times.get(name, Time(math.nan)) for run in runs]
    times = {"wall": [one.wall for one in own], "cpu": [one.cpu for one in own], "steady": steady_times(own)}
    ratios = {clock: ratios_of(times[clock]) for clock in times}
    complete = [clock for clock in ("steady", "cpu") if [*map(len, ratios[clock])] == [*map(len, ratios["wall"])]]
    clock = min(complete, key=lambda clock: pstdev(map(math.log, ratios[clock][1] or [1.0])), default="wall")
    ratio, null = (ratio_of(one, confidence) for one in ratios[clock])
    row = {"name": name, **_record(ratio, resolution), "null": _record(null, resolution), "clock": clock, "problem": ""}
    test, why, facts = name.rpartition(" #")[0] or name, [], list[list[dict[str, float]]]()
    for number, side in enumerate(("base", "head")):
        mine = [run for at, run in enumerate(runs) if ORDER[at % 4] == number]
        taken = [getattr(run.times[name], "wall" if clock == "wall" else "cpu") for run in mine if name in run.times]
        outcomes = sorted({run.outcomes[test] for run in mine if test in run.outcomes} - {"passed"})
        why += [] if taken else [f"{' and '.join(outcomes) or 'not'} in {side}"]
        facts.append([run.facts.get(name, {}) for run in mine])
        row |= {side: median(taken) if taken else math.nan, f"{side}_times": taken}
    if not ratio.pairs:
        row |= {"verdict": "not compared", "problem": "; ".join(why) or "never in both of a pair"}
    return row | {"changed": changed_of(*facts)}


def _record(ratio: Ratio, margin: float) -> dict[str, Any]:
    return dict(zip(("ratio", "low", "high", "pairs", "verdict"), (*ratio, ratio.word(margin)), strict=True))


def changed_of(*sides: Sequence[Mapping[str, float]]) -> list[str]:
    """Return what is different beside the time: "2 more launches (5, now 7)", "1.3 × the bytes"."""
    found = []
    for name in ("launches", "bytes", "FLOPs", "memory"):
        before, now = (median([facts.get(name, math.nan) for facts in side]) for side in sides)
        if math.isnan(now - before) or abs(now - before) <= before * (MEMORY_VARIES if name == "memory" else 0):
            continue
        more = f"{abs(now - before):g} {'more' if now > before else 'fewer'} {name} ({before:g}, now {now:g})"
        found.append(more if name == "launches" else f"{now / before:.3g} × the {name}")
    return found


# Turns ----------------------------------------------------------------------------------------------------------------


def measure(
    run: Measure,
    sides: tuple[str, str],
    resolution: float,
    max_time: float,
    tell: Callable[[str], object] = bool,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Run processes until each interval is narrower than the resolution, or the time is over. Return what COMPARED has.

    sides: what base and head are. The rows are those of the first pair: their intervals, and those of A against A, err
    together as rarely as one of CONFIDENCE. Ctrl-C ends it with what was measured so far.
    """
    runs, found, notes, longest = list[Run](), list[dict[str, Any]](), list[str](), 0.0
    busy = busy_meter(find_device("cpu"))
    begin, clocks = clock(), _cpu_clocks()
    try:
        while len(runs) < 2 or clock() - begin + longest < max_time:
            before = clock()
            limit = FIRST_LIMIT if len(runs) < 2 else max(LEAST_LIMIT, SLOWER_THAN_LOOK * longest)
            runs.append(run(ORDER[len(runs) % 4], limit))
            longest, clocks = max(longest, clock() - before), clocks + _cpu_clocks()
            if len(runs) % 2:
                continue
            names = list(dict.fromkeys(name for one in runs[:2] for name in (*one.times, *one.outcomes)))
            if not names:
                raise ValueError("neither side measured anything: the tests that run must use the fixture perf")
            # Bonferroni: each row has two intervals, and the number of rows must not depend on what they show.
            found = [row_of(name, runs, 1 - (1 - CONFIDENCE) / (2 * len(names)), resolution) for name in names]
            halves = [_half(row) for row in found if row["pairs"]]
            tell(f"{plural(len(runs) // 2, 'pair')}, intervals of {', '.join(map(_percent, halves)) or MISSING}")
            if all(half <= resolution / 2 for half in halves):  # none is NaN
                break
    except KeyboardInterrupt:
        notes.append("It was interrupted: what was not clear by then is unclear.")
    if later := {name for one in runs for name in one.times} - {row["name"] for row in found}:
        notes.append(f"Not in the first run of a side, and left out: {', '.join(sorted(later))}.")
    reached = [_half(row["null"]) for row in found if row["pairs"]] or [math.nan]
    gpu = [facts["clock"] for one in runs for facts in one.facts.values() if "clock" in facts]
    others = busy()
    machine = [] if others is None else [why_busy(others) or "other processes used little"]
    named = (("CPU", clocks), ("GPU", gpu))
    machine += [f"{what} at {min(seen):.0f} to {max(seen):.0f} MHz" for what, seen in named if seen]
    content = {"base": sides[0], "head": sides[1], "processes": len(runs), "seconds": clock() - begin, "rows": found}
    content |= {"resolution": resolution, "confidence": CONFIDENCE, "notes": notes, "machine": machine}
    return content | {"reached": math.nan if any(map(math.isnan, reached)) else max(reached)}


def _cpu_clocks() -> list[float]:
    """Return the clocks of the CPUs in MHz, where the system says them."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return [float(one) for one in re.findall(r"^cpu MHz\s*: ([\d.]+)", text, re.MULTILINE)]


def _half(row: Mapping[str, Any]) -> float:
    """Return half of the width of an interval, relative; NaN where it is unknown."""
    return math.sqrt(row["high"] / row["low"]) - 1


# Text -----------------------------------------------------------------------------------------------------------------

HEADER = ["measurement", "base", "head", "ratio", "interval", "A against A", "verdict"]


def _percent(share: float) -> str:
    return f"±{100 * share:.2g} %" if math.isfinite(share) else MISSING


def text_of(found: Mapping[str, Any], width: int = 0) -> str:
    """Return the table for a terminal of this width; 0: in Markdown, for a comment on a pull request."""
    table, below = [HEADER], []
    for row in found["rows"]:
        value, low, high = (MISSING if math.isnan(row[end]) else f"{row[end]:.4f}" for end in ("ratio", "low", "high"))
        times = short_time_text(row["base"]), short_time_text(row["head"])
        interval = MISSING if low == MISSING else f"{low} to {high}"
        table.append([printable(row["name"]), *times, value, interval, _percent(_half(row["null"])), row["verdict"]])
        what = row["problem"] or "; ".join(row["changed"])
        below += [f"{row['name']}: {what}"] if what else []
    wrong = [row["name"] for row in found["rows"] if row["null"]["verdict"] in ("faster", "slower")]
    null = f"faster or slower in {', '.join(wrong)}: do not trust this run" if wrong else "faster or slower in no row"
    below.append(f"A against A came out {null}; the resolution reached is {_percent(found['reached'])}.")
    machine = "; ".join(found["machine"])
    below.append(f"Ratios are of head over base, intervals of 99 % for all rows. Machine: {machine}.")
    below = [*map(printable, [*below, *found["notes"]])]
    ran = f"{plural(found['processes'], 'process', 'processes')}, {found['seconds']:.0f} s"
    title = printable(f"base {found['base']}, head {found['head']}: {ran}")
    if width:
        return "\n".join([title, "", *Rows(table).lines(width), "", *below, ""])
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in table]
    lines.insert(1, "|---" * len(HEADER) + "|")
    return "\n".join([f"### flopscope: {title}", "", *lines, "", *(f"- {one}" for one in below), ""])
