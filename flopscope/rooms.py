"""What records ask of the rooms above them, each room imported on first use.

The methods of tables, profiles, comparisons and measurements that judge or show them call these functions by
flopscope.support.upward; their docstrings say what they return.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import Any

    import pandas

    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.sweep import Sweep
    from flopscope.results.comparison import Comparison
    from flopscope.results.modules import ModuleTable
    from flopscope.results.results import Results
    from flopscope.results.table import EventTable
    from flopscope.show.advice import AdviceTable
    from flopscope.show.summary import Summary

    Path = str | PathLike[str]

# Profiles -------------------------------------------------------------------------------------------------------------


def accounting(results: Results, peaks: str | None, window: tuple[float, float] | None) -> pandas.DataFrame:
    from flopscope.answers.accounting import accounting_frame
    from flopscope.answers.analysis import analysis_of

    return accounting_frame(analysis_of(results, "accounting", peaks, window))


def advice(results: Results, peaks: str | None) -> AdviceTable:
    from flopscope.answers.analysis import analysis_of
    from flopscope.show.advice import advise

    return advise(analysis_of(results, "advice", peaks))


def lines(results: Results) -> pandas.DataFrame:
    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.lines import lines_frame, lines_of
    from flopscope.results.results import store_of

    core = store_of(results, "lines")
    return lines_frame(lines_of(core, analysis_of(results, "lines", "none").apart if core.event_count else 0))


def what_if(results: Results, *, device: str | None, **change: Any) -> pandas.DataFrame:
    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.what_if import what_if_frame

    analysis = analysis_of(results, "accounting", None if device is None else "datasheet")
    return what_if_frame(analysis, device=device, **change)


def summary(results: Results, peaks: str | None) -> Summary:
    from flopscope.show.summarize import summarize

    return summarize(results, peaks)


def overview_html(results: Results) -> str:
    from flopscope.show.summarize import overview_html

    return overview_html(results)


def plot_accounting(results: Results, ax: Any, peaks: str | None) -> Any:
    from flopscope.show.plots import plot_accounting

    return plot_accounting(results, ax, peaks)


def write_profile(results: Results, path: Path, peaks: str | None, title: str | None) -> None:
    from flopscope.show.page.page import write
    from flopscope.show.page.profile import profile_page

    write(path, profile_page(results, peaks=peaks, title=title))


# Tables ---------------------------------------------------------------------------------------------------------------


def sort_key(name: object, attributes: Sequence[str]) -> str:
    from flopscope.show.columns import sort_key

    return sort_key(name, attributes)


def table_text(table: EventTable, **options: Any) -> str:
    from flopscope.show.text import render

    return render(table, **options)


def fitted_text(table: EventTable, **options: Any) -> str:
    from flopscope.show.fitted import render

    return render(table, **options)


def tree_text(table: ModuleTable, time_unit: str | None) -> str:
    from flopscope.show.tree import render

    return render(table, time_unit)


def table_html(table: EventTable) -> str:
    from flopscope.show.html import render

    return render(table)


# Comparisons ----------------------------------------------------------------------------------------------------------


def comparison_text(comparison: Comparison, row_limit: int, width: int | None, wide: bool) -> str:
    from flopscope.show.comparison import text

    return text(comparison, row_limit, width, wide)


def comparison_html(comparison: Comparison) -> str:
    from flopscope.show.comparison import html

    return html(comparison)


def write_comparison(comparison: Comparison, path: Path, title: str | None) -> None:
    from flopscope.show.page.compare import compare_page
    from flopscope.show.page.page import write

    write(path, compare_page(comparison, title))


# Measurements ---------------------------------------------------------------------------------------------------------


def measurement_html(measurement: Measurement) -> str:
    from flopscope.show.measurements import measurement_html

    return measurement_html(measurement)


def sweep_text(sweep: Sweep) -> str:
    from flopscope.show.measurements import sweep_text

    return sweep_text(sweep)


def sweep_html(sweep: Sweep) -> str:
    from flopscope.show.measurements import sweep_html

    return sweep_html(sweep)


def plot_sweep(sweep: Sweep, ax: Any) -> Any:
    from flopscope.show.plots import plot_sweep

    return plot_sweep(sweep, ax)
