/* Reductions: rows in parallel, and parts of long rows in parallel. */
#include "base/memory.h"
#include "base/parallel.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/rows_loops.h"

enum { PART = 1 << 16 }; /* elements of a row's part, and of the smallest piece of work for a thread */

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    const fs_reduction *reduction;
    fs_reduction_id op;
    int64_t parts;    /* per row */
    double *partials; /* rows x parts; NULL if rows are not split */
} reduce_work;

static void reduce_rows(void *context, int64_t begin, int64_t end)
{
    const reduce_work *work = context;
    const fs_reduction *reduction = work->reduction;
    const size_t size = fs_dtypes[reduction->dtype].size;
    work->loops->reduce(work->op, (const char *)reduction->in + (size_t)(begin * reduction->length) * size,
                        (char *)reduction->out + (size_t)begin * size, end - begin, reduction->length);
}

static void reduce_parts(void *context, int64_t begin, int64_t end)
{
    const reduce_work *work = context;
    const fs_reduction *reduction = work->reduction;
    const size_t size = fs_dtypes[reduction->dtype].size;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item / work->parts, first = item % work->parts * PART;
        int64_t count = reduction->length - first < PART ? reduction->length - first : PART;
        const char *in = (const char *)reduction->in + (size_t)(row * reduction->length + first) * size;
        work->partials[item] = work->loops->partial(work->op, in, count);
    }
}

/* Rows are split at the same places for any number of threads, so the result does not depend on it. */
fs_status fs_cpu_reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err)
{
    (void)device;
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    reduce_work work = {.loops = &loops->of[reduction->dtype], .reduction = reduction, .op = op, .parts = 1};
    if (reduction->length <= PART) {
        int64_t grain = PART / reduction->length;
        fs_parallel_for(reduction->rows, grain, reduce_rows, &work);
        return FS_OK;
    }

    work.parts = (reduction->length + PART - 1) / PART;
    const int64_t items = reduction->rows * work.parts;
    work.partials = fs_malloc((size_t)items * sizeof(double));
    if (work.partials == NULL) {
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the %lld partial results of a reduction; free tensors",
                       (long long)items);
    }
    fs_parallel_for(items, 1, reduce_parts, &work);

    const size_t size = fs_dtypes[reduction->dtype].size;
    for (int64_t row = 0; row < reduction->rows; row++) {
        double value = loops->of[FS_FLOAT64].partial(op, work.partials + row * work.parts, work.parts);
        work.loops->put((char *)reduction->out + (size_t)row * size,
                        op == FS_MEAN ? value / (double)reduction->length : value);
    }
    fs_free(work.partials);
    return FS_OK;
}
