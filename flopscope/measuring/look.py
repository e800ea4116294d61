"""One call under the profiler: the devices that it uses, its launches, and the work of its ops."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flopscope import _core
from flopscope.support import capture
from flopscope.support.capture import ProfilerActivity
from flopscope.support.core_facts import WORK


@dataclass(frozen=True)
class Look:
    """The recorded activity of one call."""

    devices: tuple[str, ...]
    """CUDA devices that it used, as "cuda:0"; empty if no work on a GPU was recorded."""
    sees_cuda: bool
    """Whether CUPTI recorded all CUDA activity; otherwise ``devices`` covers flopscope's own ops only."""
    kernels: int | None
    """Number of kernels, without copies and fills; None where they were not recorded."""
    launches: int | None
    """Number of kernels, copies and fills; None where they were not recorded."""
    native_launches: int
    """Number of launches by flopscope's own ops."""
    ops: int
    """Calls of ops whose work is known."""
    flops: float
    bytes: float
    """Work of all ops, also ``flops``; NaN unless the work of each is known."""
    bytes_read: float
    bytes_written: float
    """The parts of ``bytes``."""
    notes: tuple[str, ...]
    core: Any
    """The stopped recorder."""

    @property
    def unit(self) -> str | None:
        """The compute unit that executes most of the FLOPs, as Roof.unit."""
        unit: str | None = self.roof("cpu", None).unit
        return unit

    def roof(self, device: str, limits: Mapping[str, Any] | None) -> _core.Roof:
        """Return the sum of the roofline times of the ops. limits: peaks in the form of the core, or None."""
        _, meta = self.core.table(False, 0, {} if limits is None else {device: limits})
        roof: _core.Roof = meta["roof"]
        return roof


def call_under_profiler(function: Callable[[], Any], cuda: bool, timer: capture.Timer) -> Look:
    """Call the function once and return its activity. cuda: also record CUDA activity.

    Exceptions of the function propagate. Raises TypeError if it returns a coroutine.
    """
    activities = {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if cuda else set())
    recipe = capture.Recipe(activities, timer=timer if cuda else "auto")
    cores: list[_core.Profiler] = []  # recorders in the order of attempts; the last one is running
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            core, timing = capture.start_core(recipe, cores.append)
        result = function()
        core.stop()
    except BaseException:  # also KeyboardInterrupt before or in stop()
        for core in cores:
            capture.stop_core(core)
        raise
    notes = tuple(str(warning.message) for warning in caught)
    return look_at(core.store, timing == "cupti", notes + notes_of(result))


def notes_of(result: Any) -> tuple[str, ...]:
    """Return notes on the result of a call. Raise TypeError for a coroutine, whose code has not run."""
    if inspect.iscoroutine(result):
        result.close()  # avoids Python's warning "was never awaited"
        raise TypeError("the call returns a coroutine without running its code; measure lambda: asyncio.run(fn(…))")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return ("the call returns a generator without running its code; measure a function that exhausts it",)
    return ()


def look_at(core: Any, sees_cuda: bool, notes: tuple[str, ...] = ()) -> Look:
    """Return the activity of the one call in a stopped recorder."""
    columns, names, kinds, _ = core.events()
    launches = [at for at, kind in enumerate(columns["kind"]) if kinds[kind] in WORK]
    launchers = [names[columns["name"][at]] for at in columns["launcher"][launches] if at >= 0]
    kernels = sum(kinds[columns["kind"][at]] == "kernel" for at in launches)
    return Look(
        devices=tuple(sorted({f"cuda:{columns['device'][at]}" for at in launches if columns["device"][at] >= 0})),
        sees_cuda=sees_cuda,
        kernels=kernels if sees_cuda else None,
        launches=len(launches) if sees_cuda else None,
        native_launches=sum(name.startswith("flopscope::") for name in launchers),
        notes=notes,
        core=core,
        **_work_of(core),
    )


def _work_of(core: Any) -> dict[str, Any]:
    """Return the number of op calls, their FLOPs, their bytes, and the bytes read and written, as fields of Look."""
    columns, meta = core.table(False, 0, {})
    known = [
        row
        for row, device_type in enumerate(columns["device_type"])
        if device_type == "cpu" and not math.isnan(columns["flops"][row] + columns["bytes_total_moved"][row])
    ]
    # Of ops with known work; if there are none, of ranges with declared work.
    rows = [row for row in known if not columns["is_user_annotation"][row]] or known
    work: dict[str, Any] = {"ops": sum(columns["count"][row] for row in rows)}
    for name in ("flops", "bytes", "bytes_read", "bytes_written"):
        covered = meta["coverage"]["flops" if name == "flops" else "bytes"] >= 1 - 1e-9  # else some work is unknown
        column = columns["bytes_total_moved" if name == "bytes" else name]
        work[name] = math.fsum(column[row] for row in rows) if rows and covered else math.nan
    return work
