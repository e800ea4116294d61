"""The commands for agents: ``flopscope mcp``, a server of the Model Context Protocol, and ``flopscope skill``."""

from __future__ import annotations

import argparse
import os

from flopscope.support.package import FOLDER

SKILL = os.path.join(FOLDER, "cli", "server", "skills", "flopscope")
DESCRIPTION = """\
Serve tools of the Model Context Protocol on stdin and stdout: an agent's program starts this command. Only files in the
folders are read, and no code is run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    text = "folder whose traces may be read (default: the current folder)"
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=text)
    parser.set_defaults(run=_mcp)


def _mcp(options: argparse.Namespace) -> None:
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError as problem:
        raise ImportError(
            "flopscope mcp needs version 2 of the SDK of the protocol: pip install 'flopscope-profiler[mcp]'"
        ) from problem
    from flopscope.cli.server.server import serve

    serve(options.folders)


def add_skill(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print the folder of the skill that teaches agents when to use which command. Copy it, or link to it, where "
        "your agent looks for skills."
    )
    parser.set_defaults(run=lambda options: print(SKILL))
