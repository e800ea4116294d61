"""What each command refuses: one line on stderr that names the command, what is wrong, and what may have been meant."""

import re
from pathlib import Path

import pytest
from helpers import DATA, TRACES

from flopscope.cli.program import main

SMALL = ("bench", "--device", "cpu", "--size", "32", "--repeat", "2")
TRACE = str(DATA / "programs/pointwise_before.json.gz")
STACKS = str(TRACES / "tutorial_naive_stack.json.gz")
TABLE = ("table", TRACE)

# By command: the arguments, the exit status, and the end of what is said or, after "…", a part of it.
REFUSED = [
    (("fly",), 2, "…'fly'"),
    (("tabel", "x.json"), 2, "did you mean 'table'?"),
    (("devices", "gpu"), 2, "flopscope devices: error: unrecognized arguments: gpu"),
    (("devices", "16,16"), 2, "unrecognized arguments: 16,16"),
    (("devices", "--reset"), 2, "add --measure"),
    (("devices", "--json", "folder"), 1, "…flopscope devices: folder: it is a folder"),
    (("bench", "--size"), 2, "expected one argument"),
    ((*SMALL, "--size", "0"), 2, "'0' is not a whole number of at least 1"),
    ((*SMALL, "--size", "-5"), 2, "…'-5'"),
    ((*SMALL, "--size", "big"), 2, "…'big'"),
    ((*SMALL, "--size", "1.5"), 2, "…'1.5'"),
    ((*SMALL, "--repeat", "0"), 2, "…'0'"),
    ((*SMALL, "--dtype", "floa32"), 2, "did you mean 'float32'?"),
    ((*SMALL, "--ops", "add,fly"), 2, "…'fly'"),
    ((*SMALL, "--ops", ""), 2, "'' is not a list of names"),
    ((*SMALL, "--ops", " , "), 2, "' , ' is not a list of names"),
    ((*SMALL, "--device", "gpu"), 2, "…'gpu'"),
    ((*SMALL, "--device", "cuda:x"), 2, "…'cuda:x'"),
    ((*SMALL, "--device", ""), 2, "…''"),
    ((*SMALL, "--siz", "8"), 2, "unrecognized arguments: --siz 8; did you mean '--size'?"),
    ((*SMALL, "--ops", "sin", "--json", "folder"), 1, "…flopscope bench: folder: it is a folder"),
    ((*SMALL, "--ops", "sin", "--csv", "missing/out"), 1, "…flopscope bench: missing/out: there is no folder missing"),
    (("measure", "add", "16,16", "--fast"), 2, "…unrecognized arguments: --fast"),
    (("measure", "add", "--dtype", "float16", "64,64", "--cach", "hot"), 2, "did you mean '--cache'?"),
    (("measure", "add", "-1,8"), 2, "'-1,8' is not a shape such as 8192,8192"),
    (("measure", "notes.txt:f"), 1, "…there is no module 'notes.txt'"),
    (("measure", "nowhere.at_all:f"), 1, "…there is no module 'nowhere.at_all' in PYTHONPATH, the installed packages"),
    (("measure", "json.nowhere:f"), 1, "…there is no module 'json.nowhere' in"),
    (("measure", "json:dump_s"), 2, "did you mean 'dumps'?"),
    (("measure", "missing.py:f"), 1, "no such file: missing.py"),
    (("measure", "./folder.py:f"), 1, "no such file: ./folder.py"),
    (("measure", "mine:g"), 2, "flopscope measure: mine has no g"),
    (("measure", "./mine.py:g"), 2, "./mine.py has no g"),
    (("measure", "nothing", "3"), 2, "…'nothing' is neither an op nor a module:function"),
    (("measure", "add"), 2, "…add needs a shape"),
    (("measure", "matmul", "2,2", "2,2", "2,2"), 2, "matmul takes 2 tensors (a, b), not 3"),
    (("measure", "pickle:dumps"), 2, "…pickle:dumps must be callable without arguments"),
    (("measure", "math:pi"), 2, "…math:pi is not a function"),
    (("measure", "math:exp", "3"), 2, "…math:exp takes no shapes"),
    (("measure", "needy:f"), 1, "needy.py, line 1: No module named 'nowhere_at_all'"),
    (("run", "--step", "3:4", "x.py"), 2, "…flopscope run: error: unrecognized arguments: --step; did you mean"),
    ((*TABLE, "--groupby", "shape"), 2, "unrecognized arguments: --groupby shape; did you mean '--group-by'?"),
    ((*TABLE, "--group_by=shape"), 2, "unrecognized arguments: --group_by=shape; did you mean '--group-by'?"),
    ((*TABLE, "--group-by", "stack"), 2, "…no stacks are recorded"),
    ((*TABLE, "--sort-by", "beauty"), 2, "…cannot sort by 'beauty'"),
    ((*TABLE, "--sort-by", "coutn"), 2, "…did you mean 'count'"),
    ((*TABLE, "--columns", "calls", "flop"), 2, "…there is no column 'flop'; did you mean 'flops'"),
    ((*TABLE, "--csv", "missing/x.csv"), 1, "…missing/x.csv"),
    ((*TABLE, "--limit", "many"), 2, "'many' is not a number of rows; -1 means all"),
    ((*TABLE, "--peaks", "guessed"), 2, "…'guessed'"),
    (("compare", TRACE, TRACE, "--peaks", "guessed"), 2, "…'guessed'"),
    (("compare", TRACE, "rnak.json"), 1, "…did you mean rank.json?"),
    (("table", STACKS, "--group-by", "module", "--kernels", "--columns", "Bound"), 2,
     "the tree of modules has no --columns and --kernels; --group-by name,module prints a table"),
    (("table", "needy.py"), 2, "…needy.py"),
    (("table", "rnak.json"), 1, "flopscope table: rnak.json: there is no such file; did you mean rank.json?"),
    (("table", "https://host/rank.json"), 1, "…a trace is not read from a URL"),
    (("summary", "rnak.json"), 1, "flopscope summary: rnak.json: there is no such file; did you mean rank.json?"),
    (("report", "absent"), 1, "…flopscope report: absent"),
    (("report", TRACE, "-o", "missing/page.html"), 1, "…there is no folder missing"),
    (("ranks", "absent"), 1, "…no file could be read: absent"),
    (("ranks", "absent*"), 1, "…absent*: no file matches this pattern"),
    (("ranks", "notes.txt"), 2, "…no file could be read: notes.txt"),
    (("table", "folder"), 1, "…folder: no trace is in this folder"),
    (("compare", TRACE, "absent*"), 1, "…absent*: no file matches this pattern"),
    (("report", "notes.txt"), 2, "…notes.txt"),
    (("measure", "absent.py:f"), 1, "…no such file: absent.py"),
    (("mcp", "missing"), 1, "missing is not a folder"),
    (("schema", "tabel"), 2, "; did you mean 'table'?"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "said"), REFUSED, ids=[" ".join(row[0])[-60:] for row in REFUSED])
def test_wrong_arguments_are_refused_in_one_line(
    arguments: tuple[str, ...], status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "folder.py"):
        (tmp_path / name).mkdir()
    for name in ("rank.json", "notes.txt", "mine.py"):
        (tmp_path / name).touch()
    (tmp_path / "needy.py").write_text("import nowhere_at_all")
    try:
        got = main(arguments)
    except SystemExit as stop:
        got = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert got == status and (out == "" or "--json" in arguments or "--csv" in arguments)
    *usage, line = err.strip().splitlines()
    assert all(re.match("usage:| |.*on a busy machine", one) for one in usage), usage
    assert line.startswith("flopscope") and (said[1:] in line if said.startswith("…") else line.endswith(said))


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2 and "what changed between two recorded traces" in capsys.readouterr().err


PROGRAMS = {"train.py": "import torch, torch.nn as nn\nm = nn.Sequential(1,\n    2)\n", "empty.py": ""}
OTHERS = {
    "unfinished.txt": "def f(x):\n    return [x,\n", "table.csv": "import,from,def\n1,2,3\n",
    "notes.md": "# How to\nimport torch, and then\n", "words.txt": "hello\n",
}  # fmt: skip


@pytest.mark.parametrize("command", ["table", "summary", "report", "compare"])
def test_a_script_given_for_a_trace_is_called_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {**PROGRAMS, **OTHERS}.items():
        Path(name).write_text(text, encoding="utf-8")
        assert main([command, name, *([TRACE] if command == "compare" else [])])
        message = capsys.readouterr().err
        assert ("a Python program" in message) == (name in PROGRAMS), name
        if name in PROGRAMS:
            assert f"flopscope run {name}" in message and "comma" not in message
