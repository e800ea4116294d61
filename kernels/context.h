/* Shared declarations of all CUDA code: making a device current, the stream, error messages, launches, memory.
 *
 *   backend.c   the table of functions: makes the device current, calls one of the launchers below, restores it
 *   *.cu        kernels, and tables of them
 *   pointwise.c, …  launchers: choose a kernel, fill in its arguments, launch
 *
 * Launchers expect the device to be current; all work goes to fs_cuda_stream(device).
 */
#ifndef FS_KERNELS_CONTEXT_H
#define FS_KERNELS_CONTEXT_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/cuda_device.h"
#include "ops/backend.h"

enum { FS_CUDA_MAX_DEVICES = 64 };

/* FS_RUNTIME_ERROR (FS_OUT_OF_MEMORY if `code` means that) with CUDA's name and text of `code`, the failed action, and
 * a remedy. Clears CUDA's last error, so that the next call starts clean. */
fs_status fs_cuda_fail(cudaError_t code, fs_device device, const char *doing, fs_error *err);

/* Return from the calling function when a CUDA call fails. */
#define FS_CUDA_TRY(call, device, doing, err)                                                     \
    do {                                                                                          \
        cudaError_t fs_cuda_code_ = (call);                                                       \
        if (fs_cuda_code_ != cudaSuccess) return fs_cuda_fail(fs_cuda_code_, device, doing, err); \
    } while (0)

/* Per device, whether this process has used it. Read it with __atomic_load_n, as other threads may write it. */
enum { FS_CUDA_UNUSED, FS_CUDA_USED, FS_CUDA_FORKED /* the child of a process that had used it */ };
extern int fs_cuda_used[FS_CUDA_MAX_DEVICES];

/* The slow path of fs_cuda_enter: first use, another current device, a forked child. */
fs_status fs_cuda_enter_slow(fs_device device, int *previous, fs_error *err);

/* Make the device current. Pair with fs_cuda_leave, which makes *previous current again if it differs. */
static inline fs_status fs_cuda_enter(fs_device device, int *previous, fs_error *err)
{
    int current;

    *previous = -1;
    if ((unsigned)device.index < FS_CUDA_MAX_DEVICES &&
        __atomic_load_n(&fs_cuda_used[device.index], __ATOMIC_RELAXED) == FS_CUDA_USED &&
        cudaGetDevice(&current) == cudaSuccess && current == device.index)
        return FS_OK;
    return fs_cuda_enter_slow(device, previous, err);
}

static inline void fs_cuda_leave(int previous)
{
    if (previous >= 0) cudaSetDevice(previous);
}

/* ---- graph.c ---- */

/* The stream of all work on a device: the legacy default stream, which is ordered with torch's and CuPy's work; or the
 * graph's stream, in a thread that captures a graph on the device. */
cudaStream_t fs_cuda_stream(fs_device device);

/* Whether the graph that this thread captures keeps a released block. */
bool fs_cuda_graph_keeps(fs_device device, void *data, size_t nbytes);

/* Whether the graph that this thread captures keeps a use of a scratch block, to give it back when it is freed. */
bool fs_cuda_graph_keeps_scratch(fs_device device, int which);

/* `doing` completes "… failed while <doing> on cuda:0". */
static inline fs_status fs_cuda_launch(fs_device device, const void *kernel, int64_t blocks, unsigned threads,
                                       void *arguments, const char *doing, fs_error *err)
{
    dim3 grid = {(unsigned)blocks, 1, 1}, block = {threads, 1, 1};
    void *parameters[] = {arguments};
    cudaError_t code = cudaLaunchKernel(kernel, grid, block, parameters, 0, fs_cuda_stream(device));
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, device, doing, err);
}

static inline int64_t fs_ceil_div(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

static inline bool fs_is_aligned(const void *data, size_t alignment)
{
    return ((uintptr_t)data & (alignment - 1)) == 0;
}

/* ---- allocator.c ---- */

fs_status fs_cuda_allocate(fs_device device, size_t nbytes, void **data, fs_error *err);
void fs_cuda_release(fs_device device, void *data, size_t nbytes);
int64_t fs_cuda_allocated(fs_device device);
int64_t fs_cuda_reserved(fs_device device);
void fs_cuda_empty_cache(fs_device device);

/* Blocks for flopscope's own use, one per device and purpose, that stay allocated between uses. */
typedef enum {
    FS_CUDA_WORKSPACE, /* of matrix products */
    FS_CUDA_FLUSH_BUFFER,
    FS_CUDA_SCRATCH_COUNT
} fs_cuda_scratch;

/* Begin a use of a block, which is counted in `reserved` only: fs_cuda_empty_cache frees it between uses, else nothing
 * does. `nbytes` is the same in each call. *fresh: whether it was allocated now, with unknown content; may be NULL. */
fs_status fs_cuda_scratch_take(fs_device device, fs_cuda_scratch which, size_t nbytes, void **data, bool *fresh,
                               fs_error *err);
/* End it; the work may be queued still. In a thread that captures a graph, the use ends with the graph. */
void fs_cuda_scratch_give(fs_device device, fs_cuda_scratch which);

/* ---- launchers, named like the functions of ops/backend.h ---- */

fs_status fs_cuda_unary(fs_device device, fs_unary_id op, const fs_elementwise *space, fs_error *err);
fs_status fs_cuda_binary(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err);
fs_status fs_cuda_convert(fs_device device, const fs_conversion *conversion, fs_error *err);
fs_status fs_cuda_fill(fs_device device, const fs_elementwise *space, fs_error *err);
fs_status fs_cuda_reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err);
fs_status fs_cuda_cumsum(fs_device device, const fs_cumsum *scan, fs_error *err);
fs_status fs_cuda_rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rowwise, fs_error *err);
fs_status fs_cuda_matmul(fs_device device, const fs_matmul *matmul, fs_error *err);
fs_status fs_cuda_random(fs_device device, fs_random_id op, const fs_random *random, fs_error *err);

#ifdef __cplusplus
}
#endif

#endif
