"""What the launches of a profile say about its clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.support.units import short_time_text

if TYPE_CHECKING:
    from flopscope._core import Store

__all__ = ["skewed_clocks"]


def skewed_clocks(core: Store, launches: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield a warning for each device of a launch summary of a store that has impossible delays."""
    counts = zip(*(launches[name] for name in ("device", "negative_delays", "launches", "delay_min")), strict=True)
    for device, negative, all_of_them, least in counts:
        if negative:
            yield (
                f"{core.device_name(device)}: {negative:.0f} of {all_of_them:.0f} launches have a negative delay: "
                f"their kernel started before their call, by up to {short_time_text(-least)}. The clocks of host and "
                "device disagree by about that or more, and all delays, queues and late launches here are off by as "
                "much."
            )
