"""What one call makes the hardware do: exact counts by CUPTI's Range Profiler, apart from its time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from flopscope import _core
from flopscope.measuring.stage import Stage
from flopscope.record.counters import KernelStalls, start_stalls, stop_stalls, why_no_counters
from flopscope.support.capture import stop_core
from flopscope.support.peaks import Peaks
from flopscope.support.units import MISSING, si_text

LEFT_DIRTY = "l2_bytes_left_dirty"
"""The bytes that a call wrote and that reach device memory only after it, when other data displaces them in the L2."""
ALWAYS = ("memory", "units", "issue", "scalar", "stalls", "access")
TENSOR = tuple(group for group in _core.counter_groups if group.endswith("_tensor"))
ASLEEP = "NOT_INITIALIZED"  # a capture has detached CUPTI, and it did not come back
ONLY_ALONE = (
    *("fp32_flops", "fp64_flops", "fp16_flops", "thread_instructions"),
    *("bytes_per_sector_read", "bytes_per_sector_written"),
)
"""Counters of instrumented code, which CUPTI does not instrument while kernels are recorded: they stay 0."""
SAMPLED = 0.03
"""Seconds for which instructions are sampled."""
NEAR = 0.05  # within which a ratio is a whole number of times


class Counts(dict[str, float]):
    """What the hardware counted for one call, by name; a counter that the GPU lacks is missing.

    dram_bytes_read, dram_bytes_written: traffic of the device memory in bytes until the call ends, with cold caches
        unless ``cache="hot"``. l2_bytes_left_dirty: bytes written that reach the memory later (cold caches only).
    l2_bytes: bytes requested from the L2 cache. pct_peak_l2: their rate in the median time, in percent of the measured
        bandwidth of the L2, and pct_peak_dram that of the device memory's traffic; missing where it was not measured.
    fp32_flops, fp64_flops, fp16_flops: FLOPs by instructions outside of tensor cores; a fused multiply-add is 2. Of
        fp16 and bf16, a packed instruction counts once.
    tensor_flops: FLOPs by tensor cores; a multiply-add is 2.
    sm_active, tensor_active, fma_active, fp64_active, alu_active, issue_active, l1_active, l2_active, occupancy:
        percent. l1 is the data stage of L1 caches and shared memories, through which operands of tensor cores pass
        too; l2 the busiest part of the L2.
    eligible_warps: warps per scheduler that could issue.
    instructions: warp instructions. thread_instructions: those that their threads executed.
    stall_…: waiting warps per issued instruction, by the reason for the wait. warps_per_issue: all warps in flight.
    sectors_read, sectors_written: sectors of 32 bytes of global memory that loads and stores access, of whose bytes
        they use bytes_per_sector_read and bytes_per_sector_written.
    shared_wavefronts, bank_conflicts: passes of shared memory, and those that only conflicts of its banks need.
    local_requests, atomic_requests: warp instructions that access local memory, to which registers spill, or are
        atomic. threads_per_instruction: threads of 32 that take part.
    """

    stalls: KernelStalls | None = None
    """What the warps of the longest kernel did, if that was sampled."""

    def __repr__(self) -> str:
        return f"Counts({super().__repr__()})"

    @property
    def bytes_moved(self) -> float:
        """Bytes read from and written to device memory, with those that are written back later; NaN if unknown."""
        parts = [self.get(name, math.nan) for name in ("dram_bytes_read", "dram_bytes_written")]
        return sum(parts) + self.get(LEFT_DIRTY, 0.0)


SPANS = {
    "memory_ns": ("sm_active", "tensor_active", "l2_active"),
    "units_ns": ("fma_active", "fp64_active", "alu_active", "issue_active", "l1_active"),
}
"""The time in which a group of counters was counted, and its counters that are shares of that time."""


def relate(counts: Counts, us: float, peaks: Peaks | None) -> None:
    """Relate what was counted to the µs that a call takes: the time of its launches was counted as well. Add the shares
    of the bandwidths of L2 and device memory, where they are known."""
    if not us > 0:
        return
    for span, names in SPANS.items():
        longer = max(1e-3 * counts.pop(span, 0.0) / us, 1.0)
        counts |= {name: min(longer * counts[name], 100.0) for name in names if name in counts}
    moved = {"pct_peak_l2": counts.get("l2_bytes", math.nan), "pct_peak_dram": counts.bytes_moved}
    for name, bandwidth in zip(moved, (peaks.l2_bandwidth, peaks.bandwidth) if peaks else (), strict=False):
        if bandwidth and not math.isnan(moved[name]):
            counts[name] = 100 * moved[name] / (us * 1e-6) / bandwidth


@contextmanager
def cupti_stays(wanted: object) -> Iterator[None]:
    """Keep CUPTI in the process within a ``with`` block, so that what profiles in it does not detach it before the call
    is counted."""
    if not wanted:
        yield
        return
    _core.hold_cupti(True)
    try:
        yield
    finally:
        _core.hold_cupti(False)


def count_call(stage: Stage, call: Callable[[], Any], unit: str | None, require: bool) -> Counts:
    """Count calls of a function, several of them because not all counters fit one pass.

    unit: the compute unit of its FLOPs, whose tensor cores are counted; None: those of all dtypes. Where counters are
    unavailable, add a note to the stage, or raise RuntimeError if they are required.
    """
    why = _why_not(stage)
    for awake in (nullcontext, _capture) if why is None else ():
        try:
            with awake():
                return Counts(_count(stage, call, unit))
        except RuntimeError as problem:
            why = str(problem)
        if ASLEEP not in why:
            break
    if require:
        raise RuntimeError(f"hardware counters are unavailable ({why})")
    stage.notes.append(f"no hardware counters: {why}")
    return Counts({})


@contextmanager
def _capture() -> Iterator[None]:
    """Keep CUPTI attached by a capture. Raise RuntimeError saying why it is unavailable."""
    core = _core.Profiler(ops=False, cupti=True, api_calls=False)
    try:
        core.start()
        yield
    finally:
        stop_core(core)


def sample_lines(counts: Counts, stage: Stage, call: Callable[[], Any]) -> None:
    """Add the hot lines of the call's longest kernel to its counts, if there are any; else a note to the stage. CUPTI
    may not be held."""
    if not counts:
        return
    try:
        start_stalls([_index(stage)])
        try:
            until = time.monotonic() + SAMPLED
            while time.monotonic() < until:
                call()
                _core.wait_for_devices()
        finally:
            counts.stalls = next(iter(stop_stalls(stage.notes.append)), None)
    except RuntimeError as problem:
        stage.notes.append(f"no hot lines: {problem}")


def _index(stage: Stage) -> int:
    return int(str(stage.device).partition(":")[2] or 0)


def _why_not(stage: Stage) -> str | None:
    if stage.device.kind == "cpu":
        return "the call runs on the CPU"
    # The names of NCCL and its like: a kernel of theirs waits for those of other devices.
    if any(part in name.lower() for name in stage.looks[0].core.names() for part in ("nccl", "rccl", "nvshmem")):
        return "it communicates with other devices, whose calls would have to be repeated as well"
    return why_no_counters()


def _count(stage: Stage, call: Callable[[], Any], unit: str | None) -> dict[str, float]:
    index = _index(stage)

    def ready() -> None:
        if stage.cold:
            _core.measure_flush(str(stage.device))

    def call_and_flush() -> None:
        call()
        ready()

    values: dict[str, float] = {}
    for group in ALWAYS:
        also = (call_and_flush,) if group == "memory" and stage.cold else ()
        try:
            counted, *with_flush = _core.count_calls(index, group, ready, (call, *also))
        except RuntimeError as problem:
            if group == "memory" or ASLEEP in str(problem):
                raise
            stage.notes.append(f"the counters of the group {group} are missing: {problem}")
            continue
        values |= counted
        if with_flush and "dram_bytes_written" in counted:
            values[LEFT_DIRTY] = max(with_flush[0]["dram_bytes_written"] - counted["dram_bytes_written"], 0.0)
    if values.get("thread_instructions") == 0 and values.get("instructions"):
        values = {name: value for name, value in values.items() if name not in ONLY_ALONE}
        stage.notes.append("FLOP instructions are not counted: CUPTI does not while kernels are recorded")
    groups = [unit] if unit in TENSOR else [*TENSOR]
    for group in groups if values.get("tensor_active") else []:
        with suppress(RuntimeError):  # the GPU lacks the dtype
            (counted,) = _core.count_calls(index, group, ready, (call,))
            values["tensor_flops"] = values.get("tensor_flops", 0.0) + counted.get("tensor_flops", 0.0)
    if values.get("tensor_active") == 0:
        values["tensor_flops"] = 0.0
    return values


_TIMES = {2: "twice", 3: "three times", 4: "four times"}


def traffic_sentence(counts: Counts, total: float, read: float, written: float) -> str:
    """Say how the traffic compares with the bytes that a call must move; "" if either is unknown."""
    ratio = counts.bytes_moved / total if total else math.nan
    if math.isnan(ratio):
        return ""
    if ratio < 1 - 2 * NEAR:
        return f"moves {ratio:.2f} × the bytes of its model: the rest was in the L2 cache"
    if ratio <= 1 + 2 * NEAR:
        return f"moves the bytes it must ({ratio:.2f} ×)"
    return f"moves {ratio:.1f} × the bytes it must{_reason(counts, read, written)}"


def _reason(counts: Counts, read: float, written: float) -> str:
    reads = counts.get("dram_bytes_read", math.nan) / read if read else math.nan
    writes = (counts.bytes_moved - counts.get("dram_bytes_read", math.nan)) / written if written else math.nan
    if math.isnan(reads) or math.isnan(writes):
        return ""
    whole = round(reads)
    if writes < 1 + 2 * NEAR and whole in _TIMES and abs(reads / whole - 1) < NEAR:
        return f": reads its input {_TIMES[whole]}"
    return f": reads {reads:.1f} × and writes {writes:.1f} ×"


def counts_text(counts: Counts) -> str:
    """Return the main counters in one line."""
    parts = [
        f"{si_text(counts['dram_bytes_read'], 'B')} read" if "dram_bytes_read" in counts else "",
        f"{si_text(counts['dram_bytes_written'], 'B')} written" if "dram_bytes_written" in counts else "",
        f"{si_text(counts['tensor_flops'], 'FLOP')} by tensor cores" if counts.get("tensor_flops") else "",
        f"{si_text(counts['fp32_flops'], 'FLOP')} in fp32" if counts.get("fp32_flops") else "",
        f"occupancy {counts['occupancy']:.0f} %" if "occupancy" in counts else "",
    ]
    return ", ".join(part for part in parts if part) or MISSING
