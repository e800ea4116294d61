"""Communication between GPUs: size, bandwidth and exposed time of collectives, and the time of each stream.

All numbers come from the C core; this module makes DataFrames of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store

__all__ = ["collectives", "stream_summary"]


def collectives(core: Store) -> pandas.DataFrame:
    """Return a row for each communication kernel (NCCL, RCCL, …), in order of start; times in µs, bandwidths in GB/s.

    PyTorch records the arguments of the call with most NCCL kernels. Without them (traces of torch before 2.2, and
    RCCL's ncclDevKernel_Generic, whose name has no kind), the kind, and with input shapes the size, come from the ops
    and annotations around the launch: record_param_comms, c10d::allreduce_, nccl:all_reduce, …. For a kernel launched
    before the trace began, only its name gives the kind. Unknown values are missing.

    collective: "allreduce", "reducescatter", "allgather", "alltoall", "broadcast", "reduce", "gather", "scatter",
        "barrier", "send", "recv", "sendrecv" or "other".
    name, group, group_size, ranks, dtype: as recorded by PyTorch, or name is the op or annotation that the values come
        from; group_size in ranks. From NCCL's ranges in a file of Nsight Systems, group is the communicator, and dtype
        is "bytes".
    device, stream, start (since the profile began), duration: of this rank's kernel. It runs while it waits for other
        ranks, so only on the rank that came last are the bandwidths those of the links: see stragglers().
    message_bytes: the larger of the bytes that this rank sent and received, as in nccl-tests: for allgather and
        reducescatter the whole message, not one rank's part.
    exposed: the part of the duration in which no kernel except communication ran on the device.
    algorithm_gbytes_per_s: message_bytes / duration.
    bus_gbytes_per_s: algorithm_gbytes_per_s times 2 (n - 1) / n for allreduce among n ranks, (n - 1) / n for allgather,
        reducescatter, alltoall, gather and scatter, 1 for broadcast, reduce, send and recv: comparable with the
        bandwidth of a link (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    occurrence: number of earlier collectives with the same device, group, kind and message size.
    sequence: sequence number of the call within its group, if PyTorch recorded it.
    kernel: name of the kernel.

    Raises RuntimeError while the profile is running.
    """
    from flopscope.results.events import MISSING, EventList
    from flopscope.results.summary import _frame

    columns, begin = core.collectives()
    if begin == MISSING and columns["start"]:
        begin = EventList(core)._begin
    starts = [(start - begin) / 1000 for start in columns["start"]]
    return _whole_numbers(_frame({**columns, "start": starts}), "group_size", "stream", "sequence")


def stream_summary(core: Store) -> pandas.DataFrame:
    """Return the busy, overlapped and communication times of each stream in µs, with shares in percent.

    Each device has a row for each stream, then one for the whole device, whose stream is missing. Shares of no time are
    NaN.

    kernels, copies: number of kernels, and of copies and fills.
    busy: time in which the stream worked; overlaps count once.
    overlapped, overlapped_pct: the part of busy in which another stream of the device worked too.
    communication: time in which a communication kernel ran.
    exposed_communication, exposed_pct: the part of communication in which no other kernel ran on the device.

    Raises RuntimeError while the profile is running.
    """
    from flopscope.results.summary import _frame

    frame = _whole_numbers(_frame(core.stream_summary()), "stream")
    return frame.astype({"kernels": int, "copies": int})


def _whole_numbers(frame: pandas.DataFrame, *names: str) -> pandas.DataFrame:
    """Return the frame with the named columns as nullable integers."""
    return frame.astype(dict.fromkeys(names, "Int64"))
