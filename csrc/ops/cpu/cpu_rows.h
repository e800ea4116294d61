/* The other functions of the CPU backend: memory, reductions, cumulative sums, row-wise ops, matrix products and random
 * draws. Arguments as in ops/backend.h; dtypes are floats. */
#ifndef FS_OPS_CPU_CPU_ROWS_H
#define FS_OPS_CPU_CPU_ROWS_H

#include "ops/backend.h"

fs_status fs_cpu_reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err);
fs_status fs_cpu_cumsum(fs_device device, const fs_cumsum *scan, fs_error *err);
fs_status fs_cpu_rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rowwise, fs_error *err);
fs_status fs_cpu_matmul(fs_device device, const fs_matmul *matmul, fs_error *err);
fs_status fs_cpu_random(fs_device device, fs_random_id op, const fs_random *random, fs_error *err);

/* Blocks of 1 MiB and more come from mmap and are cached when released, so that they can be reused without page faults.
 * At most an eighth of the machine's memory is cached. */
fs_status fs_cpu_allocate(fs_device device, size_t nbytes, void **data, fs_error *err);
void fs_cpu_release(fs_device device, void *data, size_t nbytes);
int64_t fs_cpu_allocated(fs_device device);
int64_t fs_cpu_reserved(fs_device device);
void fs_cpu_empty_cache(fs_device device);

/* Whether an output of that size should be stored past the cache: it would evict everything else without being there
 * when it is read next. */
bool fs_cpu_streams(int64_t nbytes);

#endif
