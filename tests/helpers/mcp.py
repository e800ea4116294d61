"""A client of ``flopscope mcp`` that sends lines and reads responses, each within a limit of time."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from helpers import ROOT

SECONDS = 60.0
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Client:
    """A server and the pipes to it."""

    def __init__(self, *arguments: str, cwd: Path | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flopscope", "mcp", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd or ROOT, env=environment,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._number = self.process.stdin, 0
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        out = self.process.stdout
        threading.Thread(target=lambda: [self._lines.put(line) for line in out], daemon=True).start()

    def send(self, content: Any) -> None:
        """Send a line: bytes as they are, anything else as JSON."""
        line = content if isinstance(content, bytes) else json.dumps(content).encode()
        self._in.write(line + b"\n")
        self._in.flush()

    def receive(self, seconds: float = SECONDS) -> dict[str, Any]:
        """Return the next response. Raise queue.Empty if none comes in time."""
        response: dict[str, Any] = json.loads(self._lines.get(timeout=seconds))
        assert response["jsonrpc"] == "2.0" and ("result" in response) != ("error" in response)
        return response

    def begin(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request and return its id."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method}
        self.send(request if params is None else {**request, "params": params})
        return self._number

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its response."""
        number = self.begin(method, params)
        response = self.receive()
        assert response["id"] == number
        return response

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return the result."""
        result: dict[str, Any] = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        assert [one["type"] for one in result["content"]] == ["text"] and result["content"][0]["text"]
        return result

    def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail, and return why it did."""
        result = self.call(tool, **arguments)
        assert result["isError"] and "structuredContent" not in result
        return str(result["content"][0]["text"])

    def end(self) -> tuple[int, str]:
        """Close the requests and return the exit status and stderr. What is left on stdout must be responses."""
        self._in.close()
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode()
        return self.process.wait(timeout=SECONDS), said


@contextmanager
def client(*arguments: str, cwd: Path | None = None) -> Iterator[Client]:
    """Yield a client of a server that has been initialized."""
    one = Client(*arguments, cwd=cwd)
    try:
        assert one.ask("initialize", INITIALIZE)["result"]["protocolVersion"] == INITIALIZE["protocolVersion"]
        one.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stderr):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
