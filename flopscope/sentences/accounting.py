"""The accounting as text: a sentence, and a bar for each part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.answers.analysis import PARTS, ROUNDING
from flopscope.support.units import percent_text, short_time_text

if TYPE_CHECKING:
    from flopscope.answers.counted import Hfu
    from flopscope.answers.recording import Recording

__all__ = ["accounting_lines", "cause_text"]

BAR = 10
SHARES = {"mfu": "FLOP/s", "mbu": "bandwidth"}
"""What the shares of a whole are shares of, at the peaks."""
PLAIN = {_core.idle_labels[_core.idle_causes.index(cause)] for cause in ("host", "other")}
"""Labels of causes of idleness that say no more than the name of the part."""
UNKNOWN = 0.1
"""Share of the total time. With more unmodelled work, MFU and MBU are called lower limits, and are left out if the
ideal is less than 1 %."""
WORTH = 0.005
"""Share of the total time below which a cause of idleness is not mentioned."""
LEAST = 0.0005
"""Share of the total time below which a part is left out, as it would show as 0.0%."""
MOSTLY = 0.9
"""Counted share of the work from which on the share is not mentioned."""


def cause_text(causes: Mapping[str, float], total: float) -> str:
    """Return the causes of a part's idle time, in µs by label, that are worth a mention in this time; "" for none."""
    known = {label: time for label, time in causes.items() if time > WORTH * total}
    if all(label in PLAIN for label in known):
        return ""
    return ", ".join(f"{label} {short_time_text(time)}" for label, time in known.items())


def accounting_lines(
    columns: dict[str, list[Any]],
    steps: int,
    recording: Recording,
    hfu: Hfu | None = None,
    causes: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    apart: int = 0,
    on_device: bool = True,
) -> list[str]:
    """Return the accounting of the whole as text: a sentence, and for each part that is not empty a bar and what it is.

    steps: the number in the columns, 0 for none. recording: what it cost. hfu: as it was counted. causes: of parts,
    their idle time in µs per step by the label of its cause. apart: of further steps, which are left out. on_device:
    whether the parts are those of a device.
    """
    if not columns["total"]:
        return []
    whole = {name: values[-1] for name, values in columns.items()}
    per = max(steps, 1)
    a_step = " a step" if steps else ""
    devices = len(set(columns["device"][:-1]))
    summed = f", summed over {devices} devices" if devices > 1 else ""
    means = f" (mean of {steps} of {steps + apart} steps)" if apart else ""
    head = f"{short_time_text(whole['total'] / per)}{a_step}{means}{summed}"
    partly = whole["unmodelled"] > UNKNOWN * whole["total"]
    known = {name: of for name, of in SHARES.items() if whole[name] > 0}
    shares = []
    if known and whole["ideal"] > (0.01 * whole["total"] if partly else 0):
        least = "at least " if partly else ""
        whose = "CPU" if whole["device"] == "cpu" else "device"
        head += f"; {short_time_text(whole['ideal'] / per)} at the {whose}'s limits"
        shares = [f"{name.upper()} {least}{percent_text(whole[name])} of the peak {of}" for name, of in known.items()]
    if hfu is not None and not math.isnan(hfu.percent):
        part = f" in {percent_text(100 * hfu.share)} of the work" if hfu.share < MOSTLY else ""
        shares.append(f"HFU {percent_text(hfu.percent)} (counted{part})")
    lines = [f"{head}.", *([f"{', '.join(shares)}."] if shares else [])]
    delay = recording.delay
    if delay > 0.01 * whole["total"] / per:
        left = whole["total"] / per - delay
        about, least = ("up to", "at least") if recording.is_bound else ("about", "about")
        what = f"Recording delayed it by {about} {short_time_text(delay)}"
        if left > ROUNDING * delay:
            lines.append(f"{what}: without, it takes {least} {short_time_text(left)}.")
        else:
            lines.append(f"{what}, which is all of its time: its time without recording is unknown.")
    lines.append("")
    largest = max(whole[part] for part in PARTS)
    glosses = dict(zip(PARTS, _core.part_glosses if on_device else _core.part_bare_glosses, strict=True))
    for part in PARTS:
        if whole[part] <= (0 if part == "ideal" else LEAST * whole["total"]):
            continue
        share = whole[part] / whole["total"]
        bar = "█" * round(BAR * whole[part] / largest)
        numbers = f"{short_time_text(whole[part] / per):>8}{percent_text(100 * share):>7}"
        lines.append(f"  {part:<14}{numbers}  {bar:<{BAR}}  {glosses[part]}")
        if text := cause_text(causes.get(part, {}), whole["total"] / per):
            lines.append(f"{'':16}of it: {text}")
    return lines
