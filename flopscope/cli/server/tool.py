"""What a tool is: its name, what it teaches, its arguments, and the function that answers a call."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

from flopscope.cli.server.arguments import Argument, schema_of
from flopscope.cli.server.folders import Folders, Opened, Traces
from flopscope.support.documents import FORMAT, Document

LARGEST = 100_000
"""Characters of the JSON of a result, about 30,000 tokens."""

PATH = Argument("path", "text", "file of the trace, as open lists it", required=True)


class Cancelled(Exception):
    """The client cancelled the call."""


class TooLarge(ValueError):
    """A result of more than LARGEST characters."""


class Call:
    """A call of a tool, which another thread may cancel."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self.warnings: list[str] = []
        """Warnings that were issued during the call."""
        self.has_process = False
        """Whether it runs another process, which is to be ended before the server ends."""

    def cancel(self) -> None:
        """Ask the call to stop; its answer is discarded in any case."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise Cancelled if the call was cancelled."""
        if self.is_cancelled:
            raise Cancelled

    def wait(self, seconds: float) -> bool:
        """Wait until the call is cancelled, at most so long; return whether it was."""
        return self._cancelled.wait(seconds)


class Room:
    """What tools work on: the folders of the user and the open traces."""

    def __init__(self, folders: Folders) -> None:
        self.folders, self._traces = folders, Traces()
        self._starting = threading.Lock()

    def open(self, call: Call, stack: ExitStack, *paths: str) -> list[Opened]:
        """Return the traces of paths, which belong to this call until the stack is left."""
        real = [self.folders.trace(path) for path in paths]
        found = {}
        for path in sorted({*real}):  # in one order for all calls, so that none waits for another in a circle
            call.check()
            found[path] = self._traces.get(path)
            stack.enter_context(held(call, found[path].lock))
        call.check()
        return [found[path] for path in real]

    def alone(self, call: Call) -> AbstractContextManager[None]:
        """Let no other call start processes of this one, meanwhile: how they start is a setting of the process."""
        return held(call, self._starting)


@contextmanager
def held(call: Call, lock: threading.Lock) -> Iterator[None]:
    """Hold a lock, for which a call waits until it is cancelled."""
    while not lock.acquire(timeout=0.1):
        call.check()
    try:
        yield
    finally:
        lock.release()


class Answer(NamedTuple):
    """What a tool returns: a text for models that see no structure, and a document."""

    text: str
    document: dict[str, Any]


class Tool(NamedTuple):
    """A tool."""

    name: str
    title: str
    teaches: str
    """What it answers, and when to use it."""
    arguments: tuple[Argument, ...]
    document: Document
    answer: Callable[..., Answer]
    """Called with the Room, the Call and the arguments by name."""
    narrower: str = ""
    """How to ask for less."""
    runs_code: bool = False

    def content(self) -> dict[str, Any]:
        """Return its description in the protocol's form."""
        kind = self.document.kind
        return {
            "name": self.name,
            "title": self.title,
            "description": self.teaches,
            "inputSchema": schema_of(self.arguments),
            "outputSchema": {
                "type": "object",
                "description": f"{self.document.doc}; `flopscope schema {kind}` prints its fields",
                "properties": {"format": {"const": f"flopscope.{kind}"}, "version": {"const": FORMAT}},
                "required": ["format", "version", "why"],
            },
            "annotations": {
                "readOnlyHint": not self.runs_code,
                "destructiveHint": self.runs_code,
                "idempotentHint": not self.runs_code,
                "openWorldHint": self.runs_code,
            },
        }

    def require_small(self, document: dict[str, Any]) -> None:
        """Raise TooLarge for a document of more than LARGEST characters."""
        size = len(json.dumps(document))
        if size > LARGEST:
            raise TooLarge(
                f"The result would have {size:,} characters; at most {LARGEST:,} are sent. {self.narrower}".rstrip()
            )


def shortened(document: dict[str, Any], name: str, most: int) -> str:
    """Cut a list of a document; return a sentence that says so, "" if nothing was cut."""
    found: Sequence[Any] = document[name]
    if len(found) <= most:
        return ""
    document[name] = found[:most]
    return f"{most} of {len(found)} {name} are listed."
