"""The passes of a program that marks no steps: calls of the module that it calls most, from outside of any other."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

LEAST, SHARE = 3, 0.5
"""Looks at which a module was called, and its share of those at which any was, from which on its calls are counted."""
REPEATS = 3
"""The call of it with which it is said to repeat."""


class Forward:
    """Finds the module by looking at what the main thread calls, and calls ``passed`` from the third call on."""

    def __init__(self, torch: Any, passed: Callable[[], object]) -> None:
        self._torch, self._passed = torch, passed
        self._seen: Counter[int] = Counter()
        self._modules: dict[int, weakref.ref[Any]] = {}
        self._watched = 0  # its id
        self._restore: Callable[[], object] = bool
        self.name = ""
        """The class of the module, once it repeats."""

    def look(self) -> None:
        """See which module the main thread calls, and count the calls of that which was seen most."""
        code = self._torch.nn.Module._call_impl.__code__
        frame, outermost = sys._current_frames().get(threading.main_thread().ident or 0), None
        while frame is not None:
            outermost = frame if frame.f_code is code else outermost
            frame = frame.f_back
        module = None if outermost is None else outermost.f_locals.get("self")
        if module is None:
            return
        self._seen[id(module)] += 1
        self._modules[id(module)] = weakref.ref(module)
        (most, count), *_ = self._seen.most_common(1)
        if most != self._watched and count >= max(LEAST, SHARE * self._seen.total()):
            self._restore()
            self._watched = most
            self._watch(self._modules[most]())

    def _watch(self, module: Any) -> None:
        """Count the calls of a module, at a cost of half a µs each."""
        kind, calls = type(module), 0
        forward = getattr(kind, "forward", None)
        if module is None or forward is None or "forward" in vars(module):  # compiled, or changed by the program
            return
        compiles, target, own = self._torch.compiler.is_compiling, weakref.ref(module), vars(kind).get("forward")

        @functools.wraps(forward)
        def counted(of: Any, *arguments: Any, **options: Any) -> Any:
            result = forward(of, *arguments, **options)
            if not compiles() and of is target():
                nonlocal calls
                calls += 1
                if calls >= REPEATS:
                    self.name = kind.__name__
                    self._passed()
            return result

        def restore() -> None:
            if vars(kind).get("forward") is counted:
                if own is None:
                    del kind.forward
                else:
                    kind.forward = own

        kind.forward, self._restore = counted, restore

    def leave(self) -> None:
        """Count no longer."""
        self._restore()
        self._restore = bool
