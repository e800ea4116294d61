"""Setup before a call is timed: the device that it uses, the source of times, and the limit on memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from flopscope import _core
from flopscope.measuring.cuda import CACHED, CudaClock, LostRecords, Records, devices_of, held_bytes, on_default_stream
from flopscope.measuring.look import Look, call_under_profiler, with_known_work
from flopscope.measuring.sampling import CpuClock, NoTime, flusher, warm_up
from flopscope.record.profile import make_way, running
from flopscope.support import capture
from flopscope.support.device import Device, find_device
from flopscope.support.nvml import SmClock
from flopscope.support.peak_timing import free_bytes
from flopscope.support.safe import printable

_T = TypeVar("_T")
MIB = 1 << 20
WARM_UP_SECONDS = {"cpu": 0.01, "cuda": 0.015}  # minimum, for clocks to rise and caches to fill
WARM_UP_SHARE = 0.3  # maximum of all functions, as a share of max_time
THROTTLED = 0.75  # share of the device's clock below which a sample is discarded; NVBench uses the same limit


@dataclass
class Stage:
    """The device and the methods by which functions are timed."""

    device: Device
    calls: list[Callable[[], Any]]
    """The functions, which wait for results of JAX before they return."""
    looks: list[Look]
    source: Literal["cupti", "event", "cpu"]
    cold: bool
    watch: Callable[[int], None]
    """Called between samples with their number."""
    mhz: Callable[[], float]
    """Reads the SM clock in MHz; NaN where it is unknown."""
    throttled_below: float
    """Clock in MHz below which a sample counts as throttled; NaN where it is unknown."""
    notes: list[str] = field(default_factory=list)
    timer: capture.Timer = "auto"
    records: Records | None = None
    """CUPTI's records, inside recording() and if CUPTI is the source of times."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Attach CUPTI in the block if it is the source of times. Functions are sampled in this block."""
        with ExitStack() as opened:
            if self.device.kind == "cuda":
                opened.enter_context(on_default_stream(str(self.device)))
            if self.source == "cupti":
                self.records = opened.enter_context(Records())
                opened.callback(setattr, self, "records", None)
            yield

    def warm_up(self, clock: Any, max_time: float) -> list[float]:
        """Warm up the functions of a clock, and choose its batches on a CPU. Return the seconds per call of each."""
        shortest = min(WARM_UP_SECONDS[self.device.kind], max_time)
        longest = WARM_UP_SHARE * max_time / len(self.looks)
        per_call = [warm_up(clock, which, shortest, longest, self.watch) for which in range(len(self.looks))]
        if self.device.kind == "cpu":
            clock.settle(per_call)
        return per_call

    def call_between_samples(self, look: Callable[[], object]) -> None:
        """Call this function as well whenever the watch is called."""
        watch = self.watch

        def both(calls: int) -> None:
            watch(calls)
            look()

        self.watch = both

    def sampled(self, clock: Any, sample: Callable[[], _T]) -> _T:
        """Return the result of sample(). If CUPTI loses records, switch to CUDA events and start again."""
        try:
            result = sample()
        except LostRecords as problem:
            if self.timer == "cupti":
                raise
            self.notes.append(f"the times are from CUDA events: {problem}")
            self.source, self.records, clock.records = "event", None, None
            result = sample()
        if self.source == "event" and not clock.holds:
            self.notes.append("the call waits for the device, so the times between its events include launches")
        return result

    def clock(self, functions: Sequence[Callable[[], Any]], cold: bool) -> Any:
        if self.device.kind == "cpu":
            return CpuClock(functions, flusher(int(self.device.properties["cache_bytes"])) if cold else None)
        return CudaClock(functions, str(self.device), self.records, cold, self.mhz)


def prepare(
    functions: Sequence[Callable[[], Any]],
    arguments: Sequence[Any],
    device: str | None,
    cache: str | None,
    timer: capture.Timer,
) -> Stage:
    """Call each function once under the profiler, after a first call for compilation if there is a GPU.

    Exceptions of the functions propagate. Raises RuntimeError if a profile is running or nothing is launched on the
    given CUDA device, and ValueError if the functions use several devices.
    """
    make_way("flopscope.measure")
    if running() is not None:
        raise RuntimeError("a profile is in progress, and its overhead would distort the times; stop it first")
    if cache not in (None, "cold", "hot"):
        raise ValueError(f'cache must be "cold" or "hot", not {cache!r}')
    if timer not in capture.TIMERS:
        raise ValueError(f"timer must be one of {', '.join(map(repr, capture.TIMERS))}, not {timer!r}")
    named = None if device is None else find_device(device)
    cuda = named is None or named.kind == "cuda"
    if cuda:
        with suppress(RuntimeError):
            _core.load_driver()
        cuda = _core.cuda_is_here()
    calls, looks = [], []
    for function in functions:
        look = call_under_profiler(function, cuda, timer)  # with a GPU, this call is for compilation
        calls.append(_until_ready(function) if look.of_jax else function)
        first, look = look, call_under_profiler(calls[-1], cuda, timer) if cuda else look
        if first.launches and not look.launches:
            raise NoTime(f"the call launched nothing, although the one before it launched work: {CACHED}")
        looks.append(look)
    unseen = cuda and not any(look.sees_cuda or look.devices or look.ops for look in looks)
    if named is None and unseen and timer == "event":
        named = find_device("cuda")
    where = find_device(_where(looks, arguments, None if named is None else str(named)))
    pairs = zip(looks, functions, strict=True)
    looks = [with_known_work(look, function, where.kind == "cuda") for look, function in pairs]
    notes = list(dict.fromkeys(note for look in looks for note in look.notes))
    if named is None and unseen and where.kind == "cpu":
        notes.append(f"timed on the host: {_UNSEEN}")
    if named is None and where.kind == "cpu" and (there := sorted({one for look in looks for one in look.returned_on})):
        notes.append(f"timed on the host: the call returns data on {', '.join(there)}, but launched nothing there")
    if where.kind == "cpu":
        watch = memory_watch(where)
        return Stage(where, calls, looks, "cpu", cache == "cold", watch, lambda: math.nan, math.nan, notes)
    clock = SmClock(str(where.properties["uuid"]))
    if clock.missing:
        notes.append(clock.missing)
    return Stage(
        device=where,
        calls=calls,
        looks=looks,
        source="cupti" if timer != "event" and all(look.sees_cuda for look in looks) else "event",
        cold=cache != "hot",
        watch=memory_watch(where),
        mhz=clock.mhz,
        throttled_below=THROTTLED * where.properties["clock_khz"] / 1e3 or math.nan,
        notes=notes,
        timer=timer,
    )


def _until_ready(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that also waits for the arrays of JAX that it returns."""
    jax: Any = sys.modules["jax"]

    def call() -> Any:
        return jax.block_until_ready(function())

    call.__name__ = name_of(function)
    return call


_UNSEEN = 'without CUPTI it is unknown whether the call uses a GPU; device="cuda" times it there'


def require_callable(fn: Any) -> None:
    """Raise TypeError if fn is not callable, as for the result of a call."""
    if not callable(fn):
        name = type(fn).__name__
        raise TypeError(
            f"fn must be callable, and {name} is not: pass the function and its arguments, measure(fn, x), or a "
            "lambda, not the result of a call, measure(fn(x))"
        )


def _where(looks: Sequence[Look], arguments: Sequence[Any], named: str | None) -> str:
    if named == "cpu":
        return named
    used = {device for look in looks for device in look.devices}
    holding = devices_of(arguments)
    if not all(look.sees_cuda for look in looks):
        used |= holding | ({named} if named else set())
    else:
        missing = ({named} if named else set() if used else holding) - used
        if missing:
            what = f"the call launched nothing on {', '.join(sorted(missing))}"
            raise RuntimeError(f'{what}; measure it with device="cpu" for its time on the host')
    if named:
        return named
    if len(used) > 1:
        raise ValueError(f"the call uses {', '.join(sorted(used))}: name the one to measure, device=…")
    return used.pop() if used else "cpu"


def name_of(function: Callable[..., Any]) -> str:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return printable(str(getattr(function, "__name__", None) or type(function).__name__))


def memory_watch(device: Device) -> Callable[[int], None]:
    """Return a function to call between samples: it raises MemoryError if calls have added more memory than there is
    room for, a quarter of that on a host."""
    on_host = device.kind == "cpu"
    allocated = _resident_bytes if on_host else partial(held_bytes, str(device))
    most, before = free_bytes(device) // (4 if on_host else 1), allocated()

    def watch(calls: int) -> None:
        if (grown := allocated() - before) > most:
            raise MemoryError(
                f"the call keeps the memory that it allocates: {grown / MIB:,.0f} MiB more on "
                f"{'the host' if on_host else device} after at most {calls} samples; let it release its results, or "
                "write them to preallocated memory"
            )

    return watch


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
