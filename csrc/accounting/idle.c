#include "accounting/idle.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/statistics.h"
#include "store/event.h"

/* What the host did ------------------------------------------------------------------------------------------------ */

enum { AROUND_WAIT = 1, LAUNCHED = 2, COPIES_INSIDE = 4 };

/* Mark the calls that copy within a device, which never wait for it. */
static void mark_copies_inside(fs_idle *idle)
{
    uint32_t at;
    for (uint32_t i = 0; i < idle->table->work_count; i++) {
        const fs_chunk *chunk = fs_event_chunk(idle->store, idle->table->works[i].event, &at);
        if (chunk->kind[at] != FS_EVENT_MEMCPY || chunk->name[at] == FS_NONE) continue;
        if (strstr(fs_store_name_text(idle->store, chunk->name[at]), "DtoD") == NULL) continue;
        uint32_t call = fs_api_calls_find(idle->calls, chunk->correlation[at]);
        if (call != FS_NONE) idle->marks[call] |= COPIES_INSIDE;
    }
}

static fs_status add_wait(fs_idle *idle, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    if (idle->ops[index] != FS_NONE) idle->marks[idle->ops[index]] |= AROUND_WAIT;
    return fs_intervals_add(&idle->waits, chunk->start[at], fs_event_end(chunk, at), index, err);
}

/* Return the step in which the host was at a time, or FS_NONE. `last` is the result of the call before, as the events
 * of a thread are in order. */
static uint32_t host_step_at(const fs_steps *steps, uint32_t last, int64_t time)
{
    if (last != FS_NONE && time >= steps->steps[last].host_begin && time < steps->steps[last].host_end) return last;
    uint32_t low = 0, high = steps->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (steps->steps[middle].host_begin <= time) low = middle + 1;
        else high = middle;
    }
    return low > 0 && time < steps->steps[low - 1].host_end ? low - 1 : FS_NONE;
}

static fs_status look_at_hosts(fs_idle *idle, fs_names *names, fs_host_step *hosts, fs_error *err)
{
    uint32_t count = fs_store_count(idle->store), at, step = FS_NONE;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(idle->store, index, chunk, &at);
        uint8_t kind = chunk->kind[at];
        uint32_t parent = chunk->parent[at];
        idle->ops[index] = kind == FS_EVENT_OP ? index : parent < index ? idle->ops[parent] : FS_NONE;
        if (fs_event_lies_on_device(kind, chunk->device[at]) || chunk->start[at] == FS_MISSING) continue;
        step = host_step_at(idle->steps, step, chunk->start[at]);
        if (step != FS_NONE) hosts[step].events[kind]++;
        bool waits = kind == FS_EVENT_RUNTIME && fs_names_wait(names, chunk->name[at]);
        if (kind == FS_EVENT_SYNC || (waits && (idle->marks[index] & COPIES_INSIDE) == 0))
            FS_TRY(add_wait(idle, chunk, at, index, err));
        else if ((kind == FS_EVENT_OP || kind == FS_EVENT_RANGE) && fs_names_load_data(names, chunk->name[at]))
            FS_TRY(fs_intervals_cover(&idle->data, chunk->start[at], fs_event_end(chunk, at), err));
    }
    return FS_OK;
}

/* Add the time in which some thread waited to the steps. */
static void add_waits(const fs_idle *idle, fs_host_step *hosts)
{
    const fs_steps *steps = idle->steps;
    int64_t reached = INT64_MIN;
    uint32_t first = 0;
    for (uint32_t i = 0; i < idle->waits.count; i++) {
        int64_t begin = idle->waits.items[i].begin, end = idle->waits.items[i].end;
        begin = begin > reached ? begin : reached;
        if (end <= begin) continue;
        reached = end;
        while (first < steps->count && steps->steps[first].host_end <= begin) first++;
        for (uint32_t step = first; step < steps->count && steps->steps[step].host_begin < end; step++) {
            const fs_step *in = &steps->steps[step];
            int64_t from = begin > in->host_begin ? begin : in->host_begin,
                    to = end < in->host_end ? end : in->host_end;
            if (to > from) fs_add_to(&hosts[step].waits, fs_sub_saturated(to, from));
        }
    }
}

fs_status fs_idle_prepare(fs_idle *idle, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          const fs_api_calls *calls, fs_names *names, fs_host_step *hosts, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    *idle = (fs_idle){.store = store, .table = table, .steps = steps, .calls = calls};
    idle->ops = fs_malloc((count + (size_t)1) * sizeof *idle->ops);
    idle->marks = fs_calloc(count + (size_t)1, sizeof *idle->marks);
    if (idle->ops == NULL || idle->marks == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u events", count);
    mark_copies_inside(idle);
    FS_TRY(look_at_hosts(idle, names, hosts, err));
    FS_TRY(fs_intervals_unite(&idle->data, err));
    FS_TRY(fs_intervals_sort(&idle->waits, err));
    add_waits(idle, hosts);
    return FS_OK;
}

void fs_idle_clear(fs_idle *idle)
{
    fs_free(idle->ops);
    fs_free(idle->marks);
    fs_free(idle->launches);
    fs_free(idle->spans);
    fs_intervals_clear(&idle->waits);
    fs_intervals_clear(&idle->data);
}

fs_status fs_idle_note_launch(fs_idle *idle, uint32_t correlation, fs_error *err)
{
    uint32_t call = fs_api_calls_find(idle->calls, correlation);
    if (call == FS_NONE || (idle->marks[call] & LAUNCHED) != 0) return FS_OK;
    idle->marks[call] |= LAUNCHED;
    int64_t duration = FS_EVENT_AT(idle->store, call, duration);
    if (duration == FS_MISSING) return FS_OK;
    if (idle->launch_count == idle->launch_capacity) {
        uint32_t capacity = idle->launch_capacity > 0 ? idle->launch_capacity * 2 : 64;
        int64_t *launches = fs_realloc(idle->launches, capacity * sizeof *launches);
        if (launches == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the times of %u launches", capacity);
        idle->launches = launches;
        idle->launch_capacity = capacity;
    }
    idle->launches[idle->launch_count++] = duration;
    return FS_OK;
}

double fs_idle_launch_median(fs_idle *idle)
{
    return fs_statistics_of(idle->launches, idle->launch_count).median;
}

/* Causes ----------------------------------------------------------------------------------------------------------- */

/* Return the call that launched a work, or the host event that did, or FS_NONE. */
static uint32_t launch_of(const fs_idle *idle, const fs_table_work *work)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(idle->store, work->event, &at);
    uint32_t call = fs_api_calls_find(idle->calls, chunk->correlation[at]);
    return call != FS_NONE ? call : chunk->launcher[at] < fs_store_count(idle->store) ? chunk->launcher[at] : FS_NONE;
}

/* Return the name of the op around an event, or of the event itself. */
static uint32_t op_name(const fs_idle *idle, uint32_t index)
{
    uint32_t op = idle->ops[index];
    return FS_EVENT_AT(idle->store, op != FS_NONE ? op : index, name);
}

/* One idle time of a device: from `dry`, when its last work ended, to the begin of the next one. */
typedef struct {
    int64_t dry;
    const fs_table_work *next; /* NULL: none */
    uint32_t wait;             /* the host's wait in progress at `dry`, or the op that launches and waits; or FS_NONE */
    bool late;                 /* the next work was launched after `dry`, or the host worked on without a launch */
} idle_time;

/* Of an idle time after a wait, longer than the host takes to launch again; the rest is due to its other work. */
enum { LONGEST_AFTER_WAIT_NS = 500000 };

/* Parts of an idle time of which `at` has been listed so far. */
typedef struct {
    fs_idle_span span; /* of the next part, without its cause and its end */
    int64_t after;     /* ns that are still due to the wait */
} span_list;

static fs_status list_until(fs_idle *idle, span_list *list, fs_idle_cause cause, int64_t end, fs_error *err)
{
    if (end <= list->span.begin) return FS_OK;
    if (idle->span_count == idle->span_capacity) {
        uint32_t capacity = idle->span_capacity > 0 ? idle->span_capacity * 2 : 64;
        fs_idle_span *spans = fs_realloc(idle->spans, capacity * sizeof *spans);
        if (spans == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u idle times", capacity);
        idle->spans = spans;
        idle->span_capacity = capacity;
    }
    fs_idle_span *span = &idle->spans[idle->span_count++];
    *span = list->span;
    span->end = end;
    span->cause = (uint8_t)cause;
    list->span.begin = end;
    return FS_OK;
}

/* List a time outside of the waits for data. */
static fs_status list_rest(fs_idle *idle, span_list *list, int64_t end, fs_error *err)
{
    int64_t time = fs_sub_saturated(end, list->span.begin);
    int64_t waited = time < list->after ? time : list->after;
    list->after -= waited;
    FS_TRY(list_until(idle, list, FS_IDLE_SYNC, list->span.begin + waited, err));
    return list_until(idle, list, FS_IDLE_HOST, end, err);
}

/* List the parts of [begin, end) of an idle time. `data_at` is the first wait for data that ends after `begin`. */
static fs_status list_parts(fs_idle *idle, int device, const idle_time *whole, int64_t begin, int64_t end,
                            uint32_t data_at, fs_error *err)
{
    span_list list = {.span = {.begin = begin, .device = (int8_t)device, .event = FS_NONE, .wait = whole->wait}};
    if (whole->next != NULL) list.span.event = whole->next->event;
    if (!whole->late) return list_until(idle, &list, FS_IDLE_OTHER, end, err);
    if (whole->wait != FS_NONE) list.after = LONGEST_AFTER_WAIT_NS;
    for (; data_at < idle->data.count && idle->data.items[data_at].begin < end; data_at++) {
        const fs_interval *data = &idle->data.items[data_at];
        if (data->begin > list.span.begin) FS_TRY(list_rest(idle, &list, data->begin, err));
        FS_TRY(list_until(idle, &list, FS_IDLE_DATA, data->end < end ? data->end : end, err));
    }
    return list_rest(idle, &list, end, err);
}

void fs_idle_take_spans(fs_idle *idle, fs_accounting *accounting)
{
    accounting->spans = idle->spans;
    accounting->span_count = idle->span_count;
    idle->spans = NULL;
    idle->span_count = idle->span_capacity = 0;
}

/* Add the part of an idle time within a step. */
static fs_status add_part(fs_idle *idle, fs_sums *sums, int device, uint32_t step, const idle_time *whole,
                          int64_t begin, int64_t end, uint32_t *data_at, fs_error *err)
{
    uint32_t row = whole->next != NULL ? whole->next->row : FS_NONE;
    uint32_t event = whole->next != NULL ? whole->next->event : FS_NONE;
    int64_t time = fs_sub_saturated(end, begin);
    int64_t data = whole->late ? fs_intervals_overlap(&idle->data, data_at, begin, end) : 0;
    if (idle->lists) FS_TRY(list_parts(idle, device, whole, begin, end, *data_at, err));
    if (!whole->late) return fs_sums_gap(sums, device, step, FS_IDLE_OTHER, row, 0, FS_NONE, event, time, err);
    FS_TRY(fs_sums_gap(sums, device, step, FS_IDLE_DATA, FS_NONE, 0, FS_NONE, event, data, err));
    int64_t rest = time - data;
    if (whole->wait == FS_NONE) return fs_sums_gap(sums, device, step, FS_IDLE_HOST, row, 0, FS_NONE, event, rest, err);
    uint32_t group = op_name(idle, whole->wait);
    int64_t waited = rest < LONGEST_AFTER_WAIT_NS ? rest : LONGEST_AFTER_WAIT_NS;
    FS_TRY(fs_sums_gap(sums, device, step, FS_IDLE_SYNC, FS_NONE, group, whole->wait, event, waited, err));
    return fs_sums_gap(sums, device, step, FS_IDLE_HOST, row, 0, FS_NONE, event, rest - waited, err);
}

/* The end of the host's events of a step, for idle time that no launch ends. */
static bool host_works(const fs_idle *idle, uint32_t step, int64_t time)
{
    return idle->steps->steps[step].host_end > time;
}

/* Find out whether the next work was launched after the device had become idle, by an op that waits for it too. */
static void judge_launch(const fs_idle *idle, idle_time *whole)
{
    uint32_t call = launch_of(idle, whole->next), at;
    if (call == FS_NONE) return;
    const fs_chunk *chunk = fs_event_chunk(idle->store, call, &at);
    whole->late = chunk->start[at] != FS_MISSING && fs_event_end(chunk, at) > whole->dry;
    uint32_t op = idle->ops[call];
    if (whole->late && whole->wait == FS_NONE && op != FS_NONE && (idle->marks[op] & AROUND_WAIT) != 0)
        whole->wait = op;
}

/* Return the wait in progress at a time, or FS_NONE. `at` is a cursor for ascending times, `longest` the wait before it
 * that ends last. */
static uint32_t wait_at(const fs_idle *idle, uint32_t *at, uint32_t *longest, int64_t time)
{
    const fs_interval *items = idle->waits.items;
    for (; *at < idle->waits.count && items[*at].begin <= time; (*at)++) {
        if (*longest == FS_NONE || items[*at].end >= items[*longest].end) *longest = *at;
    }
    return *longest != FS_NONE && items[*longest].end >= time ? items[*longest].tag : FS_NONE;
}

/* After a wait the host has no launches in the device's queue: it is late for the next ones too. This many idle times
 * are attributed to it. */
enum { LATE_AFTER_WAIT = 8 };

/* Attribute an idle time to the wait before it, unless others have passed since. */
static void remember_wait(idle_time *whole, uint32_t *last, uint32_t *since)
{
    if (whole->wait != FS_NONE) {
        *last = whole->wait;
        *since = 0;
    } else if (whole->late && *since < LATE_AFTER_WAIT) {
        whole->wait = *last;
        ++*since;
    } else {
        *since = LATE_AFTER_WAIT;
    }
}

/* Ops on the CPU are the work itself: where none runs, the program waits for data or runs code of its own. */
static fs_status add_cpu(fs_idle *idle, fs_sums *sums, const idle_time *whole, uint32_t step, int64_t begin,
                         int64_t end, uint32_t *data_at, fs_error *err)
{
    idle_time own = *whole;
    own.late = true;
    own.wait = FS_NONE;
    return add_part(idle, sums, -1, step, &own, begin, end, data_at, err);
}

fs_status fs_idle_add(fs_idle *idle, fs_sums *sums, int device, const fs_intervals *works, const fs_intervals *busy,
                      fs_error *err)
{
    uint32_t step = 0, next = 0, wait_cursor = 0, longest = FS_NONE, data_at = 0;
    uint32_t last_wait = FS_NONE, since = LATE_AFTER_WAIT;
    for (uint32_t i = 0; i <= busy->count; i++) { /* the idle time before busy interval i, or after the last */
        FS_POLL(i, err);
        int64_t dry = i > 0 ? busy->items[i - 1].end : INT64_MIN;
        int64_t until = i < busy->count ? busy->items[i].begin : INT64_MAX;
        while (step < idle->steps->count && idle->steps->steps[step].end <= dry) step++;
        if (step == idle->steps->count) break;
        if (idle->steps->steps[step].begin >= until) continue;
        while (next < works->count && works->items[next].begin < until) next++;
        idle_time whole = {.dry = dry, .wait = FS_NONE};
        if (next < works->count) whole.next = &idle->table->works[works->items[next].tag];
        whole.wait = wait_at(idle, &wait_cursor, &longest, dry);
        if (whole.next != NULL && device >= 0) judge_launch(idle, &whole);
        remember_wait(&whole, &last_wait, &since);
        for (uint32_t in = step; in < idle->steps->count && idle->steps->steps[in].begin < until; in++) {
            const fs_step *part = &idle->steps->steps[in];
            int64_t begin = dry > part->begin ? dry : part->begin, end = until < part->end ? until : part->end;
            if (end <= begin) continue;
            if (whole.next == NULL) whole.late = host_works(idle, in, begin);
            if (device < 0) FS_TRY(add_cpu(idle, sums, &whole, in, begin, end, &data_at, err));
            else FS_TRY(add_part(idle, sums, device, in, &whole, begin, end, &data_at, err));
        }
    }
    return FS_OK;
}
