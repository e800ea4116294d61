"""Performance as a test's statement: what the pytest plugin's ``perf`` fixture does.

    def test_add(perf):
        perf(fs.add, x, y).at_least(pct_roofline=80).bound("memory")

A limit on a time or a rate is held against the measurement's confidence interval: it has passed or failed where the
whole interval lies on one side. Otherwise it is unclear, fn is measured again for longer, and what stays unclear
follows ``--perf-unclear``.
"""

from flopscope.perf.check import Check, Perf, Settings
from flopscope.perf.limits import LimitError, PerfFailure

__all__ = ["Check", "LimitError", "Perf", "PerfFailure", "Settings"]
