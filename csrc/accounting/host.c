/* One pass over the events notes what may explain an idle device: waits, the times of the profiler, of loading code, of
 * compiling and of loading data, and marks on the calls that launch or wait. Afterwards `occupied` is sorted and
 * without overlaps: where two purposes meet, the first one of the enum has the time. `waits` may overlap. Parents
 * precede their children in the store, so the op around an event is known when the event is reached. */
#include "accounting/host.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/search.h"
#include "store/event.h"

/* Times of which only the union matters, by what the host did, those that come first taking precedence. */
enum { FOR_PROFILER, FOR_CODE, FOR_COMPILER, FOR_DATA, PURPOSES };
static const fs_idle_cause cause_of[PURPOSES] = {FS_IDLE_RECORDING, FS_IDLE_LOADING, FS_IDLE_COMPILE, FS_IDLE_DATA};

typedef struct {
    fs_host *host;
    fs_names *names;
    fs_host_step *steps;
    fs_intervals times[PURPOSES];
    uint8_t *after_event; /* by lane: whether a stream was told to wait for an event since the last launch */
} survey;

/* Mark the calls that copy within a device. */
static void mark_copies_inside(fs_host *host, const fs_table *table, const fs_api_calls *calls)
{
    uint32_t at;
    for (uint32_t i = 0; i < table->work_count; i++) {
        const fs_chunk *chunk = fs_event_chunk(host->store, table->works[i].event, &at);
        if (chunk->kind[at] != FS_EVENT_MEMCPY || chunk->name[at] == FS_NONE) continue;
        if (strstr(fs_store_name_text(host->store, chunk->name[at]), "DtoD") == NULL) continue;
        uint32_t call = fs_api_calls_find(calls, chunk->correlation[at]);
        if (call != FS_NONE) host->marks[call] |= FS_MARK_COPY_INSIDE;
    }
}

static fs_status add_wait(fs_host *host, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    if (host->ops[index] != FS_NONE) host->marks[host->ops[index]] |= FS_MARK_AROUND_WAIT;
    return fs_intervals_add(&host->waits, chunk->start[at], fs_event_end(chunk, at), index, err);
}

/* Return the step in which the host was at a time, or FS_NONE. `last` is the result of the call before, as the events
 * of a thread are in order. */
static uint32_t host_step_at(const fs_steps *steps, uint32_t last, int64_t time)
{
    if (last != FS_NONE && time >= steps->steps[last].host_begin && time < steps->steps[last].host_end) return last;
    uint32_t low = FS_FIRST_NOT(i, 0, steps->count, steps->steps[i].host_begin <= time);
    return low > 0 && time < steps->steps[low - 1].host_end ? low - 1 : FS_NONE;
}

static void count_recorded(fs_host_step *step, const fs_chunk *chunk, uint32_t at)
{
    if ((chunk->flags[at] & FS_EVENT_REPLAYED) != 0) return;
    step->events[chunk->kind[at]]++;
    step->described += chunk->kind[at] == FS_EVENT_OP && chunk->signature[at] != FS_NONE;
}

/* Look at an event of the host that has a start. */
static fs_status look_at(survey *all, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    fs_host *host = all->host;
    int64_t start = chunk->start[at], end = fs_event_end(chunk, at);
    uint8_t kind = chunk->kind[at];
    uint32_t lane = chunk->lane[at] < fs_store_lane_count(host->store) ? chunk->lane[at] : FS_NONE;
    fs_host_kind does = fs_names_host_kind(all->names, chunk->name[at]);
    if (kind == FS_EVENT_SYNC) return add_wait(host, chunk, at, index, err);
    if (kind == FS_EVENT_OVERHEAD)
        return fs_intervals_cover(&all->times[does == FS_HOST_LOADS_CODE ? FOR_CODE : FOR_PROFILER], start, end, err);
    if (kind == FS_EVENT_RUNTIME) {
        if (lane != FS_NONE && does == FS_HOST_ORDERS_STREAMS) all->after_event[lane] = true;
        if (lane != FS_NONE && (does == FS_HOST_LAUNCHES || does == FS_HOST_WAITS)) {
            if (all->after_event[lane]) host->marks[index] |= FS_MARK_AFTER_EVENT;
            all->after_event[lane] = false;
        }
        if (does == FS_HOST_WAITS && (host->marks[index] & FS_MARK_COPY_INSIDE) == 0)
            return add_wait(host, chunk, at, index, err);
        return does == FS_HOST_LOADS_CODE ? fs_intervals_cover(&all->times[FOR_CODE], start, end, err) : FS_OK;
    }
    if (kind != FS_EVENT_OP && kind != FS_EVENT_RANGE) return FS_OK;
    if (does == FS_HOST_COMPILES) return fs_intervals_cover(&all->times[FOR_COMPILER], start, end, err);
    if (does == FS_HOST_LOADS_DATA) return fs_intervals_cover(&all->times[FOR_DATA], start, end, err);
    return FS_OK;
}

static fs_status look_at_all(survey *all, fs_error *err)
{
    fs_host *host = all->host;
    uint32_t count = fs_store_count(host->store), at, step = FS_NONE;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(host->store, index, chunk, &at);
        uint8_t kind = chunk->kind[at];
        uint32_t parent = chunk->parent[at];
        host->ops[index] = kind == FS_EVENT_OP ? index : parent < index ? host->ops[parent] : FS_NONE;
        if (fs_event_lies_on_device(kind, chunk->device[at]) || chunk->start[at] == FS_MISSING) continue;
        step = host_step_at(host->steps, step, chunk->start[at]);
        if (step != FS_NONE) count_recorded(&all->steps[step], chunk, at);
        FS_TRY(look_at(all, chunk, at, index, err));
    }
    return FS_OK;
}

/* Make one list of the times by purpose. */
static fs_status order(survey *all, fs_error *err)
{
    fs_intervals covered = {0}, *occupied = &all->host->occupied;
    fs_status status = FS_OK;
    for (int purpose = 0; purpose < PURPOSES; purpose++) {
        fs_intervals *list = &all->times[purpose];
        if (list->count == 0) continue;
        FS_TRY_GOTO(status, fs_intervals_unite(list, err), done);
        if (covered.count > 0) FS_TRY_GOTO(status, fs_intervals_subtract(list, &covered, NULL, err), done);
        for (uint32_t i = 0; i < list->count; i++) {
            const fs_interval *one = &list->items[i];
            FS_TRY_GOTO(status, fs_intervals_add(occupied, one->begin, one->end, cause_of[purpose], err), done);
            FS_TRY_GOTO(status, fs_intervals_cover(&covered, one->begin, one->end, err), done);
        }
        FS_TRY_GOTO(status, fs_intervals_unite(&covered, err), done);
    }
    status = fs_intervals_sort(occupied, err);
done:
    fs_intervals_clear(&covered);
    return status;
}

/* Add the time in which some thread waited to the steps. */
static void add_waits(const fs_host *host, fs_host_step *hosts)
{
    const fs_steps *steps = host->steps;
    int64_t reached = INT64_MIN;
    uint32_t first = 0;
    for (uint32_t i = 0; i < host->waits.count; i++) {
        int64_t begin = host->waits.items[i].begin, end = host->waits.items[i].end;
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

/* For each wait, find which of those until then ends last. */
static fs_status find_longest(fs_host *host, fs_error *err)
{
    const fs_intervals *waits = &host->waits;
    host->longest = fs_malloc((waits->count + (size_t)1) * sizeof *host->longest);
    if (host->longest == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u waits", waits->count);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < waits->count; i++) {
        if (waits->items[i].end >= waits->items[longest].end) longest = i;
        host->longest[i] = longest;
    }
    return FS_OK;
}

static fs_status survey_host(survey *all, fs_error *err)
{
    size_t lanes = fs_store_lane_count(all->host->store) + (size_t)1;
    all->after_event = fs_calloc(lanes, sizeof *all->after_event);
    if (all->after_event == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %zu threads", lanes);
    FS_TRY(look_at_all(all, err));
    FS_TRY(order(all, err));
    FS_TRY(fs_intervals_sort(&all->host->waits, err));
    return find_longest(all->host, err);
}

fs_status fs_host_prepare(fs_host *host, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          const fs_api_calls *calls, fs_names *names, fs_host_step *hosts, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    survey all = {.host = host, .names = names, .steps = hosts};
    *host = (fs_host){.store = store, .steps = steps};
    host->ops = fs_malloc((count + (size_t)1) * sizeof *host->ops);
    host->marks = fs_calloc(count + (size_t)1, sizeof *host->marks);
    size_t firsts = (fs_store_name_count(store) + (size_t)1) * sizeof *host->first_works;
    host->first_works = fs_malloc(firsts);
    if (host->ops == NULL || host->marks == NULL || host->first_works == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u events", count);
    memset(host->first_works, 0xff, firsts); /* FS_NONE */
    mark_copies_inside(host, table, calls);
    fs_status status = survey_host(&all, err);
    for (int purpose = 0; purpose < PURPOSES; purpose++) fs_intervals_clear(&all.times[purpose]);
    fs_free(all.after_event);
    if (status == FS_OK) add_waits(host, hosts);
    return status;
}

void fs_host_clear(fs_host *host)
{
    fs_free(host->ops);
    fs_free(host->marks);
    fs_free(host->first_works);
    fs_free(host->longest);
    fs_intervals_clear(&host->waits);
    fs_intervals_clear(&host->occupied);
}

/* Note the kernel of a name that began first; of several, that with the lowest index. */
static void note_first(fs_host *host, uint32_t name, uint32_t event, int64_t start)
{
    uint32_t *first = &host->first_works[name], seen = __atomic_load_n(first, __ATOMIC_RELAXED);
    for (bool noted = false; !noted;) {
        int64_t other = seen != FS_NONE ? FS_EVENT_AT(host->store, seen, start) : INT64_MAX;
        if (start > other || (start == other && event >= seen)) return;
        noted = __atomic_compare_exchange_n(first, &seen, event, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

int64_t fs_host_note_kernel(fs_host *host, const fs_api_calls *calls, uint32_t event)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(host->store, event, &at);
    if (chunk->name[at] != FS_NONE) note_first(host, chunk->name[at], event, chunk->start[at]);
    uint32_t call = fs_api_calls_find(calls, chunk->correlation[at]);
    if (call == FS_NONE) return FS_MISSING;
    uint8_t before = __atomic_fetch_or(&host->marks[call], FS_MARK_LAUNCHED, __ATOMIC_RELAXED);
    return (before & FS_MARK_LAUNCHED) != 0 ? FS_MISSING : FS_EVENT_AT(host->store, call, duration);
}

uint32_t fs_host_op_name(const fs_host *host, uint32_t index)
{
    uint32_t op = host->ops[index];
    return FS_EVENT_AT(host->store, op != FS_NONE ? op : index, name);
}
