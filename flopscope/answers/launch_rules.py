"""Rules about a host that launches late: piece by piece, or because it does something else between launches."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, entry, gap_evidence, where
from flopscope.answers.host_events import Activity, has_stacks, spent_while_idle
from flopscope.answers.pieces import Gap
from flopscope.answers.wait_rules import allocating, recurring
from flopscope.answers.words import Said
from flopscope.support.units import percent_text, plural, short_time_text

KEPT = 0.95
"""Share of idle time that removing its cause gains."""
HANDFUL = 5
"""Launches, or late ones, up to which a graph or a fused op does not pay."""
FEWEST = 20
"""Launches of a whole recording up to which it says nothing of what a program repeats."""
GRAPHED = ("cuda", "hip")
"""Accelerators whose work torch can capture in a CUDA graph."""
LONGEST_LAUNCH, OUTLYING = 500.0, 10.0
"""A host that comes later than twice this, in µs or in times of the median late launch, did not only launch."""
SHORT_PAUSE = 100.0
"""µs: shorter idle times are not looked into, and shorter work is not worth another thread."""
LATE = 0.5
"""Percent of the launches; fewer are shown as 0 % in the table of launches."""
COVERED = 0.1
"""Share of long idle times that must be recorded for the advice to say what the host did in them."""
FIRST_USE = ("compile", "loading", "first_launch", "blocked")
"""Causes of idleness of a program that has not warmed up."""
GRAPH_LAUNCH = re.compile(r"GraphLaunch")


def launch(analysis: Analysis) -> Iterator[Finding]:
    """The device waits for the host, which launches work piece by piece, or works on something else.

    Premises of a graph: at least half of the pieces of work have a launch of their own, more than five launches come
    late, and more than twenty were recorded; they are recorded API calls, none of which launches a graph; and the
    recording is not of a first pass, whose kernels are new. The estimate is 95 % of the idle time before them: a CUDA
    graph launches a step at once. Idle times much longer than a launch are reported with what the host was in, as far
    as that was recorded, and that part is claimed. Source: PyTorch, "CUDA semantics", CUDA Graphs.
    """
    gaps = late_launches(analysis)
    if not gaps or analysis.accelerator not in GRAPHED or _first(analysis):
        return
    short, long, limit = _by_length(gaps)
    launches, late = _launches(analysis), sum(gap.count for gap, _ in short)
    if launches > HANDFUL and late > HANDFUL and launches * len(analysis.alike) > FEWEST:
        shares = [share for *_, share in _table(analysis) if share == share]
        percent, idle = shares[0] if len(shares) == 1 else None, sum(time for _, time in short)
        program = (analysis.uses_torch, analysis.uses_jax)
        says = partial(say_launch, idle, analysis.per, launches, percent, *program)
        claims = [(gap, KEPT * time) for gap, time in short]
        waits = sum(gap.count for gap in analysis.gaps if gap.cause == "sync")
        needs = "sync" if waits >= HANDFUL else ""  # no graph has waits in it
        seen = gap_evidence(analysis, short)
        yield Finding(says, claims, seen, where(analysis, short[0][0].event), needs=needs)
    pause = _pause(analysis, long, limit)
    movable = pause.movable
    covered = min(sum(one.time for one in movable), pause.idle)
    if covered > COVERED * pause.idle:
        shown = [one for one in movable if one.time >= 0.1 * movable[0].time][:5]
        told = tuple(one.name for one in shown[:3]), min(sum(one.time for one in shown[:3]), pause.idle)
        says = partial(say_host_work, pause.idle, analysis.per, *told)
        claims = [(gap, KEPT * time * covered / pause.idle) for gap, time in long]
        seen = [entry(one.name, min(one.time, pause.idle), one.calls) for one in shown]
        yield Finding(says, claims, seen, where(analysis, long[0][0].event))


def say_launch(idle: float, per: str, launches: float, late: float | None, torch: bool, jax: bool = False) -> Said:
    """Launches, piece by piece, that came after the device had become idle.

    launches: API calls that launched work. late: late launches in percent, as in the table of launches; None: there are
    several devices. torch: whether the program is one of PyTorch. jax: whether it is one of JAX.
    """
    of_them = "" if late is None else f", {percent_text(late)} of them late"
    how = 'a CUDA graph or torch.compile(mode="reduce-overhead")' if torch else "a CUDA graph"
    if jax:
        how = "one jitted function for more of the step, unroll= of its loops (jax.lax.scan, fori_loop)"
    return Said(
        "Launch more work at once",
        f"the device waits {short_time_text(idle)} {per} for the host, which makes "
        f"{plural(launches, 'launch', 'launches')} {per}{of_them}. Use {how}, or larger batches. The times of the "
        "ops listed here are those for which the device waited for their launch.",
    )


def say_host_work(idle: float, per: str, names: tuple[str, ...], covered: float) -> Said:
    """Work of the host, other than launching, while the device idled.

    names: ops, ranges and lines that the host was in for most of that time. covered: part of ``idle`` that the recorded
    ones take.
    """
    return Said(
        "Take work off the thread that launches",
        f"the device idles {short_time_text(idle)} {per} in long pauses between launches; the host was in "
        f"{', '.join(names)} for {short_time_text(covered)} of it. Do that in another thread or process, on the "
        "device, or while the device has work.",
    )


def late_launches(analysis: Analysis, *, whole: bool = False) -> list[tuple[Gap, float]]:
    """Return the idle times that a late launch ended, without the time of the driver's allocations unless ``whole``."""
    gaps = [gap for gap in analysis.gaps if gap.cause == "host" and gap.event >= 0]
    taken = {} if whole else allocating(analysis)
    parts = [(gap, gap.time - taken.get(id(gap), 0.0)) for gap in gaps]
    return [(gap, time) for gap, time in parts if time > 0]


Parts = list[tuple[Gap, float]]


def _by_length(gaps: Parts) -> tuple[Parts, Parts, float]:
    """Return idle times with the part of each that launching explains, and with the rest where that is much more.

    A launch explains what the median one takes. The last number is the time from which on one is that long.
    """
    each = sorted((time / gap.count, gap.count) for gap, time in gaps if gap.count > 0)
    half, typical = sum(count for _, count in each) / 2, LONGEST_LAUNCH
    for time, count in each:
        half -= count
        if half <= 0:
            typical = time
            break
    limit = 2 * min(LONGEST_LAUNCH, OUTLYING * typical)
    times = [(gap, time, min(typical, LONGEST_LAUNCH) * gap.count) for gap, time in gaps]
    long = [(gap, time - least) for gap, time, least in times if time > limit * gap.count]
    return [(gap, least if time > limit * gap.count else time) for gap, time, least in times], long, limit


OF_TORCH = re.compile(r"DataLoader|^TorchDynamo|^Torch-Compiled|^Pregraph|^CompiledFunction|^Optimizer\.|^autograd::")
"""Ranges of torch that launch, and so stay on their thread, and waits for data, which have a rule of their own."""


class Pause(NamedTuple):
    """Long idle times, in µs, and what the host was in."""

    idle: float
    spent: list[Activity]

    @property
    def movable(self) -> list[Activity]:
        """Return what launches nothing and is long enough for another thread."""
        other = (one for one in self.spent if not one.launches and not OF_TORCH.search(one.name))
        return [one for one in other if one.time > SHORT_PAUSE * one.calls]


def _pause(analysis: Analysis, long: Parts, limit: float) -> Pause:
    idle = sum(time for _, time in long)
    keys, devices = analysis.columns["key"], analysis.columns["device_type"]
    ops = {keys[gap.row] if gap.row >= 0 and devices[gap.row] == "cpu" else "" for gap, _ in long}  # of a kernel: none
    return Pause(idle, spent_while_idle(analysis, max(limit, SHORT_PAUSE), ops) if long else [])


def _table(analysis: Analysis) -> list[tuple[float, float, float]]:
    """Return the launches, the kernels and the late launches in percent of each device, as the table of launches."""
    columns = (analysis.launching[name].tolist() for name in ("launches", "kernels", "with_past", "bound"))
    return [
        (float(launches), float(kernels), 100 * bound / with_past if with_past else math.nan)
        for launches, kernels, with_past, bound in zip(*columns, strict=True)
    ]


def _launches(analysis: Analysis) -> float:
    """Return the launches of a step: 0 if few were late, if most work was not launched piece by piece, or by graphs."""
    rows = _table(analysis)
    launches, kernels = (sum(row[place] for row in rows if row[place] == row[place]) for place in (0, 1))
    kinds = zip(analysis.columns["device_type"], analysis.columns["count"], strict=True)
    pieces = sum(int(count) for kind, count in kinds if kind != "cpu")
    if not any(row[2] >= LATE for row in rows) or launches <= 0.5 * pieces or not kernels:
        return 0.0
    if any(GRAPH_LAUNCH.search(key) for key in analysis.columns["key"]):
        return 0.0
    return float(sum(op.count for op in analysis.ops) * launches / kernels)


def _first(analysis: Analysis) -> bool:
    """Return whether a recording is of the first use of its code: of a profile without steps, where kernels ran less
    than twice on average, or most of the time, its edges left out, passed in it."""
    if analysis.has_steps:
        return False
    kernels = {one.name for op in analysis.ops for one in op.kernels}
    new = analysis.idle(*FIRST_USE) > 0.5 * (analysis.total - analysis.idle("edges"))
    return new or 2 * len(kernels) > sum(op.count for op in analysis.ops)


NOTED = 0.05
"""Share of the time from which on a note reports long idle times in which nothing was recorded."""


def pauses(analysis: Analysis) -> Iterator[str]:
    """Yield a note on why the device idled for its host where no rule has advice: first use, or long pauses."""
    if not analysis.on_device:
        return
    hints = analysis.facts.hints
    gaps = late_launches(analysis, whole=not recurring(analysis))
    if sum(time for _, time in gaps) > NOTED * analysis.unobserved and _first(analysis):
        yield (
            "Most of what was recorded ran for the first time, which is slower than later times: record the program "
            f"after it has warmed up ({hints.steps})."
        )
        return
    _, long, limit = _by_length(gaps)
    if sum(time for _, time in long) <= NOTED * analysis.unobserved:
        return
    pause = _pause(analysis, long, limit)
    if sum(one.time for one in pause.movable) > COVERED * pause.idle:
        return
    named = [one for one in pause.spent if one.time > COVERED * pause.idle][:3]
    if not named and has_stacks(analysis):
        return
    what = f"what the host did then was not recorded ({hints.options.get('host', hints.options['stacks'])} records it)"
    if named:
        times = (f"{one.name} ({short_time_text(min(one.time, pause.idle))})" for one in named)
        what = f"the host was in {', '.join(times)}"
    yield (f"The device idles {short_time_text(pause.idle)} {analysis.per} in long pauses between launches: {what}.")


RULES = (launch,)
