"""Rules about what computes: matrix products, convolutions and attention."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from flopscope import _core
from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import (
    WITH_ADDEND,
    Finding,
    arguments,
    calls_of,
    claim_all,
    evidence,
    finding_about,
    groups_of,
    is_attention,
    is_convolution,
    is_gpu,
    is_product,
    is_trained,
    names_at,
    product_sizes,
    ran_as,
    tensors,
    where,
)
from flopscope.answers.pieces import Op
from flopscope.answers.words import OP_WIDTH, Said, form, listed, told
from flopscope.support.columns import cut_end
from flopscope.support.statistics import median
from flopscope.support.units import percent_text, plural, short_time_text

USUAL_SHARE = 0.7
"""Share of the peak that large aligned products reach on tensor cores (benchmarks/matmul.py, on an H200)."""
RAMP = 8.0
"""µs that a product takes beside, to fill and to drain the device: of 30 to 80 µs, TF32 ones reach half of the peak."""
ALIGNMENT = 16
"""Bytes: the fast kernels of cuBLAS load rows as 16-byte vectors (NVIDIA, Matrix Multiplication Background)."""
FLASH_SHARE = 0.5
"""Share of the tensor cores' peak that fused attention reaches (FlashAttention-2, arXiv 2307.08691, section 4)."""
FLASH_EXTRA = 1.2
"""FLOPs of fused attention, which computes the scores again in the backward pass, over those of the written-out one."""


def reached(op: Op) -> float:
    """Return the share of the limit that an op reaches."""
    return op.ideal / op.time if op.time > 0 else math.nan


def _item_bytes(op: Op) -> int:
    return min((_core.dtypes[dtype].bytes for dtype in op.dtypes if dtype in _core.dtypes), default=2)


def _row_lengths(analysis: Analysis, op: Op) -> str:
    """Return which of M, N and K are the lengths of rows in memory: N of the result, and others by the strides."""
    lengths = {"N"}
    matrices = tensors(analysis, op, 2)
    if op.key in WITH_ADDEND and len(matrices) > 2:
        matrices = matrices[1:]
    for matrix, names in zip(matrices[:2], ("MK", "NK" if op.key == "aten::linear" else "KN"), strict=False):
        if matrix.strides is not None:
            lengths |= {name for name, stride in zip(names, matrix.strides[-2:], strict=True) if stride == 1}
    return "".join(sorted(lengths))


def align(analysis: Analysis) -> Iterator[Finding]:
    """Products with rows that are not multiples of 16 bytes, which keeps them off the fast kernels.

    The estimate is the time at the share of the peak that the aligned products of the profile reach, or 70 %.
    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Requirements to use Tensor Cores". Premises: the
    shapes, and for the rows of the operands their strides (record_shapes); tensor cores of a device with CUDA.

    Facts: sizes: "N = 50257". multiple: elements. alignment: bytes. share: percent of the limit that the longest
    reaches. vocabulary: an embedding has so many rows, and a loss or a choice so many classes.
    """
    if analysis.accelerator != "cuda":
        return
    aligned, found = list[float](), list[tuple[Op, dict[str, int], dict[str, int]]]()
    for op in analysis.ops:
        sizes = product_sizes(op) if is_product(op) and str(op.unit).endswith("_tensor") and op.compute > 0 else None
        if sizes is None:
            continue
        multiple = ALIGNMENT // _item_bytes(op)
        lengths = _row_lengths(analysis, op)
        by_name = zip("MNK", sizes[1:], strict=True)
        odd = {name: size for name, size in by_name if name in lengths and size % multiple and size > 1}
        if not odd:
            if op.time > 0.01 * analysis.total:
                aligned.append(reached(op))
            continue
        padded = {name: -(-size // multiple) * multiple for name, size in odd.items()}
        if max(padded[name] / size for name, size in odd.items()) <= 1.15:  # beyond, padding would cost too much
            found.append((op, odd, padded))
    usual = min(max(median(aligned), 0.4), 0.9) if aligned else USUAL_SHARE
    claims = [(op, op.time - op.ideal / usual) for op, _, _ in found if op.time - op.ideal / usual > 0.15 * op.time]
    if not claims:
        return
    ops = [op for op, _ in claims]
    op, odd, padded = next(one for one in found if one[0] is ops[0])
    before, after = ([f"{name} = {size}" for name, size in of.items()] for of in (odd, padded))
    multiple, products, per, share = ALIGNMENT // _item_bytes(op), calls_of(ops), analysis.per, 100 * reached(op)
    vocabulary = len(odd) == 1 and _is_vocabulary(analysis, op, *odd.values())
    action = f"Pad {listed(before)} of {cut_end(op.key, OP_WIDTH)} to {listed([*map(str, padded.values())])}"
    if vocabulary:
        action = "Pad the vocabulary from {} to {}".format(*(", ".join(map(str, of.values())) for of in (odd, padded)))
    says = Said(
        action,
        f"rows that are not multiples of {ALIGNMENT} bytes keep {plural(products, 'product')} {per} off the fast "
        f"kernels, at {percent_text(share)} of the limit instead of about {100 * usual:.0f}%. Larger multiples of "
        f"{multiple} serve as well.",
        {"op": op.key, "sizes": before, "padded": after, "multiple": multiple, "alignment": ALIGNMENT}
        | {"products": products, "per": per, "share": share, "usual": 100 * usual, "vocabulary": vocabulary},
    )
    yield finding_about(analysis, says, claims, ops)


UNBATCHED = ("aten::mm", "aten::addmm", "aten::linear", "aten::matmul")
OF_CLASSES = ("_log_softmax", "nll_loss_forward", "cross_entropy_loss", "argmax", "topk", "multinomial")
"""Ops whose first input has a score for each class in its last dimension."""


def _is_vocabulary(analysis: Analysis, op: Op, size: int) -> bool:
    """Return whether the size of a product is the vocabulary: rows of an embedding, and the classes of what follows."""
    if op.key not in UNBATCHED:
        return False
    classes = {f"aten::{name}" for name in OF_CLASSES}
    rows = analysis.rows("key", "input_shapes")
    firsts = [(key, [*shapes[0]]) for key, shapes in rows if shapes and key in {"aten::embedding", *classes}]
    embedded = any(key == "aten::embedding" and shape[:1] == [size] for key, shape in firsts)
    return embedded and any(key in classes and shape[-1:] == [size] for key, shape in firsts)


def _rate(analysis: Analysis, op: Op, unit: str) -> float:
    peaks = analysis.peaks.get(analysis.core.device_name(op.device))
    return peaks.flops.get(unit, 0.0) if peaks else 0.0


def _compute(analysis: Analysis, op: Op) -> float:
    """Return the µs of an op's FLOPs at the peak of its unit, also where its kernels do fewer, as Winograd's do."""
    rate = _rate(analysis, op, str(op.unit))
    if op.compute > 0 or not rate or op.row < 0:
        return op.compute
    flops = float(analysis.columns["flops"][op.row]) / analysis.step_count
    return 1e6 * flops / rate if flops > 0 else 0.0


def faster(analysis: Analysis, op: Op, unit: str, bytes_share: float, reached: float) -> float:
    """Return the time of a product in another unit: its FLOPs there, at a share of the peak, or its bytes."""
    now, then, compute = _rate(analysis, op, str(op.unit)), _rate(analysis, op, unit), _compute(analysis, op)
    if not (now > 0 and then > 0 and compute > 0):
        return op.time
    return max(compute * now / then / reached, op.memory * bytes_share / USUAL_SHARE) + RAMP * op.count


def savings(analysis: Analysis, ways: Iterable[tuple[Op, str, float, float]]) -> list[tuple[Op, float]]:
    """Return products that are faster in another unit, and by how much. ways: the arguments of faster()."""
    times = [(op, op.time - faster(analysis, op, *way)) for op, *way in ways]  # type: ignore[arg-type]
    return [(op, saving) for op, saving in times if saving > 0]


TF32_KERNEL = re.compile(r"tf32|s1688|s161616|bf16x\d|emulat", re.IGNORECASE)
"""Kernels that computed on tensor cores, whatever the unit of their row."""
ALLOWS_TF32 = {"aten::cudnn_convolution": 8, "aten::_convolution": 12, "aten::cudnn_convolution_transpose": 9}
"""The argument that says whether cuDNN was allowed TF32."""


def _is_served(op: Op) -> bool:
    """Return whether tensor cores could do an op: a product, or a convolution that is known not to be grouped."""
    return is_product(op) or (is_convolution(op) and groups_of(op) == 1)


def _allows_tf32(analysis: Analysis) -> bool:
    """Return whether some convolution was recorded to be allowed TF32: cuDNN chose another kernel itself."""
    asked = ((op, ALLOWS_TF32[op.key]) for op in analysis.ops if op.key in ALLOWS_TF32)
    return any(one.text == "True" for op, place in asked for one in arguments(analysis, op)[place : place + 1])


SWITCHES = {
    "products": 'torch.set_float32_matmul_precision("high") for matrix products',
    "convolutions": (
        "torch.backends.cudnn.allow_tf32 = True (torch.backends.cudnn.conv.fp32_precision = 'tf32' in newer versions) "
        "for convolutions"
    ),
}


def tf32(analysis: Analysis) -> Iterator[Finding]:
    """Float32 products on the CUDA cores of a device whose tensor cores could do them in TF32.

    Source: PyTorch, "CUDA semantics", TensorFloat-32. Premises: shapes and dtypes (record_shapes); FLOPs that take
    longer than the bytes; no kernel of TF32 by its name; of convolutions, one group, and none that was allowed TF32.

    Facts: µs of products and of convolutions.
    """
    ops = [op for op in analysis.ops if op.unit == "fp32" and _is_served(op) and not ran_as(op, TF32_KERNEL)]
    ops = [op for op in ops if not is_convolution(op) or not analysis.once(_allows_tf32)]
    slow = (op for op in ops if analysis.accelerator == "cuda" and _compute(analysis, op) >= op.memory)
    claims = savings(analysis, ((op, "tf32_tensor", 1.0, USUAL_SHARE) for op in slow))
    if not claims:
        return
    ops = [op for op, _ in claims]
    times = {name: sum(op.time for op in ops if is_convolution(op) == (name == "convolutions")) for name in SWITCHES}
    parts = {name: time for name, time in times.items() if time > 0}
    named = listed([f"{short_time_text(time)} of float32 {name}" for name, time in parts.items()])
    says = Said(
        "Allow TF32",
        f"{named} run on CUDA cores. {listed([SWITCHES[name] for name in parts])} lets tensor cores do them, with 10 "
        "bits of the inputs' mantissa.",
        times,
    )
    yield finding_about(analysis, says, claims, ops)


UNITS = {"fp32": "float32", "tf32_tensor": "TF32"}
HALVES = {str(_core.dtypes[name].product_unit): name for name in ("bfloat16", "float16")}
"""The dtypes to advise by the unit that has a peak, the preferred one first."""
CASTS = 1.5
"""What torch.autocast launches for each product: of the three of a linear layer, input, weight, bias and gradients."""
KINDS = (("product", is_product), ("convolution", is_convolution), ("attention", is_attention))


def _half(analysis: Analysis, op: Op) -> str:
    """Return the unit of 16-bit floats on the tensor cores of a device; "" without any."""
    return next((unit for unit in HALVES if _rate(analysis, op, unit) > 0), "")


def low_precision(analysis: Analysis) -> Iterator[Finding]:
    """Products in TF32, or in float32 where there is no TF32, that could run in bfloat16 or float16.

    The estimate keeps the share of the limit that the products reach now. Premises: shapes and dtypes (record_shapes);
    of convolutions, one group; a device with peaks of tensor cores in bfloat16, or else float16. Fused attention over
    float32 is in float32, by three products in TF32 each (CUTLASS, OpMultiplyAddFastF32).
    """
    ways = []
    for op in analysis.ops if is_gpu(analysis) else ():
        fused, half = is_attention(op), _half(analysis, op)
        if op.unit == "fp32" and _rate(analysis, op, "tf32_tensor") > 0:
            continue  # first allow TF32
        if op.unit in UNITS and half and (fused or _is_served(op)):
            ways.append((op, half, 0.5, FLASH_SHARE if fused else min(max(reached(op), 0.3), 0.85)))
    claims = savings(analysis, ways)
    if not claims:
        return
    ops = [op for op, _ in claims]
    multiplied = next((op for op in ops if not is_attention(op)), None)
    unit, half = str(multiplied.unit) if multiplied else "", _half(analysis, ops[0])
    found = ((noun, [op for op in ops if holds(op)]) for noun, holds in KINDS)
    says = told(
        say_low_precision,
        parts=tuple((noun, calls_of(some), sum(op.time for op in some)) for noun, some in found if some),
        per=analysis.per,
        unit=UNITS.get(unit, ""),
        half=HALVES[half],
        scaled=half == "fp16_tensor" and is_trained(analysis),
        ratio=_rate(analysis, ops[0], half) / _rate(analysis, ops[0], unit) if unit else math.nan,
    )
    casts = [(op, CASTS * op.calls) for op in ops if not is_attention(op)]
    yield finding_about(analysis, says, claims, ops)._replace(adds=casts)


def say_low_precision(
    parts: Sequence[tuple[str, float, float]], per: str, unit: str, half: str, scaled: bool, ratio: float
) -> Said:
    """Products, convolutions and attention that could run in 16 bits.

    parts: ("product", "convolution" or "attention", calls, their time). unit: in which those run that are not
    attention: "TF32", "float32"; "" without any. half: "bfloat16" or "float16". scaled: gradients in float16 need a
    scaled loss. ratio: FLOPs per second in 16 bits over those in the unit; NaN: no unit.
    """
    by_unit: dict[bool, list[str]] = {False: [], True: []}
    for kind, calls, time in parts:
        fused = kind == "attention"
        what = f"{plural(calls, 'call')} of attention" if fused else plural(calls, kind)
        by_unit[fused].append(f"{what} {per} ({short_time_text(time)})")
    runs = form(parts[0][1] if len(parts) == 1 else 2, "runs", "run")
    units = {False: unit, True: "float32"}
    ran = "; ".join(f"{listed(texts)} {runs} in {units[fused]}" for fused, texts in by_unit.items() if texts)
    model = "and torch.amp.GradScaler" if scaled else f"or a {half} model"
    faster = f"does {ratio:.2g} times as many FLOPs a second as in {unit}" if unit else "is faster"
    return Said(
        f"Compute in {half} with torch.autocast",
        f'with torch.autocast("cuda", dtype=torch.{half}) {model}, the device {faster}, and half of the bytes move. '
        f"{ran}.",
    )


BATCHED = ("aten::bmm", "aten::baddbmm")
SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax", "aten::softmax")
SDPA, MATH = "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"


def _flat(shape: Sequence[int]) -> tuple[int, int, int]:
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def _batched_sizes(op: Op) -> tuple[int, int, int, int] | None:
    return product_sizes(op) if op.key in BATCHED else None


PARTS = re.compile(
    r"softmax|dropout|bernoulli|masked_fill|where|tri[lu]|"
    r"(?:^aten::(?:add|sub|mul|div|rsub|baddbmm|copy|clone|_to_copy|to|contiguous)_?(?:$|_backward))"
)
"""What attention does with its scores between its products: scales, masks, normalises, drops out and copies them."""
DROPOUT = re.compile(r"dropout|bernoulli")
OVER_HEADS = ("aten::mean", "aten::sum")


def _shapes_of(op: Op) -> set[tuple[int, int, int]]:
    return {_flat(shape) for shape in op.shapes if len(shape) >= 3} if op.row >= 0 else set()


def _touching(analysis: Analysis, shapes: set[tuple[int, int, int]]) -> list[Op]:
    """Return the products that make or read scores, and what attention does with these in between."""
    ops = []
    for op in analysis.ops:
        if (product := _batched_sizes(op)) is not None:
            batch, m, n, k = product
            if (batch, m, n) in shapes or any((batch, *pair) in shapes for pair in ((m, k), (k, m), (k, n))):
                ops.append(op)
        elif PARTS.search(op.key) and shapes & _shapes_of(op):
            ops.append(op)
    return ops


def attention(analysis: Analysis) -> Iterator[Finding]:
    """Attention in products, mask and softmax that move the scores through memory.

    The estimate is the products' FLOPs at half of the peak, as fused attention reaches them; without known peaks, the
    time of the products. Premises: the shapes (record_shapes). Where scaled_dot_product_attention encloses the ops, it
    took its math path.

    Facts: names: ops on the scores, in the order of their first calls. averaged: the scores are averaged over their
    heads, as nn.MultiheadAttention does to return them. module: it does.
    """
    first = (op.shapes[0] for op in analysis.ops if op.key in SOFTMAX and op.shapes)
    products = {sizes[:3] for op in analysis.ops if (sizes := _batched_sizes(op)) is not None}
    shapes = products & {_flat(shape) for shape in first if len(shape) >= 3}  # matrices, rows and columns of scores
    if not shapes:
        return
    written, fallen = list[Op](), list[Op]()
    for op in _touching(analysis, shapes):
        (fallen if {SDPA, MATH} & {*names_at(analysis, op.event)} else written).append(op)
    softmaxes = [op for op in fallen if op.key in SOFTMAX]
    if softmaxes:  # its backward pass is not within the op
        inside = [op for op in analysis.ops if op not in fallen and {SDPA, MATH} & {*names_at(analysis, op.event)}]
        fallen, written = [*fallen, *inside, *written], []
    elif analysis.accelerator == "cpu" and any(DROPOUT.search(op.key) for op in written):
        return  # with dropout the fused kernel of the CPU is none either
    ops = shown = fallen if softmaxes else written
    time, batched = sum(op.time for op in ops), [op for op in ops if op.key in BATCHED]
    fused = sum(op.time for op in batched)  # where no peak is known
    if all(op.compute > 0 for op in batched):
        fused = sum(op.compute for op in batched) * FLASH_EXTRA / FLASH_SHARE
    if time <= 0 or fused > 0.8 * time:
        return
    if softmaxes:
        calls, per = softmaxes[0].calls, analysis.per
        says = Said(
            "Let scaled_dot_product_attention use a fused kernel",
            f"it took its math path in {plural(calls, 'call')} {per} ({short_time_text(time)}). The math path writes "
            "the scores to memory; the fused ones do not: torch.nn.attention.sdpa_kernel with one fused backend raises "
            "with the reason.",
            {"calls": calls, "per": per, "time": time},
        )
    else:
        largest = max(shapes, key=lambda shape: sum(op.time for op in ops if shape in _scores_of(op)))
        shown = [op for op in ops if largest in _scores_of(op)]
        softmaxes = [op for op in shown if op.key in SOFTMAX]
        names = [op.key.removeprefix("aten::").strip("_") for op in sorted(shown, key=lambda op: op.event)]
        says = _written_out(*largest, list(dict.fromkeys(names)), *_needs_weights(analysis, shapes))
    event = softmaxes[0].event if softmaxes else ops[0].event
    yield Finding(says, claim_all(ops, 1 - fused / time), evidence(shown), where(analysis, event), ops)


def _written_out(matrices: int, rows: int, columns: int, names: Sequence[str], averaged: bool, module: bool) -> Said:
    """Return the sentence on attention in ops of these names. averaged, module: as _needs_weights() returns them."""
    action, how = "Use torch.nn.functional.scaled_dot_product_attention", ""
    if module:
        action = "Pass need_weights=False to nn.MultiheadAttention"
        how = " The module then calls scaled_dot_product_attention."
    elif averaged:
        action = "Do without the mean of the attention weights over the heads"
        how = (
            " scaled_dot_product_attention avoids that, but does not return the weights (need_weights=False in "
            "nn.MultiheadAttention)."
        )
    scores = f"{plural(matrices, 'matrix', 'matrices')} of {rows} x {columns} scores"
    return Said(
        action,
        f"attention is written out in {listed(names)}, which move {scores} through memory.{how}",
        {"matrices": matrices, "rows": rows, "columns": columns, "names": names}
        | {"averaged": averaged, "module": module},
    )


def _scores_of(op: Op) -> set[tuple[int, int, int]]:
    """Return the shapes of scores that an op may touch: those of its arguments, and of its result if it multiplies."""
    product = _batched_sizes(op)
    return _shapes_of(op) | ({product[:3]} if product is not None else set())


def _needs_weights(analysis: Analysis, shapes: set[tuple[int, int, int]]) -> tuple[bool, bool]:
    """Return whether the scores are averaged over their heads, and whether nn.MultiheadAttention does it."""
    averaged = module = False
    for op in analysis.ops:
        if op.key in OVER_HEADS and op.row >= 0 and op.shapes and len(op.shapes[0]) == 4 and shapes & _shapes_of(op):
            given = arguments(analysis, op)
            averaged = averaged or (len(given) > 1 and given[1].text in ("", "1", "[1]"))  # "": not recorded
            module = module or any("MultiheadAttention" in name for name in names_at(analysis, op.event))
    return averaged or module, module


RULES = (attention, tf32, low_precision, align)
