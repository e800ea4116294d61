"""One call under the profiler: the devices that it uses, its launches, and the work of its ops.

A call whose work goes on after it returns has no time: threads that it started, results that compute when they are
read, futures and coroutines are refused or named.
"""

from __future__ import annotations

import inspect
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flopscope import _core
from flopscope.measuring.arrays import leaves, library_of
from flopscope.measuring.cuda import devices_of
from flopscope.measuring.known_work import package_of, torch_record, unit_of_torch, work_by_name
from flopscope.measuring.sampling import NoTime
from flopscope.measuring.why import Launch, launch_of
from flopscope.support import capture
from flopscope.support.capture import ProfilerActivity
from flopscope.support.core_facts import WORK

JOINED = 0.5
"""Seconds in which a thread that a call has started may end; one that waits for longer is that of a pool."""


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
    of_jax: bool = False
    """Whether it returned arrays of JAX, which may still be computed."""
    returned_on: frozenset[str] = frozenset()
    """CUDA devices of what the call returned."""
    launch: Launch | None = None
    """That of the longest kernel; None where none was recorded."""
    named: Mapping[str, Any] | None = None
    """The unit of a function whose work is known, but not by the ops in ``core``."""

    @property
    def unit(self) -> str | None:
        """The compute unit that executes most of the FLOPs, as Roof.unit."""
        return self.roof("cpu", None).unit

    def roof(self, device: str, limits: Mapping[str, Any] | None) -> _core.Roof:
        """Return the sum of the roofline times of the ops. limits: peaks in the form of the core, or None."""
        if self.named:
            peaks = {"flops": {}} if limits is None else {**limits}
            return _core.roof(self.flops, self.bytes, self.named["unit"], peaks, self.launches or 1)
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
        with joined_threads():
            result = function()
        core.stop()
    except BaseException:  # also KeyboardInterrupt before or in stop()
        for core in cores:
            capture.stop_core(core)
        raise
    notes = tuple(str(warning.message) for warning in caught)
    look = look_at(core.store, timing == "cupti", notes + notes_of(result))
    arrays = [array for _, array in leaves(result, numbers=False)]
    of_jax = any(library_of(array) == "jax" for array in arrays)
    return replace(look, returned_on=frozenset(devices_of(arrays)), of_jax=of_jax)


@contextmanager
def joined_threads() -> Iterator[None]:
    """Raise NoTime at the end of the block if a thread that began in it still runs."""
    before = {*threading.enumerate()}
    yield
    for thread in threading.enumerate():
        if thread in before:
            continue
        thread.join(JOINED)
        if not thread.is_alive() or not _waits(thread.native_id):
            raise NoTime(f"the call returns while its thread {thread.name!r} still runs; let it join the thread")


def _waits(thread: int | None) -> bool:
    """Return whether a thread waits for something, as that of a pool does for work."""
    try:
        text = Path(f"/proc/self/task/{thread}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "S"


def with_known_work(look: Look, function: Callable[[], Any], on_cuda: bool) -> Look:
    """Return a look at a call with its work, if it ran no op of flopscope and the work is known otherwise."""
    on_cuda = on_cuda or bool(look.devices)
    if look.ops:
        return look
    if named := work_by_name(function):
        read, written = named["bytes_read"], named["bytes_written"]
        work = {"flops": named["flops"], "bytes": read + written, "bytes_read": read, "bytes_written": written}
        return replace(look, **work, named=named)
    if on_cuda and package_of(function) != "torch":  # what else it launched is in no record of torch's ops
        return look
    store = torch_record(function)
    work = {} if store is None else _work_of(*store.table(False, 0, {}))
    if not work.get("bytes", 0) > 0:
        return look
    if not on_cuda:
        return replace(look, **work, core=store)
    return replace(look, **work, named={"unit": unit_of_torch(store, look.core)})


def notes_of(result: Any, what: str = "the call") -> tuple[str, ...]:
    """Return notes on the result of a call. Raise TypeError for one whose code has not run, or still runs."""
    if inspect.iscoroutine(result):
        result.close()  # avoids Python's warning "was never awaited"
        raise TypeError(f"{what} returns a coroutine without running its code; measure lambda: asyncio.run(fn(…))")
    if hasattr(result, "add_done_callback") or (hasattr(result, "wait") and hasattr(result, "then")):  # also torch's
        raise TypeError(f"{what} returns a future while its code runs; measure lambda: fn(…).result()")
    if is_deferred(result):
        return (f"{what} returns a {type(result).__name__}, which may compute only when it is read, after the call",)
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return (f"{what} returns a generator without running its code; measure a function that exhausts it",)
    return ()


def is_deferred(result: Any) -> bool:
    """Return whether a result may compute when it is read: a collection of Dask, a tensor of another class than torch's
    that intercepts its ops or functions."""
    torch: Any = sys.modules.get("torch")
    kind: Any = type(result)
    if torch is None or not isinstance(result, torch.Tensor) or kind.__module__.startswith("torch"):
        return hasattr(result, "__dask_graph__")
    function = getattr(kind.__torch_function__, "__func__", None)
    own_function = function not in (None, torch.Tensor.__torch_function__.__func__)
    return own_function or kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def look_at(core: Any, sees_cuda: bool, notes: tuple[str, ...] = ()) -> Look:
    """Return the activity of the one call in a stopped recorder."""
    columns, names, kinds, _ = core.events()
    launches = [at for at, kind in enumerate(columns["kind"]) if kinds[kind] in WORK]
    launchers = [names[columns["name"][at]] for at in columns["launcher"][launches] if at >= 0]
    kernels = sum(kinds[columns["kind"][at]] == "kernel" for at in launches)
    table, meta = core.table(False, 0, {})
    return Look(
        devices=tuple(sorted({f"cuda:{columns['device'][at]}" for at in launches if columns["device"][at] >= 0})),
        sees_cuda=sees_cuda,
        kernels=kernels if sees_cuda else None,
        launches=len(launches) if sees_cuda else None,
        launch=launch_of(table) if kernels and sees_cuda else None,
        native_launches=sum(name.startswith("flopscope::") for name in launchers),
        notes=notes,
        core=core,
        **_work_of(table, meta),
    )


def _work_of(columns: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of op calls, their FLOPs, their bytes, and the bytes read and written, as fields of Look."""
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
