"""Work rules that installed packages bring along: entry points of the group "flopscope.work"."""

from __future__ import annotations

from flopscope.support.package import warn_user
from flopscope.support.safe import error_text

GROUP = "flopscope.work"


def load_rules() -> None:
    """Call the functions that installed packages name in the group. Each registers its rules by register_work().

    If one fails, a warning says so, and the others are still loaded.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            point.load()()
        except Exception as error:  # of another package
            warn_user(f"the work rules of {point.name} ({point.value}) failed to load: {error_text(error)}")
