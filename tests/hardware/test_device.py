"""Devices, their peaks and the cache of peaks, with a fake C binding whose rates are predefined."""

import contextlib
import errno
import json
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.fake_core import MIB, FakeCore, forget

from flopscope.support import device as fsd
from flopscope.support import peak_timing as fsm
from flopscope.support import peaks as fsp


def cache_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").iterdir())


def test_devices_lists_the_cpu_and_each_cuda_device(core: FakeCore) -> None:
    core.cuda_count = 2
    found = fsd.devices()
    assert [(d.kind, d.index, str(d)) for d in found] == [
        ("cpu", 0, "cpu"), ("cuda", 0, "cuda:0"), ("cuda", 1, "cuda:1"),
    ]  # fmt: skip
    assert (found[1].name, found[1].properties["l2_bytes"]) == ("NVIDIA H200", 60 * MIB)
    assert [d.measured for d in found] == [None] * 3 and not core.calls, "listing devices measures nothing"
    core.cuda_count = 0
    assert [d.kind for d in fsd.devices()] == ["cpu"]


def test_a_datasheet_omits_rates_that_the_vendor_does_not_publish(core: FakeCore) -> None:
    cpu, cuda = fsd.devices()
    sheet = cuda.datasheet
    assert cpu.datasheet is None and sheet is not None
    assert sheet.flops == {"fp32": 66.9e12, "bf16_tensor": 989.4e12, "int8_tensor": 1978.9e12}
    assert (sheet.l2_bytes, sheet.sm_count) == (None, 132)
    peaks = sheet.peaks
    assert (peaks.source, peaks.bandwidth, peaks.launch_ns, peaks.copy_bandwidth) == ("datasheet", 4.8e12, None, None)
    core.cuda_name = "Graphics Device"
    assert fsd.devices()[1].datasheet is None


def test_representations_show_both_kinds_of_peaks_escaped(core: FakeCore) -> None:
    cpu, cuda = fsd.devices()
    assert repr(cpu) == "Device('cpu', 'A <fast> CPU')"
    for device, texts in (
        (cpu, ["fp64 45 GFLOP/s, fp32 80 GFLOP/s"]),
        (cuda, ["datasheet: memory 4,800 GB/s, fp32 66.9 TFLOP/s", "int8_tensor 1,979 TOP/s"]),
        (cuda, ["measured: memory 4,400 GB/s, L2 5,600 GB/s", "launch 550 ns"]),
    ):
        fsd.measure_peaks(device)
        assert all(text in repr(device) for text in texts)


def test_cuda_peaks_are_the_rates_of_the_probes(core: FakeCore) -> None:
    peaks = fsd.measure_peaks("cuda:0")
    tera = {"fp64": 32, "fp32": 64, "fp16": 128, "fp64_tensor": 60, "tf32_tensor": 400, "fp16_tensor": 780}
    tera |= {"bf16_tensor": 800, "fp8_tensor": 1400, "int8_tensor": 1500}
    assert {unit: rate / 1e12 for unit, rate in peaks.flops.items()} == pytest.approx(tera)
    assert peaks.write_bandwidth == pytest.approx(4.4e12) and peaks.read_bandwidth == pytest.approx(4.3e12)
    assert peaks.copy_bandwidth == pytest.approx(4.2e12), "a copy counts the bytes read and the bytes written"
    assert peaks.bandwidth == peaks.write_bandwidth, "the best of the three"
    assert peaks.l2_bandwidth == pytest.approx(5.6e12)
    sets = {amount for device, what, _, amount in core.calls if what == "l2"}
    assert sets and all(0 < amount <= 60 * MIB // 2 for amount in sets), "what the L2 holds, with copies of it"
    assert peaks.launch_ns == pytest.approx(550) and peaks.kernel_ns == 1100 and peaks.source == "measured"
    assert peaks.when is not None and peaks.when.endswith("+00:00") and peaks.versions["driver"] == "13000"
    last = {(what, dtype): amount for _, what, dtype, amount in core.calls}
    assert 1e6 * last["fma", "float32"] / 64e12 >= fsm.PLANS["cuda"].sample, "long enough for the clock"
    assert 2 * last["matmul", "float32"] ** 3 / 51e12 >= fsm.PLANS["cuda"].sample


def test_cpu_peaks_are_the_better_of_multiply_adds_and_products(core: FakeCore) -> None:
    peaks = fsd.measure_peaks("cpu")
    assert peaks.flops == pytest.approx({"fp64": 45e9, "fp32": 80e9})
    assert peaks.launch_ns == pytest.approx(90) and peaks.kernel_ns == 1100 and peaks.l2_bandwidth is None


def test_unsupported_rates_are_missing_not_zero(core: FakeCore) -> None:
    rates = core.rates["cuda:0"]
    del rates["matmul", "bfloat16"], rates["fma", "float16"], rates["empty", "float32"]
    peaks = fsd.measure_peaks("cuda")
    assert "bf16_tensor" not in peaks.flops and "fp16" not in peaks.flops and peaks.launch_ns is None
    assert peaks.flops["fp32"] == pytest.approx(64e12)
    assert set(peaks.missing) == {"matmul bfloat16", "fma float16", "empty"}
    assert peaks.missing["matmul bfloat16"] == "matmul of bfloat16 is not supported on cuda:0"
    core.rates["cuda:0"] = {}
    with pytest.raises(RuntimeError, match=r"cuda:0 \(NVIDIA H200\).*write of float32 is not supported"):
        fsd.measure_peaks("cuda", force=True)


def test_the_rate_is_the_median_of_the_fastest_half(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([5.0, 1.0, 9.0, 2.0, 7.0, 8.0, 3.0] * 9)  # fastest half of 7: 9 8 7 5
    monkeypatch.setattr(core, "probe", lambda *_: (1.0 / next(rates), 1.0))
    monkeypatch.setattr(fsm, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr(fsm, "MAX_SAMPLES", 7)
    assert fsm.Measurement(fsd.devices()[0])._sustained("read", "float32", 1) == pytest.approx(7.5)


def test_a_stopped_clock_is_an_error_not_an_infinite_rate(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "probe", lambda *_: (0.0, 1.0))
    with pytest.raises(RuntimeError, match="the clock did not advance"):
        fsm.Measurement(fsd.devices()[0])._sustained("read", "float32", 1)


def test_buffers_are_several_times_the_cache_and_within_a_quarter_of_free_memory(core: FakeCore) -> None:
    def sizes() -> set[int]:
        return {amount for _, what, _, amount in core.calls if what in fsm.BANDWIDTHS}

    fsd.measure_peaks("cuda")
    assert sizes() == {2048 * MIB}
    core.memory_bytes, core.calls = 8 * 400 * MIB, []
    fsd.measure_peaks("cuda", force=True)
    assert sizes() == {50 * MIB}, "a copy divides the bytes between two buffers"
    for _, what, dtype, n in core.calls:
        assert what != "matmul" or 3 * n * n * fsm.ELEMENT_BYTES[dtype] <= 100 * MIB


@pytest.mark.parametrize(
    ("available", "free", "buffers"),
    [(5_000_000_000, 5_000_000_000, (256, 596)), (0, MIB, (1, 1)), (None, 1024 * MIB, (128, 128))],
)
def test_the_free_memory_of_the_cpu_is_what_is_available_and_never_nothing(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, available: int | None, free: int, buffers: tuple[int, int]
) -> None:
    monkeypatch.setattr(fsm, "available_memory", lambda: available)
    cpu, cuda = fsd.devices()
    assert fsm.free_bytes(cpu) == free
    assert fsm.free_bytes(cuda) == 140_000 * MIB // 8, "an eighth of the memory of a GPU may be used"
    for core.threads, mib in zip((2, 64), buffers, strict=True):  # more processors get larger buffers
        assert fsm._buffer_bytes(fsd.devices()[0]) == mib * MIB


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cpu:0", "CUDA", "", "cuda:3"])
def test_unknown_device_names_are_refused(core: FakeCore, name: str) -> None:
    with pytest.raises(ValueError, match="1 CUDA device" if name == "cuda:3" else "no device is called"):
        fsd.measure_peaks(name)
    core.cuda_count = 0
    with pytest.raises(RuntimeError, match="no CUDA driver"):
        fsd.measure_peaks("cuda")


@pytest.mark.parametrize("change", [{"driver": 13010}, {"cuda_name": "NVIDIA B200"}], ids=str)
def test_peaks_are_measured_once_by_driver_and_device(core: FakeCore, change: dict[str, Any]) -> None:
    first, calls = fsd.measure_peaks("cuda"), len(core.calls)
    assert fsd.measure_peaks("cuda") == first
    forget()
    assert fsd.measure_peaks("cuda") == fsd.devices()[1].measured == first and len(core.calls) == calls
    fsd.measure_peaks("cuda", force=True)
    assert len(core.calls) > calls
    calls = len(core.calls)
    for name, value in change.items():
        setattr(core, name, value)
    fsd.measure_peaks("cuda")
    assert len(core.calls) > calls


def test_cpu_peaks_depend_on_the_number_of_threads_and_the_version(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = fsd.devices()[0]
    core.threads = 1
    fsd.measure_peaks(before)
    assert before.measured is None and fsd.devices()[0].measured is not None, "a device has its current properties"
    core.threads = 2
    assert fsd.devices()[0].measured is None
    fsd.measure_peaks("cpu")
    monkeypatch.setattr(fsp, "VERSION", "99.0")
    assert fsd.devices()[0].measured is None and len(cache_files(tmp_path)) == 2


# The cache ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(core: FakeCore, tmp_path: Path) -> Path:
    """The file of the measured peaks of the GPU, which this process does not remember."""
    fsd.measure_peaks("cuda")
    forget()
    (found,) = cache_files(tmp_path)
    return found


def flops_in(text: str) -> Any:
    return json.loads(text)["peaks"]["flops"]


def refuse_to_replace(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", refuse)


def damaged(text: str) -> dict[str, str]:
    content = json.loads(text)

    def with_peaks(**change: Any) -> str:
        return json.dumps(content | {"peaks": content["peaks"] | change})

    return {
        "empty": "", "not UTF-8": "\xff\xfe\x00", "cut off": text[: len(text) // 2], "not an object": "[1, 2]",
        "nothing in it": "{}", "another format": json.dumps(content | {"format": 0}),
        "another key": json.dumps(content | {"key": {}}), "an unknown field": with_peaks(colour="red"),
        "a colour": with_peaks(**{"\x1b[31m": 1}),
        "no bandwidths": json.dumps(content | {"peaks": {"source": "measured"}}),
        "text for a number": with_peaks(bandwidth="fast"), "a negative rate": with_peaks(flops={"fp32": -1.0}),
        "not a number": with_peaks(launch_ns=math.nan), "rates that are a list": with_peaks(flops=[1.0]),
        "a datasheet's": with_peaks(source="datasheet"), "more than a double": with_peaks(bandwidth=10**400),
        "more than a device": with_peaks(bandwidth=1e308), "a spread that is a list": with_peaks(spread=[0.1]),
        "a spread that is text": with_peaks(spread={"fp32": "wide"}), "a date that is a number": with_peaks(when=2020),
        "negative time": with_peaks(busy=-1.0), "nested too deeply": "[" * 100_000,
    }  # fmt: skip


@pytest.mark.parametrize("how", list(damaged(json.dumps({"format": 1, "key": {}, "peaks": {}}))))
def test_a_damaged_cache_file_is_measured_again_and_replaced(core: FakeCore, file: Path, how: str) -> None:
    intact, calls = file.read_text(), len(core.calls)
    file.write_text(damaged(intact)[how], encoding="latin-1")
    quiet = how in ("another format", "another key")  # valid files of other versions or devices
    with contextlib.nullcontext() if quiet else pytest.warns(UserWarning, match=re.escape(str(file))) as caught:
        assert fsd.devices()[1].measured is None
        peaks = fsd.measure_peaks("cuda")
    assert caught is None or "\x1b" not in str(caught[0].message), "its text reaches no terminal"
    assert peaks.flops == pytest.approx(flops_in(intact)) and len(core.calls) > calls
    assert list(file.parent.iterdir()) == [file] and flops_in(file.read_text()) == pytest.approx(flops_in(intact))


def test_a_fifo_in_place_of_a_cache_file_or_folder_is_reported_without_blocking(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    file.unlink()
    os.mkfifo(file)
    with pytest.warns(UserWarning, match=re.escape(str(file))):
        assert fsd.devices()[1].measured is None
    os.mkfifo(tmp_path / "folder")
    monkeypatch.setenv("FLOPSCOPE_CACHE_DIR", str(tmp_path / "folder"))
    with pytest.warns(UserWarning, match="in this process only: .*File exists"):
        fsd.measure_peaks("cuda")


@pytest.mark.parametrize("content", [b"mine", None], ids=["of a file", "of nothing"])
def test_no_link_of_a_cache_file_is_used(core: FakeCore, tmp_path: Path, file: Path, content: bytes | None) -> None:
    other, intact = tmp_path / "other", file.read_text()
    if content is not None:
        other.write_bytes(content)
    file.unlink()
    file.symlink_to(other)
    with pytest.warns(UserWarning, match=f"{re.escape(str(file))} are ignored: it is a symbolic link"):
        assert fsd.measure_peaks("cuda").flops == pytest.approx(flops_in(intact))
    assert (other.read_bytes() if other.exists() else None) == content
    assert not file.is_symlink() and flops_in(file.read_text()) == pytest.approx(flops_in(intact))
    assert cache_files(tmp_path) == [file]


def test_a_link_that_may_not_be_replaced_is_not_written_through(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    other = tmp_path / "other"
    file.replace(other)
    intact = other.read_bytes()
    file.symlink_to(other)
    refuse_to_replace(monkeypatch, errno.EPERM)  # as in a sticky folder, for the link of another user
    with (
        pytest.warns(UserWarning, match="is a symbolic link"),
        pytest.warns(UserWarning, match="in this process only: .*Operation not permitted.*set FLOPSCOPE_CACHE_DIR"),
    ):
        fsd.measure_peaks("cuda", reset=True)
    assert other.read_bytes() == intact and cache_files(tmp_path) == [file]


def test_uncaptured_kernels_are_measured_later(core: FakeCore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(device: str) -> float:
        raise RuntimeError(why)

    monkeypatch.setattr("flopscope.support.peak_timing.shortest_kernel", fail)
    for why, cached in (("CUPTI is taken by Nsight Systems", False), ("there is no libcupti", True)):
        forget()
        peaks = fsd.measure_peaks("cuda")
        assert peaks.kernel_ns is None and peaks.missing["kernel"] == why and (tmp_path / "cache").exists() is cached


def test_the_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FLOPSCOPE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fsp.cache_folder() == tmp_path / "flopscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert fsp.cache_folder() == tmp_path / "home" / ".cache" / "flopscope"
