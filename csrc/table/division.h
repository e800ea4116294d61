/* Where the works of a device lie in the samples of a track, which are divided among them. Private to counted.c and
 * alike.c.
 *
 *   samples   |   a   |   b   |   c   |   d   |
 *   work           [  head | length | tail ]           ends within the work, whole samples in between
 *
 * A kernel's first warps start after its recorded start, and its last ones end before its end: kernels of an H200 moved
 * next to nothing in a microsecond at either end. Works in samples of FS_COARSE_NS or more lie where they are without
 * these ends. Shorter samples need no correction: the ends of a kernel have samples to themselves. */
#ifndef FS_TABLE_DIVISION_H
#define FS_TABLE_DIVISION_H

#include "base/interrupt.h"
#include "base/saturate.h"
#include "table/counted.h"

enum { FS_COARSE_NS = 20000, FS_KERNEL_END_NS = 1000 };

/* The samples of a work: `count` from `first` on, and its overlap with the first and with the last of several, in ns.
 */
typedef struct {
    uint32_t first, count;
    double head, tail;
} fs_reach;

typedef struct {
    fs_counted_work *works; /* in order of start */
    uint32_t work_count;
    fs_reach *spans;  /* by work */
    double *reach;    /* by work: the sum of its overlaps */
    double *rates;    /* by work, per ns */
    int64_t *covered; /* by work: ns within samples, its ends too */

    const fs_sample *samples; /* of the track; not its own */
    uint32_t count;
    fs_metric metric;
    double *lengths; /* by sample, ns */
    double *amounts; /* by sample: what it counted; of shares, percent × ns */
    double *weights; /* by sample: scratch */
} fs_division;

/* Make a division of works, and place them in the samples of a track; those of the track before stay if they are the
 * same. Sets *moved if they are not. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_division_create(fs_division *by, fs_counted_work *works, uint32_t count, fs_error *err);
fs_status fs_division_place(fs_division *by, const fs_counter_track *track, bool *moved, fs_error *err);
void fs_division_clear(fs_division *by);

/* Find how well the samples cover and resolve each work. FS_INTERRUPTED. */
fs_status fs_division_judge(fs_division *by, fs_error *err);

static inline int64_t fs_counted_work_ns(const fs_counted_work *work)
{
    return fs_sub_saturated(work->end, work->start);
}

/* The overlap of a work with sample `first` + `at` of its span. */
static inline double fs_division_overlap(const fs_division *by, const fs_reach *span, uint32_t at)
{
    if (at == 0) return span->head;
    return at + 1 == span->count ? span->tail : by->lengths[span->first + at];
}

/* The sum of values by sample, times the overlaps of a work. */
static inline double fs_division_sum(const fs_division *by, uint32_t work, const double *values)
{
    const fs_reach *span = &by->spans[work];
    if (span->count == 0) return 0;
    const double *own = values + span->first, *lengths = by->lengths + span->first;
    double sum = span->head * own[0];
    for (uint32_t i = 1; i + 1 < span->count; i++) sum += lengths[i] * own[i];
    return span->count > 1 ? sum + span->tail * own[span->count - 1] : sum;
}

/* Add the overlaps of a work, times a factor, to values by sample. */
static inline void fs_division_add(const fs_division *by, uint32_t work, double factor, double *values)
{
    const fs_reach *span = &by->spans[work];
    if (span->count == 0) return;
    double *own = values + span->first;
    const double *lengths = by->lengths + span->first;
    own[0] += factor * span->head;
    for (uint32_t i = 1; i + 1 < span->count; i++) own[i] += factor * lengths[i];
    if (span->count > 1) own[span->count - 1] += factor * span->tail;
}

/* Poll once every so many samples of works: each work may reach all samples. */
static inline fs_status fs_division_poll(const fs_division *by, uint32_t work, uint64_t *steps, fs_error *err)
{
    *steps += by->spans[work].count + (uint64_t)1;
    if (*steps < FS_POLL_ROUNDS) return FS_OK;
    *steps = 0;
    return fs_interrupt_poll(err);
}

#endif
