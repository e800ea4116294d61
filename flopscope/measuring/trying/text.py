"""What was tried, as text: a table, why, and what to write into the program."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

from flopscope.measuring.trying.losses import USELESS
from flopscope.measuring.trying.pairs import FEWEST, Ratio
from flopscope.measuring.trying.result import Change, Tried
from flopscope.support.columns import Rows
from flopscope.support.safe import printable
from flopscope.support.units import MISSING, bytes_text, percent_text, plural, short_time_text

HEADER = ("change", "predicted", "measured", "interval", "memory", "parity", "verdict")
WIDTH = 100
TOO_WIDE = 200.0
"""Percent between the ends of an interval above which they are not shown."""
SAME_CLOCK = 0.03
"""Relative difference of clocks that is worth a line."""
SAME_MEMORY = 0.01
LATER = 1.0, 1.2
"""Seconds, and times the start without a change, from which a longer start is worth a line."""


def text_of(tried: Tried, width: int = WIDTH) -> str:
    """Return the text of what was tried, of lines of at most ``width`` characters where words allow it."""
    lines = [_heading(tried)]
    rows = [[HEADER[0], *HEADER[1:]], *(row_of(one) for one in tried.changes)]
    if not tried.changes:
        lines += ["", *_wrapped(NOTHING, width)]
    else:
        lines += ["", *Rows(rows).lines(width), "", *_wrapped(EXPLAINED.format(per=tried.per), width)]
    for one in tried.changes:
        for reason in reasons_of(one):
            lines += _wrapped(f"{one.name}: {reason}", width)
    lines += _together(tried, width)
    if tried.lines:
        lines += ["", "Write into the program:", *(f"    {line}" for line in tried.lines)]
    if tried.edits:
        lines += ["", "Advice that needs an edit, with its estimate:"]
        for edit in tried.edits:
            at = f", at {printable(edit.where)}" if edit.where else ""
            lines += _wrapped(f"  {printable(edit.action)}: {percent_text(edit.saving)}{at}", width)
    lines += [""] if tried.notes else []
    lines += [line for note in tried.notes for line in _wrapped(printable(note), width)]
    return "\n".join(lines) + "\n"


NOTHING = (
    "Nothing was tried: no change that can be switched on is shown by the advice or the program. --all tries all that "
    "apply, --list names them."
)
EXPLAINED = (
    "predicted and measured: percent of the {per}'s time that the change saves; the 99 % interval is of the measured "
    "one. parity: largest relative difference of the first results, beside that among unchanged runs."
)


def _heading(tried: Tried) -> str:
    time = f"{short_time_text(tried.before)} a {tried.per}" if not math.isnan(tried.before) else "not timed"
    spent = f"{plural(tried.runs, 'run')} in {tried.seconds:.0f} s" if tried.runs else "in this process"
    device = f", on {printable(tried.device)}" if tried.device else ""
    return f"{printable(tried.title)}: {time} without changes; {spent}{device}"


def row_of(one: Change) -> list[str]:
    """Return the cells of a change."""
    verdict = one.verdict
    return [
        one.name,
        percent_text(one.predicted),
        gain_text(one.ratio),
        interval_text(one.ratio),
        memory_text(one.memory),
        parity_text(one),
        verdict,
    ]


def gain_text(ratio: Ratio) -> str:
    """Return the saving in percent, with its sign."""
    return MISSING if math.isnan(ratio.value) else f"{ratio.gain:+.1f}%"


def interval_text(ratio: Ratio) -> str:
    """Return the interval of the saving in percent."""
    known = ratio.pairs >= FEWEST and not math.isnan(ratio.low)
    return span_text(100 * (1 - ratio.high), 100 * (1 - ratio.low)) if known else MISSING


def span_text(low: float, high: float) -> str:
    """Return the ends of an interval in percent, unless it is so wide that they say nothing."""
    return f"{low:.1f} to {high:.1f}" if high - low <= TOO_WIDE else MISSING


def memory_text(memory: tuple[float, float]) -> str:
    """Return the peak memory with a change beside that without; once if they are alike."""
    before, after = memory
    if math.isnan(before) or math.isnan(after):
        return MISSING
    if abs(after - before) <= SAME_MEMORY * before:
        return bytes_text(after)
    number, unit = bytes_text(before).split()
    other = bytes_text(after)
    return f"{number if other.endswith(unit) else bytes_text(before)} -> {other}"


def parity_text(one: Change) -> str:
    """Return the difference of results, beside that of unchanged runs."""
    parity = one.parity
    if not parity.values:
        return "not compared"
    own = MISSING if math.isnan(parity.own) else f"{parity.own:.0e}" if parity.own else "0"
    return f"{parity.difference:.0e} ({own})" if parity.difference else f"0 ({own})"


def reasons_of(one: Change) -> Iterator[str]:
    """Yield what a reader must know besides the numbers."""
    verdict = one.verdict
    if verdict == "failed":
        yield printable(one.problem)
    if verdict == "not applied":
        yield "it found nothing to change in the program"
    if verdict == "changes results":
        yield (
            f"the first {plural(one.parity.values, one.parity.of.removesuffix('s'))} differ by "
            f"{one.parity.difference:.2g} of their size, and {one.parity.tolerance:g} is allowed. It may change: "
            f"{one.effect}"
        )
    if one.parity.values and one.parity.own > USELESS:
        yield (
            f"results cannot be compared: those of unchanged runs differ by {one.parity.own:.2g} of their size, though "
            "random generators begin alike"
        )
    if verdict == "faster" and one.effect:
        yield f"it may change: {one.effect}"
    soon, late = one.start
    if late > max(soon + LATER[0], LATER[1] * soon):
        yield f"the first measured step begins {late - soon:.1f} s later"
    before, after = one.clocks
    if abs(after - before) > SAME_CLOCK * before:
        yield f"the GPU's clock was {before:.0f} MHz without it and {after:.0f} MHz with it"
    yield from one.notes


def _together(tried: Tried, width: int) -> Iterator[str]:
    if not tried.combined and len(tried.kept) < 2:
        return
    yield ""
    yield f"Together, on top of {tried.kept[0]}:"
    for one in tried.combined:
        gain = f"{gain_text(one.ratio)} ({interval_text(one.ratio)})" if one.ratio.pairs else "not measured"
        yield f"  {one.name}: {gain}, {one.verdict}"
    known = not math.isnan(tried.total.value)
    total = f"{gain_text(tried.total)} ({interval_text(tried.total)})" if known else "unclear"
    yield from _wrapped(f"Total of {', '.join(tried.kept)}: {total}", width)


def _wrapped(text: str, width: int) -> Sequence[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
