"""Communication between GPUs: size, bandwidth and exposed time of collectives, and the time of each stream.

All numbers come from the C core; this module makes DataFrames of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopscope.support.core_values import UNKNOWN_TIME

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store

__all__ = ["collectives", "stream_summary"]


def collectives(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.collectives() describes."""
    from flopscope.results.events import EventList
    from flopscope.results.summary import _frame

    columns, begin = core.collectives()
    if begin == UNKNOWN_TIME and columns["start"]:
        begin = EventList(core)._begin
    starts = [(start - begin) / 1000 for start in columns["start"]]
    return _whole_numbers(_frame({**columns, "start": starts}), "group_size", "stream", "sequence")


def stream_summary(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.stream_summary() describes."""
    from flopscope.results.summary import _frame

    frame = _whole_numbers(_frame(core.stream_summary()), "stream")
    return frame.astype({"kernels": int, "copies": int})


def _whole_numbers(frame: pandas.DataFrame, *names: str) -> pandas.DataFrame:
    """Return the frame with the named columns as nullable integers."""
    return frame.astype(dict.fromkeys(names, "Int64"))
