"""The tables of counters, against CUPTI itself and its headers, which need no GPU."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.processes import ended, output_of

from flopscope import _core
from flopscope.record.counters import STALLS

CHIPS = ("GA100", "GA102", "GA106", "AD102", "AD107", "GH100", "GB100", "GB102", "GB202", "GB207")


def cupti() -> str | None:
    """Return the path of a CUPTI with NVIDIA's tables of metrics beside it, or None."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return None
    try:
        path: str | None = load_nvidia_dynamic_lib("cupti").abs_path
    except Exception:
        return None
    return path if path and (Path(path).parent / "libnvperf_host.so").exists() else None


PROGRAM = """
import json, sys
from flopscope import _core
_core.load_counters(sys.argv[1])
known = _core.counter_chips()
plans = {}
for chip in sys.argv[2].split(","):
    if chip in known:
        plans[chip] = {"": _core.counter_plan(chip)}
        for group in _core.counter_groups:
            try:
                plans[chip][group] = _core.counter_plan(chip, group)
            except RuntimeError as problem:
                plans[chip][group] = str(problem)
print(json.dumps(plans))
"""


@pytest.mark.skipif(cupti() is None, reason="CUPTI's wheel is not installed")
def test_every_chip_has_its_metrics_in_few_passes() -> None:
    plans = json.loads(output_of(PROGRAM, cupti(), ",".join(CHIPS)))
    assert len(plans) >= 8
    for chip, groups in plans.items():
        sampled, passes = groups[""]
        assert passes == 1, chip
        metrics = {"dram_bytes_read", "dram_bytes_written", "sm_active", "tensor_active", "l2_bytes", "fma_active"}
        metrics |= {"issue_active"} | ({"alu_active"} if not chip.startswith("GB2") else set())
        metrics |= {"l2_active", "l1_active"} if chip in ("GH100", "GB100", "GB102") else set()
        metrics |= {"fp64_active"} if chip in ("GA100", "GH100", "GB100", "GB102") else set()
        assert metrics <= {*sampled.values()}, chip
        for group in ("memory", "units", "issue", "scalar", "bf16_tensor"):
            assert groups[group][1] == 1, (chip, group)
        assert {"dram_bytes_read", "dram_bytes_written", "l2_bytes", "occupancy"} <= {*groups["memory"][0].values()}
        units = {f"{unit}_active" for unit in ("fma", "fp64", "alu", "issue", "l1")} | {"units_ns"}
        assert {*groups["units"][0].values()} == units, chip
        assert {*groups["scalar"][0].values()} == {"fp32_flops", "fp64_flops", "fp16_flops", "thread_instructions"}
        assert len(groups["scalar"][0]) == 10 and groups["fp16_tensor"][1] <= 2
        assert groups["stalls"][1] <= 6 and groups["access"][1] <= 5, chip
        waits = {name for names in STALLS.values() for name in names} - {"stall_gmma", "warpgroup_arrive"}  # Hopper's
        assert waits | {"warps_per_issue"} <= {*groups["stalls"][0].values()}, chip
        access = {name for name, _, _, group in _core.counter_rows if group == "access"}
        assert {*groups["access"][0].values()} == access and len(access) == 9, chip
    assert "none of these counters" in plans["GA100"]["fp8_tensor"]


def headers() -> Path | None:
    """Return the folder of NVIDIA's headers of CUDA 13, or None."""
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr/local/cuda-13.0"):
        if home and (Path(home) / "include" / "cupti_pmsampling.h").exists():
            return Path(home) / "include"
    return None


@pytest.mark.skipif(headers() is None or shutil.which("g++") is None, reason="no headers of CUPTI, or no C++ compiler")
def test_the_declarations_agree_with_nvidias_headers() -> None:
    command = ["g++", "-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{headers()}", f"-I{ROOT / 'csrc'}"]
    done = subprocess.run([*command, str(ROOT / "tests/c/counters_abi.cpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_are_documented_and_distinct() -> None:
    names = [name for name, _, _, _ in _core.counter_rows]
    assert len({*names}) == len(names) and all(prose for _, _, prose, _ in _core.counter_rows)
    assert {group for _, _, _, group in _core.counter_rows} <= {*_core.counter_groups}
    metrics = [name for name, _, _, _ in _core.counter_metrics]
    assert len({*metrics}) == len(metrics)


def test_without_cupti_the_error_names_what_is_missing() -> None:
    said = ended("from flopscope import _core\n_core.load_counters('/nowhere/libcupti.so')").stderr
    assert "nvidia-cuda-cupti" in said and "/nowhere/libcupti.so" in said
