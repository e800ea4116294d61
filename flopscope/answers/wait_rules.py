"""Rules about calls in which the host waits: for the driver's memory, and for the device."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, claim_all, entry, host_times, names_at, where
from flopscope.answers.host_events import (
    Wait,
    calls_in_work,
    calls_named,
    calls_of,
    idle_in_calls,
    sampled_lines,
    waits_of,
)
from flopscope.answers.pieces import Gap
from flopscope.answers.recording import ALLOCATIONS
from flopscope.answers.words import Said, form, told
from flopscope.results.categories import COLLECTION
from flopscope.support.units import plural, short_time_text

HELD = (*ALLOCATIONS, COLLECTION)
"""What holds a host that has advice of its own."""
FREES = tuple(name for name in ALLOCATIONS if "Free" in name)
MANY, QUARTERS, FEW = 10, 4, 5
"""Calls of a profile without steps from which on they recur, if they do in all but one of its quarters."""


def idle_within(analysis: Analysis, names: Collection[str]) -> dict[int, float]:
    """Return the µs per step in which events of the host of these names ran, for each idle time by id()."""
    found: dict[int, float] = {}
    times = idle_in_calls(analysis, names) if analysis.on_device else {}
    groups: dict[str, list[Gap]] = {}
    for gap in analysis.gaps_of("host") if times else ():
        if gap.event >= 0:
            groups.setdefault(analysis.columns["key"][gap.row] if gap.row >= 0 else "", []).append(gap)
    waits = analysis.gaps_of("sync")
    for key, time in times.items():
        for gaps in (groups.get(key, []), waits):  # after a wait, idle time is counted as that of the wait
            idle = sum(gap.time for gap in gaps)
            taken = min(time, idle)
            for gap in gaps if taken > 0 else ():
                found[id(gap)] = min(found.get(id(gap), 0.0) + gap.time * taken / idle, gap.time)
            time -= taken
    return found


def later_steps(analysis: Analysis, names: Collection[str]) -> int:
    """Return in how many steps after the first calls of these names begin."""
    steps, _ = calls_of(analysis, names)
    return len(set(steps[steps > 0].tolist())) if analysis.has_steps else 0


def recurring(analysis: Analysis) -> bool:
    """Return whether the driver allocates or frees memory again and again.

    In most steps after the first, which allocates in any case. Without steps a recording may be one of such a first
    step: the driver must have freed memory, which it then allocates again, more than ten times, in the last quarter of
    the device's work and in all but one of the others; and no five calls may take most of the time, as those do that
    initialise the device.
    """
    if analysis.has_steps:
        return 2 * later_steps(analysis, ALLOCATIONS) > analysis.step_count - 1
    times = calls_of(analysis, ALLOCATIONS)[1]
    parts = calls_in_work(analysis, FREES, QUARTERS)
    often = sum(parts) > MANY and sum(count > 0 for count in parts) >= QUARTERS - 1 and parts[-1] > 0
    return often and 2 * int(np.sort(times)[-FEW:].sum()) < int(times.sum())


def memory(analysis: Analysis) -> Iterator[Finding]:
    """Device memory is allocated and freed by the driver again and again.

    Premises: those of `recurring`. The estimate is the host time of those calls, from the idle time within them first,
    as far as the device waits for the host. Source: PyTorch, "CUDA semantics", memory management.
    """
    gaps = analysis.gaps_of("host", "sync")
    rows = host_times(analysis, [name for name in ALLOCATIONS if analysis.row_sum(name, "count") > 0])
    names = {row["op"] for row in rows}
    if not gaps or not rows or not recurring(analysis):
        return
    steps, times = calls_of(analysis, names)
    total, calls = float(times[steps >= 0].sum()) / 1000 / analysis.step_count, int((steps >= 0).sum())
    taken = idle_within(analysis, ALLOCATIONS)
    within = sum(taken.values())
    left = sum(gap.time for gap in gaps) - within
    share = min(max(total - within, 0.0) / left, 1.0) if left > 0 else 0.0
    frees, listed = any("Free" in name for name in names), tuple(row["op"] for row in rows)
    # Where most frees are made within ops of torch, its allocator found no memory.
    events, counts, _ = analysis.calls_alike(calls_named(analysis, FREES.__contains__)["event"], around=True)
    of_torch = [any(name.startswith("aten::") for name in names_at(analysis, event)) for event in events.tolist()]
    retries = 2 * int(counts[of_torch].sum()) > int(counts.sum())
    says = told(say_memory, calls, analysis.step_count, listed, total, analysis.per, frees, retries)
    claims = [(gap, (1 - share) * taken.get(id(gap), 0.0) + share * gap.time) for gap in gaps]
    yield Finding(says, claims, rows, None)


def say_memory(
    calls: int, steps: int, names: tuple[str, ...], time: float, per: str, frees: bool, retries: bool = False
) -> Said:
    """Calls with which the driver allocated or freed device memory in the steps.

    calls: in all steps. retries: torch's allocator frees its cache, as it found no memory.
    """
    cause = "Remove torch.cuda.empty_cache(), avoid" if frees else "Avoid"
    if retries:
        cause = (
            "The memory is full: torch frees what it caches within an op and tries again. Use a smaller batch or less "
            "memory, avoid"
        )
    return Said(
        "Keep device memory that was allocated",
        f"{often(calls, steps, per)} of {', '.join(names)} {form(calls / steps, 'takes', 'take')} "
        f"{short_time_text(time)} {per}. {cause} sizes that change with each step, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )


def often(calls: int, steps: int, per: str) -> str:
    """Return how often a call was made: per step, or in all of them where that is less than once."""
    return f"{plural(calls, 'call')} in {steps} steps" if calls < steps else f"{plural(calls / steps, 'call')} {per}"


def collection(analysis: Analysis) -> Iterator[Finding]:
    """Python collects garbage while the device waits for the host.

    Premises: two ranges around collections of the oldest objects, which `flopscope run` records, and the idle time in
    them. The estimate is that time. Source: Python, "gc", freeze().
    """
    taken = idle_within(analysis, (COLLECTION,))
    times = calls_of(analysis, (COLLECTION,))[1] / 1000 if taken else np.zeros(0)
    if len(times) >= RECURS:
        per, idle, took, runs = analysis.per, sum(taken.values()), float(np.median(times)), plural(len(times), "run")
        says = Said(
            "Decide when Python collects garbage",
            f"the device waits {short_time_text(idle)} {per} for Python's garbage collection: {runs} in the profile "
            f"take {short_time_text(took)} each. gc.freeze() once all is set up leaves those objects out of it; "
            "gc.disable(), and gc.collect() every few hundred steps, make it rare.",
            {"idle": idle, "per": per, "runs": len(times), "took": took},
        )
        claims = [(gap, taken[id(gap)]) for gap in analysis.gaps if id(gap) in taken]
        yield Finding(says, claims, host_times(analysis, (COLLECTION,)), None)


RECURS = 2
"""Collections from which they are told: a single one may be that of the program's start."""
OWN_WAITS = ("cudaDeviceSynchronize", "hipDeviceSynchronize")
"""What the profiler itself calls when it starts and stops, twice at most."""
COPIES = {"aten::to", "aten::copy_", "aten::_to_copy", "cudaMemcpyAsync", "cudaMemcpy"}
BLAMED = {
    "aten::is_nonzero": "branched",
    "aten::_coalesce": "coalesced",
    **dict.fromkeys(("aten::item", "aten::tolist", "aten::_local_scalar_dense"), "read"),
    **dict.fromkeys(("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim"), "sized"),
    **dict.fromkeys(("aten::repeat_interleave", "aten::bincount"), "sized"),
}
"""What ops of torch wait for: a condition in Python, a value, or the size of a result."""
REMEDIES: Mapping[str, str] = {
    "read": (
        " Keep results on the device (accumulate losses and norms as tensors), and read them every few steps, with one "
        ".item() or a non_blocking copy."
    ),
    "sized": (
        " The size of its result depends on the data, so the host must read it: use torch.where or masks, whose sizes "
        "are fixed, or give output_size where the op takes it."
    ),
    "branched": (
        " It decides a condition in Python: leave out the `if` or the assertion, or select with torch.where, which "
        "needs no value on the host."
    ),
    "checked": (
        " torch.distributions checks its arguments on the host: leave that out with validate_args=False, or for all by "
        "torch.distributions.Distribution.set_default_validate_args(False)."
    ),
    "coalesced": (
        " Coalesce the sparse tensor once, where it is made: a tensor that is coalesced already needs no wait."
    ),
    "synchronize": " Leave out the synchronize() that the program does not need, and wait for single events.",
    "": "",
}
"""What to do about waits, by what they are for."""
OF_JAX = (
    " In a program of JAX, np.asarray(), float(), print() and block_until_ready() wait for results: keep these as "
    "arrays, and read them every few steps."
)


def blamed(call: str, ops: Sequence[str]) -> tuple[str, str]:
    """Return the op to blame for a call that waits, or the call, and what for. ops: those around it, innermost first.

    The outermost op that is known to wait decides; of others, the innermost is blamed, and nothing is advised.
    """
    known = next((op for op in reversed(ops) if op in BLAMED), None)
    if known is not None:
        return known, BLAMED[known]
    return (ops[0], "") if ops else (call, "synchronize" if call.endswith("Synchronize") else "")


def sync(analysis: Analysis) -> Iterator[Finding]:
    """The host waits for the device and then comes late with the next launches.

    Premises: the waiting call was recorded, and work of the device ended while it lasted; it is none of a copy, none
    with which a library measures kernels, and none of the profiler's own; and the device idled after it. The estimate
    is that idle time; where a program with steps is late for longer than the calls, or the op around them, last, it
    would be earlier by these as well, at most by as much as that idle time. Source: PyTorch, "Performance Tuning
    Guide", avoid unnecessary CPU-GPU synchronization.

    Facts: ops: those around the call, innermost first. calls: those that waited, in all steps. earlier: time by
    which the host would be earlier with other launches, which are late; 0: with none. checks: torch.distributions
    reads whether its arguments are valid.
    """
    groups: dict[tuple[str, str], list[tuple[Gap, Wait]]] = {}
    for gap, wait in _waited(analysis):
        own = wait.call in OWN_WAITS and analysis.row_sum(wait.call, "count") * analysis.step_count <= 2
        if not wait.tunes and not (own and not wait.ops) and COPIES.isdisjoint(wait.ops or (wait.call,)):
            groups.setdefault((wait.call, blamed(wait.call, wait.ops)[0]), []).append((gap, wait))
    late = analysis.gaps_of("host") if analysis.has_steps else []
    left = sum(gap.time for gap in late)
    for (call, op), pairs in groups.items():
        idle = sum(gap.time for gap, _ in pairs)
        waited = sum({wait: wait.time for _, wait in pairs}.values())
        lasts = min(max(waited, analysis.row_sum(op, "cpu_time_total") if op != call else 0.0), idle)
        earlier = lasts if left > lasts else 0.0
        calls = sum({wait: wait.calls for _, wait in pairs}.values())
        known = min(calls / max(len(analysis.alike), 1), analysis.row_sum(op, "count") or calls)
        gap, wait = pairs[0]
        steps, per, jax, checks = len(analysis.alike), analysis.per, analysis.uses_jax, _checks(analysis, gap.wait)
        remedy = blamed(call, wait.ops)[1]
        inside = f" (in {op})" if op != call else ""
        gained = f"up to {short_time_text(earlier)} {per} earlier"
        more = f" Without these calls it would launch other late work {gained} as well." if earlier > 0 else ""
        says = Said(
            f"Do not wait for the device in {op}",
            f"{call}{inside} waits for it, {often(calls, steps, per)}, and the device then idles "
            f"{short_time_text(idle)} {per} until the host has launched again.{more}"
            f"{OF_JAX if jax else REMEDIES['checked' if checks else remedy]}",
            {"call": call, "ops": wait.ops, "calls": calls, "steps": steps, "idle": idle, "earlier": earlier}
            | {"per": per, "jax": jax, "checks": checks},
        )
        again = [(one, earlier * one.time / left) for one in late if earlier]
        claims, place = [*claim_all(one for one, _ in pairs), *again], where(analysis, gap.wait)
        yield Finding(says, claims, [entry(op, idle, known)], place, ends_waits=True)


DISTRIBUTIONS = re.compile(r"(?:^|/)torch/distributions/")


def _checks(analysis: Analysis, event: int) -> bool:
    """Return whether a condition in torch.distributions is what the host waits for: by a line around the call or, where
    no lines are around it, most of the sampled time after waits."""
    names = names_at(analysis, event)
    if "aten::is_nonzero" not in names:
        return False
    lines = [name for name in names if "): " in name]
    if lines:
        return any(map(DISTRIBUTIONS.search, lines))
    sampled = [(one.idle["sync"], DISTRIBUTIONS.search(one.inside)) for one in analysis.once(sampled_lines).lines]
    return bool(2 * sum(time for time, checks in sampled if checks) > sum(time for time, _ in sampled))


def tuning_gaps(analysis: Analysis) -> list[Gap]:
    """Return the idle times after waits with which a library measures its kernels."""
    return [gap for gap, wait in _waited(analysis) if wait.tunes]


def _waited(analysis: Analysis) -> Iterator[tuple[Gap, Wait]]:
    """Yield the idle times after waits with the calls that waited in the op of the wait.

    Of several, those are named that only wait, and then the most frequent ones.
    """
    gaps = [gap for gap in analysis.gaps_of("sync") if gap.wait >= 0]
    waits = analysis.once(waits_of) if gaps and analysis.on_device else []
    for gap in gaps if waits else ():
        around = analysis.enclosing(gap.wait)
        ops = tuple(name for kind, name in around if kind == "op")
        name = ops[0] if ops else around[0][1]
        same = [wait for wait in waits if (wait.ops[0] if wait.ops else wait.call) == name]
        if same:
            yield gap, min(same, key=lambda wait: ("Memcpy" in wait.call, -wait.calls))


RULES = (memory, collection, sync)
