/* The CPU loops for AVX2, FMA and F16C (x86-64 processors since 2013). */
#include "ops/cpu/isa.h"

#if FS_ISA_X86

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define FS_ISA avx2
#define FS_ISA_LEVEL 1

#include "ops/cpu/pointwise_loops.inc"
#include "ops/cpu/rows_loops.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
