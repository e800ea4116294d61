"""The package's version and folder, and the folders of source files."""

from __future__ import annotations

import os
import sys

VERSION = "0.7.0.dev0"
DISTRIBUTION = "flopscope-profiler"
FOLDER = os.path.dirname(os.path.dirname(__file__))
MIXED = (
    "the unrelated distribution flopscope is installed beside flopscope-profiler, in one folder, which holds files of "
    f"both ({FOLDER}): run `pip uninstall flopscope flopscope-profiler`, then `pip install flopscope-profiler`"
)


def is_mixed() -> bool:
    """Return whether the unrelated distribution "flopscope" is installed in the same folder."""
    try:
        names = os.listdir(os.path.dirname(FOLDER))
    except OSError:
        return False
    return any(name.startswith("flopscope-") and name.endswith(".dist-info") for name in names)


def source_folders() -> tuple[str, list[str]]:
    """Return flopscope's folder and those of ``sys.path``, deepest first, each with a trailing separator."""
    folders = {os.path.abspath(folder) for folder in sys.path or () if isinstance(folder, str)}
    return f"{FOLDER}{os.sep}", [folder.rstrip(os.sep) + os.sep for folder in sorted(folders, reverse=True)]
