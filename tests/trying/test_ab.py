"""flopscope ab: the rows of simulated runs in turns, and the command on small repositories whose times are made up."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.processes import git
from helpers.run_programs import environment

from flopscope.cli.schema import schema
from flopscope.measuring.sampling import Beside
from flopscope.measuring.trying.sides import made_ready, names_in
from flopscope.measuring.trying.turns import (
    COMPARED,
    ORDER,
    Run,
    Time,
    measure,
    ratios_of,
    row_of,
    steady_times,
    text_of,
)

LABELS = "main (1234abcd)", "working tree (1234abcd, clean)"


def compared(
    us: Callable[[int, int], float], noise: float = 0.003, names: tuple[str, ...] = ("a",),
    more: Callable[[int, Run, int], object] = lambda side, run, at: None, seed: int = 4, **how: float,
) -> dict[str, Any]:  # fmt: skip
    """Measure sides whose processes take 10 s of a clock. us: the time of a row, by the side and the process."""
    draw, order = random.Random(seed), list[int]()

    def run(side: int, limit: float) -> Run:
        times = {name: Time(us(side, len(order)) * draw.lognormvariate(0, noise)) for name in names}
        found = Run(times, {name: {"launches": 5 + 2 * side, "bytes": 1e6 * (1 + side)} for name in names}, {})
        more(side, found, len(order))
        order.append(side)
        return found

    how = {"resolution": 0.01, "max_time": 2000.0, **how}
    return measure(run, LABELS, clock=lambda: 10.0 * len(order), **how)


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "verdict"), [(1.0, "same"), (1.05, "slower"), (0.95, "faster"), (2.0, "slower")])
def test_verdicts_are_those_of_the_times(head: float, verdict: str) -> None:
    found = compared(lambda side, at: head if side else 1.0, noise=0.002)
    (row,) = found["rows"]
    assert row["verdict"] == verdict and row["ratio"] == pytest.approx(head, rel=0.005)
    assert row["low"] <= head <= row["high"] <= 1.0101 * row["low"]
    assert row["null"]["verdict"] in ("same", "unclear") and row["null"]["low"] <= 1 <= row["null"]["high"]
    assert row["changed"] == ["2 more launches (5, now 7)", "2 × the bytes"]
    text = text_of(found, 100)
    assert "A against A came out faster or slower in no row" in text and verdict in text and LABELS[1] in text


def test_successive_processes_are_pairs_of_two_sides_and_of_one_in_turn() -> None:
    sides = [ORDER[at % 4] for at in range(12)]
    assert ratios_of([7.0 if side else 1.0 for side in sides]) == ([7.0] * 6, [1.0] * 5)
    pairs, null = ratios_of([2.0**at for at in range(9)])  # a machine that becomes slower
    assert pairs == [2.0, 0.5, 2.0, 0.5] and sorted(null) == [0.5, 0.5, 2.0, 2.0]
    assert ratios_of([1.0, math.nan, 1.0, 1.0]) == ([1.0], [])


def test_no_process_begins_too_late_and_a_null_pair_that_differs_is_told() -> None:
    found = compared(lambda side, at: 1.0, noise=0.3, max_time=75.0)
    (row,) = found["rows"]
    assert (found["processes"], found["seconds"], row["pairs"], row["null"]["pairs"]) == (7, 70, 3, 2)
    assert row["verdict"] == "unclear" and math.isnan(found["reached"])
    found = compared(lambda side, at: 1.2 if at % 8 in (2, 4, 5, 7) else 1.0)  # a machine that tells equal code apart
    assert "came out faster or slower in a: do not trust this run" in text_of(found, 100)


def test_all_rows_of_a_run_err_together_in_few_runs() -> None:
    wrong = 0
    for seed in range(60):
        found = compared(lambda side, at: 1.0, 0.05, tuple("abcdefgh"), seed=seed, max_time=600, resolution=1e-4)
        wrong += any(one["verdict"] in ("faster", "slower") for row in found["rows"] for one in (row, row["null"]))
    assert wrong <= 3  # fewer than 1 expected


def test_a_load_that_slows_the_wall_clock_down_hides_no_change_of_a_thread_that_computes() -> None:
    draw, runs = random.Random(5), []
    for at in range(80):
        cpu, speeds = 1.03 if ORDER[at % 4] else 1.0, [draw.gauss(0, 0.05) for _ in range(2)]
        own = cpu * draw.lognormvariate(0, 0.005) * math.exp(1.5 * speeds[0] + 0.3 * speeds[1])
        runs.append(Run({"a": Time(own * draw.uniform(1, 3), own, (math.log(own), *speeds))}, {}, {}))
    row = row_of("a", runs, 0.995, 0.01)
    assert (row["verdict"], row["clock"]) == ("slower", "steady") and row["null"]["high"] < 1.01
    assert (row["base"], row["head"]) == pytest.approx((1, 1.03), rel=0.05)
    for count in (1, 2, 3, 80):
        times = steady_times([run.times["a"] for run in runs[:count]])
        assert len(times) == count and all(map(math.isfinite, times))
    for run in runs:  # other interpreters: the fixed work takes another time
        run.times["a"] = run.times["a"]._replace(logs=())
    assert row_of("a", runs, 0.995, 0.01)["clock"] == "cpu"
    runs[3].times["a"] = Time(1.0)  # it waited once
    assert row_of("a", runs, 0.995, 0.01)["clock"] == "wall"
    # The CPU time of a thread that waits is not its time.
    fixed = [(1.0, 1.0), (2.0, 1.0), (4.0, 1.0)]
    found = Beside([3.0, 4.0, 4.5], fixed, waits=1).times()
    assert (found["cpu"], found["logs"]) == (4.0, pytest.approx([math.log(54) / 3, math.log(2), 0]))
    assert Beside([3.0, 4.0, 8.0], fixed, waits=2).times() == Beside().times() == {}


def test_tests_of_one_side_that_fail_or_are_skipped_are_rows_and_an_interruption_keeps_all() -> None:
    def more(side: int, run: Run, at: int) -> None:
        run.outcomes.update({"a": "passed", "failing": "failed" if side else "passed", "skipped": "skipped"})
        run.times["new" if side else "failing"] = Time(1.0)
        run.times.update({"late": Time(1.0)} if at == 4 else {})
        if at == 29:
            raise KeyboardInterrupt  # what was measured is kept

    found = compared(lambda side, at: 1.0, names=("a", "b[c|d]"), more=more)
    problems = {row["name"]: (row["verdict"], row["problem"]) for row in found["rows"]}
    said = {"failing": "failed in head", "new": "not in base", "skipped": "skipped in base; skipped in head"}
    assert {name: problems[name] for name in said} == {name: ("not compared", text) for name, text in said.items()}
    assert problems["a"] == ("same", "") and found["processes"] == 29
    assert "interrupted" in found["notes"][0] and "left out: late" in found["notes"][1]
    for text in (text_of(found, 120), text_of(found)):
        assert all(problem in text for _, problem in problems.values())
    content = json.loads(json.dumps(COMPARED.of(found), allow_nan=False))
    assert [row["ratio"] is None for row in content["rows"]] == [bool(problem) for _, problem in problems.values()]
    pytest.importorskip("jsonschema").Draft202012Validator(schema("compared_sides")).validate(content)
    table = [line for line in text_of(found).splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {8} and len(table) == 2 + len(found["rows"])


# Sides ----------------------------------------------------------------------------------------------------------------


def commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a commit")


CONFTEST = """
import random, sys, types
from dataclasses import replace
from flopscope.measuring import measuring
from helpers.fake_measure import Times
import mod
MADE_UP = Times(mod.US, bytes=mod.BYTES).measurement()
measuring.measure = lambda *_, **__: replace(MADE_UP, median=mod.US * random.SystemRandom().gauss(1, 1e-6))
class Operators(types.ModuleType): __file__ = "_ops.py"  # as torch.ops, which has no file
sys.modules["operators"] = Operators("operators")
"""
TESTS = "def test_work(perf): assert perf(print).at_most(us=1).measurement\n"
PYTEST = "--", "pytest", "-q", "-p", "no:xdist"
ONE_PAIR = "--max-time", "0.1"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits; the second takes 1.3 times as long, and moves twice the bytes."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, {"conftest.py": CONFTEST, "test_it.py": TESTS, "mod.py": "US, BYTES = 100.0, 1e6\n"})
    commit(folder, {"mod.py": "US, BYTES = 130.0, 2e6\n"})
    monkeypatch.chdir(folder)
    return folder


def ab(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "COLUMNS": "120"} | more
    command = [sys.executable, "-m", "flopscope", "ab", *words]
    theirs = {name: text for name, text in environment(**paths).items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, env=theirs, capture_output=True, text=True, timeout=300)


def test_two_commits_are_compared_in_all_formats_and_nothing_is_left(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    files = [f"--{name}={tmp_path / name}" for name in ("json", "markdown", "pytest-benchmark")]
    (repository / "mod.py").write_text("US, BYTES = 70.0, 1e6\n")  # no revision: the working tree is dirty
    before = git(repository, "status", "--porcelain")
    done = ab(repository, "HEAD~1", "HEAD", "--resolution", "20%", "--fail-over", "3%", *files, *PYTEST)
    assert done.returncode == 1 and "over 3 % slower: test_it.py::test_work" in done.stderr, done.stderr
    (row,) = json.loads((tmp_path / "json").read_text())["rows"]
    assert row["verdict"] == "slower" and row["ratio"] == pytest.approx(1.3, rel=0.01)
    assert row["changed"] == ["2 × the bytes"] and row["null"]["verdict"] in ("same", "unclear")
    assert "test_it.py::test_work: 2 × the bytes" in done.stdout and "| slower |" in (tmp_path / "markdown").read_text()
    one, other = json.loads((tmp_path / "pytest-benchmark").read_text())["benchmarks"]
    assert one["group"] == other["group"] == "test_it.py::test_work"
    assert other["stats"]["median"] / one["stats"]["median"] == pytest.approx(1.3, rel=0.01)
    assert git(repository, "worktree", "list").count("\n") == 1
    assert git(repository, "status", "--porcelain").splitlines()[:1] == before.splitlines()


def test_the_working_tree_is_head_and_steps_of_a_program_are_compared(repository: Path) -> None:
    (repository / "mod.py").write_text("US, BYTES = 130.0, 2e6\nONCE = 1\n")
    (repository / "test_new.py").write_text("from mod import ONCE\n" + TESTS)
    done = ab(repository, "HEAD", *ONE_PAIR, *PYTEST)
    assert done.returncode == 0 and "2 changed files" in done.stdout, done.stderr
    assert "test_new.py::test_work: not in base" in done.stdout and "unclear" in done.stdout
    commit(repository, {"program.py": "import mod, flopscope\nfor _ in range(60):\n    flopscope.step()\n"})
    done = ab(repository, "HEAD", *ONE_PAIR, "--", "python", "program.py")
    assert done.returncode == 0 and "program.py, a step" in done.stdout, done.stderr
    commit(repository, {"program.py": "raise SystemExit('no luck')"})
    done = ab(repository, "HEAD~1", "HEAD", "--", "python", "program.py")
    assert done.returncode == 2 and "program.py does not run: SystemExit: no luck" in done.stderr


def test_both_layouts_of_a_tree_come_first_and_what_replaces_them_is_an_error(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{repository}/lib:/elsewhere")
    commit(repository, {f"{name}/__init__.py": "" for name in ("src/package", "python/other", "tests/numpy", "lib/x")})
    assert {"package", "other", "mod"} <= names_in(repository) and "numpy" not in names_in(repository)
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        base, head, folder = stack.enter_context(made_ready("HEAD", None, ""))
        tree = base.tree
        assert tree is not None and head.tree == repository
        assert base.environment["PYTHONPATH"] == f"{tree}:{tree}/src:{repository}/lib:/elsewhere"
        base.require_own({"package": f"{tree}/src/package/__init__.py", "numpy": "/numpy.py"}, head)
        head.require_own({"mod": f"{repository}/mod.py", "z": f"{repository}/.venv/lib/site-packages/z.py"}, base)
        for side, other, name, file in (
            (base, head, "package", f"{repository}/src/package/__init__.py"),
            (base, head, "x.y", f"{repository}/x/y.py"),
            (base, head, "other", "/usr/lib/site-packages/other/__init__.py"),
            (head, base, "mod", f"{tree}/mod.py"),
        ):
            with pytest.raises(ValueError, match=f"module {name} was loaded from {file}"):
                side.require_own({name: file}, other)
        raise KeyboardInterrupt
    assert not folder.exists() and git(repository, "worktree", "list").count("\n") == 1


def test_an_editable_install_of_the_checkout_is_an_error_and_a_setup_of_each_side_helps(repository: Path) -> None:
    hook = f"import sys; sys.path.insert(0, {str(repository)!r})\n"  # as the finder of an editable install may
    commit(repository, {"conftest.py": hook + CONFTEST})
    commit(repository, {"mod.py": "US, BYTES = 90.0, 2e6\n"})
    done = ab(repository, "HEAD~1", "HEAD", *PYTEST)
    assert done.returncode == 2 and f"module mod was loaded from {repository}/mod.py" in done.stderr, done.stderr
    commit(repository, {"conftest.py": CONFTEST})
    command = "python -c \"import sysconfig, shutil; shutil.move('mod.py', sysconfig.get_path('purelib'))\""
    done = ab(repository, "HEAD~4", "HEAD", *ONE_PAIR, "--setup", command, *PYTEST)
    assert done.returncode == 0 and "0.9000" in done.stdout, done.stderr
    done = ab(repository, "HEAD~1", "--setup", "echo no compiler; exit 3", *PYTEST)
    assert done.returncode == 2 and "ended with status 3: no compiler" in done.stderr and done.stdout == ""
    assert git(repository, "worktree", "list").count("\n") == 1 and (repository / "mod.py").exists()


def test_two_folders_and_two_interpreters_need_no_git(repository: Path, tmp_path: Path) -> None:
    for name, us in (("old", 100.0), ("new", 50.0)):
        shutil.copytree(repository, tmp_path / name, ignore=shutil.ignore_patterns(".git"))
        (tmp_path / name / "mod.py").write_text(f"US, BYTES = {us}, 1e6")
    done = ab(tmp_path, "old/", "new/", *ONE_PAIR, *PYTEST, PATH="/nowhere")
    assert done.returncode == 0 and "0.5000" in done.stdout and "base old/, head new/" in done.stdout, done.stderr
    done = ab(tmp_path / "old", sys.executable, *ONE_PAIR, *PYTEST)
    assert done.returncode == 0 and f"head {sys.executable}" in done.stdout, done.stderr


def test_what_cannot_be_measured_is_an_error(repository: Path, tmp_path: Path) -> None:
    wrong: dict[tuple[str, ...], str] = {
        ("none", *PYTEST): "'none' is neither a revision of git, a folder (with a slash) nor an interpreter",
        ("HEAD~1", "--", "make", "bench"): "name what to run after --",
        ("HEAD~1",): "name what to run after --",
        ("HEAD~1", "--fail-over", "much", *PYTEST): "'much' is not a percentage",
        ("HEAD~1", "--json", "nowhere/x.json", *PYTEST): "nowhere",
        ("HEAD~1", "--", "pytest", "--no-such-option"): "unrecognized arguments: --no-such-option",
        ("HEAD~1", "--", "pytest", "-k", "nothing"): "neither side measured anything",
    }
    for words, message in wrong.items():
        done = ab(repository, *words)
        assert done.returncode in (1, 2) and message in done.stderr and done.stdout == "", (words, done.stderr)
    git(repository, "submodule", "add", "-q", str(repository), "below")
    git(repository, "commit", "-q", "-m", "a submodule")
    for folder, path, message in (
        (repository, os.environ["PATH"], "HEAD has submodules, as below, which a worktree lacks"),
        (tmp_path, os.environ["PATH"], "not a git repository"),
        (repository, "/nowhere", "git is not installed; give two folders"),
    ):
        done = ab(folder, "HEAD", *PYTEST, PATH=path)
        assert done.returncode == 2 and message in done.stderr, done.stderr
