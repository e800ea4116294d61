"""flopscope report: the file that it writes, several traces, and errors."""

from pathlib import Path

import pytest
from helpers import TRACES
from helpers.hand_traces import op, text_of
from helpers.report_pages import PageRead

from flopscope.cli.program import main
from flopscope.cli.report import default_path

TRACE = TRACES / "tutorial_naive.json.gz"


def test_it_writes_a_page_beside_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(TRACE)]) == 0
    (path,) = tmp_path.iterdir()
    assert path.name == "tutorial_naive.report.html"
    out = capsys.readouterr().out
    assert out.startswith("Wrote tutorial_naive.report.html (") and out.endswith("): open it in a browser.\n")
    assert PageRead(path).data["title"] == "tutorial_naive.json.gz"


def test_options_choose_file_title_and_peaks(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert main(["report", str(TRACE), "-o", str(path), "--title", "Before <b>", "--peaks", "none"]) == 0
    read = PageRead(path)
    assert read.data["title"] == "Before <b>"
    assert read.data["sections"]["overview"]["accounting"]["whole"]["mfu"] is None


@pytest.mark.parametrize(
    "source, name",
    [
        ("trace.json", "trace"), ("runs/rank0.pt.trace.json.gz", "rank0"), ("a.b.json.zst", "a.b"),
        ("capture", "capture"), ("capture.sqlite", "capture"), ("out/7_results.db.zst", "7_results"),
        ("run.nsys-rep", "run"), ("runs/*/rank*.json.gz", "rank"), ("*", "traces"), (".", "run.7"),
    ],
)  # fmt: skip
def test_a_page_is_named_as_its_trace(source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run.7"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert default_path(source) == f"{name}.report.html"


def test_unrelated_traces_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_bytes(text_of(op("op", 1, 2, pid=number)))
    path = tmp_path / "page.html"
    assert main(["report", *map(str, paths), "-o", str(path)]) == 2
    error = capsys.readouterr().err
    assert "traces of 2 programs" in error and f"flopscope compare {paths[0]} {paths[1]} -o page.html" in error
    assert not path.exists()
