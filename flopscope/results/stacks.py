"""Python stacks: where source files lie, and folded stacks for flame graphs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from flopscope.support.files import replacing
from flopscope.support.package import FOLDER

if TYPE_CHECKING:
    from flopscope import _core

__all__ = ["METRICS", "export_stacks"]

# What a line of a folded stack may weigh: the column of the table that it is.
METRICS = {
    "self_cpu_time_total": "self_cpu_time_total",
    "self_device_time_total": "self_device_time_total",
    "self_cuda_time_total": "self_device_time_total",
}
WHOLE_STACK = 2**32 - 1
# A space ends a stack, a semicolon an entry, and a line is one stack: in names they become what torch.profiler makes
# of them.
NAME = str.maketrans(" ;\t\n", "____")


def export_stacks(core: _core.Store, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
    """Write folded stacks, the form that flame graph programs read: ``frame;frame;op N``, outermost first.

    One line for each op or range (API calls are such ops too) and stack that it ran under, with its own time in whole
    µs; what took less than 1 µs is left out, as torch.profiler does. Where no stack was recorded the line has the op
    alone.

    core: a stopped profile. metric: "self_cpu_time_total", "self_device_time_total" or, the same,
    "self_cuda_time_total"; ValueError for another.
    """
    if metric not in METRICS:
        raise ValueError(f"metric is one of {', '.join(METRICS)}; got {metric!r}")
    columns, meta = core.table(False, WHOLE_STACK, {})
    rows = zip(columns["key"], columns["device_type"], meta["stacks"], columns[METRICS[metric]], strict=True)
    with replacing(path, errors="backslashreplace") as file:
        for key, device_type, stack, time in rows:
            if device_type == "cpu" and int(time) > 0:
                entries = [entry.translate(NAME) for entry in (*reversed(stack), key)]
                file.write(f"{';'.join(entries)} {int(time)}\n")


def source_folders() -> tuple[str, list[str]]:
    """flopscope's own folder, and the folders of ``sys.path``, the deepest first; each with a separator at its end."""
    folders = {os.path.abspath(folder) for folder in sys.path if isinstance(folder, str)}
    return f"{FOLDER}{os.sep}", [folder.rstrip(os.sep) + os.sep for folder in sorted(folders, reverse=True)]
