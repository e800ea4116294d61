"""Rules about a host that launches late: piece by piece, or because it does something else between launches."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, claim_all, entry, gap_evidence, host_times, is_gpu, where
from flopscope.answers.host_events import Activity, calls_named, has_stacks, sampled_lines, spent_while_idle, steps_of
from flopscope.answers.lines import function_text, place_text
from flopscope.answers.pieces import Gap
from flopscope.answers.wait_rules import HELD, idle_within, often, recurring
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

    Facts: launches: API calls that launched work. late: late launches in percent, as in the table of launches;
    None: there are several devices. names: ops, ranges and lines that the host was in for most of the idle time.
    covered: the part of it that these take.
    """
    gaps = late_launches(analysis)
    if not gaps or analysis.accelerator not in GRAPHED or _first(analysis):
        return
    short, long, limit = _by_length(gaps)
    launches, late = _launches(analysis), sum(gap.count for gap, _ in short)
    if launches > HANDFUL and late > HANDFUL and launches * len(analysis.alike) > FEWEST:
        shares = [share for *_, share in _table(analysis) if share == share]
        percent, idle = shares[0] if len(shares) == 1 else None, sum(time for _, time in short)
        per, torch, jax = analysis.per, analysis.uses_torch, analysis.uses_jax
        of_them = "" if percent is None else f", {percent_text(percent)} of them late"  # as in the table of launches
        how = 'a CUDA graph or torch.compile(mode="reduce-overhead")' if torch else "a CUDA graph"
        if jax:
            how = "one jitted function for more of the step, unroll= of its loops (jax.lax.scan, fori_loop)"
        says = Said(
            "Launch more work at once",
            f"the device waits {short_time_text(idle)} {per} for the host, which makes "
            f"{plural(launches, 'launch', 'launches')} {per}{of_them}. Use {how}, or larger batches. The times of the "
            "ops listed here are those for which the device waited for their launch.",
            {"idle": idle, "per": per, "launches": launches, "late": percent, "torch": torch, "jax": jax},
        )
        claims = [(gap, KEPT * time) for gap, time in short]
        waits = sum(gap.count for gap in analysis.gaps_of("sync"))
        needs, place = "sync" if waits >= HANDFUL else "", where(analysis, short[0][0].event)  # no graph has waits
        yield Finding(says, claims, gap_evidence(analysis, short), place, needs=needs)
    pause, _, movable = _pause(analysis, long, limit)
    covered = min(sum(one.time for one in movable), pause)
    if covered > COVERED * pause:
        shown = [one for one in movable if one.time >= 0.1 * movable[0].time][:5]
        names, most = [one.name for one in shown[:3]], min(sum(one.time for one in shown[:3]), pause)
        says = Said(
            "Take work off the thread that launches",
            f"the device idles {short_time_text(pause)} {analysis.per} in long pauses between launches; the host "
            f"was in {', '.join(names)} for {short_time_text(most)} of it. Do that in another thread or process, on "
            "the device, or while the device has work.",
            {"idle": pause, "per": analysis.per, "names": names, "covered": most},
        )
        claims = [(gap, KEPT * time * covered / pause) for gap, time in long]
        seen = [entry(one.name, min(one.time, pause), one.calls or None) for one in shown]
        yield Finding(says, claims, seen, where(analysis, long[0][0].event))


def late_launches(analysis: Analysis, *, whole: bool = False) -> list[tuple[Gap, float]]:
    """Return the idle times that a late launch ended, without the time of the driver's allocations unless ``whole``."""
    taken = {} if whole else idle_within(analysis, HELD)
    parts = [(gap, gap.time - taken.get(id(gap), 0.0)) for gap in analysis.gaps_of("host") if gap.event >= 0]
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


def _pause(analysis: Analysis, long: Parts, limit: float) -> tuple[float, list[Activity], list[Activity]]:
    """Return the µs of long idle times, what the host was in, and which of that launches nothing and is long enough for
    another thread."""
    idle, least = sum(time for _, time in long), max(limit, SHORT_PAUSE)
    keys, devices = analysis.columns["key"], analysis.columns["device_type"]
    ops = {keys[gap.row] if gap.row >= 0 and devices[gap.row] == "cpu" else "" for gap, _ in long}  # of a kernel: none
    spent = spent_while_idle(analysis, least, ops) if long else []
    left = idle - sum(one.time for one in spent)
    if left > COVERED * idle:
        spent = sorted([*spent, *_sampled(analysis, least, left)], key=lambda one: -one.time)
    other = (one for one in spent if not one.launches and not OF_TORCH.search(one.name))
    return idle, spent, [one for one in other if one.time > SHORT_PAUSE * one.calls]


LAUNCHES = re.compile(r"(?:^|/)(?:torch|flopscope|jax|jaxlib|triton|cupy|numba)/")
"""Libraries that may launch."""


def _sampled(analysis: Analysis, least: float, most: float) -> list[Activity]:
    """Return the sampled lines in idle times of more than ``least`` µs, in no library that launches: in each of them
    for its part of at most ``most`` µs, in which no op, range or call was recorded."""
    times: dict[str, float] = {}
    for one in sampled_lines(analysis, least).lines:
        if one.idle["host"] > 0 and not LAUNCHES.search(one.inside):
            called = "" if one.inside == one.line else f" ({function_text(one.inside)})"
            name = place_text(one.line) + called
            times[name] = times.get(name, 0.0) + float(one.idle["host"]) / max(len(analysis.alike), 1)
    share = min(most / max(sum(times.values()), most), 1.0)
    return [Activity(name, share * time, 0.0, False) for name, time in times.items()]


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
    pieces = sum(int(count) for kind, count in analysis.rows("device_type", "count") if kind != "cpu")
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


PLANNED = {
    **dict.fromkeys(("aten::_cudnn_attention_forward", "aten::_scaled_dot_product_cudnn_attention"), (0, [0, 1, 3])),
    **dict.fromkeys(("aten::cudnn_convolution", "aten::cudnn_convolution_transpose"), (1, [0, 1, 2, 3, 4])),
}
"""Ops for which cuDNN builds a plan for each new shape: the argument and its dimensions that stay where a program calls
one again with other shapes. Of attention the queries, but for their number; of a convolution the weight."""
FEWEST_PLANS, WITHOUT_STEPS = 4, 16
"""Plans from which they are told: a pass may have a few for one weight."""
SLOW_PLAN, LEAST_PLAN = 10.0, 200.0
"""Time of a call that builds a plan: in times of the calls that build none, and in µs."""


def _plans(analysis: Analysis, op: str) -> tuple[int, int, float, float, float] | None:
    """Return the first call of an op that builds a plan, and the facts of ``plan``; None if there are few. The first
    step and the first call of each place of the program, known by what stays, build one in any case."""
    calls, (argument, dims) = calls_named(analysis, op.__eq__), PLANNED[op]
    took, steps = calls["duration"] / 1000, steps_of(analysis, calls["start"])
    first, _, _ = analysis.calls_alike(calls["event"], arguments=True)
    known, again = set[tuple[int, ...]](), []
    for event in first.tolist():
        shape = [one[1] or () for one in (analysis.core.arguments(event) or ())][argument : argument + 1]
        place = tuple(shape[0][dim] for dim in dims if dim < len(shape[0])) if shape else ()
        again += [event] if place in known else []
        known |= {place} if place else set()
    rest = took[~np.isin(calls["event"], first)]
    usual, from_step = float(np.median(rest)) if len(rest) else 0.0, max(analysis.apart, int(analysis.has_steps))
    slow = took > max(SLOW_PLAN * usual, LEAST_PLAN)
    built = np.flatnonzero(np.isin(calls["event"], again) & slow & (steps >= from_step))
    if len(built) < (FEWEST_PLANS if analysis.has_steps else WITHOUT_STEPS):
        return None
    excess = float((took[built] - usual).sum()) / max(len(analysis.alike), 1)
    return int(calls["event"][built[0]]), len(built), float(np.median(took[built])), usual, excess


OF_ATTENTION = (
    "Do not let cuDNN plan attention for each length",
    "torch.backends.cuda.enable_cudnn_sdp(False) leaves it to kernels without plans; a static cache or padding to a "
    "few lengths keeps the shapes.",
)
OF_CONVOLUTION = (
    "Keep the shapes of convolutions",
    "Pad or crop inputs to a few sizes, and leave torch.backends.cudnn.benchmark off, which tries kernels for each.",
)


def plan(analysis: Analysis) -> Iterator[Finding]:
    """cuDNN builds a plan for each new shape of attention or a convolution, and the device waits for it.

    Premises: the shapes, four or more of which come after the first step (without steps, sixteen) and
    after another one with the same weight or heads; those calls take ten times as long on the host as calls with known
    shapes, and 0.2 ms; and the device idled until they launched. The estimate is what they take in addition.

    Facts: calls: those that build a plan, in all steps. took: by the median of them on the host. usual: by a call
    with known shapes; 0: there are none. time: what they take in addition.
    """
    for op in PLANNED if is_gpu(analysis) else ():
        rows = {*analysis.rows_of.get(op, ())}
        gaps = [gap for gap in analysis.gaps_of("host") if gap.row in rows]
        plans = _plans(analysis, op) if gaps else None
        if plans is not None:
            (event, calls, took, usual, time), steps, per = plans, len(analysis.alike), analysis.per
            others = f", others {short_time_text(usual)}" if usual > 0 else ""
            action, how = OF_ATTENTION if "attention" in op else OF_CONVOLUTION
            says = Said(
                action,
                f"cuDNN builds a plan for each new shape: {often(calls, steps, per)} of {op} with one take "
                f"{short_time_text(took)} each on the host{others}, {short_time_text(time)} {per} in all. {how}",
                {"op": op, "calls": calls, "took": took, "usual": usual, "time": time, "steps": steps, "per": per},
            )
            claims = claim_all(gaps, min(time / sum(gap.time for gap in gaps), 1.0))
            yield Finding(says, claims, host_times(analysis, [op]), where(analysis, event))


NOTED = 0.05
"""Share of the time from which on a note reports long idle times in which nothing was recorded."""


def pauses(analysis: Analysis) -> Iterator[str]:
    """Yield a note on why the device idled for its host where no rule has advice: first use, or long pauses."""
    if not analysis.on_device:
        return
    hints = analysis.facts.hints
    known = {id(gap) for finding in plan(analysis) for gap, _ in finding.claims}
    gaps = [one for one in late_launches(analysis, whole=not recurring(analysis)) if id(one[0]) not in known]
    if sum(time for _, time in gaps) > NOTED * analysis.unobserved and _first(analysis):
        yield (
            "Most of what was recorded ran for the first time, which is slower than later times: record the program "
            f"after it has warmed up ({hints.steps})."
        )
        return
    _, long, limit = _by_length(gaps)
    if sum(time for _, time in long) <= NOTED * analysis.unobserved:
        return
    pause, spent, movable = _pause(analysis, long, limit)
    if sum(one.time for one in movable) > COVERED * pause:
        return
    named = [one for one in spent if one.time > COVERED * pause][:3]
    if not named and (has_stacks(analysis)):
        return
    what = f"what the host did then was not recorded ({hints.options.get('host', hints.options['stacks'])} records it)"
    if named:
        times = (f"{one.name} ({short_time_text(min(one.time, pause))})" for one in named)
        what = f"the host was in {', '.join(times)}"
    yield (f"The device idles {short_time_text(pause)} {analysis.per} in long pauses between launches: {what}.")


RULES = (plan, launch)
