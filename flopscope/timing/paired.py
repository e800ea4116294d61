"""compare_times(): two calls in turns, and whether one is faster."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from flopscope.support.progress import time_bar
from flopscope.timing.distribution import between_steps, median, median_interval
from flopscope.timing.measurement import plain
from flopscope.timing.measuring import WARM_UP_SECONDS, WARM_UP_SHARE, _check
from flopscope.timing.sampling import LONGEST_BATCH, Clock, Watch, no_collector, warm_up
from flopscope.timing.stage import name_of, prepare, require_callable

__all__ = ["TimesCompared", "compare_times"]

Verdict = Literal["faster", "slower", "same", "unclear"]

CONFIDENCE = 0.99
GROWTH = 1.5  # of the number of rounds from one look to the next


@dataclass(frozen=True)
class TimesCompared:
    """The time of f over that of g."""

    ratio: float
    """Median of f's time / g's time of each round: above 1, f takes longer."""
    ci: tuple[float, float]
    """Bootstrap confidence interval of the ratio, 99 %."""
    verdict: Verdict
    """Of f: "faster" or "slower" where all of the interval is beyond the margin, "same" where all is within it."""
    margin: float
    """The share by which times may differ and still be the same."""
    rounds: int
    """In which f and g were timed one after the other."""
    f_median: float
    """µs"""
    g_median: float
    """µs"""
    f_name: str
    g_name: str
    timing_source: Literal["cupti", "event", "cpu"]
    device: str
    notes: tuple[str, ...] = ()
    ratios: tuple[float, ...] = field(default=(), repr=False)
    """Of each round, in order."""

    def to_dict(self) -> dict[str, Any]:
        """All of it but the single ratios, ready for JSON."""
        content = asdict(self)
        del content["ratios"]
        return {name: plain(value) for name, value in content.items()}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """IPython's, on a terminal."""
        printer.text(str(self))

    def __str__(self) -> str:
        said = {
            "same": f"takes as long as {self.g_name}, to {100 * self.margin:g} %",
            "unclear": f"may or may not take as long as {self.g_name}: measure for longer",
        }.get(self.verdict, f"is {self.verdict} than {self.g_name}")
        return (
            f"{self.f_name} {said}: {self.ratio:.4g} times its time (99 %: {self.ci[0]:.4g} to {self.ci[1]:.4g}; "
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
    """Time f and g in turns, in this process, and say whether f is faster or slower than g.

    Each round times both, in an order that is drawn for every two rounds, and gives one ratio: what slows the machine
    down for a while slows both. On a CPU it matters also where their data lie: let them use the same. Rounds go on
    until the 99 % confidence interval of the median ratio lies on one side of 1 / (1 + margin) or of 1 + margin, or
    between them; what max_time seconds do not settle is "unclear".

    f, g: called without arguments. What they raise passes.
    margin: the share by which times may differ and still be called the same. 0: any difference counts, and equal times
        stay unclear.
    min_rounds, min_time, max_time: rounds and seconds of them, at least and at most. What disturbs a machine for some
        milliseconds may well favour one of two.
    device, cache, timer: as in flopscope.measure, for both.

    Raises ValueError and RuntimeError as measure does; ValueError where f and g work on different devices.
    """
    _check(margin=margin, min_time=min_time, max_time=max_time, min_rounds=min_rounds)
    for call in (f, g):
        require_callable(call)
    stage = prepare([f, g], (), device, cache, timer)
    kind = stage.device.kind
    title = f"comparing {name_of(f)} and {name_of(g)}"
    with no_collector(), time_bar(title, max_time) as look_up, stage.recording():
        clock = stage.clock([f, g], stage.cold)
        stage.call_between_samples(look_up)
        least, most = min(WARM_UP_SECONDS[kind], max_time), WARM_UP_SHARE * max_time / 2
        per_call = [warm_up(clock, which, least, most, stage.watch) for which in (0, 1)]
        if kind == "cpu":
            clock.settle(per_call)
        fewest, seconds = max(min_rounds, 3), (min(min_time, max_time), max_time)
        pairs = stage.sampled(clock, lambda: rounds(clock, margin, fewest, seconds, stage.watch))
    ratios = ratios_of(pairs, clock.coarse)
    low, high = median_interval(ratios, CONFIDENCE)
    return TimesCompared(
        ratio=median(ratios),
        ci=(low, high),
        verdict=verdict_of(low, high, margin),
        margin=margin,
        rounds=len(ratios),
        f_median=median([one for one, _ in pairs]),
        g_median=median([other for _, other in pairs]),
        f_name=name_of(f),
        g_name=name_of(g),
        timing_source=stage.source,
        device=str(stage.device),
        notes=tuple(stage.notes),
        ratios=tuple(ratios),
    )


def verdict_of(low: float, high: float, margin: float) -> Verdict:
    """What a confidence interval of the ratio says of f."""
    if low > 1 + margin:
        return "slower"
    if high < 1 / (1 + margin):  # f over g and g over f are judged alike
        return "faster"
    return "same" if low >= 1 / (1 + margin) and high <= 1 + margin and margin > 0 else "unclear"


def ratios_of(pairs: Sequence[tuple[float, float]], coarse: bool) -> list[float]:
    """f over g of each round. coarse: by a clock whose steps show, as between_steps() takes them apart."""
    ours, others = ([pair[which] for pair in pairs] for which in (0, 1))
    if coarse:
        ours, others = between_steps(ours), between_steps(others, phase=0.5)
    return [one / other for one, other in zip(ours, others, strict=True)]


def rounds(
    clock: Clock, margin: float, least: int, seconds: tuple[float, float], watch: Watch
) -> list[tuple[float, float]]:
    """Times of f and g, in µs, of as many rounds as it takes; least: of them, and ``seconds`` at least and at most."""
    orders = _orders()
    begin, count = clock.seconds(), 1
    look_at, looks = least, 0
    pairs: list[tuple[float, float]] = []
    while True:
        order = [which for _ in range(count) for which in next(orders)]
        times = [sample.us for sample in clock.sample(order)]
        pairs += [_in_order(order[at], times[at : at + 2]) for at in range(0, len(times), 2)]
        watch(len(pairs))
        elapsed = clock.seconds() - begin
        if len(pairs) >= look_at and elapsed >= seconds[0]:
            look_at, looks = int(GROWTH * len(pairs)) + 1, looks + 1
            interval = median_interval(ratios_of(pairs, clock.coarse), _confidence_of_look(looks))
            if verdict_of(*interval, margin) != "unclear":
                return pairs
        if elapsed >= seconds[1] and len(pairs) >= 3:
            return pairs
        wanted = max(look_at - len(pairs), math.ceil((seconds[0] - elapsed) / max(elapsed / len(pairs), 1e-9)))
        left = min(max(seconds[1] - elapsed, 0.0), LONGEST_BATCH)
        count = max(1, min(wanted, int(left / max(elapsed / len(pairs), 1e-9))))


def _orders() -> Iterator[tuple[int, int]]:
    """Of rounds: f first in one of every two, drawn so that nothing that comes and goes keeps step with it."""
    draw = random.Random(0)
    while True:
        first = draw.randrange(2)
        yield first, 1 - first
        yield 1 - first, first


def _confidence_of_look(number: int) -> float:
    """Of the looks 1, 2, 3, …, which end the rounds once they see enough: all together err as often as a single one.

    Their shares of the error fall with the square of the number, and the sum of those is pi^2 / 6.
    """
    return 1 - (1 - CONFIDENCE) * 6 / (math.pi * number) ** 2


def _in_order(first: int, times: Sequence[float]) -> tuple[float, float]:
    return (times[0], times[1]) if first == 0 else (times[1], times[0])
