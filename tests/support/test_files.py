"""Files are written completely or not at all: on full disks, after kills, through links and as special files."""

import errno
import io
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import environment

import flopscope as fs
from flopscope.cli import program as cli
from flopscope.support import files
from flopscope.support.files import replacing, write_json


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".flopscope-"))


@pytest.fixture(scope="module")
def prof() -> fs.profile:
    fs.set_default_device("cpu")
    with fs.profile(with_stack=True, record_shapes=True) as profile:
        x = fs.ones((64, 64))
        for _ in range(50):
            fs.matmul(x, x)
    return profile


def table(prof: fs.profile) -> Any:
    return prof.key_averages(peaks="none")


EXPORTS: dict[str, Callable[[Any, Path], Any]] = {
    "csv": lambda prof, path: table(prof).to_csv(path), "json": lambda prof, path: table(prof).to_json(path),
    "stacks": lambda prof, path: prof.export_stacks(path), "trace": lambda prof, path: prof.export_chrome_trace(path),
    "page": lambda prof, path: prof.write_report(path, peaks="none"),
    "comparison": lambda prof, path: fs.compare(table(prof), table(prof)).to_csv(path),
    "command": lambda prof, path: cli.main(["devices", "--json", str(path)]),
}  # fmt: skip


@pytest.fixture(params=EXPORTS)
def export(request: pytest.FixtureRequest, prof: fs.profile) -> Callable[[Path], Any]:
    return lambda path: EXPORTS[request.param](prof, path)


ROOM = 40  # bytes on the full disk


class Full(io.FileIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > ROOM:
            super().write(bytes(data)[: ROOM - self.tell()])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def open_on_full_disk(file: Any, mode: str, **options: Any) -> Any:
    if "r" in mode:
        return open(file, mode, **options)
    binary = io.BufferedWriter(Full(file, "w"))
    return binary if mode == "wb" else io.TextIOWrapper(binary, **options)


# Complete or absent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", ["what was there", None])
def test_a_full_disk_leaves_the_old_file(
    export: Callable[[Path], Any], tmp_path: Path, old: str | None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "result"
    if old is not None:
        path.write_text(old)
    monkeypatch.setattr(files, "open", open_on_full_disk, raising=False)
    try:
        assert export(path) == 1  # the command's exit status
        message = capsys.readouterr().err
    except OSError as problem:
        assert problem.errno == errno.ENOSPC
        message = str(problem)
    assert "No space left on device" in message and str(path) in message
    assert (path.read_text() if path.exists() else None) == old and leftovers(tmp_path) == []


def test_a_device_that_is_full_is_named(export: Callable[[Path], Any], capsys: Any) -> None:
    try:
        assert export(Path("/dev/full")) == 1
        message = capsys.readouterr().err
    except OSError as problem:
        message = str(problem)
    assert "No space left on device" in message and "/dev/full" in message


def test_every_export_replaces_the_file_and_keeps_its_mode(export: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    path.chmod(0o640)
    inode = path.stat().st_ino
    export(path)
    assert path.read_bytes()[:3] != b"old" and path.stat().st_size > 10 and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != inode and leftovers(tmp_path) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_follows_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_json(tmp_path / "new", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~mask


def test_an_exception_in_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    for problem in (KeyboardInterrupt, ValueError):
        with pytest.raises(problem), replacing(path) as stream:
            stream.write("new")
            stream.flush()
            assert path.read_text() == "old" and len(leftovers(tmp_path)) == 1
            raise problem
    assert path.read_text() == "old" and leftovers(tmp_path) == []
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == "old"


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "result"

    def write(number: int) -> None:
        for _ in range(50):
            write_json(path, [number] * 1000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert len(set(json.loads(path.read_text()))) == 1
    assert leftovers(tmp_path) == []


# Kinds of paths -------------------------------------------------------------------------------------------------------


def test_a_path_is_a_string_bytes_or_a_path_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (str, os.fsencode, Path):
        write_json(kind(str(tmp_path / "größe")), {"a": 1})
        assert json.loads((tmp_path / "größe").read_text()) == {"a": 1}
        (tmp_path / "größe").unlink()
    monkeypatch.chdir(tmp_path)
    write_json("result", 1)
    Path("sub").mkdir()
    os.symlink("../result", "sub/link")
    write_json("sub/link", 2)
    assert Path("result").read_text() == "2\n" and Path("sub/link").is_symlink()


@pytest.mark.parametrize("old", ["what was there", None])
def test_a_symbolic_link_is_written_through(tmp_path: Path, old: str | None) -> None:
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "target"
    if old is not None:
        target.write_text(old)
    (tmp_path / "middle").symlink_to("far/target")
    (tmp_path / "link").symlink_to(tmp_path / "middle")
    write_json(tmp_path / "link", {})
    assert (tmp_path / "link").is_symlink() and (tmp_path / "middle").is_symlink()
    assert target.read_text() == "{}\n" and not target.is_symlink()


def test_paths_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    cases = {
        tmp_path: IsADirectoryError, tmp_path / "missing" / "file": FileNotFoundError,
        tmp_path / "file" / "file": NotADirectoryError, tmp_path / "loop": OSError, tmp_path / ("n" * 300): OSError,
    }  # fmt: skip
    for path, kind in cases.items():
        with pytest.raises(kind) as caught:
            write_json(path, {})
        assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_json(f"{tmp_path}/new/", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


def test_special_files_are_written_directly(tmp_path: Path) -> None:
    write_json("/dev/null", {})
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write_json(fifo, {"a": 1})
    reader.join(10)
    assert json.loads(read[0]) == {"a": 1} and stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("to_file", [False, True])
def test_standard_output_is_written_directly_even_if_it_is_a_file(tmp_path: Path, to_file: bool) -> None:
    code = "from flopscope.support.files import write_json\nwrite_json('/dev/stdout', {})\nwrite_json('/dev/fd/1', [])"
    command = [sys.executable, "-c", code]
    if to_file:
        with (tmp_path / "out").open("a") as out:
            inode = os.fstat(out.fileno()).st_ino
            subprocess.run(command, env=environment(), stdout=out, check=True)
        assert (tmp_path / "out").stat().st_ino == inode  # as open() does: truncated, not replaced
        assert (tmp_path / "out").read_text() == "[]\n"
    else:
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout == "{}\n[]\n"
    assert leftovers(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write read-only files")
def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(PermissionError) as caught:
        write_json(path, {})
    assert caught.value.filename == str(path) and path.read_text() == "old"
