/* Reductions and cumulative sums: rows in parallel, and parts of long rows in parallel. Rows are split at the same
 * places for any number of threads, so the result does not depend on it. */
#include "base/memory.h"
#include "base/parallel.h"
#include "ops/cpu/cpu_device.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/rows_loops.h"

enum { PART = 1 << 16 }; /* elements of a row's part, and of the smallest piece of work for a thread */

static int64_t part_count(int64_t length, int64_t first)
{
    return length - first < PART ? length - first : PART;
}

/* ---- reductions ---- */

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    const fs_reduction *reduction;
    fs_reduction_id op;
    int64_t parts;           /* per row */
    double *values, *second; /* of the partials, rows x parts */
} reduce_work;

static void reduce_rows(void *context, int64_t begin, int64_t end)
{
    const reduce_work *work = context;
    work->loops->reduce(work->op, work->reduction, begin, end);
}

static void reduce_parts(void *context, int64_t begin, int64_t end)
{
    const reduce_work *work = context;
    const fs_reduction *reduction = work->reduction;
    const size_t size = fs_dtypes[reduction->dtype].size;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item / work->parts, first = item % work->parts * PART;
        const char *in = (const char *)reduction->in + (size_t)(row * reduction->length + first) * size;
        fs_partial partial = work->loops->partial(work->op, in, part_count(reduction->length, first));
        work->values[item] = partial.value;
        work->second[item] = partial.second;
    }
}

/* The moments of the parts [begin, end) of a row, pairwise. */
static fs_partial moments_of(const reduce_work *work, int64_t row, int64_t begin, int64_t end)
{
    const int64_t item = row * work->parts + begin, middle = (begin + end) / 2, length = work->reduction->length;
    if (end - begin == 1) return (fs_partial){work->values[item], work->second[item]};
    int64_t elements = (end * PART < length ? end * PART : length) - middle * PART;
    return fs_join_moments(moments_of(work, row, begin, middle), (double)((middle - begin) * PART),
                           moments_of(work, row, middle, end), (double)elements);
}

static fs_partial join_parts(const reduce_work *work, int64_t row)
{
    if (work->op == FS_VAR) return moments_of(work, row, 0, work->parts);
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    const int64_t item = row * work->parts;
    fs_reduction_id op = work->op == FS_NORM ? FS_SUM : work->op;
    fs_partial whole = loops->of[FS_FLOAT64].partial(op, work->values + item, work->parts);
    if (op == FS_ARGMAX) whole.second = whole.second * PART + work->second[item + (int64_t)whole.second];
    return whole;
}

fs_status fs_cpu_reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err)
{
    (void)device;
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    reduce_work work = {.loops = &loops->of[reduction->dtype], .reduction = reduction, .op = op};
    if (reduction->length <= PART) {
        int64_t grain = PART / reduction->length;
        fs_parallel_for(reduction->rows, grain, reduce_rows, &work);
        return FS_OK;
    }

    work.parts = (reduction->length + PART - 1) / PART;
    const int64_t items = reduction->rows * work.parts;
    FS_TRY(FS_NEW(&work.values, 2 * (size_t)items, err));
    work.second = work.values + items;
    fs_parallel_for(items, 1, reduce_parts, &work);
    for (int64_t row = 0; row < reduction->rows; row++) work.loops->put(op, reduction, row, join_parts(&work, row));
    fs_free(work.values);
    return FS_OK;
}

/* ---- cumulative sums ---- */

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    const fs_cumsum *scan;
    bool stream;
    int64_t parts; /* per row */
    double *bases; /* rows x parts: the sum of a part, then of the parts before it in the row */
} scan_work;

static double scan_part(const scan_work *work, int64_t row, int64_t part, bool writes, double base)
{
    const int64_t length = work->scan->length, first = part * PART;
    const size_t at = (size_t)(row * length + first) * fs_dtypes[work->scan->dtype].size;
    void *out = writes ? (char *)work->scan->out + at : NULL;
    return work->loops->scan((const char *)work->scan->in + at, out, part_count(length, first), base,
                             writes && work->stream);
}

static void scan_rows(void *context, int64_t begin, int64_t end)
{
    const scan_work *work = context;
    for (int64_t row = begin; row < end; row++) {
        double base = 0;
        for (int64_t part = 0; part < work->parts; part++) base += scan_part(work, row, part, true, base);
    }
}

static void sum_parts(void *context, int64_t begin, int64_t end)
{
    const scan_work *work = context;
    for (int64_t item = begin; item < end; item++) {
        work->bases[item] = scan_part(work, item / work->parts, item % work->parts, false, 0);
    }
}

static void scan_parts(void *context, int64_t begin, int64_t end)
{
    const scan_work *work = context;
    for (int64_t item = begin; item < end; item++) {
        scan_part(work, item / work->parts, item % work->parts, true, work->bases[item]);
    }
}

/* Rows that give every thread work are read once, fewer and longer ones twice. */
fs_status fs_cpu_cumsum(fs_device device, const fs_cumsum *scan, fs_error *err)
{
    (void)device;
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    const int64_t nbytes = scan->rows * scan->length * (int64_t)fs_dtypes[scan->dtype].size;
    scan_work work = {.loops = &loops->of[scan->dtype],
                      .scan = scan,
                      .stream = fs_cpu_streams(nbytes),
                      .parts = (scan->length + PART - 1) / PART};
    if (work.parts == 1 || scan->rows >= fs_parallel_threads()) {
        fs_parallel_for(scan->rows, work.parts > 1 ? 1 : PART / scan->length, scan_rows, &work);
        return FS_OK;
    }

    const int64_t items = scan->rows * work.parts;
    FS_TRY(FS_NEW(&work.bases, (size_t)items, err));
    fs_parallel_for(items, 1, sum_parts, &work);
    for (int64_t row = 0; row < scan->rows; row++) {
        double base = 0;
        for (int64_t part = 0; part < work.parts; part++) {
            double sum = work.bases[row * work.parts + part];
            work.bases[row * work.parts + part] = base;
            base += sum;
        }
    }
    fs_parallel_for(items, 1, scan_parts, &work);
    fs_free(work.bases);
    return FS_OK;
}

/* Softmax and norms: rows in parallel. */

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
