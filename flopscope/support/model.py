"""Names and models of devices, from a driver or a trace, and why the peaks of a model are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flopscope import _core
from flopscope.support.safe import printable

GIB = 1 << 30


class Model(NamedTuple):
    """A device model: the name that its driver reports, and its size, since several cards may share one name."""

    name: str
    sm_count: int = 0
    """Multiprocessors (AMD: compute units); 0 where unknown."""
    memory_bytes: float = 0.0
    """0 where unknown."""

    @classmethod
    def of_properties(cls, properties: Mapping[str, Any]) -> Model:
        """Return the model of a device of this machine from its driver's properties."""
        return cls(properties["name"], properties.get("sm_count", 0), properties.get("memory_bytes", 0.0))


def models_of(names: Mapping[int, str], properties: object, ran: Iterable[int]) -> dict[int, Model]:
    """Return the devices of a trace by index, from their names and the trace's "deviceProperties" (untrusted).

    ``ran`` lists the devices with work. A ROCm trace may number them differently than its properties: a device without
    a name is assumed to be of the same model as the others if these are all alike.
    """
    entries = properties if isinstance(properties, list) else []
    by_id = {entry["id"]: entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), int)}
    models = {}
    for device, name in names.items():
        sm_count, memory_bytes = (by_id.get(device, {}).get(key) for key in ("numSms", "totalGlobalMem"))
        models[device] = Model(name, _count(sm_count, 1 << 16), _count(memory_bytes, 1 << 53))
    first = next(iter(models.values()), None)
    if first is None or any((model.name, model.sm_count) != (first.name, first.sm_count) for model in models.values()):
        return models
    return models | dict.fromkeys(set(ran) - models.keys(), first)


def _count(value: object, limit: int) -> int:
    """Return a positive integer below the limit, or 0 (unknown) for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < limit else 0


def why_unknown(model: Model, *, here: bool, measured: bool) -> str:
    """Return why the peaks of a device are unknown, and what to do, as a clause for a message.

    ``here``: this machine has such a device. ``measured``: measured peaks were requested, not only the datasheet's.
    """
    rows = _core.datasheet(model.name)
    reason = mismatch(model, rows) if rows else f'no datasheet row for "{printable(model.name)}"'
    if here and measured:
        return f"{reason}, and its peaks are not measured yet: run flopscope devices --measure"
    if here:
        return f'{reason}; use peaks="measured" for the peaks measured on this machine'
    return f'{reason}; state its peaks by peaks="memory=…,bf16_tensor=…" or --peaks, in bytes/s and FLOP/s'


def mismatch(model: Model, rows: list[dict[str, Any]]) -> str:
    """Return why none of the datasheet rows with the device's name applies to it."""
    sizes = " or ".join(_size(row["sm_count"], row["memory_gib"]) for row in rows)
    size, name = _size(model.sm_count, round(model.memory_bytes / GIB)), printable(model.name)
    if not size:
        return f'several cards are called "{name}" ({sizes}), and the device does not identify its variant'
    return f'the datasheet of "{name}" is for {sizes}, but this device has {size}'


def _size(sm_count: int, memory_gib: int) -> str:
    parts = [f"{sm_count} SMs"] * (sm_count > 0) + [f"{memory_gib} GiB"] * (memory_gib > 0)
    return " and ".join(parts)


def index_of(name: str) -> int:
    """Return the index of a device from its name; -1 for the CPU."""
    _, _, index = name.partition(":")
    return int(index) if index else -1


class DeviceType(str):
    """A device type, "cpu" or "cuda", that also equals the member of torch's enumeration DeviceType with its name."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other)
        return type(other).__name__ == "DeviceType" and str.upper(self) == getattr(other, "name", "").upper()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
