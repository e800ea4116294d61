"""The page of what was tried."""

from __future__ import annotations

import math
from typing import Any

from flopscope.measuring.trying.result import Tried
from flopscope.measuring.trying.text import EXPLAINED, HEADER, gain_text, interval_text, reasons_of, row_of
from flopscope.show.page.encode import sentence
from flopscope.show.page.page import Page
from flopscope.support.units import percent_text, plural, short_time_text


def tried_page(tried: Tried, title: str | None = None) -> Page:
    """Return the page of what was tried."""
    page = Page(title or f"Changes tried on {tried.title}", subtitle=tried.device, headline=headline_of(tried))
    page.sections["tried"] = {
        "header": list(HEADER),
        "rows": [row_of(one) for one in tried.changes],
        "effects": [{"name": one.name, "what": one.what, "effect": one.effect} for one in tried.changes],
        "explained": EXPLAINED.format(per=tried.per),
        "reasons": [sentence(f"{one.name}: {reason}") for one in tried.changes for reason in reasons_of(one)],
        "together": _together(tried),
        "lines": list(tried.lines),
        "edits": [[one.action, percent_text(one.saving), one.where or ""] for one in tried.edits],
        "notes": [sentence(note) for note in tried.notes],
    }
    return page


def headline_of(tried: Tried) -> str:
    """Return what to keep, in a sentence."""
    time = "" if math.isnan(tried.before) else f" of {short_time_text(tried.before)}"
    if not tried.kept:
        return f"None of {plural(len(tried.changes), 'change')} was measured to be faster."
    gain = "by an unclear part" if math.isnan(tried.total.value) else f"by {tried.total.gain:.1f}%"
    return f"{' and '.join(tried.kept)} shorten{'s' if len(tried.kept) == 1 else ''} a {tried.per}{time} {gain}."


def _together(tried: Tried) -> list[list[Any]]:
    rows = [[one.name, gain_text(one.ratio), interval_text(one.ratio), one.verdict] for one in tried.combined]
    if len(tried.kept) > 1:
        rows.append(["all of them", gain_text(tried.total), interval_text(tried.total), ""])
    return rows
