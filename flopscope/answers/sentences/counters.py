"""What hardware counters counted, as a table."""

from __future__ import annotations

from flopscope.answers.counted import Counted
from flopscope.support.units import bytes_text, number_text, percent_text


def counter_rows(counted: Counted) -> list[tuple[str, ...]]:
    """Return the rows of the summary's section on counters: a header, then one for each device; [] without any."""
    rows: list[tuple[str, ...]] = [("device", "read", "written", "mean TB/s", "SM active", "tensor active", "counted")]
    for total in counted.totals():
        traffic = map(bytes_text, (total.whole_read, total.whole_written))
        shares = map(percent_text, (total.sm_active, total.tensor_active, 100 * total.share))
        rows.append((counted.core.device_name(total.device), *traffic, number_text(total.tbytes_per_s), *shares))
    return rows if len(rows) > 1 else []
