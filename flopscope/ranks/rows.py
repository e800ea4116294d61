"""The ops of all ranks with statistics over the ranks."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.ranks.digest import Digest

if TYPE_CHECKING:
    import pandas

__all__ = ["rank_rows"]

NUMBERS = ("count", "self_device_time_total", "self_cpu_time_total", "flops", "bytes_total_moved", "pct_roofline")
RATES = frozenset({"pct_roofline"})  # not per step


def rank_rows(digests: Sequence[Digest]) -> pandas.DataFrame:
    """Return a row per name, device, shapes and dtypes; Ranks.key_averages() has the columns. Longest first."""
    import pandas

    places: dict[tuple[Any, ...], int] = {}
    shown: list[tuple[Any, ...]] = []
    row_of: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    bounds: list[str] = []
    for digest in digests:
        table = digest.table
        own = []
        texts = zip(
            *(table[name] for name in ("key", "device_type", "is_user_annotation", "input_shapes", "input_dtypes")),
            strict=True,
        )
        for key, device, annotation, shapes, dtypes in texts:
            place = places.setdefault((key, device, bool(annotation), shapes, dtypes), len(places))
            if place == len(shown):
                shown.append((key, device, bool(annotation), literal_eval(shapes), literal_eval(dtypes)))
            own.append(place)
        row_of.append(np.array(own, np.int64))
        bounds += table["bound"]
    row = np.concatenate(row_of)
    rank = np.repeat([digest.rank for digest in digests], [len(own) for own in row_of])
    values = {
        name: np.concatenate([_per_step(digest, name) for digest in digests]).astype(np.float64) for name in NUMBERS
    }
    device = np.nan_to_num(values["self_device_time_total"])
    has_device = np.bincount(row, device, len(shown)) > 0
    time = np.where(has_device[row], device, np.nan_to_num(values["self_cpu_time_total"]))
    order = np.lexsort((time, row))
    first, last = (np.searchsorted(row[order], np.arange(len(shown)), side) for side in ("left", "right"))
    last -= 1
    columns: dict[str, Any] = {
        name: [one[i] for one in shown]
        for i, name in enumerate(("key", "device_type", "is_user_annotation", "input_shapes", "input_dtypes"))
    }
    columns["ranks"] = last - first + 1
    columns["count"] = _medians(row, values["count"], len(shown))
    columns["time_min"], columns["time_max"] = time[order][first], time[order][last]
    columns["time_median"] = _medians(row, time, len(shown))
    columns["rank_min"], columns["rank_max"] = rank[order][first], rank[order][last]
    for name in ("flops", "bytes_total_moved", "pct_roofline"):
        columns[name] = _medians(row, values[name], len(shown))
    columns["bound"] = _most_frequent(row, bounds, len(shown))
    frame = pandas.DataFrame(columns).sort_values(
        ["device_type", "time_median"], ascending=[False, False], kind="stable"
    )
    names = [
        *("key", "device_type", "is_user_annotation", "input_shapes", "input_dtypes", "ranks", "count"),
        *("time_min", "time_median", "time_max", "rank_min", "rank_max", "flops", "bytes_total_moved"),
        *("pct_roofline", "bound"),
    ]
    return frame[names].reset_index(drop=True)


def _per_step(digest: Digest, name: str) -> Any:
    values = np.asarray(digest.table[name], np.float64)
    return values if name in RATES else values / max(digest.steps, 1)


def _medians(row: Any, values: Any, rows: int) -> Any:
    """Return the median of the known values of each row; NaN for a row without any."""
    known = ~np.isnan(values)
    row, values = row[known], values[known]
    order = np.lexsort((values, row))
    values = values[order]
    count = np.bincount(row, minlength=rows)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    result = np.full(rows, np.nan)
    some = count > 0
    low, high = (first + (count - 1) // 2)[some], (first + count // 2)[some]
    result[some] = 0.5 * (values[low] + values[high])
    return result


def _most_frequent(row: Any, texts: Sequence[str], rows: int) -> list[str]:
    names = sorted(set(texts))
    place = {name: number for number, name in enumerate(names)}
    numbers = np.array([place[text] for text in texts], np.int64)
    counts = np.bincount(row * len(names) + numbers, minlength=rows * len(names)).reshape(rows, len(names))
    return [names[number] for number in counts.argmax(axis=1)] if rows else []
