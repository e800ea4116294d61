"""profile(): record which ops and kernels ran, their times and their work."""

from __future__ import annotations

import sys

from flopscope.record import profiler
from flopscope.results.results import Results
from flopscope.support.hints import HINTS, TORCH_ON_CPU, Hints


class profile(profiler.profile, Results):
    """A recording of what runs on all threads, in a ``with`` block or between ``start()`` and ``stop()``.

    The arguments and methods are those of torch.profiler.profile, so that it is a drop-in replacement:

    activities: a list of ``ProfilerActivity.CPU`` (ops, ranges, Python calls) and ``.CUDA`` (kernels, copies, API
        calls); torch's activities are accepted too. None means both, or only CPU if there is no GPU.
    schedule: a function that returns the action of a step number, such as the result of ``flopscope.schedule(…)``. By
        default everything is recorded. With a schedule, ``step()`` begins the next step, and each recorded step is an
        event "ProfilerStep#N".
    on_trace_ready: called with the profile at the end of each recorded cycle, even if the block ends before the cycle
        does. The results are those of this cycle until the next one begins to record. An exception in the handler ends
        the profile and propagates.
    record_shapes: record input shapes for the table.
    profile_memory: record allocations and deallocations of tensors.
    with_stack: record Python calls, for ``group_by_stack_n`` and ``export_stacks``.
    timer: the source of device times. "auto": CUPTI, or, with a warning, CUDA events around flopscope's own ops if
        CUPTI is unavailable; "cupti": CUPTI, or RuntimeError if it is unavailable; "event": CUDA events.
    record_api_calls: False excludes CUDA API calls, which reduces the overhead; kernels are then attributed to no op.

    counters: True also counts what the GPU did, through CUPTI's PM sampling, at next to no cost: DRAM traffic,
        activity of multiprocessors and tensor cores, L2, NVLink and PCIe, as columns of the table and in
        ``counter_timeline()``. Where counters are unavailable, a warning says why, and the profile has none;
        "require" raises RuntimeError instead.
    counter_interval_us: µs between samples, 1 to 1e6. None: 2.5 µs for 0.1 s; if the profile goes on, 100 µs and more,
        with windows of 2.5 µs and pauses in between. 100: all of a profile of any length.

    sample_stacks: True also samples where the Python threads are, every one to ten milliseconds, at less than 2 % of
        the time: ``lines()`` and ``summary()`` show the lines that took the time, and those that a device waited for.

    custom_trace_id_callback: called at the beginning of each cycle; returns its trace id, a string. By default ids are
        random.

    Accepted for compatibility with torch and ignored: ``with_flops`` (FLOPs are always counted), ``with_modules``,
    ``experimental_config``, ``post_processing_timeout_s`` and, without a schedule, ``acc_events``. Unsupported, and
    rejected with ValueError: ``acc_events`` with a schedule, ``execution_trace_observer``, ``use_cuda``. For the ops of
    other libraries, including torch, the profile records their work on the GPU and their CUDA API calls, but no
    "aten::" rows and no ranges of ``torch.profiler.record_function``; use ``flopscope.record_function`` to name parts
    of the program.

    Only one profile can run at a time; starting another raises RuntimeError. A stopped profile may be started again: it
    makes a new recording and continues its step numbers. An exception in the block ends the profile, and its results
    stay readable; so does an exception, including Ctrl-C, that interrupts start(), step() or stop(). A profile without
    references ends. In a forked child process the profile records nothing, ``step()`` and ``stop()`` do nothing, and
    the results belong to the parent.
    """

    _hints: Hints | None = None

    @property
    def hints(self) -> Hints:
        """What to record so that more is known."""
        empty = "torch" in sys.modules and not len(self)
        return self._hints or (HINTS._replace(said=(TORCH_ON_CPU,)) if empty else HINTS)

    @hints.setter
    def hints(self, hints: Hints) -> None:
        self._hints = hints

    def __repr__(self) -> str:
        return f"<flopscope.profile: {self._state}, {len(self)} events>"
