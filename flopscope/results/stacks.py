"""Python stacks: the folders of source files, and folded stacks for flame graphs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flopscope.support.files import replacing

if TYPE_CHECKING:
    from flopscope import _core

# Metrics of a folded stack, with the table columns that hold them.
METRICS = {
    "self_cpu_time_total": "self_cpu_time_total",
    "self_device_time_total": "self_device_time_total",
    "self_cuda_time_total": "self_device_time_total",
}
WHOLE_STACK = 2**32 - 1
# A space ends a stack, a semicolon ends an entry, and a newline ends a line: in names they become underscores, as in
# torch.profiler.
NAME = str.maketrans(" ;\t\n", "____")


def export_stacks(core: _core.Store, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
    """Write folded stacks, the format of flame graph programs: ``frame;frame;op N``, outermost frame first.

    There is a line for each op, range or API call and each stack that it ran under, with its self time in whole µs;
    times below 1 µs are omitted, as in torch.profiler. A line without a recorded stack has only the op.

    core: a stopped profile. metric: "self_cpu_time_total", "self_device_time_total" or its alias
    "self_cuda_time_total"; ValueError for any other.
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}")
    columns, meta = core.table(False, WHOLE_STACK, {})
    rows = zip(columns["key"], columns["device_type"], meta["stacks"], columns[METRICS[metric]], strict=True)
    with replacing(path, errors="backslashreplace") as file:
        for key, device_type, stack, time in rows:
            if device_type == "cpu" and int(time) > 0:
                entries = [entry.translate(NAME) for entry in (*reversed(stack), key)]
                file.write(f"{';'.join(entries)} {int(time)}\n")
