"""export_chrome_trace() and trace_handler(): paths, failures, the head of a trace, and rejected arguments."""

import gzip
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.chrome_events import parse_checked, slices

import flopscope as fs
from flopscope import _core
from flopscope.results import exports
from flopscope.support.process import RANK_VARIABLES


@pytest.fixture
def core() -> _core.Store:
    store = _core.Store()
    for i in range(100):
        _core._append(store, "op", "x::a", start=1000 + i * 10, duration=5)
    return store


def test_a_path_that_ends_in_gz_is_compressed(core: _core.Store, tmp_path: Path) -> None:
    exports.export(core, tmp_path / "a.json")
    exports.export(core, str(tmp_path / "b.json.gz"))
    plain, packed = (tmp_path / "a.json").read_bytes(), (tmp_path / "b.json.gz").read_bytes()
    assert parse_checked(gzip.decompress(packed))["traceName"] == str(tmp_path / "b.json.gz")
    assert len(packed) < len(plain) / 4 and {*os.listdir(tmp_path)} == {"a.json", "b.json.gz"}
    assert re.fullmatch("[0-9A-F]{32}", parse_checked(plain)["trace_id"])


def test_other_threads_run_while_a_trace_is_written(core: _core.Store) -> None:
    for i in range(100_000):
        _core._append(core, "op", "x::a", start=300_000 + i * 10, duration=5)
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(len(pieces))
            time.sleep(0.0001)

    pieces: list[bytes] = []
    thread = threading.Thread(target=watch)
    thread.start()
    core.write_trace(pieces.append, "1")
    done.set()
    thread.join()
    assert max(map(len, pieces)) <= 1 << 19 and len(pieces) > 20
    assert len({at for at in seen if 0 < at < len(pieces)}) > 1


def test_events_without_a_time_are_reported(core: _core.Store, tmp_path: Path) -> None:
    _core._append(core, "kernel", "never ran", device=0)
    with pytest.warns(RuntimeWarning, match=r"1 events have no time and are not in a\.json"):
        exports.export(core, tmp_path / "a.json")
    trace = parse_checked((tmp_path / "a.json").read_bytes())
    assert trace["flopscope"]["without a time"] == 1 and not slices(trace, "kernel")


def test_the_rank_of_a_job_is_written(core: _core.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (name for names in RANK_VARIABLES for name in names):
        monkeypatch.delenv(name, raising=False)
    exports.export(core, tmp_path / "a.json")
    assert "distributedInfo" not in parse_checked((tmp_path / "a.json").read_bytes())
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    exports.export(core, tmp_path / "a.json")
    assert parse_checked((tmp_path / "a.json").read_bytes())["distributedInfo"] == {"rank": 3, "world_size": 8}


def test_metadata_is_in_the_head_of_the_trace(tmp_path: Path) -> None:
    with fs.profile() as prof:
        fs.ones(())
    prof.add_metadata("model", 'a "large" one')
    prof.add_metadata_json("sizes", "[1, 2.5, null]")
    prof.preset_metadata_json("lr", "1e-3")
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(os.fsencode(path))
    head = json.loads(path.read_text(encoding="utf-8"))
    assert head["model"] == 'a "large" one' and head["sizes"] == [1, 2.5, None] and head["lr"] == 1e-3
    assert head["traceName"] == str(path)


@pytest.mark.parametrize(
    ("add", "name", "value", "error", "message"),
    [
        ("add_metadata_json", "sizes", "[1,", ValueError, r"the value of 'sizes' is not JSON .*: '\[1,'"),
        ("add_metadata_json", "sizes", "[NaN]", ValueError, "not JSON"),  # Python's json writes NaN, JSON has none
        ("add_metadata_json", "sizes", [1], TypeError, r"must be JSON text, not \[1\]"),
        ("add_metadata", "model", 3, TypeError, "takes a string, not 3"),
        ("add_metadata", "traceEvents", "[]", ValueError, "'traceEvents' cannot be set"),
        ("add_metadata_json", "traceEvents", "[]", ValueError, "'traceEvents' cannot be set"),
        ("add_metadata", 3, "[]", TypeError, "must be a string, not 3"),
        ("add_metadata_json", 3, "[]", TypeError, "must be a string, not 3"),
    ],
)
def test_wrong_metadata_is_refused(add: str, name: Any, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        getattr(fs.profile(), add)(name, value)


class Exported:
    """A stand-in for a profile, which records the paths of exports."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def export_chrome_trace(self, path: str, **options: Any) -> None:
        self.paths.append(path)


def test_a_handler_names_files_as_torch_does(tmp_path: Path) -> None:
    prof, folder = Exported(), tmp_path / "new" / "folder"
    before = time.time_ns()
    exports.trace_handler(folder, "me")(prof)
    exports.trace_handler(str(folder), use_gzip=True)(prof)
    names = [re.fullmatch(r"(.+)\.(\d+)\.pt\.trace\.json(\.gz)?", Path(path).name) for path in prof.paths]
    assert names[0] and names[1] and folder.is_dir()
    assert {str(Path(path).parent) for path in prof.paths} == {str(folder)}
    assert (names[0][1], names[0][3]) == ("me", None) and before <= int(names[0][2]) <= time.time_ns()
    assert names[1][1].endswith(f"_{os.getpid()}") and names[1][3] == ".gz"
    profiler = pytest.importorskip("torch.profiler")
    for handler in (profiler.tensorboard_trace_handler, exports.trace_handler):
        handler(str(tmp_path))(prof)
    theirs, ours = (re.sub(r"\d{15,}", "N", path) for path in prof.paths[2:])
    assert theirs == ours


def test_invalid_arguments_of_a_handler_are_rejected_early() -> None:
    with pytest.raises(TypeError):
        fs.trace_handler(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="worker_name is part of a file name: it cannot be 'a/b'"):
        fs.trace_handler("folder", worker_name="a/b")
