/* Helpers of the CPU backend's tests: comparing elements of any float dtype, and running tests in one child process per
 * instruction set. */
#ifndef FS_TESTS_CPU_VALUES_H
#define FS_TESTS_CPU_VALUES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "ops/backend.h"
#include "ops/cpu/cpu_device.h"
#include "ops/cpu/vecmath_half.h"
#include "tests/c/check.h"

static const fs_device cpu = {FS_CPU, 0};
static const fs_backend *const backend = &fs_cpu_backend;

/* ---- values of any float dtype ---- */

static const fs_dtype float_dtypes[] = {FS_FLOAT64, FS_FLOAT32, FS_FLOAT16, FS_BFLOAT16};
enum { FLOAT_DTYPES = sizeof float_dtypes / sizeof *float_dtypes };

static double get(const void *data, int64_t i, fs_dtype dtype)
{
    if (dtype == FS_FLOAT64) return ((const double *)data)[i];
    if (dtype == FS_FLOAT32) return (double)((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    return (double)(dtype == FS_FLOAT16 ? fs_f16_to_f32(half) : fs_bf16_to_f32(half));
}

static void put(void *data, int64_t i, fs_dtype dtype, double value)
{
    if (dtype == FS_FLOAT64) ((double *)data)[i] = value;
    if (dtype == FS_FLOAT32) ((float *)data)[i] = (float)value;
    if (dtype == FS_FLOAT16) ((uint16_t *)data)[i] = fs_f32_to_f16((float)value);
    if (dtype == FS_BFLOAT16) ((uint16_t *)data)[i] = fs_f32_to_bf16((float)value);
}

/* Return the relative rounding error of the dtype: half a unit in the last place. */
static double rounding(fs_dtype dtype)
{
    return dtype == FS_FLOAT64 ? 0x1p-53 : dtype == FS_FLOAT32 ? 0x1p-24 : dtype == FS_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

/* The same for the type in which ops of the dtype compute. */
static double compute_rounding(fs_dtype dtype)
{
    return dtype == FS_FLOAT64 ? 0x1p-53 : 0x1p-24;
}

static uint64_t random_state = 88172645463325252u;

static double random_between(double low, double high)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (high - low) * (double)(random_state >> 11) * 0x1p-53;
}

static void *random_array(int64_t count, fs_dtype dtype, double low, double high)
{
    void *data = malloc((size_t)count * fs_dtypes[dtype].size);
    for (int64_t i = 0; i < count; i++) put(data, i, dtype, random_between(low, high));
    return data;
}

static bool close_to(double got, long double want, double tolerance)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return (long double)got == want;
    return fabsl(got - want) <= tolerance;
}

/* Run the tests with each instruction set, each in a child process, since a process chooses its set once. Return the
 * exit status for main(). */
static int run_for_each_isa(void (*tests)(void))
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("FLOPSCOPE_ISA", isas[i], 1);
            if (strcmp(fs_cpu_isa(), isas[i]) != 0) exit(0); /* unsupported by this processor */
            CHECK_OK(fs_parallel_set_threads(3, NULL));
            int64_t live = fs_memory_live();
            tests();
            CHECK(fs_memory_live() == live, "%lld blocks leaked", (long long)(fs_memory_live() - live));
            if (failures > 0) fprintf(stderr, "%s: %d failures\n", isas[i], failures);
            exit(failures > 0);
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) failed = 1;
    }
    return failed;
}

#endif
