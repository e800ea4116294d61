/* Functions for results of 16 bits, in float32: an error of at most 0.05 ulp of a float16 (0.15 for pow and gelu)
 * before the result is rounded, at half the instructions of CUDA's own, so that 16-bit ops stay bound by memory.
 * Included before ops/pointwise.def, whose rows then use these; rows that would divide follow in FS_SHORT_ROWS.
 *
 * FS_SHORT_FTZ is ".ftz" where the type's numbers are normal float32 (float16), "" where they may not be (bfloat16).
 * Coefficients are minimax fits in the relative error, with the stated bounds.
 */
#ifndef FS_KERNELS_SHORT_MATH_CUH
#define FS_KERNELS_SHORT_MATH_CUH

#include <math.h>

#include "kernels/types.cuh"

/* One instruction of the special function unit each, within 2 ulp of float32; log2 within 2^-22 near 1. */
#define FS_SPECIAL(name, instruction)                            \
    FS_DEVICE float name(float x)                                \
    {                                                            \
        float result;                                            \
        asm(instruction ".f32 %0, %1;" : "=f"(result) : "f"(x)); \
        return result;                                           \
    }

namespace fs_math
{
FS_SPECIAL(fast_exp2, "ex2.approx" FS_SHORT_FTZ)
FS_SPECIAL(fast_log2, "lg2.approx" FS_SHORT_FTZ)
FS_SPECIAL(sqrt, "sqrt.approx" FS_SHORT_FTZ)
FS_SPECIAL(fast_rsqrt, "rsqrt.approx" FS_SHORT_FTZ)
/* Of numbers that are normal, and whose results are. */
FS_SPECIAL(normal_exp2, "ex2.approx.ftz")
FS_SPECIAL(normal_reciprocal, "rcp.approx.ftz")

FS_DEVICE float log2(float x)
{
    /* log2(1 + d) / d to 2^-20 for |d| < 2^-6, where the instruction's error would be too large a part of it. */
    float d = x - 1.0f, near = d * fmaf(d, fmaf(d, 0.480898347f, -0.721347520f), 1.44269504f), far = fast_log2(x);
    return fabsf(d) < 0x1p-6f ? near : far;
}
FS_DEVICE float log(float x)
{
    return log2(x) * 0.693147181f;
}
FS_DEVICE float log10(float x)
{
    return log2(x) * 0.301029996f;
}
FS_DEVICE float exp(float x)
{
    return fast_exp2(x * 1.44269504f);
}

/* sin(r + k pi), for the k of `rounded`, which is k + 1.5 × 2^23; |r| <= pi / 2; error 2^-19. */
FS_DEVICE float sin_of(float r, float rounded)
{
    float z = r * r, p = fmaf(z, fmaf(z, -0x1.84d4c4p-13f, 0x1.1070dep-7f), -0x1.55510ep-3f);
    return __uint_as_float(__float_as_uint(fmaf(r * z, p, r)) ^ __float_as_uint(rounded) << 31);
}
/* x - h pi, with pi in two floats: exact enough up to 2^16, as a 16-bit x is never very close to a multiple. */
FS_DEVICE float less_pi(float x, float h)
{
    return fmaf(h, 0x1.777a5cp-24f, fmaf(h, -0x1.921fb6p+1f, x));
}
FS_DEVICE float sin(float x)
{
    float rounded = fmaf(x, 0.318309886f, 0x1.8p23f), k = rounded - 0x1.8p23f;
    return fabsf(x) > 65536.0f ? ::sinf(x) : sin_of(less_pi(x, k), rounded);
}
FS_DEVICE float cos(float x)
{
    /* cos x = sin(x + pi / 2) = sin(r + (k + 1) pi), where x = r + (k + 1/2) pi. */
    float rounded = fmaf(x, 0.318309886f, -0.5f) + 0x1.8p23f, k = rounded - 0x1.8p23f;
    return fabsf(x) > 65536.0f ? ::cosf(x) : -sin_of(less_pi(x, k + 0.5f), rounded);
}

FS_DEVICE float tanh(float x)
{
    float far = fmaf(-2.0f, normal_reciprocal(fast_exp2(fabsf(x) * 2.88539008f) + 1.0f), 1.0f);
    return fabsf(x) < 0x1p-4f ? fmaf(x * x * x, -0.333333333f, x) : copysignf(far, x);
}

/* A polynomial in x² up to 2.8, where 1 - erf is below 2^-13; error 2^-16. */
FS_DEVICE float erf(float x)
{
    float z = x * x, p = fmaf(0x1.24914ap-24f, z, -0x1.7fa276p-19f);
    p = fmaf(p, z, 0x1.c189cap-15f);
    p = fmaf(p, z, -0x1.3ba476p-11f);
    p = fmaf(p, z, 0x1.2e32a2p-8f);
    p = fmaf(p, z, -0x1.a9ae7ap-6f);
    p = fmaf(p, z, 0x1.cb7126p-4f);
    p = fmaf(p, z, -0x1.80f1d2p-2f);
    p = fmaf(p, z, 0x1.20dcc0p+0f);
    return fabsf(x) > 2.8f ? copysignf(1.0f, x) : x * p;
}

/* As C's pow, for b that are 0, infinite or NaN. */
FS_DEVICE float pow_extreme(float a, float b)
{
    if (a == 1.0f || b == 0.0f) return 1.0f;
    if (a != a || b != b) return NAN;
    if (fabsf(a) == 1.0f) return 1.0f;
    return (fabsf(a) > 1.0f) == (b > 0.0f) ? INFINITY : 0.0f;
}
/* As C's pow, but that results below the normal float32 are 0. What depends on b alone is hoisted if b is a scalar. A
 * negative a keeps its sign where b is no integer, so that its logarithm is NaN. */
FS_DEVICE float pow(float a, float b)
{
    float b_half = 0.5f * b;
    bool whole = truncf(b) == b, odd = whole & (truncf(b_half) != b_half);
    uint32_t kept = whole ? 0x7FFFFFFF : 0xFFFFFFFF, sign = odd ? 0x80000000 : 0, bits = __float_as_uint(a);
    if (!(b_half * 0.0f == 0.0f & b != 0.0f)) return pow_extreme(a, b);
    float x = a == -INFINITY ? INFINITY : __uint_as_float(bits & kept), power = normal_exp2(b * log2(x));
    return __uint_as_float(__float_as_uint(power) ^ (bits & sign));
}

/* By e to the -|x|, which does not overflow. */
FS_DEVICE float sigmoid(float x)
{
    float e = exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) * normal_reciprocal(1.0f + e);
}

/* x - |x| Q(|x|) or -|x| Q(|x|), with the normal distribution's upper tail Q(t) = exp(-t² / 2) R(t). R is a polynomial
 * in u = 1 / (1 + 0.31 t); error 2^-17 of Q. Q of 13.1 and more, where it is no
 * normal float32, counts as 0. */
FS_DEVICE float gelu(float x)
{
    float t = fminf(fabsf(x), 16.0f), u = normal_reciprocal(fmaf(t, 0.31f, 1.0f));
    float r = fmaf(-0x1.2ecfa0p-4f, u, 0x1.718f00p-3f);
    r = fmaf(r, u, 0x1.01fdeep-6f);
    r = fmaf(r, u, 0x1.11432cp-3f);
    r = fmaf(r, u, 0x1.ed540ap-4f);
    r = fmaf(r, u, 0x1.fb5558p-4f);
    float tail = t * u * r * normal_exp2(t * t * -0.721347520f);
    return (x < 0.0f ? 0.0f : x) - tail;
}
} // namespace fs_math

/* The rows whose expression in pointwise.def would divide or cancel. */
#define FS_SHORT_ROW(name, value)                                                           \
    template <> __device__ __forceinline__ float unary_##name<float>::apply(float x, float) \
    {                                                                                       \
        return value;                                                                       \
    }
#define FS_SHORT_ROWS                  \
    FS_SHORT_ROW(rsqrt, fast_rsqrt(x)) \
    FS_SHORT_ROW(sigmoid, sigmoid(x))  \
    FS_SHORT_ROW(silu, x *sigmoid(x))  \
    FS_SHORT_ROW(gelu, gelu(x))

#undef FS_SPECIAL

#endif
