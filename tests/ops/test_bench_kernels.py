"""The benchmark of kernels on a CPU: its cases are right and timed, and its targets name their worst case."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers import ROOT

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "benchmarks"))
from harness import Report, run, spread  # noqa: E402
from kernel_cases import Case  # noqa: E402

import kernels as benchmark  # noqa: E402


def test_the_selected_cases_are_checked_and_timed(tmp_path: Path) -> None:
    program = str(ROOT / "benchmarks" / "kernels.py")
    wanted = "^reduction sum of rows of 128 float32", "^transposed.*float64", "softmax of rows of 1024"
    only = "|".join([*wanted, "^small, host (add|sum) of 1 Ki"])
    run([sys.executable, program, "--seconds", "0", "--only", only, "--out", str(tmp_path)])
    result = json.loads((tmp_path / "kernels.json").read_text())
    labels = [" ".join(row[:3]) for row in result["summary"]["rows"]]
    rows = [f"rows {name} of rows of 1024" for name in ("softmax", "log_softmax")]
    small = [f"small, host {name} of 1 Ki float32" for name in ("add", "sum")]
    ways = ["x.t() to dense", "dense to x.t()"]
    assert labels == [
        *("reduction sum of rows of 128 float32", *[f"{row} float32" for row in rows], *small),
        *[f"{row} bfloat16" for row in rows],
        *[f"transposed {way}{how} float64" for how in ("", ", batched") for way in ways],
    ]
    (wrong,) = [one for one in result["summary"]["targets"] if one["text"].startswith("cases whose result")]
    assert (wrong["value"], wrong["unit"]) == (0, "of 11")


def case(name: str, ours: torch.Tensor) -> Case:
    x = torch.tensor([1.0, 2.0])
    return Case("pow", name, "float32", lambda: ours, partial(torch.mul, x, 2), lambda: 2 * x.double(), 16, x)


@pytest.mark.parametrize(
    ("values", "off"), [([2.0, 4.0], None), ([2.0, 4.001], "off by 0.00014"), ([2.0, math.nan], "off by nan")]
)
def test_a_wrong_result_is_told(values: list[float], off: str | None) -> None:
    """|result - reference| over (|reference| + its mean): 0.001 / (4 + 3)."""
    told = benchmark.error_of(case("x", torch.tensor(values)), torch)
    assert told is None if off is None else told is not None and off in told


def test_a_family_is_judged_by_its_worst_case() -> None:
    report = Report("kernels", ["a"], None, "cuda")
    x = torch.tensor([2.0, 4.0])
    results = [benchmark.Result(case(f"to {share}", x), spread([1.0]), {"copy": share}) for share in (0.93, 0.89, 0.95)]
    benchmark.judge(report, results, "cuda")
    (target,) = report.targets
    assert (target["value"], target["limit"], target["met"]) == (89.0, 90.0, False)
    assert report.text().splitlines()[-1] == (
        "target: pow: least share of the copy >= 90 %: 89 % (to 0.89 float32; 1 of 3 below), MISSED"
    )


def test_rates_are_shares_of_those_of_the_copy_and_the_read(tmp_path: Path) -> None:
    """Reading 8 bytes in 4 s: the copy moves 16 in 2 s, four times the rate; the read takes as long."""
    x = torch.tensor([2.0, 4.0])
    one = Case("reduction", "sum", "float32", x.sum, x.sum, x.sum, 8, x)
    report = Report("kernels", benchmark.COLUMNS, None, "cuda")
    timers = benchmark.Timers(torch, "cpu", tmp_path, report)
    timers.readers = [torch.sum]
    samplers = timers.of(one)
    assert set(samplers) == {"flopscope", "torch", "torch copy_", "read"}
    seconds = {"flopscope": 4.0, "torch": 8.0, "torch copy_": 2.0, "read": 4.0}
    result = benchmark.measure(report, one, {who: partial(float, seconds[who]) for who in samplers}, 3, 1.0)
    assert (result.relative.median, result.shares) == (0.5, {"copy": 0.25, "read": 1.0})
    benchmark.judge(report, [result], "cuda")
    assert [target["met"] for target in report.targets] == [True]
