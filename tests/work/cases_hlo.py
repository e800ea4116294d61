"""Work of HLO's instructions: FLOPs, those of products among them, bytes read and written, by hand (docs/counting.md).

An instruction is written with the shapes of its operands; a fusion as the lines of its body, operands and result."""

import math
from itertools import product

from helpers.hlo_texts import ADD

NAN = math.nan
UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atanh", "cbrt", "ceil", "cosh", "cosine", "erf", "exponential",
    "exponential-minus-one", "floor", "log", "log-plus-one", "logistic", "negate", "round-nearest-afz",
    "round-nearest-even", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip
BINARY = ["add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract"]
COMPARING = """
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
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
last {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
squares {
  a = f32[] parameter(0)
  b = f32[] multiply(a, a)
  ROOT c = f32[] add(b, a)
}
"""
FUNCTIONS = ADD + COMPARING

# Instruction, FLOPs, bytes read and written
INSTRUCTIONS = [
    *((f"f32[20,30] {opcode}(f32[20,30])", 600, 2400, 2400) for opcode in UNARY),
    *((f"bf16[20,30] {opcode}(bf16[20,30], bf16[20,30])", 600, 2400, 1200) for opcode in BINARY),
    *((f"f32[20,30] {opcode}(f32[20,30])", 0, 2400, 2400) for opcode in (
        "copy", "real", "reverse", "reduce-precision")),
    *((f"s32[20] {opcode}(s32[20], s32[20])", 0, 160, 80)
      for opcode in ("add", "multiply", "and", "xor", "shift-left")),
    ("pred[8] compare(f32[8], f32[8]), direction=LT", 0, 64, 8),
    ("f32[8] select(pred[8], x: f32[8], x)", 0, 40, 32),
    ("f32[8] clamp(a: f32[], f32[8], a)", 8, 36, 32),
    ("bf16[8] convert(f32[8])", 0, 32, 16),
    ("c64[8] complex(x: f32[8], x)", 0, 32, 64),
    ("c64[8] multiply(x: c64[8], x)", 8, 64, 64),
    ("f32[4,8] broadcast(f32[8]), dimensions={1}", 0, 32, 128),
    ("f32[8,2] transpose(f32[2,8]), dimensions={1,0}", 0, 64, 64),
    ("s32[4,8] iota(), iota_dimension=1", 0, 0, 128),
    ("f32[12] pad(f32[8], f32[]), padding=2_2", 0, 36, 48),
    ("f32[12] concatenate(f32[8], f32[4]), dimensions={0}", 0, 48, 48),
    ("f32[2,8] slice(f32[9,8]), slice={[3:5], [0:8]}", 0, 64, 64),
    ("f32[64] rng(a: f32[], a), distribution=rng_uniform", 0, 4, 256),
    ("(u64[2], u32[64]) rng-bit-generator(u64[2]), algorithm=rng_default", 0, 16, 272),
    # a reduction: 1 an input; to the place of the maximum none, as argmax: it compares and selects
    ("f32[20] reduce(f32[20,30], f32[]), dimensions={1}, to_apply=add", 600, 2404, 80),
    ("(f32[20], s32[20]) reduce(f32[20,30], s32[20,30], f32[], s32[]), dimensions={1}, to_apply=larger", 0, 4808, 160),
    # pooling: 1 an element of each window, also where they overlap; its gradient 1 an element
    ("f32[4,16,16,8] reduce-window(f32[4,32,32,8], f32[]), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add",
     4 * 16 * 16 * 8 * 4, 4 * 32 * 32 * 8 * 4 + 4, 4 * 16 * 16 * 8 * 4),
    ("f32[4,32,32,8] reduce-window(f32[4,32,32,8], f32[]), window={size=1x3x3x1 pad=0_0x1_1x1_1x0_0}, to_apply=add",
     4 * 32 * 32 * 8 * 9, 4 * 32 * 32 * 8 * 4 + 4, 4 * 32 * 32 * 8 * 4),
    ("f32[4,32,32,8] select-and-scatter(f32[4,32,32,8], f32[4,16,16,8], f32[]), "
     "window={size=1x2x2x1 stride=1x2x2x1}, select=less, scatter=add",
     4 * 16 * 16 * 8, 4 * 32 * 32 * 8 * 5 + 4, 4 * 32 * 32 * 8 * 4),
    # XLA writes a cumulative sum as windows as long as the dimension, but each is the one before it and an element.
    *((f"f32[64,1000] reduce-window(f32[64,1000], f32[]), window={{size=1x1000 pad=0_0x{pad}}}, to_apply=add", 64000,
       256004, 256000) for pad in ("999_0", "0_999")),
    *((f"f32[64,100] {opcode}(f32[64,100]), dimensions={{1}}, to_apply=less", 0, 25600, 25600)
      for opcode in ("sort", "topk")),
    ("f32[20,30] map(f32[20,30]), dimensions={0,1}, to_apply=squares", 1200, 2400, 2400),
    # 5 n log2 n for n complex points, half of it for real ones
    ("c64[8,1024] fft(c64[8,1024]), fft_type=FFT, fft_length={1024}", 5 * 8 * 1024 * 10, 65536, 65536),
    ("c64[8,1024] fft(c64[8,1024]), fft_type=IFFT, fft_length={1024}", 5 * 8 * 1024 * 10, 65536, 65536),
    ("c64[8,513] fft(f32[8,1024]), fft_type=RFFT, fft_length={1024}", 2.5 * 8 * 1024 * 10, 32768, 8 * 513 * 8),
    ("f32[8,1024] fft(c64[8,513]), fft_type=IRFFT, fft_length={1024}", 2.5 * 8 * 1024 * 10, 8 * 513 * 8, 32768),
    ("c64[8,32,64] fft(c64[8,32,64]), fft_type=FFT, fft_length={32,64}", 5 * 8 * 32 * 64 * 11, 131072, 131072),
    # the leading terms of LAPACK
    ("f64[5,30,30] cholesky(f64[5,30,30]), lower=true", 5 * 30**3 / 3, 5 * 900 * 8, 5 * 900 * 8),
    ("c64[30,30] cholesky(c64[30,30]), lower=true", 4 * 30**3 / 3, 7200, 7200),
    ("f32[5,30,7] triangular-solve(f32[5,30,30], f32[5,30,7]), lower=true", 5 * 30**2 * 7, 5 * 1110 * 4, 5 * 210 * 4),
    # a collective, and what starts asynchronously, reads what it sends and writes its result
    ("f32[64] all-reduce(f32[64]), replica_groups={}, to_apply=add", NAN, 256, 256),
    ("f32[64] all-reduce-start(f32[64]), replica_groups={}, to_apply=add", NAN, 256, 256),
    ("f32[512] all-gather(f32[64]), dimensions={0}", 0, 256, 2048),
    ("(f32[64], f32[512]) all-gather-start(f32[64]), dimensions={0}", 0, 256, 2048),
    ("f32[8] reduce-scatter(f32[64]), dimensions={0}, to_apply=add", NAN, 256, 32),
    ("((f32[64]), f32[8]) reduce-scatter-start(f32[64]), dimensions={0}, to_apply=add", NAN, 256, 32),
    ("f32[64] all-to-all(f32[64]), dimensions={0}", 0, 256, 256),
    ("f32[64] collective-permute(f32[64]), source_target_pairs={{0,1}}", 0, 256, 256),
    ("(f32[64], f32[64], u32[], u32[]) collective-permute-start(f32[64]), source_target_pairs={{0,1}}", 0, 256, 256),
    ("(f32[64], f32[64], u32[]) copy-start(f32[64])", 0, 256, 256),
    ("((f32[64]), f32[16], s32[]) slice-start(f32[64]), slice={[0:16]}", 0, 64, 64),
    ("(f32[64], u32[], token[]) send(f32[64], token[]), channel_id=1", 0, 256, 0),
    ("(f32[64], u32[], token[]) recv(token[]), channel_id=1", 0, 0, 256),
    ("((f32[64]), token[]) infeed(token[])", 0, 0, 256),
    ("token[] outfeed(f32[64], token[]), outfeed_shape=f32[64]", 0, 256, 0),
    # of a copy to or from the host's memory, what this device moves
    ("f32[64]{0:S(5)} copy(f32[64])", 0, 256, 0),
    ("f32[64] copy(f32[64]{0:S(5)})", 0, 0, 256),
    ("(f32[64]{0:S(5)}, f32[64], u32[]) copy-start(f32[64])", 0, 256, 0),
    # unknown: an opcode, and sizes without a limit; with one they count at it
    ("f32[8] frobnicate(f32[64])", NAN, 256, 32),
    ("f32[?,8] negate(f32[?,8])", NAN, NAN, NAN),
    ("f32[<=16,8] negate(f32[<=16,8])", 128, 512, 512),
]  # fmt: skip

# Products ------------------------------------------------------------------------------------------------------------

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHES = "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, rhs_contracting_dims={2}"
SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels="
STRIDED = "window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"
GEMM = (
    ', backend_config={"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{'
    '"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],'
    '"rhs_batch_dimensions":[]},"epilogue":"DEFAULT"}}'
)


def target(name: str, more: str = "") -> str:
    return f'custom_call_target="{name}"{more}'


def gemm(name: str, operands: str) -> str:
    return f"(bf16[32,24], s8[33554432]) custom-call(bf16[32,64], bf16[64,24]{operands}), {target(name, GEMM)}"


def seen(queries: int, keys: int, window: int = 0) -> int:
    """The pairs that a causal mask leaves, one by one."""
    first = [max(0, i - window + 1) if window else 0 for i in range(queries)]
    return sum(first[i] <= j <= i for i in range(queries) for j in range(keys))


def attention(mask: str, pairs: int, window: int = 0, queries: int = 128, backward: bool = False) -> tuple:
    """Return the row of fused attention of 2 x 6 heads of 64: 2 products forward, 5 backward."""
    q, k, stats = f"bf16[2,6,{queries},64]", "bf16[2,6,128,64]", f"f32[2,6,{queries}]"
    config = (
        ', backend_config={"cudnn_fmha_backend_config":{"fmha_scale":0.125,"intermediate_tensor_shape":{'
        f'"element_type":"BF16","dimensions":["2","6","{queries}","128"]}},"mask_type":"{mask}",'
        f'"sliding_window_length":{window}}}}}'
    )
    given, kept = 2 * 12 * 64 * (queries + 2 * 128), 4 * 12 * queries
    if backward:
        call = f"({q}, {k}, {k}, u8[1024]) custom-call({q}, {k}, {k}, {stats}, {q}, {q}), "
        own = 2 * 12 * 64 * queries
        return call + target("__cudnn$fmhaSoftmaxBackward", config), 10 * 12 * pairs * 64, given + 2 * own + kept, given
    call = f"({q}, {stats}, u8[0]) custom-call({q}, {k}, {k}), "
    written = 2 * 12 * 64 * queries + kept
    return call + target("__cudnn$fmhaSoftmax", config), 4 * 12 * pairs * 64, given, written


# Instruction, FLOPs, all of products, bytes read and written
PRODUCTS = [
    (f"f32[7,3] dot(f32[7,5], f32[5,3]), {DOT}", 2 * 7 * 5 * 3, 200, 84),
    ("f32[7,3] dot(f32[5,7], f32[3,5]), lhs_contracting_dims={0}, rhs_contracting_dims={1}", 2 * 7 * 5 * 3, 200, 84),
    (f"f32[2,6,7,3] dot(bf16[2,6,7,5], bf16[2,6,5,3]), {BATCHES}", 2 * 12 * 7 * 5 * 3, 1200, 1008),
    ("f32[7,3] dot(f32[7,5,4], f32[5,4,3]), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}", 2 * 7 * 20 * 3,
     800, 84),
    ("f32[] dot(f32[7], f32[7]), lhs_contracting_dims={0}, rhs_contracting_dims={0}", 14, 56, 4),
    ("f32[7,3] dot(f32[7], f32[3]), lhs_contracting_dims={}, rhs_contracting_dims={}", 42, 40, 84),
    (f"s32[7,3] dot(s8[7,5], s8[5,3]), {DOT}", 2 * 7 * 5 * 3, 50, 84),
    (f"c64[7,3] dot(c64[7,5], c64[5,3]), {DOT}", 8 * 7 * 5 * 3, (35 + 15) * 8, 21 * 8),  # four real ones
    (f"f32[9,9] dot(a: f32[9,9], a), {DOT}", 2 * 9**3, 324, 324),  # reads it once
    # 2 images of 8 x 8, 3 x 3 taps, 16 features to 24, by labels
    *((f"bf16[{out}] convolution(bf16[{image}], bf16[{taps}]), {SAME}{labels}", 2 * 2 * 64 * 9 * 16 * 24,
       2 * (2048 + 3456), 2 * 3072) for image, taps, out, labels in (
        ("2,8,8,16", "3,3,16,24", "2,8,8,24", "b01f_01io->b01f"),
        ("2,16,8,8", "24,16,3,3", "2,24,8,8", "bf01_oi01->bf01"),
        ("8,8,16,2", "3,3,16,24", "8,8,24,2", "01fb_01io->01fb"))),
    # 4 groups: each output feature of 4 input features; each of its own
    (f"bf16[2,8,8,24] convolution(bf16[2,8,8,16], bf16[3,3,4,24]), {SAME}b01f_01io->b01f, feature_group_count=4",
     2 * 2 * 64 * 9 * 4 * 24, 2 * (2048 + 864), 2 * 3072),
    (f"bf16[2,8,8,16] convolution(bf16[2,8,8,16], bf16[3,3,1,16]), {SAME}b01f_01io->b01f, feature_group_count=16",
     2 * 2 * 64 * 9 * 16, 2 * (2048 + 144), 2 * 2048),
    # 8 images in 4 groups of 2, each convolved by 6 of 24 filters
    (f"bf16[2,8,8,24] convolution(bf16[8,8,8,16], bf16[3,3,16,24]), {SAME}b01f_01io->b01f, batch_group_count=4",
     2 * 2 * 64 * 9 * 16 * 24, 2 * (8192 + 3456), 2 * 3072),
    # a stride beyond the window skips elements
    ("f32[2,4,4,24] convolution(f32[2,8,8,16], f32[1,1,16,24]), window={size=1x1 stride=2x2}, "
     "dim_labels=b01f_01io->b01f",
     2 * 2 * 16 * 16 * 24, 2 * 8 * 8 * 16 * 4 / 4 + 16 * 24 * 4, 2 * 16 * 24 * 4),
    # cuDNN's count as the forward one, without their workspace
    *((f"(f32[{out}], u8[4096]) custom-call(f32[{first}], f32[{second}]{bias}), {STRIDED}, {target('__cudnn$' + name)}",
       2 * 2 * 24 * 5 * 5 * 16 * 9, 4 * read, 4 * written) for name, first, second, out, bias, read, written in (
        ("convForward", "2,16,9,9", "24,16,3,3", "2,24,5,5", "", 2592 + 3456, 1200),
        ("convForwardGraph", "2,16,9,9", "24,16,3,3", "2,24,5,5", "", 2592 + 3456, 1200),
        ("convBiasActivationForward", "2,16,9,9", "24,16,3,3", "2,24,5,5", ", f32[24]", 2592 + 3456 + 24, 1200),
        ("convBackwardInput", "2,24,5,5", "24,16,3,3", "2,16,9,9", "", 1200 + 3456, 2592),
        ("convBackwardFilter", "2,16,9,9", "2,24,5,5", "24,16,3,3", "", 2592 + 1200, 3456))),
    # cuBLAS's count without their epilogue and workspace: a bias, a sum with c, scales
    *((gemm(name, more), 2 * 32 * 64 * 24, 2 * (32 * 64 + 64 * 24) + read, 2 * 32 * 24) for name, more, read in (
        ("__cublas$gemm", "", 0), ("__cublas$lt$matmul", "", 0), ("__cublas$lt$matmul", ", bf16[24]", 48),
        ("__cublas$lt$matmul", ", bf16[32,24]", 1536), ("__cublas$lt$matmul$f8", ", one: bf16[], one", 2))),
    (f"f32[4,32,24] custom-call(f32[4,32,64], f32[4,64,24]), {target('__onednn$matmul')}", 2 * 4 * 32 * 64 * 24,
     4 * (8192 + 6144), 4 * 3072),
    attention("NO_MASK", 128 * 128),
    attention("NO_MASK", 128 * 128, backward=True),
    attention("CAUSAL", seen(128, 128)),
    attention("CAUSAL", seen(128, 128), backward=True),
    attention("CAUSAL", seen(96, 128), queries=96),
    attention("CAUSAL", seen(128, 128, 16), window=16),
]  # fmt: skip


def convolutions() -> list[tuple[str, float]]:
    """Return convolutions of one dimension, and their FLOPs: outputs and taps that meet no zero between elements."""
    found = []
    for size, taps, stride, low, high, dilation, between in product(
        (5, 8), (1, 3, 4), (1, 2, 3), (0, 1, 2), (0, 2), (1, 2, 3), (1, 2)
    ):
        room = (size - 1) * dilation + 1 + low + high - ((taps - 1) * between + 1)
        if room < 0:
            continue
        outputs = room // stride + 1
        met = sum((o * stride + k * between - low) % dilation == 0 for o, k in product(range(outputs), range(taps)))
        window = f"size={taps} stride={stride} pad={low}_{high} lhs_dilate={dilation} rhs_dilate={between}"
        call = f"f32[2,{outputs},4] convolution(f32[2,{size},6], f32[{taps},6,4]), window={{{window}}}"
        found.append((f"{call}, dim_labels=b0f_0io->b0f", 2 * 2 * 6 * 4 * min(met, size * taps)))
    return found


def called(name: str, operands: str, result: str, config: str = "") -> str:
    return f"{result} custom-call({operands}), {target(name, config)}"


def norm(kind: str) -> str:
    config = f', backend_config={{"cudnn_norm_backend_config":{{"epsilon":1e-5,"kind":"{kind}"}}}}'
    return called("__cudnn$norm", "f32[64,128,1,1], f32[1,128,1,1]", "(f32[64,128,1,1], u8[256])", config)


# Calls that are no products: FLOPs, bytes read and written
LIBRARY = [
    (called("cusolver_potrf_ffi", "f32[3,30,30]", "(f32[3,30,30], s32[3])"), 3 * 30**3 / 3, 10800, 10812),
    (called("lapack_spotrf_ffi", "f32[30,30]", "(f32[30,30], s32[])"), 30**3 / 3, 3600, 3604),
    (called("cusolver_getrf_ffi", "f32[40,30]", "(f32[40,30], s32[30], s32[])"), 40 * 900 - 30**3 / 3, 4800, 4924),
    (called("cusolver_geqrf_ffi", "f32[40,30]", "(f32[40,30], f32[30])"), 2 * 40 * 900 - 2 * 30**3 / 3, 4800, 4920),
    (called("cusolver_orgqr_ffi", "f32[40,30]", "f32[40,30]"), 2 * 40 * 900 - 2 * 30**3 / 3, 4800, 4800),
    (called("cusolver_syevd_ffi", "f32[30,30]", "(f32[30,30], f32[30], s32[])"), NAN, 3600, 3724),
    (called("__cub$DeviceRadixSort", "f32[900]", "(f32[900], u8[4096])"), 0, 3600, 3600),
    (called("TopK", "f32[20,30]", "(f32[20,5], s32[20,5])"), 0, 2400, 800),
    (f"f32[32,24] custom-call(f32[32,64], f32[64,24]), {target('__cublas$gemm')}", NAN, 14336, 3072),  # of unknown axes
    (called("xla_ffi_python_gpu_callback", "f32[30]", "f32[30]"), 0, 120, 120),
    *((called(name, "f32[30]", "f32[30]"), NAN, 120, 120)
      for name in ("triton_kernel_call", "__gpu$xla.gpu.triton", "mosaic_gpu", "nobody_knows")),
    (norm("LAYER_FWD_TRAIN"), 7 * 64 * 128, 4 * 65 * 128, 4 * 64 * 128),  # as layer norm with weight and bias
    (norm("LAYER_BWD"), 13 * 64 * 128, 4 * 65 * 128, 4 * 64 * 128),
]  # fmt: skip

# Fusions -------------------------------------------------------------------------------------------------------------

X = "x: f32[8,16]"
CACHE = "cache: bf16[4,1024,64], new: bf16[4,1,64], i: s32[]"
ROWS = "x: f32[1000,64], i: s32[10,1], u: f32[10,64]"
SCATTERED = (
    "y = f32[1000,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply="
)
GATHERED = (
    "y = f32[3,16] gather(x, r), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,16}"
)
ROW = "s = f32[1,16] slice({}), slice={{[3:4], [0:16]}}"
INNER = """
inner {
  p = f32[8,16] parameter(0)
  q = f32[16] parameter(1)
  s = f32[1,16] slice(p), slice={[0:1], [0:16]}
  r = f32[16] bitcast(s)
  ROOT m = f32[16] multiply(r, q)
}
"""
CONFIG = (
    '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    '"rhs_contracting_dimensions":["0"]}}}'
)

# Lines of the body, operands, result; FLOPs, bytes read and written
FUSIONS = [
    # its body is computed, its parameters and result moved once
    (["e = f32[8,16] exponential(x)", "b = f32[8,16] broadcast(y), dimensions={1}", "s = f32[8,16] multiply(e, b)",
      "t = f32[8,16] add(s, e)"], X + ", y: f32[16]", "f32[8,16]", 3 * 128, 4 * (128 + 16), 4 * 128),
    # of what it reads, what its result needs
    ([ROW.format("x"), "y = f32[1,16] negate(s)"], X, "f32[1,16]", 16, 64, 64),
    (["n = f32[8,16] negate(x)", ROW.format("n")], X, "f32[1,16]", 16, 64, 64),
    (["a = f32[2,16] slice(x), slice={[0:2], [0:16]}", "b = f32[2,16] slice(x), slice={[4:6], [0:16]}",
      "y = f32[2,16] add(a, b)"], X, "f32[2,16]", 32, 256, 128),
    (["y = f32[2,16] dynamic-slice(x, i, i), dynamic_slice_sizes={2,16}"], X + ", i: s32[]", "f32[2,16]", 0, 132, 128),
    ([GATHERED], X + ", r: s32[3,1]", "f32[3,16]", 0, 192 + 12, 192),
    ([ROW.format("x"), "r = f32[16] bitcast(s)", "b = f32[8,16] broadcast(r), dimensions={1}",
      "y = f32[8,16] add(x, b)"], X, "f32[8,16]", 128, 512, 512),  # a second use needs all
    (["y = f32[128] bitcast(x)"], X, "f32[128]", 0, 512, 512),
    (["t = f32[16,8] transpose(x), dimensions={1,0}", "y = f32[16,2] slice(t), slice={[0:16], [0:2]}"], X, "f32[16,2]",
     0, 128, 128),
    (["z = f32[] constant(0)", "y = f32[8,20] pad(x, z), padding=0_0x2_2"], X, "f32[8,20]", 0, 512, 640),
    (["z = f32[] constant(0)", "y = f32[8,16] broadcast(z), dimensions={}"], X, "f32[8,16]", 0, 0, 512),
    (["y = f32[16,16] concatenate(x, x), dimensions={0}"], X, "f32[16,16]", 0, 512, 1024),
    (["z = f32[] constant(0)", "y = f32[8] reduce(x, z), dimensions={1}, to_apply=add"], X, "f32[8]", 128, 512, 32),
    (["z = f32[] constant(0)", "r = f32[8] reduce(x, z), dimensions={1}, to_apply=add",
      "y = f32[4] slice(r), slice={[0:4]}"], X, "f32[4]", 64, 256, 16),  # half of a reduction needs half of its input
    (["n = f32[8,16] negate(x)", "e = f32[8,16] exponential(x)", "y = (f32[8,16], f32[8,16]) tuple(n, e)"], X,
     "(f32[8,16], f32[8,16])", 256, 512, 1024),
    # an update in place reads and writes only the update, and may read the part before; through bitcasts; twice
    (["z = s32[] constant(0)", "y = bf16[4,1024,64] dynamic-update-slice(cache, new, z, i, z)"], CACHE,
     "bf16[4,1024,64]", 0, 512 + 4, 512),
    (["z = s32[] constant(0)", "old = bf16[4,1,64] dynamic-slice(cache, z, i, z), dynamic_slice_sizes={4,1,64}",
      "sum = bf16[4,1,64] add(old, new)", "y = bf16[4,1024,64] dynamic-update-slice(cache, sum, z, i, z)"], CACHE,
     "bf16[4,1024,64]", 256, 1024 + 4, 512),
    (["z = s32[] constant(0)", "flat = bf16[4096,64] bitcast(cache)", "one = bf16[4,64] bitcast(new)",
      "updated = bf16[4096,64] dynamic-update-slice(flat, one, i, z)", "y = bf16[4,1024,64] bitcast(updated)"], CACHE,
     "bf16[4,1024,64]", 0, 512 + 4, 512),
    (["z = s32[] constant(0)", "a = bf16[4,1024,64] dynamic-update-slice(cache, new, z, i, z)",
      "y = bf16[4,1024,64] dynamic-update-slice(a, new, z, z, z)"], CACHE, "bf16[4,1024,64]", 0, 512 + 4, 1024),
    # of a computed array it writes all; a reduction of the updated array reads it, but the row
    (["z = s32[] constant(0)", "zero = bf16[] constant(0)", "empty = bf16[4,1024,64] broadcast(zero), dimensions={}",
      "y = bf16[4,1024,64] dynamic-update-slice(empty, new, z, i, z)"], "new: bf16[4,1,64], i: s32[]",
     "bf16[4,1024,64]", 0, 512 + 4, 4 * 1024 * 64 * 2),
    (["z = s32[] constant(0)", "zero = f32[] constant(0)", "a = f32[8,16] dynamic-update-slice(x, u, i, z)",
      "y = f32[8] reduce(a, zero), dimensions={1}, to_apply=add"], X + ", u: f32[1,16], i: s32[]", "f32[8]", 128,
     512 + 4, 32),
    # a scatter in place reads what it adds to, and nothing that it replaces; each element is written once
    ([SCATTERED + "add"], ROWS, "f32[1000,64]", 640, 2 * 2560 + 40, 2560),
    ([SCATTERED + "last"], ROWS, "f32[1000,64]", 0, 2560 + 40, 2560),
    ([SCATTERED.replace("1000", "10") + "add"], "x: f32[10,64], i: s32[1000,1], u: f32[1000,64]", "f32[10,64]", 64000,
     2560 + 256000 + 4000, 2560),
    # a nested fusion needs what its body needs; only what is needed is computed
    (["n = f32[16] fusion(x, y), kind=kLoop, calls=inner", "t = f32[16] tanh(n)"], X + ", y: f32[16]", "f32[16]", 32,
     128, 64),
    (["e = f32[8,16] exponential(x)", ROW.format("e")], X, "f32[1,16]", 16, 64, 64),
]  # fmt: skip

# The same with FLOPs of products among them
FUSED_PRODUCTS = [
    (["u = bf16[32,64] convert(x)", f"d = bf16[32,24] dot(u, w), {DOT}", "t = bf16[32,24] tanh(d)"],
     "x: s8[32,64], w: bf16[64,24]", "bf16[32,24]", 2 * 32 * 64 * 24, 32 * 24, 32 * 64 + 2 * 64 * 24, 2 * 32 * 24),
    # XLA's address computations: a product on a slice of an operand, written into a slice of its result
    (["s = f32[1,32,64] slice(x), slice={[2:3], [0:32], [0:64]}", "a = f32[32,64] bitcast(s)",
      f"c = (f32[32,24], s8[1024]) custom-call(a, w), {target('__cublas$gemm')}, backend_config={CONFIG}",
      "g = f32[32,24] get-tuple-element(c), index=0", "b = f32[1,32,24] bitcast(g)", "z = s32[] constant(0)",
      "y = f32[8,32,24] dynamic-update-slice(o, b, i, z, z)"],
     "x: f32[8,32,64], w: f32[64,24], o: f32[8,32,24], i: s32[]", "f32[8,32,24]", 2 * 32 * 64 * 24, 0,
     4 * (32 * 64 + 64 * 24 + 1), 4 * 32 * 24),
    # scratch memory counts nothing
    ([f"d = f32[32,24] dot(a, b), {DOT}", f"s = s8[4096] custom-call(), {target('__nop')}",
      "t = (f32[32,24], s8[4096]) tuple(d, s)"], "a: f32[32,64], b: f32[64,24]", "(f32[32,24], s8[4096])",
     2 * 32 * 64 * 24, 0, 4 * (32 * 64 + 64 * 24), 4 * 32 * 24),
]  # fmt: skip
