"""Work rules of products find each argument at its position in torch's schemas; calls are made by argument name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flopscope import _core

torch = pytest.importorskip("torch")

Shape = tuple[int, ...]


def schema_of(op: str) -> Any:
    """Return the schema of the overload that returns its result."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    return next(s for s in schemas if s.overload_name in ("", "input"))


def text(value: Any) -> str:
    return "[" + ", ".join(str(v) for v in value) + "]" if isinstance(value, list) else str(value)


def work(op: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the work of a call. Tensors are float32 shapes (tuples); missing arguments are empty, false or zero."""
    dims, types, concrete = [], [], []
    for argument in schema_of(op).arguments:
        value = values.get(argument.name)
        kind = str(argument.type)
        if isinstance(value, tuple):
            dims.append(list(value))
            types.append("float")
            concrete.append("")
            continue
        dims.append([])
        if value is None and ("Tensor" in kind or "Optional" in kind or "str" in kind):
            types.append("")
            concrete.append("")
            continue
        value = value if value is not None else {"bool": False, "float": 0.0}.get(kind, [] if "List" in kind else 0)
        types.append("ScalarList" if isinstance(value, list) else "Scalar")
        concrete.append(text(value))
    result: dict[str, Any] = _core._work_of_torch(f"aten::{op}", dims, types, [[] for _ in dims], concrete)
    return result


# Convolutions ---------------------------------------------------------------------------------------------------------

CONVOLUTIONS = [
    "convolution", "_convolution", "convolution_overrideable", "conv1d", "conv2d", "conv3d", "cudnn_convolution",
    "cudnn_convolution_relu", "cudnn_convolution_add_relu", "miopen_convolution", "miopen_convolution_relu",
    "miopen_convolution_add_relu", "miopen_depthwise_convolution", "mkldnn_convolution", "_mps_convolution",
    "_conv_depthwise2d", "conv_depthwise3d", "thnn_conv2d", "_slow_conv2d_forward", "slow_conv_dilated2d",
    "slow_conv_dilated3d", "slow_conv3d", "slow_conv3d_forward", "_nnpack_spatial_convolution",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cudnn_convolution_transpose",
    "miopen_convolution_transpose", "_mps_convolution_transpose", "slow_conv_transpose2d", "slow_conv_transpose3d",
]  # fmt: skip


def geometry(op: str, names: list[str], transposed: bool) -> dict[str, Any]:
    """Return values for the arguments of a convolution; those that the op does not have keep their defaults."""
    rank = 3 if "3d" in op else 1 if "1d" in op else 2
    groups = 2 if "groups" in names else 1
    return {
        "input": (2, 4, 11, 13, 9)[: 2 + rank],
        "weight": ((4, 6 // groups) if transposed else (6, 4 // groups)) + (3, 2, 3)[:rank],
        "kernel_size": [3, 2, 3][:rank],
        "stride": [2, 1, 3][:rank] if "stride" in names else [1] * rank,
        "padding": [1, 2, 0][:rank],
        "dilation": [1, 2, 1][:rank] if "dilation" in names else [1] * rank,
        "output_padding": [1, 0, 2][:rank] if transposed and "output_padding" in names else [0] * rank,
        "groups": groups,
        "transposed": transposed,
    }


def convolved(at: dict[str, Any]) -> tuple[int, int]:
    """Return the FLOPs and the number of result elements, by the result's shape in torch."""
    rank = len(at["stride"])
    name = f"conv{'_transpose' if at['transposed'] else ''}{rank}d"
    image, weight = torch.empty(at["input"], device="meta"), torch.empty(at["weight"], device="meta")
    keywords = {k: at[k] for k in ("stride", "padding", "dilation", "groups")}
    if at["transposed"]:
        keywords["output_padding"] = at["output_padding"]
    out = getattr(torch.nn.functional, name)(image, weight, **keywords).numel()
    spread = math.prod(at["input"]) if at["transposed"] else out
    return 2 * spread * math.prod(at["weight"][1:]), out


@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_convolutions_read_their_geometry(op: str) -> None:
    names = [a.name for a in schema_of(op).arguments]
    for transposed in (False, True) if "transposed" in names else ("transpose" in op,):
        at = geometry(op, names, transposed)
        values = {**at, "self": at["input"], "bias": (6,) if "bias" in names else None}
        flops, out = convolved(at)
        read = math.prod(at["input"]) + math.prod(at["weight"]) + (6 if "bias" in names else 0)
        if "z" in names:
            values["z"], read = (out,), read + out
        result = work(op, values)
        assert (result["flops"], result["bytes_read"], result["bytes_written"]) == (flops, 4 * read, 4 * out)


@pytest.mark.parametrize("op", ["convolution_backward", "convolution_backward_overrideable", "_slow_conv2d_backward"])
def test_gradients_of_convolutions_read_their_mask(op: str) -> None:
    overload = "output_mask" if op == "_slow_conv2d_backward" else ""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    places = [a.name for a in next(s for s in schemas if s.overload_name == overload).arguments]
    arguments: dict[str, Any] = {
        "grad_output": (2, 6, 9, 9), "input": (2, 4, 9, 9), "self": (2, 4, 9, 9), "weight": (6, 4, 3, 3),
        "transposed": False, "output_mask": [True, False, False],
    }  # fmt: skip
    for mask, gradients in (([True, True, False], 2), ([False, True, False], 1), ([False, False, True], 0)):
        values = [{**arguments, "output_mask": mask}.get(name, [1, 1]) for name in places]
        tensor = [isinstance(v, tuple) for v in values]
        result = _core._work_of_torch(
            f"aten::{op}",
            [list(v) if t else [] for v, t in zip(values, tensor, strict=True)],
            [
                "float" if t else "ScalarList" if isinstance(v, list) else "Scalar"
                for v, t in zip(values, tensor, strict=True)
            ],
            [[] for _ in values],
            ["" if t else text(v) for v, t in zip(values, tensor, strict=True)],
        )
        assert result["flops"] == gradients * 2 * (2 * 6 * 9 * 9) * 4 * 9


# Attention ------------------------------------------------------------------------------------------------------------

B, H, ROWS, COLUMNS, SIZE = 2, 4, 64, 96, 16
ATTENTIONS = [
    "scaled_dot_product_attention", "_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward", "_flash_attention_forward",
    "_efficient_attention_forward",
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward", "_cudnn_attention_backward",
    "_flash_attention_backward", "_efficient_attention_backward",
]  # fmt: skip


@pytest.mark.parametrize("op", ATTENTIONS)
def test_attention_reads_masks_and_biases(op: str) -> None:
    names = [a.name for a in schema_of(op).arguments]
    sequence_first = op.startswith(("_flash", "_efficient"))

    def shape(length: int) -> Shape:
        return (B, length, H, SIZE) if sequence_first else (B, H, length, SIZE)

    queries, keys, bias = B * H * ROWS * SIZE, B * H * COLUMNS * SIZE, B * H * ROWS * COLUMNS
    values = dict.fromkeys(("query", "grad_out", "grad_out_", "out"), shape(ROWS))
    values |= dict.fromkeys(("key", "value"), shape(COLUMNS))
    values |= dict.fromkeys(("attn_mask", "attn_bias", "bias"), (B, H, ROWS, COLUMNS))
    values |= {"logsumexp": (B, H, ROWS)}
    biased = any(name in names for name in ("attn_mask", "attn_bias", "bias"))
    backward = op.endswith("backward")
    keeps_none = op in ("scaled_dot_product_attention", *(o for o in ATTENTIONS if "math" in o or "fused" in o))
    for causal in (False, True):
        for log_sum_exp in (False, True):
            flags = {"is_causal": causal, "custom_mask_type": int(causal), "compute_log_sumexp": log_sum_exp}
            result = work(op, {**values, **flags})
            ends_at_the_last = op.startswith(("_flash", "_scaled_dot_product_flash_attention")) and "cpu" not in op
            first = COLUMNS - ROWS + 1 if ends_at_the_last else 1  # keys that the first query sees
            pairs = sum(range(first, first + ROWS)) if causal else ROWS * COLUMNS
            assert result["flops"] == (5 if backward else 2) * 2 * B * H * pairs * SIZE
            read = queries + 2 * keys + (bias if biased else 0)
            written, rows = queries, B * H * ROWS
            if backward:
                read, written, rows = read + 2 * queries + rows, queries + 2 * keys, 0
            elif keeps_none or ("compute_log_sumexp" in names and not log_sum_exp):
                rows = 0
            assert (result["bytes_read"], result["bytes_written"]) == (4 * read, 4 * (written + rows))


@pytest.mark.parametrize("op", ["_cudnn_attention_forward", "_flash_attention_forward", "_efficient_attention_forward"])
def test_attention_reads_offsets_of_sequences(op: str) -> None:
    flat = (1,) if op.startswith("_efficient") else ()
    packed, keys = (*flat, 5 * ROWS, H, SIZE), (*flat, 5 * COLUMNS, H, SIZE)
    values: dict[str, Any] = {"query": packed, "key": keys, "value": keys}
    for name, value in {"seq_q": (6,), "seq_k": (6,), "seqlens_q": (6,), "seqlens_k": (6,)}.items():
        values |= {f"cum_{name}": value, f"cu_{name}": value}
    values["cum_seq_q"] = values["cum_seq_k"] = (6,)
    for suffix, value in (("q", ROWS), ("k", COLUMNS)):
        values |= {f"max_{suffix}": value, f"max_seqlen_{suffix}": value}
    known = work(op, values)
    assert known["flops"] == 2 * 2 * 5 * H * ROWS * COLUMNS * SIZE and not known["at_most"]
    values |= {"max_q": 2 * ROWS, "max_seqlen_q": 2 * ROWS}  # lengths differ, and they are not recorded
    bound = work(op, values)
    assert bound["at_most"] and bound["flops"] == 2 * 2 * 5 * H * ROWS * COLUMNS * SIZE  # no query has more keys


# Recurrent networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "miopen_rnn_backward"])
def test_recurrent_layers_read_their_sizes(op: str) -> None:
    """Sum over all matrices of torch's modules: each is used once per step and element of the batch."""
    steps, batch, width, hidden, layers = 7, 3, 10, 12, 3
    projections = [0, 5] if "cudnn" in op else [0]
    for mode, module in ((0, torch.nn.RNN), (1, torch.nn.RNN), (2, torch.nn.LSTM), (3, torch.nn.GRU)):
        for both in (False, True):
            for projected in projections if mode == 2 else [0]:
                extra = {"proj_size": projected} if projected else {}
                weights = list(module(width, hidden, layers, bidirectional=both, **extra).parameters())
                parameters = sum(w.numel() for w in weights)
                state = (projected or hidden, (1 + both) * layers * batch)
                values: dict[str, Any] = {
                    "input": (steps, batch, width), "weight_buf": (parameters,), "mode": mode, "hidden_size": hidden,
                    "proj_size": projected, "num_layers": layers, "bidirectional": both, "hx": state,
                }  # fmt: skip
                result = work(op, values)
                matrices = sum(w.numel() for w in weights if w.dim() == 2)
                gradients = op.endswith("backward")
                assert result["flops"] == (2 if gradients else 1) * 2 * steps * batch * matrices
                if "weight_buf" in [a.name for a in schema_of(op).arguments]:
                    out = steps * batch * (1 + both) * (projected or hidden)
                    inputs = steps * batch * width + parameters + math.prod(state)
                    assert result["bytes_read"] == 4 * (inputs + (2 * out if gradients else 0))
                    assert result["bytes_written"] == 4 * (inputs if gradients else out + math.prod(state))
