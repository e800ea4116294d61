"""Categories of ops: matrix product, attention, convolution, …

One table of patterns assigns them by the names of the ops alone.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from flopscope.views.entries import NO_OP

if TYPE_CHECKING:
    from flopscope.results.table import EventRow, EventTable

__all__ = ["CATEGORIES", "by_category", "category_of", "sum_rows"]

# Each category with the names of its ops as shell patterns, without namespace and without leading or trailing
# underscores. The first match decides. Inductor puts the kind of a generated kernel into its name.
CATEGORIES: tuple[tuple[str, str], ...] = (
    ("pointwise", "triton_poi_* triton_for_*"),
    ("reduction", "triton_red_* triton_per_*"),
    ("matrix product", "triton_tem_* triton_mm* triton_bmm*"),
    (
        "communication",
        "nccl:* gloo:* mpi:* c10d::* record_param_comms *all_reduce* *allreduce* *all_gather* *allgather* "
        "*reduce_scatter* *all_to_all* *alltoall*",
    ),
    ("attention", "*attention* *flash_attn* *sdpa*"),
    (
        "convolution",
        "conv conv[123]d conv_transpose* convolution* *_convolution* *conv_depthwise* *conv[23]d* col2im im2col",
    ),
    (
        "matrix product",
        "mm *_mm *_mm_* addmm bmm baddbmm addbmm matmul mv addmv dot vdot inner outer ger addr linear "
        "linear_backward einsum tensordot bilinear *lstm* *gru* *rnn* linalg_*",
    ),
    (
        "normalisation",
        "*norm_backward* *batch_norm* *layer_norm* *layernorm* *group_norm* *instance_norm* *rms_norm* "
        "local_response_norm *softmax*",
    ),
    (
        "copies",
        "copy *_copy to clone contiguous cat stack chunk_cat pad *_pad[123]d constant_pad_nd repeat "
        "repeat_interleave tile roll flip pin_memory cast Memcpy* fill zero full ones zeros *_like new_* eye "
        "arange linspace foreach_zero Memset* index index_* gather* scatter* select_scatter slice_scatter "
        "take take_along_dim put masked_* embedding* where nonzero one_hot local_scalar_dense",
    ),
    (
        "reduction",
        "sum mean nansum nanmean prod amax amin aminmax max min argmax argmin any all var std var_mean "
        "std_mean norm *vector_norm foreach_norm logsumexp count_nonzero median mode cum* logcumsumexp "
        "*_loss* *cross_entropy* *pool[123]d* kl_div sort argsort topk unique* histc bincount searchsorted",
    ),
    (
        "pointwise",
        "add sub rsub mul div true_divide neg abs exp* log* sqrt rsqrt sin* cos* tan* asin* acos* atan* erf* "
        "pow square reciprocal relu* gelu* silu* elu* selu celu mish* sigmoid* hard* leaky_relu* threshold* "
        "softplus* clamp* lerp addcmul addcdiv maximum minimum fmax fmin fmod remainder floor* ceil round "
        "trunc frac sign sgn eq ne lt le gt ge logical_* bitwise_* isnan isinf isfinite nan_to_num hypot "
        "xlogy tril triu *dropout* glu* prelu* foreach_* fused_* rand* normal uniform bernoulli exponential "
        "random amp_* result_type",
    ),
)
OTHER = "other"
_PATTERNS = [(category, re.compile("|".join(map(translate, names.split()))).match) for category, names in CATEGORIES]
_OWN = ("self_cpu_time_total", "self_device_time_total", "self_cpu_memory_usage", "self_device_memory_usage")
_WORK = ("flops", "bytes_read", "bytes_written", "bytes_total_moved")
_BUSY = "device_busy_time"


@functools.cache
def category_of(name: str) -> str:
    """Return the category of an op ("aten::add_"): one of CATEGORIES, or "other"."""
    bare = name.rpartition("::")[2].strip("_") if name.startswith(("aten::", "flopscope::", "torch::")) else name
    return next((category for category, matches in _PATTERNS if matches(bare)), OTHER)


def by_category(table: EventTable) -> EventTable:
    """Return one row per category: the sums of the self times, memory, FLOPs and bytes of its host rows.

    Kernels count for the ops that launched them; "(no op)" is the device time that belongs to no op, such as that of
    replayed CUDA graphs. Unknown work is left out of the sums. Totals equal the self times, since categories do not
    nest; statistics per call are unknown. Rates and shares refer to the time of the rows that have them. Work that the
    program states for a range is the work of the ops in it, so it counts only if no op's work is known.
    """
    summed = sum_rows(table, [category_of(key) for key in table.columns["key"]])
    return table.with_rows([{**row, "key": NO_OP if name is None else name} for name, row in summed.items()])


def sum_rows(table: EventTable, keys: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Return the sum of the host's rows for each key, and for the key None the device time that belongs to no op.

    keys: one for each row of the table. The sums are as in by_category(); columns that are omitted are unknown.
    """
    cpu_rows = (row for row in table if row.device_type == "cpu")
    use_ranges = only_ranges_have_work((row.is_user_annotation, row.flops, row.bytes_total_moved) for row in cpu_rows)
    groups: dict[Any, list[EventRow]] = {}
    for row, key in zip(table, keys, strict=True):
        if row.device_type == "cpu":
            groups.setdefault(key, []).append(row)
    summed = {key: _summed(rows, table.has_device, use_ranges) for key, rows in groups.items()}
    left = table.self_device_time_total - math.fsum(row["self_device_time_total"] for row in summed.values())
    if left > 0.001 * max(1, sum(row["count"] for row in summed.values())):  # more than the ns that rounding loses
        summed[None] = _summed([], True, use_ranges) | {
            "device_type": table.device_type,
            "self_device_time_total": left,
        }
        summed[None] |= {"device_time_total": left, _BUSY: left}
    return summed


def only_ranges_have_work(parts: Iterable[tuple[bool, float, float]]) -> bool:
    """Return whether no op's work is known, so that the work stated for ranges counts.

    parts: for each row, whether it is a range, its FLOPs and its bytes.
    """
    return all(is_range or (math.isnan(flops) and math.isnan(moved)) for is_range, flops, moved in parts)


def _summed(rows: list[EventRow], on_device: bool, use_ranges: bool) -> dict[str, Any]:
    """Return the sum of rows; omitted columns are unknown. use_ranges: include the work stated for ranges."""
    total: dict[str, Any] = {"count": sum(row.count for row in rows)}
    for column in _OWN:
        total[column] = sum(getattr(row, column) for row in rows)
        total[column.removeprefix("self_")] = total[column]
    rows = [row for row in rows if use_ranges or not row.is_user_annotation]
    total[_BUSY] = sum(getattr(row, _BUSY) for row in rows)
    for column in _WORK:
        total[column] = known_sum(getattr(row, column) for row in rows)
    total["flops_total"] = total["flops"]
    total["tflops_per_s"] = _rate(rows, "flops", "tflops_per_s", 1e6, on_device)
    total["gbytes_per_s"] = _rate(rows, "bytes_total_moved", "gbytes_per_s", 1e3, on_device)
    if total["bytes_total_moved"]:
        total["arithmetic_intensity"] = total["flops"] / total["bytes_total_moved"]
    for column in ("roofline_time", "headroom"):
        total[column] = known_sum(getattr(row, column) for row in rows)
    for column in ("pct_peak_flops", "pct_peak_bandwidth", "pct_roofline"):
        total[column] = share_of_all((getattr(row, column), row.roofline_time + row.headroom) for row in rows)
    total["timing_source"] = rows[0].timing_source if rows else "trace"
    return total


def _rate(rows: list[EventRow], work: str, rate: str, per_us: float, on_device: bool) -> float:
    """Return the work of the rows with a known rate per time that it took, in units of ``per_us`` per µs."""
    rated = [(getattr(row, work), _rated_time(row, on_device)) for row in rows if not math.isnan(getattr(row, rate))]
    timed = [(done, time) for done, time in rated if time > 0]
    if not timed:
        return math.nan
    return math.fsum(done for done, _ in timed) / math.fsum(time for _, time in timed) / per_us


def _rated_time(row: EventRow, on_device: bool) -> float:
    """Return the µs that a row's rates refer to: for a range with stated work, its whole duration."""
    if on_device:
        return float(row.device_busy_time)
    return float(row.cpu_time_total if row.is_user_annotation else row.self_cpu_time_total)


def known_sum(values: Iterable[float]) -> float:
    """Return the sum of the values that are not NaN, or NaN if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) if known else math.nan


def share_of_all(parts: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (share, time) pairs, weighted by time, or NaN if no pair is known."""
    known = [(share, time) for share, time in parts if not math.isnan(share + time)]
    total = math.fsum(time for _, time in known)
    return math.fsum(share * time for share, time in known) / total if total > 0 else math.nan
