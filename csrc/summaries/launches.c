/* The work of one device in order of start; `busy_until` is the end of all work before, and a stream's end that of its
 * own. A launch is counted once for each device, at its first kernel. Times that cannot be are kept and counted
 * (negative_delays), because clocks of host and device may differ by more than a delay. */
#include "summaries/launches.h"

#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/statistics.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "summaries/intervals.h"

typedef struct {
    const fs_store *store;
    fs_intervals *work; /* by device, FS_DEVICE_LIMIT of them, in order of start; tags are event ids */
    fs_api_calls calls;
    fs_launch_marks marks;
    /* Of the current device: */
    fs_launch_counts counts;
    fs_intervals launches; /* from the start of the call to that of its first kernel, in order of the latter */
    int64_t *samples;      /* room for a number of each launch */
    fs_intervals late;     /* idle times of the device that end with work whose call, the tag, returned in them */
    int64_t busy_until;
} counting;

static int64_t end_of(const counting *all, uint32_t event)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(all->store, event, &at);
    return fs_event_end(chunk, at);
}

/* Return the idle time of the device until the launches that came late had arrived. */
static fs_status count_lost(counting *all, double *lost, fs_error *err)
{
    uint32_t count = all->late.count;
    int64_t sum = 0, *delays = fs_malloc((count + (size_t)1) * sizeof *delays);
    if (delays == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < count; i++)
        delays[i] = fs_sub_saturated(all->late.items[i].end, end_of(all, all->late.items[i].tag));
    int64_t arrival = fs_arrival_of(delays, count);
    for (uint32_t i = 0; i < count; i++) {
        const fs_interval *idle = &all->late.items[i];
        int64_t arrived = end_of(all, idle->tag);
        fs_add_to(&arrived, arrival);
        fs_add_to(&sum, fs_sub_saturated(arrived < idle->end ? arrived : idle->end, idle->begin));
    }
    fs_free(delays);
    *lost = (double)sum;
    return FS_OK;
}

fs_status fs_launch_marks_create(fs_launch_marks *marks, const fs_store *store, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(store);
    marks->store = store;
    FS_TRY(FS_NEW_ZEROED(&marks->launched, fs_store_count(store) + (size_t)1, err));
    FS_TRY(FS_NEW(&marks->stream_ends, lanes + (size_t)1, err));
    for (uint32_t lane = 0; lane < lanes; lane++) marks->stream_ends[lane] = FS_MISSING;
    return FS_OK;
}

void fs_launch_marks_clear(fs_launch_marks *marks)
{
    fs_free(marks->launched);
    fs_free(marks->stream_ends);
}

bool fs_launch_counts_add(fs_launch_counts *counts, fs_launch_marks *marks, int device, const fs_chunk *chunk,
                          uint32_t at, uint32_t call)
{
    int64_t *stream_end = chunk->lane[at] == FS_NONE ? NULL : &marks->stream_ends[chunk->lane[at]];
    int64_t end = fs_event_end(chunk, at);
    bool of_call = call != FS_NONE && chunk->kind[at] == FS_EVENT_KERNEL;
    bool is_first = of_call && marks->launched[call] != device + 1;
    counts->kernels += of_call;
    if (is_first) {
        uint32_t place;
        const fs_chunk *from = fs_event_chunk(marks->store, call, &place);
        bool has_past = stream_end != NULL && *stream_end != FS_MISSING;
        marks->launched[call] = (uint8_t)(device + 1);
        counts->launches++;
        counts->with_past += has_past;
        counts->bound += has_past && *stream_end <= fs_event_end(from, place);
    }
    if (stream_end != NULL && end > *stream_end) *stream_end = end;
    return is_first;
}

static fs_status add_work(counting *all, int device, const fs_interval *work, fs_error *err)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(all->store, work->tag, &at);
    uint32_t call = fs_api_calls_find(&all->calls, chunk->correlation[at]);
    if (call != FS_NONE && work->begin > all->busy_until && end_of(all, call) > all->busy_until)
        FS_TRY(fs_intervals_add(&all->late, all->busy_until, work->begin, call, err));
    if (fs_launch_counts_add(&all->counts, &all->marks, device, chunk, at, call))
        FS_TRY(fs_intervals_add(&all->launches, FS_EVENT_AT(all->store, call, start), work->begin, call, err));
    if (work->end > all->busy_until) all->busy_until = work->end;
    return FS_OK;
}

/* Queue length at each call: earlier launches less kernels that had begun. */
static fs_status count_queue(counting *all, fs_launch_statistics *row, fs_error *err)
{
    uint32_t count = all->launches.count, begun = 0;
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < count; i++) all->samples[i] = all->launches.items[i].end;
    FS_TRY(fs_intervals_sort(&all->launches, err));
    for (uint32_t i = 0; i < count; i++) {
        while (begun < count && all->samples[begun] <= all->launches.items[i].begin) begun++;
        double waiting = i > begun ? i - begun : 0;
        sum += waiting;
        if (waiting > most) most = waiting;
    }
    row->queue_mean = count > 0 ? sum / count : NAN;
    row->queue_max = count > 0 ? most : NAN;
    return FS_OK;
}

static fs_status fill_row(counting *all, fs_launch_statistics *row, fs_error *err)
{
    uint32_t count = all->launches.count, at;
    FS_TRY(FS_NEW(&all->samples, count + (size_t)1, err));
    row->kernels = (double)all->counts.kernels;
    row->launches = count;
    row->launch_bound_pct =
        all->counts.with_past > 0 ? 100 * (double)all->counts.bound / (double)all->counts.with_past : NAN;
    row->idle_lost = NAN;
    if (all->counts.with_past > 0) FS_TRY(count_lost(all, &row->idle_lost, err));
    FS_TRY(count_queue(all, row, err));

    uint32_t negative = 0;
    for (uint32_t i = 0; i < count; i++) {
        all->samples[i] = fs_sub_saturated(all->launches.items[i].end, all->launches.items[i].begin);
        negative += all->samples[i] < 0;
    }
    row->negative_delays = negative;
    fs_statistics delays = fs_statistics_of(all->samples, count);
    row->delay_min = delays.min;
    row->delay_median = delays.median;
    row->delay_p95 = delays.p95;
    row->delay_max = delays.max;
    uint32_t timed = 0;
    for (uint32_t i = 0; i < count; i++) {
        const fs_chunk *chunk = fs_event_chunk(all->store, all->launches.items[i].tag, &at);
        if (chunk->duration[at] != FS_MISSING) all->samples[timed++] = chunk->duration[at];
    }
    row->call_time_median = fs_statistics_of(all->samples, timed).median;
    return FS_OK;
}

static fs_status count_device(counting *all, int device, const fs_intervals *work, fs_launch_statistics *row,
                              fs_error *err)
{
    fs_status status = FS_OK;
    all->counts = (fs_launch_counts){0};
    all->busy_until = work->items[0].begin;
    row->device = device;
    for (uint32_t i = 0; i < work->count; i++) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        FS_TRY_GOTO(status, add_work(all, device, &work->items[i], err), done);
    }
    status = fill_row(all, row, err);
done:
    fs_intervals_clear(&all->launches);
    fs_intervals_clear(&all->late);
    fs_free(all->samples);
    all->samples = NULL;
    return status;
}

/* Work without a start is ignored. */
static fs_status list_work(counting *all, fs_error *err)
{
    FS_EACH_EVENT(all->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        fs_intervals *list = &all->work[fs_event_device(chunk, at)];
        FS_TRY(fs_intervals_add(list, chunk->start[at], fs_event_end(chunk, at), index, err));
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) FS_TRY(fs_intervals_sort(&all->work[device], err));
    return FS_OK;
}

static fs_status count_all(counting *all, fs_launch_statistics *rows, uint32_t *count, fs_error *err)
{
    FS_TRY(fs_api_calls_create(&all->calls, all->store, err));
    FS_TRY(fs_launch_marks_create(&all->marks, all->store, err));
    *count = 0;
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        const fs_intervals *list = &all->work[device];
        if (list->count > 0) FS_TRY(count_device(all, device, list, &rows[(*count)++], err));
    }
    return FS_OK;
}

fs_status fs_launches_of(const fs_store *store, fs_launch_statistics **rows, uint32_t *count, fs_error *err)
{
    fs_status status;
    fs_intervals work[FS_DEVICE_LIMIT] = {0};
    counting all = {.store = store, .work = work};
    fs_launch_statistics *result = fs_calloc(FS_DEVICE_LIMIT, sizeof *result);
    if (result == NULL) return fs_no_memory(err);
    FS_TRY_GOTO(status, list_work(&all, err), done);
    FS_TRY_GOTO(status, count_all(&all, result, count, err), done);
    *rows = result;
    result = NULL;
done:
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) fs_intervals_clear(&work[device]);
    fs_api_calls_clear(&all.calls);
    fs_launch_marks_clear(&all.marks);
    fs_free(result);
    return status;
}

/* Arrival ---------------------------------------------------------------------------------------------------------- */

/* The median, since most launches onto an idle device arrive undisturbed, and at most 100 µs, since a delay that long
 * has another cause than the launch. Clocks that contradict each other make delays below 0, which count as 0. */

enum { LONGEST_NS = 100000 };

int64_t fs_arrival_of(int64_t *delays, uint32_t count)
{
    if (count == 0) return 0;
    for (uint32_t i = 0; i < count; i++) delays[i] = delays[i] > 0 ? delays[i] : 0;
    double median = fs_median_of(delays, count);
    return median < LONGEST_NS ? (int64_t)median : LONGEST_NS;
}
