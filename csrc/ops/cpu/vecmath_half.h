/* Conversion of float16 and bfloat16 to and from float: round to nearest even, infinities and NaN kept, subnormals
 * exact. */
#ifndef FS_OPS_CPU_VECMATH_HALF_H
#define FS_OPS_CPU_VECMATH_HALF_H

#include <stdint.h>

#include "ops/float8.h"

#if FS_ISA_LEVEL >= 1
#include <immintrin.h>
#endif

static inline float fs_f16_to_f32(uint16_t half)
{
    uint32_t sign = ((uint32_t)half & 0x8000u) << 16;
    uint32_t rest = ((uint32_t)half & 0x7fffu) << 13;
    /* A multiplication moves the exponent from bias 15 to 127 and also handles subnormals. */
    uint32_t finite = fs_bits_f32(fs_float_f32(rest) * 0x1p112f);
    return fs_float_f32(sign | (rest >= 0x0f800000u ? rest | 0x7f800000u : finite));
}

static inline uint16_t fs_f32_to_f16(float x)
{
    uint32_t bits = fs_bits_f32(x);
    uint32_t rest = bits & 0x7fffffffu;
    /* From bias 127 to 15. Adding just under half a unit, plus the odd bit so that ties go to even, rounds. */
    uint32_t normal = (rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    /* Below 2^-14 the sum with 0.5 has float16's subnormals as its last bits, and the addition rounds. */
    uint32_t subnormal = fs_bits_f32(fs_float_f32(rest) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | ((rest >> 13) & 0x3ffu);
    uint32_t half = rest < 0x38800000u ? subnormal : normal;
    half = rest >= 0x47800000u ? 0x7c00u : half;
    half = rest > 0x7f800000u ? nan : half;
    return (uint16_t)(half | ((bits >> 16) & 0x8000u));
}

static inline float fs_bf16_to_f32(uint16_t half)
{
    return fs_float_f32((uint32_t)half << 16);
}

static inline uint16_t fs_f32_to_bf16(float x)
{
    uint32_t bits = fs_bits_f32(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline uint16_t fs_f64_to_f16(double x)
{
    return fs_f32_to_f16(fs_f64_to_f32_odd(x));
}

static inline uint16_t fs_f64_to_bf16(double x)
{
    return fs_f32_to_bf16(fs_f64_to_f32_odd(x));
}

/* Array versions. F16C converts eight float16 in one instruction, and a pack narrows sixteen bfloat16 at once, which
 * compilers do not generate from loops over the functions above. */
static inline void fs_f16_to_f32_array(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    int64_t i = 0;
#if FS_ISA_LEVEL >= 1
    for (; i + 8 <= count; i += 8) {
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
    }
#endif
    for (; i < count; i++) to[i] = fs_f16_to_f32(from[i]);
}

static inline void fs_f32_to_f16_array(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    int64_t i = 0;
#if FS_ISA_LEVEL >= 1
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + i), half);
    }
#endif
    for (; i < count; i++) to[i] = fs_f32_to_f16(from[i]);
}

static inline void fs_bf16_to_f32_array(float *restrict to, const uint16_t *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = fs_bf16_to_f32(from[i]);
}

#if FS_ISA_LEVEL >= 1
/* fs_f32_to_bf16 of eight values, each in the low half of a 32-bit lane. */
static inline __m256i fs_f32_to_bf16_lanes(const float *from)
{
    __m256 x = _mm256_loadu_ps(from);
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256 unordered = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(nan), unordered);
    return _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
}
#endif

static inline void fs_f32_to_bf16_array(uint16_t *restrict to, const float *restrict from, int64_t count)
{
    int64_t i = 0;
#if FS_ISA_LEVEL >= 1
    for (; i + 16 <= count; i += 16) {
        __m256i low = fs_f32_to_bf16_lanes(from + i), high = fs_f32_to_bf16_lanes(from + i + 8);
        /* The pack works within 128-bit halves. The permutation restores the order of its quarters. */
        __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(to + i), halves);
    }
#endif
    for (; i < count; i++) to[i] = fs_f32_to_bf16(from[i]);
}

#endif
