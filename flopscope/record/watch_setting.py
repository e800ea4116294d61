"""The environment variable that asks for the watch over CUDA graphs, or forbids it."""

from __future__ import annotations

import os

WATCH_GRAPHS = "FLOPSCOPE_WATCH_GRAPHS"


def is_asked_for() -> bool:
    """Return whether graphs are to be watched from the import of flopscope on."""
    return os.environ.get(WATCH_GRAPHS, "0") not in ("", "0")


def is_forbidden() -> bool:
    """Return whether graphs are not to be watched in the background either."""
    return os.environ.get(WATCH_GRAPHS) == "0"
