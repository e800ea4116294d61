"""What flopscope does when it is imported, besides loading the core: it prepares what other code may need of it."""

from __future__ import annotations

from flopscope import _core
from flopscope.record.watch_setting import is_asked_for


def begin() -> None:
    """Let the rules of installed packages be loaded when a table first has an op of another library than torch.

    Watch graphs if the environment variable says so.
    """
    _core._set_rule_loader(_load_rules)
    if is_asked_for():
        from flopscope.record.watching import watch_as_asked

        watch_as_asked()


def _load_rules() -> None:
    from flopscope.record.entry_points import load_rules
    from flopscope.support import own_path

    own_path.restore()
    load_rules()
