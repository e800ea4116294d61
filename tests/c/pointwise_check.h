/* Helpers of the CPU's pointwise tests: random numbers, conversion of elements of every dtype, and running a test with
 * every instruction set. */
#ifndef FS_TESTS_POINTWISE_CHECK_H
#define FS_TESTS_POINTWISE_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/cpu/cpu.h"
#include "tests/c/check.h"

static const fs_device cpu = {FS_CPU, 0};
static uint64_t random_state = 88172645463325252u;

static inline uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static inline double random_between(double low, double high)
{
    return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}

static inline void *block_new(size_t nbytes)
{
    void *block = NULL;
    if (posix_memalign(&block, 64, nbytes + 64) != 0) abort();
    memset(block, 0, nbytes + 64);
    return block;
}

static inline fs_elementwise dense_space(fs_dtype dtype, void *out, const void *a, const void *b, int64_t count)
{
    fs_elementwise space = {.ndim = 1, .out = out, .in = {a, b}, .dtype = dtype, .count = count};
    space.shape[0] = count;
    space.out_strides[0] = space.in_strides[0][0] = space.in_strides[1][0] = 1;
    return space;
}

/* Convert a stored element to a double, and a double to the nearest element (ties to even), by the formats'
 * definitions. */
typedef struct {
    int bits, digits, least; /* significant binary digits; the exponent of the smallest subnormal */
    double largest;
    bool saturates; /* has no infinity, and one NaN: all ones */
} small_float;

static const small_float small_floats[] = {
    [FS_FLOAT16] = {16, 11, -24, 65504, false},
    [FS_BFLOAT16] = {16, 8, -133, 0x1.fep127, false},
    [FS_FLOAT8_E4M3FN] = {8, 4, -9, 448, true},
    [FS_FLOAT8_E5M2] = {8, 3, -16, 57344, false},
};

static inline double small_number(unsigned bits, const small_float *format)
{
    unsigned sign_bit = 1u << (format->bits - 1), rest = bits & (sign_bit - 1);
    int fraction_bits = format->digits - 1, exponent_bits = format->bits - 1 - fraction_bits;
    int exponent = (int)(rest >> fraction_bits), fraction = (int)(rest & ((1u << fraction_bits) - 1));
    double sign = bits & sign_bit ? -1 : 1;
    if (format->saturates ? rest == sign_bit - 1 : exponent == (1 << exponent_bits) - 1)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent > 0) fraction += 1 << fraction_bits;
    return sign * ldexp(fraction, format->least + (exponent > 0 ? exponent - 1 : 0));
}

static inline double nearest_small(double x, const small_float *format)
{
    double beyond = format->saturates ? format->largest : (double)INFINITY;
    if (isinf(x)) return copysign(beyond, x);
    if (isnan(x) || x == 0) return x;
    int exponent;
    frexp(x, &exponent);
    int unit = exponent - format->digits < format->least ? format->least : exponent - format->digits;
    double rounded = ldexp(rint(ldexp(x, -unit)), unit);
    return fabs(rounded) > format->largest ? copysign(beyond, x) : rounded;
}

static inline double element_get(const void *data, fs_dtype dtype, int64_t i)
{
    switch (dtype) {
    case FS_FLOAT64:
        return ((const double *)data)[i];
    case FS_FLOAT32:
        return (double)((const float *)data)[i];
    case FS_FLOAT16:
    case FS_BFLOAT16:
        return small_number(((const uint16_t *)data)[i], &small_floats[dtype]);
    case FS_FLOAT8_E4M3FN:
    case FS_FLOAT8_E5M2:
        return small_number(((const uint8_t *)data)[i], &small_floats[dtype]);
    case FS_INT64:
        return (double)((const int64_t *)data)[i];
    case FS_INT32:
        return ((const int32_t *)data)[i];
    case FS_INT8:
        return ((const int8_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static inline double nearest_element(double x, fs_dtype dtype)
{
    switch (dtype) {
    case FS_FLOAT64:
        return x;
    case FS_FLOAT32:
        return (double)(float)x;
    case FS_FLOAT16:
    case FS_BFLOAT16:
    case FS_FLOAT8_E4M3FN:
    case FS_FLOAT8_E5M2:
        return nearest_small(x, &small_floats[dtype]);
    case FS_BOOL:
        return x != 0;
    default:
        return trunc(x);
    }
}

static inline bool same(double a, double b)
{
    return a == b ? !signbit(a) == !signbit(b) : isnan(a) && isnan(b);
}

static inline void convert_dense(void *out, fs_dtype to, const void *in, fs_dtype from, int64_t count)
{
    fs_conversion conversion = {dense_space(to, out, in, NULL, count), from};
    CHECK(fs_cpu_convert(cpu, &conversion, NULL) == FS_OK, "%s to %s", fs_dtypes[from].name, fs_dtypes[to].name);
}

/* Run the test once per instruction set, each in a child process, since a process chooses its loops once. A set that
 * this processor lacks falls back to the best available. Return the exit status for main(). */
static inline int each_isa(void (*test)(void))
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            setenv("FLOPSCOPE_ISA", isas[i], 1);
            test();
            if (failures != 0) fprintf(stderr, "%s: %d failures\n", isas[i], failures);
            exit(failures != 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        failed |= status != 0;
    }
    return failed;
}

#endif
