"""A limit to the memory that a recording takes, watched from a thread: the recording itself pays nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flopscope.sources.profiler import profile
from flopscope.support.memory import available_memory
from flopscope.support.units import memory_text

__all__ = ["MemoryLimit", "recording_limit"]

WARNS, STOPS = 0.25, 0.5  # shares of the memory that was available at the start
INTERVAL = 0.3  # seconds
AT_END = 5.0
"""What a recording takes while its results are written, in multiples of what it takes while it runs."""


class MemoryLimit:
    """Calls ``warn`` and ``stop``, each once, when a recording would take a quarter and half of the available memory.

    ``taken`` returns the bytes that the recording would take if it ended now. The functions are called on a thread of
    this object, with a sentence.
    """

    def __init__(
        self, taken: Callable[[], float], warn: Callable[[str], object], stop: Callable[[str], object]
    ) -> None:
        self._taken = taken
        self._acts = [(WARNS, "a quarter", warn), (STOPS, "half", stop)]
        self._available = available_memory()
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        if self._available is not None:
            threading.Thread(target=self._watch, name="flopscope-memory", daemon=True).start()

    def end(self) -> None:
        """End, without waiting for a call that is under way."""
        self._over.set()

    def _watch(self) -> None:
        while self._acts and not self._over.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Compare, and act."""
        available = self._available
        if available is None or not self._acts:
            return
        taken = self._taken()
        while self._acts and taken >= self._acts[0][0] * available:
            _, share, act = self._acts.pop(0)
            act(
                f"the recording would take about {memory_text(int(taken))} of memory at its end, more than {share} "
                f"of the {memory_text(available)} that were free at its start"
            )


def recording_limit(prof: Any, warn: Callable[[str], object], stop: Callable[[str], object]) -> MemoryLimit | None:
    """Return the limit of a profile that has just begun to record; None of torch, which does not tell what it holds."""
    if not isinstance(prof, profile):
        return None

    def taken() -> float:
        return 0.0 if prof._core is None else AT_END * prof._core.nbytes

    return MemoryLimit(taken, lambda what: warn(f"{what}; at half of it, the recording ends"), stop)
