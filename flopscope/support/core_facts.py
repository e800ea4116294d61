"""What the core's arrays hold for the unknown, the kinds of work, and the parts of the accounting."""

from __future__ import annotations

from collections.abc import Mapping

from flopscope import _core

UNKNOWN_ID = 2**32 - 1
UNKNOWN_TIME = -(2**63)
"""Marks an unknown time in ns."""
WORK = ("kernel", "memcpy", "memset", "interval")
"""The kinds of events that keep a device busy."""


def parts_of(on_device: bool) -> Mapping[str, _core.Part]:
    """Return the parts of a device, or of a program without one, by name."""
    return _core.parts if on_device else _core.bare_parts
