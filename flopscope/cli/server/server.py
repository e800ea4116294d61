"""The server of the Model Context Protocol over stdio.

One thread reads requests and answers at once all but calls of tools, for which a few threads wait: the server answers
while a call runs. A call that was cancelled is not answered; it stops where it next looks. Only this module writes to
the stream of responses.

Two kinds of clients are served: those of versions with a handshake (initialize), and those of versions without one,
whose requests carry their version in _meta.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from flopscope.cli.server.arguments import checked
from flopscope.cli.server.folders import Folders
from flopscope.cli.server.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNKNOWN_METHOD,
    UNSUPPORTED_VERSION,
    Id,
    Message,
    Refused,
    line_of,
    message_of,
    read_line,
)
from flopscope.cli.server.tool import Answer, Call, Cancelled, Room, Tool
from flopscope.cli.server.tools import INSTRUCTIONS, tools
from flopscope.support.package import VERSION
from flopscope.support.safe import error_text, printable, shown
from flopscope.support.suggest import did_you_mean

WITH_HANDSHAKE = ("2024-11-05", "2025-06-18", "2025-11-25")
"""Versions of the protocol, the oldest first. 2025-03-26 asks for batches, which no other has."""
WITHOUT_HANDSHAKE = ("2026-07-28",)
META = "io.modelcontextprotocol/"
SERVER = {"name": "flopscope", "title": "flopscope, a profiler", "version": VERSION}
CAPABILITIES = {"tools": {"listChanged": False}}
CACHED = {"ttlMs": 3_600_000, "cacheScope": "private"}
"""How long a client may keep the list of tools, which does not change."""

THREADS = 4
MOST_WAITING = 64
SECONDS_TO_ANSWER = 5.0
"""How long calls may take after the end of the requests, as of a script that pipes them."""
SECONDS_TO_END = 20.0
"""How long the process of a cancelled call may take to end its own."""
LONGEST_ERROR = 2000
OF_THE_CALLER = (ValueError, OSError, ImportError, RuntimeError, MemoryError, OverflowError, TypeError)
"""What a tool raises for a wrong argument or file, with a text that helps."""


class Server:
    """A server for one client."""

    def __init__(self, responses: IO[bytes], folders: Folders, allow_try: bool = False) -> None:
        self._responses, self._writing = responses, threading.Lock()
        self._room, self._tools = Room(folders), tools(allow_try)
        self._calls: dict[Id, Call] = {}
        self._unanswered = 0  # calls that are not ended, also those whose answer is being sent
        self._changing = threading.Condition()
        self._waiting: queue.SimpleQueue[tuple[Message, Tool, Call]] = queue.SimpleQueue()
        self._of_thread = threading.local()
        self._methods: dict[str, Callable[[Message], dict[str, Any]]] = {
            "initialize": self._initialize,
            "ping": lambda message: {},
            "server/discover": self._discover,
            "tools/list": self._list,
        }

    def serve(self, requests: IO[bytes]) -> None:
        """Answer requests until they end, then the calls that are left, and cancel what takes too long."""
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            shown_elsewhere = warnings.showwarning
            warnings.showwarning = lambda message, *rest, **named: self._warn(shown_elsewhere, message, *rest, **named)
            try:
                while (line := self._read(requests)) is not None:
                    self._take(line)
                self._wait(lambda: not self._unanswered, SECONDS_TO_ANSWER)
            except BrokenPipeError:
                return  # the client has gone
            finally:
                self._cancel_all()

    def _read(self, requests: IO[bytes]) -> bytes | None:
        try:
            return read_line(requests)
        except Refused as refused:
            self._send(refused.response())
            return b""

    def _take(self, line: bytes) -> None:
        """Answer a line, or hand it to a thread if it calls a tool."""
        try:
            message = message_of(line)
            if message is None:
                return
            if not message.is_request:
                self._notified(message)
            elif message.method == "tools/call":
                self._begin(message)
            else:
                self._send(self._answered(message))
        except Refused as refused:
            self._send(refused.response())

    def _answered(self, message: Message) -> dict[str, Any]:
        modern = _is_modern(message)
        if message.method not in self._methods or (modern and message.method in ("initialize", "ping")):
            known = (*self._methods, "tools/call")
            raise Refused(
                UNKNOWN_METHOD, f"there is no method {shown(message.method)}{did_you_mean(message.method, known)}",
                message.number,
            )  # fmt: skip
        return _response(message, self._methods[message.method](message))

    def _send(self, response: Mapping[str, Any]) -> None:
        self._write(line_of(response))

    def _write(self, line: bytes) -> None:
        with self._writing:
            self._responses.write(line)
            self._responses.flush()

    # Methods --------------------------------------------------------------------------------------------------------

    def _initialize(self, message: Message) -> dict[str, Any]:
        """Agree on a version: the newest that is not newer than the client's, else the oldest."""
        wanted = message.params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise Refused(INVALID_PARAMS, "protocolVersion must be a text", message.number)
        version = max((one for one in WITH_HANDSHAKE if one <= wanted), default=WITH_HANDSHAKE[0])
        about = {"capabilities": CAPABILITIES, "serverInfo": SERVER, "instructions": self._instructions}
        return {"protocolVersion": version, **about}

    def _discover(self, message: Message) -> dict[str, Any]:
        versions = [*WITHOUT_HANDSHAKE, *reversed(WITH_HANDSHAKE)]
        about = {"capabilities": CAPABILITIES, "instructions": self._instructions}
        return {"supportedVersions": versions, **about, **CACHED}

    def _list(self, message: Message) -> dict[str, Any]:
        if message.params.get("cursor") is not None:
            raise Refused(INVALID_PARAMS, "the list of tools has one page, so there is no cursor", message.number)
        found = {"tools": [tool.content() for tool in self._tools.values()]}
        return {**found, **CACHED} if _is_modern(message) else found

    @property
    def _instructions(self) -> str:
        return f"{INSTRUCTIONS} Files are read from {printable(self._room.folders.text)}."

    def _notified(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            number = message.params.get("requestId")
            with self._changing:
                call = self._calls.get(number) if isinstance(number, str | int) else None
            if call is not None:
                call.cancel()

    # Calls of tools -------------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        """Check a call, and hand it to a thread."""
        _is_modern(message)
        name, given = message.params.get("name"), message.params.get("arguments", {})
        if not isinstance(name, str):
            raise Refused(INVALID_PARAMS, "tools/call needs the name of a tool", message.number)
        if name not in self._tools:
            hint = did_you_mean(name, self._tools) or f"; there are {', '.join(self._tools)}"
            off = " (the user did not allow it: flopscope mcp --allow-try)" if name == "try" else ""
            raise Refused(INVALID_PARAMS, f"there is no tool {shown(name)}{off or hint}", message.number)
        if not isinstance(given, dict):
            raise Refused(INVALID_PARAMS, "arguments must be an object", message.number)
        call = Call()
        with self._changing:
            if message.number in self._calls:
                raise Refused(INVALID_REQUEST, f"the id {shown(message.number)} is of a call that still runs", None)
            if self._unanswered >= MOST_WAITING:
                raise Refused(INTERNAL_ERROR, f"{MOST_WAITING} calls already wait; try again later", message.number)
            self._calls[message.number] = call
            self._unanswered += 1
        self._waiting.put((message, self._tools[name], call))

    def _work(self) -> None:
        while True:
            message, tool, call = self._waiting.get()
            line = b""
            try:
                line = line_of(_response(message, self._result(tool, call, message.params.get("arguments", {}))))
            except Cancelled:
                pass
            except Exception as problem:  # a fault of the server, of which the client is told
                line = line_of(Refused(INTERNAL_ERROR, _short(error_text(problem)), message.number).response())
            with self._changing:
                del self._calls[message.number]  # before the answer, after which its id may be used again
            if line and not call.is_cancelled:
                with suppress(OSError, ValueError):  # the client has gone, which the next read shows
                    self._write(line)
            with self._changing:
                self._unanswered -= 1
                self._changing.notify_all()

    def _result(self, tool: Tool, call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
        self._of_thread.call = call
        call.check()
        try:
            answer: Answer = tool.answer(self._room, call, **checked(tool.arguments, given))
            tool.require_small(answer.document)
        except OF_THE_CALLER as problem:
            return {"content": [_text(_short(_explained(problem)))], "isError": True}
        notes = [f"Warning: {_short(printable(text))}" for text in dict.fromkeys(call.warnings)]
        text = "\n".join([*notes, answer.text])
        return {"content": [_text(text)], "structuredContent": answer.document, "isError": False}

    def _warn(self, elsewhere: Callable[..., None], message: Warning | str, *rest: Any, **named: Any) -> None:
        """Keep a warning for the call that caused it, whose thread issues it."""
        call = getattr(self._of_thread, "call", None)
        if call is None:
            elsewhere(message, *rest, **named)
        else:
            call.warnings.append(str(message))

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        with self._changing:
            self._changing.wait_for(condition, seconds)

    def _cancel_all(self) -> None:
        """Cancel what still runs, and wait for calls that have a process to end."""
        with self._changing:
            for call in self._calls.values():
                call.cancel()
        self._wait(lambda: not any(call.has_process for call in self._calls.values()), SECONDS_TO_END)


def _is_modern(message: Message) -> bool:
    """Return whether a request is of a version without a handshake. Raise Refused for one that is not spoken."""
    meta = message.params.get("_meta", {})
    if not isinstance(meta, dict):
        raise Refused(INVALID_PARAMS, "_meta must be an object", message.number)
    version = meta.get(f"{META}protocolVersion")
    if version is None:
        return False
    if version not in WITHOUT_HANDSHAKE:
        spoken = [*WITHOUT_HANDSHAKE, *reversed(WITH_HANDSHAKE)]
        raise Refused(
            UNSUPPORTED_VERSION, "Unsupported protocol version", message.number,
            {"supported": spoken, "requested": printable(str(version))},
        )  # fmt: skip
    if not isinstance(meta.get(f"{META}clientCapabilities"), dict):
        raise Refused(INVALID_PARAMS, f"_meta needs {META}clientCapabilities", message.number)
    return True


def _response(message: Message, result: dict[str, Any]) -> dict[str, Any]:
    if _is_modern(message):
        result = {"resultType": "complete", **result, "_meta": {f"{META}serverInfo": SERVER}}
    return {"jsonrpc": "2.0", "id": message.number, "result": result}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]} …"


def _explained(problem: Exception) -> str:
    """Return the text of an exception, without its class where the text is for people."""
    if isinstance(problem, OSError) and problem.strerror and problem.filename is not None:
        return printable(f"{problem.filename}: {problem.strerror}")
    text = str(problem) or type(problem).__name__
    return "\n".join(map(printable, text.split("\n")))


def serve(requests: IO[bytes], responses: IO[bytes], folders: Sequence[str], allow_try: bool = False) -> None:
    """Serve one client. Raise ValueError for something that is not a folder."""
    Server(responses, Folders(folders), allow_try).serve(requests)
