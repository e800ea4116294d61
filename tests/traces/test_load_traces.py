"""Folders and patterns of traces: which files are read, in which order, and what is skipped."""

import gzip
import os
import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import op, text_of

import flopscope as fs
from flopscope.cli.program import main
from flopscope.read.paths import natural_order


def text(rank: int) -> bytes:
    return text_of(op("op", 1, 10, pid=100 + rank), distributedInfo={"rank": rank, "world_size": 12})


def write(path: Path, rank: int) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(gzip.compress(text(rank)) if path.suffix == ".gz" else text(rank))


def ranks(*sources: str | os.PathLike[str]) -> list[int | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [trace.rank for trace in fs.load_traces(*sources)]


def test_a_folder_has_its_traces_in_natural_order(tmp_path: Path) -> None:
    plain, torchs = ("rank2.json", "rank10.json.gz"), ("rank1.pt.trace.json", "rank0.pt.trace.json.gz")
    for name in (*plain, *torchs, "rank11.pt.trace.json.old"):
        write(tmp_path / name, int("".join(filter(str.isdigit, name))))
    write(tmp_path / "inner" / "rank3.json", 3)
    assert ranks(tmp_path) == ranks(str(tmp_path)) == ranks(f"{tmp_path}/") == [0, 1, 2, 10, 11]
    assert ranks(f"{tmp_path}/rank?.json") == [2] and ranks(f"{tmp_path}/rank*.json*") == [0, 1, 2, 10, 11]
    assert ranks(f"{tmp_path}/**/rank*.json") == [3, 1, 2]
    assert ranks(tmp_path / "rank2.json", tmp_path / "inner", f"{tmp_path}/rank1[01]*") == [2, 3, 10, 11]
    assert ranks(f"{tmp_path}/inn*") == [3]


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    sorted_names = ["a", "a1b2", "a1b10", "a02", "a2", "a2b", "a10", f"a{'9' * 5000}", "b", "b²", "b٣"]
    shuffled = random.Random(1).sample(sorted_names, len(sorted_names))
    assert natural_order(shuffled) == sorted_names


def test_brackets_may_belong_to_a_name(tmp_path: Path) -> None:
    write(tmp_path / "run[1].json", 4)
    write(tmp_path / "run[2]" / "a.json", 5)
    assert ranks(tmp_path / "run[1].json", f"{tmp_path}/run[2]") == [4, 5]


def test_what_is_no_trace_is_skipped_and_counted_and_a_damaged_trace_is_not(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", 0)
    others = {"config.json": '{"a": 1}', "notes.txt": "x", "rows.csv": "a,b,c\n1,2,3\n", ".x.json": ""}
    for name, content in others.items():
        (tmp_path / name).write_text(content)
    message = (
        r'4 files that are not traces were skipped: config\.json \(not a trace: .* no member "traceEvents"\), '
        r"\.x\.json, notes\.txt and 1 more$"
    )
    with pytest.warns(UserWarning, match=rf"{re.escape(str(tmp_path))}: {message}"):
        assert len(fs.load_traces(tmp_path)) == 1
    message = r"2 files .*: notes\.txt \(byte 0.*\), rows\.csv \(byte 0.*\)$"
    with pytest.warns(UserWarning, match=message):
        assert len(fs.load_traces(f"{tmp_path}/[nr]*")) == 1
    with pytest.raises(ValueError, match="traceEvents"):
        fs.load_traces(tmp_path / "rank0.json", tmp_path / "config.json")
    (tmp_path / "rank1.json").write_text('{"traceEvents": [{"ph": @}]}')
    with pytest.raises(ValueError, match=r"rank1\.json: byte 24"):
        fs.load_traces(tmp_path)


def test_a_folder_without_traces_says_what_was_looked_for(tmp_path: Path) -> None:
    looked = r"\*\.json, \*\.json\.gz, \*\.json\.zst, \*\.pt\.trace\.json\*, .*\*\.pftrace.* were looked for"
    with pytest.raises(ValueError, match=rf"no trace is in this folder; {looked}\. It is empty$"):
        fs.load_traces(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    write(tmp_path / "inner" / "rank3.json", 3)
    others = rf"{looked}; .*/\*\*/\*\.json.* It has other files: notes.txt; other folders: inner"
    with pytest.raises(ValueError, match=others):
        fs.load_traces(tmp_path)
    with pytest.raises(ValueError, match="no file matches this pattern"):
        fs.load_traces(f"{tmp_path}/rank*.json")
    (tmp_path / "a.json").write_text("")
    with pytest.raises(ValueError, match=r"none of its files is a trace: a\.json \(byte 0: the text ends"):
        fs.load_traces(tmp_path)


def test_wrong_sources_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.load_traces(tmp_path / "absent.json")
    for wrong in (7, b"[]"):
        with pytest.raises(TypeError):
            fs.load_traces(wrong)  # type: ignore[arg-type]
    with pytest.raises((OSError, ValueError)):
        fs.load_traces("a\0b")
    write(tmp_path / "rank0.json", 0)
    with pytest.raises(ValueError, match="limit set by max_bytes"):
        fs.load_traces(tmp_path, max_bytes=3)
    assert fs.load_traces() == []


@pytest.mark.parametrize("command", ["table", "summary"])
def test_commands_take_folders_and_patterns(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (10, 9):
        write(tmp_path / f"rank{rank}.json", rank)
    (tmp_path / "notes.txt").write_text("x")
    for source in (str(tmp_path), f"{tmp_path}/*.json"):
        assert main([command, source]) == 0
        out, error = capsys.readouterr()
        assert 0 <= out.index("rank9.json") < out.index("rank10.json")
        assert error.count("\n") == (source == str(tmp_path)) and ("1 file" in error) == (source == str(tmp_path))
    assert main([command, f"{tmp_path}/none*"]) == 1 and "no file matches" in capsys.readouterr().err


def test_compare_takes_a_folder_of_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(tmp_path / "before"), str(tmp_path / "after")]
    for folder in folders:
        write(Path(folder) / "rank0.json", 0)
    assert main(["compare", *folders]) == 0
    assert "a: own CPU times of before\nb: own CPU times of after\n" in capsys.readouterr().out
    write(Path(folders[1]) / "rank1.json", 1)
    assert main(["compare", *folders]) == 2
    assert "has 2 traces, but compare takes one: name a file" in capsys.readouterr().err


def test_captures_are_read_once_for_all_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flopscope.read import trace

    read, found = trace.read_captures, []

    def counted(*arguments: Any) -> Any:
        found.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(trace, "read_captures", counted)
    capture = tmp_path / "capture.json"
    write(capture, 0)
    for rank in range(3):
        write(tmp_path / f"rank{rank}.json", rank)
    with pytest.warns(UserWarning, match="captures"):
        assert len(fs.load_traces(f"{tmp_path}/rank*.json", captures=capture)) == 3
    assert len(found) == 1


def test_warnings_name_the_line_that_loads(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(text(0)[:-2])
    (tmp_path / "notes.txt").write_text("x")
    for load in (lambda: fs.load_trace(tmp_path / "rank0.json"), lambda: fs.load_traces(tmp_path)):
        with pytest.warns(UserWarning) as caught:
            load()
        assert {warning.filename for warning in caught} == {__file__}
