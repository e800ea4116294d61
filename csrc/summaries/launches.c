#include "summaries/launches.h"

#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "summaries/intervals.h"
#include "base/statistics.h"

typedef struct {
    const fs_store *store;
    fs_intervals *work; /* by device, FS_DEVICE_LIMIT of them, in order of start; tags are event ids */
    fs_api_calls calls;
    uint8_t *launched;    /* by event id of an API call: 1 + the last device on which it launched */
    int64_t *stream_ends; /* by lane: end of the latest work so far, FS_MISSING before the first */
    /* Of the current device: */
    fs_intervals launches; /* from the start of the call to that of its first kernel, in order of the latter */
    int64_t *samples;      /* room for a number of each launch */
    int64_t kernels, with_past, bound, lost, busy_until;
} counting;

static void add_launch(counting *all, const fs_interval *work, int64_t stream_end, const fs_chunk *call, uint32_t at)
{
    if (stream_end == FS_MISSING) return;
    all->with_past++;
    if (stream_end > fs_event_end(call, at)) return;
    all->bound++;
    if (work->begin > all->busy_until) fs_add_to(&all->lost, fs_sub_saturated(work->begin, all->busy_until));
}

static fs_status add_work(counting *all, int device, const fs_interval *work, fs_error *err)
{
    uint32_t at, call_at;
    const fs_chunk *chunk = fs_event_chunk(all->store, work->tag, &at);
    int64_t *stream_end = chunk->lane[at] == FS_NONE ? NULL : &all->stream_ends[chunk->lane[at]];
    uint32_t call =
        chunk->kind[at] == FS_EVENT_KERNEL ? fs_api_calls_find(&all->calls, chunk->correlation[at]) : FS_NONE;
    if (call != FS_NONE) {
        all->kernels++;
        if (all->launched[call] != device + 1) {
            all->launched[call] = (uint8_t)(device + 1);
            const fs_chunk *from = fs_event_chunk(all->store, call, &call_at);
            FS_TRY(fs_intervals_add(&all->launches, from->start[call_at], work->begin, call, err));
            add_launch(all, work, stream_end == NULL ? FS_MISSING : *stream_end, from, call_at);
        }
    }
    if (stream_end != NULL && work->end > *stream_end) *stream_end = work->end;
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
    all->samples = fs_malloc((count + (size_t)1) * sizeof *all->samples);
    if (all->samples == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the times of %u launches", count);
    row->kernels = (double)all->kernels;
    row->launches = count;
    row->launch_bound_pct = all->with_past > 0 ? 100 * (double)all->bound / (double)all->with_past : NAN;
    row->idle_lost = all->with_past > 0 ? (double)all->lost : NAN;
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
    all->kernels = all->with_past = all->bound = all->lost = 0;
    all->busy_until = work->items[0].begin;
    row->device = device;
    for (uint32_t i = 0; i < work->count; i++) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        FS_TRY_GOTO(status, add_work(all, device, &work->items[i], err), done);
    }
    status = fill_row(all, row, err);
done:
    fs_intervals_clear(&all->launches);
    fs_free(all->samples);
    all->samples = NULL;
    return status;
}

/* Work without a start is ignored. */
static fs_status list_work(counting *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->store), at;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(all->store, index, &at);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        fs_intervals *list = &all->work[fs_event_device(chunk, at)];
        FS_TRY(fs_intervals_add(list, chunk->start[at], fs_event_end(chunk, at), index, err));
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) FS_TRY(fs_intervals_sort(&all->work[device], err));
    return FS_OK;
}

static fs_status count_all(counting *all, fs_launch_statistics *rows, uint32_t *count, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(all->store);
    FS_TRY(fs_api_calls_create(&all->calls, all->store, err));
    all->launched = fs_calloc(fs_store_count(all->store) + (size_t)1, 1);
    all->stream_ends = fs_malloc((lanes + (size_t)1) * sizeof *all->stream_ends);
    if (all->launched == NULL || all->stream_ends == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to count the launches among %u events",
                       fs_store_count(all->store));
    for (uint32_t lane = 0; lane < lanes; lane++) all->stream_ends[lane] = FS_MISSING;
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
    if (result == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the launch statistics");
    FS_TRY_GOTO(status, list_work(&all, err), done);
    FS_TRY_GOTO(status, count_all(&all, result, count, err), done);
    *rows = result;
    result = NULL;
done:
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) fs_intervals_clear(&work[device]);
    fs_api_calls_clear(&all.calls);
    fs_free(all.launched);
    fs_free(all.stream_ends);
    fs_free(result);
    return status;
}
