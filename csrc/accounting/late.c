/* A late time begins where all earlier work of the device has ended, and ends with the call that launched its next
 * work, so the late times of a device are disjoint:
 *
 *   device   ▓▓▓▓▓▓▓·················▓▓▓▓      ▓ work, · idle
 *   host        |op····|range······|call|
 *   late            ^^^^^^^^^^^^^^^            tag: the call
 *
 * Within the late times of a thread, the time of an event is its overlap with them less that of its children: parents
 * stand before their children in a store, so one pass over the events suffices. */
#include "accounting/late.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "summaries/intervals.h"
#include "summaries/steps.h"

enum { DEVICES = FS_DEVICE_LIMIT + 1 }; /* the first is the CPU, -1 */

static bool is_on_device(const fs_chunk *chunk, uint32_t at)
{
    return fs_event_lies_on_device(chunk->kind[at], chunk->device[at]);
}

static bool is_flagged(const uint8_t *flags, uint32_t name)
{
    return name != FS_NONE && flags[name];
}

/* Disjoint ascending times, and how much lies before each: an overlap costs a search, however many times lie in it. */
typedef struct {
    fs_intervals list;
    int64_t *before; /* one more than the list has */
} coverage;

static void clear_coverage(coverage *of)
{
    fs_intervals_clear(&of->list);
    fs_free(of->before);
    of->before = NULL;
}

static fs_status measure(coverage *of, fs_error *err)
{
    FS_TRY(fs_intervals_unite(&of->list, err));
    FS_TRY(FS_NEW_ZEROED(&of->before, of->list.count + (size_t)1, err));
    for (uint32_t i = 0; i < of->list.count; i++) {
        const fs_interval *item = &of->list.items[i];
        of->before[i + 1] = fs_add_saturated(of->before[i], fs_sub_saturated(item->end, item->begin));
    }
    return FS_OK;
}

static int64_t covered_until(const coverage *of, int64_t time)
{
    uint32_t i = fs_intervals_first_after(&of->list, time);
    bool within = i < of->list.count && of->list.items[i].begin < time;
    return fs_add_saturated(of->before[i], within ? fs_sub_saturated(time, of->list.items[i].begin) : 0);
}

static int64_t overlap(const coverage *of, int64_t begin, int64_t end)
{
    return end > begin ? covered_until(of, end) - covered_until(of, begin) : 0;
}

/* Return the index of the step that includes a time, or -1. */
static int64_t step_at(const fs_steps *steps, int64_t time)
{
    uint32_t low = FS_FIRST_NOT(i, 0, steps->count, steps->steps[i].begin <= time);
    return low > 0 && time < steps->steps[low - 1].end ? (int64_t)low - 1 : -1;
}

/* Return the name of the innermost op around an event, or FS_NONE. */
static uint32_t op_name(const fs_store *store, uint32_t event)
{
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(store, event, &at);
        if (chunk->kind[at] == FS_EVENT_OP) return chunk->name[at];
        event = chunk->parent[at] < event ? chunk->parent[at] : FS_NONE;
    }
    return FS_NONE;
}

/* Whether an event is work: on a device, or if there is no device an op that does not load data. */
static bool is_work(const fs_store *store, const fs_chunk *chunk, uint32_t at, bool on_device)
{
    if (!fs_event_is_timed(chunk, at)) return false;
    if (on_device) return is_on_device(chunk, at);
    if (chunk->kind[at] != FS_EVENT_OP) return false;
    return chunk->name[at] == FS_NONE || strstr(fs_store_name_text(store, chunk->name[at]), "DataLoader") == NULL;
}

/* List the works of each device by start; tags are events. */
static fs_status find_works(const fs_store *store, bool on_device, fs_intervals *works, fs_error *err)
{
    FS_EACH_EVENT(store, i, chunk, at) {
        FS_POLL(i, err);
        if (!is_work(store, chunk, at, on_device)) continue;
        FS_TRY(
            fs_intervals_add(&works[chunk->device[at] + 1], chunk->start[at], fs_event_later_end(chunk, at), i, err));
    }
    for (int device = 0; device < DEVICES; device++) FS_TRY(fs_intervals_sort(&works[device], err));
    return FS_OK;
}

static void clear_works(fs_intervals *works)
{
    for (int device = 0; device < DEVICES; device++) fs_intervals_clear(&works[device]);
}

/* Calls by name ------------------------------------------------------------------------------------------------- */

/* Add the idle time of a device to each call. */
static fs_status add_idle(fs_named_calls *calls, fs_intervals *works, bool has_steps, fs_error *err)
{
    if (works->count == 0) return FS_OK;
    int64_t first = works->items[0].begin, last = works->items[works->count - 1].begin;
    coverage busy = {.list = *works};
    *works = (fs_intervals){0};
    fs_status status = measure(&busy, err);
    for (uint32_t i = 0; status == FS_OK && i < calls->count; i++) {
        fs_named_call *call = &calls->items[i];
        int64_t low = call->start, high = fs_add_saturated(call->start, call->duration);
        call->unused |= low >= last;
        if (!has_steps && low < first) low = first;
        if (!has_steps && high > last) high = last;
        if (low >= high) continue;
        fs_add_to(&call->idle, fs_sub_saturated(fs_sub_saturated(high, low), overlap(&busy, low, high)));
    }
    clear_coverage(&busy);
    return status;
}

fs_status fs_idle_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, bool on_device,
                             fs_error *err)
{
    fs_steps steps;
    fs_intervals works[DEVICES] = {{0}};
    FS_TRY(fs_named_calls_find(calls, store, names, err));
    if (calls->count == 0) return FS_OK;
    FS_TRY(fs_steps_find(&steps, store, err));
    fs_status status = find_works(store, on_device, works, err);
    for (int device = 0; status == FS_OK && device < DEVICES; device++)
        status = add_idle(calls, &works[device], steps.marked, err);
    clear_works(works);
    fs_steps_clear(&steps);
    return status;
}

/* Late times ---------------------------------------------------------------------------------------------------- */

static fs_status add_late(fs_intervals *late, const fs_store *store, const fs_steps *steps, uint32_t first_step,
                          const fs_api_calls *calls, const fs_intervals *works, fs_error *err)
{
    int64_t free = works->count > 0 && !steps->marked ? works->items[0].begin : INT64_MIN;
    if (steps->marked) free = steps->steps[0].begin; /* before it are the edges */
    for (uint32_t i = 0; i < works->count; i++) {
        const fs_interval *work = &works->items[i];
        uint32_t call = fs_api_calls_find(calls, FS_EVENT_AT(store, work->tag, correlation));
        int64_t start = call != FS_NONE ? FS_EVENT_AT(store, call, start) : INT64_MIN;
        if (start > free && work->begin > free && FS_EVENT_AT(store, call, duration) != FS_MISSING &&
            step_at(steps, free) >= (int64_t)first_step)
            FS_TRY(fs_intervals_add(late, free, start < work->begin ? start : work->begin, call, err));
        if (work->end > free) free = work->end;
    }
    return FS_OK;
}

/* List the late times of all devices; tags are the calls that ended them. */
static fs_status find_late(fs_intervals *late, const fs_store *store, uint32_t first_step, fs_error *err)
{
    fs_steps steps;
    fs_api_calls calls = {0};
    fs_intervals works[DEVICES] = {{0}};
    FS_TRY(fs_steps_find(&steps, store, err));
    fs_status status = fs_api_calls_create(&calls, store, err);
    if (status == FS_OK) status = find_works(store, true, works, err);
    for (int device = 0; status == FS_OK && device < DEVICES; device++)
        status = add_late(late, store, &steps, first_step, &calls, &works[device], err);
    clear_works(works);
    fs_api_calls_clear(&calls);
    fs_steps_clear(&steps);
    return status;
}

/* Sums by name and whether the events launch; those of no name come last. */
static fs_status make_sums(fs_late_sums *sums, const fs_store *store, fs_error *err)
{
    uint32_t names = fs_store_name_count(store);
    *sums = (fs_late_sums){.count = 2 * (names + 1)};
    FS_TRY(FS_NEW_ZEROED(&sums->items, sums->count, err));
    for (uint32_t i = 0; i < sums->count; i++)
        sums->items[i] = (fs_late_sum){i / 2 < names ? (int64_t)(i / 2) : -1, i % 2, 0, 0};
    return FS_OK;
}

static void add_sum(fs_late_sums *sums, uint32_t name, bool launches, int64_t time)
{
    if (time <= 0) return;
    fs_late_sum *sum = name == FS_NONE ? &sums->items[sums->count - 2] : &sums->items[2 * (size_t)name];
    sum += launches;
    fs_add_to(&sum->time, time);
    sum->count++;
}

static void drop_empty(fs_late_sums *sums)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sums->count; i++) {
        if (sums->items[i].count > 0) sums->items[count++] = sums->items[i];
    }
    sums->count = count;
}

/* Whether an event on the host, whose time is known, is one of `names`, or counts in spite of its name. */
typedef bool (*host_filter)(const fs_chunk *chunk, uint32_t at, const uint8_t *names);

static bool is_named(const fs_chunk *chunk, uint32_t at, const uint8_t *names)
{
    return is_flagged(names, chunk->name[at]);
}

static bool is_shown(uint8_t kind)
{
    return kind == FS_EVENT_OP || kind == FS_EVENT_RANGE || kind == FS_EVENT_FRAME || kind == FS_EVENT_RUNTIME;
}

static bool has_other_cause(const fs_chunk *chunk, uint32_t at, const uint8_t *names)
{
    uint8_t kind = chunk->kind[at];
    if (kind == FS_EVENT_OVERHEAD) return true;
    return is_shown(kind) && kind != FS_EVENT_FRAME && is_flagged(names, chunk->name[at]);
}

/* The union of the events that a filter accepts. `ends`: of all events, or NULL. */
static fs_status find_host(coverage *found, const fs_store *store, host_filter filter, const uint8_t *names,
                           const int64_t *ends, fs_error *err)
{
    FS_EACH_EVENT(store, i, chunk, at) {
        FS_POLL(i, err);
        if (!fs_event_is_timed(chunk, at) || is_on_device(chunk, at) || !filter(chunk, at, names)) continue;
        FS_TRY(fs_intervals_cover(&found->list, chunk->start[at], ends ? ends[i] : fs_event_later_end(chunk, at), err));
    }
    return measure(found, err);
}

fs_status fs_late_within(fs_late_sums *sums, const fs_store *store, uint32_t first_step, const uint8_t *names,
                         fs_error *err)
{
    fs_intervals late = {0};
    coverage calls = {0};
    *sums = (fs_late_sums){0};
    if (!fs_flags_any(names, fs_store_name_count(store))) return FS_OK;
    FS_TRY(make_sums(sums, store, err));
    fs_status status = find_host(&calls, store, is_named, names, NULL, err);
    if (status == FS_OK && calls.list.count > 0) status = find_late(&late, store, first_step, err);
    for (uint32_t i = 0; status == FS_OK && i < late.count; i++) {
        const fs_interval *item = &late.items[i];
        add_sum(sums, op_name(store, item->tag), false, overlap(&calls, item->begin, item->end));
    }
    drop_empty(sums);
    clear_coverage(&calls);
    fs_intervals_clear(&late);
    return status;
}

/* What the host was in ------------------------------------------------------------------------------------------- */

typedef struct {
    const fs_store *store;
    const fs_late_request *request;
    uint32_t count, lane_count;
    int64_t *ends;      /* by event: where it ends, at the latest with its parent, as clocks are not exact */
    int64_t *own;       /* by event: its time within late times of its thread, less that of its children */
    uint8_t *launching; /* by event: whether it, or an event within, launched work */
    coverage *threads;  /* by lane: the late times that it ended */
    coverage other;     /* times with another cause */
} spending;

static void clear_spending(spending *of)
{
    for (uint32_t lane = 0; of->threads != NULL && lane < of->lane_count; lane++) clear_coverage(&of->threads[lane]);
    clear_coverage(&of->other);
    fs_free(of->threads);
    fs_free(of->launching);
    fs_free(of->own);
    fs_free(of->ends);
}

static fs_status make_spending(spending *of, fs_error *err)
{
    of->count = fs_store_count(of->store);
    of->lane_count = fs_store_lane_count(of->store);
    FS_TRY(FS_NEW_ZEROED(&of->ends, of->count + (size_t)1, err));
    FS_TRY(FS_NEW_ZEROED(&of->own, of->count + (size_t)1, err));
    FS_TRY(FS_NEW_ZEROED(&of->launching, of->count + (size_t)1, err));
    return FS_NEW_ZEROED(&of->threads, of->lane_count + (size_t)1, err);
}

static uint32_t parent_of(const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    return chunk->parent[at] < index ? chunk->parent[at] : FS_NONE;
}

static void mark_launching(spending *of, uint32_t event)
{
    while (event != FS_NONE && event < of->count && !of->launching[event]) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(of->store, event, &at);
        of->launching[event] = true;
        event = parent_of(chunk, at, event);
    }
}

static fs_status look_at_events(spending *of, fs_error *err)
{
    FS_EACH_EVENT(of->store, i, chunk, at) {
        FS_POLL(i, err);
        if (is_on_device(chunk, at)) mark_launching(of, chunk->launcher[at]);
        if (!fs_event_is_timed(chunk, at)) continue;
        uint32_t parent = parent_of(chunk, at, i);
        of->ends[i] = fs_event_later_end(chunk, at);
        if (parent != FS_NONE && FS_EVENT_AT(of->store, parent, start) != FS_MISSING && of->ends[i] > of->ends[parent])
            of->ends[i] = of->ends[parent];
    }
    return FS_OK;
}

/* Add what other causes leave of a late time to the times of the thread that ended it, if that is long. */
static fs_status add_left(spending *of, const fs_interval *late, fs_error *err)
{
    uint32_t name = op_name(of->store, late->tag), lane = FS_EVENT_AT(of->store, late->tag, lane);
    int64_t begin = late->begin, length = fs_sub_saturated(late->end, begin);
    bool wanted = of->request->ops[name != FS_NONE ? name : fs_store_name_count(of->store)];
    if (!wanted || lane == FS_NONE || length <= of->request->least) return FS_OK;
    if (length - overlap(&of->other, begin, late->end) <= of->request->least) return FS_OK;
    fs_intervals *thread = &of->threads[lane].list;
    const fs_intervals *other = &of->other.list;
    uint32_t i = fs_intervals_first_after(other, begin);
    for (; i < other->count && other->items[i].begin < late->end; i++) {
        const fs_interval *taken = &other->items[i];
        if (taken->begin > begin) FS_TRY(fs_intervals_add(thread, begin, taken->begin, late->tag, err));
        begin = taken->end;
    }
    return begin < late->end ? fs_intervals_add(thread, begin, late->end, late->tag, err) : FS_OK;
}

static fs_status find_threads(spending *of, fs_error *err)
{
    fs_intervals late = {0};
    fs_status status = find_late(&late, of->store, of->request->first_step, err);
    for (uint32_t i = 0; status == FS_OK && i < late.count; i++) status = add_left(of, &late.items[i], err);
    for (uint32_t lane = 0; status == FS_OK && lane < of->lane_count; lane++) status = measure(&of->threads[lane], err);
    fs_intervals_clear(&late);
    return status;
}

static fs_status find_own(spending *of, fs_error *err)
{
    FS_EACH_EVENT(of->store, i, chunk, at) {
        FS_POLL(i, err);
        uint32_t lane = chunk->lane[at], parent = parent_of(chunk, at, i);
        if (lane == FS_NONE || of->threads[lane].list.count == 0 || !fs_event_is_timed(chunk, at) ||
            is_on_device(chunk, at))
            continue;
        int64_t time = overlap(&of->threads[lane], chunk->start[at], of->ends[i]);
        fs_add_to(&of->own[i], time);
        if (parent != FS_NONE && FS_EVENT_AT(of->store, parent, lane) == lane) fs_take_from(&of->own[parent], time);
    }
    return FS_OK;
}

static fs_status sum_own(const spending *of, fs_late_sums *sums, fs_error *err)
{
    FS_EACH_EVENT(of->store, i, chunk, at) {
        FS_POLL(i, err);
        bool launches = of->launching[i] || chunk->kind[at] == FS_EVENT_RUNTIME;
        if (is_shown(chunk->kind[at]) && chunk->name[at] != FS_NONE)
            add_sum(sums, chunk->name[at], launches, of->own[i]);
    }
    return FS_OK;
}

fs_status fs_late_spent(fs_late_sums *sums, const fs_store *store, const fs_late_request *request, fs_error *err)
{
    spending of = {.store = store, .request = request};
    FS_TRY(make_sums(sums, store, err));
    fs_status status;
    FS_TRY_GOTO(status, make_spending(&of, err), done);
    FS_TRY_GOTO(status, look_at_events(&of, err), done);
    FS_TRY_GOTO(status, find_host(&of.other, store, has_other_cause, request->other, of.ends, err), done);
    FS_TRY_GOTO(status, find_threads(&of, err), done);
    FS_TRY_GOTO(status, find_own(&of, err), done);
    FS_TRY_GOTO(status, sum_own(&of, sums, err), done);
    drop_empty(sums);
done:
    clear_spending(&of);
    return status;
}
