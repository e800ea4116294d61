/* Two ids lead from device work to an op: the correlation of its API call, and an "External id". The call wins where
 * both are known, except in traces of flopscope, and a contradiction is counted. Ids may be shared by the processes of
 * a merged trace: then the first record is marked as shared, all of them are listed by correlation and start, and the
 * likeliest of the nearest is chosen. An index is an array if its ids are dense and a hash table if not, so that a
 * hostile trace cannot make it large. */
#include "sources/kineto/owners.h"

#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/search.h"
#include "base/sort.h"

/* The order is by start and then longest first, so that a parent precedes its children. The sort is stable, and each of
 * its passes leaves every host in one of the two buffers; an interruption copies back what is there. Traces are nearly
 * sorted, so finding the runs that exist costs a pass, and a merge of k runs log k. */

static inline bool comes_before(const fs_host *a, const fs_host *b)
{
    return a->start < b->start || (a->start == b->start && a->end > b->end);
}

/* Return the end of the ordered run that begins at `from`. */
static uint32_t run_end(const fs_host *hosts, uint32_t from, uint32_t count)
{
    uint32_t at = from + 1;
    while (at < count && !comes_before(&hosts[at], &hosts[at - 1])) at++;
    return at < count ? at : count;
}

static void merge(const fs_host *left, uint32_t left_count, const fs_host *right, uint32_t right_count, fs_host *out)
{
    while (left_count > 0 && right_count > 0) {
        if (comes_before(right, left)) *out++ = *right++, right_count--;
        else *out++ = *left++, left_count--;
    }
    memcpy(out, left, left_count * sizeof *left);
    memcpy(out + left_count, right, right_count * sizeof *right);
}

/* A merge sort of natural runs: a trace consists of a few long runs of ops, API calls and frames. */
fs_status fs_hosts_sort(fs_host *hosts, uint32_t count, fs_error *err)
{
    if (count == 0 || run_end(hosts, 0, count) == count) return FS_OK;
    fs_host *room = fs_malloc(count * sizeof *room), *from = hosts, *to = room;
    if (room == NULL) return fs_no_memory(err);
    fs_status status = FS_OK;
    for (uint32_t runs = 2; runs > 1 && status == FS_OK;) {
        runs = 0;
        status = fs_interrupt_poll(err);
        for (uint32_t first = 0; first < count; runs++) {
            uint32_t second = run_end(from, first, count);
            uint32_t end = second < count ? run_end(from, second, count) : second;
            merge(from + first, second - first, from + second, end - second, to + first);
            first = end;
        }
        fs_host *swap = from;
        from = to;
        to = swap;
    }
    if (from != hosts) memcpy(hosts, from, count * sizeof *hosts);
    fs_free(room);
    return status;
}

/* Listing ---------------------------------------------------------------------------------------------------------- */

/* Each thread counts, and then places, the hosts of a group of pieces. */
typedef struct {
    fs_join *join;
    uint32_t *places; /* by group and lane, memory last: the number of hosts, and then the place of the next one */
    uint32_t lanes, groups;
    bool placing; /* after counting */
} listing;

static void list_group(const listing *all, uint32_t group)
{
    const fs_join *join = all->join;
    uint32_t *places = all->places + group * (size_t)(all->lanes + 1), *memory = places + all->lanes;
    uint32_t piece = (uint32_t)((uint64_t)join->piece_count * group / all->groups);
    uint32_t end = (uint32_t)((uint64_t)join->piece_count * (group + 1) / all->groups);
    for (; piece < end; piece++) {
        for (fs_record_block *block = join->pieces[piece].first; block != NULL; block = block->next) {
            if (fs_interrupted()) return;
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                bool host = fs_record_is_host(record);
                if (!host && record->kind != FS_EVENT_MEMORY) continue;
                uint32_t place = host ? places[record->lane]++ : (*memory)++;
                if (!all->placing) continue;
                if (host) join->hosts[place] = (fs_host){record->start, fs_record_end(record), record};
                else join->memory[place] = (fs_host){record->start, record->start, record};
            }
        }
    }
}

static void list_groups(void *context, int64_t begin, int64_t end)
{
    for (int64_t group = begin; group < end; group++) list_group(context, (uint32_t)group);
}

/* Turn the counts into places: by lane, and within a lane by group. */
static void set_places(const listing *all)
{
    uint32_t next = 0;
    for (uint32_t lane = 0; lane <= all->lanes; lane++) {
        all->join->firsts[lane] = next;
        if (lane == all->lanes) next = 0; /* memory has an array of its own */
        for (uint32_t group = 0; group < all->groups; group++) {
            uint32_t *place = &all->places[group * (size_t)(all->lanes + 1) + lane], count = *place;
            *place = next;
            next += count;
        }
    }
}

fs_status fs_hosts_list(fs_join *join, fs_error *err)
{
    listing all = {.join = join, .lanes = fs_store_lane_count(join->store), .groups = join->piece_count};
    /* A table of many lanes and groups would take longer than the hosts. */
    if ((all.lanes + UINT64_C(1)) * all.groups > join->host_count / 4 + UINT64_C(64)) all.groups = 1;
    FS_TRY(FS_NEW_ZEROED(&all.places, all.groups * (size_t)(all.lanes + 1), err));
    fs_parallel_for(all.groups, 1, list_groups, &all);
    fs_status status = fs_interrupt_poll(err);
    if (status == FS_OK) {
        set_places(&all);
        all.placing = true;
        fs_parallel_for(all.groups, 1, list_groups, &all);
        status = fs_interrupt_poll(err);
    }
    fs_free(all.places);
    return status;
}

fs_status fs_hosts_regroup(fs_join *join, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(join->store);
    fs_host *sorted;
    uint32_t *next;
    FS_TRY(FS_NEW(&next, lanes + (size_t)1, err));
    fs_status status = FS_NEW(&sorted, join->host_count, err);
    if (status != FS_OK) {
        fs_free(next);
        return status;
    }
    memset(join->firsts, 0, (lanes + (size_t)2) * sizeof *join->firsts);
    for (uint32_t i = 0; i < join->host_count; i++) join->firsts[join->hosts[i].record->lane + 1]++;
    for (uint32_t lane = 0; lane < lanes; lane++) join->firsts[lane + 1] += join->firsts[lane];
    memcpy(next, join->firsts, (lanes + (size_t)1) * sizeof *next);
    for (uint32_t i = 0; i < join->host_count; i++) sorted[next[join->hosts[i].record->lane]++] = join->hosts[i];
    fs_free(join->hosts);
    fs_free(next);
    join->hosts = sorted;
    return FS_OK;
}

/* Records by id ---------------------------------------------------------------------------------------------------- */

static fs_status create_index(fs_record_index *index, fs_error *err)
{
    if (index->count == 0) return FS_OK;
    uint64_t range = (uint64_t)index->largest - (uint64_t)index->least;
    bool scattered = range / 4 > index->count;
    if (scattered) {
        for (index->slot_count = 64; index->slot_count < 2 * (uint64_t)index->count;) index->slot_count *= 2;
        FS_TRY(FS_NEW(&index->ids, index->slot_count, err));
        index->keys = fs_hash_keys();
    } else {
        index->slot_count = (uint32_t)range + 1;
    }
    return FS_NEW_ZEROED(&index->records, index->slot_count, err);
}

static void clear_index(fs_record_index *index)
{
    fs_free(index->ids);
    fs_free(index->records);
}

static uint32_t slot_of(const fs_record_index *index, int64_t id)
{
    if (index->ids == NULL) return (uint32_t)(id - index->least);
    uint32_t slot = (uint32_t)fs_hash_numbers(index->keys, (uint64_t)id, 0) & (index->slot_count - 1);
    while (index->records[slot] != NULL && index->ids[slot] != id) slot = (slot + 1) & (index->slot_count - 1);
    return slot;
}

static fs_record *find(const fs_record_index *index, int64_t id)
{
    if (index->count == 0 || id < index->least || id > index->largest) return NULL;
    return index->records[slot_of(index, id)];
}

/* Return the record with the id: an earlier one, or this one after inserting it. */
static fs_record *insert(fs_record_index *index, int64_t id, fs_record *record)
{
    uint32_t slot = slot_of(index, id);
    if (index->records[slot] == NULL) {
        index->records[slot] = record;
        if (index->ids != NULL) index->ids[slot] = id;
    }
    return index->records[slot];
}

/* Ids -------------------------------------------------------------------------------------------------------------- */

static bool is_work(const fs_record *record)
{
    return fs_event_kind_on_device[record->kind];
}

/* An "External id" that repeats the correlation is ignored, unless flopscope wrote it. */
static int64_t external_of(const fs_owners *owners, const fs_record *record)
{
    bool repeats = record->correlation != FS_NONE && (uint32_t)record->external == record->correlation;
    return repeats && !owners->join->own ? -1 : record->external;
}

static int64_t process_of(const fs_owners *owners, const fs_record *record)
{
    return owners->join->processes[record->lane];
}

static fs_status keep_other(fs_owners *owners, fs_record *call, fs_error *err)
{
    return FS_LIST_ADD(&owners->others, &owners->other_count, &owners->other_capacity, 64, err, call);
}

static int compare_calls(const void *a, const void *b)
{
    const fs_record *left = *(fs_record *const *)a, *right = *(fs_record *const *)b;
    if (left->correlation != right->correlation) return left->correlation < right->correlation ? -1 : 1;
    return (left->start > right->start) - (left->start < right->start);
}

/* Determine each device's process: the one that launched most of its work, by unique correlations. */
static void find_device_processes(fs_owners *owners)
{
    FS_EACH_RECORD(owners->join, record) {
        if (!is_work(record) || record->device < 0) continue;
        const fs_record *call = find(&owners->calls, record->correlation);
        if (call == NULL || call->shared) continue;
        int64_t process = process_of(owners, call), *votes = &owners->devices[record->device].votes;
        if (*votes == 0) owners->devices[record->device].process = process;
        *votes += owners->devices[record->device].process == process ? 1 : -1;
    }
}

/* Flags of a thread. */
enum { HAS_OWNERS = 1, HAS_CALLS = 2 };

static inline void set_flag(const fs_owners *owners, const fs_record *record, uint8_t flag)
{
    uint8_t *flags = &owners->lanes[record->lane];
    if ((__atomic_load_n(flags, __ATOMIC_RELAXED) & flag) == 0) __atomic_fetch_or(flags, flag, __ATOMIC_RELAXED);
}

/* Several threads insert records whose ids are unique, into arrays. */
typedef struct {
    const fs_owners *owners;
    atomic_bool collides; /* two records have one id: the first of them depends on the order */
} indexing;

static void insert_first(indexing *all, const fs_record_index *index, int64_t id, fs_record *record)
{
    fs_record *none = NULL;
    if (!__atomic_compare_exchange_n(&index->records[id - index->least], &none, record, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        atomic_store_explicit(&all->collides, true, memory_order_relaxed);
}

static void insert_pieces(void *context, int64_t begin, int64_t end)
{
    indexing *all = context;
    const fs_owners *owners = all->owners;
    for (int64_t piece = begin; piece < end; piece++) {
        for (fs_record_block *block = owners->join->pieces[piece].first; block != NULL; block = block->next) {
            if (atomic_load_explicit(&all->collides, memory_order_relaxed) || fs_interrupted()) return;
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                if (fs_record_is_call(record)) {
                    set_flag(owners, record, HAS_CALLS);
                    insert_first(all, &owners->calls, record->correlation, record);
                } else if (fs_record_is_owner(record)) {
                    set_flag(owners, record, HAS_OWNERS);
                    if (record->external >= 0) insert_first(all, &owners->ops, record->external, record);
                }
            }
        }
    }
}

/* Return whether each id was unique, and so all records are in their indices. */
static bool insert_unique(const fs_owners *owners)
{
    indexing all = {.owners = owners};
    if (owners->ops.ids != NULL || owners->calls.ids != NULL) return false;
    fs_parallel_for(owners->join->piece_count, 1, insert_pieces, &all);
    if (!all.collides) return true;
    const fs_record_index *both[] = {&owners->ops, &owners->calls};
    for (int i = 0; i < 2; i++) /* one without slots has no records */
        if (both[i]->slot_count > 0) memset(both[i]->records, 0, both[i]->slot_count * sizeof *both[i]->records);
    return false;
}

static fs_status insert_all(fs_owners *owners, fs_error *err)
{
    FS_EACH_RECORD(owners->join, record) {
        if (fs_record_is_call(record)) {
            set_flag(owners, record, HAS_CALLS);
            fs_record *first = insert(&owners->calls, record->correlation, record);
            if (first == record) continue;
            if (!first->shared) FS_TRY(keep_other(owners, first, err));
            first->shared = true;
            FS_TRY(keep_other(owners, record, err));
        } else if (fs_record_is_owner(record)) {
            set_flag(owners, record, HAS_OWNERS);
            if (record->external < 0) continue;
            fs_record *first = insert(&owners->ops, record->external, record);
            if (first != record && process_of(owners, first) != process_of(owners, record)) first->shared = true;
        }
    }
    return FS_OK;
}

fs_status fs_owners_create(fs_owners *owners, fs_error *err)
{
    FS_TRY(create_index(&owners->ops, err));
    FS_TRY(create_index(&owners->calls, err));
    FS_TRY(FS_NEW_ZEROED(&owners->lanes, fs_store_lane_count(owners->join->store), err));
    bool unique = insert_unique(owners);
    FS_TRY(fs_interrupt_poll(err));
    if (unique) return FS_OK;
    FS_TRY(insert_all(owners, err));
    if (owners->other_count == 0) return FS_OK;
    FS_TRY(fs_sort(owners->others, owners->other_count, sizeof(fs_record *), compare_calls, err));
    find_device_processes(owners);
    return FS_OK;
}

void fs_owners_clear(fs_owners *owners)
{
    clear_index(&owners->ops);
    clear_index(&owners->calls);
    fs_free(owners->others);
    fs_free(owners->lanes);
}

/* Return the op named by the record's "External id"; NULL if there is none, or several processes have one. */
static fs_record *op_named(const fs_owners *owners, const fs_record *record)
{
    int64_t id = external_of(owners, record);
    fs_record *op = id >= 0 ? find(&owners->ops, id) : NULL;
    return op != NULL && op->shared ? NULL : op;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

static bool encloses(const fs_record *outer, const fs_record *inner)
{
    return outer->start <= inner->start && fs_record_end(outer) >= fs_record_end(inner);
}

/* Rate a call, of several with one correlation, as the launcher of the work, one bit per reason, the best first: the
 * trace gives the work's process and it matches, the same op, the process that launches the device's other work, it
 * began before the work. */
enum { SAME_PROCESS = 8, SAME_OP = 4, SAME_DEVICE = 2, BEFORE = 1 };

static int reasons_for(const fs_owners *owners, const fs_record *call, const fs_record *work)
{
    int64_t process = process_of(owners, call);
    bool voted = work->device >= 0 && owners->devices[work->device].votes > 0;
    bool same_op = call->external >= 0 && call->external == work->external;
    bool same_device = voted && owners->devices[work->device].process == process;
    return (process == process_of(owners, work) ? SAME_PROCESS : 0) | (same_op ? SAME_OP : 0) |
           (same_device ? SAME_DEVICE : 0) | (call->start <= work->start ? BEFORE : 0);
}

static bool is_likelier(const fs_owners *owners, const fs_record *call, const fs_record *than, const fs_record *work)
{
    int reasons = reasons_for(owners, call, work), other = reasons_for(owners, than, work);
    if (reasons != other) return reasons > other;
    return (call->start > than->start) == (call->start <= work->start); /* the nearest to the work */
}

/* Only calls with the work's correlation that began near it, a few before and after, are rated, which bounds the
 * time. */
enum { NEAR_CALLS = 8 };

static bool is_before(const fs_record *call, const fs_record *work)
{
    if (call->correlation != work->correlation) return call->correlation < work->correlation;
    return call->start <= work->start;
}

/* *guessed: calls of several processes have the correlation, and nothing tells whose work it is. */
static const fs_record *choose_call(const fs_owners *owners, const fs_record *work, bool *guessed)
{
    uint32_t high = FS_FIRST_NOT(i, 0, owners->other_count, is_before(owners->others[i], work));
    uint32_t low = high > NEAR_CALLS ? high - NEAR_CALLS : 0;
    high = owners->other_count - high > NEAR_CALLS ? high + NEAR_CALLS : owners->other_count;
    while (owners->others[low]->correlation != work->correlation) low++;
    while (owners->others[high - 1]->correlation != work->correlation) high--;
    const fs_record *best = owners->others[low];
    for (uint32_t i = low + 1; i < high; i++)
        if (is_likelier(owners, owners->others[i], best, work)) best = owners->others[i];
    bool told = (reasons_for(owners, best, work) & (SAME_PROCESS | SAME_DEVICE)) != 0;
    for (uint32_t i = low; i < high && !told; i++)
        *guessed = *guessed || process_of(owners, owners->others[i]) != process_of(owners, best);
    /* Of a runtime call and the driver call inside it, the runtime call. */
    const fs_record *inner = best;
    for (uint32_t i = low; i < high; i++)
        if (owners->others[i]->lane == inner->lane && encloses(owners->others[i], best)) best = owners->others[i];
    return best;
}

static const fs_record *call_of(const fs_owners *owners, const fs_record *work, bool *guessed)
{
    if (work->correlation == FS_NONE) return NULL;
    const fs_record *first = find(&owners->calls, work->correlation);
    return first != NULL && first->shared ? choose_call(owners, work, guessed) : first;
}

const fs_record *fs_owners_call(const fs_owners *owners, const fs_record *work)
{
    bool guessed = false;
    return call_of(owners, work, &guessed);
}

void fs_owners_move_calls(const fs_owners *owners)
{
    const fs_join *join = owners->join;
    bool any = false;
    for (uint32_t lane = 0; lane < fs_store_lane_count(join->store); lane++)
        any = any || owners->lanes[lane] == HAS_CALLS;
    if (!any) return;
    FS_EACH_RECORD(join, record) {
        if (record->kind != FS_EVENT_RUNTIME || (owners->lanes[record->lane] & HAS_OWNERS) != 0) continue;
        const fs_record *op = op_named(owners, record);
        if (op != NULL && encloses(op, record)) record->lane = op->lane;
    }
}

/* Launchers -------------------------------------------------------------------------------------------------------- */

/* Return the innermost event around the call, as an event of the store, or FS_NONE. */
static uint32_t innermost(const fs_join *join, const fs_nest *nest, const fs_host *call)
{
    fs_host span = *call;
    if (span.end == INT64_MAX) span.end = span.start; /* it has no duration */
    uint32_t low = FS_FIRST_NOT(i, 0, nest->depth, join->hosts[nest->open[i]].end >= span.end - join->slack);
    for (; low > 0; low--) {
        const fs_host *around = &join->hosts[nest->open[low - 1]];
        if (around->end >= span.end || fs_host_lies_in(&span, around, join->slack)) return around->record->index;
    }
    return FS_NONE;
}

/* Unlike the tree of events, this does not depend on contradictory events around a call. */
static fs_status sweep_lane(const fs_join *join, uint32_t lane, fs_nest *ops, fs_nest *annotations, fs_error *err)
{
    const fs_host *hosts = join->hosts;
    uint32_t end = join->firsts[lane + 1], next = join->firsts[lane];
    ops->depth = annotations->depth = 0;
    for (uint32_t host = next; host < end; host++) {
        fs_record *call = hosts[host].record;
        FS_POLL(host, err);
        if (!fs_record_is_call(call)) continue;
        for (; next < end && !comes_before(&hosts[host], &hosts[next]); next++) {
            const fs_record *record = hosts[next].record;
            if (!fs_record_is_owner(record) || record->communication) continue;
            FS_TRY(fs_nest_push(join, record->kind == FS_EVENT_OP ? ops : annotations, next, err));
        }
        call->launcher = innermost(join, ops, &hosts[host]);
        if (call->launcher == FS_NONE) call->launcher = innermost(join, annotations, &hosts[host]);
    }
    return FS_OK;
}

fs_status fs_owners_find_launchers(fs_owners *owners, fs_error *err)
{
    fs_nest ops = {NULL, 0, 0}, annotations = {NULL, 0, 0};
    fs_status status = FS_OK;
    if (owners->calls.count == 0) return FS_OK;
    for (uint32_t lane = 0; status == FS_OK && lane < fs_store_lane_count(owners->join->store); lane++)
        status = sweep_lane(owners->join, lane, &ops, &annotations, err);
    fs_free(ops.open);
    fs_free(annotations.open);
    return status;
}

uint32_t fs_owners_launcher(const fs_owners *owners, const fs_record *work, fs_launcher_counts *counts)
{
    const fs_record *op = op_named(owners, work);
    uint32_t named = op != NULL ? op->index : FS_NONE;
    if (!is_work(work) || (owners->join->own && work->external >= 0)) return named;
    bool guessed = false;
    const fs_record *call = call_of(owners, work, &guessed);
    if (call == NULL) return named;
    counts->guessed += guessed;
    counts->contradicting += named != FS_NONE && named != call->launcher;
    return call->launcher;
}
