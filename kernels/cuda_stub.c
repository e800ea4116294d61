/* The CUDA backend of a build without nvcc. Every call fails with the reason. */
#include <string.h>

#include "kernels/cuda_device.h"
#include "kernels/measure.h"
#include "ops/backend.h"

static fs_status not_built(fs_error *err)
{
    return fs_fail(err, FS_RUNTIME_ERROR,
                   "CUDA is not built into this flopscope: nvcc was not found when it was installed; install nvcc (the "
                   "CUDA toolkit, or the nvidia-cuda-nvcc wheel) and reinstall flopscope from source");
}

static fs_status allocate(fs_device device, size_t nbytes, void **data, fs_error *err)
{
    (void)device, (void)nbytes;
    *data = NULL;
    return not_built(err);
}

static void release(fs_device device, void *data, size_t nbytes)
{
    (void)device, (void)data, (void)nbytes;
}

static int64_t no_bytes(fs_device device)
{
    (void)device;
    return 0;
}

static void empty_cache(fs_device device)
{
    (void)device;
}

static fs_status unary(fs_device device, fs_unary_id op, const fs_elementwise *space, fs_error *err)
{
    (void)device, (void)op, (void)space;
    return not_built(err);
}

static fs_status binary(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err)
{
    (void)device, (void)op, (void)space;
    return not_built(err);
}

static fs_status convert(fs_device device, const fs_conversion *conversion, fs_error *err)
{
    (void)device, (void)conversion;
    return not_built(err);
}

static fs_status fill(fs_device device, const fs_elementwise *space, fs_error *err)
{
    (void)device, (void)space;
    return not_built(err);
}

static fs_status reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err)
{
    (void)device, (void)op, (void)reduction;
    return not_built(err);
}

static fs_status cumsum(fs_device device, const fs_cumsum *scan, fs_error *err)
{
    (void)device, (void)scan;
    return not_built(err);
}

static fs_status rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rows, fs_error *err)
{
    (void)device, (void)op, (void)rows;
    return not_built(err);
}

static fs_status matmul(fs_device device, const fs_matmul *product, fs_error *err)
{
    (void)device, (void)product;
    return not_built(err);
}

static fs_status draw(fs_device device, fs_random_id op, const fs_random *random, fs_error *err)
{
    (void)device, (void)op, (void)random;
    return not_built(err);
}

static fs_status host_copy(fs_device device, void *to, const void *from, size_t nbytes, fs_error *err)
{
    (void)device, (void)to, (void)from, (void)nbytes;
    return not_built(err);
}

static fs_status peer_copy(fs_device to_device, void *to, fs_device from_device, const void *from, size_t nbytes,
                           fs_error *err)
{
    (void)to_device, (void)to, (void)from_device, (void)from, (void)nbytes;
    return not_built(err);
}

static fs_status synchronize(fs_device device, fs_error *err)
{
    (void)device;
    return not_built(err);
}

static fs_status mark_take(fs_device device, fs_mark **mark, fs_error *err)
{
    (void)device;
    *mark = NULL;
    return not_built(err);
}

static fs_status mark_elapsed(fs_device device, fs_mark *from, fs_mark *to, int64_t *ns, fs_error *err)
{
    (void)device, (void)from, (void)to, (void)ns;
    return not_built(err);
}

static void mark_give(fs_device device, fs_mark *mark)
{
    (void)device, (void)mark;
}

const fs_backend fs_cuda_backend = {
    .allocate = allocate,
    .release = release,
    .allocated = no_bytes,
    .reserved = no_bytes,
    .empty_cache = empty_cache,
    .unary = unary,
    .binary = binary,
    .convert = convert,
    .fill = fill,
    .reduce = reduce,
    .cumsum = cumsum,
    .rowwise = rowwise,
    .matmul = matmul,
    .random = draw,
    .from_host = host_copy,
    .to_host = host_copy,
    .peer_copy = peer_copy,
    .synchronize = synchronize,
    .mark_take = mark_take,
    .mark_elapsed = mark_elapsed,
    .mark_give = mark_give,
};

fs_status fs_cuda_device_count(int *count, fs_error *err)
{
    *count = 0;
    return not_built(err);
}

fs_status fs_cuda_device_properties(int index, fs_cuda_properties *properties, fs_error *err)
{
    (void)index;
    memset(properties, 0, sizeof *properties);
    return not_built(err);
}

void fs_cuda_set_library_finder(fs_library_finder finder)
{
    (void)finder;
}

fs_status fs_cuda_probe_fma(fs_device device, fs_dtype dtype, int iterations, double *flops, fs_error *err)
{
    (void)device, (void)dtype, (void)iterations;
    *flops = 0;
    return not_built(err);
}

fs_status fs_cuda_probe_empty(fs_device device, fs_error *err)
{
    (void)device;
    return not_built(err);
}

fs_status fs_cuda_probe_read(fs_device device, const void *data, size_t nbytes, fs_error *err)
{
    (void)device, (void)data, (void)nbytes;
    return not_built(err);
}

fs_status fs_cuda_probe_l2(fs_device device, const void *data, size_t nbytes, double *moved, fs_error *err)
{
    (void)device, (void)data, (void)nbytes, (void)moved;
    return not_built(err);
}

fs_status fs_cuda_measure_wait(fs_device device, double seconds, bool *done, fs_error *err)
{
    (void)device, (void)seconds, (void)done;
    return not_built(err);
}

fs_status fs_cuda_measure_flush(fs_device device, fs_error *err)
{
    (void)device;
    return not_built(err);
}

fs_status fs_cuda_measure_disturb(fs_device device, bool loaded, fs_error *err)
{
    (void)device, (void)loaded;
    return not_built(err);
}

fs_status fs_cuda_measure_mark(fs_device device, fs_error *err)
{
    (void)device;
    return not_built(err);
}

fs_status fs_cuda_measure_hold(fs_device device, double seconds, fs_error *err)
{
    (void)device, (void)seconds;
    return not_built(err);
}

void fs_cuda_measure_release(void)
{
}

bool fs_cuda_measure_gave_up(void)
{
    return false;
}

fs_status fs_cuda_graph_begin(fs_device device, fs_error *err)
{
    (void)device;
    return not_built(err);
}

fs_status fs_cuda_graph_end(fs_cuda_graph **graph, fs_error *err)
{
    *graph = NULL;
    return not_built(err);
}

fs_status fs_cuda_graph_launch(fs_cuda_graph *graph, fs_error *err)
{
    (void)graph;
    return not_built(err);
}

void fs_cuda_graph_free(fs_cuda_graph *graph)
{
    (void)graph;
}
