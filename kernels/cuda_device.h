/* CUDA functions besides ops: the devices, and probes for their peaks. Plain C. A build without CUDA links cuda_stub.c,
 * in which cuda_device_count fails with the reason. */
#ifndef FS_KERNELS_CUDA_DEVICE_H
#define FS_KERNELS_CUDA_DEVICE_H

#include "ops/tensor.h"

typedef struct {
    char name[256]; /* as the driver reports it: "NVIDIA H200" */
    char uuid[64];
    int major, minor; /* compute capability */
    int sm_count, warp_size;
    int max_threads_per_sm, max_blocks_per_sm, registers_per_sm;
    int64_t shared_memory_per_sm, shared_memory_per_block_optin, reserved_shared_memory_per_block;
    int64_t l2_bytes, memory_bytes;
    int clock_khz, memory_clock_khz, memory_bus_bits; /* 0 if the driver does not report it */
    int driver_version, runtime_version;              /* 13000 is 13.0 */
} fs_cuda_properties;

/* The number of CUDA devices. If there are none, FS_RUNTIME_ERROR with the reason (not built, no driver, driver too
 * old, no device) and the remedy. */
fs_status fs_cuda_device_count(int *count, fs_error *err);
fs_status fs_cuda_device_properties(int index, fs_cuda_properties *properties, fs_error *err);

/* The path of libcublasLt, which the binding finds with cuda-pathfinder on the first matrix product. The function fills
 * in path (NUL-terminated, at most size bytes) or fails with the package to install. */
typedef fs_status (*fs_library_finder)(const char *name, char *path, size_t size, fs_error *err);
void fs_cuda_set_library_finder(fs_library_finder finder);

/* Probes for peaks, each one kernel on the current stream, which the caller times with marks. fma: every SM runs
 * `iterations` dependent chains of fused multiply-adds in the dtype (float64, float32, float16 and bfloat16 as pairs);
 * *flops receives the FLOPs of one launch. empty: a kernel that does nothing. */
fs_status fs_cuda_probe_fma(fs_device device, fs_dtype dtype, int iterations, double *flops, fs_error *err);
fs_status fs_cuda_probe_empty(fs_device device, fs_error *err);
/* read: sums `nbytes` of float32 at `data` in registers and writes almost nothing. */
fs_status fs_cuda_probe_read(fs_device device, const void *data, size_t nbytes, fs_error *err);
/* l2: reads `nbytes` at `data` again and again past the L1; *moved receives the bytes that were read. */
fs_status fs_cuda_probe_l2(fs_device device, const void *data, size_t nbytes, double *moved, fs_error *err);

#endif
