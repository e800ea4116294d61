"""The command ``flopscope skill``: where the skill for agents is."""

from __future__ import annotations

import argparse
import os

from flopscope.support.package import FOLDER

SKILL = os.path.join(FOLDER, "cli", "server", "skills", "flopscope")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``skill`` to its parser."""
    parser.description = (
        "Print the folder of the skill that teaches agents when to use which command. Copy it, or link to it, where "
        "your agent looks for skills."
    )
    parser.set_defaults(run=_skill)


def _skill(options: argparse.Namespace) -> None:
    print(SKILL)
