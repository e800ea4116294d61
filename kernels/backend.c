/* The CUDA backend's table, copies between memories, and marks. Each function makes its device current, and restores
 * the thread's previous device. */
#include <math.h>
#include <pthread.h>

#include "base/memory.h"
#include "kernels/context.h"

#define ON_DEVICE(device, call, err)                    \
    do {                                                \
        int previous_;                                  \
        FS_TRY(fs_cuda_enter(device, &previous_, err)); \
        fs_status status_ = (call);                     \
        fs_cuda_leave(previous_);                       \
        return status_;                                 \
    } while (0)

static fs_status allocate(fs_device device, size_t nbytes, void **data, fs_error *err)
{
    *data = NULL;
    ON_DEVICE(device, fs_cuda_allocate(device, nbytes, data, err), err);
}

static fs_status unary(fs_device device, fs_unary_id op, const fs_elementwise *space, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_unary(device, op, space, err), err);
}

static fs_status binary(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_binary(device, op, space, err), err);
}

static fs_status convert(fs_device device, const fs_conversion *conversion, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_convert(device, conversion, err), err);
}

static fs_status fill(fs_device device, const fs_elementwise *space, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_fill(device, space, err), err);
}

static fs_status reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_reduce(device, op, reduction, err), err);
}

static fs_status cumsum(fs_device device, const fs_cumsum *scan, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_cumsum(device, scan, err), err);
}

static fs_status rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rows, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_rowwise(device, op, rows, err), err);
}

static fs_status matmul(fs_device device, const fs_matmul *product, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_matmul(device, product, err), err);
}

static fs_status draw(fs_device device, fs_random_id op, const fs_random *random, fs_error *err)
{
    ON_DEVICE(device, fs_cuda_random(device, op, random, err), err);
}

/* ---- copies ---- */

static fs_status copy_and_wait(fs_device device, void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                               fs_error *err)
{
    const char *doing = kind == cudaMemcpyHostToDevice ? "copying from the host" : "copying to the host";
    FS_CUDA_TRY(cudaMemcpyAsync(to, from, nbytes, kind, fs_cuda_stream(device)), device, doing, err);
    FS_CUDA_TRY(cudaStreamSynchronize(fs_cuda_stream(device)), device, doing, err);
    return FS_OK;
}

static fs_status from_host(fs_device device, void *to, const void *from, size_t nbytes, fs_error *err)
{
    ON_DEVICE(device, copy_and_wait(device, to, from, nbytes, cudaMemcpyHostToDevice, err), err);
}

static fs_status to_host(fs_device device, void *to, const void *from, size_t nbytes, fs_error *err)
{
    ON_DEVICE(device, copy_and_wait(device, to, from, nbytes, cudaMemcpyDeviceToHost, err), err);
}

static fs_status wait_for_stream(fs_device device, fs_error *err)
{
    FS_CUDA_TRY(cudaStreamSynchronize(fs_cuda_stream(device)), device, "waiting for its work", err);
    return FS_OK;
}

static fs_status synchronize(fs_device device, fs_error *err)
{
    ON_DEVICE(device, wait_for_stream(device, err), err);
}

static fs_status copy_from_peer(fs_device to_device, void *to, fs_device from_device, const void *from, size_t nbytes,
                                fs_error *err)
{
    const char *doing = "copying from another device";
    FS_CUDA_TRY(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, nbytes, fs_cuda_stream(to_device)),
                to_device, doing, err);
    FS_CUDA_TRY(cudaStreamSynchronize(fs_cuda_stream(to_device)), to_device, doing, err);
    return FS_OK;
}

/* The streams of two devices are not ordered with each other: wait for the source, copy, wait for the copy. */
static fs_status peer_copy(fs_device to_device, void *to, fs_device from_device, const void *from, size_t nbytes,
                           fs_error *err)
{
    FS_TRY(synchronize(from_device, err));
    ON_DEVICE(to_device, copy_from_peer(to_device, to, from_device, from, nbytes, err), err);
}

/* ---- marks ---- */

struct fs_mark {
    cudaEvent_t event;
    fs_mark *next; /* the next mark in the pool */
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static fs_mark *pools[FS_CUDA_MAX_DEVICES];

static fs_mark *pool_take(int index)
{
    pthread_mutex_lock(&pool_lock);
    fs_mark *mark = pools[index];
    if (mark) pools[index] = mark->next;
    pthread_mutex_unlock(&pool_lock);
    return mark;
}

static void mark_give(fs_device device, fs_mark *mark)
{
    if (!mark) return;
    pthread_mutex_lock(&pool_lock);
    mark->next = pools[device.index];
    pools[device.index] = mark;
    pthread_mutex_unlock(&pool_lock);
}

static fs_status mark_new(fs_device device, fs_mark **mark, fs_error *err)
{
    fs_mark *created = fs_malloc(sizeof *created);
    if (!created) return fs_fail(err, FS_OUT_OF_MEMORY, "out of host memory: cannot allocate a mark of device time");
    cudaError_t code = cudaEventCreate(&created->event);
    if (code != cudaSuccess) {
        fs_free(created);
        return fs_cuda_fail(code, device, "making an event", err);
    }
    *mark = created;
    return FS_OK;
}

static fs_status mark_record(fs_device device, fs_mark **mark, fs_error *err)
{
    *mark = pool_take(device.index);
    if (!*mark) FS_TRY(mark_new(device, mark, err));
    cudaError_t code = cudaEventRecord((*mark)->event, fs_cuda_stream(device));
    if (code == cudaSuccess) return FS_OK;
    mark_give(device, *mark);
    *mark = NULL;
    return fs_cuda_fail(code, device, "recording an event", err);
}

static fs_status mark_take(fs_device device, fs_mark **mark, fs_error *err)
{
    *mark = NULL;
    ON_DEVICE(device, mark_record(device, mark, err), err);
}

static fs_status elapsed(fs_device device, fs_mark *from, fs_mark *to, int64_t *ns, fs_error *err)
{
    float milliseconds;
    FS_CUDA_TRY(cudaEventSynchronize(to->event), device, "waiting for an event", err);
    FS_CUDA_TRY(cudaEventSynchronize(from->event), device, "waiting for an event", err);
    FS_CUDA_TRY(cudaEventElapsedTime(&milliseconds, from->event, to->event), device, "reading the time between events",
                err);
    *ns = llround((double)milliseconds * 1e6);
    return FS_OK;
}

static fs_status mark_elapsed(fs_device device, fs_mark *from, fs_mark *to, int64_t *ns, fs_error *err)
{
    ON_DEVICE(device, elapsed(device, from, to, ns, err), err);
}

const fs_backend fs_cuda_backend = {
    .allocate = allocate,
    .release = fs_cuda_release,
    .allocated = fs_cuda_allocated,
    .reserved = fs_cuda_reserved,
    .empty_cache = fs_cuda_empty_cache,
    .unary = unary,
    .binary = binary,
    .convert = convert,
    .fill = fill,
    .reduce = reduce,
    .cumsum = cumsum,
    .rowwise = rowwise,
    .matmul = matmul,
    .random = draw,
    .from_host = from_host,
    .to_host = to_host,
    .peer_copy = peer_copy,
    .synchronize = synchronize,
    .mark_take = mark_take,
    .mark_elapsed = mark_elapsed,
    .mark_give = mark_give,
};
