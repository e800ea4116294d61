"""The page of a comparison: two runs side by side, what changed, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flopscope.answers.accounting import accounting_columns, part_times
from flopscope.answers.analysis import PARTS
from flopscope.results.comparison import Change, Comparison
from flopscope.show.page import overview
from flopscope.show.page.encode import Columns, sentence
from flopscope.show.page.page import Page
from flopscope.show.page.profile import Profile, steps_text
from flopscope.support.core_facts import parts_of

MOST_ROWS = 100_000
"""Names and shapes of them that a page lists; the rest is counted."""
MOST_STEPS = 200
SHOWN = ("names", "per", "on_device", "time", "unrecorded", "slowdown_pct")
SIDE = ("flops", "bytes", "pct_roofline")


def compare_page(comparison: Comparison, title: str | None = None) -> Page:
    """Return the page of a comparison."""
    head, _, rest = " ".join(comparison.verdict[:1]).partition("; ")
    page = Page(title or " → ".join(comparison.names), headline=head, lead=rest[:1].upper() + rest[1:])
    of = "; the time of a step is the median" if comparison.per == "step" else ""
    page.subtitle = f"comparison of two runs: a is before, b is after the arrow{of}"
    page.sections["compare"] = section(comparison, page.columns)
    return page


def section(comparison: Comparison, columns: Columns) -> dict[str, Any]:
    """Return the data of the section."""
    profiles = [None if run is None else Profile(run, comparison.peaks) for run in comparison.profiles]
    return {
        **{name: getattr(comparison, name) for name in SHOWN},
        "verdict": [*map(sentence, comparison.verdict)],
        "parts": _parts(comparison),
        "steps": [None if profile is None else _steps(profile, columns) for profile in profiles],
        "total": _row(comparison.total_change),
        "changes": _changes(comparison.changes, columns),
        "overviews": [_overview(comparison, which, profile, columns) for which, profile in enumerate(profiles)],
    }


def _overview(comparison: Comparison, which: int, profile: Profile | None, columns: Columns) -> dict[str, Any] | None:
    """Return the data of a run's overview, whose texts refer to no rows: those of the page are of both runs.

    The time of a step is that of the comparison, the median, so that a run has one time in the page.
    """
    if profile is None:
        return None
    content = dict(_without_rows(overview.section(profile, columns)))
    parts, analysis = comparison.parts[which], profile.analysis
    if comparison.per == "step" and parts and content["accounting"] and profile.steps:
        found = accounting_columns(analysis)
        lengths = [(step.end - step.begin) / 1000 for step in analysis.steps]
        middle = min(range(len(lengths)), key=lambda place: abs(lengths[place] - comparison.time[which]))
        places = range(middle, len(analysis.steps) * len(analysis.devices), len(analysis.steps))
        shares = {name: math.fsum(found[name][place] for place in places) / len(places) for name in ("mfu", "mbu")}
        whole = {**content["accounting"]["whole"], "total": comparison.time[which], **parts, **shares}
        of = steps_text("median", str(profile.steps), profile.steps)
        content["accounting"] = {**content["accounting"], "whole": whole, "per": 1, **of, "devices": 1}
        content["recording"] = {**content["recording"], "unobserved": comparison.unrecorded[which]}
    return content


def _without_rows(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: -1 if key == "row" else _without_rows(value) for key, value in content.items()}
    return [_without_rows(one) for one in content] if isinstance(content, list) else content


def _parts(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the parts of the accounting that one of the runs has, with their times in both."""
    a, b = comparison.parts
    return [
        {"name": name, "label": parts_of(any(comparison.on_device))[name].label, "a": a[name], "b": b[name]}
        for name in PARTS
        if a and b and (a[name] > 0 or b[name] > 0)
    ]


def _steps(profile: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the parts of each step, means over the devices; None for a profile without steps."""
    analysis = profile.analysis
    if not analysis.has_steps or not analysis.devices:
        return None
    times = part_times(analysis).sum(axis=0, dtype=float) / (1000 * len(analysis.devices))
    shown = times[:MOST_STEPS]
    return {
        "count": len(times),
        "names": columns.texts(step.name for step in analysis.steps[:MOST_STEPS]),
        "parts": {name: columns.add(np.ascontiguousarray(shown[:, i])) for i, name in enumerate(PARTS)},
    }


def _row(change: Change) -> dict[str, float]:
    """Return the numbers of a change; those of a run that has no part in it are unknown."""
    a, b = change.a, change.b
    row = {"difference": change.time_b - change.time_a}
    row["ratio"] = change.time_a / change.time_b if a and b and change.time_b else math.nan
    for which, side in (("a", a), ("b", b)):
        known = {name: getattr(change, f"{name}_{which}") for name in ("time", "calls")}
        known |= {name: float(getattr(side, name)) for name in SIDE if side}
        row |= {f"{name}_{which}": known[name] if side else math.nan for name in ("time", "calls", *SIDE)}
    return row


def _changes(changes: Sequence[Change], columns: Columns) -> dict[str, Any]:
    """Return the changes and their parts, each part below its change."""
    rows: list[tuple[Change, int]] = []  # with the row of what it is a part of
    for change in changes:
        place = len(rows)
        rows.append((change, -1))
        rows += [(part, place) for part in change.parts]
    shown = rows[:MOST_ROWS]
    numbers = [_row(change) for change, _ in shown]
    return {
        "count": len(shown),
        "left_out": len(rows) - len(shown),
        "parent": columns.add(np.array([parent for _, parent in shown], dtype=np.int64)),
        **{name: columns.texts(getattr(change, name) for change, _ in shown) for name in ("name", "cause")},
        "why": columns.texts(sentence(change.why) for change, _ in shown),
        **{f"unit_{of}": columns.texts(getattr(getattr(one, of), "unit", None) for one, _ in shown) for of in "ab"},
        "numbers": {name: columns.numbers(one[name] for one in numbers) for name in (numbers or [{}])[0]},
    }
