/* The values of the CPU's pointwise ops and conversions, compared with the C library in long double and the formats'
 * definitions, with every instruction set. */
#include <float.h>

#include "base/parallel.h"
#include "tests/c/pointwise_check.h"

/* The rows of pointwise.def in long double. */
#define K(constant) ((long double)(constant))
#define M(name) name##l
#define FS_UNARY(name, value, prose)               \
    static long double unary_##name(long double x) \
    {                                              \
        return value;                              \
    }
#define FS_BINARY(name, value, prose)                              \
    static long double binary_##name(long double a, long double b) \
    {                                                              \
        return value;                                              \
    }
#include "ops/pointwise.def"
#undef FS_UNARY
#undef FS_BINARY

/* The error allowed to a row, in units in the last place, and in units of |x| if the op subtracts numbers near 1. */
typedef struct {
    const char *name;
    long double (*value)(long double);
    double ulps, ulps_of_x;
} unary_row;

static const unary_row unary_rows[FS_UNARY_COUNT] = {
#define FS_UNARY(name, value, prose) \
    [FS_UNARY_##name] = {#name, unary_##name, 3, FS_UNARY_##name == FS_UNARY_gelu ? 2 : 0},
#include "ops/pointwise.def"
#undef FS_UNARY
};

static const struct {
    const char *name;
    long double (*value)(long double, long double);
} binary_rows[FS_BINARY_COUNT] = {
#define FS_BINARY(name, value, prose) [FS_BINARY_##name] = {#name, binary_##name},
#include "ops/pointwise.def"
#undef FS_BINARY
};

static double dense_get(const void *data, fs_dtype dtype, int64_t i)
{
    return dtype == FS_FLOAT64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void dense_set(void *data, fs_dtype dtype, int64_t i, double value)
{
    if (dtype == FS_FLOAT64) ((double *)data)[i] = value;
    else ((float *)data)[i] = (float)value;
}

static double unit_of(double value, fs_dtype dtype)
{
    int exponent;
    frexp(value, &exponent);
    int least = dtype == FS_FLOAT64 ? -1074 : -149, digits = dtype == FS_FLOAT64 ? 53 : 24;
    return ldexp(1.0, exponent - digits < least ? least : exponent - digits);
}

/* Return whether `got` is right in the dtype: NaN for NaN, infinity or zero if rounding gives them, otherwise near
 * `want`. */
static bool value_is_right(double got, long double want, fs_dtype dtype, double ulps, double room)
{
    double rounded = dtype == FS_FLOAT64 ? (double)want : (double)(float)want;
    if (isnan(rounded)) return isnan(got);
    if (got == rounded) return rounded != 0 || !signbit(got) == !signbit(rounded) || room > 0;
    double largest = dtype == FS_FLOAT64 ? DBL_MAX : (double)FLT_MAX;
    if (isinf(rounded)) return fabs(got) >= largest && !signbit(got) == !signbit(rounded);
    return fabsl((long double)got - want) <= (long double)(ulps * unit_of(rounded, dtype) + room);
}

static const double special_values[] = {
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    3.0,
    -3.0,
    1.5,
    -1.5,
    1e-320,
    1e-310,
    -1e-310,
    1e-45,
    -1e-45,
    1e-40,
    1e-38,
    1.18e-38,
    88.7,
    88.73,
    -87.3,
    -88,
    -103,
    -103.9,
    -104,
    -110,
    709.7,
    709.8,
    -708.3,
    -745,
    -745.1,
    -745.2,
    -750,
    1000,
    8,
    1e4,
    1e5,
    1e6,
    1e7,
    1e10,
    1e22,
    1e30,
    3e38,
    1e300,
    1.7e308,
    5,
    9,
    16777215,
    16777216,
    16777217,
    8388607,
    8388609,
    9007199254740991.0,
    9007199254740993.0,
    1.0000001,
    0.9999999,
    1.000000000000001,
    0.999999999999999,
    3.14159265358979,
    1.5707963267948966,
    355,
    710,
    11,
    1e-5,
    1e-20,
    -1e-20,
    INFINITY,
    -INFINITY,
    NAN,
};
enum { SPECIALS = sizeof special_values / sizeof *special_values, VALUES = 60000 };

static double random_value(fs_dtype dtype, int64_t i)
{
    if (i < SPECIALS) return special_values[i];
    switch (i % 4) {
    case 0:
        return random_between(-20, 20);
    case 1:
        return random_between(-2, 2);
    case 2:
        return random_between(-760, 760);
    default: {
        uint64_t bits = random_bits();
        double wide;
        float narrow;
        memcpy(&wide, &bits, sizeof wide);
        memcpy(&narrow, &bits, sizeof narrow);
        return dtype == FS_FLOAT64 ? wide : (double)narrow;
    }
    }
}

static void test_unary_values_match_libm(fs_dtype dtype)
{
    size_t size = fs_dtypes[dtype].size;
    void *in = block_new(VALUES * size), *out = block_new(VALUES * size);
    for (int64_t i = 0; i < VALUES; i++) dense_set(in, dtype, i, random_value(dtype, i));
    double epsilon = dtype == FS_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
    double least = dtype == FS_FLOAT64 ? DBL_MIN : FLT_MIN;
    for (int op = 0; op < FS_UNARY_COUNT; op++) {
        /* Twice: with values far outside the fast sine's range in some blocks, and in none. */
        for (int calm = 0; calm < 2; calm++) {
            if (calm) {
                for (int64_t i = 0; i < VALUES; i++) {
                    if (fabs(dense_get(in, dtype, i)) > 9000) dense_set(in, dtype, i, random_between(-9000, 9000));
                }
            }
            fs_elementwise space = dense_space(dtype, out, in, NULL, VALUES);
            CHECK(fs_cpu_unary(cpu, (fs_unary_id)op, &space, NULL) == FS_OK, "%s", unary_rows[op].name);
            for (int64_t i = 0; i < VALUES; i++) {
                double x = dense_get(in, dtype, i), got = dense_get(out, dtype, i);
                const unary_row *row = &unary_rows[op];
                /* Inside sigmoid and silu, exp overflows slightly before their value underflows. */
                bool composed = op == FS_UNARY_sigmoid || op == FS_UNARY_silu || op == FS_UNARY_gelu;
                double room = row->ulps_of_x * epsilon * (isfinite(x) ? fabs(x) : 0);
                if (composed) room += least * (fabs(x) < 800 ? 800 : 1);
                long double want = row->value((long double)x);
                CHECK(value_is_right(got, want, dtype, row->ulps, room), "%s %s(%.17g) is %.17g, not %.17Lg",
                      fs_dtypes[dtype].name, row->name, x, got, want);
            }
        }
        for (int64_t i = 0; i < VALUES; i++) dense_set(in, dtype, i, random_value(dtype, i));
    }
    free(in);
    free(out);
}

static void test_binary_values_match_libm(fs_dtype dtype)
{
    size_t size = fs_dtypes[dtype].size;
    void *a = block_new(VALUES * size), *b = block_new(VALUES * size), *out = block_new(VALUES * size);
    for (int64_t i = 0; i < VALUES; i++) {
        bool grid = i < SPECIALS * SPECIALS;
        double x = grid ? special_values[i / SPECIALS] : random_value(dtype, i + SPECIALS);
        double y = i % 3 == 0 ? rint(random_between(-40, 40)) : random_between(-9, 9);
        if (grid) y = special_values[i % SPECIALS];
        dense_set(a, dtype, i, i % 2 && !grid ? fabs(x) : x);
        dense_set(b, dtype, i, y);
    }
    for (int op = 0; op < FS_BINARY_COUNT; op++) {
        fs_elementwise space = dense_space(dtype, out, a, b, VALUES);
        CHECK(fs_cpu_binary(cpu, (fs_binary_id)op, &space, NULL) == FS_OK, "%s", binary_rows[op].name);
        for (int64_t i = 0; i < VALUES; i++) {
            double x = dense_get(a, dtype, i), y = dense_get(b, dtype, i), got = dense_get(out, dtype, i);
            long double want = binary_rows[op].value((long double)x, (long double)y);
            CHECK(value_is_right(got, want, dtype, op == FS_BINARY_pow ? 2 : 0.51, 0),
                  "%s %s(%.17g, %.17g) is %.17g, not %.17Lg", fs_dtypes[dtype].name, binary_rows[op].name, x, y, got,
                  want);
        }
        /* With a scalar on either side. */
        for (int s = 0; s < SPECIALS; s++) {
            double scalar = dtype == FS_FLOAT64 ? special_values[s] : (double)(float)special_values[s];
            for (int side = 0; side < 2; side++) {
                space = dense_space(dtype, out, side ? a : NULL, side ? NULL : a, 4096);
                space.scalar[side] = scalar;
                CHECK(fs_cpu_binary(cpu, (fs_binary_id)op, &space, NULL) == FS_OK, "%s", binary_rows[op].name);
                for (int64_t i = 0; i < 4096; i++) {
                    double x = side ? dense_get(a, dtype, i) : scalar, y = side ? scalar : dense_get(a, dtype, i);
                    double got = dense_get(out, dtype, i);
                    long double want = binary_rows[op].value((long double)x, (long double)y);
                    CHECK(value_is_right(got, want, dtype, op == FS_BINARY_pow ? 2 : 0.51, 0),
                          "%s %s(%.17g, %.17g) with a scalar is %.17g, not %.17Lg", fs_dtypes[dtype].name,
                          binary_rows[op].name, x, y, got, want);
                }
            }
        }
    }
    free(a);
    free(b);
    free(out);
}

static double unary_of_one(fs_unary_id op, fs_dtype dtype, double x)
{
    double in = 0, out = 0;
    dense_set(&in, dtype, 0, x);
    fs_elementwise space = dense_space(dtype, &out, &in, NULL, 1);
    CHECK_OK(fs_cpu_unary(cpu, op, &space, NULL));
    return dense_get(&out, dtype, 0);
}

static void test_exact_cases_are_exact(fs_dtype dtype)
{
    CHECK(unary_of_one(FS_UNARY_exp, dtype, 0) == 1, "exp(0)");
    CHECK(unary_of_one(FS_UNARY_cos, dtype, 0) == 1, "cos(0)");
    CHECK(signbit(unary_of_one(FS_UNARY_sin, dtype, -0.0)), "sin(-0)");
    CHECK(signbit(unary_of_one(FS_UNARY_tanh, dtype, -0.0)), "tanh(-0)");
    CHECK(signbit(unary_of_one(FS_UNARY_erf, dtype, -0.0)), "erf(-0)");
    for (int k = dtype == FS_FLOAT64 ? -1074 : -149; k < (dtype == FS_FLOAT64 ? 1024 : 128); k++) {
        double got = unary_of_one(FS_UNARY_log2, dtype, ldexp(1, k));
        CHECK(got == k, "log2(2^%d) is %.17g", k, got);
    }
    double power = 1;
    for (int k = 0; k <= (dtype == FS_FLOAT64 ? 22 : 10); k++, power *= 10) {
        double got = unary_of_one(FS_UNARY_log10, dtype, power);
        CHECK(got == k, "log10(10^%d) is %.17g", k, got);
    }
}

static void test_halves_widen_and_narrow_right(fs_dtype dtype)
{
    enum { ALL = 1 << 16, MORE = 1 << 18 };
    uint16_t *bits = block_new(ALL * 2), *back = block_new(MORE * 2);
    float *wide = block_new(MORE * 4);
    double *number = block_new(MORE * 8);
    for (int i = 0; i < ALL; i++) bits[i] = (uint16_t)i;
    convert_dense(wide, FS_FLOAT32, bits, dtype, ALL);
    convert_dense(back, dtype, wide, FS_FLOAT32, ALL);
    for (int i = 0; i < ALL; i++) {
        double want = element_get(bits, dtype, i);
        CHECK(same((double)wide[i], want), "%s %04x is %g, not %g", fs_dtypes[dtype].name, i, (double)wide[i], want);
        CHECK(same(element_get(back, dtype, i), want), "%s %04x comes back as %04x", fs_dtypes[dtype].name, i, back[i]);
    }
    /* Near every value and halfway between neighbours, from float and, where float would round twice, from double. */
    for (int i = 0; i < MORE; i++) {
        uint16_t low = (uint16_t)(i / 4), high = (uint16_t)(low + 1);
        double a = element_get(&low, dtype, 0), b = element_get(&high, dtype, 0);
        double middle = (a + b) / 2;
        double near[] = {middle, nextafter(middle, a), nextafter(middle, b), a + (b - a) * random_between(0, 1)};
        number[i] = near[i % 4];
        wide[i] = (float)number[i];
    }
    convert_dense(back, dtype, number, FS_FLOAT64, MORE);
    for (int i = 0; i < MORE; i++) {
        double want = nearest_element(number[i], dtype), got = element_get(back, dtype, i);
        CHECK(same(got, want), "float64 %.17g to %s is %g, not %g", number[i], fs_dtypes[dtype].name, got, want);
    }
    convert_dense(back, dtype, wide, FS_FLOAT32, MORE);
    for (int i = 0; i < MORE; i++) {
        double want = nearest_element((double)wide[i], dtype), got = element_get(back, dtype, i);
        CHECK(same(got, want), "float32 %.9g to %s is %g, not %g", (double)wide[i], fs_dtypes[dtype].name, got, want);
    }
    /* An op computes in float and rounds once. */
    fs_elementwise space = dense_space(dtype, back, bits, NULL, ALL);
    CHECK_OK(fs_cpu_unary(cpu, FS_UNARY_sqrt, &space, NULL));
    for (int i = 0; i < ALL; i++) {
        double want = nearest_element((double)sqrtf((float)element_get(bits, dtype, i)), dtype);
        CHECK(same(element_get(back, dtype, i), want), "%s sqrt of %04x", fs_dtypes[dtype].name, i);
    }
    space = dense_space(dtype, back, bits, NULL, ALL);
    space.scalar[1] = 0.1;
    CHECK_OK(fs_cpu_binary(cpu, FS_BINARY_add, &space, NULL));
    for (int i = 0; i < ALL; i++) {
        double want = nearest_element((double)((float)element_get(bits, dtype, i) + 0.1f), dtype);
        CHECK(same(element_get(back, dtype, i), want), "%s %04x + 0.1", fs_dtypes[dtype].name, i);
    }
    free(bits);
    free(back);
    free(wide);
    free(number);
}

static void test_every_conversion(void)
{
    enum { N = 5000 };
    void *number = block_new(N * 8), *in = block_new(N * 8), *out = block_new(N * 8);
    for (int from = 0; from < FS_DTYPE_COUNT; from++) {
        for (int to = 0; to < FS_DTYPE_COUNT; to++) {
            /* Numbers that both dtypes can represent; fractions only from a float dtype. */
            bool positive = from == FS_UINT8 || to == FS_UINT8;
            const double most = fs_dtype_is_float8((fs_dtype)from) ? 112 : 127; /* 127 would round to 128 */
            for (int i = 0; i < N; i++) {
                double x = i < 256 ? i - 127 : random_between(-127, 127);
                ((double *)number)[i] = from == FS_BOOL ? i % 2 : positive ? fmin(fabs(x), most) : fmin(x, most);
            }
            convert_dense(in, (fs_dtype)from, number, FS_FLOAT64, N);
            memset(out, 0xa5, N * 8);
            convert_dense(out, (fs_dtype)to, in, (fs_dtype)from, N);
            for (int i = 0; i < N; i++) {
                double x = element_get(in, (fs_dtype)from, i), got = element_get(out, (fs_dtype)to, i);
                double want = nearest_element(x, (fs_dtype)to);
                CHECK(got == want, "%s %.9g to %s is %.9g, not %.9g", fs_dtypes[from].name, x, fs_dtypes[to].name, got,
                      want);
            }
        }
    }
    int64_t big = INT64_MAX - 5, big_back = 0;
    convert_dense(&big_back, FS_INT64, &big, FS_INT64, 1);
    CHECK(big_back == big, "int64 copied");
    free(number);
    free(in);
    free(out);
}

static void test_all(void)
{
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    for (fs_dtype dtype = FS_FLOAT64; dtype <= FS_FLOAT32; dtype++) {
        test_unary_values_match_libm(dtype);
        test_binary_values_match_libm(dtype);
        test_exact_cases_are_exact(dtype);
    }
    test_halves_widen_and_narrow_right(FS_FLOAT16);
    test_halves_widen_and_narrow_right(FS_BFLOAT16);
    test_every_conversion();
}

int main(void)
{
    return each_isa(test_all);
}
