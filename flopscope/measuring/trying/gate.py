"""Where a run waits for its turn: at its gate before it is timed, at the door of all runs before it uses the GPU.

Both are files that the process of ``flopscope try`` has locked.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

GATE = "FLOPSCOPE_TRY_GATE"
"""The environment variable that names the gate of a run that is recorded."""


class Gate:
    """The gate of a run: a file that is locked until the run may be timed, and others that say that it is ready, and
    that its steps have been recorded."""

    def __init__(self, path: Path) -> None:
        self.path, self.ready, self.recorded = path, ready_at(path), recorded_at(path)
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let the run go on."""
        os.close(self._file)


def ready_at(path: str | Path) -> Path:
    """Return the file that says that a run is ready at a gate."""
    return Path(f"{path}.ready")


def recorded_at(path: str | Path) -> Path:
    """Return the file that says that the steps of a run have been recorded."""
    return Path(f"{path}.recorded")


def wait_at(path: str, ready: str | Path = "") -> None:
    """Wait at a gate or at the door, in the process of the run. It opens too when the process that has locked it ends.

    ready: the file that says that the run waits; "": that of a gate.
    """
    Path(ready or ready_at(path)).touch()
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
