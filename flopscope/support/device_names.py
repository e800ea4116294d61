"""Names of devices: "cpu", or the type of an accelerator and an index, as in "cuda:0"."""

from __future__ import annotations

__all__ = ["index_of"]


def index_of(name: str) -> int:
    """Return the index of a device from its name; -1 for the CPU."""
    _, _, index = name.partition(":")
    return int(index) if index else -1
