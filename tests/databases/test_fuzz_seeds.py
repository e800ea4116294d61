"""The seeds of the fuzz target of databases."""

from __future__ import annotations

import sqlite3
import sys
import warnings
from pathlib import Path

import pytest
from helpers import TESTS

import flopscope as fs

FUZZ = TESTS / "fuzz"
sys.path.insert(0, str(FUZZ))
import sqlite_seeds  # noqa: E402

SEEDS = sorted(sqlite_seeds.CORPUS.glob("*.sqlite"))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.stem)
def test_seeds_have_work(seed: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(fs.load_trace(seed)) >= 6


@pytest.mark.parametrize("log", sorted(sqlite_seeds.CORPUS.glob("*.wal")), ids=lambda path: path.stem)
def test_the_logs_of_seeds_change_the_databases(log: Path, tmp_path: Path) -> None:
    joined = log.read_bytes()
    size = int.from_bytes(joined[68:72], "big")
    (tmp_path / "x").write_bytes(joined[:size])
    (tmp_path / "x-wal").write_bytes(joined[size:])
    before, after = (sqlite3.connect(path) for path in (log.with_suffix(".sqlite"), tmp_path / "x"))
    (table,) = before.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 1").fetchone()
    rows = [connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for connection in (before, after)]
    assert rows[1] < rows[0]
