#include "accounting/idle.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"

/* What the host did: a bit for each answer. */
enum { AROUND_WAIT = 1, COPIES_INSIDE = 2 };

/* Whether an API call waits for a device: cudaStreamSynchronize, hipDeviceSynchronize, cudaMemcpy, … */
static bool waits(const fs_idle *idle, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    if (chunk->kind[at] == FS_EVENT_SYNC) return true;
    if (chunk->kind[at] != FS_EVENT_RUNTIME || chunk->name[at] == FS_NONE) return false;
    const char *name = fs_store_name_text(idle->store, chunk->name[at]);
    if (strstr(name, "Synchronize") != NULL) return true;
    return strstr(name, "Memcpy") != NULL && (idle->hosts[index] & COPIES_INSIDE) == 0;
}

/* Mark the calls that copy within a device, which never wait for it. */
static fs_status mark_copies_inside(fs_idle *idle, uint32_t count, fs_error *err)
{
    uint32_t at;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(idle->store, index, &at);
        if (chunk->kind[at] != FS_EVENT_MEMCPY || chunk->name[at] == FS_NONE) continue;
        if (strstr(fs_store_name_text(idle->store, chunk->name[at]), "DtoD") == NULL) continue;
        uint32_t call = fs_api_calls_find(&idle->calls, chunk->correlation[at]);
        if (call != FS_NONE) idle->hosts[call] |= COPIES_INSIDE;
    }
    return FS_OK;
}

/* Return the innermost op that encloses an event, itself included, or FS_NONE. */
static uint32_t op_around(const fs_store *store, uint32_t index)
{
    uint32_t at;
    while (index != FS_NONE) {
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        if (chunk->kind[at] == FS_EVENT_OP) return index;
        index = chunk->parent[at] < index ? chunk->parent[at] : FS_NONE;
    }
    return FS_NONE;
}

static fs_status add_wait(fs_idle *idle, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    uint32_t op = op_around(idle->store, index);
    if (op != FS_NONE) idle->hosts[op] |= AROUND_WAIT;
    return fs_intervals_add(&idle->waits, chunk->start[at], fs_event_end(chunk, at), index, err);
}

fs_status fs_idle_prepare(fs_idle *idle, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          fs_names *names, fs_error *err)
{
    uint32_t count = fs_store_count(store), at;
    *idle = (fs_idle){.store = store, .table = table, .steps = steps};
    idle->hosts = fs_calloc(count + (size_t)1, sizeof *idle->hosts);
    if (idle->hosts == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u events", count);
    FS_TRY(fs_api_calls_create(&idle->calls, store, err));
    FS_TRY(mark_copies_inside(idle, count, err));
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        if (chunk->start[at] == FS_MISSING) continue;
        bool loads = (chunk->kind[at] == FS_EVENT_OP || chunk->kind[at] == FS_EVENT_RANGE) && chunk->device[at] < 0 &&
                     fs_names_load_data(names, chunk->name[at]);
        int64_t begin = chunk->start[at], end = fs_event_end(chunk, at);
        if (loads) FS_TRY(fs_intervals_cover(&idle->data, begin, end, err));
        else if (waits(idle, chunk, at, index)) FS_TRY(add_wait(idle, chunk, at, index, err));
    }
    FS_TRY(fs_intervals_unite(&idle->data, err));
    return fs_intervals_sort(&idle->waits, err);
}

void fs_idle_clear(fs_idle *idle)
{
    fs_free(idle->hosts);
    fs_api_calls_clear(&idle->calls);
    fs_intervals_clear(&idle->waits);
    fs_intervals_clear(&idle->data);
}

static void count_host_events(const fs_idle *idle, fs_host_step *hosts)
{
    uint32_t count = fs_store_count(idle->store), at, step = 0;
    for (uint32_t index = 0; index < count && idle->steps->count > 0; index++) {
        const fs_chunk *chunk = fs_event_chunk(idle->store, index, &at);
        if (fs_event_lies_on_device(chunk->kind[at], chunk->device[at]) || chunk->start[at] == FS_MISSING) continue;
        const fs_step *in = &idle->steps->steps[step];
        while (step + 1 < idle->steps->count && chunk->start[at] >= in->host_end) in = &idle->steps->steps[++step];
        while (step > 0 && chunk->start[at] < in->host_begin) in = &idle->steps->steps[--step];
        if (chunk->start[at] >= in->host_begin && chunk->start[at] < in->host_end)
            hosts[step].events[chunk->kind[at]]++;
    }
}

void fs_idle_describe_hosts(const fs_idle *idle, fs_host_step *hosts)
{
    uint32_t step = 0;
    int64_t reached = INT64_MIN;
    count_host_events(idle, hosts);
    for (uint32_t i = 0; i < idle->waits.count; i++) {
        int64_t begin = idle->waits.items[i].begin, end = idle->waits.items[i].end;
        begin = begin > reached ? begin : reached;
        if (end <= begin) continue;
        reached = end;
        while (step < idle->steps->count && idle->steps->steps[step].host_end <= begin) step++;
        if (step == idle->steps->count) return;
        const fs_step *in = &idle->steps->steps[step];
        begin = begin > in->host_begin ? begin : in->host_begin;
        end = end < in->host_end ? end : in->host_end;
        if (end > begin) fs_add_to(&hosts[step].waits, end - begin);
    }
}

/* Return the call that launched a work, or the host event that did, or FS_NONE. */
static uint32_t launch_of(const fs_idle *idle, const fs_table_work *work)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(idle->store, work->event, &at);
    uint32_t call = fs_api_calls_find(&idle->calls, chunk->correlation[at]);
    return call != FS_NONE ? call : chunk->launcher[at] < fs_store_count(idle->store) ? chunk->launcher[at] : FS_NONE;
}

/* Return the name of the op around an event, or of the event itself. */
static uint32_t op_name(const fs_store *store, uint32_t index)
{
    uint32_t op = op_around(store, index);
    return FS_EVENT_AT(store, op != FS_NONE ? op : index, name);
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

/* Add the part of an idle time within a step. */
static fs_status add_part(fs_idle *idle, fs_sums *sums, int device, uint32_t step, const idle_time *whole,
                          int64_t begin, int64_t end, uint32_t *data_at, fs_error *err)
{
    uint32_t row = whole->next != NULL ? whole->next->row : FS_NONE;
    uint32_t event = whole->next != NULL ? whole->next->event : FS_NONE;
    if (!whole->late) return fs_sums_gap(sums, device, step, FS_IDLE_OTHER, row, 0, FS_NONE, event, end - begin, err);
    int64_t data = fs_intervals_overlap(&idle->data, data_at, begin, end);
    FS_TRY(fs_sums_gap(sums, device, step, FS_IDLE_DATA, FS_NONE, 0, FS_NONE, event, data, err));
    int64_t rest = end - begin - data;
    if (whole->wait == FS_NONE) return fs_sums_gap(sums, device, step, FS_IDLE_HOST, row, 0, FS_NONE, event, rest, err);
    uint32_t group = op_name(idle->store, whole->wait);
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
    uint32_t op = op_around(idle->store, call);
    if (whole->late && whole->wait == FS_NONE && op != FS_NONE && (idle->hosts[op] & AROUND_WAIT) != 0)
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
