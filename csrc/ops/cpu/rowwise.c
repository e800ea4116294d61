/* Softmax and norms: rows in parallel. */
#include "base/parallel.h"
#include "ops/cpu/cpu_device.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/rows_loops.h"

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    const fs_rowwise *rowwise;
    fs_rowwise_id op;
    bool stream;
} rowwise_work;

static void rowwise_rows(void *context, int64_t begin, int64_t end)
{
    const rowwise_work *work = context;
    work->loops->rowwise(work->op, work->rowwise, begin, end, work->stream);
}

bool fs_cpu_streams(int64_t nbytes)
{
    int64_t cache = fs_cpu_cache_bytes();
    return nbytes > (cache > 0 ? cache : 32 << 20) / 2;
}

fs_status fs_cpu_rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rowwise, fs_error *err)
{
    (void)device, (void)err;
    const int64_t nbytes = rowwise->rows * rowwise->length * (int64_t)fs_dtypes[rowwise->dtype].size;
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    rowwise_work work = {
        .loops = &loops->of[rowwise->dtype],
        .rowwise = rowwise,
        .op = op,
        /* In place, the cache lines are already loaded when they are written. */
        .stream = rowwise->out != rowwise->in && fs_cpu_streams(nbytes),
    };
    int64_t grain = 16384 / rowwise->length; /* about ten microseconds of work */
    fs_parallel_for(rowwise->rows, grain > 0 ? grain : 1, rowwise_rows, &work);
    return FS_OK;
}
