"""What the answers are computed from: the profile's time by op, by kernel and by cause of idleness, per step.

The C core attributes every instant of each device to one piece of work or to one cause of idleness
(csrc/accounting/accounting.h). This module sums that by row of the table grouped by shape; times are µs per step, or µs
of the profile if it has no steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from flopscope import _core
from flopscope.answers.pieces import Gap, Kernel, Op, Step, first_apart
from flopscope.answers.recording import ALLOCATIONS, LATE, RECORDED, Recording, recording_cost
from flopscope.results.categories import is_op_of_library
from flopscope.results.columns import IDENTITY, row_id
from flopscope.results.results import Results, grouped, kept, store_of, usual_peaks_of
from flopscope.results.table_facts import Grouped, has_kernels_of_torch
from flopscope.support.hints import HINTS, WITHOUT_OPS
from flopscope.support.statistics import distinct

if TYPE_CHECKING:
    from flopscope._core import Store
    from flopscope.results.head import RunSteps
    from flopscope.support.peaks import Peaks

T = TypeVar("T")
Shapes = tuple["tuple[int, ...] | None", ...]
DRIVER = re.compile(r"(?:cuda|cu|hip)[A-Z]\w*$")  # calls of the driver and its runtime
AUTOGRAD = "autograd::engine::evaluate_function: "
CAUSES = _core.idle_causes
IDLE_PARTS = _core.idle_parts
"""The part of the accounting to which each cause of idleness belongs."""
PARTS = tuple(_core.parts)
WORK_PARTS = PARTS[: PARTS.index("copy") + 1]
"""Those of work that the program launched, which stand first; a device is idle in one of them, too: communication."""
_OF_OP = ("device", "row", "kernel", "part", "event", "op")
SCOPE = "scope: "  # how the names of scopes of JAX begin, as events around an instruction
BOUND = 0.05
"""Share of a step by which recording must delay it for the whole delay to be the host's."""
ROUNDING = 1e-9
"""Share of a time below which a difference is the rounding error of sums."""


def _numbered(*keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Number what is alike in all keys. Return the first place of each number, ascending, and the number by place."""
    whole = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        alike = np.unique(key, return_inverse=True)[1]
        whole = whole * (1 + alike.max(initial=0)) + alike
    first, numbers = np.unique(whole, return_index=True, return_inverse=True)[1:]
    order = np.argsort(first)
    return first[order], np.argsort(order)[numbers]


def _rows(cells: Mapping[str, Any], places: npt.NDArray[np.intp], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the values of these columns at each place."""
    columns = (cells[name][places].tolist() for name in names)
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _sums(
    cells: Mapping[str, Any], numbers: npt.NDArray[np.intp], scales: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield the sums of the columns by number, multiplied by their scales."""
    columns = {name: np.bincount(numbers, cells[name]) * by for name, by in scales.items()}
    return _rows(columns, np.arange(numbers.max(initial=-1) + 1), tuple(scales))


class Analysis:
    """The time of a profile, by op and by cause of idleness."""

    def __init__(self, core: Store, grouped: Grouped, graphs: Mapping[str, int]) -> None:
        """grouped: by shape, with the accounting. graphs: as Trace.graphs."""
        self.core, self.columns, self.facts, self.graphs = core, grouped.columns, grouped.facts, graphs
        content = grouped.accounting
        self.steps = [Step(*step) for step in content["steps"]]
        self.cells: Mapping[str, Any] = content["cells"]
        self.gap_cells: Mapping[str, Any] = content["gaps"]
        self.pair_cells: Mapping[str, Any] = content["pairs"]
        self.works: Mapping[str, Any] = content["works"]
        self.launching: Mapping[str, Any] = content["launching"]
        self.sm_counts: Mapping[int, int] = content["sm_counts"]
        self.capabilities: Mapping[int, int] = content["capabilities"]
        """The compute capability by device: 90 for 9.0; below 0 where it is unknown."""
        self.launch_time: float = content["launch_median"]
        """Median duration of the API calls that launch kernels, in µs; NaN without any."""
        self._found: dict[Callable[[Analysis], Any], Any] = {}
        self._described: dict[str, dict[tuple[str, Shapes], list[tuple[int, Sequence[Any], int]]]] = {}
        self.apart = first_apart([step.time for step in self.steps])
        """Number of first steps that are left out of what is per step, as they are unlike the others."""
        self.scale = 1 / (1000 * max(len(self.alike), 1))  # from ns of the steps that are alike to µs per step

    def once(self, find: Callable[[Analysis], T]) -> T:
        """Return what a function finds in this analysis, and call it only once."""
        if find not in self._found:
            self._found[find] = find(self)
        found: T = self._found[find]
        return found

    @property
    def peaks(self) -> Mapping[str, Peaks]:
        """The peaks that ops are compared with, by device."""
        return self.facts.shares or {}

    @property
    def has_steps(self) -> bool:
        """Whether the program marked its steps."""
        return any(step.name is not None for step in self.steps)

    @cached_property
    def step_count(self) -> int:
        """Number of all steps, to divide the table's columns by; 1 for a profile without any."""
        return max(len(self.steps), 1)

    @property
    def alike(self) -> Sequence[Step]:
        """The steps over which times are means; all of a profile without steps."""
        return self.steps[self.apart :]

    @property
    def per(self) -> str:
        """What counts and times refer to, as text."""
        return "a step" if self.has_steps else "in the profile"

    @property
    def on_device(self) -> bool:
        """Whether the work ran on a device other than the CPU."""
        return self.facts.has_device

    @property
    def accelerator(self) -> str:
        """What the work ran on: "cuda", "hip", "tpu", "mtia", "xpu", "hpu", "npu", "privateuseone", or "cpu"."""
        return self.core.accelerator if self.on_device else "cpu"

    @cached_property
    def events(self) -> tuple[dict[str, npt.NDArray[np.int64]], list[str], tuple[str, ...], int]:
        """The events as columns, their texts and kinds, and the number that stands for an unknown time."""
        return self.core.events()

    @cached_property
    def names(self) -> list[str]:
        """The names of the events, as the core counts them."""
        return self.core.names()

    @cached_property
    def uses_torch(self) -> bool:
        """Whether the program is one of PyTorch: it has ops of torch, or its trace is torch's."""
        own = "trace" in self.columns["timing_source"] and self.facts.hints in (HINTS, WITHOUT_OPS)
        keys = self.columns["key"]
        return own or any(key.startswith("aten::") for key in keys) or has_kernels_of_torch(keys)

    @cached_property
    def known_work(self) -> tuple[bool, bool]:
        """Whether the FLOPs of any row are known, and whether the bytes are."""
        flops, nbytes = (not np.isnan(self.columns[name]).all() for name in ("flops", "bytes_total_moved"))
        return flops, nbytes

    @cached_property
    def devices(self) -> list[int]:
        """The devices with work, if only before the steps, by index; -1 is the CPU."""
        both = np.concatenate([self.cells["device"], self.gap_cells["device"]])
        return [int(device) for device in distinct(both)]

    def places(self, cells: Mapping[str, Any]) -> npt.NDArray[np.intp]:
        """Return for each cell or gap the index of its device in ``devices``."""
        return np.asarray(np.searchsorted(self.devices, cells["device"]), dtype=np.intp)

    @cached_property
    def total(self) -> float:
        """µs of a step, or of the profile; summed over the devices if there are several."""
        return self.scale * sum(step.end - step.begin for step in self.alike) * max(len(self.devices), 1)

    def cell_ideals(self) -> npt.NDArray[np.int64]:
        """Return the ideal time of each cell in ns: 0 for communication, copies and unknown work."""
        return np.asarray(np.where(self.cells["class"] == 0, np.maximum(self.cells["ideal"], 0), 0), dtype=np.int64)

    @cached_property
    def uses_jax(self) -> bool:
        """Whether the HLO of JAX's modules is known, to whose instructions kernels belong."""
        return any(name.startswith(SCOPE) for name in self.names)

    @cached_property
    def _all_of_steps(self) -> list[Op]:
        return self.ops_of(self.cells["step"] >= self.apart)

    @cached_property
    def ops(self) -> list[Op]:
        """The ops with work in the steps that are alike, longest first; not what a compiler launched."""
        return [op for op in self._all_of_steps if op.part != "compilation"]

    @cached_property
    def tried(self) -> list[Op]:
        """What a compiler launched in these steps, longest first."""
        return [op for op in self._all_of_steps if op.part == "compilation"]

    @property
    def only_compiles(self) -> bool:
        """Whether nothing but compilations was recorded in these steps, so that later ones would show nothing."""
        return not (self.ops or self.on_device)

    @cached_property
    def has_namespaced_ops(self) -> bool:
        """Whether an op with work is called as those of a library are, such as aten::mm."""
        return any(is_op_of_library(op.key) for op in self.ops if op.row >= 0)

    @cached_property
    def all_ops(self) -> list[Op]:
        every = self.ops_of(self.cells["step"] >= 0) if self.apart else self._all_of_steps
        return [op for op in every if op.part != "compilation"]

    def ops_of(self, alike: npt.NDArray[np.bool_]) -> list[Op]:
        """Return the ops of the cells of a mask, longest first."""
        scale, per_step = self.scale, 1 / self.step_count
        cells = {name: values[alike] for name, values in self.cells.items()}
        cells["event"] = np.where(cells["owner"] >= 0, cells["owner"], cells["event"])
        cells |= {"time": cells["exclusive"], "ideal": self.cell_ideals()[alike]}
        scales = dict.fromkeys(("time", "ideal", "compute", "active", "memory", "cast", "reordered"), scale)
        scales |= {"count": 1000 * scale, "casts": per_step, "reorders": per_step}
        first, op_of = _numbered(cells["op"])
        sums = _sums(cells, op_of, scales)
        ops = list(map(self._op, _rows(cells, first, _OF_OP), sums))
        first, kernel_of = _numbered(cells["op"], cells["kernel"])
        sums = _sums(cells, kernel_of, {name: scales[name] for name in ("count", "time")})
        grids = _rows(cells, first, ("blocks", "resident"))
        for place, values, grid in zip(first.tolist(), sums, grids, strict=True):
            ops[op_of[place]].kernels.append(Kernel(self._key(cells["kernel"][place]), **values, **grid))
        for op in ops:
            op.kernels.sort(key=lambda one: -one.time)
        return sorted(ops, key=lambda op: -op.time)

    def _key(self, row: int) -> str:
        return str(self.columns["key"][row]) if row >= 0 else ""

    def row_id(self, row: int) -> str | None:
        """Return the id of a row of the table grouped by shape; None for -1, no row."""
        return row_id(self.columns[name][row] for name in IDENTITY) if row >= 0 else None

    def _op(self, cell: Mapping[str, Any], sums: Mapping[str, Any]) -> Op:
        row, key = cell["row"], self._key(cell["row"] if cell["row"] >= 0 else cell["kernel"])
        where = cell["device"], PARTS[cell["part"]], cell["event"]
        if row < 0:
            category = _core.category_of(key, cell["device"] >= 0)
            return Op(row, key, [], [], None, *where, category=category, number=cell["op"], **sums)
        names = ("count", "input_shapes", "input_dtypes", "unit", "category")
        count, shapes, dtypes, unit, category = (self.columns[name][row] for name in names)
        calls = int(count) / self.step_count
        return Op(row, key, shapes, dtypes, unit, *where, calls, category=category, number=cell["op"], **sums)

    @cached_property
    def gap_numbers(self) -> npt.NDArray[np.intp]:
        """For each idle time its number: of its cause, row and the op that waited, whose waits in steps are alike."""
        names: dict[str, int] = {}
        cells, waits = self.gap_cells, self.gap_cells["wait"]
        first, _, groups = self.calls_alike(waits[waits >= 0], around=True)
        ops = np.full_like(waits, -1)
        numbers = [names.setdefault(self.op_around(wait), len(names)) for wait in first.tolist()]
        ops[waits >= 0] = np.array(numbers, dtype=np.int64)[groups]
        return _numbered(cells["cause"], cells["row"], ops)[1]

    @cached_property
    def gaps(self) -> list[Gap]:
        """The idle times, longest first; as long as in steps that nothing recorded, where these are known."""
        alike = self.gap_cells["step"] >= self.apart
        cells = {"number": self.gap_numbers[alike], **{name: of[alike] for name, of in self.gap_cells.items()}}
        first, of = _numbered(cells["number"])
        sums = _sums(cells, of, {"time": self.scale * self.bare_scales[1], "count": 1000 * self.scale})
        rows = _rows(cells, first, ("cause", "row", "wait", "event", "number"))
        found = (Gap(CAUSES[row.pop("cause")], **row, **one) for row, one in zip(rows, sums, strict=True))
        return sorted(found, key=lambda gap: -gap.time)

    def causes_of(self, part: str) -> Mapping[str, float]:
        """Return the idle time of a part by the label of its cause, µs per step, longest first."""
        times: dict[str, float] = {}
        for gap in self.gaps:
            place = CAUSES.index(gap.cause)
            if IDLE_PARTS[place] == part:
                label = _core.idle_labels[place]
                times[label] = times.get(label, 0.0) + gap.time
        return dict(sorted(times.items(), key=lambda item: -item[1]))

    def gaps_of(self, *causes: str) -> list[Gap]:
        """Return the idle times of these causes, longest first."""
        return [gap for gap in self.gaps if gap.cause in causes]

    def idle(self, *causes: str) -> float:
        """Return the idle time of these causes, µs per step."""
        return sum(gap.time for gap in self.gaps_of(*causes))

    def enclosing(self, event: int) -> list[tuple[str, str]]:
        """Return (kind, name) of an event and of those around it, innermost first."""
        return self.core.enclosing(event) if event >= 0 else []

    def calls_alike(
        self, events: npt.NDArray[np.int64], *, arguments: bool = False, around: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Return of each group of events that are alike (csrc/store/alike.h) the first and their number, and the group
        of each event. Rules look at one call of a group: a profile has millions of calls, but few that are unlike."""
        places, groups = self.core.alike(events, arguments, around)
        return events[places], np.bincount(groups, minlength=len(places)), groups

    def described(self, name: str, shapes: Shapes, around: bool = False) -> Sequence[tuple[int, Sequence[Any], int]]:
        """Return (first event, recorded arguments, number) of the calls with equal arguments of an op of torch of that
        name whose first two arguments have these shapes; around: and within events of equal names."""
        of = name if around else "aten::"
        if of not in self._described:
            found = self._described[of] = {}
            columns, texts, *_ = self.events
            chosen = np.array([text == of if around else text.startswith(of) for text in (*texts, "")])
            first, counts, _ = self.calls_alike(np.flatnonzero(chosen[columns["name"]]), arguments=True, around=around)
            for event, count in zip(first.tolist(), counts.tolist(), strict=True):
                given = self.core.arguments(event) or ()
                key = texts[columns["name"][event]], tuple(one[1] for one in given[:2])
                found.setdefault(key, []).append((event, given, count))
        return self._described[of].get((name, shapes), ())

    def op_around(self, event: int) -> str:
        """Return the name of the outermost op around an event, or its own name."""
        around = self.enclosing(event)
        name = next((name for kind, name in reversed(around) if kind == "op"), around[0][1] if around else "")
        return name.removeprefix(AUTOGRAD)

    # What the program would take without being recorded -------------------------------------------------------------

    @property
    def bare(self) -> RunSteps | None:
        """What is known of steps that nothing recorded; None without any."""
        found = self.facts.run_steps
        return found if found is not None and found.bare > 0 and self.has_steps else None

    @cached_property
    def bare_scales(self) -> tuple[float, float]:
        """Factors of the times of work and of idle times that make steps as long as those that nothing recorded; 1
        where these are unknown. A device's work takes as long, recorded or not; a CPU's ops are slowed as the rest is.
        """
        if self.bare is None or not self.total > 0:
            return 1.0, 1.0
        wanted = self.bare.bare * max(len(self.devices), 1)  # all of them take part in the step
        work = self.scale * float(self.cells["exclusive"][self.cells["step"] >= self.apart].sum())
        if self.on_device and work < min(wanted, self.total):
            return 1.0, (wanted - work) / (self.total - work)
        return wanted / self.total, wanted / self.total

    @cached_property
    def recording(self) -> Recording:
        """What recording cost the host, and how much of it delayed the device."""
        gaps, calls = (self.gaps_of(*LATE), ALLOCATIONS) if self.on_device else ([], ())
        steps, count = self.alike, max(len(self.alike), 1)
        found = recording_cost(
            by_torch="trace" in self.columns["timing_source"] and not self.facts.hints.own,
            events={kind: sum(step.events.get(kind, 0) for step in steps) / count for kind in RECORDED},
            has_shapes=any(step.described for step in steps),
            launch_time=self.launch_time,
            idle=self.idle("recording"),
            late=[(gap.time, gap.count) for gap in gaps],
            allocations=[(self.row_sum(name, "cpu_time_total"), self.row_sum(name, "count")) for name in calls],
        )
        if self.bare is None:
            return found
        delay = max(self.total - self.bare.bare * max(len(self.devices), 1), 0.0)
        # A step as long as without recording tells nothing of what that cost the host: the device took as long.
        return Recording(delay if delay > BOUND * self.total else found.host, delay, 0.0)

    @property
    def is_delayed(self) -> bool:
        """Whether recording delayed the device by more than 1 % of the time; less is not worth mentioning."""
        return self.recording.delay > 0.01 * self.total

    @cached_property
    def unobserved(self) -> float:
        """µs of a step without recording, as measured or estimated; 0 if that is all that is known to have taken the
        time."""
        if self.bare is not None:
            return self.bare.bare * max(len(self.devices), 1)
        left = self.total - self.recording.delay
        return left if left > ROUNDING * self.total else 0.0

    @cached_property
    def _late_unobserved(self) -> float:
        """The share of the idle time by host or wait that there would be without recording."""
        late = self.idle(*LATE)
        return 1 - self.recording.slowed / late if late > 0 else 0.0

    def unobserved_share(self, cause: str) -> float:
        """Return the share of the idle time of a cause that there would be without recording."""
        if self.bare is not None:
            return self.bare_scales[1]
        return self._late_unobserved if cause in LATE else float(cause != "recording")

    def gap_unobserved(self, gap: Gap) -> float:
        """Return an idle time as it would be without recording, which delays only what the host causes."""
        return gap.time if self.bare is not None else gap.time * self.unobserved_share(gap.cause)

    @cached_property
    def host(self) -> float:
        """Estimated µs per step that the host works, without its waits and without recording.

        A program of JAX waits in Python for results, which is not recorded: if the device has work at least half of the
        time, the host works for as long as the driver's calls and the idle time that it causes.
        """
        host = sum(step.host - step.waits for step in self.alike) * self.scale
        late = self.idle(*LATE)
        if self.uses_jax and 2 * late < self.total:
            keys = [key for key in dict.fromkeys(self.columns["key"]) if DRIVER.match(key)]
            host = min(host, late + sum(self.row_sum(key, "self_cpu_time_total") for key in keys))
        host -= self.recording.host + self.recording.idle
        return min(max(host, 0.0), self.unobserved)

    def host_of(self, ops: Sequence[Op]) -> float:
        """Return the host time of ops, estimated by their share of all launches."""
        count = sum(op.count for op in self.ops)
        return self.host * sum(op.count for op in ops) / count if count > 0 else 0.0

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of these columns, row by row."""
        return zip(*(self.columns[name] for name in names), strict=True)

    def row_sum(self, key: str, column: str) -> float:
        """Return a column (times in µs) per step, summed over the rows of a name."""
        values = self.columns[column]
        return sum(float(values[i]) for i in self.rows_of.get(key, ())) / self.step_count

    @cached_property
    def rows_of(self) -> Mapping[str, Sequence[int]]:
        rows: dict[str, list[int]] = {}
        for row, key in enumerate(self.columns["key"]):
            rows.setdefault(key, []).append(row)
        return rows


def analysis_of(
    results: Results, what: str, peaks: str | None = None, window: tuple[float, float] | None = None
) -> Analysis:
    """Return what accounting and advice of a profile are computed from; that of the last call is kept.

    what: what it is for, for the RuntimeError during recording or if nothing was recorded. peaks: as in key_averages().
    window: of the time between, in µs since the profile began, as if it were a profile without steps.
    """
    core, source = store_of(results, what), peaks or usual_peaks_of(results)
    rows = partial(grouped, results, core, source, account=True, brief=True, window=window)
    key = (id(core), core.event_count, source, window)
    name = "analysis" if window is None else "window"
    return kept(results, name, key, lambda: Analysis(core, rows(), results.graphs))
