"""A fake C binding with predefined devices and rates, on a machine that is otherwise idle."""

import os
from pathlib import Path
from typing import Any

import pytest

from flopscope.support import device as fsd
from flopscope.support import peak_timing as fsm
from flopscope.support import peaks as fsp

MIB = 1 << 20

H200_ROW = {
    "names": ["NVIDIA H200"],
    "flops": {"fp32": 66.9e12, "bf16_tensor": 989.4e12, "fp8_tensor": None, "int8_tensor": 1978.9e12},
    "bandwidth": 4.8e12,
    "source": "a datasheet <https://example.com/?a&b>",
    "sm_count": 132,
    "l2_bytes": None,
}

# Rates of the fake devices: FLOP/s or bytes/s by (probe, dtype); launches/s for "empty".
CUDA_RATES = {
    ("write", "float32"): 4.4e12, ("read", "float32"): 4.3e12, ("copy", "float32"): 4.2e12, ("l2", "float32"): 5.6e12,
    ("fma", "float64"): 32e12, ("fma", "float32"): 64e12, ("fma", "float16"): 128e12, ("matmul", "float64"): 60e12,
    ("matmul", "float32"): 51e12, ("matmul", "tf32"): 400e12, ("matmul", "float16"): 780e12,
    ("matmul", "bfloat16"): 800e12, ("matmul", "fp8"): 1400e12, ("matmul", "int8"): 1500e12,
    ("empty", "float32"): 1e9 / 550,
}  # fmt: skip
CPU_RATES = {
    ("write", "float32"): 9e9, ("read", "float32"): 12e9, ("copy", "float32"): 10e9, ("fma", "float64"): 40e9,
    ("fma", "float32"): 80e9, ("matmul", "float64"): 45e9, ("matmul", "float32"): 75e9, ("empty", "float32"): 1e9 / 90,
}  # fmt: skip


class FakeCore:
    def __init__(self) -> None:
        self.rates = {"cpu": dict(CPU_RATES), "cuda:0": dict(CUDA_RATES)}
        self.cuda_count = 1
        self.cuda_name = "NVIDIA H200"
        self.driver = 13000
        self.threads = 2
        self.memory_bytes = 140_000 * MIB
        self.calls: list[tuple[str, str, str, int]] = []
        self.busy: float | None = 0.0  # share used by other processes

    def cuda_device_count(self) -> int:
        if self.cuda_count == 0:
            raise RuntimeError("no CUDA driver was found: install one")
        return self.cuda_count

    def cuda_device_properties(self, index: int) -> dict[str, Any]:
        return {
            "name": self.cuda_name, "uuid": f"GPU-{index}", "driver_version": self.driver, "runtime_version": 13000,
            "l2_bytes": 60 * MIB, "memory_bytes": self.memory_bytes,
        }  # fmt: skip

    def default_device(self) -> str:
        return "cuda:0" if self.cuda_count else "cpu"

    def cpu_properties(self) -> dict[str, Any]:
        return {"name": "A <fast> CPU", "isa": "avx2", "threads": self.threads, "cache_bytes": 32 * MIB}

    def datasheet_find(self, name: str, sm_count: int, memory_bytes: float) -> dict[str, Any] | None:
        return H200_ROW if name == "NVIDIA H200" else None

    def probe(self, device: str, what: str, dtype: str, amount: int) -> tuple[float, float]:
        self.calls.append((device, what, dtype, amount))
        rate = self.rates[device].get((what, dtype))
        if rate is None:
            raise TypeError(f"{what} of {dtype} is not supported on {device}")
        done = {"matmul": 2.0 * amount**3, "fma": 1e6 * amount, "copy": 2.0 * amount}.get(what, float(amount))
        return done / rate, done


def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCore:
    """Replace the binding, where devices are found and probed, by the fake, and use an empty cache folder."""
    fake = FakeCore()
    monkeypatch.setattr(fsd, "_core", fake)
    monkeypatch.setattr(fsm, "_core", fake)
    monkeypatch.setattr("flopscope.support.peak_timing.shortest_kernel", lambda device: 1100.0)
    monkeypatch.setattr(
        "flopscope.support.peak_timing.busy_meter", lambda device: lambda: fake.busy if device.kind == "cpu" else None
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr("flopscope.support.busy.processors", lambda: 2)
    forget()
    monkeypatch.setenv("FLOPSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    return fake


def forget() -> None:
    """Clear the peaks that this process remembers."""
    fsp.remembered.clear()
