/* One pass over the events notes what may explain an idle device: waits, the times of the profiler, of loading code, of
 * compiling and of loading data. Blocks of events are looked at by any number of threads, and what they found is put
 * together in their order. Parents precede their children in the store, so the op around an event is known when the
 * event is reached, unless the parent lies in another block: such events wait until that block is done. Afterwards
 * `occupied` is sorted and without overlaps: where two purposes meet, the first one of the enum has the time. `waits`
 * may overlap. */
#include "accounting/host.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "base/search.h"
#include "store/event.h"

/* Times of which only the union matters, by what the host did, those that come first taking precedence. */
enum { FOR_PROFILER, FOR_CODE, FOR_COMPILER, FOR_DATA, FOR_COLLECTIVE, PURPOSES };
static const fs_idle_cause cause_of[PURPOSES] = {FS_IDLE_RECORDING, FS_IDLE_LOADING, FS_IDLE_COMPILE, FS_IDLE_DATA,
                                                 FS_IDLE_COLLECTIVE};

enum {
    SMALLEST_BLOCK = FS_BLOCK(1 << 15, 1 << 4),
    MOST_BLOCKS = FS_BLOCK(64, 8),
    COPIES_GRAIN = FS_BLOCK(1 << 14, 1 << 3)
};

/* An op that is known when the block of the parent is done. It is no event: a store has fewer. */
#define LATER (FS_NONE - 1)

/* A block of events, and what is found in it. */
typedef struct {
    uint32_t begin, end;
    fs_host_step *steps;
    fs_intervals times[PURPOSES], waits;
    uint32_t *later; /* events whose op is LATER, ascending */
    uint32_t later_count, later_capacity;
    bool orders_streams; /* some call makes a stream wait for an event */
    fs_status status;
    fs_error err;
} block;

typedef struct {
    fs_host *host;
    fs_names *names;
    const fs_table *table;
    const fs_api_calls *calls;
    fs_host_step *steps; /* of each block */
    block *blocks;
    uint32_t count;
    fs_intervals times[PURPOSES];
} survey;

/* Mark the calls that copy within a device. */
static void mark_copies_inside(void *context, int64_t begin, int64_t end)
{
    const survey *all = context;
    const fs_store *store = all->host->store;
    uint32_t at;
    for (int64_t i = begin; i < end; i++) {
        const fs_chunk *chunk = fs_event_chunk(store, all->table->works[i].event, &at);
        if (chunk->kind[at] != FS_EVENT_MEMCPY || chunk->name[at] == FS_NONE) continue;
        if (strstr(fs_store_name_text(store, chunk->name[at]), "DtoD") == NULL) continue;
        uint32_t call = fs_api_calls_find(all->calls, chunk->correlation[at]);
        if (call != FS_NONE) (void)__atomic_fetch_or(&all->host->marks[call], FS_MARK_COPY_INSIDE, __ATOMIC_RELAXED);
    }
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
static fs_status look_at(const survey *all, block *of, const fs_chunk *chunk, uint32_t at, uint32_t index,
                         fs_error *err)
{
    int64_t start = chunk->start[at], end = fs_event_end(chunk, at);
    uint8_t kind = chunk->kind[at];
    fs_host_kind does = fs_names_host_kind(all->names, chunk->name[at]);
    if (kind == FS_EVENT_SYNC) return fs_intervals_add(&of->waits, start, end, index, err);
    if (kind == FS_EVENT_OVERHEAD)
        return fs_intervals_cover(&of->times[does == FS_HOST_LOADS_CODE ? FOR_CODE : FOR_PROFILER], start, end, err);
    if (kind == FS_EVENT_RUNTIME) {
        of->orders_streams = of->orders_streams || does == FS_HOST_ORDERS_STREAMS;
        if (does == FS_HOST_WAITS && (all->host->marks[index] & FS_MARK_COPY_INSIDE) == 0)
            return fs_intervals_add(&of->waits, start, end, index, err);
        return does == FS_HOST_LOADS_CODE ? fs_intervals_cover(&of->times[FOR_CODE], start, end, err) : FS_OK;
    }
    if (kind != FS_EVENT_OP && kind != FS_EVENT_RANGE) return FS_OK;
    if (does == FS_HOST_COMPILES) return fs_intervals_cover(&of->times[FOR_COMPILER], start, end, err);
    if (does == FS_HOST_LOADS_DATA) return fs_intervals_cover(&of->times[FOR_DATA], start, end, err);
    /* Not an op: it returns before a device has begun what it launches, and is work itself without a device. */
    if (does == FS_HOST_COMMUNICATES && kind == FS_EVENT_RANGE)
        return fs_intervals_cover(&of->times[FOR_COLLECTIVE], start, end, err);
    return FS_OK;
}

/* Find the op around an event, itself included. */
static fs_status find_op(fs_host *host, block *of, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    uint32_t parent = chunk->parent[at], op = FS_NONE;
    if (chunk->kind[at] == FS_EVENT_OP) op = index;
    else if (parent < index) op = parent < of->begin ? LATER : host->ops[parent];
    host->ops[index] = op;
    if (op != LATER) return FS_OK;
    return FS_LIST_ADD(&of->later, &of->later_count, &of->later_capacity, 64, err, index);
}

static fs_status look_at_block(const survey *all, block *of, fs_error *err)
{
    fs_host *host = all->host;
    uint32_t at, step = FS_NONE;
    const fs_chunk *chunk = fs_event_chunk(host->store, of->begin, &at);
    for (uint32_t index = of->begin; index < of->end; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(host->store, index, chunk, &at);
        FS_TRY(find_op(host, of, chunk, at, index, err));
        if (fs_event_lies_on_device(chunk->kind[at], chunk->device[at]) || chunk->start[at] == FS_MISSING) continue;
        step = host_step_at(host->steps, step, chunk->start[at]);
        if (step != FS_NONE) count_recorded(&of->steps[step], chunk, at);
        FS_TRY(look_at(all, of, chunk, at, index, err));
    }
    return FS_OK;
}

static void look_at_blocks(void *context, int64_t begin, int64_t end)
{
    const survey *all = context;
    for (int64_t i = begin; i < end; i++)
        all->blocks[i].status = look_at_block(all, &all->blocks[i], &all->blocks[i].err);
}

/* Mark the first launches after calls that make a stream wait for an event, on each thread. */
static fs_status mark_after_events(const survey *all, fs_error *err)
{
    fs_host *host = all->host;
    uint32_t lanes = fs_store_lane_count(host->store);
    fs_status status = FS_OK;
    bool *after_event; /* by lane: since the last launch */
    FS_TRY(FS_NEW_ZEROED(&after_event, lanes + (size_t)1, err));
    FS_EACH_EVENT(host->store, index, chunk, at) {
        if (index % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        uint32_t lane = chunk->lane[at];
        if (chunk->kind[at] != FS_EVENT_RUNTIME || chunk->start[at] == FS_MISSING || lane >= lanes) continue;
        fs_host_kind does = fs_names_host_kind(all->names, chunk->name[at]);
        if (does == FS_HOST_ORDERS_STREAMS) after_event[lane] = true;
        if (does != FS_HOST_LAUNCHES && does != FS_HOST_WAITS) continue;
        if (after_event[lane]) host->marks[index] |= FS_MARK_AFTER_EVENT;
        after_event[lane] = false;
    }
done:
    fs_free(after_event);
    return status;
}

static fs_status append(fs_intervals *to, const fs_intervals *from, fs_error *err)
{
    for (uint32_t i = 0; i < from->count; i++)
        FS_TRY(fs_intervals_add(to, from->items[i].begin, from->items[i].end, from->items[i].tag, err));
    return FS_OK;
}

static void add_step(fs_host_step *to, const fs_host_step *from)
{
    for (int kind = 0; kind < FS_EVENT_KIND_COUNT; kind++) to->events[kind] += from->events[kind];
    to->described += from->described;
}

/* Put together what the blocks found. */
static fs_status join(survey *all, fs_host_step *steps, fs_error *err)
{
    fs_host *host = all->host;
    bool orders_streams = false;
    for (uint32_t i = 0; i < all->count; i++) {
        const block *of = &all->blocks[i];
        FS_TRY(fs_status_of(of->status, &of->err, err));
        for (uint32_t j = 0; j < of->later_count; j++)
            host->ops[of->later[j]] = host->ops[FS_EVENT_AT(host->store, of->later[j], parent)];
        for (uint32_t step = 0; step < host->steps->count; step++) add_step(&steps[step], &of->steps[step]);
        for (int purpose = 0; purpose < PURPOSES; purpose++)
            FS_TRY(append(&all->times[purpose], &of->times[purpose], err));
        FS_TRY(append(&host->waits, &of->waits, err));
        orders_streams = orders_streams || of->orders_streams;
    }
    host->compiles = all->times[FOR_COMPILER].count > 0;
    for (uint32_t i = 0; i < host->waits.count; i++) {
        uint32_t op = host->ops[host->waits.items[i].tag];
        if (op != FS_NONE) host->marks[op] |= FS_MARK_AROUND_WAIT;
    }
    return orders_streams ? mark_after_events(all, err) : FS_OK;
}

/* Divide the events. Of many steps there are few blocks, as each has a description of every step. */
static fs_status make_blocks(survey *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->host->store), each = all->host->steps->count, size = SMALLEST_BLOCK;
    if (size < each) size = each;
    if (count / MOST_BLOCKS >= size) size = count / MOST_BLOCKS + 1;
    all->count = count > 0 ? (count - 1) / size + 1 : 0;
    FS_TRY(FS_NEW_ZEROED(&all->blocks, all->count, err));
    FS_TRY(FS_NEW_ZEROED(&all->steps, (size_t)all->count * each + 1, err));
    for (uint32_t i = 0; i < all->count; i++) {
        all->blocks[i].begin = i * size;
        all->blocks[i].end = i + 1 < all->count ? (i + 1) * size : count;
        all->blocks[i].steps = all->steps + (size_t)i * each;
    }
    return FS_OK;
}

static void clear(survey *all)
{
    for (uint32_t i = 0; all->blocks != NULL && i < all->count; i++) {
        for (int purpose = 0; purpose < PURPOSES; purpose++) fs_intervals_clear(&all->blocks[i].times[purpose]);
        fs_intervals_clear(&all->blocks[i].waits);
        fs_free(all->blocks[i].later);
    }
    for (int purpose = 0; purpose < PURPOSES; purpose++) fs_intervals_clear(&all->times[purpose]);
    fs_free(all->blocks);
    fs_free(all->steps);
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
    FS_TRY(FS_NEW(&host->longest, waits->count + (size_t)1, err));
    uint32_t longest = 0;
    for (uint32_t i = 0; i < waits->count; i++) {
        if (waits->items[i].end >= waits->items[longest].end) longest = i;
        host->longest[i] = longest;
    }
    return FS_OK;
}

static fs_status survey_host(survey *all, fs_host_step *hosts, fs_error *err)
{
    FS_TRY(make_blocks(all, err));
    fs_parallel_for(all->table->work_count, COPIES_GRAIN, mark_copies_inside, all);
    fs_parallel_for(all->count, 1, look_at_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(join(all, hosts, err));
    FS_TRY(order(all, err));
    FS_TRY(fs_intervals_sort(&all->host->waits, err));
    return find_longest(all->host, err);
}

fs_status fs_host_prepare(fs_host *host, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          const fs_api_calls *calls, fs_names *names, fs_host_step *hosts, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    survey all = {.host = host, .names = names, .table = table, .calls = calls};
    *host = (fs_host){.store = store, .steps = steps};
    size_t firsts = fs_store_name_count(store) + (size_t)1;
    FS_TRY(FS_NEW(&host->ops, count + (size_t)1, err));
    FS_TRY(FS_NEW_ZEROED(&host->marks, count + (size_t)1, err));
    FS_TRY(FS_NEW(&host->first_works, firsts, err));
    memset(host->first_works, 0xff, firsts * sizeof *host->first_works); /* FS_NONE */
    fs_status status = survey_host(&all, hosts, err);
    clear(&all);
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

int64_t fs_host_note_kernel(fs_host *host, uint32_t call, const fs_chunk *chunk, uint32_t at, uint32_t event)
{
    if (chunk->name[at] != FS_NONE) note_first(host, chunk->name[at], event, chunk->start[at]);
    if (call == FS_NONE) return FS_MISSING;
    uint8_t before = __atomic_fetch_or(&host->marks[call], FS_MARK_LAUNCHED, __ATOMIC_RELAXED);
    return (before & FS_MARK_LAUNCHED) != 0 ? FS_MISSING : FS_EVENT_AT(host->store, call, duration);
}

uint32_t fs_host_op_name(const fs_host *host, uint32_t index)
{
    uint32_t op = host->ops[index];
    return FS_EVENT_AT(host->store, op != FS_NONE ? op : index, name);
}
