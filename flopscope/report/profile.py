"""The page of a profile or a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flopscope.report import launches, memory, ops, overview, roofline, timeline
from flopscope.report.encode import Columns
from flopscope.report.page import Page
from flopscope.report.rows import encode_table

if TYPE_CHECKING:
    from flopscope._core import Store
    from flopscope.answers.analysis import Analysis
    from flopscope.results.results import Results
    from flopscope.results.table import EventTable

__all__ = ["Profile", "profile_page"]


class Profile:
    """A profile as the sections see it: each result is computed once.

    results: the profile or trace. core: its events. peaks: as in key_averages(); None for the profile's own default.
    """

    def __init__(self, results: Results, peaks: str | None = None) -> None:
        self.results, self.peaks = results, peaks
        self.core: Store = results._recorded("report")
        self._tables: dict[tuple[str, ...], EventTable | None] = {}

    @cached_property
    def analysis(self) -> Analysis:
        """What accounting and advice are computed from."""
        return self.results._analysis("report", self.peaks)

    @cached_property
    def names(self) -> EventTable:
        """The table by name and device, with the kernels of each row and its category."""
        return self.results.key_averages(group_by=("name", "category"), peaks=self.peaks, kernels=True)

    @property
    def has_shape_rows(self) -> bool:
        """Whether the rows of the page are separated by shape."""
        return self.rows is not self.names

    @cached_property
    def rows(self) -> EventTable:
        """The finest table of the page, by name, device and shapes, with the kernels and the category of each row.

        The index of a row in it identifies the row everywhere in the page. Profiles without shapes have names alone.
        """
        names = self.names  # raises what is wrong
        try:
            return self.results.key_averages(group_by=("name", "shape", "category"), peaks=self.peaks, kernels=True)
        except ValueError:
            return names

    def table(self, words: Iterable[str]) -> EventTable | None:
        """Return the table grouped by these words of key_averages(), or None if what they need was not recorded."""
        key = tuple(words)
        if key not in self._tables:
            try:
                self._tables[key] = self.results.key_averages(group_by=key, peaks=self.peaks)
            except ValueError:
                self._tables[key] = None
        return self._tables[key]


SECTIONS: dict[str, Callable[[Profile, Columns], dict[str, Any] | None]] = {
    "overview": overview.section,
    "ops": ops.section,
    "launches": launches.section,
    "roofline": roofline.section,
    "timeline": timeline.section,
    "memory": memory.section,
}
"""What makes the data of each section of a profile's page; None where there is nothing to show."""


def profile_page(results: Results, *, peaks: str | None = None, title: str | None = None) -> Page:
    """Return the page of a profile. Raise RuntimeError during recording and if nothing was recorded."""
    source = Profile(results, peaks)
    page = Page(title or overview.title_of(source))
    try:
        page.rows = encode_table(source.rows, page.columns)
        for name, section in SECTIONS.items():
            content = section(source, page.columns)
            if content is not None:
                page.sections[name] = content
        page.subtitle, page.headline = overview.subtitle_of(source), overview.headline_of(source)
    except BaseException:
        page.columns.close()
        raise
    return page
