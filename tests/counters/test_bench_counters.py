"""The benchmark of counters without a GPU: its parts in processes of their own, and its reading of Nsight Compute."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import counters as benchmark
from harness import Report, write_json
from helpers.counter_programs import SETUP
from helpers.fake_cupti import build, run_with_fake

# Bytes read and written, warp instructions, fadd, fmul and ffma of kernels: those of add are of an H200.
RECORDED = {
    "add": [(2147628288, 1055577088, 35651584, 0, 0, 268435456)],
    "mul_scalar": [(1073781504, 1049305088, 20971520, 0, 268435456, 0)],
    "softmax": [(1073805568, 1050054400, 300, 10, 0, 5), (2048, 4096, 7, 1, 2, 3)],
}
METRICS = (
    benchmark.READ,
    benchmark.WRITTEN,
    benchmark.INSTRUCTIONS,
    benchmark.FADD,
    benchmark.FMUL,
    benchmark.FFMA,
)


def ncu_page() -> str:
    """Return the raw page of ncu as CSV, as it prints it between other lines."""
    names = ["ID", "Process ID", "Kernel Name", *METRICS]
    lines = [
        "==PROF== Connected to process 4242 (/usr/bin/python3)",
        '==PROF== Profiling "vectorized_elementwise_kernel" - 0: 0%....100% - 1 pass',
        "what the program prints",
        "==PROF== Disconnected from process 4242",
        ",".join(f'"{name}"' for name in names),
        ",".join(f'"{unit}"' for unit in ["", "", "", "byte", "byte", "inst", *["inst"] * 3]),
    ]
    ranges = [(name, counts) for name, kernels in RECORDED.items() for counts in kernels]
    for number, (name, counts) in enumerate(ranges):
        cells = [str(number), "4242", f"{name}/vectorized_elementwise_kernel", *(f"{count:,}" for count in counts)]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join(lines) + "\n"


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in the place of ncu that prints the recorded page."""
    path = tmp_path / "bin" / "ncu"
    path.parent.mkdir()
    (tmp_path / "page.csv").write_text(ncu_page(), encoding="utf-8")
    path.write_text(f"#!/bin/sh\ncat {tmp_path / 'page.csv'}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


def results(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def test_results_have_six_digits_and_a_line_for_each_sample(tmp_path: Path) -> None:
    samples = [{"case": name, "values": [1 / 3e6, 268451840.0, math.nan, 7]} for name in ("α", "b")]
    write_json(tmp_path / "x.json", {"name": "x", "rows": [["1", 0.1 + 0.2]], "empty": [], "samples": samples})
    values = '"values":[3.33333e-07,268451840,NaN,7]'
    assert (tmp_path / "x.json").read_text(encoding="utf-8").splitlines() == [
        "{",
        ' "name": "x",',
        ' "rows": [["1",0.3]],',
        ' "empty": [],',
        ' "samples": [',
        f'  {{"case":"α",{values}}},',
        f'  {{"case":"b",{values}}}',
        " ]",
        "}",
    ]


def test_the_kernels_of_a_range_are_summed(ncu: Path) -> None:
    sums = benchmark.ncu("calls", METRICS, "all")
    assert {name: tuple(sums[name].values()) for name in sums} == {
        name: tuple(float(sum(column)) for column in zip(*kernels, strict=True)) for name, kernels in RECORDED.items()
    }


def test_an_ncu_that_fails_is_quoted(ncu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission'\nexit 1\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"exited with 1 and counted 0 kernels: .*ERR_NVGPUCTRPERM"):
        benchmark.ncu("calls", METRICS, "all")
    monkeypatch.setattr(benchmark, "NCU_SECONDS", 0.2)
    ncu.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"took more than 0\.2 s"):
        benchmark.ncu("calls", METRICS, "all")
    monkeypatch.setenv("PATH", str(ncu.parent.parent))
    with pytest.raises(RuntimeError, match="missing"):
        benchmark.ncu("calls", METRICS, "all")


def test_counts_are_held_against_those_of_ncu(ncu: Path, tmp_path: Path) -> None:
    ours = {
        "add": {"dram_bytes_read": 2147628288 * 1.001, "dram_bytes_written": 1.0, "instructions": 35651584.0,
                "fp32_flops": 2 * 268435456.0},
        "mul_scalar": {"dram_bytes_read": 1073781504.0, "dram_bytes_written": 1.0, "instructions": 20971520.0},
        "softmax": {"dram_bytes_read": 1073807616.0, "dram_bytes_written": 1.0, "instructions": 307.0,
                    "fp32_flops": 10 + 1 + 2 + 2.0 * 8},
        "mm": {"dram_bytes_read": 1.0, "dram_bytes_written": 1.0, "instructions": 1.0},
    }  # fmt: skip
    out = benchmark.Results(tmp_path / "calls.json")
    benchmark.compare(ours, benchmark.ncu("calls", METRICS, "all"), out)
    content = results(tmp_path / "calls.json")
    rows = {row[0]: row[1:] for row in content["rows"]}
    assert rows["3 calls: bytes read / ncu"] == ["1.000000", "1.000000", "1.001000", "±0.5 %"]
    assert rows["3 calls: instructions / ncu"][:3] == ["1.000000"] * 3
    targets = {text: value <= limit for text, value, limit, _ in content["targets"]}
    assert targets == {
        "bytes read of 3 calls are off by": True,
        "instructions of 3 calls are off by": True,
        "fp32 FLOPs of 3 calls are off by": False,  # those of one call were not counted
    }
    assert "Nsight Compute has no counts of mm" in content["notes"]
    assert any("1 of 3 are unknown" in note for note in content["notes"])


PART = """
import json, os, sys, time
sys.path.insert(0, {folder!r})
import counters as benchmark
from pathlib import Path
name, out = sys.argv[1], benchmark.Results(Path(sys.argv[2]))
out.keep(name, {{"x": [1.0, float("nan")]}}, "")
out.show(name, [1.0, 2.0, 3.0], 1, "<")
if name == "hangs":
    child = os.fork()
    Path({pids!r}).write_text(str(child or os.getpid()))
    time.sleep(60)
if name == "raises":
    raise RuntimeError("no permission")
out.target(name, 1.0, 2.0, "%")
"""


def test_a_part_that_hangs_or_fails_leaves_its_results_and_the_other_parts(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    script = tmp_path / "part.py"
    script.write_text(PART.format(folder=str(Path(benchmark.__file__).parent), pids=str(pids)), encoding="utf-8")
    report = Report("counters", benchmark.COLUMNS, None, "cuda")
    parts = {"raises": 60, "hangs": 6, "works": 60, "absent": 60}

    def command(name: str, path: Path) -> list[str]:
        return ["/nowhere/python"] if name == "missing" else [sys.executable, str(script), name, str(path)]

    benchmark.run_parts(parts, report, command)
    assert [row[0] for row in report.rows] == list(parts)
    assert {sample["case"] for sample in report.samples} == {*parts}
    assert math.isnan(report.samples[0]["values"][1])
    assert [target["text"] for target in report.targets] == ["works", "absent"]
    assert report.notes[0] == "raises failed: exit status 1: RuntimeError: no permission"
    assert report.notes[1].startswith("hangs failed: it took more than 6 s") and len(report.notes) == 2
    assert "works" in report.text()
    status = Path("/proc") / pids.read_text() / "status"  # what the part had started has ended too
    end = time.monotonic() + 10
    while status.exists() and "Z (zombie)" not in status.read_text() and time.monotonic() < end:
        time.sleep(0.01)
    assert not status.exists() or "Z (zombie)" in status.read_text()


ON_THE_FAKE = """
sys.path.insert(0, BENCHMARKS)
from types import SimpleNamespace
import counters as benchmark
out = benchmark.Results(benchmark.Path(OUT))

def launch(*tensors):
    start = cuda.launch("k", 20_000)
    counts = ((benchmark.READ, 2e6), (benchmark.WRITTEN, 1e6), (benchmark.INSTRUCTIONS, 3e5), (benchmark.FADD, 7e6),
              ("smsp__sass_thread_inst_executed.sum", 9e6))
    for metric, amount in counts: cuda.traffic(metric, start, 20_000, amount)
    while cuda.now() < start + 21_000: pass

torch = SimpleNamespace(rand=lambda *shape, device: 0, add=launch,
                        cuda=SimpleNamespace(synchronize=lambda: None))
"""


def on_the_fake(tmp_path: Path, *parts: str) -> dict[str, Any]:
    library = build(tmp_path)
    names = f"BENCHMARKS, OUT = {str(Path(benchmark.__file__).parent)!r}, {str(tmp_path / 'out.json')!r}\n"
    run_with_fake(library, SETUP, names, ON_THE_FAKE, *parts)
    return results(tmp_path / "out.json")


def test_long_runs_are_reported(tmp_path: Path) -> None:
    found = on_the_fake(
        tmp_path,
        """
        benchmark.LONG_RUNS = (("default", 0, 0.5), ("200 us", 200_000, 0.2))
        torch.add = lambda *tensors: time.sleep(0.0002)
        cuda.traffic(READ, cuda.now(), 2 * 10**9, 2e12)
        benchmark.long(torch, out)
        """,
    )
    assert [target[0] for target in found["targets"]] == ["overflows at the interval default",
                                                          "overflows at the interval 200 us"]  # fmt: skip
    assert "samples of 2.5 us, then" in found["notes"][0] and "samples of 200 us, then 200 us" in found["notes"][1]
    assert all(values["samples"][0] > 100 for _, values, _ in found["samples"])


def test_calls_are_counted_even_without_an_ncu(tmp_path: Path) -> None:
    found = on_the_fake(
        tmp_path,
        """
        benchmark.the_calls = lambda torch: {"add": launch, "mul": launch}
        benchmark.nsight.shutil.which = lambda name: None
        _core.measure_flush = lambda device: None
        try:
            benchmark.calls(torch, out)
        except RuntimeError as problem:
            assert "Nsight Compute is missing" in str(problem)
        """,
    )
    counted = {case: {name: value[0] for name, value in values.items()} for case, values, _ in found["samples"]}
    assert set(counted) == {"call add, counted", "call mul, counted"}
    for counts in counted.values():
        assert counts["dram_bytes_read"] == pytest.approx(2e6) and counts["instructions"] == pytest.approx(3e5)
        assert counts["fp32_flops"] == pytest.approx(7e6)


def test_the_parts_fit_into_their_time() -> None:
    assert (
        sum(benchmark.PARTS.values()) <= 450
        and min(benchmark.PARTS["program"], benchmark.PARTS["calls"]) > benchmark.NCU_SECONDS
    )
