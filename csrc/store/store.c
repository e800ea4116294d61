/* An event has its index for ever, and a parent has a smaller index than its children. On each lane `open` is the
 * innermost open event, and following parents from there finds all that are open:
 *
 *   lane.base ── opened by no task, or a step    ◄─┐ parent
 *   lane.first ─ the task's first event          ◄─┤    asides: (first … open) of tasks that are suspended
 *   lane.open ── the innermost                   ──┘
 *
 * An event ends by its index, in any order, and what it encloses ends with it. Of a Python frame only the frames in it
 * do, as a generator may leave a range open. Every writer holds the lock for one short call, so an event is complete or
 * absent. */
#include "store/store.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/samples.h"
#include "store/stacks.h"

/* Memory of events ------------------------------------------------------------------------------------------------- */

/* A chunk never moves once it was added, so a pointer to it stays good while others are appended. Chunks of large
 * stores are allocated four at a time, which fills huge pages; such a block is freed by its first chunk. The first four
 * chunks may be blocks of their own: allocators may put them side by side, so their addresses do not tell. */

/* Chunks never move. Later ones are allocated several at a time, as a number of huge pages: a fork copies the page
 * tables, 0.1 ms for each MB of small pages. */
typedef struct {
    fs_chunk **at;
    uint32_t count, capacity;
    uint32_t single; /* of the first, how many are not in a block of several */
    bool many;       /* many are expected */
} chunk_list;

/* More events than ids: the last id means "none". */
enum { MAX_CHUNKS = (1 << (32 - FS_CHUNK_BITS)) - 1 };

/* Chunks of a block: 14 MB, seven huge pages. */
enum { BLOCK_CHUNKS = 4 };

static fs_chunk *next_chunk(chunk_list *chunks)
{
    uint32_t place = chunks->count % BLOCK_CHUNKS;
    if (chunks->count == 0) chunks->single = chunks->many ? 0 : BLOCK_CHUNKS;
    if (chunks->count < chunks->single) return fs_malloc(sizeof(fs_chunk));
    return place == 0 ? fs_malloc(BLOCK_CHUNKS * sizeof(fs_chunk)) : chunks->at[chunks->count - 1] + 1;
}

/* Append a chunk. FS_OUT_OF_MEMORY. */
static fs_status add_chunk(chunk_list *chunks, fs_error *err)
{
    if (chunks->count == MAX_CHUNKS) {
        return fs_fail(err, FS_OUT_OF_MEMORY, "a store holds at most %lld events: profile a shorter part",
                       (long long)MAX_CHUNKS << FS_CHUNK_BITS);
    }
    FS_TRY(FS_LIST_ROOM(&chunks->at, chunks->count, &chunks->capacity, 16, err));
    fs_chunk *chunk = next_chunk(chunks);
    if (chunk == NULL) return fs_no_memory(err);
    chunks->at[chunks->count++] = chunk;
    return FS_OK;
}

static void clear_chunks(chunk_list *chunks)
{
    for (uint32_t i = chunks->count; i-- > 0;)
        if (i < chunks->single || i % BLOCK_CHUNKS == 0) fs_free(chunks->at[i]);
    fs_free(chunks->at);
    *chunks = (chunk_list){0};
}

/* Stores ----------------------------------------------------------------------------------------------------------- */

/* Open events of a suspended task. */
typedef struct {
    uint32_t lane, open, first;
    uint64_t task;
} fs_aside;

typedef struct {
    fs_counter_tracks tracks;
    fs_stacks stacks;
} fs_store_samples;

struct fs_store {
    fs_lock lock;
    uint64_t serial; /* distinguishes stores in thread_cache, as addresses may be reused */
    uint32_t count;
    chunk_list chunks;
    fs_intern names, signatures;
    fs_intern lane_keys; /* device and id of each lane, ids as in lanes */
    fs_lane *lanes;
    uint32_t lane_count, lane_capacity;
    fs_aside *asides;
    uint32_t aside_count, aside_capacity;
    int64_t window[2];
    fs_device_facts *devices;
    int device_count;
    fs_store_samples *samples; /* its own block, so that a const store gives access to it */
};

/* A field of an event. */
#define FS_STORE_AT(store, index, field) \
    ((store)->chunks.at[(index) >> FS_CHUNK_BITS]->field[(index) & (FS_CHUNK_EVENTS - 1)])

/* The calling thread's lane in the store that it used last. */
static _Thread_local struct {
    uint64_t serial;
    uint32_t lane;
} thread_cache;

static atomic_ullong store_serials;

fs_status fs_store_create(fs_store **store, fs_error *err)
{
    fs_store *result = fs_calloc(1, sizeof *result);
    if (result != NULL) result->samples = fs_calloc(1, sizeof *result->samples);
    if (result == NULL || result->samples == NULL) {
        fs_free(result);
        return fs_no_memory(err);
    }
    result->serial = atomic_fetch_add(&store_serials, 1) + 1;
    result->window[0] = result->window[1] = FS_MISSING;
    *store = result;
    return FS_OK;
}

void fs_store_destroy(fs_store *store)
{
    if (store == NULL) return;
    clear_chunks(&store->chunks);
    fs_free(store->lanes);
    fs_free(store->asides);
    fs_free(store->devices);
    fs_counter_tracks_clear(&store->samples->tracks);
    fs_stacks_clear(&store->samples->stacks);
    fs_free(store->samples);
    fs_intern_clear(&store->names);
    fs_intern_clear(&store->signatures);
    fs_intern_clear(&store->lane_keys);
    fs_free(store);
}

void fs_store_expect(fs_store *store, uint32_t count)
{
    store->chunks.many = count >= FS_CHUNK_EVENTS;
}

/* Ids ------------------------------------------------------------------------------------------------------------ */

fs_status fs_store_name(fs_store *store, const char *text, uint32_t *id, fs_error *err)
{
    return FS_LOCKED(&store->lock, fs_intern_text(&store->names, text, id, err));
}

fs_status fs_store_signature(fs_store *store, const void *bytes, size_t size, uint32_t *id, fs_error *err)
{
    return FS_LOCKED(&store->lock, fs_intern_bytes(&store->signatures, bytes, size, id, err));
}

fs_status fs_store_append_signature(fs_store *store, const void *bytes, size_t size, uint32_t *id, fs_error *err)
{
    return FS_LOCKED(&store->lock, fs_intern_append(&store->signatures, bytes, size, id, err));
}

static fs_status find_lane(fs_store *store, bool on_device, int device, uint64_t id, uint32_t *lane, fs_error *err)
{
    const uint64_t key[2] = {on_device ? (uint64_t)device : UINT64_MAX, id};
    FS_TRY(FS_LIST_ROOM(&store->lanes, store->lane_count, &store->lane_capacity, 8, err));
    FS_TRY(fs_intern_bytes(&store->lane_keys, key, sizeof key, lane, err));
    if (*lane < store->lane_count) return FS_OK;
    store->lanes[store->lane_count++] = (fs_lane){
        .on_device = on_device, .device = device, .id = id, .open = FS_NONE, .base = FS_NONE, .first = FS_NONE};
    return FS_OK;
}

static fs_status thread_lane(fs_store *store, uint32_t *lane, fs_error *err)
{
    if (thread_cache.serial != store->serial) {
        FS_TRY(find_lane(store, false, -1, (uint64_t)syscall(SYS_gettid), &thread_cache.lane, err));
        thread_cache.serial = store->serial;
    }
    *lane = thread_cache.lane;
    return FS_OK;
}

fs_status fs_store_device_lane(fs_store *store, int device, uint64_t stream, uint32_t *lane, fs_error *err)
{
    return FS_LOCKED(&store->lock, find_lane(store, true, device, stream, lane, err));
}

fs_status fs_store_thread_lane(fs_store *store, uint32_t *lane, fs_error *err)
{
    return FS_LOCKED(&store->lock, thread_lane(store, lane, err));
}

fs_status fs_store_thread_lane_of(fs_store *store, uint64_t thread, uint32_t *lane, fs_error *err)
{
    return FS_LOCKED(&store->lock, find_lane(store, false, -1, thread, lane, err));
}

/* Appending ------------------------------------------------------------------------------------------------------ */

static fs_status append(fs_store *store, const fs_event *event, uint32_t *index, fs_error *err)
{
    uint32_t at = store->count & (FS_CHUNK_EVENTS - 1);
    if (store->count >> FS_CHUNK_BITS == store->chunks.count) FS_TRY(add_chunk(&store->chunks, err));
    fs_chunk *chunk = store->chunks.at[store->count >> FS_CHUNK_BITS];
#define STORE_FIELD(type, name, missing, prose) chunk->name[at] = event->name;
    FS_EVENT_COLUMN_LIST(STORE_FIELD)
    if (index != NULL) *index = store->count;
    store->count++;
    return FS_OK;
}

fs_status fs_store_append(fs_store *store, const fs_event *event, uint32_t *index, fs_error *err)
{
    return FS_LOCKED(&store->lock, append(store, event, index, err));
}

fs_status fs_store_reserve(fs_store *store, uint32_t count, uint32_t *first, fs_error *err)
{
    fs_status status = FS_OK;
    fs_lock_take(&store->lock);
    uint64_t end = (uint64_t)store->count + count;
    while (status == FS_OK && (uint64_t)store->chunks.count << FS_CHUNK_BITS < end)
        status = add_chunk(&store->chunks, err);
    *first = store->count;
    if (status == FS_OK) store->count = (uint32_t)end;
    fs_lock_give(&store->lock);
    return status;
}

void fs_store_put(fs_store *store, uint32_t index, const fs_event *event)
{
    uint32_t at = index & (FS_CHUNK_EVENTS - 1);
    fs_chunk *chunk = store->chunks.at[index >> FS_CHUNK_BITS];
    FS_EVENT_COLUMN_LIST(STORE_FIELD)
}

static fs_status begin(fs_store *store, fs_event *event, uint32_t *index, fs_error *err)
{
    fs_lane *lane = &store->lanes[event->lane];
    event->parent = lane->open;
    FS_TRY(append(store, event, index, err));
    lane->open = *index;
    if (lane->first != FS_NONE) return FS_OK;
    if (lane->task == 0 || event->kind == FS_EVENT_STEP) lane->base = *index;
    else lane->first = *index;
    return FS_OK;
}

fs_status fs_store_begin(fs_store *store, fs_event_kind kind, uint32_t name, uint32_t signature, int64_t start,
                         uint32_t *index, fs_error *err)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name;
    event.signature = signature;
    event.start = start;
    fs_lock_take(&store->lock);
    fs_status status = thread_lane(store, &event.lane, err);
    if (status == FS_OK) status = begin(store, &event, index, err);
    fs_lock_give(&store->lock);
    return status;
}

fs_status fs_store_begin_on(fs_store *store, uint32_t lane, fs_event_kind kind, uint32_t name, int64_t start,
                            uint32_t *index, fs_error *err)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name;
    event.start = start;
    event.lane = lane;
    return FS_LOCKED(&store->lock, begin(store, &event, index, err));
}

#define AT FS_STORE_AT

static void close_event(fs_store *store, uint32_t index, int64_t end)
{
    int64_t *duration = &AT(store, index, duration);
    if (*duration == FS_MISSING) *duration = fs_sub_saturated(end, AT(store, index, start));
}

/* Whether `index` is `inner` or encloses it. */
static bool encloses(const fs_store *store, uint32_t index, uint32_t inner)
{
    while (inner != FS_NONE && inner > index) inner = AT(store, inner, parent);
    return inner == index;
}

/* From `open`, which is `index` or inside it, the innermost event that is still open once `index` has ended. */
static uint32_t close_chain(fs_store *store, uint32_t open, uint32_t index, int64_t end)
{
    bool all = AT(store, index, kind) != FS_EVENT_FRAME;
    for (uint32_t inner = open; inner != index; inner = AT(store, inner, parent)) {
        if (all || AT(store, inner, kind) == FS_EVENT_FRAME) close_event(store, inner, end);
    }
    while (open != FS_NONE && AT(store, open, duration) != FS_MISSING) open = AT(store, open, parent);
    return open;
}

/* Whether the open event is no longer the task's: it began before the task's first event. */
static bool is_left(uint32_t open, uint32_t first)
{
    return open == FS_NONE || open < first;
}

static void end_on_lane(fs_store *store, fs_lane *lane, uint32_t index, int64_t end)
{
    lane->open = close_chain(store, lane->open, index, end);
    while (lane->base != FS_NONE && AT(store, lane->base, duration) != FS_MISSING)
        lane->base = AT(store, lane->base, parent);
    if (lane->first != FS_NONE && !is_left(lane->open, lane->first)) return;
    lane->first = FS_NONE;
    lane->open = lane->base;
}

/* End an event that is not open on its lane: one that a suspended task has open. */
static void end_aside(fs_store *store, uint32_t index, int64_t end)
{
    for (uint32_t i = 0; i < store->aside_count; i++) {
        fs_aside *held = &store->asides[i];
        if (index < held->first || !encloses(store, index, held->open)) continue;
        held->open = close_chain(store, held->open, index, end);
        if (is_left(held->open, held->first)) *held = store->asides[--store->aside_count];
        return;
    }
}

static void end_event(fs_store *store, uint32_t index, int64_t end)
{
    uint32_t lane = AT(store, index, lane), lanes = lane == FS_NONE ? store->lane_count : lane + 1;
    close_event(store, index, end);
    /* A suspended range has no lane: it may be open on any. */
    for (lane = lane == FS_NONE ? 0 : lane; lane < lanes; lane++)
        if (encloses(store, index, store->lanes[lane].open)) break;
    if (lane < lanes) end_on_lane(store, &store->lanes[lane], index, end);
    else if (store->aside_count > 0) end_aside(store, index, end);
}

void fs_store_end(fs_store *store, uint32_t index, int64_t end)
{
    fs_lock_take(&store->lock);
    end_event(store, index, end);
    fs_lock_give(&store->lock);
}

void fs_store_end_range(fs_store *store, uint32_t index, int64_t end)
{
    uint32_t here;
    fs_lock_take(&store->lock);
    uint32_t lane = AT(store, index, lane);
    bool on_lane = lane != FS_NONE, innermost = on_lane && store->lanes[lane].open == index;
    bool nests = innermost && thread_lane(store, &here, NULL) == FS_OK && here == lane;
    if (!on_lane || innermost) end_event(store, index, end);
    else close_event(store, index, end);
    if (!nests) AT(store, index, lane) = FS_NONE;
    fs_lock_give(&store->lock);
}

/* Tasks ---------------------------------------------------------------------------------------------------------- */

/* If memory is exhausted, the suspended task's open events enclose nothing more. Each of them still ends. */
static void set_aside(fs_store *store, uint32_t lane, const fs_lane *from)
{
    for (uint32_t at = from->open; !is_left(at, from->first); at = AT(store, at, parent)) {
        if (AT(store, at, kind) == FS_EVENT_RANGE) AT(store, at, lane) = FS_NONE;
    }
    if (FS_LIST_ROOM(&store->asides, store->aside_count, &store->aside_capacity, 8, NULL) != FS_OK) return;
    store->asides[store->aside_count++] = (fs_aside){lane, from->open, from->first, from->task};
}

void fs_store_run_task(fs_store *store, uint64_t task)
{
    uint32_t id;
    fs_lock_take(&store->lock);
    if (thread_lane(store, &id, NULL) == FS_OK && store->lanes[id].task != task) {
        fs_lane *lane = &store->lanes[id];
        if (lane->first != FS_NONE) set_aside(store, id, lane);
        lane->task = task;
        lane->open = lane->base;
        lane->first = FS_NONE;
        for (uint32_t i = 0; task != 0 && i < store->aside_count; i++) {
            fs_aside *held = &store->asides[i];
            if (held->lane != id || held->task != task) continue;
            lane->open = held->open;
            lane->first = held->first;
            *held = store->asides[--store->aside_count];
            break;
        }
    }
    fs_lock_give(&store->lock);
}

void fs_store_rename(fs_store *store, uint32_t index, uint32_t name)
{
    fs_lock_take(&store->lock);
    AT(store, index, name) = name;
    fs_lock_give(&store->lock);
}

void fs_store_set_forward(fs_store *store, uint32_t index, uint32_t forward)
{
    fs_lock_take(&store->lock);
    AT(store, index, forward) = forward;
    fs_lock_give(&store->lock);
}

void fs_store_set(fs_store *store, uint32_t index, const fs_event *event)
{
    fs_lock_take(&store->lock);
    fs_store_put(store, index, event);
    fs_lock_give(&store->lock);
}

void fs_store_set_window(fs_store *store, int64_t begin, int64_t end)
{
    store->window[0] = begin;
    store->window[1] = end;
}

void fs_store_window(const fs_store *store, int64_t *begin, int64_t *end)
{
    *begin = store->window[0];
    *end = store->window[1];
}

fs_status fs_store_set_device(fs_store *store, int device, const fs_device_facts *facts, fs_error *err)
{
    fs_status status = FS_OK;
    fs_lock_take(&store->lock);
    if (device >= store->device_count) {
        fs_device_facts *devices = fs_realloc(store->devices, (size_t)(device + 1) * sizeof *devices);
        if (devices == NULL) {
            status = fs_no_memory(err);
        } else {
            store->devices = devices;
            while (store->device_count <= device) devices[store->device_count++] = fs_device_facts_missing;
        }
    }
    if (status == FS_OK) store->devices[device] = *facts;
    fs_lock_give(&store->lock);
    return status;
}

static uint32_t close_all(fs_store *store, uint32_t open, int64_t end)
{
    uint32_t closed = 0;
    for (; open != FS_NONE; open = AT(store, open, parent)) {
        closed += AT(store, open, duration) == FS_MISSING;
        close_event(store, open, end);
    }
    return closed;
}

uint32_t fs_store_end_all(fs_store *store, int64_t end)
{
    uint32_t closed = 0;
    fs_lock_take(&store->lock);
    for (uint32_t i = 0; i < store->lane_count; i++) {
        fs_lane *lane = &store->lanes[i];
        closed += close_all(store, lane->open, end) + close_all(store, lane->base, end);
        lane->open = lane->base = lane->first = FS_NONE;
    }
    while (store->aside_count > 0) closed += close_all(store, store->asides[--store->aside_count].open, end);
    fs_lock_give(&store->lock);
    return closed;
}

uint32_t fs_store_innermost(fs_store *store)
{
    uint32_t lane, open = FS_NONE;
    fs_lock_take(&store->lock);
    if (thread_lane(store, &lane, NULL) == FS_OK) open = store->lanes[lane].open;
    fs_lock_give(&store->lock);
    return open;
}

void fs_store_hold(fs_store *store)
{
    fs_lock_take(&store->lock);
}

void fs_store_release(fs_store *store)
{
    fs_lock_give(&store->lock);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

/* Reading takes no lock: a store is read once nothing is appended to it any more. */

uint32_t fs_store_count(const fs_store *store)
{
    return store->count;
}

void fs_store_get(const fs_store *store, uint32_t index, fs_event *event)
{
#define LOAD_FIELD(type, name, missing, prose) event->name = FS_STORE_AT(store, index, name);
    FS_EVENT_COLUMN_LIST(LOAD_FIELD)
}

const fs_chunk *fs_store_chunk(const fs_store *store, uint32_t chunk)
{
    return store->chunks.at[chunk];
}

fs_chunk *const *fs_store_chunks(const fs_store *store)
{
    return store->chunks.at;
}

uint32_t fs_store_name_count(const fs_store *store)
{
    return store->names.count;
}

const char *fs_store_name_text(const fs_store *store, uint32_t id)
{
    return fs_intern_get(&store->names, id).bytes;
}

uint32_t fs_store_signature_count(const fs_store *store)
{
    return store->signatures.count;
}

fs_span fs_store_signature_bytes(const fs_store *store, uint32_t id)
{
    return fs_intern_get(&store->signatures, id);
}

uint32_t fs_store_lane_count(const fs_store *store)
{
    return store->lane_count;
}

fs_device_facts fs_store_device(const fs_store *store, int device)
{
    return device >= 0 && device < store->device_count ? store->devices[device] : fs_device_facts_missing;
}

fs_counter_tracks *fs_store_tracks(const fs_store *store)
{
    return &store->samples->tracks;
}

fs_stacks *fs_store_stacks(const fs_store *store)
{
    return &store->samples->stacks;
}

fs_lane fs_store_lane(const fs_store *store, uint32_t id)
{
    return store->lanes[id];
}

int64_t fs_store_nbytes(const fs_store *store)
{
    return (int64_t)store->chunks.count * (int64_t)sizeof(fs_chunk);
}
