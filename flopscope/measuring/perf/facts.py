"""Facts about a run besides its measurements: the git commit, the versions, and what follows from the samples."""

from __future__ import annotations

import functools
import math
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flopscope.support.nvml import initialized

GIT_SECONDS = 20
DIGITS = 7  # of a stored sample: a nanosecond of 10 ms


def commit_of(folder: Path) -> dict[str, Any] | None:
    """Return the git commit of a folder: "id", "branch" (None if detached) and "dirty"; None outside of git.

    "dirty" says whether tracked files differ from the commit. Untracked files, such as stored runs, do not count.
    """
    head = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if not head or changes is None:
        return None
    return {"id": head, "branch": _git(folder, "symbolic-ref", "--short", "-q", "HEAD") or None, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if it fails, or git is missing."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=GIT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Return the versions of Python, NumPy and torch if they are imported, and NVIDIA's driver if there is one."""
    found = {"python": platform.python_version()}
    for name in ("numpy", "torch"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    driver = _driver()
    return found | ({"driver": driver} if driver else {})


@functools.cache
def _driver() -> str:
    """Return the version of NVIDIA's driver through NVML; "" where it is unavailable."""
    try:
        version = initialized().nvmlSystemGetDriverVersion()
    except Exception:  # ImportError, or NVMLError, a class of the module that may have failed to load
        return ""
    return version.decode() if isinstance(version, bytes) else str(version)


def rounded(measurement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a measurement, with the samples rounded to DIGITS significant digits."""
    samples = {name: [_rounded(value) for value in measurement.get(name) or ()] for name in ("samples", "clocks")}
    return {**measurement, **samples}


def _rounded(value: Any) -> float | None:
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else None


def calls_per_second(mean: float | None) -> float | None:
    """Return 1 / mean, for a mean in µs: OPS of pytest-benchmark."""
    return 1e6 / mean if mean is not None and mean > 0 and math.isfinite(mean) else None
