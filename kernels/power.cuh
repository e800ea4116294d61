/* a to the power b in float32: at most 1.7 ulp off (denormal results: 1 step), every special case of C's Annex F.
 *
 *   |a| = 2^e m, sqrt(1/2) <= m < sqrt(2)    q = (m - 1) / (m + 1)    log2|a| = e + 2/ln(2) atanh(q)    2^(b log2|a|)
 *
 * The logarithm is held as the sum of two floats, some 32 bits in all, since b log2|a| of up to 150 has to keep 25 bits
 * of its fraction. Ordinary arguments take about 40 instructions without a branch; the rest (zero, denormal, infinite,
 * NaN, a result that is none or close to it) branch off. What depends on b alone is hoisted where b is one scalar.
 */
#ifndef FS_KERNELS_POWER_CUH
#define FS_KERNELS_POWER_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#include "kernels/types.cuh"
/* 1 / x to 1 ulp, denormals flushed. */
FS_DEVICE float fs_reciprocal_approximate(float x)
{
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
#else
/* Plain C++, for a test on the host: what includes this file defines the reciprocal, as far off as it may be. */
#define FS_DEVICE static inline
static float fs_reciprocal_approximate(float x);
#endif

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

/* high + low, where |low| may be up to |high| / 100. */
typedef struct {
    float high, low;
} fs_float_pair;

/* log2 of a positive normal number by its bits, plus `offset`: off by less than 2^-31 of it. */
FS_DEVICE fs_float_pair fs_log2_pair(uint32_t bits, float offset)
{
    const uint32_t sqrt_half = 0x3f3504f3;
    const float scale = 0x1.715476p+1f; /* 2/ln(2), rounded; the rest is the series' constant term */
    uint32_t exponent = (bits - sqrt_half) & 0xff800000;
    float e = fmaf((float)(int32_t)exponent, 0x1p-23f, offset);
    float m = fs_float_of(bits - exponent);

    /* f - 2q is exact, so that one more step gives what the quotient by an approximate reciprocal lacks. */
    float f = m - 1.0f, r = fs_reciprocal_approximate(m + 1.0f);
    float q = f * r;
    float q_rest = fmaf(-q, f, fmaf(-2.0f, q, f)) * r;

    /* atanh(q)/q - 1, minimax in q², error 2^-35 */
    float z = q * q;
    float series = fmaf(0x1.f1413cp-4f, z, 0x1.23d3cep-3f);
    series = fmaf(series, z, 0x1.999c26p-3f);
    series = fmaf(series, z, 0x1.555554p-2f);
    series = fmaf(series, z, 0x1.cab1b8p-27f);

#ifdef __CUDACC__
    float s = __fmul_rn(scale, q); /* its rounding error is taken next: not to be fused into the sums below */
#else
    float s = scale * q;
#endif
    float rest = fmaf(scale, q_rest, fmaf(scale, q, -s));
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

/* The magnitude of a to the power b, for all a and b; NaN where there is no real power. */
FS_DEVICE float fs_power_extreme(float a, float b, bool b_is_whole)
{
    float x = fabsf(a);
    bool denormal = x < 0x1p-126f;
    fs_float_pair log = fs_log2_pair(fs_float_bits(denormal ? x * 0x1p24f : x), denormal ? -24.0f : 0.0f);
    if (x == 0.0f) log.high = -INFINITY;
    if (x == INFINITY) log.high = INFINITY;

    /* Beyond 200, low does not matter and may be NaN. 2^n in two halves: 2^128 and 2^-150 are no floats. */
    float y = fmaf(b, log.high, b * log.low), within = fminf(fmaxf(y, -200.0f), 200.0f), n = rintf(within);
    if (fabsf(b * log.high) > 200.0f) n = rintf(fminf(fmaxf(b * log.high, -200.0f), 200.0f));
    float f = fabsf(n) < 200.0f ? fmaf(b, log.low, fmaf(b, log.high, -n)) : 0.0f;
    int32_t whole = (int32_t)n, half = whole >> 1;
    float power = fs_float_of(fs_float_bits(fs_exp2_fraction(f)) + ((uint32_t)half << 23)) *
                  fs_float_of((uint32_t)(whole - half + 127) << 23);

    if (x == 1.0f) power = 1.0f; /* b may be infinite */
    if ((a < 0.0f && x < INFINITY && !b_is_whole) || a != a || b != b) power = NAN;
    return a == 1.0f || b == 0.0f ? 1.0f : power;
}

FS_DEVICE float fs_power(float a, float b)
{
    /* An infinite b counts as whole and even, as C has it. */
    float b_half = 0.5f * b;
    bool whole = truncf(b) == b, odd = whole && truncf(b_half) != b_half;
    uint32_t sign = odd ? 0x80000000 : 0, magnitude = whole ? 0x7fffffff : 0xffffffff;

    /* A negative a keeps its sign here where b is not whole, and so fails the test for an ordinary a. */
    uint32_t bits = fs_float_bits(a) & magnitude;
    fs_float_pair log = fs_log2_pair(bits, 0.0f);

    /* Adding and subtracting 1.5 × 2^23 rounds to a whole number, whose bits are then the sum's low ones. */
    const float rounder = 0x1.8p23f;
    float shifted = fmaf(b, log.high + log.low, rounder), n = shifted - rounder;
    float f = fmaf(b, log.low, fmaf(b, log.high, -n));
    float power = fs_float_of(fs_float_bits(fs_exp2_fraction(f)) + (fs_float_bits(shifted) << 23));

    bool ordinary = bits - 0x00800000 < 0x7f000000 && fabsf(n) < 126.0f;
    if (!ordinary) power = fs_power_extreme(a, b, whole);
    return fs_float_of(fs_float_bits(power) ^ (fs_float_bits(a) & sign));
}

#endif
