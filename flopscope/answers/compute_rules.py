"""Rules about what computes: matrix products, attention, kernels that do not fill the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from flopscope.answers.analysis import Analysis, Kernel, Op
from flopscope.answers.findings import (
    Finding,
    claim_all,
    evidence,
    is_attention,
    is_convolution,
    is_product,
    plural,
    product_sizes,
    where,
)
from flopscope.support.units import percent_text, short_time_text

__all__ = ["align", "attention", "low_precision", "small", "tf32"]

USUAL_SHARE = 0.7
"""Share of the peak that large aligned products reach on tensor cores (benchmarks/results, matmul)."""
ALIGNMENT = 16
"""Bytes: the fast kernels of cuBLAS load rows as 16-byte vectors (NVIDIA, Matrix Multiplication Background)."""
ITEM_BYTES = {"double": 8, "float": 4, "float32": 4, "float64": 8, "c10::half": 2, "c10::bfloat16": 2, "half": 2}
ITEM_BYTES |= {"float16": 2, "bfloat16": 2, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}


FLASH_SHARE = 0.5
"""Share of the tensor cores' peak that fused attention reaches (FlashAttention-2, arXiv 2307.08691, section 4)."""
FLASH_EXTRA = 1.2
"""FLOPs of fused attention, which computes the scores again in the backward pass, over those of the written-out one."""


def _share(op: Op) -> float:
    """Return the share of the limit that an op reaches."""
    return op.ideal / op.time if op.time > 0 else math.nan


def _on_tensor_cores(op: Op) -> bool:
    return bool(op.unit) and str(op.unit).endswith("_tensor")


def _item_bytes(op: Op) -> int:
    sizes = [ITEM_BYTES[dtype.lower()] for dtype in op.dtypes if dtype.lower() in ITEM_BYTES]
    return min(sizes) if sizes else 2


def align(analysis: Analysis) -> Iterator[Finding]:
    """Products whose sizes are not multiples of 16 bytes, which keeps them off the fast kernels.

    The estimate is the time at the share of the peak that the aligned products of the profile reach, or 70 %.
    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Requirements to use Tensor Cores".
    """
    aligned: list[float] = []
    found: list[tuple[Op, list[str], list[str]]] = []
    for op in analysis.ops:
        sizes = product_sizes(op) if is_product(op) and _on_tensor_cores(op) and op.compute > 0 else None
        if sizes is None:
            continue
        multiple = ALIGNMENT // _item_bytes(op)
        odd = {name: size for name, size in zip("MNK", sizes[1:], strict=True) if size % multiple and size > 1}
        if not odd:
            if op.time > 0.01 * analysis.total:
                aligned.append(_share(op))
            continue
        padded = {name: -(-size // multiple) * multiple for name, size in odd.items()}
        if max(padded[name] / size for name, size in odd.items()) > 1.15:  # padding would cost too much
            continue
        names = [f"{name} = {size}" for name, size in odd.items()]
        found.append((op, names, [f"{name} = {size}" for name, size in padded.items()]))
    usual = min(max(median(aligned), 0.4), 0.9) if aligned else USUAL_SHARE
    claims = [(op, op.time - op.ideal / usual) for op, _, _ in found if op.time - op.ideal / usual > 0.15 * op.time]
    if not claims:
        return
    ops = [op for op, _ in claims]
    op, names, padded_names = max(found, key=lambda one: one[0].time)
    yield Finding(
        f"Pad {' and '.join(names)} of {op.key} to {' and '.join(padded_names)} (or a larger multiple of "
        f"{ALIGNMENT // _item_bytes(op)}): rows that are not multiples of {ALIGNMENT} bytes keep "
        f"{len(ops)} product{'s' * (len(ops) > 1)} off the fast kernels, at {percent_text(100 * _share(op))} of the "
        f"limit instead of about {100 * usual:.0f}%.",
        claims,
        evidence(ops),
        where(analysis, op.event),
    )


def _rate(analysis: Analysis, op: Op, unit: str) -> float:
    peaks = analysis.peaks.get(f"cuda:{op.device}")
    return peaks.flops.get(unit, 0.0) if peaks else 0.0


def _compute(analysis: Analysis, op: Op) -> float:
    """Return the µs of an op's FLOPs at the peak of its unit, also where its kernels do fewer, as Winograd's do."""
    rate = _rate(analysis, op, str(op.unit))
    if op.compute > 0 or not rate or op.row < 0:
        return op.compute
    flops = float(analysis.columns["flops"][op.row]) / analysis.step_count
    return 1e6 * flops / rate if flops > 0 else 0.0


def _faster(analysis: Analysis, op: Op, unit: str, bytes_share: float, reached: float) -> float:
    """Return the time of a product in another unit: its FLOPs there, at a share of the peak, or its bytes."""
    now, then, compute = _rate(analysis, op, str(op.unit)), _rate(analysis, op, unit), _compute(analysis, op)
    if not (now > 0 and then > 0 and compute > 0):
        return op.time
    return max(compute * now / then / reached, op.memory * bytes_share / USUAL_SHARE)


def tf32(analysis: Analysis) -> Iterator[Finding]:
    """Float32 products on the CUDA cores of a device whose tensor cores could do them in TF32.

    Source: PyTorch, "CUDA semantics", TensorFloat-32.
    """
    claims = []
    for op in analysis.ops:
        if op.unit == "fp32" and (is_product(op) or is_convolution(op)):
            saving = op.time - _faster(analysis, op, "tf32_tensor", 1.0, USUAL_SHARE)
            if saving > 0:
                claims.append((op, saving))
    if not claims:
        return
    ops = [op for op, _ in claims]
    yield Finding(
        'Allow TF32: torch.set_float32_matmul_precision("high") lets float32 products run on the tensor cores '
        f"(inputs keep 10 bits of mantissa); {short_time_text(sum(op.time for op in ops))} of them run on CUDA cores.",
        claims,
        evidence(ops),
        where(analysis, ops[0].event),
    )


def low_precision(analysis: Analysis) -> Iterator[Finding]:
    """Products in TF32, or in float32 where there is no TF32, that could run in bfloat16.

    The estimate keeps the share of the limit that the products reach now.
    """
    claims = []
    for op in analysis.ops:
        fused = is_attention(op)
        if op.unit not in ("tf32_tensor", "fp32") or not (is_product(op) or is_convolution(op) or fused):
            continue
        if op.unit == "fp32" and _rate(analysis, op, "tf32_tensor") > 0:
            continue  # first allow TF32
        reached = FLASH_SHARE if fused else min(max(_share(op), 0.3), 0.85)
        saving = op.time - _faster(analysis, op, "bf16_tensor", 0.5, reached)
        if saving > 0:
            claims.append((op, saving))
    if not claims:
        return
    ops = [op for op, _ in claims]
    yield Finding(
        'Run the products in bfloat16 (torch.autocast("cuda", dtype=torch.bfloat16), or a bfloat16 model): the tensor '
        f"cores do twice as many FLOPs as in TF32 and half of the bytes move; {len(ops)} products take "
        f"{short_time_text(sum(op.time for op in ops))}.",
        claims,
        evidence(ops),
        where(analysis, ops[0].event),
    )


BATCHED = ("aten::bmm", "aten::baddbmm")
SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax", "aten::softmax")


def _score_shapes(analysis: Analysis) -> set[tuple[int, int, int]]:
    """Return the (matrices, rows, columns) of the arguments of softmax that are also those of a batched product."""
    softmaxes = set()
    for op in analysis.ops:
        if op.key in SOFTMAX and op.shapes and len(op.shapes[0]) >= 3:
            shape = op.shapes[0]
            softmaxes.add((math.prod(shape[:-2]), shape[-2], shape[-1]))
    products = set()
    for op in analysis.ops:
        sizes = product_sizes(op) if op.key in BATCHED else None
        if sizes is not None:
            products.add(sizes[:3])
    return softmaxes & products


def attention(analysis: Analysis) -> Iterator[Finding]:
    """Attention written out: products, mask and softmax that move the scores through memory.

    The estimate is the products' FLOPs at half of the peak, as fused attention reaches them.
    """
    shapes = _score_shapes(analysis)
    if not shapes:
        return
    sizes = {math.prod(shape) for shape in shapes}
    ops: list[Op] = []
    compute = 0.0
    for op in analysis.ops:
        product = product_sizes(op) if op.key in BATCHED else None
        if product is not None:
            batch, m, n, k = product
            touches = (batch, m, n) in shapes or any((batch, *pair) in shapes for pair in ((m, k), (k, m), (k, n)))
            if not touches:
                continue
            compute += op.compute
            ops.append(op)
        elif op.row >= 0 and any(math.prod(shape) in sizes for shape in op.shapes if len(shape) >= 3):
            ops.append(op)
    time = sum(op.time for op in ops)
    fused = compute * FLASH_EXTRA / FLASH_SHARE
    if time <= 0 or fused > 0.8 * time:
        return
    batch, rows, columns = max(shapes, key=math.prod)
    softmaxes = [op for op in ops if op.key in SOFTMAX]
    yield Finding(
        "Use torch.nn.functional.scaled_dot_product_attention: attention is written out as products, mask and softmax, "
        f"which move {batch} matrices of {rows} x {columns} scores through memory in {len(ops)} ops.",
        claim_all(ops, 1 - fused / time),
        evidence(ops),
        where(analysis, softmaxes[0].event if softmaxes else ops[0].event),
        ops,
    )


SHORTEST = 20.0
"""µs: shorter kernels are limited by their launch, whatever their grid."""
FILLED = 0.5
"""A grid with fewer blocks than this share of the multiprocessors does not fill the device."""


def _unfilled(analysis: Analysis, op: Op, kernel: Kernel) -> float:
    """Return the share of a kernel's time that more blocks would save; 0 where its launches may have several grids."""
    processors = analysis.sm_counts.get(op.device, 0)
    if op.row >= 0 and kernel.count > 1.01 * op.calls:
        return 0.0
    if kernel.blocks <= 0 or processors <= 0 or kernel.count <= 0 or kernel.time / kernel.count < SHORTEST:
        return 0.0
    if kernel.blocks <= FILLED * processors:
        return 1 - kernel.blocks / processors
    if 0 < kernel.resident < kernel.blocks < 2 * kernel.resident:  # a second wave that is nearly empty
        loss = 1 - kernel.blocks / (2 * kernel.resident)
        return loss / 2 if loss > 0.3 else 0.0
    return 0.0


def small(analysis: Analysis) -> Iterator[Finding]:
    """Long kernels whose grid does not fill the device: fewer blocks than multiprocessors, or a nearly empty last wave.

    Source: NVIDIA, Deep Learning Performance Guide, "Wave quantization"; CUDA C++ Best Practices Guide, "Occupancy".
    """
    claims, evidence_ops, fewest = [], [], math.inf
    for op in analysis.ops:
        if op.part in ("communication", "copy") or op.device < 0:
            continue
        saving = sum(kernel.time * _unfilled(analysis, op, kernel) for kernel in op.kernels)
        saving = min(saving, op.beyond) if op.ideal > 0 else saving
        if saving <= 0:
            continue
        claims.append((op, saving))
        evidence_ops.append(op)
        fewest = min(fewest, *(kernel.blocks for kernel in op.kernels if kernel.blocks > 0))
    if not claims:
        return
    main = max(claims, key=lambda claim: claim[1])[0]
    processors = analysis.sm_counts[main.device]
    yield Finding(
        f"Give {main.key} more parallel work: its kernels run with as few as {plural(fewest, 'block')} on {processors} "
        "multiprocessors. Process more independent rows at once (a larger batch), or split the long dimension and "
        "combine the parts.",
        claims,
        evidence(evidence_ops),
        where(analysis, main.event),
    )
