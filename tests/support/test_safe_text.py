"""Names from traces are escaped: no control codes in terminals, no formulas in spreadsheets."""

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flopscope as fs
from flopscope.cli.program import main
from flopscope.support.safe import printable, write_csv

EVIL = "=cmd()|\x1b[2J\x07\r\n\x9b31m\u202eop"
SHOWN = r"=cmd()|\x1b[2J\x07\r\n\x9b31m\u202eop"
CONTROL_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, formats, surrogates, ends of lines and paragraphs
BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # PropList.txt
UNSEEN = "\xad\u200b\u2060\ufeff\ufff9\ufffb\ufe00\ufe0f\u034f\u115f\u3164\uffa0\U000e0049\U000e0101"
KINDS = {
    "C0": "".join(map(chr, range(0x01, 0x10))), "more C0": "".join(map(chr, range(0x10, 0x20))),
    "C1": "\x7f" + "".join(map(chr, range(0x80, 0x90))), "more C1": "".join(map(chr, range(0x90, 0xA0))),
    "bidi": BIDI_CONTROLS,
    "unseen": "\xad\u200b\u2060\ufeff\ufff9\ufffb\U000e0049",  # that Python's repr() escapes
    "lines": "\u2028\u2029\x85\x0b\x0c\r\n", "halves": "\ud800\ud801\udc00.\udfff",
}  # fmt: skip
# Six characters each, because long names are cut.
SOME = [odd[at : at + 6] for odd in KINDS.values() for at in range(0, len(odd), 6)]


def write_trace(path: Path, name: str, device: str = "NVIDIA H200") -> Path:
    shapes = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"], "External id": 1}
    events: list[dict[str, Any]] = [
        {"cat": "user_annotation", "name": f"ProfilerStep#{name}", "pid": 1, "tid": 1, "ts": 0, "dur": 900},
        {"cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10, "dur": 100, "args": shapes},
        {"cat": "kernel", "name": f"k{name}", "pid": 0, "tid": 7, "ts": 200, "dur": 50, "args": {"External id": 1}},
        {"cat": f"odd{name}", "name": "what", "pid": 1, "tid": 1, "ts": 400, "dur": 1},
    ]
    head = {"deviceProperties": [{"id": 0, "name": device}], "record_shapes": 1}
    path.write_text(json.dumps({**head, "traceEvents": [{"ph": "X", **event} for event in events]}))
    return path


def controls_in(text: str) -> set[str]:
    """Return the characters of a text, except line ends, that control a terminal."""
    return {c for c in text if c != "\n" and (unicodedata.category(c) in CONTROL_CATEGORIES or c in UNSEEN)}


@given(st.text())
def test_escaped_text_has_no_controls_and_can_be_decoded(text: str) -> None:
    shown = printable(text + UNSEEN).removesuffix(printable(UNSEEN))
    assert not controls_in(shown) and "\n" not in shown
    if "\\" not in text and text.isascii():
        assert shown.encode().decode("unicode_escape") == text


SEEN = st.characters(codec="utf-8", exclude_categories=["C", "Z", "M"], include_characters=" \u00a0\u3000\u0301")


@given(st.text(SEEN.filter(lambda c: c not in UNSEEN + "\u1160\u17b4\u17b5")))
def test_text_without_controls_is_unchanged(text: str) -> None:
    assert printable(text) == text


@pytest.mark.filterwarnings("ignore:.*events were omitted")
def test_tables_and_summaries_escape_names(tmp_path: Path) -> None:
    trace = fs.load_trace(write_trace(tmp_path / "t.json", EVIL))
    table = trace.key_averages()
    assert EVIL in [row.key for row in table]  # rows have the unescaped names
    for text in (table.table(row_limit=-1), table.table(max_name_column_width=20), str(trace.summary())):
        assert not controls_in(text)
    assert SHOWN in table.table()
    lines = table.table(roofline=False).splitlines()
    assert len(lines) == len(table) + 6 and {len(line) for line in lines[3:-3]} == {len(lines[0])}
    assert not controls_in(fs.compare(trace, trace, by="name", names=(EVIL, "b")).table())
    unseen = fs.load_trace(write_trace(tmp_path / f"{UNSEEN}.json", UNSEEN))
    for shown in (unseen, *unseen.key_averages(), *unseen.events()):
        assert not controls_in(repr(shown)), "Python's repr() of a text has marks"


@pytest.mark.filterwarnings("ignore:.*events were omitted")
@pytest.mark.parametrize("some", SOME, ids=ascii)
def test_text_has_no_controls_with_any_name(tmp_path: Path, some: str) -> None:
    name = f"a{some}z"
    trace = fs.load_trace(write_trace(tmp_path / "t.json", name, device=f"GPU{some}"))
    tables = [trace.key_averages(), trace.key_averages(group_by_input_shape=True)]
    compared = fs.compare(trace, trace, by="name", names=(name, f"{name}'"))
    texts = [str(trace.summary())]
    for table in tables:
        texts += [table.table(), table.table(brief=True), table.by_category().table()]
    texts += [compared.table(), fs.compare(trace, trace, kind="kernel").table()]
    texts += [compared._repr_html_(), tables[0]._repr_html_()]
    texts += [repr(thing) for thing in (trace, compared, tables[0], tables[0][0], trace.events(), trace.events()[1])]
    assert [controls_in(text) for text in texts] == [set()] * len(texts)
    shown = "a\ufffd" if "\ud800" in some else printable(name)  # UTF-8 cannot encode a lone surrogate
    assert all(shown in text for text in (tables[0].table(), compared.table()))


@pytest.mark.parametrize("some", [odd for kind, odd in KINDS.items() if kind != "halves"], ids=ascii)
def test_errors_and_warnings_escape_file_names(tmp_path: Path, some: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"a{some}.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1, "dur": 2}, {"ph"')
    with pytest.warns(UserWarning, match="truncated") as caught:
        fs.load_trace(path)
    path.write_text("nonsense")
    with pytest.raises(ValueError, match="a") as wrong:
        fs.load_trace(path)
    path.unlink()
    with pytest.raises(FileNotFoundError) as missing:
        fs.load_trace(path)
    for text in (str(caught[0].message), str(wrong.value), str(missing.value)):
        assert not controls_in(text) and "\n" not in text
    assert main(["table", str(path)]) == 1 and main(["compare", str(path), str(path)]) == 1
    assert main(["measure", f"no{some}"]) == 2 and main(["measure", f"no{some}:f"]) == 1
    captured = capsys.readouterr()
    assert not controls_in(captured.err) and captured.out == ""


@pytest.mark.parametrize("some", KINDS.values(), ids=ascii)
def test_measurements_escape_function_names(some: str) -> None:
    def f() -> None:
        pass

    f.__name__ = f"f{some}"
    measured = fs.measure(f, device="cpu", max_time=0.001, peaks="none")
    assert not controls_in(str(measured)) and measured.name == printable(f.__name__)


def test_commands_escape_names_and_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write_trace(tmp_path / f"{which}\x1b[31m.json", EVIL)) for which in "ab"]
    other = Path(paths[1])
    other.write_text(other.read_text().replace('"pid": 1,', '"pid": 2,'))  # another process
    assert main(["table", *paths]) == 0 and main(["compare", *paths, "--by", "name"]) == 0
    assert main(["table", str(tmp_path / "no\x1b[31m.json")]) == 1
    captured = capsys.readouterr()
    assert r"a\x1b[31m.json" in captured.out and r"no\x1b[31m.json" in captured.err
    assert r"unknown category, such as" in captured.err
    assert not controls_in(captured.out) and not controls_in(captured.err)


@pytest.mark.filterwarnings("ignore:.*events were omitted")
@pytest.mark.parametrize("name", ["=cmd()", "+1+cmd", "-1+cmd", "@sum", "\t=cmd", "\r=cmd", "\n=cmd", "\uff1dcmd()"])
def test_csv_files_have_no_formulas(tmp_path: Path, name: str) -> None:
    trace = fs.load_trace(write_trace(tmp_path / "t.json", name))
    trace.key_averages().to_csv(tmp_path / "t.csv")
    fs.compare(trace, trace, by="name").to_csv(tmp_path / "c.csv")
    for file, column in (("t.csv", "key"), ("c.csv", "name")):
        with open(tmp_path / file, newline="") as opened:
            assert f"'{name}" in [row[column] for row in csv.DictReader(opened)]


def test_numbers_and_safe_texts_are_written_unchanged(tmp_path: Path) -> None:
    values = [-1.5, 2, "-1.5", "+2e9", "aten::mm", "a=b", None, [[1, -2]], "", "'x"]
    write_csv(tmp_path / "v.csv", map(str, range(len(values))), [values])
    with open(tmp_path / "v.csv", newline="") as file:
        assert list(csv.reader(file))[1] == ["-1.5", "2", "-1.5", "+2e9", "aten::mm", "a=b", "", "[[1, -2]]", "", "'x"]
