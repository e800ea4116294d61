"""Ranges that libraries and programs mark by NVTX, NVIDIA's Tools Extension."""

from __future__ import annotations

import os

from flopscope import _core


def watch_nvtx() -> None:
    """Let later profiles record the NVTX ranges of libraries that call NVTX for the first time from now on.

    A library asks NVTX for a tool once, at its first call. ``profile()`` does this when it starts, which is too late
    for libraries that called NVTX before: call this at the start of the program. ``flopscope run`` does. While no
    profile records, a call of NVTX takes about 2 ns more.

    Raise RuntimeError if NVTX_INJECTION64_PATH names another tool, which keeps the ranges.
    """
    if not _core.inject_nvtx():
        tool = os.environ.get("NVTX_INJECTION64_PATH", "")
        raise RuntimeError(
            f"NVTX's ranges go to another tool: NVTX_INJECTION64_PATH is {tool!r}; unset it to record them here"
        )
