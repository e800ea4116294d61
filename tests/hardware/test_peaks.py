"""Measured peaks: the best of rounds and runs, warnings, and concurrent processes."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.fake_core import CPU_RATES, CUDA_RATES, FakeCore, forget

from flopscope.cli.program import main
from flopscope.support import busy
from flopscope.support import device as fsd
from flopscope.support import peak_timing as fsm
from flopscope.support import peaks as fsp

EARLIER = "2020-02-03T04:05:06+00:00"


def scale(core: FakeCore, factor: float) -> None:
    """Scale all rates of the CPU."""
    core.rates["cpu"] = {probe: factor * rate for probe, rate in CPU_RATES.items()}


def measure_quietly(device: str = "cpu") -> fsp.Peaks:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fsd.measure_peaks(device, force=True)


def cache_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "cache").iterdir()
    return file


def date_back(tmp_path: Path) -> None:
    """Date the stored peaks back by years."""
    content = json.loads(cache_file(tmp_path).read_text())
    content["peaks"]["when"] = EARLIER
    cache_file(tmp_path).write_text(json.dumps(content))
    forget()


# Rounds ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Readings of the time of the shortest kernel, one for each round, of which all are used."""
    readings: list[float] = []

    def read(device: str) -> float:
        if not readings:
            raise MemoryError("no more")
        return readings.pop(0)

    monkeypatch.setattr(fsm, "shortest_kernel", read)
    yield readings
    assert readings == []


@pytest.mark.parametrize(
    ("times", "best", "spread"),
    [
        ([1000.0, 1010.0, 1500.0], 1000, 0.5),  # two agree; 1500 ns is 50 % more than 1000 ns
        ([1500.0, 1000.0, 1300.0, 1010.0], 1000, 0.5),  # two agree later
        ([1500.0, 1400.0, 1300.0, 1200.0, 1000.0], 1000, 0.5),  # never
        ([1200.0, 1100.0], 1100, 1 / 11),  # a failure in a later round keeps earlier readings
    ],
)
def test_a_peak_is_the_best_of_its_rounds(kernel: list[float], times: list[float], best: float, spread: float) -> None:
    kernel.extend(times)
    peaks = fsd.measure_peaks("cpu")
    assert peaks.kernel_ns == best and peaks.spread["kernel_ns"] == pytest.approx(spread) and not peaks.missing
    assert peaks.spread["fp32"] == peaks.spread["bandwidth"] == 0, "all rounds have equal readings"


# Runs -----------------------------------------------------------------------------------------------------------------


def test_slower_readings_replace_no_better_one(core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = fsd.measure_peaks("cpu")
    date_back(tmp_path)
    scale(core, 0.5)
    monkeypatch.setattr(fsm, "shortest_kernel", lambda device: 3000.0)
    for _ in range(3):
        peaks = measure_quietly()
        assert peaks._numbers == first._numbers
        assert peaks.when is not None and peaks.when > EARLIER, "the date is that of the last measurement"
        forget()
        assert fsd.devices()[0].measured == peaks


def test_runs_are_combined_value_by_value(core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fsd.measure_peaks("cpu")
    date_back(tmp_path)
    core.rates["cpu"] |= {("fma", "float32"): 100e9, ("read", "float32"): 6e9, ("copy", "float32"): 11e9}
    core.rates["cpu"]["empty", "float32"] = 1e9 / 80
    peaks = measure_quietly()
    assert peaks.flops == pytest.approx({"fp64": 45e9, "fp32": 100e9})
    assert peaks.bandwidth == peaks.read_bandwidth == pytest.approx(12e9) and peaks.launch_ns == pytest.approx(80)
    assert peaks.copy_bandwidth == pytest.approx(11e9), "better than the stored value"


@pytest.mark.parametrize(
    ("read", "written", "seconds"),
    [
        (8.0, 0.0, 2.0), (0.0, 8.0, 4.0),
        (4.0, 4.0, 8 / 3.2),  # a copy is faster than reads and then writes
        (8.0, 4.0, 8 / 3.2 + 4 / 4), (4.0, 8.0, 8 / 3.2 + 4 / 2),
    ],
)  # fmt: skip
def test_a_bandwidth_is_that_of_the_best_mix(read: float, written: float, seconds: float) -> None:
    peaks = fsp.Peaks("measured", {}, 4.0, copy_bandwidth=3.2, read_bandwidth=4.0, write_bandwidth=2.0)
    assert peaks.bandwidth_of(read, written) == pytest.approx((read + written) / seconds)
    slow_copy = replace(peaks, copy_bandwidth=1.0)
    assert slow_copy.bandwidth_of(read, written) == pytest.approx((read + written) / (read / 4 + written / 2))
    assert replace(peaks, copy_bandwidth=None).bandwidth_of(read, written) == 4.0


def test_reset_replaces_stored_peaks_also_those_that_another_process_remembers(core: FakeCore) -> None:
    remembered = fsd.measure_peaks("cpu")
    key = fsp.cache_file(fsp.cache_key(fsd.devices()[0])).name
    scale(core, 0.5)
    forget()
    assert warnings_of(lambda: fsd.measure_peaks("cpu", reset=True)) == []
    forget()
    peaks = fsd.devices()[0].measured
    assert peaks is not None and peaks.launch_ns == pytest.approx(180)
    fsp.remembered[key] = remembered
    assert measure_quietly().flops == peaks.flops == pytest.approx({"fp64": 22.5e9, "fp32": 40e9})


def test_a_tensor_unit_must_exceed_the_best_reading_without_it(core: FakeCore) -> None:
    core.rates["cuda:0"] |= {("fma", "float32"): 40e12, ("matmul", "tf32"): 52e12}  # TF32 fell back to FP32, disturbed
    assert "tf32_tensor" in fsd.measure_peaks("cuda").flops
    core.rates["cuda:0"] = CUDA_RATES | {("matmul", "tf32"): 52e12}
    peaks = measure_quietly("cuda")
    assert peaks.flops["fp32"] == pytest.approx(64e12) and "tf32_tensor" not in peaks.flops
    assert "tf32_tensor" not in peaks.spread


def test_peaks_that_are_temporarily_missing_stay_stored(core: FakeCore) -> None:
    complete = fsd.measure_peaks("cuda")
    core.rates["cuda:0"] = {probe: rate for probe, rate in CUDA_RATES.items() if probe[0] != "matmul"}
    core.rates["cuda:0"]["fma", "float32"] = 65e12
    peaks = measure_quietly("cuda")
    assert peaks.flops == pytest.approx({**complete.flops, "fp32": 65e12}) and not peaks.missing
    forget()
    assert fsd.devices()[1].measured == peaks


# Warnings -------------------------------------------------------------------------------------------------------------


def warnings_of(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(warning.category is UserWarning and warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def test_an_idle_machine_is_measured_without_a_warning(core: FakeCore) -> None:
    assert warnings_of(lambda: fsd.measure_peaks("cpu")) == []
    scale(core, 0.95)
    assert warnings_of(lambda: fsd.measure_peaks("cpu", force=True)) == [], "within the normal variation"
    scale(core, 2)
    assert warnings_of(lambda: fsd.measure_peaks("cpu", force=True)) == []


def test_a_busy_machine_causes_a_warning(core: FakeCore) -> None:
    core.busy = 0.45
    (message,) = warnings_of(lambda: fsd.measure_peaks("cpu"))
    assert "other processes used 0.9 of 2 processors. " in message and "flopscope devices --measure" in message
    assert warnings_of(lambda: fsd.measure_peaks("cuda")) == []


# Load of the machine --------------------------------------------------------------------------------------------------


def test_other_processes_use_the_system_total_minus_our_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    times = iter([10.0, 13.0])  # this process: three seconds
    monkeypatch.setattr(busy.os, "times", lambda: (next(times), 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    counted = iter([(0, 0), (5 * tick, 20 * tick)])  # busy and total ticks of two processors in ten seconds
    monkeypatch.setattr(busy, "_busy_ticks", lambda: next(counted))
    assert busy.busy_meter(SimpleNamespace(kind="cpu"))() == pytest.approx(0.1)  # type: ignore[arg-type]


def test_proc_stat_is_read_for_available_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "stat"
    #       user nice system idle iowait irq softirq steal guest guest_nice
    lines = ["cpu  999 0 0 9999 0 0 0 0 0 0", "cpu0 10 2 3 100 20 1 4 5 10 0", "cpu1 500 0 0 0 0 0 0 0 0 0"]
    file.write_text("\n".join([*lines, "cpu10 7 0 0 70 0 0 0 0 0 0", "intr 1 2 3", ""]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 10})
    assert busy._busy_ticks(str(file)) == (10 + 2 + 3 + 1 + 4 + 5 + 7, 145 + 77)
    file.write_text("cpu0 a b\n")
    assert busy._busy_ticks(str(file)) is None and busy._busy_ticks(str(tmp_path / "none")) is None


# Reports --------------------------------------------------------------------------------------------------------------


def test_the_report_shows_the_spread(core: FakeCore, kernel: list[float], tmp_path: Path) -> None:
    kernel.extend([1100.0, 1100.0, 1375.0])
    core.busy = 0.02
    fsd.measure_peaks("cpu")
    date_back(tmp_path)
    lines = fsd.devices()[0].report().splitlines()
    assert lines[1].split() == ["measured", "spread"] and lines[2].split() == ["memory", "12", "GB/s", "0.0", "%"]
    assert lines[-2].split() == ["one", "element", "1,100", "ns", "25.0", "%"]
    assert lines[-1].strip() == "last measured 2020-02-03 04:05 UTC, 2 % used by other processes"


def test_a_command_measures_stores_resets(core: FakeCore, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "devices.json"

    def run(*arguments: str) -> tuple[dict[str, Any], str]:
        assert main(["devices", *arguments, "--json", str(file)]) == 0
        return json.loads(file.read_text())["devices"][0]["measured"], capsys.readouterr().err

    first, message = run("--measure")
    assert message == "" and first["busy_share"] == 0 and first["spread"]["fp32"] == 0
    scale(core, 0.5)
    core.busy = 0.5
    second, message = run("--measure")
    assert second["flops_per_s"] == first["flops_per_s"] and second["busy_share"] == 0.5
    (line,) = message.splitlines()
    assert line.startswith("flopscope devices: cpu: ") and "Warning" not in line
    core.busy = 0.0
    third, message = run("--measure", "--reset")
    assert message == "" and third["flops_per_s"]["fp32"] == pytest.approx(40e9) and main(["devices", "--reset"]) == 2
    assert "add --measure" in capsys.readouterr().err
