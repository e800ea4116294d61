"""Hardware counters during a profile: PM sampling of the devices that it uses, or sampling of instructions."""

from __future__ import annotations

import atexit
import functools
import linecache
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flopscope import _core
from flopscope.support.capture import may_evict, why_not_loaded
from flopscope.support.columns import cut_end
from flopscope.support.nvml import Energy, EnergyMeter
from flopscope.support.package import warn_user
from flopscope.support.process import start_thread

if TYPE_CHECKING:
    from flopscope._core import Store

CountersWish = bool | Literal["require"]

LEAST_US, MOST_US = 1.0, 1e6
PATIENCE, AGAIN = 0.05, 0.1
"""Seconds of one wait for the program's first device, and between two looks for another one."""


def check_counters(counters: Any, interval_us: Any) -> int:
    """Return the interval in ns, 0 to adapt. Raise ValueError or TypeError for arguments of ``profile()``."""
    if counters not in (True, False, "require"):
        raise ValueError(f'counters must be True, False or "require", not {counters!r}')
    if interval_us is None:
        return 0
    if isinstance(interval_us, bool) or not isinstance(interval_us, Real):
        raise TypeError(f"counter_interval_us must be a number of µs or None, not {interval_us!r}")
    if not LEAST_US <= float(interval_us) <= MOST_US:
        raise ValueError(f"counter_interval_us must be 1 µs to 1 s, not {interval_us!r}")
    if not counters:
        raise ValueError(f"counter_interval_us={interval_us!r} needs counters=True")
    return round(1000 * float(interval_us))


@functools.cache
def why_no_counters() -> str | None:
    """Return why CUPTI cannot count, or None if it is loaded and there is a device. Computed once per process."""
    return _why_not_loaded() or (None if _core.cuda_is_here() else "there is no CUDA device")


def _why_not_loaded() -> str | None:
    """Load CUPTI's records of activity, which counters wake it with, and its counters. Return why that fails."""
    return why_not_loaded(_core.load_cupti) or why_not_loaded(_core.load_counters)


class Counters:
    """The samplers of a profile, one for each device in use.

    ``start()`` warns and returns False where nothing can be counted, or raises RuntimeError if counters are required.
    A device whose counters are unavailable does not keep the others from being counted. ``begins_live``: for a whole
    program, whose first 0.1 s are not typical of it.
    """

    def __init__(self, wish: CountersWish, interval_ns: int = 0, *, begins_live: bool = False) -> None:
        self._wish, self._interval_ns, self._begins_live = wish, interval_ns, begins_live
        self._samplers: list[_core.Sampler] = []
        self._meters: dict[int, EnergyMeter] = {}
        self.energy: dict[str, Energy] = {}
        """Energy of each device from start() to stop(), by "cuda:0"."""
        self.refused = False
        """Whether a warning said why counters are unavailable."""

    def start(self) -> bool:
        """Start counting on all devices in use, or on the first if none is."""
        if (why := why_no_counters()) is not None:
            return self.refuse(why)
        reasons = self._count_on(_core.active_devices() or [0])
        try:
            return self.refuse("; ".join(reasons)) if reasons else True
        except RuntimeError:
            self.stop()
            raise

    def _count_on(self, devices: Iterable[int]) -> list[str]:
        """Start to count on devices, on all at the same time. Return why that is impossible on some of them."""
        opened, reasons = {}, []
        for device in devices:
            sampler = _core.Sampler(device, self._interval_ns, begins_live=self._begins_live)
            try:
                sampler.open()
                opened[device] = sampler
            except RuntimeError as problem:
                reasons.append(f"cuda:{device}: {problem}")
        meters = {device: EnergyMeter(_uuid(device)) for device in opened}  # which takes a part of the first window
        for device, sampler in opened.items():
            try:
                sampler.start()
            except RuntimeError as problem:
                reasons.append(f"cuda:{device}: {problem}")
                continue
            self._samplers.append(sampler)
            _counting.add(self)
            self._meters[device] = meters[device]
        return reasons

    def refuse(self, why: str) -> bool:
        """Warn that there are no counters, or raise RuntimeError if they are required; return whether some count."""
        if self._wish == "require":
            raise RuntimeError(f"hardware counters are unavailable ({why})")
        self.refused = True
        has = "has those of other devices" if self._samplers else "has none"
        warn_user(f"hardware counters are unavailable, and the profile {has} ({why})")
        return bool(self._samplers)

    def stop(self) -> None:
        """Wait for the devices and stop counting. Warn of failures and losses."""
        if not self._samplers:
            return
        with suppress(RuntimeError):  # the profile reports a device that failed
            _core.wait_for_devices()
        self.energy = {f"cuda:{device}": meter.read() for device, meter in self._meters.items()}
        for sampler in self._samplers:
            try:
                sampler.stop()
            except RuntimeError as problem:
                warn_user(f"counting ended early: {problem}")
            report = sampler.report
            if report["overflows"]:
                lost = f"about {report['lost']} samples" if report["lost"] else "some samples"
                warn_user(
                    f"buffers of the counters of cuda:{report['device']} were full {report['overflows']} times, and "
                    f"{lost} were lost; a longer counter_interval_us or a shorter profile loses none"
                )

    def pour(self, store: Store, begin: int | None = None) -> None:
        """Append the samples to the store of the profile, those from ``begin`` on (ns of its clock)."""
        since = () if begin is None else (begin,)
        for sampler in self._samplers:
            sampler.pour(store, *since)


class LateCounters(Counters):
    """Counters of a program that has yet to use CUDA, which they never initialize.

    A thread waits until the program creates a context, and then starts to count on its device; so on each of several.
    What runs until then is not counted: starting takes about half a second. ``stop()`` warns of what went wrong.
    """

    def __init__(self, wish: CountersWish, interval_ns: int = 0, *, begins_live: bool = False) -> None:
        super().__init__(wish, interval_ns, begins_live=begins_live)
        self._over = threading.Event()
        self._reasons: list[str] = []
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Begin to wait for the program. A capture must be running."""
        _core.watch_contexts()
        self._thread = start_thread(self._watch, "flopscope-counters")
        return True

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        super().stop()
        if self._reasons:
            self.refuse("; ".join(self._reasons))

    def _watch(self) -> None:
        """Count on each device as soon as it is used."""
        seen: set[int] = set()
        while not self._over.wait(AGAIN if seen else 0):
            for device in sorted({*_core.used_devices(0 if seen else PATIENCE)} - seen):
                seen.add(device)
                why = _why_not_loaded()
                self._reasons += [why] if why else self._count_on([device])


_counting: weakref.WeakSet[Counters] = weakref.WeakSet()


def _stop_all() -> None:
    """Stop counting before the process ends: CUPTI must not be used while its library is unloaded."""
    for counters in list(_counting):
        for sampler in counters._samplers:
            with suppress(RuntimeError):
                sampler.stop()
    with suppress(RuntimeError):
        _core.stop_pc_sampling()


atexit.register(_stop_all)


def _uuid(device: int) -> str:
    """Return the UUID of a device; "" where flopscope was built without CUDA."""
    from flopscope.support.device import find_device

    try:
        return str(find_device(f"cuda:{device}").properties["uuid"])
    except (RuntimeError, ValueError):
        return ""


# Instructions ---------------------------------------------------------------------------------------------------------

MEMORY, SHARED, BARRIER = "memory", "shared memory or special functions", "a barrier"
STALLS = {
    MEMORY: ("stall_long_scoreboard",),
    "room in the memory queue": ("stall_memory_queue",),
    SHARED: ("stall_short_scoreboard", "stall_mio"),
    BARRIER: ("stall_barrier",),
    "its writes to be seen": ("stall_membar", "stall_drain"),
    "tensor cores": ("stall_gmma", "warpgroup_arrive"),
    "a busy arithmetic unit": ("stall_math_pipe",),
    "results of arithmetic": ("stall_wait",),
    "others, which issue": ("stall_not_selected",),
    "instructions": ("stall_no_instruction", "stall_branch"),
    "the dispatcher": ("stall_dispatch",),
}
"""What warps wait for, and the counters of warps that do, per issued instruction; or reasons that are only sampled."""
HOT, HOTTEST = 5.0, 3
"""Percent of its kernel's samples from which a line is hot, and how many of them are named."""
OFTEN, SELDOM = 12, 14
"""Binary logarithms of the cycles between samples: of a call, whose loops may keep step with more; of a program."""
STALL_STEPS, MOST_STALLED = 10, 5
"""Steps of a program in which instructions are sampled, and how many kernels its summary has of that."""
Row = tuple[str, str | None, int, int, int, Mapping[str, int], str]
"""Samples of a line: its kernel, file, line, the offset of an instruction, the samples, those by reason, and the name
of the instruction."""


class Line(NamedTuple):
    """Where the warps of a kernel were in some of their samples."""

    kernel: str
    file: str | None
    """None: the kernel was compiled without lines (nvcc: -lineinfo)."""
    line: int
    """0: unknown."""
    offset: int
    """Of the instruction in the code of the kernel, in bytes, if the line is unknown."""
    instruction: str
    """Its name then, with the bits of an access, as "LDG.128"; "" for arithmetic, or if it is unknown."""
    share: float
    """Percent of the kernel's samples."""
    waits_for: str
    """What its warps mostly wait for, one of STALLS; "": they issue."""
    wait: float
    """Percent of the samples of the line in which they do."""
    source: str
    """The text of the line; "" if it is unknown."""

    def __str__(self) -> str:
        instruction = self.instruction or "instruction"
        where = f"{Path(self.file).name}:{self.line}" if self.file else f"{instruction} {self.offset:#x}"
        waits = f" ({self.wait:.0f} % of it wait for {self.waits_for})" if self.waits_for else ""
        return f"{self.share:.0f} % at {where}{waits}{f': {self.source}' if self.source else ''}"


class KernelStalls(NamedTuple):
    """What the warps of a kernel did in all samples of it."""

    kernel: str
    samples: int
    share: float
    """Percent of all samples."""
    issues: float
    """Percent of its samples in which a warp issues an instruction."""
    waits: Mapping[str, float]
    """Percent of its samples by what warps wait for, of STALLS, the longest first."""
    lines: tuple[Line, ...]
    """Where most of its samples are: three lines at most."""
    code: Mapping[str, int]
    """How many instructions of each kind its code has, as "4-byte loads"; {}: unknown."""

    def facts(self) -> list[str]:
        waits = [f"{percent:.0f} % {what}" for what, percent in self.waits.items() if percent >= HOT]
        issues = f"issues {self.issues:.0f} %, waits for {', '.join(waits) or 'nothing'}"
        return [issues, *map(str, self.lines), *([f"its code has {code_text(self.code)}"] if self.code else [])]

    def __str__(self) -> str:
        return "\n       ".join([f"{self.share:3.0f} %  {cut_end(self.kernel, 100)}", *self.facts()])


def code_text(code: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in code.items())


class Stalls(tuple[KernelStalls, ...]):
    """What the warps of kernels waited for, those with most samples first; pandas makes it a table."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no instruction was sampled"


def by_kernel(rows: Sequence[Row], codes: Mapping[str, Mapping[str, int]]) -> Stalls:
    """Return what the samples of lines, and the codes of kernels, say of each kernel."""
    kernels: dict[str, list[Row]] = {}
    for row in rows:
        kernels.setdefault(row[0], []).append(row)
    every = sum(row[4] for row in rows)
    found = (_stalls_of(name, own, every, codes.get(name, {})) for name, own in kernels.items())
    return Stalls(sorted(found, key=lambda one: -one.samples))


def _stalls_of(kernel: str, rows: Sequence[Row], every: int, code: Mapping[str, int]) -> KernelStalls:
    samples = sum(row[4] for row in rows)
    issued = 100 * sum(row[5].get("selected", 0) for row in rows) / samples
    hot = sorted((row for row in rows if 100 * row[4] >= HOT * samples), key=lambda row: -row[4])[:HOTTEST]
    lines = tuple(_line(row, samples) for row in hot)
    return KernelStalls(kernel, samples, 100 * samples / every, issued, _waits_of(rows, samples), lines, code)


def _waits_of(rows: Sequence[Row], samples: int) -> dict[str, float]:
    """Return the percent of the samples in which warps wait, by what they wait for, the longest first."""
    waits = {what: sum(row[5].get(name, 0) for row in rows for name in names) for what, names in STALLS.items()}
    return {what: 100 * count / samples for what, count in sorted(waits.items(), key=lambda i: -i[1]) if count}


def _line(row: Row, of: int) -> Line:
    kernel, file, line, offset, samples, _, instruction = row
    longest = next(iter(_waits_of([row], samples).items()), ("", 0.0))
    source = "" if file is None else linecache.getline(file, line).strip()
    return Line(kernel, file, line, 0 if file else offset, instruction, 100 * samples / of, *longest, source)


def start_stalls(devices: Sequence[int], period: int = OFTEN) -> None:
    """Begin to sample where the warps on the first of the devices are. RuntimeError says why that is unavailable."""
    if (why := why_no_counters() or (None if devices else "no GPU is in use yet")) is not None:
        raise RuntimeError(why)
    _core.start_pc_sampling(devices[0], period, may_evict())


def try_stalls(tell: Callable[[str], object]) -> bool:
    """Begin to sample a program's kernels, or tell why that is unavailable. Return whether they are sampled."""
    try:
        start_stalls(_core.active_devices(), SELDOM)
    except (RuntimeError, MemoryError) as problem:
        tell(f"no instructions are sampled: {problem}")
        return False
    return True


def stop_stalls(tell: Callable[[str], object]) -> Stalls:
    """Return what was sampled, and tell of what was not."""
    with suppress(RuntimeError):  # who works on the device learns that it failed
        _core.wait_for_devices()
    try:
        rows, codes, lost, unknown = _core.stop_pc_sampling()
    except (RuntimeError, MemoryError) as problem:
        tell(f"no instructions were sampled: {problem}")
        return Stalls()
    if lost or not rows:
        tell(f"sampled instructions: {len(rows):,} places; {lost:,} were lost, {unknown:,} of kernels unknown to CUPTI")
    return by_kernel(rows, codes)


class StepStalls:
    """Instructions that are sampled in some steps of a program, if that is wanted, once nothing else records it."""

    def __init__(self, wanted: bool, tell: Callable[[str], object]) -> None:
        self._wanted, self._tell = wanted, tell
        self._times: _core.StepTimes | None = None  # while instructions are sampled
        self.rows: list[tuple[str, float, str]] = []  # what RunSteps has of it

    def step(self, times: _core.StepTimes, count: int) -> bool:
        """A step has ended that nothing else recorded. Return what times.step() says of it, False if it is sampled."""
        found = times.step(count)
        if self._wanted:
            self._wanted = False
            if try_stalls(self._tell):
                self._times = times
                times.begin()
        elif self._times is not None:
            if times.recorded_count >= STALL_STEPS:
                self.end()
            return False
        return found

    def end(self) -> None:
        if self._wanted:
            self._wanted = False
            self._tell("no instructions were sampled: no step came after those that are recorded")
        if self._times is None:
            return
        times, self._times = self._times, None
        most = stop_stalls(self._tell)[:MOST_STALLED]
        self.rows = [(one.kernel, one.share, "; ".join(one.facts())) for one in most]
        times.end()
        times.go_on()
