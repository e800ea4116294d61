"""The section Launches: how the host keeps up with the devices, what the streams did, and which ops launch most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flopscope.report.encode import Columns
from flopscope.sentences.notes import skewed_clocks

if TYPE_CHECKING:
    from flopscope.report.profile import Profile

__all__ = ["section"]

MOST_OPS = 200


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return launches and streams of each device, and the ops with the most launches; None without device work."""
    launches = source.main.core.launch_summary()
    if not launches["device"]:
        return None
    return {
        "devices": _records(launches),
        "warnings": list(skewed_clocks(source.main.core, launches)),
        "streams": _records(source.main.core.stream_summary()),
        "steps": source.steps,
        "window": source.main_text,
        **_ops(source),
    }


def _records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _ops(source: Profile) -> dict[str, Any]:
    """Return the ops that launch most pieces of work: row, pieces, and the device time of a piece."""
    rows = source.rows
    listed = rows._parts.get("kernels") or [[] for _ in range(len(rows))]
    found = []
    for row, (kernels, device_type) in enumerate(zip(listed, rows.columns["device_type"], strict=True)):
        if device_type == "cpu" and kernels and (count := sum(count for _, count, _ in kernels)):
            found.append({"row": row, "count": count, "time": sum(time for _, _, time in kernels) / count})
    found.sort(key=lambda entry: -entry["count"])
    return {"ops": found[:MOST_OPS], "ops_left_out": max(len(found) - MOST_OPS, 0)}
