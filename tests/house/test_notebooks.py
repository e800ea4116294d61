"""The notebooks run from top to bottom, show what their text promises, and are stored with clean outputs."""

import csv
import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from helpers import ROOT
from helpers.once import Once
from helpers.tables import ANSWERS

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

FOLDER = ROOT / "notebooks"

# The minimum that each notebook shows: a number of pictures, and texts in its outputs.
PROMISED = {
    "jax_programs": (
        0,
        [
            "GFLOP of products, by hand 1.074", "100.0% of the kernels", "transpose(jvp())", "donate_argnums",
            "pure_callback",
        ],
    ),
    "tracking_flops": (2, ["Self C", "FLOPs", "% roof", "Bound", "flopscope::matmul", "GB/s"]),
    "torch_programs": (2, ["Self CUDA", "FLOP/s", "Bound", "aten::addmm", "gpu_utilization", "what to do", "Advice"]),
    "measuring": (1, ["% of the roofline", "95 %", "Verdict: ", "times its time", "pct_roofline", "flopscope::mul_"]),
    "checking": (0, ["total is wrong: for shapes (256, 385)", "mended is ", "remembered is wrong: "]),
}  # fmt: skip
# Text that depends on the machine or the run: absolute paths (but not C++ names or ratios like GB/s), and errors.
UNWANTED = r"(?<![\w.:/>])/(?:home|root|tmp|work|usr|opt|mnt|data|var|Users)/|Traceback|Warning\b"
LARGEST = 150_000  # bytes of a notebook

each_notebook = pytest.mark.parametrize("name", sorted(PROMISED))


@cache
def runner() -> Any:
    """Load notebooks/run.py, which is a script outside of any package."""
    spec = importlib.util.spec_from_file_location("notebooks_run", FOLDER / "run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def executed(once: Once) -> Callable[[str], Any]:
    """Runs a notebook, once for all processes of the test run. If a cell fails, the exception shows the cell."""

    def execute(name: str) -> Any:
        if name == "jax_programs":
            pytest.importorskip("jax")
        folder = once(name, lambda folder: nbformat.write(runner().run(name), folder / "executed.ipynb"))
        return nbformat.read(folder / "executed.ipynb", as_version=4)

    return execute


def outputs(notebook: Any) -> Iterator[Any]:
    for cell in notebook.cells:
        yield from cell.get("outputs", ())


def texts(notebook: Any) -> str:
    """Return the text of all outputs, without pictures and markup."""
    parts = []
    for output in outputs(notebook):
        bundle = {"text/plain": output.text} if output.output_type == "stream" else output.get("data", {})
        parts += [text for kind, text in bundle.items() if kind.startswith("text/")]
    return re.sub(r"<[^>]*>", " ", "\n".join(parts))


def images(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_every_notebook_is_tested() -> None:
    assert runner().names() == sorted(PROMISED)


@each_notebook
def test_a_notebook_runs_and_shows_what_its_text_promises(executed: Callable[[str], Any], name: str) -> None:
    pictures, promised = PROMISED[name]
    output = texts(executed(name))
    assert [text for text in promised if text not in output] == [] and images(executed(name)) >= pictures
    assert re.findall(r".*\bnan\b.*", "\n".join(markdown(executed(name)))) == []


@each_notebook
def test_stored_outputs_are_clean_and_from_a_single_run(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    pictures, promised = PROMISED[name]
    assert stored.metadata.kernelspec.name == "python3"
    assert [text for text in promised if text not in texts(stored)] == [] and images(stored) >= pictures
    assert [output.text for output in outputs(stored) if output.get("name") == "stderr"] == []
    assert not any(output.output_type == "error" for output in outputs(stored))
    assert re.findall(f".*(?:{UNWANTED}).*", texts(stored)) == [] and str(ROOT) not in path.read_text(encoding="utf-8")
    assert path.stat().st_size < LARGEST
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def markdown(notebook: Any) -> list[str]:
    return [output.data["text/markdown"] for output in outputs(notebook) if "text/markdown" in output.get("data", {})]


def test_the_matrix_product_has_the_intensity_that_the_text_derives(executed: Callable[[str], Any]) -> None:
    output = "\n".join(markdown(executed("tracking_flops")))
    match = re.search(r"intensity is ([\d,]+) FLOPs per byte \(n / 6 = ([\d,]+)\)", output)
    size = re.search(r"- (\d+) × \1: ", output)
    assert match and size and match[1] == match[2] == f"{int(size[1]) / 6:,.0f}"


def test_counts_and_times_equal_those_of_torch(executed: Callable[[str], Any]) -> None:
    recorded = csv.DictReader(ANSWERS["tutorial_train.rows.csv"].splitlines())
    rows = [row for row in recorded if row["device_type"].endswith("CPU")]
    longest = sorted(rows, key=lambda row: float(row["self_device_time_total"]), reverse=True)[:5]
    output = texts(executed("torch_programs"))
    for row in longest:
        name, milliseconds = row["key"], f"{float(row['self_device_time_total']) / 1000:.2f}ms"
        match = re.search(rf"{re.escape(name)}\s+(\S+)\s+\S+%\s+(\d+)\s", output)
        assert match and match.groups() == (milliseconds, row["count"]), name


def test_one_performance_test_fails_as_the_text_announces(executed: Callable[[str], Any]) -> None:
    output = texts(executed("measuring"))
    assert "1 failed, 2 passed" in output
    ratio = re.search(r"measured +([\d.]+) × .*at most 1\.05 × the time of one_step", output)
    assert ratio and 1.3 < float(ratio[1]) < 3  # two passes over the memory instead of one
