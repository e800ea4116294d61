/* Conversion between dtypes and layouts, and fill. */
#include <string.h>

#include "base/unused.h"
#include "ops/cpu/blocks.h"
#include "ops/cpu/cpu.h"

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

fs_status fs_cpu_fill(fs_device FS_UNUSED(device), const fs_elementwise *space, fs_error *FS_UNUSED(err))
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
