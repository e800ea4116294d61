"""Names of devices: "cpu", or the type of an accelerator and an index, as in "cuda:0"."""

from __future__ import annotations


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
