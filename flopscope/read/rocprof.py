"""JSON of rocprofv3: ``--output-format json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flopscope import _core
from flopscope.read.agents import finished, properties_of
from flopscope.read.counters import samples_of

JSON_ROOT = b'"rocprofiler-sdk-tool"'
BATCH = 1 << 14  # records passed to the core at once

_HOST, _DEVICE = 8, 2  # kinds of memory
_COPY_KINDS = {(_HOST, _DEVICE): 1, (_DEVICE, _HOST): 2, (_DEVICE, _DEVICE): 8, (_HOST, _HOST): 9}
_CHANGES = {"ALLOCATE": 0, "FREE": 1}
_NAMES = ("formatted_kernel_name", "demangled_kernel_name", "truncated_kernel_name", "kernel_name")
_SIZES = {f"{size}_{axis}": f"dispatch_info.{size}_size.{axis}" for size in ("workgroup", "grid") for axis in "xyz"}


def _columns(**places: str) -> dict[str, list[str]]:
    """Return where a record has the integers that are columns of the core."""
    everywhere = {"start": "start_timestamp", "end": "end_timestamp", "correlation": "correlation_id.internal"}
    return {column: place.split(".") for column, place in (everywhere | places).items()}


_CALL = ("call", _columns(thread="thread_id"))
_LISTS = {
    "kernel_dispatch": ("kernel", _columns(dynamic_shared="dispatch_info.group_segment_size")),
    "memory_copy": ("copy", _columns(bytes="bytes")),
    "memory_allocation": ("memory", _columns(thread="thread_id", bytes="allocation_size")),
    "marker_api": ("range", _CALL[1]),
    "rccl_api": ("span", _CALL[1]),
}
"""The kind of the rows of a list, and their integers; other lists have API calls."""

Result = tuple[Mapping[str, Any], dict[str, Any], list[str]]
Row = dict[str, Any]


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
    described = content.get("rocprofiler-sdk-tool") if isinstance(content, dict) else None
    described = [described] if isinstance(described, dict) else described
    if not isinstance(described, list) or not all(isinstance(tool, dict) for tool in described):
        raise ValueError('"rocprofiler-sdk-tool" must be a list of objects')
    tools = [_Tool(tool) for tool in described]
    counts: dict[str, int] = {}
    skipped = sum(tool.read(reader, counts) for tool in tools)
    devices = {index: device for tool in tools for index, device in tool.devices.items()}
    values = [value for tool in tools for value in tool.values]
    facts = {"format": "json", "tables": counts}
    ordered = [devices[index] for index in sorted(devices)]
    report, metadata = finished("rocprof", reader, store, facts, ordered, samples_of(values))
    if not report["events"]:
        raise ValueError("rocprofv3 recorded no kernels, API calls or ranges: use rocprofv3 --runtime-trace")
    command = next((tool.command for tool in tools if tool.command), None)
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
        self.values: list[tuple[int, str, int, int, float]] = []
        """Values of counters: (device, counter, start, end, value)."""
        work = [*_objects(self._lists.get("kernel_dispatch")), *_objects(self._lists.get("memory_copy"))]
        has_streams = any(_at(record, ("stream_id", "handle")) for record in work)
        # The queue distinguishes streams if the program used only the default stream, 0.
        self._stream_of_kernel = ("stream_id", "handle") if has_streams else ("dispatch_info", "queue_id", "handle")
        self._stream_of_copy = ("stream_id" if has_streams else "queue_id", "handle")
        self._kernels: set[object] = set()

    def read(self, reader: _core.DatabaseReader, counts: dict[str, int]) -> int:
        """Add the records to the reader, and their numbers by list to the counts. Return how many were malformed."""
        skipped = 0
        for name, records in self._lists.items():
            if name in _LISTS or name.endswith("_api"):
                rows = (self._row(name, record) for record in _objects(records))
                skipped += _pass_on(reader, name, rows, counts)
        added = (row for counted in self._counted for row in self._count(counted))
        return skipped + _pass_on(reader, "kernel_dispatch", added, counts)

    def _row(self, name: str, record: Mapping[str, Any]) -> Row | None:
        """Return the row of a record of a list; None if it is malformed."""
        kind, columns = _LISTS.get(name, _CALL)
        row: Row = {"process": self._pid}
        row |= {column: _integer(_at(record, place)) for column, place in columns.items()}
        more = _MORE.get(kind, _Tool._call)
        try:
            more(self, name, record, row)
        except (TypeError, ValueError):  # an id is an object or a list, or the device is unknown
            return None
        return None if row["start"] is None else row

    def _count(self, counted: Mapping[str, Any]) -> Iterator[Row | None]:
        """Yield the row of a kernel that was counted, unless it was traced; None if it or a value is malformed."""
        content, values = counted.get("dispatch_data"), counted.get("records")
        record = content if isinstance(content, dict) else {}
        known = len(self._kernels)
        row = self._row("kernel_dispatch", record) if isinstance(values, list) else None
        if row is None:
            yield None
            return
        if len(self._kernels) > known:
            yield row
        if not all([self._add_value(row, value) for value in _items(values)]):
            yield None

    def _add_value(self, row: Row, value: object) -> bool:
        """Add the value of a counter of a kernel. Return False if it is malformed."""
        try:
            counter = self._counters.get(_at(value, ("counter_id", "handle")))
            number = float(_at(value, ("value",)))
        except (TypeError, ValueError, OverflowError):
            return False
        if row["end"] is None:
            return False
        self.values.append((row["device"], str(counter), row["start"], row["end"], number))
        return True

    def _kernel(self, name: str, record: Mapping[str, Any], row: Row) -> None:
        which = _at(record, ("dispatch_info", "dispatch_id"))
        self._kernels.add(("start", row["start"]) if which is None else which)
        kernel = _at(record, ("dispatch_info", "kernel_id"))
        symbol = self._symbols.get(kernel, {})
        sizes = {size: _integer(_at(record, place.split("."))) for size, place in _SIZES.items()}
        row["device"] = self._device(record, "dispatch_info", "agent_id")
        row["stream"] = _integer(_at(record, self._stream_of_kernel))
        row["registers"] = _integer(symbol.get("arch_vgpr_count"))
        row["text"] = str(next((symbol[key] for key in _NAMES if symbol.get(key)), f"<kernel {kernel}>"))
        for axis in "xyz":
            block = row[f"block_{axis}"] = sizes[f"workgroup_{axis}"]
            row[f"grid_{axis}"] = _blocks(sizes[f"grid_{axis}"], block)

    def _copy(self, name: str, record: Mapping[str, Any], row: Row) -> None:
        to, source = (self._device(record, f"{end}_agent_id", absent=None) for end in ("dst", "src"))
        row["device"] = next((device for device in (to, source) if device is not None), 0)
        row["stream"] = _integer(_at(record, self._stream_of_copy))
        row["from"], row["to"] = (_HOST if device is None else _DEVICE for device in (source, to))
        row["copy_kind"] = _COPY_KINDS[row["from"], row["to"]]

    def _memory(self, name: str, record: Mapping[str, Any], row: Row) -> None:
        change = str(self._operation(record)).rpartition("_")[2]
        if change not in _CHANGES:
            raise ValueError("neither an allocation nor a free")
        row["type"] = _CHANGES[change]
        row["device"] = self._agents.get(_at(record, ("agent_id", "handle")))
        row["address"] = _address(record.get("address"))

    def _call(self, name: str, record: Mapping[str, Any], row: Row) -> None:
        message = self._messages.get(_at(record, ("correlation_id", "internal"))) if name == "marker_api" else None
        row["text"] = str(message or self._operation(record) or f"<{name} {record.get('operation')}>")

    def _operation(self, record: Mapping[str, Any]) -> str | None:
        place: Any = (record.get("kind"), record.get("operation"))
        return self._operations.get(place)

    def _device(self, record: Mapping[str, Any], *place: str, absent: int | None = 0) -> int | None:
        """Return the index of a GPU; ``absent`` for other devices. Raise ValueError if the record has none."""
        agent = _at(record, (*place, "handle"))
        if agent is None:
            raise ValueError("work without a device")
        return self._agents.get(agent, absent)


_MORE = {"kernel": _Tool._kernel, "copy": _Tool._copy, "memory": _Tool._memory}
"""What adds the other columns of a row of a kind. Other kinds have a name."""


def _pass_on(reader: _core.DatabaseReader, name: str, rows: Iterator[Row | None], counts: dict[str, int]) -> int:
    """Hand the rows of a list to the core in batches. Return how many are None."""
    kind, _ = _LISTS.get(name, _CALL)
    skipped = 0
    waiting: list[Row] = []

    def hand_over() -> None:
        if waiting:
            counts[name] = counts.get(name, 0) + len(waiting)
            reader.add(kind, tuple(waiting[0]), [tuple(row.values()) for row in waiting])
            waiting.clear()

    for row in rows:
        if row is None:
            skipped += 1
            continue
        waiting.append(row)
        if len(waiting) == BATCH:
            hand_over()
    hand_over()
    return skipped


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _blocks(items: int | None, block: int | None) -> int | None:
    """Return the number of blocks of a dimension: rocprofv3 counts work-items."""
    return None if items is None or block is None or block <= 0 else (items + block - 1) // block


def _address(value: object) -> int | None:
    """Return an address: a number, a hexadecimal text, or an object that holds one."""
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    if isinstance(value, str):
        try:
            value = int(value, 16)
        except ValueError:
            return None
    return value if isinstance(value, int) and 0 < value < 1 << 63 else None


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
