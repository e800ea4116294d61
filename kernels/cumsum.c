/* Cumulative sums. Without a kernel, every call fails. */
#include "kernels/context.h"

fs_status fs_cuda_cumsum(fs_device device, const fs_cumsum *scan, fs_error *err)
{
    (void)device, (void)scan;
    return fs_fail(err, FS_RUNTIME_ERROR, "cumsum has no CUDA kernel");
}
