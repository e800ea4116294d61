"""Notes below a table: what its shares refer to, what is unknown, and what was lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from flopscope.answers.words import FEW, first_of
from flopscope.results.row import EventRow
from flopscope.results.table import EventTable
from flopscope.results.table_facts import has_unknown_kernels
from flopscope.support.hints import NOT_RESOLVED
from flopscope.support.safe import printable

COUNTED = (
    "Bytes of rows without a rule are those that the counters saw: traffic as it was, with what missed the caches and "
    "without what they held. Their % of the roofline is how busy the memory, the L2 or a compute unit was."
)

DEVICE_UNSEEN = (
    "No rates and no roofline: the program calls a GPU, or the trace names one, and contains no activity of it\n"
    "(recorded with CPU activities only, or truncated). Host times may be the time to dispatch ops, not to run them."
)


def footnotes(
    rows: Iterable[EventRow], table: EventTable, name: Callable[[str], str], time: Callable[[float], str]
) -> Iterable[str]:
    """Yield notes that explain the numbers of these rows; torch's layout keeps their line breaks.

    name, time: return the text of a name and of a time in µs.
    """
    rows = list(rows)
    if any(share > 100 for row in rows for share in (row.pct_roofline, row.pct_peak_flops, row.pct_peak_bandwidth)):
        yield (
            "* more than the roofline: the data sat in cache (bound: cache), the clock was higher than when the peak\n"
            "  was measured (uniform data draws less power), or a work rule is wrong."
        )
    if table.device_unseen:
        yield DEVICE_UNSEEN
    coverage = table.coverage()
    if min(coverage["bytes"], coverage["flops"]) < 1:
        where = "device time" if table.has_device else "host time of ops"
        yield (
            f"Coverage: the bytes of {100 * coverage['bytes']:.1f}% and the FLOPs of {100 * coverage['flops']:.1f}% "
            f"of the {where} are known."
        )
    counted = "counted" in table.columns["bytes_source"]
    if table.lacks_shapes and not counted:
        yield table.hints.shapes
    elif coverage["unmodelled"]:
        yield f"Not modelled: {first_of([f'{name(op)} {time(spent)}' for op, spent in coverage['unmodelled']])}."
        if has_unknown_kernels(coverage, table.columns):
            yield NOT_RESOLVED if counted else table.hints.kernels
    if counted:
        yield COUNTED
    if coverage.get("estimated"):
        names = first_of([name(op) for op, _ in coverage["estimated"]])
        yield f"Only bounds or estimates are known for the work of {names}."
    if coverage.get("estimated_flops"):
        yield "The FLOPs of generated kernels are estimated from the ops in their names."
    misfits = coverage.get("misfits", {})
    for op, (seen, expected) in list(misfits.items())[:FEW]:
        yield f"Another version of {name(op)}: called with ({printable(seen)}), where the rule expects ({expected})."
    if len(misfits) > FEW:
        yield f'coverage()["misfits"] has {len(misfits) - FEW} more ops of another version.'
    if coverage.get("unseen_graphs"):
        yield (
            f"Kernels of CUDA graphs whose capture was not seen: {time(coverage['unseen_graphs'])}. "
            f"{printable(table.hints.graphs)}"
        )
    if table.open_events:
        yield f"Open events: {table.open_events} had not ended; their time is unknown and counts as 0."
    if table.dropped:
        yield f"Dropped records: {table.dropped}. Times and counts are too low: profile a shorter part of the program."
    if table.device_unseen and all(math.isnan(row.pct_roofline) for row in rows):
        return
    known = table.peaks.items()
    descriptions = {device: f"{peaks['source']} peaks of {printable(peaks['name'])}" for device, peaks in known}
    stated = [row for row in rows if table.peaks and row.is_user_annotation and row.flops > 0 and row.unit is None]
    if unitless := [name(row.key) for row in stated if math.isnan(row.pct_roofline)]:
        those = first_of(unitless)
        yield f"% Roofline: unknown for {those}, whose FLOPs are stated without a compute unit; pass unit=."
    for peaks, devices in devices_by_text(descriptions):
        yield f"% Roofline: of the {peaks} ({devices})."
    if any(row.flops == row.flops or row.bytes_total_moved >= 0 for row in rows):
        for reason, devices in devices_by_text(table.unknown_peaks):
            yield f"% Roofline: unknown on {devices}: {printable(reason)}."


def devices_by_text(descriptions: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yield each distinct text with the devices that it applies to."""
    for description in dict.fromkeys(descriptions.values()):
        yield description, ", ".join(device for device, text in descriptions.items() if text == description)
