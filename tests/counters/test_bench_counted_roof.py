"""The benchmark of counted roofs without a GPU: its programs, its profiles on a fake, and its comparison with ncu."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import counted_roof as benchmark
import counted_roof_programs as programs
import nsight
from harness import Report
from helpers.counter_programs import SETUP
from helpers.fake_cupti import build, run_with_fake

PEAK = 4.9e12  # bytes/s


def by_ncu(around: str, name: str, us: float, **shares: float) -> nsight.Kernel:
    """Return a kernel as ncu counts it: DRAM by its share of the peak, all else that is not named 0."""
    values = {metric: 0.0 for metrics in benchmark.RUNS.values() for metric in metrics}
    values |= {benchmark.UNITS[unit].metric: value for unit, value in shares.items()}
    dram = shares.get("DRAM", 0.0)
    values |= {benchmark.DURATION: 1000 * us, benchmark.BYTES_SHARE: dram, benchmark.READ: dram / 100 * PEAK * us / 1e6}
    return nsight.Kernel(around, name, values)


def by_flopscope(case: str, kernel: str, us: float, bound: str, dram: float, **more: float) -> dict[str, Any]:
    """Return a row of two launches of that many us, with that share of the DRAM's peak."""
    row = dict.fromkeys(benchmark.KEPT, 0.0) | {"count": 2, "device_busy_time": 2 * us, "pct_roofline": 90.0}
    row |= {"gbytes_per_s": dram / 100 * PEAK / 1e9, **more}
    return {"case": case, "calls": 2, "kernel": kernel, "bound": bound, "bytes_source": "counted",
            "flops_source": None, **row}  # fmt: skip


def pairs(ours: list[dict[str, Any]], theirs: list[nsight.Kernel], report: Report) -> list[benchmark.Pair]:
    found = benchmark.by_case("CuPy", theirs)
    result = {"rows": ours, "coverage": {"bytes": 0.97}}
    return benchmark.matched("CuPy", result, found, benchmark.dram_peak(theirs), report)


@pytest.fixture
def report() -> Report:
    return Report("counted_roof", benchmark.COLUMNS, None, "cuda")


def test_kernels_are_compared_by_case_and_name(report: Report) -> None:
    theirs = [
        by_ncu("CuPy: add", "cupy_add", 200, DRAM=87, FMA=3),
        by_ncu("CuPy: add", "cupy_add", 200, DRAM=89, FMA=3),
        by_ncu("CuPy: sort", "Onesweep", 300, DRAM=60),
        by_ncu("cub::DeviceRadixSort", "Onesweep", 100, DRAM=80),  # inside of a range of CUB's
        by_ncu("Triton: add", "cupy_add", 100, DRAM=50),
    ]
    ours = [
        by_flopscope("add", "void a::b<int>::cupy_add<float, 4>(float*)", 200, "memory", 86, fma_active=4.0),
        by_flopscope("sort", "Onesweep(int)", 150, "memory", 64),
        by_flopscope("sort", "tiny", 2, "memory", 10),
    ]
    add, sort = pairs(ours, theirs, report)
    assert (add.name, sort.name) == ("add: cupy_add", "sort: Onesweep")
    assert add.ours["DRAM"] == pytest.approx(86, rel=0.001) and add.theirs["DRAM"] == 88
    assert add.off("DRAM") == pytest.approx(2, abs=0.1) and add.off("FMA") == 1
    assert sort.theirs["DRAM"] == 65, "weighted by time"
    assert add.agrees() and not math.isnan(sort.off("DRAM")) and add.their_bound == "DRAM"
    benchmark.conclude([add, sort], report)
    met = {target["text"]: (target["met"], target["value"]) for target in report.targets}
    assert met["CuPy: bytes known, by time"] == (True, 0.97)
    assert met["DRAM off by"][0] and met["DRAM off by"][1] == pytest.approx(2, abs=0.1)
    assert met["bounds of 2 kernels that are ncu's"] == (True, 100.0)
    assert [row[0] for row in report.rows] == ["CuPy", "CuPy"]
    summary = {"rows": [*report.rows, ["Numba", "ImportError", *["–"] * 12]], "targets": report.targets}
    lines = list(benchmark.page({"summary": summary, "machine": {"device": "NVIDIA H200"}}))
    assert lines[2].startswith("The table compares 2 kernels on one NVIDIA H200")
    assert "- DRAM off by <= 5 points: 2" in "\n".join(lines) and "bytes known" not in "\n".join(lines)
    assert lines[-2:-1] == ["| CuPy | add: cupy_add | 200.0 | memory | DRAM | 86 / 88 | 0 / 0 | 4 / 3 |"]


def test_a_kernel_without_a_partner_is_named_and_misses_no_target(report: Report) -> None:
    theirs = [by_ncu("CuPy: add", "other", 200, DRAM=88)]
    (alone,) = pairs([by_flopscope("add", "cupy_add(float*)", 200, "memory", 86)], theirs, report)
    assert math.isnan(alone.off("DRAM")) and math.isnan(alone.speed_of_light)
    assert report.notes == ["CuPy: ncu has no add: cupy_add"]
    benchmark.conclude([alone], report)
    assert not any(target["met"] for target in report.targets if target["text"].startswith(("DRAM", "bounds")))


@pytest.mark.parametrize(
    ("said", "shares", "agrees"),
    [
        ("memory", {"DRAM": 90.0, "FMA": 20.0}, True),
        ("compute", {"DRAM": 90.0, "FMA": 20.0}, False),
        ("compute", {"DRAM": 60.0, "FMA": 56.0}, True),  # within the error of both
        ("issue", {"issue": 75.0}, True),
        ("fma", {"FMA": 88.0, "issue": 92.0}, True),
        ("fma", {"tensor": 88.0, "FMA": 60.0}, False),
        ("cache", {"L2": 80.0, "DRAM": 70.0}, True),
        ("l2", {"L2": 80.0, "DRAM": 70.0}, True),
        ("l1", {"L1": 80.0, "DRAM": 70.0}, True),
        ("memory", {"L2": 80.0, "DRAM": 70.0}, False),
        ("memory", {"L1": 90.0, "DRAM": 70.0}, False),
        ("other", {"DRAM": 53.0}, True),
        ("latency", {"DRAM": 20.0}, True),
        ("other", {"tensor": 70.0}, False),
        ("memory", {"DRAM": 40.0}, False),  # nothing is busy
        ("unknown", {"DRAM": 40.0}, False),
    ],
)
def test_bounds_agree_if_their_share_is_near_the_largest(
    said: str, shares: dict[str, float], agrees: bool, report: Report
) -> None:
    theirs = [by_ncu("CuPy: k", "k", 200, **shares)]
    (pair,) = pairs([by_flopscope("k", "k", 200, said, shares.get("DRAM", 0.0))], theirs, report)
    assert pair.agrees() == agrees


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("roof_matmul", "roof_matmul"),
        ("void cub::CUB_300001_SM_900::detail::Kernel<a::b<int, 4>::c, (bool)1>(T1::d<int> *, int)", "Kernel"),
        ("void regular_fft<1024u, (padding_t)1>(kernel_arguments_t<unsigned int>)", "regular_fft"),
        ("cudapy::__main__::saxpy[abi:v1][abi:cw51cXT](float, Array<float, 1, C, mutable, aligned>)", "saxpy"),
        ("void (anonymous namespace)::spmv<float>(float *)", "spmv"),
    ],
)
def test_names_are_those_that_ncu_prints(name: str, base: str) -> None:
    assert benchmark.base_name(name) == base


def test_each_call_is_a_step_of_one_profile(tmp_path: Path) -> None:
    found = run_with_fake(
        build(tmp_path),
        f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n",
        SETUP,
        """
        import counted_roof as benchmark
        calls = {"add": lambda: kernel("add", 100, read=3e8, written=1e8),
                 "mm": lambda: (kernel("mm", 200, read=1e7, tensor=80), kernel("add", 50, read=1e6))}
        print(json.dumps(benchmark.profile(benchmark.Program(calls, lambda: time.sleep(0.0005)))))
        """,
    )
    rows = {(row["case"], row["kernel"]): row for row in found["rows"]}
    assert set(rows) == {("add", "add"), ("mm", "mm"), ("mm", "add")}
    add, product = rows["add", "add"], rows["mm", "mm"]
    assert add["count"] == add["calls"] >= 3 and product["count"] == product["calls"]
    assert add["gbytes_per_s"] == pytest.approx(4000, rel=0.01)
    assert product["tensor_active"] == pytest.approx(80, rel=0.01)
    assert add["bytes_source"] == "counted" and found["coverage"]["bytes"] == pytest.approx(1)


def test_a_library_that_fails_is_a_row_and_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    def absent() -> Any:
        raise ModuleNotFoundError("No module named 'cupy'")

    def made(name: str) -> Callable[[], Any]:
        return lambda: benchmark.Program({name: lambda: None}, lambda: None)

    rows = {"CuPy": ("arrays", absent), "CUB": ("arrays", made("sort")), "Triton": ("triton", made("add"))}
    monkeypatch.setattr(benchmark, "PROGRAMS", {name: programs.Row(*row) for name, row in rows.items()})
    monkeypatch.setattr(benchmark, "profile", lambda program: {"rows": [], "coverage": {"bytes": 1.0}})
    path = tmp_path / "arrays.json"
    assert benchmark.profiled("arrays", path) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found == {
        "CuPy": {"error": "ModuleNotFoundError: No module named 'cupy'"},
        "CUB": {"rows": [], "coverage": {"bytes": 1.0}},
    }
    none: dict[tuple[str, str], list[nsight.Kernel]] = {
        (process, passes): [] for process in ("arrays", "triton") for passes in benchmark.RUNS
    }
    assert benchmark.compare({"arrays": found, "triton": {}}, none, report) == []
    assert [row[:2] for row in report.rows] == [
        ["CuPy", "ModuleNotFoundError: No module named 'cupy'"],
        ["Triton", "it was not profiled"],
    ]


def test_results_that_are_wrong_are_no_programs() -> None:
    programs.near(np.array([1.0, 2.0]), np.array([1.0, 2.001]), 1e-3)
    for wrong in ([1.0, 2.1], [1.0, math.nan]):
        with pytest.raises(RuntimeError, match="off by"):
            programs.near(np.array(wrong), np.array([1.0, 2.0]), 1e-3)
