"""Calls of functions with new arrays: what they return and change, and how long they take.

Arrays are new for each call, between guards, and filled from values in float64, so that kernels of all libraries are
compared in the same way, and a process of its own can be given values instead of arrays. Outputs are read twice: what
is still written after the return differs.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from flopscope import _core
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
    plain,
    spoil,
    values_of,
)
from flopscope.measuring.checking.inputs import Case, Roll
from flopscope.measuring.counting import Counts, count_call, sample_lines
from flopscope.measuring.cuda import devices_of
from flopscope.measuring.look import joined_threads, notes_of
from flopscope.measuring.sampling import NoTime, no_collector
from flopscope.measuring.stage import Stage, name_of, prepare
from flopscope.measuring.why import Launch

Shape = tuple[int, ...]
SETTLED = 0.002
"""Seconds after a call in which its outputs must not change."""
BUSY = min(len(os.sched_getaffinity(0)), 8)
"""Threads of a load on a CPU."""
COMPLEX = {"float64": "complex128", "float32": "complex64"}
"""The dtype that has the precision of a real one."""


class Output(NamedTuple):
    """An array that a call returned or wrote."""

    path: str
    values: Any
    """As values_of()."""
    dtype: str
    place: str
    """Its library and device."""


class Outcome(NamedTuple):
    """What a call did; changed and viewed are the arguments that differ after it, and whose memory it returned."""

    outputs: list[Output]
    changed: frozenset[int]
    viewed: frozenset[int]
    overrun: int | None
    """An argument beyond which it wrote."""
    returned: str
    """What it returned, such as "a tuple"."""


class Results(NamedTuple):
    """Where the results of a call are found: in these arguments, and in what it returns."""

    arguments: frozenset[int] = frozenset()
    alone: bool = False
    """Whether what the call returns is none."""


class Bench:
    """Functions that are called with new arrays like ``args``. without: by function, arguments that it is not given."""

    def __init__(
        self, functions: Sequence[Callable[..., Any]], args: Sequence[Any], without: Sequence[frozenset[int]]
    ) -> None:
        self._functions, self._nested, self._without = functions, args, without
        self._names, self._args = zip(*flat(args), strict=True)
        self._kept: list[list[tuple[str, Any]]] = []
        self._returned: list[Any] = [None] * len(functions)
        self._open = ExitStack()

    def outcome(
        self, which: int, case: Case, results: Results, adopt: bool, dtype: str, spoiled: Sequence[tuple[str, Shape]]
    ) -> Outcome:
        """Call a function once. adopt: the arguments that it changes are results. dtype: replaces floating dtypes.
        spoiled: dtypes and shapes of arrays whose memory, if it is free, is filled with NaN before."""
        arguments = self._new(case.values, case.layout, dtype)
        arrays = {at: one for at, one in enumerate(arguments) if isinstance(one, Guarded)}
        before = {at: copied(one.array) for at, one in arrays.items()}
        for one in spoiled:
            spoil(next(array.array for array in arrays.values()), *one)
        gpus = devices_of(one.array for one in arrays.values())
        with _disturbed(gpus, case.loaded), joined_threads(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of contents that are not the user's
            returned = self._call(which, arguments)
        self._require_values(which, returned)
        found = self._results_in(arguments, returned, results)
        self._require_complete(which, found if not adopt else [], [copied(one) for _, one in found])
        changed = frozenset(at for at, one in arrays.items() if not is_same(one.array, before[at]))
        if adopt:
            results = Results(results.arguments | changed)
        found = self._results_in(arguments, returned, results)
        there = address_of(returned)
        viewed = frozenset(at for at, one in arrays.items() if not there.isdisjoint(address_of(one.array)))
        overrun = next((at for at, one in arrays.items() if not one.intact), None)
        kind = "None" if returned is None else f"a {type(returned).__name__}"
        return Outcome(_outputs(found), changed, viewed, overrun, kind)

    def _require_complete(self, which: int, found: Sequence[tuple[str, Any]], copies: Sequence[Any]) -> None:
        """Raise NoTime if results differ from their copies after a moment."""
        time.sleep(SETTLED)
        if not all(is_same(one, copy) for (_, one), copy in zip(found, copies, strict=False)):
            raise NoTime(f"{name_of(self._functions[which])} returns before its outputs are complete")

    def _require_values(self, which: int, returned: Any) -> None:
        """Raise NoTime if a result has no values yet, or none that can be read."""
        name = name_of(self._functions[which])
        for one in (returned, *(one for _, one in leaves(returned, numbers=False))):
            try:
                why = [*notes_of(one, name)]
                if not why and is_array(one):
                    plain(one)
            except TypeError as problem:
                why = [str(problem)]
            if why:
                raise NoTime(why[0])

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
        self._fill(content)
        with joined_threads():
            (sample,) = self._stage.sampled(self._clock, lambda: self._clock.sample([self._chosen.index(which)]))
        return float(sample.us)

    def _fill(self, content: Roll | Sequence[Any]) -> None:
        rolled = self._pool[content.draw] if isinstance(content, Roll) else self._arguments
        for at, argument in enumerate(self._arguments):
            if not isinstance(argument, Guarded):
                continue
            if not isinstance(content, Roll):
                argument.write(content[at])
            else:
                argument.roll(rolled[at], content.places if at in content.moved else 0)

    def keep(self, which: int, results: Results) -> None:
        """Keep the outputs of the latest sample."""
        self._require_values(which, self._returned[which])
        found = self._results_in(self._arguments, self._returned[which], results)
        copies = [(path, copied(one)) for path, one in found]
        self._require_complete(which, found, [one for _, one in copies])
        self._kept.append(copies)

    def kept(self) -> list[list[Output]]:
        return [_outputs(one) for one in self._kept]

    def counted(self, which: int) -> tuple[Counts, Launch | None, list[str]]:
        """Return what the hardware counts for a call, its longest kernel's launch, and notes. After end()."""
        at, stage = self._chosen.index(which), self._stage
        if stage.device.kind == "cpu":
            return Counts(), None, []
        before = len(stage.notes)
        counts = count_call(stage, stage.calls[at], None, require=False)
        sample_lines(counts, stage, stage.calls[at])
        return counts, stage.looks[at].launch, stage.notes[before:]

    def read(self, which: int, contents: Sequence[Roll | Sequence[Any]]) -> float:
        """Return the bytes that a call reads from a GPU's memory, if each has the next of the contents. After end()."""
        device, several = str(self._stage.device), itertools.cycle(contents)

        def ready() -> None:
            self._fill(next(several))
            _core.measure_flush(device)

        call = self._stage.calls[self._chosen.index(which)]
        (found,) = _core.count_calls(int(device.partition(":")[2]), "memory", ready, (call,))
        return found.get("dram_bytes_read", math.inf)

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
        arrays = [] if results.alone else [(path, plain(one)) for path, one in leaves(returned)]
        return [item for item in arrays if there.isdisjoint(address_of(item[1]))] + written

    def _new(self, values: Sequence[Any], layout: str = "plain", dtype: str = "") -> list[Any]:
        made = []
        for value, like in zip(values, self._args, strict=True):
            wanted = COMPLEX[dtype] if dtype and dtype_of(like).startswith("complex") else dtype
            made.append(Guarded(like, value, wanted if is_floating(like) else "", layout) if is_array(like) else value)
        return made


@contextmanager
def _disturbed(devices: set[str], loaded: bool) -> Iterator[None]:
    """Leave NaN in the shared memory of GPUs, and other data in their L2. loaded: keep them or, if there are none, the
    CPU busy beside the block."""
    ended = threading.Event()
    with suppress(RuntimeError):  # a build without CUDA
        for device in devices:
            _core.measure_disturb(device, loaded)

    def work(block: bytes = bytes(1 << 20)) -> None:
        while not ended.is_set():
            zlib.crc32(block)

    with ThreadPoolExecutor(BUSY) as threads:
        for _ in range(BUSY if loaded and not devices else 0):
            threads.submit(work)
        try:
            yield
        finally:
            ended.set()


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
