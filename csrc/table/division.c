/* Works are in order of start and samples in order and disjoint, so each work meets a run of samples. */
#include "table/division.h"

#include <string.h>

#include "base/memory.h"

static int64_t sample_ns(const fs_sample *sample)
{
    return fs_sub_saturated(sample->end, sample->start);
}

static double overlap(int64_t start, int64_t end, const fs_sample *sample)
{
    int64_t from = start > sample->start ? start : sample->start;
    int64_t to = end < sample->end ? end : sample->end;
    return to > from ? (double)fs_sub_saturated(to, from) : 0;
}

fs_status fs_division_create(fs_division *by, fs_counted_work *works, uint32_t count, fs_error *err)
{
    *by = (fs_division){.works = works, .work_count = count};
    by->spans = fs_malloc((size_t)count * sizeof *by->spans);
    by->reach = fs_malloc((size_t)count * sizeof *by->reach);
    by->rates = fs_malloc((size_t)count * sizeof *by->rates);
    by->covered = fs_malloc((size_t)count * sizeof *by->covered);
    if (by->spans != NULL && by->reach != NULL && by->rates != NULL && by->covered != NULL) return FS_OK;
    return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to divide counters among %u device events", count);
}

static void clear_samples(fs_division *by)
{
    fs_free(by->lengths);
    fs_free(by->amounts);
    fs_free(by->weights);
    by->lengths = by->amounts = by->weights = NULL;
}

void fs_division_clear(fs_division *by)
{
    clear_samples(by);
    fs_free(by->spans);
    fs_free(by->reach);
    fs_free(by->rates);
    fs_free(by->covered);
    *by = (fs_division){0};
}

static bool has_samples_of(const fs_division *by, const fs_counter_track *track)
{
    if (by->lengths == NULL || by->count != track->count) return false;
    for (uint32_t i = 0; i < by->count; i++)
        if (by->samples[i].start != track->samples[i].start || by->samples[i].end != track->samples[i].end)
            return false;
    return true;
}

/* The overlaps of the time from start to end, of which sample `first` is not before it. */
static fs_reach span_of(const fs_division *by, uint32_t first, int64_t start, int64_t end)
{
    while (first < by->count && by->samples[first].end <= start) first++;
    fs_reach span = {.first = first};
    while (first + span.count < by->count && by->samples[first + span.count].start < end) span.count++;
    if (span.count > 0) span.head = overlap(start, end, &by->samples[first]);
    if (span.count > 1) span.tail = overlap(start, end, &by->samples[first + span.count - 1]);
    return span;
}

static fs_status place_works(fs_division *by, fs_error *err)
{
    uint32_t first = 0;
    uint64_t steps = 0;
    for (uint32_t i = 0; i < by->count; i++) {
        by->lengths[i] = (double)sample_ns(&by->samples[i]);
        by->weights[i] = 1;
    }
    for (uint32_t k = 0; k < by->work_count; k++) {
        const fs_counted_work *work = &by->works[k];
        fs_reach *span = &by->spans[k];
        *span = span_of(by, first, work->start, work->end);
        first = span->first;
        by->covered[k] = (int64_t)fs_division_sum(by, k, by->weights);
        int64_t length = fs_counted_work_ns(work), end = length / 3;
        if (end > FS_KERNEL_END_NS) end = FS_KERNEL_END_NS;
        if (span->count > 0 && by->lengths[first] >= FS_COARSE_NS)
            *span = span_of(by, first, work->start + end, work->end - end);
        by->reach[k] = fs_division_sum(by, k, by->weights);
        FS_TRY(fs_division_poll(by, k, &steps, err));
    }
    return FS_OK;
}

static fs_status take_samples(fs_division *by, const fs_counter_track *track, fs_error *err)
{
    size_t count = (size_t)track->count + 1;
    clear_samples(by);
    by->lengths = fs_malloc(count * sizeof *by->lengths);
    by->amounts = fs_malloc(count * sizeof *by->amounts);
    by->weights = fs_malloc(count * sizeof *by->weights);
    if (by->lengths == NULL || by->amounts == NULL || by->weights == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to divide %u samples of counters", track->count);
    by->samples = track->samples;
    by->count = track->count;
    return place_works(by, err);
}

fs_status fs_division_place(fs_division *by, const fs_counter_track *track, bool *moved, fs_error *err)
{
    *moved = !has_samples_of(by, track);
    if (*moved) FS_TRY(take_samples(by, track, err));
    by->metric = (fs_metric)track->metric;
    bool is_amount = fs_metrics[by->metric].kind == FS_METRIC_AMOUNT_KIND;
    for (uint32_t i = 0; i < by->count; i++) {
        double value = track->samples[i].value > 0 ? track->samples[i].value : 0;
        by->amounts[i] = is_amount ? value : value * by->lengths[i];
    }
    return FS_OK;
}

/* Judgement ------------------------------------------------------------------------------------------------------- */

static double shortest_sample(const fs_division *by)
{
    double shortest = (double)INT64_MAX;
    for (uint32_t i = 0; i < by->count; i++)
        if (by->lengths[i] > 0 && by->lengths[i] < shortest) shortest = by->lengths[i];
    return shortest;
}

/* Whether a work has its samples to itself, by the number of works in each: they end late enough for all of its
 * traffic, and what idle memory moves in them does not matter. */
static bool is_alone(const fs_division *by, const fs_counted_work *work, const fs_reach *span, double length)
{
    enum { SHORTEST_NS = 5000, MOST_IDLE = 20 };
    double own = (double)fs_counted_work_ns(work);
    if (span->count == 0 || own < SHORTEST_NS || MOST_IDLE * own < length) return false;
    for (uint32_t i = 0; i < span->count; i++)
        if (by->weights[span->first + i] > 1) return false;
    return fs_sub_saturated(by->samples[span->first + span->count - 1].end, work->end) >= FS_KERNEL_END_NS;
}

fs_status fs_division_judge(fs_division *by, fs_error *err)
{
    uint64_t steps = 0;
    double shortest = shortest_sample(by);
    memset(by->weights, 0, by->count * sizeof *by->weights);
    for (uint32_t k = 0, first = 0; k < by->work_count; k++) {
        fs_counted_work *work = &by->works[k];
        fs_reach span = span_of(by, first, work->start, work->end);
        double own = (double)fs_counted_work_ns(work), length = 0;
        for (uint32_t i = 0; i < span.count; i++) {
            by->weights[span.first + i]++;
            length += by->lengths[span.first + i];
        }
        first = span.first;
        work->covered = by->covered[k];
        bool its_own = own >= 0.9 * length; /* the samples lie in it: counted for this work alone */
        work->within = span.count > 0 && (double)work->covered >= 0.9 * own;
        work->sample_ns = span.count > 0 ? length / span.count : 0;
        bool resolved = work->within && (its_own || own >= FS_COUNTED_SAMPLES * work->sample_ns);
        work->resolved = resolved ? UINT32_MAX : 0;
        work->fine = work->within && work->sample_ns <= 2 * shortest;
        FS_TRY(fs_division_poll(by, k, &steps, err));
    }
    for (uint32_t k = 0, first = 0; k < by->work_count; k++) {
        fs_counted_work *work = &by->works[k];
        fs_reach span = span_of(by, first, work->start, work->end);
        first = span.first;
        if (work->within && is_alone(by, work, &span, span.count * work->sample_ns)) work->resolved = UINT32_MAX;
        FS_TRY(fs_division_poll(by, k, &steps, err));
    }
    return FS_OK;
}
