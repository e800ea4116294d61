"""Databases of rocprofv3 and rocprof-sys (rocpd): schemas 3 and 4.

The tables of a process carry its id as a suffix, ``rocpd_string_<uuid>``, and views without it put them together. The
views are not used: a file may hold several processes, whose tables are read one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flopscope import _core
from flopscope.read.database import (
    ROCM,
    Counter,
    Database,
    Join,
    Query,
    Reading,
    Samples,
    Value,
    columns,
    finished,
    json_object,
    newer_schema,
    properties_of,
    rank_of_process,
    read_samples,
)

SCHEMAS = (3, 4)  # major versions that are known
PREFIX = "rocpd_"
STARTS = (f"{PREFIX}string", f"{PREFIX}kernel_dispatch")  # of tables that each process has
SPACES = 2  # of ids in a process: of strings, of kernels
MOST_PIDS = 1 << 22

_CATEGORY = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_COPIES = {"CPUGPU": 1, "GPUCPU": 2, "GPUGPU": 8, "CPUCPU": 9}
"""CUPTI's kinds of copies, by the kinds of agent at both ends."""
_HOST, _DEVICE = 8, 2  # kinds of memory
_CORRELATION = ("e.stack_id", "e.correlation_id")


def is_rocpd(database: Database) -> bool:
    """Return whether the tables are those of rocpd."""
    return any(name.startswith(STARTS) for name in database.tables)


class _Process:
    """The tables of one process in a file."""

    def __init__(self, database: Database, suffix: str, place: int) -> None:
        self.database, self.suffix, self.place = database, suffix, place
        # The spaces of the ids of strings and of kernels: other processes of the file use the same ids.
        self.strings, self.kernels = (Value((), str(SPACES * place + space)) for space in range(SPACES))
        self.event = (Join("e", self.table("event"), "event_id"),)
        rows = database.facts(self.table("string"), "id", "string")
        texts = {row["id"]: row["string"] for row in rows if isinstance(row.get("string"), str) and "id" in row}
        self.categories = {place: text for place, text in texts.items() if _CATEGORY.fullmatch(text)}

    def table(self, name: str) -> str:
        """Return the name that a table of rocpd has for this process."""
        return f"{PREFIX}{name}{self.suffix}"

    def pid(self) -> Value:
        """The process id, made different from those of the file's other processes."""
        return Value(("pid",), "{}" if not self.place else f"({{}} + {self.place * MOST_PIDS})")

    def of_category(self, *starts: str) -> str:
        """Return the condition that a category begins with one of the words."""
        ids = [place for place, text in self.categories.items() if text.startswith(starts) and isinstance(place, int)]
        return f"IN ({', '.join(map(str, ids)) or 'NULL'})"

    def facts(self) -> list[Query]:
        """Return queries of what events refer to by id: names, and the GPUs."""
        strings = columns("id", name="string", space=self.strings)
        kernels = columns("id", name=("display_name", "kernel_name"), space=self.kernels)
        agents = columns(device="id", process=self.pid(), id=("type_index", "logical_index"))
        return [
            Query("string", self.table("string"), strings, ("id", "name")),
            Query("string", self.table("info_kernel_symbol"), kernels, ("id", "name")),
            Query("device", self.table("info_agent"), agents, ("device", "id"), ("type", "= 'GPU'")),
        ]

    def counters(self) -> tuple[list[Query], dict[tuple[int, int], Counter]]:
        """Return queries of the counters of kernels, one for each GPU, and the counters that have columns."""
        rows = self.database.facts(self.table("info_agent"), "id", "type", "type_index")
        found = [(row.get("id"), row.get("type_index")) for row in rows if row.get("type") == "GPU"]
        gpus = {agent: index for agent, index in found if isinstance(agent, int) and isinstance(index, int)}
        counters: dict[tuple[int, int], Counter] = {}
        for row in self.database.facts(self.table("info_pmc"), "id", "name", "symbol"):
            counter = ROCM.get(str(row.get("name"))) or ROCM.get(str(row.get("symbol")))
            if counter is not None and isinstance(row.get("id"), int):
                counters.update({(index, row["id"]): counter for index in gpus.values()})
        table, joins = self.table("pmc_event"), (Join("d", self.table("kernel_dispatch"), "event_id", "event_id"),)
        queries = []
        for agent, index in gpus.items():
            device = Value((), str(index))
            values = columns(start="d.start", end="d.end", id="pmc_id", value="value", device=device)
            needs, where = ("start", "end", "id", "value"), ("d.agent_id", f"= {agent}")
            queries.append(Query("metric", table, values, needs, where, joins))
        return queries, counters

    def events(self) -> list[Query]:
        """Return queries of all that happened."""
        return [*self._regions(), self._dispatches(), self._copies(), *self._allocations()]

    def _regions(self) -> Iterator[Query]:
        host = columns("start", "end", process=self.pid(), thread="tid", name="name_id", space=self.strings)
        table, joins = self.table("region"), self.event
        calls = columns(correlation=_CORRELATION)
        needs = ("start", "end", "name")
        markers = columns(message=("e.extdata", "extdata"))
        api, marker = ("HIP", "HSA", "CUDA"), "MARKER"
        yield Query("call", table, host | calls, needs, ("e.category_id", self.of_category(*api)), joins)
        yield Query("range", table, host | markers, needs, ("e.category_id", self.of_category(marker)), joins)
        others = self.of_category(*api, marker)
        yield Query("span", table, host, needs, ("e.category_id", f"NOT {others} OR e.category_id IS NULL"), joins)

    def _work(self, agent: str | Value, name: str) -> dict[str, Value]:
        # The queue distinguishes streams if the program used only the default stream.
        of_stream = self.database.has(self.table(name), "stream_id", "<> 0")
        stream = ("stream_id", "queue_id") if of_stream else ("queue_id",)
        owner = columns(device=agent, process=self.pid(), stream=stream)
        return owner | columns("start", "end", correlation=_CORRELATION)

    def _dispatches(self) -> Query:
        name = "kernel_dispatch"
        blocks = '({{}} + t."workgroup_size_{axis}" - 1) / t."workgroup_size_{axis}"'  # rocpd counts work-items
        launch = columns(
            name="kernel_id",
            space=self.kernels,
            registers="s.arch_vgpr_count",
            dynamic_shared="group_segment_size",
            **{f"block_{axis}": f"workgroup_size_{axis}" for axis in "xyz"},
            **{f"grid_{axis}": Value((f"grid_size_{axis}",), blocks.format(axis=axis)) for axis in "xyz"},
        )
        joins = (*self.event, Join("s", self.table("info_kernel_symbol"), "kernel_id"))
        found = self._work("agent_id", name) | launch
        return Query("kernel", self.table(name), found, ("start", "end", "name"), None, joins)

    def _copies(self) -> Query:
        name = "memory_copy"
        ends = (("a", "src_agent_id"), ("b", "dst_agent_id"))
        joins = (*self.event, *(Join(alias, self.table("info_agent"), column) for alias, column in ends))
        kinds = " ".join(f"WHEN '{direction}' THEN {kind}" for direction, kind in _COPIES.items())
        memory = f"CASE {{}} WHEN 'CPU' THEN {_HOST} WHEN 'GPU' THEN {_DEVICE} END"
        what = columns(bytes="size", copy_kind=Value(("a.type",), f"CASE {{}} || b.type {kinds} END"))
        what |= columns(to=Value(("b.type",), memory), **{"from": Value(("a.type",), memory)})
        device = Value(("b.type",), "CASE {} WHEN 'CPU' THEN t.src_agent_id ELSE t.dst_agent_id END")
        return Query("copy", self.table(name), self._work(device, name) | what, ("start", "end"), None, joins)

    def _allocations(self) -> Iterator[Query]:
        """Yield the changes of the GPUs' memory, then those of the host's; a free may lack its agent."""
        name = "memory_allocate"
        joins = (*self.event, Join("a", self.table("info_agent"), "agent_id"))
        change = columns("start", "address", process=self.pid(), thread="tid", correlation=_CORRELATION, bytes="size")
        change |= columns(type=Value(("type",), "CASE {} WHEN 'ALLOC' THEN 0 WHEN 'FREE' THEN 1 END"))
        for of_gpu, more in (("=", columns(device="agent_id")), ("IS NOT", {})):
            where = ("a.type", f"{of_gpu} 'GPU'")
            yield Query("memory", self.table(name), change | more, ("start", "bytes", "type"), where, joins)


def read_rocpd(
    database: Database, reader: _core.DatabaseReader, store: _core.Store, reading: Reading
) -> tuple[Mapping[str, Any], dict[str, Any], list[str]]:
    """Read the events into a store. Return counts, the metadata of a trace, and notes for the user."""
    suffixes = sorted({name[len(start) :] for name in database.tables for start in STARTS if name.startswith(start)})
    processes = [_Process(database, suffix, place) for place, suffix in enumerate(suffixes)]
    for process in processes:
        database.read(reader, process.facts(), reading)
    for process in processes:
        database.read(reader, process.events(), reading)
    samples: list[Samples] = []
    for process in processes:
        queries, counters = process.counters()
        samples += read_samples(database, queries, counters, reading) if counters else []
    facts, devices, rank = _metadata(processes)
    report, metadata = finished("rocpd", reader, store, facts, devices, samples)
    tables: dict[str, int] = {}
    for name, count in reading.rows.items():
        short = next((name[: -len(suffix)] for suffix in suffixes if suffix and name.endswith(suffix)), name)
        tables[short] = tables.get(short, 0) + count
    metadata["rocpd"]["tables"] = tables
    empty = "it has no kernels, API calls or ranges; record with rocprofv3 --runtime-trace --output-format rocpd"
    notes = [*([] if report["events"] else [empty]), *newer_schema(facts["schema"], max(SCHEMAS))]
    return report, metadata | rank, notes


def _metadata(processes: list[_Process]) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return facts of the recording, the properties of its GPUs, and the rank of its only process."""
    facts: dict[str, Any] = {"schema": None}
    rank: dict[str, Any] = {}
    devices: dict[int, dict[str, Any]] = {}
    for process in processes:
        for row in process.database.facts(process.table("metadata"), "tag", "value"):
            if row.get("tag") == "schema_version":
                facts["schema"] = str(row.get("value"))
        for row in process.database.facts(process.table("info_agent")):
            properties = properties_of(row, json_object(row.get("extdata")))
            if row.get("type") == "GPU" and "id" in properties:
                devices.setdefault(properties["id"], properties)
        for row in process.database.facts(process.table("info_process"), "command", "environment"):
            if row.get("command"):
                facts.setdefault("command", row["command"])
            if len(processes) == 1:
                rank |= rank_of_process(json_object(row.get("environment")))
    return facts, [devices[index] for index in sorted(devices)], rank
