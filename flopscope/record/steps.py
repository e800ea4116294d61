"""Steps of the program that ``flopscope run`` profiles: those it marks, or those of torch's optimizers."""

from __future__ import annotations

import functools
import math
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
