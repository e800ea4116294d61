/* The CPU loops for AVX-512 F, BW, DQ and VL (server processors since 2017). */
#include "ops/cpu/isa.h"

#if FS_ISA_X86

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#endif

#define FS_ISA avx512
#define FS_ISA_LEVEL 2

#include "ops/cpu/pointwise_loops.inc"
#include "ops/cpu/rows_loops.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
