"""Accelerators keep their names: what a trace's own evidence tells of its devices, in tables, summaries and pages."""

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import Json, event, load, memory, op, rewritten

import flopscope as fs
from flopscope.answers.analysis import analysis_of


def trace_of(
    *more: Json, kernel: str = "kernel", call: str = "cuda_runtime", launch: str = "launch", **head: Any
) -> Any:
    """Return a trace of two kernels on device 3, launched by an op, and what makes it one of an accelerator."""
    events = [op("aten::mm", 0, 20, External_id=1)]
    for number in (1, 2):
        events.append(event(call, launch, 4 * number, 2, correlation=number))
        events.append(event(kernel, "k", 20 * number, 10, 7, 3, device=3, stream=7, correlation=number))
    return load(*events, *more, schemaVersion=1, **head)


def device(name: str) -> Json:
    return {"deviceProperties": [{"id": 3, "name": name}]}


def allocation(device_type: int) -> Json:
    return memory(1, 64, 1, device_type, **{"Device Id": 3, "Addr": 1, "Total Allocated": 64})


CASES: dict[str, tuple[Any, str, str]] = {
    "nothing": (trace_of, "cuda", "cuda"),
    "CUDA's names": (lambda: trace_of(launch="cudaLaunchKernel", **device("NVIDIA H200")), "cuda", "cuda"),
    "HIP's calls": (lambda: trace_of(launch="hipLaunchKernel"), "hip", "cuda"),
    "HIP's category": (lambda: trace_of(call="hip_runtime"), "hip", "cuda"),
    "HIP's version": (lambda: trace_of(hip_runtime_version=6), "hip", "cuda"),
    "AMD's name": (lambda: trace_of(**device("AMD Instinct MI210")), "hip", "cuda"),
    "XPU's calls": (lambda: trace_of(call="xpu_runtime"), "xpu", "xpu"),
    "Intel's name": (lambda: trace_of(**device("Intel(R) Data Center GPU Max 1550")), "xpu", "xpu"),
    "MTIA": (lambda: trace_of(call="mtia_runtime", kernel="mtia_ccp_events"), "mtia", "mtia"),
    "HPU": (lambda: trace_of(kernel="hpu_op"), "hpu", "hpu"),
    "an extension": (lambda: trace_of(call="privateuse1_runtime"), "privateuseone", "privateuseone"),
    "TPU's name": (lambda: trace_of(**device("TPU v4")), "tpu", "tpu"),
    "Ascend": (lambda: trace_of(call="privateuse1_runtime", **device("Ascend910B")), "npu", "npu"),
    "memory of CUDA": (lambda: trace_of(allocation(1)), "cuda", "cuda"),
    "memory of XPU": (lambda: trace_of(allocation(12)), "xpu", "xpu"),
    "memory of the CPU": (lambda: trace_of(allocation(0)), "cuda", "cuda"),
    "an op's name": (lambda: trace_of(op("hipster::op", 90, 1)), "cuda", "cuda"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_trace_tells_its_accelerator(case: str, tmp_path: Path) -> None:
    make, accelerator, device_type = CASES[case]
    trace = make()
    name = f"{device_type}:3"
    assert analysis_of(trace, "test").accelerator == accelerator
    assert trace._core.devices == {name} and set(trace.accounting().device) == {name}
    table = trace.key_averages()
    assert {row.device_type for row in table} == {"cpu", device_type} and table.device_type == device_type
    assert {event.device_type for event in trace.events()} == {"cpu", device_type}
    assert f"Self {device_type.upper()} " in table.table() and f"Self {device_type.upper()} time total" in table.table()
    assert f"Self {device_type.upper()}" in str(table)
    sort = [row.key for row in table.sorted(f"self_{device_type}_time_total")]
    assert sort == [row.key for row in table.sorted("self_device_time_total")]
    streams = {row.group for row in trace.key_averages(group_by=("name", "stream")) if row.device_type != "cpu"}
    assert streams == {f"{name} stream 7"}
    # Tensor cores are those of GPUs whose kernels have known names.
    share = trace.gpu_summary().tensor_core_time.iloc[-1]
    assert share == 0 if accelerator in ("cuda", "hip") else math.isnan(share)
    # Nothing that is printed or exported calls it otherwise.
    printed = str(trace.summary())
    assert name in printed and "csrc/" not in printed
    units = {"cuda": "tensor cores", "hip": "matrix cores", "xpu": "XMX", "tpu": "MXU"}.get(accelerator)
    assert units is None or f"; {units}: of" in " ".join(printed.split())
    assert ("tensor cores" in printed) == (accelerator == "cuda")
    trace.write_report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f'"device_type": "{device_type}"' in page.replace('":"', '": "')
    if device_type != "cuda":
        tables = f"{table.table()}{table}{table._repr_html_()}{fs.compare(trace, trace)}"
        for text in (printed, page, tables):
            assert "cuda:" not in text and "Self CUDA" not in text
    assert rewritten(trace, tmp_path)._core.accelerator == trace._core.accelerator


def test_a_program_without_device_work_has_none() -> None:
    trace = load(op("aten::mm", 0, 20), schemaVersion=1, hip_runtime_version=6)
    assert analysis_of(trace, "test").accelerator == "cpu" and trace._core.device_name(-1) == "cpu"
