"""What tools may read: files in the folders of the user, whatever paths and links say; and which traces stay open."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA
from helpers.mcp import session

import flopscope as fs
from flopscope.cli.server import folders, traces
from flopscope.cli.server.folders import Folders, Outside
from flopscope.ranks.load import RankFile, ranks_of

TRACE = DATA / "programs" / "pointwise_before.json.gz"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a trace, beside one that may not be read, with links between them."""
    for name in ("inside/below", "outside"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(TRACE, tmp_path / "inside" / "a.json.gz")
    shutil.copy(TRACE, tmp_path / "inside" / "below" / "b.json.gz")
    shutil.copy(TRACE, tmp_path / "outside" / "secret.json.gz")
    inside = tmp_path / "inside"
    (inside / "link.json.gz").symlink_to(tmp_path / "outside" / "secret.json.gz")
    (inside / "chain.json.gz").symlink_to("link.json.gz")
    (inside / "folder").symlink_to(tmp_path / "outside")
    (inside / "good.json.gz").symlink_to("below/b.json.gz")
    (inside / "loop.json.gz").symlink_to("loop.json.gz")
    return tmp_path


OUTSIDE = [
    "../outside/secret.json.gz", "../outside/none.json.gz", "below/../../outside/secret.json.gz", "link.json.gz",
    "chain.json.gz", "folder", "folder/secret.json.gz", "..", "/", "/etc/passwd", "/none", "s3://bucket/trace.json.gz",
    "file:///etc/passwd",
]  # fmt: skip


def test_every_tool_refuses_paths_outside(tree: Path) -> None:
    with session(tree / "inside") as server:
        for path in OUTSIDE:
            for tool in ("open", "summary", "advice", "accounting", "rows"):
                said = server.refused(tool, path=path)  # alike whether the file exists or not
                assert str(tree / "outside") not in said and re.search("may be read|only files in", said)
            server.refused("explain", path=path, event=0)
            server.refused("what_if", path=path, dtype="bfloat16")
            assert "secret" not in server.refused("compare", a="a.json.gz", b=path).replace(path, "")
            server.refused("ranks", paths=["a.json.gz", path])
        (tree / "inside" / "loop.json.gz").unlink()
        assert "outside of the folders" in server.refused("ranks", paths=["."])  # because of the links in it


@pytest.mark.parametrize("swapped", ["a.json.gz", "below"])
def test_a_link_swapped_in_after_the_check_fails(tree: Path, swapped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folders, check = Folders([str(tree / "inside")]), Folders.path

    def check_and_swap(self: Folders, given: str) -> str:
        real, place = check(self, given), tree / "inside" / swapped
        place.rename(tree / "inside" / "moved")
        place.symlink_to(tree / "outside" / ("" if swapped == "below" else "secret.json.gz"))
        return real

    (tree / "outside" / "b.json.gz").write_bytes((tree / "outside" / "secret.json.gz").read_bytes())
    monkeypatch.setattr(Folders, "path", check_and_swap)
    with pytest.raises(Outside, match="was replaced while it was opened"):
        folders.trace("below/b.json.gz" if swapped == "below" else swapped)


def test_ranks_are_read_from_the_files_that_were_checked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that are swapped in before the workers read lead nowhere: they would read a trace of one event."""
    inside = tree / "inside"
    (tree / "outside" / "secret.json.gz").write_bytes(b'{"traceEvents": []}')

    def swap_and_read(files: list[RankFile], **more: Any) -> Any:
        for name in ("a.json.gz", "below/b.json.gz"):
            (inside / name).unlink()
            (inside / name).symlink_to(tree / "outside" / "secret.json.gz")
        return ranks_of(files, **more)

    monkeypatch.setattr("flopscope.ranks.load.ranks_of", swap_and_read)
    rows = traces.ranks(Folders([str(inside)]), ["a.json.gz", "below/b.json.gz"], top=9).document["files"]
    assert [row["source"] for row in rows] == [str(inside / one) for one in ("a.json.gz", "below/b.json.gz")]
    assert {row["events"] for row in rows} == {len(fs.load_trace(TRACE))}


def test_paths_inside_are_found(tree: Path) -> None:
    found = Folders([str(tree / "inside")])
    inside = tree / "inside"
    for path, real in (("a.json.gz", "a.json.gz"), ("below/../a.json.gz", "a.json.gz"), (".", ""), ("", ""),
                       ("good.json.gz", "below/b.json.gz"), (str(inside / "a.json.gz"), "a.json.gz")):  # fmt: skip
        assert found.path(path) == os.path.realpath(inside / real)
    both = Folders([str(inside / "below"), str(tree / "outside")])
    assert both.path("secret.json.gz") == os.path.realpath(tree / "outside" / "secret.json.gz")
    assert both.path("b.json.gz") == os.path.realpath(inside / "below" / "b.json.gz")
    link = Folders([str(inside / "folder")])  # a folder that is a link is the folder that it names
    assert link.path("secret.json.gz") == os.path.realpath(tree / "outside" / "secret.json.gz")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'b\.json\.gz'"):
        both.path("c.json.gz")
    with pytest.raises(FileNotFoundError):
        found.path("loop.json.gz/x")


def test_a_listing_has_no_links_to_the_outside(tree: Path) -> None:
    found = Folders([str(tree / "inside")])
    files, count = found.files(found.path("."), (".json", ".json.gz"))
    assert [name for name, _ in files] == ["a.json.gz", "good.json.gz", "below/b.json.gz"] and count == 3
    assert all(os.path.samefile(found.path(name), tree / "inside" / name) for name, _ in files)


def test_a_long_listing_says_how_many_there_are(tmp_path: Path) -> None:
    for number in range(folders.LISTED + 7):
        (tmp_path / f"{number}.json").write_text("{}")
    with session(tmp_path) as server:
        assert len(server.call("open")["files"]) == folders.LISTED
        assert f"{folders.LISTED} of {folders.LISTED + 7} files" in server.text("open")


def test_something_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none", TRACE):
        with pytest.raises(ValueError, match=f"{path} is not a folder"):
            Folders([str(path)])


def test_no_program_is_run_for_a_report_of_nsight_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nsys").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("r.nsys-rep", "r.sqlite"):
        (tmp_path / name).write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 100)
    with session(tmp_path) as server:
        for said in (server.refused("summary", path="r.nsys-rep"), server.refused("ranks", paths=["r.sqlite"])):
            assert "nsys export" in said
    assert not (tmp_path / "ran").exists()


def test_a_pipe_or_a_device_is_refused_instead_of_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with session(tmp_path, "/dev") as server:
        for path in ("pipe.json", "zero.json", "/dev/zero"):
            assert "is not a regular file" in server.refused("open", path=path)
            assert "is not a regular file" in server.refused("ranks", paths=[path])
        assert server.call("open")["files"] == []


def test_a_python_program_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with session(tmp_path) as server:
        assert "a Python program" in server.refused("summary", path="program.py")
    assert not (tmp_path / "ran").exists()


# Traces that stay open ------------------------------------------------------------------------------------------------


def test_a_trace_is_read_once_until_it_changes(tree: Path) -> None:
    found, path = Folders([str(tree / "inside")]), tree / "inside" / "a.json.gz"
    first = found.trace("a.json.gz")
    assert found.trace(str(path)) is first is found.trace("below/../a.json.gz")
    os.utime(path, ns=(1, 1))
    assert found.trace("a.json.gz") is not first


def test_only_the_last_traces_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, paths = Folders([str(tmp_path)]), [f"{i}.json.gz" for i in range(folders.MOST_TRACES + 2)]
    for path in paths:
        shutil.copy(TRACE, tmp_path / path)
    opened = {path: found.trace(path) for path in paths}
    assert found.trace(paths[-1]) is opened[paths[-1]] and found.trace(paths[2]) is opened[paths[2]]
    assert found.trace(paths[0]) is not opened[paths[0]]
    monkeypatch.setattr(folders, "MOST_EVENTS", 1)
    last = found.trace(paths[1])
    assert found.trace(paths[1]) is last and found.trace(paths[2]) is not opened[paths[2]]
