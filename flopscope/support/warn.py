"""Warnings that point at the user's code."""

from __future__ import annotations

import sys
import warnings

from flopscope.support.package import FOLDER

__all__ = ["warn_user"]


def warn_user(message: str) -> None:
    """Warn at the line outside of flopscope that led here."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
