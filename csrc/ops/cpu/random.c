/* Random draws. Each depends only on its number (ops/philox.h), so the result does not depend on the number of
 * threads. */
#include "base/parallel.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/rows_loops.h"

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    const fs_random *random;
    fs_random_id op;
    bool stream;
} random_work;

static void random_draws(void *context, int64_t begin, int64_t end)
{
    const random_work *work = context;
    work->loops->random(work->op, work->random, begin, end, work->stream);
}

fs_status fs_cpu_random(fs_device device, fs_random_id op, const fs_random *random, fs_error *err)
{
    (void)device, (void)err;
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    random_work work = {
        .loops = &loops->of[random->dtype],
        .random = random,
        .op = op,
        .stream = fs_cpu_streams(random->count * (int64_t)fs_dtypes[random->dtype].size),
    };
    fs_parallel_for(random->count, 16384, random_draws, &work);
    return FS_OK;
}
