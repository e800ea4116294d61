/* Units and the choice of the peak that bounds a piece of work; the occupancy that the limits of a device allow;
 * classes of kernels by their names. */
#include "device/occupancy.h"
#include "device/peaks.h"
#include "tests/c/events.h"
#include "work/kernel_class.h"
#include "work/work.h"

/* Units ------------------------------------------------------------------------------------------------------------ */

TEST(work_is_bounded_by_the_unit_it_runs_on)
{
    static const struct {
        fs_dtype dtype;
        bool product, tf32;
        fs_device_kind device;
        fs_unit preferred, fallback;
    } known[] = {
        {FS_FLOAT32, false, true, FS_CUDA, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_FLOAT16, false, false, FS_CUDA, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_BFLOAT16, false, false, FS_CUDA, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_FLOAT64, false, false, FS_CUDA, FS_UNIT_FP64, FS_UNIT_FP64},
        {FS_INT64, false, false, FS_CUDA, FS_UNIT_NONE, FS_UNIT_NONE},
        {FS_DTYPE_NONE, false, false, FS_CUDA, FS_UNIT_NONE, FS_UNIT_NONE},
        {FS_FLOAT32, true, false, FS_CUDA, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_FLOAT32, true, true, FS_CUDA, FS_UNIT_TF32_TENSOR, FS_UNIT_FP32},
        {FS_FLOAT64, true, true, FS_CUDA, FS_UNIT_FP64_TENSOR, FS_UNIT_FP64},
        {FS_FLOAT16, true, false, FS_CUDA, FS_UNIT_FP16_TENSOR, FS_UNIT_FP32},
        {FS_BFLOAT16, true, true, FS_CUDA, FS_UNIT_BF16_TENSOR, FS_UNIT_FP32},
        {FS_INT8, true, false, FS_CUDA, FS_UNIT_INT8_TENSOR, FS_UNIT_INT8_TENSOR},
        {FS_INT8, true, false, FS_CPU, FS_UNIT_INT8_TENSOR, FS_UNIT_INT8_TENSOR},
        {FS_FLOAT8_E5M2, true, false, FS_CPU, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_FLOAT16, true, true, FS_CPU, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_FLOAT32, true, true, FS_CPU, FS_UNIT_FP32, FS_UNIT_FP32},
        {FS_FLOAT64, true, false, FS_CPU, FS_UNIT_FP64, FS_UNIT_FP64},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        fs_unit_choice choice = fs_unit_choose(known[i].dtype, known[i].product, known[i].tf32, known[i].device);
        CHECK(choice.preferred == known[i].preferred && choice.fallback == known[i].fallback, "choice %zu", i);
    }
}

TEST(a_missing_unit_falls_back_and_unknown_stays_unknown)
{
    fs_peaks known = peaks(7e12, 1e12, 1), none;
    fs_unit used = FS_UNIT_FP8_TENSOR;
    fs_unit_choice product = fs_unit_choose(FS_FLOAT64, true, false, FS_CUDA);
    fs_peaks_unknown(&none);
    CHECK(isnan(none.bandwidth) && isnan(none.launch_ns));
    CHECK(isnan(fs_peaks_flops(&none, product, &used)) && used == FS_UNIT_NONE);
    known.flops[FS_UNIT_FP64_TENSOR] = 19e12;
    CHECK(fs_peaks_flops(&known, product, &used) == 19e12 && used == FS_UNIT_FP64_TENSOR);
    CHECK(fs_peaks_flops(&known, product, NULL) == 19e12);
    known.flops[FS_UNIT_FP64_TENSOR] = NAN;
    CHECK(fs_peaks_flops(&known, product, &used) == 7e12 && used == FS_UNIT_FP64);
    CHECK(isnan(fs_peaks_flops(&known, fs_unit_choose(FS_INT32, false, false, FS_CUDA), &used)));
    CHECK(used == FS_UNIT_NONE);
}

TEST(time_between_events_is_compared_with_the_launch_time)
{
    uint32_t add = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), FS_NONE, 0, 20);
    work(FS_EVENT_INTERVAL, "flopscope::add", 0, 0, FS_NONE, add, 1000, 4000);
    fs_peaks gpu = peaks(1e13, 4e12, 400);
    gpu.launch_ns = 2000;
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_LAUNCH);
    fs_table_destroy(table);
    gpu.launch_ns = 400;
    gpu.kernel_ns = 2000;
    table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_MEMORY);
    fs_table_destroy(table);
}

/* Kernels ---------------------------------------------------------------------------------------------------------- */

static const fs_device_facts h200 = {
    .compute_major = 9,
    .compute_minor = 0,
    .max_threads_per_block = 1024,
    .max_threads_per_sm = 2048,
    .registers_per_block = 65536,
    .registers_per_sm = 65536,
    .warp_size = 32,
    .shared_memory_per_block = 49152,
    .shared_memory_per_block_optin = 232448,
    .shared_memory_per_sm = 233472,
    .sm_count = 132,
    .max_blocks_per_sm = -1,
};

/* Return a device with the registers of an H200 and the given other limits. */
static fs_device_facts device(int major, int minor, int64_t threads, int64_t shared_per_sm)
{
    fs_device_facts facts = h200;
    facts.compute_major = major;
    facts.compute_minor = minor;
    facts.max_threads_per_sm = threads;
    facts.shared_memory_per_sm = shared_per_sm;
    facts.shared_memory_per_block_optin = shared_per_sm - 1024;
    return facts;
}

static fs_launch launch(uint32_t threads, uint32_t registers, uint32_t shared)
{
    return (fs_launch){.grid = {1, 1, 1}, .block = {threads, 1, 1}, .registers = registers, .static_shared = shared};
}

static void check_blocks(int line, fs_launch kernel, fs_device_facts facts, double expected)
{
    double blocks = fs_occupancy_residency(&kernel, &facts).blocks;
    CHECK(blocks == expected, "line %d: %g blocks", line, blocks);
}
#define CHECK_BLOCKS(...) check_blocks(__LINE__, __VA_ARGS__)

TEST(what_bounds_the_blocks_on_an_sm)
{
    fs_device_facts t4 = device(7, 5, 1024, 65536), ga102 = device(8, 6, 1536, 102400),
                    ad102 = device(8, 9, 1536, 102400);
    CHECK_BLOCKS(launch(256, 16, 0), h200, 8);  /* 2048 / 256 */
    CHECK_BLOCKS(launch(1000, 16, 0), h200, 2); /* 1000 threads take 32 warps */
    CHECK_BLOCKS(launch(1025, 16, 0), h200, 0); /* more than a block may have */
    CHECK_BLOCKS(launch(32, 16, 0), h200, 32);  /* 64 warps would fit */
    CHECK_BLOCKS(launch(32, 16, 0), t4, 16);
    CHECK_BLOCKS(launch(32, 16, 0), ga102, 16);
    CHECK_BLOCKS(launch(32, 16, 0), ad102, 24);
    /* 255 registers take 8192 a warp: 2 warps a quarter, 8 an SM. */
    CHECK_BLOCKS(launch(96, 255, 0), h200, 2);
    CHECK_BLOCKS(launch(160, 192, 0), h200, 1); /* 6144 a warp: 2 a quarter, not 10 an SM */
    CHECK_BLOCKS(launch(288, 192, 0), h200, 0); /* 9 warps are allocated as 12 of 6144 */
    CHECK_BLOCKS(launch(128, 33, 0), h200, 12); /* 1280 a warp: 12 a quarter */
    /* In units of 256 bytes before 8.0; since then of 128, plus 1 KiB per block for the driver. */
    CHECK_BLOCKS(launch(64, 16, 16384), t4, 4);
    CHECK_BLOCKS(launch(64, 16, 16385), t4, 3);
    CHECK_BLOCKS(launch(64, 16, 24576), ga102, 4);
    CHECK_BLOCKS(launch(64, 16, 24577), ga102, 3);
    CHECK_BLOCKS(launch(64, 16, 232448), h200, 1);
    CHECK_BLOCKS(launch(64, 16, 232449), h200, 0);
    fs_device_facts limited = h200;
    limited.max_blocks_per_sm = 5;
    CHECK_BLOCKS(launch(32, 16, 0), limited, 5);
    fs_launch both = launch(64, 16, 20000);
    both.dynamic_shared = 30000; /* 50000 and the driver's 1024 are 51072 in steps of 128: 4.6 times in 233472 */
    CHECK_BLOCKS(both, h200, 4);
}

TEST(missing_facts_give_unknown_occupancy)
{
    fs_launch kernel = launch(128, 32, 0), copy = {.context = 1};
    fs_occupancy estimate = fs_occupancy_estimate(&copy, &h200);
    CHECK(isnan(estimate.blocks_per_sm) && isnan(estimate.warps_per_sm) && isnan(estimate.achieved_pct));
    estimate = fs_occupancy_estimate(&kernel, &fs_device_facts_missing);
    CHECK(isnan(estimate.blocks_per_sm) && isnan(estimate.warps_per_sm) && isnan(estimate.achieved_pct));

    /* Each fact that the number of blocks depends on; the maximum of blocks follows from the architecture. */
    static const size_t needed[] = {
        offsetof(fs_device_facts, compute_major),        offsetof(fs_device_facts, max_threads_per_block),
        offsetof(fs_device_facts, max_threads_per_sm),   offsetof(fs_device_facts, registers_per_block),
        offsetof(fs_device_facts, registers_per_sm),     offsetof(fs_device_facts, warp_size),
        offsetof(fs_device_facts, shared_memory_per_sm), offsetof(fs_device_facts, shared_memory_per_block_optin),
    };
    for (size_t i = 0; i < COUNT_OF(needed); i++) {
        fs_device_facts facts = h200;
        memcpy((char *)&facts + needed[i], &(int64_t){-1}, sizeof(int64_t));
        CHECK(isnan(fs_occupancy_residency(&kernel, &facts).blocks), "fact %zu", i);
        estimate = fs_occupancy_estimate(&kernel, &facts);
        CHECK(isnan(estimate.achieved_pct) && estimate.blocks_per_sm == (double)(1 / 132.0f), "fact %zu", i);
    }
    fs_device_facts later = h200;
    later.compute_major = 99;
    fs_residency unknown = fs_occupancy_residency(&kernel, &later);
    CHECK(isnan(unknown.blocks) && isnan(unknown.percent) && unknown.limit == FS_OCCUPANCY_LIMIT_NONE);
}

/* Names from CUPTI and torch's traces. */
TEST(classes_of_real_names)
{
    static const struct {
        fs_kernel_class class;
        const char *name;
    } known[] = {
        {FS_KERNEL_COMMUNICATION, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
        {FS_KERNEL_COMMUNICATION, "ncclKernel_AllReduce_RING_LL_Sum_float"},
        {FS_KERNEL_COMMUNICATION, "void cross_device_reduce_2stage<__nv_bfloat16, 8>(RankData*, RankSignals)"},
        {FS_KERNEL_COMMUNICATION, "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16>(int)"},
        {FS_KERNEL_TENSOR, "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT"},
        {FS_KERNEL_TENSOR, "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"},
        {FS_KERNEL_TENSOR, "turing_fp16_h1688gemm_128x64_ldg8_nn"},
        {FS_KERNEL_TENSOR, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"},
        {FS_KERNEL_TENSOR, "turing_int8_i8816gemm_int8_128x128_ldg16_stages_64x4_t"},
        {FS_KERNEL_TENSOR, "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x64_64x6_nt_align8>(Params)"},
        {FS_KERNEL_TENSOR, "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(Params)"},
        {FS_KERNEL_TENSOR,
         "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8"},
        {FS_KERNEL_TENSOR, "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x32"},
        {FS_KERNEL_TENSOR, "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_4x1x1"},
        {FS_KERNEL_TENSOR,
         "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>, true>(Params)"},
        {FS_KERNEL_TENSOR, "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>(Params)"},
        {FS_KERNEL_TENSOR, "void cutlass::device_kernel<flash::FlashAttnFwdSm90<CollectiveMainloopFwd>>(Params)"},
        {FS_KERNEL_TENSOR, "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)"},
        {FS_KERNEL_TENSOR, "fmha_cutlassF_f16_aligned_64x64_rf_sm75(PyTorchMemEffAttention::Params)"},
        {FS_KERNEL_TENSOR,
         "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_6layout40ColumnMajorTensorOpMult"},
        {FS_KERNEL_MATRIX, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4"},
        {FS_KERNEL_MATRIX, "volta_sgemm_128x64_nn"},
        {FS_KERNEL_MATRIX, "ampere_sgemm_32x128_tn"},
        {FS_KERNEL_MATRIX, "ampere_scudnn_128x64_relu_medium_nn_v1"},
        {FS_KERNEL_MATRIX, "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)"},
        {FS_KERNEL_MATRIX, "fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::Params)"},
        {FS_KERNEL_OTHER, "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(Params)"},
        {FS_KERNEL_OTHER, "void flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 64, 128>>(Params)"},
        {FS_KERNEL_OTHER, "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"},
        {FS_KERNEL_OTHER, "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<xmma__5x_cudnn::"
                          "implicit_gemm::wgrad_indexed::Warp_specialized_params>(int, bool)"},
        {FS_KERNEL_OTHER,
         "void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<Shape>>(int)"},
        {FS_KERNEL_OTHER, "void layer_norm_axis884(float*)"}, /* not the shape of an instruction, which follows a '_' */
        {FS_KERNEL_OTHER, "my_nccl_like_kernel"},
        {FS_KERNEL_OTHER, "triton_poi_fused__to_copy_9"},
        {FS_KERNEL_MFMA, "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1"},
        {FS_KERNEL_MFMA, "Cijk_Ailk_Bljk_SB_MT128x96x16_MI32x32x1x2_SN_1LDSB1_APM1"},
        {FS_KERNEL_MATRIX, "Cijk_Ailk_Bljk_SB_MT64x32x8_SE_1LDSB0_APM1_TT4_4_MIAV0"},
        {FS_KERNEL_OTHER, "Cijk_SB_BiasS_HAS_ScaleAlphaVec_PostGSU4_VW4"},
        {FS_KERNEL_MFMA, "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8"},
        {FS_KERNEL_MFMA, "_ZN2ck16tensor_operation6device12_GLOBAL__N_137kernel_grouped_conv_fwd_xdl_cshuffle_v3"},
        {FS_KERNEL_MFMA, "void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>(int)"},
        {FS_KERNEL_OTHER, "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16>(int)"},
        {FS_KERNEL_MFMA, "aiter::fmha_fwd_hd128_bf16_rtz"},
        {FS_KERNEL_UNKNOWN, "triton_tem_fused_addmm_5"},
        {FS_KERNEL_UNKNOWN, "scaled_2_bias_matmul_kernel_with_block_pointers_0d1d2d3d4"},
        {FS_KERNEL_UNKNOWN, "_attn_fwd"},
        {FS_KERNEL_OTHER, "triton_red_fused_add_addmm_mul_native_layer_norm_3"},
        {FS_KERNEL_OTHER, "triton_poi_fused__scaled_dot_product_flash_attention_3_0d1d2d3de"},
        {FS_KERNEL_OTHER, "void "},
        {FS_KERNEL_OTHER, ""},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        fs_kernel_class class = fs_kernel_class_of(known[i].name);
        CHECK(class == known[i].class, "%s: %d", known[i].name, class);
    }
}
