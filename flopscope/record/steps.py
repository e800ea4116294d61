"""Steps of the program that ``flopscope run`` profiles: those it marks, those of torch's optimizers, or else the calls
of the module that it calls most, from outside of any other."""

from __future__ import annotations

import functools
import math
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple


class Window(NamedTuple):
    """The part of a program to record: [begin, end) in steps or in seconds, counted from 0."""

    unit: str = ""
    """ "steps" or "seconds"; "": the whole program """
    begin: float = 0.0
    end: float = math.inf

    def __str__(self) -> str:
        return f"--{self.unit} {self.begin:g}:{'' if math.isinf(self.end) else f'{self.end:g}'}"


_counter: StepCounter | None = None


def step() -> None:
    """Mark the end of a step of the program, for ``flopscope run``; without it, do nothing.

    Call it at the end of each iteration of the program's main loop. Without such calls, a step ends with each
    ``step()`` of a torch optimizer; the first call of this function replaces those.
    """
    if _counter is not None:
        _counter.marked()


class StepCounter:
    """The number of completed steps, and functions that are called: with it when a step ends, and at the first sign of
    a step to come."""

    def __init__(self, ended: Callable[[int], object], expected: Callable[[], object]) -> None:
        self.count = 0
        self.kind = ""
        """What ends a step: "optimizer", "forward" or "flopscope.step()"."""
        self._ended = ended
        self._expected = expected
        self._marks = False  # the program calls step()
        self._depth = 0  # of optimizers whose step() calls that of another

    def listen(self) -> None:
        """Count the calls of ``step()`` from now on."""
        global _counter
        _counter = self

    def leave(self) -> None:
        """Ignore all further steps."""
        global _counter
        if _counter is self:
            _counter = None
        self._marks = True
        self._ended = self._expected = bool

    def marked(self) -> None:
        """End a step that the program marks."""
        if not self._marks:
            self._marks = True
            self.count = 0  # without the optimizer's steps of the same iteration
        self._end("flopscope.step()")

    def passed(self) -> None:
        """End a pass of a program that marks nothing."""
        if self.kind in ("", "forward"):
            self._end("forward")

    def _end(self, kind: str) -> None:
        self.count, self.kind = self.count + 1, kind
        self._ended(self.count)

    def count_optimizers(self, torch: Any) -> None:
        """Count the steps of torch's optimizers that are created from now on. The creation of the first is the sign of
        a step to come. What is captured into a CUDA graph is not a step yet.

        A step ends after its range "Optimizer.step#…", which a global post hook of torch's would still be inside.
        """
        optimizer = torch.optim.Optimizer
        hook_of = optimizer.profile_hook_step

        @functools.wraps(hook_of)
        def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
            hooked = hook_of(function)
            self._expected()

            @functools.wraps(function)
            def wrapper(*arguments: Any, **options: Any) -> Any:
                self._depth += 1
                try:
                    result = hooked(*arguments, **options)
                finally:
                    self._depth -= 1
                self._optimized(torch.cuda)
                return result

            return wrapper

        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def _optimized(self, cuda: Any) -> None:
        captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
        if self._depth == 0 and not self._marks and not captured:
            self._end("optimizer")

    _optimized._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile leaves it out


# Passes of a program that marks no steps ------------------------------------------------------------------------------

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
