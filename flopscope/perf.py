"""Performance assertions in tests: the implementation of the pytest plugin's ``perf`` fixture.

    def test_add(perf):
        perf(fs.add, x, y).at_least(pct_roofline=80).bound("memory")

A limit on a time or a rate is compared with the confidence interval of the measurement. It passes or fails if the whole
interval lies on one side of the limit. Otherwise it is unclear, and fn is measured again for longer. The outcome of a
limit that stays unclear is set by ``--perf-unclear``.
"""

from __future__ import annotations

from flopscope.measuring.perf.check import Check, Perf, Settings
from flopscope.measuring.perf.limits import LimitError, PerfFailure

__all__ = ["Check", "LimitError", "Perf", "PerfFailure", "Settings"]
