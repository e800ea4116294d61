/* Random draws that are bit-identical on every device: Philox4x32-10 and the maps from its words to numbers.
 *
 *   stream `seed`, counter c  ──►  four words w0 w1 w2 w3 of 32 bits
 *
 *   dtype    draws per counter   draw i of a stream                            normal pair (cos, sin) from
 *   float    4                   counter i / 4, word i % 4                     (w0, w1), (w2, w3)
 *   double   2                   counter i / 2, words 2 (i % 2), 2 (i % 2) + 1   (w0, w1, w2, w3)
 *
 * float16 and bfloat16 round the float draw to nearest even.
 *
 * Every product in a sum is an explicit fma, which leaves compilers no choice of contraction, and the logarithm, sine
 * and cosine are implemented here. A CPU and a GPU therefore also agree on normal draws, given a correctly rounded
 * square root (do not build with fast-math). Usable from C and from CUDA.
 *
 * Philox: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
 */
#ifndef FS_OPS_PHILOX_H
#define FS_OPS_PHILOX_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/dtype.h"

#ifndef FS_HOST_DEVICE
#ifdef __CUDACC__
#define FS_HOST_DEVICE __host__ __device__
#else
#define FS_HOST_DEVICE
#endif
#endif

typedef struct {
    uint32_t word[4];
} fs_philox_words;

FS_HOST_DEVICE static inline fs_philox_words fs_philox(uint64_t seed, uint64_t counter)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;

#ifdef __CUDA_ARCH__
#pragma unroll
#elif defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 10
#endif
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c0;
        uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)product0;
        key0 += 0x9E3779B9u; /* golden ratio */
        key1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }

    fs_philox_words words = {{c0, c1, c2, c3}};
    return words;
}

/* ---- uniform on [low, high): span is high - low, below is fs_uniform_below(low, high, dtype) ---- */

/* The largest value of the dtype below `high` (`low` if there is none at or above it). It bounds the draws, so that
 * rounding cannot lift one up to `high`, in the draw's own type or in a narrower stored type. */
static inline double fs_uniform_below(double low, double high, fs_dtype dtype)
{
    int digits = dtype == FS_FLOAT64 ? 53 : dtype == FS_FLOAT32 ? 24 : dtype == FS_FLOAT16 ? 11 : 8;
    int least = dtype == FS_FLOAT64 ? -1022 : dtype == FS_FLOAT16 ? -14 : -126;
    double below = nextafter(high, -HUGE_VAL);
    int exponent = below == 0 ? least : ilogb(below);

    double ulp = ldexp(1.0, (exponent < least ? least : exponent) - digits + 1);
    below = floor(below / ulp) * ulp;
    return below < low ? low : below;
}

/* The top 24 bits: low + span * (word >> 8) * 2^-24. */
FS_HOST_DEVICE static inline float fs_uniform_f32(uint32_t word, float low, float span, float below)
{
    float unit = (float)(int32_t)(word >> 8) * 0x1p-24f;
    float value = fmaf(unit, span, low);
    return value < below ? value : below;
}

/* 53 bits, 27 of word0 and 26 of word1, as an integer. (Vector units have 32-bit conversions.) */
FS_HOST_DEVICE static inline double fs_philox_53bits(uint32_t word0, uint32_t word1)
{
    return fma((double)(int32_t)(word0 >> 5), 0x1p26, (double)(int32_t)(word1 >> 6));
}

FS_HOST_DEVICE static inline double fs_uniform_f64(uint32_t word0, uint32_t word1, double low, double span,
                                                   double below)
{
    double value = fma(fs_philox_53bits(word0, word1) * 0x1p-53, span, low);
    return value < below ? value : below;
}

/* ---- normal, mean 0 and deviation 1, by Box and Muller: scale with fma(z, deviation, mean) ----
 *
 * The radius is sqrt(-2 log u) with u in (0, 1]. The angle is a whole word's turn, split exactly, in integers, into
 * quarters and a remainder of at most an eighth of a turn. */

/* log of a normal u > 0: u = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); Cephes' logf polynomial. */
FS_HOST_DEVICE static inline float fs_philox_log_f32(float u)
{
    int32_t bits;
    memcpy(&bits, &u, sizeof bits);
    int32_t shifted = bits - 0x3F3504F3; /* sqrt(1/2) */
    float e = (float)(shifted >> 23);
    bits = (shifted & 0x007FFFFF) + 0x3F3504F3;
    float m;
    memcpy(&m, &bits, sizeof m);

    float f = m - 1.0f, z = f * f;
    float p = 7.0376836292e-2f;
    p = fmaf(p, f, -1.1514610310e-1f);
    p = fmaf(p, f, 1.1676998740e-1f);
    p = fmaf(p, f, -1.2420140846e-1f);
    p = fmaf(p, f, 1.4249322787e-1f);
    p = fmaf(p, f, -1.6668057665e-1f);
    p = fmaf(p, f, 2.0000714765e-1f);
    p = fmaf(p, f, -2.4999993993e-1f);
    p = fmaf(p, f, 3.3333331174e-1f);
    float y = fmaf(e, -2.12194440e-4f, f * z * p);
    y = fmaf(-0.5f, z, y);
    return fmaf(e, 0.693359375f, f + y);
}

/* As above in double, by fdlibm's e_log.c. */
FS_HOST_DEVICE static inline double fs_philox_log_f64(double u)
{
    int64_t bits;
    memcpy(&bits, &u, sizeof bits);
    int64_t shifted = bits - 0x3FE6A09E667F3BCD; /* sqrt(1/2) */
    /* The exponent fits the upper half, for which vector units have shifts and conversions. */
    double e = (double)((int32_t)((uint64_t)shifted >> 32) >> 20);
    bits = (shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD;
    double m;
    memcpy(&m, &bits, sizeof m);

    double f = m - 1.0, half = 0.5 * f;
    double s = f / (2.0 + f), z = s * s;
    double r = 1.479819860511658591e-01;
    r = fma(r, z, 1.531383769920937332e-01);
    r = fma(r, z, 1.818357216161805012e-01);
    r = fma(r, z, 2.222219843214978396e-01);
    r = fma(r, z, 2.857142874366239149e-01);
    r = fma(r, z, 3.999999999940941908e-01);
    r = fma(r, z, 6.666666666666735130e-01);
    double t = fma(s, fma(r, z, half * f), e * 1.90821492927058770002e-10);
    return fma(e, 6.93147180369123816490e-01, f - fma(half, f, -t));
}

/* Sine and cosine after `quarter` further quarter turns, from those of the remainder. */
#define FS_PHILOX_TURN(T, quarter, sine, cosine)                         \
    do {                                                                 \
        T turned_sine = (quarter) & 1 ? (cosine) : (sine);               \
        T turned_cosine = (quarter) & 1 ? (sine) : (cosine);             \
        (sine) = (quarter) & 2 ? -turned_sine : turned_sine;             \
        (cosine) = ((quarter) + 1) & 2 ? -turned_cosine : turned_cosine; \
    } while (0)

/* Cephes' sinf and cosf polynomials on [-pi/4, pi/4]. */
FS_HOST_DEVICE static inline void fs_normal_pair_f32(uint32_t word0, uint32_t word1, float *first, float *second)
{
    float u = fmaf((float)(int32_t)(word0 >> 1), 0x1p-31f, 0x1p-32f);
    float radius = sqrtf(-2.0f * fs_philox_log_f32(u));

    uint32_t quarter = (word1 + 0x20000000u) >> 30;
    float x = (float)(int32_t)(word1 - (quarter << 30)) * 1.46291807926715968e-9f; /* 2 pi / 2^32 */
    float z = x * x;
    float sine = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
    sine = fmaf(sine, z, -1.6666654611e-1f);
    sine = fmaf(sine, x * z, x);
    float cosine = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    cosine = fmaf(cosine, z, 4.166664568298827e-2f);
    cosine = fmaf(cosine, z, -0.5f);
    cosine = fmaf(cosine, z, 1.0f);
    FS_PHILOX_TURN(float, quarter, sine, cosine);

    *first = radius * cosine;
    *second = radius * sine;
}

/* fdlibm's kernel sine and cosine (k_sin.c, k_cos.c). */
FS_HOST_DEVICE static inline void fs_normal_pair_f64(const uint32_t *word, double *first, double *second)
{
    double u = fma(fs_philox_53bits(word[0], word[1]), 0x1p-53, 0x1p-53);
    double radius = sqrt(-2.0 * fs_philox_log_f64(u));

    uint32_t quarter = (word[2] + 0x20000000u) >> 30;
    double rest = fma((double)(int32_t)(word[3] >> 1), 0x1p-31, (double)(int32_t)(word[2] - (quarter << 30)));
    double x = rest * 1.46291807926715968105133780430979e-9; /* 2 pi / 2^32 */
    double z = x * x;
    double sine = fma(1.58969099521155010221e-10, z, -2.50507602534068634195e-08);
    sine = fma(sine, z, 2.75573137070700676789e-06);
    sine = fma(sine, z, -1.98412698298579493134e-04);
    sine = fma(sine, z, 8.33333333332248946124e-03);
    sine = fma(sine, z, -1.66666666666666324348e-01);
    sine = fma(sine, x * z, x);
    double cosine = fma(-1.13596475577881948265e-11, z, 2.08757232129817482790e-09);
    cosine = fma(cosine, z, -2.75573143513906633035e-07);
    cosine = fma(cosine, z, 2.48015872894767294178e-05);
    cosine = fma(cosine, z, -1.38888888888741095749e-03);
    cosine = fma(cosine, z, 4.16666666666666019037e-02);
    cosine = fma(cosine, z, -0.5);
    cosine = fma(cosine, z, 1.0);
    FS_PHILOX_TURN(double, quarter, sine, cosine);

    *first = radius * cosine;
    *second = radius * sine;
}

#endif
