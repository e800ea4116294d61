"""Results of recorded events, live or loaded: tables, summaries, traces, stacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from flopscope.results import groups
from flopscope.results.head import PEAKS_MEMBER, RunSteps
from flopscope.results.summaries import Summaries
from flopscope.results.table import EventTable, table_of
from flopscope.results.table_facts import Grouped
from flopscope.support import upward
from flopscope.support.device import (
    CPU,
    CPU_MEMBER,
    STORED,
    devices_to_rate,
    find_device,
    peaks_by_name,
    why_cpu_unknown,
)
from flopscope.support.hints import HINTS, Hints
from flopscope.support.model import Model, index_of, why_unknown
from flopscope.support.peaks import stated_peaks

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store
    from flopscope.results.events import EventList
    from flopscope.show.advice import AdviceTable
    from flopscope.show.summary import Summary
    from flopscope.support.nvml import Energy
    from flopscope.support.peaks import Peaks

T = TypeVar("T")


class Results(Summaries):
    """The results that live profiles and loaded traces have in common, each computed from one event store.

    A derived class sets the attributes, and explains in ``_why_nothing`` why it has no events when it has none.
    """

    record_shapes: bool = False
    """Whether input shapes were recorded."""
    profile_memory: bool = False
    """Whether changes of memory were recorded."""
    with_stack: bool = False
    """Whether Python calls were recorded."""
    _usual_peaks = "measured"  # or "datasheet", or STORED
    hints: Hints = HINTS
    """What to record so that more is known."""
    run_steps: RunSteps | None = None
    """What ``flopscope run`` knows of the program's steps."""
    metadata: Mapping[str, Any] = MappingProxyType({})
    """Members of a loaded trace other than its events: "deviceProperties", "distributedInfo", versions, …"""
    graphs: Mapping[str, int] = MappingProxyType({})
    """Counts of CUDA or HIP graphs, as a loaded trace has them."""
    hlo: Mapping[str, int] = MappingProxyType({})
    """Counts of kernels that belong to instructions of HLO, as a loaded trace has them."""
    _is_of_program = False  # recorded by flopscope run, from its start to its end
    _cpu_alone: bool = False  # whether the program is known to have used no device

    def __init__(self) -> None:
        self._core: Store | None = None
        self._metadata: dict[str, Any] = {}  # head of exported traces
        self._trace_id: str | None = None
        self._timing: str = "cpu"
        self._energy: dict[str, Energy] = {}
        self._kept: dict[str, tuple[object, Any]] = {}

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = False,
        *,
        group_by: str | Iterable[str] = "name",
        peaks: str | None = None,
        kernels: bool = False,
    ) -> EventTable:
        """Group the events by name, as torch.profiler does, and add work and roofline to each row.

        group_by_input_shape: group by input shapes as well, if they were recorded.
        group_by_stack_n: group by this many innermost entries of the Python stack as well.
        group_by_overload_name: group by the overloads of ops as well ("Tensor" of aten::add), if they were recorded:
            torch.profiler does with ``capture_overload_names`` of its ``experimental_config``.
        include_python_functions: only False, as by default in torch.profiler: Python functions have no rows.
        group_by: what else rows are grouped by, one or several of these words:

            - "name": only names;
            - "shape" and "dtype": shapes and dtypes of the inputs; "stack": the 5 innermost Python calls;
            - "step": the step around the event or, for device work, around its launch;
            - "stream": device and stream of device work;
            - "line": the innermost Python function that is not of torch, with the line at which it begins;
            - "category": the kind of op; "module": the module of the event, forward and backward. Rows are then sums
              over all names, unless "name" is in the list too. With "module" alone the result is a ModuleTable.

        peaks: the base of the shares. "measured": peaks measured on the devices that ran, at the first use of a device,
            which takes a few seconds, and then kept in the user's cache (not on the CPU if a GPU ran); "datasheet": the
            vendor's; "none"; or rates that you state for the devices that ran, such as "memory=8e11,bf16_tensor=2e14"
            in bytes/s and FLOP/s. The default is "measured" for live profiles and "datasheet" for loaded traces, whose
            shares are then the same on every machine. A CPU has no datasheet: its peaks are the measured ones that the
            trace carries, else those stored on this machine, if the trace is of its CPU. For a trace that names no CPU,
            "measured" takes the CPU of this machine.
        kernels: also find which kernels each op launched, for EventRow.kernels and EventTable.table(kernels=True).

        Raises RuntimeError during recording or if nothing was recorded, ValueError for a group that was not recorded.
        """
        if include_python_functions:
            why = 'Python functions have no rows; group_by="line" has the functions that called the ops'
            raise ValueError(f"include_python_functions=True: {why}")
        if group_by_stack_n and not self.with_stack:
            raise ValueError(f"group_by_stack_n={group_by_stack_n}: no stacks are recorded without with_stack=True")
        core = self._recorded("table")
        words = groups.words_of(group_by)
        groups.require(core, words, self.hints.option, self.record_shapes, self.with_stack)
        by_shape = (group_by_input_shape and self.record_shapes) or "shape" in words  # the former as torch does
        stack_n = group_by_stack_n or ("stack" in words and groups.STACK_ENTRIES)
        by_core = tuple(word for word in words if groups.GROUPINGS[word].core)
        by_core += ("overload",) if group_by_overload_name else ()
        found = grouped(self, core, peaks, by_shape, stack_n, groupings=by_core, account=kernels)
        table = table_of(found, found.accounting["launched"] if kernels else None)
        return table if words == ("name",) else groups.grouped(core, table, found.rows, words)

    def coverage(self) -> dict[str, Any]:
        """Return the share of time whose work is known.

        The result is ``{"bytes": 0…1, "flops": 0…1, "unmodelled": [(name, µs), …]}``. The base is device
        time, or the host time of the ops if no device was used. NaN for a profile without ops. The result also has
        these entries, unless they are empty:

        - "estimated": the time in ops whose work is a bound or an estimate, or whose kernels were matched by a guess;
          "estimated_flops": the same where only the FLOPs are an estimate, as those of generated kernels;
        - "misfits": for ops of other libraries that were called with other arguments than their rules expect, a tuple
          of the arguments seen and those expected, as texts;
        - "unseen_graphs": the time in µs of kernels of CUDA graphs whose capture was not watched;
        - "bytes_source", "flops_source": the shares by where the work is known from, ``{"model": 0…1, "counted": 0…1,
          …}``, unless that is the model alone.
        """
        return self.key_averages(peaks="none").coverage()

    def export_chrome_trace(
        self, path: str | bytes | os.PathLike[str], use_python_export: bool = False, *, work: bool = True
    ) -> None:
        """Write the events as a Chrome trace, as torch.profiler does: JSON, compressed where ``path`` ends in .gz.

        Slices that overlap without nesting are in additional rows, such as "stream 7 (2)", because viewers would drop
        them. Their arguments name the true stream or thread.

        ``use_python_export`` is accepted for compatibility with torch. work: also write the FLOPs, bytes, rates, % of
        the roofline and bound of each piece of device work and of its op, where they are known, and TFLOP/s and GB/s of
        each device over time. The rates are compared with stored peaks: measured ones for a profile recorded here if
        they exist, else the datasheet's. An existing file is replaced only by a complete one. Raises OSError if the
        file cannot be written, RuntimeError during recording and if nothing was recorded.
        """
        from flopscope.results import exports

        core = self._recorded("trace")
        head = self._head(core)
        if self._cpu is not None:
            head[CPU_MEMBER] = self._cpu.to_head()
        limits: dict[str, Mapping[str, Any]] | None = None
        if work:
            shares = self._stored_peaks(core)[0]
            limits = {name: found.for_core(self._measured(name)) for name, found in shares.items()}
            head[PEAKS_MEMBER] = {name: found.source for name, found in shares.items()}
        exports.export(core, path, head, limits)

    def _head(self, core: Store) -> dict[str, Any]:
        accelerator = {} if core.accelerator == "cuda" else {"accelerator": core.accelerator}  # no category tells it
        return {"trace_id": self._trace_id, **self._metadata, **accelerator}

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the head of all traces that export_chrome_trace writes from now on.

        May be called before the profile starts. Raises TypeError if the value is not a string, and ValueError for a key
        that traces use themselves.
        """
        from flopscope.results import exports

        if not isinstance(value, str):
            raise TypeError(f"add_metadata() takes a string, not {value!r}; add_metadata_json() takes JSON")
        self._metadata[exports.member(key)] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a JSON value, given as text, to the head of the traces, as add_metadata does.

        Raises ValueError if the text is not JSON.
        """
        from flopscope.results import exports

        self._metadata[exports.member(key)] = exports.json_value(key, value)

    preset_metadata_json = add_metadata_json  # torch has both names

    def get_trace_id(self) -> str | None:
        """Return the id of the traces of this cycle; None before the first cycle."""
        return self._trace_id

    def events(self) -> EventList:
        """Return the single events: names, times in µs, threads and streams, and their parents and launchers.

        Index the list for a few events; to_pandas() returns all, at 88 bytes each. Raises RuntimeError as accounting().
        """
        from flopscope.results import events

        return events.EventList(self._recorded("list of events"))

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write folded stacks for a flame graph: a line for each stack, with its time in µs.

        ``metric``: "self_cpu_time_total" or "self_cuda_time_total". Raises ValueError unless stacks were recorded.
        """
        from flopscope.results import exports

        if not self.with_stack:
            raise ValueError("there are no stacks to export: they are recorded by profile(with_stack=True)")
        exports.export_stacks(self._recorded("stacks"), path, metric)

    def lines(self) -> pandas.DataFrame:
        """Return the time of the program by line, from sampled stacks, the longest own time first.

        A row is a line of the program, and where it was: in a line of the program or function of a library it called.
        Stacks are sampled by ``profile(sample_stacks=True)`` and by ``flopscope run``; without them there are no rows,
        and a warning says so.

        group: "main": the main thread; "threads": the other threads; "processes": the child processes.
        line, inside: "file:number function"; the same where the line called no other Python function.
        time, cpu_time: in µs, of the whole recording; of several threads, their sum; callers have them, too.
        own_time, own_cpu_time: without the lines of the program that it called; they add up to the time of the threads.
        host, sync, data, recording, edges, other: µs in which a device waited for this line, by part of accounting(),
            over similar steps: the thread was there before it launched the work that ended the wait.

        Raises RuntimeError as accounting().
        """
        return upward.rooms.lines(self)

    @property
    def energy(self) -> Mapping[str, Energy]:
        """Energy of each GPU while a profile with counters ran, by "cuda:0": joules, and watts on average.

        NaN for less than 0.1 s, which the GPU's own counter does not resolve. Empty for other profiles and for traces.
        """
        return self._energy

    def accounting(self, *, peaks: str | None = None, window: tuple[float, float] | None = None) -> pandas.DataFrame:
        """Account for every instant of each device in each step: one column for each part, in µs.

        There is a row for each device and step, and one for the whole, whose ``step`` is missing; or, of a trace of
        ``flopscope run``, for a step as it is "not recorded". The parts are at least 0 and add up to ``total``:

        ideal: least time that the peaks allow for the work.
        compute, memory, latency, launch: time beyond it of the rows with that bound.
        unmodelled: time of work whose FLOPs and bytes, or whose peaks, are unknown.
        communication, copy: collectives during which nothing computed; copies and fills during which nothing else ran.
        host: idle, until the next launch had returned and arrived; sync: of this, shortly after the host had waited for
            the device; data: while it waited for a DataLoader; compilation: while the program was compiled, with all
            work that was launched meanwhile; recording: while the profiler itself worked.
        edges: around all work of a profile without steps, and behind work that began before the recording.
        other: idle for another reason.

        ``mfu`` is the time of the FLOPs at the peaks of their units, in percent of the time; ``mbu`` that of the bytes.
        Unknown work adds nothing; without peaks they are NaN. The work of a CPU program is that of its ops, and
        ``host`` is the time between them. ``peaks`` as in key_averages(). ``window``: account for the time between
        these µs since the profile began, as in events(), instead of for the steps; the work of a kernel that it cuts is
        spread evenly. Raises ValueError for a window that is empty or not in the recording, RuntimeError during
        recording and if nothing was recorded.
        """
        return upward.rooms.accounting(self, peaks, window)

    def advice(self, *, peaks: str | None = None) -> AdviceTable:
        """Return what to change: first what saves most alone, then what saves most after it, with the evidence.

        Each row has ``rule`` (a section of docs/answers.md), ``what`` (to change), ``saving_us`` (per step or, without
        steps, of the profile; after the rows above), ``saving_alone_us``, ``saving_pct`` (of the step without
        recording), ``where`` (module or source line, or None) and ``evidence`` (dicts of the ops: op, shapes, dtypes,
        µs and calls per step). ``notes`` lists what could not be judged. Raises as accounting().
        """
        return upward.rooms.advice(self, peaks)

    def what_if(
        self,
        *,
        rule: str | Iterable[str] | None = None,
        peaks: Mapping[str, float] | None = None,
        host_us_per_launch: float | None = None,
        dtype: Any = None,
        device: str | None = None,
    ) -> pandas.DataFrame:
        """Return the accounting as it would be after a change, and without recording.

        The columns and rows are those of accounting(). Without a change, times are those of the unprofiled program.

        rule: follow the advice of one or several rules: the time that each finding claims is subtracted from its op or
            idle time. FLOPs and bytes after a change of the work are unknown: ``mfu`` and ``mbu`` are then NaN.
        peaks: rates that change, by name: FLOP/s of a compute unit ("bf16_tensor"), bytes/s of "memory".
        host_us_per_launch: host time per piece of work that is launched, in µs; 0 for none, as in a CUDA graph.
        dtype: of all float tensors, such as "bfloat16": bytes change with it, and products run on its compute unit.
        device: another GPU, by its name in the datasheet, from which all rates then are: "NVIDIA B200".

        Compute-bound and memory-bound rows keep the share of their limit that they reach now; latency, launches,
        communication and copies keep their time. The steps are replayed: a device that is faster than its host waits,
        which is time of ``host``. Rows whose limit is unknown after the change keep their time, as ``unmodelled``.

        Raises ValueError for unknown names, for numbers out of range, and for host_us_per_launch where the recorded
        launches do not explain when work ran; RuntimeError as accounting().
        """
        return upward.rooms.what_if(
            self, rule=rule, peaks=peaks, host_us_per_launch=host_us_per_launch, dtype=dtype, device=device
        )

    def write_report(self, path: str | os.PathLike[str], *, peaks: str | None = None, title: str | None = None) -> None:
        """Write one HTML page of the profile, which opens from disk and loads nothing: docs/report.md describes it.

        It holds the accounting, the advice, all rows, and what else was recorded. peaks: as in key_averages(). title:
        of the page; None for the name of the trace or the device. An existing file is replaced only by a complete one.
        Raises OSError if the file cannot be written, RuntimeError as accounting().
        """
        upward.rooms.write_profile(self, path, peaks, title)

    def summary(self, *, peaks: str | None = None) -> Summary:
        """Return where the time went and what to change first, then utilization, steps, launches and communication.

        A REPL or a notebook's cell displays the result; scripts print() it. Its text fits the terminal; ``to_dict()``
        returns its facts. peaks: as in key_averages().
        """
        return upward.rooms.summarize.summarize(self, peaks)

    def _repr_html_(self) -> str:
        """Return the summary for a notebook, and the first rows of key_averages() below it.

        Peaks are not measured for it. It never raises.
        """
        return upward.rooms.summarize.overview_html(self)

    @property
    def timing_source(self) -> str:
        """The source of the device times: "cupti", "event" (CUDA events), "trace", or "cpu" for host times only."""
        return self._timing

    @property
    def rank(self) -> int | None:
        """Rank of the process in a distributed program; None if it is unknown."""
        return None

    @property
    def dropped(self) -> int:
        """Number of events lost because memory ran out or a device failed."""
        return 0 if self._core is None else self._core.dropped

    @property
    def _program(self) -> str:
        """What ran, for titles: the script of this process, unless it is interactive."""
        script = os.path.basename(sys.argv[0]) if sys.argv else ""
        return "" if script in ("", "-c", "-m", "ipykernel_launcher.py", "__main__.py") else script

    def _recorded(self, what: str) -> Store:
        """Return the recorded cycle. Raise RuntimeError during recording, or if there is none."""
        if self._core is None:
            raise RuntimeError(f"there is no {what}: {self._why_nothing()}")
        if self._core.running:
            raise RuntimeError(f"the profile is still running; stop it before asking for its {what}")
        return self._core

    def _why_nothing(self) -> str:
        """Return why there are no events, for the error message."""
        return "nothing was recorded"

    def _peaks(self, core: Store, source: str) -> tuple[dict[str, Peaks], dict[str, dict[str, Any]]]:
        """Return the peaks that rows are compared with, by device name ("cuda:0"), and EventTable.peaks.

        source: "measured", "datasheet" or "none"; ValueError for any other.
        """
        shares = peaks_by_name(devices_to_rate(core.devices), source)
        return shares, {name: {"source": p.source, "name": find_device(name).name} for name, p in shares.items()}

    def _stored_peaks(self, core: Store) -> tuple[dict[str, Peaks], dict[str, dict[str, Any]]]:
        """Return what _peaks() does, without measuring: of a profile recorded here, measured peaks come first."""
        shares, sources = self._peaks(core, "datasheet")
        for name in core.devices if self._usual_peaks != "datasheet" else ():
            peaks = self._measured(name)
            if peaks is not None:
                shares[name] = peaks
                sources[name] = {"source": peaks.source, "name": find_device(name).name}
        return shares, sources

    @property
    def _cpu(self) -> CPU | None:
        """The CPU on which the program ran; None if it is unknown."""
        return CPU.here()

    def _measured(self, device: str) -> Peaks | None:
        """Return the stored measured peaks of a device that ran, or None. Never measures."""
        try:
            return find_device(device).measured
        except RuntimeError:  # a GPU of torch's, and flopscope was built without CUDA
            return None

    def _why_unknown(self, device: str, source: str) -> str:
        """Return why the peaks of a device that ran are unknown, for EventTable.unknown_peaks."""
        try:
            found = find_device(device)
        except RuntimeError as problem:
            return str(problem)
        if device == "cpu":
            return why_cpu_unknown(self._cpu)
        return why_unknown(Model.of_properties(found.properties), here=True, measured=source != "datasheet")

    def __len__(self) -> int:
        """Number of events recorded."""
        return 0 if self._core is None else self._core.event_count

    def __bool__(self) -> bool:
        """True, even if nothing was recorded."""
        return True


# What other rooms ask of results --------------------------------------------------------------------------------------


def store_of(results: Summaries, what: str) -> Store:
    """Return the recorded cycle. what: what it is for, for the RuntimeError during recording or if there is none."""
    return results._recorded(what)


def device_of(results: Results) -> dict[str, str | None]:
    """Return kind and name of the first device that the profile names; of the CPU if no device was used."""
    named = next(iter(results._recorded("device").device_names.values()), None)
    if named is None:
        return {"kind": "cpu", "name": None if results._cpu is None else results._cpu.name}
    return {"kind": "cuda", "name": named}


def cpu_of(results: Results) -> CPU | None:
    """Return the CPU on which the program ran; None if it is unknown."""
    return results._cpu


def usual_peaks_of(results: Results) -> str:
    """Return the base of shares where none is requested: "measured", "datasheet" or STORED."""
    return results._usual_peaks


def kept(results: Results, what: str, key: object, make: Callable[[], T]) -> T:
    """Return what ``make`` returned at the last call for these results with this key, or call it."""
    found = results._kept.get(what)
    if found is None or found[0] != key:
        found = results._kept[what] = key, make()
    value: T = found[1]
    return value


def forget(results: Results) -> None:
    """Forget what is kept, because the peaks of a device have changed."""
    results._kept.clear()


def grouped(
    results: Results,
    core: Store,
    peaks: str | None = None,
    by_shape: bool = True,
    stack_n: int = 0,
    *,
    account: bool = False,
    groupings: tuple[str, ...] = (),
    brief: bool = False,
    blocks: int = 0,
    window: tuple[float, float] | None = None,
) -> Grouped:
    """Group the events of results, and compare the rows with the peaks of the devices that ran.

    peaks: as in key_averages(), or STORED. account: also return the content of an Analysis. groupings: words of
    groups.GROUPINGS that the core separates rows by. brief: leave out the columns that an Analysis does not read.
    blocks: with account, also draw the events, in a timeline of at most about so many blocks. window: account for the
    time between, in µs since the profile began, instead of for the steps.
    """
    source = peaks or results._usual_peaks
    names = core.devices - {"cpu"} or {"cpu"}  # a trace whose ops all ran on a CPU names no device
    if source == STORED:
        shares, described = results._stored_peaks(core)
    elif (stated := stated_peaks(source)) is not None:
        shares = dict.fromkeys(names, stated)
        models = {name: core.device_names.get(index_of(name), name) for name in names - {"cpu"}}
        models |= {name: name if results._cpu is None else results._cpu.name for name in names & {"cpu"}}
        described = {name: {"source": stated.source, "name": model} for name, model in models.items()}
    else:
        shares, described = results._peaks(core, source)
    limits: dict[str, Mapping[str, Any]] = {n: found.for_core(results._measured(n)) for n, found in shares.items()}
    rows = (by_shape, stack_n, limits, results._cpu_alone, groupings, brief)
    if blocks:
        answer = core.timeline(*rows, blocks)
    elif account or window is not None:
        answer = core.accounting(*rows, *([] if window is None else [window]))
    else:
        answer = core.table(*rows)
    missing = set() if source == "none" else names - shares.keys()
    return Grouped.of(
        answer,
        device_type=core.device_type,
        program=results._program,
        has_shapes=core.has_shapes,
        **{name: getattr(results, name) for name in ("record_shapes", "profile_memory", "hints", "run_steps")},
        peaks=described,
        shares=shares,
        unknown_peaks={name: results._why_unknown(name, source) for name in sorted(missing)},
    )
