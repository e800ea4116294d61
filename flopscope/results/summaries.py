"""The summaries of a profile as DataFrames. All numbers come from the C core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.results.events import EventList
from flopscope.support.core_facts import UNKNOWN_TIME

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store

Columns = Mapping[str, Sequence[Any]]

GPU_COLUMNS = ("device", "gpu_utilization", "sm_efficiency", "achieved_occupancy", "tensor_core_time", "idle")


def _frame(columns: Columns) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame({name: list(values) for name, values in columns.items()})


def of_gpus(columns: Columns) -> Columns:
    return {name: columns[name] for name in GPU_COLUMNS}


def microseconds(columns: Columns) -> dict[str, list[Any]]:
    return {name: [v if name == "step" else v / 1000 for v in values] for name, values in columns.items()}


def records(columns: Columns) -> list[dict[str, Any]]:
    """Return a dict for each row, in which missing values are None."""
    rows = zip(*columns.values(), strict=True)
    return [{name: None if v != v else v for name, v in zip(columns, row, strict=True)} for row in rows]


class Summaries:
    """DataFrames about a profile as a whole. Each raises RuntimeError during recording and if nothing was recorded.

    GPU efficiency and the step breakdown are defined as in PyTorch's TensorBoard plugin (github.com/pytorch/kineto,
    tb_plugin).
    """

    def _recorded(self, what: str) -> Store:
        """Return the recorded events; ``what`` is what they are for."""
        raise NotImplementedError

    def gpu_summary(self, step: str | None = None) -> pandas.DataFrame:
        """Return a row for each device that was used; all columns except ``device`` are in percent.

        The columns refer to the time of the steps, of the steps named ``step`` if given (a name in the column ``step``
        of step_breakdown), or of the whole profile if it has no steps. NaN means that a value is unknown.

        gpu_utilization: share of the time in which a kernel ran.
        sm_efficiency: mean over the time of min(blocks of all running kernels / SMs, 1).
        achieved_occupancy: mean over the kernels, weighted by time, of 100 * min(blocks that an SM holds, blocks / SMs)
            * threads per block / threads per SM. The blocks that an SM holds follow CUDA's cuda_occupancy.h.
        tensor_core_time: share of the kernels' time in kernels that use the tensor cores, according to their names.
            NaN if over 5 % of it is in products whose names do not show it.
        idle: share of the time in which the device had no work: no kernel, copy or fill.

        Raises ValueError for an unknown step.
        """
        return _frame(of_gpus(self._recorded("GPU summary").gpu_summary(step)))

    def step_breakdown(self) -> pandas.DataFrame:
        """Return the time breakdown of each step in µs: a row per step, or one row with step None without steps.

        A step begins with its start on the host or the end of the step before it, and ends with its end on the host or
        the end of the last device work launched in it, whichever is later. Each moment counts once, for the first of
        these that is in progress: kernel (except communication), memcpy, memset, communication (which is thus the
        exposed part), runtime (API calls, waits for a device, profiling overhead), data_loading (ops and ranges of a
        DataLoader), other_cpu (all other ops and ranges), other. They add up to total.

        The columns are step, these parts, and total. There are no rows if nothing was recorded.
        """
        return _frame(microseconds(self._recorded("step breakdown").step_breakdown()))

    def launch_summary(self) -> pandas.DataFrame:
        """Return the launch statistics of each device that was used, one row each; times in µs, unknown values NaN.

        A launch is an API call, on any thread, that launched kernels; for a CUDA graph, its first kernel counts.

        kernels: number of kernels whose API call was recorded.
        launches: number of those API calls.
        delay_min, delay_median, delay_p95, delay_max: from the start of the call to the start of its (first) kernel.
        negative_delays: number of launches whose kernel started before their call, which is impossible: the clocks of
            host and device disagree by at least -delay_min, and all delays and queues of the device are off by as much.
        call_time_median: duration of the call on the host.
        queue_mean, queue_max: number of earlier launches whose kernel had not started when a call began.
        launch_bound_pct: share of late launches among those onto a stream that had worked before: the stream's work had
            ended before the call returned, so the device waited for the host.
        idle_lost: time in which the device was idle until work that was launched late had arrived.
        """
        return _frame(self._recorded("launch summary").launch_summary())

    def collectives(self) -> pandas.DataFrame:
        """Return a row for each communication kernel (NCCL, RCCL, …), in order of start; times in µs.

        PyTorch records the arguments of the call with most NCCL kernels. Without them (traces of torch before 2.2, and
        RCCL's ncclDevKernel_Generic, whose name has no kind), the kind, and with input shapes the size, come from the
        ops and annotations around the launch: record_param_comms, c10d::allreduce_, nccl:all_reduce, …. For a kernel
        launched before the trace began, only its name gives the kind. Unknown values are missing.

        collective: "allreduce", "reducescatter", "allgather", "alltoall", "broadcast", "reduce", "gather", "scatter",
            "barrier", "send", "recv", "sendrecv" or "other".
        name, group, group_size, ranks, dtype: as recorded by PyTorch, or name is the op or annotation that the values
            come from; group_size in ranks. From NCCL's ranges of NVTX, group is the communicator, and dtype is "bytes".
        device, stream, start, duration: of this rank's kernel; start is since the profile began. It runs while it waits
            for other ranks, so only on the rank that came last are the bandwidths those of the links.
        message_bytes: the larger of the bytes that this rank sent and received, as in nccl-tests: for allgather and
            reducescatter the whole message, not one rank's part.
        exposed: the part of the duration in which no kernel except communication ran on the device.
        algorithm_gbytes_per_s: message_bytes / duration; NaN above 20,000, which no link has.
        bus_gbytes_per_s: algorithm_gbytes_per_s times 2 (n - 1) / n for allreduce among n ranks, (n - 1) / n for
            allgather, reducescatter, alltoall, gather and scatter, 1 for broadcast, reduce, send and recv: comparable
            with the bandwidth of a link (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
        occurrence: number of earlier collectives with the same device, group, kind and message size.
        sequence: sequence number of the call within its group, if PyTorch recorded it.
        kernel: name of the kernel.
        step, step_occurrence: the step in which it was launched, and the number of earlier steps of that name; missing
            outside of steps.
        """
        core = self._recorded("collectives")
        columns, begin = core.collectives()
        if begin == UNKNOWN_TIME and columns["start"]:
            begin = EventList(core)._begin
        starts = [(start - begin) / 1000 for start in columns["start"]]
        whole = ("group_size", "stream", "sequence", "step_occurrence")
        return _frame({**columns, "start": starts}).astype(dict.fromkeys(whole, "Int64"))

    def stream_summary(self) -> pandas.DataFrame:
        """Return the busy, overlapped and communication times of each stream in µs, with shares in percent.

        Each device has a row for each stream, then one for the whole device, whose stream is missing. Shares of no time
        are NaN.

        kernels, copies: number of kernels, and of copies and fills.
        busy: time in which the stream worked; overlaps count once.
        overlapped, overlapped_pct: the part of busy in which another stream of the device worked too.
        communication: time in which a communication kernel ran.
        exposed_communication, exposed_pct: the part of communication in which no other kernel ran on the device.
        """
        frame = _frame(self._recorded("stream summary").stream_summary())
        return frame.astype({"stream": "Int64", "kernels": int, "copies": int})

    def counter_timeline(self) -> pandas.DataFrame:
        """Return the samples of hardware counters: one row for each sample of a device, in order of time.

        The columns are ``device``, ``start`` and ``duration`` in µs as in events(), and one for each counter: bytes
        counted in the sample ("dram_bytes_read", "l2_bytes", …), or shares in percent ("sm_active",
        "tensor_active"). Counters read from a trace keep its names and units. Values that a sample lacks are NaN. There
        are no rows without counters. Raises RuntimeError during recording and if nothing was recorded.
        """
        import pandas

        core = self._recorded("counters")
        begin = max(core.begin, 0)  # missing, and far below 0, if nothing was recorded
        place = ["device", "start", "duration"]
        frame = pandas.DataFrame({name: [] for name in place}).astype({"device": "int64"})
        for device in sorted({track[0] for track in core.samples()}):
            merged: Any = None
            for _, name, _, _, start, end, value in (track for track in core.samples() if track[0] == device):
                times = {"start": (start - begin) / 1e3, "duration": (end - start) / 1e3}
                one = pandas.DataFrame({"device": device, **times, name: value})
                merged = one if merged is None else merged.merge(one, on=place, how="outer")
            frame = merged if not len(frame) else pandas.concat([frame, merged], ignore_index=True)
        return frame.sort_values(["start", "device"], ignore_index=True, kind="stable")
