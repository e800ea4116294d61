"""A client of ``flopscope mcp``: that of the SDK, which a test calls without being asynchronous."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers import ROOT

pytest.importorskip("mcp")
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from flopscope.cli.server.server import make_server


class Session:
    """A client that is connected."""

    def __init__(self, client: Client, portal: BlockingPortal) -> None:
        self.client, self._portal = client, portal

    def tools(self) -> list[Any]:
        """Return the tools that the server lists."""
        return list(self._portal.call(self.client.list_tools).tools)

    def begin(self, tool: str, **arguments: Any) -> Future[CallToolResult]:
        """Call a tool without waiting. Cancelling the future cancels it."""
        return self._portal.start_task_soon(self.client.call_tool, tool, arguments)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its document, which the client has held against the schema of the tool."""
        result = self.begin(tool, **arguments).result(timeout=120)
        assert not result.is_error, result.content
        document: dict[str, Any] = result.structured_content
        return document

    def text(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return its text."""
        (content,) = self.begin(tool, **arguments).result(timeout=120).content
        return str(content.text)

    def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail, and return why it did."""
        result = self.begin(tool, **arguments).result(timeout=120)
        assert result.is_error and result.structured_content is None
        return str(result.content[0].text)


@contextmanager
def session(*folders: str | Path, mode: str = "auto") -> Iterator[Session]:
    """Yield a client of a server in this process."""
    server = make_server([str(folder) for folder in folders])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server, mode=mode)) as client:
        yield Session(client, portal)


@contextmanager
def process(*arguments: str | Path, mode: str = "auto") -> Iterator[Session]:
    """Yield a client of the command in a process of its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = ["-m", "flopscope", "mcp", *map(str, arguments)]
    server = StdioServerParameters(command=sys.executable, args=command, env={**os.environ, "PYTHONPATH": path})
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server, mode=mode)) as client:
        yield Session(client, portal)
