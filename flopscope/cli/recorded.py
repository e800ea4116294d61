"""What the program of ``flopscope run`` recorded of itself, read in another process with the answers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopscope.cli.reporter import NO_OPS, why_no_lines
from flopscope.read.formats import NotATrace
from flopscope.read.load import Loaded, read
from flopscope.read.trace import Trace
from flopscope.record.work_rules import restate
from flopscope.results.head import RUN_MEMBER, unfinished_steps
from flopscope.results.results import Results, store_of
from flopscope.support.device import CPU, STORED
from flopscope.support.hints import RUN_HINTS
from flopscope.support.nvml import Energy
from flopscope.support.peaks import Peaks


class Recorded(Trace):
    """A trace of a program that ran just now on this machine: not one of a file, but that of a live profile."""

    _usual_peaks = STORED
    _lost: int
    _by_torch: bool

    def __init__(self, loaded: Loaded, about: Mapping[str, Any]) -> None:
        if "steps" in about:  # none of a recording of all; passes may be found in that as well
            loaded.metadata.setdefault(RUN_MEMBER, about["steps"])  # the program's own text does not have them
            for name in unfinished_steps(loaded.metadata):
                loaded.core.undo_step(name)
        super().__init__(loaded)
        del self.source  # there is no file
        self._name: str = about["program"]
        vars(self).update(about["recorded"])
        self._energy = {device: Energy(*values) for device, values in about["recorded"]["_energy"].items()}
        self._recorded_cpu, self.graphs = CPU.here(), {}
        self.hints = RUN_HINTS._replace(**about["hints"], own=not self._by_torch)

    @property
    def rank(self) -> int | None:
        """None: the report of a rank is of its process alone."""
        return None

    @property
    def dropped(self) -> int:
        """Number of events that are in no table."""
        return super().dropped + self._lost

    @property
    def _program(self) -> str:
        return self._name

    def _measured(self, device: str) -> Peaks | None:
        return None if self._by_torch else Results._measured(self, device)


def read_recorded(path: str, about: Mapping[str, Any]) -> tuple[Recorded | None, str]:
    """Return the recording at a path, or None and why there is none. One without events has sampled lines.

    Raise ValueError if it cannot be read.
    """
    why = about["why_nothing"] or NO_OPS
    try:
        prof = Recorded(read(path, name="the recording"), about)
    except NotATrace:  # without events
        return None, why
    restate(about["rules"])
    if not len(prof):
        clause = why_no_lines(store_of(prof, "lines") if about["sampled"] else None)
        if clause:
            return None, why + clause
        prof.hints = prof.hints._replace(said=() if why == NO_OPS else (f"No op was recorded: {why}.",))
    return prof, ""
