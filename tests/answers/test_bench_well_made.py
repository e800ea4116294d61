"""The benchmark of well-made programs on a CPU: small copies of the programs, and what is said of their advice."""

from __future__ import annotations

import gzip
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

import flopscope as fs

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "benchmarks"))
import well_made as benchmark  # noqa: E402
from faults import reset  # noqa: E402
from harness import Report, machine  # noqa: E402


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    reset()


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", benchmark.PROGRAMS)
def test_the_programs_run(name: str, defaults: None) -> None:
    program = benchmark.PROGRAMS[name]
    step = program.build(**program.tiny)
    for _ in range(2):
        step()


@pytest.mark.parametrize("name", benchmark.PROGRAMS)
def test_the_options_that_follow_advice_are_those_of_the_program(name: str) -> None:
    program = benchmark.PROGRAMS[name]
    options = inspect.signature(program.build).parameters
    for chosen in (program.tiny, *program.changes.values()):
        assert set(chosen) <= set(options)
    for option in program.changes.values():
        assert any(options[key].default != value for key, value in option.items())


def test_a_run_leaves_traces_and_results(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chosen = ["--only", "vit,matmul,numpy_products"]
    options = benchmark.options_of([*chosen, "--device", "cpu", "--tiny", "--out", str(tmp_path)])
    assert benchmark.run_all(options, tmp_path), capfd.readouterr().out
    result = json.loads((tmp_path / "well_made.json").read_text(encoding="utf-8"))
    made = [sample for sample in result["samples"] if sample["who"] == "as made"]
    assert [sample["case"] for sample in made] == options.names
    assert all(len(sample["values"]) == benchmark.SAMPLES and min(sample["values"]) > 0 for sample in made)
    assert all({"advice", "notes", "accounting"} <= set(sample) for sample in made)
    assert {path.name for path in tmp_path.iterdir()} == {"well_made.json", *(f"{n}.json.gz" for n in options.names)}
    paths = [tmp_path / f"{name}.json.gz" for name in options.names]
    recorded = [json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] for path in paths]
    names = [{event.get("name", "") for event in events} for events in recorded]
    assert [sum(name.startswith("ProfilerStep#") for name in found) for found in names] == [
        benchmark.TRACED_STEPS,
        0,
        benchmark.TRACED_STEPS,
    ]
    traces = [fs.load_trace(path) for path in paths]
    products = next(row for row in traces[1].key_averages() if row.key == "aten::mm")
    assert products.count == 6 * benchmark.TRACED_STEPS and products.flops == 2 * 64**3 * products.count
    stated = next(row for row in traces[2].key_averages() if row.key == "product")
    assert stated.flops == 2 * 64 * 64 * 512 * stated.count


def test_a_program_that_fails_or_hangs_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = {"gpt": "it took more than 75 s", "vit": "", "decode": "exit status 1: RuntimeError: no memory"}

    def run_for(command: list[str], seconds: float) -> str:
        name = command[command.index("--only") + 1]
        assert command[:2] == ["env", "CUDA_VISIBLE_DEVICES="] and 0 < seconds <= benchmark.SECONDS
        if name != "decode":
            row = {"samples_ms": [1.0], "changed": {}} | ({"advice": []} if name == "vit" else {})
            (tmp_path / f"{name}.json").write_text(json.dumps(row), encoding="utf-8")
        return problems[name]

    monkeypatch.setattr(benchmark, "run_for", run_for)
    options = benchmark.options_of(["--only", ",".join(problems), "--device", "cpu", "--tiny"])
    assert not benchmark.run_all(options, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    cells = [line.split() for line in lines]
    assert ["gpt", "1.000", "unknown"] in cells and ["vit", "1.000", "none"] in cells
    for name in ("gpt", "decode"):
        assert f"{name} failed: {problems[name]}" in lines
    monkeypatch.setattr(benchmark, "TOTAL_SECONDS", 1)
    assert not benchmark.run_all(options, tmp_path)
    assert "vit failed: no time is left" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("promised", "change", "wrong", "words"),
    [
        (2.9, None, 0, ["none"]),
        (10.0, None, 1, ["no", "such", "option", "NOT", "SHOWN"]),
        (10.0, {"samples_ms": [1.88, 1.86, 1.90]}, 0, ["{}", "1.880", "6.0", "%"]),
        (10.0, {"samples_ms": [1.92]}, 1, ["{}", "1.920", "4.0", "%", "WRONG"]),
        (10.0, {"error": "RuntimeError: no"}, 1, ["{}", "RuntimeError:", "no"]),
    ],
)
def test_advice_is_right_if_it_gained_half_of_what_it_promised(
    promised: float, change: dict[str, Any] | None, wrong: int, words: list[str]
) -> None:
    report = Report("well_made", benchmark.COLUMNS, None)
    advice = [{"rule": "launch", "saving_pct": promised, "what": "use a graph"}]
    changed = {"launch": {"option": "{}", **change}} if change else {}
    row = {"samples_ms": [1.9, 2.0, 2.1], "changed": changed, "advice": advice}
    assert benchmark.judged("program", row, report) == wrong
    (cells,) = report.rows
    assert cells[:2] == ["program", "2.000"] and " ".join(cells).split()[-len(words) :] == words


def test_names_that_are_unknown_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.options_of(["--only", "gpt,gtp"])
    assert "unknown program: gtp; known: gpt, " in capsys.readouterr().err
    assert set(benchmark.options_of(["--device", "cpu"]).names) == {"cpu_products", "numpy_products"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_flopscope_cannot_see_is_missing_from_the_results() -> None:
    assert machine("cuda")["device"] is None and machine("cpu")["device"]
