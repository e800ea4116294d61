/* a to the power b in float32, within 4 ulp, as CUDA's own powf (2.1 ulp observed on an H200), with the special cases
 * of C's Annex F.
 *
 *   |a| = 2^e m    q = (m - c) / (m + c), c = 1 or 1.5 by m    log2|a| = e + log2(c) + 2/ln(2) atanh(q)
 *
 * The logarithm is the sum of two floats, about 32 bits in total, since b log2|a| of up to 150 needs 25 bits of its
 * fraction. Ordinary arguments take about 45 instructions, half of powf's, so that the op stays bound by memory. Other
 * cases (zero, denormal, infinite, NaN, a result that overflows or underflows, or nearly so) branch off. Values that
 * depend only on b are hoisted if b is a scalar.
 */
#ifndef FS_KERNELS_POWER_CUH
#define FS_KERNELS_POWER_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/types.cuh"

/* 1 / x to 1 ulp, denormals flushed. */
FS_DEVICE float fs_reciprocal_approximate(float x)
{
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/* 2^x to 2 ulp for |x| <= 0.505. */
FS_DEVICE float fs_exp2_approximate(float x)
{
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

FS_DEVICE uint32_t fs_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FS_DEVICE float fs_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* high + low, where |low| may be up to |high| / 200. */
typedef struct {
    float high, low;
} fs_float_pair;

/* log2 of a positive normal number by its bits, plus an integer `offset`. The error is below 2^-31 of it. */
FS_DEVICE fs_float_pair fs_log2_pair(uint32_t bits, float offset)
{
    /* From sqrt(1.5) / sqrt(2) on, half an octave each for c = 1 and c = 1.5, by bit 22 of the difference. */
    uint32_t above = bits - (0x3f9cc471 - 0x00400000), exponent = above & 0xff800000;
    float c = fs_float_of(0x3f800000 | (above & 0x00400000)), c_part = c - 1.0f;
    float e = fmaf((float)(int32_t)exponent, 0x1p-23f, offset);
    e = fmaf(c_part, 0x1.2b8p+0f, e); /* 2 log2(1.5) in 16 bits, so that e is exact; the remainder is added below */

    /* q = g / (g + c). g - cq is exact, so that one more step corrects the error of the approximate reciprocal in q. */
    float g = fmaf(-0.5f, c, fs_float_of(bits - exponent - 0x00800000));
    float r = fs_reciprocal_approximate(g + c), q = g * r;
    float q_rest = fmaf(-q, g, fmaf(-c, q, g)) * r;

    /* atanh(q) / q - 1: minimax in q², error 2^-35. Its constant term is the rounding error of 2/ln(2) as a float. */
    const float scale = 0x1.715476p+1f;
    float z = q * q;
    float series = fmaf(0x1.28a19ap-3f, z, 0x1.999484p-3f);
    series = fmaf(series, z, 0x1.555556p-2f);
    series = fmaf(series, z, 0x1.cab1b8p-27f);

    float s = __fmul_rn(scale, q); /* its rounding error is computed next: it must not be fused into the sums below */
    float rest = fmaf(scale, fmaf(q_rest, z, q_rest), fmaf(scale, q, -s));
    rest = fmaf(c_part, 0x1.a39fbep-19f, rest);
    rest = fmaf(s, series, rest);
    float high = e + s;
    return fs_float_pair{high, (s - (high - e)) + rest};
}

/* 2^f for |f| <= 0.505: minimax, error 2^-28. */
FS_DEVICE float fs_exp2_fraction(float f)
{
    float p = fmaf(0x1.416eccp-13f, f, 0x1.5f0b1ap-10f);
    p = fmaf(p, f, 0x1.3b2de0p-7f);
    p = fmaf(p, f, 0x1.c6af78p-5f);
    p = fmaf(p, f, 0x1.ebfbdcp-3f);
    p = fmaf(p, f, 0x1.62e430p-1f);
    return fmaf(p, f, 1.0f);
}

/* The magnitude of a to the power b, for all a and b; NaN if there is no real power. */
FS_DEVICE float fs_power_extreme(float a, float b, bool b_is_whole)
{
    float x = fabsf(a);
    bool denormal = x < 0x1p-126f;
    fs_float_pair log = fs_log2_pair(fs_float_bits(denormal ? x * 0x1p24f : x), denormal ? -24.0f : 0.0f);
    if (x == 0.0f) log.high = -INFINITY;
    if (x == INFINITY) log.high = INFINITY;

    /* Beyond 200 the result is 0 or infinite for any low. 2^n in two halves, as 2^128 and 2^-150 are not floats. */
    float y = b * log.high;
    bool beyond = fabsf(y) > 200.0f;
    float n = beyond ? copysignf(200.0f, y) : rintf(fmaf(b, log.low, y));
    float f = beyond ? 0.0f : fmaf(b, log.low, fmaf(b, log.high, -n));
    int32_t whole = (int32_t)n, half = whole >> 1;
    float power = fs_float_of(fs_float_bits(fs_exp2_fraction(f)) + ((uint32_t)half << 23)) *
                  fs_float_of((uint32_t)(whole - half + 127) << 23);

    if (x == 1.0f) power = 1.0f; /* b may be infinite */
    if ((a < 0.0f && x < INFINITY && !b_is_whole) || a != a || b != b) power = NAN;
    return a == 1.0f || b == 0.0f ? 1.0f : power;
}

FS_DEVICE float fs_power(float a, float b)
{
    /* An infinite b counts as an even integer, as in C. & instead of &&, whose branch would prevent hoisting. */
    float b_half = 0.5f * b;
    bool whole = truncf(b) == b, odd = whole & (truncf(b_half) != b_half);
    uint32_t sign = odd ? 0x80000000 : 0, magnitude = whole ? 0x7fffffff : 0xffffffff;

    /* A negative a keeps its sign here if b is not an integer, and so fails the test for an ordinary a. */
    uint32_t bits = fs_float_bits(a) & magnitude;
    fs_float_pair log = fs_log2_pair(bits, 0.0f);

    /* Adding and subtracting 1.5 × 2^23 rounds to an integer, which the sum's low bits then hold. */
    const float rounder = 0x1.8p23f;
    float shifted = fmaf(b, log.high + log.low, rounder), n = shifted - rounder;
    float f = fmaf(b, log.low, fmaf(b, log.high, -n));
    float power = fs_float_of(fs_float_bits(fs_exp2_approximate(f)) + (fs_float_bits(shifted) << 23));

    /* One test instead of two branches. */
    bool extreme_a = bits - 0x00800000 >= 0x7f000000, ordinary_power = fabsf(n) < 126.0f;
    if (extreme_a | !ordinary_power) power = fs_power_extreme(a, b, whole);
    return fs_float_of(fs_float_bits(power) ^ (fs_float_bits(a) & sign));
}

#endif
