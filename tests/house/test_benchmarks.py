"""The benchmarks: each program starts, results are kept and compared, and the pages quote results that are there."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import run_all
import summary
from harness import Report, write_json

FOLDER = ROOT / "benchmarks"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if "\ndef main(" in path.read_text(encoding="utf-8"))
KEPT = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (FOLDER / "results").glob("*.json")}


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / f"{program}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_starts(program: str) -> None:
    if program == "jax_programs" and find_spec("jax") is None:
        pytest.skip("it needs JAX")
    done = run(program, "--help")
    assert done.returncode == 0 and "--out" in done.stdout, done.stderr


def test_programs_that_run_all_runs_exist_and_all_are_in_the_list_of_benchmarks() -> None:
    assert {*run_all.HOST_PROGRAMS, *run_all.DEVICE_PROGRAMS, *run_all.CUDA_PROGRAMS} <= {*PROGRAMS}
    for name in run_all.ROUNDS:
        assert "rounds=" in (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in PROGRAMS if not re.search(rf"`{name}\b", page)] == []


def test_a_run_is_kept_and_compared_with_the_one_before(tmp_path: Path) -> None:
    """The results before are those of a first run, with ratios a tenth of what they were."""
    done = run("run_all", "--only", "nothing")
    assert done.returncode and "there is no nothing; there are store_append" in done.stderr
    first = run("run_all", "--out", str(tmp_path), "--only", "store_append")
    assert first.returncode == 0, first.stderr
    kept = json.loads((tmp_path / "kept.json").read_text())
    (name,) = kept["store_append"]["ratios"]
    kept["store_append"]["ratios"][name] /= 10
    write_json(tmp_path / "before.json", kept)
    second = run("run_all", "--out", str(tmp_path), "--only", "store_append", "--before", str(tmp_path / "before.json"))
    assert f"regression: store_append: {name}: " in second.stdout, second.stdout + second.stderr


def test_ratios_are_over_each_peer_of_a_case(tmp_path: Path) -> None:
    """The median of the rounds' ratios: a disturbance of a whole round cancels."""
    report = Report("p", ["what"], tmp_path)
    report.keep("add", {"fs.add": [1.0, 20.0, 3.0], "fs.add, out=": [1.0], "torch": [2.0, 40.0, 6.0]}, ours="fs.")
    report.keep("mul", {"torch": [2.0], "numpy": [2.0]})
    report.target("memory", 0.25, 0.3, "x")
    report.finish()
    kept = summary.kept_of(json.loads((tmp_path / "p.json").read_text()))
    ratios = {"add: fs.add / torch": 0.5, "add: fs.add, out= / torch": pytest.approx(1 / 6, rel=1e-3), "memory": 0.25}
    assert kept["ratios"] == ratios
    assert "samples" not in kept and [target["met"] for target in kept["targets"]] == [True]


def test_kernels_are_checked_and_timed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    wanted = "^reduction sum of rows of 128 float32|^transposed.*float64|softmax of rows of 1024 float32|add float16"
    done = run("kernels", "--seconds", "0", "--only", wanted, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "kernels.json").read_text())
    assert {row[0] for row in result["rows"]} == {"reduction", "transposed", "rows", "pointwise, 16 bits"}
    (wrong,) = [one for one in result["targets"] if one["text"].startswith("cases whose result")]
    assert (wrong["value"], wrong["unit"]) == (0, f"of {len(result['rows'])}") and len(result["rows"]) == 8


def test_the_page_of_performance_names_results_and_their_versions() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.search(r" \| [\w, ]+ \d\.\d \|$", line)]
    assert len(rows) >= 14
    for line in rows:
        machine = "nvidia-h200" if "H200" in line else "cpu-amd-epyc-2core"
        programs, version = re.search(r" \| ([\w, ]+) (\d\.\d) \|$", line).groups()  # type: ignore[union-attr]
        for program in programs.split(", "):
            assert KEPT[machine][program]["machine"]["flopscope"].startswith(f"{version}."), line
            assert program in PROGRAMS or KEPT[machine][program]["program"], line
