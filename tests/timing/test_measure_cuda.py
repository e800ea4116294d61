"""measure() and compare_times() on an imagined GPU: timing on CUDA."""

import math
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import flopscope as fs
from flopscope.measuring import cuda, stage
from flopscope.support.device import find_device
from flopscope.support.nvml import SmClock


def test_the_time_of_a_call_is_the_busy_time_between_marks() -> None:
    core = fs._core.Store()
    for name, start, ns in [
        ("early", 0, 50), ("flopscope_flush_l2", 100, 1000), ("a", 2000, 300),
        ("b", 2200, 300),  # 200 more than a
        ("flopscope_flush_l2", 4000, 1000), ("c", 6000, 70), ("d", 6100, 30),
        ("flopscope_measure_mark", 8000, 10),  # a call that launches nothing
    ]:  # fmt: skip
        fs._core._append(core, "kernel", name, start, ns, device=0)
    fs._core._append(core, "memcpy", "Memcpy", 6200, 5, device=0)
    fs._core._append(core, "kernel", "elsewhere", 6200, 500, device=1)
    fs._core._append(core, "runtime", "cudaLaunchKernel", 6200, 500)
    assert cuda.busy_times(*core.events()[:3], device=0) == [500, 105, 0]


class Gpu:
    """The functions of the C core that a CudaClock calls. A call takes 5 µs, or the whole wait of the device."""

    def __init__(self, synchronises: bool = False) -> None:
        self.synchronises = synchronises
        self.did: list[str] = []

    def measure_wait(self, device: str) -> None:
        self.did.append("wait")

    def measure_flush(self, device: str) -> None:
        self.did.append("flush")

    def measure_mark(self, device: str) -> None:
        self.did.append("mark")

    def measure_call(self, device: str, function: Callable[[], Any], hold: float) -> tuple[int, bool]:
        function()
        self.did.append(f"call, held {hold:g} s")
        return (int(hold * 1e9), True) if self.synchronises and hold else (5000, False)


def test_events_surround_a_call_that_is_queued_and_one_that_synchronizes_is_held_only_once() -> None:
    gpu = Gpu()
    clock = cuda.CudaClock([lambda: None], "cuda:0", None, True, lambda: 1980.0, gpu)
    assert clock.sample([0]) == [(5.0, 1980.0)]
    assert gpu.did == ["flush", "wait", f"call, held {cuda.HOLD_SECONDS:g} s"] and clock.holds
    gpu = Gpu(synchronises=True)
    clock = cuda.CudaClock([lambda: None], "cuda:0", None, False, lambda: math.nan, gpu)
    assert [sample.us for sample in clock.sample([0, 0, 0])] == [5.0] * 3
    assert not clock.holds and sum("0.25" in did for did in gpu.did) == 1


MARK, KERNEL = ("flopscope_measure_mark", 0, 10), ("a", 100, 3000)


def kernels(*kernels: tuple[str, int, int]) -> Any:
    core = fs._core.Store()
    for kernel in kernels:
        fs._core._append(core, "kernel", *kernel, device=0)
    return core


def test_lost_records_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    part = types.SimpleNamespace(events=kernels(MARK, KERNEL).events, dropped=0)
    stand_in = types.SimpleNamespace(
        split=lambda: part, stop=lambda: done.append("stop"), restart=lambda: done.append("restart"), running=True
    )
    monkeypatch.setattr("flopscope.support.capture.start_core", lambda recipe, keep: (keep(stand_in), "cupti"))
    gpu = Gpu()
    with cuda.Records() as records:
        clock = cuda.CudaClock([lambda: None], "cuda:0", records, False, lambda: 1500.0, gpu)
        assert clock.sample([0]) == [(3.0, 1500.0)] and gpu.did == ["mark", "wait", "wait"]
        with pytest.raises(cuda.LostRecords, match="1 of 2 calls"):
            clock.sample([0, 0])
        part.dropped = 1
        with pytest.raises(cuda.LostRecords, match="lost 1"):
            clock.sample([0])
    assert done == ["restart"] * 3 + ["stop"]


class FixedRecords:
    """Predefined records: a mark, a kernel of 3 µs, and a mark."""

    def forget(self) -> None: ...

    def take(self) -> tuple[Any, ...]:
        return (*kernels(MARK, KERNEL, ("flopscope_measure_mark", 5000, 10)).events()[:3], 0)


def test_a_call_that_launches_only_once_is_an_error_and_events_replace_lost_records() -> None:
    records: Any = FixedRecords()
    clock = cuda.CudaClock([lambda: None], "cuda:0", records, False, lambda: math.nan, Gpu())
    with pytest.raises(RuntimeError, match="in 1 of 2 samples the call launched nothing on cuda:0"):
        clock.sample([0, 0])
    here = stage.Stage(find_device("cpu"), [], [], "cupti", False, lambda calls: None, lambda: math.nan, math.nan)
    here.records = records
    samples = here.sampled(clock, lambda: clock.sample([0, 0, 0]))  # FixedRecords has records of two
    assert [sample.us for sample in samples] == [5.0] * 3
    assert here.source == "event" and here.records is clock.records is None
    assert here.notes == ["the times are from CUDA events: CUPTI recorded 2 of 3 calls and lost 0 records"]


def test_without_cuda_the_core_functions_raise() -> None:
    with pytest.raises(ValueError, match='device="cpu" is not a CUDA device'):
        fs._core.measure_wait("cpu")
    try:
        fs._core.cuda_device_count()
    except RuntimeError:
        for name, more in (("wait", ()), ("flush", ()), ("mark", ()), ("graph", (bool, 1)), ("call", (bool, 0.0))):
            with pytest.raises(RuntimeError):
                getattr(fs._core, f"measure_{name}")("cuda:0", *more)


def test_nvml_is_read_at_most_once_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def clock_info(device: str, what: int) -> int:
        read.append(device)
        return 1000 + len(read)

    calls = {"nvmlInit": lambda: None, "nvmlDeviceGetHandleByUUID": str, "nvmlDeviceGetClockInfo": clock_info}
    monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(**calls, NVML_CLOCK_SM=1))
    times = iter([0.0, 0.0005, 0.0015, 0.0015])
    clock = SmClock("GPU-1", now=lambda: next(times))
    assert clock.mhz() == 1001 and clock.mhz() == 1002 and read == ["GPU-1"] * 2 and not clock.missing
    monkeypatch.setitem(sys.modules, "pynvml", None)
    clock = SmClock("GPU-1")
    assert math.isnan(clock.mhz()) and "nvidia-ml-py" in clock.missing
