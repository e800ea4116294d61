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

_TYPES = {"t": "Tensor", "s": "Scalar", "n": "Tensor?"}
_known: dict[str, Callable[..., object]] = {}  # the overloads of the call, by the kinds of its arguments
_libraries: list[Any] = []  # that define them
_defining = threading.Lock()


def _call(torch: Any, arguments: Any) -> None:
    """Call the overload for arguments of these kinds, which is defined on first use."""
    kinds = "".join(_kind(torch, argument) for argument in arguments)
    if kinds not in _known:
        with _defining:
            _define(torch, kinds)
    _known[kinds](*(None if kind == "n" else argument for kind, argument in zip(kinds, arguments, strict=True)))


def _kind(torch: Any, argument: object) -> str:
    if isinstance(argument, torch.Tensor):
        return "t"
    return "s" if isinstance(argument, (int, float)) else "n"


def _define(torch: Any, kinds: str) -> None:
    if kinds in _known:
        return
    if not _libraries:
        _libraries.append(torch.library.Library("flopscope", "FRAGMENT"))
    parameters = ", ".join(f"{_TYPES[kind]} a{place}" for place, kind in enumerate(kinds))
    _libraries[0].define(f"arguments.{kinds}({parameters}) -> ()")
    _libraries[0].impl(f"arguments.{kinds}", _nothing, "CompositeImplicitAutograd")
    _known[kinds] = getattr(torch.ops.flopscope.arguments, kinds)


def _nothing(*_: object) -> None: ...


def record_arguments(torch: Any) -> Callable[[], None]:
    """Let ranges with arguments record them until the function that is returned is called."""
    module = torch._C._profiler
    fast: Any = getattr(module, "_RecordFunctionFast", None)
    if fast is None:
        return _nothing
    active = True

    class Range:
        """Like _RecordFunctionFast, with the arguments in a call of their own."""

        def __init__(self, name: str, input_values: Any = (), keyword_values: Any = None) -> None:
            self._range = fast(name, input_values or (), keyword_values or {})
            self._arguments = input_values

        def __enter__(self) -> Any:
            entered = self._range.__enter__()
            if self._arguments and active:
                with suppress(Exception):  # of torch, which must not end the program: these arguments are unknown then
                    _call(torch, self._arguments)
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
