"""Work that all processes of one test run share."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Once = Callable[[str, Callable[[Path], object]], Path]


def once_in(factory: pytest.TempPathFactory) -> Once:
    """Return ``once(name, make)``, which returns a folder of that name; the first process to ask for it fills it with
    ``make(folder)`` while the others wait."""
    base = factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder = run / name
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                make(folder)
                (folder / "complete").touch()
        return folder

    return once
