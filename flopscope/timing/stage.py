"""What must be settled before a call is timed: on which device it works, who tells its times, what may go wrong."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flopscope import _core
from flopscope.hardware import capture
from flopscope.support.safe import printable
from flopscope.timing.look import Look, call_under_profiler, notes_of

if TYPE_CHECKING:
    from flopscope.hardware.device import Device
    from flopscope.timing.cuda import Records

__all__ = ["MemoryWatch", "Stage", "name_of", "prepare", "require_callable"]

_T = TypeVar("_T")
MIB = 1 << 20
THROTTLED = 0.75  # of the device's clock, below which a sample does not count: NVBench's limit


@dataclass
class Stage:
    """Where and how functions are timed."""

    device: Device
    looks: list[Look]
    """One for each function."""
    source: Literal["cupti", "event", "cpu"]
    cold: bool
    watch: Callable[[int], None]
    mhz: Callable[[], float]
    """The SM clock now, NaN where it is not known."""
    throttled_below: float
    """MHz"""
    notes: list[str] = field(default_factory=list)
    timer: capture.Timer = "auto"
    records: Records | None = None
    """In recording(), where CUPTI tells the times."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """The block in which functions are sampled: where CUPTI tells the times it is attached."""
        if self.source != "cupti":
            yield
            return
        from flopscope.timing.cuda import Records

        with Records() as self.records:
            try:
                yield
            finally:
                self.records = None

    def call_between_samples(self, look: Callable[[], object]) -> None:
        """Call this too, where the watch is called."""
        watch = self.watch

        def both(calls: int) -> None:
            watch(calls)
            look()

        self.watch = both

    def sampled(self, clock: Any, sample: Callable[[], _T]) -> _T:
        """What sample() gives; where CUPTI loses records, from its beginning on and by CUDA events."""
        from flopscope.timing.cuda import LostRecords

        try:
            found = sample()
        except LostRecords as problem:
            if self.timer == "cupti":
                raise
            self.notes.append(f"CUDA events tell the times: {problem}")
            self.source, self.records, clock.records = "event", None, None
            found = sample()
        if self.source == "event" and not clock.holds:
            self.notes.append("the call waits for the device, so that the times between its events hold launches too")
        return found

    def clock(self, functions: Sequence[Callable[[], Any]], cold: bool) -> Any:
        """A Clock for these functions."""
        if self.device.kind == "cpu":
            from flopscope.timing.cpu import CpuClock, flusher

            return CpuClock(functions, flusher(int(self.device.properties["cache_bytes"])) if cold else None)
        from flopscope.timing.cuda import CudaClock

        return CudaClock(functions, str(self.device), self.records, cold, self.mhz)


def prepare(
    functions: Sequence[Callable[[], Any]],
    arguments: Sequence[Any],
    device: str | None,
    cache: str | None,
    timer: capture.Timer,
) -> Stage:
    """Call each function once (twice where there is a GPU: the first call compiles) and see what it does.

    What they raise passes. RuntimeError where a profile is running, or nothing is launched on the CUDA device that is
    named; ValueError where several devices work.
    """
    _refuse_a_profile()
    if cache not in (None, "cold", "hot"):
        raise ValueError(f'cache={cache!r}: there are "cold" and "hot"')
    if timer not in capture.TIMERS:
        raise ValueError(f"timer is one of {', '.join(map(repr, capture.TIMERS))}, not {timer!r}")
    from flopscope.hardware.device import find_device

    named = None if device is None else find_device(device)
    cuda = (named is None or named.kind == "cuda") and _cuda_is_here()
    looks = []
    for function in functions:
        if cuda:
            notes_of(function())
        looks.append(call_under_profiler(function, cuda, timer))
    unseen = cuda and not any(look.sees_cuda or look.devices or look.ops for look in looks)
    if named is None and unseen and timer == "event":
        named = find_device("cuda")
    where = find_device(_where(looks, arguments, None if named is None else str(named)))
    notes = list(dict.fromkeys(note for look in looks for note in look.notes))
    if named is None and unseen and where.kind == "cpu":
        notes.append(f"timed on the host: {_UNSEEN}")
    if where.kind == "cpu":
        return Stage(where, looks, "cpu", cache == "cold", MemoryWatch.of_host(), lambda: math.nan, math.nan, notes)
    return _on_cuda(where, looks, cache, timer, notes)


_UNSEEN = 'without CUPTI nobody sees whether the call works on a GPU; device="cuda" times it there'


def require_callable(fn: Any) -> None:
    """TypeError for what cannot be called again and again, as what a call has returned."""
    if not callable(fn):
        name = type(fn).__name__
        raise TypeError(
            f"what is measured is called again and again, and a {name} cannot be: hand on the function and its "
            "arguments, measure(fn, x), or a lambda, not what it returned, measure(fn(x))"
        )


def _on_cuda(where: Device, looks: list[Look], cache: str | None, timer: capture.Timer, notes: list[str]) -> Stage:
    from flopscope.timing.nvml import SmClock

    clock = SmClock(str(where.properties["uuid"]))
    if clock.missing:
        notes.append(clock.missing)
    by_cupti = timer != "event" and all(look.sees_cuda for look in looks)
    return Stage(
        device=where,
        looks=looks,
        source="cupti" if by_cupti else "event",
        cold=cache != "hot",
        watch=MemoryWatch.of_device(where),
        mhz=clock.mhz,
        throttled_below=THROTTLED * where.properties["clock_khz"] / 1e3 or math.nan,
        notes=notes,
        timer=timer,
    )


def _where(looks: Sequence[Look], arguments: Sequence[Any], named: str | None) -> str:
    """The device that the functions work on."""
    if named == "cpu":
        return named
    from flopscope.timing.cuda import devices_of

    found = {device for look in looks for device in look.devices}
    lie_on = devices_of(arguments)
    if not all(look.sees_cuda for look in looks):
        found |= lie_on | ({named} if named else set())
    else:
        _require_launches({named} if named else set() if found else lie_on, found)
    if named:
        return named
    if len(found) > 1:
        raise ValueError(f"the call works on {', '.join(sorted(found))}: name the one to measure, device=…")
    return found.pop() if found else "cpu"


def _require_launches(wanted: set[str], found: set[str]) -> None:
    missing = ", ".join(sorted(wanted - found))
    if missing:
        raise RuntimeError(
            f'the call launched nothing on {missing}; measure it with device="cpu" for the time that the host takes'
        )


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return printable(str(getattr(function, "__name__", None) or type(function).__name__))


class MemoryWatch:
    """Called between samples: raises MemoryError once more than ``most`` bytes are held that were not before."""

    def __init__(self, held: Callable[[], int], most: int, where: str) -> None:
        self._held, self._most, self._where, self._before = held, most, where, held()

    def __call__(self, calls: int) -> None:
        grown = self._held() - self._before
        if grown > self._most:
            raise MemoryError(
                f"the call keeps what it allocates: {grown / MIB:,.0f} MiB more on {self._where} after {calls} "
                "samples or fewer; let it drop its results, or write them to memory that is there already"
            )

    @classmethod
    def of_host(cls) -> MemoryWatch:
        from flopscope.hardware.device import find_device, free_bytes

        return cls(_resident_bytes, free_bytes(find_device("cpu")) // 4, "the host")

    @classmethod
    def of_device(cls, device: Device) -> MemoryWatch:
        from flopscope.hardware.device import free_bytes
        from flopscope.timing.cuda import held_bytes

        return cls(lambda: held_bytes(str(device)), free_bytes(device), str(device))


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0


def _cuda_is_here() -> bool:
    with suppress(RuntimeError):
        _core.load_driver()
    return _core.cuda_is_here()


def _refuse_a_profile() -> None:
    from flopscope.sources import profiler

    if profiler.running() is not None:
        raise RuntimeError("a profile is in progress, whose cost would be in the times: end it before measuring")
