/* The CPU's backend table. Calls complete their work before they return, so there is nothing to wait for and there are
 * no marks. */
#include <string.h>

#include "base/parallel.h"
#include "base/unused.h"
#include "ops/backend.h"
#include "ops/cpu/blocks.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_rows.h"

/* Conversion between dtypes and layouts, and fill. */

static void compute_convert(const fs_block_job *job, void *out, const void *const *in, unsigned FS_UNUSED(singles),
                            int64_t count)
{
    job->unary(out, in[0], count);
}

/* scalar[0] is a whole block of the value. */
static void compute_fill(const fs_block_job *job, void *out, const void *const *FS_UNUSED(in),
                         unsigned FS_UNUSED(singles), int64_t count)
{
    memcpy(out, job->scalar[0], (size_t)count * job->out_size);
}

fs_status fs_cpu_convert(fs_device FS_UNUSED(device), const fs_conversion *conversion, fs_error *FS_UNUSED(err))
{
    const fs_elementwise *space = &conversion->space;
    const fs_cpu_pointwise_loops *loops = FS_ISA_SELECT(fs_cpu_pointwise_loops);
    fs_block_job job = {.space = space, .inputs = 1, .compute = compute_convert, .loops = loops};
    job.out_size = fs_dtypes[space->dtype].size;
    job.in_size[0] = fs_dtypes[conversion->in_dtype].size;
    job.unary = loops->convert[space->dtype][conversion->in_dtype];
    fs_blocks_run(&job);
    return FS_OK;
}

static fs_status cpu_fill(fs_device FS_UNUSED(device), const fs_elementwise *space, fs_error *FS_UNUSED(err))
{
    _Alignas(64) char block[FS_BLOCK_BYTES];
    const fs_cpu_pointwise_loops *loops = FS_ISA_SELECT(fs_cpu_pointwise_loops);
    fs_block_job job = {.space = space, .loops = loops, .compute = compute_fill, .scalar = {block}};
    job.out_size = fs_dtypes[space->dtype].size;

    int64_t count = FS_BLOCK_BYTES / (int64_t)job.out_size;
    if (count > FS_BLOCK_ELEMENTS) count = FS_BLOCK_ELEMENTS;
    if (count > space->count) count = space->count;
    double values[FS_BLOCK_ELEMENTS];
    for (int64_t i = 0; i < count; i++) values[i] = space->scalar[0];
    loops->convert[space->dtype][FS_FLOAT64](block, values, count);
    fs_blocks_run(&job);
    return FS_OK;
}

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
    .fill = cpu_fill,
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
