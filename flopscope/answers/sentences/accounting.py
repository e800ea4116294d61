"""The accounting as text: a sentence, and a bar for each part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.answers.analysis import PARTS, ROUNDING, Analysis
from flopscope.support.core_facts import parts_of
from flopscope.support.units import percent_text, short_time_text

if TYPE_CHECKING:
    from flopscope.answers.counted import Hfu

BAR = 10
SHARES = {"mfu": "FLOP/s", "mbu": "bandwidth"}
"""What the shares of a whole are shares of, at the peaks."""
CAUSED = ("host", "other")
"""Parts whose idle time has several causes."""
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


def accounting_head(analysis: Analysis, whole: Mapping[str, Any], hfu: Hfu) -> list[str]:
    """Return sentences: the time of a step, shares of the peaks, and what recording cost.

    whole: the last row of the accounting of the steps that are alike. hfu: as it was counted.
    """
    steps, apart = (len(analysis.alike), analysis.apart) if analysis.has_steps else (0, 0)
    total, ideal = (whole[name] / max(steps, 1) for name in ("total", "ideal"))
    a_step = " a step" if steps else ""
    means = f" (mean of {steps} of {steps + apart} steps)" if apart else ""
    devices = len(analysis.devices)
    summed = f", summed over {devices} devices" if devices > 1 else ""
    head = f"{short_time_text(total)}{a_step}{means}{summed}"
    partly = whole["unmodelled"] > UNKNOWN * whole["total"]
    known = {name: of for name, of in SHARES.items() if whole[name] > 0}
    shares = []
    if known and whole["ideal"] > (0.01 * whole["total"] if partly else 0):
        least = "at least " if partly else ""
        whose = "CPU" if whole["device"] == "cpu" else "device"
        head += f"; {short_time_text(ideal)} at the {whose}'s limits"
        shares = [f"{name.upper()} {least}{percent_text(whole[name])} of the peak {of}" for name, of in known.items()]
    if not math.isnan(hfu.percent):
        part = f" in {percent_text(100 * hfu.share)} of the work" if hfu.share < MOSTLY else ""
        shares.append(f"HFU {percent_text(hfu.percent)} (counted{part})")
    lines = [f"{head}.", *([f"{', '.join(shares)}."] if shares else [])]
    delay = analysis.recording.delay
    if delay > 0.01 * total:
        about, least = ("up to", "at least") if analysis.recording.is_bound else ("about", "about")
        without = ", which is all of its time: its time without recording is unknown."
        if total - delay > ROUNDING * delay:
            without = f": without, it takes {least} {short_time_text(total - delay)}."
        lines.append(f"Recording delayed it by {about} {short_time_text(delay)}{without}")
    return lines


def accounting_bars(analysis: Analysis, whole: Mapping[str, Any]) -> Iterator[str]:
    """Yield for each part that is not empty a bar and what it is. whole: as for accounting_head()."""
    largest, steps = max(whole[part] for part in PARTS), max(len(analysis.alike), 1) if analysis.has_steps else 1
    for part, row in parts_of(analysis.on_device).items():
        if whole[part] <= (0 if part == "ideal" else LEAST * whole["total"]):
            continue
        bar = "█" * round(BAR * whole[part] / largest)
        share = percent_text(100 * (whole[part] / whole["total"]))
        yield f"{part:<14}{short_time_text(whole[part] / steps):>8}{share:>7}  {bar:<{BAR}}  {row.gloss}"
        if part in CAUSED and (text := cause_text(analysis.causes_of(part), whole["total"] / steps)):
            yield f"{'':14}of it: {text}"
