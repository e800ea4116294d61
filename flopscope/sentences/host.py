"""What the host did while a device, or the program, waited: the facts of a finding.

Times are in µs, ``per`` says of what: "a step" or "in the profile".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flopscope.support.units import percent_text, plural, short_time_text

__all__ = [
    "Allocations",
    "Copies",
    "DataWait",
    "HostWork",
    "Launches",
    "OptimizerOps",
    "Waits",
    "Warmup",
    "often",
    "remedy_of",
]


class Warmup(NamedTuple):
    """Idle time that the first use of code caused."""

    compiling: float
    loading: float
    launching: float
    """In calls that launch a kernel for the first time."""
    trying: float
    """After waits in which a library measures kernels."""
    per: str
    on_device: bool
    tuning: tuple[str, ...]
    """Ranges in which a library tried which of its kernels is the fastest."""
    later: int
    """Steps after the first in which torch.compile compiled."""

    @property
    def action(self) -> str:
        return "Leave the first steps out of the recording"

    @property
    def reason(self) -> str:
        idle = "the device idles" if self.on_device else "no op runs for"
        parts = [
            f"{short_time_text(time)} {self.per} {what}"
            for time, what in (
                (self.compiling, "while torch.compile compiles"),
                (self.loading, "while code is loaded for the first launch of a kernel"),
                (self.launching, "in calls that launch a kernel for the first time, which load its code"),
                (self.trying, "while a library measures which of its kernels is the fastest"),
            )
            if time > 0
        ]
        tuned = f" Kernels were tuned as well: {', '.join(self.tuning[:3])}." if self.tuning else ""
        again = (
            f" torch.compile compiled in {self.later} later steps too: keep shapes and Python values that it guards "
            "from changing, or mark them dynamic (torch._dynamo.mark_dynamic, dynamic=True)."
            if self.later >= RECOMPILES
            else ""
        )
        return (
            f"{idle} {', and '.join(parts)}. Record later ones with flopscope run --steps, or "
            f"schedule(skip_first=…).{tuned}{again}"
        )


RECOMPILES = 2
"""Later steps in which torch.compile must compile before the advice says so."""


class DataWait(NamedTuple):
    """The time for which the program waited for a DataLoader."""

    waited: float
    per: str
    workers: bool | None
    """Whether the loader has worker processes; None: unknown."""
    starting: float
    """Part of the wait, left out of ``waited``, in which the workers started."""
    on_device: bool
    pageable: bool
    """Whether copies from pageable memory to the device were recorded."""

    @property
    def action(self) -> str:
        if self.workers:
            return "Make the DataLoader's workers faster"
        return "Load data ahead of its use" if self.workers is None else "Load data in worker processes"

    @property
    def reason(self) -> str:
        who = "the device" if self.on_device else "the program"
        waits = f"{who} waits {short_time_text(self.waited)} {self.per}"
        pin = " Copies to the device come from pageable memory: add pin_memory=True." if self.pageable else ""
        start = (
            f" (The first batch, for which the workers start, takes {short_time_text(self.starting)} more.)"
            if self.starting > 0
            else ""
        )
        if self.workers:
            return (
                f"{waits} for batches that its worker processes have not "
                f"finished. Do less per sample, or use more workers if the machine has idle cores.{start}{pin}"
            )
        if self.workers is None:
            return f"{waits} for the DataLoader. Do less per sample, or load ahead.{pin}"
        return (
            f"{waits} while the DataLoader loads in the program's own process. Give it "
            f"worker processes (num_workers, 0 now), or do less per sample.{pin}"
        )


class Copies(NamedTuple):
    """Copies between host and device during which nothing computed."""

    exposed: float
    per: str
    to_device: bool
    to_host: bool
    pageable: float
    """Share of the time of copies whose memory on the host is pageable."""
    from_pageable: bool
    """Whether copies to the device are among those."""
    torch: bool
    """Whether the program is one of PyTorch."""

    @property
    def _way(self) -> str:
        both = self.to_device and self.to_host
        return "between host and device" if both else "to the device" if self.to_device else "to the host"

    @property
    def action(self) -> str:
        return f"Copy {self._way} in the background"

    @property
    def reason(self) -> str:
        kind = "pageable " if self.pageable > 0.5 else ""
        memory = "pinned memory (pin_memory)" if self.from_pageable and self.torch else "pinned memory on the host"
        calls = "non_blocking=True" if self.torch else "cudaMemcpyAsync"
        pinned = f"Use {memory} and {calls}" if kind else f"Use {calls}"
        ahead = ", and copy on another stream before the computation needs the data" if self.to_device else ""
        later = ", and read the result after more work has been launched" if self.to_host else ""
        return (
            f"{short_time_text(self.exposed)} {self.per} of {kind}copies {self._way} overlap with no "
            f"computation. {pinned}{ahead}{later}."
        )


class Allocations(NamedTuple):
    """Calls with which the driver allocated or freed device memory in the steps."""

    calls: int
    """In all steps."""
    steps: int
    names: tuple[str, ...]
    time: float
    per: str
    frees: bool

    @property
    def action(self) -> str:
        return "Keep device memory that was allocated"

    @property
    def reason(self) -> str:
        cause = "Remove torch.cuda.empty_cache(), avoid" if self.frees else "Avoid"
        return (
            f"{often(self.calls, self.steps, self.per)} of "
            f"{', '.join(self.names)} {'takes' if self.calls == self.steps else 'take'} "
            f"{short_time_text(self.time)} {self.per}. {cause} sizes that change with each step, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )


def often(calls: int, steps: int, per: str) -> str:
    """Return how often a call was made: per step, or in all of them where that is less than once."""
    return f"{plural(calls, 'call')} in {steps} steps" if calls < steps else f"{plural(calls / steps, 'call')} {per}"


READ = (
    "Keep results on the device (accumulate losses and norms as tensors), and read them every few steps, with one "
    ".item() or a non_blocking copy."
)
SIZED = (
    "The size of its result depends on the data, so the host must read it: use torch.where or masks, whose sizes are "
    "fixed, or give output_size where the op takes it."
)
BRANCHED = (
    "It decides a condition in Python: leave out the `if` or the assertion, or select with torch.where, which needs no "
    "value on the host."
)
COALESCED = "Coalesce the sparse tensor once, where it is made: a tensor that is coalesced already needs no wait."
SYNCHRONIZE = "Leave out the synchronize() that the program does not need, and wait for single events."
SIZED_OPS = ("nonzero", "masked_select", "_unique2", "unique_dim", "repeat_interleave", "bincount")
REMEDIES = {
    "aten::is_nonzero": BRANCHED,
    "aten::_coalesce": COALESCED,
    **{f"aten::{name}": SIZED for name in SIZED_OPS},
    **dict.fromkeys(("aten::item", "aten::tolist", "aten::_local_scalar_dense"), READ),
}


def remedy_of(call: str, ops: Sequence[str]) -> tuple[str, str]:
    """Return the op to blame for a call that waits, or the call, and what to do. ops: those around it, innermost first.

    The outermost op that is known to wait decides; of others, the innermost is blamed, and nothing is advised.
    """
    for op in reversed(ops):
        if op in REMEDIES:
            return op, REMEDIES[op]
    if ops:
        return ops[0], ""
    return call, SYNCHRONIZE if call.endswith("Synchronize") else ""


class Waits(NamedTuple):
    """A call in which the host waits for the device, which then has nothing to do."""

    call: str
    ops: tuple[str, ...]
    """Ops around the call, innermost first."""
    calls: int
    """Calls that waited, in all steps."""
    steps: int
    idle: float
    earlier: float
    """Time by which the host would be earlier with other launches, which are late; 0: with none."""
    per: str

    @property
    def action(self) -> str:
        return f"Do not wait for the device in {remedy_of(self.call, self.ops)[0]}"

    @property
    def reason(self) -> str:
        op, remedy = remedy_of(self.call, self.ops)
        inside = f" (in {op})" if op != self.call else ""
        more = (
            f" Without these calls it would launch other late work up to {short_time_text(self.earlier)} "
            f"{self.per} earlier as well."
            if self.earlier > 0
            else ""
        )
        return (
            f"{self.call}{inside} waits for it, {often(self.calls, self.steps, self.per)}, "
            f"and the device then idles {short_time_text(self.idle)} {self.per} until the host has launched again."
            f"{more} {remedy}"
        ).rstrip()


class OptimizerOps(NamedTuple):
    """An optimizer's step of separate ops."""

    name: str
    by_lists: bool
    """Whether an op takes a list of tensors (foreach)."""
    pieces: float
    """Kernels, or ops on the CPU, of a step."""
    on_device: bool
    per: str
    passes: float | None
    """Arrays of the parameters' size that its ops read and write; None: unknown."""
    fused: int | None
    """The same of the fused step."""

    @property
    def action(self) -> str:
        return f"Use torch.optim.{self.name}(..., fused=True)"

    @property
    def reason(self) -> str:
        how = "a list of tensors at a time (foreach)" if self.by_lists else "tensor by tensor"
        pieces = plural(self.pieces, "kernel" if self.on_device else "op")
        passes = (
            f", which read and write about {self.passes:.0f} arrays of the parameters' size; the fused step does with "
            f"{self.fused}"
            if self.passes is not None and self.fused is not None and self.passes > self.fused
            else ""
        )
        return f"the step runs {how}, in {pieces} {self.per}{passes}."


class Launches(NamedTuple):
    """Launches, piece by piece, that came after the device had become idle."""

    idle: float
    per: str
    launches: float
    """API calls that launched work."""
    late: float | None
    """Late launches in percent, as in the table of launches; None: there are several devices."""
    torch: bool
    """Whether the program is one of PyTorch."""

    @property
    def action(self) -> str:
        return "Launch more work at once"

    @property
    def reason(self) -> str:
        late = "" if self.late is None else f", {percent_text(self.late)} of them late"
        how = 'a CUDA graph or torch.compile(mode="reduce-overhead")' if self.torch else "a CUDA graph"
        return (
            f"the device waits {short_time_text(self.idle)} {self.per} for the host, which "
            f"makes {plural(self.launches, 'launch', 'launches')} {self.per}{late}. Use {how}, or larger "
            "batches. The times of the ops listed here are those for which the device waited for their launch."
        )


class HostWork(NamedTuple):
    """Work of the host, other than launching, while the device idled."""

    idle: float
    per: str
    names: tuple[str, ...]
    """Ops, ranges and lines that the host was in for most of that time."""
    covered: float
    """Part of ``idle`` that the recorded ones take."""

    @property
    def action(self) -> str:
        return "Take work off the thread that launches"

    @property
    def reason(self) -> str:
        return (
            f"the device idles {short_time_text(self.idle)} {self.per} in long "
            f"pauses between launches; the host was in {', '.join(self.names)} for {short_time_text(self.covered)} of "
            "it. Do that in another thread or process, on the device, or while the device has work."
        )
