/* Four passes, each of which relies on the one before: API calls in order of start (put_in_order), so that parents
 * precede their children; the innermost event around each call, by a sweep along each thread (nest_calls); owners by
 * correlation, and by time for threads of libraries (adopt_calls); copies of ranges on the streams (append_spans).
 * Indices of ops and ranges stay as they are: calls exchange places only among themselves. An owner always has a
 * smaller index than what it owns, so chains of owners end. */
#include "sources/attribute.h"

#include <string.h>

#include "base/id_map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "store/api_calls.h"
#include "store/event.h"

/* An event reported by CUPTI, copied out of the store for sorting. */
typedef struct {
    int64_t start, end;
    uint32_t index;
} call;

/* A range on a stream, from its first to its last work. */
typedef struct {
    int64_t start, end;
    uint32_t range, lane;
} span;

typedef struct {
    fs_store *store;
    uint32_t count, call_count; /* number of events; of those, host events from CUPTI */
    uint32_t *hosts;            /* events that enclose others, by lane, each lane in order of start */
    uint32_t *firsts;           /* by lane: index of its first host; one more entry at the end */
    uint32_t *calls;            /* API calls and overheads, by lane, likewise */
    uint32_t *call_firsts;
    uint32_t *owners; /* by event: the innermost op, range or step around it, itself included */
    fs_api_calls by_correlation;
    span *spans;
    uint32_t span_count, span_capacity;
    fs_id_map span_places; /* (range, lane) → index in spans */
} attribution;

#define AT(store, index, field) FS_EVENT_AT(store, index, field)

static int64_t end_of(const fs_store *store, uint32_t index)
{
    int64_t duration = AT(store, index, duration);
    return duration == FS_MISSING ? INT64_MAX : AT(store, index, start) + duration;
}

static bool is_call(uint8_t kind)
{
    return kind == FS_EVENT_RUNTIME || kind == FS_EVENT_OVERHEAD || kind == FS_EVENT_SYNC;
}

/* Return whether the event may enclose others on its thread. */
static bool is_host(const fs_store *store, uint32_t index)
{
    uint8_t kind = AT(store, index, kind);
    bool encloses = kind == FS_EVENT_OP || kind == FS_EVENT_FRAME || fs_event_is_annotation(kind);
    return encloses && !fs_event_lies_on_device(kind, AT(store, index, device));
}

/* Order of time -----------------------------------------------------------------------------------------------------
 * CUPTI reports a call when it has ended: inner calls before outer ones, and threads as their buffers fill. Parents
 * must precede their children, so these events are sorted by start. They only exchange places among themselves. That is
 * enough: a call that began inside an op was reported after the op was appended, and the places before the op are as
 * many as the calls that began before it. */
static int compare_calls(const void *left, const void *right)
{
    const call *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->end != b->end) return a->end > b->end ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static fs_status put_in_order(attribution *all, fs_error *err)
{
    fs_store *store = all->store;
    call *calls;
    fs_event *events = NULL;
    uint32_t *places = NULL, found = 0, first = FS_NONE;
    fs_status status = FS_OK;
    FS_TRY(FS_NEW(&calls, all->call_count, err));
    for (uint32_t i = 0; i < all->count; i++) {
        if (!is_call(AT(store, i, kind))) continue;
        calls[found] = (call){AT(store, i, start), end_of(store, i), i};
        if (found > 0 && first == FS_NONE && compare_calls(&calls[found - 1], &calls[found]) > 0) first = found;
        found++;
    }
    if (first != FS_NONE) {
        FS_TRY_GOTO(status, FS_NEW(&events, found, err), done);
        FS_TRY_GOTO(status, FS_NEW(&places, found, err), done);
        for (uint32_t i = 0; i < found; i++) places[i] = calls[i].index;
        FS_TRY_GOTO(status, fs_sort(calls, found, sizeof *calls, compare_calls, err), done);
        for (uint32_t i = 0; i < found; i++) fs_store_get(store, calls[i].index, &events[i]);
        for (uint32_t i = 0; i < found; i++) fs_store_set(store, places[i], &events[i]);
    }
done:
    fs_free(places);
    fs_free(events);
    fs_free(calls);
    return status;
}

/* Events by thread ------------------------------------------------------------------------------------------------- */

/* List the events for which `wanted` is true by lane, each lane in the order of the store. */
static fs_status list_by_lane(attribution *all, bool (*wanted)(const fs_store *, uint32_t), uint32_t **list,
                              uint32_t **firsts, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(all->store), total = 0;
    uint32_t *first = *firsts = fs_calloc(lanes + 2, sizeof *first);
    if (first == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t lane = AT(all->store, i, lane);
        if (lane < lanes && wanted(all->store, i)) first[lane + 2]++, total++;
    }
    for (uint32_t lane = 0; lane < lanes; lane++) first[lane + 2] += first[lane + 1];
    FS_TRY(FS_NEW(list, total, err));
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t lane = AT(all->store, i, lane);
        if (lane < lanes && wanted(all->store, i)) (*list)[first[lane + 1]++] = i;
    }
    return FS_OK;
}

static bool is_threads_call(const fs_store *store, uint32_t index)
{
    uint8_t kind = AT(store, index, kind);
    return kind == FS_EVENT_RUNTIME || kind == FS_EVENT_OVERHEAD;
}

/* Open events during a sweep along one thread, outermost first. They need not nest: a range may end anywhere, and an
 * ended one stays until those entered after it have ended. */
typedef struct {
    struct {
        uint32_t index;
        int64_t end;
    } *open;
    uint32_t depth, capacity;
} nest;

static fs_status enter(attribution *all, nest *around, uint32_t index, fs_error *err)
{
    int64_t start = AT(all->store, index, start);
    while (around->depth > 0 && around->open[around->depth - 1].end <= start) around->depth--;
    FS_TRY(FS_LIST_ROOM(&around->open, around->depth, &around->capacity, 64, err));
    around->open[around->depth].index = index;
    around->open[around->depth++].end = end_of(all->store, index);
    return FS_OK;
}

/* Return the innermost event that encloses the call. */
static uint32_t innermost(const attribution *all, const nest *around, uint32_t index)
{
    int64_t start = AT(all->store, index, start), end = end_of(all->store, index);
    for (uint32_t i = around->depth; i-- > 0;) {
        int64_t outer_end = around->open[i].end;
        if (around->open[i].index < index && outer_end > start && outer_end >= end) return around->open[i].index;
    }
    return FS_NONE;
}

static fs_status nest_thread(attribution *all, uint32_t lane, nest *around, fs_error *err)
{
    uint32_t host = all->firsts[lane], last_host = all->firsts[lane + 1];
    around->depth = 0;
    for (uint32_t i = all->call_firsts[lane]; i < all->call_firsts[lane + 1]; i++) {
        uint32_t index = all->calls[i];
        int64_t start = AT(all->store, index, start);
        for (; host < last_host && AT(all->store, all->hosts[host], start) <= start; host++) {
            FS_TRY(enter(all, around, all->hosts[host], err));
        }
        fs_event event;
        fs_store_get(all->store, index, &event);
        event.parent = innermost(all, around, index);
        fs_store_set(all->store, index, &event);
        FS_TRY(enter(all, around, index, err));
    }
    return FS_OK;
}

static fs_status nest_calls(attribution *all, fs_error *err)
{
    nest around = {NULL, 0, 0};
    fs_status status = FS_OK;
    FS_TRY(list_by_lane(all, is_host, &all->hosts, &all->firsts, err));
    FS_TRY(list_by_lane(all, is_threads_call, &all->calls, &all->call_firsts, err));
    for (uint32_t lane = 0; status == FS_OK && lane < fs_store_lane_count(all->store); lane++) {
        status = nest_thread(all, lane, &around, err);
    }
    fs_free(around.open);
    return status;
}

/* By correlation --------------------------------------------------------------------------------------------------- */

static fs_status find_owners(attribution *all, fs_error *err)
{
    FS_TRY(FS_NEW(&all->owners, all->count, err));
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t parent = AT(all->store, i, parent);
        bool owns = is_host(all->store, i) && AT(all->store, i, kind) != FS_EVENT_FRAME;
        all->owners[i] = owns ? i : parent < i ? all->owners[parent] : FS_NONE;
    }
    return FS_OK;
}

/* By time ---------------------------------------------------------------------------------------------------------- */

/* A thread's ranges, steps and ops that adopt, swept along with the calls of other threads. */
typedef struct {
    nest open;
    uint32_t next, last; /* indices in hosts */
} annotations;

static bool has_owners(const attribution *all, uint32_t lane)
{
    for (uint32_t i = all->firsts[lane]; i < all->firsts[lane + 1]; i++)
        if (AT(all->store, all->hosts[i], kind) != FS_EVENT_FRAME) return true;
    return false;
}

/* Find the innermost of these that is open at `time`, or FS_NONE. Times must ascend. */
static fs_status open_at(attribution *all, annotations *thread, int64_t time, uint32_t *range, fs_error *err)
{
    for (; thread->next < thread->last; thread->next++) {
        uint32_t index = all->hosts[thread->next];
        if (AT(all->store, index, start) > time) break;
        bool adopts = (AT(all->store, index, flags) & FS_EVENT_ADOPTS) != 0;
        if (adopts || fs_event_is_annotation(AT(all->store, index, kind)))
            FS_TRY(enter(all, &thread->open, index, err));
    }
    *range = FS_NONE;
    for (uint32_t i = thread->open.depth; i-- > 0 && *range == FS_NONE;)
        if (thread->open.open[i].end > time) *range = thread->open.open[i].index;
    return FS_OK;
}

/* Assign the calls of threads without an op or a range, in order of start, which is their order in the store. */
static fs_status adopt_calls(attribution *all, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(all->store);
    fs_status status = FS_OK;
    annotations *threads = fs_calloc(lanes, sizeof *threads);
    bool *library = fs_calloc(lanes, sizeof *library);
    if (threads == NULL || library == NULL) status = fs_no_memory(err);
    for (uint32_t lane = 0; status == FS_OK && lane < lanes; lane++) {
        threads[lane].next = all->firsts[lane];
        threads[lane].last = all->firsts[lane + 1];
        library[lane] = !has_owners(all, lane);
    }
    for (uint32_t i = 0; status == FS_OK && i < all->count; i++) {
        uint32_t lane = AT(all->store, i, lane), found = FS_NONE, threads_open = 0;
        if (AT(all->store, i, kind) != FS_EVENT_RUNTIME || lane >= lanes || !library[lane]) continue;
        for (uint32_t other = 0; status == FS_OK && other < lanes; other++) {
            uint32_t range;
            if (library[other]) continue;
            status = open_at(all, &threads[other], AT(all->store, i, start), &range, err);
            if (status != FS_OK || range == FS_NONE) continue;
            found = range;
            threads_open++;
        }
        if (threads_open == 1 && found < i) all->owners[i] = found;
    }
    for (uint32_t lane = 0; threads != NULL && lane < lanes; lane++) fs_free(threads[lane].open.open);
    fs_free(threads);
    fs_free(library);
    return status;
}

/* Ranges on the device --------------------------------------------------------------------------------------------- */

static fs_status stretch(attribution *all, uint32_t range, const fs_event *work, fs_error *err)
{
    int64_t end = work->start + work->duration;
    uint32_t place = fs_id_map_get(&all->span_places, range, work->lane);
    if (place == FS_NONE) {
        place = all->span_count;
        FS_TRY(fs_id_map_set(&all->span_places, range, work->lane, place, err));
        FS_TRY(FS_LIST_ADD(&all->spans, &all->span_count, &all->span_capacity, 64, err,
                           (span){work->start, end, range, work->lane}));
    }
    span *found = &all->spans[place];
    if (work->start < found->start) found->start = work->start;
    if (end > found->end) found->end = end;
    return FS_OK;
}

static fs_status link_work(attribution *all, uint32_t index, fs_error *err)
{
    fs_event work;
    fs_store_get(all->store, index, &work);
    uint32_t api = fs_api_calls_find(&all->by_correlation, work.correlation);
    if (api == FS_NONE) return FS_OK;
    work.launcher = all->owners[api] < index ? all->owners[api] : FS_NONE; /* clocks may differ by some ns */
    fs_store_set(all->store, index, &work);
    for (uint32_t at = work.launcher; at != FS_NONE;) {
        if (fs_event_is_annotation(AT(all->store, at, kind))) FS_TRY(stretch(all, at, &work, err));
        uint32_t parent = AT(all->store, at, parent);
        at = parent < at ? all->owners[parent] : FS_NONE;
    }
    return FS_OK;
}

/* A wait belongs to the thread of its API call. */
static void link_wait(attribution *all, uint32_t index)
{
    fs_event wait;
    fs_store_get(all->store, index, &wait);
    uint32_t api = fs_api_calls_find(&all->by_correlation, wait.correlation);
    if (api == FS_NONE) return;
    wait.lane = AT(all->store, api, lane);
    wait.parent = api < index ? api : FS_NONE;
    fs_store_set(all->store, index, &wait);
}

static fs_status append_spans(attribution *all, fs_error *err)
{
    for (uint32_t i = 0; i < all->span_count; i++) {
        const span *found = &all->spans[i];
        fs_event event, range;
        fs_store_get(all->store, found->range, &range);
        event = fs_event_missing;
        event.kind = range.kind;
        event.name = range.name;
        event.start = found->start;
        event.duration = found->end - found->start;
        event.launcher = found->range;
        event.lane = found->lane;
        event.device = (int8_t)fs_store_lane(all->store, found->lane).device;
        event.timing = FS_TIMING_CUPTI;
        FS_TRY(fs_store_append(all->store, &event, NULL, err));
    }
    return FS_OK;
}

fs_status fs_attribute(fs_store *store, fs_error *err)
{
    attribution all = {.store = store, .count = fs_store_count(store)};
    fs_status status;
    for (uint32_t i = 0; i < all.count; i++) all.call_count += is_call(AT(store, i, kind));
    if (all.call_count == 0) return FS_OK;
    FS_TRY_GOTO(status, put_in_order(&all, err), done);
    FS_TRY_GOTO(status, nest_calls(&all, err), done);
    FS_TRY_GOTO(status, fs_api_calls_create(&all.by_correlation, store, err), done);
    FS_TRY_GOTO(status, find_owners(&all, err), done);
    FS_TRY_GOTO(status, adopt_calls(&all, err), done);
    for (uint32_t i = 0; i < all.count; i++) {
        uint8_t kind = AT(store, i, kind);
        if (fs_event_kind_on_device[kind]) FS_TRY_GOTO(status, link_work(&all, i, err), done);
        if (kind == FS_EVENT_SYNC) link_wait(&all, i);
    }
    FS_TRY_GOTO(status, append_spans(&all, err), done);
done:
    fs_free(all.hosts);
    fs_free(all.firsts);
    fs_free(all.calls);
    fs_free(all.call_firsts);
    fs_free(all.owners);
    fs_api_calls_clear(&all.by_correlation);
    fs_free(all.spans);
    fs_id_map_clear(&all.span_places);
    return status;
}
