"""compare_times(): alternate timing of two calls, and whether one is faster."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, Literal

from flopscope import _core
from flopscope.measuring.arrays import returns_the_same_again
from flopscope.measuring.distribution import Word, between_steps, ratio_of
from flopscope.measuring.measurement import IMPOSSIBLE
from flopscope.measuring.measuring import is_impossible, require_numbers
from flopscope.measuring.sampling import Clock, Watch, batch_size, no_collector
from flopscope.measuring.stage import Stage, name_of, prepare, require_callable
from flopscope.support.documents import Document, Field, columns
from flopscope.support.progress import time_bar

CONFIDENCE = 0.99
HARDLY = 0.01
"""Of the time of a function that does the same: what returns the same memory in less has hardly computed it."""
GROWTH = 1.5  # of the number of rounds from one look at the interval to the next


TIMES = Document(
    "times",
    "the times of two functions, compared",
    (
        *columns("f_name$ g_name$ verdict$ ratio", verdict="on f", ratio="f's time / g's time"),
        Field("ci", "numbers", doc="99 % confidence interval of the ratio"),
        *columns("margin:share rounds#", margin="up to which times count as the same"),
        *columns("f_median g_median", "µs"),
        *columns("timing_source$ device$ impossible$ notes@", impossible='why a time is no time of the work, or ""'),
    ),
)


@dataclass(frozen=True)
class TimesCompared:
    """The ratio of the times of f and g."""

    ratio: float
    """f's time / g's time over the rounds: above 1, f takes longer."""
    ci: tuple[float, float]
    """Confidence interval of the ratio, 99 %, which holds at any number of rounds; NaN with too few."""
    verdict: Word
    """Verdict on f: "faster" or "slower" if the whole interval lies beyond the margin, "same" if it lies within, else
    "unclear"."""
    margin: float
    """Relative difference up to which times count as the same."""
    rounds: int
    """Number of rounds; each times f and g once."""
    f_median: float
    """Median time of f in µs."""
    g_median: float
    """Median time of g in µs."""
    f_name: str
    """Name of f."""
    g_name: str
    """Name of g."""
    timing_source: Literal["cupti", "event", "cpu"]
    """Who measured the times, as in Measurement."""
    device: str
    """ "cpu" or "cuda:0"."""
    notes: tuple[str, ...] = ()
    """What was unavailable, and why."""
    impossible: str = ""
    """Why a function cannot have done its work in its time; "" if nothing shows that. The verdict is then "unclear"."""
    ratios: tuple[float, ...] = field(default=(), repr=False)
    """Ratio of each round, in order."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but ``ratios`` as a document for JSON: see docs/json.md."""
        return TIMES.of(self.content())

    def content(self) -> dict[str, Any]:
        """Return all fields but ``ratios`` by their names."""
        return {name: value for name, value in asdict(self).items() if name != "ratios"}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print in IPython on a terminal."""
        printer.text(str(self))

    def __str__(self) -> str:
        statement = {
            "same": f"takes as long as {self.g_name}, within {100 * self.margin:g} %",
            "unclear": f"may or may not take as long as {self.g_name}; increase max_time",
        }.get(self.verdict, f"is {self.verdict} than {self.g_name}")
        if self.impossible:
            statement = f"cannot be compared with {self.g_name}, as {self.impossible}"
        return (
            f"{self.f_name} {statement}: {self.ratio:.4g} times its time (99 %: {self.ci[0]:.4g} to {self.ci[1]:.4g}; "
            f"medians {self.f_median:.4g} and {self.g_median:.4g} µs, {self.rounds} rounds, {self.device})"
        )


def compare_times(
    f: Callable[[], Any],
    g: Callable[[], Any],
    *,
    margin: float = 0.01,
    min_rounds: int = 20,
    min_time: float = 0.05,
    max_time: float = 3.0,
    device: str | None = None,
    cache: Literal["cold", "hot"] | None = None,
    timer: Literal["auto", "cupti", "event"] = "auto",
) -> TimesCompared:
    """Time f and g alternately in this process and return whether f is faster or slower than g.

    Each round times both and gives one ratio, so that a temporary slowdown of the machine affects both. The order is
    drawn at random for every two rounds. On a CPU times also depend on the location of the data in memory: let f and g
    use the same data. Rounds continue until the 99 % confidence interval of the ratio lies below
    1 / (1 + margin), above 1 + margin, or between the two; a result that is still open after max_time is "unclear".

    f, g: called without arguments. Their exceptions propagate.
    margin: relative difference up to which times count as the same. 0: any difference counts, and equal times stay
        unclear.
    min_rounds, min_time, max_time: minimum number of rounds, and minimum and maximum time of all rounds in seconds. A
        disturbance of some milliseconds can favour either function.
    device, cache, timer: as in flopscope.measure, for both.

    Raises ValueError, RuntimeError and TypeError as measure does; ValueError if f and g use different devices.
    """
    require_numbers(margin=margin, min_time=min_time, max_time=max_time, min_rounds=min_rounds)
    for call in (f, g):
        require_callable(call)
    stage = prepare([f, g], (), device, cache, timer)
    title = f"comparing {name_of(f)} and {name_of(g)}"
    with no_collector(), time_bar(title, max_time) as show_time, stage.recording():
        clock = stage.clock(stage.calls, stage.cold)
        stage.call_between_samples(show_time)
        stage.warm_up(clock, max_time)
        seconds = min(min_time, max_time), max_time
        pairs = stage.sampled(clock, lambda: rounds(clock, margin, max(min_rounds, 3), seconds, stage.watch))
    found = judged(stage, [name_of(f), name_of(g)], pairs, margin)
    impossible = next((why for which in (0, 1) if (why := _impossible(stage, which, found))), "")
    return replace(found, impossible=impossible, verdict="unclear") if impossible else found


def judged(stage: Stage, names: Sequence[str], pairs: Sequence[tuple[float, float]], margin: float) -> TimesCompared:
    """Return how the times of two functions compare, by those of each round in µs. stage: of both, or of the second."""
    ratios = ratios_of(pairs, stage.device.kind == "cuda")
    ratio = ratio_of(ratios, CONFIDENCE)
    medians = [median(times) for times in zip(*pairs, strict=True)]
    return TimesCompared(
        ratio=ratio.value,
        ci=(ratio.low, ratio.high),
        verdict=ratio.word(margin),
        margin=margin,
        rounds=len(ratios),
        f_median=medians[0],
        g_median=medians[1],
        f_name=names[0],
        g_name=names[1],
        timing_source=stage.source,
        device=str(stage.device),
        notes=tuple(stage.notes),
        ratios=tuple(ratios),
    )


def _impossible(stage: Stage, which: int, found: TimesCompared) -> str:
    """Return why a function cannot have done its work in its median time, or ""."""
    look, call, medians = stage.looks[which], stage.calls[which], (found.f_median, found.g_median)
    us = medians[which]
    if (peaks := stage.device.measured) is not None:
        roof = look.roof(str(stage.device), peaks.for_core())
        if is_impossible(peaks, _core.rate(roof, look.flops, look.bytes, us, stage.source)):
            return f"the time of {name_of(call)} is {IMPOSSIBLE}"
    if us < HARDLY * medians[1 - which] and returns_the_same_again(call):
        return f"{name_of(call)} takes {us / medians[1 - which]:.1g} of its time and returns the same memory again"
    return ""


def ratios_of(pairs: Sequence[tuple[float, float]], coarse: bool) -> list[float]:
    """Return f / g for each round. coarse: the times come from a clock of visible steps; see between_steps()."""
    f_times, g_times = ([pair[which] for pair in pairs] for which in (0, 1))
    if coarse:
        f_times, g_times = between_steps(f_times), between_steps(g_times, phase=0.5)
    return [f / g for f, g in zip(f_times, g_times, strict=True)]


def rounds(
    clock: Clock, margin: float, min_rounds: int, seconds: tuple[float, float], watch: Watch
) -> list[tuple[float, float]]:
    """Run rounds until the verdict is clear and return the times of f and g in µs.

    seconds: the minimum and the maximum time.
    """
    orders = _orders()
    begin, count = clock.seconds(), 1
    next_check = min_rounds
    pairs: list[tuple[float, float]] = []
    while True:
        order = [which for _ in range(count) for which in next(orders)]
        times = [sample.us for sample in clock.sample(order)]
        pairs += [(times[at + order[at]], times[at + 1 - order[at]]) for at in range(0, len(times), 2)]  # f's, g's
        watch(len(pairs))
        elapsed = clock.seconds() - begin
        if len(pairs) >= next_check and elapsed >= seconds[0]:
            next_check = int(GROWTH * len(pairs)) + 1
            if ratio_of(ratios_of(pairs, clock.coarse), CONFIDENCE).word(margin) != "unclear":
                return pairs
        if elapsed >= seconds[1] and len(pairs) >= 3:
            return pairs
        wanted = max(next_check - len(pairs), math.ceil((seconds[0] - elapsed) / max(elapsed / len(pairs), 1e-9)))
        count = batch_size(wanted, len(pairs), elapsed, seconds[1])


def _orders() -> Iterator[tuple[int, int]]:
    """Yield the order of each round: f is first in one of every two, at random, to avoid periodic interference."""
    draw = random.Random(0)
    while True:
        first = draw.randrange(2)
        yield first, 1 - first
        yield 1 - first, first
