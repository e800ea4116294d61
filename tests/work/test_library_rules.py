"""Work rules of other libraries' ops, against first principles and the libraries' own schemas."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import BF16, FLOAT, Program
from helpers.library_calls import BYTE, FP8, INT, LONG, STEP, B, numbers, size, work

import flopscope as fs
from flopscope import _core


def test_every_row_has_an_argument_list_that_calls_can_fit() -> None:
    rules = _core._library_rules()
    assert len(rules) > 150
    for name, arguments, sound in rules:
        assert sound, (name, arguments)
        words = re.split(r" [<>=?] ", arguments)[0].removeprefix("^").split()
        given = [word for word in words if word not in ("|", "...")]
        assert given and all(word[0].isalpha() or word[0] == "_" for word in given), (name, arguments)
        names = [re.split(r"\W", word)[0] for word in given]
        assert len({*names}) == len(names), (name, arguments)


# Elementwise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_C::silu_and_mul", "sgl_kernel::silu_and_mul", "flashinfer::gelu_and_mul"])
def test_an_activation_and_a_product_write_the_first_argument(name: str) -> None:
    out, both = B(32, 128), B(32, 256)
    assert numbers(work(name, out, both)) == (2 * 32 * 128, size(both), size(out))


def test_norms_count_what_the_norms_of_torch_count() -> None:
    x, weight = B(32, 4096), B(4096)
    own = (4 * 32 * 4096, size(x, weight), size(x))
    assert numbers(work("_C::rms_norm", x, x, weight, "1e-06")) == own
    assert numbers(work("aiter::rms_norm", x, weight, "1e-06", "0")) == own
    added = (5 * 32 * 4096, size(x, x, weight), size(x, x))
    assert numbers(work("_C::fused_add_rms_norm", x, x, weight, "1e-06")) == added
    assert numbers(work("aiter::add_rmsnorm", x, x, x, x, weight, "1e-06")) == added


def test_rotary_embedding_reads_the_rows_of_its_table_that_positions_select() -> None:
    positions, query, key, table = (LONG, (32,)), B(32, 4096), B(32, 1024), B(41216, 128)
    found = work("_C::rotary_embedding", positions, query, key, "128", table, "True")
    rows = 32 * 128 * 2
    assert numbers(found) == (3 * 32 * 5120, size(positions, query, key) + rows, size(query, key))
    few = work("_C::rotary_embedding", (LONG, (100000,)), B(100000, 64), None, "64", B(10, 64), "True")
    assert few["bytes_read"] == 8 * 100000 + 2 * 100000 * 64 + 2 * 10 * 64  # at most the whole table


def test_a_cache_counts_what_is_written_to_it() -> None:
    key, cache, slots = B(888, 8, 64), (FP8, (4213816, 16, 8, 64)), (LONG, (888,))
    found = work("_C_cache_ops::reshape_and_cache_flash", key, key, cache, cache, slots, "fp8", None, None)
    assert numbers(found) == (0, 2 * size(key) + size(slots), 2 * 888 * 8 * 64)


# Products -------------------------------------------------------------------------------------------------------------


def test_products_find_sizes_and_the_result_in_each_librarys_layout() -> None:
    m, k, n = 32, 256, 512
    flops = 2 * m * n * k
    x, xq = B(m, k), (FP8, (m, k))
    scale = (FLOAT, (1,))
    for name, *arguments in [
        ("vllm::rocm_unquantized_gemm", x, B(n, k), None),
        ("aiter::gemm_a16w16", x, B(n, k), None, "15", None, None, None),
    ]:
        assert numbers(work(name, *arguments)) == (flops, size(x, B(n, k)), size(B(m, n))), name
    narrow = size(xq, (FP8, (n, k))) + 2 * size(scale)
    for name, *arguments in [
        ("_C::cutlass_scaled_mm", B(m, n), xq, (FP8, (k, n)), scale, scale, None),
        ("sgl_kernel::fp8_scaled_mm", xq, (FP8, (k, n)), scale, scale, "15", None),
        ("fbgemm::f8f8bf16_rowwise", xq, (FP8, (n, k)), scale, scale, None, "True"),
    ]:
        found = work(name, *arguments)
        assert numbers(found) == (flops, narrow, size(B(m, n))), name
        assert found["unit"] == "fp8_tensor"


def test_packed_weights_take_their_shape_from_the_arguments() -> None:
    m, k, n = 16, 256, 512
    x, packed = B(m, k), (BYTE, (k * n // 2, 1))
    absmax = (FLOAT, (k * n // 64,))
    found = work("bitsandbytes::gemm_4bit", x, packed, f"[{n}, {k}]", absmax, "64", "nf4", None, None, None, None)
    assert numbers(found) == (2 * m * n * k, size(x, packed, absmax), size(B(m, n)))
    marlin = work("_C::gptq_marlin_gemm", x, None, (INT, (k // 16, n * 2)), B(k // 128, n), None, None, None, None,
                  (INT, (99,)), "5", str(m), str(n), str(k), "True", "False", "True", "False")  # fmt: skip
    assert marlin["flops"] == 2 * m * n * k
    assert marlin["bytes_read"] == size(x, (INT, (k // 16, n * 2)), B(k // 128, n))
    wrong = work("_C::gptq_marlin_gemm", x, None, (INT, (k // 16, n * 2)), B(k // 128, n), None, None, None, None,
                 (INT, (99,)), "5", str(m), str(n), str(k + 1), "True", "False", "True", "False")  # fmt: skip
    assert math.isnan(wrong["flops"])
    awq = work("_C::awq_gemm", x, (INT, (k, n // 8)), B(k // 128, n), (INT, (k // 128, n // 8)), "8")
    gptq = work("_C::gptq_gemm", x, (INT, (k // 8, n)), (INT, (2, 64)), B(2, n), (INT, (k,)), "True", "4")
    assert awq["flops"] == gptq["flops"] == 2 * m * n * k


def test_experts_multiply_each_token_with_those_that_it_chose() -> None:
    tokens, chosen, experts, hidden, inner = 64, 2, 8, 256, 512
    x, w1, w2 = B(tokens, hidden), B(experts, 2 * inner, hidden), B(experts, hidden, inner)
    weights, ids = (FLOAT, (tokens, chosen)), (INT, (tokens, chosen))
    found = work("vllm::fused_experts", x, w1, w2, weights, ids, "silu")
    assert found["flops"] == 6 * tokens * chosen * inner * hidden and not found["at_most"]
    assert found["bytes_read"] == size(x, w1, w2, weights, ids) and found["bytes_written"] == size(x)
    one = B(1, hidden), w1, w2, (FLOAT, (1, chosen)), (INT, (1, chosen))
    few = work("vllm::fused_experts", *one, "silu")
    assert few["at_most"]  # two tokens may choose the same expert
    assert few["bytes_read"] == size(one[0], *one[3:]) + size(w1, w2) * chosen / experts
    assert math.isnan(work("vllm::fused_experts", x, B(experts, 2 * inner, 99), w2, weights, ids)["flops"])


def test_transformer_engines_linear_has_copies_of_the_weight_in_some_versions() -> None:
    x, weight = B(8, 16, 256), B(512, 256)
    for between in ([], [weight], [weight, B(256, 512)], [None], [None, None]):
        found = work("_Linear", weight, *between, x, None)
        assert numbers(found) == (2 * 128 * 256 * 512, size(x, weight), size(B(128, 512)))


# Attention ------------------------------------------------------------------------------------------------------------


def test_flash_attention_has_the_sequence_before_the_heads() -> None:
    q, k = B(2, 1024, 16, 64), B(2, 1024, 4, 64)
    full = work("FlashAttnFunc", q, k, k, "0.", "0.125", "False", None)
    assert full["flops"] == 4 * 2 * 16 * 1024 * 1024 * 64
    assert work("FlashAttnFunc", q, k, k, "0.", "0.125", "True", None)["flops"] == 4 * 2 * 16 * 1024 * 1025 / 2 * 64
    assert full["bytes_read"] == size(q, k, k)


def test_cached_blocks_of_keys_count_what_the_longest_sequence_allows() -> None:
    q, cache, table, offsets = B(8, 16, 64), B(5000, 16, 4, 64), (INT, (8, 100)), (INT, (9,))
    arguments = ["0.", "0.1", "True", "-1", "-1", "0.", None, "False"]
    found = work(
        "flash_attn::_flash_attn_varlen_forward", q, cache, cache, offsets, offsets, "1", "333", *arguments, table
    )
    assert found["at_most"] and found["bytes_read"] == size(q) + 2 * 8 * 333 * 4 * 64 * 2
    assert found["flops"] == 4 * 8 * 16 * 64 * 333


@pytest.mark.parametrize("label", [STEP, "execute_8", None])
def test_attention_to_a_cache_takes_the_lengths_from_the_annotation_of_the_step(label: str | None) -> None:
    program = Program()
    if label:
        program.add("user_annotation", label, 0, 90)
    q, k = [8, 16, 64], [8, 4, 64]
    types = [BF16] * 4 + ["", "", "", ""]
    program.run("vllm::unified_attention_with_output", 10, 20, 5, q, k, k, q, [], [], [], [], dtype=types)
    row = next(r for r in fs.load_trace(program.text()).key_averages() if r.key.startswith("vllm::"))
    pairs = (45 - 5 * 4 / 2) + 33 if label == STEP else 8
    keys = 42 if label == STEP else 8
    assert row.flops == 4 * 16 * 64 * pairs
    assert row.bytes_total_moved == 2 * 2 * 8 * 16 * 64 + 2 * keys * 4 * 64 * 2
    assert dict(fs.load_trace(program.text()).coverage()["estimated"])


# Embeddings, vision, scans --------------------------------------------------------------------------------------------


def test_tables_of_embeddings_read_a_row_per_index() -> None:
    weights, indices, offsets = (FLOAT, (640649648,)), (LONG, (768,)), (LONG, (385,))
    rest = [(INT, (3,)), (LONG, (3,)), (INT, (4,)), "384", "128", (LONG, (4,)), "0", indices, offsets, "0", None]
    empty = (FLOAT, (0,))
    found = work("fbgemm::split_embedding_codegen_lookup_sgd_function", empty, weights, empty, (FLOAT, (0, 0)), *rest)
    batch = 384 // 3
    assert numbers(found) == (768 * 128, 768 * 128 * 4 + size(indices, offsets), batch * 384 * 4)
    assert not found["at_most"]


def test_regions_are_sampled_at_four_points_each() -> None:
    found = work(
        "torchvision::roi_align", (FLOAT, (1, 256, 200, 200)), (FLOAT, (100, 5)), "0.25", "7", "7", "2", "True"
    )
    results = 100 * 256 * 49
    assert found["flops"] == 8 * results * 4 and found["bytes_written"] == 4 * results
    adaptive = work(
        "torchvision::roi_align", (FLOAT, (1, 256, 200, 200)), (FLOAT, (100, 5)), "0.25", "7", "7", "0", "True"
    )
    assert math.isnan(adaptive["flops"])


def test_segments_become_one_row_each() -> None:
    src, indptr = (FLOAT, (1000, 16)), (LONG, (11,))
    out = 10 * 16
    assert numbers(work("torch_scatter::segment_sum_csr", src, indptr, None)) == (16000, size(src, indptr), 4 * out)
    assert work("torch_scatter::segment_max_csr", src, indptr, None)["bytes_written"] == (4 + 8) * out
    batched = work("torch_scatter::segment_mean_csr", (FLOAT, (3, 1000, 16)), (LONG, (3, 11)), None)
    assert batched["bytes_written"] == 3 * 4 * out
    assert math.isnan(work("torch_scatter::segment_sum_csr", indptr, (LONG, (3, 11)), None)["bytes_written"])


def test_scans_count_each_element_of_the_state() -> None:
    u, state = B(2, 512, 128), (FLOAT, (512, 16))
    found = work("SelectiveScanFn", u, u, state, B(2, 16, 128), B(2, 16, 128), (FLOAT, (512,)), u)
    assert found["flops"] == 9 * 2 * 512 * 128 * 16
    conv = work("DaoAILab::_causal_conv1d_fwd_cpp", u, B(512, 4), B(512), None, None, u, None, "True")
    assert numbers(conv) == (2 * 2 * 512 * 128 * 4, size(u, B(512, 4), B(512)), size(u))


# Another version ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("_C::silu_and_mul", [B(32, 256)]),  # the result is not an argument
        ("_C::rms_norm", [B(8, 8), B(8, 8), B(8), B(8), "1e-6"]),
        ("_C::cutlass_scaled_mm", [B(8, 8), (FP8, (8, 16)), (FP8, (17, 8)), (FLOAT, (1,)), (FLOAT, (1,))]),
        ("vllm::unified_attention_with_output", ["1", B(8, 4, 64), B(8, 4, 64), B(8, 4, 64)]),
        ("LigerSiLUMulFunction", [B(8, 8)]),
    ],
)
def test_arguments_that_do_not_fit_give_no_work(name: str, arguments: Sequence[Any]) -> None:
    found = work(name, *arguments)
    assert math.isnan(found["flops"]) and math.isnan(found["bytes_moved"])


def test_another_version_of_an_op_is_told_with_both_argument_lists() -> None:
    program = Program()
    program.run("_C::rms_norm", 0, 10, 5, [8, 16], [16], dtype=BF16)
    trace = fs.load_trace(program.text())
    seen, expected = trace.coverage()["misfits"]["_C::rms_norm"]
    assert seen == "bfloat16[8, 16], bfloat16[16]" and expected == "result! input weight epsilon#"
    assert trace.coverage()["unmodelled"] == [("_C::rms_norm", 5.0)]
    assert "Another version of _C::rms_norm" in trace.key_averages().table()


def test_a_note_counts_the_other_ops_of_another_version() -> None:
    program = Program()
    for place, name in enumerate(
        ("rms_norm", "silu_and_mul", "rotary_embedding", "fused_add_rms_norm", "gelu_and_mul")
    ):
        program.run(f"_C::{name}", 20 * place, 20 * place + 10, 5, [8, 16], dtype=BF16)
    trace = fs.load_trace(program.text())
    found = len(trace.coverage()["misfits"])
    text = trace.key_averages().table()
    assert found > 3 and text.count("Another version of") == 3
    assert f'coverage()["misfits"] has {found - 3} more ops of another version.' in text


def test_an_autograd_function_counts_only_if_nothing_in_it_does() -> None:
    program = Program()
    q = [2, 64, 4, 64]
    program.op("FlashAttnFunc", 0, 30, q, q, q, [], [], [], dtype=[BF16] * 3 + ["Scalar"] * 3,
               Concrete_Inputs=["", "", "", "0.", "0.1", "False"])  # fmt: skip
    program.run("flash_attn::_flash_attn_forward", 5, 50, 9, q, q, q, dtype=BF16)
    rows = {row.key: row for row in fs.load_trace(program.text()).key_averages()}
    assert rows["FlashAttnFunc"].flops == 0 and rows["flash_attn::_flash_attn_forward"].bytes_total_moved > 0


# Kernels --------------------------------------------------------------------------------------------------------------


def test_products_of_experts_are_found_by_the_names_and_grids_of_kernels() -> None:
    tokens, hidden, experts, chosen, inner, tile = 8192, 3072, 32, 4, 2944, 128
    program = Program()
    program.op("vllm::moe_forward", 0, 50, [tokens, hidden], [tokens, experts], [], dtype=[BF16, BF16, ""])
    rows = tokens * chosen
    tiles = math.ceil((rows - experts + 1) / tile) + experts - 1
    for at, columns, end in ((10, 2 * inner, "_swiglu"), (20, hidden, "")):
        program.call("cudaLaunchKernel", at, 2, 1, at)
        name = f"_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1{end}"
        program.work(name, 100 + at, 9, correlation=at, blocks=tiles * columns // tile)
    trace = fs.load_trace(program.text())
    row = next(r for r in trace.key_averages() if r.key == "vllm::moe_forward")
    assert row.flops == 2 * rows * hidden * (2 * inner + inner)
    weights = experts * hidden * 3 * inner * (4 + 8 / 32) / 8
    moved = 2 * (tokens * hidden + rows * inner) + 2 * (rows * inner + rows * hidden)
    assert row.bytes_total_moved == moved + weights
    assert trace.coverage()["bytes"] == 1 and trace.coverage()["estimated"] == [("vllm::moe_forward", 18.0)]


def test_deep_gemms_kernels_have_their_sizes_in_their_names() -> None:
    program = Program()
    kernel = "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 7168u, 2048u, 1u, 64u, 128u>(float*)"
    program.run("mylib::fp8_linear", 0, 10, 5, [96, 2048], [16, 16], dtype=[FP8, FLOAT], kernel=kernel)
    trace = fs.load_trace(program.text())
    row = next(r for r in trace.key_averages() if r.key == "mylib::fp8_linear")
    assert row.flops == 2 * 96 * 7168 * 2048
    assert row.bytes_total_moved == 96 * 2048 + 7168 * 2048 + 2 * 96 * 7168
    assert dict(trace.coverage()["estimated"])


def test_a_registered_rule_counts_the_kernels_of_its_name() -> None:
    fs.register_work("my_triton_kernel", lambda call: {"flops": 7 * call.grid[0], "bytes_read": 3, "bytes_written": 4})
    try:
        program = Program()
        program.run("mylib::op", 0, 10, 5, [8], kernel="my_triton_kernel", blocks=11)
        program.work("my_triton_kernel", 30, 5, blocks=13)  # without an op
        trace = fs.load_trace(program.text())
        rows = {(row.key, row.device_type): row for row in trace.key_averages()}
        assert rows["mylib::op", "cpu"].flops == 77 and rows["mylib::op", "cpu"].bytes_total_moved == 7
        assert rows["my_triton_kernel", "cuda"].flops == 91
        assert trace.coverage()["bytes"] == 1
    finally:
        fs.register_work("my_triton_kernel", None)


@pytest.mark.parametrize(
    ("name", "shapes", "sizes", "flops"),
    [
        ("triton_poi_fused_add_mul_0", [[64, 64]] * 3, ["4096"], 2 * 4096),
        ("triton_poi_fused__to_copy_clone_1", [[64, 64]] * 2, ["4096"], 0),
        ("triton_per_fused__softmax_2", [[64, 64]] * 2, ["64", "64"], 5 * 4096),
        ("triton_poi_fused_add_unheard_of_3", [[64, 64]] * 2, ["4096"], math.nan),
        ("triton_poi_fused_0", [[64, 64]] * 2, ["4096"], math.nan),
        ("triton_tem_fused_mm_4", [[64, 32], [32, 16], [64, 16]], [], 2 * 64 * 32 * 16),
        ("triton_tem_fused_bmm_5", [[8, 64, 32], [8, 32, 16], [8, 64, 16]], [], 2 * 8 * 64 * 32 * 16),
        ("triton_tem_fused_flex_attention_6", [[2, 8, 64, 32]] * 4, [], 4 * 2 * 8 * 64 * 64 * 32),
    ],
)
def test_generated_kernels_count_the_ops_in_their_names(
    name: str, shapes: list[list[int]], sizes: list[str], flops: float
) -> None:
    found = work(name, *[(BF16, tuple(shape)) for shape in shapes], *sizes)
    assert found["flops"] == pytest.approx(flops, nan_ok=True)


# Without a program ----------------------------------------------------------------------------------------------------


def test_work_is_that_of_the_tables_rules() -> None:
    found = fs.work("aten::mm", [(512, 256), (256, 128)], "bfloat16")
    assert (found.flops, found.bytes_read, found.bytes_written) == (
        2 * 512 * 256 * 128,
        2 * (512 + 128) * 256,
        2 * 512 * 128,
    )
    assert found.bytes == found.bytes_read + found.bytes_written and found.unit == "bf16_tensor"
    assert found.intensity == found.flops / found.bytes
    values = [None, None, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    assert fs.work("aten::convolution", [(2, 8, 16, 16), (4, 8, 3, 3)], "float16", values).flops == 2 * 2 * 4 * 256 * 72
    assert math.isnan(fs.work("mylib::unheard_of", [(8,)]).flops)


def test_the_least_time_of_work_is_that_of_the_devices_peaks() -> None:
    product = fs.work("aten::mm", [(8192, 8192), (8192, 8192)], "bfloat16")
    assert fs.roofline_time(product, device="NVIDIA H200") == pytest.approx(product.flops / 989.4e12 * 1e6, rel=1e-3)
    added = fs.work("aten::add", [(8192, 8192), (8192, 8192)])
    assert fs.roofline_time(added, device="NVIDIA H200") == pytest.approx(3 * 4 * 8192**2 / 4.8e12 * 1e6, rel=1e-3)
    assert fs.roofline_time(1e12, 1e6, unit="bf16_tensor", device="NVIDIA H200") == pytest.approx(
        1e18 / 989.4e12, rel=1e-3
    )
    assert math.isnan(fs.roofline_time(fs.work("mylib::unheard_of", [(8,)]), device="NVIDIA H200"))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'NVIDIA H200'"):
        fs.roofline_time(1e9, 1e6, device="NVIDIA H2000")
    with pytest.raises(ValueError, match="unit must be one of"):
        fs.roofline_time(1e9, 1e6, unit="fp5", device="NVIDIA H200")
    with pytest.raises(ValueError, match="dtype must be one of"):
        fs.work("aten::mm", [(8, 8), (8, 8)], "float33")
    with pytest.raises(ValueError, match="negative size"):
        fs.work("aten::mm", [(8, -8), (8, 8)])
    with pytest.raises(TypeError, match="sequence of integers"):
        fs.work("aten::mm", ["8", (8, 8)])


# Packages -------------------------------------------------------------------------------------------------------------


def test_an_installed_package_brings_its_own_rules(tmp_path: Path) -> None:
    package, metadata = tmp_path / "scalelib", tmp_path / "scalelib-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").touch()
    (package / "work_rules.py").write_text(
        textwrap.dedent("""
            import math
            import flopscope as fs

            def scale(call):
                elements = math.prod(call.shapes[0])
                return {"flops": elements, "bytes_read": 2 * elements, "bytes_written": 2 * elements}

            def register():
                fs.register_work("scalelib::scale", scale)
        """)
    )
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: scalelib\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[flopscope.work]\nscalelib = scalelib.work_rules:register\nbroken = scalelib.unheard_of:register\n"
    )
    program = "import flopscope as fs; print(fs.work('scalelib::scale', [(3, 5)], 'bfloat16').bytes)"
    root = Path(fs.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": f"{root}:{tmp_path}", "PATH": ""},
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout.strip() == "60.0", done.stderr
    assert "the work rules of broken" in done.stderr


# The libraries themselves ---------------------------------------------------------------------------------------------


def fits(arguments: str, given: Sequence[Any]) -> bool:
    """Return whether a row has as many arguments as a schema, tensors where it has tensors."""
    words = re.split(r" [<>=?] ", arguments)[0].split()
    expected = [word for word in words if word not in ("|", "...")]
    needed = expected[: words.index("|")] if "|" in words else expected
    if len(needed) > len(given) or (len(given) > len(expected) and "..." not in words):
        return False
    tensors = ["Tensor" in str(argument.type) for argument in given]
    optional = ["Optional" in str(argument.type) for argument in given]  # "#" is for None too
    kinds = [None if "~" in word else "#" not in word for word in expected]
    return all(kind in (None, is_tensor) or (may and not kind)
               for kind, is_tensor, may in zip(kinds, tensors, optional, strict=False))  # fmt: skip


@pytest.mark.parametrize(
    ("library", "module", "least"),
    [
        ("bitsandbytes", "bitsandbytes", 9),
        ("torchao", "torchao", 4),
        ("symm_mem", "torch.distributed._symmetric_memory", 12),
        ("_c10d_functional", "torch.distributed._functional_collectives", 10),
        ("torchvision", "torchvision", 10),
        ("fbgemm", "fbgemm_gpu", 50),
    ],
)
def test_rules_fit_the_schemas_of_the_installed_library(library: str, module: str, least: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(module)
    rows: dict[str, list[str]] = {}
    for name, arguments, _ in _core._library_rules():
        if name.startswith(f"{library}::"):
            rows.setdefault(name, []).append(arguments)
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name in rows]
    for schema in schemas:
        assert any(fits(arguments, schema.arguments) for arguments in rows[schema.name]), str(schema)
    assert len({schema.name for schema in schemas}) >= least


def test_recorded_arguments_of_bitsandbytes_have_work() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("bitsandbytes")
    a = torch.randint(-9, 9, (16, 64), dtype=torch.int8)
    b = torch.randint(-9, 9, (32, 64), dtype=torch.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
            torch.ops.bitsandbytes.int8_linear_matmul(a, b)
    from flopscope.torch import from_profile

    row = next(r for r in from_profile(prof).key_averages() if r.key == "bitsandbytes::int8_linear_matmul")
    own = work("bitsandbytes::int8_linear_matmul", ("signed char", (16, 64)), ("signed char", (32, 64)))
    assert own["flops"] == 2 * 16 * 32 * 64 and own["bytes_written"] == 4 * 16 * 32
    assert row.flops_total >= own["flops"] or row.flops == own["flops"]
