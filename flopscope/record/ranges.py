"""Ranges: record_function(), a named part of the program with the work that it declares, and those of NVTX."""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar, cast

from flopscope import _core

P = ParamSpec("P")
R = TypeVar("R")


class record_function(_core.Range):
    """A named range in the profile: a context manager or a decorator.

    It encloses the ops that its thread runs inside it; outside a profile it does nothing. Its row is a user annotation.
    ``flops`` and ``bytes`` declare the total work of the enclosed code per execution, as numbers of at least 0. The
    row's rates and its share of the roofline are then computed from them. ``unit`` names the compute unit that does the
    FLOPs ("fp32", "bf16_tensor", …); without it, the roofline is known only if the bytes bound it on every unit. On a
    decorator, flops and bytes may also be functions of the decorated function's arguments; they are called while a
    profile is recording:

        @record_function("attention", flops=lambda q, k, v: 4 * q.shape[-2] * k.shape[-2] * q.shape[-1])
        def attention(q, k, v): ...

    A decorated generator or coroutine function has one range for each part that it runs between two suspensions, so
    that the work of other code is not attributed to it; the declared work belongs to the first part. Asynchronous
    generators cannot be decorated.

    A ``with`` statement in an asyncio task may contain an ``await``. The range then lasts from entering to leaving,
    including waits, and encloses the work of its own task only. If another task has run ops or ranges meanwhile, the
    range overlaps theirs: it keeps its time and totals but has no self CPU time, and a Chrome trace shows it on a
    separate track. Tasks that share one context (``create_task(context=…)``) and coroutines of other event loops (trio)
    are treated as one thread.

    ``args`` is accepted for compatibility with torch and ignored. One object may be entered repeatedly and by many
    threads. Raise TypeError for a name that is not a string or work that is not a number, ValueError for a name that
    contains a null character, for work that is negative or not finite, and for a unit that is unknown or has no flops.
    """

    __slots__ = ()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return ``fn`` wrapped so that each call runs in the range. Raise TypeError if ``fn`` is not callable."""
        if isinstance(fn, (staticmethod, classmethod)):
            return cast("Callable[P, R]", type(fn)(self(fn.__func__)))
        if not callable(fn):
            raise TypeError(f"the range {self.name!r} decorates functions, not {fn!r}")
        if inspect.isasyncgenfunction(fn):
            raise TypeError(
                f"the range {self.name!r} cannot decorate {fn.__qualname__}(), an asynchronous generator; use "
                "`with record_function(…)` inside it, around code without an await or a yield"
            )
        call: Callable[..., Any] = fn
        part = self._of_call if callable(self.flops) or callable(self.bytes) else lambda args, kwargs: self

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _in_ranges(call(*args, **kwargs), part(args, kwargs))

        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from _in_ranges(call(*args, **kwargs), part(args, kwargs)))

        def function(*args: Any, **kwargs: Any) -> Any:
            with part(args, kwargs):
                return call(*args, **kwargs)

        of_kind = generator if inspect.isgeneratorfunction(fn) else function
        wrapped = coroutine if inspect.iscoroutinefunction(fn) else of_kind
        return cast("Callable[P, R]", functools.wraps(fn)(wrapped))

    def _of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> record_function:
        """Return a range with the work of a call with these arguments."""
        if not _core.is_recording():
            return record_function(self.name)
        flops, bytes_ = (work(*args, **kwargs) if callable(work) else work for work in (self.flops, self.bytes))
        return record_function(self.name, flops=flops, bytes=bytes_, unit=None if flops is None else self.unit)

    def __repr__(self) -> str:
        return f"<flopscope.record_function {self.name!r}>"


@types.coroutine
def _in_ranges(run: Any, part: record_function) -> Generator[Any, Any, Any]:
    """Drive a generator or coroutine as ``yield from`` does, with a range around each part between two suspensions."""
    resume, value = run.send, None
    while True:
        with part:
            try:
                result = resume(value)
            except StopIteration as end:
                return end.value
        # The declared work belongs to the first part.
        part = record_function(part.name, flops=part.flops and 0, bytes=part.bytes and 0, unit=part.unit)
        try:
            resume, value = run.send, (yield result)
        except GeneratorExit:
            with part:
                run.close()
            raise
        except BaseException as problem:
            resume, value = run.throw, problem


def watch_nvtx() -> None:
    """Let later profiles record the NVTX ranges of libraries that call NVTX for the first time from now on.

    A library asks NVTX for a tool once, at its first call. ``profile()`` does this when it starts, which is too late
    for libraries that called NVTX before: call this at the start of the program. ``flopscope run`` does. While no
    profile records, a call of NVTX takes about 2 ns more.

    Raise RuntimeError if NVTX_INJECTION64_PATH names another tool, which keeps the ranges.
    """
    if not _core.inject_nvtx():
        tool = os.environ.get("NVTX_INJECTION64_PATH", "")
        raise RuntimeError(
            f"NVTX's ranges go to another tool: NVTX_INJECTION64_PATH is {tool!r}; unset it to record them here"
        )
