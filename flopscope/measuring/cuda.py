"""Timing on a CUDA device: kernel times from CUPTI, or CUDA events around a call that is queued on the device."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from statistics import median
from typing import Any

from flopscope import _core
from flopscope.measuring.sampling import NoTime, Sample
from flopscope.support import capture
from flopscope.support.capture import ProfilerActivity
from flopscope.support.core_facts import WORK

CACHED = "it may cache its result; measure a function that launches at every call"
HOLD_SECONDS = 0.25  # maximum wait of the device while a call is launched; a call that synchronizes takes that long
SEPARATORS = ("flopscope_flush_l2", "flopscope_measure_mark")  # kernels between two samples
GRAPH_CALLS, GRAPH_REPLAYS = 20, 10
GRAPH_BYTES = 1 << 30  # maximum for all calls of a graph, whose results stay allocated
_RECIPE = capture.Recipe({ProfilerActivity.CUDA}, asked_for_cuda=True, timer="cupti", api_calls=False)


class LostRecords(RuntimeError):
    """Raised if CUPTI's records are incomplete."""


class Records:
    """CUPTI's records of the work in a block, read in parts: attaching CUPTI for each sample would take too long."""

    def __init__(self) -> None:
        self._recorder: Any = None

    def __enter__(self) -> Records:
        try:
            capture.start_core(_RECIPE, partial(setattr, self, "_recorder"))
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._recorder is not None:
            capture.stop_core(self._recorder)

    def forget(self) -> None:
        self._recorder.restart()

    def take(self) -> tuple[dict[str, Any], list[str], Sequence[str], int]:
        """Return columns, names and kinds as Store.events() does, and the number of lost records."""
        part = self._recorder.split()
        columns, names, kinds, _ = part.events()
        return columns, names, kinds, part.dropped


class CudaClock:
    """A Clock for functions that launch work on one CUDA device.

    records: the source of times, open CUPTI records; None: CUDA events.
    cold: flush the L2 cache before each sample, outside the timed region.
    mhz: reads the SM clock.
    """

    coarse = True

    def __init__(
        self,
        functions: Sequence[Callable[[], Any]],
        device: str,
        records: Records | None,
        cold: bool,
        mhz: Callable[[], float],
        core: Any = _core,
    ) -> None:
        self.records, self.holds = records, True
        """holds: whether the device waits while a call is launched; False once a call has waited for the device."""
        self._functions, self._device, self._cold, self._mhz, self._core = functions, device, cold, mhz, core

    def seconds(self) -> float:
        return time.perf_counter()

    def run(self, which: int, count: int) -> float:
        function = self._functions[which]
        begin = time.perf_counter()
        for _ in range(count):
            function()
        self._core.measure_wait(self._device)
        return time.perf_counter() - begin

    def sample(self, which: Sequence[int]) -> list[Sample]:
        if self.records is None:
            return [self._by_events(one) for one in which]
        return self._by_records(which, self.records)

    def _by_records(self, which: Sequence[int], records: Records) -> list[Sample]:
        records.forget()
        clocks = []
        for one in which:
            self._separate()
            self._functions[one]()
            self._core.measure_wait(self._device)
            clocks.append(self._mhz())
        columns, names, kinds, dropped = records.take()
        times = busy_times(columns, names, kinds, int(self._device.partition(":")[2]))
        if len(times) != len(which) or dropped:
            raise LostRecords(f"CUPTI recorded {len(times)} of {len(which)} calls and lost {dropped} records")
        if 0 in times:
            raise NoTime(
                f"in {times.count(0)} of {len(times)} samples the call launched nothing on {self._device}, although "
                f"its first call did: {CACHED}"
            )
        return [Sample(ns / 1e3, mhz) for ns, mhz in zip(times, clocks, strict=True)]

    def _separate(self) -> None:
        (self._core.measure_flush if self._cold else self._core.measure_mark)(self._device)
        self._core.measure_wait(self._device)

    def _by_events(self, which: int) -> Sample:
        self._separate()
        hold = HOLD_SECONDS if self.holds else 0.0
        ns, gave_up = self._core.measure_call(self._device, self._functions[which], hold)
        if gave_up:  # the time includes the wait
            self.holds = False
            return self._by_events(which)
        return Sample(ns / 1e3, self._mhz())


def busy_times(columns: Mapping[str, Any], names: Sequence[str], kinds: Sequence[str], device: int) -> list[int]:
    """Return the busy time of the device in ns between each separator and the next, in order of time.

    columns, names, kinds: as returned by Store.events(). Overlapping work counts once.
    """
    work = {number for number, kind in enumerate(kinds) if kind in WORK}
    separators = {number for number, name in enumerate(names) if any(part in name for part in SEPARATORS)}
    rows = zip(*(columns[name].tolist() for name in ("start", "duration", "kind", "device", "name")), strict=True)
    spans = sorted(
        (start, ns, name in separators) for start, ns, kind, at, name in rows if kind in work and at == device
    )
    times: list[int] = []
    reached = 0
    for start, ns, separates in spans:
        if separates:
            times.append(0)
        elif times:
            times[-1] += max(0, start + ns - max(start, reached))
        reached = max(reached, start + ns)
    return times


def held_bytes(device: str) -> int:
    """Return the bytes of device memory allocated by flopscope and torch."""
    total = _core.memory_allocated(device)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        with suppress(Exception):  # a torch without CUDA
            total += torch.cuda.memory_allocated(device)
    return total


class Graph:
    """A CUDA graph of up to 20 calls, to measure the time from one call to the next.

    native: whether all launches are from flopscope's ops; otherwise torch captures the graph. moved: bytes of a call,
    or NaN. Raises RuntimeError, with the reason, if the calls cannot be captured.
    """

    def __init__(self, call: Callable[[], Any], device: str, native: bool, moved: float) -> None:
        self._device = device
        self.calls = GRAPH_CALLS if moved != moved else max(1, min(GRAPH_CALLS, int(GRAPH_BYTES / max(moved, 1))))
        captured = _core.measure_graph(device, call, self.calls) if native else None
        self._replay = partial(_core.measure_replay, captured) if native else _torch_graph(call, device, self.calls)

    def check(self, records: Records, launches: int) -> None:
        """Raise RuntimeError unless the graph contains this number of launches for each call."""
        records.forget()
        self._replay()
        _core.measure_wait(self._device)
        columns, _, kinds, _ = records.take()
        recorded = sum(kinds[kind] in WORK for kind in columns["kind"].tolist())
        if recorded != self.calls * launches:
            raise RuntimeError(f"a graph of {self.calls} calls has {recorded} launches, not {self.calls} x {launches}")

    def launch_to_launch(self) -> float:
        """Return the time in µs. CUPTI must not be attached, since it slows graphs down.

        Raises RuntimeError if launching the graph waits for the device.
        """
        times = []
        for _ in range(GRAPH_REPLAYS):
            ns, gave_up = _core.measure_call(self._device, self._replay, HOLD_SECONDS)
            if gave_up:
                raise RuntimeError("launching the graph waits for the device")
            times.append(ns)
        return median(times) / 1e3 / self.calls


def _torch_graph(call: Callable[[], Any], device: str, calls: int) -> Callable[[], object]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        raise RuntimeError("only launches of flopscope's ops and torch can be captured")
    graph = torch.cuda.CUDAGraph()
    default = torch.cuda.default_stream(device)
    try:
        with on_default_stream(device), torch.cuda.device(device), torch.cuda.graph(graph):
            for _ in range(calls):
                call()
    except BaseException:  # torch then leaves its random numbers and its memory as amid a capture
        numbers = torch.cuda.default_generators[default.device_index]
        with suppress(Exception):
            numbers.graphsafe_set_state(numbers.clone_state())
            torch._C._cuda_endAllocateToPool(default.device_index, graph.pool())
        raise

    def replay() -> None:
        with torch.cuda.stream(default):
            graph.replay()

    return replay


@contextmanager
def on_default_stream(device: str) -> Iterator[None]:
    """Let torch launch on the default stream in the block, where events are: torch's other streams do not wait for it.

    After the block, its current stream is the one before, also where the capture of a graph failed and left another.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        yield
        return
    torch.cuda.synchronize(device)  # what is to be read may still be written
    with torch.cuda.stream(torch.cuda.default_stream(device)):
        yield


def devices_of(values: Iterable[Any]) -> set[str]:
    """Return the CUDA devices, as "cuda:0", of the values that have one: tensors of flopscope, torch and CuPy."""
    devices = set()
    for value in values:
        device: Any = getattr(value, "device", None)
        on_gpu = hasattr(device, "id") and getattr(device, "platform", "gpu") != "cpu"  # of CuPy and JAX
        text = f"cuda:{device.id}" if on_gpu else str(device)
        if text == "cuda" or text.startswith("cuda:"):
            devices.add("cuda:0" if text == "cuda" else text)
    return devices
