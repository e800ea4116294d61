"""How much memory a recording takes."""

from __future__ import annotations

import time
from typing import Any

from flopscope._core import SteadyGrowth
from flopscope.record.profile import profile
from flopscope.support.process import available_memory, private_growth
from flopscope.support.units import memory_text

MOST = 0.5  # share of the memory that was available at the start
AT_END = 5.0
"""What a recording takes while its results are written, in multiples of what it takes while it runs."""
TORCHS_AT_END = 11.0
"""The same of torch's profiler: docs/running.md."""


class Records:
    """What a profile that has just begun records. steady: s after which growth of a process is called steady."""

    def __init__(self, prof: Any, steady: float) -> None:
        self._prof, self._available = prof, available_memory()
        self._growth = None if isinstance(prof, profile) else SteadyGrowth(steady)
        self.nbytes = 0.0  # at the last look; of torch an estimate
        self.look()  # growth counts from here

    def look(self) -> str:
        """Return why it must end, as its end would take half of the memory that was available; "" if it need not."""
        core, growth = self._prof._core, self._growth
        if growth is not None:
            self.nbytes, factor = growth.look(time.monotonic(), private_growth()), TORCHS_AT_END
        else:
            self.nbytes, factor = 0.0 if core is None else core.nbytes, AT_END
        taken = factor * self.nbytes  # what is read again, and torch's own events
        if self._available is None or taken < MOST * self._available:
            return ""
        how = "" if growth is None else ", by the growth of this process"
        return (
            f"the recording would take about {memory_text(int(taken))} of memory at its end{how}, more than half of "
            f"the {memory_text(self._available)} that were free at its start"
        )
