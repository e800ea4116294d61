"""What the core's arrays of events hold: values for the unknown, and kinds."""

from __future__ import annotations

UNKNOWN_ID = 2**32 - 1
UNKNOWN_TIME = -(2**63)
"""Marks an unknown time in ns."""
WORK = ("kernel", "memcpy", "memset", "interval")
"""The kinds of events that keep a device busy."""
