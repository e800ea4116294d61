#include "sources/kineto_owners.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Records by id ---------------------------------------------------------------------------------------------------- */

static void announce(fs_record_index *index, int64_t id)
{
    if (index->count++ == 0) index->least = index->largest = id;
    if (id < index->least) index->least = id;
    if (id > index->largest) index->largest = id;
}

static fs_status create_index(fs_record_index *index, fs_error *err)
{
    if (index->count == 0) return FS_OK;
    uint64_t range = (uint64_t)index->largest - (uint64_t)index->least;
    bool scattered = range / 4 > index->count;
    if (scattered) {
        for (index->slot_count = 64; index->slot_count < 2 * (uint64_t)index->count;) index->slot_count *= 2;
        index->ids = fs_malloc(index->slot_count * sizeof *index->ids);
    } else {
        index->slot_count = (uint32_t)range + 1;
    }
    index->records = fs_calloc(index->slot_count, sizeof *index->records);
    if (index->records == NULL || (scattered && index->ids == NULL))
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to tell what %u events launched", index->count);
    return FS_OK;
}

static void clear_index(fs_record_index *index)
{
    fs_free(index->ids);
    fs_free(index->records);
}

static uint32_t slot_of(const fs_record_index *index, int64_t id)
{
    if (index->ids == NULL) return (uint32_t)(id - index->least);
    uint32_t slot = (uint32_t)((uint64_t)id * 0x9e3779b97f4a7c15u >> 32) & (index->slot_count - 1);
    while (index->records[slot] != NULL && index->ids[slot] != id) slot = (slot + 1) & (index->slot_count - 1);
    return slot;
}

static fs_record *find(const fs_record_index *index, int64_t id)
{
    if (index->count == 0 || id < index->least || id > index->largest) return NULL;
    return index->records[slot_of(index, id)];
}

/* The record that has the id: this one, or one that came before. */
static fs_record *insert(fs_record_index *index, int64_t id, fs_record *record)
{
    uint32_t slot = slot_of(index, id);
    if (index->records[slot] == NULL) {
        index->records[slot] = record;
        if (index->ids != NULL) index->ids[slot] = id;
    }
    return index->records[slot];
}

/* Which id ---------------------------------------------------------------------------------------------------------- */

static bool is_call(const fs_record *record)
{
    return record->kind == FS_EVENT_RUNTIME && record->correlation != FS_NONE;
}

static bool is_work(const fs_record *record)
{
    return fs_event_kind_on_device[record->kind];
}

/* An "External id" that repeats the correlation says nothing: but flopscope's own ids are what they are. */
static int64_t external_of(const fs_owners *owners, const fs_record *record)
{
    return record->external == record->correlation && !owners->join->own ? -1 : record->external;
}

void fs_owners_announce(fs_owners *owners, const fs_record *record)
{
    if (is_call(record)) announce(&owners->calls, record->correlation);
    else if (fs_record_is_owner(record) && record->external >= 0) announce(&owners->ops, record->external);
}

static int64_t process_of(const fs_owners *owners, const fs_record *record)
{
    return owners->join->processes[record->lane];
}

static fs_status keep_other(fs_owners *owners, fs_record *call, fs_error *err)
{
    if (owners->other_count == owners->other_capacity) {
        uint32_t capacity = owners->other_capacity ? owners->other_capacity * 2 : 64;
        fs_record **others = fs_realloc(owners->others, capacity * sizeof *others);
        if (others == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to look up %u API calls", capacity);
        owners->others = others;
        owners->other_capacity = capacity;
    }
    owners->others[owners->other_count++] = call;
    return FS_OK;
}

static int compare_calls(const void *a, const void *b)
{
    const fs_record *left = *(fs_record *const *)a, *right = *(fs_record *const *)b;
    if (left->correlation != right->correlation) return left->correlation < right->correlation ? -1 : 1;
    return (left->start > right->start) - (left->start < right->start);
}

/* Each device's process: the one that most of the work was launched by whose correlation only one call has. */
static void see_devices(fs_owners *owners)
{
    FS_EACH_RECORD(owners->join, record)
    {
        if (!is_work(record) || record->device < 0) continue;
        const fs_record *call = find(&owners->calls, record->correlation);
        if (call == NULL || call->shared) continue;
        int64_t process = process_of(owners, call), *votes = &owners->devices[record->device].votes;
        if (*votes == 0) owners->devices[record->device].process = process;
        *votes += owners->devices[record->device].process == process ? 1 : -1;
    }
}

fs_status fs_owners_create(fs_owners *owners, fs_error *err)
{
    FS_TRY(create_index(&owners->ops, err));
    FS_TRY(create_index(&owners->calls, err));
    FS_EACH_RECORD(owners->join, record)
    {
        if (is_call(record)) {
            fs_record *first = insert(&owners->calls, record->correlation, record);
            if (first == record) continue;
            first->shared = true;
            FS_TRY(keep_other(owners, record, err));
        } else if (fs_record_is_owner(record) && record->external >= 0) {
            fs_record *first = insert(&owners->ops, record->external, record);
            if (process_of(owners, first) != process_of(owners, record)) first->shared = true;
        }
    }
    if (owners->other_count == 0) return FS_OK;
    qsort(owners->others, owners->other_count, sizeof(fs_record *), compare_calls);
    see_devices(owners);
    return FS_OK;
}

void fs_owners_clear(fs_owners *owners)
{
    clear_index(&owners->ops);
    clear_index(&owners->calls);
    fs_free(owners->others);
}

/* The op that the record's "External id" names; NULL: none, or ops of several processes. */
static fs_record *op_named(const fs_owners *owners, const fs_record *record)
{
    int64_t id = external_of(owners, record);
    fs_record *op = id >= 0 ? find(&owners->ops, id) : NULL;
    return op != NULL && op->shared ? NULL : op;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

static int64_t end_of(const fs_record *record)
{
    return record->duration == FS_MISSING ? INT64_MAX : record->start + record->duration;
}

static bool encloses(const fs_record *outer, const fs_record *inner)
{
    return outer->start <= inner->start && end_of(outer) >= end_of(inner);
}

/* Which of several calls of one correlation launched the work: a bit for each reason, the best first. A device whose
 * process the trace gives, the same op, the process that launches other work of the device, that it began before. */
static int reasons_for(const fs_owners *owners, const fs_record *call, const fs_record *work)
{
    int64_t process = process_of(owners, call);
    bool voted = work->device >= 0 && owners->devices[work->device].votes > 0;
    int told = process == process_of(owners, work);
    int same_op = call->external >= 0 && call->external == work->external;
    int same_device = voted && owners->devices[work->device].process == process;
    return told << 3 | same_op << 2 | same_device << 1 | (call->start <= work->start);
}

static bool is_likelier(const fs_owners *owners, const fs_record *call, const fs_record *than, const fs_record *work)
{
    int reasons = reasons_for(owners, call, work), other = reasons_for(owners, than, work);
    if (reasons != other) return reasons > other;
    return (call->start > than->start) == (call->start <= work->start); /* the nearest to the work */
}

static const fs_record *choose_call(const fs_owners *owners, const fs_record *first, const fs_record *work)
{
    uint32_t low = 0, high = owners->other_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (owners->others[middle]->correlation < work->correlation) low = middle + 1;
        else high = middle;
    }
    const fs_record *best = first;
    for (; high < owners->other_count && owners->others[high]->correlation == work->correlation; high++)
        if (is_likelier(owners, owners->others[high], best, work)) best = owners->others[high];
    /* Of the runtime's call and the driver's call inside it, the runtime's. */
    const fs_record *inner = best;
    if (first->lane == inner->lane && encloses(first, best)) best = first;
    for (; low < high; low++)
        if (owners->others[low]->lane == inner->lane && encloses(owners->others[low], best)) best = owners->others[low];
    return best;
}

const fs_record *fs_owners_call(const fs_owners *owners, const fs_record *work)
{
    if (work->correlation == FS_NONE) return NULL;
    const fs_record *first = find(&owners->calls, work->correlation);
    return first != NULL && first->shared ? choose_call(owners, first, work) : first;
}

fs_status fs_owners_move_calls(fs_owners *owners, fs_error *err)
{
    fs_join *join = owners->join;
    if (owners->ops.count == 0 || owners->calls.count == 0) return FS_OK;
    bool *has_owners = fs_calloc(fs_store_lane_count(join->store), sizeof *has_owners);
    if (has_owners == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to tell threads apart");
    for (uint32_t host = 0; host < join->host_count; host++)
        if (fs_record_is_owner(join->hosts[host].record)) has_owners[join->hosts[host].record->lane] = true;
    for (uint32_t host = 0; host < join->host_count; host++) {
        fs_record *record = join->hosts[host].record;
        if (record->kind != FS_EVENT_RUNTIME || has_owners[record->lane]) continue;
        const fs_record *op = op_named(owners, record);
        if (op != NULL && encloses(op, record)) record->lane = op->lane;
    }
    fs_free(has_owners);
    return FS_OK;
}

/* Launchers -------------------------------------------------------------------------------------------------------- */

/* Ops and annotations that have begun at the place of a sweep, the last one last. */
typedef struct {
    const fs_host **open;
    uint32_t depth, capacity;
} open_hosts;

static fs_status push(open_hosts *stack, const fs_host *host, fs_error *err)
{
    while (stack->depth > 0 && stack->open[stack->depth - 1]->end < host->start) stack->depth--;
    if (stack->depth == stack->capacity) {
        uint32_t capacity = stack->capacity ? stack->capacity * 2 : 64;
        const fs_host **open = fs_realloc(stack->open, capacity * sizeof *open);
        if (open == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u nested events", capacity);
        stack->open = open;
        stack->capacity = capacity;
    }
    stack->open[stack->depth++] = host;
    return FS_OK;
}

/* The innermost op around the call, or else the innermost annotation: of the store, or FS_NONE. Unlike the tree of
 * events this does not depend on what contradicts each other around it. */
static uint32_t innermost(const open_hosts *stack, const fs_host *call, int64_t slack)
{
    uint32_t annotation = FS_NONE;
    for (uint32_t i = stack->depth; i-- > 0;) {
        const fs_host *around = stack->open[i];
        if (around->end < call->end && !fs_host_lies_in(call, around, slack)) continue;
        if (around->record->kind == FS_EVENT_OP) return around->record->index;
        if (annotation == FS_NONE) annotation = around->record->index;
    }
    return annotation;
}

/* Whether b comes after a in the order of (start, -end). */
static bool comes_after(const fs_host *b, const fs_host *a)
{
    return b->start > a->start || (b->start == a->start && b->end < a->end);
}

static fs_status sweep_lane(const fs_join *join, uint32_t lane, open_hosts *stack, fs_error *err)
{
    const fs_host *hosts = join->hosts;
    uint32_t end = join->firsts[lane + 1], next = join->firsts[lane];
    stack->depth = 0;
    for (uint32_t host = next; host < end; host++) {
        if (!is_call(hosts[host].record)) continue;
        for (; next < end && !comes_after(&hosts[next], &hosts[host]); next++) {
            bool owner = fs_record_is_owner(hosts[next].record) && !hosts[next].record->communication;
            if (owner) FS_TRY(push(stack, &hosts[next], err));
        }
        hosts[host].record->launcher = innermost(stack, &hosts[host], join->slack);
    }
    return FS_OK;
}

fs_status fs_owners_find_launchers(fs_owners *owners, fs_error *err)
{
    open_hosts stack = {NULL, 0, 0};
    fs_status status = FS_OK;
    if (owners->calls.count == 0) return FS_OK;
    for (uint32_t lane = 0; status == FS_OK && lane < fs_store_lane_count(owners->join->store); lane++)
        status = sweep_lane(owners->join, lane, &stack, err);
    fs_free(stack.open);
    return status;
}

uint32_t fs_owners_launcher(fs_owners *owners, const fs_record *work)
{
    const fs_record *op = op_named(owners, work);
    uint32_t named = op != NULL ? op->index : FS_NONE;
    if (!is_work(work) || (owners->join->own && work->external >= 0)) return named;
    const fs_record *call = fs_owners_call(owners, work);
    if (call == NULL) return named;
    if (named != FS_NONE && named != call->launcher) owners->join->contradicting++;
    return call->launcher;
}
