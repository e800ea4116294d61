"""What the launches of a profile say about its clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flopscope.support.units import short_time_text

__all__ = ["skewed_clocks"]


def skewed_clocks(launches: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a warning for each device of a launch summary that has impossible delays."""
    counts = zip(*(launches[name] for name in ("device", "negative_delays", "launches", "delay_min")), strict=True)
    for device, negative, all_of_them, least in counts:
        if negative:
            yield (
                f"cuda:{device}: {negative:.0f} of {all_of_them:.0f} launches have a negative delay: their kernel "
                f"started before their call, by up to {short_time_text(-least)}. The clocks of host and device "
                "disagree by about that or more, and all delays, queues and late launches here are off by as much."
            )
