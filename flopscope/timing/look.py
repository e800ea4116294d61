"""One call under the profiler: where it works, what it launches, and the work of its ops."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flopscope import _core
from flopscope.hardware import capture
from flopscope.hardware.activities import ProfilerActivity
from flopscope.results.events import WORK

__all__ = ["Look", "call_under_profiler", "look_at", "notes_of"]


@dataclass(frozen=True)
class Look:
    """What one call did."""

    devices: tuple[str, ...]
    """That worked for it: "cuda:0"; none where only the host did, as far as one could see."""
    sees_cuda: bool
    """Whether CUPTI told all that CUDA did: else ``devices`` has what flopscope's own ops used."""
    kernels: int | None
    """Kernels, copies and fills left out; None where nobody saw them."""
    launches: int | None
    """Kernels, copies and fills."""
    native_launches: int
    """Of them, those of flopscope's own ops."""
    ops: int
    """Calls of ops whose work is known."""
    flops: float
    bytes: float
    """Of all its ops; NaN unless that of each is known."""
    notes: tuple[str, ...]
    core: Any
    """The stopped recorder."""

    @property
    def unit(self) -> str | None:
        """The compute unit that does most of its FLOPs, as Roof.unit."""
        unit: str | None = self.roof("cpu", None).unit
        return unit

    def roof(self, device: str, limits: Mapping[str, Any] | None) -> _core.Roof:
        """The least times that the peaks allow its ops, added up. limits: peaks as the core takes them, or None."""
        _, meta = self.core.table(False, 0, {} if limits is None else {device: limits})
        roof: _core.Roof = meta["roof"]
        return roof


def call_under_profiler(function: Callable[[], Any], cuda: bool, timer: capture.Timer) -> Look:
    """Call it once. cuda: see what CUDA does too. What it raises passes; TypeError where it only makes a coroutine."""
    activities = {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if cuda else set())
    recipe = capture.Recipe(
        activities=activities,
        asked_for_cuda=False,
        timer=timer if cuda else "auto",
        profile_memory=False,
        with_stack=False,
        api_calls=True,
    )
    cores: list[_core.Profiler] = []  # those that were tried, the one that runs last
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            core, timing = capture.start_core(recipe, cores.append)
        result = function()
        core.stop()
    except BaseException:  # of stop() too, which an interrupt may have come before
        for tried in cores:
            capture.stop_core(tried)
        raise
    notes = tuple(str(warning.message) for warning in said)
    return look_at(core.store, timing == "cupti", notes + notes_of(result))


def notes_of(result: Any) -> tuple[str, ...]:
    """What is to be told of a call that returned this. TypeError for a coroutine, whose code has not run at all."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns at every call that nobody awaited it
        raise TypeError("the call makes a coroutine, and its code does not run: measure lambda: asyncio.run(fn(…))")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return ("the call makes a generator, and the code in it does not run: measure what goes through all of it",)
    return ()


def look_at(core: Any, sees_cuda: bool, notes: tuple[str, ...] = ()) -> Look:
    """What a stopped recorder tells of the one call that it saw."""
    columns, names, kinds, _ = core.events()
    work = [kinds[kind] in WORK for kind in columns["kind"]]
    launches = [at for at, is_work in enumerate(work) if is_work]
    native = [at for at in launches if _is_native(columns, names, int(columns["launcher"][at]))]
    kernels = sum(kinds[columns["kind"][at]] == "kernel" for at in launches)
    ops, flops, moved = _work_of(core)
    return Look(
        devices=tuple(sorted({f"cuda:{columns['device'][at]}" for at in launches if columns["device"][at] >= 0})),
        sees_cuda=sees_cuda,
        kernels=kernels if sees_cuda else None,
        launches=len(launches) if sees_cuda else None,
        native_launches=len(native),
        ops=ops,
        flops=flops,
        bytes=moved,
        notes=notes,
        core=core,
    )


def _is_native(columns: Mapping[str, Any], names: list[str], launcher: int) -> bool:
    return launcher >= 0 and names[columns["name"][launcher]].startswith("flopscope::")


def _op_rows(columns: Mapping[str, Any]) -> list[int]:
    """Rows of ops with work of their own; where no op's is known, of ranges whose work the program states."""
    known = [
        row
        for row, device_type in enumerate(columns["device_type"])
        if device_type == "cpu" and not math.isnan(columns["flops"][row] + columns["bytes_total_moved"][row])
    ]
    return [row for row in known if not columns["is_user_annotation"][row]] or known


def _work_of(core: Any) -> tuple[int, float, float]:
    """Number of ops, FLOPs, bytes."""
    columns, meta = core.table(False, 0, {})
    rows = _op_rows(columns)
    if not rows:
        return 0, math.nan, math.nan
    flops, moved = (math.fsum(columns[name][row] for row in rows) for name in ("flops", "bytes_total_moved"))
    coverage = meta["coverage"]  # below 1 where some work is of unknown size
    return (
        sum(columns["count"][row] for row in rows),
        flops if coverage["flops"] >= 1 - 1e-9 else math.nan,
        moved if coverage["bytes"] >= 1 - 1e-9 else math.nan,
    )
