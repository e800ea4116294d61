/* CPU functions besides ops: its name, and probes for its peaks. */
#ifndef FS_OPS_CPU_DEVICE_H
#define FS_OPS_CPU_DEVICE_H

#include "base/status.h"
#include "ops/dtype.h"

/* Such as "AMD EPYC 7B13", or "x86-64" if the processor does not report a name. */
const char *fs_cpu_name(void);
/* The instruction set of the loops: "avx512", "avx2" or "baseline". */
const char *fs_cpu_isa(void);
/* The size in bytes of the largest cache that one processor can use. 0: unknown. */
int64_t fs_cpu_cache_bytes(void);

/* Run `iterations` of independent chains of fused multiply-adds in float64 or float32 on every thread of the pool.
 * *flops receives the FLOPs of the call. */
fs_status fs_cpu_probe_fma(fs_dtype dtype, int64_t iterations, double *flops, fs_error *err);
/* Sum nbytes of float32 on all threads, at the speed of memory. */
fs_status fs_cpu_probe_read(const void *data, size_t nbytes, fs_error *err);

#endif
