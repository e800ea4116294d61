"""Facts of findings: what is true of the program, in numbers, names and flags.

Their sentences stand in flopscope.answers.sentences. Times are in µs, sizes in bytes; ``per`` says of what: "a step"
or "in the profile".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

SMALL_MESSAGE = 1 << 20
"""Bytes: smaller messages are limited by the latency of the link (NCCL tests)."""


class Attention(NamedTuple):
    """Attention that is written out."""

    matrices: int
    rows: int
    columns: int
    names: Sequence[str]
    """Ops that make the scores, change them and read them, in the order of their first calls."""
    averaged: bool
    """The scores are averaged over their heads, as nn.MultiheadAttention does to return them."""
    module: bool
    """It is known that nn.MultiheadAttention does."""


class MathPath(NamedTuple):
    """scaled_dot_product_attention without a fused kernel."""

    calls: float
    per: str
    time: float


class Tf32(NamedTuple):
    """Float32 products and convolutions on CUDA cores, times in µs."""

    products: float
    convolutions: float


class LowPrecision(NamedTuple):
    """Products, convolutions and attention that could run in 16 bits."""

    parts: Sequence[tuple[str, float, float]]
    """("product", "convolution" or "attention", calls, their time)."""
    per: str
    unit: str
    """In which those run that are not attention: "TF32", "float32"; "" without any."""
    half: str
    """ "bfloat16" or "float16"."""
    scaled: bool
    """Gradients in float16 need a scaled loss."""
    ratio: float
    """FLOPs per second in 16 bits over those in the unit; NaN: no unit."""


class Padded(NamedTuple):
    """Products with rows that are not multiples of the vectors that fast kernels load."""

    op: str
    sizes: Sequence[str]
    """ "N = 50257" """
    padded: Sequence[str]
    multiple: int
    """Elements."""
    alignment: int
    """Bytes."""
    products: float
    per: str
    share: float
    """Percent of the limit that the longest reaches."""
    usual: float
    vocabulary: bool = False
    """The size is that of the vocabulary: an embedding has so many rows, and a loss or a choice so many classes."""


class Small(NamedTuple):
    """A kernel that leaves multiprocessors idle."""

    op: str
    kernel: str
    blocks: int
    processors: int
    resident: int
    """Blocks of it that the device can hold at once."""
    over_rows: bool
    """It reduces over rows, so that more rows give no more blocks."""
    ops: int


Such = Literal["products", "large products", "alike", "one block"]


class FarOp(NamedTuple):
    """An op that reaches less than half of what such ops reach."""

    op: str
    kernel: str
    blocks: int
    """Blocks of its grid; 0: unknown."""
    time: float
    share: float
    """Percent of the limit; NaN: the limit is unknown."""
    usual: float
    """What such ops reach, in percent; NaN: unknown."""
    such: Such
    """Which ops: "products" are others on tensor cores in this profile; "one block": the kernel has only one."""
    written_for: str
    """ "sm80" for a kernel of an older architecture than ``runs_on``; else both are "". """
    runs_on: str
    processors: int
    """Multiprocessors of the device."""


class Cached(NamedTuple):
    """Ops whose share of the roofline says nothing, as the L2 served most of their bytes: the longest of them."""

    op: str
    ratio: float
    """Bytes that moved over those of the model."""
    memory: float
    """Percent of the memory's bandwidth that the model's bytes are."""
    compute: float
    """Percent of the peak that the FLOPs are."""
    computes: bool
    """The FLOPs take the time."""
    l2_rate: float
    """Bytes/µs that the L2 served; NaN: unknown, or less than half of its known peak."""
    ops: int


class FarFromRoof(NamedTuple):
    """The ops far from their roof, the longest first."""

    ops: tuple[FarOp, ...]
    per: str


class Casts(NamedTuple):
    """Casts between float dtypes."""

    calls: float
    per: str
    time: float
    host: float
    """NaN in a CPU program."""
    source: str
    target: str
    """Dtypes of the longest."""
    autocast: bool
    """Some lie within the calls of ops that autocast serves."""
    trained: bool
    """A backward pass ran."""


class ChannelsLast(NamedTuple):
    """Conversions between NCHW and NHWC around convolutions."""

    time: float
    calls: float
    """Calls of the convolutions."""
    per: str


class Reordered(NamedTuple):
    """Copies that change nothing but the order of elements in memory."""

    calls: float
    per: str
    time: float
    host: float
    """NaN in a CPU program."""
    caller: str
    """The op that copies, of the longest: "aten::contiguous"."""


class Chains(NamedTuple):
    """Memory-bound ops over equally many elements, one after another."""

    names: Sequence[str]
    """Ops of one chain, in its order."""
    several: bool
    """There are other chains."""
    time: float
    """Time of the traffic between the ops of all chains."""
    compiled: bool
    """torch.compile compiles other parts of the program."""


class Traffic(NamedTuple):
    """Bytes beyond those of the model, by the GPU's counters."""

    op: str
    ratio: float
    reads: float
    """Bytes read over those of its inputs; NaN: unknown, or not more."""
    jax: bool


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
    """Steps after the first in which torch.compile or XLA compiled."""
    jax: bool
    """Whether JAX compiled."""
    tried: float
    """µs of work that was launched while the program was compiled."""


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


class Allocations(NamedTuple):
    """Calls with which the driver allocated or freed device memory in the steps."""

    calls: int
    """In all steps."""
    steps: int
    names: tuple[str, ...]
    time: float
    per: str
    frees: bool


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
    jax: bool = False
    """Whether the program is one of JAX."""


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
    jax: bool = False
    """Whether it is one of JAX."""
    loop: bool = False
    """Whether most of that idle time is in the body of a loop of JAX."""


class FirstUse(NamedTuple):
    """Most of what was recorded ran for the first time."""


class Paused(NamedTuple):
    """Long pauses between launches for which no rule has advice."""

    idle: float
    per: str
    times: Sequence[tuple[str, float]]
    """What the host was in, and for how long; none if nothing was recorded."""


class HostWork(NamedTuple):
    """Work of the host, other than launching, while the device idled."""

    idle: float
    per: str
    names: tuple[str, ...]
    """Ops, ranges and lines that the host was in for most of that time."""
    covered: float
    """Part of ``idle`` that the recorded ones take."""


class WaitsForRanks(NamedTuple):
    """Time of collectives beyond what their bytes need."""

    waited: float
    per: str
    calls: int
    """Calls that waited, in all steps."""
    collectives: int
    steps: int
    devices: int
    """In the profile."""


class ExposedTransfers(NamedTuple):
    """Time that the bytes of collectives need while nothing computes."""

    exposed: float
    per: str
    kind: str
    """The kind of collective with the most of that time."""
    message: float
    """Median size of those."""
    backward: bool
    """Whether the profile has a backward pass."""
    buckets: bool
    """Whether DistributedDataParallel is in use."""
    schedule: str
    """What XLA's schedule has between the start and the end of those with most of that time: "beside" is other work,
    "alone" is none, "never" is none of any collective, "unknown"; "" for programs that are not of JAX."""


class Undonated(NamedTuple):
    """Copies of arguments of jitted functions that are not donated."""

    names: tuple[str, ...]
    """The first of the arguments."""
    arguments: int
    time: float
    per: str


class Transposed(NamedTuple):
    """Arguments of jitted functions that XLA moves to another order of axes before it reads them."""

    names: tuple[str, ...]
    """The first of the arguments."""
    arguments: int
    axes: tuple[int, ...]
    """The axes of the first argument in the order in which it is read, the outermost first; empty: unknown."""
    time: float
    per: str


class CopiedCarry(NamedTuple):
    """Copies of arrays of a loop's carry."""

    calls: float
    shape: str
    """Of the longest: "64x256"."""
    time: float
    per: str


class Callbacks(NamedTuple):
    """Calls of Python on the host in jitted functions."""

    names: tuple[str, ...]
    calls: float
    time: float
    """Of their copies."""
    idle: float
    per: str


class Precise(NamedTuple):
    """Products on CUDA cores, as a precision above the default was asked for."""

    precision: str
    """ "high" or "highest", of the longest."""
    calls: float
    time: float
    per: str


class Widened(NamedTuple):
    """Products whose factors are converted to float32 from a type of 16 bits."""

    source: str
    """ "bfloat16" or "float16", of the longest."""
    calls: float
    time: float
    per: str
