"""The arguments of the kernels that Inductor launches, in recordings of all threads.

torch's profiler gets them from ``_RecordFunctionFast``, which drops them if all threads are recorded: it asks for the
profile of its own thread. So a call without effect, ``flopscope::arguments``, passes them to the profiler within each
such range. Readers of the trace merge it into the op around it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["record_arguments"]


class _Calls:
    """The overloads of the call, one for each list of kinds of arguments."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._library = torch.library.Library("flopscope", "FRAGMENT")
        self._lock = threading.Lock()
        self._known: dict[str, Callable[..., object]] = {}

    def call(self, arguments: Any) -> None:
        kinds = "".join(self._kind(argument) for argument in arguments)
        call = self._known.get(kinds)
        if call is None:
            call = self._define(kinds)
        call(*(None if kind == "n" else argument for kind, argument in zip(kinds, arguments, strict=True)))

    def _kind(self, argument: object) -> str:
        if isinstance(argument, self._torch.Tensor):
            return "t"
        return "s" if isinstance(argument, (int, float)) else "n"

    def _define(self, kinds: str) -> Callable[..., object]:
        with self._lock:
            if kinds not in self._known:
                types = {"t": "Tensor", "s": "Scalar", "n": "Tensor?"}
                parameters = ", ".join(f"{types[kind]} a{place}" for place, kind in enumerate(kinds))
                self._library.define(f"arguments.{kinds}({parameters}) -> ()")
                self._library.impl(f"arguments.{kinds}", _nothing, "CompositeImplicitAutograd")
                self._known[kinds] = getattr(self._torch.ops.flopscope.arguments, kinds)
            return self._known[kinds]


def _nothing(*_: object) -> None: ...


_calls: _Calls | None = None


def record_arguments(torch: Any) -> Callable[[], None]:
    """Let ranges with arguments record them until the function that is returned is called."""
    global _calls
    module = torch._C._profiler
    fast: Any = getattr(module, "_RecordFunctionFast", None)
    if fast is None:
        return _nothing
    if _calls is None:
        _calls = _Calls(torch)
    calls, active = _calls, True

    class Range:
        """Like _RecordFunctionFast, with the arguments in a call of their own."""

        def __init__(self, name: str, input_values: Any = (), keyword_values: Any = None) -> None:
            self._range = fast(name, input_values or (), keyword_values or {})
            self._arguments = input_values

        def __enter__(self) -> Any:
            entered = self._range.__enter__()
            if self._arguments and active:
                with suppress(Exception):  # of torch, which must not end the program: these arguments are unknown then
                    calls.call(self._arguments)
            return entered

        def __exit__(self, *exception: Any) -> Any:
            return self._range.__exit__(*exception)

    def end() -> None:
        nonlocal active
        active = False
        if module._RecordFunctionFast is Range:
            module._RecordFunctionFast = fast

    module._RecordFunctionFast = Range
    return end
