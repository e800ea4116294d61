"""The package's version and folder, and the folders of source files."""

from __future__ import annotations

import os
import sys

VERSION = "0.6.0"
FOLDER = os.path.dirname(os.path.dirname(__file__))


def source_folders() -> tuple[str, list[str]]:
    """Return flopscope's folder and those of ``sys.path``, deepest first, each with a trailing separator."""
    folders = {os.path.abspath(folder) for folder in sys.path or () if isinstance(folder, str)}
    return f"{FOLDER}{os.sep}", [folder.rstrip(os.sep) + os.sep for folder in sorted(folders, reverse=True)]
