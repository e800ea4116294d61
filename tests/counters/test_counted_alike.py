"""Kernels shorter than a sample: told by their repetition, or missing. Against simulated kernels of known traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from helpers.recorded_counters import recording

from flopscope import _core

END_NS = 1000.0
"""In which a kernel moves next to nothing, at either end."""
INTERVAL_NS = 100_000
Kernels = list[tuple[str, float, float, int]]


def play(kernels: Sequence[Kernels], seed: int, gap_ns: float = 800, varies: float = 0.02) -> _Program:
    """Return a program of streams, each of which runs its kernels (name, µs, bytes a ns, stream) one after another."""
    rng = np.random.default_rng(seed)
    program = _Program()
    for stream in kernels:
        time = 333.0
        for name, us, rate, lane in stream:
            length = 1000 * us * (1 + varies * rng.standard_normal())
            amount = 1000 * us * rate * (1 + varies * rng.standard_normal())
            program.add(name, time, length, amount, lane, rng)
            time += length + gap_ns * rng.uniform(0.5, 1.5)
    return program


class _Program:
    """Kernels, and what the memory moved in each interval."""

    def __init__(self) -> None:
        self.kernels: list[tuple[str, int, int, int]] = []
        self.active: list[tuple[float, float, float]] = []
        self.true: dict[str, float] = {}

    def add(self, name: str, start: float, length: float, amount: float, lane: int, rng: np.random.Generator) -> None:
        first, last = (END_NS + 200 * rng.standard_normal() for _ in range(2))
        self.kernels.append((name, round(start), round(length), lane))
        self.active.append((start + first, max(start + length - last, start + first + 300), amount))
        self.true[name] = self.true.get(name, 0) + amount

    def sampled(self, interval_ns: int) -> dict[str, float]:
        """Return the bytes read by row that a store of the kernels and of the samples has."""
        store = _core.Store()
        for name, start, length, lane in sorted(self.kernels, key=lambda one: one[1]):
            _core._append(store, "kernel", name, start, length, device=0, stream=lane)  # type: ignore[attr-defined]
        end = max(start + length for _, start, length, _ in self.kernels)
        edges = np.arange(0, end + 2 * interval_ns, interval_ns).astype(np.int64)
        store.add_samples(0, "dram_bytes_read", edges[:-1], edges[1:], counted(self.active, edges))
        columns, _ = store.table(False, 0, {})
        return dict(zip(columns["key"], columns["dram_bytes_read"], strict=True))

    def errors(self, interval_ns: int = INTERVAL_NS) -> dict[str, float]:
        """Return by row how far it is from the truth; NaN if it is missing."""
        return {name: value / self.true[name] - 1 for name, value in self.sampled(interval_ns).items()}


def counted(active: list[tuple[float, float, float]], edges: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return what was moved between edges, of amounts that moved evenly from a time to another."""
    start, end, amount = np.array(active).T
    until = np.array([(amount * ((edge - start) / (end - start)).clip(0, 1)).sum() for edge in edges])
    return np.diff(until)


def worst(errors: dict[str, float]) -> float:
    return max((abs(error) for error in errors.values() if not math.isnan(error)), default=0.0)


def known(errors: dict[str, float]) -> list[str]:
    return sorted(name for name, error in errors.items() if not math.isnan(error))


@pytest.mark.parametrize("seed", range(4))
def test_kernels_of_a_loop_are_told_apart(seed: int) -> None:
    loop: Kernels = [("a", 30, 3000, 7), ("b", 25, 1500, 7), ("c", 45, 3500, 7), ("d", 60, 800, 7)]
    errors = play([loop * 1200], seed).errors()
    assert {"a", "b", "c"} <= {*known(errors)} and worst(errors) < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_short_kernels_between_long_ones_are_told(seed: int) -> None:
    loop: Kernels = [("short", 25, 3000, 7), ("long", 430, 2000, 7), ("other", 20, 2500, 7), ("longer", 777, 3500, 7)]
    errors = play([loop * 150], seed).errors()
    assert known(errors) == ["long", "longer", "other", "short"] and worst(errors) < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_a_program_of_many_kernels_is_right_where_it_is_known(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layer: Kernels = [
        (f"k{i}", math.exp(rng.uniform(math.log(5), math.log(150))), rng.uniform(80, 4000), 7) for i in range(30)
    ]
    program = play([(layer[:12] * 12 + layer[12:28] * 12 + layer[28:]) * 12], seed)
    errors = program.errors()
    time = {name: sum(length for key, _, length, _ in program.kernels if key == name) for name in program.true}
    assert worst(errors) < 0.1
    assert sum(time[name] for name in known(errors)) > 0.6 * sum(time.values())
    assert len(known(program.errors(50_000))) > len(known(errors)) and worst(program.errors(50_000)) < 0.1


def test_kernels_that_the_samples_meet_at_the_same_places_are_missing() -> None:
    loop: Kernels = [("a", 9.2, 3000, 7), ("b", 14.2, 500, 7), ("c", 24.2, 1500, 7)]  # 50 µs with gaps of 0.8
    errors = play([loop * 2000], 1, varies=0.0).errors()
    assert known(errors) != ["a", "b", "c"] and worst(errors) < 0.1
    program = _Program()
    rng = np.random.default_rng(1)
    for i in range(2000):
        for at, length, name, amount in ((0, 9000, "a", 3e7), (10_000, 14_000, "b", 7e6), (25_000, 24_000, "c", 4e7)):
            program.add(name, 50_000 * i + at, length, amount, 7, rng)
    assert known(program.errors()) == [], "each sample holds two of each"


@pytest.mark.parametrize("seed", range(3))
def test_too_few_repetitions_are_missing(seed: int) -> None:
    loop: Kernels = [(f"k{i}", 20.0 + i, 400.0 * i + 100, 7) for i in range(9)]
    assert known(play([loop * 3], seed).errors()) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_that_moves_more_after_another_one_is_two(seed: int) -> None:
    """As one that finds its inputs in the L2: each has a rate of its own."""
    loop: Kernels = [("a", 30, 3000, 7), ("k", 25, 500, 7), ("b", 20, 1500, 7), ("k", 25, 2000, 7), ("c", 40, 3500, 7)]
    errors = play([loop * 1200], seed).errors()
    assert worst(errors) < 0.06 and "a" in known(errors)


@pytest.mark.parametrize("seed", range(3))
def test_rates_that_change_over_time_or_by_chance_do_no_harm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loop: Kernels = [("a", 30, 3000, 7), ("k", 25, 500, 7), ("c", 40, 3500, 7)]
    first = [one for i in range(1200) for one in (loop if i < 600 else [*loop[:1], ("k", 25, 2000, 7), *loop[2:]])]
    chance = [
        one for _ in range(1200) for one in (loop if rng.random() < 0.5 else [loop[0], ("k", 25, 2e3, 7), loop[2]])
    ]
    for kernels in (first, chance):
        assert worst(play([kernels], seed).errors()) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_streams_are_right_where_they_are_known(seed: int) -> None:
    one: Kernels = [("a", 30, 1000, 7), ("b", 25, 500, 7), ("c", 60, 1500, 7)]
    other: Kernels = [("x", 17, 800, 8), ("y", 45, 200, 8), ("z", 33, 1200, 8)]
    assert worst(play([one * 1500, other * 1700], seed).errors()) < 0.1


def test_a_kernel_that_has_its_samples_to_itself_is_counted_alone() -> None:
    program = _Program()
    rng = np.random.default_rng(0)
    program.add("once", 1_010_000, 30_000, 6e7, 7, rng)
    program.add("tiny", 2_010_000, 3_000, 1e6, 7, rng)
    program.add("at the end", 3_070_000, 29_900, 6e7, 7, rng)
    assert known(program.errors()) == ["once"] and worst(program.errors()) < 1e-6


def test_shares_are_known_within_a_tenth_or_two_points() -> None:
    loop: Kernels = [("a", 30, 70, 7), ("b", 25, 10, 7), ("c", 45, 90, 7)]
    program = play([loop * 1000], 3)
    store = _core.Store()
    for name, start, length, lane in program.kernels:
        _core._append(store, "kernel", name, start, length, device=0, stream=lane)  # type: ignore[attr-defined]
    end = max(start + length for _, start, length, _ in program.kernels)
    edges = np.arange(0, end, INTERVAL_NS).astype(np.int64)
    values = counted(program.active, edges) / INTERVAL_NS
    store.add_samples(0, "sm_active", edges[:-1], edges[1:], values)
    columns, _ = store.table(False, 0, {})
    found = dict(zip(columns["key"], columns["sm_active"], strict=True))
    for name, percent in (("a", 70), ("c", 90)):
        assert found[name] == pytest.approx(percent, rel=0.1), name
    assert math.isnan(found["b"]) or found["b"] == pytest.approx(10, abs=3)


@pytest.mark.parametrize("name", ["h200_2us.npz", "h200_5us.npz"])
def test_recorded_kernels_in_long_samples(name: str) -> None:
    """Samples of an H200, joined to 50 µs: kernels of 15 to 50 µs, of which each row has twelve."""
    fine = recording(name)
    tracks = {track: (start, end, value) for _, track, _, _, start, end, value in fine.samples()}
    start, end, value = tracks["dram_bytes_read"]
    step = round(50_000 / float(np.median(end - start)))
    columns, names, *_ = fine.events()
    store = _core.Store()
    for key, at, length in zip(columns["name"], columns["start"], columns["duration"], strict=True):
        _core._append(store, "kernel", names[key], int(at), int(length), device=0)  # type: ignore[attr-defined]
    many = len(value) // step
    joined = value[: many * step].reshape(many, step).sum(axis=1)
    starts = np.ascontiguousarray(start[: many * step : step])
    store.add_samples(0, "dram_bytes_read", starts, np.ascontiguousarray(end[step - 1 : many * step : step]), joined)
    rows, _ = store.table(False, 0, {})
    found = dict(zip(rows["key"], zip(rows["dram_bytes_read"], rows["count"], strict=True), strict=True))
    checked = 0
    for n in (1448, 2048, 2896, 4096, 8192):
        read, count = found.get(f"add{n}", (math.nan, 0))
        if not math.isnan(read):
            assert read / count == pytest.approx(8 * n * n, rel=0.05), n
            checked += 1
    assert checked >= 1
    for n in (256, 512, 768, 1024):
        assert math.isnan(found[f"add{n}"][0]), "shorter than 6 µs"
