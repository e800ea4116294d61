/* One sweep over the hosts of a lane, sorted by start and longest first, with a stack whose ends decrease: the
 * innermost that encloses a host is found by popping, or by binary search where nothing may be popped. Python's frames
 * have a stack of their own, since torch's tree ignores them. Ends may differ by the trace's clock step (`slack`).
 * Overheads have no thread in the trace; they are placed by a first nesting, and then all is nested again. */
#include "sources/kineto/nest.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/intern.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/search.h"
#include "sources/kineto/overheads.h"
#include "sources/kineto/owners.h"
#include "store/overload.h"

/* Open hosts during the sweep, outermost first. A host that ends no later than a later one is omitted: anything nested
 * in it is also nested in the later one. So ends decrease. */
typedef struct {
    uint32_t *open;
    uint32_t depth, capacity;
} fs_nest;

static fs_status push(const fs_join *join, fs_nest *nest, uint32_t host, fs_error *err)
{
    while (nest->depth > 0 && join->hosts[nest->open[nest->depth - 1]].end <= join->hosts[host].end) nest->depth--;
    FS_TRY(FS_LIST_ROOM(&nest->open, nest->depth, &nest->capacity, 64, "nested events", err));
    nest->open[nest->depth++] = host;
    return FS_OK;
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

static fs_status nest_lane(fs_join *join, uint32_t first, uint32_t end, fs_nest *events, fs_nest *frames, fs_error *err)
{
    events->depth = frames->depth = 0;
    for (uint32_t host = first; host < end; host++) {
        const fs_record *record = join->hosts[host].record;
        bool frame = record->kind == FS_EVENT_FRAME;
        FS_POLL(host, err);
        if (join->ones != NULL) join->ones[host] = host;
        if (join->children != NULL) join->children[host] = 0;
        join->parents[host] = FS_NONE;
        if (join->frames != NULL) join->frames[host] = FS_NONE;
        if (record->communication) continue;
        /* A frame finds its parent without closing any events, because frames do not affect torch's tree. */
        bool overlaps = false, unused;
        uint32_t parent = frame ? around(join, events, host) : innermost(join, events, host, &overlaps);
        if (overlaps && may_contradict(&join->hosts[host])) join->overlapping++;
        join->parents[host] = parent;
        if (join->children != NULL && parent != FS_NONE && !frame) join->children[parent]++;
        if (join->frames != NULL) {
            uint32_t caller = innermost(join, frames, host, &unused);
            if (caller != FS_NONE && join->parents[caller] == parent) join->frames[host] = caller;
        }
        FS_TRY(push(join, frame ? frames : events, host, err));
    }
    return FS_OK;
}

/* The call without effect by which flopscope records the arguments of an op (flopscope/sources/arguments.py). */
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
    *ops = fs_malloc(count * sizeof **ops);
    if (*ops == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the overloads of %u names", count);
    return map_ops(store, *ops, err);
}

static bool are_overloads(const uint32_t *ops, const fs_record *a, const fs_record *b)
{
    if (ops == NULL || a->name == FS_NONE || b->name == FS_NONE) return false;
    return a->kind == FS_EVENT_OP && b->kind == FS_EVENT_OP && ops[a->name] == ops[b->name];
}

/* Merge an only child of the same name with its parent; its children become the parent's. An op is never merged with an
 * API call. A call that only has the arguments of its parent is merged whatever its siblings. Names are compared
 * without overloads. */
static fs_status unite(fs_join *join, fs_error *err)
{
    uint32_t arguments = name_of_arguments(join->store), *ops;
    fs_status status = ops_of_names(join->store, &ops, err);
    if (status != FS_OK) {
        fs_free(ops);
        return status;
    }
    for (uint32_t host = 0; host < join->host_count; host++) {
        uint32_t parent = join->parents[host];
        if (parent == FS_NONE) continue;
        parent = join->ones[parent];
        join->parents[host] = parent;
        const fs_record *record = join->hosts[host].record;
        fs_record *above = join->hosts[parent].record;
        if (record->name == arguments && record->kind == FS_EVENT_OP && above->kind == FS_EVENT_OP) {
            if (above->signature == FS_NONE) above->signature = record->signature;
            join->ones[host] = parent;
            join->children[parent]--;
            continue;
        }
        if (record->kind == FS_EVENT_FRAME || join->children[parent] != 1) continue;
        if (record->name != above->name && !are_overloads(ops, record, above)) continue;
        if (fs_record_is_owner(record) > fs_record_is_owner(above)) continue;
        join->ones[host] = parent;
        join->children[parent] = join->children[host];
    }
    fs_free(ops);
    return FS_OK;
}

/* Group the hosts by lane; the sort is stable. */
static fs_status by_lane(fs_join *join, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(join->store);
    memset(join->firsts, 0, (lanes + 2) * sizeof *join->firsts);
    bool in_order = true;
    for (uint32_t i = 0; i < join->host_count; i++) {
        join->firsts[join->hosts[i].record->lane + 1]++;
        if (i > 0 && join->hosts[i].record->lane < join->hosts[i - 1].record->lane) in_order = false;
    }
    for (uint32_t lane = 0; lane < lanes; lane++) join->firsts[lane + 1] += join->firsts[lane];
    if (!in_order) {
        fs_host *sorted = fs_malloc(join->host_count * sizeof *sorted);
        uint32_t *next = fs_malloc((lanes + 1) * sizeof *next);
        if (sorted != NULL && next != NULL) {
            memcpy(next, join->firsts, (lanes + 1) * sizeof *next);
            for (uint32_t i = 0; i < join->host_count; i++)
                sorted[next[join->hosts[i].record->lane]++] = join->hosts[i];
            fs_free(join->hosts);
            join->hosts = sorted;
        } else {
            fs_free(sorted);
        }
        fs_free(next);
        if (sorted == NULL || next == NULL)
            return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to order %u events", join->host_count);
    }
    for (uint32_t lane = 0; lane < lanes; lane++)
        FS_TRY(fs_hosts_sort(join->hosts + join->firsts[lane], join->firsts[lane + 1] - join->firsts[lane], err));
    return FS_OK;
}

static fs_status nest_all(fs_join *join, fs_error *err)
{
    fs_nest events = {NULL, 0, 0}, frames = {NULL, 0, 0};
    fs_status status = by_lane(join, err);
    join->overlapping = 0;
    for (uint32_t lane = 0; status == FS_OK && lane < fs_store_lane_count(join->store); lane++)
        status = nest_lane(join, join->firsts[lane], join->firsts[lane + 1], &events, &frames, err);
    fs_free(events.open);
    fs_free(frames.open);
    return status;
}

fs_status fs_join_nest(fs_join *join, fs_error *err)
{
    FS_TRY(nest_all(join, err));
    if (join->overhead_count > 0) {
        FS_TRY(fs_join_place_overheads(join, err));
        FS_TRY(nest_all(join, err));
    }
    return join->keeps_alike ? FS_OK : unite(join, err);
}
