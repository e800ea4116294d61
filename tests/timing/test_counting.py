"""What measure() says about counts, and the energy of a GPU."""

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flopscope.measuring.counting import LEFT_DIRTY, Counts, count_call, counts_text, relate, traffic_sentence
from flopscope.support.nvml import LEAST_SECONDS, Energy, EnergyMeter


def counts(read: float, written: float, dirty: float = 0.0) -> Counts:
    return Counts({"dram_bytes_read": read, "dram_bytes_written": written, LEFT_DIRTY: dirty})


@pytest.mark.parametrize(
    ("found", "model", "sentence"),
    [
        (counts(100, 80, 20), (200, 100, 100), "moves the bytes it must (1.00 ×)"),
        (counts(200, 80, 20), (200, 100, 100), "moves 1.5 × the bytes it must: reads its input twice"),
        (counts(301, 100), (200, 100, 100), "moves 2.0 × the bytes it must: reads its input three times"),
        (counts(250, 150), (200, 100, 100), "moves 2.0 × the bytes it must: reads 2.5 × and writes 1.5 ×"),
        (counts(250, 150), (200, math.nan, math.nan), "moves 2.0 × the bytes it must"),
        (counts(20, 60), (200, 100, 100), "moves 0.40 × the bytes of its model: the rest was in the L2 cache"),
        (counts(20, 60), (math.nan, math.nan, math.nan), ""),
        (Counts({}), (200, 100, 100), ""),
    ],
)
def test_a_sentence_compares_traffic_to_model(found: Counts, model: tuple[float, float, float], sentence: str) -> None:
    assert traffic_sentence(found, *model) == sentence


def test_counts_are_a_mapping_with_a_line_of_text() -> None:
    found = Counts({"dram_bytes_read": 2e9, "dram_bytes_written": 1e9, "fp32_flops": 5e9, "occupancy": 84.6})
    assert dict(found)["dram_bytes_read"] == 2e9 and len(found) == 4 and "tensor_flops" not in found
    assert counts_text(found) == "2 GB read, 1 GB written, 5 GFLOP in fp32, occupancy 85 %"
    assert counts_text(Counts({})) == "--"


def test_measure_without_a_gpu_has_a_note_and_raises_if_counters_are_required() -> None:
    import flopscope as fs

    measurement = fs.measure(lambda: sum(range(100)), device="cpu", counters=True, max_time=0.05)
    assert not measurement.counters and math.isnan(measurement.traffic_ratio) and math.isnan(measurement.joules)
    assert any("no hardware counters: the call runs on the CPU" in note for note in measurement.notes)
    with pytest.raises(RuntimeError, match="hardware counters are unavailable"):
        fs.measure(lambda: sum(range(100)), device="cpu", counters="require", max_time=0.05)
    with pytest.raises(ValueError, match="counters must be"):
        fs.measure(lambda: None, device="cpu", counters="all")  # type: ignore[arg-type]


class Cupti:
    """The core's functions of counters, which count only inside a capture; a Profiler is one."""

    def __init__(self, asleep: bool) -> None:
        self.asleep, self.captures = asleep, 0
        self.groups: list[str] = []

    def count_calls(self, device: int, group: str, before: Any, functions: tuple[Any, ...]) -> list[dict[str, float]]:
        if self.asleep and not self.captures:
            raise RuntimeError("CUPTI failed with CUPTI_ERROR_NOT_INITIALIZED (15)")
        self.groups.append(group)
        if group == "stalls":
            raise RuntimeError("the GPU lacks a metric")
        for function in functions:
            before()
            function()
        values = {"memory": {"dram_bytes_read": 4e6, "dram_bytes_written": 1e6, "tensor_active": 50.0}}
        values["issue"] = {"instructions": 3e5}
        values["units"] = {"fma_active": 12.0, "issue_active": 30.0}
        instrumented = 0.0 if self.captures else 8e6
        values["scalar"] = {"fp32_flops": instrumented / 2, "thread_instructions": instrumented}
        values["bf16_tensor"] = {"tensor_flops": 7e9}
        return [dict(values.get(group, {})) for _ in functions]

    def Profiler(self, **options: Any) -> Any:
        assert options == {"ops": False, "cupti": True, "api_calls": False}
        return SimpleNamespace(start=self.begin, stop=self.end, running=True)

    def begin(self) -> None:
        self.captures += 1

    def end(self) -> None:
        self.captures -= 1

    def measure_flush(self, device: str) -> None:
        assert device


def stage_of(*kernels: str) -> Any:
    """Return a stage on a GPU whose call launches these kernels."""
    core = SimpleNamespace(names=lambda: [*kernels])
    device = SimpleNamespace(kind="cuda", __str__=lambda self: "cuda:0")
    return SimpleNamespace(device=device, looks=[SimpleNamespace(core=core)], cold=True, notes=[])


@pytest.mark.parametrize("asleep", [False, True])
def test_counting_goes_on_in_a_capture_where_cupti_was_detached(asleep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti, stage, called = Cupti(asleep), stage_of("gemm"), []
    for name in ("count_calls", "Profiler", "measure_flush"):
        monkeypatch.setattr(f"flopscope._core.{name}", getattr(cupti, name))
    monkeypatch.setattr("flopscope.measuring.counting.why_no_counters", lambda: None)
    found = count_call(stage, lambda: called.append(1), "bf16_tensor", require=True)
    expected = {"dram_bytes_read": 4e6, "dram_bytes_written": 1e6, "tensor_active": 50.0, "tensor_flops": 7e9}
    expected |= {"instructions": 3e5, "fma_active": 12.0, "issue_active": 30.0, "l2_bytes_left_dirty": 0.0}
    expected |= {} if asleep else {"fp32_flops": 4e6, "thread_instructions": 8e6}
    assert found == expected and cupti.captures == 0 and called and any("stalls" in note for note in stage.notes)
    assert any("FLOP instructions" in note for note in stage.notes) == asleep


def test_the_share_of_a_memory_needs_its_bytes_its_peak_and_a_time() -> None:
    def rated(found: dict[str, float], us: float, l2: float | None, dram: float) -> Counts:
        relate(counts := Counts(found), us, SimpleNamespace(l2_bandwidth=l2, bandwidth=dram))
        return counts

    moved = {"l2_bytes": 8e6, "dram_bytes_read": 3e6, "dram_bytes_written": 1e6}
    found = rated(moved, 2.0, 8e12, 4e12)
    assert found["pct_peak_l2"] == pytest.approx(50) and found["pct_peak_dram"] == pytest.approx(50)
    assert "pct_peak_l2" not in rated(moved, 2.0, None, 4e12) and "pct_peak_dram" not in rated(moved, 2.0, 8e12, 0.0)
    assert rated({}, 2.0, 8e12, 4e12) == {} and rated(moved, 0.0, 8e12, 4e12) == moved


def test_shares_of_the_time_that_was_counted_become_those_of_the_call() -> None:
    counts = Counts({"memory_ns": 8e3, "units_ns": 3e3, "sm_active": 23.0, "l2_active": 30.0, "fma_active": 20.0})
    counts["occupancy"] = 40.0  # of the time in which a multiprocessor is active
    relate(counts, 2.0, None)
    assert counts == {"sm_active": 92.0, "l2_active": 100.0, "fma_active": 30.0, "occupancy": 40.0}
    relate(again := Counts({"units_ns": 1e3, "issue_active": 20.0}), 2.0, None)
    assert again == {"issue_active": 20.0}, "a call is never longer than it takes"


def test_calls_that_communicate_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)")
    monkeypatch.setattr("flopscope._core.count_calls", lambda *arguments: pytest.fail("counted"))
    assert not count_call(stage, lambda: None, None, require=False) and "communicates" in stage.notes[0]
    with pytest.raises(RuntimeError, match="communicates"):
        count_call(stage, lambda: None, None, require=True)


# Energy --------------------------------------------------------------------------------------------------------------


class Nvml:
    """NVML with a GPU of 100 W."""

    def __init__(self) -> None:
        self.millijoules, self.fails = 5_000, False

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise RuntimeError("Not Found")
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, device: str) -> int:
        if self.fails:
            raise RuntimeError("Not Supported")
        return self.millijoules


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake: Any = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake  # type: ignore[no-any-return]


def test_energy_is_the_difference_of_the_counter(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=10.0)
    monkeypatch.setattr("flopscope.support.nvml.time", SimpleNamespace(perf_counter=lambda: clock.now))
    meter = EnergyMeter("GPU-1")
    clock.now, nvml.millijoules = 12.0, 205_000
    used = meter.read()
    assert (used.joules, used.seconds, used.watts, used.missing) == (200.0, 2.0, 100.0, "")


def test_too_short_windows_and_missing_counters_are_nan_and_say_so(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Energy(3.0, LEAST_SECONDS / 2)
    assert math.isnan(short.joules) and math.isnan(short.watts) and "50 ms" in short.missing
    assert "Not Found" in EnergyMeter("GPU-2").read().missing and "without CUDA" in EnergyMeter("").read().missing
    nvml.fails = True
    assert "Not Supported" in EnergyMeter("GPU-1").read().missing
    monkeypatch.setitem(sys.modules, "pynvml", None)
    used = EnergyMeter("GPU-1").read()
    assert math.isnan(used.joules) and "nvidia-ml-py" in used.missing
