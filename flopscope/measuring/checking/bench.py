"""Calls of functions with new arrays: what they return and change, and how long they take.

Arrays are new for each call, between guards, and filled from values in float64, so that kernels of all libraries are
compared in the same way, and a process of its own can be given values instead of arrays. Outputs are read twice: what
is still written after the return differs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from flopscope.measuring.arrays import (
    Guarded,
    address_of,
    copied,
    dtype_of,
    flat,
    is_array,
    is_floating,
    is_same,
    leaves,
    nested,
    place_of,
    spoil,
    values_of,
)
from flopscope.measuring.checking.inputs import Case, Roll
from flopscope.measuring.look import is_deferred, joined_threads
from flopscope.measuring.sampling import NoTime, no_collector
from flopscope.measuring.stage import Stage, name_of, prepare

SETTLED = 0.002
"""Seconds after a call in which its outputs must not change."""


class Output(NamedTuple):
    """An array that a call returned or wrote."""

    path: str
    values: Any
    """As values_of()."""
    dtype: str
    place: str
    """Its library and device."""


class Outcome(NamedTuple):
    """What a call did."""

    outputs: list[Output]
    changed: frozenset[int]
    """Arguments that differ after it."""
    viewed: frozenset[int]
    """Arguments whose memory it returned."""
    overrun: int | None
    """An argument beyond which it wrote."""


class Results(NamedTuple):
    """Where the results of a call are found."""

    arguments: frozenset[int] = frozenset()
    """In these arguments."""
    alone: bool = False
    """Whether what the call returns is none."""


class Bench:
    """Functions that are called with new arrays like ``args``. without: by function, arguments that it is not given."""

    def __init__(
        self, functions: Sequence[Callable[..., Any]], args: Sequence[Any], without: Sequence[frozenset[int]]
    ) -> None:
        self._functions, self._nested, self._without = functions, args, without
        self._names, self._args = zip(*flat(args), strict=True)
        self._arguments: list[Any] = []
        self._pool: list[list[Any]] = []
        self._chosen: list[int] = []
        self._kept: list[list[tuple[str, Any]]] = []
        self._returned: list[Any] = [None] * len(functions)
        self._clock: Any = None
        self._stage: Any = None
        self._open = ExitStack()

    def outcome(
        self,
        which: int,
        case: Case,
        results: Results,
        adopt: bool = False,
        dtype: str = "",
        spoiled: Sequence[tuple[str, tuple[int, ...]]] = (),
    ) -> Outcome:
        """Call a function once. adopt: the arguments that it changes are results. dtype: replaces floating dtypes.
        spoiled: dtypes and shapes of arrays whose memory, if it is free, is filled with NaN before."""
        arguments = self._new(case.values, case.layout, dtype)
        arrays = {at: one for at, one in enumerate(arguments) if isinstance(one, Guarded)}
        before = {at: copied(one.array) for at, one in arrays.items()}
        for one in spoiled:
            spoil(next(array.array for array in arrays.values()), *one)
        with joined_threads():
            returned = self._call(which, arguments)
        for _, one in leaves(returned):
            if is_deferred(one):
                what = f"a {type(one).__name__}, which may compute only when it is read"
                raise NoTime(f"{name_of(self._functions[which])} returns {what}")
        now = [copied(one) for _, one in self._results_in(arguments, returned, results)]
        time.sleep(SETTLED)
        changed = frozenset(at for at, one in arrays.items() if not is_same(one.array, before[at]))
        if adopt:
            results = Results(results.arguments | changed)
        found = self._results_in(arguments, returned, results)
        if not adopt and not all(is_same(one, copy) for (_, one), copy in zip(found, now, strict=True)):
            raise NoTime(f"{name_of(self._functions[which])} returns before its outputs are complete")
        there = address_of(returned)
        viewed = frozenset(at for at, one in arrays.items() if not there.isdisjoint(address_of(one.array)))
        return Outcome(
            _outputs(found), changed, viewed, next((at for at, one in arrays.items() if not one.intact), None)
        )

    def begin(self, device: str | None, pool: Sequence[Sequence[Any]], chosen: Sequence[int]) -> Stage:
        """Prepare to time the chosen functions, until end(). pool: contents that samples are given, rolled."""
        self._chosen = [*chosen]
        self._pool = [self._new(values) for values in pool]
        self._arguments = self._new([values_of(one) if is_array(one) else one for one in self._args])
        calls = [self._timed(which) for which in chosen]
        stage = self._stage = prepare(calls, [array_of(one) for one in self._arguments], device, None, "auto")
        self._open.enter_context(no_collector())
        self._open.enter_context(stage.recording())
        self._clock = stage.clock(stage.calls, stage.cold)
        return stage

    def end(self) -> None:
        self._open.close()

    def sample(self, which: int, content: Roll | Sequence[Any]) -> float:
        """Return the µs of a call with this content."""
        rolled = self._pool[content.draw] if isinstance(content, Roll) else self._arguments
        for at, argument in enumerate(self._arguments):
            if not isinstance(argument, Guarded):
                continue
            if not isinstance(content, Roll):
                argument.write(content[at])
            else:
                argument.roll(rolled[at], content.places if is_floating(self._args[at]) else 0)
        with joined_threads():
            (sample,) = self._stage.sampled(self._clock, lambda: self._clock.sample([self._chosen.index(which)]))
        return float(sample.us)

    def keep(self, which: int, results: Results) -> None:
        """Keep the outputs of the latest sample."""
        found = self._results_in(self._arguments, self._returned[which], results)
        self._kept.append([(path, copied(one)) for path, one in found])

    def kept(self) -> list[list[Output]]:
        """Return what was kept."""
        return [_outputs(one) for one in self._kept]

    def _timed(self, which: int) -> Callable[[], Any]:
        def call() -> Any:
            self._returned[which] = self._call(which, self._arguments)
            return self._returned[which]

        call.__name__ = name_of(self._functions[which])
        return call

    def _call(self, which: int, arguments: Sequence[Any]) -> Any:
        passed = nested(self._nested, map(array_of, arguments))
        return self._functions[which](*(one for at, one in enumerate(passed) if at not in self._without[which]))

    def _results_in(self, arguments: Sequence[Any], returned: Any, results: Results) -> list[tuple[str, Any]]:
        """Return the arrays of a call's results, each with its path."""
        written = [(f" argument {self._names[at]}", array_of(arguments[at])) for at in sorted(results.arguments)]
        there = address_of([one for _, one in written])
        found = [] if results.alone else [item for item in leaves(returned) if there.isdisjoint(address_of(item[1]))]
        return found + written

    def _new(self, values: Sequence[Any], layout: str = "plain", dtype: str = "") -> list[Any]:
        made = []
        for value, like in zip(values, self._args, strict=True):
            wanted = dtype and {"complex64": "complex128", "complex128": "complex128"}.get(dtype_of(like), dtype)
            made.append(Guarded(like, value, wanted if is_floating(like) else "", layout) if is_array(like) else value)
        return made


def array_of(argument: Any) -> Any:
    return argument.array if isinstance(argument, Guarded) else argument


def _outputs(found: Sequence[tuple[str, Any]]) -> list[Output]:
    return [Output(path, _parts(values_of(one)), dtype_of(one), place_of(one)) for path, one in found]


def _parts(values: Any) -> Any:
    """Return complex numbers as pairs of numbers, both NaN if one is infinite or NaN: the other one then depends on the
    order of operations."""
    if values.dtype.kind != "c":
        return values
    pairs = values.view(values.real.dtype).reshape(*values.shape, 2)
    pairs[abs(values) == math.inf] = pairs[values != values] = math.nan
    return pairs
