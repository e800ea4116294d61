"""Perfetto's traces made from the events of Chrome traces: as torch writes them, and as the Perfetto SDK does."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from helpers.protobufs import field, message

BEGIN, END, INSTANT = 1, 2, 3
Events = Iterable[Mapping[str, Any]]


def annotation(name: str, value: Any, names: dict[str, int] | None = None) -> bytes:
    """Encode a DebugAnnotation; names: those that are interned, with their numbers."""
    return _named(name, names) + _value(value, names)


def _named(name: str, names: dict[str, int] | None) -> bytes:
    return field(10, name) if names is None else field(1, names.setdefault(name, len(names) + 1))


def _value(value: Any, names: dict[str, int] | None) -> bytes:
    if isinstance(value, dict):
        return b"".join(field(11, annotation(key, one, names)) for key, one in value.items())
    if isinstance(value, list):
        return b"".join(field(12, _value(one, names)) for one in value)
    number = {bool: 2, int: 4, float: 5, str: 6}[type(value)]
    return field(number, int(value) if number == 2 else value)


def track(uuid: int, process: int, thread: int | None = None, parent: int | None = None) -> bytes:
    """Encode the packet of a track's descriptor."""
    place = (3, message((1, process))) if thread is None else (4, message((1, process), (2, thread)))
    return field(1, message((60, message((1, uuid), place, (5, parent)))))


def slices(events: Events) -> list[tuple[int, int, Mapping[str, Any]]]:
    """Return the start and the end of each complete event, in ns, and the event."""
    found = []
    for event in events:
        if event.get("ph") == "X" and "dur" in event:
            start = round(1000 * event["ts"])
            found.append((start, start + round(1000 * event["dur"]), event))
    return found


def _tracks(events: Iterable[Mapping[str, Any]]) -> tuple[dict[tuple[int, int], int], bytes]:
    places = {(event["pid"], event["tid"]): 0 for event in events}
    uuids = {place: 100 + number for number, place in enumerate(places)}
    return uuids, b"".join(track(uuid, *place) for place, uuid in uuids.items())


def torch_trace(events: Events, categories: bool = True) -> bytes:
    """Encode slices as torch does: the beginnings of all, then the ends of all, in one order."""
    found = slices(events)
    uuids, packets = _tracks(event for *_, event in found)
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    begins, ends = [], []
    for start, end, event in found:
        place = (11, uuids[event["pid"], event["tid"]])
        name = (10, names.setdefault(event["name"], len(names) + 1))
        kind = (3, kinds.setdefault(event["cat"], len(kinds) + 1) if categories else None)
        args = [(4, annotation(key, value)) for key, value in event.get("args", {}).items()]
        begun = message((9, BEGIN), place, name, kind, *args)
        begins.append(field(1, message((8, start), (10, 1), (13, 2), (11, begun))))
        ends.append(field(1, message((8, end), (10, 1), (11, message((9, END), place)))))
    listed = [(1, message((1, number), (2, kind))) for kind, number in kinds.items()]
    listed += [(2, message((1, number), (2, name))) for name, number in names.items()]
    return packets + field(1, message((10, 1), (13, 1), (12, message(*listed)))) + b"".join(begins + ends)


def sdk_trace(events: Events, packed: bool = False) -> bytes:
    """Encode slices as a program does while it runs: a sequence for each thread, with a clock that counts from the
    packet before, and names that are listed where they are first used. packed: compressed packets."""
    found = slices(events)
    uuids, descriptors = _tracks(event for *_, event in found)
    packets: list[bytes] = []
    for number, (place, uuid) in enumerate(uuids.items(), 1):
        mine = sorted((start, -end, at) for at, (start, end, event) in enumerate(found) if place == _place(event))
        packets += _sequence(number, uuid, [(start, -end, found[at][2]) for start, end, at in mine])
    if not packed:
        return descriptors + b"".join(packets)
    half = len(packets) // 2
    parts = (b"".join(packets[:half]), b"".join(packets[half:]))
    return descriptors + b"".join(field(1, field(50, zlib.compress(part))) for part in parts)


def _place(event: Mapping[str, Any]) -> tuple[int, int]:
    return event["pid"], event["tid"]


def _sequence(number: int, uuid: int, ordered: list[tuple[int, int, Mapping[str, Any]]]) -> list[bytes]:
    clock = message((1, 64), (2, ordered[0][0] // 1000), (3, 1), (4, 1))
    defaults = message((58, 64), (11, message((11, uuid))))
    started = ordered[0][0] // 1000
    packets = [message((10, number), (41, 1), (6, message((1, clock))), (59, defaults))]
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    keys: dict[str, int] = {}
    last = started
    open_ends: list[int] = []

    def add(time: int, *fields: tuple[int, Any]) -> None:
        nonlocal last
        packets.append(message((8, time - last), (10, number), *fields))
        last = time

    for start, end, event in ordered:
        while open_ends and open_ends[-1] <= start:
            add(open_ends.pop(), (11, message((9, END))))
        known = len(names), len(kinds), len(keys)
        name = names.setdefault(event["name"], len(names) + 1)
        kind = kinds.setdefault(event["cat"], len(kinds) + 1)
        args = [(4, annotation(key, value, keys)) for key, value in event.get("args", {}).items()]
        listed = [
            (which, message((1, one), (2, text)))
            for which, table, count in ((1, kinds, known[1]), (2, names, known[0]), (3, keys, known[2]))
            for text, one in table.items()
            if one > count
        ]
        add(start, (12, message(*listed) if listed else None), (11, message((9, BEGIN), (10, name), (3, kind), *args)))
        open_ends.append(end)
    while open_ends:
        add(open_ends.pop(), (11, message((9, END))))
    return [field(1, packet) for packet in packets]
