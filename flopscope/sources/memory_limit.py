"""A limit to the memory that a recording takes, watched from a thread: the recording itself pays nothing."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from flopscope.sources.profiler import profile
from flopscope.support.memory import available_memory, own_memory
from flopscope.support.units import memory_text

__all__ = ["MemoryLimit", "TorchGrowth", "recording_limit"]

WARNS, STOPS = 0.25, 0.5  # shares of the memory that was available at the start
INTERVAL = 0.3  # seconds
_AT_END = {"flopscope": 5.0, "torch": 11.0, "torch with stacks": 18.0}
"""What a recording takes at its end, in multiples of what it takes while it runs (docs/running.md)."""
_MOST_RATE = 300e6  # bytes that torch's profiler can record in a second of CPU time: 400 an op of 1.5 µs
_TICKS = 5  # a growth that lasts for fewer than half of them is the program's


class MemoryLimit:
    """Calls ``warn`` and ``stop``, each once, when a recording would take a quarter and half of the available memory.

    ``taken`` returns the bytes that the recording would take if it ended now; it is given those that matter next. The
    functions are called on a thread of this object, with a sentence.
    """

    def __init__(
        self, taken: Callable[[float], float], warn: Callable[[str], object], stop: Callable[[str], object]
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
        taken = self._taken(self._acts[0][0] * available)
        while self._acts and taken >= self._acts[0][0] * available:
            _, share, act = self._acts.pop(0)
            act(
                f"the recording would take about {memory_text(int(taken))} of memory at its end, more than {share} "
                f"of the {memory_text(available)} that were free at its start"
            )


def recording_limit(prof: Any, warn: Callable[[str], object], stop: Callable[[str], object]) -> MemoryLimit:
    """Return the limit of a profile that has just begun to record: of flopscope, or of torch."""
    if isinstance(prof, profile):

        def taken(share: float) -> float:
            return 0.0 if prof._core is None else _AT_END["flopscope"] * prof._core.nbytes

    else:
        growth, factor = TorchGrowth(), _AT_END["torch with stacks" if prof.with_stack else "torch"]

        def taken(share: float) -> float:
            return factor * growth.tick(share / factor)

    return MemoryLimit(taken, lambda what: warn(f"{what}; at half of it, the recording ends"), stop)


class TorchGrowth:
    """An estimate of what torch's profiler has recorded, which it does not tell: growth of the process that lasts.

    A growth by leaps is left out, as are more bytes than the profiler could have written in the CPU time, and
    tensors and arrays that Python objects hold.
    """

    def __init__(self) -> None:
        self._ticks: deque[float] = deque(maxlen=_TICKS)
        self._first = self._last = own_memory()
        self._cpu = _cpu_seconds()
        self._arrays = _bytes_of_arrays()
        self._sum = 0.0
        self._filled = False

    def tick(self, threshold: float) -> float:
        """Return the bytes so far. Called regularly; arrays are looked for once the bytes exceed a threshold."""
        now, cpu = own_memory(), _cpu_seconds()
        self._ticks.append(min(now - self._last, _MOST_RATE * (cpu - self._cpu)))
        self._last, self._cpu = now, cpu
        if len(self._ticks) == _TICKS:
            steady = max(0.0, statistics.median(self._ticks))
            self._sum += steady * (1 if self._filled else _TICKS)
            self._filled = True
        if self._sum > threshold:
            grown = now - self._first - max(0, _bytes_of_arrays() - self._arrays)
            self._sum = max(0.0, min(self._sum, grown))
        return self._sum


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _bytes_of_arrays() -> int:
    """Return the bytes of the CPU tensors and NumPy arrays that objects of Python refer to."""
    import torch

    tensors: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
    arrays = getattr(sys.modules.get("numpy"), "ndarray", None)
    found: dict[int, int] = {}
    objects: list[Any] = gc.get_objects()
    for one in gc.get_referents(*objects):
        with suppress(Exception):  # a layout without a storage
            if type(one) is arrays and one.base is None:
                found[id(one)] = one.nbytes
            elif type(one) in tensors and one.device.type == "cpu":
                storage = one.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())
