"""JSON and CSV files of rocprofv3: ``--output-format json`` and ``csv``."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flopscope import _core
from flopscope.sources.agents import properties_of
from flopscope.sources.counters import add_samples, samples_of

__all__ = ["is_csv", "is_json", "read_beside", "read_csv", "read_json"]

JSON_ROOT = b'"rocprofiler-sdk-tool"'
LEAST_COLUMNS = {"kernel_name", "start_timestamp", "end_timestamp"}
MOST_FIELD = 1 << 20  # characters of a field of CSV

_HOST, _DEVICE = 8, 2  # kinds of memory
_COPY_KINDS = {"HOST_TO_DEVICE": (1, _HOST, _DEVICE), "DEVICE_TO_HOST": (2, _DEVICE, _HOST)}
_COPY_KINDS |= {"DEVICE_TO_DEVICE": (8, _DEVICE, _DEVICE), "HOST_TO_HOST": (9, _HOST, _HOST)}
_KERNELS, _COUNTERS, _AGENTS = "kernel_trace.csv", "counter_collection.csv", "agent_info.csv"
_TRACES = ("hip_api", "hsa_api", "marker_api", "rccl_api", "memory_copy", "memory_allocation")

_KERNEL = (
    *("start", "end", "process", "device", "stream", "correlation", "text", "dynamic_shared", "registers"),
    *("block_x", "block_y", "block_z", "grid_x", "grid_y", "grid_z"),
)
_COPY = ("start", "end", "process", "device", "stream", "correlation", "bytes", "copy_kind", "from", "to")
_CALL = ("start", "end", "process", "thread", "correlation", "text")
_RANGE = ("start", "end", "process", "thread", "text")
_MEMORY = ("start", "process", "thread", "device", "correlation", "bytes", "type", "address")

Result = tuple[Mapping[str, Any], dict[str, Any], list[str]]
Row = tuple[Any, ...]


_COLUMNS = {"kernel": _KERNEL, "copy": _COPY, "call": _CALL, "range": _RANGE, "span": _RANGE, "memory": _MEMORY}
BATCH = 1 << 14  # rows passed to the core at once


class _Rows:
    """Rows by kind, handed to the core in batches."""

    def __init__(self, reader: _core.DatabaseReader) -> None:
        self._reader = reader
        self._waiting: dict[str, list[Row]] = {kind: [] for kind in _COLUMNS}
        self.counts: dict[str, int] = {}
        self.counters: list[tuple[int, str, int, int, float]] = []
        """Values of counters: device, name, start, end, value."""

    def add(self, kind: str, row: Row, name: str) -> None:
        """Add a row that ``name`` counts."""
        self._waiting[kind].append(row)
        self.counts[name] = self.counts.get(name, 0) + 1
        if len(self._waiting[kind]) == BATCH:
            self._pass_on(kind)

    def finish(self, store: _core.Store, devices: list[dict[str, Any]], form: str) -> Result:
        """Put the events into the store. Return counts and the metadata of a trace of that format."""
        for kind in _COLUMNS:
            self._pass_on(kind)
        report = self._reader.finish(store, json.dumps({"accelerator": "hip", "deviceProperties": devices}).encode(), 0)
        samples = add_samples(store, samples_of(self.counters))
        metadata: dict[str, Any] = {"rocprof": {"format": form, "tables": self.counts, "samples": samples}}
        metadata["rocprof"]["unmatched_frees"] = report["unmatched_frees"]
        if devices:
            metadata["deviceProperties"] = devices
        if report["changes"]:
            metadata["profile_memory"] = True
        return report, metadata, []

    def _pass_on(self, kind: str) -> None:
        self._reader.add(kind, _COLUMNS[kind], self._waiting[kind])
        self._waiting[kind] = []


def _blocks(items: object, block: object) -> int | None:
    """Return the number of blocks of a dimension: rocprofv3 counts work-items."""
    if not isinstance(items, int) or not isinstance(block, int) or block <= 0:
        return None
    return (items + block - 1) // block


# JSON -----------------------------------------------------------------------------------------------------------------


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
    for tool in tools:
        one = _Tool(tool, rows)
        skipped += one.read()
        devices |= one.devices
        command = command or one.command
    report, metadata, _ = rows.finish(store, [devices[index] for index in sorted(devices)], "json")
    if not report["events"]:
        raise ValueError("rocprofv3 recorded no kernels, API calls or ranges: use rocprofv3 --runtime-trace")
    if command:
        metadata["rocprof"]["command"] = command
    return report, metadata, [f"{skipped:,} records were omitted because they are malformed"] if skipped else []


class _Tool:
    """The records of one process."""

    def __init__(self, tool: Mapping[str, Any], rows: _Rows) -> None:
        self._rows = rows
        self._records = _mapping(tool.get("buffer_records"))
        self._counted = _items(_mapping(tool.get("callback_records")).get("counter_collection"))
        counters = tool.get("counters")
        self._counters = {
            _mapping(one.get("id")).get("handle"): one.get("name")
            for one in map(_mapping, counters.values() if isinstance(counters, dict) else _items(counters))
        }
        metadata = _mapping(tool.get("metadata"))
        self._pid = _integer(metadata.get("pid"))
        command = metadata.get("command")
        self.command = " ".join(map(str, command)) if isinstance(command, list) else command
        strings = _mapping(tool.get("strings"))
        self._kinds = [_mapping(one) for one in _items(strings.get("buffer_records"))]
        self._messages = {one.get("key"): one.get("value") for one in map(_mapping, _items(strings.get("marker_api")))}
        self._names = {symbol.get("kernel_id"): symbol for symbol in map(_mapping, _items(tool.get("kernel_symbols")))}
        self.devices: dict[int, dict[str, Any]] = {}
        self._agents: dict[Any, int] = {}
        self._list_agents(_items(tool.get("agents")))
        work = [*_items(self._records.get("kernel_dispatch")), *_items(self._records.get("memory_copy"))]
        self._has_streams = any(_mapping(_mapping(record).get("stream_id")).get("handle") for record in work)

    def _list_agents(self, agents: Iterable[object]) -> None:
        for agent in map(_mapping, agents):
            if agent.get("type") not in (2, "GPU"):
                continue
            index = len(self.devices)
            self._agents[_mapping(agent.get("id")).get("handle")] = index
            self.devices[index] = {**properties_of(agent, {}), "id": index}

    def read(self) -> int:
        """Add the records. Return how many were malformed."""
        makers: dict[str, Callable[[Mapping[str, Any], str], tuple[str, Row]]] = {
            "kernel_dispatch": self._kernel,
            "memory_copy": self._copy,
            "marker_api": self._marker,
            "rccl_api": self._span,
            "memory_allocation": self._memory,
        }
        skipped = self._count()
        for name, records in self._records.items():
            make = makers.get(name) or (self._call if name.endswith("_api") else None)
            if make is None:
                continue
            for record in _items(records):
                try:
                    kind, row = make(_mapping(record), name)
                except (KeyError, TypeError, AttributeError):
                    skipped += 1
                    continue
                self._rows.add(kind, row, name)
        return skipped

    def _count(self) -> int:
        """Take the counters of kernels, and kernels that were only counted. Return how many were malformed."""
        traced = {_dispatch_of(record) for record in map(_mapping, _items(self._records.get("kernel_dispatch")))}
        skipped = 0
        for counted in map(_mapping, self._counted):
            dispatch = _mapping(counted.get("dispatch_data"))
            try:
                kind, row = self._kernel(dispatch, "")
                start, end = int(dispatch["start_timestamp"]), int(dispatch["end_timestamp"])
                for value in counted["records"]:
                    name = self._counters.get(value["counter_id"]["handle"])
                    self._rows.counters.append((row[3], str(name), start, end, float(value["value"])))
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
                skipped += 1
                continue
            if _dispatch_of(dispatch) not in traced:
                traced.add(_dispatch_of(dispatch))
                self._rows.add(kind, row, "counter_collection")
        return skipped

    def _times(self, record: Mapping[str, Any]) -> tuple[Any, Any, int | None]:
        return record["start_timestamp"], record["end_timestamp"], self._pid

    def _correlation(self, record: Mapping[str, Any]) -> Any:
        return _mapping(record.get("correlation_id")).get("internal")

    def _stream(self, record: Mapping[str, Any], queue: object) -> Any:
        """Return what distinguishes streams: the queue if the program used only the default stream, 0."""
        return _mapping(record.get("stream_id") if self._has_streams else queue).get("handle")

    def _operation(self, record: Mapping[str, Any]) -> str | None:
        kind, operation = record.get("kind"), record.get("operation")
        if not isinstance(kind, int) or not 0 <= kind < len(self._kinds):
            return None
        names = self._kinds[kind].get("operations")
        known = isinstance(names, list) and isinstance(operation, int) and 0 <= operation < len(names)
        return str(names[operation]) if known and isinstance(names, list) and isinstance(operation, int) else None

    def _kernel(self, record: Mapping[str, Any], _: str) -> tuple[str, Row]:
        info = record["dispatch_info"]
        symbol = self._names.get(info["kernel_id"], {})
        keys = ("formatted_kernel_name", "demangled_kernel_name", "truncated_kernel_name", "kernel_name")
        name = next((symbol[key] for key in keys if symbol.get(key)), f"<kernel {info['kernel_id']}>")
        block = [_mapping(info.get("workgroup_size")).get(axis) for axis in "xyz"]
        grid = [_blocks(_mapping(info.get("grid_size")).get(axis), of) for axis, of in zip("xyz", block, strict=True)]
        handle = info["agent_id"]["handle"]
        launch = (info.get("group_segment_size"), symbol.get("arch_vgpr_count"), *block, *grid)
        place = (self._agents.get(handle, 0), self._stream(record, info.get("queue_id")), self._correlation(record))
        return "kernel", (*self._times(record), *place, str(name), *launch)

    def _copy(self, record: Mapping[str, Any], _: str) -> tuple[str, Row]:
        source = self._agents.get(record["src_agent_id"]["handle"])
        target = self._agents.get(record["dst_agent_id"]["handle"])
        direction = f"{'HOST' if source is None else 'DEVICE'}_TO_{'HOST' if target is None else 'DEVICE'}"
        device = next((agent for agent in (target, source) if agent is not None), 0)
        place = (device, self._stream(record, record.get("queue_id")), self._correlation(record))
        return "copy", (*self._times(record), *place, record.get("bytes"), *_COPY_KINDS[direction])

    def _memory(self, record: Mapping[str, Any], _: str) -> tuple[str, Row]:
        device = self._agents.get(_mapping(record.get("agent_id")).get("handle"))
        place = (record["start_timestamp"], self._pid, record.get("thread_id"), device, self._correlation(record))
        address = _address(record.get("address"))
        return "memory", (*place, record.get("allocation_size"), _change_of(self._operation(record)), address)

    def _call(self, record: Mapping[str, Any], name: str) -> tuple[str, Row]:
        text = self._operation(record) or f"<{name} {record.get('operation')}>"
        return "call", (*self._times(record), record.get("thread_id"), self._correlation(record), text)

    def _span(self, record: Mapping[str, Any], name: str) -> tuple[str, Row]:
        text = self._operation(record) or f"<{name} {record.get('operation')}>"
        return "span", (*self._times(record), record.get("thread_id"), text)

    def _marker(self, record: Mapping[str, Any], name: str) -> tuple[str, Row]:
        text = self._messages.get(self._correlation(record)) or self._operation(record) or f"<{name}>"
        return "range", (*self._times(record), record.get("thread_id"), str(text))


def _dispatch_of(record: Mapping[str, Any]) -> object:
    number = _mapping(record.get("dispatch_info")).get("dispatch_id")
    return number if isinstance(number, int) else None


def _change_of(operation: str | None) -> int | None:
    """Return 0 for an allocation of memory, 1 for a free."""
    return {"ALLOCATE": 0, "FREE": 1}.get((operation or "").rpartition("_")[2])


def _address(value: object) -> int | None:
    """Return an address: a number, a hexadecimal text, or an object that holds one."""
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    if isinstance(value, str):
        value = int(value, 16) if re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", value) else None
    return value if isinstance(value, int) and 0 < value < 1 << 63 else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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
    skipped = 0
    devices: list[dict[str, Any]] = []
    agents: dict[str, int] = {}
    if found:
        infos = list(_lines(os.path.join(folder, found[1] + _AGENTS)))
        devices, agents = _csv_devices(infos)
    kernels = list(_lines(path))
    if not agents:
        used = sorted({line.get("agent_id", "") for line in kernels}, key=_agent_number)
        agents = {agent: index for index, agent in enumerate(used)}
    seen: set[object] = set()
    stream = "stream_id" if any(_number(line.get("stream_id")) for line in kernels) else "queue_id"
    for line in kernels:
        counted = "counter_name" in line and not _add_csv_counter(rows, line, agents)
        skipped += counted or not _add_csv_kernel(rows, line, agents, seen, stream)
    if found:
        for kind in _TRACES:
            for line in _lines(os.path.join(folder, f"{found[1]}{kind}_trace.csv")):
                skipped += not _add_csv_line(rows, kind, line, agents)
        if found[2] == _KERNELS:
            for line in _lines(os.path.join(folder, found[1] + _COUNTERS)):
                skipped += not _add_csv_counter(rows, line, agents)
    report, metadata, _ = rows.finish(store, devices, "csv")
    if not report["events"]:
        raise ValueError("rocprofv3's trace of kernels has no rows")
    return report, metadata, [f"{skipped:,} lines were omitted because they are malformed"] if skipped else []


def _lines(path: str) -> Iterator[dict[str, str]]:
    """Yield the lines of a file as dicts with lower-case names; none if there is no such file."""
    csv.field_size_limit(max(csv.field_size_limit(), MOST_FIELD))
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            for line in csv.DictReader(text.replace("\0", "") for text in file):
                yield {str(key).strip().lower(): value for key, value in line.items() if isinstance(value, str)}
    except FileNotFoundError:
        return
    except csv.Error as problem:
        raise ValueError(f"{os.path.basename(path)} is not valid CSV: {problem}") from None


def _csv_devices(infos: list[dict[str, str]]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the GPUs of a file of agents, and their indices by the ids that the other files use."""
    gpus = [info for info in infos if info.get("agent_type") == "GPU"]
    devices: list[dict[str, Any]] = []
    agents: dict[str, int] = {}
    for index, info in enumerate(gpus):
        numbers = {key: _number(info.get(key)) for key in ("cu_count", "wave_front_size", "gfx_target_version")}
        devices.append({**properties_of(numbers, info), "id": index})
        for key in ("node_id", "logical_node_id"):
            agents |= {text: index for text in (info.get(key, ""), f"Agent {info.get(key, '')}")}
    return devices, agents


def _agent_number(agent: str) -> tuple[int, str]:
    digits = re.search(r"\d+$", agent)
    return int(digits[0]) if digits else 0, agent


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None


def _add_csv_counter(rows: _Rows, line: Mapping[str, str], agents: Mapping[str, int]) -> bool:
    start, end = (_number(line.get(f"{what}_timestamp")) for what in ("start", "end"))
    try:
        value = float(line.get("counter_value", ""))
    except ValueError:
        return False
    if start is None or end is None:
        return False
    rows.counters.append((agents.get(line.get("agent_id", ""), 0), line.get("counter_name", ""), start, end, value))
    return True


def _add_csv_kernel(
    rows: _Rows, line: Mapping[str, str], agents: Mapping[str, int], seen: set[object], stream: str
) -> bool:
    """Add a kernel; ``stream`` is the column that distinguishes streams.

    A kernel that was counted has a line for each counter; ``seen`` keeps those that were added.
    """

    def number(*names: str) -> int | None:
        return next((found for name in names if (found := _number(line.get(name))) is not None), None)

    if number("start_timestamp") is None:
        return False
    if "counter_name" in line:
        which = tuple(line.get(key) for key in ("agent_id", "process_id", "dispatch_id", "start_timestamp"))
        if which in seen:
            return True
        seen.add(which)
    block = [number(f"workgroup_size_{axis}") for axis in "xyz"]
    grid = [_blocks(number(f"grid_size_{axis}"), of) for axis, of in zip("xyz", block, strict=True)]
    place = (0, agents.get(line.get("agent_id", ""), 0), number(stream), number("correlation_id"))
    launch = (number("lds_block_size", "group_segment_size"), number("vgpr_count"), *block, *grid)
    times = number("start_timestamp"), number("end_timestamp")
    rows.add("kernel", (*times, *place, line.get("kernel_name", ""), *launch), "kernel_dispatch")
    return True


def _add_csv_line(rows: _Rows, kind: str, line: Mapping[str, str], agents: Mapping[str, int]) -> bool:
    times = _number(line.get("start_timestamp")), _number(line.get("end_timestamp"))
    if times[0] is None:
        return False
    correlation = _number(line.get("correlation_id"))
    thread, name = _number(line.get("thread_id")), line.get("function", "")
    if kind == "memory_copy":
        direction = line.get("direction", "").removeprefix("MEMORY_COPY_")
        if direction not in _COPY_KINDS:
            return False
        ends = (agents.get(line.get(f"{end}_agent_id", "")) for end in ("destination", "source"))
        device = next((agent for agent in ends if agent is not None), 0)
        stream = _number(line.get("stream_id"))
        rows.add("copy", (*times, 0, device, stream, correlation, None, *_COPY_KINDS[direction]), kind)
    elif kind == "memory_allocation":
        change, place = _change_of(line.get("operation")), agents.get(line.get("agent_id", ""))
        if change is None:
            return False
        size, address = _number(line.get("allocation_size")), _address(line.get("address"))
        rows.add("memory", (times[0], 0, thread, place, correlation, size, change, address), kind)
    elif kind in ("marker_api", "rccl_api"):
        rows.add("range" if kind == "marker_api" else "span", (*times, 0, thread, name), kind)
    else:
        rows.add("call", (*times, 0, thread, correlation, name), kind)
    return True
