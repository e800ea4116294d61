"""flopscope supports only the main interpreter: others are refused early. A second import gives the same types."""

import sys
import textwrap
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.processes import environment, output_of

# Import flopscope in a subinterpreter and write the outcome to a file.
TRY = """
import sys
sys.path.insert(0, {root!r})
try:
    import flopscope
    outcome = 'imported'
except ImportError as problem:
    outcome = str(problem)
open({file!r}, 'w').write(outcome)
"""
WORK = """
def work():
    with fs.profile() as prof, fs.record_function("part"):
        fs.add(fs.ones(4), fs.ones(4)).numpy()
    table = prof.key_averages()
    assert {row.key for row in table} >= {"part", "flopscope::add"}, table
    assert fs.from_numpy(np.arange(3.0)).numpy().tolist() == [0, 1, 2]
"""
# Python 3.12 and later refuse flopscope themselves, like NumPy, in isolated ones; free-threaded builds in all.
REFUSALS = ("flopscope supports only the main interpreter", "does not support loading in subinterpreters")


def run(script: str, before: str = "") -> None:
    """Run a script, after what comes before the first import of flopscope."""
    text = f"{before}\nimport sys\nimport numpy as np\nimport flopscope as fs\nfrom flopscope import _core\n{WORK}"
    output_of(text + textwrap.dedent(script), env=environment(PYTHONFAULTHANDLER="1"), timeout=120)


def make(kind: str) -> str:
    """Return a statement that runs `code` in a new subinterpreter of that kind; skip if this Python has none."""
    if kind == "run_in_subinterp":
        pytest.importorskip("_testcapi")
        return "import _testcapi; _testcapi.run_in_subinterp(code)"
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    pytest.importorskip(name)
    isolated = {"legacy": "'legacy'" if sys.version_info >= (3, 13) else "isolated=False", "isolated": ""}[kind]
    run = "exec" if sys.version_info >= (3, 13) else "run_string"
    return f"import {name} as subs; subs.{run}(subs.create({isolated}), code)"


@pytest.mark.parametrize(
    "kind, later", [("legacy", True), ("isolated", True), ("run_in_subinterp", True), ("legacy", False)]
)
def test_a_subinterpreter_is_refused_and_the_main_one_goes_on(kind: str, later: bool, tmp_path: Path) -> None:
    file = tmp_path / "outcome"
    statement = f"code = {TRY.format(root=str(ROOT), file=str(file))!r}; {make(kind)}"
    run(f"""
        work()
        with fs.profile() as prof:
            fs.sin(fs.ones(3))
            {statement if later else "pass"}
            fs.cos(fs.ones(3))
        assert {{row.key for row in prof.key_averages()}} >= {{"flopscope::sin", "flopscope::cos"}}
        work()
        """, before="" if later else statement)  # fmt: skip
    outcome = file.read_text()
    assert any(message in outcome for message in REFUSALS), outcome


def test_a_module_imported_again_has_the_same_types() -> None:
    run("""
        import importlib
        x, prof = fs.ones(3, device="cpu"), _core.Profiler()
        part, add, reader = fs.record_function("old"), fs.add, _core.TraceReader()
        for _ in range(3):
            del sys.modules["flopscope._core"]
            again = importlib.import_module("flopscope._core")
            assert again is not _core
            for name in ("Tensor", "Store", "Profiler", "Range", "TraceReader", "Op", "Roof"):
                assert getattr(again, name) is getattr(_core, name), name
            assert again.add(x, x).numpy().tolist() == [2, 2, 2]
            assert add(again.ones(3, device="cpu"), x).numpy().tolist() == [2, 2, 2]
            work()
        again.record_into(prof)
        prof.start()
        with part:
            again.add(x, x)
        prof.stop()
        _core.record_into(None)
        assert prof.store.event_count == 2, prof.store.event_count
        again.TraceReader().feed(b"[]")
        reader.feed(b"[]")
        """)  # fmt: skip
