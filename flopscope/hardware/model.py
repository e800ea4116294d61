"""What a driver or a trace tells of a device that need not be here, and why its peaks are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flopscope import _core

__all__ = ["Model", "models_of", "why_unknown"]

GIB = 1 << 30


class Model(NamedTuple):
    """A device by the name that its driver reports. Names that several cards share need the rest too."""

    name: str
    sm_count: int = 0
    """Multiprocessors (AMD: compute units); 0 where unknown."""
    memory_bytes: float = 0.0
    """0 where unknown."""

    @classmethod
    def of_properties(cls, properties: Mapping[str, Any]) -> Model:
        """From what the driver says of a device of this machine."""
        return cls(properties["name"], properties.get("sm_count", 0), properties.get("memory_bytes", 0.0))


def models_of(names: Mapping[int, str], properties: object, ran: Iterable[int]) -> dict[int, Model]:
    """The devices of a trace by their number, from their names and from its "deviceProperties", which may be anything.

    ran: devices with work. A ROCm trace may number them otherwise than its properties do: one without a name is what
    all the others are, if they are all the same.
    """
    entries = properties if isinstance(properties, list) else []
    told = {entry["id"]: entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), int)}
    models = {device: _model(name, told.get(device, {})) for device, name in names.items()}
    first = next(iter(models.values()), None)
    if first is None or any((model.name, model.sm_count) != (first.name, first.sm_count) for model in models.values()):
        return models
    return models | dict.fromkeys(set(ran) - models.keys(), first)


def _model(name: str, properties: Mapping[str, Any]) -> Model:
    sm_count, memory_bytes = (properties.get(key) for key in ("numSms", "totalGlobalMem"))
    return Model(name, _count(sm_count, 1 << 16), _count(memory_bytes, 1 << 53))


def _count(value: object, limit: int) -> int:
    """A positive integer below the limit; 0, unknown, for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < limit else 0


def why_unknown(model: Model, *, here: bool, measured: bool, kind: str = "cuda") -> str:
    """Why no peaks of that device are known, and what would help: a clause for a message.

    here: such a device is in this machine. measured: measured peaks were asked for, and not only the datasheet's.
    """
    rows = _core.datasheet(model.name)
    reason = _why_not_those(model, rows) if rows else f'no datasheet row for "{model.name}"'
    if kind == "cpu":
        reason = "CPUs have no datasheet"
    if here and measured:
        return f"{reason}, and its peaks were never measured: flopscope devices --measure"
    if here:
        return f'{reason}; peaks="measured" takes what this machine measures'
    return reason if rows else f"{reason}; a row in csrc/device/datasheet.def would tell its peaks"


def _why_not_those(model: Model, rows: list[dict[str, Any]]) -> str:
    """Why none of the rows with its name is the device's."""
    sizes = " or ".join(_size(row["sm_count"], row["memory_gib"]) for row in rows)
    given = _size(model.sm_count, round(model.memory_bytes / GIB))
    if not given:
        return f'several cards are called "{model.name}" ({sizes}), and which one it was is not said'
    return f'the datasheet of "{model.name}" is of {sizes}, this device has {given}'


def _size(sm_count: int, memory_gib: int) -> str:
    parts = [f"{sm_count} SMs"] * (sm_count > 0) + [f"{memory_gib} GiB"] * (memory_gib > 0)
    return " and ".join(parts)
