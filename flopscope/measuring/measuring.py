"""measure(): the time of one call, its rates and its share of the roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from numbers import Real
from statistics import median
from typing import Any, Literal

from flopscope import _core
from flopscope.measuring.counting import count_call, cupti_stays, relate, sample_lines
from flopscope.measuring.cuda import Graph, LostRecords
from flopscope.measuring.distribution import describe
from flopscope.measuring.measurement import Measurement, Shares
from flopscope.measuring.sampling import Rule, Series, collect, no_collector
from flopscope.measuring.stage import Stage, name_of, prepare, require_callable
from flopscope.record.counters import check_counters
from flopscope.record.work_rules import unit_named
from flopscope.support.device import PEAK_SOURCES, measure_peaks
from flopscope.support.model import Model, why_unknown
from flopscope.support.nvml import EnergyMeter
from flopscope.support.peaks import Peaks
from flopscope.support.progress import time_bar

BEYOND, BEYOND_CPU, FAR_BEYOND = 105.0, 400.0, 1e4
"""Percent of measured peaks that no device does; those of a CPU may have been measured while others used it, and the
bandwidth of its caches is unknown."""
SIDE_SHARE, SIDE_SPREAD = 0.1, 0.01  # for other_cache: the share of max_time, and the spread


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
    counters: bool | Literal["require"] = False,
    stalls: bool = False,
) -> Measurement:
    """Time repeated calls of ``fn(*args)`` and compare the time with the peaks of the device.

    fn: an op of flopscope or any other callable: torch, CuPy, Triton or NumPy code. Its exceptions propagate. The work
        is the sum over the flopscope ops that it calls, unknown if fn also runs other code on the device; else that of
        torch's ops in a recorded call, on a GPU of a function of torch itself; or of a function of NumPy or CuPy that
        is known by name.
    flops, bytes: the work of one call. They override the counted work, and are needed where it is unknown.
    unit: the compute unit that executes ``flops`` ("fp32", "bf16_tensor", …). Without it the roofline of stated flops
        is known only where the bytes are the bound on every unit.
    device: "cpu" times until the call returns; "cuda:0" times its work on that GPU. None: the device that fn uses.
    cache: "cold" flushes the caches before each sample, outside the timed region (on CUDA the L2 cache with its
        persisting lines); "hot" does not. None: cold on CUDA, hot on the CPU.
    spread, min_time, max_time: sampling stops when half of the median's 95 % confidence interval is within ``spread``
        of the median, the medians of both halves of the samples agree equally well, and at least 10 samples have taken
        min_time seconds. It also stops after max_time seconds with at least 3 samples, or after 4 * max_time with at
        least one. The limits do not include warm-up calls and the first measurement of peaks. A call whose memory use
        grows from call to call raises MemoryError before memory is full.
    peaks: the peaks behind the shares: "measured" (measured now if necessary), "datasheet", or "none".
    timer: the source of device times. "auto": CUPTI, or CUDA events where it is unavailable (see ``timing_source`` and
        ``notes``); "cupti": CUPTI, or RuntimeError; "event": CUDA events. Without CUPTI, work on a GPU is detected only
        from flopscope's own ops and from tensors in args: for other code, pass device=.
    counters: True also counts what the hardware did for a call, in ``counters``: DRAM and L2 bytes, FLOP instructions,
        activity of units, occupancy, stalls. It calls fn a few more times after it was timed, each counter in some of
        these calls. Where counters are unavailable, a note says why; "require" raises RuntimeError. Calls that
        communicate with other devices are not counted.
    stalls: True also samples at which lines of its longest kernel the warps are, in ``hot_lines``, which takes a
        second, and implies counters=True.
    graph: on CUDA, also measure the time from launch to launch in a CUDA graph, where the calls can be captured.

    Raises ValueError for invalid options or a call that uses several devices, RuntimeError if nothing is launched on
    the device, a profile is in progress or CUDA fails, and TypeError if fn is not callable or returns a coroutine.
    """
    require_numbers(flops=flops, bytes=bytes, spread=spread, min_time=min_time, max_time=max_time)
    require_source(peaks)
    if unit_named(unit) and flops is None:
        raise ValueError(f"unit={unit!r} needs flops=, the FLOPs that this unit executes")
    check_counters(counters, None)
    counters = counters or stalls
    require_callable(fn)
    call = partial(fn, *args) if args else fn
    with cupti_stays(counters):
        stage = prepare([call], args, device, cache, timer)
        look, call = stage.looks[0], stage.calls[0]
        done = (look.flops if flops is None else float(flops), look.bytes if bytes is None else float(bytes))
        known = {} if all(map(math.isnan, done)) else peaks_for(stage, peaks)
        stated = (*done, unit if flops is not None else look.unit) if flops is not None or bytes is not None else None
        roofs = _roofs(stage, stated, known)
        with no_collector(), time_bar(f"measuring {name_of(fn)}", max_time) as show_time:
            stage.call_between_samples(show_time)
            series, extras = _sample(stage, call, Rule(spread, min_time, max_time), graph)
        if bytes is None:
            extras |= {"bytes_read": look.bytes_read, "bytes_written": look.bytes_written}
        if counters:
            with no_collector():
                counts = count_call(stage, call, unit or look.unit, counters == "require")
            relate(counts, median(series.times), peaks_for(stage, peaks).get("measured"))
            extras["counters"] = counts
        extras |= {"name": name_of(fn), "flops": done[0], "bytes_total_moved": done[1]}
    if stalls:
        sample_lines(counts, stage, call)
    return _result(stage, series, roofs, peaks, extras)


def _sample(stage: Stage, call: Callable[[], Any], rule: Rule, graph: bool) -> tuple[Series, dict[str, Any]]:
    """Return the samples, and the fields of the Measurement that do not come from them."""
    if stage.device.kind == "cpu":
        clock = stage.clock([call], stage.cold)
        (per_call,) = stage.warm_up(clock, rule.max_time)
        series = collect(clock, rule, per_call * clock.batches[0], watch=stage.watch)
        return series, {"batch": clock.batches[0]}
    extras: dict[str, Any] = {"kernels": stage.looks[0].kernels}
    with stage.recording():
        clock = stage.clock([call], stage.cold)
        (per_call,) = stage.warm_up(clock, rule.max_time)
        meter = EnergyMeter(str(stage.device.properties["uuid"]))
        series = stage.sampled(clock, lambda: collect(clock, rule, per_call, stage.throttled_below, stage.watch))
        if series.throttled_throughout:
            below = f"below {stage.throttled_below:.0f} MHz"
            stage.notes.append(f"most samples ran on a throttled clock, {below}, so none were discarded")
        watts = meter.read().watts
        extras |= {"watts": watts, "joules": watts * median(series.times) / 1e6 if series.times else math.nan}
        extras["other_cache"] = _other_cache(stage, call, rule, per_call)
        captured = _graph(stage, call) if graph else None
    if captured is not None:
        with _errors_as_notes(stage):
            extras["launch_to_launch"] = captured.launch_to_launch()
    return series, extras


@contextmanager
def _errors_as_notes(stage: Stage) -> Iterator[None]:
    """Turn an exception in the block into a note: capturing arbitrary code can fail with any library's error."""
    try:
        yield
    except Exception as problem:
        stage.notes.append(f"no time from launch to launch: {str(problem).strip().splitlines()[0]}")


def _other_cache(stage: Stage, call: Callable[[], Any], rule: Rule, per_call: float) -> float:
    """Return the median in the opposite cache state, or NaN with a note where it is unavailable."""
    brief = Rule(SIDE_SPREAD, 0.0, SIDE_SHARE * rule.max_time)
    try:
        other = collect(stage.clock([call], not stage.cold), brief, per_call, stage.throttled_below, stage.watch)
    except LostRecords as problem:
        stage.notes.append(f"no time with caches {'hot' if stage.cold else 'cold'}: {problem}")
        return math.nan
    return describe(other.times, coarse=True).median


def _graph(stage: Stage, call: Callable[[], Any]) -> Graph | None:
    """Return a CUDA graph of calls, or None with a note where they cannot be captured."""
    look, records = stage.looks[0], stage.records
    with _errors_as_notes(stage):
        if look.launches is None or records is None:
            raise RuntimeError("without CUPTI the launches that a graph must contain are unknown")
        if 0 < look.native_launches < look.launches:
            raise RuntimeError("flopscope's ops and other code cannot be captured in one graph")
        if any("Synchronize" in name for name in look.core.events()[1]):
            raise RuntimeError("the call waits for the device")
        graph = Graph(call, str(stage.device), look.native_launches > 0, look.bytes)
        graph.check(records, look.launches)
        return graph
    return None


def peaks_for(stage: Stage, wanted: str) -> dict[str, Peaks]:
    """Return the known peaks of the device by source. Measure them now if wanted and not measured before."""
    if wanted == "none":
        return {}
    if wanted == "measured":
        try:
            measure_peaks(stage.device)
        except RuntimeError as problem:
            stage.notes.append(f"measured peaks are unavailable: {problem}")
    elif stage.device.datasheet is None:
        model = Model.of_properties(stage.device.properties)
        of_cpu = 'a CPU has no datasheet; peaks="measured" measures its peaks'
        stage.notes.append(of_cpu if stage.device.kind == "cpu" else why_unknown(model, here=True, measured=False))
    known = stage.device.known_peaks()
    return dict(sorted(known.items(), key=lambda item: item[0] != wanted))  # the wanted ones first


def _roofs(
    stage: Stage, stated: tuple[float, float, str | None] | None, known: Mapping[str, Peaks]
) -> dict[str, _core.Roof]:
    """Return the roofline times of a call by source of the peaks; "none" stands for no peaks.

    stated: FLOPs, bytes and unit from the caller; None: those of the recorded ops. A datasheet lacks the time of a
    launch, so the measured one is used.
    """
    look, measured = stage.looks[0], known.get("measured")
    limits: dict[str, dict[str, Any]] = {source: peaks.for_core(measured) for source, peaks in known.items()}
    limits["none"] = {"flops": {}}
    if stated is None:
        return {source: look.roof(str(stage.device), one) for source, one in limits.items()}
    launches = float(max((look.launches if stage.source == "cupti" else look.ops) or 1, 1))
    return {source: _core.roof(*stated, one, launches) for source, one in limits.items()}


def _result(
    stage: Stage, series: Series, roofs: Mapping[str, _core.Roof], wanted: str, extras: Mapping[str, Any]
) -> Measurement:
    spread = describe(series.times, coarse=stage.device.kind == "cuda")
    work = extras["flops"], extras["bytes_total_moved"], spread.median
    clocks = [mhz for mhz in series.clocks if not math.isnan(mhz)]
    rated = {source: _core.rate(roof, *work, stage.source) for source, roof in roofs.items()}
    chosen = wanted if wanted in rated else "none"
    names = [one.name for one in fields(Shares)]
    bound = {"bound": "impossible"} if is_impossible(stage.device.measured, rated.get("measured")) else {}
    return Measurement(
        device=str(stage.device),
        device_name=stage.device.name,
        timing_source=stage.source,
        cache="cold" if stage.cold else "hot",
        **vars(spread),
        **{"batch": 1, **extras},
        discarded=series.discarded,
        stopped=series.stopped,
        **{**rated[chosen], **bound},
        peaks_source="" if chosen == "none" else chosen,
        unit=roofs[chosen].unit,
        launch=stage.looks[0].launch,
        roof=roofs[chosen],
        clock_mhz=median(clocks) if clocks else math.nan,
        shares={
            source: Shares(*(rating[one] for one in names)) for source, rating in rated.items() if source != "none"
        },
        notes=tuple(stage.notes),
        samples=tuple(series.times),
        clocks=tuple(series.clocks) if stage.device.kind == "cuda" else (),
    )


def is_impossible(peaks: Peaks | None, rating: Mapping[str, Any] | None) -> bool:
    """Return whether a device cannot have done work at this rating: beyond its peak FLOP/s or its caches' bandwidth."""
    if peaks is None or rating is None:
        return False
    if peaks.l2_bandwidth is None:
        return bool(rating["pct_peak_flops"] > BEYOND_CPU or rating["pct_roofline"] > FAR_BEYOND)
    cache = BEYOND * max(peaks.l2_bandwidth / (peaks.bandwidth or math.inf), 1.0)
    return bool(rating["pct_peak_flops"] > BEYOND or rating["pct_peak_bandwidth"] > cache)


def require_source(peaks: str) -> None:
    if peaks not in PEAK_SOURCES:
        raise ValueError(f"peaks must be one of {', '.join(map(repr, PEAK_SOURCES))}, not {peaks!r}")


def require_numbers(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= number < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, not {number!r}")
    if numbers.get("max_time") == 0:
        raise ValueError("max_time must be positive, not 0")
