/* The CPU's pointwise ops, conversions and thread pool against the C library in long double and plain loops, with
 * every instruction set that this processor has (each in a child process, since it is chosen once). */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/parallel.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_device.h"

static const fs_device cpu = {FS_CPU, 0};
static int failures;

#define CHECK(condition, ...)                                         \
    do {                                                              \
        if (!(condition) && failures++ < 40) {                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                             \
            fputc('\n', stderr);                                      \
        }                                                             \
    } while (0)

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double random_between(double low, double high)
{
    return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}

static void *block_new(size_t nbytes)
{
    void *block = NULL;
    if (posix_memalign(&block, 64, nbytes + 64) != 0) abort();
    memset(block, 0, nbytes + 64);
    return block;
}

/* ---- values ---- */

/* The rows of pointwise.def in long double. */
#define K(constant) ((long double)(constant))
#define M(name) name##l
#define FS_UNARY(name, value, prose)                   \
    static long double unary_##name(long double x)     \
    {                                                  \
        return value;                                  \
    }
#define FS_BINARY(name, value, prose)                               \
    static long double binary_##name(long double a, long double b)  \
    {                                                               \
        return value;                                               \
    }
#include "ops/pointwise.def"
#undef FS_UNARY
#undef FS_BINARY

/* How many units in the last place a row may be off, and how many of |x|'s where it takes a difference near 1. */
typedef struct {
    const char *name;
    long double (*value)(long double);
    double ulps, ulps_of_x;
} unary_row;

static const unary_row unary_rows[FS_UNARY_COUNT] = {
#define FS_UNARY(name, value, prose) [FS_UNARY_##name] = {#name, unary_##name, 3, FS_UNARY_##name == FS_UNARY_gelu ? 2 : 0},
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

/* `got` in the dtype for the true value: NaN for NaN, infinity and zero where rounding gives them, else near. */
static bool value_is_right(double got, long double want, fs_dtype dtype, double ulps, double room)
{
    double rounded = dtype == FS_FLOAT64 ? (double)want : (double)(float)want;
    if (isnan(rounded)) return isnan(got);
    if (got == rounded) return rounded != 0 || !signbit(got) == !signbit(rounded) || room > 0;
    if (isinf(rounded)) return fabs(got) >= (dtype == FS_FLOAT64 ? DBL_MAX : FLT_MAX) && !signbit(got) == !signbit(rounded);
    return fabsl((long double)got - want) <= (long double)(ulps * unit_of(rounded, dtype) + room);
}

static const double special_values[] = {0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5, 1e-320, 1e-310,
    -1e-310, 1e-45, -1e-45, 1e-40, 1e-38, 1.18e-38, 88.7, 88.73, -87.3, -88, -103, -103.9, -104, -110, 709.7, 709.8,
    -708.3, -745, -745.1, -745.2, -750, 1000, 8, 1e4, 1e5, 1e6, 1e7, 1e10, 1e22, 1e30, 3e38, 1e300, 1.7e308, 5, 9, 16777215,
    16777216, 16777217, 8388607, 8388609, 9007199254740991.0, 9007199254740993.0, 1.0000001, 0.9999999,
    1.000000000000001, 0.999999999999999, 3.14159265358979, 1.5707963267948966, 355, 710, 11, 1e-5, 1e-20, -1e-20,
    INFINITY, -INFINITY, NAN};
enum { SPECIALS = sizeof special_values / sizeof *special_values, VALUES = 60000 };

static double random_value(fs_dtype dtype, int64_t i)
{
    if (i < SPECIALS) return special_values[i];
    switch (i % 4) {
    case 0: return random_between(-20, 20);
    case 1: return random_between(-2, 2);
    case 2: return random_between(-760, 760);
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

static fs_elementwise dense_space(fs_dtype dtype, void *out, const void *a, const void *b, int64_t count)
{
    fs_elementwise space = {.ndim = 1, .out = out, .in = {a, b}, .dtype = dtype, .count = count};
    space.shape[0] = count;
    space.out_strides[0] = space.in_strides[0][0] = space.in_strides[1][0] = 1;
    return space;
}

static void test_unary_values_match_libm(fs_dtype dtype)
{
    size_t size = fs_dtypes[dtype].size;
    void *in = block_new(VALUES * size), *out = block_new(VALUES * size);
    for (int64_t i = 0; i < VALUES; i++) dense_set(in, dtype, i, random_value(dtype, i));
    double epsilon = dtype == FS_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
    double least = dtype == FS_FLOAT64 ? DBL_MIN : FLT_MIN;
    for (int op = 0; op < FS_UNARY_COUNT; op++) {
        /* Twice: with values far out of the fast sine's range in some blocks, and in none. */
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
                /* exp overflows inside sigmoid and silu a little before their own value underflows. */
                bool composed = op == FS_UNARY_sigmoid || op == FS_UNARY_silu || op == FS_UNARY_gelu;
                double room = row->ulps_of_x * epsilon * (isfinite(x) ? fabs(x) : 0);
                if (composed) room += least * (fabs(x) < 800 ? 800 : 1);
                CHECK(value_is_right(got, row->value((long double)x), dtype, row->ulps, room),
                      "%s %s(%.17g) is %.17g, not %.17Lg", fs_dtypes[dtype].name, row->name, x, got, row->value((long double)x));
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
        double y = grid ? special_values[i % SPECIALS] : i % 3 == 0 ? rint(random_between(-40, 40)) : random_between(-9, 9);
        dense_set(a, dtype, i, i % 2 && !grid ? fabs(x) : x);
        dense_set(b, dtype, i, y);
    }
    for (int op = 0; op < FS_BINARY_COUNT; op++) {
        fs_elementwise space = dense_space(dtype, out, a, b, VALUES);
        CHECK(fs_cpu_binary(cpu, (fs_binary_id)op, &space, NULL) == FS_OK, "%s", binary_rows[op].name);
        for (int64_t i = 0; i < VALUES; i++) {
            double x = dense_get(a, dtype, i), y = dense_get(b, dtype, i), got = dense_get(out, dtype, i);
            long double want = binary_rows[op].value((long double)x, (long double)y);
            CHECK(value_is_right(got, want, dtype, op == FS_BINARY_pow ? 2 : 0.51, 0), "%s %s(%.17g, %.17g) is %.17g, not %.17Lg",
                  fs_dtypes[dtype].name, binary_rows[op].name, x, y, got, want);
        }
        /* A scalar on either side. */
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
    fs_cpu_unary(cpu, op, &space, NULL);
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

/* ---- dtypes ---- */

/* A stored element as a number, and a number as the nearest element (ties to even), from the formats' definitions. */
static double half_number(uint16_t bits, int digits, int least)
{
    int fraction_bits = digits - 1, exponent_bits = 15 - fraction_bits;
    int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent > 0) fraction += 1 << fraction_bits;
    return sign * ldexp(fraction, least + (exponent > 0 ? exponent - 1 : 0));
}

static double element_get(const void *data, fs_dtype dtype, int64_t i)
{
    switch (dtype) {
    case FS_FLOAT64: return ((const double *)data)[i];
    case FS_FLOAT32: return (double)((const float *)data)[i];
    case FS_FLOAT16: return half_number(((const uint16_t *)data)[i], 11, -24);
    case FS_BFLOAT16: return half_number(((const uint16_t *)data)[i], 8, -133);
    case FS_INT64: return (double)((const int64_t *)data)[i];
    case FS_INT32: return ((const int32_t *)data)[i];
    case FS_INT8: return ((const int8_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

static double nearest_element(double x, fs_dtype dtype)
{
    int digits = dtype == FS_FLOAT16 ? 11 : 8, least = dtype == FS_FLOAT16 ? -24 : -133;
    switch (dtype) {
    case FS_FLOAT64: return x;
    case FS_FLOAT32: return (double)(float)x;
    case FS_FLOAT16:
    case FS_BFLOAT16: {
        if (!isfinite(x) || x == 0) return x;
        int exponent;
        frexp(x, &exponent);
        int unit = exponent - digits < least ? least : exponent - digits;
        double rounded = ldexp(rint(ldexp(x, -unit)), unit);
        return fabs(rounded) >= ldexp(1, dtype == FS_FLOAT16 ? 16 : 128) ? copysign((double)INFINITY, x) : rounded;
    }
    case FS_BOOL: return x != 0;
    default: return trunc(x);
    }
}

static bool same(double a, double b)
{
    return a == b ? !signbit(a) == !signbit(b) : isnan(a) && isnan(b);
}

static void convert_dense(void *out, fs_dtype to, const void *in, fs_dtype from, int64_t count)
{
    fs_conversion conversion = {dense_space(to, out, in, NULL, count), from};
    CHECK(fs_cpu_convert(cpu, &conversion, NULL) == FS_OK, "%s to %s", fs_dtypes[from].name, fs_dtypes[to].name);
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
    /* Around every value and half way between neighbours, from float and (where float would round twice) double. */
    for (int i = 0; i < MORE; i++) {
        uint16_t low = (uint16_t)(i / 4), high = (uint16_t)(low + 1);
        double a = element_get(&low, dtype, 0), b = element_get(&high, dtype, 0);
        double middle = (a + b) / 2;
        number[i] = i % 4 == 0 ? middle : i % 4 == 1 ? nextafter(middle, a) : i % 4 == 2 ? nextafter(middle, b)
                                                                                        : a + (b - a) * random_between(0, 1);
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
    fs_cpu_unary(cpu, FS_UNARY_sqrt, &space, NULL);
    for (int i = 0; i < ALL; i++) {
        double want = nearest_element((double)sqrtf((float)element_get(bits, dtype, i)), dtype);
        CHECK(same(element_get(back, dtype, i), want), "%s sqrt of %04x", fs_dtypes[dtype].name, i);
    }
    space = dense_space(dtype, back, bits, NULL, ALL);
    space.scalar[1] = 0.1;
    fs_cpu_binary(cpu, FS_BINARY_add, &space, NULL);
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
            /* Numbers that both have room for; fractions only where they come from a float. */
            bool positive = from == FS_UINT8 || to == FS_UINT8;
            for (int i = 0; i < N; i++) {
                double x = i < 256 ? i - 127 : random_between(-127, 127);
                ((double *)number)[i] = from == FS_BOOL ? i % 2 : positive ? fmin(fabs(x), 127) : fmin(x, 127);
            }
            convert_dense(in, (fs_dtype)from, number, FS_FLOAT64, N);
            memset(out, 0xa5, N * 8);
            convert_dense(out, (fs_dtype)to, in, (fs_dtype)from, N);
            for (int i = 0; i < N; i++) {
                double x = element_get(in, (fs_dtype)from, i), got = element_get(out, (fs_dtype)to, i);
                double want = nearest_element(x, (fs_dtype)to);
                CHECK(got == want, "%s %.9g to %s is %.9g, not %.9g", fs_dtypes[from].name, x, fs_dtypes[to].name, got, want);
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

/* ---- layouts ---- */

typedef struct {
    int64_t strides[FS_MAX_DIMS];
    char *data; /* element (0, …) */
    char *block;
} laid_out;

/* A random layout of the shape over fresh memory: permuted, with gaps, backwards, or broadcast (inputs only). */
static laid_out layout_random(int ndim, const int64_t *shape, fs_dtype dtype, bool broadcast)
{
    laid_out layout = {.data = NULL};
    int order[FS_MAX_DIMS];
    for (int d = 0; d < ndim; d++) order[d] = ndim - 1 - d;
    if (random_bits() % 2) {
        for (int d = ndim - 1; d > 0; d--) {
            int other = (int)(random_bits() % (uint64_t)(d + 1)), held = order[d];
            order[d] = order[other];
            order[other] = held;
        }
    }
    int64_t stride = random_bits() % 4 == 0 ? 2 : 1, first = 0;
    for (int d = 0; d < ndim; d++) {
        int dim = order[d];
        if (broadcast && random_bits() % 4 == 0) continue;
        bool backwards = random_bits() % 8 == 0;
        layout.strides[dim] = backwards ? -stride : stride;
        if (backwards) first += (shape[dim] - 1) * stride;
        stride *= shape[dim] + (random_bits() % 4 == 0 ? 3 : 0);
    }
    int64_t size = (int64_t)fs_dtypes[dtype].size;
    layout.block = block_new((size_t)(stride * size));
    layout.data = layout.block + first * size;
    double *numbers = block_new((size_t)stride * 8);
    for (int64_t i = 0; i < stride; i++) numbers[i] = (double)(random_bits() % 15) + 1;
    convert_dense(layout.block, dtype, numbers, FS_FLOAT64, stride);
    free(numbers);
    return layout;
}

static int64_t offset_at(int64_t index, int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = ndim - 1; d >= 0; d--) {
        offset += index % shape[d] * strides[d];
        index /= shape[d];
    }
    return offset;
}

static void test_any_layout(void)
{
    static const fs_dtype floats[] = {FS_FLOAT64, FS_FLOAT32, FS_FLOAT16, FS_BFLOAT16};
    for (int round = 0; round < 400; round++) {
        fs_elementwise space = {.ndim = 1 + (int)(random_bits() % 4), .count = 1};
        for (int d = 0; d < space.ndim; d++) {
            static const uint64_t limits[] = {3000, 130, 30, 9};
            space.shape[d] = 1 + (int64_t)(random_bits() % (random_bits() % 3 == 0 ? 4 : limits[space.ndim - 1]));
            space.count *= space.shape[d];
        }
        if (round % 40 == 0) { /* some that are worth many threads */
            space.ndim = 2;
            space.shape[0] = 517;
            space.shape[1] = 611;
            space.count = 517 * 611;
        }
        space.dtype = floats[random_bits() % 4];
        fs_dtype in_dtype = random_bits() % 2 ? space.dtype : (fs_dtype)(random_bits() % FS_BOOL);
        laid_out out = layout_random(space.ndim, space.shape, space.dtype, false);
        laid_out a = layout_random(space.ndim, space.shape, space.dtype, true);
        laid_out b = layout_random(space.ndim, space.shape, space.dtype, true);
        laid_out other = layout_random(space.ndim, space.shape, in_dtype, true);
        int64_t size = (int64_t)fs_dtypes[space.dtype].size;
        bool in_place = random_bits() % 4 == 0;
        int scalar = (int)(random_bits() % 5); /* 0 or 1: that input is one */
        if (in_place) {
            memcpy(a.strides, out.strides, sizeof a.strides);
            free(a.block);
            a.block = NULL;
            a.data = out.data;
            if (scalar == 0) scalar = 4;
        }
        double *expected[3];
        for (int kind = 0; kind < 3; kind++) {
            expected[kind] = block_new((size_t)space.count * 8);
            for (int64_t i = 0; i < space.count; i++) {
                double x = element_get(a.data + offset_at(i, space.ndim, space.shape, a.strides) * size, space.dtype, 0);
                double y = element_get(b.data + offset_at(i, space.ndim, space.shape, b.strides) * size, space.dtype, 0);
                int64_t at = offset_at(i, space.ndim, space.shape, other.strides) * (int64_t)fs_dtypes[in_dtype].size;
                if (scalar == 0) x = 2.5;
                if (scalar == 1) y = 2.5;
                expected[kind][i] = kind == 0 ? element_get(other.data + at, in_dtype, 0) : kind == 1 ? x - y : -x;
            }
        }
        space.out = out.data;
        memcpy(space.out_strides, out.strides, sizeof out.strides);
        for (int kind = 0; kind < 3; kind++) {
            if (kind == 2 && (in_place || scalar == 0)) continue; /* the subtraction has overwritten x; none given */
            if (kind == 0) {
                fs_conversion conversion = {space, in_dtype};
                conversion.space.in[0] = other.data;
                memcpy(conversion.space.in_strides[0], other.strides, sizeof other.strides);
                if (in_place) continue;
                fs_cpu_convert(cpu, &conversion, NULL);
            } else {
                space.in[0] = a.data;
                space.in[1] = kind == 1 ? b.data : NULL;
                memcpy(space.in_strides[0], a.strides, sizeof a.strides);
                memcpy(space.in_strides[1], b.strides, sizeof b.strides);
                if (kind == 1 && scalar < 2) {
                    space.in[scalar] = NULL;
                    space.scalar[scalar] = 2.5;
                }
                if (kind == 1) fs_cpu_binary(cpu, FS_BINARY_sub, &space, NULL);
                else fs_cpu_unary(cpu, FS_UNARY_neg, &space, NULL);
            }
            for (int64_t i = 0; i < space.count; i++) {
                int64_t at = offset_at(i, space.ndim, space.shape, out.strides) * size;
                double got = element_get(out.data + at, space.dtype, 0);
                CHECK(got == expected[kind][i], "round %d, kind %d, %s, element %lld: %g, not %g", round, kind,
                      fs_dtypes[space.dtype].name, (long long)i, got, expected[kind][i]);
            }
        }
        for (int kind = 0; kind < 3; kind++) free(expected[kind]);
        free(out.block);
        free(a.block);
        free(b.block);
        free(other.block);
    }
}

static void test_fill_leaves_gaps_alone(void)
{
    enum { ROWS = 300, COLUMNS = 70, PITCH = 80 };
    for (int dtype = 0; dtype < FS_DTYPE_COUNT; dtype++) {
        size_t size = fs_dtypes[dtype].size;
        char *data = block_new(ROWS * PITCH * size);
        fs_elementwise space = {.ndim = 2, .shape = {ROWS, COLUMNS}, .out_strides = {PITCH, 1}, .out = data,
                                .scalar = {dtype == FS_BOOL ? 1 : 7}, .dtype = (fs_dtype)dtype, .count = ROWS * COLUMNS};
        fs_cpu_fill(cpu, &space, NULL);
        for (int64_t i = 0; i < ROWS * PITCH; i++) {
            double got = element_get(data, (fs_dtype)dtype, i), want = i % PITCH < COLUMNS ? space.scalar[0] : 0;
            CHECK(got == want, "%s at %lld: %g", fs_dtypes[dtype].name, (long long)i, got);
        }
        free(data);
    }
}

/* Outputs beyond the cache are written past it: the same values, to the last element. */
static void test_large_outputs(void)
{
    int64_t cache = fs_cpu_cache_bytes() > 0 ? fs_cpu_cache_bytes() : 32 << 20;
    int64_t rows = 1024, columns = cache / 2 / 4 / rows + 19, count = rows * columns;
    if (count > (int64_t)1 << 27) return;
    float *in = block_new((size_t)count * 4), *out = block_new((size_t)count * 4 + 64);
    for (int64_t i = 0; i < count; i++) in[i] = (float)(i % 1000003);
    for (int shift = 0; shift < 2; shift++) {
        fs_elementwise space = dense_space(FS_FLOAT32, out + shift, in, NULL, count);
        fs_cpu_unary(cpu, FS_UNARY_neg, &space, NULL);
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; i++) wrong += out[i + shift] != -in[i];
        CHECK(wrong == 0, "%lld of %lld wrong", (long long)wrong, (long long)count);
    }
    fs_conversion transposed = {{.ndim = 2, .shape = {columns, rows}, .out_strides = {rows, 1}, .in_strides = {{1, columns}},
                                 .out = out, .in = {in}, .dtype = FS_FLOAT32, .count = count}, FS_FLOAT32};
    fs_cpu_convert(cpu, &transposed, NULL);
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) wrong += out[c * rows + r] != in[r * columns + c];
    }
    CHECK(wrong == 0, "%lld of %lld wrong in the transposed copy", (long long)wrong, (long long)count);
    free(in);
    free(out);
}

/* ---- the pool ---- */

enum { MARKS = 100000 };

static void body_mark(void *context, int64_t begin, int64_t end)
{
    unsigned char *marks = context;
    CHECK(begin % 16 == 0, "a piece begins at %lld", (long long)begin);
    for (int64_t i = begin; i < end; i++) marks[i]++;
}

static void body_nested(void *context, int64_t begin, int64_t end)
{
    unsigned char **rows = context;
    for (int64_t i = begin; i < end; i++) fs_parallel_for(MARKS / 100, 16, body_mark, rows[i]);
}

static bool marks_are(const unsigned char *marks, int64_t count, unsigned char want)
{
    for (int64_t i = 0; i < count; i++) {
        if (marks[i] != want) return false;
    }
    return true;
}

static void *caller_main(void *context)
{
    for (int i = 0; i < 100; i++) fs_parallel_for(MARKS, 16, body_mark, context);
    return NULL;
}

static void test_parallel_for_covers_once(void)
{
    unsigned char *marks = block_new(MARKS);
    for (int threads = 1; threads <= 9; threads += 4) {
        CHECK(fs_parallel_set_threads(threads, NULL) == FS_OK && fs_parallel_threads() == threads, "%d", threads);
        for (int64_t count = 0; count < MARKS; count += 7777) {
            memset(marks, 0, MARKS);
            fs_parallel_for(count, 16, body_mark, marks);
            CHECK(marks_are(marks, count, 1) && marks_are(marks + count, MARKS - count, 0), "count %lld", (long long)count);
        }
    }
    /* Loops within loops, and callers at the same time, all finish. */
    unsigned char *rows[64];
    for (int i = 0; i < 64; i++) rows[i] = block_new(MARKS / 100);
    fs_parallel_for(64, 1, body_nested, rows);
    for (int i = 0; i < 64; i++) {
        CHECK(marks_are(rows[i], MARKS / 100, 1), "row %d", i);
        free(rows[i]);
    }
    pthread_t callers[4];
    unsigned char *each[4];
    for (int i = 0; i < 4; i++) {
        each[i] = block_new(MARKS);
        if (pthread_create(&callers[i], NULL, caller_main, each[i]) != 0) abort();
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(callers[i], NULL);
        CHECK(marks_are(each[i], MARKS, 100), "caller %d", i);
        free(each[i]);
    }
    /* A child of a fork has a pool of its own. */
    pid_t child = fork();
    if (child == 0) {
        memset(marks, 0, MARKS);
        fs_parallel_for(MARKS, 16, body_mark, marks);
        _exit(marks_are(marks, MARKS, 1) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0, "the child of a fork ended with %d", status);
    free(marks);
}

static void test_thread_count_is_checked(void)
{
    fs_error err;
    CHECK(fs_parallel_set_threads(0, &err) == FS_VALUE_ERROR && strstr(err.message, "not 0") != NULL, "%s", err.message);
    CHECK(fs_parallel_set_threads(257, &err) == FS_VALUE_ERROR && strstr(err.message, "257") != NULL, "%s", err.message);
}

static void run_all(void)
{
    fs_parallel_set_threads(3, NULL);
    for (fs_dtype dtype = FS_FLOAT64; dtype <= FS_FLOAT32; dtype++) {
        test_unary_values_match_libm(dtype);
        test_binary_values_match_libm(dtype);
        test_exact_cases_are_exact(dtype);
    }
    test_halves_widen_and_narrow_right(FS_FLOAT16);
    test_halves_widen_and_narrow_right(FS_BFLOAT16);
    test_every_conversion();
    test_any_layout();
    test_fill_leaves_gaps_alone();
    test_large_outputs();
    test_parallel_for_covers_once();
    test_thread_count_is_checked();
}

int main(void)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            setenv("FLOPSCOPE_ISA", isas[i], 1);
            run_all();
            fprintf(stderr, "%s: %d failures\n", isas[i], failures);
            return failures != 0;
        }
        int status = 0;
        waitpid(child, &status, 0);
        failed |= status != 0;
    }
    return failed;
}
