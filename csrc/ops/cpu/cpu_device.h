/* What the core asks of the CPU beyond ops: its name, and probes for its peaks. */
#ifndef FS_OPS_CPU_DEVICE_H
#define FS_OPS_CPU_DEVICE_H

#include "base/status.h"
#include "ops/dtype.h"

/* "AMD EPYC 7B13", "x86-64" where the processor does not say. */
const char *fs_cpu_name(void);
/* The instruction set the loops run with: "avx512", "avx2" or "baseline". */
const char *fs_cpu_isa(void);
/* Bytes of the largest cache that one processor reaches. 0: unknown. */
int64_t fs_cpu_cache_bytes(void);

/* Every thread of the pool runs `iterations` of independent chains of fused multiply-adds in float64 or float32;
 * *flops receives what the call does. */
fs_status fs_cpu_probe_fma(fs_dtype dtype, int64_t iterations, double *flops, fs_error *err);
/* Sum nbytes of float32 on all threads, as fast as memory gives them. */
fs_status fs_cpu_probe_read(const void *data, size_t nbytes, fs_error *err);

#endif
