"""profile() and record_function(): what ran, for how long, and what it was worth."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from . import _core
from .device import find_device, peaks_by_name
from .table import COLUMNS, EventTable

__all__ = ["profile", "record_function"]

P = ParamSpec("P")
R = TypeVar("R")

_running: profile | None = None
_lock = threading.Lock()


class profile:
    """Record flopscope's ops, on all threads, while the ``with`` block runs.

    ``record_shapes`` keeps input shapes for the table; ``profile_memory`` records what tensors take and give back. Both
    mean what they mean in torch.profiler. On CUDA an op's device time is the time between two CUDA events around its
    work (``timing_source`` "event"); on the CPU the op's own time counts ("cpu").

    Only one profile records at a time: RuntimeError otherwise. An exception inside the block ends the profile and
    leaves its table readable.
    """

    def __init__(self, *, record_shapes: bool = False, profile_memory: bool = False) -> None:
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self._core = _core.Profiler(profile_memory)
        self._started = False

    def start(self) -> None:
        """Begin to record. RuntimeError if this profile has run before, or if another one is running."""
        global _running
        with _lock:
            if self._started:
                raise RuntimeError("a profile records once: make a new one with flopscope.profile()")
            self._core.start()
            self._started = True
            _running = self

    def stop(self) -> None:
        """Stop recording and wait for the devices. RuntimeError if it is not running, or if a device failed."""
        global _running
        with _lock:
            if _running is self:
                _running = None
            self._core.stop()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._core.running:
            self.stop()

    @property
    def dropped(self) -> int:
        """Events that could not be kept, for want of memory or because a device failed."""
        return self._core.dropped

    def __len__(self) -> int:
        """Number of events recorded."""
        return self._core.event_count

    def __bool__(self) -> bool:
        """True: a profile that saw nothing is a profile."""
        return True

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, *, peaks: str = "measured"
    ) -> EventTable:
        """The events grouped by name (and by input shapes), as torch.profiler does, with work and roofline joined.

        ``peaks`` says what the shares are of: "measured" peaks of the devices that ran (measured now if they never
        were: a few seconds once per device, kept in the user's cache; the CPU's not where a GPU ran), the vendor's
        "datasheet", or "none".
        RuntimeError while the profile is running.
        """
        if group_by_stack_n:
            raise ValueError(f"group_by_stack_n={group_by_stack_n}: no stacks are recorded")
        if self._core.running:
            raise RuntimeError("the profile is still running; stop it before asking for its table")
        by_shape = group_by_input_shape and self.record_shapes  # torch too groups by shapes only if it has them
        shares = peaks_by_name(self._peak_devices(), peaks)
        columns, meta = self._core.table(
            by_shape,
            {
                name: {"flops": p.flops, "bandwidth": p.bandwidth, "launch_ns": p.launch_ns}
                for name, p in shares.items()
            },
        )
        if not by_shape:  # a row has calls of many shapes
            for name in ("input_shapes", "input_dtypes"):
                columns[name] = [[] for _ in columns["key"]]
        meta["record_shapes"] = self.record_shapes
        meta["peaks"] = {name: {"source": p.source, "name": find_device(name).name} for name, p in shares.items()}
        return EventTable({column.name: columns[column.name] for column in COLUMNS}, meta)

    def _peak_devices(self) -> list[str]:
        """The devices whose peaks are asked for. Where a GPU worked, what the CPU did is not worth a measurement."""
        ran = sorted(self._core.devices)
        if len(ran) > 1 and find_device("cpu").measured is None:
            ran = [name for name in ran if name != "cpu"]
        return ran

    def coverage(self) -> dict[str, Any]:
        """Share of the time whose work is known: ``{"bytes": 0…1, "flops": 0…1, "unmodelled": [(name, µs), …]}``.

        Of device time where there is any, else of the ops' host time; NaN for a profile without ops.
        """
        return self.key_averages(peaks="none").coverage()

    def __repr__(self) -> str:
        state = "running" if self._core.running else "stopped" if self._started else "not started"
        return f"<flopscope.profile: {state}, {len(self)} events>"


class record_function:
    """A named range in the profile: a context manager, or a decorator.

    It encloses the ops that its thread runs inside; outside a profile it does nothing. Its row is a user annotation
    with no work of its own.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a range is named by a string, not {type(name).__name__}")
        self.name = name
        self._open: list[tuple[int, Any, int]] = []  # thread, profile's core, event

    def __enter__(self) -> record_function:
        owner = _running
        index = owner._core.begin_range(self.name) if owner is not None else None
        self._open.append((threading.get_ident(), owner and owner._core, -1 if index is None else index))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The latest that this thread entered; or the latest of all, for a range that ends on another thread.
        thread = threading.get_ident()
        mine = (at for at in range(len(self._open) - 1, -1, -1) if self._open[at][0] == thread)
        _, core, index = self._open.pop(next(mine, -1))
        if core is not None and index >= 0:
            core.end_range(index)

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fn)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            with record_function(self.name):
                return fn(*args, **kwargs)

        return wrapped
