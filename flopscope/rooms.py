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
    from flopscope.show import columns, comparison, fitted, html, measurements, summarize, text
    from flopscope.show.advice import AdviceTable

    Path = str | PathLike[str]

__all__ = ["columns", "comparison", "fitted", "html", "measurements", "summarize", "text"]
"""Modules of show, whose functions take a record as it is."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = import_module(f"flopscope.show.{name}")
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
    import pandas

    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.lines import COLUMNS, lines_of
    from flopscope.results.results import store_of
    from flopscope.support.package import warn_user

    core = store_of(results, "lines")
    found = lines_of(core, analysis_of(results, "lines", "none").apart if core.event_count else 0)
    if not found.groups:
        warn_user(
            "no stack was sampled, so there are no lines: record by fs.profile(sample_stacks=True), "
            "flopscope.torch.profile(sample_stacks=True) or `flopscope run`, for several milliseconds"
        )
    return pandas.DataFrame(found.to_dicts(), columns=COLUMNS)


def what_if(results: Results, *, device: str | None, **change: Any) -> pandas.DataFrame:
    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.what_if import what_if_frame

    analysis = analysis_of(results, "accounting", None if device is None else "datasheet")
    return what_if_frame(analysis, device=device, **change)


def write_profile(results: Results, path: Path, peaks: str | None, title: str | None) -> None:
    from flopscope.show.page.page import profile_page, write

    write(path, profile_page(results, peaks=peaks, title=title))


def write_comparison(compared: Comparison, path: Path, title: str | None) -> None:
    from flopscope.show.page.compare import compare_page
    from flopscope.show.page.page import write

    write(path, compare_page(compared, title))
