"""What can be asked of recorded events, wherever they come from: tables, summaries, traces, stacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from flopscope.hardware.device import find_device, peaks_by_name
from flopscope.hardware.model import Model, why_unknown
from flopscope.results.table import COLUMNS, EventTable

if TYPE_CHECKING:
    import os

    import pandas

    from flopscope._core import Store
    from flopscope.hardware.peaks import Peaks
    from flopscope.results.events import EventList

__all__ = ["Results"]


class Results:
    """The results that a profile and a trace read from a file share; each is made from one core with its events.

    Who derives from it sets the attributes, and says in ``_why_nothing`` why there are no events where there are none.
    """

    record_shapes: bool = False
    """Whether input shapes were recorded."""
    profile_memory: bool = False
    """Whether changes of memory were recorded."""
    with_stack: bool = False
    """Whether Python calls were recorded."""
    _usual_peaks = "measured"  # or "datasheet"
    _cpu_alone: bool = False  # whether the program is known to have used no device

    def __init__(self) -> None:
        self._core: Store | None = None
        self._metadata: dict[str, Any] = {}  # of the traces that are written
        self._trace_id: str | None = None
        self._timing: str = "cpu"

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        *,
        peaks: str | None = None,
    ) -> EventTable:
        """The events grouped by name, as torch.profiler does, with work and roofline joined.

        group_by_input_shape: by the shapes of the inputs too, if they were recorded.
        group_by_stack_n: by the innermost entries of the Python stack too; ValueError unless profiled with_stack.
        group_by_overload_name: taken for torch's sake; no overloads are recorded.
        peaks: what the shares are of: "measured" peaks of the devices that ran (measured now if they never were: a few
            seconds once per device, kept in the user's cache; the CPU's not where a GPU ran), the vendor's "datasheet",
            or "none". None: measured ones; of a recorded trace the datasheet's, which are the same wherever it is read.

        RuntimeError while it records, and where nothing was recorded.
        """
        if group_by_stack_n and not self.with_stack:
            raise ValueError(f"group_by_stack_n={group_by_stack_n}: no stacks are recorded without with_stack=True")
        core = self._recorded("table")
        by_shape = group_by_input_shape and self.record_shapes  # torch too groups by shapes only if it has them
        source = peaks or self._usual_peaks
        shares, said = self._peaks(core, source)
        limits: dict[str, Mapping[str, Any]] = {
            name: found._for_core(self._measured(name)) for name, found in shares.items()
        }
        columns, meta = core.table(by_shape, group_by_stack_n, limits, self._cpu_alone)
        meta["record_shapes"] = self.record_shapes
        meta["has_shapes"] = core.has_shapes
        meta["profile_memory"] = self.profile_memory
        if not meta["coverage"]["estimated"]:
            del meta["coverage"]["estimated"]
        meta["peaks"] = said
        asked = core.devices - {"cpu"} or {"cpu"}  # a trace whose ops all ran on a CPU names no device
        if source == "none":
            asked = set()
        meta["unknown_peaks"] = {name: self._why_unknown(name, source) for name in sorted(asked - shares.keys())}
        return EventTable({column.name: columns[column.name] for column in COLUMNS}, meta)

    def coverage(self) -> dict[str, Any]:
        """Share of the time whose work is known: ``{"bytes": 0…1, "flops": 0…1, "unmodelled": [(name, µs), …]}``.

        Of device time where there is any, else of the ops' host time; NaN for a profile without ops.
        """
        return self.key_averages(peaks="none").coverage()

    def export_chrome_trace(self, path: str | bytes | os.PathLike[str], use_python_export: bool = False) -> None:
        """Write the events as a Chrome trace, as torch.profiler does: JSON, compressed where ``path`` ends in .gz.

        ``use_python_export`` is taken for torch's sake. OSError where the file cannot be written, RuntimeError while it
        records and where nothing was recorded; what could not be written leaves the file that was there as it was.
        """
        from flopscope.results import chrome_trace

        core = self._recorded("trace")
        chrome_trace.export(core, path, {"trace_id": self._trace_id, **self._metadata})

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the head of the traces that export_chrome_trace writes from now on, also before the start.

        TypeError for what is no string, ValueError for a key that traces have of their own.
        """
        from flopscope.results import chrome_trace

        if not isinstance(value, str):
            raise TypeError(f"add_metadata() takes a string, not {value!r}; add_metadata_json() takes JSON")
        self._metadata[chrome_trace.member(key)] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put a value into the head of the traces, given as the text of its JSON. ValueError where it is none.

        Else as add_metadata.
        """
        from flopscope.results import chrome_trace

        self._metadata[chrome_trace.member(key)] = chrome_trace.json_value(key, value)

    preset_metadata_json = add_metadata_json  # torch has two of it

    def get_trace_id(self) -> str | None:
        """The id that the traces of this cycle have; None before the first cycle."""
        return self._trace_id

    def events(self) -> EventList:
        """The single events: names, times in µs, threads and streams, who encloses and who launched whom.

        For a look at some of them, or with to_pandas() at all, 88 bytes each. RuntimeError while it records, and where
        nothing was recorded.
        """
        from flopscope.results import events

        return events.EventList(self._recorded("list of events"))

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write folded stacks, for a flame graph, with times in µs: a line for each stack.

        ``metric``: "self_cpu_time_total" or "self_cuda_time_total". ValueError unless profiled with_stack.
        """
        from flopscope.results import stacks

        if not self.with_stack:
            raise ValueError("there are no stacks to export: they are recorded by profile(with_stack=True)")
        stacks.export_stacks(self._recorded("stacks"), path, metric)

    def gpu_summary(self, step: str | None = None) -> pandas.DataFrame:
        """How busy each GPU was, in percent: one row a device, of all steps or of the one of that name."""
        from flopscope.results import summary

        return summary.gpu_summary(self._recorded("GPU summary"), step)

    def step_breakdown(self) -> pandas.DataFrame:
        """Where the time of each step went: one row a step, one column for each kind of work, in µs."""
        from flopscope.results import summary

        return summary.step_breakdown(self._recorded("step breakdown"))

    def launch_summary(self) -> pandas.DataFrame:
        """How kernels were launched: one row a device, with delays in µs, queue depths and waiting."""
        from flopscope.results import summary

        return summary.launch_summary(self._recorded("launch summary"))

    def collectives(self) -> pandas.DataFrame:
        """Each kernel of communication: what it moved, how fast in GB/s, and what of its time in µs nothing hid."""
        from flopscope.results import communication

        return communication.collectives(self._recorded("collectives"))

    def stream_summary(self) -> pandas.DataFrame:
        """How long each stream of each GPU worked, beside which others, and communicated, in µs: one row a stream."""
        from flopscope.results import communication

        return communication.stream_summary(self._recorded("stream summary"))

    def summary(self, file: TextIO | None = None) -> None:
        """Print how busy the GPUs were, where the steps' time went and how kernels were launched, with advice.

        To ``file``, standard output if None.
        """
        from flopscope.results import summary

        print(summary.text(self._recorded("summary")), end="", file=sys.stdout if file is None else file)

    @property
    def timing_source(self) -> str:
        """Who tells the device times: "cupti", "event" (CUDA events), "trace", or "cpu": there are only host times."""
        return self._timing

    @property
    def dropped(self) -> int:
        """Events that could not be kept, for want of memory or because a device failed."""
        return 0 if self._core is None else self._core.dropped

    def _recorded(self, what: str) -> Store:
        """The cycle that was recorded. RuntimeError while it records, or where there is none."""
        if self._core is None:
            raise RuntimeError(f"there is no {what}: {self._why_nothing()}")
        if self._core.running:
            raise RuntimeError(f"the profile is still running; stop it before asking for its {what}")
        return self._core

    def _why_nothing(self) -> str:
        """Why there are no events, for the error that says so."""
        return "nothing was recorded"

    def _peaks(self, core: Store, source: str) -> tuple[dict[str, Peaks], dict[str, dict[str, Any]]]:
        """The peaks to hold rows against, by the name of their device ("cuda:0"), and EventTable.peaks.

        source: what key_averages() was asked for: "measured", "datasheet" or "none"; ValueError for another.
        """
        shares = peaks_by_name(_peak_devices(core), source)
        return shares, {name: {"source": p.source, "name": find_device(name).name} for name, p in shares.items()}

    def _measured(self, device: str) -> Peaks | None:
        """The measured peaks of a device that ran, where they are known; they are not measured for this."""
        try:
            return find_device(device).measured
        except RuntimeError:  # torch uses a GPU that a flopscope without CUDA cannot find
            return None

    def _why_unknown(self, device: str, source: str) -> str:
        """Why no peaks of a device that ran are known, for EventTable.unknown_peaks."""
        try:
            found = find_device(device)
        except RuntimeError as problem:
            return str(problem)
        model = Model.of_properties(found.properties)
        return why_unknown(model, here=True, measured=source == "measured", kind=found.kind)

    def __len__(self) -> int:
        """Number of events recorded."""
        return 0 if self._core is None else self._core.event_count

    def __bool__(self) -> bool:
        """True: a profile that saw nothing is a profile."""
        return True


def _peak_devices(core: Store) -> list[str]:
    """The devices whose peaks are asked for. Where a GPU worked, what the CPU did is not worth a measurement."""
    ran = sorted(core.devices)
    if len(ran) > 1 and find_device("cpu").measured is None:
        ran = [name for name in ran if name != "cpu"]
    return ran
