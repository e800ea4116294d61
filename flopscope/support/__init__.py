"""Helpers that are independent of profiling: files, progress bars, libraries, number formatting."""

import sys

# Another distribution may have put its flopscope/__init__.py into this folder, so that this package is not what was
# imported.
if not hasattr(sys.modules["flopscope"], "__distribution__"):
    from flopscope.support.package import MIXED

    raise ImportError(MIXED)
