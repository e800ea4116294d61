"""Warnings attributed to the user's code."""

from __future__ import annotations

import os
import sys
import warnings

from flopscope.support.package import FOLDER


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning attributed to the innermost calling line outside of flopscope."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER + os.sep):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
