"""What flopscope does when it is imported, besides loading the core: it prepares what other code may need of it."""

from __future__ import annotations

import os

from flopscope import _core
from flopscope.support.package import WATCH_GRAPHS, warn_user

GROUP = "flopscope.work"
"""The entry points of installed packages that bring work rules along."""


def begin() -> None:
    """Let the rules of installed packages be loaded when a table first has an op of another library than torch.

    Watch graphs if the environment variable says so.
    """
    _core._set_rule_loader(_load_rules)
    if os.environ.get(WATCH_GRAPHS, "0") not in ("", "0"):
        from flopscope.record.watching import watch_graphs

        try:
            watch_graphs()
        except RuntimeError as problem:
            warn_user(f"{WATCH_GRAPHS}: {problem}")


def _load_rules() -> None:
    """Call the functions that installed packages name in the group. Each registers its rules by register_work().

    If one fails, a warning says so, and the others are still loaded.
    """
    from importlib.metadata import entry_points

    from flopscope.support import own_path
    from flopscope.support.safe import error_text

    own_path.restore()
    for point in entry_points(group=GROUP):
        try:
            point.load()()
        except Exception as error:  # of another package
            warn_user(f"the work rules of {point.name} ({point.value}) failed to load: {error_text(error)}")
