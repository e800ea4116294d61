"""What records ask of the rooms above them, each room imported on first use.

The methods of tables, profiles, comparisons and measurements that judge or show them call these functions by
flopscope.support.upward; their docstrings say what they return.
"""

from __future__ import annotations

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any

    import pandas

    from flopscope.results.comparison import Comparison
    from flopscope.results.results import Results
    from flopscope.show.advice import AdviceTable
    from flopscope.show.columns import sort_key as sort_key
    from flopscope.show.comparison import html as comparison_html
    from flopscope.show.comparison import text as comparison_text
    from flopscope.show.fitted import render as fitted_text
    from flopscope.show.html import render as table_html
    from flopscope.show.measurements import measurement_html as measurement_html
    from flopscope.show.measurements import sweep_html as sweep_html
    from flopscope.show.measurements import sweep_text as sweep_text
    from flopscope.show.plots import plot_accounting as plot_accounting
    from flopscope.show.plots import plot_sweep as plot_sweep
    from flopscope.show.summarize import overview_html as overview_html
    from flopscope.show.summarize import summarize as summary
    from flopscope.show.text import render as table_text

    Path = str | PathLike[str]

__all__ = ["comparison_html", "comparison_text", "fitted_text", "summary", "table_html", "table_text"]
_SHOWN = {
    "comparison_html": ("show.comparison", "html"),
    "comparison_text": ("show.comparison", "text"),
    "fitted_text": ("show.fitted", "render"),
    "measurement_html": ("show.measurements", "measurement_html"),
    "overview_html": ("show.summarize", "overview_html"),
    "plot_accounting": ("show.plots", "plot_accounting"),
    "plot_sweep": ("show.plots", "plot_sweep"),
    "sort_key": ("show.columns", "sort_key"),
    "summary": ("show.summarize", "summarize"),
    "sweep_html": ("show.measurements", "sweep_html"),
    "sweep_text": ("show.measurements", "sweep_text"),
    "table_html": ("show.html", "render"),
    "table_text": ("show.text", "render"),
}
"""By what records call it: the module and the name of a function that takes the record as it is."""


def __getattr__(name: str) -> Any:
    if name not in _SHOWN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, function = _SHOWN[name]
    globals()[name] = found = getattr(import_module(f"flopscope.{module}"), function)
    return found


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
    from flopscope.support.package import warn_user

    core = store_of(results, "lines")
    found = lines_of(core, analysis_of(results, "lines", "none").apart if core.event_count else 0)
    if not found.groups:
        warn_user(
            "no stack was sampled, so there are no lines: record by fs.profile(sample_stacks=True), "
            "flopscope.torch.profile(sample_stacks=True) or `flopscope run`, for several milliseconds"
        )
    return lines_frame(found)


def what_if(results: Results, *, device: str | None, **change: Any) -> pandas.DataFrame:
    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.what_if import what_if_frame

    analysis = analysis_of(results, "accounting", None if device is None else "datasheet")
    return what_if_frame(analysis, device=device, **change)


def write_profile(results: Results, path: Path, peaks: str | None, title: str | None) -> None:
    from flopscope.show.page.page import profile_page, write

    write(path, profile_page(results, peaks=peaks, title=title))


def write_comparison(comparison: Comparison, path: Path, title: str | None) -> None:
    from flopscope.show.page.compare import compare_page
    from flopscope.show.page.page import write

    write(path, compare_page(comparison, title))
