"""Seeds of the fuzz target of databases.

    python tests/fuzz/sqlite_seeds.py FILE...     write a small database of each real one into the corpus

A seed is a database of pages of 512 bytes with the first rows of each table that flopscope reads. Where its application
id is not 0, it is the size of the database, and the write-ahead log follows.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent / "corpus" / "sqlite"
PAGE, ROWS, LONGEST = 512, 6, 400
LOGGED = 6_500  # bytes of the largest database that gets a log

READ = re.compile(
    r"StringIds|TARGET_INFO_(GPU|CUDA_DEVICE|GPU_METRICS)|GPU_METRICS|NVTX_\w+|CUPTI_ACTIVITY_KIND_\w+|\w+_EVENTS|"
    r"PROFILER_OVERHEAD|rocpd_(string|info_agent|info_kernel_symbol|info_pmc|event|pmc_event|region|kernel_dispatch|"
    r"memory_copy|memory_allocate)(_[0-9a-f_]+)?"
)
_PROCESS_OF_TABLE = re.compile(r"_[0-9a-f]{8}(_[0-9a-f]{4}){3}_[0-9a-f]{12}$")


def seed(source: Path, target: Path) -> None:
    """Write the first rows of the tables that are read, with the texts that they name."""
    old = sqlite3.connect(f"file:{source}?mode=ro&immutable=1", uri=True)
    new = sqlite3.connect(target, isolation_level=None)
    new.execute(f"PRAGMA page_size = {PAGE}")
    numbers: set[Any] = set()
    tables = [name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    texts = [name for name in tables if re.match(r"StringIds|rocpd_string", name)]
    for name in [*(name for name in tables if name not in texts), *texts]:
        if READ.fullmatch(name):
            where = f"WHERE id IN ({', '.join(map(str, sorted(numbers))) or 'NULL'})" if name in texts else ""
            numbers |= _copy(old, new, name, where)
    new.execute("VACUUM")
    new.close()


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, name: str, where: str) -> set[int]:
    few = "" if where else f"LIMIT {ROWS}"
    cursor = old.execute(f'SELECT * FROM "{name}" {where} {few}')
    names = [column[0] for column in cursor.description]
    rows = [tuple(value[:LONGEST] if isinstance(value, str) else value for value in row) for row in cursor]
    listed = ", ".join(f'"{column}"' + " INTEGER PRIMARY KEY" * (column == "id") for column in names)
    short = _PROCESS_OF_TABLE.sub("", name)
    new.execute(f'CREATE TABLE "{short}" ({listed})')
    new.executemany(f'INSERT OR IGNORE INTO "{short}" VALUES ({", ".join("?" * len(names))})', rows)
    return {value for row in rows for value in row if isinstance(value, int) and 0 <= value < 1 << 20}


def with_log(database: Path, target: Path) -> None:
    """Write a database with a log beside it, in which rows change, as one file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        path.write_bytes(database.read_bytes())
        writer = sqlite3.connect(path, isolation_level=None)
        tables = [name for (name,) in writer.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        writer.execute(f"PRAGMA application_id = {path.stat().st_size}")
        writer.execute("PRAGMA journal_mode = WAL")
        for name in tables:
            writer.execute(f'DELETE FROM "{name}" WHERE rowid % 3 = 1')
        target.write_bytes(path.read_bytes() + Path(f"{path}-wal").read_bytes())
        writer.close()


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:]:
        target = CORPUS / f"{Path(name).stem}.sqlite"
        target.unlink(missing_ok=True)
        seed(Path(name), target)
        if target.stat().st_size <= LOGGED:
            with_log(target, target.with_suffix(".wal"))


if __name__ == "__main__":
    main()
