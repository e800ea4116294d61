"""The section Launches: how the host keeps up with the devices, what the streams did, and which ops launch most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopscope.answers.sentences.notes import skewed_clocks
from flopscope.results.summaries import records
from flopscope.show.page.encode import Columns

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

MOST_OPS = 200


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return launches and streams of each device, and the ops with the most launches; None without device work."""
    launches = source.main.core.launch_summary()
    if not launches["device"]:
        return None
    kernels = zip(source.rows.parts.get("kernels") or [], source.rows.columns["device_type"], strict=False)
    ops = [
        {"row": row, "count": count, "time": sum(time for _, _, time in listed) / count}
        for row, (listed, device_type) in enumerate(kernels)
        if device_type == "cpu" and (count := sum(count for _, count, _ in listed))
    ]
    ops.sort(key=lambda entry: -entry["count"])
    return {
        "devices": records(launches),
        "warnings": list(skewed_clocks(source.main.core, launches)),
        "streams": records(source.main.streams),
        "steps": source.steps,
        "window": source.main_text,
        "ops": ops[:MOST_OPS],
        "ops_left_out": max(len(ops) - MOST_OPS, 0),
    }
