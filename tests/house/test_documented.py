"""What has a name for users is in the documentation: commands, options, variables, columns, attributes, dependencies;
and what the documentation says of results is what the results say."""

import argparse
import inspect
import json
import re
import sys
import warnings
from typing import Any

import pytest
from helpers import DATA, ROOT

import flopscope as fs
from flopscope.cli.program import make_parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = README + "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
FOR_TESTS = {"FLOPSCOPE_BENCHMARK_NCU"}  # of this project's own tests and benchmarks


def is_named(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of all commands and of their actions."""
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return [found for one in below for command in one.choices.values() for found in (command, *parsers(command))]


def test_every_argument_of_a_command_has_a_help_text() -> None:
    without = [
        f"{command.prog} {action.option_strings or action.dest}"
        for command in parsers(make_parser())
        for action in command._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert without == []


def test_every_environment_variable_is_in_the_page_of_the_command_line() -> None:
    sources = [ROOT / "setup.py", *(ROOT / "flopscope").rglob("*.py"), *(ROOT / "csrc").rglob("*.[ch]")]
    names = re.compile(r"""["'](FLOPSCOPE_[A-Z_]+)["']""")
    read = {name for path in sources for name in names.findall(path.read_text(encoding="utf-8"))} - FOR_TESTS
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert {name for name in read if not is_named(name, page)} == set()
    assert {"FLOPSCOPE_CACHE_DIR", "FLOPSCOPE_ISA", "FLOPSCOPE_CUDA"} <= read


def test_the_options_the_marker_and_the_limits_of_pytest_are_documented() -> None:
    plugin = (ROOT / "pytest_flopscope.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    options = set(re.findall(r'"(--perf-[a-z]+)"', plugin))
    assert len(options) == 5 and {option for option in options if f"`{option}" not in page} == set()
    assert "@pytest.mark.perf" in page and "fixture `perf`" in page
    check = pytest.importorskip("flopscope.perf").Check
    limits = {name for name in vars(check) if not name.startswith("_") and callable(getattr(check, name))}
    assert {name for name in limits if not is_named(name, page)} == set()


def test_the_entry_point_group_is_documented() -> None:
    group = "flopscope.work"
    assert f'GROUP = "{group}"' in (ROOT / "flopscope/record/at_import.py").read_text(encoding="utf-8")
    assert f'[project.entry-points."{group}"]' in DOCS


def named_in(doc: str | None, columns: Any) -> list[str]:
    """Return the columns that a docstring does not name."""
    return [str(column) for column in columns if not is_named(str(column), doc or "")]


@pytest.mark.parametrize(
    "method", ["accounting", "gpu_summary", "step_breakdown", "launch_summary", "collectives", "stream_summary"]
)
def test_the_docstring_of_a_summary_names_its_columns(method: str) -> None:
    trace = fs.load_trace(DATA / "programs" / "vocab_before.json.gz")
    columns = [*getattr(trace, method)().columns]
    own = {"device", "step", "total"} & set(columns)  # explained in words
    assert columns and named_in(inspect.getdoc(getattr(fs.Trace, method)), set(columns) - own) == []


@pytest.mark.parametrize("table", ["files", "hosts", "groups", "collectives", "last_calls", "key_averages"])
def test_the_docstring_of_a_table_of_ranks_names_its_columns(table: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(fs.load_ranks(DATA / "run7", workers=1), table)
        columns = (found() if callable(found) else found).columns
    assert named_in(inspect.getdoc(getattr(fs.Ranks, table)), columns) == []


@pytest.mark.filterwarnings("ignore:.*measured on a busy machine")
def test_the_columns_of_tables_are_in_the_documentation() -> None:
    with fs.profile() as prof:
        fs.sin(fs.rand((8,)))
    added = [*prof.key_averages().to_pandas().columns]
    added = added[added.index("flops") :]  # those before have torch's names and meaning
    assert "dram_bytes_read" in added and [name for name in added if f"`{name}`" not in DOCS] == []


def test_dependencies_are_in_the_list_of_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = README[README.index("## Dependencies") : README.index("## License")].lower()
    listed = {"nvidia-cuda-cccl": "-cccl", "nvidia-cuda-cupti": "-cupti"}
    names = {re.split(r"[^\w-]", one)[0].lower() for one in project["dependencies"]}
    for extra, packages in project["optional-dependencies"].items():
        assert f"`{extra}`" in table, extra
        names |= {re.split(r"[^\w-]", one)[0].lower() for one in packages} - {"flopscope-profiler"}
    assert {name for name in names if listed.get(name, name) not in table} == set()


def test_the_first_screen_of_readme_says_what_its_results_say() -> None:
    assert len(README.splitlines()) <= 120
    found = re.search(r"!\[([^]]+)\]\((\S+\.png)\)(.*?)```", README, re.S)
    assert found
    alternative, picture, said = found.groups()
    content = (ROOT / picture).read_bytes()
    assert content[1:4] == b"PNG" and len(content) < 200_000
    trace = fs.load_trace(next(ROOT.glob(re.search(r"\((\S+\.json\.gz)\)", said)[1])))  # type: ignore[index]
    first = trace.advice()[0]
    headline = f"{first.action[0].lower()}{first.action[1:]}, about {first.saving_pct:.0f} % less time"
    assert headline in " ".join(alternative.split())
    vocab = json.loads((DATA / "programs" / "measured.json").read_text(encoding="utf-8"))["vocab"]
    assert f"gained {vocab['before_ms'] - vocab['after_ms']:.1f} ms" in " ".join(said.split())


def test_extras_that_are_named_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "flopscope").rglob("*.py")]
    named = re.findall(r"pip install (?:-e )?['\"](?:\.|flopscope-profiler)\[([\w,]+)\]", DOCS + "".join(sources))
    assert len(named) >= 4
    assert {extra for names in named for extra in names.split(",")} <= set(project["optional-dependencies"])
