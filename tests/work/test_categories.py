"""Categories of ops: a table by hand, and what every rule must have. The oracle is what each op is known to do."""

import re
from collections.abc import Iterable

import pytest
from helpers import ROOT
from helpers.hand_traces import Program
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import analysis_of
from flopscope.results.categories import category_of

OPS = {  # without a namespace: aten's
    "matrix product": """mm bmm addmm addmm_ baddbmm addbmm matmul mv addmv dot vdot outer ger addr linear
        mkldnn_linear _addmm_activation _int_mm _scaled_mm _scaled_mm_v2 _grouped_mm _scaled_grouped_mm
        _scaled_grouped_mm_v2 _weight_int4pack_mm _weight_int8pack_mm einsum tensordot inner linear_backward
        quantized::linear flopscope::matmul flopscope::addmm _C::cutlass_scaled_mm _C::marlin_gemm
        _moe_C::moe_wna16_gemm vllm::fused_experts sgl_kernel::fp8_scaled_mm aiter::gemm_a8w8 aiter::fmoe_g1u1
        aiter::hipb_mm bitsandbytes::gemv_4bit fbgemm::f8f8bf16_rowwise fbgemm::bf16bf16bf16_grouped
        torchao::int_matmul flashinfer::bmm_fp8 pyg::segment_matmul FusedDenseFunc _Linear _LayerNormMLPBackward
        LinearWithGradAccumulationAndAsyncCommunicationBackward LigerFusedMoEFunction""",
    "attention": """scaled_dot_product_attention _scaled_dot_product_flash_attention _flash_attention_forward
        _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention
        _efficient_attention_backward flash_attn::_flash_attn_forward flash_attn_3::fwd FlashAttnFunc
        FlashAttnQKVPackedFuncBackward xformers_flash::flash_fwd _vllm_fa2_C::varlen_fwd
        vllm::unified_attention_with_output _C::paged_attention_v1 vllm::unified_mla_attention aiter::mha_fwd
        sgl_kernel::cutlass_mla_decode FusedAttnFunc""",
    "convolution": """convolution _convolution conv1d conv2d conv_transpose3d cudnn_convolution miopen_convolution
        mkldnn_convolution convolution_backward convolution_overrideable cudnn_convolution_backward_input
        _conv_depthwise2d slow_conv3d thnn_conv2d quantized::conv2d_relu CausalConv1dFn _C::causal_conv1d_fwd
        torchvision::deform_conv2d""",
    "recurrent network": """_cudnn_rnn _cudnn_rnn_backward miopen_rnn mkldnn_rnn_layer lstm gru SelectiveScanFn
        MambaChunkScanCombinedFn vllm::mamba_mixer2""",
    "linear algebra": """linalg_qr linalg_cholesky_ex cholesky triangular_solve linalg_lu_factor_ex _linalg_svd
        _linalg_eigh _fft_c2c _fft_r2c linalg_inv _sparse_mm torch_sparse::spmm_sum
        sgl_kernel::fast_hadamard_transform""",
    "normalisation": """softmax _softmax _log_softmax _softmax_backward_data native_layer_norm layer_norm
        native_layer_norm_backward native_batch_norm cudnn_batch_norm cudnn_batch_norm_backward batch_norm_elemt
        native_group_norm _fused_rms_norm _weight_norm_interface renorm group_norm flopscope::layer_norm
        flopscope::softmax FusedLayerNormAffineFunction LigerRMSNormFunctionBackward Fast_RMS_Layernorm
        LayerNormFn _C::fused_add_rms_norm _C::rms_norm_static_fp8_quant sgl_kernel::gemma_rmsnorm
        aiter::rmsnorm2d_fwd aiter::_groupnorm_run flashinfer::rmsnorm te_softmax::scaled_masked_softmax_fwd
        pyg::softmax_csr fbgemm::jagged_softmax_forward""",
    "reduction": """sum mean prod amax max argmin any all var std_mean norm linalg_vector_norm logsumexp cumsum
        cummax sort topk multinomial _unique2 bincount histc max_pool2d_with_indices avg_pool2d_backward mse_loss
        nll_loss_forward binary_cross_entropy_with_logits _cdist_forward _foreach_norm flopscope::sum
        flopscope::amax flopscope::norm flopscope::var flopscope::argmax flopscope::cumsum
        fbgemm::asynchronous_complete_cumsum segment_reduce torch_scatter::segment_sum_csr
        pyg::segment_max_coo _moe_C::topk_softmax _moe_C::moe_align_block_size _C::top_k_per_row
        sgl_kernel::moe_sum torchvision::roi_align torchvision::nms LigerCrossEntropyFunction TopK""",
    "pointwise": """add add_ sub mul mul.Tensor div neg exp log1p sqrt sin tanh relu relu_ gelu gelu_backward silu
        sigmoid_backward threshold_backward pow clamp_min maximum lerp addcmul where masked_fill eq logical_and
        bitwise_not isnan _foreach_add_ _foreach_addcdiv_ _fused_adamw_ native_dropout dropout bernoulli_ normal_
        rand glu tril upsample_bilinear2d grid_sampler_2d mse_loss_backward quantize_per_tensor
        _thnn_fused_lstm_cell flopscope::add flopscope::gelu_ flopscope::rand _C::silu_and_mul
        _C::rotary_embedding sgl_kernel::gelu_and_mul aiter::static_per_tensor_quant LigerSiLUMulFunction
        ApplyRotaryEmb FusedRoPEFunc torchao::mxfp8_quantize bitsandbytes::dequantize_4bit fbgemm::silu_mul
        _C::merge_attn_states""",
    "copies": """copy_ _to_copy clone contiguous to zero_ fill_ zeros full_like cat stack _chunk_cat index
        index_select gather scatter_add_ index_add_ index_put_ embedding embedding_dense_backward _embedding_bag
        nonzero masked_select arange constant_pad_nd flip roll im2col _foreach_copy_ _local_scalar_dense
        slice_backward pixel_shuffle reflection_pad2d_backward flopscope::cast flopscope::copy_ flopscope::zeros
        flopscope::transpose_copy _C_cache_ops::reshape_and_cache _moe_C::moe_permute
        fbgemm::permute_2D_sparse_data fbgemm::jagged_to_padded_dense
        fbgemm::split_embedding_codegen_lookup_adagrad_function
        fbgemm::split_embedding_backward_codegen_adam_weighted_exact_cuda torch_scatter::scatter_sum
        fsdp::split_with_sizes_copy te_moe::permute_index_map LigerEmbeddingFunction""",
    "communication": """record_param_comms c10d::allreduce_ c10d::_allgather_base_ nccl:all_reduce
        _c10d_functional::all_gather_into_tensor _c10d_functional::wait_tensor symm_mem::one_shot_all_reduce
        vllm::all_reduce _C_custom_ar::qr_all_reduce fbgemm::nccl_alltoall_single gloo:broadcast""",
    "other": """view expand t transpose empty empty_like as_strided detach detach_ result_type _fused_sdp_choice
        vllm::nothing_known _C::weak_ref_tensor""",
}
KERNELS = {
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)": "pointwise",
    "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>(int)": "copies",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)": "copies",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)": "reduction",
    "void (anonymous namespace)::softmax_warp_forward<float>": "normalisation",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>": "normalisation",
    "ampere_sgemm_128x64_nn": "matrix product",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT": "matrix product",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32": "matrix product",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16": "convolution",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "triton_poi_fused_cat_relu_5": "pointwise",
    "triton_per_fused_native_layer_norm_0": "reduction",
    "triton_tem_fused_mm_3": "matrix product",
    "triton_tem_fused_convolution_1": "convolution",
    "triton_tem_fused_flex_attention_0": "attention",
    "Memcpy HtoD (Pageable -> Device)": "copies",
    "Memset (Device)": "copies",
    "_rotary_embedding_kernel": "pointwise",
    "my_kernel": "other",
}


def expected() -> list[tuple[str, str]]:
    pairs = [(name, category) for category, names in OPS.items() for name in names.split()]
    return [(name if re.match(r"_?[A-Z]|record_|\w+:", name) else f"aten::{name}", of) for name, of in pairs]


@pytest.mark.parametrize("category", OPS)
def test_ops_have_the_category_of_what_they_do(category: str) -> None:
    names = [name for name, of in expected() if of == category]
    assert {name: category_of(name) for name in names} == dict.fromkeys(names, category)


def test_device_work_has_the_category_that_its_name_tells() -> None:
    assert {name: category_of(name, True) for name in KERNELS} == KERNELS


CLASSES = re.findall(r'^FS_KERNEL_PATTERN\((\w+), "(.+?)"\)', (ROOT / "csrc/work/kernel_class.def").read_text(), re.M)
PATTERNS = re.findall(
    r'^FS_CATEGORY_PATTERN\((\w+), (\w+), "(.+?)"\)', (ROOT / "csrc/work/category.def").read_text(), re.M
)
NAMES = dict(re.findall(r'X\((\w+), "(.+?)"', (ROOT / "csrc/work/category.h").read_text()))
PARTS = [*{part for *_, pattern in CLASSES + PATTERNS for part in pattern.lstrip("^").split("*")}, "triton_", "void "]


def first_fit(name: str, patterns: Iterable[tuple[str, str]]) -> str:
    """Return the value of the first pattern that fits, tried one by one."""
    for value, pattern in patterns:
        text = re.escape(pattern).replace(r"\^", "^").replace(r"\*", ".*")
        if re.search(text, name, re.S):
            return value
    return "OTHER"


@settings(max_examples=60)
@given(st.lists(st.sampled_from(PARTS) | st.text("ab_:(", max_size=3), max_size=6).map("".join))
def test_the_first_pattern_decides(name: str) -> None:
    found = first_fit(name, ((value, pattern) for value, where, pattern in PATTERNS if where != "HOST"))
    kernel = first_fit(name.removeprefix("void "), CLASSES)
    if kernel == "COMMUNICATION":
        found = kernel
    elif found == "OTHER" and kernel in ("TENSOR", "MATRIX"):
        found = "PRODUCT"
    assert _core.category_of(name, True) == NAMES[found]


def test_every_file_of_rules_is_in_the_table() -> None:
    files = [*ROOT.glob("csrc/work/libraries/*.def"), *ROOT.glob("csrc/work/aten/*s.def"), ROOT / "csrc/ops/ops.def"]
    named = {name for name, _ in expected()}
    for path in files:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        rules = {name.rpartition("::")[2] for name in re.findall(r'FS_[A-Z_]+\((?:[A-Z]+, )?"?([\w:]+)', text)}
        known = rules & {name.rpartition("::")[2] for name in named}
        assert known or not text or path.name == "gradients.def", f"{path.name}: add one of its ops"


def test_no_rule_of_a_library_and_no_op_of_flopscope_is_other() -> None:
    """A row moves or computes something, except one that makes a tensor of a pointer."""
    names = {name for name, *_ in _core._library_rules()}
    assert {name for name in names if category_of(name) == "other"} == {"_C::weak_ref_tensor"} & names
    assert [name for name in _core.ops if category_of(f"flopscope::{name}") == "other"] == []


def test_the_list_of_categories_names_series_of_the_page() -> None:
    assert list(OPS) == [name for name, *_ in _core.categories]
    colours = [(series, dark) for _, series, dark, _ in _core.categories]
    assert len(set(colours)) == len(colours), "two categories look the same"
    assert all(1 <= series <= len(_core.series) for series, _ in colours)
    unknown = _core.bounds["unknown"]
    assert _core.series[colours[-1][0] - 1] == (unknown.light, unknown.dark) and colours[-1][1] == 0


def test_a_table_has_the_category_of_each_row() -> None:
    program = Program()
    program.run("aten::_int_mm", 10, 20, 200, [64, 64], [64, 64], kernel="void cutlass_gemm<int>")
    program.run("aten::add_", 250, 260, 200, [64, 64], [64, 64], kernel="void elementwise_kernel<add>")
    program.work("alone", 500, 25)
    table = fs.load_trace(program.text()).key_averages()
    of = {row.key: row.category for row in table}
    assert (of["aten::_int_mm"], of["aten::add_"]) == ("matrix product", "pointwise")
    assert (of["void cutlass_gemm<int>"], of["void elementwise_kernel<add>"]) == ("matrix product", "pointwise")
    assert {row["category"] for row in table.to_dicts()} == {"matrix product", "pointwise"} | set(of.values())
    sums = {row.key: row for row in table.by_category()}
    assert all(row.category == key for key, row in sums.items() if key != "(no op)")
    times = {key: row.self_device_time_total for key, row in sums.items()}
    assert times == {"matrix product": 200, "pointwise": 200, "other": 0, "(no op)": 25}
    product = sums["matrix product"]
    assert product.arithmetic_intensity == product.flops / product.bytes_total_moved > 0


def test_advice_sees_the_categories() -> None:
    from flopscope.answers.findings import is_product

    program = Program()
    program.run("aten::_int_mm", 10, 20, 200, [64, 64], [64, 64], kernel="gemm")
    program.run("vllm::int8_scaled_mm_func", 250, 260, 200, [64, 64], [64, 64], kernel="gemm")
    ops = {op.key: op for op in analysis_of(fs.load_trace(program.text()), "accounting", None).ops}
    assert ops["aten::_int_mm"].category == ops["vllm::int8_scaled_mm_func"].category == "matrix product"
    assert is_product(ops["aten::_int_mm"]), "torch's switches reach it"
    assert not is_product(ops["vllm::int8_scaled_mm_func"]), "torch's switches do not"
