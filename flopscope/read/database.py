"""SQLite databases of profilers: their tables, queries whose rows become events, and what the files have in common:
properties of devices, ranks, and counters, as samples that tables divide among kernels.

A file is opened read-only and immutable, and nothing in it is run: its views, triggers, virtual tables and generated
columns are not used, and functions are denied. The core steps through queries on several threads with the library that
Python's sqlite3 module uses. Where that library cannot be reached, as when Python contains it, the module itself reads
the rows, which takes longer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from flopscope import _core
from flopscope.support.core_facts import UNKNOWN_TIME
from flopscope.support.process import rank_in

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = b"SQLite format 3\0"
LEAST_SPLIT = 1 << 16  # rows that one query reads
MOST_SPLIT = 32  # queries of one table
BATCH = 1 << 14  # rows passed from Python's module to the core at once
MOST_VALUE = 64 << 20  # bytes of a text
MOST_FACTS = 1 << 16  # rows of a small table, such as that of the devices
MOST_TABLES = 1 << 12
LEAST_ROW = -(1 << 63)  # of row numbers: nothing precedes it


class Value(NamedTuple):
    """An expression over columns: the first of ``sources`` that exists takes the place of {}; without, a constant.

    A column of a joined table is written with the join's alias: "e.stack_id".
    """

    sources: tuple[str, ...]
    form: str = "{}"


def columns(*same: str, **others: str | tuple[str, ...] | Value) -> dict[str, Value]:
    """Return columns of the core by name: ``same`` are called so in the table, ``others`` otherwise."""
    found = {name: Value((name,)) for name in same}
    for name, value in others.items():
        sources = (value,) if isinstance(value, str) else value
        found[name] = sources if isinstance(sources, Value) else Value(sources)
    return found


class Join(NamedTuple):
    """A table whose key is a column of the query's table."""

    alias: str
    table: str
    column: str
    key: str = "id"


@dataclass
class Query:
    """A table whose rows become events of a kind. ``where`` is a condition on a column that the table must have."""

    kind: str
    table: str
    columns: Mapping[str, Value]
    """By the names of the core's columns. Those that the table lacks are left out."""
    needs: tuple[str, ...] = ()
    """Columns of the core without which the table is not read."""
    where: tuple[str, str] | None = None
    joins: tuple[Join, ...] = ()


@dataclass
class Reading:
    """What was read of a file: rows by table, and what could not be read."""

    rows: dict[str, int] = field(default_factory=dict)
    too_long: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, table: str, rows: int, too_long: int, problem: str) -> None:
        self.rows[table] = self.rows.get(table, 0) + rows
        self.too_long += too_long
        if problem:
            text = f"{table} ends early, after {self.rows[table]:,} rows: {problem}"
            self.problems = [old for old in self.problems if not old.startswith(f"{table} ends early")] + [text]


class Database:
    """An SQLite file, open for reading. Raise ValueError if it is none, or is damaged where its tables are listed."""

    def __init__(self, path: str) -> None:
        import sqlite3

        self.path = os.path.abspath(path)
        self.uri = f"file:{quote(self.path)}?mode=ro&immutable=1"
        self._errors: tuple[type[Exception], ...] = (sqlite3.Error, OverflowError, UnicodeError)
        try:
            self._open(sqlite3)
            # The real tables with their stored columns: no views, virtual tables or generated columns.
            listed = self._file.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'")
            names = [str(_plain(name)) for name, page in listed.fetchmany(MOST_TABLES) if page]
            infos = {name: self._file.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall() for name in names}
            self.tables = {
                name: tuple(str(_plain(row[1])) for row in rows if not row[6]) for name, rows in infos.items()
            }
        except sqlite3.Error as problem:
            raise ValueError(f"the SQLite database cannot be read: {problem}") from None

    def _open(self, sqlite3: Any) -> None:
        self._file = sqlite3.connect(self.uri, uri=True, isolation_level=None)
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
            self._file.execute(f"PRAGMA {setting}")
        if hasattr(self._file, "setlimit"):  # Python 3.11
            self._file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
        allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}

        def authorize(action: int, name: str | None, *_: object) -> int:
            lists = action == sqlite3.SQLITE_PRAGMA and name == "table_xinfo"
            return int(sqlite3.SQLITE_OK if action in allowed or lists else sqlite3.SQLITE_DENY)

        self._file.set_authorizer(authorize)
        self._file.text_factory = partial(str, encoding="utf-8", errors="replace")  # bytes stay apart from texts

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def facts(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """Return rows of a small table as dicts of the columns that it has; none if they cannot be read."""
        present = [name for name in columns or self.tables.get(table, ()) if name in self.tables.get(table, ())]
        if not present:
            return []
        sql = f"SELECT {', '.join(map(_quoted, present))} FROM {_quoted(table)}"
        try:
            rows = self._file.execute(sql).fetchmany(MOST_FACTS)
        except self._errors:
            return []
        return [{name: _plain(value) for name, value in zip(present, row, strict=True)} for row in rows]

    def has(self, table: str, column: str, condition: str) -> bool:
        """Return whether a row of the table fulfils a condition on a column."""
        where = f"WHERE {_quoted(column)} {condition}"
        return column in self.tables.get(table, ()) and self._first(f"1 FROM {_quoted(table)} {where}") is not None

    def rowid(self, table: str, order: str) -> int | None:
        """Return the number of the first row ("ASC") or the last ("DESC"); None if there is none, or rows have none."""
        row = self._first(f"rowid FROM {_quoted(table)} ORDER BY rowid {order}")
        return row if isinstance(row, int) else None

    def _first(self, selected: str) -> Any:
        """Return the first value that a query selects; None if it has no row or fails."""
        try:
            return next(iter(self._file.execute(f"SELECT {selected} LIMIT 1").fetchone() or ()), None)
        except self._errors:
            return None

    def read(self, reader: _core.DatabaseReader, queries: Sequence[Query], reading: Reading) -> None:
        """Add the rows of the queries, in any order."""
        asked = [built for query in queries if (built := self._built(query)) is not None]
        if _library():
            parts = [(built, part) for built in asked for part in self._parts(built)]
            results = reader.read(self.uri, [part for _, part in parts])
            for (built, _), result in zip(parts, results, strict=True):
                reading.add(built.table, *result)
        else:
            for built in asked:
                reading.add(built.table, *self._read_one(reader, built))

    def _built(self, query: Query) -> _Built | None:
        """Return the query in terms of the columns that the table has."""
        own = self.tables.get(query.table, ())
        joins = [join for join in query.joins if join.column in own and join.key in self.tables.get(join.table, ())]
        named = {name: f"t.{_quoted(name)}" for name in own}
        for join in joins:
            named |= {f"{join.alias}.{name}": f"{join.alias}.{_quoted(name)}" for name in self.tables[join.table]}
        chosen = {}
        for name, value in query.columns.items():
            found = next((named[source] for source in value.sources if source in named), None)
            if found is not None or not value.sources:
                chosen[name] = value.form.format(found)
        if not own or any(name not in chosen for name in query.needs):
            return None
        if query.where is not None and query.where[0] not in named:
            return None
        where = f"{named[query.where[0]]} {query.where[1]}" if query.where is not None else ""
        source = f"{_quoted(query.table)} AS t"
        for alias, table, column, key in joins:
            condition = f"{alias}.{_quoted(key)} = t.{_quoted(column)}"
            source += f" LEFT JOIN {_quoted(table)} AS {alias} ON {condition}"
        return _Built(query.kind, query.table, tuple(chosen), ", ".join(chosen.values()), source, where)

    def _parts(self, built: _Built) -> Iterator[tuple[str, str, str | None, int, int, tuple[str, ...]]]:
        """Yield queries of the core, each of a range of rowids; one of all rows for a table without rowids."""
        bounds = [self.rowid(built.table, order) for order in ("ASC", "DESC")]
        if None in bounds or LEAST_ROW in bounds:
            yield built.kind, built.sql(), None, 0, 0, built.columns
            return
        first, last = (int(bound) for bound in bounds if bound is not None)
        span = last - first + 1
        shared = built.kind in ("string", "domain", "device", "field")  # which one thread reads
        count = 1 if shared else max(1, min(MOST_SPLIT, span // LEAST_SPLIT))
        sql = built.sql("t.rowid, ", "t.rowid > ?1 AND t.rowid <= ?2")
        following = f"SELECT rowid FROM {_quoted(built.table)} WHERE rowid > ?1 LIMIT 1"
        for part in range(count):
            after, until = (first - 1 + span * place // count for place in (part, part + 1))
            yield built.kind, sql, following, after, until, built.columns

    def _read_one(self, reader: _core.DatabaseReader, built: _Built) -> tuple[int, int, str]:
        """Read a table by Python's module. Return the result that the core would."""
        count = 0
        try:
            cursor = self._file.execute(built.sql())
            while rows := cursor.fetchmany(BATCH):
                reader.add(built.kind, built.columns, rows)
                count += len(rows)
        except self._errors as problem:
            return count, 0, str(problem)
        return count, 0, ""


def journals(path: str) -> Iterator[str]:
    """Yield a note on changes that lie in another file: those are taken in by a program that opens it for writing.

    SQLite puts that file beside the database itself, not beside a link to it.
    """
    path = os.path.realpath(path)
    for suffix in ("-wal", "-journal"):
        try:
            size = os.stat(path + suffix).st_size
        except OSError:
            continue
        if size:
            yield (
                f"{os.path.basename(path)}{suffix} holds {size:,} bytes of changes that were not read: its writer is "
                f"still at work or was stopped; when it has ended, open the file once with sqlite3 to complete it"
            )


class _Built(NamedTuple):
    kind: str
    table: str
    columns: tuple[str, ...]
    select: str
    source: str
    where: str

    def sql(self, first: str = "", also: str = "") -> str:
        conditions = [f"({condition})" for condition in (also, self.where) if condition]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {first}{self.select} FROM {self.source}{where}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: object) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@cache
def _library() -> bool:
    """Return whether the core has SQLite's library: that of Python's module, else the system's."""
    import _sqlite3

    for path in dict.fromkeys((getattr(_sqlite3, "__file__", ""), "", "libsqlite3.so.0")):
        with suppress(RuntimeError, ValueError):
            if _core.DatabaseReader.use_library(path):
                return True
    return False


# Properties of devices, ranks, and counters ---------------------------------------------------------------------------

GAP = 3  # intervals between two samples, above which the time between them was not counted


class Counter(NamedTuple):
    """A counter of a file: the metric of the store, and what its values are multiplied by.

    ``rate``: values are shares of a rate, in percent, and ``factor`` is that rate per second.
    """

    metric: str
    factor: float = 1
    rate: bool = False


# Counters of kernels, derived by rocprofv3 (its counter_defs.yaml): kilobytes, and shares in percent.
ROCM = {
    "FETCH_SIZE": Counter("dram_bytes_read", 1024),
    "WRITE_SIZE": Counter("dram_bytes_written", 1024),
    "MfmaUtil": Counter("tensor_active"),
    "VALUBusy": Counter("fma_active"),
}


class Samples(NamedTuple):
    """Samples of a metric of a device: what was counted from each start to its end, ns."""

    device: int
    metric: str
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


_INDICES = ("type_index", "logical_node_type_id", "logical_index")


def json_object(text: object) -> dict[str, Any]:
    """Parse a JSON object (untrusted); empty if it is none."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def newer_schema(schema: object, newest: int) -> Iterator[str]:
    """Yield a note if a schema, a text with the major version first, is newer than the newest that is known."""
    major = re.match(r"\d+", str(schema))
    if major and int(major[0]) > newest:
        yield f"its schema is {schema}, newer than {newest}.x: only what this version knows was read"


def finished(
    profiler: str,
    reader: _core.DatabaseReader,
    store: _core.Store,
    facts: dict[str, Any],
    devices: Sequence[Mapping[str, Any]],
    samples: Sequence[Samples],
    base_time: int = 0,
    *,
    accelerator: str = "hip",
) -> tuple[dict[str, int], dict[str, Any]]:
    """Put the events and samples into the store. Return counts, and the metadata of a trace.

    ``facts`` are the member of the metadata that has the name of the profiler. accelerator: "": not told.
    """
    head = {"deviceProperties": devices} | ({"accelerator": accelerator} if accelerator else {})
    report = reader.finish(store, json.dumps(head).encode(), base_time)
    for one in samples:
        store.add_samples(*one)
    counted = {f"cuda:{one.device} {one.metric}": len(one.value) for one in samples}
    counts = {"samples": counted, "unmatched_frees": report["unmatched_frees"]}
    metadata: dict[str, Any] = {profiler: facts | counts}
    if devices:
        metadata["deviceProperties"] = devices
    if report["changes"]:
        metadata["profile_memory"] = True
    return report, metadata


def rank_of_process(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return "distributedInfo" from the environment of a process; empty if it names no rank."""
    rank = rank_in(environment)
    return {"distributedInfo": rank} if rank is not None and "world_size" in rank else {}


def properties_of(agent: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a GPU under Kineto's names, from rocprofv3's agent and its details (untrusted)."""
    named = {**details, **{name: value for name, value in agent.items() if value is not None}}
    version = named.get("gfx_target_version")
    banks = named.get("mem_banks")
    sizes = [bank.get("size_in_bytes") for bank in banks if isinstance(bank, dict)] if isinstance(banks, list) else []
    found = {
        "id": next((number for number in map(named.get, _INDICES) if isinstance(number, int)), None),
        "name": next((named[key] for key in ("product_name", "model_name", "name") if named.get(key)), None),
        "totalGlobalMem": sum(size for size in sizes if isinstance(size, int)) or None,
        "computeMajor": version // 10000 if isinstance(version, int) else None,
        "computeMinor": version // 100 % 100 if isinstance(version, int) else None,
        "warpSize": named.get("wave_front_size"),
        "numSms": named.get("cu_count"),
        "maxThreadsPerBlock": named.get("workgroup_max_size"),
        "architecture": named.get("name"),
    }
    return {name: value for name, value in found.items() if value is not None}


def read_samples(
    database: Database, queries: Sequence[Query], counters: Mapping[tuple[int, int], Counter], reading: Reading
) -> list[Samples]:
    """Read samples by queries of the kind "metric". ``counters``: by device and the id that the file gives them."""
    import numpy as np

    reader, found = _core.DatabaseReader(), []
    database.read(reader, queries, reading)
    device, metric, start, end, value = reader.metrics()
    changes = np.flatnonzero((np.diff(device) != 0) | (np.diff(metric) != 0)) + 1
    for places in np.split(np.arange(len(end)), changes) if len(end) else ():
        place = int(device[places[0]])
        counter = counters.get((place, int(metric[places[0]])))
        if counter is None:
            continue
        starts = _starts(start[places], end[places])
        amount = value[places] * counter.factor
        if counter.rate:
            amount = amount / 100 * (end[places] - starts) / 1e9
        found.append(Samples(place, counter.metric, starts, np.ascontiguousarray(end[places]), amount))
    return found


def _starts(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the starts; one that is missing is the end before it, or an interval before its own end after a gap."""
    import numpy as np

    missing = start == UNKNOWN_TIME
    if not missing.any():
        return np.ascontiguousarray(start)
    interval = max(int(np.median(np.diff(end))), 1) if len(end) > 1 else 1
    before = np.concatenate([[end[0] - interval], end[:-1]])
    before = np.where(end - before > GAP * interval, end - interval, before)
    return np.ascontiguousarray(np.where(missing, before, start))
