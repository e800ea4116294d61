"""export_chrome_trace() and trace_handler(): rejected arguments, and metadata in the head of a trace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs


def test_metadata_is_in_the_head_of_the_trace(tmp_path: Path) -> None:
    with fs.profile() as prof:
        fs.ones(())
    prof.add_metadata("model", 'a "large" one')
    prof.add_metadata_json("sizes", "[1, 2.5, null]")
    prof.preset_metadata_json("lr", "1e-3")
    for wrong, error, message in (
        ("[1,", ValueError, r"the value of 'sizes' is not JSON .*: '\[1,'"),
        ("[NaN]", ValueError, "not JSON"),  # Python's json writes NaN, but JSON does not have it
        ([1], TypeError, r"must be JSON text, not \[1\]"),
    ):
        with pytest.raises(error, match=message):
            prof.add_metadata_json("sizes", wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a string, not 3"):
        prof.add_metadata("model", 3)  # type: ignore[arg-type]
    for add, value in ((prof.add_metadata, "[]"), (prof.add_metadata_json, "[]")):
        with pytest.raises(ValueError, match="'traceEvents' cannot be set"):
            add("traceEvents", value)
        with pytest.raises(TypeError, match="must be a string, not 3"):
            add(3, value)  # type: ignore[arg-type]
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path)
    head = json.loads(path.read_text(encoding="utf-8"))
    assert head["model"] == 'a "large" one' and head["sizes"] == [1, 2.5, None] and head["lr"] == 1e-3
    assert head["traceName"] == str(path)


def test_a_path_can_be_bytes(tmp_path: Path) -> None:
    with fs.profile() as prof:
        fs.ones(())
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(os.fsencode(path))
    assert json.loads(path.read_text(encoding="utf-8"))["traceName"] == str(path)


def test_a_failed_export_names_the_path_that_the_user_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path, *args: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    with fs.profile() as prof:
        fs.ones(())
    path = tmp_path / "trace.json"
    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(PermissionError) as caught:
        prof.export_chrome_trace(path)
    assert caught.value.filename == str(path)
    assert str(caught.value) == f"[Errno 13] cannot create a file in {tmp_path}: Permission denied: {str(path)!r}"
    assert list(tmp_path.iterdir()) == []


def test_invalid_arguments_of_a_handler_are_rejected_early() -> None:
    with pytest.raises(TypeError):
        fs.trace_handler(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="worker_name is part of a file name: it cannot be 'a/b'"):
        fs.trace_handler("folder", worker_name="a/b")
