"""The inputs of a check: other contents, shapes and layouts than those that were given, each with its name.

The given arguments are the model: their scale, their sign and their integers are kept, since what a kernel may be given
is unknown. Normal values make every element of a result depend on many; large ones show what overflows; zeros, one-hot
rows, NaN and infinities show elements that are skipped; a dimension that is one larger or smaller shows tails. Two
dimensions of one size are taken for the same dimension, so that products still fit.

A timed call has contents that no other has: normal values of one of three draws, whose elements are moved by a number
of places that is drawn each time, and one of which is replaced. That is a copy, so that it takes little time and
can be repeated exactly afterwards.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from flopscope.measuring.arrays import Guarded, bytes_of, dtype_of, flat, is_array, is_floating, rolled, values_of

ULPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ULPS |= {"complex64": ULPS["float32"], "complex128": ULPS["float64"]}
"""Distance of 1 to the next number, by dtype. """
LARGE = {"float16": 8.0}
"""Factor of large inputs by dtype, so that sums of a few thousand products stay finite; otherwise 64."""
ODD = (1, 7, 0)
"""Sizes that replace a dimension, beside one less and one more."""
MOST_SHAPES = 24
MANY, SMALL = 1 << 20, 128
"""Elements from which other inputs than normal ones are smaller, and about the largest size of a dimension then."""


class Case(NamedTuple):
    """Inputs of one call."""

    name: str
    """What is special about them, in words."""
    values: tuple[Any, ...]
    """By argument: values as arrays of NumPy, or anything else as it was given."""
    layout: str = "plain"
    optional: bool = False
    """Whether a kernel may refuse them: it was given others."""
    loaded: bool = False
    """Whether other work runs beside the call."""

    @property
    def edge(self) -> bool:
        """Whether a kernel that is wrong for them may still be right: they are empty or not contiguous."""
        return self.layout != "plain" or any(getattr(one, "size", 1) == 0 for one in self.values)

    @property
    def reshaped(self) -> bool:
        return self.name.startswith("shapes ")


class Roll(NamedTuple):
    """Contents of a pool, with the elements of some arguments rolled() by so many places."""

    draw: int
    places: int
    moved: frozenset[int]


def made(make: Callable[[int], Sequence[Any]], seed: int) -> tuple[Any, ...]:
    """Return the arguments for a seed. Raise ValueError unless they are a tuple or a list."""
    found = make(seed)
    if not isinstance(found, (tuple, list)):
        raise ValueError(f"inputs must return a tuple of arguments, not {type(found).__name__}: return (a,)")
    return tuple(found)


def shapes_of(values: Sequence[Any]) -> list[tuple[int, ...]]:
    return [one.shape for one in values if isinstance(one, np.ndarray)]


class Inputs:
    """Draws inputs like given arguments, or those of a function of a seed. outputs: arguments that are none."""

    def __init__(
        self, args: Sequence[Any], make: Callable[[int], Sequence[Any]] | None, seed: int, outputs: frozenset[int]
    ) -> None:
        self._outputs = outputs
        self.names, self.args = zip(*flat(args), strict=True)
        self.seed, self._make = seed, make
        self._given = tuple(values_of(one) if is_array(one) else one for one in self.args)
        self._shapes = shapes_of(self._given)
        arrays = frozenset(at for at, one in enumerate(self.args) if is_array(one))
        self._varied = [at for at in sorted(arrays) if is_floating(self.args[at])]
        self._moved = frozenset(self._varied) or arrays
        """Arguments whose contents differ from case to case: integers, which may be places, only if there are no other
        arrays, and then drawn from those that were given."""
        self.pool = [] if make else [self._drawn(index) for index in range(3)]
        """Contents that timed calls are given, rolled."""

    def _drawn(self, index: int, shapes: Sequence[tuple[int, ...]] | None = None) -> tuple[Any, ...]:
        """Return normal values of the scale and, if none of those given is negative, the sign of the given values."""
        draw, values = np.random.default_rng([self.seed, index]), list(self._given)
        rest = iter(self._shapes if shapes is None else shapes)
        for at, given in enumerate(self._given):
            if not is_array(self.args[at]):
                continue
            shape = next(rest)
            if at in self._varied:
                scale = float(np.sqrt(np.mean(np.square(np.abs(given))))) if given.size else 1.0
                values[at] = draw.standard_normal(shape) * (scale if 0 < scale < np.inf else 1.0)
                if np.iscomplexobj(given):
                    values[at] = values[at] + 1j * scale * draw.standard_normal(shape)
                elif given.size and given.min() >= 0:
                    values[at] = np.abs(values[at])
            else:
                values[at] = np.resize(given, shape)
                if at in self._moved and given.size:
                    values[at] = draw.choice(given.reshape(-1), values[at].shape)
        return self._held(values)

    def _held(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Return the values as the dtypes of the arguments hold them."""
        pairs = zip(values, self.args, strict=True)
        return tuple(values_of(Guarded(like, one).array) if is_array(like) else one for one, like in pairs)

    def number_of(self, count: int, draw: random.Random) -> int:
        """Return the number of the contents of a timed call: drawn, so that results of later calls cannot be computed
        before; the next seed of a function."""
        return count if self._make is not None else draw.randrange(1, 1 << 40)

    def fresh(self, number: int) -> Roll | tuple[Any, ...]:
        """Return the contents of a timed call, which are those of no other."""
        return self.content(number) if self._make is not None else Roll(number % len(self.pool), number, self._moved)

    def content(self, number: int) -> tuple[Any, ...]:
        """Return the same contents as values."""
        if self._make is not None:
            drawn = flat(made(self._make, self.seed + 1 + number))
            values = tuple(values_of(one) if is_array(one) else one for _, one in drawn)
            if shapes_of(values) != self._shapes:
                raise ValueError("inputs must return arrays of the same shapes for each seed: use shapes= for others")
            return values
        drawn = self.pool[number % len(self.pool)]
        return tuple(rolled(one, number) if at in self._moved else one for at, one in enumerate(drawn))

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays of a call, without those of outputs."""
        inputs = (one for at, one in enumerate(self.args) if is_array(one) and at not in self._outputs)
        return sum(bytes_of(dtype_of(one), one.shape) for one in inputs)

    def rounded(self, case: Case, number: int, change: Callable[[Any, str, int], Any] | None = None) -> Case:
        """Return a case whose values differ by the rounding of each to its dtype, or by another change."""
        change = change or rounded
        values = (
            change(one, dtype_of(like), number) if is_array(like) and is_floating(like) else one
            for one, like in zip(case.values, self.args, strict=True)
        )
        return case._replace(values=tuple(values))

    def cases(self, shapes: Sequence[Sequence[tuple[int, ...]]] | None) -> Iterator[Case]:
        """Yield the cases, the most telling first. shapes: those of all arguments, instead of variations."""
        yield Case("the given values", self._given)
        if self._make is not None:
            yield from (Case(f"seed {self.seed + number}", self.content(number)) for number in range(1, 8))
            return
        name = "normal values" if self._varied else "drawn values"
        yield Case(name, self.pool[0])
        few = self._shapes == self._few()  # large arrays would take long, and their size shows nothing here
        if few:
            yield Case(f"other {name}", self.pool[1])
        if self._varied:
            large = [*self.pool[0]]
            for at in self._varied:
                large[at] = large[at] * LARGE.get(dtype_of(self.args[at]), 64.0)
            yield Case("large values", self._held(large))
        several: Sequence[Sequence[tuple[int, ...]]] = shapes if shapes is not None else [*self._other_shapes()]
        for each in several[:MOST_SHAPES]:
            name = f"shapes {', '.join(map(str, each))}"
            yield Case(name, self._drawn(3, each), optional=shapes is None)
        normal = self.pool[0] if few else self._drawn(0, self._few())
        for at in self._varied:
            for what, change in KINDS.items():
                values = (*normal[:at], change(normal[at].copy()), *normal[at + 1 :])
                yield Case(f"{what} in argument {self.names[at]}", self._held(values), optional=not few)
        yield Case("strided inputs", normal, "strided", True)

    def _few(self) -> list[tuple[int, ...]]:
        """Return the given shapes or, of arrays of many elements, smaller ones: different dimensions stay different."""
        given = self._shapes
        if sum(math.prod(shape) for shape in given) <= MANY:
            return given
        sizes = {size for shape in given for size in shape}
        smaller = {size: SMALL + 16 * rank if size > SMALL else size for rank, size in enumerate(sorted(sizes))}
        return [tuple(smaller[size] for size in shape) for shape in given]

    def _other_shapes(self) -> Iterator[list[tuple[int, ...]]]:
        """Yield them: dimensions of one size change together, then all have the same size, then each alone."""
        arrays = [at for at, one in enumerate(self._given) if isinstance(one, np.ndarray)]
        given = self._few()
        inputs = [number for number, at in enumerate(arrays) if at not in self._outputs]
        places = [(number, axis) for number in inputs for axis in range(len(given[number]))]
        together = {
            n: [place for place in places if given[place[0]][place[1]] == n]
            for n in dict.fromkeys(given[number][axis] for number, axis in places)
        }
        changes = [[(group, size + change) for size, group in together.items()] for change in (1, -1)]
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
    draw = np.frombuffer(np.random.default_rng([number, 7]).bytes(values.size), np.int8).reshape(values.shape)
    ulp = min(ULPS.get(dtype, 1.0), ULPS["float32"])
    return values * (1 + ulp / 2 / 128 * draw)


def nudged(values: Any, dtype: str, number: int) -> Any:
    """Return inputs in float64 that differ by a few roundings: all larger, all smaller, each by its own part; from the
    fourth one on such that no two are equal, each of these in both orders."""
    size = 32 * min(ULPS.get(dtype, 1.0), ULPS["float32"])
    if number < 2:
        return values * (1 + (size, -size)[number])
    own = np.random.default_rng([(number + 1) // 2, 7]).uniform(-size, size, values.shape)
    if number < RELATIVE:
        return values * (1 + own)
    finite = np.abs(values[np.isfinite(values)])
    return values + (-own if number % 2 else own) * (float(np.max(finite, initial=0.0)) or 1.0)


RELATIVE, NUDGES = 3, 7
"""How many of nudged() keep equal values equal, and how many there are."""


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
