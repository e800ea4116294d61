"""The interval of the median, the stopping rule and the verdict on two times, with a simulated clock."""

import gc
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from flopscope.measuring.distribution import between_steps, describe, median_interval, ratio_of
from flopscope.measuring.paired import rounds
from flopscope.measuring.sampling import Rule, Sample, collect, no_collector, warm_up


class Clock:
    """A simulated Clock. ``us(which, call)`` is the time of a call, ``mhz(call)`` the clock during it."""

    coarse = False

    def __init__(
        self, us: Callable[[int, int], float], mhz: Callable[[int], float] = lambda call: math.nan, overhead: float = 0
    ) -> None:
        self.us, self.mhz, self.overhead = us, mhz, overhead
        self.now, self.calls = 0.0, 0
        self.order: list[int] = []

    def seconds(self) -> float:
        return self.now

    def _call(self, which: int) -> float:
        us = self.us(which, self.calls)
        self.calls += 1
        self.now += us / 1e6
        return us

    def run(self, which: int, count: int) -> float:
        return sum(self._call(which) for _ in range(count)) / 1e6

    def sample(self, which: Sequence[int]) -> list[Sample]:
        samples = []
        for one in which:
            self.order.append(one)
            self.now += self.overhead
            mhz = self.mhz(self.calls)
            samples.append(Sample(self._call(one), mhz))
        return samples


# Distributions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 10, 57])
def test_a_distribution_agrees_with_numpy(n: int) -> None:
    samples = np.random.default_rng(n).gamma(3, size=n)
    result = describe(samples.tolist())
    assert (result.n, result.min, result.max) == (n, samples.min(), samples.max())
    assert result.median == pytest.approx(np.median(samples)) and result.mean == pytest.approx(samples.mean())
    assert result.iqr == pytest.approx(np.subtract(*np.quantile(samples, [0.75, 0.25])))
    assert result.std == pytest.approx(samples.std(ddof=1)) if n > 1 else math.isnan(result.std)


def test_outliers_are_counted_and_not_discarded() -> None:
    result = describe([10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 50.0, 1.0])
    assert result.outliers == 2 and result.max == 50 and result.n == 8


def stepwise(true: float, noise: float, n: int, seed: int) -> list[float]:
    """Return times of ``true`` µs and some noise, measured by a clock with steps of 32 ± 1 ns."""
    generator = np.random.default_rng(seed)
    begin = generator.uniform(0, 1, n)
    end = begin + true + generator.normal(0, noise, n)
    steps = np.floor(end / 0.032) - np.floor(begin / 0.032)
    return np.round(0.032 * steps + generator.integers(-1, 2, n) / 1000, 3).tolist()


@pytest.mark.parametrize("true", [1.3, 3.072, 3.083, 3.088, 3.1, 20.01])
def test_the_median_lies_between_the_steps_of_the_clock(true: float) -> None:
    results = [describe(stepwise(true, 0.02, 300, seed), coarse=True) for seed in range(20)]
    assert all(abs(r.median - true) < 0.008 for r in results)  # a quarter of a step
    assert all(r.ci[0] <= r.median <= r.ci[1] and r.ci[1] - r.ci[0] < 0.02 for r in results)
    assert sum(r.ci[0] <= true <= r.ci[1] for r in results) >= 16


def test_samples_without_steps_are_unchanged() -> None:
    fine = np.random.default_rng(1).gamma(3, 100, size=200).round(3)
    moved = between_steps(fine.tolist())
    assert np.abs(np.array(moved) - fine).max() <= 0.032 and np.argsort(moved).tolist() == np.argsort(fine).tolist()
    assert between_steps([3.072] * 9) == [3.072] * 9
    assert between_steps([3.072] * 9 + [3.9]) == [3.072] * 9 + [3.9]  # 0.8 µs is too long for a step of the clock
    assert describe([3.072] * 8 + [3.104], coarse=True).median == 3.072  # never below the minimum


def test_steps_of_the_clock_do_not_prolong_sampling() -> None:
    samples = iter(stepwise(3.088, 0.012, 100_000, 7))  # as many above as below
    clock = Clock(lambda which, call: next(samples), overhead=1e-4)
    clock.coarse = True
    series = collect(clock, Rule(0.005, 0.0, 5.0), 3e-6)
    assert "±0.5 %" in series.stopped and len(series.times) < 300


@pytest.mark.parametrize("n", [11, 51, 301])
def test_the_interval_agrees_with_a_bootstrap(n: int) -> None:
    generator = np.random.default_rng(n)
    samples = generator.gamma(2, size=n)
    medians = np.median(samples[generator.integers(0, n, (20_000, n))], axis=1)
    for result, share in zip(median_interval(samples.tolist()), (0.025, 0.975), strict=True):
        # Of 20 000 medians, the share below a quantile is known to about 0.001.
        low, high = np.quantile(medians, [share - 0.005, share + 0.005])
        assert low <= result <= high


def test_the_interval_of_few_samples_is_their_range_and_one_has_none() -> None:
    assert median_interval([5.0, 3.0]) == (3.0, 5.0) and median_interval([5.0, 3.0, 4.0]) == (3.0, 5.0)
    assert all(map(math.isnan, (*median_interval([3.0]), *describe([3.0]).ci)))


def waves(n: int, follows: float, seed: int) -> list[float]:
    """Return an autoregressive process of order 1 around 1, with this correlation of successive samples."""
    noise, result = np.random.default_rng(seed).normal(0, math.sqrt(1 - follows**2), n), [0.0]
    for change in noise:
        result.append(follows * result[-1] + change)
    return [float(1 + 0.01 * x) for x in result[1:]]


@pytest.mark.parametrize(("n", "follows", "least"), [(1000, 0.0, 0.92), (1000, 0.9, 0.85), (2000, 0.95, 0.85)])
def test_the_interval_covers_the_median_of_correlated_samples(n: int, follows: float, least: float) -> None:
    intervals = [median_interval(waves(n, follows, seed)) for seed in range(200)]
    assert sum(low <= 1 <= high for low, high in intervals) / 200 >= least


def test_a_few_states_of_a_machine_are_few_samples() -> None:
    assert median_interval([1.0] * 100 + [2.0] * 100) == (1.0, 2.0)


# Sampling -------------------------------------------------------------------------------------------------------------


def test_a_steady_call_stops_as_soon_as_there_are_enough_samples() -> None:
    clock = Clock(lambda which, call: 100.0)
    series = collect(clock, Rule(0.005, 0.01, 1.0), 100e-6)
    assert 0.01 <= clock.now <= 0.02 and set(series.times) == {100.0} and "±0.5 %" in series.stopped


def test_a_wide_spread_takes_as_many_samples_as_the_criterion_needs() -> None:
    generator = np.random.default_rng(2)
    clock = Clock(lambda which, call: generator.normal(100, 5))
    series = collect(clock, Rule(0.005, 0.0, 100.0), 100e-6)
    # The median's standard error is 1.2533 sigma / sqrt(n); 1.96 of them are 0.5.
    expected = (1.96 * 1.2533 * 5 / 0.5) ** 2
    assert 0.5 * expected <= len(series.times) <= 4 * expected
    assert np.median(series.times) == pytest.approx(100, rel=0.01)


def test_a_drift_prolongs_sampling() -> None:
    clock = Clock(lambda which, call: max(97.0, 100.0 - 0.05 * call))
    assert len(collect(clock, Rule(0.005, 0.0059, 0.1), 100e-6).times) > 100


def test_sampling_stops_at_max_time_and_long_calls_are_sampled_up_to_three_times() -> None:
    clock = Clock(lambda which, call: 100.0 * (1 + call % 2))
    series = collect(clock, Rule(0.005, 0.0, 0.5), 150e-6)
    assert 0.5 <= clock.now < 0.6 and "max_time" in series.stopped
    assert len(collect(Clock(lambda which, call: 1e6), Rule(0.005, 0.0, 1.0), 1.0).times) == 3
    assert len(collect(Clock(lambda which, call: 1e7), Rule(0.005, 0.0, 0.5), 10.0).times) == 1, "four times max_time"


def test_throttled_samples_are_discarded_and_counted() -> None:
    clock = Clock(lambda which, call: 100.0 + 100 * (call % 4 == 0), lambda call: 900.0 if call % 4 == 0 else 1900.0)
    series = collect(clock, Rule(0.005, 0.01, 1.0), 100e-6, throttled_below=1400)
    assert set(series.times) == {100.0} and series.discarded > 0 and not series.throttled_throughout
    assert set(series.clocks) == {1900.0} and series.discarded + len(series.times) == clock.calls


def test_a_device_that_is_always_throttled_is_measured_and_an_unknown_clock_is_not_throttled() -> None:
    series = collect(Clock(lambda which, call: 100.0, lambda call: 900.0), Rule(0.005, 0.01, 1.0), 1e-4, 1400)
    assert series.throttled_throughout and series.discarded == 0 and len(series.times) >= 10
    assert collect(Clock(lambda which, call: 100.0), Rule(0.005, 0.01, 1.0), 1e-4, 1400).discarded == 0


def test_exceptions_of_the_watch_propagate() -> None:
    def watch(calls: int) -> None:
        if calls > 20:
            raise MemoryError("enough")

    with pytest.raises(MemoryError):
        collect(Clock(lambda which, call: 100.0 * (1 + call % 2)), Rule(0.0, 0.0, 10.0), 1e-4, watch=watch)
    with pytest.raises(MemoryError):
        warm_up(Clock(lambda which, call: 1000.0), 0, 1.0, 2.0, watch)


def test_warm_up_lasts_until_times_no_longer_fall_or_max_time() -> None:
    clock = Clock(lambda which, call: 1000 * max(1.0, 3.0 - call / 10))  # falls for 20 calls
    per_call = warm_up(clock, 0, min_time=0.0, max_time=10.0)
    assert clock.calls >= 20 and per_call == pytest.approx(1e-3, rel=0.1) and clock.now < 1
    clock = Clock(lambda which, call: 1e5 * 0.9**call)
    warm_up(clock, 0, min_time=0.0, max_time=0.3)
    assert 0.3 <= clock.now < 0.5


def test_the_garbage_collector_is_disabled_and_restored() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), no_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


# Comparing ------------------------------------------------------------------------------------------------------------


def compared(slower: float, seed: int, noise: float = 0.02, max_time: float = 0.5) -> str:
    """Return the verdict on f, which is slower than g by this share, on a machine with drift, bursts and noise."""
    generator = np.random.default_rng(seed)

    def us(which: int, call: int) -> float:
        burst = 3.0 if generator.random() < 0.05 else 1.0
        return 100 * (1 + slower * (which == 0)) * (1 + call / 2000) * burst * generator.lognormal(0, noise)

    pairs = rounds(Clock(us), 0.01, 20, (0.0, max_time), lambda calls: None)
    return ratio_of([one / other for one, other in pairs], 0.99).word(0.01)


@pytest.mark.parametrize(
    ("slower", "expected"), [(0.0, "same"), (0.05, "slower"), (0.1, "slower"), (-0.05, "faster"), (-0.1, "faster")]
)
def test_differences_are_detected(slower: float, expected: str) -> None:
    verdicts = [compared(slower, seed) for seed in range(40)]
    assert verdicts.count(expected) >= 38 and set(verdicts) <= {expected, "unclear"}


def test_repeated_checks_raise_no_false_alarms() -> None:
    """With an interval for one number of rounds, equal calls differed in 5 % of these trials for a margin of 0."""
    generator, alarms = random.Random(1), 0
    for _ in range(200):
        pairs = rounds(Clock(lambda which, call: generator.gauss(100, 1)), 0.0, 20, (0.0, 0.08), lambda calls: None)
        alarms += ratio_of([one / other for one, other in pairs], 0.99).word(0.0) != "unclear"
    assert alarms / 200 < 0.03


def test_a_noisy_difference_is_unclear() -> None:
    assert compared(0.02, 1, noise=0.8, max_time=0.01) == "unclear"


def test_the_order_of_rounds_is_balanced_and_not_periodic() -> None:
    clock = Clock(lambda which, call: 100.0 + 50 * (which == 0))
    pairs = rounds(clock, 0.01, 20, (0.05, 1.0), lambda calls: None)
    assert set(pairs) == {(150.0, 100.0)} and 0.05 <= clock.now < 0.06
    firsts = clock.order[::2]
    assert len(firsts) >= 100 and all(one + other == 1 for one, other in zip(firsts[::2], firsts[1::2], strict=False))
    assert len({tuple(firsts[at : at + 8]) for at in range(0, 96, 8)}) > 4
    for period in (2, 3, 4, 8):  # periods of a disturbance of the machine
        clock = Clock(lambda which, call, period=period: 100.0 + 50 * (call % period == 0))
        slow = rounds(clock, 0.01, 20, (0.05, 1.0), lambda calls: None)
        assert 0.8 < sum(f > g for f, g in slow) / sum(f < g for f, g in slow) < 1.25


def test_a_disturbance_of_milliseconds_does_not_decide() -> None:
    def us(which: int, call: int) -> float:
        return 100.0 * (1.5 if which == 0 and call < 60 else 1.0)

    for min_time, verdict in ((0.0, "slower"), (0.05, "same")):
        pairs = rounds(Clock(us), 0.01, 20, (min_time, 1.0), lambda calls: None)
        assert ratio_of([f / g for f, g in pairs], 0.99).word(0.01) == verdict
