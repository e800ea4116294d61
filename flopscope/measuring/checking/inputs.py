"""The inputs of a check: other contents, shapes and layouts than those that were given, each with its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from flopscope.measuring.arrays import bytes_of, dtype_of, is_array, is_floating, values_of

ULPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance of 1 to the next number, by dtype. """
LARGE = {"float16": 8.0}
"""Factor of large inputs by dtype, so that sums of a few thousand products stay finite; otherwise 64."""
ODD = (1, 7, 0)
"""Sizes that replace a dimension, beside one less and one more."""
MOST_SHAPES = 24
FULL = 1 << 24
"""Elements up to which other shapes may be larger than those given."""


class Case(NamedTuple):
    """Inputs of one call."""

    name: str
    """What is special about them, in words."""
    values: tuple[Any, ...]
    """By argument: values as arrays of NumPy, or anything else as it was given."""
    layout: str = "plain"
    optional: bool = False
    """Whether a kernel may refuse them: it was given others."""

    @property
    def edge(self) -> bool:
        """Whether a kernel that is wrong for them may still be right: they are empty or not contiguous."""
        return self.layout != "plain" or any(getattr(one, "size", 1) == 0 for one in self.values)


class Inputs:
    """Draws inputs like given arguments, or those of a function of a seed. outputs: arguments that are none."""

    def __init__(
        self, args: Sequence[Any], make: Callable[[int], Sequence[Any]] | None, seed: int, outputs: frozenset[int]
    ) -> None:
        self._outputs = outputs
        self.args, self.seed, self._make = tuple(args), seed, make
        self._given = tuple(values_of(one) if is_array(one) else one for one in self.args)
        self._varied = [at for at, one in enumerate(self.args) if is_array(one) and is_floating(one)]
        self._pool = [] if make else [self.drawn(index) for index in range(3)]

    def drawn(self, index: int, shapes: Sequence[tuple[int, ...]] | None = None) -> tuple[Any, ...]:
        """Return normal values of the scale and, if none of those given is negative, the sign of the given values."""
        draw, values = np.random.default_rng([self.seed, index]), list(self._given)
        for at in range(len(values)):
            given = self._given[at]
            shape = shapes[at] if shapes is not None else getattr(given, "shape", None)
            if at in self._varied:
                scale = float(np.sqrt(np.mean(np.square(given)))) if given.size else 1.0
                values[at] = draw.standard_normal(shape) * (scale if 0 < scale < np.inf else 1.0)
                if given.size and given.min() >= 0:
                    values[at] = np.abs(values[at])
            elif is_array(self.args[at]):
                values[at] = np.resize(given, () if shape is None else shape)
        return tuple(values)

    def content(self, number: int) -> tuple[Any, ...]:
        """Return the values of a timed call, none of which are those of another: a draw, rolled."""
        if self._make is not None:
            return tuple(values_of(one) if is_array(one) else one for one in self._make(self.seed + 1 + number))
        drawn = self._pool[number % len(self._pool)]
        return tuple(np.roll(one, number) if at in self._varied else one for at, one in enumerate(drawn))

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays of a call."""
        return sum(bytes_of(dtype_of(one), one.shape) for one in self.args if is_array(one))

    def rounded(self, case: Case, number: int) -> Case:
        """Return a case whose values differ by the rounding of each to its dtype."""
        values = (
            rounded(one, dtype_of(like), number) if is_array(like) and is_floating(like) else one
            for one, like in zip(case.values, self.args, strict=True)
        )
        return case._replace(values=tuple(values))

    def cases(self, shapes: Sequence[Sequence[tuple[int, ...]]] | None) -> Iterator[Case]:
        """Yield the cases, the most telling first. shapes: those of all arguments, instead of variations."""
        yield Case("the given values", self._given)
        if self._make is not None:
            yield from (Case(f"seed {self.seed + number}", self.content(number)) for number in range(1, 8))
            return
        normal = self._pool[0]
        yield Case("normal values", normal)
        yield Case("other normal values", self._pool[1])
        factor = [LARGE.get(dtype_of(one), 64.0) if is_array(one) else 1.0 for one in self.args]
        yield self._changed("large values", lambda at, one: one * factor[at])
        several: Sequence[Sequence[tuple[int, ...]]] = shapes if shapes is not None else [*self._shapes()]
        for each in several[:MOST_SHAPES]:
            by_array = iter(each)
            every = [next(by_array) if is_array(one) else () for one in self.args]
            text = ", ".join(map(str, each))
            yield Case(f"shapes {text}", self.drawn(3, every), optional=shapes is None)
        for at in self._varied:
            for what, change in KINDS.items():
                yield self._changed(f"{what} in argument {at}", partial(_each, change), at)
        yield Case("strided inputs", normal, "strided", True)

    def _changed(self, name: str, change: Callable[[int, Any], Any], only: int | None = None) -> Case:
        chosen = self._varied if only is None else [only]
        values = (change(at, one.copy()) if at in chosen else one for at, one in enumerate(self._pool[0]))
        return Case(name, tuple(values))

    def _shapes(self) -> Iterator[list[tuple[int, ...]]]:
        """Yield other shapes: dimensions of one size change together, then all have the same size, then each alone."""
        arrays = [at for at, one in enumerate(self._given) if isinstance(one, np.ndarray)]
        given = [self._given[at].shape for at in arrays]
        inputs = [number for number, at in enumerate(arrays) if at not in self._outputs]
        places = [(number, axis) for number in inputs for axis in range(len(given[number]))]
        together = {
            n: [place for place in places if given[place[0]][place[1]] == n]
            for n in dict.fromkeys(given[number][axis] for number, axis in places)
        }
        small = sum(int(np.prod(shape, dtype=np.int64)) for shape in given) <= FULL
        changes = [
            [(group, size + change) for size, group in together.items()] for change in ((1, -1) if small else (-1,))
        ]
        square = [(places, min(together))] if len(together) > 1 else []
        odd = [(group, size) for size in ODD for group in together.values()]
        alone = [([place], given[place[0]][place[1]] - 1) for place in places]
        seen = {tuple(given)}
        for group, size in itertools.chain(*changes, square, odd, alone):
            shapes = [[*shape] for shape in given]
            for at, axis in group:
                shapes[at][axis] = size
            found = tuple(map(tuple, shapes))
            if size >= 0 and found not in seen:
                seen.add(found)
                yield [*found]


def rounded(values: Any, dtype: str, number: int) -> Any:
    """Return inputs in float64, each changed by at most half a distance to the next number in a dtype; half of that of
    float32 for dtypes with fewer bits, as sums are accumulated in it."""
    draw = np.random.default_rng([number, 7])
    ulp = min(ULPS.get(dtype, 1.0), ULPS["float32"])
    return values * (1 + ulp / 2 * draw.uniform(-1, 1, values.shape))


def _each(change: Callable[[Any], Any], _: int, values: Any) -> Any:
    return change(values)


def _placed(*special: float) -> Callable[[Any], Any]:
    """Return a function that puts values at places far apart."""

    def change(values: Any) -> Any:
        flat = values.reshape(-1)
        for number, value in enumerate(special):
            if flat.size:
                flat[(number + 1) * flat.size // (len(special) + 1)] = value
        return values

    return change


def _one_hot(values: Any) -> Any:
    hot = np.zeros_like(values)
    if hot.ndim and hot.size:
        hot.reshape(-1)[:: hot.shape[-1] + 1] = 1.0
    return hot


KINDS: dict[str, Callable[[Any], Any]] = {
    "zeros": np.zeros_like,
    "one-hot rows": _one_hot,
    "a NaN": _placed(np.nan),
    "infinities": _placed(np.inf, -np.inf),
}
"""Contents of one argument, while the others are normal."""
