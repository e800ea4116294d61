"""FLOPs of HLO's products and library calls, against counts by hand (conventions: docs/counting.md)."""

import math
from collections.abc import Iterator
from itertools import product

import pytest
from helpers.hlo_texts import step

from flopscope import _core


@pytest.mark.parametrize(
    ("left", "right", "result", "dimensions", "multiply_adds"),
    [
        ("f32[7,5]", "f32[5,3]", "f32[7,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", 7 * 5 * 3),
        ("f32[5,7]", "f32[3,5]", "f32[7,3]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}", 7 * 5 * 3),
        (
            "bf16[2,6,7,5]",
            "bf16[2,6,5,3]",
            "f32[2,6,7,3]",
            "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}",
            12 * 7 * 5 * 3,
        ),
        ("f32[7,5,4]", "f32[5,4,3]", "f32[7,3]", "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}", 7 * 20 * 3),
        ("f32[7]", "f32[7]", "f32[]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", 7),
        ("f32[7]", "f32[3]", "f32[7,3]", "lhs_contracting_dims={}, rhs_contracting_dims={}", 21),
        ("s8[7,5]", "s8[5,3]", "s32[7,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", 7 * 5 * 3),
    ],
)
def test_a_dot_is_two_flops_a_multiply_add(
    left: str, right: str, result: str, dimensions: str, multiply_adds: int
) -> None:
    row = step(f"a = {left} parameter(0)\nb = {right} parameter(1)\nc = {result} dot(a, b), {dimensions}")
    assert row.flops == row.product_flops == 2 * multiply_adds


@pytest.mark.parametrize(
    ("config", "remark"),
    [
        ('"operand_precision":["HIGHEST","HIGHEST"],"algorithm":"ALG_UNSET"', "precision=highest"),
        ('"operand_precision":["DEFAULT","HIGH"],"algorithm":"ALG_UNSET"', "precision=high"),
        ('"operand_precision":["DEFAULT","DEFAULT"],"algorithm":"ALG_DOT_F32_F32_F32"', "precision=highest"),
        ('"operand_precision":["DEFAULT","DEFAULT"],"algorithm":"ALG_UNSET"', None),
    ],
)
def test_the_precision_that_a_library_was_asked_for(config: str, remark: str | None) -> None:
    text = f"""HloModule m
ENTRY e {{
  a = f32[8,8] parameter(0)
  ROOT c = (f32[8,8], s8[64]) custom-call(a, a), custom_call_target="__cublas$gemm",
    backend_config={{"gemm_backend_config":{{"selected_algorithm":"2","precision_config":{{{config}}}}}}}
}}"""
    ((_, instructions),) = _core._read_hlo(text)["computations"]
    assert instructions[-1]["remark"] == remark


def test_a_complex_multiply_add_is_four_real_ones() -> None:
    row = step(
        """a = c64[7,5] parameter(0)
        b = c64[5,3] parameter(1)
        c = c64[7,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    )
    assert row.flops == 8 * 7 * 5 * 3 and (row.bytes_read, row.bytes_written) == ((35 + 15) * 8, 21 * 8)


def test_the_square_of_a_matrix_reads_it_once() -> None:
    row = step("a = f32[9,9] parameter(0)\nc = f32[9,9] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    assert (row.bytes_read, row.bytes_written) == (324, 324)


def pairs(outputs: int, taps: int, stride: int, low: int, dilation: int, between: int) -> int:
    """The outputs and taps that do not meet a zero between elements, one by one."""
    return sum((o * stride + k * between - low) % dilation == 0 for o, k in product(range(outputs), range(taps)))


def windows() -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """Inputs, taps, stride, padding on both sides, dilation of the input and of the taps."""
    for size, taps, stride, low, high, dilation, between in product(
        (5, 8), (1, 3, 4), (1, 2, 3), (0, 1, 2), (0, 2), (1, 2, 3), (1, 2)
    ):
        if (size - 1) * dilation + 1 + low + high >= (taps - 1) * between + 1:
            yield size, taps, stride, low, high, dilation, between


def test_a_convolution_is_outputs_times_taps_without_the_zeros_between_elements() -> None:
    for size, taps, stride, low, high, dilation, between in windows():
        dilated = (size - 1) * dilation + 1
        outputs = (dilated + low + high - ((taps - 1) * between + 1)) // stride + 1
        window = f"size={taps} stride={stride} pad={low}_{high} lhs_dilate={dilation} rhs_dilate={between}"
        row = step(
            f"""x = f32[2,{size},6] parameter(0)
            w = f32[{taps},6,4] parameter(1)
            y = f32[2,{outputs},4] convolution(x, w), window={{{window}}}, dim_labels=b0f_0io->b0f"""
        )
        met = min(pairs(outputs, taps, stride, low, dilation, between), size * taps)
        assert row.flops == pytest.approx(2 * 2 * 6 * 4 * met), (size, taps, stride, low, high, dilation, between)


@pytest.mark.parametrize(
    ("shapes", "attributes", "multiply_adds"),
    [
        # 2 images of 8 x 8, 3 x 3 taps, 16 features to 24
        (("2,8,8,16", "3,3,16,24", "2,8,8,24"), "dim_labels=b01f_01io->b01f", 2 * 64 * 9 * 16 * 24),
        (("2,16,8,8", "24,16,3,3", "2,24,8,8"), "dim_labels=bf01_oi01->bf01", 2 * 64 * 9 * 16 * 24),
        (("8,8,16,2", "3,3,16,24", "8,8,24,2"), "dim_labels=01fb_01io->01fb", 2 * 64 * 9 * 16 * 24),
        # 4 groups: each output feature of 4 input features
        (
            ("2,8,8,16", "3,3,4,24", "2,8,8,24"),
            "dim_labels=b01f_01io->b01f, feature_group_count=4",
            2 * 64 * 9 * 4 * 24,
        ),
        # depthwise
        (
            ("2,8,8,16", "3,3,1,16", "2,8,8,16"),
            "dim_labels=b01f_01io->b01f, feature_group_count=16",
            2 * 64 * 9 * 16,
        ),
        # 8 images in 4 groups of 2, each convolved by 6 of 24 filters
        (
            ("8,8,8,16", "3,3,16,24", "2,8,8,24"),
            "dim_labels=b01f_01io->b01f, batch_group_count=4",
            2 * 64 * 9 * 16 * 24,
        ),
    ],
)
def test_a_convolution_follows_its_labels_and_groups(
    shapes: tuple[str, str, str], attributes: str, multiply_adds: int
) -> None:
    image, taps, result = shapes
    row = step(
        f"x = bf16[{image}] parameter(0)\nw = bf16[{taps}] parameter(1)\n"
        f"y = bf16[{result}] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, {attributes}"
    )
    assert row.flops == row.product_flops == 2 * multiply_adds


def test_a_stride_beyond_the_window_skips_elements() -> None:
    row = step(
        "x = f32[2,8,8,16] parameter(0)\nw = f32[1,1,16,24] parameter(1)\n"
        "y = f32[2,4,4,24] convolution(x, w), window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f"
    )
    assert row.bytes_read == 2 * 8 * 8 * 16 * 4 / 4 + 16 * 24 * 4


CONVOLVED = "window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"


@pytest.mark.parametrize(
    ("target", "first", "second", "result", "more"),
    [
        ("convForward", "2,16,9,9", "24,16,3,3", "2,24,5,5", ""),
        ("convForwardGraph", "2,16,9,9", "24,16,3,3", "2,24,5,5", ""),
        ("convBiasActivationForward", "2,16,9,9", "24,16,3,3", "2,24,5,5", ", b"),
        ("convBackwardInput", "2,24,5,5", "24,16,3,3", "2,16,9,9", ""),
        ("convBackwardFilter", "2,16,9,9", "2,24,5,5", "24,16,3,3", ""),
    ],
)
def test_the_convolutions_of_cudnn_count_as_the_forward_one(
    target: str, first: str, second: str, result: str, more: str
) -> None:
    row = step(
        f"x = f32[{first}] parameter(0)\nw = f32[{second}] parameter(1)\nb = f32[24] parameter(2)\n"
        f'y = (f32[{result}], u8[4096]) custom-call(x, w{more}), {CONVOLVED}, custom_call_target="__cudnn${target}"'
    )
    elements = [math.prod(map(int, shape.split(","))) for shape in (first, second, result)]
    assert row.flops == row.product_flops == 2 * 2 * 24 * 5 * 5 * 16 * 9
    assert row.bytes_read == 4 * (elements[0] + elements[1] + (24 if more else 0))
    assert row.bytes_written == 4 * elements[2]  # without the workspace


GEMM = (
    '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],'
    '"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}'
)


@pytest.mark.parametrize(
    ("target", "operands", "more"),
    [
        ("__cublas$gemm", ["a", "b"], 0),
        ("__cublas$lt$matmul", ["a", "b"], 0),
        ("__cublas$lt$matmul", ["a", "b", "bias"], 48),  # an epilogue with a bias
        ("__cublas$lt$matmul", ["a", "b", "c"], 1536),  # beta: the result is added to c
        ("__cublas$lt$matmul$f8", ["a", "b", "one", "one"], 2),
    ],
)
def test_products_of_cublas_count_without_their_epilogue_and_workspace(
    target: str, operands: list[str], more: int
) -> None:
    row = step(
        f"""a = bf16[32,64] parameter(0)
        b = bf16[64,24] parameter(1)
        c = bf16[32,24] parameter(2)
        bias = bf16[24] parameter(3)
        one = bf16[] parameter(4)
        y = (bf16[32,24], s8[33554432]) custom-call({", ".join(operands)}), custom_call_target="{target}", """
        f'backend_config={{"gemm_backend_config":{{"alpha_real":1,"beta":0,{GEMM},"epilogue":"DEFAULT"}}}}'
    )
    assert row.flops == row.product_flops == 2 * 32 * 64 * 24
    assert (row.bytes_read, row.bytes_written) == (2 * (32 * 64 + 64 * 24) + more, 2 * 32 * 24)


def test_a_product_of_cublas_without_dimensions_is_unknown() -> None:
    row = step(
        "a = f32[32,64] parameter(0)\nb = f32[64,24] parameter(1)\n"
        'y = f32[32,24] custom-call(a, b), custom_call_target="__cublas$gemm"'
    )
    assert math.isnan(row.flops) and row.bytes_written == 4 * 32 * 24


def attention(mask: str, window: int = 0, backward: bool = False, queries: int = 128, keys: int = 128) -> float:
    q, k = f"bf16[2,6,{queries},64]", f"bf16[2,6,{keys},64]"
    config = (
        '{"cudnn_fmha_backend_config":{"fmha_scale":0.125,"intermediate_tensor_shape":{"element_type":"BF16",'
        f'"dimensions":["2","6","{queries}","{keys}"]}},"mask_type":"{mask}","sliding_window_length":{window}}}}}'
    )
    lines = [f"q = {q} parameter(0)", f"k = {k} parameter(1)", f"v = {k} parameter(2)"]
    if backward:
        lines += [f"s = f32[2,6,{queries}] parameter(3)", f"g = {q} parameter(4)", f"o = {q} parameter(5)"]
        lines += [f"y = ({q}, {k}, {k}, u8[1024]) custom-call(q, k, v, s, g, o), "]
    else:
        lines += [f"y = ({q}, f32[2,6,{queries}], u8[0]) custom-call(q, k, v), "]
    suffix = "Backward" if backward else ""
    row = step("\n".join(lines) + f'custom_call_target="__cudnn$fmhaSoftmax{suffix}", backend_config={config}')
    reads = 64 * (queries + 2 * keys) + (64 * 2 * queries + 2 * queries if backward else 0)
    writes = 64 * (queries + 2 * keys) if backward else 64 * queries + 2 * queries
    assert (row.bytes_read, row.bytes_written) == (2 * 12 * reads, 2 * 12 * writes)
    return float(row.flops)


def seen(queries: int, keys: int, window: int = 0) -> int:
    """The pairs that a causal mask leaves, one by one."""
    first = [max(0, i - window + 1) if window else 0 for i in range(queries)]
    return sum(first[i] <= j <= i for i in range(queries) for j in range(keys))


def test_fused_attention_is_two_products_forward_and_five_backward() -> None:
    assert attention("NO_MASK") == 4 * 12 * 128 * 128 * 64
    assert attention("NO_MASK", backward=True) == 10 * 12 * 128 * 128 * 64


def test_a_causal_mask_leaves_the_pairs_up_to_the_diagonal() -> None:
    assert attention("CAUSAL") == 4 * 12 * seen(128, 128) * 64
    assert attention("CAUSAL", backward=True) == 10 * 12 * seen(128, 128) * 64
    assert attention("CAUSAL", queries=96, keys=128) == 4 * 12 * seen(96, 128) * 64
    assert attention("CAUSAL", window=16) == 4 * 12 * seen(128, 128, 16) * 64


@pytest.mark.parametrize(
    ("target", "operand", "result", "flops"),
    [
        ("cusolver_potrf_ffi", "f32[3,30,30]", "(f32[3,30,30], s32[3])", 3 * 30**3 / 3),
        ("lapack_spotrf_ffi", "f32[30,30]", "(f32[30,30], s32[])", 30**3 / 3),
        ("cusolver_getrf_ffi", "f32[40,30]", "(f32[40,30], s32[30], s32[])", 40 * 900 - 30**3 / 3),
        ("cusolver_geqrf_ffi", "f32[40,30]", "(f32[40,30], f32[30])", 2 * 40 * 900 - 2 * 30**3 / 3),
        ("cusolver_orgqr_ffi", "f32[40,30]", "f32[40,30]", 2 * 40 * 900 - 2 * 30**3 / 3),
        ("cusolver_syevd_ffi", "f32[30,30]", "(f32[30,30], f32[30], s32[])", math.nan),
        ("__cub$DeviceRadixSort", "f32[900]", "(f32[900], u8[4096])", 0),
        ("TopK", "f32[20,30]", "(f32[20,5], s32[20,5])", 0),
        ("xla_ffi_python_gpu_callback", "f32[30]", "f32[30]", 0),
        ("triton_kernel_call", "f32[30]", "f32[30]", math.nan),
        ("__gpu$xla.gpu.triton", "f32[30]", "f32[30]", math.nan),
        ("mosaic_gpu", "f32[30]", "f32[30]", math.nan),
        ("nobody_knows", "f32[30]", "f32[30]", math.nan),
    ],
)
def test_other_library_calls(target: str, operand: str, result: str, flops: float) -> None:
    row = step(f'x = {operand} parameter(0)\ny = {result} custom-call(x), custom_call_target="{target}"')
    assert row.product_flops == 0
    assert row.flops == pytest.approx(flops, nan_ok=True)
    assert row.bytes_read > 0 and row.bytes_written > 0


def test_a_product_of_onednn_sums_over_the_last_axis() -> None:
    row = step(
        "a = f32[4,32,64] parameter(0)\nb = f32[4,64,24] parameter(1)\n"
        'y = f32[4,32,24] custom-call(a, b), custom_call_target="__onednn$matmul"'
    )
    assert row.flops == row.product_flops == 2 * 4 * 32 * 64 * 24


@pytest.mark.parametrize(("kind", "each"), [("LAYER_FWD_TRAIN", 7), ("LAYER_BWD", 13)])
def test_a_norm_of_cudnn_counts_as_layer_norm_with_weight_and_bias(kind: str, each: int) -> None:
    row = step(
        f"""x = f32[64,128,1,1] parameter(0)
        w = f32[1,128,1,1] parameter(1)
        y = (f32[64,128,1,1], u8[256]) custom-call(x, w), custom_call_target="__cudnn$norm", """
        f'backend_config={{"cudnn_norm_backend_config":{{"epsilon":1e-5,"kind":"{kind}"}}}}'
    )
    assert (row.flops, row.product_flops, row.bytes_written) == (each * 64 * 128, 0, 4 * 64 * 128)
