/* The loops over dense blocks, one table per instruction set (isa.h). All arrays are dense. out may be the same array
 * as an input. */
#ifndef FS_OPS_CPU_POINTWISE_LOOPS_H
#define FS_OPS_CPU_POINTWISE_LOOPS_H

#include <stdint.h>

#include "ops/backend.h"
#include "ops/cpu/isa.h"

/* Which input of a binary loop is a single value, at index 0, for all elements. */
typedef enum { FS_VECTOR_VECTOR, FS_SCALAR_VECTOR, FS_VECTOR_SCALAR, FS_BINARY_FORM_COUNT } fs_binary_form;

/* The compute type of a loop. */
typedef enum { FS_COMPUTE_F32, FS_COMPUTE_F64, FS_COMPUTE_COUNT } fs_compute;

typedef void (*fs_unary_loop)(void *out, const void *in, int64_t count);
typedef void (*fs_binary_loop)(void *out, const void *a, const void *b, int64_t count);

typedef struct {
    fs_unary_loop unary[FS_UNARY_COUNT][FS_COMPUTE_COUNT];
    fs_binary_loop binary[FS_BINARY_COUNT][FS_COMPUTE_COUNT][FS_BINARY_FORM_COUNT];
    fs_unary_loop convert[FS_DTYPE_COUNT][FS_DTYPE_COUNT]; /* [to][from] */
    /* Store bytes past the caches, from a block in L1 to memory that is not read soon. `to` is 64-aligned. */
    void (*stream)(void *to, const void *from, int64_t nbytes);
    /* Called once after a thread's last stream, before another thread may read the result. */
    void (*stream_end)(void);
} fs_cpu_pointwise_loops;

FS_ISA_DECLARE(fs_cpu_pointwise_loops, fs_cpu_pointwise_loops);

#endif
