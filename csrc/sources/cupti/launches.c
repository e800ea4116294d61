/* A recorded call and a logged launch belong together if the time of the launch lies within the call, give or take the
 * drift of two clocks, on one thread. Pauses longer than any drift cut the sequence of a thread into parts that are
 * tied on their own. Within a part calls and launches keep their order, so the only question is the offset: the one
 * with the most pairs wins, and if two have as many, none does. A wrong tie would give kernels the ops of another
 * graph; no tie leaves them to be matched by name. */
#include "sources/cupti/launches.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"
#include "sources/cupti/watched.h"
#include "store/event.h"

void fs_launch_log_clear(fs_launch_log *log)
{
    fs_free(log->launches);
    *log = (fs_launch_log){0};
}

/* In a pause that is longer than any drift of clocks, no call and no launch can be the other's. */
enum { PAUSE_NS = 2 * (FS_WATCHED_FARTHEST_NS + FS_WATCHED_SLACK_NS) };

fs_status fs_launch_log_copy(const fs_launch_log *log, const fs_store *store, int64_t shift, fs_launch_log *copy,
                             fs_error *err)
{
    int64_t first = INT64_MIN, last = INT64_MAX, begin, end;
    uint32_t count = 0;
    fs_store_window(store, &begin, &end);
    if (begin != FS_MISSING) first = fs_add_saturated(fs_add_saturated(begin, shift), -PAUSE_NS);
    if (end != FS_MISSING) last = fs_add_saturated(fs_add_saturated(end, shift), PAUSE_NS);
    for (uint32_t i = 0; i < log->count; i++) count += log->launches[i].time >= first && log->launches[i].time <= last;
    if (count == 0) return FS_OK;
    FS_TRY(FS_NEW(&copy->launches, count, err));
    copy->capacity = count;
    for (uint32_t i = 0; i < log->count; i++)
        if (log->launches[i].time >= first && log->launches[i].time <= last)
            copy->launches[copy->count++] = log->launches[i];
    return FS_OK;
}

void fs_launch_log_begin(fs_launch_log *log)
{
    uint32_t forgotten = log->count / 2;
    if (log->count <= FS_MOST_LAUNCHES / 2) return;
    memmove(log->launches, log->launches + forgotten, (log->count - forgotten) * sizeof *log->launches);
    log->count -= forgotten;
}

uint32_t fs_thread_handle(void)
{
    uint32_t half = (uint32_t)pthread_self();
    if (half == UINT32_C(1) << 31) return 0;
    return half >> 31 ? 0 - half : half;
}

void fs_launch_log_add(fs_launch_log *log, const fs_logged_launch *launch)
{
    if (log->capacity < FS_MOST_LAUNCHES)
        FS_IGNORE(FS_LIST_ROOM(&log->launches, log->count, &log->capacity, 1024, NULL));
    if (log->count == log->capacity) log->lost++;
    else log->launches[log->count++] = *launch;
}

/* Tying ------------------------------------------------------------------------------------------------------------ */

/* A recorded call that launched a graph, in the time of the log but for the drift of clocks. */
typedef struct {
    int64_t start, end;
    uint32_t thread, event;
} recorded;

typedef struct {
    recorded *calls;
    const fs_logged_launch *launches; /* of the log, by thread */
    int64_t first, last;              /* times of the log, with a pause before and after */
    uint32_t call_count, launch_count;
    fs_captures *captures;
} tying;

FS_ORDER_BY(compare_recorded, recorded, thread, start, event)
FS_ORDER_BY(compare_logged, fs_logged_launch, thread, time)

static void find_times(tying *all)
{
    all->first = all->last = all->launches[0].time;
    for (uint32_t i = 1; i < all->launch_count; i++) {
        if (all->launches[i].time < all->first) all->first = all->launches[i].time;
        if (all->launches[i].time > all->last) all->last = all->launches[i].time;
    }
    all->first -= PAUSE_NS;
    all->last += PAUSE_NS;
}

/* List the calls that overlap the time of the log and launch graphs, but not those of the driver within one of the
 * runtime. */
static fs_status list_calls(tying *all, const fs_store *store, int64_t shift, fs_error *err)
{
    uint32_t count = fs_store_count(store), names = fs_store_name_count(store), capacity = 0, at;
    const fs_chunk *chunk = NULL;
    fs_status status = FS_OK;
    bool *launching = fs_calloc((size_t)names + 1, sizeof *launching);
    if (launching == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < names; i++) launching[i] = strstr(fs_store_name_text(store, i), "GraphLaunch") != NULL;
    for (uint32_t i = 0; i < count; i++) {
        chunk = fs_event_next_chunk(store, i, chunk, &at);
        if (chunk->kind[at] != FS_EVENT_RUNTIME || chunk->start[at] == FS_MISSING || chunk->lane[at] == FS_NONE ||
            chunk->name[at] == FS_NONE || !launching[chunk->name[at]] || fs_captures_is_inner_call(store, i))
            continue;
        recorded call = {
            .start = fs_add_saturated(chunk->start[at], shift),
            .end = fs_add_saturated(fs_event_end(chunk, at), shift),
            .thread = (uint32_t)fs_store_lane(store, chunk->lane[at]).id,
            .event = i,
        };
        bool apart = call.end < all->first || call.start > all->last,
             encloses = call.start < all->first && call.end > all->last;
        if (apart || encloses) continue; /* a call may block for long, before or after its launch */
        status = FS_LIST_ROOM(&all->calls, all->call_count, &capacity, 256, err);
        if (status != FS_OK) break;
        all->calls[all->call_count++] = call;
    }
    fs_free(launching);
    return status;
}

/* Return how many pairs of call and launch lie side by side if call i is launch i + offset; 0 if that cannot be. */
static uint32_t count_pairs(const recorded *calls, uint32_t call_count, const fs_logged_launch *launches,
                            uint32_t launch_count, int64_t offset)
{
    int64_t least = -FS_WATCHED_FARTHEST_NS, most = FS_WATCHED_FARTHEST_NS; /* clock differences of the pair before */
    uint32_t first = offset < 0 ? (uint32_t)-offset : 0, pairs = 0;
    for (uint32_t i = first; i < call_count && (int64_t)i + offset < launch_count; i++, pairs++) {
        int64_t time = launches[(int64_t)i + offset].time;
        int64_t low = time - calls[i].end - FS_WATCHED_SLACK_NS, high = time - calls[i].start + FS_WATCHED_SLACK_NS;
        if (low > most || high < least || low > FS_WATCHED_FARTHEST_NS || high < -FS_WATCHED_FARTHEST_NS) return 0;
        least = low;
        most = high;
    }
    return pairs;
}

/* Tie calls and launches of a thread between two pauses. */
static fs_status tie_part(tying *all, const recorded *calls, uint32_t call_count, const fs_logged_launch *launches,
                          uint32_t launch_count, fs_error *err)
{
    uint32_t best = 0;
    int64_t chosen = 0;
    bool unique = true;
    if (call_count == launch_count) best = count_pairs(calls, call_count, launches, launch_count, 0);
    bool all_in_order = best > 0;
    for (int64_t offset = 1 - (int64_t)call_count; !all_in_order && offset < launch_count; offset++) {
        FS_POLL((uint32_t)offset, err);
        uint32_t pairs = count_pairs(calls, call_count, launches, launch_count, offset);
        if (pairs > best) chosen = offset;
        if (pairs >= best && pairs > 0) unique = pairs > best;
        if (pairs > best) best = pairs;
    }
    if (best == 0 || !unique) return FS_OK;
    uint32_t first = chosen < 0 ? (uint32_t)-chosen : 0;
    for (uint32_t i = first; i < first + best; i++) {
        uint32_t graph = launches[(int64_t)i + chosen].graph;
        if (graph != 0) FS_TRY(fs_captures_add_tied(all->captures, calls[i].event, graph, err));
    }
    return FS_OK;
}

/* Tie all launches of a thread, part by part. */
static fs_status tie_thread(tying *all, const recorded *calls, uint32_t call_count, const fs_logged_launch *launches,
                            uint32_t launch_count, fs_error *err)
{
    uint32_t call = 0, launch = 0;
    while (call < call_count && launch < launch_count) {
        uint32_t first_call = call, first_launch = launch;
        int64_t last = calls[call].start < launches[launch].time ? calls[call].start : launches[launch].time;
        for (;;) {
            int64_t end;
            if (call < call_count && calls[call].start - PAUSE_NS <= last) end = calls[call++].end;
            else if (launch < launch_count && launches[launch].time - PAUSE_NS <= last) end = launches[launch++].time;
            else break;
            if (end > last) last = end;
        }
        FS_TRY(
            tie_part(all, calls + first_call, call - first_call, launches + first_launch, launch - first_launch, err));
    }
    return FS_OK;
}

/* Tie all calls, and keep those of threads without launches. */
static fs_status tie_threads(tying *all, fs_error *err)
{
    uint32_t launch = 0, left = 0;
    for (uint32_t call = 0, next; call < all->call_count; call = next) {
        uint32_t thread = all->calls[call].thread, first;
        for (next = call; next < all->call_count && all->calls[next].thread == thread;) next++;
        while (launch < all->launch_count && all->launches[launch].thread < thread) launch++;
        for (first = launch; launch < all->launch_count && all->launches[launch].thread == thread;) launch++;
        FS_TRY(tie_thread(all, all->calls + call, next - call, all->launches + first, launch - first, err));
        for (uint32_t i = call; first == launch && i < next; i++) all->calls[left++] = all->calls[i];
    }
    all->call_count = left;
    return FS_OK;
}

fs_status fs_launch_log_tie(fs_launch_log *log, const fs_store *store, int64_t shift, fs_captures *captures,
                            fs_error *err)
{
    tying all = {.captures = captures, .launches = log->launches, .launch_count = log->count};
    if (log->count == 0) return FS_OK;
    find_times(&all);
    fs_status status = list_calls(&all, store, shift, err);
    if (status == FS_OK) status = fs_sort(all.calls, all.call_count, sizeof *all.calls, compare_recorded, err);
    for (int by_handle = 0; status == FS_OK && by_handle < 2 && all.call_count > 0; by_handle++) {
        for (uint32_t i = 0; by_handle && i < log->count; i++) log->launches[i].thread = log->launches[i].handle;
        status = fs_sort(log->launches, log->count, sizeof *log->launches, compare_logged, err);
        if (status == FS_OK) status = tie_threads(&all, err);
    }
    if (status == FS_OK) fs_captures_sort_tied(captures);
    fs_free(all.calls);
    return status;
}
