/* A worker is a stream or a whole device, and gets the same sums; all times are of united intervals, so overlapping
 * work of one stream counts once. Time is shared where an interval begins before all earlier ones of other streams have
 * ended: the intervals of a stream are disjoint, so whoever overlaps is another. */
#include "summaries/streams.h"

#include <math.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"
#include "summaries/collectives.h"
#include "summaries/intervals.h"

/* A stream, or a whole device. */
typedef struct {
    int device;
    bool whole, worked;
    uint64_t stream;
    uint32_t kernels, copies;
    fs_intervals busy, communication;
} worker;

typedef struct {
    const fs_store *store;
    fs_names names;
    worker *workers;       /* the lanes, then FS_DEVICE_LIMIT devices */
    uint32_t lanes, count; /* number of lanes; of all workers */
    fs_intervals *compute; /* by device: time covered by computing kernels */
    fs_intervals *shared;  /* by device: time during which two of its streams were busy */
} watching;

static fs_status add_work(watching *all, worker *by, const fs_chunk *chunk, uint32_t at, fs_error *err)
{
    int64_t begin = chunk->start[at], end = fs_event_end(chunk, at);
    bool copy = chunk->kind[at] == FS_EVENT_MEMCPY || chunk->kind[at] == FS_EVENT_MEMSET;
    by->worked = true;
    by->kernels += !copy;
    by->copies += copy;
    if (fs_collective_at(&all->names, chunk, at, NULL)) FS_TRY(fs_intervals_cover(&by->communication, begin, end, err));
    return fs_intervals_cover(&by->busy, begin, end, err);
}

static fs_status add_events(watching *all, fs_error *err)
{
    FS_EACH_EVENT(all->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        int device = fs_event_device(chunk, at);
        uint32_t lane = chunk->lane[at];
        if (lane != FS_NONE) FS_TRY(add_work(all, &all->workers[lane], chunk, at, err));
        FS_TRY(add_work(all, &all->workers[all->lanes + (uint32_t)device], chunk, at, err));
        if (fs_computes_at(&all->names, chunk, at))
            FS_TRY(fs_intervals_cover(&all->compute[device], chunk->start[at], fs_event_end(chunk, at), err));
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) FS_TRY(fs_intervals_unite(&all->compute[device], err));
    for (uint32_t i = 0; i < all->count; i++) {
        FS_TRY(fs_intervals_unite(&all->workers[i].busy, err));
        FS_TRY(fs_intervals_unite(&all->workers[i].communication, err));
    }
    return FS_OK;
}

/* The intervals of one stream are disjoint. A time is therefore shared from where an interval begins before all earlier
 * ones have ended, until the interval or the last of those ends. */
static fs_status share_device(watching *all, int device, fs_error *err)
{
    fs_status status = FS_OK;
    fs_intervals every = {0};
    int64_t reach = INT64_MIN;
    for (uint32_t lane = 0; lane < all->lanes; lane++) {
        if (!all->workers[lane].worked || all->workers[lane].device != device) continue;
        const fs_intervals *busy = &all->workers[lane].busy;
        for (uint32_t i = 0; i < busy->count; i++) {
            FS_TRY_GOTO(status, fs_intervals_add(&every, busy->items[i].begin, busy->items[i].end, 0, err), done);
        }
    }
    FS_TRY_GOTO(status, fs_intervals_sort(&every, err), done);
    for (uint32_t i = 0; i < every.count; i++) {
        int64_t begin = every.items[i].begin, end = every.items[i].end;
        FS_TRY_GOTO(status, fs_intervals_cover(&all->shared[device], begin, end < reach ? end : reach, err), done);
        if (end > reach) reach = end;
    }
    status = fs_intervals_unite(&all->shared[device], err);
done:
    fs_intervals_clear(&every);
    return status;
}

static double overlap(const fs_intervals *list, const fs_intervals *other)
{
    uint32_t at = 0;
    int64_t sum = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_add_to(&sum, fs_intervals_overlap(other, &at, list->items[i].begin, list->items[i].end));
    }
    return (double)sum;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : (double)NAN;
}

static void fill_row(const watching *all, const worker *of, fs_stream_row *row)
{
    double busy = (double)fs_intervals_total(&of->busy), overlapped = overlap(&of->busy, &all->shared[of->device]);
    double communication = (double)fs_intervals_total(&of->communication);
    double exposed = communication - overlap(&of->communication, &all->compute[of->device]);
    *row = (fs_stream_row){
        .device = of->device,
        .whole = of->whole,
        .stream = of->stream,
        .kernels = of->kernels,
        .copies = of->copies,
        .busy = busy,
        .overlapped = overlapped,
        .overlapped_pct = percent(overlapped, busy),
        .communication = communication,
        .exposed_communication = exposed,
        .exposed_pct = percent(exposed, communication),
    };
}

/* Order by device, then stream, with the whole device last. */
static int compare(const void *a, const void *b)
{
    const worker *left = a, *right = b;
    if (left->device != right->device) return left->device < right->device ? -1 : 1;
    if (left->whole != right->whole) return left->whole ? 1 : -1;
    return left->stream < right->stream ? -1 : left->stream > right->stream;
}

static fs_status make_workers(watching *all, fs_error *err)
{
    all->lanes = fs_store_lane_count(all->store);
    all->count = all->lanes + FS_DEVICE_LIMIT;
    FS_TRY(FS_NEW_ZEROED(&all->workers, all->count, err));
    FS_TRY(FS_NEW_ZEROED(&all->compute, (size_t)2 * FS_DEVICE_LIMIT, err));
    all->shared = all->compute + FS_DEVICE_LIMIT;
    for (uint32_t lane = 0; lane < all->lanes; lane++) {
        fs_lane of = fs_store_lane(all->store, lane);
        all->workers[lane].device = of.device;
        all->workers[lane].stream = of.id;
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        all->workers[all->lanes + (uint32_t)device].whole = true;
        all->workers[all->lanes + (uint32_t)device].device = device;
    }
    return FS_OK;
}

static fs_status fill_rows(watching *all, fs_stream_row **rows, uint32_t *count, fs_error *err)
{
    fs_stream_row *result = fs_calloc(all->count, sizeof *result);
    if (result == NULL) return fs_no_memory(err);
    qsort(all->workers, all->count, sizeof *all->workers, compare);
    *count = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->workers[i].worked) fill_row(all, &all->workers[i], &result[(*count)++]);
    }
    *rows = result;
    return FS_OK;
}

static fs_status watch(watching *all, fs_stream_row **rows, uint32_t *count, fs_error *err)
{
    FS_TRY(make_workers(all, err));
    FS_TRY(add_events(all, err));
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (all->workers[all->lanes + (uint32_t)device].worked) FS_TRY(share_device(all, device, err));
    }
    return fill_rows(all, rows, count, err);
}

fs_status fs_streams_of(const fs_store *store, fs_stream_row **rows, uint32_t *count, fs_error *err)
{
    watching all = {.store = store};
    FS_TRY(fs_names_create(&all.names, store, err));
    fs_status status = watch(&all, rows, count, err);
    for (uint32_t i = 0; all.workers != NULL && i < all.count; i++) {
        fs_intervals_clear(&all.workers[i].busy);
        fs_intervals_clear(&all.workers[i].communication);
    }
    for (int i = 0; all.compute != NULL && i < 2 * FS_DEVICE_LIMIT; i++) fs_intervals_clear(&all.compute[i]);
    fs_free(all.workers);
    fs_free(all.compute);
    fs_names_clear(&all.names);
    return status;
}
