"""measure() and compare_times(): their results and errors. Timing on CUDA is in test_measure_cuda.py."""

import itertools
import json
import math
import mmap
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flopscope as fs
from flopscope.measuring import cuda, stage
from flopscope.measuring.look import look_at
from flopscope.measuring.measurement import Measurement, Shares
from flopscope.measuring.measuring import measure
from flopscope.measuring.paired import TimesCompared, compare_times
from flopscope.measuring.sampling import RESOLUTIONS, CpuClock, flusher
from flopscope.support.peaks import Peaks

PEAKS = Peaks("measured", {"fp32": 1e12, "bf16_tensor": 10e12}, bandwidth=100e9, launch_ns=300.0, kernel_ns=1000.0)


@pytest.fixture(autouse=True)
def imagined_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopscope.support.device.cached_peaks", lambda device: PEAKS)


def quick(fn: Callable[..., Any], *args: Any, **options: Any) -> Measurement:
    return measure(fn, *args, **{"max_time": 0.05, "min_time": 0.001, **options})


def square(n: int) -> fs.Tensor:
    return fs.from_numpy(np.ones((n, n), np.float32))


# On the CPU -----------------------------------------------------------------------------------------------------------


def test_the_numbers_of_an_op_are_consistent() -> None:
    x = square(200)
    m = quick(fs.add, x, square(200))
    assert (m.name, m.device, m.timing_source, m.cache) == ("add", "cpu", "cpu", "hot")
    assert 0 < m.min <= m.ci[0] <= m.median <= m.ci[1] <= m.max and m.n == len(m.samples) >= 3
    assert m.flops == 200 * 200 and m.bytes_total_moved == 3 * 4 * 200 * 200
    assert m.gbytes_per_s == pytest.approx(m.bytes_total_moved / m.median / 1e3)
    assert m.tflops_per_s == pytest.approx(m.flops / m.median / 1e6) and m.arithmetic_intensity == pytest.approx(1 / 12)
    memory_us = m.bytes_total_moved / 100e9 * 1e6
    assert m.pct_peak_bandwidth == pytest.approx(100 * memory_us / m.median) == m.pct_roofline
    assert m.pct_peak_flops == pytest.approx(100 * 0.04 / m.median)


def test_the_work_of_a_call_is_recorded_or_stated() -> None:
    x, a = square(64), np.ones(1000)
    m = quick(lambda: fs.relu(fs.matmul(x, x)))
    assert m.flops == 2 * 64**3 + 64**2 and m.bytes_total_moved == (2 + 2) * 4 * 64**2, "the work of ops adds up"
    m = quick(fs.add, x, x, bytes=7)
    assert (m.flops, m.bytes_total_moved, m.unit) == (64**2, 7, "fp32"), "other values are as recorded"
    m = quick(lambda: a + a)
    assert math.isnan(m.flops) and math.isnan(m.pct_roofline) and m.bound == "unknown" and not m.shares
    assert "pass flops= and bytes=" in m.verdict
    m = quick(lambda: a + a, flops=np.prod(a.shape), bytes=np.int64(24000), unit="fp32", max_time=np.float32(0.05))
    assert (m.flops, m.bytes_total_moved) == (1000, 24000) and m.pct_roofline == pytest.approx(24 / m.median)
    json.dumps(m.to_dict())
    m = quick(fs.neg, x, peaks="none")
    assert not m.shares and math.isnan(m.pct_roofline) and not math.isnan(m.gbytes_per_s)


def test_exceptions_of_any_call_propagate() -> None:
    turn = itertools.count()

    def fails_late() -> None:
        if next(turn) == 7:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quick(fails_late)
    with pytest.raises(ZeroDivisionError):
        compare_times(lambda: None, lambda: 1 / 0)
    quick(lambda: None)  # nothing is left running


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flops": -1}, "flops must be a finite number of at least 0, not -1"),
        ({"bytes": math.nan}, "bytes must be a finite number of at least 0, not nan"),
        ({"max_time": 0}, "max_time must be positive"),
        ({"spread": "1"}, "spread must be a finite number of at least 0, not '1'"),
        ({"cache": "warm"}, "cache must be .*, not 'warm'"),
        ({"timer": "sundial"}, "timer must be one of .*, not 'sundial'"),
        ({"peaks": "guessed"}, "peaks must be one of .*, not 'guessed'"),
        ({"unit": "fp33", "flops": 1}, "unit must be one of .*, not 'fp33'"),
        ({"unit": "fp32"}, "unit='fp32' needs flops="),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(lambda: None, **options)


def test_the_result_of_a_call_is_rejected() -> None:
    x = square(8)
    for call, kind in (
        (lambda: quick(fs.add(x, x)), "Tensor is not: pass the function and its arguments"),
        (lambda: quick(fs.add(x, x), x), "Tensor is not"),
        (lambda: compare_times(lambda: None, None), "NoneType is not"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=f"must be callable, and {kind}"):
            call()
    with fs.profile(), pytest.raises(RuntimeError, match="profile is in progress"):
        quick(lambda: None)


@pytest.mark.filterwarnings("error")
def test_coroutines_and_generators_are_reported() -> None:
    async def waits() -> None:
        raise AssertionError

    def yields() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"coroutine.* asyncio\.run"):
        quick(waits)
    assert any("returns a generator" in note for note in quick(yields).notes)
    assert not any("generator" in note for note in quick(lambda: list(yields())).notes)


def test_growing_memory_raises_MemoryError(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []
    monkeypatch.setattr(stage, "_resident_bytes", lambda: len(allocated) << 20)
    monkeypatch.setattr(stage, "free_bytes", lambda device: 36 << 20)
    with pytest.raises(MemoryError, match=r"keeps the memory that it allocates: 1\d MiB more on the host"):
        quick(lambda: allocated.append(1) if len(allocated) < 30 else None)


def test_resident_memory_is_reported() -> None:
    size = 1 << 26
    before = stage._resident_bytes()
    with mmap.mmap(-1, size) as fresh:
        for at in range(0, size, mmap.PAGESIZE):
            fresh[at] = 1
        assert 0.9 * size < stage._resident_bytes() - before < 2 * size


def test_two_calls_are_compared() -> None:
    times = compare_times(lambda: sum(range(20_000)), lambda: sum(range(200)), max_time=1)
    assert times.verdict == "slower" and times.ci[0] <= times.ratio <= times.ci[1] and times.ratio > 2
    assert "is slower than <lambda>: " in str(times)
    assert json.loads(json.dumps(times.to_dict()))["rounds"] == times.rounds
    assert isinstance(times, TimesCompared) and len(times.ratios) == times.rounds


# The clock of the CPU -------------------------------------------------------------------------------------------------


class Ticks:
    """A clock that advances by `step` ns at each reading; calls advance it as well."""

    def __init__(self, step: int) -> None:
        self.step, self.ns = step, 0

    def __call__(self) -> int:
        self.ns += self.step
        return self.ns


def test_short_calls_are_timed_in_batches() -> None:
    ticks = Ticks(50)

    def call() -> None:
        ticks.ns += 200

    clock = CpuClock([call, lambda: None], now=ticks)
    clock.settle([clock.run(0, 10) / 10, 1.0])
    assert clock.batches == [pytest.approx(RESOLUTIONS * 50 / 200, rel=0.05), 1]
    assert clock.sample([0])[0].us == pytest.approx(0.2, rel=0.01)


def test_caches_are_flushed_outside_the_timed_region() -> None:
    ticks, order = Ticks(1), []

    def flush() -> None:
        ticks.ns += 1_000_000
        order.append("flush")

    def call() -> None:
        ticks.ns += 3000
        order.append("call")

    clock = CpuClock([call], flush, now=ticks)
    clock.settle([3e-6])
    samples = clock.sample([0, 0])
    assert order == ["flush", "call"] * 2 and [s.us for s in samples] == [pytest.approx(3, rel=0.01)] * 2


def test_flushing_writes_all_of_a_buffer() -> None:
    flush = flusher(1 << 20)
    flush()
    assert flush.__closure__ is not None
    buffer = next(cell.cell_contents for cell in flush.__closure__ if isinstance(cell.cell_contents, np.ndarray))
    assert buffer.nbytes >= 64 << 20 and (buffer == 1).all()


# The activity of a call -----------------------------------------------------------------------------------------------


def test_the_work_of_kernels_without_an_op_is_unknown() -> None:
    core = fs._core.Store()
    op = fs._core._append(core, "op", "flopscope::add", 0, 10_000, thread=1)
    fs._core._append(core, "kernel", "add", 3000, 2000, launcher=op, device=1)
    fs._core._append(core, "memcpy", "Memcpy HtoD", 7000, 500, device=1)
    look = look_at(core, sees_cuda=True)
    assert (look.devices, look.kernels, look.launches, look.native_launches) == (("cuda:1",), 1, 2, 1)
    assert math.isnan(look.flops) and math.isnan(look.bytes)


def test_the_device_of_a_call_is_detected() -> None:
    class Cupy:
        device = types.SimpleNamespace(id=2)

    core = fs._core.Store()
    seen = look_at(core, sees_cuda=True)
    on_gpu = types.SimpleNamespace(device="cuda:0")
    assert cuda.devices_of([Cupy(), square(2), 3, types.SimpleNamespace(device="cuda")]) == {"cuda:2", "cuda:0"}
    where = stage._where
    assert where([seen], [], None) == "cpu" and where([seen], [on_gpu], "cpu") == "cpu"
    for arguments, named in (([on_gpu], None), ([], "cuda:0")):
        with pytest.raises(RuntimeError, match='launched nothing on cuda:0; measure it with device="cpu"'):
            where([seen], arguments, named)
    unseen = replace(seen, sees_cuda=False)
    assert where([unseen], [on_gpu], None) == "cuda:0" and where([unseen], [], "cuda:1") == "cuda:1"
    two = [replace(seen, devices=("cuda:0",)), replace(seen, devices=("cuda:1",))]
    with pytest.raises(ValueError, match="cuda:0, cuda:1: name the one"):
        where(two, [], None)


# The result -----------------------------------------------------------------------------------------------------------


def result(**more: Any) -> Measurement:
    values: dict[str, Any] = {
        **{"name": "add<T>", "device": "cuda:0", "device_name": "NVIDIA H200", "timing_source": "cupti"},
        **{"cache": "cold", "n": 9, "median": 100.0, "mean": 101.0, "min": 99.0, "max": 110.0, "std": 1.0, "iqr": 0.5},
        **{"ci": (99.0, 101.0), "outliers": 0, "discarded": 0, "batch": 1, "stopped": "enough", "flops": 1e9},
        **{"bytes_total_moved": 4e8, "tflops_per_s": 10.0, "gbytes_per_s": 4000.0, "arithmetic_intensity": 2.5},
        **{"pct_peak_flops": 20.0, "pct_peak_bandwidth": 83.0, "pct_roofline": 83.0, "bound": "memory"},
    }
    return Measurement(**{**values, **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "add<T> takes 100 µs (±1.0 %) on cuda:0: 83 % of the roofline, bound by memory at 4,000 GB/s."),
        ({"bound": "compute"}, "83 % of the roofline, bound by compute at 10 TFLOP/s."),
        ({"bound": "latency"}, "83 % of the roofline: neither its bytes nor its FLOPs explain the time."),
        ({"bound": "launch"}, "close to the time of an empty launch."),
        ({"bound": "cache"}, "4,000 GB/s exceeds the memory bandwidth, so the data was in cache."),
        (
            {"bound": "unknown", "pct_roofline": math.nan},
            "10 TFLOP/s; share of the roofline unknown: the peaks of the device are unknown.",
        ),
        ({"bound": "unknown", "flops": 0.0, "bytes_total_moved": 0.0}, "it does no FLOPs and moves no bytes."),
    ],
)
def test_the_verdict_is_one_sentence(more: dict[str, Any], message: str) -> None:
    assert result(**more).verdict.endswith(message)


def test_a_result_is_ready_for_text_html_and_json() -> None:
    m = result(clock_mhz=1980.0, kernels=2, other_cache=80.0, notes=("a < b",), shares={"measured": Shares(20, 83, 83)})
    text, page = str(m), m._repr_html_()
    assert max(map(len, text.splitlines())) <= 130 and "1980 MHz" in text and "note: a < b" in text
    assert "caches hot" in text and "83 % of the roofline, 83 % of the bandwidth, 20 % of the FLOP/s" in text
    assert "add&lt;T&gt;" in page and "a &lt; b" in page and "<T>" not in page
    m = result(samples=(1.0, 2.0), shares={"datasheet": Shares()})
    content = json.loads(json.dumps(m.to_dict(), allow_nan=False))
    assert content["clock_mhz"] is None and content["ci_us"] == [99.0, 101.0] and "samples_us" not in content
    assert content["shares"] == {"datasheet": dict.fromkeys(vars(Shares()))} and content["verdict"] == m.verdict
    assert m.to_dict(samples=True)["samples_us"] == [1.0, 2.0]
    once = result(n=1, ci=(math.nan, math.nan), std=math.nan)
    assert "(timed once)" in once.verdict and "nan" not in str(once) and once.to_dict()["ci_us"] == [None, None]
