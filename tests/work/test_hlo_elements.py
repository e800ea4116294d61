"""FLOPs and bytes of HLO's opcodes but products, against counts by hand (conventions: docs/counting.md)."""

import math

import pytest
from helpers.hlo_texts import ADD, module, step

import flopscope as fs

ONE_OPERAND = [
    *("abs", "acos", "acosh", "asin", "asinh", "atanh", "cbrt", "ceil", "cosh", "cosine", "erf", "exponential"),
    *("exponential-minus-one", "floor", "log", "log-plus-one", "logistic", "negate", "round-nearest-afz"),
    *("round-nearest-even", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh"),
]
TWO_OPERANDS = ["add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract"]
NO_ARITHMETIC = ["copy", "real", "reverse", "reduce-precision"]


@pytest.mark.parametrize("opcode", ONE_OPERAND)
def test_a_function_of_one_operand_is_one_flop_an_element(opcode: str) -> None:
    row = step(f"x = f32[20,30] parameter(0)\ny = f32[20,30] {opcode}(x)")
    assert (row.flops, row.product_flops, row.bytes_read, row.bytes_written) == (600, 0, 2400, 2400)


@pytest.mark.parametrize("opcode", TWO_OPERANDS)
def test_a_function_of_two_operands_is_one_flop_an_element(opcode: str) -> None:
    row = step(f"x = bf16[20,30] parameter(0)\ny = bf16[20,30] parameter(1)\nz = bf16[20,30] {opcode}(x, y)")
    assert (row.flops, row.bytes_read, row.bytes_written) == (600, 2400, 1200)


@pytest.mark.parametrize("opcode", NO_ARITHMETIC)
def test_moving_is_no_flop(opcode: str) -> None:
    row = step(f"x = f32[20,30] parameter(0)\ny = f32[20,30] {opcode}(x)")
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 2400, 2400)


@pytest.mark.parametrize("opcode", ["add", "multiply", "and", "xor", "shift-left"])
def test_arithmetic_on_integers_is_no_flop(opcode: str) -> None:
    row = step(f"x = s32[20] parameter(0)\ny = s32[20] parameter(1)\nz = s32[20] {opcode}(x, y)")
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 160, 80)


@pytest.mark.parametrize(
    ("instructions", "flops", "read", "written"),
    [
        ("x = f32[8] parameter(0)\ny = f32[8] parameter(1)\nz = pred[8] compare(x, y), direction=LT", 0, 64, 8),
        ("p = pred[8] parameter(0)\nx = f32[8] parameter(1)\ny = f32[8] select(p, x, x)", 0, 40, 32),
        ("x = f32[8] parameter(0)\na = f32[] parameter(1)\ny = f32[8] clamp(a, x, a)", 8, 36, 32),
        ("x = f32[8] parameter(0)\ny = bf16[8] convert(x)", 0, 32, 16),
        ("x = f32[8] parameter(0)\ny = c64[8] complex(x, x)", 0, 32, 64),
        ("x = c64[8] parameter(0)\ny = c64[8] multiply(x, x)", 8, 64, 64),
        ("x = f32[8] parameter(0)\ny = f32[4,8] broadcast(x), dimensions={1}", 0, 32, 128),
        ("x = f32[2,8] parameter(0)\ny = f32[8,2] transpose(x), dimensions={1,0}", 0, 64, 64),
        ("x = s32[4,8] iota(), iota_dimension=1", 0, 0, 128),
        ("x = f32[8] parameter(0)\nz = f32[] parameter(1)\ny = f32[12] pad(x, z), padding=2_2", 0, 36, 48),
        ("x = f32[8] parameter(0)\nz = f32[4] parameter(1)\ny = f32[12] concatenate(x, z), dimensions={0}", 0, 48, 48),
        ("x = f32[9,8] parameter(0)\ny = f32[2,8] slice(x), slice={[3:5], [0:8]}", 0, 64, 64),
        ("a = f32[] parameter(0)\ny = f32[64] rng(a, a), distribution=rng_uniform", 0, 4, 256),
        ("s = u64[2] parameter(0)\ny = (u64[2], u32[64]) rng-bit-generator(s), algorithm=rng_default", 0, 16, 272),
    ],
)
def test_elements_are_counted_by_hand(instructions: str, flops: float, read: float, written: float) -> None:
    row = step(instructions)
    assert (row.flops, row.bytes_read, row.bytes_written) == (flops, read, written)


def test_a_reduction_is_one_flop_an_input() -> None:
    row = step(
        "x = f32[20,30] parameter(0)\nz = f32[] parameter(1)\ny = f32[20] reduce(x, z), dimensions={1}, to_apply=add",
        ADD,
    )
    assert (row.flops, row.bytes_read, row.bytes_written) == (600, 2404, 80)


def test_a_reduction_to_the_place_of_the_maximum_is_no_flop() -> None:
    """As argmax elsewhere: it compares and selects."""
    body = """
larger {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GT
  x = f32[] select(c, a, b)
  y = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(x, y)
}
"""
    row = step(
        """x = f32[20,30] parameter(0)
        i = s32[20,30] parameter(1)
        a = f32[] parameter(2)
        b = s32[] parameter(3)
        r = (f32[20], s32[20]) reduce(x, i, a, b), dimensions={1}, to_apply=larger""",
        body,
    )
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 4808, 160)


POOL = "x = f32[4,32,32,8] parameter(0)\nz = f32[] parameter(1)\n"


def test_pooling_is_one_flop_an_element_of_each_window() -> None:
    row = step(POOL + "y = f32[4,16,16,8] reduce-window(x, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add", ADD)
    assert row.flops == 4 * 16 * 16 * 8 * 4
    assert (row.bytes_read, row.bytes_written) == (4 * 32 * 32 * 8 * 4 + 4, 4 * 16 * 16 * 8 * 4)


def test_overlapping_windows_count_each() -> None:
    row = step(
        POOL + "y = f32[4,32,32,8] reduce-window(x, z), window={size=1x3x3x1 pad=0_0x1_1x1_1x0_0}, to_apply=add", ADD
    )
    assert row.flops == 4 * 32 * 32 * 8 * 9


@pytest.mark.parametrize("pad", ["999_0", "0_999"])
def test_a_cumulative_sum_is_one_flop_an_element(pad: str) -> None:
    """XLA writes it as windows as long as the dimension, but each sum is the one before it and an element."""
    row = step(
        f"""x = f32[64,1000] parameter(0)
        z = f32[] parameter(1)
        y = f32[64,1000] reduce-window(x, z), window={{size=1x1000 pad=0_0x{pad}}}, to_apply=add""",
        ADD,
    )
    assert row.flops == 64 * 1000


def test_a_gradient_of_pooling_adds_each_element_once() -> None:
    select = (
        "ge {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=GE\n}\n"
    )
    row = step(
        """x = f32[4,32,32,8] parameter(0)
        g = f32[4,16,16,8] parameter(1)
        z = f32[] parameter(2)
        y = f32[4,32,32,8] select-and-scatter(x, g, z), window={size=1x2x2x1 stride=1x2x2x1}, select=ge, scatter=add""",
        select + ADD,
    )
    assert row.flops == 4 * 16 * 16 * 8
    assert (row.bytes_read, row.bytes_written) == (4 * 32 * 32 * 8 * 5 + 4, 4 * 32 * 32 * 8 * 4)


@pytest.mark.parametrize("opcode", ["sort", "topk"])
def test_sorting_is_no_flop(opcode: str) -> None:
    """As torch's sort and topk: comparisons are none."""
    less = (
        "lt {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT\n}\n"
    )
    row = step(f"x = f32[64,100] parameter(0)\ny = f32[64,100] {opcode}(x), dimensions={{1}}, to_apply=lt", less)
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 25600, 25600)


def test_map_is_its_function_of_each_element() -> None:
    body = "f {\n  a = f32[] parameter(0)\n  b = f32[] multiply(a, a)\n  ROOT c = f32[] add(b, a)\n}\n"
    row = step("x = f32[20,30] parameter(0)\ny = f32[20,30] map(x), dimensions={0,1}, to_apply=f", body)
    assert (row.flops, row.bytes_read, row.bytes_written) == (1200, 2400, 2400)


@pytest.mark.parametrize(
    ("before", "after", "kind", "flops"),
    [
        ("c64[8,1024]", "c64[8,1024]", "FFT", 5 * 8 * 1024 * 10),
        ("c64[8,1024]", "c64[8,1024]", "IFFT", 5 * 8 * 1024 * 10),
        ("f32[8,1024]", "c64[8,513]", "RFFT", 2.5 * 8 * 1024 * 10),
        ("c64[8,513]", "f32[8,1024]", "IRFFT", 2.5 * 8 * 1024 * 10),
    ],
)
def test_fourier_transforms_are_5_n_log_n(before: str, after: str, kind: str, flops: float) -> None:
    row = step(f"x = {before} parameter(0)\ny = {after} fft(x), fft_type={kind}, fft_length={{1024}}")
    assert row.flops == flops


def test_a_transform_of_two_dimensions_is_that_of_their_points() -> None:
    row = step("x = c64[8,32,64] parameter(0)\ny = c64[8,32,64] fft(x), fft_type=FFT, fft_length={32,64}")
    assert row.flops == 5 * 8 * 32 * 64 * math.log2(32 * 64)


def test_factorizations_have_the_leading_terms_of_lapack() -> None:
    row = step("x = f64[5,30,30] parameter(0)\ny = f64[5,30,30] cholesky(x), lower=true")
    assert (row.flops, row.bytes_read) == (pytest.approx(5 * 30**3 / 3), 5 * 900 * 8)
    row = step(
        "a = f32[5,30,30] parameter(0)\nb = f32[5,30,7] parameter(1)\n"
        "y = f32[5,30,7] triangular-solve(a, b), lower=true"
    )
    assert row.flops == 5 * 30**2 * 7
    row = step("x = c64[30,30] parameter(0)\ny = c64[30,30] cholesky(x), lower=true")
    assert row.flops == pytest.approx(4 * 30**3 / 3)


@pytest.mark.parametrize(
    ("instruction", "flops", "read", "written"),
    [
        ("y = f32[64] all-reduce(x), replica_groups={}, to_apply=add", math.nan, 256, 256),
        ("y = f32[64] all-reduce-start(x), replica_groups={}, to_apply=add", math.nan, 256, 256),
        ("y = f32[512] all-gather(x), dimensions={0}", 0, 256, 2048),
        ("y = (f32[64], f32[512]) all-gather-start(x), dimensions={0}", 0, 256, 2048),
        ("y = f32[8] reduce-scatter(x), dimensions={0}, to_apply=add", math.nan, 256, 32),
        ("y = ((f32[64]), f32[8]) reduce-scatter-start(x), dimensions={0}, to_apply=add", math.nan, 256, 32),
        ("y = f32[64] all-to-all(x), dimensions={0}", 0, 256, 256),
        ("y = f32[64] collective-permute(x), source_target_pairs={{0,1}}", 0, 256, 256),
        ("y = (f32[64], f32[64], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1}}", 0, 256, 256),
        ("y = (f32[64], f32[64], u32[]) copy-start(x)", 0, 256, 256),
        ("y = ((f32[64]), f32[16], s32[]) slice-start(x), slice={[0:16]}", 0, 64, 64),
        ("t = token[] after-all()\ny = (f32[64], u32[], token[]) send(x, t), channel_id=1", 0, 256, 0),
        ("t = token[] after-all()\ny = (f32[64], u32[], token[]) recv(t), channel_id=1", 0, 0, 256),
        ("t = token[] after-all()\ny = ((f32[64]), token[]) infeed(t)", 0, 0, 256),
        ("t = token[] after-all()\ny = token[] outfeed(x, t), outfeed_shape=f32[64]", 0, 256, 0),
        ("y = f32[64]{0:S(5)} copy(x)", 0, 256, 0),
        ("h = f32[64]{0:S(5)} parameter(1)\ny = f32[64] copy(h)", 0, 0, 256),
        ("y = (f32[64]{0:S(5)}, f32[64], u32[]) copy-start(x)", 0, 256, 0),
    ],
)
def test_a_collective_or_start_reads_what_it_sends_and_writes_its_result(
    instruction: str, flops: float, read: float, written: float
) -> None:
    row = step("x = f32[64] parameter(0)\n" + instruction, ADD)
    assert row.flops == flops or (math.isnan(flops) and math.isnan(row.flops))
    assert (row.bytes_read, row.bytes_written) == (read, written)


def test_the_end_of_an_asynchronous_instruction_is_no_row() -> None:
    frame = fs.work_of_hlo(
        module(
            """x = f32[64] parameter(0)
            s = (f32[64], f32[512]) all-gather-start(x), dimensions={0}
            y = f32[512] all-gather-done(s)
            z = f32[512] negate(y)"""
        )
    )
    assert list(frame["opcode"]) == ["all-gather-start", "negate"]


def test_an_unknown_opcode_has_unknown_flops_and_at_most_all_bytes() -> None:
    row = step("x = f32[64] parameter(0)\ny = f32[8] frobnicate(x)")
    assert math.isnan(row.flops) and (row.bytes_read, row.bytes_written) == (256, 32)


def test_sizes_without_a_limit_are_unknown() -> None:
    row = step("x = f32[?,8] parameter(0)\ny = f32[?,8] negate(x)")
    assert math.isnan(row.flops) and math.isnan(row.bytes_read) and math.isnan(row.bytes_written)


def test_a_dynamic_size_counts_at_its_limit() -> None:
    row = step("x = f32[<=16,8] parameter(0)\ny = f32[<=16,8] negate(x)")
    assert (row.flops, row.bytes_read, row.bytes_written) == (128, 512, 512)
