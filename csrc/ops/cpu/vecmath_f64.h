/* Functions of double, accurate to about 1 to 3 ulp, by the same methods as vecmath_f32.h. */
#ifndef FS_OPS_CPU_VECMATH_F64_H
#define FS_OPS_CPU_VECMATH_F64_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The largest |x| for fs_sin_f64 and fs_cos_f64: a multiple of pi/2 below 2^20 times a 33-bit part is exact. */
#define FS_TRIG_LIMIT_F64 1e6

#define FS_ROUND_F64 0x1.8p52
#define FS_INFINITY_F64 ((double)INFINITY)

static inline uint64_t fs_bits_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double fs_float_f64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double fs_fabs_f64(double x)
{
    return __builtin_fabs(x);
}

static inline double fs_sqrt_f64(double x)
{
    return __builtin_sqrt(x);
}

/* 2^n for an integer n in [-1022, 1023], passed as n + FS_ROUND_F64, whose low bits are n's. */
static inline double fs_power2_f64(double n_rounded)
{
    return fs_float_f64((fs_bits_f64(n_rounded) + 1023u) << 52);
}

/* exp(r) - 1 - r for |r| <= ln(2) / 2. Here and in erf the even and the odd powers form two shorter chains that run in
 * parallel. */
static inline double fs_exp_tail_f64(double r)
{
    double z = r * r;
    double odd = 0x1.af7973dd029acp-26;
    double even = 0x1.28a083217e41fp-22;
    odd = odd * z + 0x1.71dde8575cfcap-19;
    even = even * z + 0x1.a019aa3694b7bp-16;
    odd = odd * z + 0x1.a01a01b685ebcp-13;
    even = even * z + 0x1.6c16c17d10733p-10;
    odd = odd * z + 0x1.111111110e543p-7;
    even = even * z + 0x1.5555555553118p-5;
    odd = odd * z + 0x1.555555555555cp-3;
    even = even * z + 0.5;
    return (even + r * odd) * z;
}

/* x = n ln(2) + r; returns r, and n + FS_ROUND_F64. */
static inline double fs_exp_reduce_f64(double x, double *n_rounded)
{
    double rounded = x * 0x1.71547652b82fep+0 + FS_ROUND_F64;
    double n = rounded - FS_ROUND_F64;
    *n_rounded = rounded;
    return (x - n * 0x1.62e42fefa4p-1) + n * 0x1.8432a1b0e2634p-43;
}

static inline double fs_exp_f64(double x)
{
    x = x > 710.0 ? 710.0 : x;
    x = x < -746.0 ? -746.0 : x;
    double rounded, r = fs_exp_reduce_f64(x, &rounded);
    double n = rounded - FS_ROUND_F64;
    double half = n * 0.5 + FS_ROUND_F64;
    double other = (n - (half - FS_ROUND_F64)) + FS_ROUND_F64;
    double value = 1.0 + (r + fs_exp_tail_f64(r));
    return value * fs_power2_f64(half) * fs_power2_f64(other);
}

/* x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for x > 0. */
static inline double fs_log_reduce_f64(double x, double *k)
{
    double bias = x < 0x1p-1022 ? 0x1p52 + 1077.0 : 0x1p52 + 1023.0;
    uint64_t bits = fs_bits_f64(x < 0x1p-1022 ? x * 0x1p54 : x);
    uint64_t exponent = (bits - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u) >> 52; /* k + 1023 */
    *k = fs_float_f64(exponent | 0x4330000000000000u) - bias;                     /* those bits are 2^52 + exponent */
    return fs_float_f64(bits - (exponent << 52) + 0x3ff0000000000000u) - 1.0;
}

/* f - log(1 + f). */
static inline double fs_log_tail_f64(double f)
{
    double s = f / (2.0 + f);
    double z = s * s;
    double p = 0x1.2f124b8aa177cp-3;
    p = p * z + 0x1.39a07f5a05b66p-3;
    p = p * z + 0x1.74664aa489178p-3;
    p = p * z + 0x1.c71c51d2821acp-3;
    p = p * z + 0x1.2492494231e9cp-2;
    p = p * z + 0x1.999999997f94ep-2;
    p = p * z + 0x1.5555555555593p-1;
    double half_square = 0.5 * f * f;
    return half_square - s * (half_square + z * p);
}

static inline double fs_log_special_f64(double x, double value)
{
    double special = x < 0.0 ? (double)NAN : x;
    special = x == 0.0 ? -FS_INFINITY_F64 : special;
    return x > 0.0 && x < FS_INFINITY_F64 ? value : special;
}

static inline double fs_log_f64(double x)
{
    double k, f = fs_log_reduce_f64(x, &k);
    double tail = fs_log_tail_f64(f);
    return fs_log_special_f64(x, k * 0x1.62e42fefa4p-1 - ((tail + k * 0x1.8432a1b0e2634p-43) - f));
}

static inline double fs_log2_f64(double x)
{
    double k, f = fs_log_reduce_f64(x, &k);
    double tail = fs_log_tail_f64(f);
    /* 1 / ln(2) as 1.4375 plus a remainder: multiplying f by the first rounds little, as its last bits are zero. */
    double small = (f - tail) * 0x1.547652b82fe17p-8 - tail * 1.4375;
    return fs_log_special_f64(x, k + (f * 1.4375 + small));
}

static inline double fs_log10_f64(double x)
{
    double k, f = fs_log_reduce_f64(x, &k);
    double small = (f - fs_log_tail_f64(f)) * 0x1.bcb7b1526e50ep-2;
    return fs_log_special_f64(x, k * 0x1.34413509f8p-2 + (small - k * 0x1.80433b83b532ap-44));
}

/* x = n pi/2 + r; returns r, and n's two low bits in *quadrant. */
static inline double fs_trig_reduce_f64(double x, uint64_t *quadrant)
{
    double rounded = x * 0x1.45f306dc9c883p-1 + FS_ROUND_F64;
    double n = rounded - FS_ROUND_F64;
    *quadrant = fs_bits_f64(rounded);
    return ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
}

static inline double fs_sin_small_f64(double r)
{
    double z = r * r;
    double p = 0x1.5d922031e7d09p-33;
    p = p * z - 0x1.ae5e633918f49p-26;
    p = p * z + 0x1.71de3573e2f51p-19;
    p = p * z - 0x1.a01a019c0d2a0p-13;
    p = p * z + 0x1.111111110f856p-7;
    p = p * z - 0x1.5555555555549p-3;
    return r + r * (z * p);
}

static inline double fs_cos_small_f64(double r)
{
    double z = r * r;
    double p = -0x1.8fada0e2d53e0p-37;
    p = p * z + 0x1.1ee9ea099433cp-29;
    p = p * z - 0x1.27e4f80736d6ep-22;
    p = p * z + 0x1.a01a019cadff3p-16;
    p = p * z - 0x1.6c16c16c15157p-10;
    p = p * z + 0x1.555555555554cp-5;
    return 1.0 - (0.5 * z - (z * z) * p);
}

/* The sine of r plus `quadrant` times pi/2. */
static inline double fs_trig_f64(double r, uint64_t quadrant)
{
    double value = quadrant & 1u ? fs_cos_small_f64(r) : fs_sin_small_f64(r);
    return fs_float_f64(fs_bits_f64(value) ^ ((quadrant & 2u) << 62));
}

static inline double fs_sin_f64(double x)
{
    uint64_t quadrant;
    double r = fs_trig_reduce_f64(x, &quadrant);
    double value = fs_trig_f64(r, quadrant);
    return x == 0.0 ? x : value; /* keeps -0 */
}

static inline double fs_cos_f64(double x)
{
    uint64_t quadrant;
    double r = fs_trig_reduce_f64(x, &quadrant);
    return fs_trig_f64(r, quadrant + 1u);
}

static inline double fs_tanh_f64(double x)
{
    double y = 2.0 * __builtin_fabs(x);
    y = y > 40.0 ? 40.0 : y;
    double rounded, r = fs_exp_reduce_f64(y, &rounded);
    double scale = fs_power2_f64(rounded);
    double e = (scale - 1.0) + scale * (r + fs_exp_tail_f64(r));
    return __builtin_copysign(e / (e + 2.0), x);
}

/* Below 1 a polynomial in x². Above, 1 - exp(q(|x|)) with q fitted to log(erfc), up to where double rounds to 1. */
static inline double fs_erf_f64(double x)
{
    double z = x * x;
    double y = z * z;
    double even = 0x1.06208270e6b1dp-34;
    double odd = -0x1.38a98b1e3d08ep-30;
    even = even * y + 0x1.f7b8c167ed97fp-27;
    odd = odd * y - 0x1.5f1f2bfe35811p-23;
    even = even * y + 0x1.b9df2dd23916ap-20;
    odd = odd * y - 0x1.f4d1e400a9cf6p-17;
    even = even * y + 0x1.f9a321e1ef802p-14;
    odd = odd * y - 0x1.c02db3db3054ap-11;
    even = even * y + 0x1.565bcd0dbd020p-8;
    odd = odd * y - 0x1.b82ce31284efbp-6;
    even = even * y + 0x1.ce2f21a042b33p-4;
    odd = odd * y - 0x1.812746b0379e6p-2;
    even = even * y + 0x1.06eba8214db69p-3;
    double small = x + x * (even + z * odd);

    double a = __builtin_fabs(x);
    a = a > 6.0 ? 6.0 : a;
    double square = a * a;
    double large_odd = -0x1.549afe1477ab1p-38;
    double large_even = 0x1.ba2967aeb1327p-33;
    large_odd = large_odd * square - 0x1.0a2152112f46ep-28;
    large_even = large_even * square + 0x1.88eab0a61bbbdp-25;
    large_odd = large_odd * square - 0x1.8b3f0f6e84cf7p-22;
    large_even = large_even * square + 0x1.1abefe296066fp-19;
    large_odd = large_odd * square - 0x1.1eb1cacb38b13p-17;
    large_even = large_even * square + 0x1.7822c50d1ab3dp-16;
    large_odd = large_odd * square - 0x1.42a731e1410e5p-16;
    large_even = large_even * square - 0x1.1f9d5184d639ep-13;
    large_odd = large_odd * square + 0x1.95ca93a9ce816p-11;
    large_even = large_even * square - 0x1.f759496cc13c1p-10;
    large_odd = large_odd * square + 0x1.b2d1ac02f27b3p-12;
    large_even = large_even * square + 0x1.37161ddaa282dp-6;
    large_odd = large_odd * square - 0x1.a4aaaf91e64cdp-4;
    large_even = large_even * square - 0x1.45f63b3bc7243p-1;
    large_odd = large_odd * square - 0x1.20dd1d8cf8012p+0;
    large_even = large_even * square - 0x1.15b4a4280ac27p-21;
    double q = large_even + a * large_odd;
    double rounded, r = fs_exp_reduce_f64(q, &rounded);
    double scale = fs_power2_f64(rounded);
    double large = (1.0 - scale) - scale * (r + fs_exp_tail_f64(r));
    return a < 1.0 ? small : __builtin_copysign(large, x);
}

/* From the C library: an accurate power needs a logarithm of twice the precision, which it has. */
static inline double fs_pow_f64(double x, double y)
{
    return pow(x, y);
}

#endif
