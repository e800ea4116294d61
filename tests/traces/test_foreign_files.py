"""Files that are no traces: the error says what a file is, by its content, and what to do instead."""

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.cli.program import main
from flopscope.read.formats import NotATrace
from flopscope.read.load import foreign_file


def database(*tables: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        connection = sqlite3.connect(path)
        for table in tables:
            connection.execute(f"CREATE TABLE {table} (start INT)")
        connection.commit()
        connection.close()

    return write


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def zipped(name: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(name, "x")
    return target.getvalue()


def hlo(name: str) -> bytes:
    return (Path(__file__).parents[1] / "fuzz" / "corpus" / name).read_bytes()


RECORD = "torch.profiler"
KINDS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "ncu-rep": (holding(b"NVR\0\2\0\0\0\x08\7"), "a report of Nsight Compute", "ncu --import"),
    "hlo.pb": (holding(hlo("protobuf/conv.hlo.pb")), "HLO of a module of XLA", "hlo="),
    "hlo": (holding(b"HloModule jit_f, is_scheduled=true\n"), "HLO of a module of XLA", "hlo="),
    "pickle": (holding(pickle.dumps([1, 2])), "a Python pickle", RECORD),
    "checkpoint": (holding(zipped("model/data.pkl")), "an archive", "unpack it"),
    "tar": (holding(b"file.py".ljust(257, b"\0") + b"ustar"), "an archive", "unpack it"),
    "bz2": (holding(bz2.compress(b"[]")), "compressed by bzip2", "unpack it"),
    "xz": (holding(lzma.compress(b"[]")), "compressed by .*xz", "unpack it"),
    "rocprofv3": (holding(b'{"rocprofiler-sdk-tool": []}'), "JSON of rocprofv3", "--output-format rocpd"),
    "lfs": (holding(b"version https://git-lfs.github.com/spec/v1\noid sha256"), "a pointer of Git LFS", "git lfs pull"),
    "html": (holding(b"\n<!DOCTYPE html><html></html>"), "a page of HTML", RECORD),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_says_what_it_is_and_what_to_do(kind: str, tmp_path: Path) -> None:
    write, what, instead = KINDS[kind]
    path = tmp_path / "named.json"  # the content counts, not the name
    write(path)
    message = rf"named\.json: it is .*{what}.*, not a trace: .*{instead}.* \(.*(byte|traceEvents|tables|none of)"
    with pytest.raises(ValueError, match=message):
        fs.load_trace(path)
    for source in (path.read_bytes(), path.open("rb"), gzip.compress(path.read_bytes())):
        with pytest.raises(ValueError, match=what):
            fs.load_trace(source)


def test_a_database_of_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "named.json"
    database("people")(path)
    message = (
        r"an SQLite database, not a trace: record .* \(neither of Nsight Systems nor of rocprofv3; its tables: people"
    )
    for source in (path, path.read_bytes(), path.open("rb"), gzip.compress(path.read_bytes())):
        with pytest.raises(NotATrace, match=message):
            fs.load_trace(source)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"), "has no kernels, .* nsys profile --trace="),
        (("META_DATA_EXPORT", "OSRT_API"), "has no kernels, .* nsys profile --trace="),
        (("rocpd_string", "rocpd_region"), "has no kernels, .* rocprofv3 --runtime-trace"),
    ],
)
def test_a_capture_without_events_says_how_to_record(tables: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    database(*tables)(path)
    with pytest.warns(UserWarning, match=message):
        prof = fs.load_trace(path)
    assert len(prof) == len(prof.key_averages()) == 0 and "Nothing was recorded." in str(prof.summary())


def test_a_capture_from_a_pipe_is_named(tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self, content: bytes) -> None:
            self.content = content

        def read(self, size: int = -1) -> bytes:
            first, self.content = self.content[:size], self.content[size:]
            return first

    path = tmp_path / "x.sqlite"
    database("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL")(path)
    with pytest.raises(NotATrace, match=r"SQLite export of Nsight Systems, not a trace: .* save it"):
        fs.load_trace(Pipe(path.read_bytes()))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300) | st.text().map(str.encode))
def test_any_content_is_looked_at_without_an_error(content: bytes) -> None:
    kind = foreign_file(content)
    assert kind is None or kind.instead


def test_a_similar_name_is_suggested_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "rank1.json").write_text("[]")
    suggested, nothing = rf"did you mean .*{tmp_path.name}/rank1\.json\?", "there is no such file: "
    for name in ("rank1.jsom", "rnak1.json", "another", "no such folder/rank1.json"):
        with pytest.raises(FileNotFoundError, match=suggested if name.startswith("r") else nothing) as caught:
            fs.load_trace(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name)


def test_a_folder_is_an_error_and_suggestions_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(IsADirectoryError, match=r"it is a folder; .*load_traces\(\)"):
        fs.load_trace(tmp_path)
    assert main(["table", str(tmp_path / "a.json"), str(tmp_path)]) == 1
    assert "there is no such file" in capsys.readouterr().err
    (tmp_path / "rank\x1b[31m1.json").write_text("[]")
    assert main(["table", str(tmp_path / "rank[31m1.jsn")]) in (1, 2) and "\x1b" not in capsys.readouterr().err
