"""Words that sentences share: lists, and what ops cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flopscope.support.units import short_time_text

__all__ = ["cost_text", "cut", "listed"]


def listed(names: Sequence[str]) -> str:
    """Return names as a list: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def cut(name: str, width: int = 60) -> str:
    """Return a name without what exceeds the width, as that of a template of C++ does."""
    return name if len(name) <= width else f"{name[: width - 1]}…"


def cost_text(time: float, host: float) -> str:
    """Return what ops take, in µs: of the device and of the host that drives it, or of a CPU program (host: NaN)."""
    if math.isnan(host):
        return short_time_text(time)
    return f"{short_time_text(time)} of the device's time and about {short_time_text(host)} of the host's"
