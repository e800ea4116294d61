"""Tables as columns of a page, and the descriptions of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope.results.columns import KINDS, kind_of
from flopscope.results.table import EventTable
from flopscope.show.columns import SEEN, shapes_text
from flopscope.show.page.encode import Columns
from flopscope.support.units import plural

_WORK = "flops flops_total bytes_read bytes_written bytes_total_moved arithmetic_intensity"
_GROUPS = {  # of columns, in the order of the page
    "Roofline": "bound pct_roofline headroom roofline_time pct_peak_flops pct_peak_bandwidth",
    "Device time": "self_device_time_total device_time_total device_busy_time",
    "Host time": "self_cpu_time_total cpu_time_total",
    "Time per call": "time_min time_median time_p95 time_max time_std",
    "Work": f"{_WORK} unit bytes_source flops_source",
    "Rates": "tflops_per_s gbytes_per_s",
    "Launch": "registers shared_memory theoretical_occupancy occupancy_limit waves",
    "Memory": "self_device_memory_usage device_memory_usage self_cpu_memory_usage cpu_memory_usage",
    "Identity": "key overload_name device_type is_user_annotation count timing_source",
    "Inputs": "input_shapes input_dtypes",
    "Group": "category step stream line module module_calls pct_roofline_total stack",
}
_HIDDEN = frozenset({"is_user_annotation", "module_depth"})
OTHERS = "Counters"
"""The group of columns that no row of _GROUPS names: those that hardware counters fill."""
_MORE = {"input_shapes": "; others are arguments without dimensions, such as numbers, flags and lists"}
"""What the page adds to the description of a column."""
_GROUP_OF = {name: title for title, names in _GROUPS.items() for name in names.split()}
_HEADERS = {"pct_roofline": "% roof", "flops_total": "FLOPs total", "device_type": "Where"}


def header_of(name: str) -> str:
    """Return the header of a column: that of printed tables, for any device, or its name in words."""
    seen = next((c.fitted_header for c in SEEN if c.attribute == name and "%" not in c.fitted_header), "")
    words = name.replace("pct_", "% ").replace("_total", " total").replace("_", " ")
    text = _HEADERS.get(name) or seen.replace("CUDA", "device") or words
    return text[:1].upper() + text[1:]


def tensor_text(shapes: Sequence[Any]) -> str:
    """Return shapes in words: ``8x1024x768 768x50257, 2 others``.

    Three and more equal ones in a row are written once, ``64x32 (4 times)``, and a list of tensors is in brackets.
    Arguments without dimensions are counted: numbers, flags, what was not given, lists whose sizes were not recorded.
    """
    text = shapes_text(shapes, "{text} ({count} times)", tensor_text)
    others = sum(shape in ((), []) for shape in shapes)
    return ", ".join(filter(None, [text, plural(others, "other" if text else "argument") if others else ""]))


REASONS = (  # why the limit of a row is unknown: a few words, and a sentence
    ("", ""),
    ("see its op", "Device work has the limit of the op that launched it."),
    ("a range", "A range has no work of its own: the ops in it have."),
    ("host only", "It ran nothing on a device, so no time of a device has a limit."),
    ("no work", "It moves no bytes and does no FLOPs, such as a view or bookkeeping."),
    ("calls ops", "Its work is that of the ops that it calls."),
    ("no shapes", "Its FLOPs and bytes are unknown, as the shapes of its inputs were not recorded."),
    ("no rule", "Its FLOPs and bytes are unknown, as no rule knows the op; register_work() adds one."),
    ("no peaks", "Its FLOPs and bytes are known, but not the peaks of the device."),
    ("over count", "Its FLOPs and bytes, as the rule counts them, are more than the device can do in the time."),
)


def why_unrated(table: EventTable) -> npt.NDArray[np.int64]:
    """Return for each row the index in REASONS of why its limit is unknown; 0: it is known."""
    names = ("headroom", "self_device_time_total", "bytes_total_moved", "flops", "flops_total")
    headroom, device_time, moved, flops, flops_total = (np.asarray(table.columns[name], float) for name in names)
    without_work = (moved == 0) & (flops == 0)
    rules = (  # the first that holds
        (~np.isnan(headroom), np.where(without_work, 4, 0)),
        (np.asarray(table.columns["is_user_annotation"], bool), 2),
        (np.asarray(table.columns["device_type"]) != "cpu", 1),
        ((device_time == 0) & table.has_device, 3),
        (np.isnan(moved) & ~np.isnan(flops_total), 5),
        (np.isnan(moved), 7 if table.facts.has_shapes else 6),
        (without_work, 4),
    )
    return np.select([rule for rule, _ in rules], [why for _, why in rules], 9 if table.peaks else 8)


_NUMBERS = {"int64": np.int64, "float64": np.float64, "bool": np.bool_}


def encode_table(table: EventTable, columns: Columns) -> dict[str, Any]:
    """Return a table for the page: its columns, the kind of each row, the kernels of each row, and its totals."""
    described, encoded = [], {}
    for column, values in table.described_columns():
        if (name := column.name) not in _HIDDEN:
            kind = "number" if column.type in ("int64", "float64") else "text"
            about = {"unit": column.unit, "doc": f"{column.doc}{_MORE.get(name, '')}", "type": kind}
            described.append({"name": name, "header": header_of(name), **about, "group": _GROUP_OF.get(name, OTHERS)})
        if column.type in _NUMBERS:
            encoded[column.name] = columns.add(np.asarray(values, dtype=_NUMBERS[column.type]))
        else:
            texts = (_joined(column.name, value) for value in values) if column.type == "texts" else values
            encoded[column.name] = columns.texts(texts)
    kinds = map(kind_of, table.columns["device_type"], table.columns["is_user_annotation"])
    encoded["kind"] = columns.add([KINDS.index(kind) for kind in kinds])
    encoded["why"] = columns.add(why_unrated(table))
    return {
        "count": len(table),
        "described": described,
        "groups": [*_GROUPS, OTHERS],
        "columns": encoded,
        "kernels": _kernels(table, columns),
        "totals": {name: getattr(table, name) for name in ("self_cpu_time_total", "self_device_time_total")},
        "has_device": table.has_device,
    }


def _joined(name: str, values: Sequence[Any]) -> str:
    """Return the shapes, dtypes or stack of a row as one text."""
    if name == "input_shapes":
        return tensor_text(values)
    return "\n".join(values) if name == "stack" else ", ".join(map(str, values))


def _kernels(table: EventTable, columns: Columns) -> dict[str, Any] | None:
    """Return the kernels of all rows, one after the other, and where those of each row begin; None if not requested."""
    listed = table.parts.get("kernels")
    if listed is None:
        return None
    flat = [kernel for kernels in listed for kernel in sorted(kernels, key=lambda one: -one[2])]
    return {
        "begin": columns.add([0, *accumulate(map(len, listed))]),
        "name": columns.texts(name for name, _, _ in flat),
        "count": columns.add(np.array([count for _, count, _ in flat], dtype=np.int64)),
        "time": columns.numbers(time for _, _, time in flat),
    }


def identities(columns: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield what identifies each row of a table by name: its name, its kind of device, whether it is an annotation."""
    return zip(columns["key"], columns["device_type"], columns["is_user_annotation"], strict=True)


def longest_first(table: EventTable) -> npt.NDArray[np.int64]:
    """Return the places of the rows in the order of their own device time, then their host time, the longest first."""
    return np.lexsort([-np.asarray(table.columns[name]) for name in ("self_cpu_time_total", "self_device_time_total")])


MOST_ROWS = 20_000
"""Rows of a grouping: those with the most time are kept."""


def places_of_largest(table: EventTable) -> list[int] | None:
    """Return which rows have the most time, MOST_ROWS of them, in their order; None if there are no more than that."""
    return sorted(longest_first(table)[:MOST_ROWS].tolist()) if len(table) > MOST_ROWS else None
