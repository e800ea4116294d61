"""try_changes(): changes tried on a callable in this process, switched on and off for each call."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from flopscope.measuring.measuring import require_numbers
from flopscope.measuring.paired import compare_times
from flopscope.measuring.stage import name_of, require_callable
from flopscope.measuring.trying.look import Looking, Seen, magnitudes
from flopscope.measuring.trying.result import FEWEST, MARGIN, Change, Ratio, Tried, parity_of
from flopscope.measuring.trying.switches import Call, Reach, Switch, named
from flopscope.support.lock import alone


def try_changes(
    fn: Callable[[], Any], *, changes: str | Sequence[str] | None = None, max_time: float = 10.0, margin: float = MARGIN
) -> Tried:
    """Time a callable with and without changes that need no edit of it, in turns, and return what each gains.

    Each change is switched on for a call and off after it: settings of torch such as TF32, autocast, inference mode,
    torch.compile of the callable. ``flopscope try`` does the same for a whole program, with more changes. While times
    are taken, the lock of the perf fixture is held.

    fn: called without arguments; what it returns is compared between calls with and without a change.
    changes: names of changes, see ``flopscope try --list``; None: all that apply to a callable.
    max_time: seconds of timing for each change.
    margin: relative difference up to which times count as the same.

    Raises ImportError without torch; ValueError for an unknown change; the exceptions of fn
    without a change. One that fn raises with a change makes that change "failed".
    """
    require_callable(fn)
    require_numbers(margin=margin, max_time=max_time)
    import torch

    switches = named([changes] if isinstance(changes, str) else changes)
    reach = Reach(torch, Seen())
    reach.seen = _look(reach, fn)
    tried = Tried(name_of(fn), "call", math.nan, [])
    for one in switches:
        call = _switched(one, reach, fn)
        why_not = one.why_not(reach.seen) or ("" if call is not None else "it cannot be switched for one callable")
        if call is not None and not why_not:
            tried.changes.append(_tried(one, reach, fn, call, max_time, margin))
        elif changes is not None:
            tried.notes.append(f"{one.name} does not apply: {why_not}.")
    tried.before = next((one.before for one in tried.changes if not math.isnan(one.before)), math.nan)
    tried.keep_faster()
    return tried


def _look(reach: Reach, fn: Callable[[], Any]) -> Seen:
    """Call fn once, and return what it was seen to use."""
    looking = Looking(reach)
    reach.watch()
    looking.began()
    try:
        fn()
    finally:
        seen = looking.finish()
        reach.undo()
    seen.cpus = len(os.sched_getaffinity(0))
    seen.modules = max(seen.modules, 1)  # the callable takes the place of a module
    seen.gradients |= bool(reach.torch.is_grad_enabled())
    return seen


def _switched(switch: Switch, reach: Reach, fn: Call) -> Call | None:
    """Return a callable that calls fn with the switch; None if a callable alone cannot be switched."""
    if switch.calls is not None:
        return switch.calls(reach, None, fn)
    settings = switch.settings
    if settings is None:
        return None

    def switched() -> Any:
        reach.set(settings(reach.torch, reach.seen))
        try:
            return fn()
        finally:
            reach.undo()

    return switched


def _tried(switch: Switch, reach: Reach, fn: Call, call: Call, max_time: float, margin: float) -> Change:
    change = Change(switch.name, hits=1, margin=margin)
    plain = [_results(reach.torch, fn) for _ in range(2)]
    try:
        changed = _results(reach.torch, call)
        change.parity = parity_of("returned values", plain, changed, switch.tolerance_in(reach.seen))
        with alone():
            times = compare_times(call, fn, margin=margin, max_time=max_time)
    except Exception as problem:  # of fn, which the change may not suit
        change.problem = f"{type(problem).__name__}: {problem}"
        return change
    change.ratio = Ratio(times.ratio, *times.ci, max(times.rounds, FEWEST))
    change.before = times.g_median
    return change


def _results(torch: Any, call: Call) -> list[float]:
    """Call with the same seed each time, and return the mean magnitudes of the result."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [float(one) for one in magnitudes(torch, call())]
