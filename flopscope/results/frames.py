"""The summaries of a profile as DataFrames.

All numbers come from the C core. GPU efficiency and the step breakdown are defined as in PyTorch's TensorBoard plugin
(github.com/pytorch/kineto, tb_plugin).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.results.events import EventList
from flopscope.support.core_values import UNKNOWN_TIME

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store
    from flopscope.support.cpu import CPU

Columns = Mapping[str, Sequence[Any]]

GPU_COLUMNS = ("device", "gpu_utilization", "sm_efficiency", "achieved_occupancy", "tensor_core_time", "idle")


def gpu_summary(core: Store, step: str | None = None) -> pandas.DataFrame:
    """Return the frame that Summaries.gpu_summary() describes."""
    return _frame(of_gpus(core.gpu_summary(step)))


def step_breakdown(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.step_breakdown() describes."""
    return _frame(microseconds(core.step_breakdown()))


def launch_summary(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.launch_summary() describes."""
    return _frame(core.launch_summary())


def _frame(columns: Columns) -> pandas.DataFrame:
    frame: pandas.DataFrame = _pandas().DataFrame({name: list(values) for name, values in columns.items()})
    return frame


def of_gpus(columns: Columns) -> Columns:
    return {name: columns[name] for name in GPU_COLUMNS}


def microseconds(columns: Columns) -> dict[str, list[Any]]:
    return {name: [v if name == "step" else v / 1000 for v in values] for name, values in columns.items()}


def collectives(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.collectives() describes."""
    columns, begin = core.collectives()
    if begin == UNKNOWN_TIME and columns["start"]:
        begin = EventList(core)._begin
    starts = [(start - begin) / 1000 for start in columns["start"]]
    return _whole_numbers(_frame({**columns, "start": starts}), "group_size", "stream", "sequence")


def stream_summary(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.stream_summary() describes."""
    frame = _whole_numbers(_frame(core.stream_summary()), "stream")
    return frame.astype({"kernels": int, "copies": int})


def _whole_numbers(frame: pandas.DataFrame, *names: str) -> pandas.DataFrame:
    """Return the frame with the named columns as nullable integers."""
    return frame.astype(dict.fromkeys(names, "Int64"))


def counter_timeline(core: Store) -> pandas.DataFrame:
    """Return the frame that Summaries.counter_timeline() describes."""
    library = _pandas()
    begin = max(core.begin, 0)  # missing, and far below 0, if nothing was recorded
    place = ["device", "start", "duration"]
    frame: pandas.DataFrame = library.DataFrame({"device": [], "start": [], "duration": []}).astype({"device": "int64"})
    for device in sorted({track[0] for track in core.samples()}):
        merged: Any = None
        for _, name, _, _, start, end, value in (track for track in core.samples() if track[0] == device):
            columns = {"device": device, "start": (start - begin) / 1e3, "duration": (end - start) / 1e3, name: value}
            one = library.DataFrame(columns)
            merged = one if merged is None else merged.merge(one, on=place, how="outer")
        frame = merged if not len(frame) else library.concat([frame, merged], ignore_index=True)
    return frame.sort_values(["start", "device"], ignore_index=True, kind="stable")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("this summary needs pandas: pip install pandas; summary() does not") from error
    return pandas


def device_of(core: Store, cpu: CPU | None) -> dict[str, str | None]:
    """Return kind and name of the first device that the profile names; of the CPU if no device was used."""
    named = next(iter(core.device_names.values()), None)
    if named is None:
        return {"kind": "cpu", "name": None if cpu is None else cpu.name}
    return {"kind": "cuda", "name": named}


def records(columns: Columns) -> list[dict[str, Any]]:
    """Return a dict for each row, in which missing values are None."""
    rows = zip(*columns.values(), strict=True)
    return [{name: None if v != v else v for name, v in zip(columns, row, strict=True)} for row in rows]
