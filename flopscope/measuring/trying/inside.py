"""One run of the program, inside its own process: a switch is applied as it imports torch, its steps are timed."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from flopscope.measuring.sampling import computes, thread_use
from flopscope.measuring.trying.look import Looking, Seen
from flopscope.measuring.trying.switches import SWITCHES, Reach
from flopscope.record.steps import StepCounter
from flopscope.support import own_path
from flopscope.support.documents import plain
from flopscope.support.files import write_json
from flopscope.support.imports import after_import, loaded
from flopscope.support.process import rank_in
from flopscope.support.python_program import PythonProgram, exit_status, wait_for_threads
from flopscope.support.safe import error_text

MOST_LOOKED_AT = 200
"""Steps of the run that looks at the program."""
LOOKED_AT = ((12, 0.5), (6, 5.0))
"""Steps and seconds after which it has seen enough: fewer steps if they are slow."""
TRY = "FLOPSCOPE_TRY"
"""The environment variable that tells the program that it is tried."""


@dataclass
class Job:
    """What a process is to do. It is passed as JSON."""

    program: list[Any]
    """The arguments of PythonProgram."""
    record: str
    switch: str = ""
    """Name of the switch to apply; "": none."""
    warm: int | None = None
    """``steps`` steps after ``warm`` ones are timed, the whole program if ``steps`` is 0. None: a look at what the
    program uses, and how long its steps take."""
    steps: int = 0
    seen: dict[str, Any] = field(default_factory=dict)


@dataclass
class Record:
    """What a process found. It is passed as JSON. Times are in seconds; NaN becomes None."""

    seconds: float | None = None
    """Time of a step, or of the program if it has no steps."""
    cpu: float | None = None
    """CPU time of a step on the main thread, if that never waits."""
    steps: int = 0
    warm: int = 0
    marks: list[float] = field(default_factory=list)
    """When they ended, from the start of the program on; of a look."""
    whole: float | None = None
    """Of the program, if it ended by itself."""
    peak: float | None = None
    """Peak memory in bytes: of the GPU as torch allocated it, else of the process."""
    of: str = ""
    """What ``values`` are: "losses", "outputs", or "" for none."""
    values: list[float | None] = field(default_factory=list)
    hits: int = 0
    seen: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    """The files of the modules that it has imported, as loaded() returns them."""
    problem: str = ""
    lasted: float = 0.0
    """Seconds from the start to the end of the process."""


def run_job(path: str) -> Any:
    """Run the program of a job in this process, and return its exit status. It may end the process itself."""
    with open(path, encoding="utf-8") as file:
        job = Job(**json.load(file))
    own_path.restore()
    return Inside(job).run()


class Inside:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._switch = SWITCHES.get(job.switch)
        self._program = PythonProgram(*job.program)
        self._record = Record()
        self._looking: Looking | None = None
        self._pid = os.getpid()
        self._steps = StepCounter(self._ended, bool)
        self._began = 0.0
        self._opened = 0  # the step before the measured ones
        self._opening = 0.0  # when that ended
        self._used = 0.0, 0  # what its thread had used by then

    def run(self) -> Any:
        random.seed(0)
        after_import("numpy", lambda numpy: numpy.random.seed(0))
        after_import("torch", self._turn_to_torch)
        self._steps.listen()
        self._began = time.perf_counter()
        problem = self._program.run()
        if problem is None:
            wait_for_threads()
        status = exit_status(problem)
        if os.getpid() != self._pid:
            return status
        failed = problem is not None and not (isinstance(problem, SystemExit) and not status)
        self._record.problem = error_text(problem) if failed and problem is not None else ""
        wait_for_devices()
        self._record.whole = time.perf_counter() - self._began
        if self._job.warm is not None and not self._job.steps:
            self._record.seconds = self._record.whole
        self._write()
        return status

    def _turn_to_torch(self, torch: Any) -> None:
        torch.manual_seed(0)
        reach = Reach(torch, Seen(**self._job.seen))
        self._looking = Looking(reach)
        if self._switch is not None:
            self._switch.apply(reach)
        self._steps.count_optimizers(torch)
        reach.watch()

    # Steps ------------------------------------------------------------------------------------------------------------

    def _ended(self, count: int) -> None:
        if os.getpid() != self._pid:
            return
        self._record.steps = count
        if self._job.warm is None:
            self._look(count)
        elif self._job.steps:
            self._time(count, self._job.warm)

    _ended._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile leaves it out

    def _look(self, count: int) -> None:
        wait_for_devices()
        marks = self._record.marks
        if count == 1:
            marks.clear()
            if self._looking is not None:
                self._looking.began()
        marks.append(time.perf_counter() - self._began)
        enough = any(count >= steps and marks[-1] - marks[0] > seconds for steps, seconds in LOOKED_AT)
        if enough or count >= MOST_LOOKED_AT:
            self._finish()

    def _time(self, count: int, warm: int) -> None:
        steps, looking = self._job.steps, self._looking
        if count < self._opened:  # the program marks its steps: those of its optimizers were none
            self._opened = 0
        if count <= warm and looking is not None:
            looking.reach.hold()  # also if it calls no module
        if count >= warm and not self._opened:
            # Batches that workers have ready are no part of the measured steps.
            self._record.warm = warm + (0 if looking is None else looking.queued)
            if count >= self._record.warm:
                self._opened = count
                if looking is not None:
                    looking.reach.leave()
                wait_for_devices()
                self._opening, self._used = time.perf_counter(), thread_use()
        elif self._opened and count - self._opened == steps:
            wait_for_devices()
            self._record.seconds = (time.perf_counter() - self._opening) / steps
            cpu, waits = (now - then for now, then in zip(thread_use(), self._used, strict=True))
            self._record.cpu = cpu / steps if computes(int(waits), steps) else None
            self._finish()

    # The end ----------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Write the record and end the process at once: nothing that the program does at its end may run."""
        self._write()
        os._exit(0)

    def _write(self) -> None:
        record, looking = self._record, self._looking
        self._steps.leave()
        record.peak, record.modules = peak_bytes(), loaded()
        if looking is not None:
            record.of, record.values = looking.results()
            record.hits = looking.reach.hits
        if self._job.warm is None:
            seen = Seen() if looking is None else looking.finish()
            record.seen = asdict(seen) | {"cpus": len(os.sched_getaffinity(0))}
        if (rank_in(os.environ) or {}).get("rank", 0) == 0:
            write_json(self._job.record, plain(asdict(record)))


def wait_for_devices() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def peak_bytes() -> float:
    """Return the peak memory so far, of the GPU that torch uses, else of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_allocated())
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((1024.0 * int(line.split()[1]) for line in file if line.startswith("VmHWM:")), math.nan)
