/* The loops of reductions, row-wise ops, random draws and matrix products: one table per instruction set. */
#ifndef FS_OPS_CPU_ROWS_LOOPS_H
#define FS_OPS_CPU_ROWS_LOOPS_H

#include <math.h>

#include "ops/backend.h"
#include "ops/cpu/isa.h"

enum {
    FS_FLOAT_DTYPES = FS_BFLOAT16 + 1, /* the float dtypes come first */
    FS_GEMM_M = 96,                    /* of the output tile that one call computes */
    FS_GEMM_N = 128,
};

/* What is known of a part of a row: its sum (also for FS_MEAN), sum of squares (FS_NORM), mean (FS_VAR) or extreme; and
 * the sum of squares about that mean (FS_VAR), or the place of that extreme in the part (FS_ARGMAX). */
typedef struct {
    double value, second;
} fs_partial;

/* The moments (FS_VAR) of two parts of n_a and n_b elements together, by Chan, Golub and LeVeque's formula. */
static inline fs_partial fs_join_moments(fs_partial a, double n_a, fs_partial b, double n_b)
{
    double delta = b.value - a.value, share = n_b / (n_a + n_b);
    return (fs_partial){a.value + delta * share, a.second + b.second + delta * (n_a * share) * delta};
}

/* The result that a whole row's partial makes. */
static inline double fs_reduced_value(fs_reduction_id op, const fs_reduction *reduction, fs_partial whole)
{
    const double length = (double)reduction->length, correction = reduction->correction;
    if (op == FS_MEAN) return whole.value / length;
    if (op == FS_NORM) return sqrt(whole.value);
    if (op == FS_VAR) return whole.second / (length > correction ? length - correction : 0);
    return whole.value;
}

/* The loops of one float dtype. `stream`: store past the cache, for outputs too large to stay in it. */
typedef struct {
    /* Rows [begin, end). */
    void (*reduce)(fs_reduction_id op, const fs_reduction *reduction, int64_t begin, int64_t end);
    /* A part of one row. */
    fs_partial (*partial)(fs_reduction_id op, const void *in, int64_t count);
    /* out[row] from what all parts of the row make together. */
    void (*put)(fs_reduction_id op, const fs_reduction *reduction, int64_t row, fs_partial whole);
    /* Write the cumulative sums of `count` elements, starting from `base`, and return their own sum. The same without
     * writing if out is NULL. */
    double (*scan)(const void *in, void *out, int64_t count, double base, bool stream);
    /* Rows [begin, end). */
    void (*rowwise)(fs_rowwise_id op, const fs_rowwise *rowwise, int64_t begin, int64_t end, bool stream);
    /* Draws [begin, end) of the record. */
    void (*random)(fs_random_id op, const fs_random *random, int64_t begin, int64_t end, bool stream);
    /* The output tile of FS_GEMM_M x FS_GEMM_N (less at the edges) with its corner at (row, column) of matrix
     * `batch`. float64 and float32 only. */
    void (*gemm_tile)(const fs_matmul *matmul, int64_t batch, int64_t row, int64_t column);
    /* Run `iterations` of independent multiply-add chains and return the FLOPs executed. `result` keeps them from being
     * optimised away. float64 and float32 only. */
    double (*multiply_add)(int64_t iterations, double *result);
} fs_cpu_rows_of_dtype;

typedef struct {
    fs_cpu_rows_of_dtype of[FS_FLOAT_DTYPES];
} fs_cpu_rows_loops;

FS_ISA_DECLARE(fs_cpu_rows_loops, fs_cpu_rows_loops);

#endif
