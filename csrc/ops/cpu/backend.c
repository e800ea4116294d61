/* The CPU's backend table. Calls complete their work before they return, so there is nothing to wait for and there are
 * no marks. */
#include "base/unused.h"
#include "ops/backend.h"

#include <string.h>

#include "base/parallel.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_rows.h"

enum { COPY_GRAIN = 1 << 20 };

typedef struct {
    char *to;
    const char *from;
} copy_work;

static void copy_range(void *context, int64_t begin, int64_t end)
{
    const copy_work *work = context;
    memcpy(work->to + begin, work->from + begin, (size_t)(end - begin));
}

static void copy_bytes(void *to, const void *from, size_t nbytes)
{
    copy_work work = {to, from};
    fs_parallel_for((int64_t)nbytes, COPY_GRAIN, copy_range, &work);
}

static fs_status copy_host(fs_device FS_UNUSED(device), void *to, const void *from, size_t nbytes,
                           fs_error *FS_UNUSED(err))
{
    copy_bytes(to, from, nbytes);
    return FS_OK;
}

static fs_status copy_peer(fs_device FS_UNUSED(to_device), void *to, fs_device FS_UNUSED(from_device), const void *from,
                           size_t nbytes, fs_error *FS_UNUSED(err))
{
    copy_bytes(to, from, nbytes);
    return FS_OK;
}

static fs_status synchronize(fs_device FS_UNUSED(device), fs_error *FS_UNUSED(err))
{
    return FS_OK;
}

const fs_backend fs_cpu_backend = {
    .allocate = fs_cpu_allocate,
    .release = fs_cpu_release,
    .allocated = fs_cpu_allocated,
    .reserved = fs_cpu_reserved,
    .empty_cache = fs_cpu_empty_cache,
    .unary = fs_cpu_unary,
    .binary = fs_cpu_binary,
    .convert = fs_cpu_convert,
    .fill = fs_cpu_fill,
    .reduce = fs_cpu_reduce,
    .cumsum = fs_cpu_cumsum,
    .rowwise = fs_cpu_rowwise,
    .matmul = fs_cpu_matmul,
    .random = fs_cpu_random,
    .from_host = copy_host,
    .to_host = copy_host,
    .peer_copy = copy_peer,
    .synchronize = synchronize,
    .mark_take = NULL,
    .mark_elapsed = NULL,
    .mark_give = NULL,
};
