"""A profile or a trace as the sections of a page see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope._core import Store
from flopscope.answers.accounting import accounting_columns
from flopscope.answers.analysis import Analysis, analysis_of
from flopscope.answers.counted import Counted
from flopscope.answers.lines import Lines, lines_of
from flopscope.results.results import Results, grouped, store_of
from flopscope.results.table import EventTable, table_of
from flopscope.results.table_facts import Grouped
from flopscope.show.advice import AdviceTable, advise
from flopscope.show.page.rows import identities, places_of_largest

MOST_ROWS = 50_000
"""By name and shape in a page."""


class Profile:
    """A profile as the sections see it: each result is computed once.

    results: the profile or trace. core: its events. peaks: as in key_averages(); None for the profile's own default.
    blocks: of the timeline, at most; 0 for a profile that is not drawn.
    """

    def __init__(self, results: Results, peaks: str | None = None, blocks: int = 0) -> None:
        self.results, self.peaks, self._blocks = results, peaks, blocks
        self.core: Store = store_of(results, "report")
        self._tables: dict[tuple[str, ...], EventTable | None] = {}

    @cached_property
    def shaped(self) -> Grouped:
        """The events by name and shape with the accounting and what is drawn, all of one pass."""
        return grouped(self.results, self.core, self.peaks, account=True, blocks=self._blocks)

    @cached_property
    def analysis(self) -> Analysis:
        """What accounting and advice are computed from."""
        if not self._blocks:  # of a comparison, which has computed it
            return analysis_of(self.results, "report", self.peaks)
        exact = self.shaped.columns | self.shaped.accounting["totals"]
        return Analysis(self.core, replace(self.shaped, columns=exact), self.results.graphs)

    @cached_property
    def accounting(self) -> dict[str, list[Any]]:
        """The columns of accounting()."""
        return accounting_columns(self.analysis)

    @cached_property
    def means(self) -> tuple[dict[str, Any], int]:
        """The last row of the accounting, without the first steps that are unlike the others; and the number of steps
        to divide it by, at least 1."""
        columns = accounting_columns(self.analysis, alike=True)
        alike = len(self.analysis.alike) if self.steps else 1
        return {name: values[-1] for name, values in columns.items()}, alike

    @property
    def mean_text(self) -> dict[str, str]:
        """The number of steps behind ``means``; see steps_text()."""
        if (bare := self.analysis.bare) is not None:
            return steps_text("median", f"{bare.bare_steps:,} unrecorded", bare.bare_steps)
        (_, alike), steps = self.means, self.steps
        return steps_text("mean", f"{alike} of {steps}" if alike < steps else str(steps), steps)

    @property
    def steps(self) -> int:
        """Number of steps; 0 without any."""
        return len(self.analysis.steps) if self.analysis.has_steps else 0

    @cached_property
    def advice(self) -> AdviceTable:
        """What to change."""
        return advise(self.analysis)

    @cached_property
    def counted(self) -> Counted:
        """What hardware counters counted."""
        return Counted(self.core)

    @cached_property
    def streams(self) -> dict[str, list[Any]]:
        """The columns of stream_summary()."""
        return self.core.stream_summary()

    @cached_property
    def lines(self) -> Lines:
        """Where the program was, by line."""
        return lines_of(self.core, self.analysis.apart if self.core.event_count else 0)

    @property
    def has_lines_alone(self) -> bool:
        """Whether stacks were sampled, and nothing else was recorded."""
        return not self.core.event_count and bool(self.lines.lines)

    def take(self, what: str) -> Mapping[str, Any] | None:
        """Return what is drawn of "timeline" or "memory", and forget it; None if there is nothing to draw."""
        drawn: Mapping[str, Any] | None = self.shaped.drawn.pop(what, None)
        return drawn

    @cached_property
    def names(self) -> EventTable:
        """The table by name and device, with the kernels of each row and its category."""
        found = grouped(self.results, self.core, self.peaks, by_shape=False)
        if len(set(identities(found.columns))) < len(found.columns["key"]):  # an op and a call of one name
            return self.results.key_averages(peaks=self.peaks, kernels=True)
        places, launched = self._name_of(found.columns), self.shaped.accounting["launched"]
        return table_of(found, {**launched, **{name: places[launched[name]] for name in ("row", "kernel")}})

    def _name_of(self, names: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Return for each row by name and shape its row by name."""
        place = {identity: row for row, identity in enumerate(identities(names))}
        return np.array([place[one] for one in identities(self.shaped.columns)], dtype=np.int64)

    @cached_property
    def has_shape_rows(self) -> bool:
        """Whether the rows of the page are separated by shape: there are shapes, and no more than MOST_ROWS rows."""
        return self._has_shapes and len(self.shaped.columns["key"]) <= MOST_ROWS

    @property
    def _has_shapes(self) -> bool:
        return self.core.has_shapes and self.results.record_shapes

    @cached_property
    def rows(self) -> EventTable:
        """The finest table of the page, by name, device and shapes, with the kernels and the category of each row.

        The index of a row in it identifies the row everywhere in the page. Without rows by shape it has those names
        that Ops lists.
        """
        if self.has_shape_rows:
            return table_of(self.shaped, self.shaped.accounting["launched"])
        return self.names if self._names_kept is None else self.names.select(self._names_kept)

    @cached_property
    def _names_kept(self) -> list[int] | None:
        return places_of_largest(self.names)

    @cached_property
    def row_of(self) -> npt.NDArray[np.int64] | None:
        """The row of the page for each row of ``shaped``, -1 for none; None if they are the same."""
        if self.has_shape_rows:
            return None
        places = np.arange(len(self.names))
        if self._names_kept is not None:
            places[:] = -1
            places[self._names_kept] = np.arange(len(self._names_kept))
        return places[self._name_of(self.names.columns)]

    @property
    def rows_left_out(self) -> int:
        """Number of rows by name and shape, if they are too many for the page; else 0."""
        return len(self.shaped.columns["key"]) if self._has_shapes and not self.has_shape_rows else 0

    def table(self, words: Iterable[str]) -> EventTable | None:
        """Return the table grouped by these words of key_averages(), or None if what they need was not recorded."""
        key = tuple(words)
        if key not in self._tables:
            try:
                self._tables[key] = self.results.key_averages(group_by=key, peaks=self.peaks)
            except ValueError:
                self._tables[key] = None
        return self._tables[key]


def steps_text(what: str, counted: str, steps: int) -> dict[str, str]:
    """Return which steps a time is of, "of" in a sentence and "of_short" beside the word step; "" without steps."""
    if steps < 2:
        return dict.fromkeys(("of", "of_short"), "the only one" if steps else "")
    return {"of": f"{what} of {counted} steps", "of_short": f"{what} of {counted}"}
