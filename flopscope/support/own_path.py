"""The search path of flopscope's own imports: without the folder in which ``python -m flopscope`` is called.

Commands that run code of others restore it. This module is the first that the package imports, and imports nothing that
a file of that folder could replace.
"""

import sys

LOADED_BEFORE = frozenset(sys.modules)
"""Modules that were imported before flopscope."""

# Python puts a folder first, unless it is told not to: that of the script, or for -m the current one. sys.argv begins
# with "-m" while the package is imported, and the name of the package is what precedes the other arguments.
STARTS_WITH_FOLDER = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
_is_program = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith("flopscope")
_taken = [sys.path.pop(0)] if _is_program and STARTS_WITH_FOLDER and sys.path else []


def restore() -> None:
    """Put the folder back, before code of others runs."""
    sys.path[:0] = _taken
    _taken.clear()
