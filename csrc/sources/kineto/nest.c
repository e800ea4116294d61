/* One sweep over the hosts of a lane, sorted by start and longest first, with a stack whose ends decrease: the
 * innermost that encloses a host is found by popping, or by binary search where nothing may be popped. Python's frames
 * have a stack of their own, since torch's tree ignores them. Ends may differ by the trace's clock step (`slack`).
 * Overheads have no thread in the trace; they are placed by a first nesting, and then all is nested again.
 *
 * Several threads each sweep a part of the hosts with an empty stack. What was open before a part lies below its stack,
 * so it matters only to hosts that find no other host below them ("orphans"): these are looked at again, in order, with
 * the stack of all parts before. */
#include "sources/kineto/nest.h"

#include <stdatomic.h>
#include <string.h>

#include "base/intern.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/search.h"
#include "sources/kineto/owners.h"
#include "store/event.h"

/* Assigns profiling overhead, which has no thread, to the thread of the shortest event around it.
 *
 * Events are visited from the shortest on; each takes all overheads within it that no shorter one has taken. They are
 * found with a tree over the overheads in order of start that holds the smallest end below each node. The time is O(n
 * log n) for any number of threads, nested events or overheads. */

typedef struct {
    fs_join *join;
    fs_host *overheads; /* in order of start */
    int64_t *ends;      /* the tree: nodes 1 …, leaves from `leaves` on; INT64_MAX: taken */
    uint32_t leaves;
    fs_host *around; /* events in which an overhead begins; `start` holds the length, for sorting */
    uint32_t count, capacity;
} placing;

/* An overhead without an end sorts just before taken ones. */
static int64_t end_of(const fs_host *host)
{
    return host->end == INT64_MAX ? INT64_MAX - 1 : host->end;
}

static void set_leaf(placing *all, uint32_t overhead, int64_t end)
{
    uint32_t node = all->leaves + overhead;
    all->ends[node] = end;
    for (node /= 2; node > 0; node /= 2) {
        int64_t left = all->ends[2 * node], right = all->ends[2 * node + 1];
        all->ends[node] = left < right ? left : right;
    }
}

/* Return the first overhead from `from` on that ends no later than `end`; FS_NONE: none. */
static uint32_t first_within(const placing *all, uint32_t from, int64_t end)
{
    uint32_t node = all->leaves + from;
    while (all->ends[node] > end) { /* go up to the next subtree on the right, if any, and into it */
        while ((node & 1) != 0) node /= 2;
        if (node == 0) return FS_NONE;
        node++;
    }
    while (node < all->leaves) node = all->ends[2 * node] <= end ? 2 * node : 2 * node + 1;
    return node - all->leaves;
}

static fs_status list_overheads(placing *all, fs_error *err)
{
    fs_join *join = all->join;
    uint32_t count = 0;
    for (all->leaves = 1; all->leaves < join->overhead_count;) all->leaves *= 2;
    FS_TRY(FS_NEW(&all->overheads, join->overhead_count, err));
    FS_TRY(FS_NEW(&all->ends, 2 * (size_t)all->leaves, err));
    for (uint32_t host = 0; host < join->host_count; host++)
        if (join->hosts[host].record->kind == FS_EVENT_OVERHEAD) all->overheads[count++] = join->hosts[host];
    FS_TRY(fs_hosts_sort(all->overheads, count, err));
    for (size_t node = 0; node < 2 * (size_t)all->leaves; node++) all->ends[node] = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) all->ends[all->leaves + i] = end_of(&all->overheads[i]);
    for (uint32_t node = all->leaves; --node > 0;) {
        int64_t left = all->ends[2 * node], right = all->ends[2 * node + 1];
        all->ends[node] = left < right ? left : right;
    }
    return FS_OK;
}

static fs_status add_around(placing *all, const fs_host *event, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&all->around, all->count, &all->capacity, 64, err));
    int64_t length = event->end == INT64_MAX ? INT64_MAX : event->end - event->start;
    all->around[all->count++] = (fs_host){length, event->end, event->record};
    return FS_OK;
}

/* Return the first overhead that begins at `time` or later. `near`: a search hint at or before it. */
static uint32_t overhead_from(const placing *all, int64_t time, uint32_t near)
{
    uint32_t count = all->join->overhead_count, low = near, step = 1;
    while (low + step <= count && all->overheads[low + step - 1].start < time) {
        low += step;
        step *= 2;
    }
    uint32_t high = low + step <= count ? low + step - 1 : count;
    return FS_FIRST_NOT(i, low, high, all->overheads[i].start < time);
}

static fs_status list_around(placing *all, fs_error *err)
{
    const fs_join *join = all->join;
    uint32_t from = 0;
    for (uint32_t host = 0; host < join->host_count; host++) {
        const fs_host *event = &join->hosts[host];
        const fs_record *record = event->record;
        FS_POLL(host, err);
        if (host > 0 && record->lane != join->hosts[host - 1].record->lane) from = 0;
        if (record->kind == FS_EVENT_FRAME || record->kind == FS_EVENT_OVERHEAD || record->communication) continue;
        from = overhead_from(all, event->start, from);
        if (from == join->overhead_count || all->overheads[from].start > event->end) continue;
        FS_TRY(add_around(all, event, err));
    }
    return fs_hosts_sort(all->around, all->count, err);
}

static fs_status place(placing *all, fs_error *err)
{
    FS_TRY(list_overheads(all, err));
    FS_TRY(list_around(all, err));
    for (uint32_t i = 0; i < all->count && all->ends[1] != INT64_MAX; i++) {
        const fs_host *event = &all->around[i];
        FS_POLL(i, err);
        for (uint32_t found = overhead_from(all, event->record->start, 0);
             found < all->join->overhead_count && (found = first_within(all, found, end_of(event))) != FS_NONE;) {
            all->overheads[found].record->lane = event->record->lane;
            set_leaf(all, found, INT64_MAX);
        }
    }
    return FS_OK;
}

/* Assign each overhead to the thread of the shortest event around it. Call after nesting; then nest again.
 * FS_OUT_OF_MEMORY. */
static fs_status join_place_overheads(fs_join *join, fs_error *err)
{
    placing all = {.join = join};
    fs_status status = place(&all, err);
    fs_free(all.overheads);
    fs_free(all.ends);
    fs_free(all.around);
    return status;
}

/* Return whether a contradiction counts: not for overhead, which has no thread, nor for open events, which have no
 * end. */
static bool may_contradict(const fs_host *host)
{
    return host->record->kind != FS_EVENT_OVERHEAD && host->end != INT64_MAX;
}

/* Leave the hosts that do not enclose this one and return the innermost that does. *overlaps: one of those left
 * continues while this host runs. */
static uint32_t innermost(const fs_join *join, fs_nest *nest, uint32_t host, bool *overlaps)
{
    const fs_host *event = &join->hosts[host];
    *overlaps = false;
    while (nest->depth > 0) {
        const fs_host *above = &join->hosts[nest->open[nest->depth - 1]];
        if (fs_host_lies_in(event, above, join->slack)) return nest->open[nest->depth - 1];
        if (event->start + join->slack < above->end && may_contradict(above)) *overlaps = true;
        nest->depth--;
    }
    return FS_NONE;
}

/* Return the innermost host that encloses this one. Any host that ends later than it encloses this one too. */
static uint32_t around(const fs_join *join, const fs_nest *nest, uint32_t host)
{
    uint32_t low =
        FS_FIRST_NOT(i, 0, nest->depth, fs_host_lies_in(&join->hosts[host], &join->hosts[nest->open[i]], join->slack));
    return low > 0 ? nest->open[low - 1] : FS_NONE;
}

/* The parts of the hosts ---------------------------------------------------------------------------------------------
 */

/* A host that is enclosed by none of its part. */
typedef struct {
    uint32_t host;
    bool overlaps; /* it is counted as overlapping one of its part */
} orphan;

typedef struct {
    uint32_t first, end;
    fs_nest events, frames; /* those of its last lane that are open at its end */
    orphan *orphans;        /* hosts that those before the part may enclose, or end */
    uint32_t orphan_count, orphan_capacity;
    bool inherits; /* hosts of its first lane are before it */
    bool new_lane; /* a lane begins in it, at its first host or later */
    int64_t overlapping;
    fs_status status;
    fs_error error;
} nest_part;

static fs_status nest_hosts(const fs_join *join, nest_part *part, fs_error *err)
{
    fs_nest *events = &part->events, *frames = &part->frames;
    uint32_t lane = join->hosts[part->first].record->lane;
    part->inherits = part->first > join->firsts[lane];
    part->new_lane = !part->inherits;
    for (uint32_t host = part->first; host < part->end; host++) {
        const fs_record *record = join->hosts[host].record;
        bool frame = record->kind == FS_EVENT_FRAME;
        FS_POLL(host, err);
        if (record->lane != lane) {
            lane = record->lane;
            part->new_lane = true;
            events->depth = frames->depth = 0;
        }
        if (join->ones != NULL) join->ones[host] = host;
        if (join->children != NULL) join->children[host] = 0;
        join->parents[host] = FS_NONE;
        if (join->frames != NULL) join->frames[host] = FS_NONE;
        if (record->communication) continue;
        /* A frame finds its parent without closing any events, because frames do not affect torch's tree. */
        bool overlaps = false, unused;
        uint32_t parent = frame ? around(join, events, host) : innermost(join, events, host, &overlaps);
        overlaps = overlaps && may_contradict(&join->hosts[host]);
        part->overlapping += overlaps;
        join->parents[host] = parent;
        if (join->children != NULL && parent != FS_NONE && !frame) join->children[parent]++;
        if (join->frames != NULL) {
            uint32_t caller = innermost(join, frames, host, &unused);
            if (caller != FS_NONE && join->parents[caller] == parent) join->frames[host] = caller;
        }
        FS_TRY(fs_nest_push(join, frame ? frames : events, host, err));
        if (part->new_lane || events->depth > 1) continue;
        FS_TRY(FS_LIST_ADD(&part->orphans, &part->orphan_count, &part->orphan_capacity, 64, err,
                           (orphan){host, overlaps}));
    }
    return FS_OK;
}

typedef struct {
    fs_join *join;
    nest_part *parts;
    uint32_t count;
} nesting;

static void nest_parts(void *context, int64_t begin, int64_t end)
{
    const nesting *all = context;
    for (int64_t i = begin; i < end; i++)
        all->parts[i].status = nest_hosts(all->join, &all->parts[i], &all->parts[i].error);
}

/* Do to the events that were open before a part what its host does to them. */
static void adopt(fs_join *join, fs_nest *outer, const orphan *child)
{
    uint32_t host = child->host;
    bool overlaps = false;
    if (join->parents[host] == FS_NONE) {
        uint32_t parent = join->parents[host] = innermost(join, outer, host, &overlaps);
        if (overlaps && !child->overlaps && may_contradict(&join->hosts[host])) join->overlapping++;
        if (join->children != NULL && parent != FS_NONE) join->children[parent]++;
    }
    fs_nest_close_shorter(join, outer, host);
}

/* Nest the parts in what is open before each. */
static fs_status join_parts(const nesting *all, fs_nest *outer, fs_error *err)
{
    fs_join *join = all->join;
    for (nest_part *part = all->parts; part < all->parts + all->count; part++) {
        FS_TRY(fs_status_of(part->status, &part->error, err));
        join->overlapping += part->overlapping;
        if (!part->inherits) outer->depth = 0;
        for (uint32_t i = 0; i < part->orphan_count && outer->depth > 0; i++) adopt(join, outer, &part->orphans[i]);
        if (part->new_lane) outer->depth = 0;
        for (uint32_t i = 0; i < part->events.depth; i++)
            FS_TRY(FS_LIST_ADD(&outer->open, &outer->depth, &outer->capacity, 64, err, part->events.open[i]));
    }
    return FS_OK;
}

static fs_status nest_all(fs_join *join, fs_error *err)
{
    /* Frames end no events, so they would need a search through what is open before a part. */
    uint32_t size = join->frames != NULL ? join->host_count : FS_HOST_PART;
    nesting all = {.join = join, .count = join->host_count == 0 ? 0 : (join->host_count - 1) / size + 1};
    fs_nest outer = {NULL, 0, 0};
    for (uint32_t lane = 0; lane < fs_store_lane_count(join->store); lane++)
        FS_TRY(fs_hosts_sort(join->hosts + join->firsts[lane], join->firsts[lane + 1] - join->firsts[lane], err));
    FS_TRY(FS_NEW_ZEROED(&all.parts, all.count, err));
    for (uint32_t i = 0; i < all.count; i++) {
        uint32_t first = i * size;
        all.parts[i].first = first;
        all.parts[i].end = join->host_count - first > size ? first + size : join->host_count;
    }
    join->overlapping = 0;
    fs_parallel_for(all.count, 1, nest_parts, &all);
    fs_status status = fs_interrupt_poll(err);
    if (status == FS_OK) status = join_parts(&all, &outer, err);
    for (uint32_t i = 0; i < all.count; i++) {
        fs_free(all.parts[i].events.open);
        fs_free(all.parts[i].frames.open);
        fs_free(all.parts[i].orphans);
    }
    fs_free(all.parts);
    fs_free(outer.open);
    return status;
}

/* Merging ---------------------------------------------------------------------------------------------------------- */

/* The call without effect by which flopscope records the arguments of an op (flopscope/record/arguments.py). */
static uint32_t name_of_arguments(const fs_store *store)
{
    for (uint32_t id = 0; id < fs_store_name_count(store); id++)
        if (strcmp(fs_store_name_text(store, id), "flopscope::arguments") == 0) return id;
    return FS_NONE;
}

static fs_status map_ops(const fs_store *store, uint32_t *ops, fs_error *err)
{
    fs_intern stems;
    fs_intern_init(&stems);
    fs_status status = FS_OK;
    for (uint32_t id = 0, count = fs_store_name_count(store); status == FS_OK && id < count; id++) {
        const char *text = fs_store_name_text(store, id);
        size_t size = fs_name_without_overload(text);
        ops[id] = count + id;
        if (size > 0) status = fs_intern_bytes(&stems, text, size, &ops[id], err);
    }
    fs_intern_clear(&stems);
    return status;
}

/* If names have overloads, set *ops to numbers by name, equal for the overloads of an op; else to NULL. */
static fs_status ops_of_names(const fs_store *store, uint32_t **ops, fs_error *err)
{
    *ops = NULL;
    uint32_t id = 0, count = fs_store_name_count(store);
    for (; id < count; id++) {
        const char *text = fs_store_name_text(store, id);
        if (text[fs_name_without_overload(text)] == '.') break;
    }
    if (id == count) return FS_OK;
    FS_TRY(FS_NEW(ops, count, err));
    return map_ops(store, *ops, err);
}

static bool are_overloads(const uint32_t *ops, const fs_record *a, const fs_record *b)
{
    if (ops == NULL || a->name == FS_NONE || b->name == FS_NONE) return false;
    return a->kind == FS_EVENT_OP && b->kind == FS_EVENT_OP && ops[a->name] == ops[b->name];
}

typedef struct {
    fs_join *join;
    uint32_t arguments;         /* name of the calls that have the arguments of their parent */
    uint32_t *ops;              /* by name; NULL if names have no overloads */
    atomic_uint_fast32_t first; /* no host before it is merged */
} uniting;

static bool holds_arguments(const uniting *all, const fs_record *record, const fs_record *above)
{
    return record->name == all->arguments && record->kind == FS_EVENT_OP && above->kind == FS_EVENT_OP;
}

static bool repeats(const uniting *all, const fs_record *record, const fs_record *above, uint32_t children)
{
    if (children != 1 || record->kind == FS_EVENT_FRAME) return false;
    if (record->name != above->name && !are_overloads(all->ops, record, above)) return false;
    return fs_record_is_owner(record) <= fs_record_is_owner(above);
}

/* Find the first host that is merged: until then nothing has changed. */
static void find_first(void *context, int64_t begin, int64_t end)
{
    uniting *all = context;
    const fs_join *join = all->join;
    for (uint32_t host = (uint32_t)begin; host < end; host++) {
        uint32_t parent = join->parents[host];
        if (parent == FS_NONE || (join->children[parent] != 1 && all->arguments == FS_NONE)) continue;
        const fs_record *record = join->hosts[host].record, *above = join->hosts[parent].record;
        if (!holds_arguments(all, record, above) && !repeats(all, record, above, join->children[parent])) continue;
        uint_fast32_t first = atomic_load(&all->first);
        while (host < first && !atomic_compare_exchange_weak(&all->first, &first, host)) {
        }
        return;
    }
}

/* Merge an only child of the same name with its parent; its children become the parent's. An op is never merged with an
 * API call. A call that only has the arguments of its parent is merged whatever its siblings. Names are compared
 * without overloads. */
static void unite_hosts(const uniting *all)
{
    fs_join *join = all->join;
    for (uint32_t host = (uint32_t)all->first; host < join->host_count; host++) {
        uint32_t parent = join->parents[host];
        if (parent == FS_NONE) continue;
        parent = join->ones[parent];
        join->parents[host] = parent;
        const fs_record *record = join->hosts[host].record;
        fs_record *above = join->hosts[parent].record;
        if (holds_arguments(all, record, above)) {
            if (above->signature == FS_NONE) above->signature = record->signature;
            join->children[parent]--;
        } else if (repeats(all, record, above, join->children[parent])) {
            join->children[parent] = join->children[host];
        } else {
            continue;
        }
        join->ones[host] = parent;
        join->merged_count++;
    }
}

static fs_status unite(fs_join *join, fs_error *err)
{
    uniting all = {.join = join, .arguments = name_of_arguments(join->store), .first = join->host_count};
    fs_status status = ops_of_names(join->store, &all.ops, err);
    if (status == FS_OK) {
        fs_parallel_for(join->host_count, FS_HOST_PART, find_first, &all);
        status = fs_interrupt_poll(err);
    }
    if (status == FS_OK) unite_hosts(&all);
    fs_free(all.ops);
    return status;
}

fs_status fs_join_nest(fs_join *join, fs_error *err)
{
    FS_TRY(nest_all(join, err));
    if (join->overhead_count > 0) {
        FS_TRY(join_place_overheads(join, err));
        FS_TRY(fs_hosts_regroup(join, err));
        FS_TRY(nest_all(join, err));
    }
    return join->keeps_alike ? FS_OK : unite(join, err);
}
