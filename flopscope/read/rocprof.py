"""JSON and CSV files of rocprofv3: ``--output-format json`` and ``csv``.

Both have the same records. Those of JSON get the names that their fields have in CSV.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flopscope import _core
from flopscope.read.agents import finished, properties_of
from flopscope.read.counters import samples_of

JSON_ROOT = b'"rocprofiler-sdk-tool"'
LEAST_COLUMNS = {"kernel_name", "start_timestamp", "end_timestamp"}
MOST_FIELD = 1 << 20  # characters of a field of CSV
BATCH = 1 << 14  # rows passed to the core at once

_HOST, _DEVICE = 8, 2  # kinds of memory
_COPY_KINDS = {
    "HOST_TO_DEVICE": {"copy_kind": 1, "from": _HOST, "to": _DEVICE},
    "DEVICE_TO_HOST": {"copy_kind": 2, "from": _DEVICE, "to": _HOST},
    "DEVICE_TO_DEVICE": {"copy_kind": 8, "from": _DEVICE, "to": _DEVICE},
    "HOST_TO_HOST": {"copy_kind": 9, "from": _HOST, "to": _HOST},
}
_KERNELS, _COUNTERS, _AGENTS = "kernel_trace.csv", "counter_collection.csv", "agent_info.csv"
_TRACES = ("hip_api", "hsa_api", "marker_api", "rccl_api", "memory_copy", "memory_allocation")
_AXES = tuple("xyz")

_TIMES = {"start": "start_timestamp", "end": "end_timestamp"}
_HOST_CALL = _TIMES | {"thread": "thread_id"}
_CALL = ("call", _HOST_CALL | {"correlation": "correlation_id"})
_KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "kernel_dispatch": (
        "kernel",
        _TIMES
        | {"correlation": "correlation_id", "registers": "vgpr_count"}
        | {f"block_{axis}": f"workgroup_size_{axis}" for axis in _AXES},
    ),
    "memory_copy": ("copy", _TIMES | {"correlation": "correlation_id", "bytes": "bytes"}),
    "memory_allocation": ("memory", _HOST_CALL | {"correlation": "correlation_id", "bytes": "allocation_size"}),
    "marker_api": ("range", _HOST_CALL),
    "rccl_api": ("span", _HOST_CALL),
}
"""The kind of the rows of a list or file, and the integers of a record that are columns of the core; others are API
calls."""

Result = tuple[Mapping[str, Any], dict[str, Any], list[str]]
Record = Mapping[str, Any]


class _Rows:
    """Rows by kind, handed to the core in batches."""

    def __init__(self, reader: _core.DatabaseReader) -> None:
        self._reader = reader
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._counts: dict[str, int] = {}
        self._counters: list[tuple[int, str, int, int, float]] = []
        self._kernels: set[object] = set()
        self.agents: Mapping[Any, int] = {}
        """The indices of the GPUs, by the ids that the records use."""
        self.process: int | None = 0
        self.stream = "queue_id"
        """The field that distinguishes streams: the queue if the program used only the default stream, 0."""

    def add(self, name: str, record: Record) -> bool:
        """Add a record of a list or file of that name. Return False if it is malformed."""
        kind, integers = _KINDS.get(name, _CALL)
        row = {column: _integer(record.get(field)) for column, field in integers.items()}
        more = _MORE[kind](self, record) if kind in _MORE else {"text": record.get("function")}
        if row["start"] is None or more is None:
            return False
        waiting = self._waiting.setdefault(kind, [])
        waiting.append({"process": self.process, **row, **more})
        self._counts[name] = self._counts.get(name, 0) + 1
        if len(waiting) == BATCH:
            self._pass_on(kind)
        return True

    def add_value(self, record: Record, counter: object, value: Any) -> bool:
        """Add the value of a counter of a kernel. Return False if it is malformed."""
        start, end = (_integer(record.get(field)) for field in _TIMES.values())
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return False
        if start is None or end is None:
            return False
        self._counters.append((self.agents.get(record.get("agent_id"), 0), str(counter), start, end, number))
        return True

    def add_counted(self, record: Record) -> bool:
        """Add a kernel that was counted, unless it was added before. Return False if it is malformed."""
        return self._identity(record) in self._kernels or self.add("kernel_dispatch", record)

    def finish(self, store: _core.Store, devices: list[dict[str, Any]], form: str) -> tuple[Any, dict[str, Any]]:
        """Put the events into the store. Return counts and the metadata of a trace of that format."""
        for kind in self._waiting:
            self._pass_on(kind)
        facts = {"format": form, "tables": self._counts}
        return finished("rocprof", self._reader, store, facts, devices, samples_of(self._counters))

    def _pass_on(self, kind: str) -> None:
        rows, self._waiting[kind] = self._waiting[kind], []
        self._reader.add(kind, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])

    def _identity(self, record: Record) -> object:
        dispatch = record.get("dispatch_id")
        which = record.get("start_timestamp") if dispatch is None else (dispatch,)
        return self.process, record.get("process_id"), which

    def _kernel(self, record: Record) -> dict[str, Any]:
        self._kernels.add(self._identity(record))
        place = {"device": self.agents.get(record.get("agent_id"), 0), "stream": _integer(record.get(self.stream))}
        sizes = {
            axis: [_integer(record.get(f"{what}_size_{axis}")) for what in ("grid", "workgroup")] for axis in _AXES
        }
        grid = {f"grid_{axis}": _blocks(*size) for axis, size in sizes.items()}
        shared = _integer(record.get("lds_block_size", record.get("group_segment_size")))
        return {"text": str(record.get("kernel_name") or ""), "dynamic_shared": shared, **place, **grid}

    def _copy(self, record: Record) -> dict[str, Any] | None:
        ends = (self.agents.get(record.get(f"{end}_agent_id")) for end in ("destination", "source"))
        device = next((agent for agent in ends if agent is not None), 0)
        known = _COPY_KINDS.get(str(record.get("direction")).removeprefix("MEMORY_COPY_"))
        return known and {"device": device, "stream": _integer(record.get(self.stream)), **known}

    def _memory(self, record: Record) -> dict[str, Any] | None:
        change = {"ALLOCATE": 0, "FREE": 1}.get(str(record.get("operation")).rpartition("_")[2])
        where = {"device": self.agents.get(record.get("agent_id")), "address": _address(record.get("address"))}
        return None if change is None else {"type": change, **where}


_MORE: dict[str, Callable[[_Rows, Record], dict[str, Any] | None]] = {
    "kernel": _Rows._kernel,
    "copy": _Rows._copy,
    "memory": _Rows._memory,
}
"""What else a row of a kind has, from its record; None if that is malformed. Other kinds have a name."""


def _integer(value: object) -> int | None:
    """Return an integer of JSON or CSV; None if it is none."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _blocks(items: int | None, block: int | None) -> int | None:
    """Return the number of blocks of a dimension: rocprofv3 counts work-items."""
    return None if items is None or block is None or block <= 0 else (items + block - 1) // block


def _address(value: object) -> int | None:
    """Return an address: a number, a hexadecimal text, or an object that holds one."""
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    if isinstance(value, str):
        value = int(value, 16) if re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", value) else None
    return value if isinstance(value, int) and 0 < value < 1 << 63 else None


# JSON -----------------------------------------------------------------------------------------------------------------


def _places(**places: str) -> dict[str, list[str]]:
    """Return where JSON has fields of CSV."""
    everywhere = {name: name for name in ("start_timestamp", "end_timestamp", "thread_id")}
    everywhere["correlation_id"] = "correlation_id.internal"
    return {name: place.split(".") for name, place in (everywhere | places).items()}


_PLACES = {
    "kernel_dispatch": _places(
        agent_id="dispatch_info.agent_id.handle",
        queue_id="dispatch_info.queue_id.handle",
        stream_id="stream_id.handle",
        dispatch_id="dispatch_info.dispatch_id",
        lds_block_size="dispatch_info.group_segment_size",
        **{
            f"{what}_size_{axis}": f"dispatch_info.{what}_size.{axis}"
            for what in ("workgroup", "grid")
            for axis in _AXES
        },
    ),
    "memory_copy": _places(
        source_agent_id="src_agent_id.handle",
        destination_agent_id="dst_agent_id.handle",
        queue_id="queue_id.handle",
        stream_id="stream_id.handle",
        bytes="bytes",
    ),
    "memory_allocation": _places(agent_id="agent_id.handle", allocation_size="allocation_size", address="address"),
}
_CALL_PLACES = _places()


def is_json(start: bytes) -> bool:
    """Return whether a text that begins so is rocprofv3's JSON."""
    return start.lstrip()[:1] == b"{" and JSON_ROOT in start[:256]


def read_json(path: str, reader: _core.DatabaseReader, store: _core.Store) -> Result:
    """Read the events into a store. Return counts, the metadata of a trace, and notes. Raise ValueError if damaged."""
    with open(path, encoding="utf-8", errors="replace") as file:
        try:
            content = json.load(file)
        except RecursionError:
            raise ValueError("its JSON is nested too deeply") from None
    tools = content.get("rocprofiler-sdk-tool") if isinstance(content, dict) else None
    tools = [tools] if isinstance(tools, dict) else tools
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError('"rocprofiler-sdk-tool" must be a list of objects')
    rows = _Rows(reader)
    devices: dict[int, dict[str, Any]] = {}
    command, skipped = None, 0
    for described in tools:
        tool = _Tool(described)
        skipped += tool.read(rows)
        devices |= tool.devices
        command = command or tool.command
    report, metadata = rows.finish(store, [devices[index] for index in sorted(devices)], "json")
    if not report["events"]:
        raise ValueError("rocprofv3 recorded no kernels, API calls or ranges: use rocprofv3 --runtime-trace")
    if command:
        metadata["rocprof"]["command"] = command
    return report, metadata, [f"{skipped:,} records were omitted because they are malformed"] if skipped else []


class _Tool:
    """The records of one process."""

    def __init__(self, tool: Mapping[str, Any]) -> None:
        lists = tool.get("buffer_records")
        self._lists = lists if isinstance(lists, dict) else {}
        self._counted = _objects(_at(tool, ("callback_records", "counter_collection")))
        counters = tool.get("counters")
        listed = list(counters.values()) if isinstance(counters, dict) else counters
        self._counters = {_at(one, ("id", "handle")): one.get("name") for one in _objects(listed)}
        self._pid = _integer(_at(tool, ("metadata", "pid")))
        command = _at(tool, ("metadata", "command"))
        self.command = " ".join(map(str, command)) if isinstance(command, list) else command
        self._operations = {
            (kind, place): str(name)
            for kind, one in enumerate(_objects(_at(tool, ("strings", "buffer_records"))))
            for place, name in enumerate(_items(one.get("operations")))
        }
        self._messages = {one.get("key"): one.get("value") for one in _objects(_at(tool, ("strings", "marker_api")))}
        self._symbols = {symbol.get("kernel_id"): symbol for symbol in _objects(tool.get("kernel_symbols"))}
        agents = [agent for agent in _objects(tool.get("agents")) if agent.get("type") in (2, "GPU")]
        self._agents = {_at(agent, ("id", "handle")): index for index, agent in enumerate(agents)}
        self.devices = {index: {**properties_of(agent, {}), "id": index} for index, agent in enumerate(agents)}

    def read(self, rows: _Rows) -> int:
        """Add the records. Return how many were malformed."""
        work = [*_objects(self._lists.get("kernel_dispatch")), *_objects(self._lists.get("memory_copy"))]
        has_streams = any(_at(record, ("stream_id", "handle")) for record in work)
        rows.agents, rows.process, rows.stream = self._agents, self._pid, "stream_id" if has_streams else "queue_id"
        lists = {name: records for name, records in self._lists.items() if name in _PLACES or name.endswith("_api")}
        found = [(name, record) for name, records in lists.items() for record in _objects(records)]
        found += [("", counted) for counted in self._counted]
        return sum(not self._add(rows, name, record) for name, record in found)

    def _add(self, rows: _Rows, name: str, content: Mapping[str, Any]) -> bool:
        """Add a record of a list, or what was counted for a kernel."""
        try:
            return rows.add(name, self._record(name, content)) if name else self._count(rows, content)
        except (TypeError, ValueError):  # an id is an object or a list, or the device is unknown
            return False

    def _count(self, rows: _Rows, counted: Mapping[str, Any]) -> bool:
        """Add a kernel that was counted, unless it was traced, and the values of its counters."""
        record, values = self._record("kernel_dispatch", counted.get("dispatch_data")), counted.get("records")
        added = isinstance(values, list) and rows.add_counted(record)
        for value in _items(values):
            counter = self._counters.get(_at(value, ("counter_id", "handle")))
            added &= rows.add_value(record, counter, _at(value, ("value",)))
        return added

    def _record(self, name: str, content: object) -> Record:
        """Return a record of a list with the names of CSV."""
        record = {field: _at(content, place) for field, place in _PLACES.get(name, _CALL_PLACES).items()}
        if name != "memory_allocation" and None in (record[field] for field in record if field.endswith("agent_id")):
            raise ValueError("work without a device")
        if name == "kernel_dispatch":
            kernel = _at(content, ("dispatch_info", "kernel_id"))
            symbol = self._symbols.get(kernel, {})
            keys = ("formatted_kernel_name", "demangled_kernel_name", "truncated_kernel_name", "kernel_name")
            record["kernel_name"] = next((symbol[key] for key in keys if symbol.get(key)), f"<kernel {kernel}>")
            record["vgpr_count"] = symbol.get("arch_vgpr_count")
        elif name == "memory_copy":
            ends = (record["source_agent_id"] in self._agents, record["destination_agent_id"] in self._agents)
            record["direction"] = "_TO_".join("DEVICE" if end else "HOST" for end in ends)
        else:
            operation = _at(content, ("operation",))
            record["operation"] = self._operations.get((_at(content, ("kind",)), operation))
            message = self._messages.get(record["correlation_id"]) if name == "marker_api" else None
            record["function"] = str(message or record["operation"] or f"<{name} {operation}>")
        return record


def _at(content: object, place: Sequence[str]) -> Any:
    """Return what an object of JSON has at a place; None if it has nothing there."""
    for name in place:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; another item is an empty object."""
    return [item if isinstance(item, dict) else {} for item in _items(value)]


# CSV ------------------------------------------------------------------------------------------------------------------


def is_csv(start: bytes) -> bool:
    """Return whether a text that begins so is rocprofv3's trace of kernels, or its counters of kernels."""
    line = start.split(b"\n", 1)[0].decode("utf-8", "replace").lower()
    return {name.strip().strip('"') for name in line.split(",")} >= LEAST_COLUMNS


def read_beside(paths: Iterable[str]) -> set[str]:
    """Return those of the files that are read together with another of them."""
    present = set(paths)
    more = (_COUNTERS, _AGENTS, *(f"{kind}_trace.csv" for kind in _TRACES))
    beside: set[str] = set()
    for end in (_KERNELS, _COUNTERS):
        for path in present - beside:
            if path.endswith(end):
                beside |= present & {path.removesuffix(end) + name for name in more if name != end}
    return beside


def read_csv(path: str, reader: _core.DatabaseReader, store: _core.Store) -> Result:
    """Read a kernel trace, and the files of calls, copies, ranges, memory and counters in its folder.

    Or counters of kernels, without a trace of them.

    Return counts, the metadata of a trace, and notes. Raise ValueError if the file has no rows.
    """
    rows = _Rows(reader)
    folder, name = os.path.split(path)
    found = re.fullmatch(f"(.*)({_KERNELS}|{_COUNTERS})", name)

    def beside(end: str) -> Iterator[Record]:
        return _lines(os.path.join(folder, found[1] + end)) if found else iter(())

    devices, rows.agents = _csv_devices(beside(_AGENTS))
    kernels = list(_lines(path))
    if not rows.agents:
        used = sorted({line.get("agent_id", "") for line in kernels}, key=_agent_number)
        rows.agents = {agent: index for index, agent in enumerate(used)}
    rows.stream = "stream_id" if any(_integer(line.get("stream_id")) for line in kernels) else "queue_id"
    skipped = 0
    for line in kernels:
        if "counter_name" in line:
            skipped += not (_add_value(rows, line) and rows.add_counted(line))
        else:
            skipped += not rows.add("kernel_dispatch", line)
    rows.stream = "stream_id"
    for kind in _TRACES:
        skipped += sum(not rows.add(kind, line) for line in beside(f"{kind}_trace.csv"))
    if found and found[2] == _KERNELS:
        skipped += sum(not _add_value(rows, line) for line in beside(_COUNTERS))
    report, metadata = rows.finish(store, devices, "csv")
    if not report["events"]:
        raise ValueError("rocprofv3's trace of kernels has no rows")
    return report, metadata, [f"{skipped:,} lines were omitted because they are malformed"] if skipped else []


def _add_value(rows: _Rows, line: Record) -> bool:
    return rows.add_value(line, line.get("counter_name"), line.get("counter_value"))


def _lines(path: str) -> Iterator[Record]:
    """Yield the lines of a file as dicts with lower-case names; none if there is no such file."""
    import csv

    csv.field_size_limit(max(csv.field_size_limit(), MOST_FIELD))
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            for line in csv.DictReader(text.replace("\0", "") for text in file):
                yield {str(key).strip().lower(): value for key, value in line.items() if isinstance(value, str)}
    except FileNotFoundError:
        return
    except csv.Error as problem:
        raise ValueError(f"{os.path.basename(path)} is not valid CSV: {problem}") from None


def _csv_devices(infos: Iterable[Record]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the GPUs of a file of agents, and their indices by the ids that the other files use."""
    gpus = [info for info in infos if info.get("agent_type") == "GPU"]
    devices: list[dict[str, Any]] = []
    agents: dict[str, int] = {}
    for index, info in enumerate(gpus):
        numbers = {key: _integer(info.get(key)) for key in ("cu_count", "wave_front_size", "gfx_target_version")}
        devices.append({**properties_of(numbers, info), "id": index})
        for key in ("node_id", "logical_node_id"):
            agents |= {text: index for text in (info.get(key, ""), f"Agent {info.get(key, '')}")}
    return devices, agents


def _agent_number(agent: str) -> tuple[int, str]:
    digits = re.search(r"\d+$", agent)
    return int(digits[0]) if digits else 0, agent
