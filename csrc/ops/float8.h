/* Conversion of float8_e4m3fn and float8_e5m2 to and from float, as torch 2.13 does it: round to nearest even; e4m3fn,
 * which has no infinity, saturates, and e5m2 overflows to infinity; NaN keeps its sign. Branch-free. Usable from C and
 * from CUDA.
 *
 *            exponent     largest   smallest normal, subnormal   NaN
 *   e4m3fn   4, bias 7    448       2^-6, 2^-9                   s1111111
 *   e5m2     5, bias 15   57344     2^-14, 2^-16                 s11111xx, not s1111100
 */
#ifndef FS_OPS_FLOAT8_H
#define FS_OPS_FLOAT8_H

#include <stdint.h>
#include <string.h>

#ifndef FS_HOST_DEVICE
#ifdef __CUDACC__
#define FS_HOST_DEVICE __host__ __device__
#else
#define FS_HOST_DEVICE
#endif
#endif

static inline FS_HOST_DEVICE uint32_t fs_bits_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline FS_HOST_DEVICE float fs_float_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Convert a double to float, rounded to odd: truncated, with the last bit set if anything was cut off. Rounding that
 * again to nearest, with at least two bits fewer, equals a single rounding of the double. */
static inline FS_HOST_DEVICE float fs_f64_to_f32_odd(double x)
{
    float nearest = (float)x;
    double back = (double)nearest;
    uint32_t bits = fs_bits_f32(nearest);
    uint32_t cut = (back < 0 ? -back : back) > (x < 0 ? -x : x) ? bits - 1 : bits;
    return fs_float_f32(back == x || x != x ? bits : cut | 1u);
}

static inline FS_HOST_DEVICE float fs_e4m3fn_to_f32(uint8_t byte)
{
    uint32_t sign = ((uint32_t)byte & 0x80u) << 24, rest = ((uint32_t)byte & 0x7fu) << 20;
    /* A multiplication moves the exponent to bias 127 and also handles subnormals. */
    uint32_t finite = fs_bits_f32(fs_float_f32(rest) * 0x1p120f);
    return fs_float_f32(sign | (rest == 0x7f00000u ? 0x7fc00000u : finite));
}

static inline FS_HOST_DEVICE float fs_e5m2_to_f32(uint8_t byte)
{
    uint32_t sign = ((uint32_t)byte & 0x80u) << 24, rest = ((uint32_t)byte & 0x7fu) << 21;
    uint32_t finite = fs_bits_f32(fs_float_f32(rest) * 0x1p112f);
    return fs_float_f32(sign | (rest >= 0xf800000u ? rest | 0x7f800000u : finite));
}

static inline FS_HOST_DEVICE uint8_t fs_f32_to_e4m3fn(float x)
{
    uint32_t bits = fs_bits_f32(x), rest = bits & 0x7fffffffu;
    /* From bias 127 to 7. Adding just under half a unit, plus the odd bit so that ties go to even, rounds. */
    uint32_t normal = (rest - 0x3c000000u + 0x7ffffu + ((rest >> 20) & 1u)) >> 20;
    /* Below 2^-6 the sum with 2^14 has the subnormals as its last bits, and the addition rounds. */
    uint32_t subnormal = fs_bits_f32(fs_float_f32(rest) + 0x1p14f) - 0x46800000u;
    uint32_t byte = rest < 0x3c800000u ? subnormal : normal;
    byte = rest > 0x43e80000u ? 0x7eu : byte; /* above 464, which is between 448 and 480 */
    byte = rest > 0x7f800000u ? 0x7fu : byte;
    return (uint8_t)(byte | ((bits >> 24) & 0x80u));
}

static inline FS_HOST_DEVICE uint8_t fs_f32_to_e5m2(float x)
{
    uint32_t bits = fs_bits_f32(x), rest = bits & 0x7fffffffu;
    uint32_t normal = (rest - 0x38000000u + 0xfffffu + ((rest >> 21) & 1u)) >> 21;
    uint32_t subnormal = fs_bits_f32(fs_float_f32(rest) + 0x1p7f) - 0x43000000u;
    uint32_t byte = rest < 0x38800000u ? subnormal : normal;
    byte = rest >= 0x47800000u ? 0x7cu : byte; /* 65536 and above */
    byte = rest > 0x7f800000u ? 0x7fu : byte;
    return (uint8_t)(byte | ((bits >> 24) & 0x80u));
}

#endif
