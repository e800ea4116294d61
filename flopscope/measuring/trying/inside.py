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

from flopscope.measuring.trying.effects import Reach
from flopscope.measuring.trying.look import Looking, Seen, compiled_frames
from flopscope.measuring.trying.losses import FIRST, Recorder, draw_by_batch
from flopscope.measuring.trying.switches import SWITCHES, apply
from flopscope.record.steps import StepCounter
from flopscope.support import own_path
from flopscope.support.device import find_device
from flopscope.support.files import finite, write_json
from flopscope.support.imports import after_import
from flopscope.support.process import rank_in, seconds_waited
from flopscope.support.python_program import PythonProgram, exit_status, wait_for_threads
from flopscope.support.safe import error_text

MOST_LOOKED_AT = 200
"""Steps of the run that looks at the program."""
LOOKED_AT = ((12, 0.5), (6, 5.0))
"""Steps and seconds after which it has seen enough: fewer steps if they are slow."""
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
    """look: see what the program uses, and how long its steps take. time: time ``steps`` steps after ``warm`` ones; the
    whole program if ``steps`` is 0. compare: record its first results only, with random numbers that do not depend on
    the change. The others record them, too."""
    switches: list[str] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    warm: int = 0
    steps: int = 0


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
    """From the start of the program to the end of its warm-up."""
    whole: float | None = None
    """Of the program, if it ended by itself."""
    peak: float | None = None
    """Peak memory in bytes: of the GPU as torch allocated it, else of the process."""
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
        self._began = 0.0
        self._waited: float | None = None
        self._opened = 0  # the step before the measured ones
        self._block = 0  # steps of a block
        self._last = 0  # the last measured step
        self._times: list[float] = []  # between the blocks
        self._queued = 0  # batches that workers of a DataLoader have ready
        self._compiled = 0

    def run(self) -> Any:
        for name in self._job.switches:
            if SWITCHES[name].environment(self._seen, os.environ):
                self._record.hits[name] = 1  # the variables are those of this process
        random.seed(0)
        after_import("numpy", lambda numpy: numpy.random.seed(0))
        after_import("torch", self._turn_to_torch)
        self._steps.listen()
        self._began = time.perf_counter()
        self._times = [self._began]
        self._waited = seconds_waited()
        problem = self._program.run()
        if problem is None:
            wait_for_threads()
        status = exit_status(problem)
        if os.getpid() != self._pid:
            return status
        failed = problem is not None and not (isinstance(problem, SystemExit) and not status)
        self._record.problem = error_text(problem) if failed and problem is not None else ""
        self._wait()
        self._record.whole = time.perf_counter() - self._began
        if self._job.kind == "time" and not self._job.steps:
            self._record.seconds = self._record.whole
        self._write()
        return status

    def _turn_to_torch(self, torch: Any) -> None:
        torch.manual_seed(0)
        kind = self._job.kind
        self._reach = reach = Reach(torch, self._seen, comparing=kind == "compare")
        reach.hits.update(self._record.hits)
        self._recorder = Recorder(reach)
        if kind == "compare":
            draw_by_batch(reach)
        if kind == "look":
            self._looking = Looking(reach)
        apply(self._job.switches, reach)
        self._steps.count_optimizers(torch)
        self._note_queues(torch.utils.data.DataLoader)
        self._leave_modules = reach.watch()

    def _note_queues(self, owner: Any) -> None:
        """Note how many batches workers get ready, which they do before the measured steps."""
        init = owner.__init__

        @functools.wraps(init)
        def __init__(loader: Any, *args: Any, **named: Any) -> None:
            init(loader, *args, **named)
            self._queued = max(self._queued, loader.num_workers * (loader.prefetch_factor or 0))

        owner.__init__ = __init__

    # Steps ------------------------------------------------------------------------------------------------------------

    def _ended(self, count: int) -> None:
        if os.getpid() != self._pid:
            return
        self._record.steps = count
        if self._job.kind == "look":
            self._look(count)
        elif self._job.kind == "time" and self._job.steps:
            self._time(count)
        elif self._job.kind == "compare":
            self._hold()
            if count >= FIRST:
                self._finish()

    _ended._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile leaves it out

    def _hold(self) -> None:
        """Set again what the program has set itself, also if it calls no module."""
        if self._reach is not None:
            self._reach.hold()

    def _look(self, count: int) -> None:
        self._wait()
        marks = self._record.marks
        if count == 1:
            marks.clear()
        marks.append(time.perf_counter() - self._began)
        enough = any(count >= steps and marks[-1] - marks[0] > seconds for steps, seconds in LOOKED_AT)
        if enough or count >= MOST_LOOKED_AT:
            self._finish()

    def _time(self, count: int) -> None:
        job, record = self._job, self._record
        if count < self._opened:  # the program marks its steps: those of its optimizers were none
            self._opened = 0
        if count <= job.warm:
            self._hold()
        if count >= job.warm and not self._opened:
            record.warm = job.warm + self._queued
            if count >= record.warm:
                # Batches that workers load come in turns, of which a block may have the short ones.
                many = job.steps >= BLOCKS * BLOCK and not self._queued
                self._block = job.steps // BLOCKS if many else job.steps
                self._opened, self._last = count, count + job.steps // self._block * self._block
                self._open()
        elif self._opened and (count - self._opened) % self._block == 0:
            self._wait()
            self._times.append(time.perf_counter())
            if count == self._last:
                record.seconds = median(after - before for before, after in pairwise(self._times)) / self._block
                # All ranks end with the same step.
                if self._times[-1] - self._times[0] >= LEAST_TIMED or not self._is_single:
                    self._finish()
                self._last += count - self._opened

    def _open(self) -> None:
        """Begin the measured steps."""
        if self._leave_modules is not None:
            self._leave_modules()
        self._compiled = compiled_frames()
        self._wait()
        self._waited = seconds_waited()
        self._times = [time.perf_counter()]
        self._record.start = self._times[0] - self._began

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

    def _finish(self) -> None:
        """Write the record and end the process at once: nothing that the program does at its end may run."""
        self._write()
        os._exit(0)

    def _write(self) -> None:
        record, ended = self._record, time.perf_counter()
        waited = seconds_waited()
        if waited is not None and self._waited is not None:
            record.waited = (waited - self._waited) / max(ended - self._times[0], 1e-9)
        record.recompiled = self._opened > 0 and compiled_frames() > self._compiled
        self._steps.leave()
        record.peak = peak_bytes()
        if self._recorder is not None:
            record.of, values = self._recorder.values()
            record.values = list(values)
        if self._reach is not None:
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
            self._looking.finish(self._recorder.backward)
        self._record.seen = asdict(seen)


def peak_bytes() -> float:
    """Return the peak memory so far, of the GPU that torch uses, else of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((1024.0 * int(line.split()[1]) for line in file if line.startswith("VmHWM:")), math.nan)
