"""The tool try, which runs a program of the user; it exists only where the user allowed it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from flopscope.cli.server.arguments import Argument
from flopscope.cli.server.tool import Answer, Call, Room, Tool
from flopscope.measuring.trying.result import TRIED
from flopscope.measuring.trying.switches import SWITCHES

SECONDS, MOST_SECONDS = 300.0, 3600.0
POLL = 0.2
GRACE = 15.0
"""Seconds in which a cancelled run may end the processes of its program before it is killed."""
SAID = 2000
"""Characters of what a failed run said."""


def _try(
    room: Room, call: Call, script: str, arguments: list[str] | None, changes: list[str] | None, max_time: float
) -> Answer:
    path = room.folders.path(script)
    if not os.path.isfile(path):
        raise ValueError(f"{os.path.basename(path)} is not a file")
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        written, said = Path(folder) / "tried.json", Path(folder) / "said.txt"
        command = [sys.executable, "-m", "flopscope", "try", "--max-time", f"{max_time:g}", "--json", str(written)]
        command += ["--changes", ",".join(changes)] if changes else []
        call.has_process = True  # before it is checked, so that whoever cancels it either waits or is seen
        try:
            call.check()
            text, status = _ran([*command, path, *(arguments or [])], said, call)
        finally:
            call.has_process = False
        if status or not written.exists():
            last = said.read_text(encoding="utf-8", errors="replace").strip()[-SAID:]
            raise RuntimeError(f"flopscope try ended with status {status}: {last or 'it said nothing'}")
        return Answer(text.rstrip(), json.loads(written.read_text(encoding="utf-8")))


def _ran(command: list[str], said: Path, call: Call) -> tuple[str, int]:
    """Run a command, whose stderr goes to a file; return what it prints and its status."""
    with said.open("wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stream, start_new_session=True
        )
        try:
            return _output(process, call), process.returncode
        finally:
            _end(process)


def _output(process: subprocess.Popen[bytes], call: Call) -> str:
    """Return what a process prints. Raise Cancelled when the call is cancelled."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            printed, _ = process.communicate(timeout=POLL)
            return printed.decode("utf-8", "replace")
        call.check()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, first by a signal on which it ends its program."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE)
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


TOOLS = (
    Tool(
        "try",
        "Run a program with changes",
        "Run a Python program of the user many times, without and with changes that need no edit (TF32, autocast, "
        "torch.compile, fused optimizers, pinned memory, …), and measure its steps in pairs. Slow, and it runs code: "
        "use it after advice has named a change, and name that change.",
        (
            Argument("script", "text", "the Python program", required=True),
            Argument("arguments", "texts", "arguments of the program"),
            Argument("changes", "texts", f"some of {', '.join(SWITCHES)}; by default those that the advice proposes"),
            Argument("max_time", "number", "seconds after which it ends", SECONDS, least=10, most=MOST_SECONDS),
        ),
        TRIED,
        _try,
        "Name fewer changes.",
        runs_code=True,
    ),
)
