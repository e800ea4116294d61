"""An encoder of protobuf's wire format, and the messages of XSpaces made with it."""

import itertools
import struct
from collections.abc import Iterable, Mapping
from typing import Any


def varint(value: int) -> bytes:
    """Encode an integer; a negative one has ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, value: Any) -> bytes:
    """Encode a field: an int as a varint, a float as a double, text and bytes with their size."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else bytes(value)
    return varint(number << 3 | 2) + varint(len(content)) + content


def message(*fields: tuple[int, Any]) -> bytes:
    """Encode fields in the order given; those of None are left out."""
    return b"".join(field(number, value) for number, value in fields if value is not None)


class Ref(str):
    """A text that a stat refers to by the id of a name."""


class Plane:
    """An XPlane whose lines are added one after the other."""

    def __init__(self, name: str, stats: Mapping[str, Any] | None = None, first_id: int = 1) -> None:
        self.name = name
        self._events: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._ids = itertools.count(first_id)
        self._lines: list[bytes] = []
        self._metadata: dict[str, tuple[tuple[int, Any], ...]] = {}
        self._stats = [(6, self.stat(key, value)) for key, value in (stats or {}).items()]

    def event_id(self, name: str) -> int:
        return self._events.setdefault(name, next(self._ids))

    def name_id(self, name: str) -> int:
        return self._names.setdefault(name, next(self._ids))

    def stat(self, key: str, value: Any) -> bytes:
        """Encode an XStat: an int, a float, a text, bytes, or a Ref."""
        name = (1, self.name_id(key))
        if isinstance(value, Ref):
            return message(name, (7, self.name_id(value)))
        number = {float: 2, int: 4, str: 5, bytes: 6}[type(value)]
        return message(name, (number, value))

    def event(self, name: str, offset: int, duration: int, **stats: Any) -> bytes:
        """Encode an XEvent; times are ps."""
        encoded = [(4, self.stat(key, value)) for key, value in stats.items()]
        return message((1, self.event_id(name)), (2, offset), (3, duration), *encoded)

    def line(self, number: int, name: str, events: Iterable[bytes], start: int = 0) -> None:
        """Add an XLine; start: ns."""
        self._lines.append(message((1, number), (2, name), (3, start), *((4, event) for event in events)))

    def describe(self, name: str, *fields: tuple[int, Any]) -> None:
        """Add fields to the XEventMetadata of a name."""
        self.event_id(name)
        self._metadata[name] = fields

    def encode(self) -> bytes:
        events = [
            (4, message((1, number), (2, message((1, number), (2, name), *self._metadata.get(name, ())))))
            for name, number in self._events.items()
        ]
        names = [(5, message((1, n), (2, message((1, n), (2, name))))) for name, n in self._names.items()]
        return message((2, self.name), *((3, line) for line in self._lines), *events, *names, *self._stats)


def space(*planes: Plane, hosts: Iterable[str] = ("host",), errors: Iterable[str] = ()) -> bytes:
    """Encode an XSpace."""
    remarks = [*((2, error) for error in errors), *((4, host) for host in hosts)]
    return message(*((1, plane.encode()) for plane in planes), *remarks)


GPU_STATS = {
    "device_vendor": "Nvidia", "gpu_device_name": "NVIDIA H200", "clock_rate": 1980000, "core_count": 132,
    "memory_bandwidth": 4814304000000, "memory_size": 150109880320, "compute_cap_major": 9, "compute_cap_minor": 0,
}  # fmt: skip


def environment(start: int, stop: int) -> Plane:
    """Return the plane that tells when the recording began and ended, ns since 1970."""
    return Plane("Task Environment", {"profile_start_time": start, "profile_stop_time": stop})


def kernel_details(
    grid: Iterable[int], block: Iterable[int], registers: int = 32, static: int = 0, dynamic: int = 0
) -> str:
    """Return the text with which XLA describes a kernel's launch."""
    sizes = [",".join(map(str, size)) for size in (grid, block)]
    return Ref(
        f"regs:{registers} static_shared:{static} dynamic_shared:{dynamic} grid:{sizes[0]} block:{sizes[1]} occ_pct:50"
    )
