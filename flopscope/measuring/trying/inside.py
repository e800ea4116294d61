"""One run of the program, inside its own process: switches are applied as it imports torch, its steps are timed."""

from __future__ import annotations

import functools
import json
import math
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from flopscope.measuring.trying.gate import wait_at
from flopscope.measuring.trying.looking import Looking
from flopscope.measuring.trying.losses import FIRST, Recorder, draw_by_batch
from flopscope.measuring.trying.means import Around
from flopscope.measuring.trying.reach import Reach, Watcher, watch_modules
from flopscope.measuring.trying.seen import Seen
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.record.steps import StepCounter
from flopscope.record.torch_hooks import before_cuda
from flopscope.support import own_path
from flopscope.support.cpu_wait import seconds_waited
from flopscope.support.device import find_device
from flopscope.support.files import finite, write_json
from flopscope.support.imports import after_import
from flopscope.support.launchers import rank_in
from flopscope.support.python_program import PythonProgram, exit_status, wait_for_threads
from flopscope.support.safe import error_text

MOST_LOOKED_AT = 200
"""Steps of the run that looks at the program."""
FEWEST_LOOKED_AT = 12
LOOK_SECONDS = 0.5
COVERED = 0.95
"""Of the measured time, which blocks must add up to: the events of a stream without the work of a step do not."""
LEAST_TIMED = 0.2
"""Seconds of measured steps, of which there are more until then: with a change they may be far shorter."""
BLOCKS, BLOCK = 5, 10
"""Measured steps are timed in this many blocks if each has so many steps; the median counts, so that a moment in which
the machine was busy with something else does not. A period of the program is then shorter than a block."""
TRY = "FLOPSCOPE_TRY"
"""The environment variable that tells the program that it is tried."""

Kind = Literal["look", "compare", "time"]


@dataclass
class Job:
    """What a process is to do. It is passed as JSON."""

    target: str
    arguments: list[str]
    option: str
    record: str
    """File to write the record to."""
    kind: Kind = "look"
    """look: see what the program uses, and how long its steps take. compare: record its first results. time: time
    ``steps`` steps after ``warm`` ones; the whole program if ``steps`` is 0."""
    switches: list[str] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    warm: int = 0
    steps: int = 0
    gate: str = ""
    """File at whose lock the run waits for its turn to be timed; "": it does not wait."""
    door: str = ""
    """File at whose lock the run waits before it initializes CUDA; "": it does not wait."""
    passed: str = ""
    """File to touch before."""
    compare: str = ""
    """Name of the module whose results are compared; "": losses, or what the program's modules return."""


@dataclass
class Record:
    """What a process found. It is passed as JSON. Times are in seconds; NaN becomes None."""

    seconds: float | None = None
    """Time of a step, or of the program if it has no steps."""
    steps: int = 0
    """Steps that ended before the record was written."""
    warm: int = 0
    """Steps before the measured ones."""
    marks: list[float] = field(default_factory=list)
    """When they ended, from the start of the program on; of a look."""
    start: float | None = None
    """From the start of the program to the end of its warm-up; of runs that get ready alone."""
    whole: float | None = None
    """Of the program, if it ended by itself."""
    peak: float | None = None
    """Peak memory in bytes: of the GPU as torch allocated it, else of the process."""
    clock: float | None = None
    """SM clock in MHz at the end of the measured steps."""
    waited: float | None = None
    """Share of the measured time for which the main thread waited for a CPU."""
    recompiled: bool = False
    """torch.compile compiled during the measured steps."""
    of: str = ""
    """What ``values`` are: "losses", "outputs", or "" for none."""
    values: list[float | None] = field(default_factory=list)
    hits: dict[str, int] = field(default_factory=dict)
    """How often each switch changed something."""
    seen: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why the program failed."""
    lasted: float = 0.0
    """Seconds from the start to the end of the process."""


def run_job(path: str) -> Any:
    """Run the program of a job in this process, and return its exit status. It may end the process itself."""
    with open(path, encoding="utf-8") as file:
        job = Job(**json.load(file))
    own_path.restore()
    return Inside(job).run()


class Inside:
    """A run of the program."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._program = PythonProgram(job.target, job.arguments, job.option)
        ranks = rank_in(os.environ) or {}
        self._rank, self._is_single = ranks.get("rank", 0), ranks.get("world_size", 1) == 1
        self._record = Record()
        self._seen = Seen(**job.seen)
        self._reach: Reach | None = None
        self._recorder: Recorder | None = None
        self._looking: Looking | None = None
        self._pid = os.getpid()
        self._leave_modules: Any = None
        self._steps = StepCounter(self._ended, bool)
        self._began = self._window = time.perf_counter()
        self._waited: float | None = None
        self._opened = 0  # the step before the measured ones
        self._block = 0  # steps of a block
        self._last = math.inf  # the last measured step
        self._times: list[Any] = []  # between the blocks
        self._queued = 0  # batches that workers of a DataLoader have ready
        self._compiled = 0

    def run(self) -> Any:
        for name in self._job.switches:
            if SWITCHES[name].means.environment(self._seen, os.environ):
                self._record.hits[name] = 1  # the variables are those of this process
        random.seed(0)
        after_import("numpy", lambda numpy: numpy.random.seed(0))
        after_import("torch", self._turn_to_torch)
        self._steps.listen()
        if self._job.gate and not self._job.steps:
            wait_at(self._job.gate)
        self._began = self._window = time.perf_counter()
        self._waited = seconds_waited()
        problem = self._program.run()
        if problem is None:
            wait_for_threads()
        status = exit_status(problem)
        if os.getpid() != self._pid:
            return status
        failed = problem is not None and not (isinstance(problem, SystemExit) and not status)
        self._record.problem = error_text(problem) if failed and problem is not None else ""
        self._finish_whole()
        return status

    def _turn_to_torch(self, torch: Any) -> None:
        torch.manual_seed(0)
        self._reach = reach = Reach(torch, self._seen, comparing=self._job.kind == "compare")
        reach.hits.update(self._record.hits)
        self._recorder = Recorder(reach, "" if self._job.kind == "time" else self._job.compare)
        if self._job.kind != "time":
            draw_by_batch(reach)
        watchers: list[Watcher] = [self._recorder]
        if self._job.kind == "look":
            self._looking = Looking(reach)
            watchers.append(self._looking)
        watchers += applied(self._job.switches, reach)
        self._steps.count_optimizers(torch)
        before_cuda(torch, self._pass_door)
        self._note_queues(torch.utils.data.DataLoader)
        self._leave_modules = watch_modules(torch, watchers)

    def _note_queues(self, owner: Any) -> None:
        """Note how many batches workers get ready, which they do while the run waits."""
        init = owner.__init__

        @functools.wraps(init)
        def __init__(loader: Any, *args: Any, **named: Any) -> None:
            init(loader, *args, **named)
            self._queued = max(self._queued, loader.num_workers * (loader.prefetch_factor or 0))

        owner.__init__ = __init__

    def _pass_door(self) -> None:
        """Begin to use the GPU, which is another run's while that is timed."""
        if self._job.door and os.getpid() == self._pid:
            door, self._job.door = self._job.door, ""
            wait_at(door, self._job.passed)

    # Steps ------------------------------------------------------------------------------------------------------------

    def _ended(self, count: int) -> None:
        if os.getpid() != self._pid:
            return
        job, record = self._job, self._record
        record.steps = count
        if job.kind == "look":
            self._look(count)
        elif job.kind == "compare":
            self._hold()
            if count >= max(FIRST, job.warm):
                self._finish()
        elif job.kind == "time" and job.steps:
            self._time(count)

    _ended._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile leaves it out

    def _hold(self) -> None:
        """Set again what the program has set itself, also if it calls no module."""
        if self._reach is not None:
            self._reach.hold()

    def _look(self, count: int) -> None:
        self._wait()
        if count == 1:
            self._record.marks.clear()
        self._record.marks.append(time.perf_counter() - self._began)
        if count == 1 and self._job.gate:
            ready = time.perf_counter()
            wait_at(self._job.gate)
            self._began += time.perf_counter() - ready  # as if it had not waited
        long = self._record.marks[-1] - self._record.marks[0] > LOOK_SECONDS
        if count >= MOST_LOOKED_AT or (count >= FEWEST_LOOKED_AT and long):
            self._finish()

    def _time(self, count: int) -> None:
        job, record = self._job, self._record
        if count < self._opened:  # the program marks its steps: those of its optimizers were none
            self._opened = 0
        if count <= job.warm:
            self._hold()
            if job.gate:
                self._await_turn(count)
        if count >= job.warm and not self._opened:
            record.warm = job.warm + self._queued
            if count >= record.warm:
                # Batches that workers load come in turns, of which a block may have the short ones.
                many = job.steps >= BLOCKS * BLOCK and not self._queued
                self._block = job.steps // BLOCKS if many else job.steps
                self._opened, self._last = count, count + job.steps // self._block * self._block
                self._open()
        elif self._opened and (count - self._opened) % self._block == 0:
            self._times.append(self._time_now())
            if count == self._last:
                self._wait()
                lasted = time.perf_counter() - self._window
                record.seconds = self._block_seconds(lasted) / self._block
                if lasted >= LEAST_TIMED or not self._is_single:  # all ranks end with the same step
                    self._finish()
                self._last += count - self._opened

    def _time_now(self) -> Any:
        """Return the time at which the device has done what was given to it, once it is known."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _block_seconds(self, lasted: float) -> float:
        """Return the median time of a block; the mean of few, and of JAX, whose device has no such times."""
        times, mean = self._times, lasted / (len(self._times) - 1)
        if len(times) < 3 or "jax" in sys.modules:
            return mean
        with suppress(RuntimeError, TypeError):  # of events of several devices, or of a device first used after them
            blocks = [float(apart(before, after)) for before, after in pairwise(times)]
            return median(blocks) if sum(blocks) > COVERED * lasted else mean
        return mean

    def _await_turn(self, count: int) -> None:
        """Wait for the turn to be timed before the last warm step. Leave the device little work to end by then."""
        self._pass_door()
        self._wait()
        if count == max(1, self._job.warm - 1) and self._rank == 0:
            wait_at(self._job.gate)

    def _open(self) -> None:
        """Begin the measured steps."""
        if self._leave_modules is not None:
            self._leave_modules()
        self._compiled = compiled_frames()
        self._wait()
        self._waited = seconds_waited()
        self._times = [self._time_now()]
        self._window = time.perf_counter()
        if not self._job.gate:
            self._record.start = self._window - self._began

    def _wait(self) -> None:
        """Wait for the device."""
        torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        if jax is not None:
            for array in jax.live_arrays():
                with suppress(RuntimeError):  # it was donated
                    array.block_until_ready()

    # The end ----------------------------------------------------------------------------------------------------------

    def _finish_whole(self) -> None:
        """Write the record at the end of the program."""
        self._wait()
        self._record.whole = time.perf_counter() - self._began
        if self._job.kind == "time" and not self._job.steps:
            self._record.seconds = self._record.whole
        self._write()

    def _finish(self) -> None:
        """Write the record and end the process at once: nothing that the program does at its end may run."""
        self._write()
        os._exit(0)

    def _write(self) -> None:
        record, ended = self._record, time.perf_counter()
        waited = seconds_waited()
        if waited is not None and self._waited is not None:
            record.waited = (waited - self._waited) / max(ended - self._window, 1e-9)
        record.recompiled = self._opened > 0 and compiled_frames() > self._compiled
        self._steps.leave()
        record.peak, record.clock = peak_bytes(), clock_mhz()
        if self._recorder is not None and self._reach is not None:
            record.of, values = self._recorder.values()
            record.values = list(values)
            record.hits = dict(self._reach.hits)
        if self._job.kind == "look":
            self._look_back()
        if self._rank == 0:
            write_json(self._job.record, finite(asdict(record)))

    def _look_back(self) -> None:
        seen = self._seen
        seen.cpus, seen.device = len(os.sched_getaffinity(0)), find_device("cpu").name
        seen.jax = "jax" in sys.modules
        with suppress(Exception):  # of a JAX that is half imported
            seen.jax_gpu = seen.jax and sys.modules["jax"].default_backend() == "gpu"
        if self._looking is not None and self._recorder is not None:
            self._looking.finish(self._recorder.backward > 0)
        self._record.seen = asdict(seen)


def applied(names: list[str], reach: Reach) -> list[Watcher]:
    """Apply switches, and return what must be told of the program's modules: what wraps calls from within first."""
    switches = [SWITCHES[name] for name in names]
    switches.sort(key=lambda one: one.means.level if isinstance(one.means, Around) else -1)
    found = [one.means.apply(one.name, reach) for one in switches]
    return [one for one in found if one is not None]


def apart(before: Any, after: Any) -> Any:
    """Return the seconds between two times, of the host or of CUDA events."""
    return after - before if isinstance(before, float) else before.elapsed_time(after) / 1000


def compiled_frames() -> int:
    """Return how many functions torch.compile has looked at."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def peak_bytes() -> float:
    """Return the peak memory so far, of the GPU that torch uses, else of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((1024.0 * int(line.split()[1]) for line in file if line.startswith("VmHWM:")), math.nan)


def clock_mhz() -> float | None:
    """Return the SM clock of the GPU that torch uses; None without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    from flopscope.support.nvml import SmClock

    with suppress(Exception):  # a torch without the uuid, a GPU that NVML does not list
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        mhz = SmClock(f"GPU-{properties.uuid}").mhz()
        return mhz if mhz == mhz else None
    return None
