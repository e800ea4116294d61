"""The command ``flopscope mcp``, a server of the Model Context Protocol for agents."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

DESCRIPTION = """\
Serve tools of the Model Context Protocol on stdin and stdout: an agent's program starts this command. Only files in the
folders are read, and no code is run without --allow-try.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mcp`` to its parser."""
    parser.description = DESCRIPTION
    text = "folder whose traces may be read (default: the current folder)"
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=text)
    text = "offer the tool try, which runs Python programs in these folders with your rights"
    parser.add_argument("--allow-try", action="store_true", help=text)
    parser.set_defaults(run=_mcp)


def _mcp(options: argparse.Namespace) -> None:
    from flopscope.cli.server.server import serve

    before = signal.signal(signal.SIGTERM, _end)
    try:
        with _own_streams() as (requests, responses):
            serve(requests, responses, options.folders, options.allow_try)
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: object) -> None:
    """End what a call runs before this process ends by a signal."""
    raise SystemExit(128 + number)


@contextmanager
def _own_streams() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield stdin and stdout, which meanwhile nothing else can read or write.

    What a library prints goes to stderr, and child processes find no requests on their stdin.
    """
    shown = sys.stdout
    shown.flush()
    with (
        os.fdopen(os.dup(0), "rb") as requests,
        os.fdopen(os.dup(1), "wb") as responses,
        open(os.devnull, "rb") as nothing,
    ):
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        try:
            yield requests, responses
        finally:
            sys.stdout = shown
            os.dup2(requests.fileno(), 0)
            os.dup2(responses.fileno(), 1)
