"""Sentences about what takes the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flopscope.support.units import flop_rate_text, percent_text, rate_text, short_time_text

MISSING = {
    "communication": "communication is limited by other ranks and the link",
    "copy": "copies are limited by the link to the host",
    "peaks": "a peak that limits it is unknown",
    "op": "the work is unknown: no op that launched it was recorded",
    "rule": "the work is unknown: no rule gives it",
    "arguments": "the work is unknown: its arguments do not give it",
    "shapes": "the work is unknown: no shapes were recorded",
}
"""Why a limit is unknown, by what is missing."""


def unknown_limits(missing: Mapping[str, str], of: int) -> list[str]:
    """Return why the limits of these of so many names are unknown, as a line; [] if they are known. missing: the key of
    MISSING by name."""
    names: dict[str, list[str]] = {}
    for name, key in missing.items():
        names.setdefault(MISSING[key], []).append(name)
    if len(names) == 1 and len(missing) == of:
        return [f"  --: {next(iter(names))}"]
    return ["  --: " + "; ".join(f"{', '.join(some)}: {why}" for why, some in names.items())] if names else []


def rate(tflops_per_s: float, gbytes_per_s: float, computes: bool) -> str:
    """Return the rate of what limits an op; that of the other where it is unknown."""
    if not math.isnan(tflops_per_s) and (computes or math.isnan(gbytes_per_s)):
        return flop_rate_text(tflops_per_s)
    return rate_text(gbytes_per_s, "GB/s")


def exposed(time: float, share: float, collective: str | None, bus: float, per: str) -> str:
    """Communication during which nothing computes. time: µs. share: percent. bus: GB/s of the kind with the most."""
    at = "" if math.isnan(bus) else f" at a bus bandwidth of {rate_text(bus, 'GB/s')} (median, with waits)"
    most = f", most of it {collective}{at}" if collective else ""
    of = f"{percent_text(share)} of the time, {short_time_text(time)} {per}"
    return f"Communication that no computation hides takes {of}{most}."


def phases(times: Sequence[tuple[str, float, float]], on_device: bool, per: str) -> str:
    """Phases with µs of the host and of the devices, in their order."""
    both = [(name, short_time_text(host), f", {short_time_text(device)}" * on_device) for name, host, device in times]
    return f"Phases ({'host, device, ' * on_device}{per}): {'; '.join(f'{name} {a}{b}' for name, a, b in both)}."
