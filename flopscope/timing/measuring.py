"""measure(): how long one call takes, and what that is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from flopscope import _core
from flopscope.hardware.model import Model, why_unknown
from flopscope.support.progress import time_bar
from flopscope.timing.distribution import describe, median
from flopscope.timing.measurement import Measurement, Shares
from flopscope.timing.sampling import Rule, Series, collect, no_collector, warm_up
from flopscope.timing.stage import Stage, name_of, prepare, require_callable

if TYPE_CHECKING:
    from flopscope.hardware.peaks import Peaks
    from flopscope.timing.cuda import CudaClock, Graph

__all__ = ["measure"]

WARM_UP_SECONDS = {"cpu": 0.01, "cuda": 0.015}  # at least: clocks rise, caches fill
WARM_UP_SHARE = 0.3  # of max_time, at most
DRIFT, LEAST_HALF = 1.1, 5  # between the halves of the samples, of so many at least
SIDE_SHARE, SIDE_SPREAD = 0.1, 0.01  # of max_time, for what is told beside the median, and how well


def measure(
    fn: Callable[..., Any],
    *args: Any,
    flops: float | None = None,
    bytes: float | None = None,
    unit: str | None = None,
    device: str | None = None,
    cache: Literal["cold", "hot"] | None = None,
    spread: float = 0.005,
    min_time: float = 0.03,
    max_time: float = 1.0,
    peaks: Literal["measured", "datasheet", "none"] = "measured",
    timer: Literal["auto", "cupti", "event"] = "auto",
    graph: bool = True,
) -> Measurement:
    """Time ``fn(*args)``, called again and again, and hold the time against what the device can do.

    fn: an op of flopscope, or anything that can be called: code of torch, CuPy, Triton, NumPy. What it raises passes.
        Its work is that of the flopscope ops in it, if they are all it does there; of other code it is not known.
    flops, bytes: the work of a call, where it is not known or to be counted otherwise.
    unit: with flops, the compute unit that does them ("fp32", "bf16_tensor", …); without, the roofline is known only
        where the bytes bound it in any case.
    device: "cpu" times until the call returns; "cuda:0" what it does there. None: where it works, else the CPU.
    cache: "cold" empties the caches before each sample, outside of what is timed (on CUDA the L2 cache, its persisting
        lines too; and tensors among args take turns with copies), "hot" does not. None: cold on CUDA, hot on the CPU.
    spread, min_time, max_time: stop once half of the median's 95 % confidence interval is within this share of it, the
        halves of the samples agree as well, and at least 10 samples have taken min_time seconds; or after max_time
        seconds, with at least 3 samples (after 4 times as many seconds with any). The calls before, to warm up, and
        peaks measured for the first time come on top. A call that keeps its results from call to call ends in a
        MemoryError before memory is full.
    peaks: what the shares are of: "measured" peaks (measured now if they never were), the "datasheet", or "none".
    timer: who tells device times. "auto": CUPTI, or CUDA events where it cannot be had, said in ``timing_source`` and
        ``notes``; "cupti": RuntimeError instead; "event": CUDA events. Without CUPTI only flopscope's own ops and
        tensors among args tell that a call works on a GPU: name the device of other code.
    graph: on CUDA, take the time from launch to launch too, in a CUDA graph of calls, where they can be captured.

    Raises ValueError for options that make no sense or a call that works on several devices, and RuntimeError where
    nothing is launched on the device, where a profile is in progress, and where CUDA fails; TypeError for what cannot
    be called, or only makes a coroutine.
    """
    _check(flops=flops, bytes=bytes, spread=spread, min_time=min_time, max_time=max_time)
    _check_names(peaks, unit, flops)
    require_callable(fn)
    call = partial(fn, *args) if args else fn
    stage = prepare([call], args, device, cache, timer)
    look = stage.looks[0]
    done = _stated(look.flops, flops), _stated(look.bytes, bytes)
    known = {} if all(map(math.isnan, done)) else _peaks(stage, peaks)
    stated = (*done, unit if flops is not None else look.unit) if flops is not None or bytes is not None else None
    roofs = _roofs(stage, stated, known)
    with no_collector(), time_bar(f"measuring {name_of(fn)}", max_time) as look_up:
        stage.call_between_samples(look_up)
        series, aside = _sample(stage, call, fn, args, Rule(spread, min_time, max_time), graph)
    stage.notes.extend(_notes_of(series.times))
    return _result(name_of(fn), stage, series, done, roofs, peaks, aside)


def _sample(
    stage: Stage, call: Callable[[], Any], fn: Callable[..., Any], args: tuple[Any, ...], rule: Rule, graph: bool
) -> tuple[Series, dict[str, Any]]:
    """The series of samples, and what is told beside it."""
    if stage.device.kind == "cpu":
        clock = stage.clock([call], stage.cold)
        per_call = warm_up(clock, 0, *_warming(stage, rule), stage.watch)
        clock.settle([per_call])
        series = collect(clock, rule, per_call * clock.batches[0], watch=stage.watch)
        return series, {"batch": clock.batches[0]}
    aside: dict[str, Any] = {"kernels": stage.looks[0].kernels}
    with stage.recording():
        clock = stage.clock([_in_turns(stage, fn, args) if stage.cold else call], stage.cold)
        per_call = warm_up(clock, 0, *_warming(stage, rule), stage.watch)
        series = _collect_on_cuda(stage, clock, rule, per_call)
        aside["other_cache"] = _other_cache(stage, call, rule, per_call)
        captured = _graph(stage, call) if graph else None
    if captured is not None:
        with _noted(stage):
            aside["launch_to_launch"] = captured.launch_to_launch()
    return series, aside


@contextmanager
def _noted(stage: Stage) -> Iterator[None]:
    """What fails in the block is a note: whatever a call in a graph does not bear, in the words of whose library."""
    try:
        yield
    except Exception as problem:
        stage.notes.append(f"no time from launch to launch: {str(problem).strip().splitlines()[0]}")


def _other_cache(stage: Stage, call: Callable[[], Any], rule: Rule, per_call: float) -> float:
    """The median with the caches the other way; NaN, and a note that says why, where it cannot be had."""
    from flopscope.timing.cuda import LostRecords

    brief = Rule(SIDE_SPREAD, 0.0, SIDE_SHARE * rule.max_time)
    try:
        other = collect(stage.clock([call], not stage.cold), brief, per_call, stage.throttled_below, stage.watch)
    except LostRecords as problem:
        stage.notes.append(f"no time with caches {'hot' if stage.cold else 'cold'}: {problem}")
        return math.nan
    return describe(other.times, coarse=True).median


def _notes_of(times: Sequence[float]) -> list[str]:
    """What is to be told of samples in their order."""
    half = len(times) // 2
    if half < LEAST_HALF:
        return []
    ratio = median(times[half:]) / median(times[:half])
    if 1 / DRIFT < ratio < DRIFT:
        return []
    return [
        f"the second half of the samples took {ratio:.2f} times as long as the first: the call's work changes from "
        "call to call, or the machine's speed did"
    ]


def _warming(stage: Stage, rule: Rule) -> tuple[float, float]:
    """For how many seconds to warm up, at least and at most."""
    return min(WARM_UP_SECONDS[stage.device.kind], rule.max_time), WARM_UP_SHARE * rule.max_time


def _collect_on_cuda(stage: Stage, clock: CudaClock, rule: Rule, per_call: float) -> Series:
    series = stage.sampled(clock, lambda: collect(clock, rule, per_call, stage.throttled_below, stage.watch))
    if series.throttled_throughout:
        stage.notes.append(f"most samples ran below {stage.throttled_below:.0f} MHz, throttled: all of them count")
    return series


def _graph(stage: Stage, call: Callable[[], Any]) -> Graph | None:
    """A graph of calls; None, and a note that says why, where there can be none."""
    from flopscope.timing.cuda import Graph

    look, records = stage.looks[0], stage.records
    with _noted(stage):
        if look.launches is None or records is None:
            raise RuntimeError("without CUPTI nobody knows what a graph has to hold")
        if 0 < look.native_launches < look.launches:
            raise RuntimeError("flopscope's ops and other code cannot be captured in one graph")
        graph = Graph(call, str(stage.device), look.native_launches > 0, look.bytes)
        graph.check(records, look.launches)
        return graph
    return None


def _in_turns(stage: Stage, fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    from flopscope.hardware.device import free_bytes
    from flopscope.timing.cuda import rotated

    return rotated(fn, args, int(stage.device.properties["l2_bytes"]), free_bytes(stage.device))


def _peaks(stage: Stage, wanted: str) -> dict[str, Peaks]:
    """What is known of the device, the wanted ones first; measured now where they are wanted and never were."""
    from flopscope.hardware.device import measure_peaks

    if wanted == "none":
        return {}
    found: dict[str, Peaks | None] = {}
    if wanted == "measured":
        try:
            found["measured"] = measure_peaks(stage.device)
        except RuntimeError as problem:
            stage.notes.append(f"there are no measured peaks: {problem}")
    found["datasheet"] = stage.device.datasheet_peaks
    if wanted == "datasheet":
        found["measured"] = stage.device.measured
        if found["datasheet"] is None:
            model = Model.of_properties(stage.device.properties)
            stage.notes.append(why_unknown(model, here=True, measured=False, kind=stage.device.kind))
    return {source: peaks for source, peaks in found.items() if peaks is not None}


def _roofs(
    stage: Stage, stated: tuple[float, float, str | None] | None, known: Mapping[str, Peaks]
) -> dict[str, _core.Roof]:
    """By source of the peaks, the least times of a call; under "none" what is known without peaks.

    stated: FLOPs, bytes and unit as the caller says them; None: those of the ops that were seen. A datasheet does not
    say what a launch takes: the measured time stands for it.
    """
    look, measured = stage.looks[0], known.get("measured")
    limits: dict[str, dict[str, Any]] = {source: peaks._for_core(measured) for source, peaks in known.items()}
    limits["none"] = {"flops": {}}
    if stated is None:
        return {source: look.roof(str(stage.device), one) for source, one in limits.items()}
    launches = float(max((look.launches if stage.source == "cupti" else look.ops) or 1, 1))
    return {source: _core.roof(*stated, one, launches) for source, one in limits.items()}


def _result(
    name: str,
    stage: Stage,
    series: Series,
    work: tuple[float, float],
    roofs: Mapping[str, _core.Roof],
    wanted: str,
    aside: Mapping[str, Any],
) -> Measurement:
    spread = describe(series.times, coarse=stage.device.kind == "cuda")
    us, (flops, moved) = spread.median, work
    clocks = [mhz for mhz in series.clocks if not math.isnan(mhz)]
    rated = {source: _core.rate(roof, flops, moved, us, stage.source) for source, roof in roofs.items()}
    chosen = wanted if wanted in rated else "none"
    return Measurement(
        name=name,
        device=str(stage.device),
        device_name=stage.device.name,
        timing_source=stage.source,
        cache="cold" if stage.cold else "hot",
        **vars(spread),
        **{"batch": 1, **aside},
        discarded=series.discarded,
        stopped=series.stopped,
        flops=flops,
        bytes_total_moved=moved,
        **rated[chosen],
        peaks_source="" if chosen == "none" else chosen,
        unit=roofs[chosen].unit,
        roof=roofs[chosen],
        clock_mhz=median(clocks) if clocks else math.nan,
        shares={source: Shares.of(rating) for source, rating in rated.items() if source != "none"},
        notes=tuple(stage.notes),
        samples=tuple(series.times),
        clocks=tuple(series.clocks) if stage.device.kind == "cuda" else (),
    )


def _stated(seen: float, given: float | None) -> float:
    return seen if given is None else float(given)


def _check(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= number < math.inf:
            raise ValueError(f"{name}={number!r}: it is a number of at least 0")
    if numbers.get("max_time") == 0:
        raise ValueError("max_time=0: it takes some seconds to measure")


def _check_names(peaks: str, unit: str | None, flops: float | None) -> None:
    from flopscope.hardware.device import PEAK_SOURCES

    if peaks not in PEAK_SOURCES:
        raise ValueError(f"peaks={peaks!r}: there are {', '.join(map(repr, PEAK_SOURCES))}")
    if unit is None:
        return
    units = _core.compute_units
    if unit not in units:
        raise ValueError(f"unit={unit!r}: there are {', '.join(units)}")
    if flops is None:
        raise ValueError(f"unit={unit!r} says what does the FLOPs that flops= states: state them")
