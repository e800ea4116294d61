/* One pass over the names tells a call. Which calls waited follows from the ends of the works: only those that lie
 * within some call are sorted. */
#include <stdlib.h>

#include "accounting/late.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/search.h"
#include "store/event.h"
#include "summaries/intervals.h"

bool fs_flags_any(const uint8_t *flags, uint32_t count)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < count; i++) any |= flags[i];
    return any != 0;
}

static int compare_starts(const void *a, const void *b)
{
    int64_t x = ((const fs_named_call *)a)->start, y = ((const fs_named_call *)b)->start;
    return (x > y) - (x < y);
}

fs_status fs_named_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, fs_error *err)
{
    *calls = (fs_named_calls){0};
    if (!fs_flags_any(names, fs_store_name_count(store))) return FS_OK;
    FS_EACH_EVENT(store, i, chunk, at) {
        FS_POLL(i, err);
        if (chunk->name[at] == FS_NONE || !names[chunk->name[at]] ||
            fs_event_lies_on_device(chunk->kind[at], chunk->device[at]) || chunk->start[at] == FS_MISSING)
            continue;
        FS_TRY(FS_LIST_ROOM(&calls->items, calls->count, &calls->capacity, 64, err));
        int64_t start = chunk->start[at], duration = fs_sub_saturated(fs_event_later_end(chunk, at), start);
        calls->items[calls->count++] = (fs_named_call){i, chunk->name[at], start, duration, .run = -1};
    }
    if (calls->count > 1) qsort(calls->items, calls->count, sizeof *calls->items, compare_starts);
    return FS_OK;
}

/* ns by which the clocks of host and device may disagree about the end of the work that a call waited for. */
enum { SEEN_NS = 10000 };

static int64_t seen_until(const fs_named_call *call)
{
    return fs_add_saturated(fs_add_saturated(call->start, call->duration), SEEN_NS);
}

/* Whether a time lies in one of disjoint ascending intervals, their ends included. `at`: the last result's, as times
 * hardly ever go back. */
static bool is_within(const fs_intervals *list, uint32_t *at, int64_t time)
{
    bool later = *at < list->count && list->items[*at].end < time;
    bool earlier = *at > 0 && list->items[*at - 1].end >= time;
    if (later || earlier) *at = FS_FIRST_NOT(i, 0, list->count, list->items[i].end < time);
    return *at < list->count && list->items[*at].begin <= time;
}

/* List when work of a device ended that ended within some call. */
static fs_status find_ends(fs_intervals *ends, const fs_store *store, const fs_intervals *calls, fs_error *err)
{
    uint32_t near = 0;
    FS_EACH_EVENT(store, i, chunk, at) {
        FS_POLL(i, err);
        if (!fs_event_lies_on_device(chunk->kind[at], chunk->device[at]) || !fs_event_is_timed(chunk, at)) continue;
        int64_t end = fs_event_later_end(chunk, at);
        if (is_within(calls, &near, end)) FS_TRY(fs_intervals_add(ends, end, end, i, err));
    }
    return fs_intervals_sort(ends, err);
}

/* Leave only the calls within which work ended. */
static void keep_waiting(fs_named_calls *calls, const fs_intervals *ends)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < calls->count; i++) {
        const fs_named_call *call = &calls->items[i];
        uint32_t first = FS_FIRST_NOT(j, 0, ends->count, ends->items[j].begin < call->start);
        if (first < ends->count && ends->items[first].begin <= seen_until(call)) calls->items[count++] = *call;
    }
    calls->count = count;
}

static void keep_timed_api_calls(fs_named_calls *calls, const fs_store *store)
{
    uint32_t count = 0, at;
    for (uint32_t i = 0; i < calls->count; i++) {
        const fs_chunk *chunk = fs_event_chunk(store, (uint32_t)calls->items[i].event, &at);
        if (chunk->kind[at] == FS_EVENT_RUNTIME && fs_event_is_timed(chunk, at))
            calls->items[count++] = calls->items[i];
    }
    calls->count = count;
}

fs_status fs_waiting_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, fs_error *err)
{
    fs_intervals within = {0}, ends = {0};
    fs_status status = fs_named_calls_find(calls, store, names, err);
    if (status == FS_OK) keep_timed_api_calls(calls, store);
    for (uint32_t i = 0; status == FS_OK && i < calls->count; i++)
        status = fs_intervals_cover(&within, calls->items[i].start, seen_until(&calls->items[i]), err);
    if (status == FS_OK) status = fs_intervals_unite(&within, err);
    if (status == FS_OK && within.count > 0) status = find_ends(&ends, store, &within, err);
    if (status == FS_OK) keep_waiting(calls, &ends);
    fs_intervals_clear(&within);
    fs_intervals_clear(&ends);
    return status;
}
