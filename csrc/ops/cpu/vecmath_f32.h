/* Functions of float, accurate to about 1 to 2 ulp. Methods: Cody-Waite argument reduction with a multiply-free
 * rounding (adding and subtracting 1.5 * 2^23), and polynomials fitted to least relative error by iteratively
 * reweighted least squares at Chebyshev nodes. The logarithm's series in s = f / (2 + f) is that of fdlibm. */
#ifndef FS_OPS_CPU_VECMATH_F32_H
#define FS_OPS_CPU_VECMATH_F32_H

#include <math.h>
#include <stdint.h>

#include "ops/cpu/vecmath_half.h"

/* The largest |x| for fs_sin_f32 and fs_cos_f32: a multiple of pi/2 below 2^13 times an 11-bit part is exact. */
#define FS_TRIG_LIMIT_F32 10000.0f

#define FS_ROUND_F32 0x1.8p23f

static inline float fs_fabs_f32(float x)
{
    return __builtin_fabsf(x);
}

static inline float fs_sqrt_f32(float x)
{
    return __builtin_sqrtf(x);
}

/* 2^n for an integer n in [-126, 127], passed as n + FS_ROUND_F32, whose low bits are n's. */
static inline float fs_power2_f32(float n_rounded)
{
    return fs_float_f32((fs_bits_f32(n_rounded) + 127u) << 23);
}

/* exp(x) - 1 - r for the reduced r: r² (1/2 + r / 6 + …), |r| <= ln(2) / 2. */
static inline float fs_exp_tail_f32(float r)
{
    float p = 0x1.6d60a8p-10f;
    p = p * r + 0x1.123ba6p-7f;
    p = p * r + 0x1.5554d6p-5f;
    p = p * r + 0x1.55548ep-3f;
    p = p * r + 0.5f;
    return p * (r * r);
}

/* x = n ln(2) + r; returns r, and n + FS_ROUND_F32. */
static inline float fs_exp_reduce_f32(float x, float *n_rounded)
{
    float rounded = x * 0x1.715476p+0f + FS_ROUND_F32;
    float n = rounded - FS_ROUND_F32;
    *n_rounded = rounded;
    return (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
}

static inline float fs_exp_f32(float x)
{
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float rounded, r = fs_exp_reduce_f32(x, &rounded);
    /* In two steps, as 2^n alone exceeds float's range if the result is subnormal or just below overflow. */
    float n = rounded - FS_ROUND_F32;
    float half = n * 0.5f + FS_ROUND_F32;
    float other = (n - (half - FS_ROUND_F32)) + FS_ROUND_F32;
    float value = 1.0f + (r + fs_exp_tail_f32(r));
    return value * fs_power2_f32(half) * fs_power2_f32(other);
}

/* x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for x > 0. */
static inline float fs_log_reduce_f32(float x, float *k)
{
    uint32_t subnormal = x < 0x1p-126f ? 1u : 0u;
    uint32_t bits = fs_bits_f32(x < 0x1p-126f ? x * 0x1p25f : x);
    uint32_t exponent = (bits - 0x3f3504f3u + 0x3f800000u) >> 23; /* k + 127 */
    *k = (float)((int32_t)exponent - 127 - (int32_t)(subnormal * 25u));
    return fs_float_f32(bits - (exponent << 23) + 0x3f800000u) - 1.0f;
}

/* f - log(1 + f). */
static inline float fs_log_tail_f32(float f)
{
    float s = f / (2.0f + f);
    float z = s * s;
    float p = 0x1.31eaaap-2f;
    p = p * z + 0x1.995e7p-2f;
    p = p * z + 0x1.55557ap-1f;
    float half_square = 0.5f * f * f;
    return half_square - s * (half_square + z * p);
}

/* The logarithm where x is not a positive normal number. */
static inline float fs_log_special_f32(float x, float value)
{
    float special = x < 0.0f ? NAN : x;
    special = x == 0.0f ? -INFINITY : special;
    return x > 0.0f && x < INFINITY ? value : special;
}

static inline float fs_log_f32(float x)
{
    float k, f = fs_log_reduce_f32(x, &k);
    float tail = fs_log_tail_f32(f);
    return fs_log_special_f32(x, k * 0x1.62e4p-1f - ((tail - k * 0x1.7f7d1cp-20f) - f));
}

static inline float fs_log2_f32(float x)
{
    float k, f = fs_log_reduce_f32(x, &k);
    float tail = fs_log_tail_f32(f);
    /* 1 / ln(2) as 1.4375 plus a remainder: multiplying f by the first rounds little, as its last bits are zero. */
    float small = (f - tail) * 0x1.547652p-8f - tail * 1.4375f;
    return fs_log_special_f32(x, k + (f * 1.4375f + small));
}

static inline float fs_log10_f32(float x)
{
    float k, f = fs_log_reduce_f32(x, &k);
    float small = (f - fs_log_tail_f32(f)) * 0x1.bcb7b2p-2f;
    return fs_log_special_f32(x, k * 0x1.344p-2f + (k * 0x1.3509f8p-18f + small));
}

/* x = n pi/2 + r; returns r, and n's two low bits in *quadrant. */
static inline float fs_trig_reduce_f32(float x, uint32_t *quadrant)
{
    float rounded = x * 0x1.45f306p-1f + FS_ROUND_F32;
    float n = rounded - FS_ROUND_F32;
    *quadrant = fs_bits_f32(rounded);
    return (((x - n * 0x1.92p+0f) - n * 0x1.fb4p-12f) - n * 0x1.444p-24f) - n * 0x1.68c234p-39f;
}

static inline float fs_sin_small_f32(float r)
{
    float z = r * r;
    float p = -0x1.994b78p-13f;
    p = p * z + 0x1.110756p-7f;
    p = p * z - 0x1.555546p-3f;
    return r + r * (z * p);
}

static inline float fs_cos_small_f32(float r)
{
    float z = r * r;
    float p = 0x1.9a00a2p-16f;
    p = p * z - 0x1.6c0c86p-10f;
    p = p * z + 0x1.55554ap-5f;
    return 1.0f - (0.5f * z - (z * z) * p);
}

/* The sine of r plus `quadrant` times pi/2. */
static inline float fs_trig_f32(float r, uint32_t quadrant)
{
    float value = quadrant & 1u ? fs_cos_small_f32(r) : fs_sin_small_f32(r);
    return fs_float_f32(fs_bits_f32(value) ^ ((quadrant & 2u) << 30));
}

static inline float fs_sin_f32(float x)
{
    uint32_t quadrant;
    float r = fs_trig_reduce_f32(x, &quadrant);
    float value = fs_trig_f32(r, quadrant);
    return x == 0.0f ? x : value; /* keeps -0 */
}

static inline float fs_cos_f32(float x)
{
    uint32_t quadrant;
    float r = fs_trig_reduce_f32(x, &quadrant);
    return fs_trig_f32(r, quadrant + 1u);
}

/* e / (e + 2) with e = exp(2 |x|) - 1, which is accurate near 0. */
static inline float fs_tanh_f32(float x)
{
    float y = 2.0f * __builtin_fabsf(x);
    y = y > 20.0f ? 20.0f : y;
    float rounded, r = fs_exp_reduce_f32(y, &rounded);
    float scale = fs_power2_f32(rounded);
    float e = (scale - 1.0f) + scale * (r + fs_exp_tail_f32(r));
    return __builtin_copysignf(e / (e + 2.0f), x);
}

/* Below 1 a polynomial in x². Above, 1 - exp(q(|x|)) with q fitted to log(erfc), up to where float rounds to 1. */
static inline float fs_erf_f32(float x)
{
    float z = x * x;
    float p = 0x1.4ae3eap-14f;
    p = p * z - 0x1.a48596p-11f;
    p = p * z + 0x1.5419e8p-8f;
    p = p * z - 0x1.b7fbb2p-6f;
    p = p * z + 0x1.ce2d2p-4f;
    p = p * z - 0x1.81273ep-2f;
    p = p * z + 0x1.06eba8p-3f;
    float small = x + x * p;

    float a = __builtin_fabsf(x);
    a = a > 4.0f ? 4.0f : a;
    float q = -0x1.6be65ap-16f;
    q = q * a + 0x1.ced0eap-12f;
    q = q * a - 0x1.13902cp-8f;
    q = q * a + 0x1.9d055ep-6f;
    q = q * a - 0x1.bc1608p-4f;
    q = q * a - 0x1.44354ap-1f;
    q = q * a - 0x1.212c14p+0f;
    q = q * a + 0x1.8a891ap-13f;
    float rounded, r = fs_exp_reduce_f32(q, &rounded);
    float scale = fs_power2_f32(rounded);
    float large = (1.0f - scale) - scale * (r + fs_exp_tail_f32(r));
    return a < 1.0f ? small : __builtin_copysignf(large, x);
}

/* a^b for a >= 0, computed in double as 2^(b log2(a)), slightly more accurate than float. No float is subnormal as a
 * double, and no step exceeds double's range. */
static inline float fs_pow_magnitude_f32(double a, double b)
{
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    uint64_t exponent = (bits - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u) >> 52; /* k + 1023 */
    uint64_t mantissa_bits = bits - (exponent << 52) + 0x3ff0000000000000u;
    uint64_t k_bits = exponent | 0x4330000000000000u; /* 2^52 + k + 1023 */
    double mantissa, k;
    memcpy(&mantissa, &mantissa_bits, sizeof mantissa);
    memcpy(&k, &k_bits, sizeof k);
    double s = (mantissa - 1.0) / (mantissa + 1.0);
    double z = s * s;
    double p = 0.2358431873;
    p = p * z + 0.285372004;
    p = p * z + 0.4000033679;
    p = p * z + 0.6666666564;
    double logarithm = (k - (0x1p52 + 1023.0)) + (2.0 * s + s * (z * p)) * 0x1.71547652b82fep+0;
    logarithm = a < (double)INFINITY ? logarithm : a;
    logarithm = a == 0.0 ? -(double)INFINITY : logarithm;

    double t = b * logarithm;
    t = logarithm == 0.0 && b == b ? 0.0 : t; /* 1 to the power infinity is 1 */
    t = t > 140.0 ? 140.0 : t;
    t = t < -160.0 ? -160.0 : t;
    double rounded = t + 0x1.8p52;
    double r = (t - (rounded - 0x1.8p52)) * 0x1.62e42fefa39efp-1;
    double e = 0.001393804773;
    e = e * r + 0.008368927346;
    e = e * r + 0.04166643099;
    e = e * r + 0.1666651859;
    e = e * r + 0.5;
    double value = 1.0 + (r + e * (r * r));
    uint64_t scale_bits;
    memcpy(&scale_bits, &rounded, sizeof scale_bits);
    scale_bits = (scale_bits + 1023u) << 52;
    double scale;
    memcpy(&scale, &scale_bits, sizeof scale);
    return (float)(value * scale);
}

/* C99's annex F.10.4.4 for the special cases. */
static inline float fs_pow_f32(float x, float y)
{
    float power = fs_pow_magnitude_f32((double)__builtin_fabsf(x), (double)y);

    /* Below 2^23 the sum y + 2^23 is y rounded to an integer, whose last bit is y's parity. Above, y is an integer. */
    float size = __builtin_fabsf(y);
    float whole = size < 0x1p23f ? size + 0x1p23f : size;
    float back = size < 0x1p23f ? whole - 0x1p23f : size;
    uint32_t odd = back == size && size < 0x1p24f ? fs_bits_f32(whole) & 1u : 0u;
    power = fs_float_f32(fs_bits_f32(power) ^ (fs_bits_f32(x) & (odd << 31)));

    power = x < 0.0f && x > -INFINITY && back != size && y == y ? NAN : power;
    return x == 1.0f || y == 0.0f ? 1.0f : power;
}

#endif
