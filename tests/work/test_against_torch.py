"""Work of ops that the installed torch runs and records, against its results, its schemas and its own counter."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cases_elements
import cases_products
import pytest
from cases_products import causal
from helpers.work_cases import F, Tensor, encoded, equal, work

from flopscope import _core

torch = pytest.importorskip("torch")
nn, nn_utils = torch.nn.functional, torch.nn.utils.rnn
Shape = tuple[int, ...]
CPU = [torch.profiler.ProfilerActivity.CPU]


def recorded(run: Callable[[], Any]) -> Any:
    """Run a program and return torch's profile of it."""
    with torch.profiler.profile(activities=CPU, record_shapes=True) as prof:
        run()
    return prof


# Bytes ----------------------------------------------------------------------------------------------------------------

X, Y, LINE = torch.rand(6, 10), torch.rand(6, 10), torch.rand(10)
IMAGE, COUNTS, MASK = torch.rand(2, 3, 9, 11), torch.arange(60).reshape(6, 10), torch.rand(6, 10) > 0.5
PICKED, PLACES = torch.tensor([1, 3]), torch.zeros(2, 3, 9, 11, dtype=torch.int64)
RUNS: list[tuple[str, list[Any], Callable[[], Any]]] = [  # the op that does the work, inputs it reads, call
    ("aten::add", [X, LINE], lambda: X + LINE),
    ("aten::mul", [X], lambda: X * 2.5),
    ("aten::div", [COUNTS], lambda: COUNTS / 3),
    ("aten::pow", [X], lambda: X.pow(2)),
    ("aten::where", [MASK, X, Y], lambda: torch.where(MASK, X, Y)),
    ("aten::lt", [X, Y], lambda: X < Y),
    ("aten::sum", [X], lambda: X.sum(0, dtype=torch.float64)),
    ("aten::mean", [X], lambda: X.mean((0, 1), keepdim=True)),
    ("aten::amax", [X], lambda: X.amax(1)),
    ("aten::max", [X], lambda: torch.max(X, 1)),
    ("aten::var_mean", [X], lambda: torch.var_mean(X, 1)),
    ("aten::argmin", [X], lambda: X.argmin(0)),
    ("aten::all", [MASK], lambda: MASK.all(1)),
    ("aten::logsumexp", [X], lambda: X.logsumexp(1)),
    ("aten::cumprod", [X], lambda: X.cumprod(1)),
    ("aten::cummin", [X], lambda: X.cummin(1)),
    ("aten::sort", [X], lambda: torch.sort(X, stable=True)),
    ("aten::topk", [X], lambda: X.topk(4, 0)),
    ("aten::kthvalue", [X], lambda: X.kthvalue(2, 1)),
    ("aten::_softmax", [X], lambda: X.softmax(1)),
    ("aten::gelu", [X], lambda: nn.gelu(X, approximate="tanh")),
    ("aten::glu", [X], lambda: nn.glu(X, 1)),
    ("aten::native_group_norm", [IMAGE], lambda: torch.native_group_norm(IMAGE, None, None, 2, 3, 99, 3, 1e-5)),
    ("aten::max_pool2d_with_indices", [IMAGE], lambda: torch.ops.aten.max_pool2d_with_indices(IMAGE, 3, 2, 1)),
    ("aten::avg_pool2d", [IMAGE], lambda: nn.avg_pool2d(IMAGE, (3, 2), (2, 3), (1, 1), ceil_mode=True)),
    ("aten::_adaptive_avg_pool2d", [IMAGE], lambda: nn.adaptive_avg_pool2d(IMAGE, (4, 5))),
    ("aten::upsample_bilinear2d", [IMAGE], lambda: nn.interpolate(IMAGE, scale_factor=2, mode="bilinear")),
    ("aten::reflection_pad2d", [IMAGE], lambda: nn.pad(IMAGE, (1, 2, 3, 4), mode="reflect")),
    ("aten::im2col", [IMAGE], lambda: nn.unfold(IMAGE, (3, 2), padding=1, stride=2)),
    ("aten::index_select", [X[:2], PICKED], lambda: X.index_select(0, PICKED)),
    ("aten::gather", [X[:, :2], COUNTS[:, :2]], lambda: X.gather(1, COUNTS[:, :2] % 10)),
    ("aten::embedding", [X[:2], PICKED], lambda: nn.embedding(PICKED, X)),
    ("aten::flip", [X], lambda: X.flip(1)),
    ("aten::roll", [X], lambda: X.roll(2, 1)),
    ("aten::bucketize", [X, LINE], lambda: torch.bucketize(X, LINE)),
    ("aten::hypot", [X, Y], lambda: torch.hypot(X, Y)),
    ("aten::histc", [X], lambda: X.histc(12, 0, 1)),
    ("aten::max_unpool2d", [IMAGE, PLACES], lambda: torch.ops.aten.max_unpool2d(IMAGE, PLACES, [9, 11])),
    ("aten::segment_reduce", [X, PICKED], lambda: torch.segment_reduce(X, "sum", lengths=torch.tensor([2, 4]))),
]  # fmt: skip


def test_bytes_match_the_inputs_and_outputs_of_torch(tmp_path: Path) -> None:
    results: list[Any] = []
    recorded(lambda: results.extend(run() for _, _, run in RUNS)).export_chrome_trace(str(tmp_path / "trace.json"))
    found: dict[str, list[tuple[float, float]]] = {}
    for event in json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]:
        if event.get("cat") == "cpu_op":
            given = [event["args"].get(of) for of in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
            done = _core._work_of_torch(event["name"], *given)
            found.setdefault(event["name"], []).append((done["bytes_read"], done["bytes_written"]))
    for (name, inputs, _), result in zip(RUNS, results, strict=True):
        outputs = result if isinstance(result, tuple) else [result]
        moved = tuple(sum(t.numel() * t.element_size() for t in tensors) for tensors in (inputs, outputs))
        assert moved in found[name], name


def test_every_pointwise_op_of_torch_has_a_rule() -> None:
    x, without = F(6, 10), []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            pointwise = torch.Tag.pointwise in getattr(packet, overload).tags
            if pointwise and math.isnan(work(f"aten::{name}", x, x)["bytes_moved"]):
                without.append(name)
    assert without == []


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (1, 4)])
@pytest.mark.parametrize("op", ["tril", "triu"])
def test_triangular_parts_read_only_the_elements_they_keep(op: str, shape: Shape) -> None:
    whole = 2 * math.prod(shape)
    for diagonal in range(-8, 9):
        kept = 2 * int(getattr(torch.ones(shape), op)(diagonal).sum())
        indices = getattr(torch, f"{op}_indices")(*shape, diagonal)
        for name, arguments, moved in (
            (op, [F(2, *shape), diagonal], (4 * kept, 4 * whole)),
            (f"{op}_", [F(2, *shape), diagonal], (0, 4 * (whole - kept))),
            (f"{op}_indices", [*shape, diagonal, 4, None, None, False], (0, 8 * indices.numel())),
        ):
            found = work(f"aten::{name}", *arguments)
            assert (found["bytes_read"], found["bytes_written"]) == pytest.approx(moved), (name, diagonal)


# FLOPs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(128, 256), (256, 128), (64, 64), (1, 7)])
def test_causal_masks_of_torch_begin_at_the_first_query_and_key(lengths: tuple[int, int]) -> None:
    rows, columns = lengths
    query, key = (torch.randn(1, 1, n, columns, dtype=torch.float64) for n in lengths)
    value = torch.eye(columns, dtype=torch.float64)[None, None]  # the result has the weights
    result = nn.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert result.shape[2:] == (rows, columns) and int((result != 0).sum()) == causal(rows, columns)


R = torch.randn
PIXELS, KERNEL, GROWN = R(4, 8, 20, 20, requires_grad=True), R(12, 4, 3, 3, requires_grad=True), R(8, 3, 4, 4)
A, B, Q = R(30, 20, requires_grad=True), R(20, 40, requires_grad=True), R(2, 4, 64, 32, requires_grad=True)
PROGRAMS: dict[str, Callable[[], Any]] = {
    "mm": lambda: A @ B,
    "linear, gradients": lambda: nn.linear(A, B.t(), R(40)).sum().backward(),
    "bmm": lambda: torch.bmm(R(3, 10, 20), R(3, 20, 5)),
    "baddbmm": lambda: torch.baddbmm(R(3, 10, 5), R(3, 10, 20), R(3, 20, 5)),
    "einsum": lambda: torch.einsum("bij,bjk->bik", R(3, 10, 20), R(3, 20, 5)),
    "convolution in groups": lambda: nn.conv2d(PIXELS, KERNEL, stride=2, padding=1, groups=2),
    "convolution, gradients": lambda: nn.conv2d(PIXELS, KERNEL, padding=1, groups=2).sum().backward(),
    "convolution, transposed": lambda: nn.conv_transpose2d(PIXELS, GROWN, stride=2, output_padding=1),
    "attention, gradients": lambda: nn.scaled_dot_product_attention(Q, Q, Q).sum().backward(),
}
PRODUCTS = ("mm", "bmm", "convolution", "attention", "linear", "matmul", "dot")


@pytest.mark.parametrize("name", PROGRAMS)
def test_flops_match_torchs_counter(name: str) -> None:
    """FlopCounterMode counts the gradients of weights once for each group (torch 2.13), two here. It does not count
    attention on the CPU: with five products backward, the total is 3.5 times forward."""
    from flopscope.torch import from_profile

    counter = pytest.importorskip("torch.utils.flop_counter")
    with counter.FlopCounterMode(display=False) as mode:
        PROGRAMS[name]()
    rows = from_profile(recorded(PROGRAMS[name])).key_averages(peaks="none")
    ours = sum(row.flops for row in rows if any(word in row.key for word in PRODUCTS) and not math.isnan(row.flops))
    theirs = mode.get_total_flops()
    if name == "convolution, gradients":
        forward = theirs - sum(f for op, f in mode.get_flop_counts()["Global"].items() if "backward" in str(op))
        theirs = forward + (theirs - forward) * 2 // 3
    if name == "attention, gradients":
        theirs = 7 * 2 * 2 * 4 * 64 * 64 * (32 + 32) // 2
    assert ours == theirs > 0


PACKED = nn_utils.pack_sequence([R(7, 10), R(4, 10), R(1, 10)])
LAYERS: dict[str, Callable[[], Any]] = {
    "lstm": lambda: torch.nn.LSTM(10, 12, 2, bidirectional=True, proj_size=5)(R(7, 3, 10)),
    "gru": lambda: torch.nn.GRU(10, 12, 3, batch_first=True)(R(7, 3, 10)),
    "rnn_tanh": lambda: torch.nn.RNN(10, 12, bidirectional=True)(PACKED),
    "rnn_relu": lambda: torch.nn.RNN(10, 12, nonlinearity="relu", bias=False)(R(7, 3, 10)),
    "lstm_cell": lambda: torch.nn.LSTMCell(10, 12)(R(3, 10)),
    "gru_cell": lambda: torch.nn.GRUCell(10, 12)(R(10)),
    "rnn_tanh_cell": lambda: torch.nn.RNNCell(10, 12)(R(3, 10)),
    "bilinear": lambda: nn.bilinear(R(2, 3, 5), R(2, 3, 7), R(4, 5, 7), R(4)),
}


@pytest.mark.parametrize("op", LAYERS)
def test_layers_have_the_flops_of_their_products_which_count_once(op: str, tmp_path: Path) -> None:
    from flopscope.torch import from_profile

    counter = pytest.importorskip("torch.utils.flop_counter")
    with counter.FlopCounterMode(display=False) as mode, torch.backends.mkldnn.flags(enabled=False):
        results = LAYERS[op]()
    with torch.backends.mkldnn.flags(enabled=False):
        trace = from_profile(recorded(LAYERS[op]))
    rows = {row.key: row for row in trace.key_averages(peaks="none")}
    products = [row.flops for key, row in rows.items() if re.search("mm$", key)]
    theirs = mode.get_total_flops() or 2 * 6 * 4 * 7 * (5 + 1)  # torch does not show it the products of bilinear
    assert sum(products) == theirs and not rows[f"aten::{op}"].flops > 0
    trace.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    call = next(event["args"] for event in events if event["name"] == f"aten::{op}")
    given = [call.get(of) for of in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
    leaves = torch.utils._pytree.tree_leaves(results)
    written = sum(t.numel() for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point())
    found = _core._work_of_torch(f"aten::{op}", *given)
    assert (found["flops"], found["bytes_written"]) == (theirs, 4 * written)


def test_a_record_of_a_function_has_tensors_numbers_and_none() -> None:
    """What versions of Transformer Engine pass, as the profiler records it: dtypes, texts and objects are left out."""
    from flopscope.torch import from_profile

    x, w = R(8, 64, requires_grad=True), R(32, 64, requires_grad=True)

    class _Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            return x.new_empty(8, 32)

    for version in (
        [w, None, x, None, False, None, True, False, {}, False, None, 1, False, False, torch.float32, None, True],
        [w, x, None, True, False, False, object(), [object()], None, torch.bfloat16, "row", True],
        [w, x, None, object()],
    ):
        table = from_profile(recorded(lambda given=version: _Linear.apply(*given))).key_averages()  # type: ignore[misc]
        assert next(r for r in table if r.key == "_Linear").flops == 2 * 8 * 32 * 64


def is_default(value: Any, default: Any) -> bool:
    if value is None or default is None or isinstance(value, Tensor):
        return value is default
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


def test_last_arguments_with_their_defaults_may_be_left_out() -> None:
    """Of fs.work(): for each row of the tables, as long as the last argument is torch's default."""
    different, count = [], 0
    for case in [*cases_elements.CASES, *cases_products.CASES]:
        for schema in torch._C._jit_get_schemas_for_operator(case.name) if case.name.startswith("aten::") else ():
            given, arguments = list(case.arguments), list(schema.arguments)
            if len(given) != len(arguments) or schema.overload_name == "dtype":  # addmm(…, beta) looks like it
                continue
            while (
                arguments and arguments[-1].has_default_value() and is_default(given[-1], arguments.pop().default_value)
            ):
                given.pop()
                count += 1
                short = _core._work_of_torch(case.name, *encoded(given), True)
                if any(not equal(short[key], wanted) for key, wanted in case.wanted.items() if key != "bytes_moved"):
                    different.append((case.name, given, case.wanted, short))
    assert not different and count > 250


# Schemas: each argument at its position -------------------------------------------------------------------------------


def arguments_of(op: str, overloads: tuple[str, ...] = ("", "input")) -> list[Any]:
    """Return the arguments of the overload that returns its result."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    return list(next(s for s in schemas if s.overload_name in overloads).arguments)


def called(op: str, values: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Return the work of a call by argument name: tuples are float32 tensors; missing arguments are empty or zero."""
    given = []
    for argument in arguments_of(op, **options):
        value, kind = values.get(argument.name), str(argument.type)
        if isinstance(value, tuple):
            value = F(*value)
        elif value is None and not any(word in kind for word in ("Tensor", "Optional", "str")):
            value = {"bool": False, "float": 0.0}.get(kind, "[]" if "List" in kind else 0)
        given.append(value)
    return work(f"aten::{op}", *given)


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
    name = f"conv{'_transpose' if at['transposed'] else ''}{len(at['stride'])}d"
    image, weight = torch.empty(at["input"], device="meta"), torch.empty(at["weight"], device="meta")
    keywords = ("stride", "padding", "dilation", "groups", *(["output_padding"] if at["transposed"] else []))
    out = getattr(nn, name)(image, weight, **{k: at[k] for k in keywords}).numel()
    return 2 * (math.prod(at["input"]) if at["transposed"] else out) * math.prod(at["weight"][1:]), out


@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_convolutions_read_their_geometry(op: str) -> None:
    names = [a.name for a in arguments_of(op)]
    for transposed in (False, True) if "transposed" in names else ("transpose" in op,):
        at = geometry(op, names, transposed)
        values = {**at, "self": at["input"], "bias": (6,) if "bias" in names else None}
        flops, out = convolved(at)
        read = math.prod(at["input"]) + math.prod(at["weight"]) + (6 if "bias" in names else 0)
        if "z" in names:
            values["z"], read = (out,), read + out
        found = called(op, values)
        assert (found["flops"], found["bytes_read"], found["bytes_written"]) == (flops, 4 * read, 4 * out)


@pytest.mark.parametrize("op", ["convolution_backward", "convolution_backward_overrideable", "_slow_conv2d_backward"])
def test_gradients_of_convolutions_read_their_mask(op: str) -> None:
    values: dict[str, Any] = {"grad_output": (2, 6, 9, 9), "input": (2, 4, 9, 9), "self": (2, 4, 9, 9),
                              "weight": (6, 4, 3, 3), "transposed": False}  # fmt: skip
    for name in ("stride", "padding", "dilation", "output_padding", "bias_sizes", "kernel_size"):
        values[name] = [1, 1]
    for mask, gradients in (([True, True, False], 2), ([False, True, False], 1), ([False, False, True], 0)):
        found = called(op, {**values, "output_mask": mask, "groups": 1}, overloads=("", "output_mask"))
        assert found["flops"] == gradients * 2 * (2 * 6 * 9 * 9) * 4 * 9


BATCH, HEADS, ROWS, COLUMNS, SIZE = 2, 4, 64, 96, 16
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
    names = [a.name for a in arguments_of(op)]
    sequence_first = op.startswith(("_flash", "_efficient"))

    def shape(length: int) -> Shape:
        return (BATCH, length, HEADS, SIZE) if sequence_first else (BATCH, HEADS, length, SIZE)

    heads = BATCH * HEADS
    queries, keys, bias = heads * ROWS * SIZE, heads * COLUMNS * SIZE, heads * ROWS * COLUMNS
    values = dict.fromkeys(("query", "grad_out", "grad_out_", "out"), shape(ROWS))
    values |= dict.fromkeys(("key", "value"), shape(COLUMNS))
    values |= dict.fromkeys(("attn_mask", "attn_bias", "bias"), (BATCH, HEADS, ROWS, COLUMNS))
    values |= {"logsumexp": (BATCH, HEADS, ROWS)}
    biased = any(name in names for name in ("attn_mask", "attn_bias", "bias"))
    backward = op.endswith("backward")
    keeps_none = op == "scaled_dot_product_attention" or "math" in op or "fused" in op
    ends_at_the_last = op.startswith(("_flash", "_scaled_dot_product_flash_attention")) and "cpu" not in op
    first = COLUMNS - ROWS + 1 if ends_at_the_last else 1  # keys that the first query sees
    for causal_mask, log_sum_exp in ((False, False), (False, True), (True, False), (True, True)):
        flags = {"is_causal": causal_mask, "custom_mask_type": int(causal_mask), "compute_log_sumexp": log_sum_exp}
        found = called(op, {**values, **flags})
        pairs = sum(range(first, first + ROWS)) if causal_mask else ROWS * COLUMNS
        assert found["flops"] == (5 if backward else 2) * 2 * heads * pairs * SIZE
        read, written, rows = queries + 2 * keys + (bias if biased else 0), queries, heads * ROWS
        if backward:
            read, written, rows = read + 2 * queries + rows, queries + 2 * keys, 0
        elif keeps_none or ("compute_log_sumexp" in names and not log_sum_exp):
            rows = 0
        assert (found["bytes_read"], found["bytes_written"]) == (4 * read, 4 * (written + rows))


@pytest.mark.parametrize("op", ["_cudnn_attention_forward", "_flash_attention_forward", "_efficient_attention_forward"])
def test_attention_reads_offsets_of_sequences(op: str) -> None:
    flat = (1,) if op.startswith("_efficient") else ()
    keys = (*flat, 5 * COLUMNS, HEADS, SIZE)
    values: dict[str, Any] = {"query": (*flat, 5 * ROWS, HEADS, SIZE), "key": keys, "value": keys}
    offsets = ("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k", "cum_seqlens_q", "cum_seqlens_k")
    values |= dict.fromkeys((*offsets, "cu_seq_q", "cu_seq_k"), (6,))
    for suffix, value in (("q", ROWS), ("k", COLUMNS)):
        values |= {f"max_{suffix}": value, f"max_seqlen_{suffix}": value}
    known = called(op, values)
    assert known["flops"] == 2 * 2 * 5 * HEADS * ROWS * COLUMNS * SIZE and not known["at_most"]
    bound = called(op, {**values, "max_q": 2 * ROWS, "max_seqlen_q": 2 * ROWS})  # lengths that differ are not recorded
    assert bound["at_most"] and bound["flops"] == known["flops"]  # no query has more keys


@pytest.mark.parametrize("op", ["_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "miopen_rnn_backward"])
def test_recurrent_layers_read_their_sizes(op: str) -> None:
    """Sum over all matrices of torch's modules: each is used once per step and element of the batch."""
    steps, batch, width, hidden, layers = 7, 3, 10, 12, 3
    modes = [(0, torch.nn.RNN, 0), (1, torch.nn.RNN, 0), (2, torch.nn.LSTM, 0), (3, torch.nn.GRU, 0)]
    modes += [(2, torch.nn.LSTM, 5)] if "cudnn" in op else []
    for (mode, module, projected), both in ((mode, both) for mode in modes for both in (False, True)):
        extra = {"proj_size": projected} if projected else {}
        weights = list(module(width, hidden, layers, bidirectional=both, **extra).parameters())
        parameters = sum(w.numel() for w in weights)
        state = (projected or hidden, (1 + both) * layers * batch)
        values: dict[str, Any] = {
            "input": (steps, batch, width), "weight_buf": (parameters,), "mode": mode, "hidden_size": hidden,
            "proj_size": projected, "num_layers": layers, "bidirectional": both, "hx": state,
        }  # fmt: skip
        found, gradients = called(op, values), op.endswith("backward")
        matrices = sum(w.numel() for w in weights if w.dim() == 2)
        assert found["flops"] == (2 if gradients else 1) * 2 * steps * batch * matrices
        if "weight_buf" in [a.name for a in arguments_of(op)]:
            out = steps * batch * (1 + both) * (projected or hidden)
            inputs = steps * batch * width + parameters + math.prod(state)
            assert found["bytes_read"] == 4 * (inputs + (2 * out if gradients else 0))
            assert found["bytes_written"] == 4 * (inputs if gradients else out + math.prod(state))
