"""What a program computes in its first steps, by which runs of it are compared: its losses.

A loss is a tensor of one element on which backward() is called. A program without them is compared by the mean
magnitude of what the modules that it calls return.
"""

from __future__ import annotations

import functools
import math
import random
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from flopscope.measuring.trying.effects import Reach

FIRST = 8
"""Values that are compared."""
SPREAD = 3.0
"""Times the distance of unchanged runs within which a further one may lie: there are few of them."""
USELESS = 0.1
"""Relative spread of unchanged runs from which a comparison says nothing."""


class Recorder:
    """Records the first losses of the program without waiting for the device."""

    def __init__(self, reach: Reach) -> None:
        self._torch = reach.torch
        self._losses: list[Any] = []
        self._outputs: list[Any] = []
        self.backward = False
        """Whether a backward pass ran."""
        backward = reach.torch.autograd.backward

        @functools.wraps(backward)
        def recorded(tensors: Any, *args: Any, **given: Any) -> None:
            self.backward = True
            roots = tensors if isinstance(tensors, (list, tuple)) else [tensors]
            for root in roots:
                if len(self._losses) < FIRST and isinstance(root, reach.torch.Tensor) and root.numel() == 1:
                    self._losses.append(root.detach().clone())
            backward(tensors, *args, **given)

        reach.replace(reach.torch.autograd, "backward", recorded)
        reach.after.append(self._note)

    def _note(self, result: Any) -> None:
        if len(self._outputs) < FIRST and not self._losses:
            self._outputs += islice(magnitudes(self._torch, result), 1)

    def values(self) -> tuple[str, list[float]]:
        """Return what was recorded, "losses", "outputs" or "", and its values. Waits for the device."""
        for name, known in (("losses", self._losses), ("outputs", self._outputs)):
            if known:
                return name, [float(one) for one in known]
        return "", []


def magnitudes(torch: Any, result: Any) -> Iterator[Any]:
    """Yield the mean magnitude of each number and floating-point tensor of a result, a tensor."""
    if isinstance(result, torch.Tensor):
        if result.is_floating_point() and result.numel() and result.layout == torch.strided:
            wide = torch.promote_types(result.dtype, torch.float32)
            yield torch.linalg.vector_norm(result.detach(), 1, dtype=wide) / result.numel()
    elif isinstance(result, (int, float)):
        yield torch.tensor(abs(float(result)))
    elif isinstance(result, (dict, list, tuple)):
        for one in result.values() if isinstance(result, dict) else result:
            yield from magnitudes(torch, one)


# Random numbers -------------------------------------------------------------------------------------------------------


def draw_by_batch(reach: Reach) -> None:
    """Let the random numbers that a dataset draws depend on the batch alone, not on the process that loads it.

    The generators of Python, NumPy and torch are seeded for each batch of a dataset with indices, and then put back.
    """
    torch = reach.torch
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher
    fetch, generator = fetcher.fetch, torch.default_generator

    @functools.wraps(fetch)
    def drawn(self: Any, index: Any) -> Any:
        numpy, seed = sys.modules.get("numpy"), zlib.crc32(repr(index).encode())
        before = random.getstate(), generator.get_state(), None if numpy is None else numpy.random.get_state()
        random.seed(seed)
        generator.manual_seed(seed)
        if numpy is not None:
            numpy.random.seed(seed)
        try:
            return fetch(self, index)
        finally:
            random.setstate(before[0])
            generator.set_state(before[1])
            if numpy is not None:
                numpy.random.set_state(before[2])

    reach.replace(fetcher, "fetch", drawn)


# Comparing ------------------------------------------------------------------------------------------------------------


class Parity(NamedTuple):
    """How far the results of changed runs are from those of unchanged ones, relative to the latter."""

    of: str
    """ "losses", "outputs" or "returned values"; "" if nothing was recorded in both."""
    values: int
    """Values that were compared."""
    difference: float
    """Largest relative difference beyond what unchanged runs gave; NaN if there is nothing to compare."""
    own: float
    """Largest relative distance of an unchanged run from the first one; NaN with fewer than two of them."""
    tolerance: float
    """Difference up to which the results count as kept."""

    @property
    def kept(self) -> bool | None:
        """Whether the results are kept; None if that is unknown."""
        if not self.values or self.own > USELESS:
            return None
        return self.difference <= max(self.tolerance, SPREAD * self.own if self.own == self.own else 0.0)


def parity_of(of: str, plain: Sequence[Sequence[float]], changed: Sequence[float], tolerance: float) -> Parity:
    """Compare the values of a changed run with those of unchanged runs."""
    count = min([len(changed), *map(len, plain)]) if plain else 0
    if not count:
        return Parity("", 0, math.nan, math.nan, tolerance)
    runs = [list(run[:count]) for run in plain]
    largest = [max(abs(run[at]) for run in runs) for at in range(count)]
    own = max(_apart(one[at], runs[0][at], runs[0][at], largest[at]) for one in runs for at in range(count))
    apart = max(
        _apart(value, min(ones), max(ones), most)
        for value, *ones, most in zip(changed[:count], *runs, largest, strict=True)
    )
    return Parity(of, count, apart, own if len(runs) > 1 else math.nan, tolerance)


def _apart(value: float, low: float, high: float, scale: float) -> float:
    """Return the relative distance of a value from an interval; infinite for a NaN where there was none."""
    if math.isnan(value) and math.isnan(low):
        return 0.0
    if math.isnan(value) or math.isnan(low) or math.isnan(high):
        return math.inf
    beyond = max(low - value, value - high, 0.0)
    return 0.0 if beyond == 0 else beyond / scale if scale > 0 and math.isfinite(scale) else math.inf
