/* How the pieces of a trace become the events of a store:
 *
 *   pieces                         store                                          the record then has
 *   names, signatures, lanes ────► join_ids: ids of the store, in order           ids of the store
 *   records ─► hosts ────────────► fs_join_nest: by lane, start, end; parents
 *                └───────────────► append_hosts: a parent before its children     its index
 *                                  fs_join_backward: forward ops
 *              works ────────────► append_marks, append_devices                   its launcher
 *              memory ───────────► fs_join_memory: last, by what encloses it
 *
 * Pieces are joined in the order of the text, so that the result does not depend on how many there are. A record has
 * ids of its piece before join_ids and ids of the store after it, never a mixture. An index of the store is known only
 * when the event is appended, which is why owners come before what they own. What is no longer needed is freed before
 * the next step allocates, where that is possible. */
#include "sources/kineto/join.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "sources/kineto/append.h"
#include "sources/kineto/nest.h"
#include "sources/kineto/owners.h"
#include "store/event.h"

/* Clock steps, in ns, treated as rounding: whole µs, or the precision of a double for µs since 1970. Finer times are
 * exact. */
enum { LEAST_STEP = 100, MOST_STEP = 1000 };

/* Ids of the pieces to ids of the store ---------------------------------------------------------------------------- */

/* Store ids, indexed by a piece's ids. */
typedef struct {
    uint32_t *names, *signatures, *lanes;
    uint32_t first_state; /* the id of the first state of memory; the others follow it */
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
    if (!span.escaped) return fs_store_name(store, text.bytes, id, err); /* interned text is followed by a zero byte */
    char *plain = fs_malloc(text.size + 1);
    if (plain == NULL) return fs_no_memory(err);
    fs_scan_unescape(&span, plain);
    fs_status status = fs_store_name(store, plain, id, err);
    fs_free(plain);
    return status;
}

/* Threads of other processes than the first get distinct keys, so that equal thread numbers stay apart. */
static fs_status lane_id(fs_store *store, const fs_record_lane *lane, int64_t *process, uint32_t *id, fs_error *err)
{
    uint64_t thread = (uint64_t)lane->thread;
    if (lane->device >= 0) return fs_store_device_lane(store, (int)lane->device, thread, id, err);
    if (*process < 0) *process = lane->process;
    if (lane->process != *process) thread ^= ((uint64_t)lane->process + 1) << 32;
    return fs_store_thread_lane_of(store, thread, id, err);
}

/* The process id of a stream's work is the device index, which identifies no process. */
static fs_status keep_process(fs_join *join, const fs_record_lane *lane, uint32_t id, fs_error *err)
{
    int64_t process = lane->process == lane->device ? -1 : lane->process;
    FS_TRY(FS_LIST_ROOM(&join->processes, id, &join->process_capacity, 8, err));
    while (join->process_count <= id) join->processes[join->process_count++] = process;
    if (join->processes[id] != process) join->processes[id] = -1;
    return FS_OK;
}

static fs_status append_states(fs_store *store, fs_piece *piece, uint32_t *first, fs_error *err)
{
    _Alignas(8) char bytes[FS_MEMORY_STATE_BYTES];
    uint32_t id;
    for (uint32_t i = 0; i < piece->state_count; i++) {
        FS_POLL(i, err);
        fs_memory_state_encode(&piece->states[i], bytes);
        FS_TRY(fs_store_append_signature(store, bytes, sizeof bytes, &id, err));
        if (i == 0) *first = id;
    }
    fs_free(piece->states);
    piece->states = NULL;
    piece->state_count = piece->state_capacity = 0;
    return FS_OK;
}

static fs_status map_ids(fs_join *join, fs_piece *piece, int64_t *process, id_map *map, fs_error *err)
{
    fs_store *store = join->store;
    FS_TRY(FS_NEW(&map->names, piece->names.count, err));
    FS_TRY(FS_NEW(&map->signatures, piece->signatures.count, err));
    FS_TRY(FS_NEW(&map->lanes, piece->lanes.count, err));
    for (uint32_t i = 0; i < piece->names.count; i++) {
        FS_POLL(i, err);
        FS_TRY(name_id(store, fs_intern_get(&piece->names, i), &map->names[i], err));
    }
    for (uint32_t i = 0; i < piece->signatures.count; i++) {
        FS_POLL(i, err);
        fs_span bytes = fs_intern_get(&piece->signatures, i);
        FS_TRY(fs_store_signature(store, bytes.bytes, bytes.size, &map->signatures[i], err));
    }
    FS_TRY(append_states(store, piece, &map->first_state, err));
    for (uint32_t i = 0; i < piece->lanes.count; i++) {
        FS_POLL(i, err);
        const fs_record_lane *lane = fs_intern_get(&piece->lanes, i).bytes;
        FS_TRY(lane_id(store, lane, process, &map->lanes[i], err));
        FS_TRY(keep_process(join, lane, map->lanes[i], err));
    }
    return FS_OK;
}

/* The records of all pieces ---------------------------------------------------------------------------------------- */

typedef struct {
    fs_join join;
    fs_owners owners;
} joining;

/* Statistics of the records of a piece. */
typedef struct {
    uint32_t hosts, overheads, frames, backward, memory, devices;
    int64_t slack;              /* clock step of the hosts: the greatest common divisor of all starts */
    fs_record_index ops, calls; /* announced records */
} tally;

static void add_clock_step(tally *sum, int64_t start)
{
    uint64_t step = (uint64_t)sum->slack, rest = (uint64_t)(start < 0 ? -start : start);
    if (step == 1) return;
    while (rest != 0) { /* Euclid's algorithm */
        uint64_t left = step % rest;
        step = rest;
        rest = left;
    }
    sum->slack = (int64_t)step;
}

static void count_record(tally *sum, const fs_record *record)
{
    if (fs_record_is_host(record)) {
        sum->hosts++;
        sum->overheads += record->kind == FS_EVENT_OVERHEAD;
        sum->frames += record->kind == FS_EVENT_FRAME;
        sum->backward += fs_record_is_backward(record);
        fs_owners_announce(&sum->ops, &sum->calls, record);
        add_clock_step(sum, record->start);
    } else if (record->kind == FS_EVENT_MEMORY) {
        sum->memory++;
    } else {
        sum->devices++;
    }
}

static void add_tally(joining *all, uint32_t piece, const tally *sum)
{
    fs_join *join = &all->join;
    tally whole = {.slack = join->slack};
    join->host_count += sum->hosts;
    join->overhead_count += sum->overheads;
    join->frame_count += sum->frames;
    join->backward_count += sum->backward;
    join->memory_count += sum->memory;
    join->device_firsts[piece + 1] = join->device_firsts[piece] + sum->devices;
    add_clock_step(&whole, sum->slack);
    join->slack = whole.slack;
    fs_record_index_merge(&all->owners.ops, &sum->ops);
    fs_record_index_merge(&all->owners.calls, &sum->calls);
}

typedef struct {
    fs_piece *pieces;
    const id_map *maps;
    tally *tallies;
} mapping;

static uint32_t signature_of(const id_map *map, const fs_record *record)
{
    if (record->signature == FS_NONE) return FS_NONE;
    if (record->kind == FS_EVENT_MEMORY) return map->first_state + record->signature;
    return map->signatures[record->signature];
}

static void map_records(void *context, int64_t begin, int64_t end)
{
    const mapping *all = context;
    for (int64_t i = begin; i < end; i++) {
        const id_map *map = &all->maps[i];
        tally sum = {0};
        for (fs_record_block *block = all->pieces[i].first; block != NULL; block = block->next) {
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                if (record->kind != FS_EVENT_MEMORY) record->name = map->names[record->name];
                record->signature = signature_of(map, record);
                record->lane = map->lanes[record->lane];
                if (record->marked && record->device >= 0) record->mark = map->names[record->mark];
                count_record(&sum, record);
            }
        }
        all->tallies[i] = sum;
    }
}

/* Map the pieces' ids; from here on records have ids of the store. */
static fs_status join_ids(joining *all, fs_error *err)
{
    fs_join *join = &all->join;
    int64_t process = -1;
    id_map *maps = fs_calloc(join->piece_count, sizeof *maps);
    tally *tallies = fs_calloc(join->piece_count, sizeof *tallies);
    fs_status status = FS_OK;
    join->device_firsts = fs_calloc(join->piece_count + (size_t)1, sizeof *join->device_firsts);
    if (maps == NULL || tallies == NULL || join->device_firsts == NULL) {
        status = fs_no_memory(err);
    }
    for (uint32_t i = 0; status == FS_OK && i < join->piece_count; i++) {
        status = map_ids(join, &join->pieces[i], &process, &maps[i], err);
    }
    if (status == FS_OK) {
        fs_parallel_for(join->piece_count, 1, map_records, &(mapping){join->pieces, maps, tallies});
        status = fs_interrupt_poll(err);
    }
    for (uint32_t i = 0; maps != NULL && i < join->piece_count; i++) {
        if (status == FS_OK) add_tally(all, i, &tallies[i]);
        clear_map(&maps[i]);
    }
    fs_free(maps);
    fs_free(tallies);
    return status;
}

/* Hosts ------------------------------------------------------------------------------------------------------------ */

static fs_status list_hosts(joining *all, fs_error *err)
{
    fs_join *join = &all->join;
    uint32_t count = join->host_count;
    FS_TRY(FS_NEW(&join->hosts, count, err));
    FS_TRY(FS_NEW_ZEROED(&join->firsts, fs_store_lane_count(join->store) + (size_t)2, err));
    FS_TRY(FS_NEW(&join->parents, count, err));
    if (!join->keeps_alike) FS_TRY(FS_NEW(&join->children, count, err));
    if (!join->keeps_alike) FS_TRY(FS_NEW(&join->ones, count, err));
    FS_TRY(FS_NEW(&join->memory, join->memory_count, err));
    if (join->frame_count > 0) FS_TRY(FS_NEW(&join->frames, count, err));
    return fs_hosts_list(join, err);
}

/* A change of memory with a correlation happened on the thread of that call. */
static void place_memory(const joining *all)
{
    for (uint32_t i = 0; i < all->join.memory_count; i++) {
        fs_record *record = all->join.memory[i].record;
        const fs_record *call = fs_owners_call(&all->owners, record);
        if (call != NULL) record->lane = call->lane;
    }
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

static void clear_merges(fs_join *join)
{
    fs_free(join->children);
    fs_free(join->ones);
    join->children = join->ones = NULL;
}

/* Free what orders the hosts. */
static void clear_hosts(fs_join *join)
{
    void *blocks[] = {join->hosts, join->firsts, join->parents, join->frames};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    join->hosts = NULL;
    join->firsts = join->parents = join->frames = NULL;
    clear_merges(join);
}

static void clear(joining *all)
{
    clear_hosts(&all->join);
    fs_free(all->join.memory);
    fs_free(all->join.processes);
    fs_free(all->join.device_firsts);
    fs_owners_clear(&all->owners);
}

static fs_status join_all(joining *all, fs_error *err)
{
    fs_join *join = &all->join;
    FS_TRY(join_ids(all, err));
    FS_TRY(fs_interrupt_poll(err));
    join->slack = join->slack < LEAST_STEP ? 0 : join->slack > MOST_STEP ? MOST_STEP : join->slack;
    FS_TRY(fs_owners_create(&all->owners, err));
    FS_TRY(fs_interrupt_poll(err));
    fs_owners_move_calls(&all->owners);
    FS_TRY(list_hosts(all, err));
    if (join->own_memory) place_memory(all);
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(fs_hosts_sort(join->memory, join->memory_count, err));
    uint32_t devices = join->device_firsts[join->piece_count];
    fs_store_expect(join->store, join->host_count + devices + join->memory_count);
    FS_TRY(fs_join_nest(join, err));
    if (join->merged_count == 0) clear_merges(join);
    FS_TRY(fs_join_append_hosts(join, err));
    FS_TRY(fs_join_backward(join, err));
    if (devices > 0) FS_TRY(fs_owners_find_launchers(&all->owners, err));
    if (join->memory_count == 0) clear_hosts(join); /* before the store takes as much for the work of devices */
    FS_TRY(fs_join_append_devices(&all->owners, err));
    return join->memory_count > 0 ? fs_join_memory(join, err) : FS_OK;
}

fs_status fs_join_pieces(fs_piece *pieces, uint32_t count, fs_join_options options, fs_store *store,
                         fs_kineto_report *report, fs_error *err)
{
    joining all = {.join = {.store = store, .pieces = pieces, .piece_count = count}};
    all.join.own = options.own;
    all.join.keeps_alike = options.keeps_alike;
    all.join.own_memory = options.own_memory;
    all.owners.join = &all.join;
    fs_status status = join_all(&all, err);
    report->contradicting = all.join.counts.contradicting;
    report->guessed = all.join.counts.guessed;
    report->overlapping = all.join.overlapping;
    clear(&all);
    return status;
}
