"""The time of a block of steps, from times of the host or of CUDA events."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from flopscope.measuring.trying.inside import Inside


@dataclass
class Event:
    """A CUDA event of a device, at a time in ms."""

    at: float
    device: int = 0

    def elapsed_time(self, other: Event) -> float:
        if self.device != other.device:
            raise RuntimeError("the events are of two devices")
        return other.at - self.at


def block_seconds(times: list[object], lasted: float, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    inside = Inside.__new__(Inside)
    inside._times = times
    return inside._block_seconds(lasted)


@pytest.mark.parametrize(
    "times, lasted, seconds",
    [
        ([0.0, 0.5], 0.6, 0.6),  # a single block
        ([0.0, 1.0, 2.0, 7.0, 8.0, 9.0], 9.0, 1.0),
        ([Event(0), Event(1000), Event(2000), Event(7000), Event(8000), Event(9000)], 9.01, 1.0),
        ([Event(0), Event(10), Event(20), Event(30), Event(40), Event(50)], 1.0, 0.2),  # work of another stream
        ([Event(0), Event(1000), Event(2000, 1), Event(3000), Event(4000), Event(5000)], 5.0, 1.0),  # the mean
        ([0.0, 1.0, Event(2000), Event(3000), Event(4000), Event(5000)], 5.0, 1.0),
    ],
)
def test_the_median_counts_where_blocks_cover_the_time(
    times: list[object], lasted: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert block_seconds(times, lasted, monkeypatch) == pytest.approx(seconds)
