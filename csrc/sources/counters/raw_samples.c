/* Samples are kept on CUPTI's clock until the end, when two anchors are known: a conversion by the first one alone
 * would drift. A sample is poured only if all of it lies within the time asked for, since a part of its counts may be
 * from outside. */
#include "sources/counters/raw_samples.h"

#include <math.h>

#include "base/clock.h"
#include "base/memory.h"
#include "sources/counters/library.h"

/* An anchor is one instant on three clocks. Of fifty readings the one whose two host times are closest is kept, so a
 * reading that was interrupted does not count. Between two anchors time is linear; a rate within 0.1 % of 1 is taken as
 * 1, because over a short profile the jitter of the anchors is larger than any drift. */

enum { TRIES = 50 };

fs_anchor fs_anchor_take(void)
{
    fs_anchor best = {0};
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t theirs = 0;
        int64_t before = fs_clock_now();
        int64_t unix_time = fs_clock_unix_now();
        if (fs_counters->timestamp(&theirs) != FS_COUNTERS_SUCCESS) continue;
        int64_t after = fs_clock_now();
        if (after - before >= shortest) continue;
        shortest = after - before;
        best = (fs_anchor){theirs, before + shortest / 2, unix_time + shortest / 2};
    }
    return best;
}

/* A time of CUPTI's clock by the host's, or by Unix time. CUPTI's may count anything, such as cycles: two instants, one
 * before and one after it, tell its rate. */
static int64_t anchor_convert(const fs_anchor *from, const fs_anchor *to, uint64_t time, bool to_unix)
{
    double rate = to->cupti > from->cupti ? (double)(to->host - from->host) / (double)(to->cupti - from->cupti) : 1;
    if (fabs(rate - 1) < 1e-3) rate = 1; /* ns: the anchors' jitter would only disturb it */
    int64_t elapsed = llround((double)(int64_t)(time - from->cupti) * rate);
    return (to_unix ? from->unix_time : from->host) + elapsed;
}

fs_status fs_raw_samples_reserve(fs_raw_samples *samples, size_t more, fs_error *err)
{
    size_t last = samples->count + more - 1;
    return more == 0 ? FS_OK : FS_LIST_ROOM(&samples->items, last, &samples->capacity, 1, err);
}

fs_raw_sample *fs_raw_samples_add(fs_raw_samples *samples, uint64_t start, uint64_t end)
{
    fs_raw_sample *added = &samples->items[samples->count++];
    *added = (fs_raw_sample){.start = start, .end = end};
    for (int i = 0; i < FS_METRIC_COUNT; i++) added->values[i] = NAN;
    return added;
}

/* Let a sample reach to the end of the next one: amounts add up, and shares are means. */
static void extend(fs_raw_sample *sample, const fs_raw_sample *next)
{
    double own = (double)(sample->end - sample->start), more = (double)(next->end - next->start);
    for (int i = 0; i < FS_METRIC_COUNT; i++) {
        double *value = &sample->values[i];
        if (fs_metrics[i].kind == FS_METRIC_AMOUNT_KIND) *value += next->values[i];
        else if (own + more > 0) *value = (*value * own + next->values[i] * more) / (own + more);
    }
    sample->end = next->end;
}

void fs_raw_samples_join_idle(fs_raw_samples *samples)
{
    enum { KEPT = 3 };
    if (samples->count <= KEPT) return;
    fs_raw_sample *last = &samples->items[samples->count - 1];
    for (const fs_raw_sample *at = last - KEPT; at <= last; at++)
        if (!at->idle || (at < last && at->end != at[1].start)) return;
    extend(last - 2, last - 1);
    last[-1] = *last;
    samples->count--;
}

static int64_t convert(const fs_raw_clock *clock, uint64_t time)
{
    bool to_unix = clock->unix_base != FS_MISSING;
    int64_t converted = anchor_convert(&clock->from, &clock->to, time, to_unix) + FS_RAW_SAMPLE_DELAY_NS;
    return to_unix ? converted - clock->unix_base : converted;
}

fs_status fs_raw_samples_pour(const fs_raw_samples *samples, const fs_raw_clock *clock, fs_store *store, int device,
                              fs_metric metric, fs_error *err)
{
    fs_sample *poured = fs_malloc(((size_t)samples->count + 1) * sizeof *poured);
    if (poured == NULL) return fs_no_memory(err);
    size_t count = 0;
    for (uint32_t i = 0; i < samples->count; i++) {
        const fs_raw_sample *raw = &samples->items[i];
        int64_t from = convert(clock, raw->start), to = convert(clock, raw->end);
        if (isnan(raw->values[metric])) continue;
        if (from >= clock->begin && to <= clock->end) poured[count++] = (fs_sample){from, to, raw->values[metric]};
    }
    fs_status status = fs_store_add_samples(store, device, fs_metrics[metric].name, poured, count, NULL, err);
    fs_free(poured);
    return status;
}

void fs_raw_samples_clear(fs_raw_samples *samples)
{
    fs_free(samples->items);
    *samples = (fs_raw_samples){0};
}
