#include "sources/kineto_join.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/api_calls.h"
#include "store/event.h"

/* Ids of the pieces to ids of the store --------------------------------------------------------------------------- */

/* By a piece's own ids. */
typedef struct {
    uint32_t *names, *signatures, *lanes;
} id_map;

static void clear_map(id_map *map)
{
    fs_free(map->names);
    fs_free(map->signatures);
    fs_free(map->lanes);
}

static fs_status name_id(fs_store *store, fs_span text, uint32_t *id, fs_error *err)
{
    fs_scan_span span = {text.bytes, text.size, memchr(text.bytes, '\\', text.size) != NULL};
    if (!span.escaped) return fs_store_name(store, text.bytes, id, err); /* a zero byte follows what is interned */
    char *plain = fs_malloc(text.size + 1);
    if (plain == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a name of %u bytes", text.size);
    fs_scan_unescape(&span, plain);
    fs_status status = fs_store_name(store, plain, id, err);
    fs_free(plain);
    return status;
}

/* Threads of other processes than the first are told apart from its own of the same number. */
static fs_status lane_id(fs_store *store, const fs_record_lane *lane, int64_t *process, uint32_t *id, fs_error *err)
{
    uint64_t thread = (uint64_t)lane->thread;
    if (lane->on_device) return fs_store_device_lane(store, (int)lane->process, thread, id, err);
    if (*process < 0) *process = lane->process;
    if (lane->process != *process) thread ^= (uint64_t)(lane->process + 1) << 32;
    return fs_store_thread_lane_of(store, thread, id, err);
}

static fs_status map_ids(const fs_piece *piece, fs_store *store, int64_t *process, id_map *map, fs_error *err)
{
    map->names = fs_malloc(piece->names.count * sizeof *map->names);
    map->signatures = fs_malloc(piece->signatures.count * sizeof *map->signatures);
    map->lanes = fs_malloc(piece->lanes.count * sizeof *map->lanes);
    if (map->names == NULL || map->signatures == NULL || map->lanes == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u names", piece->names.count);
    for (uint32_t i = 0; i < piece->names.count; i++)
        FS_TRY(name_id(store, fs_intern_get(&piece->names, i), &map->names[i], err));
    for (uint32_t i = 0; i < piece->signatures.count; i++) {
        fs_span bytes = fs_intern_get(&piece->signatures, i);
        FS_TRY(fs_store_signature(store, bytes.bytes, bytes.size, &map->signatures[i], err));
    }
    for (uint32_t i = 0; i < piece->lanes.count; i++)
        FS_TRY(lane_id(store, fs_intern_get(&piece->lanes, i).bytes, process, &map->lanes[i], err));
    return FS_OK;
}

/* The records of all pieces ---------------------------------------------------------------------------------------- */

typedef struct {
    fs_join join;
    fs_piece *pieces;
    uint32_t piece_count;
    bool own; /* flopscope wrote the trace */
    uint32_t device_count, sync_count;
    /* By "External id": the op or annotation. Kineto counts them, so that an array has room for all between the least
     * and the largest; where they are scattered, a hash table of a power of two, at most half full. */
    struct {
        int64_t id;
        fs_record *record;
    } *owners;
    uint32_t owner_slots;
    int64_t least_owner, largest_owner;
    bool scattered;
} joining;

/* For each record of all pieces, in order. */
#define EACH_RECORD(all, record)                                                                           \
    for (uint32_t piece_ = 0; piece_ < (all)->piece_count; piece_++)                                       \
        for (fs_record_block *block_ = (all)->pieces[piece_].first; block_ != NULL; block_ = block_->next) \
            for (fs_record *record = block_->records; record < block_->records + block_->count; record++)

static bool is_host(const fs_record *record)
{
    return record->device < 0 && record->kind != FS_EVENT_MEMORY && record->kind != FS_EVENT_SYNC;
}

static bool is_owner(const fs_record *record)
{
    return is_host(record) && record->external >= 0 &&
           (record->kind == FS_EVENT_OP || fs_event_is_annotation(record->kind));
}

static void see_owner(joining *all, int64_t id)
{
    if (all->owner_slots++ == 0) all->least_owner = all->largest_owner = id;
    if (id < all->least_owner) all->least_owner = id;
    if (id > all->largest_owner) all->largest_owner = id;
}

static void count_record(joining *all, const fs_record *record)
{
    fs_join *join = &all->join;
    if (is_host(record)) {
        join->host_count++;
        join->overhead_count += record->kind == FS_EVENT_OVERHEAD;
        join->frame_count += record->kind == FS_EVENT_FRAME;
        if (is_owner(record)) see_owner(all, record->external);
    } else if (record->kind == FS_EVENT_MEMORY) {
        join->memory_count++;
    } else {
        all->device_count++;
        all->sync_count += record->kind == FS_EVENT_SYNC;
        if (fs_event_kind_on_device[record->kind] && record->external >= 0) join->linked = true;
    }
}

/* Join the pieces' ids: records have the store's from here on. */
static fs_status join_ids(joining *all, fs_error *err)
{
    int64_t process = -1;
    fs_status status = FS_OK;
    for (uint32_t i = 0; status == FS_OK && i < all->piece_count; i++) {
        fs_piece *piece = &all->pieces[i];
        id_map map = {NULL, NULL, NULL};
        status = map_ids(piece, all->join.store, &process, &map, err);
        for (fs_record_block *block = piece->first; status == FS_OK && block != NULL; block = block->next) {
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                if (record->kind != FS_EVENT_MEMORY) record->name = map.names[record->name];
                if (record->signature != FS_NONE) record->signature = map.signatures[record->signature];
                record->lane = map.lanes[record->lane];
                count_record(all, record);
            }
        }
        clear_map(&map);
    }
    return status;
}

/* Owners ----------------------------------------------------------------------------------------------------------- */

static uint32_t owner_slot(const joining *all, int64_t id)
{
    if (!all->scattered) return (uint32_t)(id - all->least_owner);
    uint32_t slot = (uint32_t)((uint64_t)id * 0x9e3779b97f4a7c15u >> 32) & (all->owner_slots - 1);
    while (all->owners[slot].record != NULL && all->owners[slot].id != id) slot = (slot + 1) & (all->owner_slots - 1);
    return slot;
}

static fs_record *owner_of(const joining *all, int64_t id)
{
    if (id < all->least_owner || id > all->largest_owner) return NULL;
    return all->owners[owner_slot(all, id)].record;
}

static fs_status find_owners(joining *all, fs_error *err)
{
    uint32_t count = all->owner_slots;
    int64_t range = all->largest_owner - all->least_owner;
    if (count == 0) {
        all->largest_owner = INT64_MIN; /* no id is one */
        return FS_OK;
    }
    all->scattered = range / 4 > count;
    if (all->scattered) {
        for (all->owner_slots = 64; all->owner_slots < 2 * count;) all->owner_slots *= 2;
    } else {
        all->owner_slots = (uint32_t)range + 1;
    }
    all->owners = fs_calloc(all->owner_slots, sizeof *all->owners);
    if (all->owners == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to tell what %u ops launched", count);
    EACH_RECORD(all, record)
    {
        if (!is_owner(record)) continue;
        uint32_t slot = owner_slot(all, record->external);
        all->owners[slot].id = record->external;
        if (all->owners[slot].record == NULL) all->owners[slot].record = record;
    }
    return FS_OK;
}

/* Hosts ------------------------------------------------------------------------------------------------------------ */

static fs_status list_hosts(joining *all, fs_error *err)
{
    fs_join *join = &all->join;
    uint32_t count = join->host_count, memory = 0, hosts = 0;
    join->hosts = fs_malloc(count * sizeof *join->hosts);
    join->firsts = fs_calloc(fs_store_lane_count(join->store) + (size_t)2, sizeof *join->firsts);
    join->parents = fs_malloc(count * sizeof *join->parents);
    join->children = fs_malloc(count * sizeof *join->children);
    join->ones = fs_malloc(count * sizeof *join->ones);
    join->memory = fs_malloc(join->memory_count * sizeof *join->memory);
    if (join->frame_count > 0) join->frames = fs_malloc(count * sizeof *join->frames);
    bool room = join->hosts != NULL && join->firsts != NULL && join->parents != NULL && join->children != NULL &&
                join->ones != NULL && join->memory != NULL && (join->frame_count == 0 || join->frames != NULL);
    if (!room) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to order %u events", count);
    EACH_RECORD(all, record)
    {
        if (record->kind == FS_EVENT_MEMORY) join->memory[memory++] = record;
        if (!is_host(record)) continue;
        const fs_record *owner = record->kind == FS_EVENT_RUNTIME ? owner_of(all, record->external) : NULL;
        if (owner != NULL) record->lane = owner->lane;
        int64_t end = record->duration == FS_MISSING ? INT64_MAX : record->start + record->duration;
        join->hosts[hosts++] = (fs_host){record->start, end, record};
    }
    return FS_OK;
}

/* Memory in order of time: so it mostly comes. */
static void order_memory(fs_join *join)
{
    for (uint32_t i = 1; i < join->memory_count; i++) {
        fs_record *record = join->memory[i];
        uint32_t at = i, low = 0;
        if (join->memory[i - 1]->start <= record->start) continue;
        while (low < at) {
            uint32_t middle = low + (at - low) / 2;
            if (join->memory[middle]->start <= record->start) low = middle + 1;
            else at = middle;
        }
        memmove(&join->memory[low + 1], &join->memory[low], (i - low) * sizeof *join->memory);
        join->memory[low] = record;
    }
}

/* Appending -------------------------------------------------------------------------------------------------------- */

/* Kineto writes an annotation of a device 1 ns longer at both ends, so that viewers show it above the first and last
 * work (libkineto/src/output_json.cpp). */
static void unwiden(fs_event *event)
{
    if (event->duration < 2) return;
    event->start += 1;
    event->duration -= 2;
}

static fs_event event_of(const fs_record *record)
{
    fs_event event = fs_event_missing;
    event.start = record->start;
    event.duration = record->duration;
    event.bytes = record->bytes;
    event.name = record->name;
    event.signature = record->signature;
    event.correlation = record->correlation;
    event.lane = record->lane;
    event.device = record->device;
    event.kind = record->kind;
    event.timing = FS_TIMING_TRACE;
    return event;
}

static fs_status append_hosts(joining *all, fs_error *err)
{
    fs_join *join = &all->join;
    for (uint32_t host = 0; host < join->host_count; host++) {
        fs_record *record = join->hosts[host].record;
        FS_POLL(host, err);
        if (join->ones[host] != host) {
            record->index = join->hosts[join->ones[host]].record->index;
            continue;
        }
        fs_event event = event_of(record);
        uint32_t around = join->parents[host];
        if (join->frames != NULL && join->frames[host] != FS_NONE) around = join->frames[host];
        if (around != FS_NONE) event.parent = join->hosts[around].record->index;
        if (record->communication) event.lane = FS_NONE;
        FS_TRY(fs_store_append(join->store, &event, &record->index, err));
    }
    return FS_OK;
}

/* What a device event ran for, where no device event says so: the op around its API call. */
static uint32_t launcher_by_call(const fs_api_calls *calls, const fs_store *store, uint32_t correlation)
{
    uint32_t at = correlation == FS_NONE ? FS_NONE : fs_api_calls_find(calls, correlation);
    while (at != FS_NONE) {
        uint8_t kind = FS_EVENT_AT(store, at, kind);
        if (kind == FS_EVENT_OP || fs_event_is_annotation(kind)) return at;
        at = FS_EVENT_AT(store, at, parent);
    }
    return FS_NONE;
}

static fs_status append_devices(joining *all, fs_error *err)
{
    const fs_join *join = &all->join;
    fs_api_calls calls = {NULL, 0, NULL};
    fs_status status = FS_OK;
    bool by_call = !join->linked;
    if (by_call || all->sync_count > 0) status = fs_api_calls_create(&calls, join->store, err);
    uint32_t seen = 0;
    EACH_RECORD(all, record)
    {
        if (status == FS_OK && seen++ % FS_POLL_ROUNDS == 0) status = fs_interrupt_poll(err);
        if (status != FS_OK) break;
        if (is_host(record) || record->kind == FS_EVENT_MEMORY) continue;
        fs_event event = event_of(record);
        if (record->kind == FS_EVENT_SYNC) { /* a wait is its API call's */
            uint32_t call = record->correlation != FS_NONE ? fs_api_calls_find(&calls, record->correlation) : FS_NONE;
            event.parent = call;
            event.lane = call != FS_NONE ? FS_EVENT_AT(join->store, call, lane) : FS_NONE;
        } else {
            const fs_record *owner = owner_of(all, record->external);
            if (fs_event_is_annotation(record->kind) && !all->own) unwiden(&event);
            if (owner != NULL) event.launcher = owner->index;
            else if (by_call) event.launcher = launcher_by_call(&calls, join->store, record->correlation);
        }
        status = fs_store_append(join->store, &event, &record->index, err);
    }
    fs_api_calls_clear(&calls);
    return status;
}

/* The whole -------------------------------------------------------------------------------------------------------- */

static void clear(joining *all)
{
    fs_join *join = &all->join;
    void *blocks[] = {join->hosts,    join->firsts, join->parents, join->frames,
                      join->children, join->ones,   join->memory,  all->owners};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
}

static fs_status join_all(joining *all, fs_error *err)
{
    FS_TRY(join_ids(all, err));
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(find_owners(all, err));
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(list_hosts(all, err));
    FS_TRY(fs_interrupt_poll(err));
    order_memory(&all->join);
    fs_store_expect(all->join.store, all->join.host_count + all->device_count + all->join.memory_count);
    FS_TRY(fs_join_nest(&all->join, err));
    FS_TRY(append_hosts(all, err));
    FS_TRY(append_devices(all, err));
    return fs_join_memory(&all->join, err);
}

fs_status fs_join_pieces(fs_piece *pieces, uint32_t count, bool own, fs_store *store, fs_error *err)
{
    joining all = {.join = {.store = store}, .pieces = pieces, .piece_count = count, .own = own};
    fs_status status = join_all(&all, err);
    clear(&all);
    return status;
}
