"""measure() and compare_times() on a CUDA device: compared with device records, cold and hot caches, errors."""

import importlib.util
import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import flopscope as fs
from flopscope.measuring.cuda import _torch_graph
from flopscope.measuring.measurement import Measurement
from flopscope.measuring.measuring import measure
from flopscope.measuring.paired import compare_times

HAS_NVML = importlib.util.find_spec("pynvml") is not None


def torch_or_skip() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def quick(fn: Callable[..., Any], *args: Any, **options: Any) -> Measurement:
    return measure(fn, *args, **{"max_time": 0.5, "peaks": "none", **options})


def test_the_hot_time_equals_the_recorded_kernel_time() -> None:
    x = fs.rand((2048, 2048))
    m = quick(fs.sin, x, cache="hot")
    with fs.profile(timer="cupti") as prof:
        for _ in range(200):
            fs.sin(x)
    (recorded,) = [row for row in prof.key_averages(peaks="none") if row.device_type == "cuda"]
    assert m.timing_source == "cupti" and m.device == "cuda:0" and m.kernels == 1
    assert recorded.count == 200 and m.median == pytest.approx(recorded.time_median, rel=0.1)


def test_a_cold_cache_takes_longer() -> None:
    x = fs.rand((1024, 1024))  # 4 MiB fit into any L2 cache
    m = quick(fs.sum, x)
    assert m.cache == "cold" and m.other_cache < 0.95 * m.median
    assert quick(fs.sum, x, cache="hot").other_cache > 1.05 * m.other_cache


def test_cold_ops_approach_but_do_not_exceed_the_bandwidth() -> None:
    x = fs.rand((8192, 8192))
    m = measure(fs.neg, x, max_time=0.5)
    assert m.bound == "memory" and 70 < m.pct_roofline < 105
    small = measure(fs.neg, fs.rand((1024, 1024)), max_time=0.5)
    assert small.pct_peak_bandwidth < 105


def test_a_load_runs_beside_the_default_stream() -> None:
    torch = torch_or_skip()
    fs._core.measure_disturb("cuda:0", False)  # allocates its buffer
    begin = time.perf_counter()
    fs._core.measure_disturb("cuda:0", True)
    torch.cuda.default_stream().synchronize()
    queued = time.perf_counter() - begin
    fs._core.measure_wait("cuda:0")
    assert queued < time.perf_counter() - begin - 1e-3


def test_events_agree_with_cupti() -> None:
    x = fs.rand((4096, 4096))
    by_cupti, by_events = quick(fs.neg, x), quick(fs.neg, x, timer="event")
    assert by_events.timing_source == "event"
    assert by_cupti.median < by_events.median < by_cupti.median + 5  # µs: launches of a queued event and kernel


def test_the_sm_clock_is_read() -> None:
    m = quick(fs.neg, fs.rand((4096, 4096)))
    if HAS_NVML:
        assert 200 < m.clock_mhz < 4000
    else:
        assert math.isnan(m.clock_mhz) and any("nvidia-ml-py" in note for note in m.notes)


def test_a_graph_measures_the_time_from_launch_to_launch() -> None:
    x = fs.rand((256, 256))
    m = quick(fs.neg, x)
    assert 0.3 < m.launch_to_launch < 20, m.notes
    large = quick(fs.neg, fs.rand((8192, 8192)))
    assert large.launch_to_launch == pytest.approx(large.median, rel=0.15)


def test_a_graph_keeps_the_memory_that_it_writes_to() -> None:
    x = fs.full((1 << 20,), 3.0)
    graph = fs._core.measure_graph("cuda:0", lambda: fs.neg(x), 2)
    others = [fs.full((1 << 20,), 7.0) for _ in range(4)]  # would reuse blocks that the calls freed
    fs._core.measure_replay(graph)
    fs.synchronize()
    assert all((other.numpy() == 7).all() for other in others)
    del graph
    assert (fs.neg(x).numpy() == -3).all()


def test_torch_code_is_measured_and_captured() -> None:
    torch = torch_or_skip()
    x = torch.rand(4096, 4096, device="cuda")
    m = quick(torch.sin, x, bytes=2 * x.nbytes, flops=x.numel())
    assert m.timing_source == "cupti" and m.kernels == 1 and m.gbytes_per_s > 100
    assert m.launch_to_launch == pytest.approx(m.median, rel=0.3), m.notes
    assert quick(torch.sin, x).flops == x.numel()
    assert math.isnan(quick(lambda: torch.sin(x)).flops)


def test_calls_on_another_stream_of_torch_are_timed_as_on_the_default_one() -> None:
    torch = torch_or_skip()
    a = torch.rand(2048, 2048, device="cuda", dtype=torch.float16)
    alone = quick(torch.mm, a, a)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        there = quick(torch.mm, a, a)
        by_events = quick(torch.mm, a, a, timer="event")
        assert torch.cuda.current_stream() == other
    assert there.median == pytest.approx(alone.median, rel=0.2)
    assert there.launch_to_launch == pytest.approx(alone.launch_to_launch, rel=0.2), there.notes
    assert by_events.median == pytest.approx(quick(torch.mm, a, a, timer="event").median, rel=0.2)
    assert by_events.median > 0.9 * alone.median


def test_a_failed_capture_leaves_torch_as_it_was() -> None:
    torch = torch_or_skip()
    x, before = torch.rand(2048, 2048, device="cuda"), torch.cuda.current_stream()
    alone, failed = quick(torch.mm, x, x), quick(lambda: x.sum().item())
    assert math.isnan(failed.launch_to_launch) and any("no time from launch to launch" in n for n in failed.notes)
    again = quick(torch.mm, x, x)
    assert again.launch_to_launch == pytest.approx(alone.launch_to_launch, rel=0.3), (str(alone), str(again))
    with pytest.raises(RuntimeError):
        _torch_graph(lambda: x.sum().item(), "cuda:0", 1)  # that was not tried
    assert torch.cuda.current_stream() == before
    assert torch.rand(64, device="cuda").std() > 0.1
    torch.cuda.empty_cache()
    assert quick(torch.sin, x).launch_to_launch > 0


@pytest.mark.parametrize(
    ("dtype", "tf32", "unit"),
    [("float32", False, "fp32"), ("float32", True, "tf32_tensor"), ("bfloat16", False, "bf16_tensor")],
)
def test_the_unit_of_calls_of_torch_is_known(dtype: str, tf32: bool, unit: str, monkeypatch: Any) -> None:
    torch = torch_or_skip()
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", tf32)
    a = torch.rand(1024, 1024, device="cuda", dtype=getattr(torch, dtype))
    assert quick(torch.mm, a, a).unit == unit


def test_events_time_code_that_is_not_recorded() -> None:
    torch = torch_or_skip()
    x = torch.rand(4096, 4096, device="cuda")
    m = quick(lambda: torch.sin(x), timer="event")
    assert (m.device, m.timing_source) == ("cuda:0", "event")
    assert m.median == pytest.approx(quick(torch.sin, x).median, abs=5)
    assert quick(lambda: fs.rand((64,), device="cpu"), timer="event").device == "cpu"


@pytest.mark.parametrize("timer", ["cupti", "event"])
def test_a_call_that_synchronises_never_hangs(timer: Any) -> None:
    x = fs.rand((256, 256))

    def waits() -> None:
        fs.neg(x)
        fs.synchronize()

    begin = time.perf_counter()
    m = quick(waits, timer=timer)
    assert time.perf_counter() - begin < 10
    assert m.n >= 3 and m.median < 1000 and math.isnan(m.launch_to_launch)
    assert any("launch to launch" in note for note in m.notes)
    if timer == "event":
        assert any("waits for the device" in note for note in m.notes)
    assert not math.isnan(quick(fs.neg, x).launch_to_launch), "later calls are captured"


def test_exceptions_propagate_while_the_device_waits() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fs._core.measure_call("cuda:0", fails, 5.0)
    begin = time.perf_counter()
    fs.synchronize()
    assert time.perf_counter() - begin < 1
    with pytest.raises(ZeroDivisionError):
        fs._core.measure_graph("cuda:0", fails, 1)
    assert not math.isnan(quick(fs.neg, fs.rand((4,))).launch_to_launch)


def test_the_wait_of_the_device_is_limited() -> None:
    ns, gave_up = fs._core.measure_call("cuda:0", lambda: fs.synchronize(), 0.2)
    assert gave_up
    ns, gave_up = fs._core.measure_call("cuda:0", lambda: None, 0.2)
    assert not gave_up and ns < 1e6


def test_waiting_for_a_blocked_device_can_be_interrupted() -> None:
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    blocker = threading.Thread(target=fs._core.measure_call, args=("cuda:0", lambda: time.sleep(2), 5.0))
    before = signal.signal(signal.SIGALRM, ring)
    begin = time.perf_counter()
    blocker.start()
    try:
        time.sleep(0.1)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Alarm):
            fs._core.measure_wait("cuda:0")
        assert time.perf_counter() - begin < 1.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        blocker.join()
    fs.synchronize()


def test_a_call_that_launches_nothing_is_an_error() -> None:
    x = fs.rand((4,))
    with pytest.raises(RuntimeError, match="launched nothing on cuda:0"):
        quick(lambda tensor: tensor.shape, x)
    with pytest.raises(RuntimeError, match="launched nothing on cuda:0"):
        quick(lambda: None, device="cuda")
    assert quick(lambda: None).device == "cpu"


def test_growing_memory_is_an_error() -> None:
    tensors: list[fs.Tensor] = []
    with pytest.raises(MemoryError):
        quick(lambda: tensors.append(fs.empty((1 << 28,))) or fs.neg(tensors[-1]), max_time=30.0)
    tensors.clear()
    fs.empty_cache()


def test_two_calls_are_compared() -> None:
    x, y = fs.rand((4096, 4096)), fs.rand((4096, 4096))
    twice = compare_times(lambda: (fs.add(x, y), fs.add(x, y)), lambda: fs.add(x, y))
    assert twice.verdict == "slower" and 1.8 < twice.ratio < 2.2
    assert compare_times(lambda: fs.add(x, y), lambda: fs.add(x, y)).verdict == "same"
