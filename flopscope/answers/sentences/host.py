"""Sentences about what the host did while a device, or the program, waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flopscope.answers.sentences.words import Said, form
from flopscope.support.units import percent_text, plural, short_time_text

FIRST_USES = {
    "compiling": "while torch.compile compiles",
    "loading": "while code is loaded for the first launch of a kernel",
    "launching": "in calls that launch a kernel for the first time, which load its code",
    "trying": "while a library measures which of its kernels is the fastest",
}
AGAIN = (
    " torch.compile compiled in {} later steps too: keep shapes and Python values that it guards from changing, or "
    "mark them dynamic (torch._dynamo.mark_dynamic, dynamic=True)."
)
AGAIN_BY_XLA = (
    " XLA compiled in {} later steps too: pad arrays to few shapes, keep static arguments from changing, and call "
    "jax.jit once, outside of the loop."
)
RECOMPILES = 2
"""Later steps in which torch.compile or XLA must compile before the advice says so."""


def warmup(
    compiling: float,
    loading: float,
    launching: float,
    trying: float,
    per: str,
    on_device: bool,
    later: int,
    jax: bool,
    tried: float,
    how: str,
) -> Said:
    """Idle time that the first use of code caused.

    launching: in calls that launch a kernel for the first time. trying: after waits in which a library measures
    kernels. later: steps after the first in which torch.compile or XLA compiled. jax: whether JAX compiled. tried: µs
    of work that was launched while the program was compiled. how: what records later steps.
    """
    idle = "the device idles" if on_device else "no op runs for"
    uses = {**FIRST_USES, "compiling": "while JAX compiles"} if jax else FIRST_USES
    times = dict(zip(uses.values(), (compiling, loading, launching, trying), strict=True))
    parts = ", and ".join(f"{short_time_text(time)} {per} {what}" for what, time in times.items() if time > 0)
    meanwhile = f" Work that was launched meanwhile takes {short_time_text(tried)} {per}." if tried > 0 else ""
    again = (AGAIN_BY_XLA if jax else AGAIN).format(later) if later >= RECOMPILES else ""
    return Said(
        "Leave the first steps out of the recording", f"{idle} {parts}. Record later ones with {how}.{meanwhile}{again}"
    )


def data_wait(waited: float, per: str, workers: bool | None, starting: float, on_device: bool, pageable: bool) -> Said:
    """The time for which the program waited for a DataLoader.

    workers: whether the loader has worker processes; None: unknown. starting: part of the wait, left out of ``waited``,
    in which the workers started. pageable: whether copies from pageable memory to the device were recorded.
    """
    waits = f"{'the device' if on_device else 'the program'} waits {short_time_text(waited)} {per}"
    pin = " Copies to the device come from pageable memory: add pin_memory=True." if pageable else ""
    if workers is None:
        why = f"{waits} for the DataLoader. Do less per sample, or load ahead.{pin}"
        return Said("Load data ahead of its use", why)
    if not workers:
        return Said(
            "Load data in worker processes",
            f"{waits} while the DataLoader loads in the program's own process. Give it worker processes (num_workers, "
            f"0 now), or do less per sample.{pin}",
        )
    more = f" (The first batch, for which the workers start, takes {short_time_text(starting)} more.)"
    start = more if starting > 0 else ""
    return Said(
        "Make the DataLoader's workers faster",
        f"{waits} for batches that its worker processes have not finished. Do less per sample, or use more workers if "
        f"the machine has idle cores.{start}{pin}",
    )


def copies(
    exposed: float, per: str, to_device: bool, to_host: bool, pageable: float, from_pageable: bool, torch: bool
) -> Said:
    """Copies between host and device during which nothing computed.

    pageable: share of the time of copies whose memory on the host is pageable. from_pageable: whether copies to the
    device are among those. torch: whether the program is one of PyTorch.
    """
    way = "to the device" if to_device else "to the host"
    if to_device and to_host:
        way = "between host and device"
    kind = "pageable " if pageable > 0.5 else ""
    memory = "pinned memory (pin_memory)" if from_pageable and torch else "pinned memory on the host"
    calls = "non_blocking=True" if torch else "cudaMemcpyAsync"
    ahead = ", and copy on another stream before the computation needs the data" if to_device else ""
    later = ", and read the result after more work has been launched" if to_host else ""
    return Said(
        f"Copy {way} in the background",
        f"{short_time_text(exposed)} {per} of {kind}copies {way} overlap with no computation. Use "
        f"{f'{memory} and ' if kind else ''}{calls}{ahead}{later}.",
    )


def allocations(calls: int, steps: int, names: tuple[str, ...], time: float, per: str, frees: bool) -> Said:
    """Calls with which the driver allocated or freed device memory in the steps.

    calls: in all steps.
    """
    cause = "Remove torch.cuda.empty_cache(), avoid" if frees else "Avoid"
    return Said(
        "Keep device memory that was allocated",
        f"{often(calls, steps, per)} of {', '.join(names)} {form(calls / steps, 'takes', 'take')} "
        f"{short_time_text(time)} {per}. {cause} sizes that change with each step, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )


def often(calls: int, steps: int, per: str) -> str:
    """Return how often a call was made: per step, or in all of them where that is less than once."""
    return f"{plural(calls, 'call')} in {steps} steps" if calls < steps else f"{plural(calls / steps, 'call')} {per}"


BLAMED = {
    "aten::is_nonzero": "branched",
    "aten::_coalesce": "coalesced",
    **dict.fromkeys(("aten::item", "aten::tolist", "aten::_local_scalar_dense"), "read"),
    **dict.fromkeys(("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim"), "sized"),
    **dict.fromkeys(("aten::repeat_interleave", "aten::bincount"), "sized"),
}
"""What ops of torch wait for: a condition in Python, a value, or the size of a result."""
REMEDIES: Mapping[str, str] = {
    "read": (
        " Keep results on the device (accumulate losses and norms as tensors), and read them every few steps, with one "
        ".item() or a non_blocking copy."
    ),
    "sized": (
        " The size of its result depends on the data, so the host must read it: use torch.where or masks, whose sizes "
        "are fixed, or give output_size where the op takes it."
    ),
    "branched": (
        " It decides a condition in Python: leave out the `if` or the assertion, or select with torch.where, which "
        "needs no value on the host."
    ),
    "coalesced": (
        " Coalesce the sparse tensor once, where it is made: a tensor that is coalesced already needs no wait."
    ),
    "synchronize": " Leave out the synchronize() that the program does not need, and wait for single events.",
    "": "",
}
"""What to do about waits, by what they are for."""
OF_JAX = (
    " In a program of JAX, np.asarray(), float(), print() and block_until_ready() wait for results: keep these as "
    "arrays, and read them every few steps."
)


def blamed(call: str, ops: Sequence[str]) -> tuple[str, str]:
    """Return the op to blame for a call that waits, or the call, and what for. ops: those around it, innermost first.

    The outermost op that is known to wait decides; of others, the innermost is blamed, and nothing is advised.
    """
    known = next((op for op in reversed(ops) if op in BLAMED), None)
    if known is not None:
        return known, BLAMED[known]
    return (ops[0], "") if ops else (call, "synchronize" if call.endswith("Synchronize") else "")


def waits(
    call: str, ops: tuple[str, ...], calls: int, steps: int, idle: float, earlier: float, per: str, jax: bool = False
) -> Said:
    """A call in which the host waits for the device, which then has nothing to do.

    ops: ops around the call, innermost first. calls: calls that waited, in all steps. earlier: time by which the host
    would be earlier with other launches, which are late; 0: with none. jax: whether the program is one of JAX.
    """
    op, remedy = blamed(call, ops)
    what_to_do = OF_JAX if jax else REMEDIES[remedy]
    inside = f" (in {op})" if op != call else ""
    gained = f"up to {short_time_text(earlier)} {per} earlier"
    more = f" Without these calls it would launch other late work {gained} as well." if earlier > 0 else ""
    return Said(
        f"Do not wait for the device in {op}",
        f"{call}{inside} waits for it, {often(calls, steps, per)}, and the device then idles "
        f"{short_time_text(idle)} {per} until the host has launched again.{more}{what_to_do}",
    )


def optimizer_ops(
    name: str, by_lists: bool, pieces: float, on_device: bool, per: str, passes: float | None, fused: int | None
) -> Said:
    """An optimizer's step of separate ops.

    by_lists: whether an op takes a list of tensors (foreach). pieces: kernels, or ops on the CPU, of a step. passes:
    arrays of the parameters' size that its ops read and write; None: unknown. fused: the same of the fused step.
    """
    how = "a list of tensors at a time (foreach)" if by_lists else "tensor by tensor"
    parts = plural(pieces, "kernel" if on_device else "op")
    traffic = (
        f", which read and write about {passes:.0f} arrays of the parameters' size; the fused step does with {fused}"
        if passes is not None and fused is not None and passes > fused
        else ""
    )
    return Said(f"Use torch.optim.{name}(..., fused=True)", f"the step runs {how}, in {parts} {per}{traffic}.")


def launches(idle: float, per: str, launches: float, late: float | None, torch: bool, jax: bool = False) -> Said:
    """Launches, piece by piece, that came after the device had become idle.

    launches: API calls that launched work. late: late launches in percent, as in the table of launches; None: there are
    several devices. torch: whether the program is one of PyTorch. jax: whether it is one of JAX.
    """
    of_them = "" if late is None else f", {percent_text(late)} of them late"
    how = 'a CUDA graph or torch.compile(mode="reduce-overhead")' if torch else "a CUDA graph"
    if jax:
        how = "one jitted function for more of the step, unroll= of its loops (jax.lax.scan, fori_loop)"
    return Said(
        "Launch more work at once",
        f"the device waits {short_time_text(idle)} {per} for the host, which makes "
        f"{plural(launches, 'launch', 'launches')} {per}{of_them}. Use {how}, or larger batches. The times of the "
        "ops listed here are those for which the device waited for their launch.",
    )


def host_work(idle: float, per: str, names: tuple[str, ...], covered: float) -> Said:
    """Work of the host, other than launching, while the device idled.

    names: ops, ranges and lines that the host was in for most of that time. covered: part of ``idle`` that the recorded
    ones take.
    """
    return Said(
        "Take work off the thread that launches",
        f"the device idles {short_time_text(idle)} {per} in long pauses between launches; the host was in "
        f"{', '.join(names)} for {short_time_text(covered)} of it. Do that in another thread or process, on the "
        "device, or while the device has work.",
    )
