/* What the samples of one track are divided among: the works of its device. Private to counted.c and alike.c.
 *
 * A kernel's first warps start after its recorded start, and its last ones end before its end: kernels of an H200 moved
 * next to nothing in a microsecond at either end. A sample of FS_COARSE_NS or more is therefore divided by overlap with
 * what lies between. Shorter samples need no correction: the ends of a kernel have samples to themselves. */
#ifndef FS_TABLE_DIVISION_H
#define FS_TABLE_DIVISION_H

#include "base/saturate.h"
#include "table/counted.h"

enum { FS_COARSE_NS = 20000, FS_KERNEL_END_NS = 1000 };

typedef struct fs_alike fs_alike;

typedef struct {
    const fs_sample *samples;
    uint32_t count;
    fs_metric metric;
    fs_counted_work *works;
    uint32_t work_count;
    uint32_t *first;  /* by work: the first sample that ends after it starts */
    double *rates;    /* by work, per ns */
    double *reach;    /* by work: ns of overlap with samples, without the ends of the kernel */
    double *weights;  /* by sample: sum of overlap times rate */
    int64_t *covered; /* by work, ns */
    fs_alike *alike;
    bool leads; /* the first track of its device */
} fs_division;

static inline int64_t fs_division_work_ns(const fs_counted_work *work)
{
    return fs_sub_saturated(work->end, work->start);
}

static inline int64_t fs_division_sample_ns(const fs_sample *sample)
{
    return fs_sub_saturated(sample->end, sample->start);
}

static inline int64_t fs_division_overlap(int64_t start, int64_t end, const fs_sample *sample)
{
    int64_t from = start > sample->start ? start : sample->start;
    int64_t to = end < sample->end ? end : sample->end;
    return to > from ? fs_sub_saturated(to, from) : 0;
}

/* The overlap that a sample is divided by. */
static inline double fs_division_reach(const fs_counted_work *work, const fs_sample *sample)
{
    int64_t length = fs_division_work_ns(work), end = 0;
    if (fs_division_sample_ns(sample) >= FS_COARSE_NS)
        end = length / 3 < FS_KERNEL_END_NS ? length / 3 : FS_KERNEL_END_NS;
    return (double)fs_division_overlap(work->start + end, work->end - end, sample);
}

static inline bool fs_division_reaches(const fs_division *by, uint32_t sample, const fs_counted_work *work)
{
    return sample < by->count && by->samples[sample].start < work->end;
}

/* The sample's value as an amount. */
static inline double fs_division_amount(const fs_division *by, uint32_t sample)
{
    const fs_sample *of = &by->samples[sample];
    double value = of->value > 0 ? of->value : 0;
    return fs_metrics[by->metric].kind == FS_METRIC_AMOUNT_KIND ? value : value * (double)fs_division_sample_ns(of);
}

#endif
