/* The loops of reductions, row-wise ops, random draws and matrix products: one table per instruction set. */
#ifndef FS_OPS_CPU_ROWS_LOOPS_H
#define FS_OPS_CPU_ROWS_LOOPS_H

#include "ops/backend.h"
#include "ops/cpu/isa.h"

enum {
    FS_FLOAT_DTYPES = FS_BFLOAT16 + 1, /* the float dtypes come first */
    FS_GEMM_M = 96,                    /* of the output tile that one call computes */
    FS_GEMM_N = 128,
};

/* The loops of one float dtype. `stream`: store past the cache, for outputs too large to stay in it. */
typedef struct {
    /* Whole rows: out[r] in the dtype. */
    void (*reduce)(fs_reduction_id op, const void *in, void *out, int64_t rows, int64_t length);
    /* A part of one row: its sum (also for FS_MEAN) or extreme, and that value rounded to the dtype. */
    double (*partial)(fs_reduction_id op, const void *in, int64_t count);
    void (*put)(void *out, double value);
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
