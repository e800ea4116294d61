"""Performance assertions in tests: the implementation of the pytest plugin's ``perf`` fixture.

    def test_add(perf):
        perf(fs.add, x, y).at_least(pct_roofline=80).bound("memory")

A limit on a time or a rate is compared with the confidence interval of the measurement. It passes or fails if the whole
interval lies on one side of the limit. Otherwise it is unclear, and fn is measured again for longer. The outcome of a
limit that stays unclear is set by ``--perf-unclear``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flopscope.measuring.perf.check import Check, Perf, Settings
    from flopscope.measuring.perf.limits import LimitError, PerfFailure

__all__ = ["Check", "LimitError", "Perf", "PerfFailure", "Settings"]

_MODULES = {"Check": "check", "Perf": "check", "Settings": "check", "LimitError": "limits", "PerfFailure": "limits"}


def __getattr__(name: str) -> Any:
    """Import a class where it is used: ``flopscope perf`` shows stored runs without pytest."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
